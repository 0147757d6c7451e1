"""``groupcoord assign``: what each assignor would give the members of a real or made-up group, and what it would move."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli import made_up_groups
from groupcoord_spark.cli.names import named_groups
from groupcoord_spark.cli.options import Common, ShownRun, command, common_options, shown_run_options
from groupcoord_spark.cli.render import lines, print_lines, write_records
from groupcoord_spark.errors import GroupcoordError, UsageError

if TYPE_CHECKING:
    from groupcoord_spark.assignors.group import AssignableGroup, Proposal
    from groupcoord_spark.assignors.membership import Assignment, Member, TopicPartition
    from groupcoord_spark.warehouse import Condition, Run, Warehouse

ASSIGNORS: Final = ("range", "roundrobin", "sticky", "cooperative-sticky", "uniform", "server-range")
"""The assignors of clients, then the broker's own: uniform and range, here ``server-range``."""

NOW: Final = "(now)"
TARGET_KEY: Final = "ConsumerGroupTargetAssignmentMemberKey"
_NAMES: Final = (
    *("group", "assignor", "members", "partitions", "least", "most", "spread", "moved", "assigned", "released", "kept"),
    *("rebalances", "settles", "partitions_by_member", "topics", "assignment", "moves"),
)


class TopicPartitions(click.ParamType):  # type: ignore[type-arg]
    """``topic=48``; the command gets the topic and the number."""

    name = "TOPIC=N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        topic, _, number = str(value).rpartition("=")
        if not topic or not re.fullmatch("[0-9]{1,7}", number) or not 1 <= int(number) <= 1_000_000:
            self.fail(f"{value!r} is not a topic with its number of partitions, such as orders=48.", param, ctx)
        return topic, int(number)


class MemberChangeParameter(click.ParamType):  # type: ignore[type-arg]
    """``+2`` or ``-1``; the command gets the number."""

    name = "+N|-N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value)
        if not isinstance(value, int) and not (text[:1] in ("+", "-") and text[1:].isdecimal() and len(text) < 7):
            self.fail(f"{value!r} is not a change such as +2 or -1.", param, ctx)
        return int(text)


@command("assign", epilog="Example: groupcoord assign --group app-range --members +2 --assignor range --assignor sticky")
@click.option("--group", "group_id", metavar="GROUP", help="The group: a classic consumer group or one of the new protocol.")
@click.option(
    "--member",
    "written",
    multiple=True,
    type=made_up_groups.MemberParam(),
    help="A member more, such as 'c topics=orders assignors=range,sticky rack=r1 instance=i owns=orders:0,1'; may be given several times."
    " Without --group the group has these members alone, and needs no warehouse.",
)
@click.option(
    "--replica-racks",
    "racks",
    multiple=True,
    type=made_up_groups.ReplicaRacks(),
    help="The racks of a topic's replicas, such as 'orders=r1,r2;r2,r3': of partition 0, of partition 1, and again from the front.",
)
@click.option("--assignor", "names", multiple=True, type=click.Choice(ASSIGNORS), help="Only this assignor; may be given several times.")
@click.option("--members", "change", type=MemberChangeParameter(), default=0, help="Add or remove this number of members.")
@click.option("--partitions", type=TopicPartitions(), multiple=True, help="Number of partitions of a topic; may be given several times.")
@shown_run_options
@common_options
def assign(
    common: Common,
    group_id: str | None,
    written: tuple[made_up_groups.WrittenMember, ...],
    racks: tuple[tuple[str, tuple[frozenset[str], ...]], ...],
    names: tuple[str, ...],
    change: int,
    partitions: tuple[tuple[str, int], ...],
    shown_run: ShownRun,
) -> None:
    """Show what each assignor would give a group: balance, moves, assignments.

    Members, subscriptions and current owners come from the run. Missing facts are assumed, and each assumption is printed on stderr. MOVED
    partitions go from one member to another, ASSIGNED ones had no owner before, RELEASED ones have none afterwards. The last table lists
    them with old and new owner.
    """
    from groupcoord_spark.assignors import CLIENT_ASSIGNORS, SERVER_ASSIGNORS
    from groupcoord_spark.assignors.group import advice, proposals, with_changed_member_count

    sizes, protocol = _sizes(partitions), None
    if group_id is None:
        group = made_up_groups.made_up_group(written, sizes)
    else:
        reader = _GroupReader(*common.run(shown_run))
        new_topics = {topic for new_member in written for topic in new_member.member.topics}
        group, protocol = reader.group(group_id, sizes, new_topics)
        group = made_up_groups.with_members(group, written, sizes)
    current = group.current_assignment
    group = made_up_groups.with_replica_racks(with_changed_member_count(group, change), dict(racks))
    assignors = {**CLIENT_ASSIGNORS, "uniform": SERVER_ASSIGNORS["uniform"], "server-range": SERVER_ASSIGNORS["range"]}
    made = proposals(current, group, {name: assignors[name] for name in names or ASSIGNORS})
    assumptions = (f"Assumed: {sentence}" for sentence in group.assumptions)
    for sentence in (
        *assumptions,
        *made_up_groups.remarks_on_claims(group, written),
        *made_up_groups.verdict_on_assignors(written, protocol),
    ):
        common.say(sentence)
    if common.output != "table":
        write_records(common.output, _NAMES, _rows(group_id, group, made))
        return
    print_lines(_table(current, group, made, protocol))
    for sentence in advice(made):
        common.say(sentence)


