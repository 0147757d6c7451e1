"""Guards: what a dump must not be, so that a bad copy never replaces a good run.

Before anything is read, each guard of GUARDS compares the plan with what the last run left in ``offsets_partitions``, and returns a
refusal, a warning, or nothing. The user goes on past a refusal with ``--accept WORD``. One guard comes after reading and before the commit:
``judge_what_was_read``.

``log_changes`` decides whether a dump is of the log that the last run read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from groupcoord_spark.errors import BadCopyError
from groupcoord_spark.log import LogPlan, PlacedDoubt, leader_epochs_of, log_start_was_moved
from groupcoord_spark.log.broker_dir.broker_files import CLEANER_CHECKPOINT, LEADER_EPOCHS, LOG_STARTS
from groupcoord_spark.log.partition_count import certain_partition_count
from groupcoord_spark.moments import now_ms
from groupcoord_spark.pipeline.accepted import ACCEPTED_WORDS, EARLIER, EMPTY, HOLE, MALFORMED, MISPLACED, MISSING, OLDER, RECREATED
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport
from groupcoord_spark.pipeline.extents import HistoryRange
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory
from groupcoord_spark.pipeline.plan.evidence import Evidence, placed_groups
from groupcoord_spark.pipeline.plan.log_changes import OF_ANOTHER_LOG, ComparedLog, LogChange, Truncation, change_of, compared_logs
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.storage.location import shown
from groupcoord_spark.wording import counted, first_of

CLUSTER_ID_SETTING: Final = "input.cluster.id"
TOPIC_ID_SETTING: Final = "input.topic.id"
PARTITION_COUNT_SETTING: Final = "input.partition.count"
ACCEPTED_SETTING: Final = "accepted"
"""Keys in the column ``settings`` of ``runs``: the ids of the cluster and of the offsets topic as the input has them; the number of
partitions of the offsets topic, where the groups leave no doubt about it; the words of --accept without which the run would have been
refused."""

_NUMBERS_NAMED: Final = 5

_AFTER_MALFORMED: Final = "Export the topic again, or go on with --accept malformed."


@dataclass(frozen=True, slots=True)
class RunRefusal:
    """Why the run must not go on. sentence: the reason and the way out. word: of --accept; None: nothing lets the run go on."""

    sentence: str
    word: str | None = None


@dataclass(frozen=True)
class ComparedRun:
    """A run that the guards compare with earlier runs: its plan, and what earlier runs left.

    Attributes:
        kind: of the input.
        last_run: history of each offsets partition according to the last run; {} for the first run.
        evidence: the records and groups that the dump shows, by offsets partition.
        rows: the number of rows of an input other than segments, including rows read by the last run. faults: the number of malformed rows.
        last_cluster_id, last_topic_id, last_partition_count: what earlier runs of the cluster recorded; None where they did not know.
        last_as_of_ms: as_of of the last run; None for the first run.
        last_kind: of the input of the cluster's last run; None for the first run.
    """

    request: RunRequest
    plan: LogPlan
    kind: InputKind
    last_run: Mapping[int, PartitionHistory]
    evidence: Mapping[int, Evidence]
    rows: int = 0
    faults: int = 0
    last_cluster_id: str | None = None
    last_topic_id: str | None = None
    last_partition_count: int | None = None
    last_as_of_ms: int | None = None
    last_kind: str | None = None

    @property
    def source(self) -> str:
        """The inputs, for a sentence."""
        return _shown_inputs(self.request)

    def evidence_of(self, offsets_partition: int) -> Evidence:
        """Return the evidence of an offsets partition in the copy."""
        return self.evidence.get(offsets_partition, Evidence())

    @cached_property
    def placed_groups(self) -> list[tuple[int, int]]:
        """(hash of the group id, offsets partition of the group) of some groups of the dump."""
        return placed_groups(self.evidence)

    @cached_property
    def compared(self) -> dict[int, ComparedLog]:
        """Offsets partition -> its log in the copy and its history, for partitions that both have."""
        ids = (self.plan.topic_id, self.last_topic_id)
        is_same_topic = None if None in ids else ids[0] == ids[1]
        has_ends = self.kind in (InputKind.SEGMENTS, InputKind.KAFKA)
        return compared_logs(self.plan, self.last_run, self.evidence, is_same_topic=is_same_topic, has_ends=has_ends)

    @cached_property
    def changes(self) -> dict[int, LogChange]:
        """Offsets partition -> what happened to its log since the last run."""
        return {number: change_of(compared) for number, compared in self.compared.items()}

    def _changed(self, *changes: LogChange) -> list[int]:
        return [number for number, change in self.changes.items() if change in changes]

    @cached_property
    def read_last_run(self) -> list[int]:
        """The offsets partitions that the last run had, or carried over."""
        return sorted(number for number, history in self.last_run.items() if history.first_offset is not None)

    @cached_property
    def has_no_record(self) -> bool:
        """No log of the dump has anything to read."""
        return all(log.first_offset is None for log in self.plan.partitions)

    @cached_property
    def other_logs(self) -> list[int]:
        """Return the offsets partitions with a different log than the last run's, including empty ones."""
        others = self._changed(*OF_ANOTHER_LOG)
        return sorted({*others, *self._changed(LogChange.EMPTIED)}) if others else []

    @cached_property
    def missing(self) -> list[int]:
        """The offsets partitions that the last run had, and that are not in the dump, or only as an empty directory."""
        in_dump = {log.offsets_partition for log in self.plan.partitions} - set(self._changed(LogChange.EMPTIED))
        return [number for number in self.read_last_run if number not in in_dump and number not in self.other_logs]

    @cached_property
    def older(self) -> list[int]:
        """The offsets partitions of the same log that end before the last run's end, or end with other records."""
        return self._changed(LogChange.OLDER, LogChange.END_REPLACED)

    @cached_property
    def truncated(self) -> dict[int, Truncation]:
        """Offsets partition -> its truncation, for the partitions whose log was truncated."""
        found = {number: self.compared[number].truncation for number in self._changed(LogChange.TRUNCATED)}
        return {number: truncation for number, truncation in found.items() if truncation is not None}


