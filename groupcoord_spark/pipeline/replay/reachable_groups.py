"""Leave out of the tables the groups that no client reaches, because the topic got more partitions after their records were written."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.state import LoadWarning
from groupcoord_spark.log.partition_count import PartitionCount, PlacedGroups, best_partition_count, partitioning_hashes, unreachable_groups
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport, to_arrow
from groupcoord_spark.protocol.partitioner import partitioning_hash
from groupcoord_spark.warehouse import TABLES


class ReachableGroups:
    """All groups of a topic, for leaving unreachable groups out of the tables.

    First ``add`` the groups of all offsets partitions; the first call of ``of_clients`` decides.

    Attributes:
        counts: the partition counts that explain where clients work, after the decision; () where the groups show no change.
    """

    def __init__(self, partition_count: PartitionCount) -> None:
        self._partition_count = partition_count
        self._placed: list[PlacedGroups] = []
        self._lost_hashes: Mapping[int, frozenset[int]] | None = None
        self._left_out: set[tuple[int, str]] = set()
        self.counts: tuple[int, ...] = ()

    def add(self, placed: PlacedGroups) -> None:
        """Add the groups of one offsets partition."""
        self._placed.append(placed)

    def of_clients(self, table: str, rows: pa.Table, offsets_partition: int, reports: Mapping[int, PartitionReport]) -> pa.Table:
        """Remove the rows of unreachable groups from a table, and subtract them from the report of the partition.

        Args:
            rows: of one offsets partition, with a column ``group_id``.
            reports: offsets partition -> its report.
        """
        lost_hashes = self._decided().get(offsets_partition)
        if lost_hashes is None:
            return rows
        group_ids = pc.unique(rows["group_id"]).to_pylist()
        hashes = partitioning_hashes(group_ids).tolist()
        lost_ids = [group_id for group_id, hash_ in zip(group_ids, hashes, strict=True) if hash_ in lost_hashes]
        self._left_out |= {(offsets_partition, group_id) for group_id in lost_ids}
        is_lost = pc.is_in(rows["group_id"], pa.array(lost_ids, pa.string()))
        lost, report = rows.filter(is_lost), reports[offsets_partition]
        if table == "groups":
            report.groups -= lost.num_rows
            report.unreachable_groups += lost.num_rows
        elif table == "committed_offsets":
            report.offsets -= lost.num_rows
        elif table == "offset_expirations":
            report.expired_offsets -= pc.sum(lost["expired"]).as_py() or 0
        elif table == "group_expirations":
            report.removed_groups -= pc.sum(lost["removed"]).as_py() or 0
        return rows.filter(pc.invert(is_lost))

    def warnings(self, reports: Mapping[int, PartitionReport]) -> pa.Table:
        """Return a row of ``warnings`` for each group that was left out, and count it in the report of its offsets partition."""
        for offsets_partition, _ in self._left_out:
            reports[offsets_partition].warnings += 1
        return _warnings_about(sorted(self._left_out), self.counts)

    def _decided(self) -> Mapping[int, frozenset[int]]:
        """Return by offsets partition the hashes of the ids of the groups that no client reaches there."""
        if self._lost_hashes is None and self._placed:
            placed = PlacedGroups(*map(np.concatenate, zip(*self._placed, strict=True)))
            count = self._partition_count
            is_lost, self.counts = unreachable_groups(placed, count.lowest, count.number, count.known)
            lost = placed.take(is_lost)
            self._lost_hashes = {int(number): frozenset(lost.hashes[lost.partitions == number].tolist()) for number in set(lost.partitions)}
        return self._lost_hashes or {}


def warnings_about_unreachable(placed_groups: Sequence[tuple[str, int, int, int]]) -> pa.Table:
    """Return a row of ``warnings`` for each group that no client reaches. placed_groups: ``placed_groups_of`` all offsets partitions."""
    placed = PlacedGroups.of(placed_groups)
    pairs = list(zip(placed.hashes.tolist(), placed.partitions.tolist(), strict=True))
    lowest = max((number for _, number in pairs), default=0) + 1
    is_lost, counts = unreachable_groups(placed, lowest, best_partition_count(pairs, lowest))
    places = [(offsets_partition, group_id) for group_id, offsets_partition, _, _ in placed_groups]
    return _warnings_about([place for place, lost in zip(places, is_lost, strict=True) if lost], counts)


def _warnings_about(places: Sequence[tuple[int, str]], counts: Sequence[int]) -> pa.Table:
    """Return the warnings about groups, given as (offsets partition, group id)."""
    warnings = [LoadWarning(None, group_id, "group_wrong_partition", _sentence(group_id, counts)) for _, group_id in places]
    rows = to_arrow(TABLES["warnings"], LoadWarning._fields, warnings)
    return rows.append_column("offsets_partition", pa.array([offsets_partition for offsets_partition, _ in places], pa.int32()))


def _sentence(group_id: str, counts: Sequence[int]) -> str:
    numbers = {partitioning_hash(group_id) % count for count in counts}
    place = f"__consumer_offsets-{numbers.pop()}" if len(numbers) == 1 else "another offsets partition"
    of_count = f" (of {counts[0]} partitions)" if len(counts) == 1 else ""
    return (
        f"Clients look for this group in {place}{of_count}: the topic got more partitions after the records here were written. The state"
        " leaves them out. The broker still loads them, and expires them by the usual rules."
    )
