"""For every value of a chunk: its version, whether it decodes, and the topic id that an offset commit names.

The reader needs no more than that of most values, since a later record supersedes them. Whether a value decodes it must know of all: a
record that does not decode supersedes nothing and goes to quarantine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.columnar import Int16s, Int64s
from groupcoord_spark.protocol.definition import decode_value
from groupcoord_spark.protocol.errors import DecodeError
from groupcoord_spark.protocol.fields import ZERO_UUID
from groupcoord_spark.protocol.primitives import uuid_bytes
from groupcoord_spark.protocol.programs import programs_of_values
from groupcoord_spark.protocol.record_types import OFFSET_KEY_TYPES
from groupcoord_spark.protocol.slices import Mask, Slices

DOUBTS_ABOUT_CONTENT = frozenset({"negative_offset", "invalid_utf8"})
"""Codes of doubts about the content of a value whose layout is right."""


class ValueChecks(NamedTuple):
    """The result of ``check_values``: columns of one length, a row for each value.

    Attributes:
        value_version: int16, the version that the value begins with; -1 where the value has none or was not to be looked at.
        surely_decodes: bool, the value has exactly the layout of its version. False means that ``definition.decode_value`` must decide.
        topic_high: int64, the high half of the topic id that an offset commit names, big-endian; 0 where the commit names none, or the
            value does not surely decode.
        topic_low: int64, the low half of the same topic id.
    """

    value_version: Int16s
    surely_decodes: Mask
    topic_high: Int64s
    topic_low: Int64s


def check_values(key_type: Int16s, has_version: Mask, is_checked: Mask, values: Slices) -> ValueChecks:
    """The version of each value, and of the values to check also whether they decode and their topic id.

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
        for row in np.flatnonzero(has_version & (values.lengths() >= 2)).tolist():
            value = values.data[values.start[row] : values.end[row]].tobytes()
            checks.value_version[row] = int.from_bytes(value[:2], "big", signed=True)
            if is_checked[row]:
                _check_value(checks, row, int(key_type[row]), value)
    return checks


def _check_value(checks: ValueChecks, row: int, key_type: int, value: bytes) -> None:
    """Sets one row of ``checks`` by the scalar decoder."""
    try:
        decoded = decode_value(key_type, value)
    except DecodeError:
        return
    assert decoded is not None
    if decoded.dialect is None and DOUBTS_ABOUT_CONTENT.issuperset(doubt.code for doubt in decoded.doubts):
        checks.surely_decodes[row] = True
        if key_type in OFFSET_KEY_TYPES:
            checks.topic_high[row], checks.topic_low[row] = np.frombuffer(uuid_bytes(decoded.fields.get("topic_id", ZERO_UUID)), ">i8")
