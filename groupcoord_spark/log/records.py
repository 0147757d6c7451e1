"""Entries become records: the columns that everything after this room works on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.log.batches import (
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
from groupcoord_spark.log.columnar import Rows, read_messages, read_rows
from groupcoord_spark.log.compression import CompressionError, Decompressor
from groupcoord_spark.log.damage import Report
from groupcoord_spark.log.scalar import MIN_RECORD, RecordError, inner_checksum_fits, inner_offset_base, read_inner_messages, read_records
from groupcoord_spark.log.storage import PADDING
from groupcoord_spark.protocol.slices import Bytes, Mask, Positions, Slices

NO_PRODUCER = -1
NOT_CONTROL = -1
ABORT, COMMIT = 0, 1
UNNAMED_CONTROL = 127
"""control_type of what does not fit an int8, or would look like NOT_CONTROL."""

_LEAST = -(2**63)

_BYTES_PER_ROW = 64
"""What the columns of one record take, about: a chunk is bounded by this too, for batches of the tiniest records."""

MARKER_LOST = " It is a control batch: if it ended a transaction, that transaction stays open in what is left."
"""What a lost control batch means, for the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Records:
    """Records of one file in the order of their offsets, as columns of one length n.

    record_offset: int64. timestamp_ms: int64, -1 where there is none (magic 0). key, value: places in one buffer; null values are
    tombstones. producer_id: int64, -1 for none. producer_epoch: int16, -1 for none. is_transactional: bool, of the batch.
    control_type: int8, -1 for what is no control record, 0 ABORT, 1 COMMIT, others as stored, 127 where that does not fit.
    position: int64, the byte in the file where the record's batch begins.
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

    def __len__(self) -> int:
        return len(self.record_offset)

    def distinct_keys(self) -> tuple[Positions, pa.BinaryArray]:
        """Code of each record's key, int64, and the distinct keys, which repeat hundreds of times; -1 for control records and null keys."""
        keys = self.key
        return Slices(keys.data, keys.start, keys.end, keys.is_null | (self.control_type != NOT_CONTROL)).distinct()

    @staticmethod
    def none() -> Records:
        """No records."""
        nothing = np.zeros(0, np.int64)
        flags = np.zeros(0, np.bool_)
        no_bytes = Slices(np.zeros(0, np.uint8), nothing, nothing, flags)
        return Records(nothing, nothing, no_bytes, no_bytes, nothing, nothing.astype(np.int16), flags, nothing.astype(np.int8), nothing)

    def take(self, rows: npt.NDArray[Any]) -> Records:
        """The records named by a boolean mask or by indices; no key or value is copied."""
        return Records(
            self.record_offset[rows],
            self.timestamp_ms[rows],
            self.key.take(rows),
            self.value.take(rows),
            self.producer_id[rows],
            self.producer_epoch[rows],
            self.is_transactional[rows],
            self.control_type[rows],
            self.position[rows],
        )


@dataclass(slots=True)
class Payloads:
    """Entries with their records at hand: those of entry i are ``data[start[i]:end[i]]``, decompressed.

    failed: entries whose records cannot be had, and why.
    """

    entries: Entries
    headers: Headers
    data: Bytes
    start: Positions
    end: Positions
    failed: dict[int, CompressionError]


def codecs_of(entries: Entries, headers: Headers) -> npt.NDArray[np.int64]:
    """The codec number in the attributes of each entry."""
    return attributes_of(entries, headers) & CODEC_BITS


def attributes_of(entries: Entries, headers: Headers) -> npt.NDArray[np.int64]:
    """The low byte of the attributes, which is all that Kafka looks at."""
    # in old messages they are the first byte where a batch has its checksum
    return np.asarray(np.where(entries.magic == 2, headers["attributes"] & 0xFF, headers["crc"] >> 24).astype(np.int64))


