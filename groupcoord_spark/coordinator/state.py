"""State of one offsets partition after its last record, as rows with the columns of the state tables.

Times are integers in milliseconds. Rows of offsets have Kafka's -1 for "none". In rows of groups, members and assignments None means that
this type of group has no such field, or that no record has set the field.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import NamedTuple

from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS, DefaultAssignors
from groupcoord_spark.coordinator.groups.group import LOAD_FAILS, AssignmentRow, MemberRow, ReplayedGroup
from groupcoord_spark.coordinator.transactions import OffsetKey, OffsetStore, StoredOffset, TopicPartition


class OffsetRow(NamedTuple):
    """A committed, orphan or pending offset. The producer_id of its commit is -1 outside of transactions."""

    group_id: str
    topic: str
    partition: int
    commit: StoredOffset


class GroupRow(NamedTuple):
    """A group that the coordinator would list. The last two fields are not columns of the table: only the cleanup reads them."""

    group_id: str
    group_type: str
    is_simple: bool
    state: str
    protocol_type: str | None
    protocol: str | None
    generation: int
    assignment_epoch: int | None
    leader_id: str | None
    member_count: int
    subscribed_topics: tuple[str, ...] | None
    """None: not known (R-2.4, or a protocol type other than consumer)."""
    topic_count: int
    """Topics with a committed offset."""
    offset_count: int
    pending_offset_count: int
    assigned_partition_count: int
    """Partitions in the current assignments, with those that members must still give up; for a streams group active tasks only."""
    topology_epoch: int | None
    state_timestamp_ms: int | None
    record_offset: int | None
    """Offset of the newest group record (key type 2 and higher) that was not refused."""
    record_timestamp_ms: int | None
    regular_expressions: tuple[str, ...]
    has_stored_description: bool | None = None
    """Streams groups: the broker's plugin has, or may have, a description of the topology."""
    has_producer_left_open: bool = False
    """Whether a producer counts as open for the group although a tombstone removed its pending offsets (Java 3.8.0 to 4.0.0)."""


_OF_SOME_TYPES = ("assignment_epoch", "has_stored_description", "leader_id", "topology_epoch", "state_timestamp_ms")
"""Fields of GroupRow that only some types of group have; None in rows of the other types."""

_MEMBER_TWICE = "R-2.2"
_RULES_WITHOUT_REFUSAL = frozenset({"R-1.26", "R-1.28", "R-4.6"})
"""Rules about the state at the end of the log: they refuse and skip no record."""


class LoadWarning(NamedTuple):
    """Something that a broker's loader would refuse, skip or log. ``code`` is a rule id of replay-rules.md, ``detail`` a sentence."""

    record_offset: int | None
    group_id: str | None
    code: str
    detail: str

    @property
    def is_refusal(self) -> bool:
        """Whether a broker's loader refuses or skips the record."""
        # A loader refuses a record with a member twice only where another member follows.
        return self.code not in _RULES_WITHOUT_REFUSAL and (self.code != _MEMBER_TWICE or self.detail.endswith(LOAD_FAILS))

    @property
    def reason(self) -> str:
        """The sentence without what it means for a load."""
        return self.detail.removesuffix(LOAD_FAILS).strip()


def _in_order(rows: Iterable[AssignmentRow]) -> list[AssignmentRow]:
    """Return the rows sorted by their columns, None first."""
    try:
        return sorted(rows)
    except TypeError:  # a column has None in some rows only
        return sorted(rows, key=lambda row: tuple((column is not None, column) for column in row))


