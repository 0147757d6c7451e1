"""The loops that write JSON from bytes: texts of keys and values, and lines of ``groupcoord dump``. numba compiles them, and
``json_programs`` gives them the form of each message.

The loops write what brokers write. They leave every other key or value to their caller: bytes that do not decode, or are written in a way
that is legal and rare. Every read is checked against the end of its key or value, and every write against the room that is left.

This file imports nothing of this package but ``loops``, whose docstring says why.

The words of this file: ``data`` is a buffer of bytes. ``at`` is the position in ``data`` that is read next, ``to`` the position in
``out`` that is written next.
"""

import numpy as np
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from groupcoord_spark.protocol.loops import (
    BYTES,
    BYTES_OUT,
    ELEMENTS,
    END,
    FLAGS,
    FLAGS_OUT,
    NEXT,
    NEXT_TAG,
    NUMBERS,
    NUMBERS_OUT,
    PRESENCE_MARK,
    TABLE,
    TABLE_OUT,
    TAG_END,
    TAGGED,
    TEXT,
    VERSIONS,
    big_endian,
    byte_at,
    compiled,
    inlined,
    length_at,
    lies_in,
    unsigned_varint,
)

# Copies of numbers that other modules define: a test compares them.
NOT_A_CONTROL_RECORD, ABORT, COMMIT = -1, 0, 1
INTEGER, ID, NAME, BLOB, HIDDEN, NOTHING = range(12, 18)

# Why a loop stops. No position is negative.
DONE, NO_ROOM, NOT_USUAL = 0, -1, -2

DEEPEST = 64
"""How many numbers the stack of ``_write_message`` holds: one for an array, two for a section of tags, two for a tag."""

SMALL = 1024
"""More bytes than a line takes without its key and value, and more than an integer, an id, a null or a bracket takes."""

WORD, BLOCK = 8, 32
QUOTE, BACKSLASH, MINUS, COMMA, OPEN, CLOSE, CLOSE_BRACE, EQUALS = (ord(character) for character in '"\\-,[]}=')
PAIRS = np.frombuffer("".join(f"{number:02}" for number in range(100)).encode(), np.uint8)
REPLACEMENT = np.frombuffer("\ufffd".encode(), np.uint8)
U00 = np.frombuffer(b"u00", np.uint8)
HEX = np.frombuffer(b"0123456789abcdef", np.uint8)
SHORT_ESCAPES = np.frombuffer(bytes({8: b"b", 9: b"t", 10: b"n", 12: b"f", 13: b"r"}.get(byte, b"\0")[0] for byte in range(32)), np.uint8)
BASE64 = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
BASE64_URL = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)

# The texts that are the same in all lines of a dump.
PIECES = (
    '{"offsets_partition":', ',"record_offset":', ',"timestamp":',
    ',"key":null,"value":null', ',"key":{"type":', ',"data":', '},"value":', '{"version":',
    ',"producer_id":', ',"producer_epoch":', ',"is_transactional":false', ',"is_transactional":true',
    ',"control":null', ',"control":"ABORT"', ',"control":"COMMIT"',
    ',"leader_epoch":', ',"key_base64":', ',"value_base64":', "}\n",
)  # fmt: skip
(
    HEAD, RECORD_OFFSET, TIMESTAMP,
    NO_KEY_NO_VALUE, KEY_TYPE, FIELDS, VALUE, VALUE_VERSION,
    PRODUCER_ID, PRODUCER_EPOCH, IS_NOT_TRANSACTIONAL, IS_TRANSACTIONAL,
    NO_CONTROL, CONTROL_ABORT, CONTROL_COMMIT,
    LEADER_EPOCH, KEY_BASE64, VALUE_BASE64, LINE_END,
) = range(len(PIECES))  # fmt: skip
PIECE_BYTES = np.frombuffer("".join(PIECES).encode() + bytes(BLOCK), np.uint8)
PIECE_PLACES = np.cumsum([0, *map(len, PIECES)])

INT32S = types.Array(types.int32, 1, "A", readonly=True)
INT16S = types.Array(types.int16, 1, "A", readonly=True)
INT8S = types.Array(types.int8, 1, "A", readonly=True)

called = njit(_nrt=False)


@inlined
def _put(out, to, byte):
    """Writes one byte; the position after it."""
    out[np.uint64(to)] = byte
    return to + 1


