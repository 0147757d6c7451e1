"""One look at every value of a chunk: its version, whether it decodes, and the topic id it names. Nothing else is decoded."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from groupcoord_spark.protocol import machine_code
from groupcoord_spark.protocol.columnar import Int16s, Int64s, View, leading_int16, walk_offset_values
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.programs import VERSIONS, programs_of_values
from groupcoord_spark.protocol.slices import Mask, Slices
from groupcoord_spark.protocol.validity import surely_decode

OFFSET_KEYS = (0, 1)


class ValueSurvey(NamedTuple):
    """What a reader must know of every value, the dropped ones too.

    value_version: int16, as the value begins; -1 where it has none. surely_decodes: bool; False of one that was asked for means "ask
    ``scalar.decode_value``", which stays the definition. topic_high, topic_low: halves of the 16 bytes of the topic id that an offset
    names, as big-endian numbers; both 0 where none is recorded or the value is not sure to decode.
    """

    value_version: Int16s
    surely_decodes: Mask
    topic_high: Int64s
    topic_low: Int64s


def survey_values(key_type: Int16s, has_version: Mask, is_asked: Mask, values: Slices) -> ValueSurvey:
    """Look over values beside their key types.

    has_version: bool, values that begin with one where they are not null. is_asked: bool, values of which it is to be told whether they
    decode, of known key types and none of them null.
    """
    n = len(values)
    survey = ValueSurvey(np.full(n, -1, np.int16), np.zeros(n, np.bool_), np.zeros(n, np.int64), np.zeros(n, np.int64))
    if machine_code.is_at_hand(n):
        from groupcoord_spark.protocol import loops

        stack, notes = np.empty(loops.DEEPEST, np.int64), np.empty(1, np.int64)
        places = (values.data, values.start, values.end, values.is_null)
        loops.survey_values(*places, key_type, has_version, is_asked, *programs_of_values(), stack, notes, *survey)
    else:
        _survey_in_columns(key_type, has_version, is_asked, values, survey)
    return survey


def _survey_in_columns(key_type: Int16s, has_version: Mask, is_asked: Mask, values: Slices, survey: ValueSurvey) -> None:
    view = View(values.data)
    survey.value_version[has_version] = leading_int16(view, values.take(has_version))
    rows = np.flatnonzero(is_asked & (survey.value_version >= 0))
    is_offset = np.isin(key_type[rows], OFFSET_KEYS)
    offsets = rows[is_offset]
    for of_version, walk in walk_offset_values(view, survey.value_version[offsets], values.take(offsets)):
        is_sure = walk.fits & (walk.at == walk.end)
        survey.surely_decodes[offsets[of_version]] = is_sure
        if "topic_id" in walk.places:
            has_id = is_sure & walk.has_tag
            places, named = walk.places["topic_id"][has_id], offsets[of_version[has_id]]
            survey.topic_high[named], survey.topic_low[named] = view.int64(places), view.int64(places + 8)
    groups = rows[~is_offset]
    version = survey.value_version[groups]
    # versions beyond all that are known make one kind: none of them decodes here
    kind = key_type[groups] * VERSIONS + np.minimum(version, VERSIONS - 1)
    for each in np.flatnonzero(np.bincount(kind)).tolist():
        message = RECORD_TYPES[each // VERSIONS].value
        first, last = message.versions
        if first <= each % VERSIONS <= last:
            of_kind = groups[kind == each]
            survey.surely_decodes[of_kind] = surely_decode(message, each % VERSIONS, values.take(of_kind))
