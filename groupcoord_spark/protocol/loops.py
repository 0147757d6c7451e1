"""The fast path: loops over bytes that numba compiles. They fill the columns that the scalar decoders define.

Every row is checked against the end of its buffer, and every read against the end of its row. A row in which the bytes end too early, or
that is written in an unusual way, is left to the scalar decoder: the loops never say why a row is wrong.

All loops are in this one file, which imports nothing of this package: numba compiles a loop again only when the loop's own file changes,
and would not notice a change of a constant or a function that comes from another file.
"""

import numpy as np
from numba import njit, types

# The same numbers as in the modules that define them: a test compares them.
LOG_OVERHEAD, MIN_ENTRY, MIN_RECORD, NO_TIMESTAMP = 12, 26, 7, -1
CURRENT_ASSIGNMENT_KEY, LAST_OFFSET_KEY = 8, 1
NEWEST_GROUP_VALUE = 4
AS_VARINT, VERSIONS, UUID_BYTES = 0, 64, 16
SKIP, TEXT, NUMBERS_STEP, ELEMENTS, NEXT, IF_THERE, TAGGED, NEXT_TAG, TAG, TAG_END, NOTE, END = range(12)
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


# The loops make no array, so numba need not count references (_nrt): counting takes longer than many of the functions below.


def compiled(signature):
    """Decorator of a loop over arrays that the caller has made."""
    return njit(signature, cache=True, _nrt=False)


part_of_a_loop = njit(_nrt=False, forceinline=True)

DEEPEST = 32
"""How many arrays and tagged sections may lie within each other; no message has as many."""


@part_of_a_loop
def lies_in(data, start, end):
    """Whether a row lies within its buffer."""
    return start >= 0 and start <= end and end <= len(data)


@part_of_a_loop
def byte_at(data, at):
    """The byte at ``at``. An unsigned index is never negative, which Python would count from the end: that saves a look at each read."""
    return np.int64(data[np.uint64(at)])


@part_of_a_loop
def varint(data, at, end, last_shift):
    """The bits of the varint at ``at`` and the position after it; position -1: it is longer than ``end`` or last_shift allow."""
    bits, shift = np.int64(0), 0
    while at < end and shift <= last_shift:
        byte = byte_at(data, at)
        at += 1
        if byte < 0x80:
            return bits | byte << shift, at
        bits |= (byte & 0x7F) << shift
        shift += 7
    return bits, -1


@part_of_a_loop
def unsigned_varint(data, at, end):
    """An unsigned varint of at most 31 bits, and the position after it; position -1: there is none."""
    number, at = varint(data, at, end, 28)
    return number, at if number >> 31 == 0 else -1


@part_of_a_loop
def uint32_at(data, at):
    """The unsigned integer of four bytes."""
    return byte_at(data, at) << 24 | byte_at(data, at + 1) << 16 | byte_at(data, at + 2) << 8 | byte_at(data, at + 3)


@part_of_a_loop
def big_endian(data, at, size):
    """The signed integer of 1, 2, 4 or 8 bytes."""
    if size == 8:
        return uint32_at(data, at) << 32 | uint32_at(data, at + 4)
    if size == 4:
        return np.int64(np.int32(uint32_at(data, at)))
    number = np.int64(np.int8(byte_at(data, at)))
    return number if size == 1 else number << 8 | byte_at(data, at + 1)


@part_of_a_loop
def _length(data, at, end, width):
    """A length or a count (-1: null), and the position after it; position -1: it cannot be read."""
    if width == AS_VARINT:
        number, at = unsigned_varint(data, at, end)
        return number - 1, at
    if at + width > end:
        return np.int64(0), -1
    return big_endian(data, at, width), at + width


