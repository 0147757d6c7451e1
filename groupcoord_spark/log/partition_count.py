"""Partition count of a topic, derived from the names in its keys and their partitions, because no file contains it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]

KAFKAS_DEFAULT: Final = 50
"""Default of offsets.topic.num.partitions and of transaction.state.log.num.partitions."""
MOST_PARTITIONS: Final = 1_000
"""Partition counts up to this one are tried where no file has the count."""


@dataclass(frozen=True, slots=True)
class PartitionCount:
    """The number of partitions of the offsets topic.

    ``number`` is the count that the run uses. ``certain`` is the only count that fits the groups, or None if none or several do.
    ``contradiction`` is a sentence if the broker's settings rule out an offsets partition in the log. ``known`` is the count reported by
    the cluster, in its metadata log or live, or None. ``lowest`` is the lowest possible count.
    """

    number: int
    certain: int | None = None
    contradiction: str | None = None
    known: int | None = None
    lowest: int = 1


def partitioning_hashes(names: Sequence[str]) -> Integers:
    """Return the partitioning_hash of each name; many at once take a quarter of the time."""
    encoded = [name.encode("utf-16-le", "surrogatepass") for name in names]
    lengths = np.array([len(units) // 2 for units in encoded], np.int64)
    ends = np.cumsum(lengths)
    units = np.frombuffer(b"".join(encoded), "<u2").astype(np.uint32)
    powers = np.cumprod(np.r_[1, np.full(int(lengths.max(initial=0)), 31)], dtype=np.uint32)
    terms = units * powers[np.repeat(ends, lengths) - 1 - np.arange(len(units))]
    sums = np.r_[np.uint32(0), np.cumsum(terms, dtype=np.uint32)]
    hashes: Integers = np.abs((sums[ends] - sums[ends - lengths]).view(np.int32).astype(np.int64)) & 0x7FFFFFFF
    return hashes


def certain_partition_count(placed: Iterable[tuple[int, int]], lowest: int) -> int | None:
    """Return the only partition count, at least ``lowest``, that puts every name into its partition, or None if none or several do.

    placed: (partitioning_hash of the name, its partition).
    """
    pairs = np.array(list(placed), np.int64).reshape(-1, 2)
    hashes, partitions = pairs[:, 0], pairs[:, 1]
    fitting = [count for count in _counts_from(lowest) if (hashes % count == partitions).all()]
    return fitting[0] if len(fitting) == 1 else None


def best_partition_count(placed: Iterable[tuple[int, int]], lowest: int) -> int:
    """Return the partition count, at least ``lowest``, that puts most names into their partitions; in a tie Kafka's default, else the
    lowest.

    placed: (partitioning_hash of the name, its partition).
    """
    pairs = np.array(list(placed), np.int64).reshape(-1, 2)
    hashes, partitions = pairs[:, 0], pairs[:, 1]

    def agreement(count: int) -> tuple[int, bool, int]:
        return int(np.count_nonzero(hashes % count == partitions)), count == KAFKAS_DEFAULT, -count

    return max(_counts_from(lowest), key=agreement)


_INDEPENDENT_NAMES: Final = 3
"""A wrong count of at least 50 partitions fits that many unrelated names once in 5,000 topics."""


class PlacedGroups(NamedTuple):
    """Groups, each in one offsets partition: an element of each array for each pair of the two.

    Attributes:
        hashes: partitioning_hash of the group id.
        partitions: the offsets partition with records of the group.
        commit_ms: time of the newest commit there, which only a client asks for; -1 without commits.
        record_ms: time of the newest group record there, which a coordinator may also write of its own accord; -1 without one.
    """

    hashes: Integers
    partitions: Integers
    commit_ms: Integers
    record_ms: Integers

    @classmethod
    def of(cls, rows: Sequence[tuple[str, int, int, int]]) -> Self:
        """Return the arrays of rows with the fields of this class, but with a group id in place of its hash."""
        return cls(partitioning_hashes([row[0] for row in rows]), *np.array([row[1:] for row in rows], np.int64).reshape(-1, 3).T)

    def take(self, at: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> "PlacedGroups":
        """Return the elements at these indices, or where the mask is true."""
        return PlacedGroups(*(column[at] for column in self))


def unreachable_groups(
    placed: PlacedGroups, lowest: int, likely: int, known: int | None = None
) -> tuple[npt.NDArray[np.bool_], tuple[int, ...]]:
    """Find the groups that no client reaches, because the topic got more partitions after their records were written.

    ``FindCoordinator`` answers with partition hash % count alone, and Kafka moves no record when the count grows.

    Args:
        placed: all groups of the topic.
        lowest: the count is at least this number.
        likely: the count that puts the most groups where they are.
        known: the count as the cluster itself reports it; None: it is not in the input.

    Returns: bool[n], true for an unreachable group, and the counts that explain the partitions that clients use now: one if it is certain,
    several if the groups fit them all, none if nothing shows that the count has changed.
    """
    hashes, partitions = placed.hashes, placed.partitions
    if known is not None and known >= lowest:
        counts: tuple[int, ...] = (known,)
    elif (hashes % likely == partitions).all():
        return np.zeros(len(hashes), np.bool_), ()
    else:
        counts = _counts_in_use(placed, lowest)
    is_lost = np.ones(len(hashes), np.bool_) if counts else np.zeros(len(hashes), np.bool_)
    for count in counts:
        is_lost &= hashes % count != partitions
    # Never two rows for one group: without a count that decides, clients work where the newer commit is.
    order = np.lexsort((hashes % likely == partitions, placed.record_ms, placed.commit_ms, ~is_lost, hashes))
    has_newer = np.append(hashes[order][1:] == hashes[order][:-1], np.False_) if len(order) else np.zeros(0, np.bool_)
    is_lost[order[has_newer]] = True
    return is_lost, counts


def _counts_in_use(placed: PlacedGroups, lowest: int) -> tuple[int, ...]:
    """Return the counts that clients used for the newest commits; () if the commits do not show one."""
    placed = placed.take(placed.commit_ms >= 0)
    in_order = placed.take(np.lexsort((placed.commit_ms, placed.hashes)))
    is_same = in_order.hashes[1:] == in_order.hashes[:-1]
    is_newer = in_order.commit_ms[1:] > in_order.commit_ms[:-1]
    is_last = np.append(~is_same, np.True_)[1:]
    moved = in_order.take(np.flatnonzero(is_same & is_newer & is_last) + 1) if len(in_order.hashes) else in_order
    if len(moved.hashes):
        return tuple(count for count in _counts_from(lowest) if (moved.hashes % count == moved.partitions).all())
    # No group is in two partitions. A count never falls: the groups with the newest commits alone fit the present one.
    newest_first = placed.take(np.argsort(-placed.commit_ms, kind="stable"))
    hashes, partitions = newest_first.hashes, newest_first.partitions
    fitting = {count: int(np.argmin(np.append(hashes % count == partitions, np.False_))) for count in _counts_from(lowest)}
    longest = max(fitting.values())
    counts = tuple(count for count, number in fitting.items() if number == longest)
    before = newest_first.take(np.arange(longest, len(hashes)))
    earlier_counts = (count for count in _counts_from(int(before.partitions.max(initial=0)) + 1) if count < min(counts))
    is_explained = any((before.hashes % earlier == before.partitions).all() for earlier in earlier_counts)
    is_chance = len(np.unique(hashes[:longest] - partitions[:longest])) < _INDEPENDENT_NAMES
    return counts if is_explained and not is_chance else ()


def _counts_from(lowest: int) -> range:
    return range(lowest, max(MOST_PARTITIONS, lowest) + 1)
