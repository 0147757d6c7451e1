"""From the records of a chunk to what they say, as columns: which decode, of what kind they are, and which group they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.compact import CLASSIC_GROUP_KEY, NO_PRODUCER_ID, ChunkKinds, Names
from groupcoord_spark.protocol import ZERO_UUID, DecodeError, decode_value
from groupcoord_spark.protocol.columnar import KeyColumns, decode_key_columns
from groupcoord_spark.protocol.errors import NullKey, UnknownKeyType, UnknownValueVersion
from groupcoord_spark.protocol.primitives import uuid_bytes
from groupcoord_spark.protocol.programs import VERSIONS
from groupcoord_spark.protocol.slices import Mask, Slices, codes_of
from groupcoord_spark.protocol.survey import OFFSET_KEYS, ValueSurvey, survey_values

Ints = npt.NDArray[np.int64]
Int16s = npt.NDArray[np.int16]

NOT_A_CONTROL_RECORD = -1
UNKNOWN_KEY_TYPE = UnknownKeyType.code
UNKNOWN_VALUE_VERSION = UnknownValueVersion.code
NULL_KEY = "The record has no key; every record of a group or an offset has one."


class RowNote(NamedTuple):
    """Something about one row of a chunk: the code of a refusal or of a finding, and its sentence."""

    row: int
    code: str
    detail: str


class NamedTopics(NamedTuple):
    """Rows of offsets that carry a topic id, and the halves of the id as big-endian numbers."""

    row: Ints
    high: Ints
    low: Ints


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """What ``n`` records say, as far as all of them must be looked at.

    names: what the codes in ``kinds`` stand for. keys: the distinct keys, decoded; key_code: int64[n], each record's row there, -1 for
    control records and null keys.
    stored_key_type: int16[n], as the key begins, known or not; -1 where there are no two bytes to read.
    value_version: int16[n], -1 where the value has none that can be known. decodes: bool[n], control records and records of unknown
    type included. faults: why rows do not decode, and which key types are not known. findings: doubts about rows that do.
    """

    kinds: ChunkKinds
    names: Names
    keys: KeyColumns
    key_code: Ints
    stored_key_type: Int16s
    value_version: Int16s
    decodes: Mask
    named_topics: NamedTopics
    faults: list[RowNote]
    findings: list[RowNote]


def decode_chunk(records: Records, semantics: Semantics, *, known_to_decode: Mask | None = None) -> DecodedChunk:
    """Look at every record once; ``semantics`` says what its coordinator would take of what decodes.

    known_to_decode: bool[n], records that an earlier look has found to decode; what is told of their values (findings, named topics) is
    not told again.
    """
    is_control = records.control_type != NOT_A_CONTROL_RECORD
    key_code, distinct = records.distinct_keys()
    keys = decode_key_columns(Slices.from_arrow(distinct))
    group_ids, member_ids = keys.group_id.dictionary_encode(), keys.member_id.dictionary_encode()
    faults, findings = _key_notes(keys, key_code)

    has_key = key_code >= 0
    key_is_good = has_key & _of_each(keys.ok, key_code, False)
    key_type = np.where(has_key, _of_each(keys.key_type, key_code, np.int16(-1)), np.int16(-1)).astype(np.int16)
    is_known = key_is_good
    is_tombstone = records.value.is_null
    value_is_good = is_tombstone | ~is_known | is_control
    if known_to_decode is not None:
        value_is_good |= known_to_decode
    survey = survey_values(key_type, is_known & ~is_control, ~value_is_good, records.value)
    value_version = survey.value_version
    value_is_good |= survey.surely_decodes
    _decode_doubtful(records, key_type, value_is_good, survey, faults, findings)
    named = np.flatnonzero((survey.topic_high | survey.topic_low) != 0)
    topics = NamedTopics(named, survey.topic_high[named], survey.topic_low[named])
    is_null_key = ~has_key & ~is_control
    faults += [RowNote(row, NullKey.code, NULL_KEY) for row in np.flatnonzero(is_null_key).tolist()]
    unknown = np.zeros(len(distinct), np.bool_)
    unknown[[code for code, refusal in keys.refusals if refusal.code == UNKNOWN_KEY_TYPE]] = True
    is_unknown_type = _of_each(unknown, key_code, False)

    is_staged = (records.producer_id != NO_PRODUCER_ID) | records.is_transactional
    findings += _transaction_notes(records, key_type, is_known & ~is_control, is_staged, is_tombstone)
    kinds = ChunkKinds(
        key_code=key_code,
        group_code=_of_each(codes_of(group_ids), key_code, -1),
        member_code=_of_each(codes_of(member_ids), key_code, -1),
        key_type=np.where(is_known, key_type, np.int16(-1)),
        producer_id=records.producer_id,
        control_type=records.control_type,
        is_control=is_control,
        is_tombstone=is_tombstone,
        is_transactional=records.is_transactional,
        applies=is_known & value_is_good & _accepted(key_type, value_version, semantics),
    )
    decodes = is_control | (value_is_good & (key_is_good | is_unknown_type))
    names = Names(distinct, group_ids.dictionary, member_ids.dictionary)
    return DecodedChunk(kinds, names, keys, key_code, key_type, value_version, decodes, topics, faults, findings)


def _of_each(of_distinct: npt.NDArray[Any], code: Ints, absent: Any) -> npt.NDArray[Any]:
    """The value of each record's key; ``absent`` where it has none."""
    return np.append(of_distinct, np.asarray(absent, of_distinct.dtype))[code]


