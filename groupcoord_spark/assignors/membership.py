"""The input of an assignor (members and topics) and its output (an assignment)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

NO_GENERATION = -1


class TopicPartition(NamedTuple):
    """One partition of a topic, by name."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class Member:
    """One member, as its subscription describes it.

    topics: names of the topics it subscribes to, in the order of the subscription; some may not exist.
    rack: None or "": no rack.
    owned: the partitions that it lists as owned, in that order; for the server's assignors its current target assignment.
    generation: the generation of that ownership; NO_GENERATION if it names none.
    """

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    rack: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the cluster.

    partitions: their number.
    racks: for each partition the racks of its replicas; None: not known.
    topic_id: base64url of 16 bytes, 22 characters; only the server's assignors need it.
    """

    partitions: int
    racks: tuple[frozenset[str], ...] | None = None
    topic_id: str | None = None

    def racks_of(self, partition: int) -> frozenset[str]:
        """Return the racks of one partition's replicas, or an empty set if unknown."""
        return self.racks[partition] if self.racks is not None and partition < len(self.racks) else frozenset()


Topics = Mapping[str, Topic]
Assignment = dict[str, tuple[TopicPartition, ...]]
"""Member id -> partitions of the member, ascending by topic (java_order) and number. Every member is a key."""
Assignor = Callable[[Sequence[Member], Topics], Assignment]
"""A function of the members (in their order in the coordinator's map) and the topics."""


class ServerAssignor(Protocol):
    """An assignor of the broker. ``is_homogeneous``: the group's subscription type; None derives it from the members."""

    def __call__(self, members: Sequence[Member], topics: Topics, *, is_homogeneous: bool | None = None) -> Assignment: ...


def java_order(text: str) -> bytes:
    """Return a sort key for the order of Java strings, which compare by UTF-16 code unit."""
    return text.encode("utf-16-be", "surrogatepass")


def static_first(members: Iterable[Member]) -> list[Member]:
    """Static members by instance id, then dynamic members by member id (AbstractPartitionAssignor.MemberInfo)."""
    return sorted(
        members, key=lambda member: (1, java_order(member.member_id)) if member.instance_id is None else (0, java_order(member.instance_id))
    )


def subscribers_by_topic(members: Iterable[Member], topics: Topics) -> dict[str, list[Member]]:
    """Topic -> its subscribers in the given order, for topics that exist and have a subscriber, ascending by name.

    A topic without partitions counts as a topic that does not exist.
    """
    subscribers: dict[str, list[Member]] = {}
    for member in members:
        for topic in dict.fromkeys(member.topics):
            if topic in topics and topics[topic].partitions > 0:
                subscribers.setdefault(topic, []).append(member)
    return {topic: subscribers[topic] for topic in sorted(subscribers, key=java_order)}


def assignment_of(partitions_by_member: Mapping[str, Iterable[TopicPartition]]) -> Assignment:
    """Return the assignment of these partitions, which may be in any order, to each member."""
    return {
        member_id: tuple(sorted(partitions, key=lambda p: (java_order(p.topic), p.partition)))
        for member_id, partitions in partitions_by_member.items()
    }
