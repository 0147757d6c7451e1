"""Guards: what a dump must not be, so that a bad copy never replaces a good night.

Before anything is read, each guard of GUARDS compares the plan with what the last night left in ``offsets_partitions``, and returns a
refusal, a warning, or nothing. The user goes on past a refusal with ``--accept WORD``. One guard comes after reading and before the commit:
``judge_what_was_read``.

Whether two dumps are of one log is judged by records that both have, because compaction rewrites files and batches and removes records:
a record that both have at one offset is the same in dumps of one log, and another in dumps of different logs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum, auto
from functools import cached_property
from typing import Final

from groupcoord_spark.errors import BadCopyError
from groupcoord_spark.log import LogPlan, PartitionLog, PlacedDoubt
from groupcoord_spark.log.files.broker_files import CLEANER_CHECKPOINT, first_epoch_offset
from groupcoord_spark.log.files.storage import Location, shown
from groupcoord_spark.log.partition_count import certain_partition_count
from groupcoord_spark.moments import now_ms
from groupcoord_spark.pipeline.accepted import ACCEPTED_WORDS, EARLIER, EMPTY, HOLE, MALFORMED, MISPLACED, MISSING, OLDER, RECREATED
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport
from groupcoord_spark.pipeline.extents import HistoryRange
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory
from groupcoord_spark.pipeline.plan.evidence import Evidence, placed_groups
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.wording import counted, first_of

CLUSTER_ID_SETTING: Final = "input.cluster.id"
PARTITION_COUNT_SETTING: Final = "input.partition.count"
ACCEPTED_SETTING: Final = "accepted"
"""Keys in the column ``settings`` of ``runs``: the id of the cluster as the input has it; the number of partitions of the offsets topic,
where the groups leave no doubt about it; the words of --accept without which the run would have been refused."""

_NUMBERS_NAMED: Final = 5

_AFTER_MALFORMED: Final = "Export the topic again, or go on with --accept malformed."

_CLOCKS_DIFFER_MS: Final = 3_600_000
"""An hour: the clocks of brokers do not differ more."""


class Likeness(Enum):
    """What the records of a dump say about one offsets partition, compared with the records that the last night remembers."""

    SAME_LOG = auto()
    SAME_BEGINNING = auto()
    """The log begins with the same record, but has another record where the last night saw its newest one."""
    OTHER_LOG = auto()
    ODD = auto()
    """No remembered record is left, and the order of offsets and times is not what a cleaning leaves. Replicas that were cleaned at
    different times can show that, too: it counts only in a dump of which no partition is of the same log."""
    UNKNOWN = auto()
    """Compaction has removed the remembered records, or the last night remembers none."""


@dataclass(frozen=True, slots=True)
class RunRefusal:
    """Why the run must not go on. sentence: the reason and the way out. word: of --accept; None: nothing lets the run go on."""

    sentence: str
    word: str | None = None


@dataclass(frozen=True)
class ComparedNight:
    """A night that the guards compare with earlier nights: its plan, and what earlier nights left.

    Attributes:
        kind: of the input.
        last_night: what the last night knows of each offsets partition; {} for the first night.
        evidence: the records and groups that the dump shows, by offsets partition.
        rows: the number of rows of an input other than segments, with those that the last night has read. faults: how many of these rows
            are no records.
        last_cluster_id, last_partition_count: what earlier nights of the cluster recorded; None where they did not know.
        last_as_of_ms: as_of of the last night; None for the first night.
        last_kind: of the input of the cluster's last run; None for the first run.
    """

    request: RunRequest
    plan: LogPlan
    kind: InputKind
    last_night: Mapping[int, PartitionHistory]
    evidence: Mapping[int, Evidence]
    rows: int = 0
    faults: int = 0
    last_cluster_id: str | None = None
    last_partition_count: int | None = None
    last_as_of_ms: int | None = None
    last_kind: str | None = None

    @property
    def source(self) -> str:
        """The inputs, for a sentence."""
        return _shown_inputs(self.request)

    def evidence_of(self, offsets_partition: int) -> Evidence:
        """The records that the dump shows of an offsets partition."""
        return self.evidence.get(offsets_partition, Evidence())

    @cached_property
    def placed_groups(self) -> list[tuple[int, int]]:
        """(hash of the group id, offsets partition of the group) of some groups of the dump."""
        return placed_groups(self.evidence)

    @cached_property
    def compared(self) -> dict[int, tuple[PartitionLog, PartitionHistory, Likeness]]:
        """Offsets partition -> its log in the dump, what the last night knows, and their likeness, for the partitions of both."""
        logs = {log.offsets_partition: log for log in self.plan.partitions}
        likenesses = likenesses_of(self.last_night, {number: self.evidence_of(number) for number in logs})
        return {number: (log, self.last_night[number], likenesses[number]) for number, log in logs.items() if number in likenesses}

    @cached_property
    def read_last_night(self) -> list[int]:
        """The offsets partitions that the last night had, or carried over."""
        return sorted(number for number, history in self.last_night.items() if history.first_offset is not None)

    @cached_property
    def has_no_record(self) -> bool:
        """No log of the dump has anything to read."""
        return all(log.first_offset is None for log in self.plan.partitions)

    @cached_property
    def other_logs(self) -> list[int]:
        """The offsets partitions whose log is another one than last night's, with those that are empty beside them."""
        others = [number for number, (_, _, likeness) in self.compared.items() if likeness is Likeness.OTHER_LOG]
        return sorted({*others, *self._emptied}) if others else []

    @cached_property
    def missing(self) -> list[int]:
        """The offsets partitions that the last night had, and that are not in the dump, or only as an empty directory."""
        in_dump = {log.offsets_partition for log in self.plan.partitions} - set(self._emptied)
        return [number for number in self.read_last_night if number not in in_dump and number not in self.other_logs]

    @cached_property
    def older(self) -> list[int]:
        """The offsets partitions of the same log that end before the last night's end, or end with other records."""
        return [
            number
            for number, (log, history, likeness) in self.compared.items()
            if number not in self._emptied
            and (
                likeness is Likeness.SAME_BEGINNING
                or (likeness is not Likeness.OTHER_LOG and log.end_offset < history.end_offset and self._ends_too_early(number, history))
            )
        ]

    @cached_property
    def _emptied(self) -> list[int]:
        """The offsets partitions with nothing to read that had records in the last night."""
        return [
            number
            for number, (log, history, _) in self.compared.items()
            if log.first_offset is None and log.end_offset < history.end_offset
        ]

    def _ends_too_early(self, number: int, history: PartitionHistory) -> bool:
        """The end offset of the partition, which is lower than the last night's, means that records are missing there.

        Rows of files do not tell the end of the log, only the last record. Markers may not be among the rows, and compaction may have
        removed the last record. Then the dump is older only if it has no record that is newer than the last night.
        """
        if self.kind in (InputKind.SEGMENTS, InputKind.KAFKA):
            return True
        newest = history.newest_record
        if newest is not None and self.evidence_of(number).record_at(newest.record_offset) is not None:
            return False
        newest_of_last_night = max(history.newest_timestamp_ms for history in self.last_night.values())
        marks = [evidence.newest_record for evidence in self.evidence.values()]
        return all(mark is None or mark.timestamp_ms <= newest_of_last_night for mark in marks)


