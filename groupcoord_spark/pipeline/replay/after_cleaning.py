"""Whether a log still loads, and to the same state, after Kafka's log cleaner: which cleanings may change that, and a replay of each.

The cleaner takes a prefix of the log, keeps the last record of each key in it (keys compare by their bytes), and drops tombstones once
delete.retention.ms has passed. Only the last record of a key remains, so a cleaned prefix contains no key that changes again within it. A
few record sequences are rejected, or load differently, because of that:

- a tombstone is gone and a later record rests on it: the tombstones of one deletion on both sides of the cleaner's end, a tombstone under
  key type 0 of an offset under key type 1, a tombstone of a group whose offsets stay;
- a tombstone stays and what it rests on is gone, because the group or the member came back and its key has a newer record;
- a tombstone or a marker counted where the cleaner's rules for transactions see it otherwise;
- a load that has begun on the old segments goes on with the cleaned ones (KAFKA-19862, KAFKA-21117): a group, a member or an owner of a
  partition that the old records left stays until its last record, and a record between is refused.

``cleanings_to_try`` finds these orders; the loader of ``load_check`` replays what each such cleaning leaves of the group.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import LoadWarning, PartitionState
from groupcoord_spark.doctor import FINDINGS, Finding
from groupcoord_spark.doctor.gather.group_table import MOST_NAMES
from groupcoord_spark.log import PartitionLog, read_segment
from groupcoord_spark.pipeline.exchange.kept_records import as_one, kept_records
from groupcoord_spark.pipeline.read.decode import decode_chunk
from groupcoord_spark.pipeline.read.superseded import needed_for_replay
from groupcoord_spark.pipeline.replay.kept_records_replay import KeptRecordsReplay
from groupcoord_spark.pipeline.replay.load_check import LoadOutcome, check_load_and_keep
from groupcoord_spark.protocol import DecodeError, decode_value
from groupcoord_spark.protocol.columnar import KeyColumns, decode_key_columns
from groupcoord_spark.protocol.record_types import MODERN_KEY_TYPES, NO_PRODUCER_ID, NOT_A_CONTROL_RECORD, KeyType, MarkerType
from groupcoord_spark.protocol.slices import Ints, Mask, Slices, codes_of

NONE: Final = -1
_METADATA_OF_EPOCH: Final = {
    KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT: KeyType.CONSUMER_GROUP_MEMBER_METADATA,
    KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT: KeyType.SHARE_GROUP_MEMBER_METADATA,
    KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT: KeyType.STREAMS_GROUP_MEMBER_METADATA,
}
"""A member's tombstone of the second type is refused without one of the first type before it (R-3.10, R-3.16, R-3.24)."""
_ISSUES: Final = {"R-3.14": "KAFKA-19862", "R-3.4": "KAFKA-21117", "R-3.5": "KAFKA-20254"}
"""Rule of a refusal -> the issue of Kafka about it."""
MOST_DIFFERENCES: Final = 3
FINDING_OF_ANSWER: Final = {
    "refused": "refused_after_cleaning",
    "refused_while_cleaning": "refused_while_cleaning",
    "other_state": "other_state_after_cleaning",
}
"""Answer -> the finding that a run keeps."""


class Cleaning(NamedTuple):
    """What the cleaner and a load may do.

    cleaned_to: records below this offset are cleaned; the beginning of a batch, or the end of the log.
    drops_tombstones: they are older than delete.retention.ms.
    read_before: the load has read the old records below this offset, before the cleaned segments took the place of the old ones; -1: the
    load begins after the cleaning.
    """

    cleaned_to: int
    drops_tombstones: bool
    read_before: int = NONE

    @property
    def refusal(self) -> str:
        """What a refusal of a load after such a cleaning is: ``refused`` or ``refused_while_cleaning``."""
        return "refused" if self.read_before < 0 else "refused_while_cleaning"