Doubts = Sequence[PlacedDoubt]
"""The run goes on, with these rows of ``warnings``."""

Guard = Callable[[ComparedRun], RunRefusal | Doubts | None]


def other_origin(run: ComparedRun) -> RunRefusal | None:
    """Earlier runs under this name are not of the same cluster, or not of a log as this one is."""
    cluster_id = cluster_id_of(run.plan, run.kind)
    return refusal_of_origin(run.request, run.kind, cluster_id, last_kind=run.last_kind, last_cluster_id=run.last_cluster_id)


def refusal_of_origin(
    request: RunRequest, kind: InputKind, cluster_id: str | None, *, last_kind: str | None, last_cluster_id: str | None
) -> RunRefusal | None:
    """Return why a run must not follow the cluster's runs, from the kind of both inputs and both Kafka cluster ids alone."""
    source, name = _shown_inputs(request), repr(request.cluster)
    if last_kind is not None and (last_kind == InputKind.ADMIN) != (kind is InputKind.ADMIN):
        earlier, this = ("the log", "the Admin API") if kind is InputKind.ADMIN else ("the Admin API", "the log")
        return RunRefusal(
            f"Earlier runs of cluster {name} are from {earlier}, and {source} is from {this}: neither can go on from the other. Name"
            " another cluster with --cluster NAME."
        )
    if None in (cluster_id, last_cluster_id) or cluster_id == last_cluster_id:
        return None
    return RunRefusal(
        f"{source} is of the cluster with cluster.id {cluster_id!r}, and earlier runs of cluster {name} were of {last_cluster_id!r}. Name"
        " this cluster with --cluster NAME."
    )


def _shown_inputs(request: RunRequest) -> str:
    return ", ".join(map(shown, request.inputs))


