"""The records of a chunk, decoded as far as all of them must be: key type, group, value version, whether it decodes, and notes about it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.coordinator.refusals import RULE_OF_REASON, fault_beyond_limits, refusal_of_type_or_version, refusals_of_group_value
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.read.chunk_kinds import ChunkKinds, CodeNames
from groupcoord_spark.protocol import ZERO_UUID, DecodeError, decode_value
from groupcoord_spark.protocol.classic_group_checks import surely_loadable
from groupcoord_spark.protocol.columnar import Int16s, KeyColumns, decode_key_columns
from groupcoord_spark.protocol.errors import Doubt, NullKey, UnknownKeyType, UnknownValueVersion
from groupcoord_spark.protocol.primitives import uuid_bytes, uuid_text
from groupcoord_spark.protocol.programs import VERSIONS
from groupcoord_spark.protocol.record_types import CLASSIC_KEY_TYPES, NO_PRODUCER_ID, NOT_A_CONTROL_RECORD, OFFSET_KEY_TYPES, KeyType
from groupcoord_spark.protocol.slices import Ints, Mask, Slices, codes_of
from groupcoord_spark.protocol.value_checks import DOUBTS_ABOUT_CONTENT, check_values

UNKNOWN_KEY_TYPE = UnknownKeyType.code
UNKNOWN_VALUE_VERSION = UnknownValueVersion.code
NULL_KEY = "The record has no key; every record of a group or an offset has one."
MISMATCH = "The batch has a producer id or the transactional bit, not both."
TRANSACTIONAL_TOMBSTONE = "An offset tombstone inside of a transaction; no broker writes it."
TRANSACTIONAL_NON_OFFSET = "A group record inside of a transaction; it is replayed at once."


class Note(Protocol):
    """A code and a sentence. ``DecodeError``, ``Doubt`` and ``Refusal`` are notes."""

    @property
    def code(self) -> str: ...
    @property
    def detail(self) -> str: ...


@dataclass(frozen=True, slots=True)
class RowNotes:
    """``m`` notes about rows of a chunk. A row may have no note, one or several.

    row: int64[m], ascending, the row that the note is about. note: int64[m], the position of the note's code and sentence in ``codes`` and
    ``details``, which have one entry for each distinct note: a million equal records make one entry.
    """

    row: Ints
    note: Ints
    codes: tuple[str, ...]
    details: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def none(cls) -> Self:
        """No notes at all."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), (), ())

    @classmethod
    def about_codes(cls, code: Ints, notes: Sequence[tuple[int, Note]]) -> Self:
        """Return the notes of all rows, from notes about their codes (distinct keys or values).

        code: int64[n], the code of each row, -1 for none. notes: (code, note), ascending by code.
        """
        if not notes:
            return cls.none()
        noted = np.array([code_of_note for code_of_note, _ in notes], np.int64)
        first = np.searchsorted(noted, code, "left")
        count = np.searchsorted(noted, code, "right") - first
        row = np.repeat(np.arange(len(code)), count)
        place_in_row = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
        codes, details = zip(*((note.code, note.detail) for _, note in notes), strict=True)
        return cls(row, np.repeat(first, count) + place_in_row, codes, details)

    @classmethod
    def same_for_rows(cls, rows: Ints, code: str, detail: str) -> Self:
        """Return the same note for each of the rows."""
        return cls(rows, np.zeros(len(rows), np.int64), (code,), (detail,)) if len(rows) else cls.none()

    @classmethod
    def concatenated(cls, parts: "Iterable[RowNotes]") -> Self:
        """Return the notes of all parts in row order."""
        some = [part for part in parts if len(part)]
        if not some:
            return cls.none()
        row = np.concatenate([part.row for part in some])
        begins = np.cumsum([0, *(len(part.codes) for part in some)])
        note = np.concatenate([part.note + begin for part, begin in zip(some, begins.tolist(), strict=False)])
        in_order = np.argsort(row, kind="stable")
        codes = tuple(code for part in some for code in part.codes)
        details = tuple(detail for part in some for detail in part.details)
        return cls(row[in_order], note[in_order], codes, details)

    def of_rows(self, rows: Ints) -> Self:
        """Return the notes for rows of a larger chunk. ``rows``: int64, ascending row numbers in the larger chunk."""
        return type(self)(rows[self.row], self.note, self.codes, self.details)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Self:
        """Return the chosen notes. ``chosen`` is bool[m]."""
        return type(self)(self.row[chosen], self.note[chosen], self.codes, self.details)

    def has_code(self, *wanted: str) -> npt.NDArray[np.bool_]:
        """bool[m]: the note has one of the wanted codes."""
        is_wanted: npt.NDArray[np.bool_] = np.array([*(code in wanted for code in self.codes), False], np.bool_)[self.note]
        return is_wanted

    def counts(self) -> Counter[str]:
        """Return the number of notes of each code."""
        counts: Counter[str] = Counter()
        for code, count in zip(self.codes, np.bincount(self.note, minlength=len(self.codes)).tolist(), strict=True):
            if count:
                counts[code] += count
        return counts

    def columns(self) -> tuple[pa.DictionaryArray, pa.DictionaryArray]:
        """Return the code and the sentence of each note."""
        encoded = [pa.array(texts, pa.string()).dictionary_encode() for texts in (self.codes, self.details)]
        codes, details = (pa.DictionaryArray.from_arrays(texts.indices.take(pa.array(self.note)), texts.dictionary) for texts in encoded)
        return codes, details


