"""What a night takes over from the last one: the latest records, and from which record offset each log is then read.

Carrying on is right where the last night's state is known to the last detail and every record since is there to be read. Whatever else is
the case, the log is read from its beginning, and the summary says why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

from groupcoord_spark import __version__
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.errors import InputChangedError, InputError, WarehouseError
from groupcoord_spark.log import ChangedFiles, LogPlan, PartitionLog, Segment, changed_files, has_every_offset, plan_logs, segments_from
from groupcoord_spark.log.files.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.files.storage import shown, side_by_side
from groupcoord_spark.pipeline.accepted import MISSING
from groupcoord_spark.pipeline.division import in_tasks
from groupcoord_spark.pipeline.exchange.carried_records import LATEST_RECORDS, TOPIC_IDS
from groupcoord_spark.pipeline.extents import CarriedState
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory
from groupcoord_spark.pipeline.plan.guards import Verdict
from groupcoord_spark.pipeline.run import RunRequest
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

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CarryOver:
    """What the run takes over.

    night: the run that the state is taken from; None: none is. state: its latest records, of the offsets partitions that go on and of those
    that the input does not have. rows: the night's rows of offsets_partitions of these, with Kafka's values (times as ``<name>_ms``).
    coverage: the night's rows of decode_coverage. counted: offsets partition that is read whole -> the first and the end record offset
    between which records are in these rows. segments: offsets partition that goes on -> the segments to read. stale_since_ms: offsets
    partition that the input does not have -> as_of of the last run that read it. changed: offsets partition that goes on -> the files that
    the night saw and that are not as they were. whole: offsets partition -> why it is read from its beginning. remembered: the latest
    records of the offsets partitions that are read whole although the night has read an earlier state of the same logs. compared: the
    offsets partitions of ``remembered`` whose state a run with --full compares with the state that it reads. gaps: offsets partition -> the
    first and end record offset that no night has read.
    """

    night: Run | None = None
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
        """Offsets partition -> the record offset from which the run reads it; any other is read from its beginning."""
        return {} if self.state is None else self.state.end_offsets


def rules_of(semantics: Semantics) -> str:
    """The rules of a replay in a word: this release, and every value of the semantics. Equal words: the same records, the same state."""
    values = {column.name: getattr(semantics, column.name) for column in fields(semantics)}
    ordered = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in values.items()}
    return f"{__version__} {semantics.name} {semantics.broker_version} {hashlib.sha256(repr(ordered).encode()).hexdigest()[:16]}"


def ends_of_last_night(warehouse: Warehouse, cluster: str | None) -> dict[int, int]:
    """Offsets partition -> end offset of the last night, where that night kept its latest records; {} where there is no such night.

    cluster: None: the only cluster of the warehouse.
    """
    names = [name for name in warehouse.clusters_with_nights() if cluster is None or name == cluster]
    if len(names) != 1 or LATEST_RECORDS not in warehouse.run(names[0]).table_versions:
        return {}
    try:
        columns = ["offsets_partition", "end_offset", "latest_records"]
        rows = warehouse.read("offsets_partitions", cluster=names[0], columns=columns).to_pylist()
    except WarehouseError:
        return {}  # the run reports what is wrong with the warehouse
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
    """What the run takes over from the last night.

    Args:
        verdict: what the guards let the run do. histories: from ``partition_histories``.
        complete_from: by offsets partition and record offset, the partitions of which the input has a row for each record offset from that
            one on; None: the input is segments.
    Raises:
        InputError: the input lacks offsets partitions of which the last night kept no latest records.
    """
    night = start.last_run
    logs = {log.offsets_partition: log for log in verdict.plan.partitions}
    if request.until is not None:
        return CarryOver()
    if night is None:
        return CarryOver(whole=dict.fromkeys(logs, "this is the first night of the cluster"))
    reason = _why_nothing_is_kept(night, start)
    rows: dict[int, Row] = {}
    if not reason:
        listed = OFFSETS_PARTITIONS.to_milliseconds(start.warehouse.read(OFFSETS_PARTITIONS.name, run=night)).to_pylist()
        rows = {row["offsets_partition"]: row for row in listed}
    missing = sorted(verdict.missing)
    _refuse_lost(missing, rows, reason)
    if not reason and night.settings.get(RULES_SETTING) != rules_of(request.semantics):
        reason = f"the night before applied other rules ({night.settings.get(RULES_SETTING, 'of an older release')})"
    whole: dict[int, str] = {}
    ends: dict[int, int] = {}
    gaps: dict[int, tuple[int, int]] = {}
    has_nothing_older: set[int] = set()
    for number, log in logs.items():
        row = rows.get(number)
        accepted = "the dump is older than the night before, which was accepted" if number in verdict.older else None
        why = reason or accepted or _why_whole(request, log, row, histories.get(number, PartitionHistory()))
        if why is None and row is not None:
            ends[number] = row["end_offset"]
            first = _begin_of(log)
            if first is not None and first >= row["end_offset"]:
                has_nothing_older.add(number)
            if first is not None and first > row["end_offset"]:
                gaps[number] = (row["end_offset"], first)
        else:
            whole[number] = why or "no night before has read them"
    segments, changed = _since_last_night(verdict.plan, rows, ends)
    complete = _complete(logs, ends, segments, spark, verdict.plan.filesystem) if complete_from is None else complete_from(ends)
    # A log without older records has nothing that could be read instead.
    for number in set(ends) - complete - has_nothing_older:
        whole[number] = "the log cleaner has been at work on the records since the night before"
        del ends[number], segments[number]
    compared = frozenset(ends if request.full and not reason else ())
    if request.full and not reason:
        whole, ends, segments, gaps = dict.fromkeys(logs, "--full"), {}, {}, {}
    read_earlier = {
        number: rows[number]["end_offset"]
        for number in whole
        if _goes_on_in(logs[number], rows.get(number), histories.get(number, PartitionHistory())) and number not in verdict.older
    }
    stale = {number: night.as_of_ms if (since_ms := rows[number]["stale_since_ms"]) is None else since_ms for number in missing}
    ends |= {number: rows[number]["end_offset"] for number in missing}
    coverage = _coverage_of(night, start)
    read_before = {number: histories[number].read for number in whole if coverage and number in histories}
    return CarryOver(
        night=night if ends else None,
        state=_state_of(night, ends, rows) if ends else None,
        rows={number: rows[number] for number in ends},
        segments=segments,
        changed={number: files for number, files in changed.items() if number in segments},
        stale_since_ms=stale,
        whole=whole,
        compared=compared,
        remembered=_state_of(night, read_earlier, rows) if read_earlier else None,
        gaps=gaps,
        coverage=coverage,
        counted={number: offsets for number, offsets in read_before.items() if offsets is not None},
    )


def _coverage_of(night: Run, start: RunStart) -> Sequence[Row]:
    """The night's rows of decode_coverage; () where they are lost, or do not count what earlier nights have read."""
    if LATEST_RECORDS not in night.table_versions:  # older releases counted what the night itself read
        return ()
    try:
        return list(start.warehouse.read(DECODE_COVERAGE.name, run=night).to_pylist())
    except WarehouseError:
        return ()


