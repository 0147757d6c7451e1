"""What an assignor is given, a group's members and the topics they name, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

NO_GENERATION = -1


class TopicPartition(NamedTuple):
    """One partition of a topic, by name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Member:
    """One member as its subscription describes it.

    topics: names it subscribes to, in the order of the wire; the cluster may lack some. rack: None or "" is no rack.
    owned: what it says it holds, in the order it says so; for the server's assignors its current target.
    generation: the generation in which it held that, NO_GENERATION where it names none.
    """

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    rack: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic the cluster has: its number of partitions, and where it matters, its id and racks.

    racks: for each partition the racks of its replicas, None where the cluster tells none.
    topic_id: base64url of 16 bytes, 22 characters; only the server's assignors need it.
    """

    partitions: int
    racks: tuple[frozenset[str], ...] | None = None
    topic_id: str | None = None

    def racks_of(self, partition: int) -> frozenset[str]:
        """The racks of one partition's replicas; empty where none is known."""
        return self.racks[partition] if self.racks is not None and partition < len(self.racks) else frozenset()


Topics = Mapping[str, Topic]
Assignment = dict[str, tuple[TopicPartition, ...]]
"""By member id, every member present: what it holds, ascending by topic (java_order) and partition."""
Assignor = Callable[[Sequence[Member], Topics], Assignment]
"""Takes the members in the order in which they were put into the coordinator's map."""


def java_order(text: str) -> bytes:
    """A sort key that orders strings as Java does, by UTF-16 code unit."""
    return text.encode("utf-16-be", "surrogatepass")


def static_first(members: Iterable[Member]) -> list[Member]:
    """The members with an instance id, by instance id, then the others by member id (AbstractPartitionAssignor.MemberInfo)."""
    return sorted(
        members,
        key=lambda member: (1, java_order(member.member_id)) if member.instance_id is None else (0, java_order(member.instance_id)),
    )


def subscribers_by_topic(members: Iterable[Member], topics: Topics) -> dict[str, list[Member]]:
    """Each topic that somebody names and the cluster has, ascending by name, with its subscribers in the given order.

    A topic without partitions is as good as absent.
    """
    subscribers: dict[str, list[Member]] = {}
    for member in members:
        for topic in dict.fromkeys(member.topics):
            if topic in topics and topics[topic].partitions > 0:
                subscribers.setdefault(topic, []).append(member)
    return {topic: subscribers[topic] for topic in sorted(subscribers, key=java_order)}


def assignment_of(held: Mapping[str, Iterable[TopicPartition]]) -> Assignment:
    """The assignment in which each member holds these partitions, in any order."""
    return {
        member_id: tuple(sorted(partitions, key=lambda held_one: (java_order(held_one.topic), held_one.partition)))
        for member_id, partitions in held.items()
    }
