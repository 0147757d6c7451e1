"""Random logs of one offsets partition, small and nasty: conversions, stray tombstones, damaged values, both signs of a transaction."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.exchange.kept_records import KEPT
from groupcoord_spark.protocol import encode_key, encode_value
from groupcoord_spark.protocol.record_types import NO_PRODUCER_ID, NOT_A_CONTROL_RECORD, KeyType, MarkerType
from groupcoord_spark.protocol.slices import Slices
from tests.coordinator.records import (
    TOPIC_ID,
    Record,
    consumer_member,
    current_assignment,
    group_epoch,
    share_group_epoch,
    streams_group_epoch,
    target,
    target_epoch,
    target_metadata,
    tombstone,
)

OTHER_MARKER = 2
"""A type of marker that no coordinator writes."""


class LogRecord(NamedTuple):
    """One record as the log room gives it."""

    record_offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int = NO_PRODUCER_ID
    is_transactional: bool = False
    control_type: int = NOT_A_CONTROL_RECORD

    @property
    def is_control(self) -> bool:
        return self.control_type != NOT_A_CONTROL_RECORD


def log_of(records: Iterable[Record], first_offset: int = 0) -> list[LogRecord]:
    """Return the builders' records outside of transactions, at offsets without a gap."""
    return [LogRecord(record_offset, record.key, record.value) for record_offset, record in enumerate(records, first_offset)]


def marker(record_offset: int, producer_id: int, control_type: int) -> LogRecord:
    """Return the marker that ends a transaction of the producer."""
    return LogRecord(record_offset, b"\0\0\0\1", b"\0\0\0\0\0\0", producer_id, True, control_type)


def offset_key(group_id: str = "g", topic: str = "t", partition: int = 0, *, key_type: int = KeyType.OFFSET_COMMIT) -> bytes:
    return encode_key(key_type, {"group_id": group_id, "topic": topic, "partition": partition})


def classic_group_key(group_id: str = "g") -> bytes:
    return encode_key(KeyType.GROUP_METADATA, {"group_id": group_id})


def commit_value(committed_offset: int, version: int = 3, **fields: Any) -> bytes:
    value = {
        "committed_offset": committed_offset,
        "leader_epoch": -1,
        "metadata": "",
        "commit_timestamp_ms": 1_000_000 + committed_offset,
        "expire_timestamp_ms": -1,
        "topic_id": TOPIC_ID,
        **fields,
    }
    return encode_value(KeyType.OFFSET_COMMIT, version, value)


def classic_value(generation: int, members: int) -> bytes:
    """Return a value of a classic group with this number of members; every fourth generation belongs to no protocol."""
    return encode_value(
        KeyType.GROUP_METADATA,
        3,
        {
            "protocol_type": "consumer" if generation % 4 else "",
            "generation": generation,
            "protocol": "range" if members else None,
            "leader": "m0" if members else None,
            "current_state_timestamp_ms": 5_000 + generation,
            "members": [_classic_member(f"m{i}", None, SUBSCRIPTION) for i in range(members)],
        },
    )


def classic_value_of(
    members: list[tuple[str, str | None, bytes]], *, generation: int = 1, protocol_type: str = "consumer", version: int = 3
) -> bytes:
    """Return a value of a classic group whose members have these ids, instance ids and subscriptions."""
    value = {
        "protocol_type": protocol_type,
        "generation": generation,
        "protocol": "range",
        "leader": None,
        "current_state_timestamp_ms": 5_000,
        "members": [_classic_member(*fields) for fields in members],
    }
    return encode_value(KeyType.GROUP_METADATA, version, value)


def _classic_member(member_id: str, instance_id: str | None, subscription: bytes) -> dict[str, Any]:
    return {
        "member_id": member_id,
        "group_instance_id": instance_id,
        "client_id": "c",
        "client_host": "/h",
        "rebalance_timeout_ms": 100,
        "session_timeout_ms": 10,
        "subscription": subscription,
        "assignment": b"",
    }


