"""The columns of any table of records: which column is which field of a raw row, what type it must have, and the conversion by Arrow.

A table may have the columns of Spark's Kafka source (``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``) or those of
the source ``consumer_offsets`` (``offsets_partition``, ``record_offset``, ``record_timestamp_ms``, ``producer_id`` and so on). Where a
table has both, a name of the second kind counts, because in decoded records ``topic`` and ``partition`` are those of the consumed topic.
No Spark here: workers convert the rows of files and of DataFrames in the same way.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

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
"""Field of a raw row -> the names of the columns that may have it; the first one that a table has is read."""

_OF_TRANSACTIONS: Final = ("producer_id", "producer_epoch", "is_transactional")
_SQL_NAMES: Final = {pa.int64(): "BIGINT", pa.int32(): "INT", pa.int16(): "SMALLINT", pa.bool_(): "BOOLEAN", pa.string(): "STRING"}


def fields_of(names: Iterable[str]) -> dict[str, str]:
    """Field of a raw row, or TOPIC -> the column of a table with these columns that has it. Names are the same in upper case."""
    by_lower = {name.lower(): name for name in names}
    fields = {field: by_lower[name] for field, of_field in NAMES.items() for name in [_first(of_field, by_lower)] if name is not None}
    if TOPIC in by_lower and PARTITION not in by_lower:
        fields[TOPIC] = by_lower[TOPIC]
    return fields


def _first(names: Iterable[str], columns: Collection[str]) -> str | None:
    return next((name for name in names if name in columns), None)


def lacks_of(fields: Collection[str]) -> frozenset[str]:
    """The words of LACKING for what rows with these fields do not have."""
    needed = {TRANSACTIONS: ("producer_id", "is_transactional", "control_type"), TIMESTAMPS: (TIMESTAMP,), LEADER_EPOCHS: ("leader_epoch",)}
    return frozenset(word for word, names in needed.items() if not all(name in fields for name in names))


def needed_type(field: str, kind: pa.DataType) -> str | None:
    """The type that the column of a field must have, for a sentence; None where a column of this type can be converted."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_null(kind):
        return None
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if field in ("key", "value"):
        is_bytes = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        return None if is_bytes else "BINARY, the bytes as they are in the topic: text loses some of them"
    if field == TIMESTAMP:
        return None if is_number or pa.types.is_timestamp(kind) else "a TIMESTAMP, or a BIGINT of epoch milliseconds"
    return None if is_text or is_number or pa.types.is_boolean(kind) else _SQL_NAMES[RAW_SCHEMA.field(field).type]


def raw_rows(columns: Mapping[str, pa.Array], n: int) -> pa.RecordBatch:
    """``n`` raw rows, of ROW_SCHEMA. columns: by field, of types for which ``needed_type`` is None; a field may be absent.

    A row without a place, or with a value of a transaction that is no number of its size, is a row with a fault.
    """
    rows = {field.name: _converted(field, columns.get(field.name), n) for field in RAW_SCHEMA}
    has_partition, has_offset = (pc.fill_null(pc.greater_equal(rows[name], 0), False) for name in (PARTITION, OFFSET))
    nothing = pa.scalar(None, pa.string())
    detail = pc.if_else(has_partition, pc.if_else(has_offset, nothing, NO_OFFSET), NO_PARTITION)
    fault = pc.if_else(pc.and_(has_partition, has_offset), nothing, "row_without_place")
    for name in _OF_TRANSACTIONS:
        if name in columns and rows[name].null_count > columns[name].null_count:
            is_malformed = pc.and_(columns[name].is_valid(), pc.and_(rows[name].is_null(), fault.is_null()))
            fault = pc.if_else(is_malformed, "row_malformed", fault)
            detail = pc.if_else(is_malformed, f"{name} is not a {_SQL_NAMES[rows[name].type]}.", detail)
    rows |= {name: rows[name].fill_null(absent) for name, absent in ABSENT.items() if rows[name].null_count}
    rows[PARTITION] = pc.if_else(has_partition, rows[PARTITION], pa.scalar(UNKNOWN_PARTITION, pa.int32()))
    rows[OFFSET] = pc.if_else(has_offset, rows[OFFSET], pa.scalar(None, pa.int64()))
    return pa.RecordBatch.from_pydict({**rows, "fault": fault, "detail": detail}, ROW_SCHEMA)


def _converted(field: pa.Field, column: pa.Array | None, n: int) -> pa.Array:
    """The column in the field's type; NULL where a value does not fit the type."""
    if column is None:
        return pa.nulls(n, field.type)
    if field.name == TIMESTAMP and pa.types.is_timestamp(column.type):
        # Times without a zone are UTC. Times before 1970 are rounded down, so that Kafka's -1 stays -1.
        milliseconds = pc.floor_temporal(column, unit="millisecond").cast(pa.timestamp("ms", column.type.tz))
        return milliseconds.cast(pa.int64())
    if field.name == "control_type" and pa.types.is_integer(column.type):  # the numbers that brokers store
        names = [None if number is None else control_type_name(number) for number in column.to_pylist()]
        return pa.array(names, pa.string())
    return as_type(column, field.type)


def as_type(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The column in that type; NULL where a value does not fit the type."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:  # not all values fit: look at each of them
        return pa.array([_value_as(value, kind) for value in column.to_pylist()], kind)


def _value_as(value: Any, kind: pa.DataType) -> Any:
    try:
        return pa.scalar(value.strip() if isinstance(value, str) else value).cast(kind).as_py()
    except pa.ArrowInvalid:
        return None