def nothing_to_read(run: ComparedRun) -> RunRefusal | None:
    """Refuse a copy without records if the last run had some."""
    if not run.has_no_record or not run.read_last_run:
        return None
    return RunRefusal(
        f"{run.source}: there is no record in {_partitions(len(run.plan.partitions))}, and the last run had records in"
        f" {_partitions(len(run.read_last_run))} ({_numbers(run.read_last_run)}). Copy the dump again, or go on with"
        " --accept empty.",
        EMPTY,
    )


def other_log(run: ComparedRun) -> RunRefusal | None:
    """Refuse another cluster's copy, or a topic that was created again: the copy has different records at the sample offsets."""
    different = [number for number in run.other_logs if run.changes[number] in OF_ANOTHER_LOG]
    if not different:
        return None
    log, history = run.compared[different[0]].log, run.last_run[different[0]]
    first, newest_ms = run.evidence_of(different[0]).first_record, history.newest_timestamp_ms
    example = f"partition {different[0]} ends at offset {log.end_offset} (last run {history.end_offset})"
    if first is not None:
        example += (
            f" and begins with offset {first.record_offset} of {_moment(first.timestamp_ms)} (newest of last run {_moment(newest_ms)})"
        )
    another_cluster = "if this dump is another cluster's, name it with --cluster NAME"
    begun_anew = "if the topic was deleted and created again, go on with --accept recreated"
    is_newer = first is not None and first.timestamp_ms > newest_ms > NO_TIMESTAMP
    ways_out = "; ".join((begun_anew, another_cluster) if is_newer else (another_cluster, begun_anew))
    return RunRefusal(
        f"{run.source} has other records than the last run of cluster {run.request.cluster!r} in"
        f" {_of(len(different), run)} ({_numbers(different)}): {example}. {ways_out[:1].upper()}{ways_out[1:]}.",
        RECREATED,
    )


def older_dump(run: ComparedRun) -> RunRefusal | None:
    """Refuse an older copy of the same log, which ends before the last run's end or with different records."""
    if not run.older:
        return None
    logs = [(number, run.compared[number]) for number in run.older if run.changes[number] is LogChange.OLDER]
    ends = [
        f"{number} at {compared.log.end_offset} (last run {compared.last.end_offset})"
        for number, compared in logs
        if compared.log.end_offset < compared.last.end_offset
    ]
    deposed = [number for number, compared in logs if compared.log.end_offset >= compared.last.end_offset]
    replaced = [number for number in run.older if run.changes[number] is LogChange.END_REPLACED]
    facts = []
    if ends:
        facts.append(f"{_of(len(ends), run)} end before it, {first_of(ends, _NUMBERS_NAMED)}")
    if deposed:
        facts.append(f"{_of(len(deposed), run)} ({_numbers(deposed)}) end with records of an older leader epoch than that run saw")
    if replaced:
        facts.append(f"{_of(len(replaced), run)} ({_numbers(replaced)}) have another record where that run saw its newest one")
    return RunRefusal(
        f"{run.source} is older than the last run of cluster {run.request.cluster!r}, or its end was replaced: {'; '.join(facts)}."
        " Give the newest dump, or go on with --accept older: the state goes back, the history stays.",
        OLDER,
    )


def misplaced_groups(run: ComparedRun) -> RunRefusal | Doubts | None:
    """Refuse a copy whose groups fit another partition count of the offsets topic than the last run's."""
    expected = run.last_partition_count
    placed = [(group_hash, number) for group_hash, number in run.placed_groups if number not in run.other_logs]
    if expected is None or not placed:
        return None
    misplaced = sum(group_hash % expected != number for group_hash, number in placed)
    if not misplaced:
        return None
    tonight = certain_partition_count(placed, 1 + max(number for _, number in placed))
    fit = f"; they fit {tonight} partitions" if tonight is not None else ""
    sentence = (
        f"{run.source}: {misplaced} of {len(placed)} groups looked at are not in the offsets partition that the last run's"
        f" {expected} partitions of the topic give them{fit}."
    )
    if 2 * misplaced > len(placed):
        return RunRefusal(
            f"{sentence} Make sure that the dump is of this cluster and that no directory was renamed, or go on with --accept misplaced.",
            MISPLACED,
        )
    return [PlacedDoubt("partition_count_changed", sentence, run.source, None, 0, 0, None)] if tonight is not None else None


