"""A real group as input of the assignors, and what each assignor would assign to it.

Some of that input is not in the offsets topic. Each assumption made in its place is reported to the user as a sentence.
"""

import hashlib
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from groupcoord_spark.assignors.comparison import Comparison, compare_assignments, rebalances_until_stable
from groupcoord_spark.assignors.membership import Assignment, Assignor, Member, Topic, assignment_of
from groupcoord_spark.errors import UsageError
from groupcoord_spark.wording import counted

PLAUSIBLE_PARTITIONS = 10_000
"""A committed partition number from here on is taken for a mistake of the client, and not as evidence for the size of a topic."""


@dataclass(frozen=True, slots=True)
class AssignableGroup:
    """The members of a group with their owned partitions, and its topics.

    assumptions: sentences, each about an input that is not in the log.
    """

    members: tuple[Member, ...]
    topics: Mapping[str, Topic]
    assumptions: tuple[str, ...] = ()

    @property
    def current_assignment(self) -> Assignment:
        """The partitions that each member owns now."""
        return assignment_of({member.member_id: member.owned for member in self.members})


@dataclass(frozen=True, slots=True)
class Proposal:
    """The assignment that one assignor would reach.

    change: the differences from the current assignment.
    rebalances: number of rebalances until the assignment is reached.
    converges: False if the group would rebalance without end.
    """

    assignor: str
    assignment: Assignment
    change: Comparison
    rebalances: int
    converges: bool

    @property
    def idle(self) -> int:
        """The number of members without partitions."""
        return sum(not partitions for partitions in self.assignment.values())


def observed_topics(
    subscribed: Iterable[str], observed: Mapping[str, int], topic_ids: Mapping[str, str], requested: Mapping[str, int]
) -> tuple[dict[str, Topic], list[str]]:
    """Return the topics of a group with their partition counts, and the assumptions behind the counts.

    Args:
        observed: topic -> highest partition number below PLAUSIBLE_PARTITIONS that a member owns or a group has committed, plus one.
        requested: topic -> number of partitions that the user chose instead. A topic that is in neither mapping is left out.

    Raises:
        UsageError: no member subscribes to a requested topic.
    """
    names = sorted(set(subscribed))
    unsubscribed = sorted(set(requested) - set(names))
    if unsubscribed:
        raise UsageError(f"No member subscribes to {unsubscribed[0]!r}. Topics of the group: {', '.join(names) or 'none'}.")
    topics: dict[str, Topic] = {}
    unobserved, without_id, from_observation = [], [], []
    for name in names:
        partitions = requested.get(name, observed.get(name))
        if partitions is None:
            unobserved.append(name)
            continue
        if name not in requested:
            from_observation.append(f"{name} {partitions}")
        if name not in topic_ids:
            without_id.append(name)
        topics[name] = Topic(partitions, topic_id=topic_ids.get(name) or stand_in_topic_id(name))
    assumptions = []
    if from_observation:
        assumptions.append(
            f"Partitions of topics, by the highest that is assigned or committed in the cluster: {', '.join(from_observation)}."
            " If a topic has more, say so with --partitions."
        )
    if unobserved:
        left_out = ", ".join(unobserved)
        assumptions.append(f"Left out, since no partition of it (below {PLAUSIBLE_PARTITIONS}) was ever assigned or committed: {left_out}.")
    if without_id and len(topics) > 1:
        assumptions.append(f"Topic ids are not in the log and made up, which may turn ties of uniform: {', '.join(without_id)}.")
    return topics, assumptions


def with_changed_member_count(group: AssignableGroup, change: int) -> AssignableGroup:
    """Return the group with ``change`` more members, or fewer if negative.

    New members have the most frequent subscription of the group. The members with the last member ids leave.

    Raises:
        UsageError: no member would be left.
    """
    if change >= 0:
        if not change:
            return group
        topics = Counter(member.topics for member in group.members).most_common(1)[0][0]
        added = tuple(Member(f"new-{number}", topics) for number in range(1, change + 1))
        sentence = f"New members subscribe to {', '.join(topics) or 'nothing'}, have no rack and no instance id."
        return replace(group, members=(*group.members, *added), assumptions=(*group.assumptions, sentence))
    if -change >= len(group.members):
        raise UsageError(f"The group has {counted(len(group.members), 'member')}: {-change} fewer leaves nobody.")
    by_id = sorted(group.members, key=lambda member: member.member_id)
    leaving = [member.member_id for member in by_id[change:]]
    sentence = f"Who leaves is assumed: {', '.join(leaving)}."
    staying = tuple(member for member in group.members if member.member_id not in leaving)
    return replace(group, members=staying, assumptions=(*group.assumptions, sentence))


def proposals(current: Assignment, group: AssignableGroup, chosen: Mapping[str, Assignor]) -> list[Proposal]:
    """Return the proposal of each assignor, compared with the current assignment."""
    made = []
    for name, assignor in chosen.items():
        sequence = rebalances_until_stable(assignor, group.members, group.topics)
        last = sequence.assignments[-1]
        made.append(Proposal(name, last, compare_assignments(current, last), len(sequence.assignments), sequence.converges))
    return made


def advice(candidates: Sequence[Proposal]) -> list[str]:
    """Return sentences about the proposals: the most even ones, which of these move the fewest partitions, and members without
    partitions."""
    sentences = []
    smallest_spread = min(proposal.change.after.spread for proposal in candidates)
    most_even = [proposal for proposal in candidates if proposal.change.after.spread == smallest_spread]
    if len(candidates) > 1 and len(most_even) < len(candidates):
        names = ", ".join(proposal.assignor for proposal in most_even)
        sentences.append(f"Most even: {names} (most and least loaded member differ by {smallest_spread}).")
    fewest_moved = min(len(proposal.change.moved) for proposal in most_even)
    moving_fewest = [proposal.assignor for proposal in most_even if len(proposal.change.moved) == fewest_moved]
    if len(candidates) > 1 and len(moving_fewest) < len(most_even):
        sentences.append(f"Of the most even, fewest partitions are moved by {', '.join(moving_fewest)}: {fewest_moved}.")
    sentences += [f"With {proposal.assignor} the group would never come to rest." for proposal in candidates if not proposal.converges]
    idle = min(proposal.idle for proposal in candidates)
    if idle:
        sentences.append(f"{idle} member{'s have' if idle > 1 else ' has'} nothing to read whichever of them assigns.")
    return sentences


def stand_in_topic_id(topic: str) -> str:
    """Return a stand-in for an unknown topic id, derived from the topic name."""
    return urlsafe_b64encode(hashlib.md5(topic.encode(), usedforsecurity=False).digest()).decode().rstrip("=")
