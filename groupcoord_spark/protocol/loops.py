"""The fast path: loops over bytes that numba compiles. They fill columns with the results that the scalar decoders have for each row.

Every row is checked against the end of its buffer, and every read against the end of its row. The loops leave a row to the scalar decoder
where its bytes end too early, or where it is written in a way that is legal and rare. No loop says why a row is wrong.

This file imports nothing from this package, and other kernel files (``json_loops``) import nothing but this one. numba recompiles a kernel
only if the kernel's own file changes, so a changed constant or function in another file would go unnoticed. The cache name of a kernel
therefore includes the hash of this file.

The words of this file: a row is one key, value, batch or message; ``data`` is the buffer that holds all rows; row i is
``data[start[i]:end[i]]``; ``at`` is the position that is read next. Arguments that a loop fills are the last ones.
"""

import hashlib
from pathlib import Path

import numpy as np
from numba import njit, types

# Copies of numbers that other modules define: a test compares them.
LOG_OVERHEAD, MIN_ENTRY, MIN_RECORD, NO_TIMESTAMP = 12, 26, 7, -1
CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, OFFSET_COMMIT = 8, 1
MOST_ELEMENTS, MOST_TAGS = 1_000_000, 10_000
COMPACT, VERSIONS, UUID_BYTES = 0, 64, 16
SKIP, TEXT, NUMBERS_STEP, ELEMENTS, NEXT, PRESENCE_MARK, TAGGED, NEXT_TAG, TAG, TAG_END, MARK, END = range(12)
MIX_HIGH, MIX_LOW, MIX_GROUP = (np.int64(odd) for odd in (-7046029254386353131, -4417276706812531889, 1609587929392839161))

CONSUMER = tuple(b"consumer")

BYTES = types.Array(types.uint8, 1, "C", readonly=True)
WORDS = types.Array(types.int64, 1, "A", readonly=True, aligned=False)
WORDS_OUT = types.Array(types.int64, 1, "A", aligned=False)
NUMBERS = types.Array(types.int64, 1, "A", readonly=True)
SHORTS = types.Array(types.int16, 1, "A", readonly=True)
FLAGS = types.Array(types.boolean, 1, "A", readonly=True)
TABLE = types.Array(types.int64, 2, "C", readonly=True)
CUBE = types.Array(types.int64, 3, "C", readonly=True)
BYTES_OUT = types.Array(types.uint8, 1, "C")
NUMBERS_OUT = types.Array(types.int64, 1, "C")
TABLE_OUT = types.Array(types.int64, 2, "C")
SHORTS_OUT = types.Array(types.int16, 1, "C")
FLAGS_OUT = types.Array(types.boolean, 1, "C")


# The loops create no array, so numba need not count references (_nrt=False): the counting takes longer than many functions below.


_STAMP = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]


def compiled(signature):
    """Decorator of a loop that Python calls. The caller has created all arrays, those that the loop fills too."""

    def decorate(loop):
        loop.__qualname__ += f"_{_STAMP}"
        return njit(signature, cache=True, _nrt=False)(loop)

    return decorate


inlined = njit(_nrt=False, forceinline=True)

DEEPEST = 32
"""How deep arrays and tagged sections may be nested. No message of Kafka comes near."""


@inlined
def lies_in(data, start, end):
    """True where ``start`` to ``end`` is a part of the buffer."""
    return start >= 0 and start <= end and end <= len(data)


@inlined
def byte_at(data, at):
    """Return the byte at ``at``, which must not be negative.

    The index is unsigned because a signed one may be negative and count from the end, as in Python: numba would test that at each read.
    """
    return np.int64(data[np.uint64(at)])


@inlined
def varint(data, at, end, last_shift):
    """Return the bits of the varint at ``at`` and the position after it.

    The position is -1 where the varint reaches beyond ``end`` or has more than ``last_shift / 7 + 1`` bytes.
    """
    bits, shift = np.int64(0), 0
    while at < end and shift <= last_shift:
        byte = byte_at(data, at)
        at += 1
        if byte < 0x80:
            return bits | byte << shift, at
        bits |= (byte & 0x7F) << shift
        shift += 7
    return bits, -1


