"""Turns entries into records: the columns that all later stages work on."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.log.damage import BatchError, Damage
from groupcoord_spark.log.decode.batches import (
    CODEC_BITS,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    OUT_OF_RANGE,
    TRANSACTIONAL,
    Entries,
    Headers,
    as_int64,
    legacy_timestamp,
)
from groupcoord_spark.log.decode.columnar import Rows, read_messages, read_rows
from groupcoord_spark.log.decode.compression import CompressionError, Decompressor
from groupcoord_spark.log.decode.definition import (
    MIN_RECORD,
    RecordError,
    inner_checksum_fits,
    inner_offset_base,
    read_inner_messages,
    read_records,
)
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NOT_A_CONTROL_RECORD, MarkerType
from groupcoord_spark.protocol.slices import Bytes, Columns, Mask, Positions, Slices
from groupcoord_spark.storage.location import PADDING
from groupcoord_spark.wording import counted

OTHER_CONTROL_TYPE = 127
"""The control_type of a stored type that does not fit an int8, or would equal NOT_A_CONTROL_RECORD."""

_LEAST = -(2**63)

_BYTES_PER_ROW = 64
"""About the bytes that the columns of one record take in memory. They bound a chunk of very small records."""

MARKER_LOST = " It is a control batch: if it ended a transaction, that transaction stays open in what is left."
"""The end of a sentence about a lost control batch."""


@dataclass(frozen=True, slots=True)
class Records(Columns):
    """Records of one file in the order of their offsets, as columns of one length n.

    Attributes:
        record_offset: int64.
        timestamp_ms: int64; NO_TIMESTAMP in magic 0.
        key, value: ranges of one buffer. A null value is a tombstone.
        producer_id, producer_epoch: int64 and int16; NO_PRODUCER_ID and NO_PRODUCER_EPOCH for none.
        is_transactional: bool, of the record's batch.
        control_type: int8, a MarkerType or another number as stored, OTHER_CONTROL_TYPE where that does not fit; NOT_A_CONTROL_RECORD.
        position: int64, where the record's batch begins in the file.
    """

    record_offset: Positions
    timestamp_ms: Positions
    key: Slices
    value: Slices
    producer_id: Positions
    producer_epoch: npt.NDArray[np.int16]
    is_transactional: Mask
    control_type: npt.NDArray[np.int8]
    position: Positions

    def distinct_keys(self) -> tuple[Positions, pa.BinaryArray]:
        """Return the code of each record's key (int64, -1 for control records and null keys) and the distinct keys."""
        keys = self.key
        return Slices(keys.data, keys.start, keys.end, keys.is_null | (self.control_type != NOT_A_CONTROL_RECORD)).distinct()

    @staticmethod
    def none() -> "Records":
        """Return empty columns."""
        nothing = np.zeros(0, np.int64)
        flags = np.zeros(0, np.bool_)
        no_bytes = Slices(np.zeros(0, np.uint8), nothing, nothing, flags)
        return Records(nothing, nothing, no_bytes, no_bytes, nothing, nothing.astype(np.int16), flags, nothing.astype(np.int8), nothing)


@dataclass(slots=True)
class Payloads:
    """Entries with their decompressed records; ``data[start[i]:end[i]]`` holds the records of entry i.

    failed: the entries that cannot be decompressed, with the error.
    """

    entries: Entries
    headers: Headers
    data: Bytes
    start: Positions
    end: Positions
    failed: dict[int, CompressionError]


def codecs_of(entries: Entries, headers: Headers) -> npt.NDArray[np.int64]:
    """Return the compression codec of each entry."""
    return attributes_of(entries, headers) & CODEC_BITS


def attributes_of(entries: Entries, headers: Headers) -> npt.NDArray[np.int64]:
    """Return the low byte of each entry's attributes, the only byte that Kafka reads."""
    # in an old message they are the first byte of what HEADER calls the checksum
    return np.asarray(np.where(entries.magic == 2, headers["attributes"] & 0xFF, headers["crc"] >> 24).astype(np.int64))


