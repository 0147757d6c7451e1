"""Members and topics that are written on the command line of ``groupcoord assign``."""

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import click

from groupcoord_spark.assignors import CLIENT_ASSIGNORS
from groupcoord_spark.assignors.group import AssignableGroup, stand_in_topic_id
from groupcoord_spark.assignors.membership import Member, Topic, TopicPartition
from groupcoord_spark.errors import UsageError
from groupcoord_spark.wording import counted

_PARTS = ("topics", "assignors", "rack", "instance", "owns")


class WrittenMember(NamedTuple):
    """A member as ``--member`` names it. assignors: in the order of its preference; () where the option names none."""

    member: Member
    assignors: tuple[str, ...]


class MemberParam(click.ParamType):  # type: ignore[type-arg]
    """``c topics=orders,visits assignors=range rack=r1 instance=i owns=orders:0,1;visits:3``."""

    name = "'NAME topics=T,T ...'"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> WrittenMember:
        if isinstance(value, WrittenMember):
            return value
        name, *parts = str(value).split() or [""]
        if not name or "=" in name:
            self.fail(f"{value!r} does not begin with the name of a member: write for example 'c topics=orders'.", param, ctx)
        parts_by_key: dict[str, str] = {}
        for part in parts:
            key, sign, words = part.partition("=")
            if key not in _PARTS:
                self.fail(f"{value!r} has {key!r}, which is not one of {', '.join(_PARTS)}.", param, ctx)
            if not sign or not words:
                self.fail(f"{value!r} says nothing after {key}=.", param, ctx)
            if key in parts_by_key:
                self.fail(f"{value!r} has {key}= twice: write all after one, separated by commas.", param, ctx)
            parts_by_key[key] = words
        assignors = _words(parts_by_key.get("assignors", ""))
        for assignor in assignors:
            near = get_close_matches(assignor, CLIENT_ASSIGNORS, 1, 0.75)
            if near and assignor not in CLIENT_ASSIGNORS:
                self.fail(f"{value!r} names the assignor {assignor!r}. Did you mean {near[0]!r}?", param, ctx)
        owned = _partitions(parts_by_key.get("owns", ""))
        if owned is None:
            self.fail(f"{parts_by_key['owns']!r} does not name partitions, such as orders:0,1;visits:3.", param, ctx)
        topics = tuple(dict.fromkeys(_words(parts_by_key.get("topics", "")))) or tuple(dict.fromkeys(place.topic for place in owned))
        if not topics:
            self.fail(f"{value!r} has no topics: write for example 'c topics=orders'.", param, ctx)
        member = Member(name, topics, parts_by_key.get("instance"), parts_by_key.get("rack"), owned, 0 if owned else -1)
        return WrittenMember(member, assignors)


class ReplicaRacks(click.ParamType):  # type: ignore[type-arg]
    """``orders=r1,r2;r2,r3``: the racks of the replicas of partition 0, of partition 1, and again from the front."""

    name = "TOPIC=R,R;R,R"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, tuple[frozenset[str], ...]]:
        if isinstance(value, tuple):
            return value
        topic, _, racks = str(value).partition("=")
        of_partitions = tuple(frozenset(_words(listed)) for listed in racks.split(";"))
        if not topic or not all(of_partitions):
            self.fail(f"{value!r} does not name racks of replicas, such as 'orders=r1,r2;r2,r3'.", param, ctx)
        return topic, of_partitions


def made_up_group(members: Sequence[WrittenMember], partitions: Mapping[str, int]) -> AssignableGroup:
    """Return a group of these members alone. Raises UsageError for a topic without a partition count."""
    if not members:
        raise UsageError("Name a group with --group, or make one up with --member and --partitions.")
    group = with_members(AssignableGroup((), {}), members, partitions)
    if extra := [topic for topic in partitions if topic not in group.topics]:
        raise UsageError(f"No member subscribes to {extra[0]!r}. Topics of the group: {', '.join(sorted(group.topics))}.")
    return AssignableGroup(group.members, dict(sorted(group.topics.items())))


def with_members(group: AssignableGroup, members: Sequence[WrittenMember], partitions: Mapping[str, int]) -> AssignableGroup:
    """Return the group with additional members. Raises UsageError for an existing member id or a topic of unknown size."""
    topics = dict(group.topics)
    _refuse_two_of_the_same([*group.members, *(written.member for written in members)])
    for topic in (topic for written in members for topic in written.member.topics if topic not in topics):
        if topic not in partitions:
            raise UsageError(f"How many partitions does {topic!r} have? Say so with --partitions {topic}=N.")
        topics[topic] = Topic(partitions[topic], topic_id=stand_in_topic_id(topic))
    return AssignableGroup((*group.members, *(written.member for written in members)), topics, group.assumptions)


