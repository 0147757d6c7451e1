"""Who has the fewest partitions, asked again and again of many overlapping sets of members while partitions move."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from heapq import heapify, heappush, heapreplace
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class LeastLoaded(Generic[K]):
    """Tells who of a named set has the fewest partitions, the first by rank among equals.

    counts: partitions by rank, the member's place by id; shared with the caller, who changes it and says so when one has fallen.
    A set's heap holds (count, rank) as count * members + rank. What has risen is corrected when it comes up, what has fallen is
    pushed at once: so of each member there is always an entry that is not above the truth. Equal sets share a heap.
    """

    __slots__ = ("_counts", "_heaps", "_heaps_of")

    def __init__(self, counts: Sequence[int], sets: Mapping[K, frozenset[int]]) -> None:
        self._counts = counts
        self._heaps: dict[K, list[int]] = {}
        self._heaps_of: list[list[list[int]]] = [[] for _ in counts]
        of_set: dict[frozenset[int], list[int]] = {}
        for name, ranks in sets.items():
            if ranks not in of_set:
                heap = of_set[ranks] = [counts[rank] * len(counts) + rank for rank in ranks]
                heapify(heap)
                for rank in ranks:
                    self._heaps_of[rank].append(heap)
            self._heaps[name] = of_set[ranks]

    def first(self, *names: K) -> int | None:
        """The rank of the least loaded member of these sets together; None if nobody is in any, or no set has such a name."""
        entries = [self._lowest(heap) for name in names if (heap := self._heaps.get(name))]
        return min(entries) % len(self._counts) if entries else None

    def has_fallen(self, rank: int) -> None:
        """Take note that a member's count is lower than it was."""
        for heap in self._heaps_of[rank]:
            heappush(heap, self._counts[rank] * len(self._counts) + rank)

    def _lowest(self, heap: list[int]) -> int:
        while True:
            count, rank = divmod(heap[0], len(self._counts))
            if count == self._counts[rank]:
                return heap[0]
            heapreplace(heap, self._counts[rank] * len(self._counts) + rank)