class TopicIds(NamedTuple):
    """Rows of commits that have a topic id, and the two halves of the id as big-endian integers."""

    row: Ints
    high: Ints
    low: Ints


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """The decoded columns of ``n`` records.

    kinds: columns for the rules of dropping. names: the keys and ids that the codes in ``kinds`` stand for.
    keys: the distinct keys, decoded. key_code: int64[n], the row of the record's key in ``keys``; -1 for control records and null keys.
    stored_key_type: int16[n], the first two bytes of the key, known type or not; -1 for shorter keys.
    value_version: int16[n]; -1 for tombstones, and for values without a readable version. decodes: bool[n], True also for control
    records and for records of an unknown key type. is_unknown: bool[n], the key type or the value version is not known to this release.
    topic_ids: rows of commits with a topic id. faults: why rows do not decode, and the unknown key types. findings: doubts about rows that
    decode. refusals: rows that a broker's loader refuses or skips in any state (rules R-1.6 to R-1.10 and R-2.1 to R-2.4 of
    docs/reference/replay-rules.md).
    """

    records: Records
    kinds: ChunkKinds
    names: CodeNames
    keys: KeyColumns
    key_code: Ints
    stored_key_type: Int16s
    value_version: Int16s
    decodes: Mask
    is_unknown: Mask
    topic_ids: TopicIds
    faults: RowNotes
    findings: RowNotes
    refusals: RowNotes

    def topic_names(self) -> dict[str, str]:
        """Topic id -> topic name, from all commits with a topic id. Superseded commits count too: they may be the only ones with the id."""
        row, high, low = self.topic_ids
        if not len(row):
            return {}
        key = self.key_code[row]
        last_of_key = np.full(len(self.keys.topic), -1, np.int64)
        last_of_key[key] = np.arange(len(row))  # numpy keeps the last assignment to a position
        # The commits of one key have the same topic id, until the topic is deleted and created again.
        last = last_of_key[key]
        differs = (high != high[last]) | (low != low[last])
        chosen = np.sort(np.concatenate((last_of_key[last_of_key >= 0], np.flatnonzero(differs))))
        topics = self.keys.topic.take(pa.array(key[chosen])).to_pylist()
        ids = np.stack((high[chosen], low[chosen]), axis=1).astype(">i8").view("V16")
        # Few topics have many keys: only distinct ids become text.
        topic_of_id = dict(zip(ids.ravel().tolist(), topics, strict=True))
        return {uuid_text(topic_id): topic for topic_id, topic in topic_of_id.items()}