Doubts = Sequence[PlacedDoubt]
"""The run goes on, with these rows of ``warnings``."""

Guard = Callable[[ComparedNight], RunRefusal | Doubts | None]


def likenesses_of(last_night: Mapping[int, PartitionHistory], evidence: Mapping[int, Evidence]) -> dict[int, Likeness]:
    """Offsets partition -> likeness, for those of both nights. ODD becomes OTHER_LOG, or UNKNOWN if a partition is of the same log."""
    likenesses = {number: likeness_of(history, evidence[number]) for number, history in last_night.items() if number in evidence}
    is_known = not {Likeness.SAME_LOG, Likeness.SAME_BEGINNING}.isdisjoint(likenesses.values())
    odd = Likeness.UNKNOWN if is_known else Likeness.OTHER_LOG
    return {number: odd if likeness is Likeness.ODD else likeness for number, likeness in likenesses.items()}


def likeness_of(history: PartitionHistory, evidence: Evidence) -> Likeness:
    """How like one offsets partition is to the last night's: by the remembered records, else by the time of the first record."""
    newest, first = history.newest_record, history.first_record
    at_newest = evidence.record_at(newest.record_offset) if newest is not None else None
    at_first = evidence.record_at(first.record_offset) if first is not None else None
    if newest is not None and at_newest is not None and at_newest.is_same(newest):
        return Likeness.SAME_LOG
    if first is not None and at_first is not None and at_first.is_same(first):
        return Likeness.SAME_LOG if at_newest is None else Likeness.SAME_BEGINNING
    if at_newest is not None or at_first is not None:
        return Likeness.OTHER_LOG
    # The last night has seen every record below its end: none of them can be newer than the newest.
    first_of_dump = evidence.first_record
    is_begun_anew = (
        first_of_dump is not None
        and first_of_dump.record_offset < history.end_offset
        and first_of_dump.timestamp_ms > history.newest_timestamp_ms > NO_TIMESTAMP
    )
    if is_begun_anew:
        return Likeness.OTHER_LOG
    return Likeness.ODD if _is_odd(history, evidence) else Likeness.UNKNOWN


