"""The loop that writes the JSON of keys and values. numba compiles it, and ``json_programs`` gives it the form of each message.

The loop writes what brokers write. It leaves every other row to ``json_texts``: bytes that do not decode or are written in a way that is
legal and rare, and texts that JSON escapes or that are not ASCII. Every read is checked against the end of its row, and every write against
the room that is left.

This file imports nothing of this package: numba compiles a loop again only when the file of the loop changes, and a changed constant or
function of another file would go unnoticed. That is why the smallest functions of ``loops`` are here a second time.

The words of this file: ``data`` is the buffer that holds all rows, and ``words`` are the eight bytes at each of its positions as one
number. ``at`` is the position in ``data`` that is read next, ``to`` the position in ``out`` that is written next.
"""

import numpy as np
from numba import njit, types

# Copies of numbers that other modules define: a test compares them.
AS_VARINT = 0
INTEGER, ID, TEXT, BLOB, ELEMENTS, NEXT, PRESENCE_MARK, TAGGED, NEXT_TAG, TAG, TAG_END, NOTHING, END = range(13)

# Results in place of a position: the text does not fit into the buffer, and the row is left to json_texts.
NO_ROOM, NOT_USUAL = -1, -2

DEEPEST = 64
"""How many numbers the stack of ``_write_message`` holds: one for an array, two for a section of tags, two for a tag."""

SMALL = 64
"""More bytes than an integer, an id, a null or a bracket takes."""

WORD = 8
QUOTE, BACKSLASH, MINUS, COMMA, OPEN, CLOSE, EQUALS = (ord(character) for character in '"\\-,[]=')
PAIRS = np.frombuffer("".join(f"{number:02}" for number in range(100)).encode(), np.uint8)
BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
BASE64_URL = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
WORDS = types.Array(types.int64, 1, "A", readonly=True, aligned=False)
BYTES_OUT = types.Array(types.uint8, 1, "C")
WORDS_OUT = types.Array(types.int64, 1, "A", aligned=False)
NUMBERS = types.Array(types.int64, 1, "A", readonly=True)
TABLE = types.Array(types.int64, 2, "C", readonly=True)
NUMBERS_OUT = types.Array(types.int64, 1, "C")
FLAGS_OUT = types.Array(types.boolean, 1, "C")

# The loops create no array, so numba need not count references (_nrt=False).
inlined = njit(_nrt=False, forceinline=True)
called = njit(_nrt=False)


@inlined
def _byte_at(data, at):
    """The byte at ``at``, which must not be negative: numba tests a signed index at each read."""
    return np.int64(data[np.uint64(at)])


@inlined
def _put(out, to, byte):
    """Writes one byte; the position after it."""
    out[np.uint64(to)] = byte
    return to + 1


@inlined
def _big_endian(data, at, size):
    """The signed integer in the ``size`` bytes at ``at``: 1, 2, 4 or 8."""
    number = np.int64(np.int8(_byte_at(data, at)))
    for i in range(1, size):
        number = number << 8 | _byte_at(data, at + i)
    return number


@inlined
def _unsigned_varint(data, at, end):
    """The unsigned varint at ``at``, and the position after it, which is -1 where there is no varint of at most 31 bits."""
    bits, shift = np.int64(0), 0
    while at < end and shift <= 28:
        byte = _byte_at(data, at)
        at += 1
        bits |= (byte & 0x7F) << shift
        if byte < 0x80:
            return bits, at if bits >> 31 == 0 else -1
        shift += 7
    return bits, -1


@inlined
def _length(data, at, end, width):
    """The length or count at ``at`` (negative: null), and the position after it, which is -1 where it cannot be read.

    width: bytes of the length, or AS_VARINT for an unsigned varint of n + 1.
    """
    if width == AS_VARINT:
        number, at = _unsigned_varint(data, at, end)
        return number - 1, at
    if at + width > end:
        return np.int64(0), -1
    return _big_endian(data, at, width), at + width


@inlined
def _copy(data, words, at, end, out, out_words, to):
    """Copies ``data[at:end]``; the position after the copy. The last word may overlap the word before it."""
    size = end - at
    if size < WORD:
        for i in range(size):
            out[np.uint64(to + i)] = data[np.uint64(at + i)]
    else:
        for i in range(0, size - WORD, WORD):
            out_words[np.uint64(to + i)] = words[np.uint64(at + i)]
        out_words[np.uint64(to + size - WORD)] = words[np.uint64(end - WORD)]
    return to + size


