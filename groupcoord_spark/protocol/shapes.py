"""Keys and values without their contents, so that many different ones with the same fault become equal and are decoded once.

The faults and doubts that ``definition`` reports follow from lengths, counts, presence marks, tags and the end of the bytes, from texts
that are not UTF-8, and from a negative offset or partition. A shape is a value in which all other bytes are set to zero. To decode a shape
gives the faults and doubts of every value of that shape, and the topic id of an offset commit, which stays; other decoded fields mean
nothing.
"""

from __future__ import annotations

import numpy as np

from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.columnar import leading_int16
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.programs import VERSIONS, programs_of_values
from groupcoord_spark.protocol.record_types import OFFSET_KEY_TYPES, KeyType
from groupcoord_spark.protocol.slices import Slices

COPY_ALL, COPY_FIRST_TWO_BYTES = -1, -2
"""In place of a program: the whole value stays, or its version alone."""


def shapes_of_values(key_type: int, values: Slices, *, keeps_texts: bool = False) -> Slices:
    """The shape of each value, for values of one key type of which none is null; for a small input the values themselves.

    keeps_texts: texts stay too. For the members and subscriptions that the value of a classic group names.
    """
    if not (loops := fast_path.loops_for(len(values))):
        return values
    # under key type 0 a version above 0 is read as under key type 1
    layout_type = KeyType.OFFSET_COMMIT if key_type in OFFSET_KEY_TYPES else key_type
    steps, begin = programs_of_values()
    first, last = RECORD_TYPES[layout_type].value.versions
    version = leading_int16(values).astype(np.int64)
    is_known = (version >= first) & (version <= last)
    program = np.full(len(values), COPY_FIRST_TWO_BYTES, np.int64)
    # where an older layout exists, its lengths may lie where the current layout has contents
    program[is_known] = COPY_ALL if RECORD_TYPES[key_type].dialects else begin[layout_type * VERSIONS + version[is_known]]
    lengths = values.lengths()
    start = np.cumsum(lengths) - lengths
    shape = np.empty(int(lengths.sum()), np.uint8)
    stack, positions = np.empty(loops.DEEPEST, np.int64), np.empty(0, np.int64)
    rows = values.data, values.start, values.end
    loops.clear_contents(*rows, program, keeps_texts, key_type in OFFSET_KEY_TYPES, steps, stack, positions, start, shape)
    return Slices(shape, start, start + lengths, values.is_null)