@dataclass(frozen=True, slots=True)
class Exposure:
    """A cleaning after which one group makes the load fail, or loads otherwise.

    Attributes:
        refusal: the record that is refused; None: the group loads with another state.
        differences: what differs, in clauses; at most MOST_DIFFERENCES.
        since_ms: timestamp of the last record below the cleaner's end: since then the cleaner may leave the log so.
        mended_in: the later releases that reject fewer such records; None if this release is one of them, or none exists.
    """

    offsets_partition: int
    release: str
    group_id: str
    cleaning: Cleaning
    refusal: LoadWarning | None
    differences: tuple[str, ...]
    since_ms: int
    mended_in: str | None

    @property
    def answer(self) -> str:
        """``refused``, ``refused_while_cleaning`` or ``other_state``."""
        return "other_state" if self.refusal is None else self.cleaning.refusal

    @property
    def issue(self) -> str | None:
        """Return the Kafka issue, or None."""
        return None if self.refusal is None else _ISSUES.get(self.refusal.code)

    @property
    def summary(self) -> str:
        """What happens to the group, in one or two sentences."""
        cleaning = self.cleaning
        text = f"Group {self.group_id!r}, cleaned up to offset {cleaning.cleaned_to}"
        text += " without its old tombstones" if cleaning.drops_tombstones else " with its tombstones"
        if cleaning.read_before >= 0:
            text += f", by a load that has read up to offset {cleaning.read_before}"
        if self.refusal is None:
            return f"{text}: {'; '.join(self.differences)}."
        at = "the end of the log" if self.refusal.record_offset is None else f"offset {self.refusal.record_offset}"
        issue = "" if self.issue is None else f", {self.issue}"
        return f"{text}: {at} is refused ({self.refusal.code}{issue}). {self.refusal.reason}"

    @property
    def remedy(self) -> str:
        """What mends it, in one sentence."""
        upgrade = "" if self.mended_in is None else f" Kafka refuses fewer such records from {self.mended_in} on."
        if self.answer == "refused_while_cleaning":
            return f"Load the partition once more (restart the broker, or move the leader): by then the cleaning is over.{upgrade}"
        if self.answer == "refused":
            return f"Stop the clients of the group and delete it with kafka-consumer-groups.sh --delete.{upgrade}"
        return "Commit the offsets of the group once more, or delete them with kafka-consumer-groups.sh --delete-offsets."


@dataclass(frozen=True, slots=True)
class AfterCleaning:
    """What one release makes of an offsets partition now, and after the cleaner."""

    now: LoadOutcome
    exposures: tuple[Exposure, ...]


def check_after_cleaning(log: PartitionLog, releases: Sequence[Semantics]) -> list[AfterCleaning]:
    """Return how each release loads the log of one offsets partition, now and after the cleaner.

    The log is read once, and a second time where a group is at risk.
    """
    loads = check_load_and_keep(log, releases)
    at_risk: set[str] = set()
    for semantics, (now, kept) in zip(releases, loads, strict=True):
        at_risk |= now.groups_of_orphans
        if kept:
            at_risk |= _Kept(as_one(kept)).groups_at_risk(semantics)
    checked = []
    for semantics, (now, _) in zip(releases, loads, strict=True):
        records = _records_of_groups(log, at_risk, semantics) if at_risk else None
        exposures = () if records is None else _exposures(records, semantics, log.offsets_partition, now.groups_of_orphans)
        checked.append(AfterCleaning(now, exposures))
    return checked


def findings_after_cleaning(exposures: Sequence[Exposure], copy: str) -> Iterator[Finding]:
    """Yield a finding for each release's result and offsets partition. ``copy`` is the log directory."""
    for (number, answer), of_answer in groupby(sorted(exposures, key=_answer_of), _answer_of):
        groups = list(of_answer)
        first, name = groups[0], FINDING_OF_ANSWER[answer]
        evidence = {
            "release": first.release,
            "groups": [exposure.group_id for exposure in groups[:MOST_NAMES]],
            "number_of_groups": len(groups),
            "cleaned_to": first.cleaning.cleaned_to,
            "tombstones_dropped": first.cleaning.drops_tombstones,
            "read_before": first.cleaning.read_before if first.cleaning.read_before >= 0 else None,
            "refused_offset": None if first.refusal is None else first.refusal.record_offset,
            "rule": None if first.refusal is None else first.refusal.code,
            "kafka_issue": first.issue,
            "differences": list(first.differences),
            "since_ms": first.since_ms,
        }
        severity = FINDINGS[name].severity
        yield Finding(name, number, copy, severity, first.group_id, first.summary, first.remedy, evidence)


def _answer_of(exposure: Exposure) -> tuple[int, str]:
    return exposure.offsets_partition, exposure.answer


