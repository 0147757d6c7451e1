"""Partitions and offsets as clients list them and as a timeline shows them."""

from collections.abc import Iterable, Mapping

from groupcoord_spark.assignors import TopicPartition


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    """Topic -> its partitions, in their order. The same of topic ids, and of tasks: subtopology -> partition numbers."""
    numbers: dict[str, list[int]] = {}
    for topic, number in partitions:
        numbers.setdefault(topic, []).append(number)
    return {topic: tuple(listed) for topic, listed in numbers.items()}


def difference(partitions: Iterable[TopicPartition], left_out: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Return the partitions that are not left out, in order."""
    excluded = frozenset(left_out)
    return tuple(partition for partition in partitions if partition not in excluded)


def topic_partitions(listed: Mapping[str, Iterable[int]]) -> Iterable[TopicPartition]:
    """Iterate over the partitions of a list by topic."""
    return (TopicPartition(topic, partition) for topic, numbers in listed.items() for partition in numbers)


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Format partitions as ``orders:0,1;payments:3``, the format of the describe command; "" without partitions."""
    return listed_text(by_topic(partitions))


def listed_text(listed: Mapping[str, Iterable[int]] | None) -> str:
    """Format partitions that are listed by topic."""
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in (listed or {}).items())


def offsets_text(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets as ``orders-0=5 orders-1=7``."""
    return " ".join(f"{topic}-{number}={offset}" for (topic, number), offset in offsets.items())