def decode_chunk(records: Records, semantics: Semantics) -> DecodedChunk:
    """Decode the records into columns, with all notes. ``semantics`` decides which decoded records the coordinator accepts."""
    decoder = _ChunkDecoder(records, np.zeros(len(records), np.bool_), records.distinct_keys())
    value_faults, value_findings = decoder.doubtful_values(semantics)
    key_refusals, key_findings = (RowNotes.about_codes(decoder.key_code, notes) for notes in (decoder.keys.refusals, decoder.keys.doubts))
    kinds = decoder.kinds(semantics)
    decodes = kinds.is_control | (decoder.value_is_good & (decoder.key_is_good | decoder.is_unknown_type()))
    refusals_of_sound_records = list(_refusals_of_what_decodes(kinds, decoder, semantics))
    null_keys = RowNotes.same_for_rows(np.flatnonzero(~decoder.has_key & ~decoder.is_control), NullKey.code, NULL_KEY)
    faults = RowNotes.concatenated((key_refusals, null_keys, *value_faults))
    findings = RowNotes.concatenated((key_findings, *value_findings, *decoder.transaction_notes()))
    faults_as_rules = replace(faults, codes=tuple(RULE_OF_REASON.get(code, code) for code in faults.codes))
    refusals = RowNotes.concatenated((faults_as_rules, *refusals_of_sound_records))
    return decoder.decoded(kinds, decodes, faults, findings, refusals)


def decode_kept_records(records: Records, decodes: Mask, semantics: Semantics, distinct_keys: tuple[Ints, pa.BinaryArray]) -> DecodedChunk:
    """Decode records into columns without notes. ``decodes`` comes from ``decode_chunk``.

    decodes: bool[n], of that chunk. distinct_keys: the result of ``records.distinct_keys()``.
    """
    decoder = _ChunkDecoder(records, decodes, distinct_keys)
    return decoder.decoded(decoder.kinds(semantics), decodes, *[RowNotes.none()] * 3)


