"""Records of many batches at once: equal to ``scalar.read_records`` and ``scalar.read_message`` on each of them, only fast.

A record's place depends on the length of the one before it, so the k-th records of all batches are found in one step. After that
every field of every record is one column. Batches that look odd in any way are read again by ``scalar.py``, which decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from groupcoord_spark.log.scalar import MIN_RECORD, NO_TIMESTAMP, Message, Record, RecordError, read_message, read_records
from groupcoord_spark.protocol import machine_code
from groupcoord_spark.protocol.slices import Bytes, Mask, Positions

_ROWS_AT_ONCE = 1 << 14
"""Rows whose columns stay in the processor's cache between one operation and the next."""

_TOO_FEW_BATCHES = 24
"""Below so many batches in a step, a loop in Python is quicker than the step."""

Words = npt.NDArray[np.int64]


def _steps() -> npt.NDArray[np.int16]:
    """How far the next record is from one that begins with these two bytes, little-endian; 0 where its length is a longer varint."""
    pair = np.arange(1 << 16)
    is_long = (pair >> 7) & 1
    step = (((pair & 0x7F) | ((pair >> 1) & 0x3F80) * is_long) >> 1) + 1 + is_long
    return np.where((pair & 0x8080) == 0x8080, 0, step).astype(np.int16)


_STEPS = _steps()


@dataclass(slots=True)
class Rows:
    """Records of several batches, batch after batch in their order, as columns of one length.

    batch: which of the batches. Places are positions in the buffer; where null, start == end. Of old messages offset_delta is the offset
    as it stands in the message, and timestamp_delta its timestamp.
    """

    batch: Positions
    offset_delta: Positions
    timestamp_delta: Positions
    key_start: Positions
    key_end: Positions
    key_is_null: Mask
    value_start: Positions
    value_end: Positions
    value_is_null: Mask

    def __len__(self) -> int:
        return len(self.batch)

    def take(self, rows: npt.NDArray[Any]) -> Rows:
        """The rows named by a mask or by indices."""
        return Rows(
            self.batch[rows],
            self.offset_delta[rows],
            self.timestamp_delta[rows],
            self.key_start[rows],
            self.key_end[rows],
            self.key_is_null[rows],
            self.value_start[rows],
            self.value_end[rows],
            self.value_is_null[rows],
        )

    @staticmethod
    def concat(one: Rows, other: Rows) -> Rows:
        """The rows of ``one``, then those of ``other``."""
        return Rows(*(np.concatenate([getattr(one, name), getattr(other, name)]) for name in Rows.__slots__))

    @staticmethod
    def empty(n: int) -> Rows:
        """``n`` rows with nothing in them yet."""
        whole = [np.empty(n, np.int64) for _ in range(7)]
        return Rows(whole[0], whole[1], whole[2], whole[3], whole[4], np.empty(n, np.bool_), whole[5], whole[6], np.empty(n, np.bool_))

    def put(self, row: int, record: Record | Message) -> None:
        """Writes one record or message into a row."""
        self.offset_delta[row], self.timestamp_delta[row] = record[0], record[1]
        self.key_is_null[row], self.value_is_null[row] = record.key is None, record.value is None
        self.key_start[row], self.key_end[row] = record.key or (0, 0)
        self.value_start[row], self.value_end[row] = record.value or (0, 0)