def _records_of_groups(log: PartitionLog, group_ids: Set[str], semantics: Semantics) -> "_Kept":
    """Return the markers, all records of these groups, and the records of their offsets that a replay needs."""
    kept, starts, log_end = [], [], 0
    wanted = pa.array(sorted(group_ids), pa.string())
    for segment in log.segments:
        for chunk in read_segment(segment):
            if len(chunk.records):
                log_end = int(chunk.records.record_offset[-1]) + 1
            code, distinct = chunk.records.distinct_keys()
            of_group = pc.is_in(decode_key_columns(Slices.from_arrow(distinct)).group_id, wanted).to_numpy(zero_copy_only=False)
            is_wanted = np.append(of_group, False)[code] | (chunk.records.control_type != NOT_A_CONTROL_RECORD)
            if not is_wanted.any():
                continue
            position = chunk.records.position
            is_start = np.concatenate(([True], position[1:] != position[:-1]))
            start = chunk.records.record_offset[is_start][np.cumsum(is_start)[is_wanted] - 1]
            records = chunk.records.take(is_wanted)
            decoded = decode_chunk(records, semantics)
            # the rules of dropping drop classic values that a whole log does not need: a load that meets a cleaned log may see them
            rows = np.flatnonzero(needed_for_replay(decoded.kinds) | (decoded.kinds.key_type >= KeyType.GROUP_METADATA))
            kept.append(kept_records(records, rows, decoded.decodes))
            starts.append(start[rows])
    return _Kept(as_one(kept), np.concatenate(starts), log_end)


def _exposures(records: "_Kept", semantics: Semantics, offsets_partition: int, deleted: Set[str]) -> tuple[Exposure, ...]:
    """Return the exposures by group."""
    rows_by_group = records.rows_by_group()
    to_try = {group: cleanings_to_try(records, rows, semantics, deleted) for group, rows in rows_by_group.items()}
    first = {group: cleaning for group, cleanings in to_try.items() if (cleaning := next(cleanings, None)) is not None}
    if not first:
        return ()
    waiting = {group: chain((cleaning,), to_try[group]) for group, cleaning in first.items()}
    uncleaned = _replayed(records.after(dict.fromkeys(first, Cleaning(0, False))), semantics)
    exposures: dict[tuple[str, str], Exposure] = {}
    while waiting:
        # One replay tries one cleaning of each group: groups do not see one another.
        cleanings = {}
        for group in list(waiting):
            name = records.names[group]
            cleaning = next((one for one in waiting[group] if (name, one.refusal) not in exposures), None)
            if cleaning is None:
                del waiting[group]
            else:
                cleanings[group] = cleaning
        cleaned = _replayed(records.after(cleanings), semantics) if cleanings else uncleaned
        for group, cleaning in cleanings.items():
            exposure = _exposure(records, group, cleaning, uncleaned, cleaned, semantics, offsets_partition)
            if exposure is not None:
                exposures.setdefault((exposure.group_id, exposure.answer), exposure)
    return tuple(exposure for _, exposure in sorted(exposures.items()))


@dataclass(frozen=True, slots=True)
class _Replayed:
    """States and first refusals by group id."""

    states: dict[str, dict[tuple[Any, ...], Any]]
    refusals: dict[str, list[LoadWarning]]


def _replayed(batch: pa.RecordBatch, semantics: Semantics) -> _Replayed:
    replay = KeptRecordsReplay(semantics)
    if batch.num_rows:
        replay.apply(batch)
    state = replay.coordinator.finish()
    refusals: dict[str, list[LoadWarning]] = defaultdict(list)
    for warning in state.warnings():
        if warning.is_refusal and warning.group_id is not None:
            refusals[warning.group_id].append(warning)
    return _Replayed(_states(state), refusals)


