"""``groupcoord describe``: groups in detail, in the columns and with the rows of kafka-consumer-groups --describe (Kafka 4.x)."""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

import click
import pyarrow as pa

from groupcoord_spark.cli.end_offsets import newest_end_offsets, remark_on_checkpoint
from groupcoord_spark.cli.names import named_groups
from groupcoord_spark.cli.options import Common, ShownRun, command, common_options, groups_option, semantics_of, shown_run_options
from groupcoord_spark.cli.render import lines, print_lines, printable, say, write_records
from groupcoord_spark.sources.end_offsets import EndOffsets, read_end_offsets
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.warehouse import Condition, Run, Warehouse

KIND_OF_GROUP: Final = {"share": "Share group", "streams": "Streams group"}
REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})

LINES_AT_ONCE: Final = 10_000

_SHARE_POSITIONS: Final = """
SELECT group_id, topic_id, COALESCE(topic, topic_id), partition, leader_epoch, start_offset, delivery_complete_count, remark
FROM share_lag WHERE remark IS NULL OR remark <> 'topic_gone'
ORDER BY group_id, topic, partition
"""


@dataclass(slots=True)
class ShownMember:
    """A member, as the tool shows it."""

    member_id: str
    host: str
    client_id: str
    instance_id: str | None
    epoch: int | None
    uses_classic_protocol: bool | None
    current: dict[str, list[int]] = field(default_factory=dict)
    """Topic (streams: subtopology; Connect: connector) -> partitions (tasks)."""
    target: dict[str, list[int]] = field(default_factory=dict)
    held_partitions: list[tuple[str, int]] = field(default_factory=list)
    """The partitions that the member reads now; for a member of a streams group those of its active tasks."""
    active_tasks: list[tuple[str, int]] = field(default_factory=list)
    """Subtopology and number of each active task of a streams group's member."""

    @property
    def reader(self) -> tuple[str, str, str]:
        return self.member_id, self.host, self.client_id

    @property
    def partition_count(self) -> int:
        return sum(len(partitions) for partitions in self.current.values())


class SharePosition(NamedTuple):
    """Where a share group stands in a partition. remark: as in the view share_lag."""

    topic: str
    partition: int
    leader_epoch: int
    start_offset: int | None
    delivery_complete_count: int | None
    remark: str | None


@dataclass(slots=True)
class ShownGroup:
    """A group with the columns that the view needs."""

    group_id: str
    group_type: str
    state: str
    protocol: str | None
    generation: int | None
    assignment_epoch: int | None
    member_count: int
    protocol_type: str | None
    topology_epoch: int | None
    members: list[ShownMember] = field(default_factory=list)
    offsets: list[tuple[Any, ...]] = field(default_factory=list)
    """Group, topic, partition, committed offset and leader epoch."""
    share_offsets: list[SharePosition] | None = None
    """Where a share group stands; None: another kind of group, or the night had no copy of ``__share_group_state``."""
    lacks_topology: bool = False
    """Members have active tasks, and no table says which topics those read."""

    @property
    def has_epochs(self) -> bool:
        """Whether Kafka shows epochs of the group: not for a classic group, which has a generation."""
        return self.group_type != "classic"


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at a group."""

    names: str
    rows: Callable[[ShownGroup, EndOffsets], list[tuple[Any, ...]]]
    """For programs: a value for each name."""
    lines: Callable[[ShownGroup, bool, EndOffsets], list[str]]
    """For people: Kafka's columns, with --verbose all of them."""