def _is_odd(history: PartitionHistory, evidence: Evidence) -> bool:
    """The first record lies below last night's, or the first or the newest record is much older than last night's at a lower offset.

    A cleaning never adds records, and the coordinator writes records in the order of time, as far as the clocks of the brokers agree.
    """
    first, newest = (history.first_record, evidence.first_record), (history.newest_record, evidence.newest_record)
    remembered_first, first_record = first
    if remembered_first is not None and first_record is not None and first_record.record_offset < remembered_first.record_offset:
        return True
    return any(
        remembered is not None
        and record is not None
        and record.record_offset > remembered.record_offset
        and remembered.timestamp_ms - _CLOCKS_DIFFER_MS > record.timestamp_ms > NO_TIMESTAMP
        for remembered, record in (first, newest)
    )


def other_origin(night: ComparedNight) -> RunRefusal | None:
    """Earlier nights under this name are not of the same cluster, or not of a log as this one is."""
    cluster_id = cluster_id_of(night.plan, night.kind)
    return refusal_of_origin(night.request, night.kind, cluster_id, last_kind=night.last_kind, last_cluster_id=night.last_cluster_id)


def refusal_of_origin(
    request: RunRequest, kind: InputKind, cluster_id: str | None, *, last_kind: str | None, last_cluster_id: str | None
) -> RunRefusal | None:
    """Why a night must not follow the nights of its cluster, from the kind of both inputs and Kafka's ids of both clusters alone."""
    source, name = _shown_inputs(request), repr(request.cluster)
    if last_kind is not None and (last_kind == InputKind.ADMIN) != (kind is InputKind.ADMIN):
        earlier, this = ("the log", "the Admin API") if kind is InputKind.ADMIN else ("the Admin API", "the log")
        return RunRefusal(
            f"Earlier nights of cluster {name} are from {earlier}, and {source} is from {this}: neither can go on from the other. Name"
            " another cluster with --cluster NAME."
        )
    if None in (cluster_id, last_cluster_id) or cluster_id == last_cluster_id:
        return None
    return RunRefusal(
        f"{source} is of the cluster with cluster.id {cluster_id!r}, and earlier nights of cluster {name} were of {last_cluster_id!r}. Name"
        " this cluster with --cluster NAME."
    )


def _shown_inputs(request: RunRequest) -> str:
    return ", ".join(map(shown, request.inputs))


def nothing_to_read(night: ComparedNight) -> RunRefusal | None:
    """The dump has no record, and the last night had some."""
    if not night.has_no_record or not night.read_last_night:
        return None
    return RunRefusal(
        f"{night.source}: there is no record in {_partitions(len(night.plan.partitions))}, and the last night had records in"
        f" {_partitions(len(night.read_last_night))} ({_numbers(night.read_last_night)}). Copy the dump again, or go on with"
        " --accept empty.",
        EMPTY,
    )


def other_log(night: ComparedNight) -> RunRefusal | None:
    """Another cluster's dump, or a topic begun anew: the dump has other records at the offsets of last night's records."""
    different = [number for number in night.other_logs if night.compared[number][2] is Likeness.OTHER_LOG]
    if not different:
        return None
    log, history, _ = night.compared[different[0]]
    first, newest_ms = night.evidence_of(different[0]).first_record, history.newest_timestamp_ms
    example = f"partition {different[0]} ends at offset {log.end_offset} (last night {history.end_offset})"
    if first is not None:
        example += (
            f" and begins with offset {first.record_offset} of {_moment(first.timestamp_ms)} (newest of last night {_moment(newest_ms)})"
        )
    another_cluster = "if this dump is another cluster's, name it with --cluster NAME"
    begun_anew = "if the topic was deleted and created again, go on with --accept recreated"
    is_newer = first is not None and first.timestamp_ms > newest_ms > NO_TIMESTAMP
    ways_out = "; ".join((begun_anew, another_cluster) if is_newer else (another_cluster, begun_anew))
    return RunRefusal(
        f"{night.source} has other records than the last night of cluster {night.request.cluster!r} in"
        f" {_of(len(different), night)} ({_numbers(different)}): {example}. {ways_out[:1].upper()}{ways_out[1:]}.",
        RECREATED,
    )