def gap(run: ComparedRun) -> Doubts:
    """Report a log that starts after the last run's end: the records in between were never read."""
    doubts = []
    for number, compared in run.compared.items():
        log, history, first = compared.log, compared.last, compared.log.begin
        if first is None or first <= history.end_offset or run.changes[number] in OF_ANOTHER_LOG or not history.end_offset:
            continue
        detail = (
            f"Offsets {history.end_offset} to {first - 1} lie between the last run's end and the first record of this dump."
            " Compaction or DeleteRecords may have removed them, or the copy lacks segments: the history has nothing of them."
        )
        doubts.append(PlacedDoubt("gap_since_last_night", detail, log.directory, number, 0, 0, history.end_offset))
    return doubts


def short_log(run: ComparedRun) -> Doubts:
    """Report a log without its first segments, if the last run did not have them either; ``hole`` and ``gap`` report the others."""
    doubts = []
    for log in run.plan.partitions:
        first_file = min(log.files, default=0)
        first_of_last_run = run.last_run.get(log.offsets_partition, PartitionHistory()).first_offset
        is_known_to_last_run = first_of_last_run is not None and first_of_last_run < first_file
        if not first_file or is_known_to_last_run or log_start_was_moved(log, leader_epochs_of(log)):
            continue
        detail = (
            f"The first segment begins at offset {first_file}. Compaction never removes the first segment, and neither {LOG_STARTS} nor"
            f" {LEADER_EPOCHS} shows that the broker moved the log start offset there: this copy lacks the segments below. Groups and"
            " offsets whose last record lies there are missing. Copy the partition again with all its files."
        )
        doubts.append(PlacedDoubt("log_begins_late", detail, log.directory, log.offsets_partition, 0, 0, first_file))
    return doubts


def truncated(run: ComparedRun) -> Doubts:
    """Report a partition whose leader changed to a replica with fewer records than the last run read."""
    return [
        PlacedDoubt(
            "log_truncated",
            f"The log lost records that the last run read at the offsets {found.offset} (or below) to {found.end - 1}. They were of"
            f" leader epoch {found.last_epoch}, and the leader of epoch {found.epoch} did not have them: see"
            " unclean.leader.election.enable, or a disk that lost records. Groups that committed there may read again from older offsets."
            " The log is read from its beginning; the history keeps what the last run read.",
            run.compared[number].log.directory,
            number,
            0,
            0,
            found.offset,
        )
        for number, found in run.truncated.items()
    ]


def cleaned_later(run: ComparedRun) -> RunRefusal | None:
    """Refuse a copy if the broker's cleaner has passed the end of a log: it has removed records whose successors the copy lacks."""
    later = [log for log in run.plan.partitions if run.plan.cleaned_ends.get(log.offsets_partition, 0) > log.end_offset]
    if not later:
        return None
    log = later[0]
    others = f"; so it is with {_partitions(len(later) - 1)} more" if len(later) > 1 else ""
    return RunRefusal(
        f"{log.directory}: the log ends at offset {log.end_offset}, and {CLEANER_CHECKPOINT} says that the log cleaner has been up to"
        f" {run.plan.cleaned_ends[log.offsets_partition]}{others}. The broker was at work while the log was copied,"
        f" and records may be missing: copy again, or remove that file to read the copy as it is."
    )


def malformed_rows(run: ComparedRun) -> RunRefusal | None:
    """Refuse an input if more than half of its rows are malformed."""
    if 2 * run.faults <= run.rows:
        return None
    return RunRefusal(f"{run.source}: {run.faults:,} of {run.rows:,} rows are malformed, more than half. {_AFTER_MALFORMED}", MALFORMED)


def earlier_as_of(run: ComparedRun) -> RunRefusal | None:
    """Refuse an as-of time before the last run's, because the run would follow it."""
    ways_out = f"Give --as-of that moment or a later one, look back with --until {_moment(run.request.as_of_ms)}"
    return refusal_of_moment(run.request, run.last_as_of_ms, ways_out)