@command("describe", epilog="Example: groupcoord describe --all-groups --members --verbose")
@groups_option("The group")
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--offsets", is_flag=True, help="Committed offsets and who reads them. [default]")
@click.option("--members", is_flag=True, help="Members and how many partitions they hold.")
@click.option("--state", is_flag=True, help="State, assignor and number of members.")
@click.option("--verbose", is_flag=True, help="Leader epochs of offsets; epochs and assignments of members; epochs of states.")
@click.option(
    "--end-offsets",
    "end_offsets_file",
    type=click.Path(exists=True, dir_okay=False),
    help="Log end offsets for LOG-END-OFFSET and LAG: lines topic:partition:offset (kafka-get-offsets) or topic,partition,offset, or JSON.",
)
@shown_run_options
@common_options
def describe(
    common: Common,
    groups: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    end_offsets_file: str | None,
    shown_run: ShownRun,
) -> None:
    """Groups as of one night: their offsets, members or state.

    CURRENT-OFFSET comes from the log; what the log does not know is `-`: the coordinator, and LOG-END-OFFSET and LAG where neither
    --end-offsets nor the night (replication-offset-checkpoint, nightly --end-offsets) has them. Assigned partitions without a commit are
    shown too.
    """
    if not groups and not all_groups:
        raise click.UsageError("Name groups with --group, or take --all-groups.")
    if groups and all_groups:
        raise click.UsageError("--group and --all-groups exclude each other: leave one of them out.")
    views = [name for name, is_asked in (("offsets", offsets), ("members", members), ("state", state)) if is_asked]
    if len(views) > 1:
        raise click.UsageError(f"{' and '.join(f'--{name}' for name in views)} are different views: ask for one at a time.")
    view = views[0] if views else "offsets"
    if end_offsets_file is not None and view != "offsets":
        raise click.UsageError("--end-offsets belongs to --offsets.")
    warehouse, run = common.night(shown_run)
    end_offsets: EndOffsets = {}
    if end_offsets_file is not None:
        end_offsets = read_end_offsets(end_offsets_file)
    elif view == "offsets":
        end_offsets = newest_end_offsets(warehouse, run)
    reader = _NightReader(warehouse, None if all_groups else groups, run)
    # All that is built here is needed until the end: searching it for garbage would take a quarter of the time.
    gc.disable()
    try:
        shown = reader.groups(view)
        if common.output == "table":
            _print_lines(shown, VIEWS[view], verbose, end_offsets, with_remarks=not common.quiet)
        else:
            rows = [VIEWS[view].rows(group, end_offsets) for group in shown]
            write_records(common.output, VIEWS[view].names.split(), chain.from_iterable(rows))
            for group, of_group in zip(shown, rows, strict=True):
                if view == "offsets" and not of_group:
                    common.say(_remark(group, is_shown=False) or "")
        if not common.quiet:
            _remark_on_owners(shown)
            if view == "state":
                _remark_on_settings(shown, warehouse, run)
            of_night = view == "offsets" and end_offsets_file is None
            remark = remark_on_checkpoint(warehouse, run) if of_night and end_offsets else None
            if remark is not None:
                say(remark)
            else:
                _remark_on_older_ends(shown, end_offsets)
    finally:
        gc.enable()


def _print_lines(groups: Sequence[ShownGroup], view: View, verbose: bool, end_offsets: EndOffsets, *, with_remarks: bool) -> None:
    remarks: list[str] = []
    waiting: list[str] = []
    in_one_place = _end_in_one_place(sys.stdout, sys.stderr)
    for group in groups:
        of_group = view.lines(group, verbose, end_offsets)
        remark = _remark(group, is_shown=bool(of_group)) if with_remarks else None
        if remark and in_one_place:  # printed between the lines of this group and of the group before
            print_lines(waiting)
            waiting.clear()
            sys.stdout.flush()
            say(f"\n{remark}")
        elif remark:
            remarks += ["", remark]
        waiting += of_group
        if len(waiting) >= LINES_AT_ONCE:
            print_lines(waiting)
            waiting.clear()
    if remarks:
        say("\n".join(remarks))
    print_lines(waiting)


def _remark_on_owners(groups: Sequence[ShownGroup]) -> None:
    unknown = [f"'{printable(group.group_id)}'" for group in groups if group.lacks_topology]
    if unknown:
        say(
            f"CONSUMER-ID is not known for the tasks of {', '.join(unknown)}: which topics a task reads is in the history tables, and the"
            " group's nights were run with --no-history."
        )


def _remark_on_settings(groups: Sequence[ShownGroup], warehouse: Warehouse, run: Run) -> None:
    """The settings that groups have of their own, session timeouts and heartbeats among them: they win over the broker's."""
    settings: dict[str, list[str]] = {}
    rows = warehouse.read("group_configs", columns=["group_id", "name", "value"], run=run).to_pylist()
    for row in sorted(rows, key=lambda row: row["name"]):
        settings.setdefault(row["group_id"], []).append(f"{row['name']}={printable(row['value'])}")
    for group in groups:
        if group.group_id in settings:
            say(f"Group '{printable(group.group_id)}' has settings of its own: {', '.join(settings[group.group_id])}.")


