"""Groups for the tests: a short way to write one down, and a strategy that makes them up."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from hypothesis import strategies as st

from groupcoord_spark.assignors import NO_GENERATION, Assignment, Member, Topic, TopicPartition


def topic_id(number: int) -> str:
    """A topic id whose bytes depend on the number as if at random."""
    return base64.urlsafe_b64encode((number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).to_bytes(16, "big"))[:22].decode()


def topics_of(**partitions: int) -> dict[str, Topic]:
    """Topics with so many partitions, with ids and without racks."""
    return {name: Topic(count, topic_id=topic_id(i + 1)) for i, (name, count) in enumerate(partitions.items())}


def partitions_of(topic: str, *partitions: int) -> tuple[TopicPartition, ...]:
    """Partitions of one topic."""
    return tuple(TopicPartition(topic, partition) for partition in partitions)


def by_topic(assignment: Assignment) -> dict[str, dict[str, list[int]]]:
    """An assignment as member -> topic -> partitions."""
    by_member: dict[str, dict[str, list[int]]] = {}
    for member_id, partitions in assignment.items():
        partitions_by_topic = by_member[member_id] = {}
        for topic, partition in partitions:
            partitions_by_topic.setdefault(topic, []).append(partition)
    return by_member


@st.composite
def topic_sets(draw: st.DrawFn, *, with_racks: bool = False) -> dict[str, Topic]:
    """One to five topics of up to nine partitions; with_racks: some of them with replicas in racks a to c."""
    topics = {}
    for i in range(draw(st.integers(1, 5))):
        partitions = draw(st.integers(1, 9))
        racks = None
        if with_racks and draw(st.booleans()):
            racks = tuple(draw(st.frozensets(st.sampled_from("abc"), max_size=3)) for _ in range(partitions))
        topics[f"t{i}"] = Topic(partitions, racks=racks, topic_id=topic_id(draw(st.integers(1, 10**6)) * 10 + i))
    return topics


@st.composite
def groups(
    draw: st.DrawFn, *, same_topics: bool = False, with_racks: bool = False, with_claims: bool = False
) -> tuple[list[Member], dict[str, Topic]]:
    """Members, each with at least one topic the cluster has, and the topics.

    with_claims: they own what they like, in generations 3 to 5, whether others own it too or not, and even of topics they do not name.
    """
    topics = draw(topic_sets(with_racks=with_racks))
    everything = [TopicPartition(topic, number) for topic in topics for number in range(topics[topic].partitions)]
    naming = st.lists(st.sampled_from(sorted(topics)), min_size=1, unique=True)
    common = draw(naming)
    members = []
    for i in draw(st.lists(st.integers(0, 99), min_size=1, max_size=9, unique=True)):
        has_claims = with_claims and draw(st.booleans())
        members.append(
            Member(
                f"consumer-{i}",
                tuple(common if same_topics else draw(naming)),
                instance_id=draw(st.sampled_from([None, f"instance-{99 - i}"])),
                rack=draw(st.sampled_from([None, "", "a", "b", "d"])) if with_racks else None,
                owned=tuple(draw(st.lists(st.sampled_from(everything), max_size=12, unique=True))) if has_claims else (),
                generation=draw(st.integers(3, 5)) if has_claims else NO_GENERATION,
            )
        )
    return members, topics


def subscribed_partitions(members: Sequence[Member], topics: dict[str, Topic]) -> set[TopicPartition]:
    """All partitions of all topics that some member names."""
    return {TopicPartition(name, number) for member in members for name in member.topics for number in range(topics[name].partitions)}
