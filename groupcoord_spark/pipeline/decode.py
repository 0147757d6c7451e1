"""From the records of a chunk to what they say, as columns: which decode, of what kind they are, and which group they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.compact import CLASSIC_GROUP_KEY, NO_PRODUCER_ID, ChunkKinds, Names
from groupcoord_spark.protocol import DecodeError, decode_value
from groupcoord_spark.protocol.columnar import KeyColumns, View, decode_key_columns, leading_int16, survey_offset_values
from groupcoord_spark.protocol.errors import NullKey, UnknownKeyType, UnknownValueVersion
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.slices import Mask, Slices, codes_of
from groupcoord_spark.protocol.validity import surely_decode

Ints = npt.NDArray[np.int64]
Int16s = npt.NDArray[np.int16]

NOT_A_CONTROL_RECORD = -1
KINDS_OF_A_TYPE = 64
"""More than any record type has value versions."""
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
    value_version = np.where(is_known & ~is_control, leading_int16(View(records.value.data), records.value), np.int16(-1)).astype(np.int16)
    value_is_good = is_tombstone | ~is_known | is_control
    if known_to_decode is not None:
        value_is_good |= known_to_decode
    topics = _decode_values(records, key_type, value_version, value_is_good, faults, findings)
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


def _decode_values(
    records: Records, key_type: Int16s, value_version: Int16s, is_good: Mask, faults: list[RowNote], findings: list[RowNote]
) -> NamedTopics:
    """Set ``is_good`` for each value that decodes; only what the quick looks leave open is decoded one by one."""
    open_rows = np.flatnonzero(~is_good)
    is_offset = key_type[open_rows] < CLASSIC_GROUP_KEY
    offsets = open_rows[is_offset]
    survey = survey_offset_values(key_type[offsets], value_version[offsets], records.value.take(offsets))
    is_good[offsets] = survey.decodes
    doubtful = [offsets[~is_good[offsets]]]
    groups = open_rows[~is_offset]
    # versions beyond all that are known make one kind: none of them decodes here
    kind = key_type[groups] * KINDS_OF_A_TYPE + np.clip(value_version[groups] + 1, 0, KINDS_OF_A_TYPE - 1)
    for each in np.flatnonzero(np.bincount(kind)):
        rows = groups[kind == each]
        version, message = int(value_version[rows[0]]), RECORD_TYPES[int(key_type[rows[0]])].value
        first, last = message.versions
        if first <= version <= last:
            is_good[rows] = surely_decode(message, version, records.value.take(rows))
        doubtful.append(rows[~is_good[rows]])
    for row in np.concatenate(doubtful).tolist():
        try:
            decoded = decode_value(int(key_type[row]), records.value.row(row))
        except DecodeError as fault:
            faults.append(RowNote(row, fault.code, fault.detail))
            continue
        is_good[row] = True
        if decoded is not None:
            findings.extend(RowNote(row, *finding) for finding in decoded.findings)
    has_id = np.flatnonzero((survey.topic_high | survey.topic_low) != 0)
    return NamedTopics(offsets[has_id], survey.topic_high[has_id], survey.topic_low[has_id])


def _accepted(key_type: Int16s, value_version: Int16s, semantics: Semantics) -> Mask:
    """False for key types the coordinator does not know (R-1.6), and for value versions that it does not load (R-1.9)."""
    accepted: Mask = np.isin(key_type, list(semantics.known_key_types))
    for each in (0, 1, CLASSIC_GROUP_KEY):
        rows = (key_type == each) & (value_version >= 0)
        for version in np.flatnonzero(np.bincount(value_version[rows])):
            if not semantics.accepts_value(each, int(version)):
                accepted[rows & (value_version == version)] = False
    return accepted


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