def _remark_on_older_ends(groups: Sequence[ShownGroup], end_offsets: EndOffsets) -> None:
    older = [
        f"{printable(topic)}-{partition} of group '{printable(group.group_id)}' ends at {end:,} and {committed:,} is committed"
        for group in groups
        for _, topic, partition, committed, _ in group.offsets
        if (end := end_offsets.get((topic, partition))) is not None and end < committed
    ]
    if older:
        say(
            f"LAG is shown as 0 for {counted(len(older), 'partition')}: {older[0]}{', and so on' if len(older) > 1 else ''}."
            " Those end offsets are older than the commits."
        )


def _end_in_one_place(first: TextIO, second: TextIO) -> bool:
    try:
        return os.path.sameopenfile(first.fileno(), second.fileno())
    except (OSError, ValueError):
        return False


class _NightReader:
    """Reads one night's tables for some groups, or for all."""

    def __init__(self, warehouse: Warehouse, wanted: Sequence[str] | None, run: Run) -> None:
        self._warehouse = warehouse
        self._wanted = wanted
        self._run = run
        self._rules = semantics_of(self._run)

    def groups(self, view: str) -> list[ShownGroup]:
        """Groups in the order of their names. Raises GroupcoordError for one that does not exist."""
        columns = "group_id group_type state protocol generation assignment_epoch member_count protocol_type topology_epoch"
        if self._wanted is not None:
            self._wanted = named_groups(self._wanted, self._warehouse, self._run)
        groups = {row[0]: ShownGroup(*row) for row in self._rows("groups", columns)}
        if view != "state":
            self._add_members(groups)
        if view == "offsets":
            columns = "group_id topic partition committed_offset leader_epoch"
            for row in self._rows("committed_offsets", columns):
                # Offsets of a group that does not exist are in orphan_offsets, so the group is there.
                groups[row[0]].offsets.append(row)
            self._add_share_offsets([group for group in groups.values() if group.group_type == "share"])
            self._add_partitions_of_tasks([group for group in groups.values() if any(member.active_tasks for member in group.members)])
        return [groups[name] for name in sorted(groups)]

    def _add_members(self, groups: Mapping[str, ShownGroup]) -> None:
        members: dict[tuple[str, str], ShownMember] = {}
        columns = "group_id member_id client_host client_id instance_id member_epoch uses_classic_protocol"
        rows = sorted(self._rows("members", columns), key=lambda row: row[:2])
        for group_id, member_id, host, client_id, instance_id, epoch, is_classic in rows:
            member = ShownMember(member_id, host or "", client_id or "", instance_id, epoch, is_classic)
            members[group_id, member_id] = member
            groups[group_id].members.append(member)
        columns = "group_id member_id kind topic topic_id subtopology task_type partition"
        for group_id, member_id, kind, topic, topic_id, subtopology, task_type, partition in self._rows("assignments", columns):
            holder = members.get((group_id, member_id))
            if holder is None or task_type in ("standby", "warmup"):
                continue
            name = subtopology or topic or topic_id
            if kind == "target":
                holder.target.setdefault(name, []).extend(() if partition is None else (partition,))
            elif self._rules.describes_as_assigned(groups[group_id].group_type, kind):
                holder.current.setdefault(name, []).extend(() if partition is None else (partition,))
                if subtopology is None and partition is not None:
                    holder.held_partitions.append((name, partition))
                elif task_type == "active" and partition is not None:
                    holder.active_tasks.append((subtopology, partition))

    def _add_partitions_of_tasks(self, groups: Sequence[ShownGroup]) -> None:
        """A streams group's member reads partition N of every source topic of a subtopology of which it has the active task N.

        The group's own records say nothing of how many partitions a topic has. Where a subtopology reads several topics, one may have fewer
        than there are tasks, so of those only partitions with a commit are sure to exist.
        """
        topologies = self._topologies([group.group_id for group in groups]) if groups else {}
        for group in groups:
            topics_of = None if group.topology_epoch is None else topologies.get((group.group_id, group.topology_epoch))
            if topics_of is None:
                group.lacks_topology = group.state != "NotReady"  # a group that is not ready may have none yet
                continue
            committed = {(topic, partition) for _, topic, partition, _, _ in group.offsets}
            for member in group.members:
                for subtopology, partition in member.active_tasks:
                    topics = topics_of.get(subtopology, ())
                    read = ((topic, partition) for topic in topics)
                    member.held_partitions += [place for place in read if len(topics) == 1 or place in committed]

    def _add_share_offsets(self, groups: Sequence[ShownGroup]) -> None:
        """The initialized partitions of share groups, of topics that exist: what kafka-share-groups lists."""
        if not groups or not self._warehouse.read("share_offsets", columns=["partition"], run=self._run).num_rows:
            return
        from groupcoord_spark.warehouse.sql import NightInDuckDB  # pyarrow.dataset imports pandas: 0.25 s that other groups do without

        rows = NightInDuckDB(self._warehouse, run=self._run).rows(_SHARE_POSITIONS)
        initialized = self._initialized_partitions([group.group_id for group in groups])
        positions: dict[str, list[SharePosition]] = {group.group_id: [] for group in groups}
        for group_id, topic_id, *position in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            partitions, shown_position = initialized.get(group_id), SharePosition(*position)
            if group_id in positions and (partitions is None or (topic_id, shown_position.partition) in partitions):
                positions[group_id].append(shown_position)
        for group in groups:
            group.share_offsets = positions[group.group_id]

    def _initialized_partitions(self, group_ids: Sequence[str]) -> dict[str, set[tuple[str, int]]]:
        """Share group -> topic id and partition of those that its newest record names; without groups that have no record."""
        initialized: dict[str, set[tuple[str, int]]] = {}
        for group_id, value in self._values_of_records("SHARE_GROUP_STATE_PARTITION_METADATA", group_ids):
            topics = value["initializedTopics"] if value is not None else []
            initialized[group_id] = {(topic["topicId"], partition) for topic in topics for partition in topic["partitions"]}
        return initialized

    def _topologies(self, group_ids: Sequence[str]) -> dict[tuple[str, int], dict[str, list[str]]]:
        """Group and topology epoch -> subtopology -> the topics it reads, those for repartitioning included."""
        return {
            (group_id, topology["epoch"]): {
                part["subtopologyId"]: [*part["sourceTopics"], *(topic["name"] for topic in part["repartitionSourceTopics"])]
                for part in topology["subtopologies"]
            }
            for group_id, topology in self._values_of_records("STREAMS_GROUP_TOPOLOGY", group_ids)
            if topology is not None
        }

    def _values_of_records(self, kind: str, group_ids: Sequence[str]) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """Group and value of each record of a kind, as in Kafka's JSON, in the order of the log. kind: a name of KeyType."""
        from groupcoord_spark.protocol.record_types import KeyType

        wanted: list[Condition] = [("key_type", "=", int(KeyType[kind])), ("group_id", "in", list(group_ids))]
        rows = self._rows("group_records", "incarnation record_offset group_id value_json", wanted)
        for _, _, group_id, value_json in sorted(rows, key=itemgetter(0, 1)):
            yield group_id, None if value_json is None else json.loads(value_json)

    def _rows(self, table: str, columns: str, also: Sequence[Condition] = ()) -> Iterator[tuple[Any, ...]]:
        where: list[Condition] = [*also] if self._wanted is None else [*also, ("group_id", "in", list(self._wanted))]
        names = columns.split()
        rows = self._warehouse.read(table, columns=names, where=where, run=self._run)
        return zip(*(_values(rows[name]) for name in names), strict=True)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The column's values. Equal texts are one object, which halves the time and memory of large tables."""
    if column.num_chunks == 0 or not pa.types.is_string(column.type):
        return list(column.to_pylist())
    encoded = column.combine_chunks().dictionary_encode()
    texts = [*encoded.dictionary.to_pylist(), None]
    return [texts[-1 if at is None else at] for at in encoded.indices.to_pylist()]


