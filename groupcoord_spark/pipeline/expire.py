"""What a cleanup at ``as_of`` would remove from one offsets partition, as rows of the tables of rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from groupcoord_spark.coordinator.expiration import Cleanup
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import PartitionState


@dataclass(frozen=True, slots=True)
class ExpirationJob:
    """The clock of the rules and the broker they belong to; milliseconds."""

    as_of_ms: int
    retention_ms: int
    semantics: Semantics


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
    """All that a cleanup does to one offsets partition."""

    offsets: list[OffsetExpirationRow]
    groups: list[GroupExpirationRow]
    tombstones: list[TombstoneRow]


def expirations_of(state: PartitionState, job: ExpirationJob) -> Expirations:
    """The rules of ``coordinator.expiration`` over one offsets partition; tombstones are numbered in the order they are appended."""
    found = Expirations([], [], [])
    for cleanup in Cleanup(job.as_of_ms, job.retention_ms, job.semantics).of_partition(state):
        for offset in cleanup.offsets:
            found.offsets.append(
                OffsetExpirationRow(
                    group_id=offset.group_id,
                    topic=offset.topic,
                    partition=offset.partition,
                    as_of_ms=job.as_of_ms,
                    retention_ms=job.retention_ms,
                    base_timestamp_ms=offset.base_timestamp_ms,
                    expires_at_ms=offset.expires_at_ms,
                    expired=offset.expired,
                    rule=offset.rule,
                    blocked_by=offset.blocked_by,
                )
            )
        group = cleanup.group
        found.groups.append(
            GroupExpirationRow(
                group_id=group.group_id,
                as_of_ms=job.as_of_ms,
                removed=group.removed,
                removed_at_ms=group.removed_at_ms,
                rule=group.rule,
                blocked_by=group.blocked_by,
                tombstone_count=group.tombstone_count,
            )
        )
        for tombstone in cleanup.tombstones:
            found.tombstones.append(TombstoneRow(job.as_of_ms, len(found.tombstones), *tombstone))
    return found