def _states(state: PartitionState) -> dict[str, dict[tuple[Any, ...], Any]]:
    """By group id, everything that a client can see, by what it is about.

    Simple groups without offsets are left out, and so are offsets without a group: no client sees them.
    """
    states: dict[str, dict[tuple[Any, ...], Any]] = defaultdict(dict)
    for group in state.groups():
        if not group.is_simple:
            facts = group._replace(record_offset=None, record_timestamp_ms=None, topic_count=0, offset_count=0, pending_offset_count=0)
            states[group.group_id]["group",] = facts
    for member in state.members():
        states[member.group_id]["member", member.member_id] = member._replace(record_offset=None)
    for assignment in state.assignments({}):
        states[assignment.group_id]["assignment", *assignment[1:]] = True
    for kind, offsets in (("offset", state.committed_offsets()), ("pending offset", state.pending_offsets())):
        for group_id, topic, partition, commit in offsets:
            states[group_id][kind, topic, partition, commit.producer_id if kind != "offset" else None] = commit
    return states


def _exposure(
    records: "_Kept", group: int, cleaning: Cleaning, uncleaned: _Replayed, cleaned: _Replayed, semantics: Semantics, offsets_partition: int
) -> Exposure | None:
    name = records.names[group]
    refused_uncleaned = {warning.record_offset for warning in uncleaned.refusals.get(name, ())}
    refusal = next((warning for warning in cleaned.refusals.get(name, ()) if warning.record_offset not in refused_uncleaned), None)
    differences: tuple[str, ...] = ()
    if refusal is None and cleaning.read_before < 0 and not refused_uncleaned:
        differences = tuple(_differences(uncleaned.states.get(name, {}), cleaned.states.get(name, {})))
    if refusal is None and not differences:
        return None
    mended_in = None
    if refusal is not None and refusal.code == "R-3.14" and not semantics.newer_epoch_takes_partitions_over:
        mended_in = "4.0.2, 4.1.2 and 4.2.0"
    elif refusal is not None and refusal.code == "R-3.5" and not semantics.streams_group_may_replace_simple:
        mended_in = "4.2.1"
    since_ms = records.newest_before(cleaning.cleaned_to)
    return Exposure(offsets_partition, semantics.broker_version, name, cleaning, refusal, differences, since_ms, mended_in)


def _differences(uncleaned: Mapping[tuple[Any, ...], Any], cleaned: Mapping[tuple[Any, ...], Any]) -> list[str]:
    """Clauses about what differs, offsets first."""
    changed = [key for key in uncleaned.keys() | cleaned.keys() if uncleaned.get(key) != cleaned.get(key)]
    clauses = []
    for key in sorted(changed, key=lambda key: ("offset" not in key[0], tuple(map(str, key)))):
        uncleaned_row, cleaned_row = uncleaned.get(key), cleaned.get(key)
        what = f"{key[0]} of {key[1]}-{key[2]}" if "offset" in key[0] else " ".join(str(part) for part in key if part is not None)
        if "offset" in key[0]:
            offsets = ["none" if row is None else str(row.committed_offset) for row in (uncleaned_row, cleaned_row)]
            clauses.append(f"{what}: {offsets[0]} before, {offsets[1]} after")
        else:
            clauses.append(f"{what} {'appears' if uncleaned_row is None else 'is gone' if cleaned_row is None else 'differs'}")
    if len(clauses) > MOST_DIFFERENCES:
        clauses[MOST_DIFFERENCES - 1 :] = [f"{len(clauses) - MOST_DIFFERENCES + 1} more differences"]
    return clauses