def refusal_of_moment(request: RunRequest, last_as_of_ms: int | None, ways_out: str) -> RunRefusal | None:
    """Return why a run must not follow a run with a later as-of time. ``ways_out`` is a clause with the remedy."""
    if last_as_of_ms is None or request.as_of_ms >= last_as_of_ms:
        return None
    not_yet = ", which has not come yet" if last_as_of_ms > now_ms() else ""
    return RunRefusal(
        f"This run is as of {_moment(request.as_of_ms)}, and the last run of cluster {request.cluster!r} as of"
        f" {_moment(last_as_of_ms)}{not_yet}: `diff` and the views over runs would run backwards. {ways_out}, or go on with --accept"
        " earlier.",
        EARLIER,
    )


GUARDS: Final[tuple[Guard, ...]] = (
    *(other_origin, malformed_rows, nothing_to_read, other_log, older_dump, truncated),
    *(cleaned_later, misplaced_groups, gap, short_log, earlier_as_of),
)
"""All guards before reading. The first refusal ends the run."""

GUARDS_OF_A_POINT_IN_TIME: Final[tuple[Guard, ...]] = (other_origin, other_log, short_log)
"""With --until the state of an earlier moment is wanted: an older or a partial dump will do, another log will not."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the guards let a run do.

    Attributes:
        plan: the plan with the doubts of the guards, without the partitions that count as missing.
        missing: offsets partitions that the last run had and this dump has not; their state is carried over.
        changes: what happened to the log of each offsets partition since the last run.
        older: offsets partitions whose state goes back. recreated: offsets partitions that begin a new incarnation. Of both, nothing of
            last run's state can be used.
        accepted: the words of --accept without which the run would have been refused, or would have carried over missing partitions.
        remarks: a sentence about each of these words, for the summary.
    """

    plan: LogPlan
    missing: tuple[int, ...] = ()
    changes: Mapping[int, LogChange] = field(default_factory=dict)
    older: frozenset[int] = frozenset()
    recreated: frozenset[int] = frozenset()
    accepted: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def accepting(self, word: str, run: ComparedRun) -> "Verdict":
        """Return the verdict if the user accepts one more word."""
        return replace(self, accepted=(*self.accepted, word), remarks=(*self.remarks, _remark(word, run)))

    def histories(self, last_run: Mapping[int, PartitionHistory]) -> dict[int, PartitionHistory]:
        """Return the partition histories; of a topic that was created again only the number of its new incarnation."""
        incarnations = {number: last_run[number].history_range.incarnation + 1 for number in self.recreated}
        return {**last_run, **{number: PartitionHistory(HistoryRange(one, 0, 0)) for number, one in incarnations.items()}}


def judge(run: ComparedRun) -> Verdict:
    """Return the verdict on the run. Raises BadCopyError, one sentence, if a guard refuses the copy and the user has not accepted that."""
    is_point_in_time = run.request.until is not None
    accepted: list[str] = []
    doubts: list[PlacedDoubt] = []
    for guard in GUARDS_OF_A_POINT_IN_TIME if is_point_in_time else GUARDS:
        finding = guard(run)
        if not isinstance(finding, RunRefusal):
            doubts += finding or ()
            continue
        if finding.word not in run.request.accepted:
            raise BadCopyError(finding.sentence)
        accepted.append(str(finding.word))
    missing = [] if is_point_in_time or EMPTY in accepted else run.missing
    if missing and MISSING in run.request.accepted:
        missing = []
        accepted.append(MISSING)
    partitions = tuple(log for log in run.plan.partitions if log.offsets_partition not in missing)
    return Verdict(
        replace(run.plan, partitions=partitions, doubts=(*run.plan.doubts, *doubts)),
        tuple(missing),
        run.changes,
        frozenset(() if is_point_in_time else run.older),
        frozenset(run.other_logs),
        tuple(accepted),
        tuple(_remark(word, run) for word in accepted),
    )


