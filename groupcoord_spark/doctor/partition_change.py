"""What another number of offsets partitions would do to the groups: Kafka finds a group by a hash, and moves no record."""

from collections.abc import Sequence
from dataclasses import dataclass

from groupcoord_spark.doctor.facts import CopyFacts
from groupcoord_spark.doctor.gather.group_table import LIVE
from groupcoord_spark.errors import UsageError
from groupcoord_spark.protocol import offsets_partition_for


@dataclass(frozen=True, slots=True)
class MovedGroup:
    """A group whose coordinator would look for it in another offsets partition, where none of its records are.

    offsets: live committed offsets, which would be lost. other_records: live records of members and assignments.
    """

    group_id: str
    offsets_partition: int
    new_offsets_partition: int
    offsets: int
    other_records: int

    @property
    def is_lost(self) -> bool:
        """True where the group loses committed offsets."""
        return self.offsets > 0


def moved_groups(copies: Sequence[CopyFacts], partitions: int, new_partitions: int) -> tuple[list[MovedGroup], int]:
    """Return the live groups that move, by group id, and the number of live groups.

    Of several copies of a partition the one with the greatest end offset counts. partitions, new_partitions: how many, before and after.
    Raises UsageError for fewer partitions: Kafka takes none away from a topic.
    """
    if new_partitions < partitions:
        raise UsageError(
            f"__consumer_offsets has {partitions} partitions, and Kafka takes none away: --partitions {new_partitions} is not possible."
        )
    newest = {}
    of_copies = (partition for copy in copies for partition in copy.partitions)
    for partition in sorted(of_copies, key=lambda partition: partition.log_end_offset):
        newest[partition.offsets_partition] = partition
    moved, live_groups = [], 0
    for number, partition in newest.items():
        for group in partition.groups.values():
            offsets, other_records = (fates.get(LIVE, [0, 0])[0] for fates in (group.offset_fates, group.group_fates))
            if not offsets and not other_records:
                continue
            live_groups += 1
            new_number = offsets_partition_for(group.group_id, new_partitions)
            if new_number != number:
                moved.append(MovedGroup(group.group_id, number, new_number, offsets, other_records))
    return sorted(moved, key=lambda group: group.group_id), live_groups