@inlined
def unsigned_varint(data, at, end):
    """Return the unsigned varint at ``at`` and the position after it, or -1 as the position if it has more than 31 bits or is cut off."""
    number, at = varint(data, at, end, 28)
    return number, at if number >> 31 == 0 else -1


@inlined
def uint32_at(data, at):
    """Return the unsigned integer in the four bytes at ``at``."""
    return byte_at(data, at) << 24 | byte_at(data, at + 1) << 16 | byte_at(data, at + 2) << 8 | byte_at(data, at + 3)


@inlined
def big_endian(data, at, size):
    """Return the signed integer in the ``size`` bytes at ``at``: 1, 2, 4 or 8."""
    if size == 8:
        return uint32_at(data, at) << 32 | uint32_at(data, at + 4)
    if size == 4:
        return np.int64(np.int32(uint32_at(data, at)))
    number = np.int64(np.int8(byte_at(data, at)))
    return number if size == 1 else number << 8 | byte_at(data, at + 1)


@inlined
def length_at(data, at, end, width):
    """Return the length or count at ``at`` (negative for null) and the position after it, or -1 as the position if it cannot be read.

    width: bytes of the length, or COMPACT for an unsigned varint of n + 1.
    """
    if width == COMPACT:
        number, at = unsigned_varint(data, at, end)
        return number - 1, at
    if at + width > end:
        return np.int64(0), -1
    return big_endian(data, at, width), at + width


