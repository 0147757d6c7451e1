"""The planning half of a run: whether the input may be read, what the run takes over, and which records it reads. No table changes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from groupcoord_spark.log import LogPlan, PartitionLog, Segment
from groupcoord_spark.log.partition_count import PartitionCount
from groupcoord_spark.pipeline.extents import HistoryPiece, HistoryRange, PointInTime
from groupcoord_spark.pipeline.plan import earlier_runs
from groupcoord_spark.pipeline.plan.carry_over import CarryOver, plan_carry_over, surveyed
from groupcoord_spark.pipeline.plan.evidence import evidence_of_segments
from groupcoord_spark.pipeline.plan.guards import CLUSTER_ID_SETTING, PARTITION_COUNT_SETTING, TOPIC_ID_SETTING, ComparedRun, Verdict, judge
from groupcoord_spark.pipeline.plan.input_rows import RowPlan
from groupcoord_spark.pipeline.plan.partition_count import partition_count_of
from groupcoord_spark.pipeline.plan.point_in_time import find_points_in_time, history_pieces
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.warehouse import RunStart
from groupcoord_spark.warehouse.read import TablesOfRun


@dataclass(frozen=True, slots=True)
class RunPlan:
    """What a run reads and what it takes over.

    Attributes:
        run: what the guards looked at. verdict: what they let the run do.
        log: the logs of the input, without the offsets partitions that count as missing.
        rows: the rows of an input other than segments, which are then read instead of segments.
        histories: offsets partition -> its history in earlier runs.
        carry_over: what the run takes over from the last run.
        points_in_time: offsets partition -> its point in time; {}: all are read to the end of their logs.
        segments: the segments that are read. history: the parts of the history tables that are read.
        partition_count: number of partitions of ``__consumer_offsets``, as derived from the log.
        tables_at_history_end: as in RebalanceJob.
    """

    request: RunRequest
    run: ComparedRun
    verdict: Verdict
    log: LogPlan
    rows: RowPlan | None
    histories: Mapping[int, earlier_runs.PartitionHistory]
    carry_over: CarryOver
    points_in_time: Mapping[int, PointInTime]
    segments: Sequence[Segment]
    history: Sequence[HistoryPiece]
    partition_count: PartitionCount
    tables_at_history_end: TablesOfRun | None = None

    @property
    def history_ranges(self) -> dict[int, HistoryRange]:
        """Offsets partition -> the record offsets that the history tables have."""
        return {number: history.history_range for number, history in self.histories.items()}

    @property
    def health_logs(self) -> dict[int, PartitionLog]:
        """Offsets partition -> its log, where facts about the health of the log are gathered: in a run over segments."""
        is_nightly_over_segments = self.rows is None and self.request.until is None
        return {log.offsets_partition: log for log in self.log.partitions if log.segments} if is_nightly_over_segments else {}

    @property
    def reads_something(self) -> bool:
        """There is something to read or to carry over."""
        return bool(self.segments or self.history or self.carry_over.state) or self.rows is not None


def plan_run(request: RunRequest, log: LogPlan, rows: RowPlan | None, start: RunStart, spark: SparkSession) -> RunPlan:
    """Plan a run over logs, or over rows of an input other than segments.

    Raises:
        BadCopyError: the input looks like a bad copy, and the request does not accept that.
        InputError, UsageError, WarehouseError: as ``plan_carry_over`` and ``find_points_in_time`` do.
    """
    tables_at_history_end = earlier_runs.latest_records_at_history_end(start)
    run = _run(request, log, rows, start)
    verdict = judge(run)
    histories = verdict.histories(run.last_run)
    complete_from = None if rows is None else rows.complete_from
    carry_over = plan_carry_over(request, verdict, start, histories, spark, complete_from=complete_from)
    log = surveyed(verdict.plan, carry_over, request)
    segments = [segment for of_log in log.partitions for segment in carry_over.segments.get(of_log.offsets_partition, of_log.segments)]
    points_in_time: Mapping[int, PointInTime] = {}
    if request.until is not None:
        points_in_time = find_points_in_time(request.until, log, histories, start, spark, rows)
        segments = [segment for segment in segments if segment.base_offset < points_in_time[segment.offsets_partition].end_offset]
    return RunPlan(
        request=request,
        run=run,
        verdict=verdict,
        log=log,
        rows=rows,
        histories=histories,
        carry_over=carry_over,
        points_in_time=points_in_time,
        segments=segments,
        history=history_pieces(points_in_time, start),
        partition_count=partition_count_of(run, log, rows),
        tables_at_history_end=tables_at_history_end,
    )


def _run(request: RunRequest, plan: LogPlan, rows: RowPlan | None, start: RunStart) -> ComparedRun:
    """Return the input of the guards."""
    last_run = earlier_runs.partition_histories(start, [partition.offsets_partition for partition in plan.partitions])
    settings = (PARTITION_COUNT_SETTING, CLUSTER_ID_SETTING, TOPIC_ID_SETTING)
    count, cluster_id, topic_id = (earlier_runs.last_setting(start, name) for name in settings)
    remembered = earlier_runs.remembered_offsets([last_run])
    return ComparedRun(
        request,
        plan,
        InputKind.SEGMENTS if rows is None else rows.source.kind,
        last_run,
        evidence_of_segments(plan, remembered, last_run) if rows is None else rows.evidence,
        0 if rows is None else rows.rows + rows.read_before,
        0 if rows is None else rows.faults,
        cluster_id,
        topic_id,
        None if count is None else int(count),
        None if start.last_run is None else start.last_run.as_of_ms,
        start.finished[-1].input_kind if start.finished else None,
    )