class _ChunkDecoder:
    """The state of decoding one chunk. known_to_decode: bool[n], records whose values need no check."""

    def __init__(self, records: Records, known_to_decode: Mask, distinct_keys: tuple[Ints, pa.BinaryArray]) -> None:
        self.records = records
        self.is_control = records.control_type != NOT_A_CONTROL_RECORD
        self.key_code, self.distinct_keys = distinct_keys
        self.keys = decode_key_columns(Slices.from_arrow(self.distinct_keys))
        self.has_key = self.key_code >= 0
        self.key_is_good = self.has_key & _by_record(self.keys.ok, self.key_code, False)
        key_type = np.where(self.has_key, _by_record(self.keys.key_type, self.key_code, np.int16(-1)), np.int16(-1))
        self.key_type: Int16s = key_type.astype(np.int16)
        self.is_tombstone = records.value.is_null
        self.value_is_good: Mask = self.is_tombstone | ~self.key_is_good | self.is_control | known_to_decode
        self.checks = check_values(self.key_type, self.key_is_good & ~self.is_control, ~self.value_is_good, records.value)
        self.value_is_good |= self.checks.surely_decodes

    def doubtful_values(self, semantics: Semantics) -> tuple[list[RowNotes], list[RowNotes]]:
        """Faults and findings of the values that are not yet known to decode. Sets ``value_is_good``, and the topic ids of these values.

        Equal values of one key type are decoded once.
        """
        faults, findings = [], []
        doubtful = np.flatnonzero(~self.value_is_good)
        for key_type in np.unique(self.key_type[doubtful]).tolist():
            rows = doubtful[self.key_type[doubtful] == key_type]
            code, distinct = self.records.value.take(rows).distinct()
            faults_of, findings_of, is_good, topic_ids = _decode_distinct(key_type, distinct, semantics)
            self.value_is_good[rows] = is_good[code]
            if key_type in OFFSET_KEY_TYPES:
                self.checks.topic_high[rows], self.checks.topic_low[rows] = topic_ids[code].T
            faults.append(RowNotes.about_codes(code, faults_of).of_rows(rows))
            findings.append(RowNotes.about_codes(code, findings_of).of_rows(rows))
        return faults, findings

    def is_unknown_type(self) -> Mask:
        """bool[n]: this release does not know the key type of the record."""
        unknown = np.zeros(len(self.distinct_keys), np.bool_)
        unknown[[code for code, refusal in self.keys.refusals if refusal.code == UNKNOWN_KEY_TYPE]] = True
        is_unknown_type: Mask = _by_record(unknown, self.key_code, False)
        return is_unknown_type

    def transaction_notes(self) -> list[RowNotes]:
        """Notes about transactional records that no broker writes, and about batches with only one sign of a transaction."""
        records = self.records
        has_producer = records.producer_id != NO_PRODUCER_ID
        is_staged = has_producer | records.is_transactional
        is_data = self.key_is_good & ~self.is_control
        is_offset = self.key_type < KeyType.GROUP_METADATA
        notes = (
            ("transactional_mismatch", is_offset & (has_producer != records.is_transactional), MISMATCH),
            ("transactional_tombstone", is_offset & is_staged & self.is_tombstone, TRANSACTIONAL_TOMBSTONE),
            ("transactional_non_offset", ~is_offset & is_staged, TRANSACTIONAL_NON_OFFSET),
        )
        return [RowNotes.same_for_rows(np.flatnonzero(is_data & rows), code, detail) for code, rows, detail in notes]

    def kinds(self, semantics: Semantics) -> ChunkKinds:
        group_ids, member_ids = self.keys.group_id.dictionary_encode(), self.keys.member_id.dictionary_encode()
        self.names = CodeNames(self.distinct_keys, group_ids.dictionary, member_ids.dictionary)
        return ChunkKinds(
            key_code=self.key_code,
            group_code=_by_record(codes_of(group_ids), self.key_code, -1),
            member_code=_by_record(codes_of(member_ids), self.key_code, -1),
            key_type=np.where(self.key_is_good, self.key_type, np.int16(-1)),
            producer_id=self.records.producer_id,
            control_type=self.records.control_type,
            is_control=self.is_control,
            is_tombstone=self.is_tombstone,
            is_transactional=self.records.is_transactional,
            decodes=self.key_is_good & self.value_is_good,
            coordinator_accepts=self.key_is_good & self.value_is_good & _accepted(self.key_type, self.checks.value_version, semantics),
            keeps_ended_transactions=semantics.tombstone_leaves_transaction_open,
        )

    def decoded(self, kinds: ChunkKinds, decodes: Mask, faults: RowNotes, findings: RowNotes, refusals: RowNotes) -> DecodedChunk:
        high, low = self.checks.topic_high, self.checks.topic_low
        named = np.flatnonzero((high | low) != 0)
        topics, version = TopicIds(named, high[named], low[named]), self.checks.value_version
        is_unknown = np.zeros(len(decodes), np.bool_)
        is_unknown[faults.row[faults.has_code(UNKNOWN_KEY_TYPE, UNKNOWN_VALUE_VERSION)]] = True
        notes = (faults, findings, refusals)
        of_keys = (self.names, self.keys, self.key_code, self.key_type)
        return DecodedChunk(self.records, kinds, *of_keys, version, decodes, is_unknown, topics, *notes)


