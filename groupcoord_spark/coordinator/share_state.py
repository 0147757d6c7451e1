"""The state of share groups as the share coordinator keeps it: the sum of the records of ``__share_group_state`` (KIP-932)."""

from bisect import insort
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from groupcoord_spark.protocol.definition import decode_key, decode_value
from groupcoord_spark.protocol.errors import DecodeError
from groupcoord_spark.protocol.messages.share_state import RECORD_TYPES, SNAPSHOT, UPDATE

_SNAPSHOT_KEY, _UPDATE_KEY = (number.to_bytes(2, "big") for number in (SNAPSHOT, UPDATE))

NOT_KNOWN = -1
"""A start offset, a leader epoch or a delivery complete count that is not known; in an update: the value does not change."""


class StateBatch(NamedTuple):
    """Offsets of one state. delivery_state: 0 available again, 2 acknowledged, 4 archived."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


class SharePartition(NamedTuple):
    """The key of a state."""

    group_id: str
    topic_id: str
    partition: int


@dataclass(frozen=True, slots=True)
class ShareState:
    """The state of one share group in one partition. Offsets outside of all batches are untouched or in flight; the log does not
    distinguish them."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp_ms: int
    write_timestamp_ms: int
    batches: tuple[StateBatch, ...]


class ShareStatePartition:
    """Replays one partition of ``__share_group_state``.

    A snapshot replaces all before it, so of each key only the newest snapshot and the updates behind it are decoded: some six records.

    Attributes:
        undecoded: number of records that do not decode. The state of their share partition is not known until its next snapshot.
    """

    def __init__(self) -> None:
        self.undecoded = 0
        self._since_snapshot: dict[bytes, list[tuple[int, bytes, bytes | None, int]]] = {}
        self._lacks_records = False

    def add(self, record_offset: int, key: bytes | None, value: bytes | None, timestamp_ms: int) -> None:
        """Apply the next record of the log."""
        if key is None or key[:2] not in (_SNAPSHOT_KEY, _UPDATE_KEY):
            self.undecoded += 1
            return
        name, record = key[2:], (record_offset, key, value, timestamp_ms)
        if key.startswith(_SNAPSHOT_KEY):
            self._since_snapshot[name] = [record]
        elif name in self._since_snapshot or not self._lacks_records:
            self._since_snapshot.setdefault(name, []).append(record)

    def lose_records(self) -> None:
        """Forget all states: records of any key may be missing here, so that only later snapshots count."""
        self._since_snapshot.clear()
        self._lacks_records = True

    def states(self) -> Iterator[tuple[SharePartition, ShareState, int, int]]:
        """Yield each share partition that has a state, the state, and the offset and timestamp of its newest record."""
        for records in self._since_snapshot.values():
            state, (record_offset, _, _, newest_timestamp_ms) = None, records[-1]
            try:
                for _, key, value, _ in records:
                    decoded_key = decode_key(key, record_types=RECORD_TYPES)
                    decoded = decode_value(decoded_key.key_type, value, record_types=RECORD_TYPES)
                    state = apply_record(state, decoded_key.key_type, None if decoded is None else decoded.fields)
            except DecodeError:
                self.undecoded += 1
                continue
            if state is not None:
                fields = decoded_key.fields
                place = SharePartition(fields["group_id"], fields["topic_id"], fields["partition"])
                yield place, state, record_offset, newest_timestamp_ms


def apply_record(state: ShareState | None, record_type: int, value: Mapping[str, Any] | None) -> ShareState | None:
    """Return the state after a record of the share partition of type SNAPSHOT or UPDATE, or None without a state. A None ``value`` is a
    tombstone."""
    if value is None:
        return None
    batches = tuple(StateBatch(**batch) for batch in value["state_batches"])
    if state is None or record_type == SNAPSHOT:
        return ShareState(
            value["snapshot_epoch"],
            value.get("state_epoch", 0),
            value["leader_epoch"],
            value["start_offset"],
            value["delivery_complete_count"],
            value.get("create_timestamp_ms", 0),
            value.get("write_timestamp_ms", 0),
            batches,
        )
    start_offset = state.start_offset if value["start_offset"] == NOT_KNOWN else value["start_offset"]
    return replace(
        state,
        leader_epoch=state.leader_epoch if value["leader_epoch"] == NOT_KNOWN else value["leader_epoch"],
        start_offset=start_offset,
        delivery_complete_count=value["delivery_complete_count"],
        batches=tuple(combine_batches((*state.batches, *batches), start_offset)),
    )


def combine_batches(batches: Iterable[StateBatch], start_offset: int) -> list[StateBatch]:
    """Merge the batches of a state and of an update, without overlaps and without offsets below the start offset.

    Of the batches that cover an offset, the one with the greatest delivery count, then the greatest state, counts. Equal neighbours that
    touch become one, but only behind the first place where two batches overlap or touch in that way: so the boundaries are the
    coordinator's own. Source: org.apache.kafka.coordinator.share.PersisterStateBatchCombiner.
    """
    if start_offset != NOT_KNOWN:
        kept = (batch for batch in batches if batch.last_offset >= start_offset)
        batches = [batch._replace(first_offset=max(batch.first_offset, start_offset)) for batch in kept]
    waiting = list(batches)
    if len(waiting) < 2:
        return waiting
    # The next batch is the last one of the list.
    waiting = sorted(set(waiting), key=_backwards, reverse=True)
    combined: list[StateBatch] = []
    while len(waiting) > 1:
        first, second = waiting.pop(), waiting[-1]
        has_equal_state = _strength(first) == _strength(second)
        if not (second.first_offset <= first.last_offset or (has_equal_state and second.first_offset == first.last_offset + 1)):
            combined.append(first)
            continue
        waiting.pop()
        for piece in _pieces(first, second):
            if piece.first_offset <= piece.last_offset and piece not in waiting:
                insort(waiting, piece, key=lambda batch: tuple(-number for number in _backwards(batch)))
    return combined + waiting


def _backwards(batch: StateBatch) -> tuple[int, int, int, int]:
    return batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state


def _strength(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.delivery_state


def _pieces(first: StateBatch, second: StateBatch) -> tuple[StateBatch, ...]:
    """Return the batches that replace two overlapping or adjacent batches. ``second`` does not start first. Some batches may be empty."""
    if _strength(first) == _strength(second):
        return (first._replace(last_offset=max(first.last_offset, second.last_offset)),)
    if _strength(second) < _strength(first):
        return first, second._replace(first_offset=first.last_offset + 1)
    head, tail = first._replace(last_offset=second.first_offset - 1), first._replace(first_offset=second.last_offset + 1)
    return head, second, tail