@inlined
def walk_value(data, at, end, steps, step, stack, positions):
    """Return the end of the message at ``at`` and the number of its marked fields.

    The end is -1 where the message is cut, is wrong or is written in a rare way.

    Args:
        steps: int64[n, 4], see ``programs.Action``. step: where the program of the message begins.
        stack: room for DEEPEST numbers: how many elements or tags are left, from the outermost array or section to the innermost one.
        positions: filled with the positions of the marked fields, as many as there is room for.
    """
    depth, position_count = 0, 0
    while True:
        action, a, b, c = steps[step, 0], steps[step, 1], steps[step, 2], steps[step, 3]
        step += 1
        if action == SKIP:
            at += a
        elif action in (TEXT, NUMBERS_STEP):
            length, at = length_at(data, at, end, a)
            if at < 0 or (length < 0 and not b):
                return -1, position_count
            if action == NUMBERS_STEP:
                if length > MOST_ELEMENTS:
                    return -1, position_count
                length *= c
            elif length > c:
                return -1, position_count
            at += max(length, 0)
        elif action == ELEMENTS:
            count, at = length_at(data, at, end, a)
            if at < 0 or (count < 0 and not b) or count > min(end - at, MOST_ELEMENTS) or depth == DEEPEST:
                return -1, position_count
            if count <= 0:
                step = c
            else:
                stack[depth] = count
                depth += 1
        elif action == NEXT:
            stack[depth - 1] -= 1
            if stack[depth - 1]:
                step = a
            else:
                depth -= 1
        elif action == PRESENCE_MARK:
            mark, at = length_at(data, at, end, a)
            if at < 0:
                return -1, position_count
            if mark < 0:
                step = c
        elif action == TAGGED:
            count, at = unsigned_varint(data, at, end)
            # a section takes two places of the stack: how many tags are left, and the end of the current tag
            if at < 0 or count > MOST_TAGS or depth + 2 > DEEPEST:
                return -1, position_count
            stack[depth] = count
            depth += 1
        elif action == NEXT_TAG:
            if stack[depth - 1] == 0:
                depth -= 1
                step = c
                continue
            stack[depth - 1] -= 1
            tag, at = unsigned_varint(data, at, end)
            if at < 0:
                return -1, position_count
            size, at = unsigned_varint(data, at, end)
            if at < 0 or size > end - at:
                return -1, position_count
            tag_step = step
            while tag_step < step + a and steps[tag_step, 1] != tag:
                tag_step += 1
            if tag_step < step + a:
                stack[depth] = at + size
                depth += 1
                step = steps[tag_step, 3]
            else:
                at += size
                step -= 1
        elif action == TAG_END:
            # Kafka accepts a known tag of a wrong size; the scalar decoder reports it
            if at != stack[depth - 1]:
                return -1, position_count
            depth -= 1
            step = a
        elif action == MARK:
            if position_count < len(positions):
                positions[position_count] = at
            position_count += 1
        else:
            return at, position_count
        if at > end:
            return -1, position_count


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, FLAGS, SHORTS, FLAGS, FLAGS, TABLE, NUMBERS, NUMBERS_OUT, NUMBERS_OUT,
        SHORTS_OUT, FLAGS_OUT, NUMBERS_OUT, NUMBERS_OUT,
    )
)  # fmt: skip
def check_values(
    data, start, end, is_null, key_type, has_version, is_checked, steps, begin, stack, positions,
    value_version, surely_decodes, topic_high, topic_low,
):  # fmt: skip
    """Fills the columns of ``value_checks.ValueChecks``, which the caller has set to "none".

    stack, positions: as in ``walk_value``; positions has room for one.
    """
    for row in range(len(start)):
        if is_null[row] or not has_version[row] or end[row] - start[row] < 2 or not lies_in(data, start[row], end[row]):
            continue
        version = big_endian(data, start[row], 2)
        value_version[row] = version
        program = np.int64(key_type[row]) * VERSIONS + version
        if not is_checked[row] or version < 0 or version >= VERSIONS or program < 0 or program >= len(begin) or begin[program] < 0:
            continue
        finish, position_count = walk_value(data, start[row] + 2, end[row], steps, begin[program], stack, positions)
        if finish != end[row]:
            continue
        if key_type[row] <= OFFSET_COMMIT:
            # of a topic id that is there twice the last one counts: the scalar decoder takes care of it
            if position_count > 1:
                continue
            if position_count:
                topic_high[row] = big_endian(data, positions[0], 8)
                topic_low[row] = big_endian(data, positions[0] + 8, 8)
        surely_decodes[row] = True


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, FLAGS, TABLE, NUMBERS, CUBE, NUMBERS_OUT, NUMBERS_OUT, SHORTS_OUT, TABLE_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def read_flat(data, start, end, is_null, steps, begin, fields, stack, positions, leading, columns, is_read):
    """Fills ``leading`` for all rows, and ``columns`` and ``is_read`` for every row that the loop can read.

    Args:
        steps, begin, fields: of ``programs.FlatPrograms``.
        stack, positions: as in ``walk_value``; positions has room for all fields of a message.
        leading: the int16 that each row begins with. columns: int64[width, n]. is_read: bool, the row's columns are filled.
    """
    for row in range(len(start)):
        if is_null[row] or end[row] - start[row] < 2 or not lies_in(data, start[row], end[row]):
            continue
        program = big_endian(data, start[row], 2)
        leading[row] = program
        if program < 0 or program >= len(begin) or begin[program] < 0:
            continue
        finish, position_count = walk_value(data, start[row] + 2, end[row], steps, begin[program], stack, positions)
        # more positions than fields: a tag is there twice
        if finish != end[row] or position_count > len(positions) or (position_count and fields[program, position_count - 1, 0] < 0):
            continue
        is_read[row] = True
        for field in range(position_count):
            column, width, is_text, at = fields[program, field, 0], fields[program, field, 1], fields[program, field, 2], positions[field]
            if is_text:
                length, text = length_at(data, at, end[row], width)
                columns[column, row], columns[column + 1, row] = text, text + length
            elif width == UUID_BYTES:
                columns[column, row], columns[column + 1, row] = big_endian(data, at, 8), big_endian(data, at + 8, 8)
            else:
                columns[column, row] = big_endian(data, at, width)


@inlined
def _last_word(data, words, start, end):
    """Return the last eight bytes of a string as a number, or all bytes of a shorter string."""
    if end - start >= 8:
        return words[np.uint64(end - 8)]
    word = np.int64(0)
    while start < end:
        word = word << 8 | np.int64(data[start])
        start += 1
    return word


@inlined
def _hash(data, words, start, end):
    """Return the 64-bit hash of a string. ``words`` holds the eight bytes at each position of ``data`` as one number."""
    mixed = (_last_word(data, words, start, end) ^ (end - start)) * MIX_HIGH
    while start < end - 8:
        mixed ^= mixed >> 32
        mixed = (mixed ^ words[np.uint64(start)]) * MIX_HIGH
        start += 8
    return mixed ^ (mixed >> 32)


