"""What ``batches.py`` and ``columnar.py`` do entry by entry and column by column, as ``protocol/loops.py``."""

import numpy as np
from numba import types

from groupcoord_spark.log.batches import LOG_OVERHEAD, MIN_ENTRY
from groupcoord_spark.log.scalar import MIN_RECORD
from groupcoord_spark.protocol.loops import BYTES, FLAGS_OUT, NUMBERS, NUMBERS_OUT, compiled, part_of_a_loop


@compiled(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64, NUMBERS_OUT))
def follow_lengths(data, at, end, found):
    """Fills ``found`` with positions of entries, as far as there are; how many, and the end of the last."""
    n = 0
    while n < len(found) and at <= end - MIN_ENTRY:
        length = np.int64(data[at + 8]) << 24 | np.int64(data[at + 9]) << 16 | np.int64(data[at + 10]) << 8 | np.int64(data[at + 11])
        if at + LOG_OVERHEAD + length > end:
            break
        found[n] = at
        n += 1
        at += LOG_OVERHEAD + length
    return n, at


@part_of_a_loop
def _varint(data, at, end):
    """The bits of the varint at ``at``, 32 at most, and where it ends; -1 where it has more or does not end before ``end``."""
    bits, shift = np.int64(0), 0
    while at < end and data[at] >= 0x80 and shift < 28:
        bits |= (np.int64(data[at]) & 0x7F) << shift
        shift += 7
        at += 1
    if at >= end or data[at] >= 0x80:
        return bits, -1
    bits |= np.int64(data[at]) << shift
    return bits, at + 1 if bits >> 32 == 0 else -1


@part_of_a_loop
def _varlong(data, at, end):
    """The same of up to 63 bits, enough for every time there is."""
    bits, shift = np.int64(0), 0
    while at < end and data[at] >= 0x80 and shift < 56:
        bits |= (np.int64(data[at]) & 0x7F) << shift
        shift += 7
        at += 1
    if at >= end or data[at] >= 0x80:
        return bits, -1
    return bits | np.int64(data[at]) << shift, at + 1


@part_of_a_loop
def _read_record(
    data, at, end, row, offset_delta, timestamp_delta, key_start, key_end, key_is_null, value_start, value_end, value_is_null
):
    """Fills one row; where the record ends, -1 if it may not be read so."""
    bits, at = _varint(data, at, end)
    finish = at + (bits >> 1)
    if at < 0 or bits & 1 or finish > end or finish - at < MIN_RECORD - 1:
        return -1
    bits, at = _varlong(data, at + 1, finish)  # behind one byte of attributes
    if at < 0:
        return -1
    timestamp_delta[row] = (bits >> 1) ^ -(bits & 1)
    bits, at = _varint(data, at, finish)
    if at < 0:
        return -1
    offset_delta[row] = (bits >> 1) ^ -(bits & 1)
    bits, at = _varint(data, at, finish)
    if at < 0:
        return -1
    key_is_null[row] = bits & 1
    key_start[row] = at
    at += 0 if bits & 1 else bits >> 1
    key_end[row] = at
    bits, at = _varint(data, at, finish)
    if at < 0:
        return -1
    value_is_null[row] = bits & 1
    value_start[row] = at
    at += 0 if bits & 1 else bits >> 1
    value_end[row] = at
    # one that ends with a zero byte (no headers) exactly where it says can be read in no other way
    return finish if at == finish - 1 and data[at] == 0 else -1


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, NUMBERS, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT,
        NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def read_rows(
    data, start, end, count, batch, offset_delta, timestamp_delta,
    key_start, key_end, key_is_null, value_start, value_end, value_is_null, odd,
):  # fmt: skip
    """Fills the columns of ``columnar.Rows``, and sets ``odd`` for each batch that must be read again, record by record."""
    row = 0
    for i in range(len(start)):
        first, at = row, start[i]
        row += count[i]
        batch[first:row] = i
        for k in range(first, row):
            at = _read_record(
                data, at, end[i], k, offset_delta, timestamp_delta, key_start, key_end, key_is_null, value_start, value_end, value_is_null
            )
            if at < 0:
                break
        if at != end[i]:
            odd[i] = True
