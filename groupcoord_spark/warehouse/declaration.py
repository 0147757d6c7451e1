"""The declaration of a table: its columns, and everything that follows from them (Arrow and Delta schema, conversions, reference)."""

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.schema import Schema

# The years 1 to 9999: what every engine's TIMESTAMP can hold.
EARLIEST_TIMESTAMP_MS: Final = -62_135_596_800_000
LATEST_TIMESTAMP_MS: Final = 253_402_300_799_999

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_TIME_OUT_OF_RANGE: Final = pa.struct([pa.field("column", pa.string()), pa.field("milliseconds", pa.int64())])

_ARROW_TYPES: Final[Mapping[str, pa.DataType]] = {
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "SMALLINT": pa.int16(),
    "INT": pa.int32(),
    "BIGINT": pa.int64(),
    "TIMESTAMP": _TIMESTAMP,
    "ARRAY<STRING>": pa.list_(pa.field("element", pa.string())),
    "ARRAY<STRUCT<column: STRING, milliseconds: BIGINT>>": pa.list_(pa.field("element", _TIME_OUT_OF_RANGE)),
    "MAP<STRING, STRING>": pa.map_(pa.string(), pa.string()),
    "MAP<STRING, BIGINT>": pa.map_(pa.string(), pa.int64()),
}

