"""For every value of a chunk: its version, whether it decodes, and the topic id that an offset commit names.

The reader needs only this from most values, because a later record supersedes them. It must know whether each value decodes: a record that
does not decode supersedes nothing and is quarantined. The kernels recognize the values that brokers write.
"""

from typing import NamedTuple

import numpy as np

from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.columnar import Int16s, Int64s
from groupcoord_spark.protocol.programs import programs_of_values
from groupcoord_spark.protocol.slices import Mask, Slices

DOUBTS_ABOUT_CONTENT = frozenset({"negative_offset", "invalid_utf8"})
"""Codes of doubts about the content of a value whose layout is right; the loops look at no content, so the reader reports none of them."""


class ValueChecks(NamedTuple):
    """The result of ``check_values``: columns of one length, a row for each value.

    Attributes:
        value_version: int16, the version that the value begins with; -1 where the value has none or was not to be looked at.
        surely_decodes: bool, the value has exactly the layout of its version. False means that ``definition.decode_value`` must decide;
            so it does for all values of a small input.
        topic_high: int64, the high half of the topic id that an offset commit names, big-endian; 0 where the commit names none, or the
            value does not surely decode.
        topic_low: int64, the low half of the same topic id.
    """

    value_version: Int16s
    surely_decodes: Mask
    topic_high: Int64s
    topic_low: Int64s


def check_values(key_type: Int16s, has_version: Mask, is_checked: Mask, values: Slices) -> ValueChecks:
    """Return the version of each value and, for the values to check, whether they decode and their topic id.

    Args:
        key_type: int16, the type of each value's key.
        has_version: bool, the values that begin with a version unless they are null.
        is_checked: bool, the values to check; their key types are known, and none of them is null.
        values: the values.
    """
    n = len(values)
    checks = ValueChecks(np.full(n, -1, np.int16), np.zeros(n, np.bool_), np.zeros(n, np.int64), np.zeros(n, np.int64))
    if loops := fast_path.loops_for(n):
        stack, positions = np.empty(loops.DEEPEST, np.int64), np.empty(1, np.int64)
        rows = (values.data, values.start, values.end, values.is_null)
        loops.check_values(*rows, key_type, has_version, is_checked, *programs_of_values(), stack, positions, *checks)
    else:
        checks.value_version[has_version] = values.take(has_version).leading_int16()
    return checks
