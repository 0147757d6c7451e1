"""The Parquet files that a reader writes: rows of the history tables, of quarantined_records, and of warnings.

The rows never cross to the JVM: the driver only gets the names of the files.
"""

from dataclasses import replace
from operator import attrgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.coordinator.rebalances import KEY_TYPES as REBALANCE_KEY_TYPES
from groupcoord_spark.log import Chunk, Records
from groupcoord_spark.pipeline.exchange.task_files import TaskFiles
from groupcoord_spark.pipeline.extents import HistoryRange
from groupcoord_spark.pipeline.read.decode import UNKNOWN_KEY_TYPE, DecodedChunk, RowNotes
from groupcoord_spark.pipeline.read.offset_table import OffsetValues
from groupcoord_spark.protocol import decode_end_transaction_marker
from groupcoord_spark.protocol.errors import ControlRecordMalformed
from groupcoord_spark.protocol.json_texts import key_json_column, value_json_column
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.record_types import KeyType, MarkerType
from groupcoord_spark.protocol.slices import Mask, Slices
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.tables import MOST_BYTES_LOST

Rows = npt.NDArray[np.int64]
Source: TypeAlias = str | pa.StringArray | None
"""The file of all records, or the file of each record; None for records of the history tables."""

_LOST_COLUMNS = ("record_offset", "source", "position", "size", "reason", "detail", "key", "value", "records")
_VALUES_OF_LOST = attrgetter(*("code" if name == "reason" else name for name in _LOST_COLUMNS))
_DOUBT_COLUMNS = ("record_offset", "source", "position", "code", "detail")

MARKER_RESULTS = {MarkerType.ABORT: "aborted", MarkerType.COMMIT: "committed"}


def write_chunk(
    files: TaskFiles, offsets_partition: int, source: str, chunk: Chunk, decoded: DecodedChunk, history_range: HistoryRange | None
) -> OffsetValues | None:
    """Write the rows of one chunk: lost bytes, faults and doubts, and the history of records that are new to the history tables.

    Args:
        files: Where the rows go.
        offsets_partition: -1 where it is not known.
        source: The file or URI of the chunk.
        chunk: The records, and the losses between them.
        decoded: The same records, decoded.
        history_range: Record offsets that the history tables have; None: no history is written.

    Returns:
        The decoded values of the offset records that are new to the history; None: no history is written, or the chunk has no records.
    """
    # a hole of a sparse file can be longer than the column holds
    lost = [replace(of_range, size=min(of_range.size, MOST_BYTES_LOST)) for of_range in chunk.lost]
    for table, names, rows in (
        ("quarantined_records", _LOST_COLUMNS, list(map(_VALUES_OF_LOST, lost))),
        ("warnings", _DOUBT_COLUMNS, list(map(attrgetter(*_DOUBT_COLUMNS), chunk.doubts))),
    ):
        if rows:
            columns = TABLES[table].columns_of(names, rows)
            files.write(table, columns, offsets_partition=_partition_or_none(offsets_partition))
    sources = source_of(chunk, source)
    _write_quarantined(files, offsets_partition, decoded, sources)
    write_notes(files, offsets_partition, decoded.findings, decoded, sources)
    if history_range is None or not len(decoded.records):
        return None
    place = {"offsets_partition": offsets_partition, "incarnation": history_range.incarnation}
    new = {table: np.flatnonzero(_is_new(decoded.records, history_range) & rows) for table, rows in rows_of_tables(decoded).items()}
    values = OffsetValues.of(new["offset_commits"], decoded)
    if len(values.rows):
        files.write("offset_commits", _commit_columns(values, decoded), **place)
    if len(new["group_records"]):
        files.write("group_records", _group_columns(new["group_records"], decoded), **place)
    if len(new["transactions"]):
        files.write("transactions", _marker_columns(new["transactions"], decoded), **place)
    return values


