"""A Java HashSet of partitions with its iteration order, which the sticky assignor relies on."""

from __future__ import annotations

from groupcoord_spark.assignors.java_maps import FIRST_SIZE, hash_of_text, slot_of, slots_after_puts
from groupcoord_spark.assignors.membership import TopicPartition


def hash_of_partition(partition: TopicPartition) -> int:
    """TopicPartition.hashCode of Kafka's clients, as an unsigned 32-bit number."""
    return (31 * (31 + partition.partition) + hash_of_text(partition.topic)) & 0xFFFFFFFF


class PartitionHashSet:
    """A HashSet of partitions that knows which partition its iterator returns first."""

    __slots__ = ("_hashes", "_slots")

    def __init__(self) -> None:
        self._hashes: dict[TopicPartition, int] = {}
        self._slots = FIRST_SIZE

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, partition: TopicPartition) -> None:
        self._hashes[partition] = hash_of_partition(partition)
        self._slots = max(self._slots, slots_after_puts(len(self._hashes)))

    def remove(self, partition: TopicPartition) -> None:
        del self._hashes[partition]

    def state(self) -> tuple[int, tuple[TopicPartition, ...]]:
        """The full state of the set, comparable: its number of slots, and its partitions in the order of insertion."""
        return self._slots, tuple(self._hashes)

    def first(self) -> TopicPartition:
        """The partition in the lowest slot; of several in one slot the one that was added first."""
        return min(self._hashes, key=lambda partition: slot_of(self._hashes[partition], self._slots))
