"""Groups of a run with their members, assignments and committed offsets, as Kafka's tools describe them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from groupcoord_spark.coordinator.semantics import Semantics
    from groupcoord_spark.warehouse import Condition, Run, Warehouse

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
    process_id: str | None
    current: dict[str, list[int]] = field(default_factory=dict)
    """Topic (streams: subtopology; Connect: connector) -> partitions (tasks)."""
    target: dict[str, list[int]] = field(default_factory=dict)
    held_partitions: list[tuple[str, int]] = field(default_factory=list)
    """The partitions that the member reads now; for a streams group's member, the partitions of its active tasks."""
    tasks: dict[str, dict[str, dict[str, list[int]]]] = field(default_factory=dict)
    """Of a streams group's member: current or target -> kind of task -> subtopology -> numbers of the tasks."""

    @property
    def active_tasks(self) -> list[tuple[str, int]]:
        """Subtopology and number of each active task of a streams group's member."""
        active = self.tasks.get("current", {}).get("active", {})
        return [(subtopology, number) for subtopology, numbers in active.items() for number in numbers]

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
    """Where a share group stands; None: another kind of group, or the run had no copy of ``__share_group_state``."""
    lacks_topology: bool = False
    """Members have active tasks, and no table contains the topics that these read."""
    beyond_late_end: set[tuple[str, int]] = field(default_factory=set)
    """Topic and partition of the offsets beyond an end in a checkpoint that may be older than the commit: their lag is 0."""

    @property
    def has_epochs(self) -> bool:
        """Whether Kafka shows epochs of the group: not for a classic group, which has a generation."""
        return self.group_type != "classic"


def shown_groups(
    warehouse: Warehouse, run: Run, rules: Semantics, wanted: Sequence[str] | None, *, with_members: bool, with_offsets: bool
) -> list[ShownGroup]:
    """Return groups of a run, sorted by name.

    Args:
        rules: Of the coordinator of the run.
        wanted: The names of the groups; None: all.
        with_members, with_offsets: Whether their members, and their offsets, are read too.
    """
    return _RunReader(warehouse, wanted, run, rules).groups(with_members=with_members, with_offsets=with_offsets)


class _RunReader:
    """Reads the tables of one run for some groups, or for all."""

    def __init__(self, warehouse: Warehouse, wanted: Sequence[str] | None, run: Run, rules: Semantics) -> None:
        self._warehouse = warehouse
        self._wanted = wanted
        self._run = run
        self._rules = rules

    def groups(self, *, with_members: bool, with_offsets: bool) -> list[ShownGroup]:
        columns = "group_id group_type state protocol generation assignment_epoch member_count protocol_type topology_epoch"
        groups = {row[0]: ShownGroup(*row) for row in self._rows("groups", columns)}
        if with_members:
            self._add_members(groups)
        if with_offsets:
            columns = "group_id topic partition committed_offset leader_epoch"
            for row in self._rows("committed_offsets", columns):
                # Offsets of a group that does not exist are in orphan_offsets, so the group is there.
                groups[row[0]].offsets.append(row)
            self._add_share_offsets([group for group in groups.values() if group.group_type == "share"])
            self._add_partitions_of_tasks([group for group in groups.values() if any(member.active_tasks for member in group.members)])
        return [groups[name] for name in sorted(groups)]

    def _add_members(self, groups: Mapping[str, ShownGroup]) -> None:
        members: dict[tuple[str, str], ShownMember] = {}
        columns = "group_id member_id client_host client_id instance_id member_epoch uses_classic_protocol process_id"
        rows = sorted(self._rows("members", columns), key=lambda row: row[:2])
        for group_id, member_id, host, client_id, *rest in rows:
            member = ShownMember(member_id, host or "", client_id or "", *rest)
            members[group_id, member_id] = member
            groups[group_id].members.append(member)
        columns = "group_id member_id kind topic topic_id subtopology task_type partition"
        for group_id, member_id, kind, topic, topic_id, subtopology, task_type, partition in self._rows("assignments", columns):
            holder, is_target = members.get((group_id, member_id)), kind == "target"
            if holder is None or not (is_target or self._rules.describes_as_assigned(groups[group_id].group_type, kind)):
                continue
            numbers = () if partition is None else (partition,)
            if subtopology is not None:
                of_kind = holder.tasks.setdefault("target" if is_target else "current", {}).setdefault(task_type, {})
                of_kind.setdefault(subtopology, []).extend(numbers)
            if task_type in ("standby", "warmup"):
                continue
            name = subtopology or topic or topic_id
            (holder.target if is_target else holder.current).setdefault(name, []).extend(numbers)
            if not is_target and subtopology is None:
                holder.held_partitions += [(name, number) for number in numbers]

    def _add_partitions_of_tasks(self, groups: Sequence[ShownGroup]) -> None:
        """Add partition N of every source topic of a subtopology to the member of a streams group that has the active task N.

        The group's own records do not contain partition counts. If a subtopology reads several topics, one of them may have fewer
        partitions than tasks, so only partitions with a commit certainly exist.
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
        """Add the initialized partitions of share groups, for existing topics, as kafka-share-groups lists them."""
        if not groups or not self._warehouse.read("share_offsets", columns=["partition"], run=self._run).num_rows:
            return
        from groupcoord_spark.warehouse.sql import SnapshotInDuckDB  # pyarrow.dataset imports pandas: 0.25 s that other groups do without

        rows = SnapshotInDuckDB(self._warehouse, run=self._run).rows(_SHARE_POSITIONS)
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
    """Return the column's values. Equal texts are one object, which halves the time and memory of large tables."""
    if column.num_chunks == 0 or not pa.types.is_string(column.type):
        return list(column.to_pylist())
    encoded = column.combine_chunks().dictionary_encode()
    texts = [*encoded.dictionary.to_pylist(), None]
    return [texts[-1 if at is None else at] for at in encoded.indices.to_pylist()]