def _since_last_night(
    plan: LogPlan, rows: Mapping[int, Row], ends: Collection[int]
) -> tuple[dict[int, tuple[Segment, ...]], dict[int, ChangedFiles]]:
    """(new segments, changed files), both by offsets partition, of the partitions in ``ends``.

    New segments begin at the end of the night's log. Changed files are those that the night saw and that differ now; a partition without
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
        why = reason or f"the last night kept no latest records of {'it' if one else 'them'}"
        raise InputError(
            f"This input lacks offsets partition{'' if one else 's'} {', '.join(map(str, lost))} of the last night, and"
            f" {'it' if one else 'they'} cannot be carried over: {why}. Give an input with all offsets partitions, or drop"
            f" {'this one' if one else 'these'} with --accept {MISSING}."
        )


def _state_of(night: Run, ends: Mapping[int, int], rows: Mapping[int, Row]) -> CarriedState:
    versions = {table: night.table_versions[table] for table in (LATEST_RECORDS, TOPIC_IDS)}
    return CarriedState(versions, dict(ends), {number: rows[number]["latest_records"] for number in ends})


def _why_nothing_is_kept(night: Run, start: RunStart) -> str | None:
    """Why no partition can go on from the latest records of the night; None: they are there."""
    for table in (LATEST_RECORDS, TOPIC_IDS, OFFSETS_PARTITIONS.name, DECODE_COVERAGE.name):
        if table not in night.table_versions:
            return "the night before was written by an older release"
        try:
            start.warehouse.check_files(table, night)
        except WarehouseError:
            return f"the table {table} of the night before is lost or damaged"
    return None


def _why_whole(request: RunRequest, log: PartitionLog, row: Row | None, history: PartitionHistory) -> str | None:
    """Why a partition is read from its beginning, as far as its rows and the ends of its log tell; None: it may go on."""
    if row is None:
        return "no night before has read them"
    if row["latest_records"] is None:
        return "the night before kept no latest records of them"
    if history.history_range.incarnation != row["incarnation"]:
        return "the log was begun anew"
    if log.end_offset < row["end_offset"]:
        return "the log ends before the one of the night before"
    first = _begin_of(log)
    if first is not None and row["first_offset"] is not None and first < row["first_offset"]:
        return "the log has records before those that the nights have read"
    start = log.log_start_offset
    if start is not None and row["first_offset"] is not None and row["first_offset"] < start < row["end_offset"]:
        return "the log begins later than in the night before"  # the cleaner never moves the beginning: are segments missing?
    history_end = row["history_end_offset"] or 0
    if request.with_history and history_end < row["end_offset"]:
        return "nights without history came before"
    return None


def _goes_on_in(log: PartitionLog, row: Row | None, history: PartitionHistory) -> bool:
    """The log is a later state of the one of which the night's row tells, and the night kept its latest records."""
    return (
        row is not None
        and row["latest_records"] is not None
        and history.history_range.incarnation == row["incarnation"]
        and log.end_offset >= row["end_offset"]
    )


def _begin_of(log: PartitionLog) -> int | None:
    """Where the log begins, whether or not a record is left there; None: it has no record, or is not known."""
    return log.first_offset if log.log_start_offset is None else log.log_start_offset


def _complete(
    logs: Mapping[int, PartitionLog],
    ends: Mapping[int, int],
    segments: Mapping[int, tuple[Segment, ...]],
    spark: SparkSession,
    filesystem: Any,
) -> set[int]:
    """The offsets partitions whose new segments have a record for each offset."""
    work = [(number, segments[number], end, logs[number].end_offset) for number, end in ends.items()]
    if sum(segment.bytes for _, parts, _, _ in work for segment in parts) <= WALKED_BY_DRIVER_BYTES:
        walked = side_by_side(lambda of_partition: has_every_offset(*of_partition[1:]), work, filesystem)
    else:
        walked = in_tasks(spark, lambda of_partition: has_every_offset(*of_partition[1:]), work)
    return {number for (number, *_), is_complete in zip(work, walked, strict=True) if is_complete}


def surveyed(plan: LogPlan, carry_over: CarryOver, request: RunRequest) -> LogPlan:
    """The plan, in which the logs that are read from their beginning are planned with all their files."""
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
