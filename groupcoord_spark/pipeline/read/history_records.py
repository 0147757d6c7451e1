"""Records from the history tables, as they were in the log. Compaction may have removed them from the log since."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.extents import HistoryPiece, HistoryRange
from groupcoord_spark.pipeline.read.history_files import MARKER_RESULTS
from groupcoord_spark.protocol import encode_key, encode_value
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.messages.offsets import OFFSET_COMMIT_VALUE
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NOT_A_CONTROL_RECORD, KeyType
from groupcoord_spark.protocol.slices import Slices
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.read import RANGE_COLUMNS, SurvivingRanges, rows_at, surviving_ranges
from groupcoord_spark.warehouse.tables import SURVIVING_RECORDS

OFFSETS_AT_ONCE: Final = 500_000
"""Record offsets that are read at a time, and so the most rows in memory."""

_COMMON_COLUMNS: Final = ("record_offset", "record_timestamp", "producer_id", "timestamps_out_of_range")
_VALUE_FIELDS: Final = tuple(field.name for field in OFFSET_COMMIT_VALUE.fields)
_COMMIT_COLUMNS: Final = (
    *(*_COMMON_COLUMNS, "producer_epoch", "is_transactional", "key_version", "group_id", "topic", "partition"),
    *("value_version", *(name.removesuffix("_ms") for name in _VALUE_FIELDS)),
)
_GROUP_COLUMNS: Final = (*_COMMON_COLUMNS, "key_type", "key_json", "key", "value", "is_transactional")
_MARKER_COLUMNS: Final = (*_COMMON_COLUMNS, "producer_epoch", "result")
_CONTROL_TYPES: Final = {result: control_type for control_type, result in MARKER_RESULTS.items()}


def records_in_history(warehouse_uri: str, cluster: str, piece: HistoryPiece) -> Iterator[Records]:
    """Yield the records of a piece in record order, up to OFFSETS_AT_ONCE at a time.

    Below ``run_end_offset`` only records are returned that were still in the log in that run. A record that compaction had removed may have
    been deleted by a tombstone that no run read; without the tombstone the record would reappear. Keys and values are encoded again;
    commits are complete except for trailing bytes. The history contains neither records that do not decode nor control records other than
    COMMIT and ABORT.
    """
    survivors = _survivors(warehouse_uri, cluster, piece)
    for first, end in _windows(piece.history_range):
        parts = [
            records_of(_rows(warehouse_uri, cluster, piece, table, columns, first, end))
            for table, columns, records_of in (
                ("offset_commits", _COMMIT_COLUMNS, _commits),
                ("group_records", _GROUP_COLUMNS, _group_records),
                ("transactions", _MARKER_COLUMNS, _markers),
            )
        ]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name not in ("key", "value")}
        keys, values = ([field for part in parts for field in part[name]] for name in ("key", "value"))
        if len(keys):
            in_order = np.argsort(columns["record_offset"], kind="stable")
            position = np.zeros(len(keys), np.int64)
            records = Records(key=Slices.of(keys), value=Slices.of(values), position=position, **columns).take(in_order)
            yield records.take(survivors.has(records.record_offset) | (records.record_offset >= piece.run_end_offset))


def _survivors(warehouse_uri: str, cluster: str, piece: HistoryPiece) -> SurvivingRanges:
    """Return the ranges that were in the log when the full run read it. Later record offsets are unknown."""
    place = (piece.offsets_partition, piece.history_range.incarnation)
    nothing = SurvivingRanges(np.zeros(0, np.int64), np.zeros(0, np.int64))
    if piece.run_id is None:
        return nothing
    where = [("run_id", "=", piece.run_id), ("offsets_partition", "=", place[0]), ("incarnation", "=", place[1])]
    return surviving_ranges(rows_at(warehouse_uri, SURVIVING_RECORDS, piece.tables, cluster, RANGE_COLUMNS, where)).get(place, nothing)


def first_later_in_history(warehouse_uri: str, cluster: str, piece: HistoryPiece, time_ms: int) -> int | None:
    """Return the record offset of the piece's first record later than ``time_ms``, or None."""
    for first, end in _windows(piece.history_range):
        later_offsets = [
            rows["record_offset"][rows["timestamp_ms"] > time_ms]
            for table in ("offset_commits", "group_records", "transactions")
            for rows in [_record_columns(_rows(warehouse_uri, cluster, piece, table, _COMMON_COLUMNS, first, end))]
        ]
        later = np.concatenate(later_offsets)
        if len(later):
            return int(later.min())
    return None


