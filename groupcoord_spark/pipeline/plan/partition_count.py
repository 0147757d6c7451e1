"""Number of partitions of ``__consumer_offsets``, from group ids and the partitions in which the groups are: no file contains it."""

from __future__ import annotations

from dataclasses import dataclass

from groupcoord_spark.coordinator.broker_settings import OFFSETS_PARTITIONS
from groupcoord_spark.log import LogPlan
from groupcoord_spark.log.partition_count import best_partition_count, certain_partition_count
from groupcoord_spark.pipeline.plan.evidence import evidence_of_segments, placed_groups
from groupcoord_spark.pipeline.plan.guards import ComparedNight
from groupcoord_spark.pipeline.plan.input_rows import RowPlan
from groupcoord_spark.pipeline.run import RunRequest


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """The number of partitions of the offsets topic.

    number: the one that the night goes by. certain: the only number that fits the groups; None: none does, or several do. contradiction:
    a sentence where the log has an offsets partition that the broker's settings rule out.
    """

    number: int
    certain: int | None = None
    contradiction: str | None = None


def partition_count_of(night: ComparedNight, plan: LogPlan, rows: RowPlan | None) -> PartitionCount:
    """The number by the setting, unless the log has more partitions; else the number that fits the groups."""
    placed, sentence = night.placed_groups, contradiction(night.request, plan)
    certain = certain_partition_count(placed, _lowest(plan))
    if night.request.offsets_partitions is not None and sentence is None:
        return PartitionCount(night.request.offsets_partitions, certain)
    last_count = night.last_partition_count
    if rows is None:
        count = best_partition_count(placed, _lowest(plan))
    elif last_count is not None and all(group_hash % last_count == number for group_hash, number in placed):
        count = last_count  # a few new rows may fit many numbers
    elif rows.source.extent is not None:
        count = len(rows.source.extent.end)
    else:
        count = best_partition_count(placed, _lowest(rows.log))
    return PartitionCount(count, certain, sentence)


def likely_partition_count(plan: LogPlan) -> int:
    """The partition count that explains best where the groups of the logs are."""
    return best_partition_count(placed_groups(evidence_of_segments(plan, {})), _lowest(plan))


def contradiction(request: RunRequest, plan: LogPlan) -> str | None:
    """A sentence where the log has an offsets partition that the broker's settings rule out."""
    highest = _lowest(plan) - 1
    if request.offsets_partitions is None or highest < request.offsets_partitions:
        return None
    return (
        f"{OFFSETS_PARTITIONS} is {request.offsets_partitions} in the settings file, but the log has __consumer_offsets-{highest}: the"
        " number is taken from where the groups lie instead. Make sure that the settings are those of this cluster."
    )


def _lowest(plan: LogPlan) -> int:
    """The lowest number that the topic can have, by the partitions that the log has."""
    return max((log.offsets_partition for log in plan.partitions), default=0) + 1
