"""State that a run takes over from the last run: its latest records, and the start offset for each log.

Carrying on is right where the last run's state is known to the last detail and every record since is there to be read. Whatever else is
the case, the log is read from its beginning, and the summary says why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.errors import InputChangedError, InputError, WarehouseError
from groupcoord_spark.log import ChangedFiles, LogPlan, PartitionLog, Segment, changed_files, has_every_offset, plan_logs, segments_from
from groupcoord_spark.log.broker_dir.broker_files import OFFSETS_TOPIC
from groupcoord_spark.pipeline.accepted import MISSING
from groupcoord_spark.pipeline.division import in_tasks
from groupcoord_spark.pipeline.exchange.carried_records import LATEST_RECORDS, TOPIC_IDS
from groupcoord_spark.pipeline.extents import CarriedState
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory
from groupcoord_spark.pipeline.plan.guards import Verdict
from groupcoord_spark.pipeline.plan.log_changes import OF_THE_SAME_LOG, LogChange
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.storage.location import shown, side_by_side
from groupcoord_spark.storage.warehouse_location import may_pass
from groupcoord_spark.version import __version__
from groupcoord_spark.warehouse import Run, RunStart, Warehouse
from groupcoord_spark.warehouse.tables import DECODE_COVERAGE, OFFSETS_PARTITIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES_SETTING: Final = "replay.rules"
"""Key in the column ``settings`` of ``runs``: the rules of the replay, as ``rules_of`` writes them."""

SEGMENT_BYTES: Final = "segment_bytes"
"""Column of offsets_partitions: base offset -> bytes of each segment file."""

WALKED_BY_DRIVER_BYTES: Final = 64 << 20
"""Bytes of new batches whose headers the driver looks at itself; it takes less time than a Spark job. The workers look at more."""

_LOST: Final = "the table {} of the last run is lost or damaged"

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CarryOver:
    """What the run takes over.

    run: the run that the state is taken from; None: none is. state: its latest records, of the offsets partitions that go on and of those
    that the input does not have. rows: the run's rows of offsets_partitions of these, with Kafka's values (times as ``<name>_ms``).
    coverage: the run's rows of decode_coverage. counted: offsets partition that is read whole -> the first and the end record offset
    between which records are in these rows. segments: offsets partition that goes on -> the segments to read. stale_since_ms: offsets
    partition that the input does not have -> as_of of the last run that read it. changed: offsets partition that goes on -> the files that
    changed since that run. whole: offsets partition -> why it is read from its beginning. remembered: the latest
    records of the offsets partitions that are read whole although the run has read an earlier state of the same logs. compared: the
    offsets partitions of ``remembered`` whose state a run with --full compares with the state that it reads. gaps: offsets partition -> the
    first and end record offset that no run has read.
    """

    run: Run | None = None
    state: CarriedState | None = None
    rows: Mapping[int, Row] = field(default_factory=dict)
    segments: Mapping[int, tuple[Segment, ...]] = field(default_factory=dict)
    changed: Mapping[int, ChangedFiles] = field(default_factory=dict)
    stale_since_ms: Mapping[int, int] = field(default_factory=dict)
    whole: Mapping[int, str] = field(default_factory=dict)
    remembered: CarriedState | None = None
    compared: frozenset[int] = frozenset()
    gaps: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    coverage: Sequence[Row] = ()
    counted: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def reads_from(self) -> Mapping[int, int]:
        """Offsets partition -> start offset of the incremental read. Others are read from their beginning."""
        return {} if self.state is None else self.state.end_offsets


def rules_of(semantics: Semantics) -> str:
    """Return an identifier of the replay rules: the release and all its semantics. With equal identifiers the same records give the same
    state."""
    values = {column.name: getattr(semantics, column.name) for column in fields(semantics)}
    ordered = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in values.items()}
    return f"{__version__} {semantics.name} {semantics.broker_version} {hashlib.sha256(repr(ordered).encode()).hexdigest()[:16]}"


def ends_of_last_run(warehouse: Warehouse, cluster: str | None) -> dict[int, int]:
    """Offsets partition -> end offset of the last run, where that run kept its latest records; {} where there is no such run.

    cluster: None: the only cluster of the warehouse.
    """
    names = [name for name in warehouse.clusters_with_nightly_runs() if cluster is None or name == cluster]
    if len(names) != 1 or LATEST_RECORDS not in warehouse.run(names[0]).table_versions:
        return {}
    try:
        columns = ["offsets_partition", "end_offset", "latest_records"]
        rows = warehouse.read("offsets_partitions", cluster=names[0], columns=columns).to_pylist()
    except WarehouseError:
        return {}  # the run reports the fault of the warehouse
    return {row["offsets_partition"]: row["end_offset"] for row in rows if row["latest_records"] is not None}


def plan_carry_over(
    request: RunRequest,
    verdict: Verdict,
    start: RunStart,
    histories: Mapping[int, PartitionHistory],
    spark: SparkSession,
    *,
    complete_from: Callable[[Mapping[int, int]], set[int]] | None = None,
) -> CarryOver:
    """Decide for each offsets partition whether the run goes on from the last run or reads the log from its beginning, and why.

    Args:
        verdict: what the guards let the run do. histories: from ``partition_histories``.
        complete_from: by offsets partition and record offset, the partitions with a row for each record offset from that one on; None: the
            input is segments.
    Raises:
        InputError: the input lacks offsets partitions without latest records in the last run.
    """
    run = start.last_run
    logs = {log.offsets_partition: log for log in verdict.plan.partitions}
    if request.until is not None:
        return CarryOver()
    if run is None:
        return CarryOver(whole=dict.fromkeys(logs, "this is the first run of the cluster"))
    coverage = _coverage_of(run, start)
    reason = _why_nothing_is_kept(run, start) or (_LOST.format(DECODE_COVERAGE.name) if coverage is None else None)
    rows: dict[int, Row] = {}
    if not reason:
        listed = OFFSETS_PARTITIONS.to_milliseconds(start.warehouse.read(OFFSETS_PARTITIONS.name, run=run)).to_pylist()
        rows = {row["offsets_partition"]: row for row in listed}
    missing = sorted(verdict.missing)
    _refuse_lost(missing, rows, reason)
    if not reason and run.settings.get(RULES_SETTING) != rules_of(request.semantics):
        reason = f"the last run applied other rules ({run.settings.get(RULES_SETTING, 'of an older release')})"
    whole: dict[int, str] = {}
    ends: dict[int, int] = {}
    gaps: dict[int, tuple[int, int]] = {}
    has_nothing_older: set[int] = set()
    for number, log in logs.items():
        row = rows.get(number)
        accepted = "the dump is older than the last run, which was accepted" if number in verdict.older else None
        change = verdict.changes.get(number, LogChange.CONTINUED)
        why = reason or accepted or _why_whole(request, row, histories.get(number, PartitionHistory()), change)
        if why is None and row is not None:
            ends[number] = row["end_offset"]
            first = log.begin
            if first is not None and first >= row["end_offset"]:
                has_nothing_older.add(number)
            if first is not None and first > row["end_offset"]:
                gaps[number] = (row["end_offset"], first)
        else:
            whole[number] = why or "no earlier run has read them"
    segments, changed = _since_last_run(verdict.plan, rows, ends)
    complete = _complete(logs, ends, segments, spark, verdict.plan.filesystem) if complete_from is None else complete_from(ends)
    # A log without older records has nothing else to read.
    for number in set(ends) - complete - has_nothing_older:
        whole[number] = "the log cleaner has been at work on the records since the last run"
        del ends[number], segments[number]
    compared = frozenset(ends if request.full and not reason else ())
    if request.full and not reason:
        whole, ends, segments, gaps = dict.fromkeys(logs, "--full"), {}, {}, {}
    read_earlier = {
        number: rows[number]["end_offset"]
        for number in whole
        if number in rows and rows[number]["latest_records"] is not None and verdict.changes.get(number) in OF_THE_SAME_LOG
    }
    stale = {number: run.as_of_ms if (since_ms := rows[number]["stale_since_ms"]) is None else since_ms for number in missing}
    ends |= {number: rows[number]["end_offset"] for number in missing}
    read_before = {number: histories[number].read for number in whole if coverage and number in histories}
    return CarryOver(
        run=run if ends else None,
        state=_state_of(run, ends, rows) if ends else None,
        rows={number: rows[number] for number in ends},
        segments=segments,
        changed={number: files for number, files in changed.items() if number in segments},
        stale_since_ms=stale,
        whole=whole,
        compared=compared,
        remembered=_state_of(run, read_earlier, rows) if read_earlier else None,
        gaps=gaps,
        coverage=coverage or (),
        counted={number: offsets for number, offsets in read_before.items() if offsets is not None},
    )


def _coverage_of(run: Run, start: RunStart) -> Sequence[Row] | None:
    """Return the run's rows of decode_coverage, None if they cannot be read, or () if they do not count earlier runs' records."""
    if LATEST_RECORDS not in run.table_versions:  # older releases counted what the run itself read
        return ()
    try:
        return list(start.warehouse.read(DECODE_COVERAGE.name, run=run).to_pylist())
    except WarehouseError as e:
        if may_pass(e.__cause__):
            raise
        return None


def _since_last_run(
    plan: LogPlan, rows: Mapping[int, Row], ends: Collection[int]
) -> tuple[dict[int, tuple[Segment, ...]], dict[int, ChangedFiles]]:
    """(new segments, changed files), both by offsets partition, of the partitions in ``ends``.

    New segments start at the end of the last run's log. Changed files are those that the run read and that differ now; a partition without
    changed files is left out.
    """

    def of_partition(log: PartitionLog) -> tuple[tuple[Segment, ...], ChangedFiles | None]:
        row = rows[log.offsets_partition]
        files = {int(base_offset): size for base_offset, size in row[SEGMENT_BYTES] or ()}
        new = segments_from(log, row["end_offset"], row["end_file"], row["end_position"])
        return new, changed_files(log, files, row["end_offset"], row["end_position"])

    going_on = [log for log in plan.partitions if log.offsets_partition in ends]
    numbers = [log.offsets_partition for log in going_on]
    looked_at = dict(zip(numbers, side_by_side(of_partition, going_on, plan.filesystem), strict=True))
    changed = {number: files for number, (_, files) in looked_at.items() if files is not None}
    return {number: new for number, (new, _) in looked_at.items()}, changed


def _refuse_lost(missing: list[int], rows: Mapping[int, Row], reason: str | None) -> None:
    """Raises InputError where an offsets partition that the input does not have cannot be carried over."""
    lost = [number for number in missing if rows.get(number, {}).get("latest_records") is None]
    if lost:
        one = len(lost) == 1
        why = reason or f"the last run kept no latest records of {'it' if one else 'them'}"
        raise InputError(
            f"This input lacks offsets partition{'' if one else 's'} {', '.join(map(str, lost))} of the last run, and"
            f" {'it' if one else 'they'} cannot be carried over: {why}. Give an input with all offsets partitions, or drop"
            f" {'this one' if one else 'these'} with --accept {MISSING}."
        )


def _state_of(run: Run, ends: Mapping[int, int], rows: Mapping[int, Row]) -> CarriedState:
    return CarriedState(run.tables, dict(ends), {number: rows[number]["latest_records"] for number in ends})


def _why_nothing_is_kept(run: Run, start: RunStart) -> str | None:
    """Return why no partition can continue from the run's latest records, or None if they exist."""
    for table in (LATEST_RECORDS, TOPIC_IDS, OFFSETS_PARTITIONS.name, DECODE_COVERAGE.name):
        if table not in run.table_versions:
            return "the last run was written by an older release"
        try:
            start.warehouse.check_files(table, run)
        except WarehouseError as e:
            if may_pass(e.__cause__):
                raise
            return _LOST.format(table)
    return None