class WriteMode(enum.Enum):
    """What a run does to the rows of its cluster that earlier runs wrote."""

    REPLACED_BY_EACH_RUN = "replaced for its cluster by each run"
    APPENDED = "appended, never rewritten"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        declared: SQL type, for example ``BIGINT NOT NULL``.
        sentence: what the column holds; users read it as the column's comment.
        words: every value that the column can have, where there are few; the comment ends with them.
        absent: Kafka's value for "none"; it is stored as NULL.
        meanings: for each word the sentence that the reference has for it.
    """

    name: str
    declared: str
    sentence: str
    words: tuple[str, ...] = ()
    absent: int | str | None = None
    meanings: Mapping[str, str] = field(default_factory=dict)

    @property
    def sql_type(self) -> str:
        return self.declared.removesuffix(" NOT NULL")

    @property
    def nullable(self) -> bool:
        return not self.declared.endswith(" NOT NULL")

    @property
    def arrow_type(self) -> pa.DataType:
        return _ARROW_TYPES[self.sql_type]

    @property
    def is_time(self) -> bool:
        return self.sql_type == "TIMESTAMP"

    @property
    def comment(self) -> str:
        return f"{self.sentence} One of: {', '.join(self.words)}." if self.words else self.sentence


TIMESTAMPS_OUT_OF_RANGE: Final = Column(
    "timestamps_out_of_range",
    "ARRAY<STRUCT<column: STRING, milliseconds: BIGINT>>",
    "Exact epoch milliseconds of times outside of the years 1 to 9999, which are NULL in their own column. NULL nearly always.",
)


@dataclass(frozen=True)
class Table:
    """One table of the warehouse. Every table begins with ``cluster`` and is partitioned by it."""

    name: str
    comment: str
    primary_key: tuple[str, ...]
    columns: tuple[Column, ...]
    write: WriteMode = WriteMode.REPLACED_BY_EACH_RUN
    checks: Mapping[str, str] = field(default_factory=dict)
    """Name -> SQL condition on values that we compute. Delta enforces it for every writer."""
    former_checks: tuple[str, ...] = ()
    """Names of checks that tables of older releases have, and that an upgrade removes."""
    group_rows: int = 250_000
    """Rows of a row group of its files: the unit that readers skip and that a writer has in memory."""

    partition_columns = ("cluster",)

    def __getstate__(self) -> dict[str, object]:
        """Return the declaration for Spark's workers without derived values. A delta-rs schema cannot be pickled."""
        return {declared.name: getattr(self, declared.name) for declared in fields(self)}

    @cached_property
    def by_name(self) -> Mapping[str, Column]:
        return {column.name: column for column in self.columns}

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """All columns in order. NOT NULL columns are not nullable; times are microseconds in UTC."""
        return pa.schema([pa.field(c.name, c.arrow_type, c.nullable) for c in self.columns])

    @cached_property
    def file_schema(self) -> pa.Schema:
        """The schema of a Parquet file: ``arrow_schema`` without the partition columns, which stand in Delta's log."""
        return pa.schema([f for f in self.arrow_schema if f.name not in self.partition_columns])

    @cached_property
    def delta_schema(self) -> Schema:
        """The schema with its comments, as Delta's transaction log has it."""
        comments = [{"comment": column.comment} for column in self.columns]
        return Schema.from_arrow(pa.schema([f.with_metadata(c) for f, c in zip(self.arrow_schema, comments, strict=True)]))

    @cached_property
    def statistics(self) -> tuple[str, ...]:
        """The columns whose smallest and largest value are kept for each file: those that queries filter by."""
        wanted = (*self.primary_key, "offsets_partition", "record_offset", "group_id", "topic", "record_timestamp", "finished_at", "run_id")
        kinds = {"STRING", "SMALLINT", "INT", "BIGINT", "TIMESTAMP"}
        return tuple(c.name for c in self.columns if c.name in wanted and c.sql_type in kinds and c.name not in self.partition_columns)

    def empty(self) -> pa.Table:
        """Return the table without rows."""
        return no_rows(self.arrow_schema)

    def from_rows(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Return the rows as an Arrow table of this table's columns. A column without values is NULL.

        rows: Kafka's values by column name; times as ``<name>_ms`` integers, -1 for none. Raises ValueError for an unknown column.
        """
        listed = list(rows)
        names = list(dict.fromkeys(name for row in listed for name in row))
        values = ([list(value.items()) if isinstance(value := row.get(name), Mapping) else value for name in names] for row in listed)
        return self.from_milliseconds(self.columns_of(names, values), rows=len(listed))

    def columns_of(self, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> pa.Table:
        """Return the rows as columns for ``from_milliseconds``. ``names`` lists the columns of a row, a time as ``<name>_ms``."""
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        return pa.table({name: pa.array(values, self._type_before_conversion(name)) for name, values in zip(names, columns, strict=True)})

    def _type_before_conversion(self, name: str) -> pa.DataType:
        """Return the type of a column before ``from_milliseconds``. Raises ValueError if the table does not have the column."""
        time = self.by_name.get(name.removesuffix("_ms"))
        if name not in self.by_name and (time is None or not time.is_time):
            raise ValueError(f"table {self.name} has no column {[name]!r}")
        return self.by_name[name].arrow_type if name in self.by_name else pa.int64()

    def from_milliseconds(self, data: pa.Table, *, rows: int | None = None) -> pa.Table:
        """Convert columns in Kafka's representation to this table's columns. Only here times become TIMESTAMPs and "none" becomes NULL.

        Args:
            data: any of the table's columns by name; a time also as ``<name>_ms`` (int64 epoch milliseconds). Strings may be
                dictionary-encoded and stay so.
            rows: the number of rows, needed where ``data`` has no column at all.

        Returns:
            Every column of the table in its order, except partition columns that ``data`` lacks. A nullable column that ``data`` lacks is
            NULL. A time outside of the years 1 to 9999 is NULL, and ``timestamps_out_of_range`` has its exact milliseconds.

        Raises:
            ValueError: ``data`` has a column that the table lacks, or lacks a NOT NULL column, or has a time out of range and the table
                has no ``timestamps_out_of_range``.
        """
        count = data.num_rows if rows is None else rows
        columns_left = dict(zip(data.column_names, data.columns, strict=True))
        converted: dict[str, pa.ChunkedArray] = {}
        out_of_range: list[tuple[str, pa.ChunkedArray]] = []
        for column in self.columns:
            values = columns_left.pop(f"{column.name}_ms", None) if column.is_time else None
            if values is not None:
                values, milliseconds_out_of_range = _timestamps(values, column.absent)
                if milliseconds_out_of_range is not None:
                    out_of_range.append((column.name, milliseconds_out_of_range))
            else:
                values = columns_left.pop(column.name, None)
                if values is not None:
                    values = _without_absent(_typed(values, column.arrow_type), column.absent)
            if values is not None:
                converted[column.name] = values
            elif column.name not in self.partition_columns:
                if not column.nullable and count:
                    raise ValueError(f"table {self.name}: column {column.name} is NOT NULL and missing")
                converted[column.name] = pa.chunked_array([pa.nulls(count, column.arrow_type)])
        if columns_left:
            raise ValueError(f"table {self.name} has no column {sorted(columns_left)!r}")
        if out_of_range:
            if TIMESTAMPS_OUT_OF_RANGE.name not in converted:
                raise ValueError(f"table {self.name}: {out_of_range[0][0]} holds a time outside of the years 1 to 9999")
            converted[TIMESTAMPS_OUT_OF_RANGE.name] = _column_of_times_out_of_range(out_of_range, count)
        fields = [pa.field(c.name, converted[c.name].type, c.nullable) for c in self.columns if c.name in converted]
        return pa.Table.from_arrays([converted[f.name] for f in fields], schema=pa.schema(fields))

    def to_milliseconds(self, rows: pa.Table) -> pa.Table:
        """Revert ``from_milliseconds``: every time as ``<name>_ms``, and Kafka's own value for "none" in place of NULL.

        rows: any of the table's columns; where a time can be out of range, ``timestamps_out_of_range`` too, which is left out of the
        result. A column without a value for "none" keeps its NULLs.
        """
        converted: dict[str, pa.ChunkedArray] = {}
        for name in rows.column_names:
            column, values = self.by_name[name], rows[name]
            if column.is_time:
                values = _exact_milliseconds(rows, name)
            if column.absent is not None:
                values = pc.fill_null(values, pa.scalar(column.absent, values.type))
            if name != TIMESTAMPS_OUT_OF_RANGE.name:
                converted[f"{name}_ms" if column.is_time else name] = values
        return pa.table(converted)


def no_rows(schema: pa.Schema) -> pa.Table:
    """Return a table without rows. ``Schema.empty_table`` does the same but imports pandas."""
    return pa.Table.from_batches([], schema)


def _typed(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if values.type == wanted or (pa.types.is_dictionary(values.type) and values.type.value_type == wanted):
        return values
    return values.cast(wanted)


def _without_absent(values: pa.ChunkedArray, absent: int | str | None) -> pa.ChunkedArray:
    if absent is None or len(values) == 0:
        return values
    if pa.types.is_dictionary(values.type):
        if not any(pc.any(pc.equal(chunk.dictionary, absent)).as_py() for chunk in values.chunks):
            return values
        values = values.cast(values.type.value_type)
    is_absent = pc.equal(values, pa.scalar(absent, values.type))
    if not pc.any(is_absent).as_py():
        return values
    return pc.if_else(is_absent, pa.scalar(None, values.type), values)


def _timestamps(milliseconds: pa.ChunkedArray, absent: int | str | None) -> tuple[pa.ChunkedArray, pa.ChunkedArray | None]:
    """Return the times as TIMESTAMPs, and the milliseconds outside of TIMESTAMP's range (NULL in other rows; None without such rows)."""
    milliseconds = _without_absent(_typed(milliseconds, pa.int64()), absent)
    bounds = pc.min_max(milliseconds).as_py()
    out_of_range = None
    if bounds["min"] is not None and (bounds["min"] < EARLIEST_TIMESTAMP_MS or bounds["max"] > LATEST_TIMESTAMP_MS):
        fits = pc.and_(
            pc.greater_equal(milliseconds, pa.scalar(EARLIEST_TIMESTAMP_MS, pa.int64())),
            pc.less_equal(milliseconds, pa.scalar(LATEST_TIMESTAMP_MS, pa.int64())),
        )
        none = pa.scalar(None, pa.int64())
        out_of_range = pc.if_else(fits, none, milliseconds)
        milliseconds = pc.if_else(fits, milliseconds, none)
    # datetime and pandas cannot hold all times, and are slow.
    return pc.multiply(milliseconds, pa.scalar(1000, pa.int64())).cast(_TIMESTAMP), out_of_range


def _column_of_times_out_of_range(out_of_range: list[tuple[str, pa.ChunkedArray]], rows: int) -> pa.ChunkedArray:
    times: list[list[dict[str, object]] | None] = [None] * rows
    for name, milliseconds in out_of_range:
        at = pc.indices_nonzero(pc.is_valid(milliseconds))
        for row, value in zip(at.to_pylist(), milliseconds.take(at).to_pylist(), strict=True):
            times[row] = [*(times[row] or []), {"column": name, "milliseconds": value}]
    return pa.chunked_array([pa.array(times, TIMESTAMPS_OUT_OF_RANGE.arrow_type)])


def _exact_milliseconds(rows: pa.Table, column: str) -> pa.ChunkedArray:
    """Return a time column as exact int64 epoch milliseconds, also outside of TIMESTAMP's range. NULL stays NULL."""
    # Whole milliseconds are all that was ever written: nothing is cut off.
    milliseconds = pc.divide(rows[column].cast(pa.int64()), pa.scalar(1000, pa.int64()))
    if TIMESTAMPS_OUT_OF_RANGE.name not in rows.column_names or rows[TIMESTAMPS_OUT_OF_RANGE.name].null_count == rows.num_rows:
        return milliseconds
    out_of_range = [
        next((time["milliseconds"] for time in times or () if time["column"] == column), None)
        for times in rows[TIMESTAMPS_OUT_OF_RANGE.name].to_pylist()
    ]
    return pc.coalesce(milliseconds, pa.chunked_array([pa.array(out_of_range, pa.int64())]))