class _Kept:
    """Kept records of one offsets partition with the columns that the cleaner looks at, in the order of the log.

    Attributes:
        batch_start: int64, the first offset of the record's batch; None where nothing asks for it. offset: int64, the record offset.
        is_control: bool, a record of a control batch. is_tombstone: bool, a data record without a value.
        key: int64, the number of the key, by its bytes; -1 for control records and null keys. keys: the distinct keys, decoded.
        key_type: int16; -1 for control records and null keys. member_ids: by number of the key; None where the key has no member.
        group: int64, the number of the group in ``names``; -1 for control records and keys without a group.
    """

    def __init__(self, batch: pa.RecordBatch, batch_start: Ints | None = None, log_end: int = 0) -> None:
        self.batch, self.batch_start, self._log_end = batch, batch_start, log_end
        self.offset: Ints = self._column("record_offset")
        self.is_control: Mask = np.asarray(self._column("control_type") != NOT_A_CONTROL_RECORD)
        keys, values = Slices.from_arrow(batch.column("key")), Slices.from_arrow(batch.column("value"))
        self.is_tombstone: Mask = values.is_null & ~self.is_control
        self.key, distinct = Slices(keys.data, keys.start, keys.end, keys.is_null | self.is_control).distinct()
        self.keys: KeyColumns = decode_key_columns(Slices.from_arrow(distinct))
        self.key_type = np.append(self.keys.key_type, np.int16(NONE))[self.key]
        self.member_ids: list[str | None] = self.keys.member_id.to_pylist()
        encoded = self.keys.group_id.dictionary_encode()
        self.names: list[str] = encoded.dictionary.to_pylist()
        self.group: Ints = np.append(codes_of(encoded), NONE)[self.key]

    def _column(self, name: str) -> npt.NDArray[Any]:
        return np.asarray(self.batch.column(name).to_numpy(zero_copy_only=False))

    @cached_property
    def marker(self) -> Ints:
        """int64, the row of the marker that ends the record's transaction; -1 outside of transactions, the number of rows if it is open."""
        producer, control_type = self._column("producer_id"), self._column("control_type")
        is_marker = (control_type == MarkerType.ABORT) | (control_type == MarkerType.COMMIT)
        staged = self._column("is_transactional") & ~self.is_control
        rows = np.flatnonzero(is_marker | staged)
        rows = rows[np.lexsort((rows, producer[rows]))]
        following = np.minimum.accumulate(np.where(is_marker[rows], np.arange(len(rows)), len(rows))[::-1])[::-1]
        at = np.minimum(following, max(len(rows) - 1, 0))
        ended = (following < len(rows)) & (producer[rows][at] == producer[rows]) if len(rows) else np.zeros(0, np.bool_)
        ends = np.full(self.batch.num_rows, NONE)
        ends[rows] = np.where(ended, rows[at], self.batch.num_rows)
        ends[~staged] = NONE
        return ends

    @cached_property
    def counts(self) -> Mask:
        """bool, the cleaner puts the record into its map: it has a key and its transaction, if any, was not aborted."""
        marker = np.where(self.marker < self.batch.num_rows, self.marker, NONE)
        is_aborted = (marker >= 0) & (self._column("control_type")[marker] == MarkerType.ABORT)
        return np.asarray((self.key >= 0) & ~is_aborted)

    @cached_property
    def limit(self) -> int:
        """The cleaner comes at most here: the first batch of an open transaction, or the end of the log."""
        is_open = self.marker == self.batch.num_rows
        start = self.offset if self.batch_start is None else self.batch_start
        return int(start[is_open][0]) if is_open.any() else max(int(self.offset[-1]) + 1, self._log_end)

    @cached_property
    def next_of_key(self) -> Ints:
        """Return the row of the next counted record with the same key as int64, or -1."""
        following = np.full(self.batch.num_rows, NONE)
        rows = np.flatnonzero(self.counts)
        rows = rows[np.argsort(self.key[rows], kind="stable")]
        same = self.key[rows][1:] == self.key[rows][:-1]
        following[rows[:-1][same]] = rows[1:][same]
        return following

    def newest_before(self, record_offset: int) -> int:
        """Return the timestamp of the last record below an offset, or -1."""
        row = int(np.searchsorted(self.offset, record_offset)) - 1
        return int(self._column("record_timestamp_ms")[row]) if row >= 0 else NONE

    @cached_property
    def is_offset_at_risk(self) -> Mask:
        """bool, a commit or tombstone of an offset that the cleaner may see otherwise than the loader does."""
        is_offset = (self.group >= 0) & (self.key_type < KeyType.GROUP_METADATA)
        producer, bit, following = self._column("producer_id") != NO_PRODUCER_ID, self._column("is_transactional"), self.next_of_key
        of_type = (self.group[self.key_type == key_type] for key_type in (KeyType.LEGACY_OFFSET_COMMIT, KeyType.OFFSET_COMMIT))
        of_both_types = np.isin(self.group, np.intersect1d(*of_type))
        return np.asarray(
            is_offset
            & (
                (bit != producer)  # the loaders differ in what makes a record transactional
                | self.is_tombstone & (producer | of_both_types)
                | (following >= 0) & (following < self.marker)  # superseded while its transaction was open
            )
        )

    def groups_at_risk(self, semantics: Semantics) -> set[str]:
        """Return the groups that ``cleanings_to_try`` can find something for, in addition to deleted groups with offsets."""
        key_types = [key_type for key_type in MODERN_KEY_TYPES if key_type in semantics.known_key_types]
        at_risk = (self.group >= 0) & np.isin(self.key_type, key_types) | self.is_offset_at_risk
        return {self.names[group] for group in np.unique(self.group[at_risk]).tolist()}

    def rows_by_group(self) -> dict[int, Ints]:
        """Group number -> rows."""
        rows = np.flatnonzero(self.group >= 0)
        rows = rows[np.argsort(self.group[rows], kind="stable")]
        borders = np.flatnonzero(np.diff(self.group[rows])) + 1
        return {int(self.group[part[0]]): part for part in np.split(rows, borders) if len(part)}

    def after(self, cleanings: Mapping[int, Cleaning]) -> pa.RecordBatch:
        """Return what a load reads of the groups, by number, after the cleaning of each. All markers stay: without data they end
        nothing."""
        size = len(self.names) + 1
        cleaned_to, drops, read_before = np.zeros(size, np.int64), np.zeros(size, np.bool_), np.full(size, NONE)
        for group, cleaning in cleanings.items():
            cleaned_to[group], drops[group], read_before[group] = cleaning
        is_chosen = np.zeros(size, np.bool_)
        is_chosen[list(cleanings)] = True
        is_cleaned = self.offset < cleaned_to[self.group]
        rows = np.flatnonzero(is_cleaned & self.counts)
        last = np.full(len(self.keys.key_type) + 1, NONE)
        last[self.key[rows]] = rows
        is_left = ~is_cleaned | (last[self.key] == np.arange(len(self.key))) & ~(drops[self.group] & self.is_tombstone)
        is_left |= self.offset < read_before[self.group]
        return self.batch.filter(pa.array(self.is_control | is_left & is_chosen[self.group]))


