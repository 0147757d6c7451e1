"""The order in which Java's HashMap and HashSet give their keys, on which ties between equal members hang.

A table has a power of two of slots, 16 at first, doubles when it holds more than three quarters of that, and never shrinks.
Keys come by slot and, within one, in the order in which they were put. Slots of nine and more keys (trees) are not modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

from groupcoord_spark.coordinator.assignors.membership import TopicPartition
from groupcoord_spark.protocol.partitioner import java_string_hash

K = TypeVar("K")

_SMALLEST_TABLE = 16
_UINT32 = 0xFFFFFFFF


@lru_cache(maxsize=65536)
def hash_of_text(text: str) -> int:
    """String.hashCode, as an unsigned 32-bit number."""
    return java_string_hash(text) & _UINT32


def hash_of_partition(partition: TopicPartition) -> int:
    """TopicPartition.hashCode of Kafka's clients, as an unsigned 32-bit number."""
    return (31 * (31 + partition.partition) + hash_of_text(partition.topic)) & _UINT32


def slots_after_puts(keys: int) -> int:
    """The slots of a table into which so many keys were put one by one."""
    slots = _SMALLEST_TABLE
    while keys > slots * 3 // 4:
        slots *= 2
    return slots


def slots_of_copy(keys: int) -> int:
    """The slots of a HashSet that was made as a copy of so many keys, which asks for keys / 0.75 + 1 at once."""
    slots = _SMALLEST_TABLE
    while slots < keys * 4 // 3 + 1:
        slots *= 2
    return slots


def slot_of(java_hash: int, slots: int) -> int:
    """The slot of a key with this hash: HashMap folds the upper half of the hash into the lower."""
    return (java_hash ^ (java_hash >> 16)) & (slots - 1)


def in_hash_order(keys: Iterable[K], hash_of: Callable[[K], int], slots: int | None = None) -> list[K]:
    """The distinct keys in the order a HashMap gives them that took them in the given order.

    slots: the size of the table, where it did not grow by single puts.
    """
    distinct = list(dict.fromkeys(keys))
    table = slots_after_puts(len(distinct)) if slots is None else slots
    return sorted(distinct, key=lambda key: slot_of(hash_of(key), table))


class PartitionHashSet:
    """A HashSet of partitions that can tell which one its iterator gives first."""

    __slots__ = ("_hashes", "_slots")

    def __init__(self) -> None:
        self._hashes: dict[TopicPartition, int] = {}
        self._slots = _SMALLEST_TABLE

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, partition: TopicPartition) -> None:
        self._hashes[partition] = hash_of_partition(partition)
        self._slots = max(self._slots, slots_after_puts(len(self._hashes)))

    def remove(self, partition: TopicPartition) -> None:
        del self._hashes[partition]

    def state(self) -> tuple[int, tuple[TopicPartition, ...]]:
        """All that decides which partition comes first, now and after any further steps: the slots and the order of the puts."""
        return self._slots, tuple(self._hashes)

    def first(self) -> TopicPartition:
        """The partition in the lowest slot, the one put first among those of one slot."""
        return min(self._hashes, key=lambda partition: slot_of(self._hashes[partition], self._slots))