def _remark(group: ShownGroup, *, is_shown: bool) -> str | None:
    """What Kafka's tools say of the group's state. Where they say nothing of a group without lines, why the group has none."""
    kind, name = KIND_OF_GROUP.get(group.group_type, "Consumer group"), printable(group.group_id)
    if group.share_offsets is not None:
        return None if is_shown else f"{kind} '{name}' has no offset information."
    if group.state == "Empty":
        return f"{kind} '{name}' has no active members."
    if group.state in REBALANCING:
        return f"Warning: {kind} '{name}' is rebalancing."
    if group.state == "NotReady":
        return f"Warning: {kind} '{name}' is not ready."
    if is_shown:
        return None
    if group.group_type == "classic" and group.protocol_type == "connect":
        return (
            f"Connect group '{name}' has no lines: its members are workers, which have connectors and tasks instead of partitions (see"
            " --members). Sink connectors commit offsets as the groups connect-NAME."
        )
    if group.group_type == "classic" and group.protocol_type not in ("consumer", None, ""):
        return f"Group '{name}' has no lines: its members, of protocol type '{printable(group.protocol_type)}', have no partitions."
    if group.group_type == "share":
        return f"{kind} '{name}' has no lines: no member of it has a partition, and its offsets are in the topic __share_group_state."
    return f"{kind} '{name}' has no lines: it has no committed offset, and no member of it has a partition."