def older_dump(night: ComparedNight) -> RunRefusal | None:
    """The dump is of the same log, and ends before the last night's end, or with other records."""
    if not night.older:
        return None
    logs = {number: night.compared[number] for number in night.older}
    ends = [
        f"{number} at {log.end_offset} (last night {history.end_offset})"
        for number, (log, history, likeness) in logs.items()
        if likeness is not Likeness.SAME_BEGINNING
    ]
    replaced = [number for number, (_, _, likeness) in logs.items() if likeness is Likeness.SAME_BEGINNING]
    facts = []
    if ends:
        facts.append(f"{_of(len(ends), night)} end before it, {first_of(ends, _NUMBERS_NAMED)}")
    if replaced:
        facts.append(f"{_of(len(replaced), night)} ({_numbers(replaced)}) have another record where that night saw its newest one")
    return RunRefusal(
        f"{night.source} is older than the last night of cluster {night.request.cluster!r}, or its end was replaced: {'; '.join(facts)}."
        " Give the newest dump, or go on with --accept older: the state goes back, the history stays.",
        OLDER,
    )


def misplaced_groups(night: ComparedNight) -> RunRefusal | Doubts | None:
    """The groups of the dump fit another partition count of the offsets topic than last night's."""
    expected = night.last_partition_count
    placed = [(group_hash, number) for group_hash, number in night.placed_groups if number not in night.other_logs]
    if expected is None or not placed:
        return None
    misplaced = sum(group_hash % expected != number for group_hash, number in placed)
    if not misplaced:
        return None
    tonight = certain_partition_count(placed, 1 + max(number for _, number in placed))
    fit = f"; they fit {tonight} partitions" if tonight is not None else ""
    sentence = (
        f"{night.source}: {misplaced} of {len(placed)} groups looked at are not in the offsets partition that the last night's"
        f" {expected} partitions of the topic give them{fit}."
    )
    if 2 * misplaced > len(placed):
        return RunRefusal(
            f"{sentence} Make sure that the dump is of this cluster and that no directory was renamed, or go on with --accept misplaced.",
            MISPLACED,
        )
    return [PlacedDoubt("partition_count_changed", sentence, night.source, None, 0, 0, None)] if tonight is not None else None


def gap(night: ComparedNight) -> Doubts:
    """The log begins after the last night's end: records between were never seen."""
    doubts = []
    for number, (log, history, likeness) in night.compared.items():
        first = log.log_start_offset if log.log_start_offset is not None else log.first_offset
        if first is None or first <= history.end_offset or likeness is Likeness.OTHER_LOG or not history.end_offset:
            continue
        detail = (
            f"Offsets {history.end_offset} to {first - 1} lie between the last night's end and the first record of this dump."
            " Compaction or DeleteRecords may have removed them, or the copy lacks segments: the history has nothing of them."
        )
        doubts.append(PlacedDoubt("gap_since_last_night", detail, log.directory, number, 0, 0, history.end_offset))
    return doubts


def cleaned_later(night: ComparedNight) -> RunRefusal | None:
    """The broker's cleaner has been beyond the end of a log: it has removed records whose later ones this copy does not have."""
    later = [log for log in night.plan.partitions if night.plan.cleaned_ends.get(log.offsets_partition, 0) > log.end_offset]
    if not later:
        return None
    log = later[0]
    others = f"; so it is with {_partitions(len(later) - 1)} more" if len(later) > 1 else ""
    return RunRefusal(
        f"{log.directory}: the log ends at offset {log.end_offset}, and {CLEANER_CHECKPOINT} says that the log cleaner has been up to"
        f" {night.plan.cleaned_ends[log.offsets_partition]}{others}. The broker was at work while the log was copied,"
        f" and records may be missing: copy again, or remove that file to read the copy as it is."
    )


def malformed_rows(night: ComparedNight) -> RunRefusal | None:
    """More than half of the rows are no records."""
    if 2 * night.faults <= night.rows:
        return None
    return RunRefusal(
        f"{night.source}: {night.faults:,} of {night.rows:,} rows are malformed, more than half. {_AFTER_MALFORMED}", MALFORMED
    )