@part_of_a_loop
def follow(data, at, end, steps, pc, stack, notes):
    """The end of the value that the steps from ``pc`` on describe (-1: the value is not surely whole), and how many fields were noted.

    stack: room for DEEPEST numbers. notes: is given the positions of the noted fields, as many as there is room for.
    """
    depth, noted = 0, 0
    while True:
        do, a, b, c = steps[pc, 0], steps[pc, 1], steps[pc, 2], steps[pc, 3]
        pc += 1
        if do == SKIP:
            at += a
        elif do in (TEXT, NUMBERS_STEP):
            length, at = _length(data, at, end, a)
            if at < 0 or (length < 0 and not b):
                return -1, noted
            if do == NUMBERS_STEP:
                length *= c
            elif length > c:
                return -1, noted
            at += max(length, 0)
        elif do == ELEMENTS:
            count, at = _length(data, at, end, a)
            if at < 0 or (count < 0 and not b) or count > end - at or depth == DEEPEST:
                return -1, noted
            if count <= 0:
                pc = c
            else:
                stack[depth] = count
                depth += 1
        elif do == NEXT:
            stack[depth - 1] -= 1
            if stack[depth - 1]:
                pc = a
            else:
                depth -= 1
        elif do == IF_THERE:
            mark, at = _length(data, at, end, a)
            if at < 0:
                return -1, noted
            if mark < 0:
                pc = c
        elif do == TAGGED:
            count, at = unsigned_varint(data, at, end)
            # the stack holds how many tags are left, and the end of the current tag
            if at < 0 or depth + 2 > DEEPEST:
                return -1, noted
            stack[depth] = count
            depth += 1
        elif do == NEXT_TAG:
            if stack[depth - 1] == 0:
                depth -= 1
                pc = c
                continue
            stack[depth - 1] -= 1
            tag, at = unsigned_varint(data, at, end)
            if at < 0:
                return -1, noted
            size, at = unsigned_varint(data, at, end)
            if at < 0 or size > end - at:
                return -1, noted
            known = pc
            while known < pc + a and steps[known, 1] != tag:
                known += 1
            if known < pc + a:
                stack[depth] = at + size
                depth += 1
                pc = steps[known, 3]
            else:
                at += size
                pc -= 1
        elif do == TAG_END:
            # Kafka accepts a known tag of a wrong size; the scalar decoder reports it
            if at != stack[depth - 1]:
                return -1, noted
            depth -= 1
            pc = a
        elif do == NOTE:
            if noted < len(notes):
                notes[noted] = at
            noted += 1
        else:
            return at, noted
        if at > end:
            return -1, noted


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, FLAGS, SHORTS, FLAGS, FLAGS, TABLE, NUMBERS, NUMBERS_OUT, NUMBERS_OUT,
        SHORTS_OUT, FLAGS_OUT, NUMBERS_OUT, NUMBERS_OUT,
    )
)  # fmt: skip
def survey_values(
    data, start, end, is_null, key_type, has_version, is_asked, steps, begin, stack, notes,
    value_version, surely_decodes, topic_high, topic_low,
):  # fmt: skip
    """Fills the columns of ``survey.ValueSurvey``, which say "none" before. stack, notes: as in ``follow``, room for one note."""
    for row in range(len(start)):
        if is_null[row] or not has_version[row] or end[row] - start[row] < 2 or not lies_in(data, start[row], end[row]):
            continue
        version = big_endian(data, start[row], 2)
        value_version[row] = version
        program = np.int64(key_type[row]) * VERSIONS + version
        if not is_asked[row] or version < 0 or version >= VERSIONS or program < 0 or program >= len(begin) or begin[program] < 0:
            continue
        finish, noted = follow(data, start[row] + 2, end[row], steps, begin[program], stack, notes)
        if finish != end[row]:
            continue
        if key_type[row] <= LAST_OFFSET_KEY:
            # a topic id that comes twice counts by its last occurrence: left to the scalar decoder
            if noted > 1:
                continue
            if noted:
                topic_high[row] = big_endian(data, notes[0], 8)
                topic_low[row] = big_endian(data, notes[0] + 8, 8)
        surely_decodes[row] = True


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, FLAGS, TABLE, NUMBERS, CUBE, NUMBERS_OUT, NUMBERS_OUT, SHORTS_OUT, TABLE_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def read_flat(data, start, end, is_null, steps, begin, fields, stack, notes, leading, columns, is_read):
    """Fills ``leading``, and of every row that can surely be read the columns that ``programs.FlatPrograms`` name; then sets ``is_read``.

    stack, notes: as in ``follow``, room for as many notes as a message has fields.
    """
    for row in range(len(start)):
        if is_null[row] or end[row] - start[row] < 2 or not lies_in(data, start[row], end[row]):
            continue
        which = big_endian(data, start[row], 2)
        leading[row] = which
        if which < 0 or which >= len(begin) or begin[which] < 0:
            continue
        finish, noted = follow(data, start[row] + 2, end[row], steps, begin[which], stack, notes)
        # more notes than fields: a tag comes twice
        if finish != end[row] or noted > len(notes) or (noted and fields[which, noted - 1, 0] < 0):
            continue
        is_read[row] = True
        for field in range(noted):
            column, width, place = fields[which, field, 0], fields[which, field, 1], notes[field]
            if fields[which, field, 2]:
                length, text = _length(data, place, end[row], width)
                columns[column, row], columns[column + 1, row] = text, text + length
            elif width == UUID_BYTES:
                columns[column, row], columns[column + 1, row] = big_endian(data, place, 8), big_endian(data, place + 8, 8)
            else:
                columns[column, row] = big_endian(data, place, width)