def _modern(rng: random.Random, group_id: str) -> tuple[bytes | None, bytes | None]:
    """Key and value of one record of a consumer group, or of the epoch of a share or streams group; often a tombstone."""
    epoch, member_id, partition = rng.randrange(1, 6), rng.choice("xy"), rng.randrange(2)
    builders = (
        partial(group_epoch, epoch),
        partial(consumer_member, member_id, "t"),
        partial(target_epoch, epoch),
        partial(target, member_id, partition),
        partial(current_assignment, member_id, epoch, partition, state=rng.randrange(3)),
        partial(share_group_epoch, epoch),
        partial(share_group_epoch, epoch),
        partial(streams_group_epoch, epoch),
    )
    record = rng.choice(builders)(group=group_id)
    return record.key, None if rng.random() < 0.4 else record.value


class _Churn:
    """A consumer group whose members join, hand partitions on and leave, nearly always as a coordinator writes it."""

    GROUP = "k"

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.epoch = 1
        self.partitions: dict[str, list[int]] = {}
        """Member -> partitions of its current assignment."""
        self.to_write: list[Record] = []

    def _assign(self, member_id: str) -> None:
        taken = {number for numbers in self.partitions.values() for number in numbers} if self.rng.random() < 0.97 else set()
        numbers = [number for number in range(5) if number not in taken and self.rng.random() < 0.6]
        self.partitions[member_id] = numbers
        revoking = numbers[:1] if self.rng.random() < 0.2 else []
        assigned, state = numbers[len(revoking) :], self.rng.randrange(3)
        self.to_write.append(current_assignment(member_id, self.epoch, *assigned, state=state, revoking=revoking, group=self.GROUP))

    def _step(self) -> None:
        rng, member_id = self.rng, self.rng.choice("xyz")
        self.epoch += rng.random() < 0.5
        if rng.random() < 0.1:
            self.to_write.append(group_epoch(self.epoch, group=self.GROUP))
        if rng.random() < 0.3:
            epoch, timestamp_ms = rng.choice((self.epoch, self.epoch, -1, -2)), rng.choice((0, 5, 5, -5))
            target_epoch_type = KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA
            self.to_write.append(target_metadata(target_epoch_type, epoch, timestamp_ms, group=self.GROUP))
        if member_id in self.partitions and rng.random() < 0.3:
            self.to_write.append(consumer_member(member_id, rng.choice("tu"), group=self.GROUP))
        if member_id not in self.partitions:
            self.to_write.append(consumer_member(member_id, "t", group=self.GROUP))
            self.to_write.append(target(member_id, rng.randrange(5), group=self.GROUP))
            self._assign(member_id)
        elif rng.random() < 0.6:
            self.partitions[member_id] = []
            self._assign(member_id)
        else:
            del self.partitions[member_id]
            self.to_write += member_tombstones(member_id, group=self.GROUP)
        if rng.random() < 0.02:
            removing = (KeyType.CONSUMER_GROUP_METADATA, KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA)
            self.to_write.append(tombstone(rng.choice(removing), group=self.GROUP))

    def record(self) -> tuple[bytes | None, bytes | None]:
        """Key and value of the next record; now and then a record gets lost or changes places with the one after it."""
        while len(self.to_write) < 2:
            self._step()
        odd = self.rng.random()
        if odd < 0.03:
            self.to_write.pop(0)
        elif odd < 0.06:
            self.to_write[0], self.to_write[1] = self.to_write[1], self.to_write[0]
        record = self.to_write.pop(0)
        return record.key, record.value


def member_tombstones(member_id: str, *, group: str = "g") -> list[Record]:
    """Return what a coordinator writes when a member leaves a consumer group."""
    of_member = (
        KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
        KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER,
        KeyType.CONSUMER_GROUP_MEMBER_METADATA,
    )
    return [tombstone(key_type, group=group, member_id=member_id) for key_type in of_member]


