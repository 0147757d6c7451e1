"""Groups for the tests: a short way to write one down, and a strategy that makes them up."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from random import Random

from hypothesis import strategies as st

from groupcoord_spark.assignors import NO_GENERATION, Assignment, Member, Topic, TopicPartition
from tests.examples import randoms


def topic_id(number: int) -> str:
    """Return a topic id whose bytes depend on the number as if at random."""
    return base64.urlsafe_b64encode((number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128).to_bytes(16, "big"))[:22].decode()


def topics_of(**partitions: int) -> dict[str, Topic]:
    """Topics with this number of partitions, with ids and without racks."""
    return {name: Topic(count, topic_id=topic_id(i + 1)) for i, (name, count) in enumerate(partitions.items())}


def partitions_of(topic: str, *partitions: int) -> tuple[TopicPartition, ...]:
    """Partitions of one topic."""
    return tuple(TopicPartition(topic, partition) for partition in partitions)


def by_topic(assignment: Assignment) -> dict[str, dict[str, list[int]]]:
    """Return an assignment as member -> topic -> partitions."""
    by_member: dict[str, dict[str, list[int]]] = {}
    for member_id, partitions in assignment.items():
        partitions_by_topic = by_member[member_id] = {}
        for topic, partition in partitions:
            partitions_by_topic.setdefault(topic, []).append(partition)
    return by_member


def random_topics(rng: Random, with_racks: bool) -> dict[str, Topic]:
    """Return one to five topics of up to nine partitions; with_racks: some of them with replicas in racks a to c."""
    topics = {}
    for i in range(rng.randint(1, 5)):
        partitions = rng.randint(1, 9)
        racks = None
        if with_racks and rng.random() < 0.5:
            racks = tuple(frozenset(rng.sample("abc", rng.randint(0, 3))) for _ in range(partitions))
        topics[f"t{i}"] = Topic(partitions, racks=racks, topic_id=topic_id(rng.randint(1, 10**6) * 10 + i))
    return topics


def random_group(rng: Random, same_topics: bool, with_racks: bool, with_claims: bool) -> tuple[list[Member], dict[str, Topic]]:
    topics = random_topics(rng, with_racks)
    everything = [TopicPartition(topic, number) for topic in topics for number in range(topics[topic].partitions)]
    common = rng.sample(sorted(topics), rng.randint(1, len(topics)))
    members = []
    for i in rng.sample(range(100), rng.randint(1, 9)):
        has_claims = with_claims and rng.random() < 0.5
        members.append(
            Member(
                f"consumer-{i}",
                tuple(common if same_topics else rng.sample(sorted(topics), rng.randint(1, len(topics)))),
                instance_id=rng.choice([None, f"instance-{99 - i}"]),
                rack=rng.choice([None, "", "a", "b", "d"]) if with_racks else None,
                owned=tuple(rng.sample(everything, rng.randint(0, min(12, len(everything))))) if has_claims else (),
                generation=rng.randint(3, 5) if has_claims else NO_GENERATION,
            )
        )
    return members, topics


def groups(
    *, same_topics: bool = False, with_racks: bool = False, with_claims: bool = False
) -> st.SearchStrategy[tuple[list[Member], dict[str, Topic]]]:
    """Members, each with at least one topic the cluster has, and the topics.

    with_claims: they own what they like, in generations 3 to 5, whether others own it too or not, and even of topics they do not name.
    """
    return randoms.map(lambda rng: random_group(rng, same_topics, with_racks, with_claims))


def subscribed_partitions(members: Sequence[Member], topics: dict[str, Topic]) -> set[TopicPartition]:
    """Return all partitions of all topics that some member names."""
    return {TopicPartition(name, number) for member in members for name in member.topics for number in range(topics[name].partitions)}