@inlined
def _write_integer(number, out, to):
    """Writes an integer in decimal, in at most 20 bytes; the position after it."""
    rest = np.uint64(number)
    if number < 0:
        to = _put(out, to, MINUS)
        rest = np.uint64(0) - rest
    count, power = 1, np.uint64(10)
    while count < 19 and rest >= power:
        count += 1
        power *= np.uint64(10)
    at = to + count
    while rest >= np.uint64(10):
        quotient = rest // np.uint64(100)
        pair = np.int64(rest - quotient * np.uint64(100)) * 2
        rest = quotient
        at -= 2
        out[np.uint64(at)] = PAIRS[np.uint64(pair)]
        out[np.uint64(at + 1)] = PAIRS[np.uint64(pair + 1)]
    if at > to:
        out[np.uint64(to)] = np.int64(rest) + 48
    return to + count


@inlined
def _needs_care(word):
    """True where one of the eight bytes is a control character, a quotation mark or a backslash, or is not ASCII."""
    ones, high_bits = np.int64(0x0101010101010101), np.int64(-0x7F7F7F7F7F7F7F80)
    # the high bit of a byte minus n is set where the byte is below n, or where the high bit was set before
    control, quote, backslash = word - ones * 0x20, (word ^ ones * QUOTE) - ones, (word ^ ones * BACKSLASH) - ones
    return (word | control | quote | backslash) & high_bits != 0


@inlined
def _write_text(data, words, at, end, out, out_words, to):
    """Writes a text as a JSON string; the position after it, or NOT_USUAL where the text has anything but plain ASCII."""
    to = _put(out, to, QUOTE)
    size = end - at
    if size < WORD:
        for i in range(at, end):
            byte = _byte_at(data, i)
            if byte < 0x20 or byte >= 0x80 or byte in (QUOTE, BACKSLASH):
                return np.int64(NOT_USUAL)
            to = _put(out, to, byte)
        return _put(out, to, QUOTE)
    for i in range(0, size, WORD):
        place = min(i, size - WORD)  # the last word may overlap the word before it
        word = words[np.uint64(at + place)]
        if _needs_care(word):
            return np.int64(NOT_USUAL)
        out_words[np.uint64(to + place)] = word
    return _put(out, to + size, QUOTE)


@called
def _write_base64(data, at, end, alphabet, is_padded, out, to):
    """Writes bytes as a JSON string in base64; the position after it."""
    to = _put(out, to, QUOTE)
    while at + 3 <= end:
        bits = _byte_at(data, at) << 16 | _byte_at(data, at + 1) << 8 | _byte_at(data, at + 2)
        out[np.uint64(to)] = alphabet[np.uint64(bits >> 18)]
        out[np.uint64(to + 1)] = alphabet[np.uint64(bits >> 12 & 63)]
        out[np.uint64(to + 2)] = alphabet[np.uint64(bits >> 6 & 63)]
        out[np.uint64(to + 3)] = alphabet[np.uint64(bits & 63)]
        at += 3
        to += 4
    left = end - at
    if left > 0:
        bits = _byte_at(data, at) << 16
        if left == 2:
            bits |= _byte_at(data, at + 1) << 8
        for i in range(left + 1):
            to = _put(out, to, alphabet[np.uint64(bits >> (18 - 6 * i) & 63)])
        for _ in range(3 - left if is_padded else 0):
            to = _put(out, to, EQUALS)
    return _put(out, to, QUOTE)


@inlined
def _write_null(out, to):
    out[np.uint64(to)], out[np.uint64(to + 1)], out[np.uint64(to + 2)], out[np.uint64(to + 3)] = 110, 117, 108, 108
    return to + 4


@inlined
def _are_equal(data, at, others, other, size):
    """True where ``size`` bytes are the same in two buffers."""
    i = 0
    while i < size and data[at + i] == others[other + i]:
        i += 1
    return i == size