def belongs_to(plan: LogPlan, last_run: Mapping[int, PartitionHistory], evidence: Mapping[int, Evidence]) -> bool:
    """Return whether the copy shares a record with the cluster's last run and no record contradicts it."""
    compared = compared_logs(plan, last_run, evidence).values()
    return any(log.shows_same_topic for log in compared) and LogChange.RECREATED not in map(change_of, compared)


def cluster_id_of(plan: LogPlan, kind: InputKind) -> str | None:
    """Kafka's id of the cluster; None where the input does not have it. Rows of files have the name of a cluster, not the id."""
    return plan.cluster_id if kind in (InputKind.SEGMENTS, InputKind.KAFKA) else None


def judge_what_was_read(run: ComparedRun, verdict: Verdict, reports: Sequence[PartitionReport]) -> Verdict:
    """Return the verdict after reading: refused if the log has a hole, or if more than half of the rows or lines are quarantined.

    Segments are never refused for quarantined records: their damage is counted by byte ranges, not by records, and a copy with little left
    ends before the last run's end.

    Raises:
        BadCopyError: more than half of the rows are quarantined, or the log has a hole, and the user has not accepted that.
    """
    if EMPTY not in verdict.accepted and (finding := hole(run, reports)) is not None:
        if HOLE not in run.request.accepted:
            raise BadCopyError(finding.sentence)
        verdict = verdict.accepting(HOLE, run)
    records = max(run.rows, sum(report.counts.records for report in reports))
    quarantined = sum(report.counts.quarantined for report in reports)
    if run.kind is InputKind.SEGMENTS or 2 * quarantined <= records or MALFORMED in verdict.accepted:
        return verdict
    reasons: Counter[str] = Counter()
    for report in reports:
        reasons.update(report.counts.reasons)
    if MALFORMED not in run.request.accepted:
        counts = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common())
        raise BadCopyError(
            f"{run.source}: {quarantined:,} of {records:,} rows are malformed, more than half ({counts}). {_AFTER_MALFORMED}"
        )
    return verdict.accepting(MALFORMED, run)


def hole(run: ComparedRun, reports: Sequence[PartitionReport]) -> RunRefusal | None:
    """No live record of the last run is left in a range of offsets, and no cleaning explains that.

    Such a range is at the front where the log begins later than it did and the broker has not moved its log start offset. In the midst it
    is one with keys of several groups, while tombstones of that run's time cannot have been cleaned yet.
    """
    logs = {log.offsets_partition: log for log in run.plan.partitions}
    request, last_ms = run.request, run.last_as_of_ms
    is_young = last_ms is not None and request.as_of_ms - last_ms <= request.delete_retention.ms
    for report in sorted(reports, key=lambda report: report.offsets_partition):
        vanished, log = report.vanished, logs.get(report.offsets_partition)
        if vanished is None or vanished.is_kept or log is None or log.offsets_partition in run.truncated:
            continue
        first = run.last_run[log.offsets_partition].first_offset
        begin = log.log_start_offset
        if begin is not None and first is not None and first <= vanished.first_offset < begin:
            if log_start_was_moved(log, leader_epochs_of(log)):
                continue
            missing = (first, begin - 1)
        elif is_young and vanished.groups_in_run > 1:
            missing = vanished.run
        else:
            continue
        return RunRefusal(
            f"{log.directory}: of the offsets {missing[0]} to {missing[1]}, which the last run read, no live record is left:"
            f" {vanished.keys:,} of its {vanished.live_keys:,} live keys (of {vanished.groups}) lost their record, with neither a later one"
            " nor a tombstone. The copy lacks segments, or files of it are empty or cut. Copy again, or go on with --accept hole.",
            HOLE,
        )
    return None


def _remark(word: str, run: ComparedRun) -> str:
    numbers = {MISSING: run.missing, OLDER: run.older, RECREATED: run.other_logs}.get(word)
    which = f" ({_partitions(len(numbers))}: {_numbers(numbers)})" if numbers else ""
    return f"{word}{which}: {ACCEPTED_WORDS[word][0].lower()}{ACCEPTED_WORDS[word][1:]}"


def _of(count: int, run: ComparedRun) -> str:
    return f"{count} of {_partitions(len(run.compared))}"


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
