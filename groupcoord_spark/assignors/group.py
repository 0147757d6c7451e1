"""A real group as the assignors take it, from the little that the offsets topic tells of it; whatever had to be assumed is said."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from groupcoord_spark.assignors.comparison import Comparison, compare_assignments
from groupcoord_spark.assignors.membership import Assignment, Assignor, Member, Topic, assignment_of
from groupcoord_spark.assignors.rebalances import rebalances_until_stable
from groupcoord_spark.errors import UsageError

PLAUSIBLE_PARTITIONS = 10_000
"""Clients may commit any partition number; a higher one is taken for a slip, not for a topic of that size."""


@dataclass(frozen=True, slots=True)
class AssignableGroup:
    """Members with what they hold, and topics. ``assumptions``: sentences, each about something the log does not tell."""

    members: tuple[Member, ...]
    topics: Mapping[str, Topic]
    assumptions: tuple[str, ...] = ()

    @property
    def held(self) -> Assignment:
        """Who holds what now."""
        return assignment_of({member.member_id: member.owned for member in self.members})


@dataclass(frozen=True, slots=True)
class Proposal:
    """What one assignor would give in the end.

    change: from what members hold now. rebalances: how many it takes to get there. converges: False if the group would rebalance for ever.
    """

    assignor: str
    assignment: Assignment
    change: Comparison
    rebalances: int
    converges: bool

    @property
    def idle(self) -> int:
        """Members that would have nothing to read."""
        return sum(not held for held in self.assignment.values())


def observed_topics(
    subscribed: Iterable[str], partitions_seen: Mapping[str, int], topic_ids: Mapping[str, str], wanted: Mapping[str, int]
) -> tuple[dict[str, Topic], list[str]]:
    """The topics of a group, and what is assumed of them.

    partitions_seen: one more than the highest partition below PLAUSIBLE_PARTITIONS that anybody holds or has committed. wanted: numbers
    that are to hold instead. A topic of which nothing was seen is left out.
    Raises UsageError for a wanted topic that no member subscribes to.
    """
    names = sorted(set(subscribed))
    strangers = sorted(set(wanted) - set(names))
    if strangers:
        raise UsageError(f"No member subscribes to {strangers[0]!r}. Topics of the group: {', '.join(names) or 'none'}.")
    topics: dict[str, Topic] = {}
    unseen, without_id, counted = [], [], []
    for name in names:
        partitions = wanted.get(name, partitions_seen.get(name))
        if partitions is None:
            unseen.append(name)
            continue
        if name not in wanted:
            counted.append(f"{name} {partitions}")
        if name not in topic_ids:
            without_id.append(name)
        topics[name] = Topic(partitions, topic_id=topic_ids.get(name) or _stand_in_id(name))
    assumptions = []
    if counted:
        assumptions.append(
            f"Partitions of topics, by the highest that is assigned or committed in the cluster: {', '.join(counted)}."
            " If a topic has more, say so with --partitions."
        )
    if unseen:
        left_out = ", ".join(unseen)
        assumptions.append(f"Left out, since no partition of it (below {PLAUSIBLE_PARTITIONS}) was ever assigned or committed: {left_out}.")
    if without_id and len(topics) > 1:
        assumptions.append(f"Topic ids are not in the log and made up, which may turn ties of uniform: {', '.join(without_id)}.")
    return topics, assumptions


def with_changed_member_count(group: AssignableGroup, change: int) -> AssignableGroup:
    """The group with so many members more, or fewer.

    Who comes subscribes to what most members subscribe to; who goes are the last ones by member id. Raises UsageError if nobody is left.
    """
    if change >= 0:
        if not change:
            return group
        topics = Counter(member.topics for member in group.members).most_common(1)[0][0]
        added = tuple(Member(f"new-{number}", topics) for number in range(1, change + 1))
        sentence = f"New members subscribe to {', '.join(topics) or 'nothing'}, have no rack and no instance id."
        return replace(group, members=(*group.members, *added), assumptions=(*group.assumptions, sentence))
    if -change >= len(group.members):
        raise UsageError(f"The group has {len(group.members)} members: {-change} fewer leaves nobody.")
    by_id = sorted(group.members, key=lambda member: member.member_id)
    gone = [member.member_id for member in by_id[change:]]
    sentence = f"Who leaves is assumed: {', '.join(gone)}."
    stay = tuple(member for member in group.members if member.member_id not in gone)
    return replace(group, members=stay, assumptions=(*group.assumptions, sentence))


def proposals(before: Assignment, group: AssignableGroup, chosen: Mapping[str, Assignor]) -> list[Proposal]:
    """What each of the assignors would give the group, against who held what before."""
    made = []
    for name, assignor in chosen.items():
        course = rebalances_until_stable(assignor, group.members, group.topics)
        last = course.assignments[-1]
        made.append(Proposal(name, last, compare_assignments(before, last), len(course.assignments), course.converges))
    return made


def advice(made: Sequence[Proposal]) -> list[str]:
    """What the figures say, and no more: which are most even, which of these move least, who stays without work."""
    told = []
    least = min(one.change.after.spread for one in made)
    even = [one for one in made if one.change.after.spread == least]
    if len(made) > 1 and len(even) < len(made):
        told.append(f"Most even: {', '.join(one.assignor for one in even)} (most and least loaded member differ by {least}).")
    fewest = min(len(one.change.moved) for one in even)
    still = [one.assignor for one in even if len(one.change.moved) == fewest]
    if len(made) > 1 and len(still) < len(even):
        told.append(f"Of the most even, fewest partitions are moved by {', '.join(still)}: {fewest}.")
    told += [f"With {one.assignor} the group would never come to rest." for one in made if not one.converges]
    idle = min(one.idle for one in made)
    if idle:
        told.append(f"{idle} member{'s have' if idle > 1 else ' has'} nothing to read whichever of them assigns.")
    return told


def _stand_in_id(topic: str) -> str:
    return urlsafe_b64encode(hashlib.md5(topic.encode(), usedforsecurity=False).digest()).decode().rstrip("=")