def _decode_doubtful(
    records: Records, key_type: Int16s, is_good: Mask, survey: ValueSurvey, faults: list[RowNote], findings: list[RowNote]
) -> None:
    """Decode the values that are not yet known to be good one by one, and set ``is_good`` and their topic ids."""
    for row in np.flatnonzero(~is_good).tolist():
        try:
            decoded = decode_value(int(key_type[row]), records.value.row(row))
        except DecodeError as fault:
            faults.append(RowNote(row, fault.code, fault.detail))
            continue
        is_good[row] = True
        if decoded is not None:
            findings.extend(RowNote(row, *finding) for finding in decoded.findings)
            if key_type[row] in OFFSET_KEYS:
                topic_id = uuid_bytes(decoded.fields.get("topic_id", ZERO_UUID))
                survey.topic_high[row], survey.topic_low[row] = np.frombuffer(topic_id, ">i8")


def _accepted(key_type: Int16s, value_version: Int16s, semantics: Semantics) -> Mask:
    """False for key types the coordinator does not know (R-1.6), and for value versions that it does not load (R-1.9)."""
    kinds = _accepted_kinds(semantics)
    accepted: Mask = kinds[np.clip(key_type, -1, len(kinds) - 2), np.clip(value_version, -1, VERSIONS - 1)]
    return accepted


@cache
def _accepted_kinds(semantics: Semantics) -> Mask:
    """By key type and value version; -1, for none, comes last in both."""
    kinds = np.zeros((max(semantics.known_key_types) + 3, VERSIONS + 1), np.bool_)
    kinds[list(semantics.known_key_types)] = True
    for key_type in semantics.known_key_types.intersection((*OFFSET_KEYS, CLASSIC_GROUP_KEY)):
        kinds[key_type, :VERSIONS] = [semantics.accepts_value(key_type, version) for version in range(VERSIONS)]
    return kinds


def _key_notes(keys: KeyColumns, key_code: Ints) -> tuple[list[RowNote], list[RowNote]]:
    """Refusals and findings about keys, for each record that has such a key."""
    faults: list[RowNote] = []
    findings: list[RowNote] = []
    for notes, into in ((keys.refusals, faults), (keys.findings, findings)):
        for code, note in notes:
            into.extend(RowNote(row, note.code, note.detail) for row in np.flatnonzero(key_code == code).tolist())
    return faults, findings


def _transaction_notes(records: Records, key_type: Int16s, is_known: Mask, is_staged: Mask, is_tombstone: Mask) -> list[RowNote]:
    """Records in transactional batches that no broker writes so, and batches whose two signs of a transaction disagree."""
    is_offset = key_type < CLASSIC_GROUP_KEY
    signs_differ = (records.producer_id != NO_PRODUCER_ID) != records.is_transactional
    notes = (
        ("transactional_mismatch", is_known & is_offset & signs_differ, "The batch has a producer id or the transactional bit, not both."),
        (
            "transactional_tombstone",
            is_known & is_offset & is_staged & is_tombstone,
            "An offset tombstone inside of a transaction; no broker writes it.",
        ),
        ("transactional_non_offset", is_known & ~is_offset & is_staged, "A group record inside of a transaction; it is replayed at once."),
    )
    return [RowNote(row, code, detail) for code, rows, detail in notes for row in np.flatnonzero(rows).tolist()]