def _why_whole(request: RunRequest, row: Row | None, history: PartitionHistory, change: LogChange) -> str | None:
    """Return why a partition is read from its beginning according to its row and the change of its log, or None for an incremental read."""
    if row is None:
        return "no earlier run has read them"
    if row["latest_records"] is None:
        return "the last run kept no latest records of them"
    if history.history_range.incarnation != row["incarnation"]:
        return str(LogChange.RECREATED)
    if change is not LogChange.CONTINUED:
        return str(change)
    history_end = row["history_end_offset"] or 0
    if request.with_history and history_end < row["end_offset"]:
        return "runs without history came before"
    return None


def _complete(
    logs: Mapping[int, PartitionLog],
    ends: Mapping[int, int],
    segments: Mapping[int, tuple[Segment, ...]],
    spark: SparkSession,
    filesystem: Any,
) -> set[int]:
    """Return the offsets partitions whose new segments have a record for each offset."""
    work = [(number, segments[number], end, logs[number].end_offset) for number, end in ends.items()]
    if sum(segment.bytes for _, parts, _, _ in work for segment in parts) <= WALKED_BY_DRIVER_BYTES:
        walked = side_by_side(lambda of_partition: has_every_offset(*of_partition[1:]), work, filesystem)
    else:
        walked = in_tasks(spark, lambda of_partition: has_every_offset(*of_partition[1:]), work)
    return {number for (number, *_), is_complete in zip(work, walked, strict=True) if is_complete}


def surveyed(plan: LogPlan, carry_over: CarryOver, request: RunRequest) -> LogPlan:
    """Return the plan with all files of the logs that are read from their beginning."""
    not_surveyed = {log.offsets_partition for log in plan.partitions if not log.is_surveyed} & set(carry_over.whole)
    if not not_surveyed:
        return plan
    again = plan_logs(request.inputs, held=plan.held, wanted=not_surveyed)
    with_all_files = {log.offsets_partition: log for log in again.partitions}
    if not not_surveyed <= with_all_files.keys():
        gone = ", ".join(f"{OFFSETS_TOPIC}-{number}" for number in sorted(not_surveyed - with_all_files.keys()))
        raise InputChangedError(f"{', '.join(map(shown, request.inputs))}: {gone} is gone since the directory was listed. Run it again.")
    logs = (with_all_files[log.offsets_partition] if log.offsets_partition in not_surveyed else log for log in plan.partitions)
    return replace(plan, partitions=tuple(logs))