def write_survivors(files: TaskFiles, offsets_partition: int, records: Records, incarnation: int) -> None:
    """Write the chunk's rows of ``surviving_records``: the ranges of record offsets that are still in the log."""
    if len(records):
        offsets = records.record_offset
        begins = np.flatnonzero(np.r_[True, offsets[1:] > offsets[:-1] + 1])
        ranges = {"first_offset": offsets[begins], "end_offset": offsets[np.r_[begins[1:] - 1, len(offsets) - 1]] + 1}
        files.write("surviving_records", ranges, offsets_partition=offsets_partition, incarnation=incarnation)


def rows_of_tables(decoded: DecodedChunk) -> dict[str, Mask]:
    """History table -> bool[n], the records with a row there. Records that do not decode, and markers of unknown type, have no row.

    A group record of an unknown type or version is stored as bytes.
    """
    is_control = decoded.kinds.is_control
    is_offset = (decoded.kinds.key_type >= 0) & (decoded.kinds.key_type < KeyType.GROUP_METADATA)
    return {
        "offset_commits": is_offset & decoded.decodes & ~is_control,
        "group_records": ~is_offset & ~is_control & (decoded.decodes | decoded.is_unknown) & (decoded.key_code >= 0),
        "transactions": is_control & np.isin(decoded.records.control_type, list(MARKER_RESULTS)),
    }


def new_group_records(decoded: DecodedChunk, history_range: HistoryRange) -> Rows:
    """Return the rows of group records that are new to the history and of a key type that rebalances use."""
    wanted = np.isin(decoded.kinds.key_type, REBALANCE_KEY_TYPES) & decoded.decodes & ~decoded.kinds.is_control
    return np.flatnonzero(wanted & _is_new(decoded.records, history_range))


def _is_new(records: Records, history_range: HistoryRange) -> Mask:
    is_new: Mask = (records.record_offset < history_range.first_offset) | (records.record_offset >= history_range.end_offset)
    return is_new


def _commit_columns(offset_values: OffsetValues, decoded: DecodedChunk) -> dict[str, Any]:
    rows, at, columns = offset_values
    records, code = decoded.records, decoded.key_code[rows]
    values = records.value.take(rows)
    key_type = decoded.kinds.key_type[rows]
    is_tombstone = values.is_null
    into = pa.array(at, mask=is_tombstone)

    def of_value(column: Any) -> pa.Array:
        array = column if isinstance(column, pa.Array) else pa.array(column)
        return array if not is_tombstone.any() else array.take(into)

    return {
        "record_offset": records.record_offset[rows],
        "record_timestamp_ms": records.timestamp_ms[rows],
        "group_id": _of_key(decoded.keys.group_id, code),
        "topic": _of_key(decoded.keys.topic, code),
        "partition": decoded.keys.partition[code],
        "value_version": of_value(columns.value_version),
        **{name: of_value(column) for name, column in columns.fields.items()},
        "key_version": key_type,
        "is_tombstone": is_tombstone,
        "producer_id": records.producer_id[rows],
        "producer_epoch": records.producer_epoch[rows],
        "is_transactional": records.is_transactional[rows],
        "key_size": records.key.lengths()[rows],
        "value_size": pa.array(values.lengths(), mask=is_tombstone),
    }


def _of_key(of_distinct: pa.Array, code: Rows) -> pa.Array:
    """For each record the value that belongs to its key (code -1: null), as a dictionary array, which Parquet stores as a dictionary."""
    encoded = of_distinct.dictionary_encode()
    return pa.DictionaryArray.from_arrays(encoded.indices.take(pa.array(code, mask=code < 0)), encoded.dictionary)