def _windows(history_range: HistoryRange) -> Iterator[tuple[int, int]]:
    for first in range(history_range.first_offset, history_range.end_offset, OFFSETS_AT_ONCE):
        yield first, min(first + OFFSETS_AT_ONCE, history_range.end_offset)


def _rows(
    warehouse_uri: str, cluster: str, piece: HistoryPiece, table: str, columns: Sequence[str], first_offset: int, end_offset: int
) -> pa.Table:
    """Return rows of a history table in Kafka's representation: times as ``<name>_ms``, -1 for none."""
    where = [
        ("offsets_partition", "=", piece.offsets_partition),
        ("incarnation", "=", piece.history_range.incarnation),
        ("record_offset", ">=", first_offset),
        ("record_offset", "<", end_offset),
    ]
    rows = rows_at(warehouse_uri, TABLES[table], piece.tables, cluster, columns, where)
    return TABLES[table].to_milliseconds(rows)


def _record_columns(rows: pa.Table) -> dict[str, npt.NDArray[Any]]:
    """Return the columns of Records except key and value. The replay does not use columns that a table lacks."""
    columns = {
        "record_offset": rows["record_offset"].to_numpy(),
        "timestamp_ms": rows["record_timestamp_ms"].to_numpy(),
        "producer_id": rows["producer_id"].to_numpy(),
        "producer_epoch": np.full(rows.num_rows, NO_PRODUCER_EPOCH, np.int16),
        "is_transactional": np.ones(rows.num_rows, np.bool_),
        "control_type": np.full(rows.num_rows, NOT_A_CONTROL_RECORD, np.int8),
    }
    return columns | {name: rows[name].to_numpy() for name in ("producer_epoch", "is_transactional") if name in rows.column_names}


def _commits(rows: pa.Table) -> dict[str, Any]:
    return {**_record_columns(rows), "key": _offset_keys(rows), "value": list(_offset_values(rows))}


def _offset_keys(rows: pa.Table) -> list[bytes]:
    """Return the encoded key of each row. Each distinct key is encoded once, because keys repeat hundreds of times."""
    encoded: dict[tuple[int, str, str, int], bytes] = {}
    keys = []
    for place in zip(*(rows[name].to_pylist() for name in ("key_version", "group_id", "topic", "partition")), strict=True):
        key = encoded.get(place)
        if key is None:
            key_type, group_id, topic, partition = place
            key = encoded[place] = encode_key(key_type, {"group_id": group_id, "topic": topic, "partition": partition})
        keys.append(key)
    return keys


def _offset_values(rows: pa.Table) -> Iterator[bytes | None]:
    fields = zip(*(rows[name].to_pylist() for name in _VALUE_FIELDS), strict=True)
    for version, values in zip(rows["value_version"].to_pylist(), fields, strict=True):
        yield None if version is None else encode_value(KeyType.OFFSET_COMMIT, version, dict(zip(_VALUE_FIELDS, values, strict=True)))


def _group_records(rows: pa.Table) -> dict[str, Any]:
    keys = [
        key if text is None else _key_of_json(key_type, text)
        for key_type, text, key in zip(*(rows[name].to_pylist() for name in ("key_type", "key_json", "key")), strict=True)
    ]
    return {**_record_columns(rows), "key": keys, "value": rows["value"].to_pylist()}


def _key_of_json(key_type: int, text: str) -> bytes:
    fields = json.loads(text)
    return encode_key(key_type, {field.name: fields[field.json] for field in RECORD_TYPES[key_type].key.fields})


def _markers(rows: pa.Table) -> dict[str, Any]:
    control_types = np.array([_CONTROL_TYPES[result] for result in rows["result"].to_pylist()], np.int8)
    no_bytes = [b""] * rows.num_rows  # the replay only looks at control_type
    return {**_record_columns(rows), "control_type": control_types, "key": no_bytes, "value": no_bytes}