@compiled(types.boolean(BYTES, WORDS, NUMBERS, NUMBERS, BYTES_OUT, WORDS_OUT))
def gather(data, words, start, end, gathered, gathered_words):
    """Copies the strings one behind another into ``gathered``; False where a string does not lie within ``data`` or does not fit.

    words, gathered_words: the eight bytes at each position of ``data`` and of ``gathered`` as one number.
    """
    to = 0
    for row in range(len(start)):
        at, last = start[row], end[row]
        if not lies_in(data, at, last) or last - at > len(gathered) - to:
            return False
        while at + 8 <= last:
            gathered_words[np.uint64(to)] = words[np.uint64(at)]
            at += 8
            to += 8
        while at < last:
            gathered[to] = data[at]
            at += 1
            to += 1
    return True


@compiled(types.UniTuple(types.int64, 2)(BYTES, types.int64, types.int64, NUMBERS_OUT))
def entry_positions(data, at, end, positions):
    """Return the number of complete log entries between ``at`` and ``end``, and the end of the last one.

    positions: filled with where each entry begins, as many as there is room for.
    """
    end = min(end, len(data))
    n = 0
    while n < len(positions) and at <= end - MIN_ENTRY:
        length = uint32_at(data, at + 8)
        if at + LOG_OVERHEAD + length > end:
            break
        positions[n] = at
        n += 1
        at += LOG_OVERHEAD + length
    return n, at


@inlined
def _varint32(data, at, end):
    """Return the bits of the varint at ``at`` and the position after it, or -1 as the position if no varint of at most 32 bits ends
    before ``end``."""
    bits, at = varint(data, at, end, 28)
    return bits, at if bits >> 32 == 0 else -1


@inlined
def _bytes_place(data, at, end):
    """Return the start (-1 if unreadable) and end of the byte string with a varint length at ``at``, and whether it is null."""
    bits, start = _varint32(data, at, end)
    return start, start if bits & 1 else start + (bits >> 1), bits & 1 == 1


@inlined
def _read_record(
    data, at, end, row, offset_delta, timestamp_delta, key_start, key_end, key_is_null, value_start, value_end, value_is_null, size
):
    """Fills one row of the columns with the record at ``at``; the end of the record, or -1 where the scalar decoder must read it."""
    begin = at
    bits, at = _varint32(data, at, end)
    finish = at + (bits >> 1)
    if at < 0 or bits & 1 or finish > end or finish - at < MIN_RECORD - 1:
        return -1
    size[row] = finish - begin
    bits, at = varint(data, at + 1, finish, 56)  # behind one byte of attributes
    if at < 0:
        return -1
    timestamp_delta[row] = (bits >> 1) ^ -(bits & 1)
    bits, at = _varint32(data, at, finish)
    if at < 0:
        return -1
    offset_delta[row] = (bits >> 1) ^ -(bits & 1)
    key_start[row], key_end[row], key_is_null[row] = _bytes_place(data, at, finish)
    if key_start[row] < 0:
        return -1
    value_start[row], value_end[row], value_is_null[row] = _bytes_place(data, key_end[row], finish)
    if value_start[row] < 0:
        return -1
    at = value_end[row]
    # nothing but one zero byte follows the value: the record has no headers
    return finish if at == finish - 1 and data[at] == 0 else -1


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, NUMBERS, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT,
        NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT, NUMBERS_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def read_rows(
    data, start, end, count, batch, offset_delta, timestamp_delta,
    key_start, key_end, key_is_null, value_start, value_end, value_is_null, size, needs_scalar,
):  # fmt: skip
    """Fills the columns of ``log.decode.columnar.Rows`` with the records of each batch.

    Args:
        start, end: where the decompressed records of each batch lie. count: how many records the batch claims.
        needs_scalar: set for each batch that ``log.decode.definition`` must read; its rows are filled only in part.
    """
    row = 0
    for i in range(len(start)):
        first, at = row, start[i]
        row += count[i]
        if row > len(batch) or not lies_in(data, start[i], end[i]):
            needs_scalar[i] = True
            continue
        batch[first:row] = i
        for k in range(first, row):
            at = _read_record(
                data, at, end[i], k, offset_delta, timestamp_delta,
                key_start, key_end, key_is_null, value_start, value_end, value_is_null, size,
            )  # fmt: skip
            if at < 0:
                break
        if at != end[i]:
            needs_scalar[i] = True