def earlier_as_of(night: ComparedNight) -> RunRefusal | None:
    """The night is as of a moment before the last night's, and would stand behind it."""
    ways_out = f"Give --as-of that moment or a later one, look back with --until {_moment(night.request.as_of_ms)}"
    return refusal_of_moment(night.request, night.last_as_of_ms, ways_out)


def refusal_of_moment(request: RunRequest, last_as_of_ms: int | None, ways_out: str) -> RunRefusal | None:
    """Why a night must not follow a night of a later moment. ways_out: what to do instead, as a clause."""
    if last_as_of_ms is None or request.as_of_ms >= last_as_of_ms:
        return None
    not_yet = ", which has not come yet" if last_as_of_ms > now_ms() else ""
    return RunRefusal(
        f"This night is as of {_moment(request.as_of_ms)}, and the last night of cluster {request.cluster!r} as of"
        f" {_moment(last_as_of_ms)}{not_yet}: `diff` and the views over nights would run backwards. {ways_out}, or go on with --accept"
        " earlier.",
        EARLIER,
    )


GUARDS: Final[tuple[Guard, ...]] = (
    *(other_origin, malformed_rows, nothing_to_read, other_log, older_dump, cleaned_later, misplaced_groups, gap, earlier_as_of),
)
"""All guards before reading. The first refusal ends the run."""

GUARDS_OF_A_LOOK_BACK: Final[tuple[Guard, ...]] = (other_origin, other_log)
"""With --until the state of an earlier moment is wanted: an older or a partial dump will do, another log will not."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the guards let a run do.

    Attributes:
        plan: the plan with the doubts of the guards, without the partitions that count as missing.
        missing: offsets partitions that the last night had and this dump has not; their state is carried over.
        older: offsets partitions whose state goes back. recreated: offsets partitions that begin a new incarnation. Of both, nothing of
            last night's state can be used.
        accepted: the words of --accept without which the run would have been refused, or would have carried over missing partitions.
        remarks: a sentence about each of these words, for the summary.
    """

    plan: LogPlan
    missing: tuple[int, ...] = ()
    older: frozenset[int] = frozenset()
    recreated: frozenset[int] = frozenset()
    accepted: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def accepting(self, word: str, night: ComparedNight) -> Verdict:
        """The verdict where the user has accepted one thing more."""
        return replace(self, accepted=(*self.accepted, word), remarks=(*self.remarks, _remark(word, night)))

    def histories(self, last_night: Mapping[int, PartitionHistory]) -> dict[int, PartitionHistory]:
        """What earlier runs know of each offsets partition; of a topic that was begun anew only the number of its new incarnation."""
        incarnations = {number: last_night[number].history_range.incarnation + 1 for number in self.recreated}
        return {**last_night, **{number: PartitionHistory(HistoryRange(one, 0, 0)) for number, one in incarnations.items()}}


def judge(night: ComparedNight) -> Verdict:
    """What the run may do. Raises BadCopyError, one sentence, where a guard refuses the dump and the user has not accepted that."""
    is_look_back = night.request.until is not None
    accepted: list[str] = []
    doubts: list[PlacedDoubt] = []
    for guard in GUARDS_OF_A_LOOK_BACK if is_look_back else GUARDS:
        finding = guard(night)
        if not isinstance(finding, RunRefusal):
            doubts += finding or ()
            continue
        if finding.word not in night.request.accepted:
            raise BadCopyError(finding.sentence)
        accepted.append(str(finding.word))
    missing = [] if is_look_back or EMPTY in accepted else night.missing
    if missing and MISSING in night.request.accepted:
        missing = []
        accepted.append(MISSING)
    partitions = tuple(log for log in night.plan.partitions if log.offsets_partition not in missing)
    return Verdict(
        replace(night.plan, partitions=partitions, doubts=(*night.plan.doubts, *doubts)),
        tuple(missing),
        frozenset(() if is_look_back else night.older),
        frozenset(night.other_logs),
        tuple(accepted),
        tuple(_remark(word, night) for word in accepted),
    )


def belongs_to(last_night: Mapping[int, PartitionHistory], evidence: Mapping[int, Evidence]) -> bool:
    """The dump shows a record of the cluster whose last night is given, and no record that contradicts that night."""
    likenesses = set(likenesses_of(last_night, evidence).values())
    return Likeness.SAME_LOG in likenesses and Likeness.OTHER_LOG not in likenesses