def _place(context, builder, array_type, array, at):
    """LLVM's pointer to a position in an array."""
    return builder.gep(context.make_array(array_type)(context, builder, array).data, [at])


@intrinsic
def _copy_block(typing_context, data, at, out, to):
    """Copies the BLOCK bytes at ``at``, in two instructions. numba itself copies byte by byte."""

    def generate(context, builder, signature, arguments):
        (data_type, _, out_type, _), (data, at, out, to) = signature.args, arguments
        target, source = _place(context, builder, out_type, out, to), _place(context, builder, data_type, data, at)
        cgutils.raw_memcpy(builder, target, source, context.get_constant(types.intp, BLOCK), 1)
        return context.get_dummy_value()

    return types.void(data, types.int64, out, types.int64), generate


@intrinsic
def _word_at(typing_context, data, at):
    """Return the WORD bytes at ``at`` as one number."""

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments)
        word = context.get_value_type(types.int64)
        return builder.load(builder.bitcast(place, word.as_pointer()), align=1)

    return types.int64(data, types.int64), generate


@inlined
def _copy(data, at, end, out, to):
    """Copies ``data[at:end]``; the position after the copy. Behind the copy up to BLOCK bytes of ``out`` may change."""
    finish = to + end - at
    while to < finish:
        if at + BLOCK <= len(data):
            _copy_block(data, at, out, to)
            at += BLOCK
            to += BLOCK
        else:
            to = _put(out, to, data[np.uint64(at)])
            at += 1
    return finish


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
def _utf8_part(data, at, end):
    """Return the UTF-8 length of the character at ``at`` and True, or the number of bytes that Java replaces together and False.

    The first byte is not ASCII. Source: ``primitives.java_text``.
    """
    first = byte_at(data, at)
    if first < 0xC2 or first > 0xF4:
        return 1, False
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    # no form that is longer than necessary, no surrogate, nothing above U+10FFFF
    least = 0xA0 if first == 0xE0 else 0x90 if first == 0xF0 else 0x80
    greatest = 0x8F if first == 0xF4 else 0xBF
    is_surrogate = False
    for i in range(1, size):
        if at + i >= end or byte_at(data, at + i) < least or byte_at(data, at + i) > greatest:
            return i, False
        is_surrogate = is_surrogate or (first == 0xED and i == 1 and byte_at(data, at + 1) >= 0xA0)
        least, greatest = 0x80, 0xBF
    return size, not is_surrogate


@called
def _write_escaped(data, at, end, out, to):
    """Writes the inside of a JSON string byte by byte; the position after it."""
    while at < end:
        byte = byte_at(data, at)
        if byte >= 0x80:
            size, is_character = _utf8_part(data, at, end)
            for i in range(size if is_character else len(REPLACEMENT)):
                to = _put(out, to, byte_at(data, at + i) if is_character else np.int64(REPLACEMENT[i]))
            at += size
            continue
        at += 1
        if byte < 0x20:
            to = _put(out, to, BACKSLASH)
            if SHORT_ESCAPES[byte]:
                to = _put(out, to, SHORT_ESCAPES[byte])
            else:
                for i in range(3):
                    out[np.uint64(to + i)] = U00[i]
                to = _put(out, to + 3, HEX[byte >> 4])
                to = _put(out, to, HEX[byte & 15])
        else:
            if byte in (QUOTE, BACKSLASH):
                to = _put(out, to, BACKSLASH)
            to = _put(out, to, byte)
    return np.int64(to)


@inlined
def _write_text(data, at, end, out, to):
    """Writes a text as a JSON string; the position after it. At most six bytes for each of the text, and two.

    A text of a word or more without escapes is copied as it is.
    """
    to = _put(out, to, QUOTE)
    size = end - at
    is_plain = size >= WORD
    i = np.int64(0)
    while is_plain and i < size:
        # the last word overlaps the word before
        is_plain = not _needs_care(_word_at(data, at + min(i, size - WORD)))
        i += WORD
    to = _copy(data, at, end, out, to) if is_plain else _write_escaped(data, at, end, out, to)
    return _put(out, to, QUOTE)


