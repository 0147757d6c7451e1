"""Committed and pending offsets of one offsets partition, and how commits, tombstones and markers change them."""

from collections.abc import Iterator
from typing import NamedTuple

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, MarkerType

_MARKER_TYPES = tuple(MarkerType)

TopicPartition = tuple[str, int]
OffsetKey = tuple[str, str, int]
"""(group_id, topic, partition). A key of type 0 and a key of type 1 mean the same offset (R-1.13)."""


class StoredOffset(NamedTuple):
    """One commit in the coordinator's memory. -1 means "none", as in Kafka; only topic_id has None."""

    committed_offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """Explicit expiry (value version 1); -1: none. Every other number is a time, even 0 and -2."""
    topic_id: str | None
    value_version: int
    producer_id: int
    producer_epoch: int
    record_offset: int
    record_timestamp_ms: int


class _OpenTransaction:
    """Keys of the commits of one producer since its last marker. Some of these commits may be deleted or replaced by now."""

    __slots__ = ("highest_epoch", "keys")

    def __init__(self) -> None:
        self.keys: set[OffsetKey] = set()
        self.highest_epoch = NO_PRODUCER_EPOCH


class OffsetStore:
    """Offsets by group id, whether the group exists or not: Kafka too keeps offsets and groups apart (R-1.26)."""

    __slots__ = ("_open", "_open_by_group", "_semantics", "committed", "pending")

    def __init__(self, semantics: Semantics) -> None:
        self._semantics = semantics
        self.committed: dict[str, dict[TopicPartition, StoredOffset]] = {}
        """Group id -> (topic, partition) -> commit. A group without offsets is not in the dict."""
        self.pending: dict[OffsetKey, dict[int, StoredOffset]] = {}
        """Key -> producer id -> commit. A key without pending offsets is not in the dict."""
        self._open: dict[int, _OpenTransaction] = {}
        """Producer id -> its open transaction."""
        self._open_by_group: dict[str, set[int]] | None = {} if semantics.tombstone_leaves_transaction_open else None
        """Group id -> producer ids that count as open for the group, in releases where a producer may do so without pending offsets."""

    def put(self, group_id: str, topic: str, partition: int, stored: StoredOffset) -> None:
        """Store a commit that is not in a transaction: the last record wins (R-1.12)."""
        # Dropped records rely on this: pipeline/read/superseded.py
        offsets = self.committed.get(group_id)
        if offsets is None:
            offsets = self.committed[group_id] = {}
        offsets[topic, partition] = stored

    def stage(self, group_id: str, topic: str, partition: int, producer_id: int, stored: StoredOffset) -> None:
        """Store a transactional commit until the marker of its producer id, whatever the producer epoch (R-1.17)."""
        # Dropped records rely on this: pipeline/read/superseded.py (of one producer and key the last commit replaces those before)
        key = (group_id, topic, partition)
        self.pending.setdefault(key, {})[producer_id] = stored
        transaction = self._open.get(producer_id)
        if transaction is None:
            transaction = self._open[producer_id] = _OpenTransaction()
        transaction.keys.add(key)
        if stored.producer_epoch > transaction.highest_epoch:
            transaction.highest_epoch = stored.producer_epoch
        if self._open_by_group is not None:
            self._open_by_group.setdefault(group_id, set()).add(producer_id)

    def delete(self, group_id: str, topic: str, partition: int, producer_id: int, is_transactional: bool) -> None:
        """Apply a tombstone of an offset (R-1.15).

        Java: removes the committed offset, and since 3.8 the pending offsets of all producers. Scala: in a transaction removes the
        producer's pending offset, outside of a transaction the committed offset.
        """
        # Dropped records rely on this: pipeline/read/superseded.py
        if self._semantics.tombstone_drops_pending:
            self.pending.pop((group_id, topic, partition), None)
        elif is_transactional and self._semantics.transactional_tombstone_drops_own:
            self.unstage(group_id, topic, partition, producer_id)
            return
        offsets = self.committed.get(group_id)
        if offsets is not None and offsets.pop((topic, partition), None) is not None and not offsets:
            del self.committed[group_id]

    def end_transaction(self, producer_id: int, control_type: int) -> None:
        """Apply a marker (R-1.18 to R-1.22): COMMIT makes the producer's pending offsets committed offsets, ABORT removes them.

        Kafka: ``replayEndTransactionMarker``. Java ignores an unknown control type; Scala aborts.
        """
        # Dropped records rely on this: pipeline/read/superseded.py
        if control_type not in _MARKER_TYPES and not self._semantics.unknown_marker_aborts:
            return
        transaction = self._open.pop(producer_id, None)
        if transaction is None:
            return
        for key in transaction.keys:
            staged = self.unstage(*key, producer_id)
            if staged is None:
                continue
            group_id, topic, partition = key
            if self._open_by_group is not None:
                self._open_by_group[group_id].discard(producer_id)
            if control_type != MarkerType.COMMIT:
                continue
            existing = self.committed.get(group_id, {}).get((topic, partition))
            # The order of the commits counts, not of the markers: a later commit outside of the transaction stays.
            if existing is None or staged.record_offset > existing.record_offset or self._semantics.later_marker_wins:
                self.put(group_id, topic, partition, staged)

    def producers_left_open(self, group_id: str) -> frozenset[int]:
        """Producer ids that count as open for the group, even without a pending offset (``tombstone_leaves_transaction_open``)."""
        return frozenset(self._open_by_group.get(group_id, ())) if self._open_by_group is not None else frozenset()

    def open_transactions(self) -> dict[int, int]:
        """Producer id -> highest producer epoch of each transaction that no marker has ended."""
        return {producer_id: transaction.highest_epoch for producer_id, transaction in self._open.items()}

    def without_marker(self) -> Iterator[tuple[OffsetKey, int, StoredOffset]]:
        """(key, producer id, commit) of pending offsets whose producer has gone on with a higher epoch: no marker is in the log (R-4.6)."""
        for key, by_producer in self.pending.items():
            for producer_id, staged in by_producer.items():
                if staged.producer_epoch < self._open[producer_id].highest_epoch:
                    yield key, producer_id, staged

    def unstage(self, group_id: str, topic: str, partition: int, producer_id: int) -> StoredOffset | None:
        """Remove and return a pending offset, or return None."""
        key = (group_id, topic, partition)
        by_producer = self.pending.get(key)
        if by_producer is None:
            return None
        staged = by_producer.pop(producer_id, None)
        if not by_producer:
            del self.pending[key]
        return staged