class PartitionState:
    """State of one offsets partition: groups, committed and pending offsets, and the warnings of the load.

    It is a view of the replay, not a copy: read it before more records are applied. All lists of rows are sorted by the primary key.
    """

    def __init__(
        self, groups: Mapping[str, ReplayedGroup], offsets: OffsetStore, warnings: list[LoadWarning], topic_names: Mapping[str, str]
    ) -> None:
        self.topic_names = topic_names
        """Topic id -> name, from all records of the partition, even overwritten, aborted and refused records."""
        self._groups = groups
        self._offsets = offsets
        self._warnings = warnings
        self._group_rows: dict[DefaultAssignors, list[GroupRow]] = {}

    def group(self, group_id: str) -> ReplayedGroup | None:
        """Return the group itself, or None if no group has that id."""
        return self._groups.get(group_id)

    def committed_offsets(self) -> list[OffsetRow]:
        """Committed offsets of the groups that exist."""
        return [row for group_id in sorted(self._offsets.committed) if group_id in self._groups for row in self._offset_rows(group_id)]

    def orphan_offsets(self) -> list[OffsetRow]:
        """Committed offsets without a group (R-1.26); the next commit of the group brings them back."""
        return [row for group_id in sorted(self._offsets.committed) if group_id not in self._groups for row in self._offset_rows(group_id)]

    def pending_offsets(self) -> list[OffsetRow]:
        """Offsets in open transactions, one row for each producer, even for groups that do not exist."""
        return [
            OffsetRow(*key, staged._replace(producer_id=producer_id))
            for key, by_producer in sorted(self._offsets.pending.items())
            for producer_id, staged in sorted(by_producer.items())
        ]

    def groups(self, *, default_assignors: DefaultAssignors = KAFKAS_ASSIGNORS) -> list[GroupRow]:
        """Groups that the coordinator lists. ``default_assignors``: the first assignors in the broker's settings."""
        if default_assignors not in self._group_rows:
            self._group_rows[default_assignors] = self._rows_of_groups(default_assignors)
        return self._group_rows[default_assignors]

    @cached_property
    def _sorted_groups(self) -> list[tuple[str, ReplayedGroup]]:
        return sorted(self._groups.items())

    def _rows_of_groups(self, default_assignors: DefaultAssignors) -> list[GroupRow]:
        pending_counts: dict[str, int] = {}
        for (group_id, _, _), by_producer in self._offsets.pending.items():
            pending_counts[group_id] = pending_counts.get(group_id, 0) + len(by_producer)
        return [
            self._group_row(group_id, group, pending_counts.get(group_id, 0), default_assignors)
            for group_id, group in self._sorted_groups
        ]

    def members(self) -> list[MemberRow]:
        """Members of all groups."""
        return [
            member
            for group_id, group in self._sorted_groups
            if group.member_count
            for member in sorted(group.member_rows(group_id), key=lambda row: row.member_id)
        ]

    def assignments(self, topic_names: Mapping[str, str] | None = None) -> list[AssignmentRow]:
        """Partitions and tasks of members. ``topic_names``: topic id -> name; None: the names in the records of this partition."""
        names = self.topic_names if topic_names is None else topic_names
        return [
            row
            for group_id, group in self._sorted_groups
            if not group.is_simple
            for row in _in_order(set(group.assignment_rows(group_id, names)))
        ]

    def warnings(self) -> list[LoadWarning]:
        """Warnings in the order of their records; warnings without a record come last."""
        return sorted(
            self._warnings,
            key=lambda warning: (
                warning.record_offset is None,
                warning.record_offset or 0,
                warning.code,
                warning.group_id or "",
                warning.detail,
            ),
        )

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, StoredOffset]:
        """Committed offsets stored under a group id, whether the group exists or not."""
        return self._offsets.committed.get(group_id, {})

    def pending_by_partition(self) -> Mapping[OffsetKey, Mapping[int, StoredOffset]]:
        """Pending offsets by (group_id, topic, partition), then by producer id."""
        return self._offsets.pending

    def _offset_rows(self, group_id: str) -> Iterator[OffsetRow]:
        for (topic, partition), stored in sorted(self._offsets.committed[group_id].items()):
            yield OffsetRow(group_id, topic, partition, stored)

    def _group_row(self, group_id: str, group: ReplayedGroup, pending_count: int, default_assignors: DefaultAssignors) -> GroupRow:
        offsets = self.offsets_of(group_id)
        subscribed = group.subscribed_topics
        assigned_partitions = {
            (row.member_id, row.topic, row.topic_id, row.subtopology, row.task_type, row.partition)
            for row in group.assignment_rows(group_id, {})
            if row.kind in ("current", "pending_revocation") and row.task_type not in ("standby", "warmup")
        }
        return GroupRow(
            group_id=group_id,
            group_type=group.group_type,
            is_simple=group.is_simple,
            state=group.state,
            protocol_type=group.protocol_type,
            protocol=group.protocol(default_assignors),
            generation=group.generation,
            member_count=group.member_count,
            subscribed_topics=None if subscribed is None else tuple(sorted(subscribed)),
            topic_count=len({topic for topic, _ in offsets}),
            offset_count=len(offsets),
            pending_offset_count=pending_count,
            assigned_partition_count=len(assigned_partitions),
            record_offset=group.record_offset,
            record_timestamp_ms=group.record_timestamp_ms,
            regular_expressions=group.regular_expressions,
            has_producer_left_open=bool(self._offsets.producers_left_open(group_id)),
            **{name: getattr(group, name, None) for name in _OF_SOME_TYPES},
        )