def parts_of(size: Positions, most_bytes: int) -> Iterator[slice]:
    """Ranges of entries of at most ``most_bytes`` together; a single entry may have more. size: of each entry."""
    reach = np.cumsum(size)
    first = 0
    while first < len(size):
        spent = int(reach[first - 1]) if first else 0
        part = slice(first, max(first + 1, int(np.searchsorted(reach, spent + most_bytes, "right"))))
        yield part
        first = part.stop


def payloads_of(
    window: Bytes, at: Positions, entries: Entries, headers: Headers, decompressor: Decompressor, most_bytes: int
) -> Iterator[Payloads]:
    """Yield the entries with their decompressed records, in pieces of about ``most_bytes``; a single entry may be larger.

    at: where each entry begins in ``window``, which must end in PADDING.
    """
    is_modern = entries.magic == 2
    start = np.where(is_modern, at + HEADER_SIZE, at)
    end = at + entries.size
    is_compressed = (codecs_of(entries, headers) != 0) & ~(is_modern & (start == end) & (headers["count"] == 0))
    columns = np.where(is_modern, headers["count"].astype(np.int64), 1) * _BYTES_PER_ROW
    if is_compressed.any():
        yield from _decompressed(Payloads(entries, headers, window, start, end, {}), at, is_compressed, columns, decompressor, most_bytes)
        return
    for part in parts_of(np.maximum(entries.size, columns), most_bytes):
        yield Payloads(entries.take(part), headers[part], window, start[part], end[part], {})