def random_log(rng: random.Random, length: int) -> list[LogRecord]:
    """``length`` records over few groups, topics and producers, with gaps between their offsets."""
    churn, share_of_churn = _Churn(rng), rng.choice((0.0, 0.3, 0.8))
    # Transactions as brokers write them: without tombstones, with both signs, ended by COMMIT or ABORT.
    has_ordinary_transactions = rng.random() < 0.5
    records, record_offset = [], rng.randrange(3)
    for _ in range(length):
        group = rng.choice("gh")
        kind = rng.random()
        producer_id = rng.choice((7, 8))
        if rng.random() < share_of_churn:
            if rng.random() < 0.1:
                value = rng.choice((None, commit_value(record_offset), commit_value(record_offset)))
                record = LogRecord(record_offset, offset_key(churn.GROUP), value)
            else:
                record = LogRecord(record_offset, *churn.record())
        elif kind < 0.12:
            endings = [MarkerType.ABORT, MarkerType.COMMIT, MarkerType.COMMIT]
            record = marker(record_offset, producer_id, rng.choice(endings if has_ordinary_transactions else [*endings, OTHER_MARKER]))
        elif kind < 0.30:
            record = LogRecord(record_offset, classic_group_key(group), _classic_or_damaged(rng))
        elif kind < 0.48:
            record = LogRecord(record_offset, *_modern(rng, group))
        elif kind < 0.52:
            key = rng.choice((None, b"\0", b"\0\x18\0\1g", b"\0\2\0\5g"))
            record = LogRecord(record_offset, key, rng.choice((None, b"\0\0")), *_signs(rng))
        else:
            record = _offset_record(rng, record_offset, group, producer_id, has_ordinary_transactions)
        records.append(record)
        record_offset += rng.choice((1, 1, 1, 2, 5))
    return records


def _signs(rng: random.Random) -> tuple[int, bool]:
    """Producer id and transactional bit of a record that nobody can read."""
    return rng.choice(((-1, False), (-1, False), (7, True), (8, True), (7, False), (-1, True)))


def _classic_or_damaged(rng: random.Random) -> bytes | None:
    generation = rng.randrange(6)
    choices = (None, None, b"\0\3\0", classic_value(generation, rng.randrange(3)), classic_value(generation, 1), _refused(rng, generation))
    return rng.choice(choices)


MALFORMED_SUBSCRIPTIONS = (b"\0\0\xff\xff\xff\xff", b"\0\0\0\0\0\1\0\5t", b"\0\0\0\0\0\0\0\0\0\5x", b"\0\0\0\0\0\1\xff\xff")
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


def _refused(rng: random.Random, generation: int) -> bytes:
    """Return a value that decodes and that a loader may refuse: members or instances named twice, subscriptions that cannot be read."""
    subscriptions = (SUBSCRIPTION, b"", SUBSCRIPTION[:3], *MALFORMED_SUBSCRIPTIONS)
    members = [(rng.choice("ab"), rng.choice((None, "i", "k")), rng.choice(subscriptions)) for _ in range(rng.randrange(1, 4))]
    return classic_value_of(members, generation=generation, protocol_type=rng.choice(("consumer", "connect")), version=rng.choice((3, 4)))


def _offset_record(rng: random.Random, record_offset: int, group: str, producer_id: int, has_ordinary_transactions: bool) -> LogRecord:
    is_legacy = rng.random() < 0.2
    key = offset_key(group, rng.choice("tu"), key_type=KeyType.LEGACY_OFFSET_COMMIT if is_legacy else KeyType.OFFSET_COMMIT)
    version = rng.choice((0, 0, 1, 3)) if is_legacy else rng.choice((0, 1, 2, 3, 4))
    value: bytes | None = commit_value(record_offset, version)
    odd = rng.random()
    if odd < 0.25:
        value = None
    elif odd < 0.32 and value is not None:
        value = value[: rng.randrange(len(value))]
    elif odd < 0.35:
        value = b"\0\x09abcdefgh"
    if rng.random() < 0.6:
        return LogRecord(record_offset, key, value)
    if has_ordinary_transactions:
        return LogRecord(record_offset, key, value, producer_id, True) if value is not None else LogRecord(record_offset, key, None)
    signs = rng.choice(((producer_id, True), (producer_id, True), (producer_id, True), (producer_id, False), (-1, True)))
    return LogRecord(record_offset, key, value, *signs)


def records_of(log: list[LogRecord]) -> Records:
    """Return the log as columns."""
    n = len(log)
    return Records(
        record_offset=np.array([r.record_offset for r in log], np.int64),
        timestamp_ms=np.array([1_700_000_000_000 + r.record_offset for r in log], np.int64),
        key=Slices.of([r.key for r in log]),
        value=Slices.of([r.value for r in log]),
        producer_id=np.array([r.producer_id for r in log], np.int64),
        producer_epoch=np.zeros(n, np.int16),
        is_transactional=np.array([r.is_transactional for r in log], np.bool_),
        control_type=np.array([r.control_type for r in log], np.int8),
        position=np.zeros(n, np.int64),
    )


def empty_batch() -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=KEPT)