@part_of_a_loop
def _last_word(data, words, start, end):
    """The last eight bytes of a string, or all of a shorter one."""
    if end - start >= 8:
        return words[np.uint64(end - 8)]
    word = np.int64(0)
    while start < end:
        word = word << 8 | np.int64(data[start])
        start += 1
    return word


@compiled(
    types.UniTuple(types.int64, 2)(
        BYTES, WORDS, NUMBERS, NUMBERS, FLAGS, types.int64, types.int64, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT,
    )
)  # fmt: skip
def distinct(data, words, start, end, is_null, row, found, slots, code, first, hashes):
    """Numbers the distinct strings from ``row`` on, where ``found`` are known, until half of the slots are taken.

    The next row (-1: a row does not lie within ``data``) and the number of distinct strings come back. words: the eight bytes at each
    position of ``data``. slots: a power of two of them, -1 in each. Filled are ``code``, the number of each row's string (-1: null), and
    for each distinct string ``first``, the row where it first comes, and ``hashes``.
    """
    mask = len(slots) - 1
    for known in range(found):
        slot = hashes[known] & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = known
    while row < len(start) and 2 * found <= mask:
        if is_null[row]:
            code[row] = -1
            row += 1
            continue
        if not lies_in(data, start[row], end[row]):
            return -1, found
        begin, size = start[row], end[row] - start[row]
        last = _last_word(data, words, begin, end[row])
        mixed = (last ^ size) * MIX_HIGH
        at = 0
        while at < size - 8:
            mixed ^= mixed >> 32
            mixed = (mixed ^ words[np.uint64(begin + at)]) * MIX_HIGH
            at += 8
        mixed ^= mixed >> 32
        slot = mixed & mask
        while True:
            known = slots[slot]
            if known < 0:
                slots[slot] = known = found
                hashes[found], first[found] = mixed, row
                found += 1
                break
            other = start[first[known]]
            if hashes[known] == mixed and end[first[known]] - other == size:
                at = 0
                while at < size - 8 and words[np.uint64(other + at)] == words[np.uint64(begin + at)]:
                    at += 8
                if at >= size - 8 and _last_word(data, words, other, other + size) == last:
                    break
            slot = (slot + 1) & mask
        code[row] = known
        row += 1
    return row, found


