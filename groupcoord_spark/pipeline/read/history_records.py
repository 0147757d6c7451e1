"""Records out of the history tables, as the log had them: what compaction has taken from the log since is still there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.extents import HistoryPiece, HistoryRange
from groupcoord_spark.pipeline.read.history_files import MARKER_RESULTS
from groupcoord_spark.protocol import encode_key, encode_value
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NOT_A_CONTROL_RECORD, KeyType
from groupcoord_spark.protocol.slices import Mask, Slices
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.location import locate
from groupcoord_spark.warehouse.read import rows_at

OFFSETS_AT_ONCE: Final = 500_000
"""Record offsets looked at in one go: so many rows are in memory at most."""

_OF_ALL: Final = ("record_offset", "record_timestamp", "producer_id", "timestamps_out_of_range")
_COMMIT_COLUMNS: Final = (
    *(*_OF_ALL, "group_id", "topic", "partition", "committed_offset", "leader_epoch", "metadata", "commit_timestamp", "expire_timestamp"),
    *("topic_id", "key_version", "value_version", "producer_epoch", "is_transactional"),
)
_GROUP_COLUMNS: Final = (*_OF_ALL, "key_type", "key_json", "key", "value", "is_transactional")
_MARKER_COLUMNS: Final = (*_OF_ALL, "producer_epoch", "result")
_CONTROL_TYPES: Final = {result: control_type for control_type, result in MARKER_RESULTS.items()}


def records_in_history(warehouse_uri: str, cluster: str, piece: HistoryPiece) -> Iterator[Records]:
    """The records of a piece in the order of their offsets, some at a time.

    Of records below night_end those are left out that the log had no more in that night: the tombstone that made an end of one may have
    gone before anybody saw it, and without it the record would come back to life.
    Keys and values are encoded anew; of an offset's nothing is missing but bytes after its end. What the history does not hold, records
    that do not decode and control records other than COMMIT and ABORT, is not among them.
    """
    survivors = _survivors(warehouse_uri, cluster, piece)
    for first, end in _windows(piece.held):
        parts = [
            records_of(_rows(warehouse_uri, cluster, piece, table, columns, first, end))
            for table, columns, records_of in (
                ("offset_commits", _COMMIT_COLUMNS, _commits),
                ("group_records", _GROUP_COLUMNS, _group_records),
                ("transactions", _MARKER_COLUMNS, _markers),
            )
        ]
        columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0] if name not in ("key", "value")}
        keys, values = ([each for part in parts for each in part[name]] for name in ("key", "value"))
        if len(keys):
            in_order = np.argsort(columns["record_offset"], kind="stable")
            position = np.zeros(len(keys), np.int64)
            records = Records(key=Slices.of(keys), value=Slices.of(values), position=position, **columns).take(in_order)
            yield records.take(survivors.has(records.record_offset))


@dataclass(frozen=True, slots=True)
class _Survivors:
    """Ranges of record offsets that a log had, in their order; from ``end_offset`` on nothing is said."""

    first: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    end_offset: int

    def has(self, record_offset: npt.NDArray[np.int64]) -> Mask:
        """Which offsets are in a range, or at or above the end of all."""
        at = np.searchsorted(self.first, record_offset, "right") - 1
        in_range = np.zeros(len(record_offset), np.bool_)
        if len(self.end):
            in_range = (at >= 0) & (record_offset < self.end[at])
        return np.asarray(in_range | (record_offset >= self.end_offset))


def _survivors(warehouse_uri: str, cluster: str, piece: HistoryPiece) -> _Survivors:
    if piece.night is None:
        nothing = np.zeros(0, np.int64)
        return _Survivors(nothing, nothing, 0)
    where = [
        ("run_id", "=", piece.night),
        ("offsets_partition", "=", piece.offsets_partition),
        ("incarnation", "=", piece.held.incarnation),
    ]
    table = TABLES["surviving_records"]
    rows = rows_at(locate(warehouse_uri), table, piece.table_versions[table.name], cluster, ["first_offset", "end_offset"], where)
    first, end = rows["first_offset"].to_numpy(), rows["end_offset"].to_numpy()
    in_order = np.argsort(first)
    return _Survivors(first[in_order], end[in_order], piece.night_end)


def first_later_in_history(warehouse_uri: str, cluster: str, piece: HistoryPiece, time_ms: int) -> int | None:
    """Offset of the piece's first record with a timestamp later than ``time_ms``; None: there is none."""
    for first, end in _windows(piece.held):
        found = [
            rows["record_offset"][rows["timestamp_ms"] > time_ms]
            for table in ("offset_commits", "group_records", "transactions")
            for rows in [_places(_rows(warehouse_uri, cluster, piece, table, _OF_ALL, first, end))]
        ]
        later = np.concatenate(found)
        if len(later):
            return int(later.min())
    return None


