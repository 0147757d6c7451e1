"""The offsets and groups that a cleanup at ``as_of`` removes, from the state of one offsets partition or from the state tables."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.expiration import (
    PENDING_TRANSACTION,
    TOPOLOGY_DESCRIPTION,
    Cleanup,
    CommitTimes,
    GroupCleanup,
    GroupFacts,
)
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import GroupRow, PartitionState
from groupcoord_spark.coordinator.transactions import OffsetKey, TopicPartition
from groupcoord_spark.coordinator.traps import traps_of
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP, KeyType
from groupcoord_spark.warehouse.declaration import exact_milliseconds


@dataclass(frozen=True, slots=True)
class ExpirationJob:
    """The moment of the cleanup, and the settings of the broker. Times are in milliseconds."""

    as_of_ms: int
    retention_ms: int
    semantics: Semantics
    assume_members_gone: bool = False
    """Treat groups with members as if their last member had left at as_of."""
    previous_retention_ms: int | None = None
    """The retention of the previous run of the cluster; None: there is no such run, or it did not store its retention."""
    with_tombstones: bool = True
    """False: tombstones of offsets are counted, not made."""

    @property
    def cleanup(self) -> Cleanup:
        return Cleanup(self.as_of_ms, self.retention_ms, self.semantics, self.assume_members_gone, self.with_tombstones)

    def returning(self, type_0_offsets: Collection[OffsetKey]) -> Collection[OffsetKey]:
        """The offsets that come back after their tombstone: the record has key type 0, the tombstone type 1. Before 0.9 both have 0."""
        return frozenset(type_0_offsets) if self.semantics.offset_tombstone_key_type != KeyType.LEGACY_OFFSET_COMMIT else frozenset()


class OffsetExpirationRow(NamedTuple):
    """A row of offset_expirations, times in milliseconds."""

    group_id: str
    topic: str
    partition: int
    as_of_ms: int
    retention_ms: int
    base_timestamp_ms: int | None
    expires_at_ms: int | None
    expired: bool
    rule: str
    blocked_by: str | None
    inherits_empty_time: bool
    topic_is_unsubscribed: bool
    is_simple_group: bool
    has_explicit_expiry: bool
    may_come_back: bool
    retention_changed: bool


class GroupExpirationRow(NamedTuple):
    """A row of group_expirations, times in milliseconds."""

    group_id: str
    as_of_ms: int
    removed: bool
    removed_at_ms: int | None
    rule: str | None
    blocked_by: str | None
    tombstone_count: int


class TombstoneRow(NamedTuple):
    """A row of tombstones, times in milliseconds."""

    as_of_ms: int
    sequence: int
    group_id: str
    key_type: int
    topic: str | None
    partition: int | None
    reason: str
    key: bytes


class Expirations(NamedTuple):
    """The rows about one offsets partition after a cleanup."""

    offsets: list[OffsetExpirationRow]
    groups: list[GroupExpirationRow]
    tombstones: list[TombstoneRow]


class CleanedGroup(NamedTuple):
    """A group, its committed offsets, and what a cleanup does to them."""

    group: GroupFacts
    """The group as the cleanup sees it."""
    committed: Mapping[TopicPartition, CommitTimes]
    cleanup: GroupCleanup


def expirations_of(state: PartitionState, job: ExpirationJob, type_0_offsets: Collection[OffsetKey] = ()) -> Expirations:
    """The rows of a cleanup of one offsets partition, by the rules of ``coordinator.expiration``. Tombstones are in append order.

    type_0_offsets: (group_id, topic, partition) of the commits that are live in the log under a key of type 0.
    """
    cleanup, groups = job.cleanup, state.groups()
    cleaned = (
        CleanedGroup(cleanup.facts_of(group), state.offsets_of(group.group_id), done)
        for group, done in zip(groups, cleanup.of_partition(state), strict=True)
    )
    return expiration_rows(cleaned, job, type_0_offsets)


def expiration_rows(cleaned: Iterable[CleanedGroup], job: ExpirationJob, type_0_offsets: Collection[OffsetKey] = ()) -> Expirations:
    """The rows of a cleanup, for groups of one offsets partition, in the given order."""
    expirations = Expirations([], [], [])
    as_of_ms, retention_ms = job.as_of_ms, job.retention_ms
    retention_changed = job.previous_retention_ms is not None and job.previous_retention_ms != retention_ms
    returning = job.returning(type_0_offsets)
    for facts, committed, (offsets, group, tombstones) in cleaned:
        for offset in offsets:
            group_id, topic, partition, base_ms, expires_at_ms, expired, rule, blocked_by = offset
            expirations.offsets.append(
                OffsetExpirationRow(
                    *(group_id, topic, partition, as_of_ms, retention_ms, base_ms, expires_at_ms, expired, rule, blocked_by),
                    *traps_of(facts, committed[topic, partition], offset),
                    may_come_back=(group_id, topic, partition) in returning,
                    retention_changed=retention_changed,
                )
            )
        expirations.groups.append(GroupExpirationRow(as_of_ms=as_of_ms, **group._asdict()))
        for tombstone in tombstones:
            expirations.tombstones.append(TombstoneRow(as_of_ms, len(expirations.tombstones), *tombstone))
    return expirations


class StoredTimes(NamedTuple):
    """The two times of a committed offset that the expiration rules need; -1: none."""

    commit_timestamp_ms: int
    expire_timestamp_ms: int


OFFSET_COLUMNS = ("group_id", "topic", "partition", "commit_timestamp", "expire_timestamp", "timestamps_out_of_range")
"""Columns of committed_offsets that expiration needs."""
PENDING_COLUMNS = ("group_id", "topic", "partition")
"""Columns of pending_offsets that expiration needs."""
GROUP_COLUMNS = (
    *("group_id", "group_type", "state", "protocol_type", "generation", "member_count", "state_timestamp", "subscribed_topics"),
    *("regular_expressions", "offsets_partition", "timestamps_out_of_range"),
)
"""Columns of groups that expiration needs."""


def cleaned_groups(
    committed: pa.Table, pending: pa.Table, groups: pa.Table, job: ExpirationJob, kept_groups: Collection[tuple[str, str]] = ()
) -> Iterator[tuple[int, CleanedGroup]]:
    """(offsets_partition, group after the cleanup) for every group in the state tables of one cluster, sorted by group id.

    In: rows of the tables of these names, at least with OFFSET_COLUMNS, PENDING_COLUMNS and GROUP_COLUMNS; kept_groups: (group id,
    reason) of the groups that the cleanup keeps for a reason that no column of these tables shows (``kept_for``).
    """
    offsets: dict[str, dict[TopicPartition, CommitTimes]] = {}
    columns = [committed[name].to_pylist() for name in ("group_id", "topic", "partition")]
    times = [pc.fill_null(exact_milliseconds(committed, f"{of}_timestamp"), NO_TIMESTAMP).to_pylist() for of in ("commit", "expire")]
    for group_id, topic, partition, commit_ms, expire_ms in zip(*columns, *times, strict=True):
        of_group = offsets.get(group_id)
        if of_group is None:
            of_group = offsets[group_id] = {}
        of_group[topic, partition] = StoredTimes(commit_ms, expire_ms)
    staged: dict[str, set[TopicPartition]] = {}
    for group_id, topic, partition in zip(*(pending[name].to_pylist() for name in PENDING_COLUMNS), strict=True):
        staged.setdefault(group_id, set()).add((topic, partition))
    cleanup = job.cleanup
    facts_of_groups = sorted(_facts(groups), key=lambda stored: stored[1].group_id)
    failing = {place for place, facts in facts_of_groups if cleanup.fails_over(facts.group_type, offsets.get(facts.group_id, ()))}
    for offsets_partition, stored in facts_of_groups:
        is_left_open = cleanup.semantics.tombstone_leaves_transaction_open and (stored.group_id, PENDING_TRANSACTION) in kept_groups
        is_described = (stored.group_id, TOPOLOGY_DESCRIPTION) in kept_groups
        stored = stored._replace(has_stored_description=is_described, has_producer_left_open=is_left_open)
        facts = cleanup.facts_of(stored)
        of_group, pending_of_group = offsets.get(facts.group_id, {}), staged.get(facts.group_id, ())
        cleaned = cleanup.of_group(stored, of_group, pending_of_group, fails=offsets_partition in failing)
        yield offsets_partition, CleanedGroup(facts, of_group, cleaned)


def kept_for(group: GroupRow) -> Iterator[str]:
    """The reasons for which a cleanup may keep the group and which no column of the state tables shows, as words of ``blocked_by``."""
    if group.has_stored_description:
        yield TOPOLOGY_DESCRIPTION
    if group.has_producer_left_open:
        yield PENDING_TRANSACTION


def _facts(groups: pa.Table) -> Iterator[tuple[int, GroupFacts]]:
    """offsets_partition and facts of each group."""
    state_times = exact_milliseconds(groups, "state_timestamp").to_pylist()
    plain_rows = groups.select([name for name in GROUP_COLUMNS if not name.endswith(("timestamp", "range"))]).to_pylist()
    for row, state_timestamp_ms in zip(plain_rows, state_times, strict=True):
        topics = row["subscribed_topics"]
        yield (
            row["offsets_partition"],
            GroupFacts(
                group_id=row["group_id"],
                group_type=row["group_type"],
                state=row["state"],
                protocol_type=row["protocol_type"],
                generation=row["generation"],
                member_count=row["member_count"],
                state_timestamp_ms=state_timestamp_ms,
                subscribed_topics=None if topics is None else frozenset(topics),
                regular_expressions=tuple(row["regular_expressions"] or ()),
            ),
        )
