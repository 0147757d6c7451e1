"""Committed and pending offsets of one offsets partition: what a commit, a tombstone and a marker do to them."""

from collections.abc import Iterator
from typing import NamedTuple

from groupcoord_spark.coordinator.semantics import Semantics

NO_PRODUCER_ID = -1
ABORT_MARKER = 0
COMMIT_MARKER = 1

TopicPartition = tuple[str, int]
OffsetKey = tuple[str, str, int]
"""(group_id, topic, partition): keys of type 0 and of type 1 address the same entry (R-1.13)."""


class StoredOffset(NamedTuple):
    """One commit as the coordinator keeps it. Kafka's -1 stands for "none" throughout; only topic_id has None."""

    committed_offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    """Explicit expiry (value version 1); -1: none. Any other value counts, 0 and -2 too."""
    topic_id: str | None
    value_version: int
    producer_id: int
    producer_epoch: int
    record_offset: int
    record_timestamp_ms: int


class _OpenTransaction:
    """Keys one producer has staged since its last marker; some may have been deleted or replaced meanwhile."""

    __slots__ = ("highest_epoch", "keys")

    def __init__(self) -> None:
        self.keys: set[OffsetKey] = set()
        self.highest_epoch = NO_PRODUCER_ID


class OffsetStore:
    """Offsets of all groups, with or without a group that owns them (Kafka keeps the two apart as well, R-1.26)."""

    __slots__ = ("_open", "_tombstone_drops_pending", "_unknown_marker_aborts", "committed", "pending")

    def __init__(self, semantics: Semantics) -> None:
        self._tombstone_drops_pending = semantics.tombstone_drops_pending
        self._unknown_marker_aborts = semantics.unknown_marker_aborts
        self.committed: dict[str, dict[TopicPartition, StoredOffset]] = {}
        """By group; a group without entries is absent."""
        self.pending: dict[OffsetKey, dict[int, StoredOffset]] = {}
        """By partition, then by producer id; a partition without entries is absent."""
        self._open: dict[int, _OpenTransaction] = {}

    def put(self, group_id: str, topic: str, partition: int, stored: StoredOffset) -> None:
        """A commit outside of transactions: the last record wins (R-1.12)."""
        offsets = self.committed.get(group_id)
        if offsets is None:
            offsets = self.committed[group_id] = {}
        offsets[topic, partition] = stored

    def stage(self, group_id: str, topic: str, partition: int, producer_id: int, stored: StoredOffset) -> None:
        """A commit inside a transaction waits for the marker of its producer id, whatever the epoch (R-1.17)."""
        key = (group_id, topic, partition)
        self.pending.setdefault(key, {})[producer_id] = stored
        transaction = self._open.get(producer_id)
        if transaction is None:
            transaction = self._open[producer_id] = _OpenTransaction()
        transaction.keys.add(key)
        if stored.producer_epoch > transaction.highest_epoch:
            transaction.highest_epoch = stored.producer_epoch

    def delete(self, group_id: str, topic: str, partition: int, producer_id: int, is_transactional: bool) -> None:
        """A tombstone. Java: the committed offset and all pending ones go, at once and for good. Scala: one or the other (R-1.15)."""
        if self._tombstone_drops_pending:
            self.pending.pop((group_id, topic, partition), None)
        elif is_transactional:
            self._unstage((group_id, topic, partition), producer_id)
            return
        offsets = self.committed.get(group_id)
        if offsets is not None and offsets.pop((topic, partition), None) is not None and not offsets:
            del self.committed[group_id]

    def end_transaction(self, producer_id: int, control_type: int) -> None:
        """A marker: COMMIT moves what the producer staged to the committed offsets, ABORT drops it (R-1.18 to R-1.22)."""
        if control_type not in (ABORT_MARKER, COMMIT_MARKER) and not self._unknown_marker_aborts:
            return
        transaction = self._open.pop(producer_id, None)
        if transaction is None:
            return
        for key in transaction.keys:
            staged = self._unstage(key, producer_id)
            if staged is None or control_type != COMMIT_MARKER:
                continue
            group_id, topic, partition = key
            existing = self.committed.get(group_id, {}).get((topic, partition))
            # Order of the records, not of the markers: a plain commit written between record and marker stays.
            if existing is None or staged.record_offset > existing.record_offset:
                self.put(group_id, topic, partition, staged)

    def overtaken(self) -> Iterator[tuple[OffsetKey, int, StoredOffset]]:
        """Pending entries of producers that have gone on with a higher epoch: their marker is missing from the log (R-4.6)."""
        for key, by_producer in self.pending.items():
            for producer_id, staged in by_producer.items():
                if staged.producer_epoch < self._open[producer_id].highest_epoch:
                    yield key, producer_id, staged

    def _unstage(self, key: OffsetKey, producer_id: int) -> StoredOffset | None:
        by_producer = self.pending.get(key)
        if by_producer is None:
            return None
        staged = by_producer.pop(producer_id, None)
        if not by_producer:
            del self.pending[key]
        return staged