def _decompressed(
    stored: Payloads, at: Positions, is_compressed: Mask, columns: Positions, decompressor: Decompressor, most_bytes: int
) -> Iterator[Payloads]:
    """Yield the pieces of ``payloads_of`` for compressed entries.

    stored: the entries as they are in the file. columns: about how many bytes the columns of each entry take.
    """
    entries, headers, view = stored.entries, stored.headers, stored.data.data
    pieces: list[bytes | memoryview] = []
    failed: dict[int, CompressionError] = {}
    cost = first = 0
    by_entry = (at, stored.start, stored.end, codecs_of(entries, headers), entries.magic, is_compressed, columns)
    for i, (entry_at, begin, finish, codec, magic, packed, column_bytes) in enumerate(
        zip(*(column.tolist() for column in by_entry), strict=True)
    ):
        piece: bytes | memoryview = view[begin:finish]
        if packed:
            try:
                stream = bytes(piece) if magic == 2 else wrapped_stream(view, entry_at, finish, magic)
                piece = decompressor.decompress(codec, stream, magic=magic)
            except CompressionError as error:
                failed[i - first] = error.without_frames()
                piece = b""
        pieces.append(piece)
        # the count of a header may be wrong, but no record takes less than seven bytes
        cost += max(len(piece), min(column_bytes, _BYTES_PER_ROW * (len(piece) // MIN_RECORD + 1)))
        if cost >= most_bytes:
            yield _joined(entries, headers, first, pieces, failed)
            pieces, failed, cost, first = [], {}, 0, i + 1
    if pieces:
        yield _joined(entries, headers, first, pieces, failed)


def _joined(
    entries: Entries, headers: Headers, first: int, pieces: Sequence[bytes | memoryview], failed: dict[int, CompressionError]
) -> Payloads:
    """Return the entries from ``first`` on with their decompressed records, ``pieces``, copied into one new buffer."""
    bounds = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=bounds[1:])
    data = np.frombuffer(b"".join([*pieces, bytes(PADDING)]), np.uint8)
    part = slice(first, first + len(pieces))
    return Payloads(entries.take(part), headers[part], data, bounds[:-1], bounds[1:], failed)


def wrapped_stream(view: memoryview, at: int, end: int, magic: int) -> bytes:
    """Return the compressed value of an old message. Raises CompressionError (wrapper_malformed) if no value fills the rest of the
    message."""
    here = at + (26 if magic else 18)
    for _ in range(2):
        length = int.from_bytes(view[here : here + 4], "big", signed=True) if here + 4 <= end else -2
        here += 4 + max(length, 0)
    if length < 0 or here != end:
        raise CompressionError("wrapper_malformed", "the compressed message has no value, or one that does not fill it")
    return bytes(view[end - length : end])


@dataclass(slots=True)
class StoredRecords:
    """The records of some entries, as columns of one length.

    Attributes:
        batch: int64, the index of each record's entry.
        size: int64, bytes of each record, uncompressed.
        keep: bool; False for a record that is lost by itself.
        lost: entries without a readable record.
        damages: an iterable for one pass: entries and records that cannot be read, or are read with a doubt.
    """

    records: Records
    batch: Positions
    size: Positions
    keep: Mask
    lost: list[int]
    damages: Iterable[Damage]

    def take(self, rows: npt.NDArray[Any]) -> "StoredRecords":
        """Return the records of a mask or of indices without copying keys or values."""
        return StoredRecords(self.records.take(rows), self.batch[rows], self.size[rows], self.keep[rows], self.lost, self.damages)


def read_in_file_order(payloads: Payloads, skip_below: int = _LEAST) -> StoredRecords:
    """Return the records of some entries in file order. Damage below ``skip_below`` is not reported."""
    return _Reading(payloads, skip_below).records()


def read_in_offset_order(payloads: Payloads, skip_below: int) -> tuple[StoredRecords, int]:
    """Return the records of some entries in offset order, and the number of skipped records below ``skip_below``.

    Of several records with one offset, the last one in the file is kept.
    """
    stored = read_in_file_order(payloads, skip_below)
    records, keep, record_offset = stored.records, stored.keep, stored.records.record_offset
    order = None
    if not (record_offset[1:] > record_offset[:-1]).all():
        order, disorder = _order_of(record_offset, stored.batch, payloads.entries, keep, skip_below)
        stored.damages = chain(stored.damages, disorder)
    skipped = 0
    if len(records) and int(record_offset.min()) < skip_below:
        above = record_offset >= skip_below
        skipped = int(np.count_nonzero(keep & ~above))
        keep &= above
    if order is not None:
        stored = stored.take(order[keep[order]])
    elif not keep.all():
        stored = stored.take(keep)
    return stored, skipped


def correct_offset_ranges(entries: Entries, headers: Headers, bytes_between: Callable[[int, int], bytes]) -> None:
    """Sets first_offset and last_offset of the entries whose headers do not have them.

    These are compressed old messages, whose header has the offset of one message inside, and batches with an impossible last offset delta.
    bytes_between: gives the bytes of the file from one position to another.
    """
    is_modern = entries.magic == 2
    last_delta = headers["last_offset_delta"]
    hidden = (last_delta < 0) | (last_delta < headers["count"] - np.int64(1))
    if not is_modern.all():
        hidden = np.where(is_modern, hidden, codecs_of(entries, headers) != 0)
    if not hidden.any():
        return
    decompressor = Decompressor()
    for i in np.flatnonzero(hidden).tolist():
        at = int(entries.position[i])
        inside = _offsets_inside(bytes_between(at, at + int(entries.size[i])), int(entries.magic[i]), headers[i], decompressor)
        entries.first_offset[i], entries.last_offset[i], entries.moved_by[i] = inside


def _offsets_inside(entry: bytes, magic: int, header: Any, decompressor: Decompressor) -> tuple[int, int, int]:
    """Return the first and last offset of one entry, and its ``moved_by``."""
    view = memoryview(entry)
    base = int(header["base_offset"])
    try:
        if magic == 2:
            codec = int(header["attributes"]) & CODEC_BITS
            inside = memoryview(decompressor.decompress(codec, entry[HEADER_SIZE:], magic=magic)) if codec else view[HEADER_SIZE:]
            deltas = [record.offset_delta for record in read_records(inside, 0, len(inside), int(header["count"]))]
            return base, as_int64(base + max(deltas, default=0)), 0
        stream = decompressor.decompress(int(header["crc"]) >> 24 & CODEC_BITS, wrapped_stream(view, 0, len(entry), magic), magic=magic)
        inner = read_inner_messages(stream, 0, len(stream))
        base = inner_offset_base(stream, inner, magic, base)
        # below zero the offset of the compressed message is wrong, and only its neighbours show the right one
        moved_by = OUT_OF_RANGE if base < 0 else 0
        offsets = [int.from_bytes(stream[place.start : place.start + 8], "big", signed=True) for place in inner.places]
        return as_int64(base + moved_by + min(offsets)), as_int64(base + moved_by + max(offsets)), moved_by
    except BatchError:
        # the entry will be lost for this error; until then its header says where its offsets lie
        return base, as_int64(base + max(int(header["last_offset_delta"]), 0)) if magic == 2 else base, 0


class _Reading:
    """Reads the records of some entries, as ``read_in_file_order`` says.

    _attributes, _base_offset, _fixed_timestamp: of each entry. Those of compressed old messages are known once ``_rows`` has read these.
    """

    def __init__(self, payloads: Payloads, skip_below: int) -> None:
        entries, headers = payloads.entries, payloads.headers
        self._payloads, self._entries, self._headers = payloads, entries, headers
        self._skip_below = skip_below
        self._is_modern = entries.magic == 2
        self._attributes = np.where(self._is_modern, attributes_of(entries, headers), 0)
        self._base_offset = np.where(self._is_modern, headers["base_offset"], 0) + entries.moved_by
        self._fixed_timestamp = headers["max_timestamp"].astype(np.int64)
        self._lost: dict[int, BatchError] = dict(payloads.failed)
        self._damages: list[Damage] = []

    def records(self) -> StoredRecords:
        """Return the records in file order."""
        payloads, entries, headers, is_modern = self._payloads, self._entries, self._headers, self._is_modern
        rows = self._rows()
        self._damages += [self._lost_entry(i, self._lost[i]) for i in sorted(self._lost) if entries.last_offset[i] >= self._skip_below]
        batch = rows.batch
        record_offset = rows.offset_delta
        record_offset += self._base_offset[batch]
        timestamp_ms = rows.timestamp_delta
        timestamp_ms += np.where(is_modern, headers["base_timestamp"], 0)[batch]
        has_fixed = (self._attributes & LOG_APPEND_TIME) != 0
        if has_fixed.any():
            timestamp_ms = np.where(has_fixed[batch], self._fixed_timestamp[batch], timestamp_ms)
        producer_id = np.where(is_modern, headers["producer_id"], NO_PRODUCER_ID)
        producer_epoch = np.where(is_modern, headers["producer_epoch"], NO_PRODUCER_EPOCH).astype(np.int16)
        records = Records(
            record_offset,
            timestamp_ms,
            Slices(payloads.data, rows.key_start, rows.key_end, rows.key_is_null),
            Slices(payloads.data, rows.value_start, rows.value_end, rows.value_is_null),
            producer_id[batch],
            producer_epoch[batch],
            ((self._attributes & TRANSACTIONAL) != 0)[batch],
            np.full(len(rows), NOT_A_CONTROL_RECORD, np.int8),
            entries.position[batch],
        )
        keep = np.ones(len(rows), np.bool_)
        is_control = (self._attributes & CONTROL) != 0
        of_control = self._read_control_types(records, np.flatnonzero(is_control[batch]), batch, keep) if is_control.any() else ()
        damages = chain(self._damages, of_control, self._offset_ranges(record_offset, batch))
        return StoredRecords(records, batch, rows.size, keep, list(self._lost), damages)

    def _rows(self) -> Rows:
        """Return the rows of batches and old messages together."""
        payloads, entries = self._payloads, self._entries
        usable = np.ones(len(entries), np.bool_)
        usable[list(self._lost)] = False
        batches = np.flatnonzero(self._is_modern & usable)
        counts = self._headers["count"][batches].astype(np.int64)
        rows, errors = read_rows(payloads.data, payloads.start[batches], payloads.end[batches], counts)
        rows.batch = batches[rows.batch]
        self._lost.update({int(batches[i]): error for i, error in errors.items()})
        if self._is_modern.all():
            return rows
        owner, start, end = self._legacy_message_places(np.flatnonzero(~self._is_modern & usable))
        old, errors = read_messages(payloads.data, start, end)
        old.batch = owner[old.batch]
        for message, error in errors.items():
            i = int(owner[message])
            at = int(start[message])
            record_offset = as_int64(int.from_bytes(payloads.data[at : at + 8].tobytes(), "big", signed=True) + int(self._base_offset[i]))
            if record_offset >= self._skip_below:
                sentence = f"{error.detail[0].upper()}{error.detail[1:]}."
                place = int(entries.position[i]), int(entries.size[i]), record_offset
                self._damages.append(Damage(error.code, *place, sentence, 1, of_record=True))
        if len(rows) == 0:
            return old
        both = Rows.concat([rows, old])
        return both.take(np.argsort(both.batch, kind="stable"))

    def _legacy_message_places(self, old: Positions) -> tuple[Positions, Positions, Positions]:
        """Return the entry, start and end of every old message, including those inside compressed messages."""
        payloads, entries, headers = self._payloads, self._entries, self._headers
        view = payloads.data.data
        stored = headers["crc"] >> 24
        places: list[tuple[int, int, int]] = []
        for i in old.tolist():
            at, finish = int(payloads.start[i]), int(payloads.end[i])
            if stored[i] & CODEC_BITS == 0:
                places.append((i, at, finish))
                continue
            position, size = int(entries.position[i]), int(entries.size[i])
            try:
                inner = read_inner_messages(view, at, finish)
            except RecordError as error:
                self._lost[i] = error.without_frames()
                continue
            base = inner_offset_base(view, inner, int(entries.magic[i]), int(headers["base_offset"][i]))
            self._base_offset[i] = as_int64(int(self._base_offset[i]) + base)
            if entries.magic[i] == 1 and stored[i] & LOG_APPEND_TIME:
                self._attributes[i] |= LOG_APPEND_TIME
                self._fixed_timestamp[i] = legacy_timestamp(headers[i])
            first, last = int(entries.first_offset[i]), int(entries.last_offset[i])
            if inner.is_cut:
                kept = len(inner.places)
                detail = f"The compressed message with offsets {first} to {last} ends inside of a message; the {kept} before it are kept."
                self._damages.append(Damage("inner_message_truncated", position, size, first, detail))
            for place in inner.places:
                if not inner_checksum_fits(view, place):
                    offset = int.from_bytes(view[place.start : place.start + 8], "big", signed=True) + int(self._base_offset[i])
                    detail = f"The checksum of the message at offset {offset} does not fit; that of the compressed message around it does."
                    self._damages.append(Damage("inner_crc_mismatch", position, size, offset, detail, 1, of_record=True))
                places.append((i, place.start, place.end))
        owner, start, end = np.array(places, np.int64).reshape(-1, 3).T.copy()
        return owner, start, end

    def _lost_entry(self, i: int, error: BatchError) -> Damage:
        entries, headers = self._entries, self._headers
        first, last = int(entries.first_offset[i]), int(entries.last_offset[i])
        records = None
        if entries.magic[i] == 2:
            count, last_delta = int(headers["count"][i]), int(headers["last_offset_delta"][i])
            if 0 <= count <= last_delta + 1 and error.code != "record_count_impossible":
                records = count
        detail = f"Batch with offsets {first} to {last}: {error.detail}.{MARKER_LOST if self._attributes[i] & CONTROL else ''}"
        return Damage(error.code, int(entries.position[i]), int(entries.size[i]), first, detail, records)

    def _read_control_types(self, records: Records, control: Positions, batch: Positions, keep: Mask) -> Iterator[Damage]:
        """Sets control_type of the control records, and clears ``keep`` of those whose key has no type. Returns the damage among them."""
        start = records.key.start[control]
        length = records.key.end[control] - start
        halves = np.ndarray((len(records.key.data) - 1,), ">i2", records.key.data.data, 0, (1,))
        version, kind = halves[start], halves[start + 2].astype(np.int64)
        readable = (length >= 4) & (version >= 0)
        records.control_type[control] = np.where((kind >= 0) & (kind < OTHER_CONTROL_TYPE), kind, OTHER_CONTROL_TYPE)
        keep[control[~readable]] = False
        is_odd = ~readable | (kind < MarkerType.ABORT) | (kind > MarkerType.COMMIT)
        is_odd &= records.record_offset[control] >= self._skip_below

        def damages() -> Iterator[Damage]:
            for i in np.flatnonzero(is_odd).tolist():
                row = int(control[i])
                offset = int(records.record_offset[row])
                place = int(records.position[row]), int(self._entries.size[batch[row]]), offset
                if readable[i]:
                    detail = f"The control record at offset {offset} has type {kind[i]}, neither ABORT (0) nor COMMIT (1)."
                    yield Damage("control_type_unknown", *place, detail, 1, of_record=True)
                    continue
                key_is = "null" if records.key.is_null[row] else f"of {length[i]} bytes" if length[i] < 4 else f"of version {version[i]}"
                detail = f"The key of the control record at offset {offset} is {key_is}.{MARKER_LOST}"
                key, value = records.key.row(row), records.value.row(row)
                yield Damage("control_record_malformed", *place, detail, 1, key, value, of_record=True)

        return damages()

    def _offset_ranges(self, record_offset: Positions, batch: Positions) -> Iterator[Damage]:
        """Batches whose last offset is impossible, and batches with records outside of the range of offsets that they claim."""
        entries, headers = self._entries, self._headers
        last_delta = headers["last_offset_delta"]
        strange = self._is_modern & ((last_delta < 0) | (last_delta < headers["count"] - np.int64(1)))
        for i in np.flatnonzero(strange).tolist():
            if i not in self._lost and entries.last_offset[i] >= self._skip_below:
                first = int(entries.first_offset[i])
                claimed = first + int(last_delta[i])
                detail = f"The batch at offset {first} claims to end at {claimed} with {counted(int(headers['count'][i]), 'record')} in it."
                yield Damage("last_offset_delta_invalid", int(entries.position[i]), int(entries.size[i]), first, detail)
        outside = (record_offset < entries.first_offset[batch]) | (record_offset > entries.last_offset[batch])
        if not outside.any():
            return
        for i, records in zip(*(column.tolist() for column in np.unique(batch[outside], return_counts=True)), strict=True):
            first, last = int(entries.first_offset[i]), int(entries.last_offset[i])
            detail = f"The batch with offsets {first} to {last} has {counted(records, 'record')} outside of that range."
            yield Damage("record_offset_out_of_batch", int(entries.position[i]), int(entries.size[i]), first, detail, records)


def _order_of(record_offset: Positions, batch: Positions, entries: Entries, keep: Mask, skip_below: int) -> tuple[Positions, list[Damage]]:
    """Return the rows in offset order, and the entries whose offsets do not increase.

    Of rows with one offset all but the last in the file have their ``keep`` cleared.
    """
    order = np.lexsort((np.arange(len(batch)), entries.position[batch], record_offset))
    is_replaced = np.zeros(len(batch), np.bool_)
    is_replaced[order[:-1]] = record_offset[order[1:]] == record_offset[order[:-1]]
    keep &= ~is_replaced
    falls = np.zeros(len(batch), np.bool_)
    falls[1:] = (batch[1:] == batch[:-1]) & (record_offset[1:] <= record_offset[:-1])
    replaced_in = np.bincount(batch[is_replaced], minlength=len(entries))
    damages = []
    for i in np.unique(batch[is_replaced | falls]).tolist():
        if entries.last_offset[i] < skip_below:
            continue
        replaced = int(replaced_in[i])
        first, last = int(entries.first_offset[i]), int(entries.last_offset[i])
        detail = f"Offsets do not rise in the batch with offsets {first} to {last}; {replaced} of its records give way to later ones."
        damages.append(Damage("record_offset_disorder", int(entries.position[i]), int(entries.size[i]), first, detail, replaced))
    return np.asarray(order), damages
