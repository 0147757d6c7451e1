"""The member with the fewest partitions, in many overlapping sets of members, while partitions move."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from heapq import heapify, heappush, heapreplace
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class LeastLoaded(Generic[K]):
    """Finds the member with the fewest partitions in a named set of members; of equal members the one with the lowest rank.

    A member is known by its rank, its index in the order of member ids. ``counts`` has the number of partitions by rank. The caller changes
    ``counts`` itself, and calls ``has_fallen`` after it has lowered a count.

    Each set has a heap of (count, rank), packed as count * number of members + rank; equal sets share a heap. An entry whose count has
    risen is corrected when it reaches the top. For a count that has fallen a new entry is pushed. So every member always has an entry that
    is not above its count, and the first correct entry at the top is the minimum.
    """

    __slots__ = ("_counts", "_heaps", "_heaps_by_rank")

    def __init__(self, counts: Sequence[int], sets: Mapping[K, frozenset[int]]) -> None:
        self._counts = counts
        self._heaps: dict[K, list[int]] = {}
        self._heaps_by_rank: list[list[list[int]]] = [[] for _ in counts]
        heap_by_set: dict[frozenset[int], list[int]] = {}
        for name, ranks in sets.items():
            if ranks not in heap_by_set:
                heap = heap_by_set[ranks] = [counts[rank] * len(counts) + rank for rank in ranks]
                heapify(heap)
                for rank in ranks:
                    self._heaps_by_rank[rank].append(heap)
            self._heaps[name] = heap_by_set[ranks]

    def first(self, *names: K) -> int | None:
        """The rank of the member with the fewest partitions in the union of these sets; None if the sets are empty or unknown."""
        entries = [self._lowest(heap) for name in names if (heap := self._heaps.get(name))]
        return min(entries) % len(self._counts) if entries else None

    def has_fallen(self, rank: int) -> None:
        """Push a new entry for a member whose count has fallen."""
        for heap in self._heaps_by_rank[rank]:
            heappush(heap, self._counts[rank] * len(self._counts) + rank)

    def _lowest(self, heap: list[int]) -> int:
        while True:
            count, rank = divmod(heap[0], len(self._counts))
            if count == self._counts[rank]:
                return heap[0]
            heapreplace(heap, self._counts[rank] * len(self._counts) + rank)