def _offset_rows(group: ShownGroup, end_offsets: EndOffsets) -> list[tuple[Any, ...]]:
    """Members' partitions, the member with most of them first, then offsets that no member reads."""
    if group.share_offsets is not None:
        return [_share_row(group, position, end_offsets) for position in group.share_offsets]
    rows: list[tuple[Any, ...]] = []
    read: set[tuple[str, int]] = set()
    if group.members:
        offset_at = {(topic, partition): (committed, epoch) for _, topic, partition, committed, epoch in group.offsets}
        for member in sorted(group.members, key=lambda m: -len(m.held_partitions)):
            for place in sorted(member.held_partitions):
                read.add(place)
                committed, epoch = offset_at.get(place, (None, None))
                end = end_offsets.get(place)
                rows.append((group.group_id, *place, epoch, committed, end, _lag(end, committed), *member.reader))
    for group_id, topic, partition, committed, epoch in sorted(group.offsets, key=itemgetter(1, 2)):
        if (topic, partition) not in read:
            end = end_offsets.get((topic, partition))
            rows.append((group_id, topic, partition, epoch, committed, end, _lag(end, committed), None, None, None))
    return rows


def _share_row(group: ShownGroup, position: SharePosition, end_offsets: EndOffsets) -> tuple[Any, ...]:
    end, lag = end_offsets.get((position.topic, position.partition)), None
    if end is not None and position.start_offset is not None and position.delivery_complete_count is not None:
        lag = max(end - position.start_offset - position.delivery_complete_count, 0)
    epoch = None if position.start_offset is None else position.leader_epoch
    return group.group_id, position.topic, position.partition, epoch, position.start_offset, end, lag, None, None, None


def _lag(end: int | None, committed: int | None) -> int | None:
    # -1 is what some clients commit for "nowhere yet": no lag follows from it. An end offset below the commit is older than the commit.
    return None if end is None or committed is None or committed == -1 else max(end - committed, 0)


def _member_rows(group: ShownGroup, end_offsets: EndOffsets) -> list[tuple[Any, ...]]:
    is_consumer_group = group.group_type == "consumer"
    return [
        (
            group.group_id,
            member.member_id,
            member.instance_id,
            member.host,
            member.client_id,
            member.partition_count,
            member.epoch if group.has_epochs else None,
            _assignment(member.current),
            group.assignment_epoch if group.has_epochs else None,
            _assignment(member.target),
            not member.uses_classic_protocol if is_consumer_group else None,
        )
        for member in group.members
    ]


def _assignment(partitions_of: Mapping[str, Iterable[int]]) -> str | None:
    """``orders:0,1;payments:3``; a connector without a task is its name alone."""
    texts = []
    for name, partitions in partitions_of.items():
        numbers = ",".join(map(str, sorted(partitions)))
        texts.append(f"{name}:{numbers}" if numbers else name)
    return ";".join(sorted(texts)) or None


def _state_rows(group: ShownGroup, end_offsets: EndOffsets) -> list[tuple[Any, ...]]:
    epochs = (group.generation, group.assignment_epoch) if group.has_epochs else (None, None)
    return [(group.group_id, None, group.protocol or None, group.state, *epochs, group.member_count)]


def _lines(
    titles: str, widths: Sequence[int | None], rows: Iterable[tuple[Any, ...]], verbose: bool, of_verbose: Sequence[int]
) -> list[str]:
    """A table in the columns of Kafka's tools; nothing without rows.

    Args:
        titles: Of the columns, separated by bars.
        widths: As for ``lines``.
        rows: A cell for each column.
        of_verbose: Columns that are there with --verbose alone.
    """
    shown_columns = itemgetter(*(at for at in range(len(widths)) if verbose or at not in of_verbose))
    cells = list(map(shown_columns, rows))
    return ["", *lines(shown_columns(titles.split("|")), cells, shown_columns(widths))] if cells else []


