"""Records of transactions: what the markers of a chunk decide, and the records that wait for a marker of a later chunk."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.doctor.gather.record_loop import ABORTED, COMMITTED_END, CONTROL, DECIDED, WAITING
from groupcoord_spark.doctor.hanging_transactions import OpenTransaction
from groupcoord_spark.log import Chunk, Records
from groupcoord_spark.protocol import DecodeError, decode_key
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NOT_A_CONTROL_RECORD, MarkerType
from groupcoord_spark.protocol.slices import Ints, Mask

Fates = npt.NDArray[np.int16]
FirstMarkers = Mapping[int, tuple[int, bool]]
"""Producer id -> type of its first marker, and whether the marker is in the active segment."""


def fates_of(records: Records, markers: Ints) -> Fates:
    """Return DECIDED or CONTROL for each record, or the effect of its producer's next marker: DECIDED, ABORTED, or WAITING without a
    marker.

    markers: the result of ``markers_of``.
    """
    is_control = records.control_type != NOT_A_CONTROL_RECORD
    fates = np.where(is_control, np.int16(CONTROL), np.int16(DECIDED))
    staged = np.flatnonzero(records.is_transactional & ~is_control)
    if not len(staged):
        return fates
    rows = np.concatenate((staged, markers))
    producer = records.producer_id[rows]
    # sorted by producer and offset, since the records are in the order of their offsets
    order = np.lexsort((rows, producer))
    is_marker = order >= len(staged)
    following = np.minimum.accumulate(np.where(is_marker, np.arange(len(order)), len(order))[::-1])[::-1]
    place = np.minimum(following, len(order) - 1)
    is_ended = (following < len(order)) & (producer[order][place] == producer[order])
    is_aborted = records.control_type[rows[order[place]]] == MarkerType.ABORT
    decided = np.where(is_ended, np.where(is_aborted, np.int16(ABORTED), np.int16(DECIDED)), np.int16(WAITING))
    fates[rows[order[~is_marker]]] = decided[~is_marker]
    return fates


def markers_of(records: Records) -> Ints:
    """Return the rows of COMMIT and ABORT markers."""
    return np.flatnonzero((records.control_type == MarkerType.ABORT) | (records.control_type == MarkerType.COMMIT))


def open_records(chunk: Chunk, rows: Ints, key: Ints, batches_before: int, bytes_before: int) -> pa.Table:
    """Return the records of a chunk in these rows whose transaction has no marker yet.

    Columns of its own: key, the number in the table of keys; head, the first bytes of each value, with the committed offset, null for a
    tombstone; batch, a number for each batch, rising with its place in the log; bytes_through, of the log up to this batch.

    Args:
        key: the number of each record's key.
        batches_before, bytes_before: of the log before the chunk.
    """
    records, batch = chunk.records.take(rows), chunk.batch[rows]
    return pa.table(
        {
            "key": key,
            "head": replace(records.value, end=np.minimum(records.value.end, records.value.start + COMMITTED_END)).to_arrow(),
            "record_offset": records.record_offset,
            "timestamp_ms": records.timestamp_ms,
            "producer_id": records.producer_id,
            "producer_epoch": records.producer_epoch,
            "size": chunk.record_size[rows],
            "batch": batch + batches_before,
            "batch_bytes": chunk.entries.size[batch],
            "bytes_through": bytes_before + np.cumsum(chunk.entries.size)[batch],
        }
    )


def open_after(records: pa.Table, batches: int, log_bytes: int, key_numbers: Ints) -> pa.Table:
    """Return the records shifted behind an earlier part of the log with ``batches`` and ``log_bytes``, with keys renumbered by
    ``key_numbers``."""
    moved = {"key": key_numbers[records["key"].to_numpy()], "batch": pc.add(records["batch"], batches)}
    moved["bytes_through"] = pc.add(records["bytes_through"], log_bytes)
    return pa.table(dict(zip(records.column_names, records.columns, strict=True)) | moved)


def decided(records: pa.Table, first_markers: FirstMarkers) -> tuple[Fates, Mask]:
    """Return the fate of each record (WAITING without a marker among these), and whether the active segment decides it."""
    producers, place = np.unique(records["producer_id"], return_inverse=True)
    markers = [first_markers.get(producer_id) for producer_id in producers.tolist()]
    fates = [WAITING if marker is None else ABORTED if marker[0] == MarkerType.ABORT else DECIDED for marker in markers]
    is_active = [marker is not None and marker[1] for marker in markers]
    return np.array(fates, np.int16)[place], np.array(is_active, np.bool_)[place]


def open_transactions(
    records: pa.Table, keys: list[bytes], marker_epochs: Mapping[int, int], batches: int, log_bytes: int
) -> list[OpenTransaction]:
    """Return the transactions without a marker by first offset.

    Args:
        records: those that still wait for a marker at the end of the log.
        keys: the first is key number 1.
        marker_epochs: producer id -> the highest epoch of its markers.
        batches, log_bytes: of the whole log.
    """
    offset_of = {number: _offset_of_key(keys[number - 1]) if number else None for number in records["key"].unique().to_pylist()}
    records = records.sort_by([("producer_id", "ascending"), ("record_offset", "ascending")])
    producer = records["producer_id"].to_numpy()
    begin = np.flatnonzero(np.r_[True, producer[1:] != producer[:-1]])
    transactions = []
    for row, end in pairwise([*begin.tolist(), len(records)]):
        of_transaction = records.slice(row, end - row)
        first_record, times = of_transaction.slice(0, 1).to_pylist()[0], pc.min_max(of_transaction["timestamp_ms"]).as_py()
        batches_of_transaction = of_transaction.group_by("batch").aggregate([("batch_bytes", "min")])
        pending = dict.fromkeys(offset_of[number] for number in of_transaction["key"].unique().to_pylist())
        transactions.append(
            OpenTransaction(
                first_record["producer_id"],
                first_record["producer_epoch"],
                first_record["record_offset"],
                of_transaction["record_offset"][-1].as_py(),
                times["min"],
                times["max"],
                len(of_transaction),
                len(batches_of_transaction),
                pc.sum(batches_of_transaction["batch_bytes_min"]).as_py(),
                marker_epochs.get(first_record["producer_id"], NO_PRODUCER_EPOCH),
                batches - 1 - first_record["batch"],
                log_bytes - first_record["bytes_through"],
                tuple(offset for offset in pending if offset is not None),
            )
        )
    return sorted(transactions, key=lambda transaction: transaction.first_offset)


def _offset_of_key(key: bytes) -> tuple[str, str, int] | None:
    try:
        fields_of_key = decode_key(key).fields
    except DecodeError:
        return None
    return (fields_of_key["group_id"], fields_of_key["topic"], fields_of_key["partition"]) if "topic" in fields_of_key else None