def cluster_id_of(plan: LogPlan, kind: InputKind) -> str | None:
    """Kafka's id of the cluster; None where the input does not have it. Rows of files have the name of a cluster, not the id."""
    return plan.cluster_id if kind in (InputKind.SEGMENTS, InputKind.KAFKA) else None


def judge_what_was_read(night: ComparedNight, verdict: Verdict, reports: Sequence[PartitionReport]) -> Verdict:
    """The verdict after reading: a refusal where the log has a hole, or where more than half of the rows or lines are quarantined.

    Segments are never refused for that: their damage is counted by ranges of bytes, not by records, and a dump of segments of which little
    is left ends before the last night's end.

    Raises:
        BadCopyError: more than half of the rows are quarantined, or the log has a hole, and the user has not accepted that.
    """
    if EMPTY not in verdict.accepted and (finding := hole(night, reports)) is not None:
        if HOLE not in night.request.accepted:
            raise BadCopyError(finding.sentence)
        verdict = verdict.accepting(HOLE, night)
    records = max(night.rows, sum(report.counts.records for report in reports))
    quarantined = sum(report.counts.quarantined for report in reports)
    if night.kind is InputKind.SEGMENTS or 2 * quarantined <= records or MALFORMED in verdict.accepted:
        return verdict
    reasons: Counter[str] = Counter()
    for report in reports:
        reasons.update(report.counts.reasons)
    if MALFORMED not in night.request.accepted:
        counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
        raise BadCopyError(
            f"{night.source}: {quarantined:,} of {records:,} rows are malformed, more than half ({counts}). {_AFTER_MALFORMED}"
        )
    return verdict.accepting(MALFORMED, night)


def hole(night: ComparedNight, reports: Sequence[PartitionReport]) -> RunRefusal | None:
    """No live record of the last night is left in a range of offsets, and no cleaning explains that.

    Such a range is at the front where the log begins later than it did and the broker has not moved its log start offset. In the midst it
    is one with keys of several groups, while tombstones of that night's time cannot have been cleaned yet.
    """
    logs = {log.offsets_partition: log for log in night.plan.partitions}
    request, last_ms = night.request, night.last_as_of_ms
    is_young = last_ms is not None and request.as_of_ms - last_ms <= request.delete_retention.ms
    for report in sorted(reports, key=lambda report: report.offsets_partition):
        vanished, log = report.vanished, logs.get(report.offsets_partition)
        if vanished is None or vanished.is_kept or log is None:
            continue
        first = night.last_night[log.offsets_partition].first_offset
        begin = log.log_start_offset
        if begin is not None and first is not None and first <= vanished.first_offset < begin:
            if log_start_was_moved(log):
                continue
            missing = (first, begin - 1)
        elif is_young and vanished.groups_in_run > 1:
            missing = vanished.run
        else:
            continue
        return RunRefusal(
            f"{log.directory}: of the offsets {missing[0]} to {missing[1]}, which the last night read, no live record is left:"
            f" {vanished.keys:,} of its {vanished.live_keys:,} live keys (of {vanished.groups}) lost their record, with neither a later one"
            " nor a tombstone. The copy lacks segments, or files of it are empty or cut. Copy again, or go on with --accept hole.",
            HOLE,
        )
    return None


def log_start_was_moved(log: PartitionLog) -> bool:
    """The broker lets the log begin there, because of retention or DeleteRecords: its checkpoint or the first leader epoch says so."""
    first_file = min(log.files, default=None)
    if first_file is None or log.log_start_offset is None or not log.segments:
        return False
    return first_file < log.log_start_offset or first_epoch_offset(Location.of(log.segments[0].uri).parent()) == log.log_start_offset


def _remark(word: str, night: ComparedNight) -> str:
    numbers = {MISSING: night.missing, OLDER: night.older, RECREATED: night.other_logs}.get(word)
    which = f" ({_partitions(len(numbers))}: {_numbers(numbers)})" if numbers else ""
    return f"{word}{which}: {ACCEPTED_WORDS[word][0].lower()}{ACCEPTED_WORDS[word][1:]}"


def _of(count: int, night: ComparedNight) -> str:
    return f"{count} of {_partitions(len(night.compared))}"


def _numbers(numbers: Iterable[int]) -> str:
    return first_of(list(map(str, sorted(numbers))), _NUMBERS_NAMED)


def _partitions(count: int) -> str:
    return counted(count, "offsets partition")


def _moment(milliseconds: int) -> str:
    if milliseconds == NO_TIMESTAMP:
        return "an unknown time"
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