def _offset_lines(group: ShownGroup, verbose: bool, end_offsets: EndOffsets) -> list[str]:
    rows = _offset_rows(group, end_offsets)
    if group.share_offsets is not None:  # as kafka-share-groups prints them
        titles, cells = "GROUP|TOPIC|PARTITION|LEADER-EPOCH|START-OFFSET|LAG", ((*row[:5], row[6]) for row in rows)
        return _lines(titles, (15, 15, 10, 13, 13, None), cells, verbose, [3])
    titles = "GROUP|TOPIC|PARTITION|LEADER-EPOCH|CURRENT-OFFSET|LOG-END-OFFSET|LAG|CONSUMER-ID|HOST|CLIENT-ID"
    return _lines(titles, (15, 15, 10, 15, 15, 15, 15, 15, 15, None), rows, verbose, [3])


def _share_member_lines(group: ShownGroup, verbose: bool) -> list[str]:
    """The lines of a share group's members as kafka-share-groups prints them; for a group without members only the remark."""
    rows = [
        (group.group_id, row.member_id, row.host, row.client_id, row.partition_count, row.epoch, _assignment(row.current) or "")
        for row in group.members
    ]
    titles = "GROUP|CONSUMER-ID|HOST|CLIENT-ID|#PARTITIONS|MEMBER-EPOCH|ASSIGNMENT"
    return _lines(titles, (15, 15, 15, 15, 12, 13, None), rows, verbose, [5])


def _member_lines(group: ShownGroup, verbose: bool, end_offsets: EndOffsets) -> list[str]:
    if group.group_type == "share":
        return _share_member_lines(group, verbose)
    titles = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths: list[int | None] = [15, 15, 17, 15, 15, 15]
    rows = _member_rows(group, end_offsets)
    # Kafka prints an empty cell for a dynamic member, and the column only where a member is static.
    has_static = any(row[2] for row in rows)
    kinds = {row[10] for row in rows}
    if verbose:
        titles += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        widths += [15, 20, 15, 20]
        if kinds >= {True, False}:
            titles.append("UPGRADED")
            widths.append(None)
    else:
        titles.append("")
        widths.append(None)
    cells = []
    for row in rows:
        of_member = (*row[:2], row[2] or "", *row[3:6])
        epochs = (*row[6:10], *(("true" if row[10] else "false",) if "UPGRADED" in titles else ())) if verbose else ("",)
        cells.append((*of_member, *epochs))
    if not has_static:
        del titles[2], widths[2]
        cells = [(*row[:2], *row[3:]) for row in cells]
    # As in Kafka's tool the titles stand there for a group without members too.
    return ["", *lines(titles, cells, widths)]


def _state_lines(group: ShownGroup, verbose: bool, end_offsets: EndOffsets) -> list[str]:
    row = _state_rows(group, end_offsets)[0]
    if group.group_type == "share":  # as kafka-share-groups prints it
        titles = "GROUP|COORDINATOR (ID)|STATE|GROUP-EPOCH|ASSIGNMENT-EPOCH|#MEMBERS"
        return _lines(titles, (15, 25, 15, 12, 17, None), [(*row[:2], *row[3:])], verbose, [3, 4])
    titles = "GROUP|COORDINATOR (ID)|ASSIGNMENT-STRATEGY|STATE|GROUP-EPOCH|TARGET-ASSIGNMENT-EPOCH|#MEMBERS"
    return _lines(titles, (15, 25, 20, 20, 15, 25, None), [row], verbose, [4, 5])


VIEWS: Final[Mapping[str, View]] = {
    "offsets": View(
        "group topic partition leader_epoch current_offset log_end_offset lag consumer_id host client_id", _offset_rows, _offset_lines
    ),
    "members": View(
        "group consumer_id group_instance_id host client_id partitions"
        " current_epoch current_assignment target_epoch target_assignment upgraded",
        _member_rows,
        _member_lines,
    ),
    "state": View("group coordinator assignment_strategy state group_epoch target_assignment_epoch members", _state_rows, _state_lines),
}
