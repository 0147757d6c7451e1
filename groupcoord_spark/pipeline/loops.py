"""What ``ownership.py`` does column by column, as ``protocol/loops.py``."""

import numpy as np
from numba import types

from groupcoord_spark.pipeline.ownership import MIX_GROUP, MIX_HIGH, MIX_LOW
from groupcoord_spark.protocol.holdings import CURRENT_ASSIGNMENT_KEY
from groupcoord_spark.protocol.loops import (
    BYTES,
    FLAGS_OUT,
    NUMBERS,
    NUMBERS_OUT,
    SHORTS,
    TABLE,
    big_endian,
    compiled,
    follow,
    part_of_a_loop,
    unsigned_varint,
)
from groupcoord_spark.protocol.programs import VERSIONS


@part_of_a_loop
def _take(name, since, until, names, untils):
    """Writes a claim of the partition ``name`` into the table; whether another one has not ended by then."""
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
    """Lets current assignments take what they name, in their order, and sets ``is_odd`` where one may not, or cannot be read.

    held_name, held_until: what is held before. names, untils: a table of claims, a power of two long, twice as long as there are claims.
    stack, notes: as in ``protocol.loops.follow``.
    """
    untils[:] = 0
    for held in range(len(held_name)):
        _take(held_name[held], -1, held_until[held], names, untils)
    for row in range(len(start)):
        program = np.int64(-1)
        if 0 <= version[row] < VERSIONS:
            program = begin[CURRENT_ASSIGNMENT_KEY * VERSIONS + version[row]]
        finish, noted = np.int64(-1), 0
        if program >= 0:
            finish, noted = follow(data, start[row] + 2, end[row], steps, program, stack, notes)
        if finish != end[row] or noted > len(notes):
            is_odd[row] = True
            continue
        # a topic id and the partitions beside it, again and again
        for note in range(0, noted, 2):
            high, low = big_endian(data, notes[note], 8), big_endian(data, notes[note] + 8, 8)
            mixed = (high * MIX_HIGH) ^ (low * MIX_LOW) ^ (group[row] * MIX_GROUP)
            name = (mixed ^ (mixed >> 29)) * MIX_HIGH
            length, at = unsigned_varint(data, notes[note + 1], end[row])
            for place in range(at, at + 4 * (length - 1), 4):
                if _take(name + big_endian(data, place, 4), since[row], until[row], names, untils):
                    is_odd[row] = True