@inlined
def _sized_place(data, at, end):
    """Return the start (-1 if unreadable) and end of the byte string with an int32 length at ``at``, and whether it is null."""
    if at + 4 > end:
        return -1, -1, False
    length = big_endian(data, at, 4)
    if length < -1 or length > end - at - 4:
        return -1, -1, False
    return at + 4, at + 4 + max(length, 0), length < 0


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT,
        NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT, NUMBERS_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def read_messages(
    data, start, end, offset, timestamp_ms, key_start, key_end, key_is_null, value_start, value_end, value_is_null, size, needs_scalar,
):  # fmt: skip
    """Fills the columns of ``log.decode.columnar.Rows`` with messages of magic 0 and 1; needs_scalar: the loop cannot read it."""
    for i in range(len(start)):
        needs_scalar[i] = True
        at = start[i]
        if not lies_in(data, at, end[i]) or end[i] - at < MIN_ENTRY or data[at + 16] > 1:
            continue
        offset[i], timestamp_ms[i], size[i] = big_endian(data, at, 8), NO_TIMESTAMP, end[i] - at
        at += 18
        if data[start[i] + 16] == 1:
            timestamp_ms[i] = big_endian(data, at, 8)
            at += 8
        key_start[i], key_end[i], key_is_null[i] = _sized_place(data, at, end[i])
        if key_start[i] < 0:
            continue
        value_start[i], value_end[i], value_is_null[i] = _sized_place(data, key_end[i], end[i])
        needs_scalar[i] = value_end[i] != end[i]


@inlined
def _claim(partition, since, until, slot_partition, slot_until):
    """Writes a member's claim of a partition into the hash table; True where an earlier claim of that partition had not ended by then."""
    mask = len(slot_partition) - 1
    slot = (partition ^ (partition >> 32)) & mask
    while slot_until[slot] and slot_partition[slot] != partition:
        slot = (slot + 1) & mask
    is_claimed_twice = since < slot_until[slot]
    slot_partition[slot], slot_until[slot] = partition, until
    return is_claimed_twice


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, SHORTS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, TABLE, NUMBERS,
        NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def claim_partitions(
    data, start, end, version, group, since, until, earlier_partition, earlier_until, steps, begin, stack, positions,
    slot_partition, slot_until, is_odd,
):  # fmt: skip
    """Sets ``is_odd`` for each current assignment that cannot be read, or claims a partition before an earlier claim of it has ended.

    A partition is named by a hash of its group, its topic id and its number.

    Args:
        start, end, version, group, since, until: of each assignment: its value, the group's number, and the places in the order of the
            records from which and up to which the assignment is the member's current one.
        earlier_partition, earlier_until: claims of earlier records.
        stack, positions: as in ``walk_value``.
        slot_partition, slot_until: the hash table: a power of two of slots, more than twice as many as there are claims.
    """
    slot_until[:] = 0
    for i in range(len(earlier_partition)):
        _claim(earlier_partition[i], -1, earlier_until[i], slot_partition, slot_until)
    for row in range(len(start)):
        program = np.int64(-1)
        if 0 <= version[row] < VERSIONS and lies_in(data, start[row], end[row]):
            program = begin[CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT * VERSIONS + version[row]]
        finish, position_count = np.int64(-1), 0
        if program >= 0:
            finish, position_count = walk_value(data, start[row] + 2, end[row], steps, program, stack, positions)
        if finish != end[row] or position_count > len(positions):
            is_odd[row] = True
            continue
        # the positions are pairs: of a topic id, and of the list of partitions that follows it
        for pair in range(0, position_count, 2):
            high, low = big_endian(data, positions[pair], 8), big_endian(data, positions[pair] + 8, 8)
            mixed = (high * MIX_HIGH) ^ (low * MIX_LOW) ^ (group[row] * MIX_GROUP)
            topic = (mixed ^ (mixed >> 29)) * MIX_HIGH
            length, first = unsigned_varint(data, positions[pair + 1], end[row])
            for at in range(first, first + 4 * (length - 1), 4):
                if _claim(topic + big_endian(data, at, 4), since[row], until[row], slot_partition, slot_until):
                    is_odd[row] = True