@inlined
def _write_message(data, words, at, end, steps, step, literals, literal_words, stack, out, out_words, to):
    """Writes the JSON of the message at ``at``; the position after it, or NO_ROOM or NOT_USUAL.

    Args:
        steps: int64[n, 6], see ``json_programs.JsonAction``. step: where the program of the message begins.
        stack: room for DEEPEST numbers: what is left of each array, section of tags and tag, from the outermost to the innermost one.
    """
    depth = 0
    while True:
        action, a, b, c = steps[step, 0], steps[step, 1], steps[step, 2], steps[step, 3]
        literal, literal_end = steps[step, 4], steps[step, 5]
        step += 1
        if len(out) - to < literal_end - literal + SMALL:
            return NO_ROOM
        to = _copy(literals, literal_words, literal, literal_end, out, out_words, to)
        if action == INTEGER:
            if at + a > end:
                return NOT_USUAL
            number = _big_endian(data, at, a)
            if b:
                number &= (np.int64(1) << 8 * a) - 1
            to = _write_integer(number, out, to)
            at += a
        elif action in (TEXT, BLOB):
            length, at = _length(data, at, end, a)
            if at < 0 or length > end - at or (length < 0 and not b) or length > c:
                return NOT_USUAL
            if len(out) - to < 2 * length + SMALL:
                return NO_ROOM
            if length < 0:
                to = _write_null(out, to)
            elif action == TEXT:
                to = _write_text(data, words, at, at + length, out, out_words, to)
                if to < 0:
                    return to
            else:
                to = _write_base64(data, at, at + length, BASE64, True, out, to)
            at += max(length, 0)
        elif action == ID:
            if at + 16 > end:
                return NOT_USUAL
            to = _write_base64(data, at, at + 16, BASE64_URL, False, out, to)
            at += 16
        elif action == ELEMENTS:
            count, at = _length(data, at, end, a)
            if at < 0 or (count < 0 and not b) or count > end - at or depth == DEEPEST:
                return NOT_USUAL
            if count < 0:
                to = _write_null(out, to)
                step = c
            else:
                to = _put(out, to, OPEN)
                if count == 0:
                    to = _put(out, to, CLOSE)
                    step = c
                else:
                    stack[depth] = count
                    depth += 1
        elif action == NEXT:
            stack[depth - 1] -= 1
            if stack[depth - 1]:
                to = _put(out, to, COMMA)
                step = a
            else:
                to = _put(out, to, CLOSE)
                depth -= 1
        elif action == PRESENCE_MARK:
            mark, at = _length(data, at, end, a)
            if at < 0:
                return NOT_USUAL
            if mark < 0:
                to = _write_null(out, to)
                step = c
        elif action == TAGGED:
            count, at = _unsigned_varint(data, at, end)
            if at < 0 or depth + 2 > DEEPEST:
                return NOT_USUAL
            stack[depth], stack[depth + 1] = count, -1
            depth += 2
        elif action == NEXT_TAG:
            if stack[depth - 2] == 0:
                depth -= 2
                step = c
                continue
            stack[depth - 2] -= 1
            tag, at = _unsigned_varint(data, at, end)
            # brokers write tags in ascending order, and each of them once
            if at < 0 or tag <= stack[depth - 1] or depth + 2 > DEEPEST:
                return NOT_USUAL
            stack[depth - 1] = tag
            size, at = _unsigned_varint(data, at, end)
            known = step
            while known < step + a and steps[known, 1] != tag:
                known += 1
            if at < 0 or size > end - at or known == step + a:
                return NOT_USUAL
            stack[depth], stack[depth + 1] = at + size, to
            depth += 2
            step = steps[known, 3]
        elif action == TAG_END:
            depth -= 2
            # a field that has its default is left out
            begin = stack[depth + 1]
            if to - begin == c - b and _are_equal(out, begin, literals, b, c - b):
                to = begin
            if at != stack[depth]:
                return NOT_USUAL
            step = a
        elif action == END:
            return to if at == end else NOT_USUAL


@njit(
    types.UniTuple(types.int64, 2)(
        BYTES, WORDS, NUMBERS, NUMBERS, NUMBERS, TABLE, BYTES, WORDS,
        types.int64, NUMBERS_OUT, BYTES_OUT, WORDS_OUT, NUMBERS_OUT, FLAGS_OUT,
    ),
    cache=True,
    _nrt=False,
)  # fmt: skip
def write_messages(
    data, words, start, end, program, steps, literals, literal_words, row, stack, out, out_words, text_end, is_written,
):  # fmt: skip
    """Writes the texts of the rows from ``row`` on one behind another, until ``out`` is full.

    Returns:
        The row whose text comes next, and the end of the last text in ``out``.

    Args:
        program: where the program of each row begins; -1 for rows without a text.
        steps, literals: of ``json_programs.JsonPrograms``.
        stack: as in ``_write_message``.
        text_end: filled with the end of each row's text. is_written: filled with whether the row has a text.
    """
    to = np.int64(0)
    while row < len(start):
        is_written[row] = False
        if program[row] >= 0 and start[row] >= 0 and start[row] + 2 <= end[row] and end[row] <= len(data):
            after = _write_message(
                data, words, start[row] + 2, end[row], steps, program[row], literals, literal_words, stack, out, out_words, to
            )
            if after == NO_ROOM:
                return row, to
            if after >= 0:
                to = after
                is_written[row] = True
        text_end[row] = to
        row += 1
    return row, to