def _windows(held: HistoryRange) -> Iterator[tuple[int, int]]:
    for first in range(held.first_offset, held.end_offset, OFFSETS_AT_ONCE):
        yield first, min(first + OFFSETS_AT_ONCE, held.end_offset)


def _rows(
    warehouse_uri: str, cluster: str, piece: HistoryPiece, table: str, columns: Sequence[str], first_offset: int, end_offset: int
) -> pa.Table:
    """Rows of a history table as Kafka has their values: times as ``<name>_ms``, -1 for none."""
    where = [
        ("offsets_partition", "=", piece.offsets_partition),
        ("incarnation", "=", piece.held.incarnation),
        ("record_offset", ">=", first_offset),
        ("record_offset", "<", end_offset),
    ]
    rows = rows_at(locate(warehouse_uri), TABLES[table], piece.table_versions[table], cluster, columns, where)
    return TABLES[table].to_milliseconds(rows)


def _places(rows: pa.Table) -> dict[str, npt.NDArray[Any]]:
    return {
        "record_offset": rows["record_offset"].to_numpy(),
        "timestamp_ms": rows["record_timestamp_ms"].to_numpy(),
        "producer_id": rows["producer_id"].to_numpy(),
    }


def _commits(rows: pa.Table) -> dict[str, Any]:
    return {
        **_places(rows),
        "producer_epoch": rows["producer_epoch"].to_numpy(),
        "is_transactional": rows["is_transactional"].to_numpy(),
        "control_type": np.full(rows.num_rows, NOT_A_CONTROL_RECORD, np.int8),
        "key": _offset_keys(rows),
        "value": list(_offset_values(rows)),
    }


def _offset_keys(rows: pa.Table) -> list[bytes]:
    """Keys repeat hundreds of times: each is encoded once."""
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
    names = ("committed_offset", "leader_epoch", "metadata", "commit_timestamp_ms", "expire_timestamp_ms", "topic_id")
    fields = zip(*(rows[name].to_pylist() for name in names), strict=True)
    for version, values in zip(rows["value_version"].to_pylist(), fields, strict=True):
        yield None if version is None else encode_value(KeyType.OFFSET_COMMIT, version, dict(zip(names, values, strict=True)))


def _group_records(rows: pa.Table) -> dict[str, Any]:
    keys = [
        key if text is None else _key_of_json(key_type, text)
        for key_type, text, key in zip(*(rows[name].to_pylist() for name in ("key_type", "key_json", "key")), strict=True)
    ]
    return {
        **_places(rows),
        # of groups' own records nobody asks for the epoch
        "producer_epoch": np.full(rows.num_rows, NO_PRODUCER_EPOCH, np.int16),
        "is_transactional": rows["is_transactional"].to_numpy(),
        "control_type": np.full(rows.num_rows, NOT_A_CONTROL_RECORD, np.int8),
        "key": keys,
        "value": rows["value"].to_pylist(),
    }


def _key_of_json(key_type: int, text: str) -> bytes:
    told = json.loads(text)
    return encode_key(key_type, {field.name: told[field.json] for field in RECORD_TYPES[key_type].key.fields})


def _markers(rows: pa.Table) -> dict[str, Any]:
    control_types = [_CONTROL_TYPES[result] for result in rows["result"].to_pylist()]
    return {
        **_places(rows),
        "producer_epoch": rows["producer_epoch"].to_numpy(),
        "is_transactional": np.ones(rows.num_rows, np.bool_),
        "control_type": np.array(control_types, np.int8),
        # only the type of a marker counts, and that is told beside it
        "key": [b""] * rows.num_rows,
        "value": [b""] * rows.num_rows,
    }
