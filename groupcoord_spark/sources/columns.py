"""Map the columns of any table of records to the fields of a raw row, check their types, and convert them by Arrow.

A table may have the columns of Spark's Kafka source (``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``) or the
columns of the source ``consumer_offsets`` (``offsets_partition``, ``record_offset``, ``record_timestamp_ms``, ``producer_id`` and so on).
If a table has both, a name of the second kind counts, because in decoded records ``topic`` and ``partition`` belong to the consumed topic.
No Spark here: workers convert the rows of files and of DataFrames in the same way.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.sources.byte_texts import NO_TEXT, TextForm, TextForms
from groupcoord_spark.sources.rows import (
    ABSENT,
    LEADER_EPOCHS,
    NO_OFFSET,
    NO_PARTITION,
    RAW_SCHEMA,
    ROW_SCHEMA,
    TIMESTAMPS,
    TRANSACTIONS,
    UNKNOWN_PARTITION,
    RowBatch,
    control_type_name,
)

PARTITION, OFFSET, TIMESTAMP = "offsets_partition", "record_offset", "record_timestamp_ms"
TOPIC: Final = "topic"

NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    **{field.name: (field.name,) for field in RAW_SCHEMA},
    PARTITION: (PARTITION, "partition"),
    OFFSET: (OFFSET, "offset"),
    TIMESTAMP: (TIMESTAMP, "timestamp"),
    "control_type": ("control_type", "control"),
}
"""Field of a raw row -> the names of the columns that may have it; the first name in a table counts."""

FIRST_SECOND, END_SECOND = 1_388_534_400, 4_102_444_800
"""From 2014, the first year of the offsets topic, up to 2100: the times that a record may have."""


@dataclass(frozen=True, slots=True)
class TimeUnit:
    """A unit of epoch times. The numbers that the units give to plausible times do not overlap, so that a number shows its unit."""

    name: str
    per_second: int

    @property
    def span(self) -> tuple[int, int]:
        """The first plausible time, and the end of plausible times."""
        return FIRST_SECOND * self.per_second, END_SECOND * self.per_second


MILLISECONDS: Final = TimeUnit("milliseconds", 10**3)
OTHER_UNITS: Final = (TimeUnit("seconds", 1), TimeUnit("microseconds", 10**6), TimeUnit("nanoseconds", 10**9))

_OF_TRANSACTIONS: Final = ("producer_id", "producer_epoch", "is_transactional")
_SQL_NAMES: Final = {pa.int64(): "BIGINT", pa.int32(): "INT", pa.int16(): "SMALLINT", pa.bool_(): "BOOLEAN", pa.string(): "STRING"}


def fields_of(names: Iterable[str]) -> dict[str, str]:
    """Return the column of each field of a raw row, and of TOPIC, in a table with these columns. Upper case does not matter."""
    by_lower = {name.lower(): name for name in names}
    fields = {field: by_lower[name] for field, of_field in NAMES.items() for name in [_first(of_field, by_lower)] if name is not None}
    if TOPIC in by_lower and PARTITION not in by_lower:
        fields[TOPIC] = by_lower[TOPIC]
    return fields


def _first(names: Iterable[str], columns: Collection[str]) -> str | None:
    return next((name for name in names if name in columns), None)


def lacks_of(fields: Iterable[str]) -> frozenset[str]:
    """Return the words of LACKING for information that rows with these fields lack."""
    there = set(fields)
    needed = {TRANSACTIONS: ("producer_id", "is_transactional", "control_type"), TIMESTAMPS: (TIMESTAMP,), LEADER_EPOCHS: ("leader_epoch",)}
    return frozenset(word for word, names in needed.items() if not there.issuperset(names))


def without_views(schema: pa.Schema) -> pa.Schema:
    """Return the schema with BINARY and STRING in place of Arrow's view types, which the kernels that filter rows do not take.

    A Parquet file has no view types. Writers on DataFusion or polars keep them in its metadata (``ARROW:schema``).
    """
    plain = {"binary_view": pa.binary(), "string_view": pa.string()}  # the types themselves are only known from pyarrow 16 on
    return pa.schema([field.with_type(plain.get(str(field.type), field.type)) for field in schema])


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type is text."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def needed_type(field: str, kind: pa.DataType) -> str | None:
    """Return the type that the column of a field must have, for a sentence; None where a column of this type can be converted."""
    if pa.types.is_null(kind) or (is_text(kind) and field != TIMESTAMP):
        return None
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if field in ("key", "value"):
        is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        return None if is_bytes else "BINARY, the bytes as they are in the topic"
    if field == TIMESTAMP:
        return None if is_number or pa.types.is_timestamp(kind) else "a TIMESTAMP, or a BIGINT of epoch milliseconds"
    return None if is_number or pa.types.is_boolean(kind) else _SQL_NAMES[RAW_SCHEMA.field(field).type]


def row_batch(columns: Mapping[str, pa.Array], n: int, forms: TextForms = NO_TEXT, lacks: frozenset[str] = frozenset()) -> RowBatch:
    """Return ``n`` rows as a batch of raw rows.

    A row without a place, or with a field that does not hold what it must, is a row with a fault.

    Args:
        columns: by field; ``needed_type`` is None for their types; a field may be absent.
        forms: of keys and values that are text.
        lacks: what the columns do not contain whatever is in them.
    """
    counts: dict[str, int] = {}
    faults: list[tuple[pa.Array, str | pa.Array]] = []
    rows = {field.name: pa.nulls(n, field.type) for field in RAW_SCHEMA}
    for field in RAW_SCHEMA:
        if (column := columns.get(field.name)) is None:
            continue
        if field.name in ("key", "value") and is_text(column.type):
            rows[field.name], why, counts["value_empty"] = _bytes_of(column, forms, field.name)
            faults.append((why.is_valid(), why))
        else:
            rows[field.name] = _converted(field, column)
        if field.name in _OF_TRANSACTIONS and rows[field.name].null_count > column.null_count:
            is_malformed = pc.and_(column.is_valid(), rows[field.name].is_null())
            faults.append((is_malformed, f"{field.name} is not a {_SQL_NAMES[field.type]}."))
    rows[TIMESTAMP], of_units = in_milliseconds(rows[TIMESTAMP])
    has_partition, has_offset = (pc.fill_null(pc.greater_equal(rows[name], 0), False) for name in (PARTITION, OFFSET))
    nothing = pa.scalar(None, pa.string())
    detail = pc.if_else(has_partition, pc.if_else(has_offset, nothing, NO_OFFSET), NO_PARTITION)
    fault = pc.if_else(pc.and_(has_partition, has_offset), nothing, "row_without_place")
    for is_malformed, why in faults:
        is_first = pc.and_(is_malformed, fault.is_null())
        fault, detail = pc.if_else(is_first, "row_malformed", fault), pc.if_else(is_first, why, detail)
    told = {TRANSACTIONS: "is_transactional", TIMESTAMPS: TIMESTAMP, LEADER_EPOCHS: "leader_epoch"}
    lacks |= {word for word, name in told.items() if rows[name].null_count}
    rows |= {name: rows[name].fill_null(absent) for name, absent in ABSENT.items() if rows[name].null_count}
    rows[PARTITION] = pc.if_else(has_partition, rows[PARTITION], pa.scalar(UNKNOWN_PARTITION, pa.int32()))
    rows[OFFSET] = pc.if_else(has_offset, rows[OFFSET], pa.scalar(None, pa.int64()))
    batch = pa.RecordBatch.from_pydict({**rows, "fault": fault, "detail": detail}, ROW_SCHEMA)
    return RowBatch(batch, lacks=lacks if n else frozenset(), counts={name: count for name, count in (counts | of_units).items() if count})


def _bytes_of(column: pa.Array, forms: TextForms, name: str) -> tuple[pa.Array, pa.Array, int]:
    """Return the bytes of texts, why a text cannot be decoded, and the number of empty values, which are tombstones."""
    form = forms.key if name == "key" else forms.value
    decoded, details, empty = [], [], 0
    for text in column.to_pylist():
        raw = detail = None
        if name == "value" and text is not None and not text.strip():
            empty += 1
        elif text is not None:
            try:
                raw = form.decode(text)
            except ValueError as error:
                raw, detail = text.encode(), not_decoded(name, form, error)
        decoded.append(raw)
        details.append(detail)
    return pa.array(decoded, pa.binary()), pa.array(details, pa.string()), empty


def not_decoded(name: str, form: TextForm, error: ValueError) -> str:
    """Return the sentence about a text that is not in the form of its column."""
    return f"The {name} cannot be read: it is not {form.name}, the form of the first rows: {error}."


def in_milliseconds(times: pa.Array) -> tuple[pa.Array, dict[str, int]]:
    """Return epoch times in milliseconds, and the number of times by their unit, if it is another one, and of implausible times.

    times: int64 or float64 in any unit; NULL and negative numbers are left alone.
    """
    first, end = MILLISECONDS.span
    ends = pc.min_max(times).as_py()
    counts: dict[str, int] = {}
    if ends["min"] is not None and not (first <= ends["min"] and ends["max"] < end):
        for unit in OTHER_UNITS:
            is_in_unit = _is_between(times, *unit.span)
            if counted := pc.sum(is_in_unit).as_py():
                counts[unit.name] = counted
                of_unit = pc.if_else(is_in_unit, times, 0)
                factor, divisor = max(1, 1_000 // unit.per_second), max(1, unit.per_second // 1_000)
                converted = pc.divide(pc.multiply(of_unit, factor), divisor)
                times = pc.if_else(is_in_unit, converted, times)
        is_odd = pc.and_(pc.greater_equal(times, 0), pc.invert(_is_between(times, first, end)))
        counts["timestamp_implausible"] = pc.sum(is_odd).as_py() or 0
    # Kafka's times are whole milliseconds: a fraction comes from the arithmetic of floating-point numbers.
    return as_type(pc.round(times), pa.int64()) if pa.types.is_floating(times.type) else times, counts


def _is_between(times: pa.Array, first: int, end: int) -> pa.Array:
    first_time, end_time = pa.scalar(first).cast(times.type, safe=False), pa.scalar(end).cast(times.type, safe=False)
    return pc.and_(pc.greater_equal(times, first_time), pc.less(times, end_time))


def _converted(field: pa.Field, column: pa.Array) -> pa.Array:
    """Return the column in the field's type, times as int64 or float64; NULL where a value does not fit the type."""
    if field.name == TIMESTAMP and pa.types.is_timestamp(column.type):
        # Times without a zone are UTC. Times before 1970 are rounded down, so that Kafka's -1 stays -1.
        milliseconds = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz))
        return milliseconds.cast(pa.int64())
    if field.name == TIMESTAMP and (pa.types.is_floating(column.type) or pa.types.is_decimal(column.type)):
        return column.cast(pa.float64())
    if field.name == "control_type" and pa.types.is_integer(column.type):  # the numbers that brokers store
        names = [None if number is None else control_type_name(number) for number in column.to_pylist()]
        return pa.array(names, pa.string())
    return as_type(column, field.type)


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the column in that type, with NULL where a value does not fit the type."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:  # not all values fit: look at each of them
        return pa.array([_value_as(value, kind) for value in column.to_pylist()], kind)


def _value_as(value: Any, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(value.strip() if isinstance(value, str) else value).cast(kind).as_py()
    except pa.ArrowInvalid:
        return None
