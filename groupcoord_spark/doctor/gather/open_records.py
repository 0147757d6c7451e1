"""Records of transactions: what the markers of a chunk decide, and the records that wait for a marker of a later chunk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.doctor.facts import Ints
from groupcoord_spark.doctor.gather.record_loop import ABORTED, COMMITTED_END, CONTROL, DECIDED, WAITING
from groupcoord_spark.doctor.hanging_transactions import OpenTransaction
from groupcoord_spark.log import Chunk, Records
from groupcoord_spark.protocol import DecodeError, decode_key
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NOT_A_CONTROL_RECORD, MarkerType
from groupcoord_spark.protocol.slices import Mask

Fates = npt.NDArray[np.int16]
FirstMarkers = Mapping[int, tuple[int, bool]]
"""Producer id -> type of its first marker, and whether the marker is in the active segment."""


def fates_of(records: Records, markers: Ints) -> Fates:
    """For each record DECIDED, CONTROL, or what the next marker of its producer says: DECIDED, ABORTED, or WAITING where there is none.

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
    """The rows of COMMIT and ABORT markers."""
    return np.flatnonzero((records.control_type == MarkerType.ABORT) | (records.control_type == MarkerType.COMMIT))


@dataclass(frozen=True, slots=True)
class OpenRecords:
    """Records of one chunk whose transaction has no marker yet, as columns of one length.

    Attributes:
        key: the number of each record's key in the table of keys.
        segment_base: of the segment of the records.
        head: the first bytes of each value, with the committed offset; null for a tombstone.
        batch: a number for each batch, rising with its place in the log. batches_through, bytes_through: of the log up to this batch.
    """

    head: pa.BinaryArray
    segment_base: int
    key: Ints
    record_offset: Ints
    timestamp_ms: Ints
    producer_id: Ints
    producer_epoch: Ints
    size: Ints
    batch: Ints
    batch_bytes: Ints
    bytes_through: Ints

    def __len__(self) -> int:
        return len(self.key)

    @staticmethod
    def of(chunk: Chunk, rows: Ints, key: Ints, segment_base: int, batches_before: int, bytes_before: int) -> OpenRecords:
        """The records of a chunk in these rows, with their keys' numbers. batches_before, bytes_before: of the log before it."""
        records, batch = chunk.records.take(rows), chunk.batch[rows]
        head = replace(records.value, end=np.minimum(records.value.end, records.value.start + COMMITTED_END)).to_arrow()
        return OpenRecords(
            head, segment_base, key,
            records.record_offset, records.timestamp_ms, records.producer_id, records.producer_epoch.astype(np.int64),
            chunk.record_size[rows], batch + batches_before, chunk.entries.size[batch], bytes_before + np.cumsum(chunk.entries.size)[batch],
        )  # fmt: skip

    def take(self, rows: Mask) -> OpenRecords:
        """The records that the mask chooses."""
        columns = {name: getattr(self, name)[rows] for name in _COLUMNS}
        return replace(self, head=self.head.filter(pa.array(rows)), **columns)

    def after(self, batches: int, log_bytes: int, key_numbers: Ints) -> OpenRecords:
        """The same records behind a part of the log with so many batches and bytes, whose numbers of keys are ``key_numbers``."""
        return replace(self, key=key_numbers[self.key], batch=self.batch + batches, bytes_through=self.bytes_through + log_bytes)

    def decided(self, first_markers: FirstMarkers) -> tuple[Fates, Mask]:
        """The fate of each record (WAITING where its producer has no marker among these), and whether the active segment decides it."""
        producers, place = np.unique(self.producer_id, return_inverse=True)
        markers = [first_markers.get(producer_id) for producer_id in producers.tolist()]
        fates = [WAITING if marker is None else ABORTED if marker[0] == MarkerType.ABORT else DECIDED for marker in markers]
        is_active = [marker is not None and marker[1] for marker in markers]
        return np.array(fates, np.int16)[place], np.array(is_active, np.bool_)[place]


_COLUMNS = [column.name for column in fields(OpenRecords) if column.type == "Ints"]


def joined(parts: list[OpenRecords]) -> OpenRecords:
    """The records of all parts, in their order; there is at least one part."""
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return OpenRecords(pa.concat_arrays([part.head for part in parts]), parts[0].segment_base, **columns)


def open_transactions(
    records: OpenRecords, keys: list[bytes], marker_epochs: Mapping[int, int], batches: int, log_bytes: int
) -> list[OpenTransaction]:
    """The transactions without a marker, by their first offset.

    Args:
        records: those that still wait for a marker at the end of the log.
        keys: the first is that of number 1.
        marker_epochs: producer id -> the highest epoch of its markers.
        batches, log_bytes: of the whole log.
    """
    offset_of = {number: _offset_of_key(keys[number - 1]) if number else None for number in np.unique(records.key).tolist()}
    transactions = []
    for producer_id in np.unique(records.producer_id).tolist():
        own = records.take(records.producer_id == producer_id)
        first = int(own.record_offset.argmin())
        pending = dict.fromkeys(offset_of[number] for number in own.key.tolist())
        _, one_of_batch = np.unique(own.batch, return_index=True)
        transactions.append(
            OpenTransaction(
                producer_id,
                int(own.producer_epoch[first]),
                int(own.record_offset[first]),
                int(own.record_offset.max()),
                int(own.timestamp_ms.min()),
                int(own.timestamp_ms.max()),
                len(own),
                len(one_of_batch),
                int(own.batch_bytes[one_of_batch].sum()),
                marker_epochs.get(producer_id, NO_PRODUCER_EPOCH),
                batches - 1 - int(own.batch[first]),
                log_bytes - int(own.bytes_through[first]),
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