@inlined
def _is_new(numbers, row, place):
    """Return True if the number at ``place`` of a row is not among those before it."""
    i = 0
    while numbers[row, i] != numbers[row, place]:
        i += 1
    return i == place


@inlined
def _is_subscription_loadable(data, at, end):
    """True where this subscription does not make the broker's load fail (R-2.4). Bytes that end inside a fixed-size field do not either."""
    if at + 6 > end:
        return True
    count, at = big_endian(data, at + 2, 4), at + 6  # behind the version, which the broker does not look at
    if count < 0 or count > end - at:
        return False
    for _ in range(count):
        if at + 2 > end:
            return True
        length, at = big_endian(data, at, 2), at + 2
        if length < 0 or length > end - at:
            return False
        at += length
    return at + 4 > end or big_endian(data, at, 4) <= end - (at + 4)


@inlined
def _is_group_loadable(data, words, end, version, widths, positions, position_count, checks_subscriptions, hashes):
    """True where the value of a classic group names no member and no instance twice, and its subscriptions do not make a load fail.

    positions: of the protocol type, the protocol, and of each member's id, instance id (from version 3 on) and subscription.
    """
    length, at = length_at(data, positions[0], end, widths[0])
    reads_subscriptions = checks_subscriptions and length == len(CONSUMER)
    for place in range(len(CONSUMER)):
        reads_subscriptions = reads_subscriptions and data[at + place] == CONSUMER[place]
    length, _ = length_at(data, positions[1], end, widths[0])
    reads_subscriptions = reads_subscriptions and length >= 0
    fields = 3 if version >= 3 else 2
    members = (position_count - 2) // fields
    if members > hashes.shape[1]:
        return False
    instances = 0
    for member in range(members):
        mark = 2 + fields * member
        length, at = length_at(data, positions[mark], end, widths[0])
        hashes[0, member] = _hash(data, words, at, at + length)
        if not _is_new(hashes, 0, member):
            return False
        length, at = length_at(data, positions[mark + 1], end, widths[0])
        if fields == 3 and length >= 0:
            hashes[1, instances] = _hash(data, words, at, at + length)
            if not _is_new(hashes, 1, instances):
                return False
            instances += 1
        length, at = length_at(data, positions[mark + fields - 1], end, widths[1])
        if reads_subscriptions and not _is_subscription_loadable(data, at, at + length):
            return False
    return True


@compiled(
    types.void(
        BYTES, WORDS, NUMBERS, NUMBERS, types.boolean, TABLE, NUMBERS, types.int64, NUMBERS_OUT, NUMBERS_OUT, TABLE_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def check_classic_groups(
    data, words, start, end, checks_subscriptions, steps, begin, flexible_from, stack, positions, hashes, is_loadable,
):  # fmt: skip
    """Sets ``is_loadable`` as ``classic_group_checks.surely_loadable`` says.

    Args:
        words: the eight bytes at each position of ``data`` as one number.
        steps, begin: of ``programs.programs_of_classic_groups``. flexible_from: the first version with compact lengths.
        stack, positions: as in ``walk_value``. hashes: two rows, with room for one value's members.
    """
    for row in range(len(start)):
        version = np.int64(-1)
        if lies_in(data, start[row], end[row]) and end[row] - start[row] >= 2:
            version = big_endian(data, start[row], 2)
        if version < 0 or version >= len(begin):
            continue
        finish, position_count = walk_value(data, start[row] + 2, end[row], steps, begin[version], stack, positions)
        if finish == end[row] and position_count <= len(positions):
            widths = (COMPACT, COMPACT) if version >= flexible_from else (2, 4)
            is_loadable[row] = _is_group_loadable(
                data, words, end[row], version, widths, positions, position_count, checks_subscriptions, hashes
            )
