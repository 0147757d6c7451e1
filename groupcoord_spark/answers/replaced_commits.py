"""Transactional commits that never count: a later commit or a tombstone of the same offset replaced them before their marker came."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.transactions import OffsetStore, StoredOffset
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, MarkerType

_ONE_GROUP: Final = ""
"""Group id for the store: all records here are of one group."""


class OffsetRecord(NamedTuple):
    """A commit of one group, or the tombstone of one of its offsets."""

    record_offset: int
    topic: str
    partition: int
    is_tombstone: bool
    producer_id: int
    """-1: the record's batch has no producer id."""
    is_transactional: bool


class Marker(NamedTuple):
    """The control record that ends a producer's transaction."""

    record_offset: int
    producer_id: int
    is_commit: bool


def replaced_commits(records: Iterable[OffsetRecord], markers: Iterable[Marker], semantics: Semantics) -> set[int]:
    """Return the record offsets of commits in transactions that the coordinator's store has replaced by the end.

    Args:
        records: All offset records of one group for each topic partition that has a transactional commit, in any order.
        markers: All markers of the producers of these commits, from the same offsets partition, in any order.
        semantics: Of the broker that loads the records.
    """
    store = _ObservedStore(semantics)
    staged: dict[int, set[int]] = {}
    replaced: set[int] = set()
    steps: list[OffsetRecord | Marker] = [*records, *markers]
    for step in sorted(steps, key=lambda step: step.record_offset):
        if isinstance(step, Marker):
            store.committed_record_offsets.clear()
            store.end_transaction(step.producer_id, MarkerType.COMMIT if step.is_commit else MarkerType.ABORT)
            of_transaction = staged.pop(step.producer_id, set())
            replaced |= of_transaction - store.committed_record_offsets if step.is_commit else set()
            continue
        transactional = step.producer_id != NO_PRODUCER_ID if semantics.producer_id_means_transaction else step.is_transactional
        if step.is_tombstone:
            store.delete(_ONE_GROUP, step.topic, step.partition, step.producer_id, transactional)
        elif transactional:
            store.stage(_ONE_GROUP, step.topic, step.partition, step.producer_id, _stored(step))
            staged.setdefault(step.producer_id, set()).add(step.record_offset)
        else:
            store.put(_ONE_GROUP, step.topic, step.partition, _stored(step))
    pending = {stored.record_offset for by_producer in store.pending.values() for stored in by_producer.values()}
    return replaced.union(*staged.values()) - pending


class _ObservedStore(OffsetStore):
    """The coordinator's store, with the record offsets of the commits that it made committed offsets."""

    __slots__ = ("committed_record_offsets",)

    def __init__(self, semantics: Semantics) -> None:
        super().__init__(semantics)
        self.committed_record_offsets: set[int] = set()

    def put(self, group_id: str, topic: str, partition: int, stored: StoredOffset) -> None:
        self.committed_record_offsets.add(stored.record_offset)
        super().put(group_id, topic, partition, stored)


def _stored(commit: OffsetRecord) -> StoredOffset:
    """Build the commit for the store, which reads only its producer epoch and record offset."""
    return StoredOffset(
        committed_offset=0,
        leader_epoch=NO_LEADER_EPOCH,
        metadata="",
        commit_timestamp_ms=NO_TIMESTAMP,
        expire_timestamp_ms=NO_TIMESTAMP,
        topic_id=None,
        value_version=0,
        producer_id=commit.producer_id,
        producer_epoch=NO_PRODUCER_EPOCH,
        record_offset=commit.record_offset,
        record_timestamp_ms=NO_TIMESTAMP,
    )
