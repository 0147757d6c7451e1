"""Number of partitions of a topic, from the names in its keys and the partitions in which they are: no file contains it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

KAFKAS_DEFAULT: Final = 50
"""Default of offsets.topic.num.partitions and of transaction.state.log.num.partitions."""
MOST_PARTITIONS: Final = 1_000
"""Partition counts up to this one are tried where no file has the count."""


def certain_partition_count(placed: Iterable[tuple[int, int]], lowest: int) -> int | None:
    """The partition count, at least ``lowest``, that alone puts every name where it is; None where no count does, or several do.

    placed: (partitioning_hash of the name, its partition).
    """
    pairs = np.array(list(placed), np.int64).reshape(-1, 2)
    hashes, partitions = pairs[:, 0], pairs[:, 1]
    fitting = [count for count in range(lowest, max(MOST_PARTITIONS, lowest) + 1) if (hashes % count == partitions).all()]
    return fitting[0] if len(fitting) == 1 else None


def best_partition_count(placed: Iterable[tuple[int, int]], lowest: int) -> int:
    """The partition count, at least ``lowest``, that puts the most names where they are; if equal, Kafka's default, else the lowest.

    placed: (partitioning_hash of the name, its partition).
    """
    pairs = np.array(list(placed), np.int64).reshape(-1, 2)
    hashes, partitions = pairs[:, 0], pairs[:, 1]

    def agreement(count: int) -> tuple[int, bool, int]:
        return int(np.count_nonzero(hashes % count == partitions)), count == KAFKAS_DEFAULT, -count

    return max(range(lowest, max(MOST_PARTITIONS, lowest) + 1), key=agreement)