def _group_columns(rows: Rows, decoded: DecodedChunk) -> dict[str, Any]:
    records, code = decoded.records, decoded.key_code[rows]
    key_type = decoded.keys.key_type[code]
    distinct, of_distinct = np.unique(code, return_inverse=True)
    keys, values = records.key.take(rows), records.value.take(rows)
    is_known = decoded.kinds.key_type[rows] >= 0
    names = [RECORD_TYPES[kind].key.name if kind in RECORD_TYPES else None for kind in range(max(RECORD_TYPES) + 1)]
    raw_values = values.to_arrow()
    distinct_texts = key_json_column(Slices.from_arrow(decoded.names.keys).take(distinct)).combine_chunks()
    return {
        "record_offset": records.record_offset[rows],
        "record_timestamp_ms": records.timestamp_ms[rows],
        "group_id": _of_key(decoded.keys.group_id, code),
        "member_id": _of_key(decoded.keys.member_id, code),
        "key_type": key_type,
        "key_name": _of_key(pa.array(names, pa.string()), np.where(is_known, key_type, -1)),
        "key_json": _of_key(distinct_texts, of_distinct),
        "value_version": pa.array(decoded.value_version[rows], mask=values.is_null | ~is_known),
        "value_json": value_json_column(key_type, values),
        "is_tombstone": values.is_null,
        "producer_id": records.producer_id[rows],
        "is_transactional": records.is_transactional[rows],
        "value": raw_values,
        "key": Slices(keys.data, keys.start, np.where(is_known, keys.start, keys.end), keys.is_null | is_known).to_arrow(),
        "key_size": keys.lengths(),
        "value_size": pa.array(values.lengths(), mask=values.is_null),
    }


def _marker_columns(rows: Rows, decoded: DecodedChunk) -> dict[str, Any]:
    records = decoded.records
    return {
        "record_offset": records.record_offset[rows],
        "producer_id": records.producer_id[rows],
        "producer_epoch": records.producer_epoch[rows],
        "result": [MARKER_RESULTS[control_type] for control_type in records.control_type[rows].tolist()],
        "coordinator_epoch": [_coordinator_epoch(records.value.row(row)) for row in rows.tolist()],
        "record_timestamp_ms": records.timestamp_ms[rows],
    }


def _coordinator_epoch(value: bytes | None) -> int | None:
    """Return the coordinator epoch of a marker, or None if the value is unreadable, which is not a fault: Kafka's loader never reads it."""
    try:
        return decode_end_transaction_marker(value)
    except ControlRecordMalformed:
        return None


def _write_quarantined(files: TaskFiles, offsets_partition: int, decoded: DecodedChunk, source: Source) -> None:
    """Write a row of quarantined_records for each record that does not decode. Records of unknown key type are in group_records instead."""
    records, faults = decoded.records, decoded.faults
    lost = faults.where(~faults.has_code(UNKNOWN_KEY_TYPE))
    if len(lost):
        reasons, details = lost.columns()
        keys, values = records.key.take(lost.row), records.value.take(lost.row)
        columns = {
            **_place_columns(lost.row, records, source),
            "size": keys.lengths() + values.lengths(),
            "reason": reasons,
            "detail": details,
            "key": keys.to_arrow(),
            "value": values.to_arrow(),
            "records": np.ones(len(lost), np.int64),
        }
        files.write("quarantined_records", columns, offsets_partition=_partition_or_none(offsets_partition))


def write_notes(files: TaskFiles, offsets_partition: int, notes: RowNotes, decoded: DecodedChunk, source: Source) -> None:
    """Write a row of ``warnings`` for each note."""
    if len(notes):
        codes, details = notes.columns()
        columns = {
            **_place_columns(notes.row, decoded.records, source),
            "group_id": _of_key(decoded.keys.group_id, decoded.key_code[notes.row]),
            "code": codes,
            "detail": details,
        }
        files.write("warnings", columns, offsets_partition=_partition_or_none(offsets_partition))


def source_of(chunk: Chunk, source: str) -> Source:
    """Return the files of the chunk's records if it has them, else ``source``."""
    return source if chunk.sources is None else pa.array(chunk.sources, pa.string())


def _place_columns(rows: Rows, records: Records, source: Source) -> dict[str, Any]:
    """Return the columns record_offset, source and position of the records in ``rows``."""
    n = len(rows)
    if source is None:
        return {"record_offset": records.record_offset[rows], "source": pa.nulls(n, pa.string()), "position": pa.nulls(n, pa.int64())}
    return {
        "record_offset": records.record_offset[rows],
        "source": pa.repeat(source, n) if isinstance(source, str) else source.take(pa.array(rows)),
        "position": records.position[rows],
    }


def _partition_or_none(offsets_partition: int) -> int | None:
    return offsets_partition if offsets_partition >= 0 else None