def cleanings_to_try(records: _Kept, rows: Ints, semantics: Semantics, deleted: Set[str]) -> Iterator[Cleaning]:
    """Yield cleanings that may make a load of the group fail or differ: cleaner ends and load times, each once.

    deleted: the groups that are deleted and have offsets.
    """
    seen = set()
    is_deleted = records.names[int(records.group[rows[0]])] in deleted
    for cleaning in _Orders(records, rows, semantics, is_deleted).cleanings():
        if cleaning not in seen and cleaning.cleaned_to > max(cleaning.read_before, 0):
            seen.add(cleaning)
            yield cleaning


class _Orders:
    """The orders of the records of one group that a cleaning can expose."""

    def __init__(self, records: _Kept, rows: Ints, semantics: Semantics, is_deleted: bool) -> None:
        self._semantics = semantics
        self._is_deleted = is_deleted
        self._records = records
        self._rows = rows
        self._offset = records.offset[rows].tolist()
        assert records.batch_start is not None
        self._batch = records.batch_start[rows].tolist()
        """The first offset of the record's batch."""
        self._type = records.key_type[rows].tolist()
        self._key = records.key[rows].tolist()
        self._is_tombstone = records.is_tombstone[rows].tolist()
        places = np.full(records.batch.num_rows + 1, NONE)
        places[rows] = np.arange(len(rows))
        self._next: list[int] = places[records.next_of_key[rows]].tolist()
        """The place of the next record with the same key; -1: none."""

    def cleanings(self) -> Iterator[Cleaning]:
        """Yield the cleanings in the order of trial."""
        has_risk = self._is_deleted or bool(self._records.is_offset_at_risk[self._rows].any())
        for place, key_type in enumerate(self._type):
            if self._offset[place] >= self._records.limit:
                break
            if not self._is_tombstone[place]:
                continue
            of_place = list(self._of_tombstone(place)) if key_type >= KeyType.GROUP_METADATA else []
            has_risk |= bool(of_place)
            yield from of_place
            if key_type < KeyType.GROUP_METADATA and self._records.is_offset_at_risk[self._rows[place]]:
                yield Cleaning(self._after(place), True)
        if has_risk:
            yield Cleaning(self._records.limit, False)
            yield Cleaning(self._records.limit, True)
        yield from self._of_owners()

    def _after(self, place: int) -> int:
        """Return the end of a cleaner that has cleaned up to and including the record's batch."""
        following = bisect_right(self._batch, self._batch[place])
        return min(self._batch[following] if following < len(self._batch) else self._records.limit, self._records.limit)

    def _before(self, place: int) -> int:
        """Return what a load has read just before the record's batch."""
        return int(self._batch[place])

    def _of_tombstone(self, place: int) -> Iterator[Cleaning]:
        """Cleanings around a tombstone of a group record."""
        records, revived = self._records, self._next[place]
        is_of_member = records.member_ids[self._key[place]] is not None
        ends = [] if is_of_member else [place]
        if revived >= 0:
            # the cleaner removes the tombstone, and what it removed stays in the state of a load that has read it
            yield Cleaning(self._after(revived), False, self._before(place))
            ends.append(revived)
        if is_of_member and self._is_split(place):
            ends.append(place)
        for end in ends:
            for drops in (False, True):
                yield Cleaning(self._after(end), drops)

    def _is_split(self, place: int) -> bool:
        """Return whether the member's metadata is removed in a later batch than its epoch."""
        metadata = _METADATA_OF_EPOCH.get(self._type[place])
        if metadata is None:
            return False
        member_ids = self._records.member_ids
        member = member_ids[self._key[place]]
        for later in range(place + 1, len(self._type)):
            if self._type[later] == metadata and member_ids[self._key[later]] == member:
                return bool(self._is_tombstone[later] and self._batch[later] != self._batch[place])
        return False

    def _of_owners(self) -> Iterator[Cleaning]:
        """Yield loads in which a partition still has its former owner, because the record that gave it up was cleaned away (R-3.14)."""
        owned: dict[int, dict[Any, int]] = {}
        given_up: dict[Any, dict[int, tuple[int, int]]] = defaultdict(dict)
        """Partition -> key of a former owner -> place of the record that gave the partition up, and its epoch until then."""
        for place, key_type in enumerate(self._type):
            if key_type != KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT or self._offset[place] >= self._records.limit:
                continue
            key = self._key[place]
            partitions = self._partitions(place)
            for partition, epoch in owned.get(key, {}).items():
                if partition not in partitions and self._next[place] >= 0:
                    given_up[partition][key] = place, epoch
            for partition, epoch in partitions.items():
                for former, (released, former_epoch) in given_up[partition].items():
                    again = self._next_after(released, place)
                    if former == key or again < 0 or 0 <= self._next[place] <= again:
                        continue
                    is_strict = former_epoch >= epoch or not self._semantics.newer_epoch_takes_partitions_over
                    if is_strict or self._has_metadata_between(former, place, again):
                        yield Cleaning(self._after(again), False, self._before(released))
            owned[key] = partitions

    def _has_metadata_between(self, key: int, begin: int, end: int) -> bool:
        """Return whether a record of the member's metadata lies in between. With it the loader adds the member's partitions again."""
        places = self._metadata.get(self._records.member_ids[key], ())
        following = bisect_right(places, begin)
        return following < len(places) and places[following] < end

    @cached_property
    def _metadata(self) -> dict[str | None, list[int]]:
        """Member id -> places of the records of its metadata."""
        places: dict[str | None, list[int]] = defaultdict(list)
        for place, key_type in enumerate(self._type):
            if key_type == KeyType.CONSUMER_GROUP_MEMBER_METADATA:
                places[self._records.member_ids[self._key[place]]].append(place)
        return places

    def _next_after(self, first: int, place: int) -> int:
        """Return the place of the next record with the key of ``first`` after ``place``, or -1."""
        while 0 <= first <= place:
            first = self._next[first]
        return first

    def _partitions(self, place: int) -> dict[Any, int]:
        """(topic id, partition) -> assignment epoch, of all that the member has or must give up."""
        try:
            value = decode_value(self._type[place], self._records.batch.column("value")[int(self._rows[place])].as_py())
        except DecodeError:
            return {}
        if value is None:
            return {}
        fields = value.fields
        partitions = {}
        for name in ("assigned_partitions", "partitions_pending_revocation"):
            for topic in fields[name]:
                epochs = topic.get("assignment_epochs") or ()
                if len(epochs) != len(topic["partitions"]):
                    epochs = [max(fields["member_epoch"], 0)] * len(topic["partitions"])
                partitions.update({(topic["topic_id"], number): epoch for number, epoch in zip(topic["partitions"], epochs, strict=True)})
        return partitions
