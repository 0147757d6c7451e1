"""Partition count of ``__consumer_offsets``, derived from group ids and their partitions, because no file contains it."""

from dataclasses import replace

from groupcoord_spark.coordinator.broker_settings import OFFSETS_PARTITIONS
from groupcoord_spark.log import LogPlan
from groupcoord_spark.log.partition_count import PartitionCount, best_partition_count, certain_partition_count
from groupcoord_spark.pipeline.plan.evidence import evidence_of_segments, placed_groups
from groupcoord_spark.pipeline.plan.guards import ComparedRun
from groupcoord_spark.pipeline.plan.input_rows import RowPlan
from groupcoord_spark.pipeline.run import RunRequest


def partition_count_of(run: ComparedRun, plan: LogPlan, rows: RowPlan | None) -> PartitionCount:
    """Return the number that the cluster reports, else the setting, unless it is too low, else the number that fits the groups."""
    known = run.request.known_offsets_partitions
    if rows is not None and rows.source.extent is not None:
        known = len(rows.source.extent.end)
    lowest = _lowest(plan if rows is None else rows.log)
    count = _count_by_groups(run, plan, rows)
    return replace(count, number=count.number if known is None or known < lowest else known, known=known, lowest=lowest)


def _count_by_groups(run: ComparedRun, plan: LogPlan, rows: RowPlan | None) -> PartitionCount:
    placed, sentence = run.placed_groups, contradiction(run.request, plan)
    certain = certain_partition_count(placed, _lowest(plan))
    if run.request.offsets_partitions is not None and sentence is None:
        return PartitionCount(run.request.offsets_partitions, certain)
    last_count = run.last_partition_count
    if rows is None:
        count = best_partition_count(placed, _lowest(plan))
    elif last_count is not None and all(group_hash % last_count == number for group_hash, number in placed):
        count = last_count  # a few new rows may fit many numbers
    else:
        count = best_partition_count(placed, _lowest(rows.log))
    return PartitionCount(count, certain, sentence)


def likely_partition_count(plan: LogPlan) -> int:
    """Return the partition count that best explains the partitions of the groups."""
    return best_partition_count(placed_groups(evidence_of_segments(plan, {})), _lowest(plan))


def contradiction(request: RunRequest, plan: LogPlan) -> str | None:
    """Return a sentence if the broker's settings rule out an offsets partition in the log, else None."""
    highest = _lowest(plan) - 1
    if request.offsets_partitions is None or highest < request.offsets_partitions:
        return None
    return (
        f"{OFFSETS_PARTITIONS} is {request.offsets_partitions} in the settings file, but the log has __consumer_offsets-{highest}: the"
        " number is taken from where the groups lie instead. Make sure that the settings are those of this cluster."
    )


def _lowest(plan: LogPlan) -> int:
    """Return the lowest possible count given the partitions in the log."""
    return max((log.offsets_partition for log in plan.partitions), default=0) + 1