def payloads_of(
    window: Bytes, at: Positions, entries: Entries, headers: Headers, decompressor: Decompressor, most_bytes: int
) -> Iterator[Payloads]:
    """The same entries in pieces whose records take about ``most_bytes`` at most, unless a single entry has more.

    ``at``: where the entries begin in ``window``, which ends in PADDING.
    """
    is_modern = entries.magic == 2
    start = np.where(is_modern, at + HEADER_SIZE, at)
    end = at + entries.size
    is_compressed = (codecs_of(entries, headers) != 0) & ~(is_modern & (start == end) & (headers["count"] == 0))
    columns = np.where(is_modern, headers["count"].astype(np.int64), 1) * _BYTES_PER_ROW
    if is_compressed.any():
        yield from _decompressed(window, at, start, end, is_compressed, columns, entries, headers, decompressor, most_bytes)
        return
    cost = np.cumsum(np.maximum(entries.size, columns))
    first = 0
    while first < len(entries):
        spent = int(cost[first - 1]) if first else 0
        part = slice(first, max(first + 1, int(np.searchsorted(cost, spent + most_bytes, "right"))))
        yield Payloads(entries.take(part), headers[part], window, start[part], end[part], {})
        first = part.stop


def _decompressed(
    window: Bytes,
    at: Positions,
    start: Positions,
    end: Positions,
    is_compressed: Mask,
    columns: Positions,
    entries: Entries,
    headers: Headers,
    decompressor: Decompressor,
    most_bytes: int,
) -> Iterator[Payloads]:
    view = window.data
    pieces: list[bytes | memoryview] = []
    failed: dict[int, CompressionError] = {}
    cost = first = 0
    facts = (at, start, end, codecs_of(entries, headers), entries.magic, is_compressed, columns)
    for i, (entry_at, begin, finish, codec, magic, packed, of_columns) in enumerate(zip(*(fact.tolist() for fact in facts), strict=True)):
        piece: bytes | memoryview = view[begin:finish]
        if packed:
            try:
                stream = bytes(piece) if magic == 2 else wrapped_stream(view, entry_at, finish, magic)
                piece = decompressor.decompress(codec, stream, magic=magic)
            except CompressionError as error:
                failed[i - first] = error
                piece = b""
        pieces.append(piece)
        # a count is only a claim: no record takes less than seven bytes
        cost += max(len(piece), min(of_columns, _BYTES_PER_ROW * (len(piece) // MIN_RECORD + 1)))
        if cost >= most_bytes:
            yield _joined(entries, headers, first, pieces, failed)
            pieces, failed, cost, first = [], {}, 0, i + 1
    if pieces:
        yield _joined(entries, headers, first, pieces, failed)


def _joined(
    entries: Entries, headers: Headers, first: int, pieces: Sequence[bytes | memoryview], failed: dict[int, CompressionError]
) -> Payloads:
    """Entries from ``first`` on, with ``pieces``, what each of them holds, in one new buffer."""
    bounds = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum([len(piece) for piece in pieces], out=bounds[1:])
    data = np.frombuffer(b"".join([*pieces, bytes(PADDING)]), np.uint8)
    part = slice(first, first + len(pieces))
    return Payloads(entries.take(part), headers[part], data, bounds[:-1], bounds[1:], failed)


def wrapped_stream(view: memoryview, at: int, end: int, magic: int) -> bytes:
    """The compressed value of a wrapper. Raises CompressionError (wrapper_malformed) where it has none that fills the message."""
    here = at + (26 if magic else 18)
    for _ in range(2):
        length = int.from_bytes(view[here : here + 4], "big", signed=True) if here + 4 <= end else -2
        here += 4 + max(length, 0)
    if length < 0 or here != end:
        raise CompressionError("wrapper_malformed", "the compressed message has no value, or one that does not fill it")
    return bytes(view[end - length : end])


@dataclass(slots=True)
class Stored:
    """What some entries hold, in the order in which they hold it.

    batch: the entry of each record. keep: False for records that are lost by themselves. lost: entries of which nothing can be read.
    """

    records: Records
    batch: Positions
    keep: Mask
    lost: list[int]


def read_stored(payloads: Payloads, report: Report, skip_below: int = _LEAST) -> Stored:
    """The records of some entries as they lie there. What cannot be read goes to ``report``, unless it is wholly below ``skip_below``."""
    entries, headers = payloads.entries, payloads.headers
    is_modern = entries.magic == 2
    attributes = np.where(is_modern, attributes_of(entries, headers), 0)
    base_offset = np.where(is_modern, headers["base_offset"], 0) + entries.moved_by
    base_timestamp = np.where(is_modern, headers["base_timestamp"], 0)
    fixed_timestamp = headers["max_timestamp"].astype(np.int64)
    lost: dict[int, RecordError | CompressionError] = dict(payloads.failed)
    if is_modern.all() and not lost:
        rows, errors = read_rows(payloads.data, payloads.start, payloads.end, headers["count"].astype(np.int64))
        lost.update(errors)
    else:
        rows = _read_mixed(payloads, is_modern, base_offset, attributes, fixed_timestamp, lost, report, skip_below)
    for i in sorted(lost):
        if int(entries.last_offset[i]) >= skip_below:
            _report_lost(payloads, attributes, i, lost[i], report)

    batch = rows.batch
    record_offset = rows.offset_delta
    record_offset += base_offset[batch]
    timestamp_ms = rows.timestamp_delta
    timestamp_ms += base_timestamp[batch]
    has_fixed = (attributes & LOG_APPEND_TIME) != 0
    if has_fixed.any():
        timestamp_ms = np.where(has_fixed[batch], fixed_timestamp[batch], timestamp_ms)
    producer_id = np.where(is_modern, headers["producer_id"], NO_PRODUCER)
    producer_epoch = np.where(is_modern, headers["producer_epoch"], NO_PRODUCER).astype(np.int16)
    records = Records(
        record_offset,
        timestamp_ms,
        Slices(payloads.data, rows.key_start, rows.key_end, rows.key_is_null),
        Slices(payloads.data, rows.value_start, rows.value_end, rows.value_is_null),
        producer_id[batch],
        producer_epoch[batch],
        ((attributes & TRANSACTIONAL) != 0)[batch],
        np.full(len(rows), NOT_CONTROL, np.int8),
        entries.position[batch],
    )
    keep = np.ones(len(rows), np.bool_)
    is_control = (attributes & CONTROL) != 0
    if is_control.any():
        _read_control_types(records, np.flatnonzero(is_control[batch]), entries.size[batch], keep, report, skip_below)
    _doubt_ranges(record_offset, batch, payloads, is_modern, lost, report, skip_below)
    return Stored(records, batch, keep, list(lost))


def records_of(payloads: Payloads, report: Report, skip_below: int) -> tuple[Records, int]:
    """The records of some entries in the order of their offsets, and how many are left out as below ``skip_below``.

    Of records with one offset the last in the file counts. What cannot be read goes to ``report``.
    """
    stored = read_stored(payloads, report, skip_below)
    records, keep, record_offset = stored.records, stored.keep, stored.records.record_offset
    order = None
    if not (record_offset[1:] > record_offset[:-1]).all():
        order = _order_of(record_offset, stored.batch, payloads.entries, keep, report, skip_below)
    skipped = 0
    if len(records) and int(record_offset.min()) < skip_below:
        above = record_offset >= skip_below
        skipped = int(np.count_nonzero(keep & ~above))
        keep &= above
    if order is not None:
        records = records.take(order[keep[order]])
    elif not keep.all():
        records = records.take(keep)
    return records, skipped


def correct_ranges(entries: Entries, headers: Headers, bytes_between: Callable[[int, int], bytes], decompressor: Decompressor) -> None:
    """Sets first_offset and last_offset of those entries whose headers do not tell them.

    These are compressed old messages, whose offset is that of one message inside, and batches whose last offset delta cannot be.
    bytes_between: the bytes of the file from one position to another.
    """
    is_modern = entries.magic == 2
    last_delta = headers["last_offset_delta"]
    hidden = (last_delta < 0) | (last_delta < headers["count"] - np.int64(1))
    if not is_modern.all():
        hidden = np.where(is_modern, hidden, codecs_of(entries, headers) != 0)
    for i in np.flatnonzero(hidden).tolist():
        at = int(entries.position[i])
        inside = _offsets_inside(bytes_between(at, at + int(entries.size[i])), int(entries.magic[i]), headers[i], decompressor)
        entries.first_offset[i], entries.last_offset[i], entries.moved_by[i] = inside


def _offsets_inside(entry: bytes, magic: int, header: Any, decompressor: Decompressor) -> tuple[int, int, int]:
    """First and last offset of an entry, and by how much they are moved."""
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
        # below zero the wrapper's own offset is wrong, and only the neighbours can tell the right one
        moved_by = OUT_OF_RANGE if base < 0 else 0
        offsets = [int.from_bytes(stream[place.start : place.start + 8], "big", signed=True) for place in inner.places]
        return as_int64(base + moved_by + min(offsets)), as_int64(base + moved_by + max(offsets)), moved_by
    except (RecordError, CompressionError):
        # it will be lost for that reason, where its header says
        return base, as_int64(base + max(int(header["last_offset_delta"]), 0)) if magic == 2 else base, 0


def _read_mixed(
    payloads: Payloads,
    is_modern: Mask,
    base_offset: Positions,
    attributes: Positions,
    fixed_timestamp: Positions,
    lost: dict[int, RecordError | CompressionError],
    report: Report,
    skip_below: int,
) -> Rows:
    """Rows of batches and old messages together. For wrappers it sets what is added to the offsets inside, and their common timestamp."""
    usable = np.ones(len(is_modern), np.bool_)
    usable[list(lost)] = False
    batches = np.flatnonzero(is_modern & usable)
    rows, errors = read_rows(
        payloads.data, payloads.start[batches], payloads.end[batches], payloads.headers["count"][batches].astype(np.int64)
    )
    rows.batch = batches[rows.batch]
    lost.update({int(batches[i]): error for i, error in errors.items()})
    if is_modern.all():
        return rows
    messages = np.flatnonzero(~is_modern & usable)
    owner, start, end = _find_messages(payloads, messages, base_offset, attributes, fixed_timestamp, lost, report)
    old, errors = read_messages(payloads.data, start, end)
    old.batch = owner[old.batch]
    entries = payloads.entries
    for message, error in errors.items():
        i = int(owner[message])
        at = int(start[message])
        record_offset = as_int64(int.from_bytes(payloads.data[at : at + 8].tobytes(), "big", signed=True) + int(base_offset[i]))
        if record_offset >= skip_below:
            report.lose_record(error.code, int(entries.position[i]), int(entries.size[i]), record_offset, _sentence(error))
    if len(rows) == 0:
        return old
    both = Rows.concat(rows, old)
    return both.take(np.argsort(both.batch, kind="stable"))


def _find_messages(
    payloads: Payloads,
    old: Positions,
    base_offset: Positions,
    attributes: Positions,
    fixed_timestamp: Positions,
    lost: dict[int, RecordError | CompressionError],
    report: Report,
) -> tuple[Positions, Positions, Positions]:
    """Where all old messages lie, those inside wrappers too: entry, start and end of each."""
    entries, headers, view = payloads.entries, payloads.headers, payloads.data.data
    stored = headers["crc"] >> 24
    owner: list[int] = []
    start: list[int] = []
    end: list[int] = []
    for i in old.tolist():
        at, finish = int(payloads.start[i]), int(payloads.end[i])
        if stored[i] & CODEC_BITS == 0:
            owner.append(i)
            start.append(at)
            end.append(finish)
            continue
        position, size = int(entries.position[i]), int(entries.size[i])
        try:
            inner = read_inner_messages(view, at, finish)
        except RecordError as error:
            lost[i] = error
            continue
        base = inner_offset_base(view, inner, int(entries.magic[i]), int(headers["base_offset"][i]))
        base_offset[i] = as_int64(int(base_offset[i]) + base)
        if entries.magic[i] == 1 and stored[i] & LOG_APPEND_TIME:
            attributes[i] |= LOG_APPEND_TIME
            fixed_timestamp[i] = legacy_timestamp(headers[i])
        first, last = int(entries.first_offset[i]), int(entries.last_offset[i])
        if inner.is_cut:
            kept = len(inner.places)
            detail = f"The compressed message with offsets {first} to {last} ends inside of a message; the {kept} before it are kept."
            report.doubt("inner_message_truncated", position, size, first, detail)
        for place in inner.places:
            if not inner_checksum_fits(view, place):
                offset = int.from_bytes(view[place.start : place.start + 8], "big", signed=True) + int(base_offset[i])
                detail = f"The checksum of the message at offset {offset} does not fit; that of the compressed message around it does."
                report.doubt_record("inner_crc_mismatch", position, size, offset, detail)
            owner.append(i)
            start.append(place.start)
            end.append(place.end)
    return np.array(owner, np.int64), np.array(start, np.int64), np.array(end, np.int64)


def _report_lost(payloads: Payloads, attributes: Positions, i: int, error: RecordError | CompressionError, report: Report) -> None:
    entries, headers = payloads.entries, payloads.headers
    first, last = int(entries.first_offset[i]), int(entries.last_offset[i])
    records = None
    if entries.magic[i] == 2:
        count, last_delta = int(headers["count"][i]), int(headers["last_offset_delta"][i])
        if 0 <= count <= last_delta + 1 and error.code != "record_count_impossible":
            records = count
    detail = f"Batch with offsets {first} to {last}: {error.detail}.{MARKER_LOST if attributes[i] & CONTROL else ''}"
    report.lose(error.code, int(entries.position[i]), int(entries.size[i]), first, detail, records)


def _sentence(error: RecordError | CompressionError) -> str:
    return f"{error.detail[0].upper()}{error.detail[1:]}."


def _read_control_types(records: Records, control: Positions, size: Positions, keep: Mask, report: Report, skip_below: int) -> None:
    """Sets control_type of the control records; those whose key says no type are reported and not kept."""
    start = records.key.start[control]
    length = records.key.end[control] - start
    halves = np.ndarray((len(records.key.data) - 1,), ">i2", records.key.data.data, 0, (1,))
    version, kind = halves[start], halves[start + 2].astype(np.int64)
    readable = (length >= 4) & (version >= 0)
    records.control_type[control] = np.where((kind >= 0) & (kind < UNNAMED_CONTROL), kind, UNNAMED_CONTROL)
    for i in np.flatnonzero(~readable | (kind < ABORT) | (kind > COMMIT)).tolist():
        row = int(control[i])
        offset, position = int(records.record_offset[row]), int(records.position[row])
        if readable[i]:
            if offset >= skip_below:
                detail = f"The control record at offset {offset} has type {kind[i]}, neither ABORT (0) nor COMMIT (1)."
                report.doubt_record("control_type_unknown", position, int(size[row]), offset, detail)
            continue
        keep[row] = False
        if offset >= skip_below:
            found = "null" if records.key.is_null[row] else f"of {length[i]} bytes" if length[i] < 4 else f"of version {version[i]}"
            detail = f"The key of the control record at offset {offset} is {found}.{MARKER_LOST}"
            report.lose_record(
                "control_record_malformed", position, int(size[row]), offset, detail, records.key.row(row), records.value.row(row)
            )


def _doubt_ranges(
    record_offset: Positions,
    batch: Positions,
    payloads: Payloads,
    is_modern: Mask,
    lost: dict[int, RecordError | CompressionError],
    report: Report,
    skip_below: int,
) -> None:
    """Reports batches whose last offset cannot be, and those with records outside of the range they claim."""
    entries, headers = payloads.entries, payloads.headers
    last_delta = headers["last_offset_delta"]
    strange = is_modern & ((last_delta < 0) | (last_delta < headers["count"] - np.int64(1)))
    for i in np.flatnonzero(strange).tolist():
        if i not in lost and entries.last_offset[i] >= skip_below:
            first = int(entries.first_offset[i])
            detail = f"The batch at offset {first} claims to end at {first + int(last_delta[i])} with {headers['count'][i]} records in it."
            report.doubt("last_offset_delta_invalid", int(entries.position[i]), int(entries.size[i]), first, detail)
    outside = (record_offset < entries.first_offset[batch]) | (record_offset > entries.last_offset[batch])
    if not outside.any():
        return
    for i, records in zip(*(column.tolist() for column in np.unique(batch[outside], return_counts=True)), strict=True):
        first, last = int(entries.first_offset[i]), int(entries.last_offset[i])
        detail = f"{records} records of the batch with offsets {first} to {last} have offsets outside of that range."
        report.doubt("record_offset_out_of_batch", int(entries.position[i]), int(entries.size[i]), first, detail, records)


def _order_of(record_offset: Positions, batch: Positions, entries: Entries, keep: Mask, report: Report, skip_below: int) -> Positions:
    """The rows in the order of their offsets. Of rows with one offset all but the last in the file leave ``keep``."""
    order = np.lexsort((np.arange(len(batch)), entries.position[batch], record_offset))
    is_replaced = np.zeros(len(batch), np.bool_)
    is_replaced[order[:-1]] = record_offset[order[1:]] == record_offset[order[:-1]]
    keep &= ~is_replaced
    falls = np.zeros(len(batch), np.bool_)
    falls[1:] = (batch[1:] == batch[:-1]) & (record_offset[1:] <= record_offset[:-1])
    replaced_in = np.bincount(batch[is_replaced], minlength=len(entries))
    for i in np.unique(batch[is_replaced | falls]).tolist():
        if entries.last_offset[i] < skip_below:
            continue
        replaced = int(replaced_in[i])
        first, last = int(entries.first_offset[i]), int(entries.last_offset[i])
        detail = f"Offsets do not rise in the batch with offsets {first} to {last}; {replaced} of its records give way to later ones."
        report.doubt("record_offset_disorder", int(entries.position[i]), int(entries.size[i]), first, detail, replaced)
    return np.asarray(order)
