"""Rows of several incarnations of the topic in one table: the topic was deleted and created again, and the rows were appended.

The coordinator gives each record the time of its broker, whatever message.timestamp.type says, so in one log a record at a lower offset is
newer than one at a higher offset only by as much as the clocks of brokers differ. A larger difference proves that an incarnation began.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from groupcoord_spark.protocol.record_types import CLOCKS_DIFFER_MS, NO_TIMESTAMP

_MOST_BUCKETS = 4_096


@dataclass(slots=True)
class OffsetsByTime:
    """The lowest and the highest record offset in each stretch of time, with the timestamps of their records.

    buckets: number of the stretch -> (lowest offset, its timestamp, highest offset, its timestamp). Their number is bounded: the stretches
    become wider as the times of the rows spread.
    """

    width_ms: int = CLOCKS_DIFFER_MS // 4
    buckets: dict[int, tuple[int, int, int, int]] = field(default_factory=dict)

    def add_rows(self, offsets: npt.NDArray[Any], timestamps_ms: npt.NDArray[Any]) -> None:
        """Add the places of records."""
        is_known = timestamps_ms > NO_TIMESTAMP
        offsets, times = offsets[is_known], timestamps_ms[is_known]
        order = np.lexsort((times, offsets, times // self.width_ms))
        offsets, times, numbers = offsets[order], times[order], times[order] // self.width_ms
        first = np.flatnonzero(np.r_[True, numbers[1:] != numbers[:-1]][: len(numbers)])
        last = np.r_[first[1:], len(numbers)][: len(first)] - 1
        columns = (numbers[first], offsets[first], times[first], offsets[last], times[last])
        for number, *bucket in zip(*(column.tolist() for column in columns), strict=True):
            self._add(number, tuple(bucket))
        self._widen()

    def add(self, other: "OffsetsByTime") -> None:
        """Add what another task has seen."""
        while other.width_ms < self.width_ms:
            other.double()
        while self.width_ms < other.width_ms:
            self.double()
        for number, bucket in other.buckets.items():
            self._add(number, bucket)
        self._widen()

    def begin_of_newest(self) -> int | None:
        """Return a time between the records of the newest incarnation and those before; None if the rows are of one.

        It lies in the middle between the two, because clocks step back in either.
        """
        begin, highest, last_ms, waiting = None, -1, NO_TIMESTAMP, deque[tuple[int, int]]()
        for _, (lowest, lowest_ms, offset, offset_ms) in sorted(self.buckets.items()):
            while waiting and waiting[0][1] < lowest_ms - CLOCKS_DIFFER_MS:
                highest = max(highest, waiting.popleft()[0])
            if lowest < highest:
                if last_ms < offset_ms < lowest_ms < last_ms + 2 * self.width_ms and offset >= highest:
                    last_ms = offset_ms  # the last record before lies in the same stretch of time
                begin, highest = (last_ms + lowest_ms + 1) // 2, -1
                waiting.clear()
            else:
                waiting.append((offset, offset_ms))
            last_ms = max(last_ms, offset_ms)
        return begin

    def double(self) -> None:
        """Make the stretches twice as wide."""
        buckets, self.buckets = self.buckets, {}
        self.width_ms *= 2
        for number, bucket in buckets.items():
            self._add(number // 2, bucket)

    def _widen(self) -> None:
        while len(self.buckets) > _MOST_BUCKETS:
            self.double()

    def _add(self, number: int, bucket: tuple[int, int, int, int]) -> None:
        known = self.buckets.get(number, bucket)
        low, high = min(known[:2], bucket[:2]), max(known[2:], bucket[2:])
        self.buckets[number] = (*low, *high)