def _refuse_two_of_the_same(members: Sequence[Member]) -> None:
    """Raises UsageError if two members have the same id or the same instance id."""
    by_instance: dict[str, str] = {}
    ids: set[str] = set()
    for member in members:
        if member.member_id in ids:
            raise UsageError(f"There are two members {member.member_id!r}: give each a name of its own.")
        ids.add(member.member_id)
        if member.instance_id is not None:
            owner = by_instance.setdefault(member.instance_id, member.member_id)
            if owner != member.member_id:
                raise UsageError(f"Members {owner!r} and {member.member_id!r} both have the instance id {member.instance_id!r}.")


def remarks_on_claims(group: AssignableGroup, written: Sequence[WrittenMember]) -> list[str]:
    """Sentences on partitions that the written members say they own, and that no assignor would have given them."""
    is_written = {member.member.member_id for member in written}
    remarks = []
    owners: dict[TopicPartition, str] = {}
    for member in group.members:
        for place in member.owned:
            name, topic = f"{place.topic}:{place.partition}", group.topics.get(place.topic)
            if member.member_id not in is_written:
                owners[place] = member.member_id
                continue
            if topic is None or place.topic not in member.topics:
                remarks.append(f"{member.member_id} owns {name}, and does not subscribe to the topic.")
            elif place.partition >= topic.partitions:
                remarks.append(f"{member.member_id} owns {name}, and the topic has {counted(topic.partitions, 'partition')}.")
            if (owner := owners.setdefault(place, member.member_id)) != member.member_id:
                remarks.append(f"{owner} and {member.member_id} both own {name}.")
    return remarks


def with_replica_racks(group: AssignableGroup, racks: Mapping[str, Sequence[frozenset[str]]]) -> AssignableGroup:
    """Return the group with the racks of its topics' replicas. Raises UsageError for a topic outside of the group."""
    topics = dict(group.topics)
    for topic, of_partitions in racks.items():
        if topic not in topics:
            raise UsageError(f"No member subscribes to {topic!r}. Topics of the group: {', '.join(topics) or 'none'}.")
        topic_now = topics[topic]
        cycled = tuple(of_partitions[number % len(of_partitions)] for number in range(topic_now.partitions))
        topics[topic] = Topic(topic_now.partitions, cycled, topic_now.topic_id)
    return AssignableGroup(group.members, topics, group.assumptions)


def verdict_on_assignors(members: Sequence[WrittenMember], elected: str | None) -> list[str]:
    """Sentences on which assignor the coordinator would elect, or which members it refuses (chapters 4.2 and 5.3 of coordinator.md).

    elected: the assignor of the group today; the other assignors that its members list are not in the log.
    """
    candidates: tuple[str, ...] | None = None if elected is None else (elected,)
    sentences, votes = [], {} if elected is None else {elected: 1}
    for written in members:
        if not written.assignors:
            continue
        common = written.assignors if candidates is None else tuple(name for name in candidates if name in written.assignors)
        if not common:
            supported = ", ".join(candidates or ())
            sentences.append(
                f"{written.member.member_id} cannot join: INCONSISTENT_GROUP_PROTOCOL. The members before it all support {supported}."
            )
            continue
        candidates = common
    for written in members:
        vote = next((name for name in written.assignors if candidates is not None and name in candidates), None)
        if vote is not None:
            votes[vote] = votes.get(vote, 0) + 1
    if candidates is not None and any(written.assignors for written in members):
        winners = [name for name in candidates if votes.get(name, 0) == max(votes.get(candidate, 0) for candidate in candidates)]
        supporters = "The members that can join all" if sentences else "All members"
        sentences.append(f"{supporters} support {', '.join(candidates)}; the coordinator elects {' or '.join(winners)}.")
    return sentences


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _partitions(text: str) -> tuple[TopicPartition, ...] | None:
    """Return the partitions in a text such as ``orders:0,1;visits:3``, or None for other texts."""
    partitions = []
    for of_topic in filter(None, text.split(";")):
        topic, _, numbers = of_topic.rpartition(":")
        listed = numbers.split(",")
        if not topic or not all(re.fullmatch("[0-9]{1,10}", number) for number in listed):
            return None
        partitions += [TopicPartition(topic, int(number)) for number in listed]
    return tuple(partitions)
