"""The result of each transactional commit: committed, aborted, open or replaced, and the marker that decided it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.transactions import OffsetStore, StoredOffset
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, MarkerType

Result = Literal["committed", "aborted", "open", "replaced"]

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


class CommitResult(NamedTuple):
    """The result of a transactional commit."""

    result: Result
    """replaced: a later commit or a tombstone of the same offset came before the end of the transaction, so the commit never counts."""
    marker_offset: int | None
    """Record offset of the marker that ended the transaction; None: the transaction is open."""


def results_of(records: Iterable[OffsetRecord], markers: Iterable[Marker], semantics: Semantics) -> dict[int, CommitResult]:
    """The result of every transactional commit, by the commit's record offset.

    Args:
        records: All offset records of one group for each topic partition that has a transactional commit, in any order.
        markers: All markers of the producers of these commits, from the same offsets partition, in any order.
        semantics: Of the broker that loads the records.
    """
    store = _ObservedStore(semantics)
    commits_of_producer: dict[int, list[OffsetRecord]] = {}
    results: dict[int, CommitResult] = {}
    steps: list[OffsetRecord | Marker] = [*records, *markers]
    for step in sorted(steps, key=lambda step: step.record_offset):
        if isinstance(step, Marker):
            store.committed_record_offsets.clear()
            store.end_transaction(step.producer_id, MarkerType.COMMIT if step.is_commit else MarkerType.ABORT)
            for commit in commits_of_producer.pop(step.producer_id, ()):
                result: Result = "committed" if commit.record_offset in store.committed_record_offsets else "replaced"
                results[commit.record_offset] = CommitResult(result if step.is_commit else "aborted", step.record_offset)
            continue
        transactional = step.producer_id != NO_PRODUCER_ID if semantics.producer_id_means_transaction else step.is_transactional
        if step.is_tombstone:
            store.delete(_ONE_GROUP, step.topic, step.partition, step.producer_id, transactional)
        elif transactional:
            store.stage(_ONE_GROUP, step.topic, step.partition, step.producer_id, _stored(step))
            commits_of_producer.setdefault(step.producer_id, []).append(step)
        else:
            store.put(_ONE_GROUP, step.topic, step.partition, _stored(step))
    pending = {stored.record_offset for by_producer in store.pending.values() for stored in by_producer.values()}
    for commits in commits_of_producer.values():
        for commit in commits:
            results[commit.record_offset] = CommitResult("open" if commit.record_offset in pending else "replaced", None)
    return results


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
    """The commit for the store, which reads only the producer epoch and the record offset of a commit."""
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
