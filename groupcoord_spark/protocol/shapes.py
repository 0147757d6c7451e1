"""Keys and values without their contents, so that many different ones with one fault become equal and are decoded once.

What is wrong with a key or a value, in the words of ``scalar``, follows from its lengths, counts, marks and tags and from where it ends;
texts that are not UTF-8 and a negative offset or partition are told with it. All other bytes are cleared in a shape. Decoding a shape gives
the faults and findings of everything that has this shape, and the topic id of an offset, which a shape keeps; other fields mean nothing.
"""

from __future__ import annotations

from types import ModuleType

import numpy as np
import numpy.typing as npt

from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.programs import VERSIONS, programs_of_values
from groupcoord_spark.protocol.slices import Slices

AS_IT_IS, FIRST_TWO_BYTES = -1, -2
OFFSET_KEYS = (0, 1)


def shapes_of_values(key_type: int, values: Slices, *, keeps_texts: bool = False) -> Slices:
    """The shape of each value of one key type; none of them is null. Of a small input the values themselves.

    keeps_texts: only numbers are cleared, for who asks what members and subscriptions a group's value names.
    """
    if not (loops := fast_path.loops_for(len(values))):
        return values
    record_type = RECORD_TYPES[key_type]
    # Under key type 0 a newer version is read as under key type 1.
    of_type = 1 if key_type in OFFSET_KEYS else key_type
    steps, begins = programs_of_values()
    first, last = RECORD_TYPES[of_type].value.versions
    version = np.full(len(values), -1, np.int64)
    has_version = values.lengths() >= 2
    at = values.start[has_version]
    version[has_version] = (values.data[at].astype(np.int8).astype(np.int64) << 8) | values.data[at + 1]
    is_known = (version >= first) & (version <= last)
    program = np.full(len(values), FIRST_TWO_BYTES, np.int64)
    # an older layout need not have its lengths where today's has them
    program[is_known] = AS_IT_IS if record_type.dialects else begins[of_type * VERSIONS + version[is_known]]
    return _without_contents(loops, values, program, steps, keeps_texts=keeps_texts, are_offsets=key_type in OFFSET_KEYS)


def _without_contents(
    loops: ModuleType,
    strings: Slices,
    program: npt.NDArray[np.int64],
    steps: npt.NDArray[np.int64],
    *,
    keeps_texts: bool,
    are_offsets: bool,
) -> Slices:
    lengths = strings.lengths()
    begin = np.cumsum(lengths) - lengths
    shape = np.empty(int(lengths.sum()), np.uint8)
    stack = np.empty(loops.DEEPEST, np.int64)
    loops.clear_contents(strings.data, strings.start, strings.end, program, keeps_texts, are_offsets, steps, stack, begin, shape)
    return Slices(shape, begin, begin + lengths, strings.is_null)