@called
def _write_base64(data, at, end, alphabet, is_padded, out, to):
    """Writes bytes as a JSON string in base64; the position after it."""
    to = _put(out, to, QUOTE)
    while at + 3 <= end:
        bits = byte_at(data, at) << 16 | byte_at(data, at + 1) << 8 | byte_at(data, at + 2)
        out[np.uint64(to)] = alphabet[np.uint64(bits >> 18)]
        out[np.uint64(to + 1)] = alphabet[np.uint64(bits >> 12 & 63)]
        out[np.uint64(to + 2)] = alphabet[np.uint64(bits >> 6 & 63)]
        out[np.uint64(to + 3)] = alphabet[np.uint64(bits & 63)]
        at += 3
        to += 4
    left = end - at
    if left > 0:
        bits = byte_at(data, at) << 16
        if left == 2:
            bits |= byte_at(data, at + 1) << 8
        for i in range(left + 1):
            to = _put(out, to, alphabet[np.uint64(bits >> (18 - 6 * i) & 63)])
        for _ in range(3 - left if is_padded else 0):
            to = _put(out, to, EQUALS)
    return _put(out, to, QUOTE)


@inlined
def _are_equal(data, at, others, other, size):
    """True where ``size`` bytes are the same in two buffers."""
    i = 0
    while i < size and data[at + i] == others[other + i]:
        i += 1
    return i == size


@inlined
def _write_null(out, to):
    """Writes ``null``; the position after it."""
    out[np.uint64(to)], out[np.uint64(to + 1)], out[np.uint64(to + 2)], out[np.uint64(to + 3)] = 110, 117, 108, 108
    return to + 4


@inlined
def _write_message(data, at, end, steps, step, literals, stack, hidden, hidden_count, out, to):
    """Writes the JSON of the message at ``at``; the position after it, or NO_ROOM or NOT_USUAL, and how many hidden texts there are by now.

    Args:
        steps: int64[n, 6], see ``programs.Action``. step: where the program of the message begins.
        stack: room for DEEPEST numbers: the remaining elements of each array, section of tags and tag, from the outermost to the innermost
            one.
        hidden: int64[n, 4], filled with each text that is not written, because a name comes in its place: the number of its kind of names,
            its start and its end in ``data``, and the place of the name in ``out``.
    """
    depth = 0
    while True:
        action, a, b, c = steps[step, 0], steps[step, 1], steps[step, 2], steps[step, 3]
        literal, literal_end = steps[step, 4], steps[step, 5]
        step += 1
        if len(out) - to < literal_end - literal + SMALL:
            return NO_ROOM, hidden_count
        to = _copy(literals, literal, literal_end, out, to)
        if action == INTEGER:
            if at + a > end:
                return NOT_USUAL, hidden_count
            number = big_endian(data, at, a)
            if b:
                number &= (np.int64(1) << 8 * a) - 1
            to = _write_integer(number, out, to)
            at += a
        elif action in (TEXT, NAME, BLOB, HIDDEN):
            length, at = length_at(data, at, end, a)
            if at < 0 or length > end - at or (length < 0 and not b & 1) or length > c:
                return NOT_USUAL, hidden_count
            if len(out) - to < 6 * length + SMALL:
                return NO_ROOM, hidden_count
            if length < 0 or action == HIDDEN:
                to = _write_null(out, to)
            elif action == TEXT or length == 0:
                to = _write_text(data, at, at + length, out, to)
            elif action == BLOB:
                to = _write_base64(data, at, at + length, BASE64, True, out, to)
            else:
                if hidden_count == len(hidden):
                    return NO_ROOM, hidden_count
                hidden[hidden_count, 0], hidden[hidden_count, 1] = b >> 1, at
                hidden[hidden_count, 2], hidden[hidden_count, 3] = at + length, to
                hidden_count += 1
            at += max(length, 0)
        elif action == ID:
            if at + 16 > end:
                return NOT_USUAL, hidden_count
            to = _write_base64(data, at, at + 16, BASE64_URL, False, out, to)
            at += 16
        elif action == ELEMENTS:
            count, at = length_at(data, at, end, a)
            if at < 0 or (count < 0 and not b) or count > end - at or depth == DEEPEST:
                return NOT_USUAL, hidden_count
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
            mark, at = length_at(data, at, end, a)
            if at < 0:
                return NOT_USUAL, hidden_count
            if mark < 0:
                to = _write_null(out, to)
                step = c
        elif action == TAGGED:
            count, at = unsigned_varint(data, at, end)
            if at < 0 or depth + 2 > DEEPEST:
                return NOT_USUAL, hidden_count
            stack[depth], stack[depth + 1] = count, -1
            depth += 2
        elif action == NEXT_TAG:
            if stack[depth - 2] == 0:
                depth -= 2
                step = c
                continue
            stack[depth - 2] -= 1
            tag, at = unsigned_varint(data, at, end)
            # brokers write tags in ascending order, and each of them once
            if at < 0 or tag <= stack[depth - 1] or depth + 2 > DEEPEST:
                return NOT_USUAL, hidden_count
            stack[depth - 1] = tag
            size, at = unsigned_varint(data, at, end)
            if at < 0 or size > end - at:
                return NOT_USUAL, hidden_count
            tag_step = step
            while tag_step < step + a and steps[tag_step, 1] != tag:
                tag_step += 1
            if tag_step < step + a:
                stack[depth], stack[depth + 1] = at + size, to
                depth += 2
                step = steps[tag_step, 3]
            elif b:
                return NOT_USUAL, hidden_count
            else:
                at += size
                step -= 1
        elif action == TAG_END:
            depth -= 2
            # a field that has its default is left out
            begin = stack[depth + 1]
            if to - begin == c - b and _are_equal(out, begin, literals, b, c - b):
                to = begin
            if at != stack[depth]:
                return NOT_USUAL, hidden_count
            step = a
        elif action == END:
            return to if at == end else np.int64(NOT_USUAL), hidden_count


