"""What the reader must know of every value of a chunk: its version, whether it decodes, and the topic id that an offset names.

The content of most values is never needed: a later record supersedes them. Whether they decode is, since a record that does not decode
supersedes nothing and goes to quarantine.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.columnar import Int16s, Int64s
from groupcoord_spark.protocol.compiled import decode_value
from groupcoord_spark.protocol.errors import DecodeError
from groupcoord_spark.protocol.fields import ZERO_UUID
from groupcoord_spark.protocol.primitives import uuid_bytes
from groupcoord_spark.protocol.programs import programs_of_values
from groupcoord_spark.protocol.slices import Mask, Slices

OFFSET_KEYS = (0, 1)

ABOUT_CONTENT = frozenset({"negative_offset", "invalid_utf8"})
"""Findings about what a value says, where its layout is in order."""


class ValueSurvey(NamedTuple):
    """Columns of one length, a row for each value.

    value_version: int16, as the value begins; -1 where it has none. surely_decodes: bool, the value has exactly the layout of its version;
    False for a value that was asked about means "ask ``scalar.decode_value``". topic_high, topic_low: halves of the topic id that an offset
    names, as big-endian numbers; both 0 where it names none, or the value does not surely decode.
    """

    value_version: Int16s
    surely_decodes: Mask
    topic_high: Int64s
    topic_low: Int64s


def survey_values(key_type: Int16s, has_version: Mask, is_asked: Mask, values: Slices) -> ValueSurvey:
    """The survey of values beside their key types.

    Args:
        key_type: int16, one for each value.
        has_version: bool, values that begin with a version where they are not null.
        is_asked: bool, values of which to say whether they decode; of known key types, and none of them null.
        values: the values.
    """
    n = len(values)
    survey = ValueSurvey(np.full(n, -1, np.int16), np.zeros(n, np.bool_), np.zeros(n, np.int64), np.zeros(n, np.int64))
    if loops := fast_path.loops_for(n):
        stack, notes = np.empty(loops.DEEPEST, np.int64), np.empty(1, np.int64)
        places = (values.data, values.start, values.end, values.is_null)
        loops.survey_values(*places, key_type, has_version, is_asked, *programs_of_values(), stack, notes, *survey)
    else:
        for row in np.flatnonzero(has_version & (values.lengths() >= 2)).tolist():
            value = values.data[values.start[row] : values.end[row]].tobytes()
            survey.value_version[row] = int.from_bytes(value[:2], "big", signed=True)
            if is_asked[row]:
                _survey_value(survey, row, int(key_type[row]), value)
    return survey


def _survey_value(survey: ValueSurvey, row: int, key_type: int, value: bytes) -> None:
    """Set the row's answers by the scalar decoder."""
    try:
        decoded = decode_value(key_type, value)
    except DecodeError:
        return
    assert decoded is not None
    if decoded.dialect is None and ABOUT_CONTENT.issuperset(finding.code for finding in decoded.findings):
        survey.surely_decodes[row] = True
        if key_type in OFFSET_KEYS:
            survey.topic_high[row], survey.topic_low[row] = np.frombuffer(uuid_bytes(decoded.fields.get("topic_id", ZERO_UUID)), ">i8")
