"""Java's PriorityQueue: which of several equal elements comes first follows from how its heap is arranged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class JavaQueue(Generic[T]):
    """Takes out the element of the lowest rank. Elements of equal rank come in the order of ``java.util.PriorityQueue``.

    ``heapq`` arranges its heap otherwise: it gives up equal elements in another order. The rank of an element may change only while the
    element is outside of the queue.
    """

    __slots__ = ("_heap", "_rank")

    def __init__(self, rank: Callable[[T], float], elements: Iterable[T] = ()) -> None:
        self._rank = rank
        self._heap: list[T] = []
        for element in elements:
            self.add(element)

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, element: T) -> None:
        """Put an element in: it moves up from the end of the heap while its parent has a higher rank."""
        heap, at = self._heap, len(self._heap)
        heap.append(element)
        rank = self._rank(element)
        while at > 0 and rank < self._rank(heap[(at - 1) // 2]):
            heap[at] = heap[(at - 1) // 2]
            at = (at - 1) // 2
        heap[at] = element

    def poll(self) -> T:
        """Take out the first element: the last one of the heap moves down from its place. Raises IndexError if there is none."""
        heap = self._heap
        first, last = heap[0], heap.pop()
        if heap:
            self._sink(last)
        return first

    def _sink(self, element: T) -> None:
        heap, at, rank = self._heap, 0, self._rank(element)
        while (child := 2 * at + 1) < len(heap):
            if child + 1 < len(heap) and self._rank(heap[child]) > self._rank(heap[child + 1]):
                child += 1
            if rank <= self._rank(heap[child]):
                break
            heap[at] = heap[child]
            at = child
        heap[at] = element
