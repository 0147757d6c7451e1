"""What a cleanup would do under other settings, from the state tables of a run. No table changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from groupcoord_spark.coordinator.expiration import PENDING_TRANSACTION, TOPOLOGY_DESCRIPTION, Tombstone
from groupcoord_spark.coordinator.transactions import OffsetKey
from groupcoord_spark.coordinator.traps import traps_of
from groupcoord_spark.errors import InputError
from groupcoord_spark.log.writing import Batch, RecordToLog
from groupcoord_spark.pipeline.expiration import GROUP_COLUMNS, OFFSET_COLUMNS, PENDING_COLUMNS, CleanedGroup, ExpirationJob, cleaned_groups
from groupcoord_spark.sources.rows import InputKind
from groupcoord_spark.warehouse.read import Condition, Run, Warehouse

_DAY_MS = 86_400_000

_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes; the offsets topic seldom has another."""
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 21
"""Kafka's upper bound for a record beside key and value."""
_JAVA_BASE_SEQUENCE = 0
"""What the Java coordinator's batches carry, although they have no producer."""


class StateTables(NamedTuple):
    """The rows of the state tables of a run that the expiration rules need."""

    committed: pa.Table
    pending: pa.Table
    groups: pa.Table
    type_0_offsets: frozenset[OffsetKey]
    """(group_id, topic, partition) of the commits that are live in the log under a key of type 0."""
    kept_groups: frozenset[tuple[str, str]] = frozenset()
    """(group id, reason) of the groups that the cleanup keeps for a reason that no column of the tables shows."""


def read_state_tables(warehouse: Warehouse, cluster: str, *, run: Run | None = None, groups: Sequence[str] = ()) -> StateTables:
    """The state tables of a run, of all groups or of the given groups. run: None: the newest night of the cluster.

    Raises InputError for a night from the Admin API, which has no time of any commit.
    """
    run = warehouse.run(cluster) if run is None else run
    if run.input_kind == InputKind.ADMIN:
        raise InputError(f"Run {run.run_id} is from the Admin API: only the log has the times from which offsets expire.")
    of_groups: list[Condition] = [("group_id", "in", list(groups))] if groups else []

    def rows(table: str, columns: Sequence[str], where: Sequence[Condition] = ()) -> pa.Table:
        return warehouse.read(table, cluster=cluster, columns=columns, where=[*of_groups, *where], run=run)

    returning = rows("offset_expirations", PENDING_COLUMNS, [("may_come_back", "=", True)])
    columns = ["group_id", "blocked_by"]
    kept = rows("group_expirations", columns, [("blocked_by", "in", [TOPOLOGY_DESCRIPTION, PENDING_TRANSACTION])])
    return StateTables(
        committed=rows("committed_offsets", OFFSET_COLUMNS),
        pending=rows("pending_offsets", PENDING_COLUMNS),
        groups=rows("groups", GROUP_COLUMNS),
        type_0_offsets=frozenset(zip(*(returning[name].to_pylist() for name in PENDING_COLUMNS), strict=True)),
        kept_groups=frozenset(zip(*(kept[name].to_pylist() for name in columns), strict=True)),
    )


def cleanups(state: StateTables, job: ExpirationJob) -> Iterator[tuple[int, CleanedGroup]]:
    """(offsets_partition, group after the cleanup) for each group, by group id."""
    return cleaned_groups(state.committed, state.pending, state.groups, job, state.kept_groups)


def traps_in(cleaned: CleanedGroup, returning: Collection[OffsetKey]) -> Iterator[list[str]]:
    """For each committed offset of the group its traps, by the names of their columns. returning: from ``ExpirationJob.returning``."""
    for offset in cleaned.cleanup.offsets:
        caught = traps_of(cleaned.group, cleaned.committed[offset.topic, offset.partition], offset).names()
        if returning and offset[:3] in returning:
            caught.append("may_come_back")
        yield caught


class Change(NamedTuple):
    """The changes that other settings make to one group on one day. day: days since 1970, UTC."""

    day: int
    group_id: str
    offsets_lost: int
    """Offsets that are removed on this day, and with the present settings later or never."""
    offsets_gained: int
    """Offsets that the present settings remove on this day, and the other settings later or never."""
    group_lost: bool
    group_gained: bool


def changes(state: StateTables, present: ExpirationJob, other: ExpirationJob) -> list[Change]:
    """The changes from ``present`` to ``other``, by day and group. An offset that both remove by the as_of of ``other`` is no change."""
    sums: dict[tuple[int, str], list[int]] = {}

    def count(group_id: str, before_ms: int | None, after_ms: int | None, lost: int) -> None:
        # A cleanup removes at its own time whatever was due before it.
        before, after = (None if moment is None else max(moment, other.as_of_ms) for moment in (before_ms, after_ms))
        if before == after:
            return
        is_lost = before is None or (after is not None and after < before)
        moment = after if is_lost else before
        assert moment is not None
        sums.setdefault((moment // _DAY_MS, group_id), [0, 0, 0, 0])[lost if is_lost else lost + 1] += 1

    for (_, now), (_, then) in zip(cleanups(state, present), cleanups(state, other), strict=True):
        group_id = now.group.group_id
        for before, after in zip(now.cleanup.offsets, then.cleanup.offsets, strict=True):
            if before.expires_at_ms != after.expires_at_ms:
                count(group_id, before.expires_at_ms, after.expires_at_ms, 0)
        count(group_id, now.cleanup.group.removed_at_ms, then.cleanup.group.removed_at_ms, 2)
    return [
        Change(day, group_id, lost, gained, bool(gone), bool(kept)) for (day, group_id), (lost, gained, gone, kept) in sorted(sums.items())
    ]


def tombstone_batches(
    state: StateTables, job: ExpirationJob, end_offsets: Mapping[int, int], *, codec: int = 0
) -> Iterator[tuple[int, list[Batch]]]:
    """(offsets partition, batches of tombstones that the cleanup appends from the end offset on); partitions without one are left out.

    Batched as the broker does: the Java coordinator writes one batch for the whole partition (and begins another where it would exceed
    max.message.bytes), the Scala coordinator one for each group. No producer, as_of as the time of every record.
    """
    by_partition: dict[int, list[list[Tombstone]]] = {}
    for offsets_partition, cleaned in cleanups(state, job):
        if cleaned.cleanup.tombstones:
            by_partition.setdefault(offsets_partition, []).append(cleaned.cleanup.tombstones)
    is_java = job.semantics.name == "java"
    for offsets_partition, groups in sorted(by_partition.items()):
        next_offset, batches = end_offsets[offsets_partition], []
        for keys in _full_batches(chain.from_iterable(groups)) if is_java else ([each.key for each in group] for group in groups):
            records = tuple(RecordToLog(key, None, job.as_of_ms) for key in keys)
            batches.append(Batch(next_offset, records, base_sequence=_JAVA_BASE_SEQUENCE if is_java else -1, codec=codec))
            next_offset += len(records)
        yield offsets_partition, batches


def _full_batches(tombstones: Iterable[Tombstone]) -> Iterator[list[bytes]]:
    """The keys of each batch of one write, in as few batches as max.message.bytes allows."""
    keys: list[bytes] = []
    size = _BATCH_OVERHEAD
    for tombstone in tombstones:
        record_size = len(tombstone.key) + _RECORD_OVERHEAD
        if keys and size + record_size > _MAX_MESSAGE_BYTES:
            yield keys
            keys, size = [], _BATCH_OVERHEAD
        keys.append(tombstone.key)
        size += record_size
    if keys:
        yield keys
