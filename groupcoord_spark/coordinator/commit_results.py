"""What became of commits made in transactions: whether a commit counts, and from which record on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.transactions import ABORT_MARKER, COMMIT_MARKER, NO_PRODUCER_ID, OffsetStore, StoredOffset

Result = Literal["committed", "aborted", "open", "replaced"]

_GROUP: Final = ""
"""The store keeps offsets by group; one group's records need no name."""


class OffsetRecord(NamedTuple):
    """A commit of one group, or the tombstone of one of its offsets."""

    record_offset: int
    topic: str
    partition: int
    is_tombstone: bool
    producer_id: int
    """-1: the record's batch has no producer."""
    is_transactional: bool


class Marker(NamedTuple):
    """The end of a producer's transaction."""

    record_offset: int
    producer_id: int
    is_commit: bool


class CommitResult(NamedTuple):
    """What became of a commit made in a transaction."""

    result: Result
    """replaced: the transaction was committed or is open, but a later commit or a tombstone of the same offset came first."""
    marker_offset: int | None
    """Where the transaction ended; None: it is open."""


def results_of(records: Iterable[OffsetRecord], markers: Iterable[Marker], semantics: Semantics) -> dict[int, CommitResult]:
    """The result of every commit made in a transaction, by the commit's record offset.

    records: all offset records of the partitions of which a transactional commit is among them, markers: of the producers of those
    commits; both from one partition of __consumer_offsets, in any order.
    """
    store = _CountingStore(semantics)
    waiting: dict[int, list[OffsetRecord]] = {}
    results: dict[int, CommitResult] = {}
    steps: list[OffsetRecord | Marker] = [*records, *markers]
    for step in sorted(steps, key=lambda one: one.record_offset):
        if isinstance(step, Marker):
            store.counted.clear()
            store.end_transaction(step.producer_id, COMMIT_MARKER if step.is_commit else ABORT_MARKER)
            for commit in waiting.pop(step.producer_id, ()):
                counts: Result = "committed" if commit.record_offset in store.counted else "replaced"
                results[commit.record_offset] = CommitResult(counts if step.is_commit else "aborted", step.record_offset)
            continue
        transactional = step.producer_id != NO_PRODUCER_ID if semantics.producer_id_means_transaction else step.is_transactional
        if step.is_tombstone:
            store.delete(_GROUP, step.topic, step.partition, step.producer_id, transactional)
        elif transactional:
            store.stage(_GROUP, step.topic, step.partition, step.producer_id, _stored(step))
            waiting.setdefault(step.producer_id, []).append(step)
        else:
            store.put(_GROUP, step.topic, step.partition, _stored(step))
    pending = {stored.record_offset for by_producer in store.pending.values() for stored in by_producer.values()}
    for commits in waiting.values():
        for commit in commits:
            results[commit.record_offset] = CommitResult("open" if commit.record_offset in pending else "replaced", None)
    return results


class _CountingStore(OffsetStore):
    """The coordinator's own store, which also notes the commits that it puts among the committed offsets."""

    __slots__ = ("counted",)

    def __init__(self, semantics: Semantics) -> None:
        super().__init__(semantics)
        self.counted: set[int] = set()

    def put(self, group_id: str, topic: str, partition: int, stored: StoredOffset) -> None:
        self.counted.add(stored.record_offset)
        super().put(group_id, topic, partition, stored)


def _stored(commit: OffsetRecord) -> StoredOffset:
    """The commit as the store keeps it; of its fields the store reads the producer's epoch and the record offset alone."""
    return StoredOffset(0, -1, "", -1, -1, None, 0, commit.producer_id, -1, commit.record_offset, -1)