def _sizes(partitions: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Topic -> number of partitions. Raises UsageError for a topic with two numbers."""
    sizes: dict[str, int] = {}
    for topic, number in partitions:
        if sizes.setdefault(topic, number) != number:
            raise UsageError(f"--partitions gives {topic!r} two numbers of partitions: {sizes[topic]} and {number}.")
    return sizes


def _rows(group_id: str | None, group: AssignableGroup, made: Sequence[Proposal]) -> Iterator[tuple[Any, ...]]:
    topics = {name: topic.partitions for name, topic in group.topics.items()}
    for proposal in made:
        balance = dict(proposal.change.after.partitions_by_member)
        assignment = {member_id: _by_topic(partitions) for member_id, partitions in proposal.assignment.items()}
        counts = (group_id, proposal.assignor, len(group.members), *_summary_cells(proposal), proposal.converges)
        moves = [{"from": old, "to": new, "partitions": _by_topic(moved)} for old, new, moved in proposal.change.moves]
        yield (*counts, balance, topics, assignment, moves)


def _summary_cells(proposal: Proposal) -> tuple[int, ...]:
    change, balance = proposal.change, proposal.change.after
    total = sum(balance.partitions_by_member.values())
    moves = (len(change.moved), len(change.assigned), len(change.released), change.kept)
    return (total, balance.least, balance.most, balance.spread, *moves, proposal.rebalances)


def _table(current: Assignment, group: AssignableGroup, made: Sequence[Proposal], protocol: str | None) -> list[str]:
    from groupcoord_spark.assignors import balance_of

    balance = balance_of(current)
    titles = ["ASSIGNOR", "PARTITIONS", "MIN", "MAX", "SPREAD", "MOVED", "ASSIGNED", "RELEASED", "KEPT", "REBALANCES"]
    total = sum(balance.partitions_by_member.values())
    row_of_today = (f"{NOW} {protocol or ''}".rstrip(), total, balance.least, balance.most, balance.spread, "", "", "", "", "")
    proposed = [(proposal.assignor, *_summary_cells(proposal)) for proposal in made]
    summary = lines(titles, [row_of_today, *proposed], [18, 10, 4, 4, 6, 5, 8, 8, 4, None])
    everybody = sorted({*current, *(member.member_id for member in group.members)})
    cells = [
        (name, balance.partitions_by_member.get(name), *(proposal.change.after.partitions_by_member.get(name) for proposal in made))
        for name in everybody
    ]
    assignors = [proposal.assignor for proposal in made]
    of_members = lines(["MEMBER", NOW, *assignors], cells, [15, 5, *map(len, assignors)])
    of_partitions = lines(
        ["ASSIGNOR", "MEMBER", "PARTITIONS"],
        [
            (name, member_id, _named(assignment.get(member_id, ())))
            for name, assignment in [(NOW, current), *((proposal.assignor, proposal.assignment) for proposal in made)]
            for member_id in everybody
            if member_id in assignment
        ],
        [18, 15, None],
    )
    moves = [(proposal.assignor, old, new, _named(moved)) for proposal in made for old, new, moved in proposal.change.moves]
    of_moves = ["", *lines(["ASSIGNOR", "FROM", "TO", "PARTITIONS"], moves, [18, 15, 15, None])] if moves else []
    return [line.rstrip() for line in (*summary, "", *of_members, "", *of_partitions, *of_moves)]


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _named(partitions: Sequence[TopicPartition]) -> str | None:
    """Return every partition by name, as Kafka's describe writes assignments: ``orders:0,1;payments:3``."""
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in _by_topic(partitions).items()) or None