@compiled(types.boolean(BYTES, WORDS, NUMBERS, NUMBERS, BYTES_OUT, WORDS_OUT))
def gather(data, words, start, end, gathered, gathered_words):
    """Copies strings one behind another; False where one does not lie within ``data`` or does not fit.

    words, gathered_words: the eight bytes at each position.
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
def follow_lengths(data, at, end, places):
    """Fills ``places`` with the positions of whole entries from ``at`` on, as far as there is room: how many, and the end of the last."""
    end = min(end, len(data))
    n = 0
    while n < len(places) and at <= end - MIN_ENTRY:
        length = uint32_at(data, at + 8)
        if at + LOG_OVERHEAD + length > end:
            break
        places[n] = at
        n += 1
        at += LOG_OVERHEAD + length
    return n, at


@part_of_a_loop
def _varint32(data, at, end):
    """The bits of a varint of at most 32 bits, and the position after it; position -1: there is none before ``end``."""
    bits, at = varint(data, at, end, 28)
    return bits, at if bits >> 32 == 0 else -1


@part_of_a_loop
def _bytes_place(data, at, end):
    """Where the byte string behind the varint length at ``at`` begins and ends, and whether it is null; begins at -1: it cannot be read."""
    bits, start = _varint32(data, at, end)
    return start, start if bits & 1 else start + (bits >> 1), bits & 1 == 1


@part_of_a_loop
def _read_record(data, at, end, row, offset_delta, timestamp_delta, key_start, key_end, key_is_null, value_start, value_end, value_is_null):
    """Fills one row; the end of the record, -1 where the scalar decoder must read it."""
    bits, at = _varint32(data, at, end)
    finish = at + (bits >> 1)
    if at < 0 or bits & 1 or finish > end or finish - at < MIN_RECORD - 1:
        return -1
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
    # the last byte says that there are no headers, and it is the last one of the body: no other reading is possible
    return finish if at == finish - 1 and data[at] == 0 else -1


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, NUMBERS, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT,
        NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def read_rows(
    data, start, end, count, batch, offset_delta, timestamp_delta,
    key_start, key_end, key_is_null, value_start, value_end, value_is_null, is_odd,
):  # fmt: skip
    """Fills the columns of ``columnar.Rows`` batch by batch, and sets ``is_odd`` for each batch that the scalar decoder must read."""
    row = 0
    for i in range(len(start)):
        first, at = row, start[i]
        row += count[i]
        if row > len(batch) or not lies_in(data, start[i], end[i]):
            is_odd[i] = True
            continue
        batch[first:row] = i
        for k in range(first, row):
            at = _read_record(
                data, at, end[i], k, offset_delta, timestamp_delta, key_start, key_end, key_is_null, value_start, value_end, value_is_null
            )
            if at < 0:
                break
        if at != end[i]:
            is_odd[i] = True


@part_of_a_loop
def _sized_place(data, at, end):
    """Where the byte string behind the int32 length at ``at`` begins and ends, and whether it is null; begins at -1: it cannot be read."""
    if at + 4 > end:
        return -1, -1, False
    length = big_endian(data, at, 4)
    if length < -1 or length > end - at - 4:
        return -1, -1, False
    return at + 4, at + 4 + max(length, 0), length < 0


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT,
        NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def read_messages(data, start, end, offset, timestamp_ms, key_start, key_end, key_is_null, value_start, value_end, value_is_null, is_odd):
    """Fills the columns of ``columnar.Rows`` from messages of magic 0 and 1; sets ``is_odd`` where the scalar decoder must read."""
    for i in range(len(start)):
        is_odd[i] = True
        at = start[i]
        if not lies_in(data, at, end[i]) or end[i] - at < MIN_ENTRY or data[at + 16] > 1:
            continue
        offset[i], timestamp_ms[i] = big_endian(data, at, 8), NO_TIMESTAMP
        at += 18
        if data[start[i] + 16] == 1:
            timestamp_ms[i] = big_endian(data, at, 8)
            at += 8
        key_start[i], key_end[i], key_is_null[i] = _sized_place(data, at, end[i])
        if key_start[i] < 0:
            continue
        value_start[i], value_end[i], value_is_null[i] = _sized_place(data, key_end[i], end[i])
        is_odd[i] = value_end[i] != end[i]


@part_of_a_loop
def _take(name, since, until, names, untils):
    """Writes a claim of the partition ``name`` into the table; whether an earlier claim of the partition has not ended by then."""
    mask = len(names) - 1
    slot = (name ^ (name >> 32)) & mask
    while untils[slot] and names[slot] != name:
        slot = (slot + 1) & mask
    is_taken = since < untils[slot]
    names[slot], untils[slot] = name, until
    return is_taken


@compiled(
    types.void(
        BYTES, NUMBERS, NUMBERS, SHORTS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, NUMBERS, TABLE, NUMBERS,
        NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT,
    )
)  # fmt: skip
def take_partitions(
    data, start, end, version, group, since, until, held_name, held_until, steps, begin, stack, notes, names, untils, is_odd
):
    """Sets ``is_odd`` for each current assignment that claims a partition before an earlier claim of it has ended, or cannot be read.

    held_name, held_until: claims from before. names, untils: the table of claims, a power of two long and more than twice as long as there
    are claims. stack, notes: as in ``follow``.
    """
    untils[:] = 0
    for i in range(len(held_name)):
        _take(held_name[i], -1, held_until[i], names, untils)
    for row in range(len(start)):
        program = np.int64(-1)
        if 0 <= version[row] < VERSIONS and lies_in(data, start[row], end[row]):
            program = begin[CURRENT_ASSIGNMENT_KEY * VERSIONS + version[row]]
        finish, noted = np.int64(-1), 0
        if program >= 0:
            finish, noted = follow(data, start[row] + 2, end[row], steps, program, stack, notes)
        if finish != end[row] or noted > len(notes):
            is_odd[row] = True
            continue
        # the notes are pairs: a topic id, and the partitions beside it
        for note in range(0, noted, 2):
            high, low = big_endian(data, notes[note], 8), big_endian(data, notes[note] + 8, 8)
            mixed = (high * MIX_HIGH) ^ (low * MIX_LOW) ^ (group[row] * MIX_GROUP)
            name = (mixed ^ (mixed >> 29)) * MIX_HIGH
            length, at = unsigned_varint(data, notes[note + 1], end[row])
            for place in range(at, at + 4 * (length - 1), 4):
                if _take(name + big_endian(data, place, 4), since[row], until[row], names, untils):
                    is_odd[row] = True


@part_of_a_loop
def _hash(data, at, end):
    """A number for the bytes of a text. Different texts nearly always have different numbers."""
    mixed = np.int64(end - at)
    while at < end:
        mixed = (mixed ^ np.int64(data[at])) * MIX_HIGH
        at += 1
    return mixed ^ (mixed >> 32)


@part_of_a_loop
def _is_new(number, seen, count):
    """Whether none of the first ``count`` numbers is this one."""
    place = 0
    while place < count and seen[place] != number:
        place += 1
    return place == count


@part_of_a_loop
def _subscription_is_sure(data, at, end):
    """Whether a broker reads this subscription without a fault that fails the load; one that ends in a fixed-size field does not."""
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


@part_of_a_loop
def _text_end(data, at, end, width, is_nullable):
    """Where the text or the bytes behind the length at ``at`` begin and end; an end of -1: unreadable, or null where that may not be."""
    length, at = _length(data, at, end, width)
    if at < 0 or length > end - at or (length < 0 and not is_nullable):
        return at, -1, False
    return at, at + max(length, 0), length < 0


@part_of_a_loop
def _group_is_sure(data, at, end, checks_subscriptions, member_hashes, instance_hashes):
    """Whether a value of a classic group is whole, names no member and no instance twice, and has subscriptions that a broker reads."""
    if at + 2 > end:
        return False
    version, at = big_endian(data, at, 2), at + 2
    if version < 0 or version > NEWEST_GROUP_VALUE:
        return False
    is_flexible = version == NEWEST_GROUP_VALUE
    text_width, bytes_width = (AS_VARINT, AS_VARINT) if is_flexible else (2, 4)
    begin, at, _ = _text_end(data, at, end, text_width, False)  # protocol type
    if at < 0:
        return False
    is_consumer = at - begin == len(CONSUMER)
    for place in range(len(CONSUMER)):
        is_consumer = is_consumer and data[begin + place] == CONSUMER[place]
    _, at, has_no_protocol = _text_end(data, at + 4, end, text_width, True)  # behind the generation
    if at < 0:
        return False
    _, at, _ = _text_end(data, at, end, text_width, True)  # leader
    if at < 0:
        return False
    if version >= 2:
        at += 8
    count, at = _length(data, at, end, bytes_width)
    if at < 0 or count < 0 or count > len(member_hashes):
        return False
    instances = 0
    for member in range(count):
        begin, at, _ = _text_end(data, at, end, text_width, False)
        if at < 0:
            return False
        number = _hash(data, begin, at)
        if not _is_new(number, member_hashes, member):
            return False
        member_hashes[member] = number
        if version >= 3:
            begin, at, is_dynamic = _text_end(data, at, end, text_width, True)
            if at < 0:
                return False
            if not is_dynamic:
                number = _hash(data, begin, at)
                if not _is_new(number, instance_hashes, instances):
                    return False
                instance_hashes[instances] = number
                instances += 1
        for _ in range(2):  # client id and host
            begin, at, _ = _text_end(data, at, end, text_width, False)
            if at < 0:
                return False
        at += 8 if version >= 1 else 4  # timeouts
        begin, at, _ = _text_end(data, at, end, bytes_width, False)
        if at < 0:
            return False
        if checks_subscriptions and is_consumer and not has_no_protocol and not _subscription_is_sure(data, begin, at):
            return False
        begin, at, _ = _text_end(data, at, end, bytes_width, False)  # assignment
        if at < 0:
            return False
        if is_flexible:
            if at >= end or data[at] != 0:
                return False
            at += 1
    if is_flexible:
        return at == end - 1 and data[at] == 0
    return at == end


@compiled(types.void(BYTES, NUMBERS, NUMBERS, types.boolean, NUMBERS_OUT, NUMBERS_OUT, FLAGS_OUT))
def classic_groups_without_refusals(data, start, end, checks_subscriptions, member_hashes, instance_hashes, is_sure):
    """Fills ``is_sure`` as ``group_values.surely_without_refusals`` says. member_hashes, instance_hashes: to work with."""
    for row in range(len(start)):
        is_sure[row] = _group_is_sure(data, start[row], end[row], checks_subscriptions, member_hashes, instance_hashes)


@part_of_a_loop
def _is_ascii(data, at, end):
    while at < end and data[at] < 0x80:
        at += 1
    return at == end


@part_of_a_loop
def _clear(shape, at, end):
    while at < end:
        shape[at] = 0
        at += 1


@part_of_a_loop
def _clear_contents(data, at, end, steps, pc, keeps_texts, keeps_first, stack, shape, to_shape):
    """Follows the steps from ``pc`` on and clears in ``shape`` what they step over. to_shape: a byte's place there less its place here.

    From where the steps cannot be followed surely, all bytes are left as they are.
    """
    depth = 0
    is_noted = False
    while at <= end:
        do, a, b, c = steps[pc, 0], steps[pc, 1], steps[pc, 2], steps[pc, 3]
        pc += 1
        if do == SKIP:
            if not is_noted and not keeps_first:
                _clear(shape, at + to_shape, min(at + a, end) + to_shape)
            is_noted = keeps_first = False
            at += a
        elif do in (TEXT, NUMBERS_STEP):
            length, at = _length(data, at, end, a)
            if at < 0 or (length < 0 and not b):
                return
            if do == NUMBERS_STEP:
                length *= c
            elif length > c:
                return
            finish = min(at + max(length, 0), end)
            if not keeps_texts and (do == NUMBERS_STEP or _is_ascii(data, at, finish)):
                _clear(shape, at + to_shape, finish + to_shape)
            at += max(length, 0)
            is_noted = False
        elif do == ELEMENTS:
            count, at = _length(data, at, end, a)
            if at < 0 or (count < 0 and not b) or count > end - at or depth == DEEPEST:
                return
            if count <= 0:
                pc = c
            else:
                stack[depth] = count
                depth += 1
            is_noted = False
        elif do == NEXT:
            stack[depth - 1] -= 1
            if stack[depth - 1]:
                pc = a
            else:
                depth -= 1
        elif do == IF_THERE:
            mark, at = _length(data, at, end, a)
            if at < 0:
                return
            if mark < 0:
                pc = c
        elif do == TAGGED:
            count, at = unsigned_varint(data, at, end)
            if at < 0 or depth + 2 > DEEPEST:
                return
            stack[depth] = count
            depth += 1
        elif do == NEXT_TAG:
            if stack[depth - 1] == 0:
                depth -= 1
                pc = c
                continue
            stack[depth - 1] -= 1
            tag, at = unsigned_varint(data, at, end)
            if at < 0:
                return
            size, at = unsigned_varint(data, at, end)
            if at < 0 or size > end - at:
                return
            known = pc
            while known < pc + a and steps[known, 1] != tag:
                known += 1
            if known < pc + a:
                stack[depth] = at + size
                depth += 1
                pc = steps[known, 3]
            else:
                _clear(shape, at + to_shape, at + size + to_shape)
                at += size
                pc -= 1
        elif do == TAG_END:
            if at != stack[depth - 1]:
                return
            depth -= 1
            pc = a
        elif do == NOTE:
            is_noted = True
        else:
            _clear(shape, at + to_shape, end + to_shape)
            return


@compiled(types.void(BYTES, NUMBERS, NUMBERS, NUMBERS, types.boolean, types.boolean, TABLE, NUMBERS_OUT, NUMBERS_OUT, BYTES_OUT))
def clear_contents(data, start, end, program, keeps_texts, are_offsets, steps, stack, begin, shape):
    """Copies byte strings one behind another into ``shape``, without their contents, as ``shapes.shapes_of`` says.

    program: where the steps of each begin; -1: copied as it is, -2: but for its first two bytes nothing counts. begin: where each begins
    in ``shape``. are_offsets: the first number of each counts if it is negative.
    """
    for row in range(len(start)):
        at, last, to_shape = start[row], end[row], begin[row] - start[row]
        for place in range(at, last):
            shape[place + to_shape] = data[place]
        if program[row] == -2:
            _clear(shape, (at + 2 if last - at >= 2 else at) + to_shape, last + to_shape)
        elif program[row] >= 0:
            keeps_first = are_offsets and at + 2 < last and data[at + 2] >= 0x80
            _clear_contents(data, at + 2, last, steps, program[row], keeps_texts, keeps_first, stack, shape, to_shape)