def read_rows(data: Bytes, start: Positions, end: Positions, count: Positions) -> tuple[Rows, dict[int, RecordError]]:
    """The records of all batches whose decompressed parts are ``data[start:end]``, and what is wrong with those that have none.

    ``data`` has at least eight bytes after the last ``end``. A batch in the errors has no rows.
    """
    room = end - start
    # these have no sensible number of rows; what is wrong with them scalar.py says
    hopeless = (count < 0) | (count > room // MIN_RECORD) | ((count == 0) & (room > 0))
    claimed, count = count, np.where(hopeless, 0, count)
    rows = Rows.empty(int(count.sum()))
    if machine_code.is_at_hand(len(rows)):
        from groupcoord_spark.protocol import loops

        odd = hopeless.copy()
        loops.read_rows(data, start, end, count, *(getattr(rows, name) for name in Rows.__slots__), odd)
    else:
        odd = hopeless | _read_in_step(data, start, end, count, rows)
    errors: dict[int, RecordError] = {}
    if odd.any():
        _read_odd_batches(data, start, end, count, claimed, np.flatnonzero(odd), rows, np.cumsum(count) - count, errors)
        if errors:
            rows = rows.take(~np.isin(rows.batch, list(errors)))
    return rows, errors


def _read_in_step(data: Bytes, start: Positions, end: Positions, count: Positions, rows: Rows) -> Mask:
    """Fills the rows of all batches, and says which of these must be read again, record by record."""
    after = np.cumsum(count)
    first = after - count
    words: Words = np.ndarray((max(len(data) - 7, 0),), "<i8", data.data, 0, (1,))
    good = np.empty(len(rows), np.bool_)
    at = 0
    while at < len(start):
        upto = max(at + 1, int(np.searchsorted(after, first[at] + _ROWS_AT_ONCE, "right")))
        block = slice(at, upto)
        _read_block(data, words, start[block], end[block], count[block], rows, good, int(first[at]), at)
        at = upto
    odd = np.zeros(len(start), np.bool_)
    odd[rows.batch[~good]] = True
    return odd


def read_messages(data: Bytes, start: Positions, end: Positions) -> tuple[Rows, dict[int, RecordError]]:
    """The messages of magic 0 and 1 that fill ``data[start:end]`` each, uncompressed, one row for each that is sound.

    ``batch`` is the index among the messages given. A message in the errors has no row.
    """
    n = len(start)
    rows = Rows.empty(n)
    last = len(data) - 8
    quads = np.ndarray((len(data) - 3,), ">i4", data.data, 0, (1,))
    eights = np.ndarray((last + 1,), ">i8", data.data, 0, (1,))
    magic = data[start + 16].astype(np.int64)
    rows.batch[:] = np.arange(n)
    rows.offset_delta[:] = eights[start]
    rows.timestamp_delta[:] = np.where(magic == 1, eights[start + 18], NO_TIMESTAMP)
    key_at = start + 18 + 8 * magic
    certain = key_at + 8 <= end
    key_length = quads[np.minimum(key_at, last)].astype(np.int64)
    rows.key_is_null[:] = key_length == -1
    rows.key_start[:] = key_at + 4
    rows.key_end[:] = rows.key_start + np.maximum(key_length, 0)
    value_at = np.minimum(rows.key_end, last)
    value_length = quads[value_at].astype(np.int64)
    rows.value_is_null[:] = value_length == -1
    rows.value_start[:] = value_at + 4
    rows.value_end[:] = rows.value_start + np.maximum(value_length, 0)
    certain &= (key_length >= -1) & (value_length >= -1) & (rows.key_end + 4 <= end) & (rows.value_end == end)
    errors: dict[int, RecordError] = {}
    for i in np.flatnonzero(~certain).tolist():
        try:
            rows.put(i, read_message(data.data, int(start[i]), int(end[i])))
        except RecordError as error:
            errors[i] = error
    return (rows.take(~np.isin(rows.batch, list(errors))) if errors else rows), errors


def _read_odd_batches(
    data: Bytes,
    start: Positions,
    end: Positions,
    count: Positions,
    claimed: Positions,
    odd: Positions,
    rows: Rows,
    first: Positions,
    errors: dict[int, RecordError],
) -> None:
    """Reads the ``odd`` batches one record after another, into the rows that are reserved for them, or into ``errors``."""
    for i in odd.tolist():
        try:
            records = read_records(data.data, int(start[i]), int(end[i]), int(claimed[i]))
        except RecordError as error:
            errors[i] = error
            continue
        for row, record in enumerate(records, int(first[i])):
            rows.put(row, record)


def _read_block(
    data: Bytes, words: Words, start: Positions, end: Positions, count: Positions, rows: Rows, good: Mask, row: int, batch: int
) -> None:
    """Fills the rows of a few batches, ``row`` being the first of them, and says which are certain."""
    at = _record_starts(data, words, start, end, count)
    n = len(at)
    if n == 0:
        return
    last_word = len(words) - 1
    here = slice(row, row + n)
    following = np.empty(n, np.int64)
    following[:-1] = at[1:]
    following[(np.cumsum(count) - 1)[count > 0]] = end[count > 0]

    # all up to the key lies in the first eight bytes: one or two of length, attributes, one each of timestamp and offset delta, one or two
    # of key length. What does not is read once more below
    word = words[at]
    is_long = (word >> 7) & 1
    length = (word & 0x7F) | ((word >> 1) & 0x3F80) * is_long
    rest = word >> ((is_long + 1) << 3)
    key_is_long = (rest >> 31) & 1
    key_length = ((rest >> 24) & 0x7F) | ((rest >> 25) & 0x3F80) * key_is_long
    timestamp_delta = _unzigzag((rest >> 8) & 0x7F)
    offset_delta = _unzigzag((rest >> 16) & 0x7F)
    body = at + 1
    body += is_long
    key_start = body + 4
    key_start += key_is_long
    certain = (length & 1) == 0
    finish = body + (length >> 1)
    unusual = np.flatnonzero(((word & 0x8080) == 0x8080) | ((rest & 0x808000) != 0) | ((rest & 0x8080000000) == 0x8080000000))
    if len(unusual):
        finish[unusual], timestamp_delta[unusual], offset_delta[unusual], key_length[unusual], key_start[unusual], certain[unusual] = (
            _read_unusual(words, at[unusual])
        )
    key_is_null = (key_length & 1) != 0
    key_end = key_start + np.where(key_is_null, 0, key_length >> 1)

    value_at = np.minimum(key_end, last_word)
    word = words[value_at]
    is_long = (word >> 7) & 1
    value_length = (word & 0x7F) | ((word >> 1) & 0x3F80) * is_long
    value_start = key_end + 1
    value_start += is_long
    unusual = np.flatnonzero((word & 0x8080) == 0x8080)
    if len(unusual):
        raw, size, is_whole = _varints32(words, value_at[unusual])
        value_length[unusual], value_start[unusual] = raw, key_end[unusual] + size
        certain[unusual] &= is_whole
    value_is_null = (value_length & 1) != 0
    value_end = value_start + np.where(value_is_null, 0, value_length >> 1)

    # a record that ends with one zero byte (no headers) exactly where it says, and where the next begins, can be read in no other way
    certain &= value_end + 1 == finish
    certain &= finish == following
    certain &= data[np.minimum(value_end, last_word)] == 0

    rows.batch[here] = np.repeat(np.arange(batch, batch + len(start)), count)
    rows.offset_delta[here], rows.timestamp_delta[here] = offset_delta, timestamp_delta
    rows.key_start[here], rows.key_end[here], rows.key_is_null[here] = key_start, key_end, key_is_null
    rows.value_start[here], rows.value_end[here], rows.value_is_null[here] = value_start, value_end, value_is_null
    good[here] = certain


def _record_starts(data: Bytes, words: Words, start: Positions, end: Positions, count: Positions) -> Positions:
    """Where each record begins, if the lengths of those before it are right; somewhere inside of the batch, if they are not."""
    after = np.cumsum(count)
    first = after - count
    at = np.empty(int(after[-1]), np.int64)
    has_records = np.flatnonzero(count)
    # those with most records first: the batches that are still at work in step k are then the first so many
    busiest = has_records[np.argsort(-count[has_records], kind="stable")]
    slot, place, final = first[busiest], start[busiest], end[busiest] - 1
    at[slot] = place
    still_busy = len(busiest) - np.cumsum(np.bincount(count[busiest])) if len(busiest) else np.zeros(1, np.int64)
    for k in range(1, len(still_busy)):
        n = int(still_busy[k])
        if n < _TOO_FEW_BATCHES:
            _record_starts_one_by_one(words, at, slot[:n] + k, place[:n], final[:n], count[busiest[:n]] - k)
            break
        place = place[:n]
        step = _STEPS[data[place] | data[place + 1].astype(np.uint16) << 8]
        longer = np.flatnonzero(step == 0)
        if len(longer):
            raw, size, _ = _varints32(words, place[longer])
            step = step.astype(np.int64)
            step[longer] = (raw >> 1) + size
        place = place + step
        np.minimum(place, final[:n], out=place)
        at[slot[:n] + k] = place
    return at


def _record_starts_one_by_one(words: Words, at: Positions, slot: Positions, place: Positions, final: Positions, count: Positions) -> None:
    """The same for what is left of a few batches: ``slot`` is where the next start of each goes, ``count`` how many starts are left."""
    for row, here, last, left in zip(slot.tolist(), place.tolist(), final.tolist(), count.tolist(), strict=True):
        word_at = words.item
        starts = []
        for _ in range(left):
            word = word_at(here)
            if word & 0x80 == 0:
                here += 1 + ((word & 0x7F) >> 1)
            elif word & 0x8000 == 0:
                here += 2 + (((word & 0x7F) | ((word >> 1) & 0x3F80)) >> 1)
            else:
                raw, size, _ = _varints32(words, np.array([here]))
                here += int(raw[0] >> 1) + int(size[0])
            here = min(here, last)
            starts.append(here)
        at[row : row + left] = starts


def _read_unusual(words: Words, at: Positions) -> tuple[Positions, Positions, Positions, Positions, Positions, Mask]:
    """Finish, timestamp delta, offset delta, zigzag key length, key start and whether all that could be read, for varints of any size."""
    last_word = len(words) - 1
    length, size, certain = _varints32(words, at)
    body = at + size
    finish = body + (length >> 1)
    certain &= (length & 1) == 0
    here = body + 1
    timestamp_delta, size, is_whole = _varints(words, np.minimum(here, last_word))
    certain &= is_whole
    here += size
    offset_delta, size, is_whole = _varints32(words, np.minimum(here, last_word))
    certain &= is_whole
    here += size
    key_length, size, is_whole = _varints32(words, np.minimum(here, last_word))
    certain &= is_whole
    return finish, _unzigzag(timestamp_delta), _unzigzag(offset_delta), key_length, here + size, certain


def _varints(words: Words, at: Positions) -> tuple[Positions, Positions, Mask]:
    """Varints of up to eight bytes at ``at``: their bits (56 at most), their sizes, and which of them do end within eight bytes."""
    word = words[at].view(np.uint64)
    stops = ~word & np.uint64(0x8080808080808080)
    stop = stops & (np.uint64(0) - stops)
    size = (np.bitwise_count(stop - np.uint64(1)).astype(np.int64) >> 3) + 1
    is_whole = stop != 0
    word &= (stop << np.uint64(1)) - np.uint64(1)
    word &= np.uint64(0x7F7F7F7F7F7F7F7F)
    word = (word & np.uint64(0x007F007F007F007F)) | ((word & np.uint64(0x7F007F007F007F00)) >> np.uint64(1))
    word = (word & np.uint64(0x00003FFF00003FFF)) | ((word & np.uint64(0x3FFF00003FFF0000)) >> np.uint64(2))
    word = (word & np.uint64(0x000000000FFFFFFF)) | ((word & np.uint64(0x0FFFFFFF00000000)) >> np.uint64(4))
    return word.view(np.int64), size, is_whole


def _varints32(words: Words, at: Positions) -> tuple[Positions, Positions, Mask]:
    """The same for varints of an int32: at most five bytes, and no bits above the 32nd."""
    raw, size, is_whole = _varints(words, at)
    return raw & 0xFFFFFFFF, size, is_whole & (size <= 5)


def _unzigzag(raw: Positions) -> Positions:
    return np.asarray((raw >> 1) ^ -(raw & 1))