def _decode_distinct(
    key_type: int, values: pa.BinaryArray, semantics: Semantics
) -> tuple[list[tuple[int, DecodeError]], list[tuple[int, Doubt]], Mask, Ints]:
    """(faults, findings, is_good, topic_ids) of distinct values.

    faults, findings: (position of the value, note). is_good: bool, the value decodes. topic_ids: int64[:, 2], halves of the topic ids.
    """
    faults: list[tuple[int, DecodeError]] = []
    findings: list[tuple[int, Doubt]] = []
    is_good = np.ones(len(values), np.bool_)
    topic_ids = np.zeros((len(values), 2), np.int64)
    for place, value in enumerate(values.to_pylist()):
        try:
            decoded = decode_value(key_type, value)
            if beyond_limits := fault_beyond_limits(decoded, semantics):
                raise beyond_limits
        except DecodeError as fault:
            is_good[place] = False
            faults.append((place, fault.without_frames()))
            continue
        assert decoded is not None
        if decoded.dialect is not None or not DOUBTS_ABOUT_CONTENT.issuperset(doubt.code for doubt in decoded.doubts):
            findings.extend((place, doubt) for doubt in decoded.doubts)
        if key_type in OFFSET_KEY_TYPES:
            topic_ids[place] = np.frombuffer(uuid_bytes(decoded.fields.get("topic_id", ZERO_UUID)), ">i8")
    return faults, findings, is_good, topic_ids


def _refusals_of_what_decodes(kinds: ChunkKinds, decoder: _ChunkDecoder, semantics: Semantics) -> Iterator[RowNotes]:
    """Notes about records that decode and that this coordinator does not load, and about classic group values that it refuses."""
    values = decoder.records.value
    is_data = decoder.key_is_good & decoder.value_is_good & ~kinds.is_control
    refused = np.flatnonzero(is_data & ~kinds.coordinator_accepts)
    if len(refused):
        pairs, kind = np.unique(np.stack((decoder.key_type[refused], decoder.checks.value_version[refused])), axis=1, return_inverse=True)
        versions = [(key_type, None if version < 0 else version) for key_type, version in pairs.T.tolist()]
        refusals = [(place, refusal_of_type_or_version(semantics, *version)) for place, version in enumerate(versions)]
        yield RowNotes.about_codes(kind, [(place, refusal) for place, refusal in refusals if refusal is not None]).of_rows(refused)
    classic = np.flatnonzero(is_data & kinds.coordinator_accepts & ~kinds.is_tombstone & (kinds.key_type == KeyType.GROUP_METADATA))
    doubtful = classic[~surely_loadable(values.take(classic), checks_subscriptions=semantics.fails_over_subscriptions)]
    if len(doubtful):
        code, distinct = values.take(doubtful).distinct()
        decoded = (decode_value(KeyType.GROUP_METADATA, value) for value in distinct.to_pylist())
        of_values = [() if value is None else refusals_of_group_value(value.version, value.fields, semantics) for value in decoded]
        yield RowNotes.about_codes(code, [(place, refusal) for place, value in enumerate(of_values) for refusal in value]).of_rows(doubtful)


def _by_record(of_distinct: npt.NDArray[Any], code: Ints, absent: Any) -> npt.NDArray[Any]:
    """For each record the value that belongs to its key; ``absent`` where the record has no key."""
    return np.append(of_distinct, np.asarray(absent, of_distinct.dtype))[code]


def _accepted(key_type: Int16s, value_version: Int16s, semantics: Semantics) -> Mask:
    """bool[n]: the coordinator knows the key type (R-1.6) and loads the value version (R-1.9)."""
    kinds = _accepted_kinds(semantics)
    accepted: Mask = kinds[np.clip(key_type, -1, len(kinds) - 2), np.clip(value_version, -1, VERSIONS - 1)]
    return accepted


@cache
def _accepted_kinds(semantics: Semantics) -> Mask:
    """bool by key type and value version: the coordinator loads such records. Index -1 (none) is the last of each axis."""
    kinds = np.zeros((max(semantics.known_key_types) + 3, VERSIONS + 1), np.bool_)
    kinds[list(semantics.known_key_types)] = True
    for key_type in semantics.known_key_types.intersection(CLASSIC_KEY_TYPES):
        kinds[key_type, :VERSIONS] = [semantics.accepts_value(key_type, version) for version in range(VERSIONS)]
    return kinds