@compiled(
    types.UniTuple(types.int64, 2)(
        BYTES, NUMBERS, NUMBERS, NUMBERS, BYTES, TABLE, NUMBERS_OUT, TABLE_OUT, types.int64, BYTES_OUT, NUMBERS_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def write_messages(data, start, end, program, literals, steps, stack, hidden, row, out, text_end, is_written):
    """Writes the JSON of the messages from ``row`` on one behind another, until ``out`` is full.

    Returns:
        The row whose text comes next, and the end of the last text in ``out``.

    Args:
        data, start, end: the messages, as in ``Slices``. program: the first step of each message's program; -1 for rows without a text.
        literals, steps: of ``json_programs.json_programs()``, which hides nothing.
        stack, hidden: as in ``_write_message``.
        text_end: filled with the end of each row's text. is_written: filled with whether the row has a text.
    """
    to = np.int64(0)
    while row < len(start):
        is_written[row] = False
        if program[row] >= 0 and start[row] + 2 <= end[row] and lies_in(data, start[row], end[row]):
            end_of_text, _ = _write_message(data, start[row] + 2, end[row], steps, program[row], literals, stack, hidden, 0, out, to)
            if end_of_text == NO_ROOM:
                return row, to
            if end_of_text >= 0:
                to = end_of_text
                is_written[row] = True
        text_end[row] = to
        row += 1
    return row, to


@inlined
def _write_piece(piece, out, to):
    """Writes one of the texts that are the same in all lines."""
    return _copy(PIECE_BYTES, PIECE_PLACES[piece], PIECE_PLACES[piece + 1], out, to)


@inlined
def _write_base64_or_null(data, start, end, is_null, out, to):
    """Writes bytes as a JSON string in base64, or ``null``; the position after it."""
    return _write_null(out, to) if is_null else _write_base64(data, start, end, BASE64, True, out, to)


@compiled(
    types.UniTuple(types.int64, 4)(
        types.int64,
        types.Tuple((NUMBERS, NUMBERS, NUMBERS, INT16S, FLAGS, INT8S, INT32S)),
        types.Tuple((BYTES, NUMBERS, NUMBERS, FLAGS, NUMBERS, NUMBERS, FLAGS)),
        types.Tuple((BYTES, TABLE, NUMBERS, NUMBERS)),
        NUMBERS_OUT, types.int64, types.int64, types.int64, TABLE_OUT, BYTES_OUT,
    )
)  # fmt: skip
def write_lines(offsets_partition, columns, texts, programs, stack, row, to, hidden_count, hidden, out):
    """Writes the lines of the records from ``row`` on into ``out`` from ``to`` on, until a line cannot be written.

    Returns:
        The row whose line comes next, the end of the last line in ``out``, how many hidden texts these lines have, and why the loop
        stopped: DONE, all lines are written; NO_ROOM, the line does not fit into ``out`` or ``hidden``; NOT_USUAL, the caller must write
        the line.

    Args:
        columns: record_offset to control_type of ``log.Records``, and the leader epoch of each record's batch; empty: lines without bytes.
        texts: the buffer of all keys and values, then start, end and is_null of the keys and of the values, as in ``Slices``.
        programs: literals, steps, key_begin and value_begin of ``json_programs.JsonPrograms``.
        stack, hidden: as in ``_write_message``.
    """
    record_offset, timestamp_ms, producer_id, producer_epoch, is_transactional, control_type, leader_epoch = columns
    data, key_start, key_end, key_is_null, value_start, value_end, value_is_null = texts
    literals, steps, key_begin, value_begin = programs
    while row < len(record_offset):
        line, hidden_before = to, hidden_count
        if len(out) - to < SMALL:
            return row, line, hidden_before, NO_ROOM
        to = _write_piece(HEAD, out, to)
        to = _write_integer(offsets_partition, out, to)
        to = _write_piece(RECORD_OFFSET, out, to)
        to = _write_integer(record_offset[row], out, to)
        to = _write_piece(TIMESTAMP, out, to)
        to = _write_integer(timestamp_ms[row], out, to)
        control = np.int64(control_type[row])
        key, key_finish, value, value_finish = key_start[row], key_end[row], value_start[row], value_end[row]
        if not lies_in(data, key, key_finish) or not lies_in(data, value, value_finish):
            return row, line, hidden_before, NOT_USUAL
        if control not in (NOT_A_CONTROL_RECORD, ABORT, COMMIT):
            return row, line, hidden_before, NOT_USUAL
        if control != NOT_A_CONTROL_RECORD:
            to = _write_piece(NO_KEY_NO_VALUE, out, to)
        else:
            if key_is_null[row] or key_finish - key < 2:
                return row, line, hidden_before, NOT_USUAL
            key_type = big_endian(data, key, 2)
            if key_type < 0 or key_type >= len(key_begin):
                return row, line, hidden_before, NOT_USUAL
            to = _write_piece(KEY_TYPE, out, to)
            to = _write_integer(key_type, out, to)
            at, end, program = key + 2, key_finish, key_begin[key_type]
            is_key = True
            # numba would compile _write_message twice if it were called in two places
            while end >= 0:
                if program < 0:
                    return row, line, hidden_before, NOT_USUAL
                to = _write_piece(FIELDS, out, to)
                to, hidden_count = _write_message(data, at, end, steps, program, literals, stack, hidden, hidden_count, out, to)
                if to < 0:
                    return row, line, hidden_before, to
                end = np.int64(-1)
                to = _write_piece(VALUE, out, to) if is_key else _put(out, to, CLOSE_BRACE)
                if is_key and value_is_null[row]:
                    to = _write_null(out, to)
                elif is_key:
                    version = big_endian(data, value, 2) if value_finish - value >= 2 else np.int64(-1)
                    at, end = value + 2, value_finish
                    program = value_begin[key_type * VERSIONS + version] if 0 <= version < VERSIONS else np.int64(-1)
                    to = _write_piece(VALUE_VERSION, out, to)
                    to = _write_integer(version, out, to)
                is_key = False
        if len(out) - to < 2 * (key_finish - key + value_finish - value) + SMALL:
            return row, line, hidden_before, NO_ROOM
        to = _write_piece(PRODUCER_ID, out, to)
        to = _write_integer(producer_id[row], out, to)
        to = _write_piece(PRODUCER_EPOCH, out, to)
        to = _write_integer(np.int64(producer_epoch[row]), out, to)
        to = _write_piece(IS_TRANSACTIONAL if is_transactional[row] else IS_NOT_TRANSACTIONAL, out, to)
        to = _write_piece(NO_CONTROL + control - NOT_A_CONTROL_RECORD, out, to)
        if len(leader_epoch):
            to = _write_piece(LEADER_EPOCH, out, to)
            to = _write_integer(np.int64(leader_epoch[row]), out, to)
            to = _write_piece(KEY_BASE64, out, to)
            to = _write_base64_or_null(data, key, key_finish, key_is_null[row], out, to)
            to = _write_piece(VALUE_BASE64, out, to)
            to = _write_base64_or_null(data, value, value_finish, value_is_null[row], out, to)
        to = _write_piece(LINE_END, out, to)
        row += 1
    return row, to, hidden_count, DONE