class _GroupReader:
    """Reads a group from the tables of one run."""

    def __init__(self, warehouse: Warehouse, run: Run) -> None:
        self._warehouse = warehouse
        self._run = run

    def group(self, group_id: str, partitions: Mapping[str, int], new_topics: Collection[str] = ()) -> tuple[AssignableGroup, str | None]:
        """Return the group and its assignor. Raises GroupcoordError if the group is missing or no assignor supports it.

        new_topics: topics of members that join, which may have a number of partitions although no member subscribes to them today.
        """
        from groupcoord_spark.assignors.group import AssignableGroup, observed_topics

        of_group: Condition = ("group_id", "=", group_id)
        rows = list(self._rows("groups", "group_type protocol_type protocol generation", [of_group]))
        if not rows:
            named_groups([group_id], self._warehouse, self._run)
        group_type, protocol_type, protocol, generation = rows[0]
        if group_type not in ("classic", "consumer") or (group_type == "classic" and protocol_type not in ("consumer", None)):
            kind = protocol_type if group_type == "classic" else group_type
            raise GroupcoordError(f"Group {group_id!r} is of the kind {kind!r}: these assignors share out partitions among consumers.")
        owned = self._current_assignment(group_id)
        if group_type == "consumer":
            owned = self._as_recorded(group_id, owned)
        members, sentences = self._members(group_id, owned, -1 if generation is None else generation)
        if not members:
            raise GroupcoordError(f"Group {group_id!r} has no members to assign partitions to.")
        names = {topic for member in members for topic in member.topics}
        observed, topic_ids = self._topics(names)
        requested = {topic: number for topic, number in partitions.items() if topic in names or topic not in new_topics}
        topics, assumed = observed_topics(names, observed, topic_ids, requested)
        return AssignableGroup(tuple(members), topics, (*assumed, *sentences)), protocol

    def _members(self, group_id: str, owned_by: Mapping[str, Sequence[TopicPartition]], generation: int) -> tuple[list[Member], list[str]]:
        from groupcoord_spark.assignors.membership import Member

        of_group: Condition = ("group_id", "=", group_id)
        members: list[Member] = []
        guessed: list[str] = []
        has_racks = False
        columns = "member_id instance_id rack_id subscribed_topics subscribed_topic_regex subscription"
        for member_id, instance_id, rack_id, subscribed, regex, subscription in sorted(
            self._rows("members", columns, [of_group]), key=lambda row: str(row[0])
        ):
            owned = tuple(owned_by.get(member_id, ()))
            topics = _topics_in_order(subscription, subscribed)
            if topics is None or regex:
                guessed.append(member_id)
                topics = tuple(dict.fromkeys([*(topics or ()), *(place.topic for place in owned)]))
            has_racks = has_racks or rack_id is not None
            members.append(Member(member_id, topics, instance_id, rack_id, owned, generation))
        sentences = []
        if guessed:
            sentences.append(f"Assumed to subscribe to the topics of their partitions, since the log names none: {', '.join(guessed)}.")
        if has_racks:
            sentences.append("Racks of replicas are not in the log: no assignor heeds the members' racks here.")
        return members, sentences

    def _current_assignment(self, group_id: str) -> dict[str, list[TopicPartition]]:
        from groupcoord_spark.assignors.membership import TopicPartition

        of_group: Condition = ("group_id", "=", group_id)
        by_kind: dict[str, dict[str, list[TopicPartition]]] = {}
        for member_id, kind, topic, partition in self._rows("assignments", "member_id kind topic partition", [of_group]):
            if topic is not None and partition is not None:
                by_kind.setdefault(kind, {}).setdefault(member_id, []).append(TopicPartition(topic, partition))
        # The broker's assignors start from the target assignment, which the members may not have reached yet.
        assignment = by_kind.get("target") or by_kind.get("current", {})
        return {member_id: sorted(partitions) for member_id, partitions in assignment.items()}

    def _as_recorded(self, group_id: str, targets: Mapping[str, list[TopicPartition]]) -> dict[str, list[TopicPartition]]:
        """Return the targets in the order of their records, which the uniform assignor depends on.

        Ascending where the history has no record with these partitions, as after ``nightly --no-history``.
        """
        from groupcoord_spark.assignors.membership import TopicPartition

        of_targets: list[Condition] = [("group_id", "=", group_id), ("key_name", "=", TARGET_KEY)]
        newest: dict[str, tuple[int, int]] = {}
        for member_id, incarnation, record_offset in self._rows("group_records", "member_id incarnation record_offset", of_targets):
            newest[member_id] = max(newest.get(member_id, (-1, -1)), (incarnation, record_offset))
        if not newest:
            return dict(targets)
        names = dict(self._rows("assignments", "topic_id topic", [("group_id", "=", group_id), ("kind", "=", "target")]))
        of_newest: Condition = ("record_offset", "in", sorted({record_offset for _, record_offset in newest.values()}))
        columns = "member_id incarnation record_offset value_json"
        recorded = dict(targets)
        for member_id, incarnation, record_offset, value in self._rows("group_records", columns, [*of_targets, of_newest]):
            if value is None or newest[member_id] != (incarnation, record_offset):
                continue
            listed = [
                TopicPartition(names[of_topic["topicId"]], partition)
                for of_topic in json.loads(value)["topicPartitions"]
                if names.get(of_topic["topicId"]) is not None
                for partition in of_topic["partitions"]
            ]
            if sorted(listed) == targets.get(member_id):
                recorded[member_id] = listed
        return recorded

    def _topics(self, names: set[str]) -> tuple[dict[str, int], dict[str, str]]:
        """Partitions and ids of topics, by what any group of the cluster holds or has committed."""
        from groupcoord_spark.assignors.group import PLAUSIBLE_PARTITIONS

        partitions: dict[str, int] = {}
        topic_ids: dict[str, str] = {}
        for table in ("assignments", "committed_offsets"):
            for topic, topic_id, partition in self._rows(table, "topic topic_id partition", [("topic", "in", sorted(names))]):
                if partition is not None and 0 <= partition < PLAUSIBLE_PARTITIONS:
                    partitions[topic] = max(partitions.get(topic, 0), partition + 1)
                if topic_id:
                    topic_ids[topic] = topic_id
        return partitions, topic_ids

    def _rows(self, table: str, columns: str, where: list[Condition]) -> Iterator[tuple[Any, ...]]:
        names = columns.split()
        rows = self._warehouse.read(table, columns=names, where=where, run=self._run)
        return zip(*(rows[name].to_pylist() for name in names), strict=True)


def _topics_in_order(subscription: bytes | None, subscribed: Sequence[str] | None) -> tuple[str, ...] | None:
    """Topics as the member lists them, since assignors go by that order; None: not known."""
    from groupcoord_spark.protocol import decode_subscription
    from groupcoord_spark.protocol.errors import DecodeError

    if subscription:
        try:
            read = decode_subscription(subscription)
        except DecodeError:
            read = None
        if read is not None:
            return read.topics
    return None if subscribed is None else tuple(sorted(subscribed))
