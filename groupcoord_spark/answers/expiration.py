"""The offsets and groups that a cleanup at ``as_of`` removes, and why an offset goes sooner than people expect."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from groupcoord_spark.coordinator.expiration import (
    PENDING_TRANSACTION,
    TOPOLOGY_DESCRIPTION,
    Cleanup,
    Commit,
    GroupCleanup,
    GroupExpiry,
    GroupFacts,
    OffsetExpiry,
    Tombstone,
)
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import GroupRow, PartitionState
from groupcoord_spark.coordinator.transactions import OffsetKey, TopicPartition
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP, KeyType


class Traps(NamedTuple):
    """The traps of one offset."""

    inherits_empty_time: bool
    """The offset was committed while the group was Empty, so its age counts from the earlier time at which the group became Empty."""
    topic_is_unsubscribed: bool
    """The group has members, and no member subscribes to the topic: the offset expires although the group is in use."""
    is_simple_group: bool
    """The group has no members: the offset expires without another commit, even while a client reads the partition."""
    has_explicit_expiry: bool
    """A time that was stored with the commit decides, whatever the retention is."""

    def names(self) -> list[str]:
        """Return the names of the caveats that apply."""
        return [name for name, is_true in zip(self._fields, self, strict=True) if is_true]


NO_TRAPS = Traps(False, False, False, False)


def traps_of(group: GroupFacts, stored: Commit, expiry: OffsetExpiry) -> Traps:
    """Return the expiry caveats of one committed offset. ``group``: the facts that the cleanup used (``Cleanup.facts_of``)."""
    if expiry.blocked_by is not None:
        return NO_TRAPS
    rule = expiry.rule
    is_explicit = rule == "X-B0" or (rule == "X-A1" and stored.expire_timestamp_ms != NO_TIMESTAMP)
    base_ms = expiry.base_timestamp_ms
    return Traps(
        inherits_empty_time=rule == "X-B1" and base_ms is not None and base_ms < stored.commit_timestamp_ms,
        # Before 2.1 a subscription protects no offset, so a missing subscription is not a caveat.
        topic_is_unsubscribed=group.member_count > 0 and rule not in ("X-A0", "X-A1"),
        is_simple_group=group.group_type == "classic" and group.protocol_type is None,
        has_explicit_expiry=is_explicit,
    )


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
        """Return the offsets that reappear after their tombstone: the record has key type 0, the tombstone type 1. Before 0.9 both have
        0."""
        return frozenset(type_0_offsets) if self.semantics.offset_tombstone_key_type != KeyType.LEGACY_OFFSET_COMMIT else frozenset()


RULE_COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "offset_expirations": (*OffsetExpiry._fields, *Traps._fields, "may_come_back", "as_of_ms", "retention_ms", "retention_changed"),
    "group_expirations": (*GroupExpiry._fields, "as_of_ms"),
    "tombstones": (*Tombstone._fields, "as_of_ms", "sequence"),
}
"""Table -> the columns of its rows, times in milliseconds."""

Expirations = dict[str, list[tuple[Any, ...]]]
"""Table -> the rows about one offsets partition after a cleanup."""


class CleanedGroup(NamedTuple):
    """The committed offsets of a group, and what a cleanup does to them and to the group."""

    committed: Mapping[TopicPartition, Commit]
    cleanup: GroupCleanup


def expirations_of(state: PartitionState, job: ExpirationJob, type_0_offsets: Collection[OffsetKey] = ()) -> Expirations:
    """Return the rows of a cleanup of one offsets partition, by the rules of ``coordinator.expiration``. Tombstones are in append order.

    type_0_offsets: (group_id, topic, partition) of the commits that are live in the log under a key of type 0.
    """
    cleaned = (CleanedGroup(state.offsets_of(done.facts.group_id), done) for done in job.cleanup.of_partition(state))
    return expiration_rows(cleaned, job, type_0_offsets)


def expiration_rows(cleaned: Iterable[CleanedGroup], job: ExpirationJob, type_0_offsets: Collection[OffsetKey] = ()) -> Expirations:
    """Return the rows of a cleanup, for groups of one offsets partition in the given order."""
    expirations: Expirations = {table: [] for table in RULE_COLUMNS}
    offset_rows, group_rows, tombstone_rows = expirations.values()
    retention_changed = job.previous_retention_ms is not None and job.previous_retention_ms != job.retention_ms
    of_job = (job.as_of_ms, job.retention_ms, retention_changed)
    returning = job.returning(type_0_offsets)
    for committed, (facts, offsets, group, tombstones) in cleaned:
        for offset in offsets:
            traps = traps_of(facts, committed[offset.topic, offset.partition], offset)
            offset_rows.append((*offset, *traps, offset[:3] in returning, *of_job))
        group_rows.append((*group, job.as_of_ms))
        tombstone_rows += [(*tombstone, job.as_of_ms, sequence) for sequence, tombstone in enumerate(tombstones, len(tombstone_rows))]
    return expirations


OFFSET_COLUMNS = ("group_id", "topic", "partition", "commit_timestamp", "expire_timestamp", "timestamps_out_of_range")
"""Columns of committed_offsets that expiration needs."""
PENDING_COLUMNS = ("group_id", "topic", "partition")
"""Columns of pending_offsets that expiration needs."""
GROUP_COLUMNS = (
    *("group_id", "group_type", "state", "protocol_type", "generation", "member_count", "state_timestamp", "subscribed_topics"),
    *("regular_expressions", "offsets_partition", "timestamps_out_of_range"),
)
"""Columns of groups that expiration needs."""


def kept_for(group: GroupRow) -> Iterator[str]:
    """Yield the reasons to keep the group that no column of the state tables shows, as values of ``blocked_by``."""
    if group.has_stored_description:
        yield TOPOLOGY_DESCRIPTION
    if group.has_producer_left_open:
        yield PENDING_TRANSACTION
