"""What a cleanup would do under other settings, from the state tables of a run. No table changes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import pyarrow as pa

from groupcoord_spark.answers.expiration import GROUP_COLUMNS, OFFSET_COLUMNS, PENDING_COLUMNS, CleanedGroup, ExpirationJob, traps_of
from groupcoord_spark.coordinator.expiration import PENDING_TRANSACTION, TOPOLOGY_DESCRIPTION, Commit, CommitTimes, GroupFacts, Tombstone
from groupcoord_spark.coordinator.transactions import OffsetKey, TopicPartition
from groupcoord_spark.errors import InputError
from groupcoord_spark.log.writing import Batch, RecordToLog
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.warehouse import TABLES, Condition, Run, Warehouse

_DAY_MS = 86_400_000

_MAX_MESSAGE_BYTES = 1_048_588
"""Kafka's default of max.message.bytes; the offsets topic seldom has another."""
_BATCH_OVERHEAD = 61
_RECORD_OVERHEAD = 21
"""Kafka's upper bound for a record without key and value."""
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
    """Read the state tables of a run (by default the newest of the cluster) for all groups or the given ones.

    Raises InputError for a run from the Admin API, which has no time of any commit.
    """
    run = warehouse.run(cluster) if run is None else run
    if run.input_kind == InputKind.ADMIN:
        raise InputError(f"Run {run.run_id} is from the Admin API: only the log has the times that offsets expire by.")
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
    """(offsets_partition, group after the cleanup) for each group of one cluster, by group id."""
    offsets: dict[str, dict[TopicPartition, Commit]] = {}
    names = ("group_id", "topic", "partition", "commit_timestamp_ms", "expire_timestamp_ms")
    in_milliseconds = TABLES["committed_offsets"].to_milliseconds(state.committed.select(OFFSET_COLUMNS))
    for group_id, topic, partition, commit_ms, expire_ms in zip(*(in_milliseconds[name].to_pylist() for name in names), strict=True):
        offsets.setdefault(group_id, {})[topic, partition] = CommitTimes(commit_ms, expire_ms)
    staged: dict[str, set[TopicPartition]] = {}
    for group_id, topic, partition in zip(*(state.pending[name].to_pylist() for name in PENDING_COLUMNS), strict=True):
        staged.setdefault(group_id, set()).add((topic, partition))
    cleanup = job.cleanup
    facts_of_groups = sorted(_facts(state.groups), key=lambda stored: stored[1].group_id)
    failing = {place for place, facts in facts_of_groups if cleanup.fails_over(facts.group_type, offsets.get(facts.group_id, ()))}
    for offsets_partition, stored in facts_of_groups:
        is_left_open = cleanup.semantics.tombstone_leaves_transaction_open and (stored.group_id, PENDING_TRANSACTION) in state.kept_groups
        is_described = (stored.group_id, TOPOLOGY_DESCRIPTION) in state.kept_groups
        stored = stored._replace(has_stored_description=is_described, has_producer_left_open=is_left_open)
        of_group, pending_of_group = offsets.get(stored.group_id, {}), staged.get(stored.group_id, ())
        cleaned = cleanup.of_group(stored, of_group, pending_of_group, fails=offsets_partition in failing)
        yield offsets_partition, CleanedGroup(of_group, cleaned)


def _facts(groups: pa.Table) -> Iterator[tuple[int, GroupFacts]]:
    """offsets_partition and facts of each group."""
    for row in TABLES["groups"].to_milliseconds(groups.select(GROUP_COLUMNS)).to_pylist():
        topics, state_timestamp_ms = row["subscribed_topics"], row["state_timestamp_ms"]
        facts = GroupFacts(*(row[name] for name in GroupFacts._fields[:-2]))
        yield (
            row["offsets_partition"],
            facts._replace(
                state_timestamp_ms=None if state_timestamp_ms == NO_TIMESTAMP else state_timestamp_ms,
                subscribed_topics=None if topics is None else frozenset(topics),
                regular_expressions=tuple(row["regular_expressions"] or ()),
            ),
        )


def traps_in(cleaned: CleanedGroup, returning: Collection[OffsetKey]) -> Iterator[list[str]]:
    """For each committed offset of the group its traps, by the names of their columns. returning: from ``ExpirationJob.returning``."""
    for offset in cleaned.cleanup.offsets:
        caught = traps_of(cleaned.cleanup.facts, cleaned.committed[offset.topic, offset.partition], offset).names()
        if returning and offset[:3] in returning:
            caught.append("may_come_back")
        yield caught


class DayChanges(NamedTuple):
    """The changes that other settings make to one group on one day. day: days since 1970, UTC."""

    day: int
    group_id: str
    offsets_lost: int
    """Offsets that are removed on this day, and with the present settings later or never."""
    offsets_gained: int
    """Offsets that the present settings remove on this day, and the other settings later or never."""
    group_lost: bool
    group_gained: bool


def changes(state: StateTables, present: ExpirationJob, other: ExpirationJob) -> list[DayChanges]:
    """Return the changes from ``present`` to ``other`` by day and group. An offset that both remove by the as-of time of ``other`` is
    unchanged."""
    sums: dict[tuple[int, str], list[int]] = {}

    def count(group_id: str, present_ms: int | None, other_ms: int | None, lost: int) -> None:
        # A cleanup removes at its own time whatever was due before it.
        present_moment, other_moment = (None if moment is None else max(moment, other.as_of_ms) for moment in (present_ms, other_ms))
        if present_moment == other_moment:
            return
        is_lost = present_moment is None or (other_moment is not None and other_moment < present_moment)
        moment = other_moment if is_lost else present_moment
        assert moment is not None
        sums.setdefault((moment // _DAY_MS, group_id), [0, 0, 0, 0])[lost if is_lost else lost + 1] += 1

    for (_, present_group), (_, other_group) in zip(cleanups(state, present), cleanups(state, other), strict=True):
        group_id = present_group.cleanup.facts.group_id
        for present_offset, other_offset in zip(present_group.cleanup.offsets, other_group.cleanup.offsets, strict=True):
            if present_offset.expires_at_ms != other_offset.expires_at_ms:
                count(group_id, present_offset.expires_at_ms, other_offset.expires_at_ms, 0)
        count(group_id, present_group.cleanup.group.removed_at_ms, other_group.cleanup.group.removed_at_ms, 2)
    return [
        DayChanges(day, group_id, lost, gained, bool(gone), bool(kept))
        for (day, group_id), (lost, gained, gone, kept) in sorted(sums.items())
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
        for keys in _full_batches(chain.from_iterable(groups)) if is_java else ([tombstone.key for tombstone in group] for group in groups):
            records = tuple(RecordToLog(key, None, job.as_of_ms) for key in keys)
            batches.append(Batch(next_offset, records, base_sequence=_JAVA_BASE_SEQUENCE if is_java else -1, codec=codec))
            next_offset += len(records)
        yield offsets_partition, batches


def _full_batches(tombstones: Iterable[Tombstone]) -> Iterator[list[bytes]]:
    """Yield the keys of each batch of one write, in as few batches as max.message.bytes allows."""
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
