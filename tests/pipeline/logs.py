"""Random logs of one offsets partition, small and nasty: conversions, stray tombstones, damaged values, both signs of a transaction."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.exchange.kept_records import KEPT
from groupcoord_spark.protocol import encode_key, encode_value
from groupcoord_spark.protocol.slices import Slices

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class LogRecord(NamedTuple):
    """One record as the log room gives it."""

    record_offset: int
    key: bytes | None
    value: bytes | None
    producer_id: int = -1
    is_transactional: bool = False
    control_type: int = -1


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
    return encode_value(1, version, value)


def classic_value(generation: int, members: int) -> bytes:
    return encode_value(
        2,
        3,
        {
            "protocol_type": "consumer" if generation % 4 else "",
            "generation": generation,
            "protocol": "range" if members else None,
            "leader": "m0" if members else None,
            "current_state_timestamp_ms": 5_000 + generation,
            "members": [
                {
                    "member_id": f"m{i}",
                    "group_instance_id": None,
                    "client_id": "c",
                    "client_host": "/h",
                    "rebalance_timeout_ms": 100,
                    "session_timeout_ms": 10,
                    "subscription": b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff",
                    "assignment": b"",
                }
                for i in range(members)
            ],
        },
    )


def member_value() -> dict[str, Any]:
    return {
        "instance_id": None,
        "rack_id": None,
        "client_id": "c",
        "client_host": "h",
        "subscribed_topic_names": ["t"],
        "subscribed_topic_regex": None,
        "rebalance_timeout_ms": 1,
        "server_assignor": None,
        "classic_member_metadata": None,
    }


def _holding(partitions: list[int]) -> list[dict[str, Any]]:
    return [{"topic_id": TOPIC_ID, "partitions": partitions}] if partitions else []


def _modern(rng: random.Random, group: str) -> tuple[bytes, bytes | None]:
    key_type = rng.choice((3, 5, 6, 7, 8, 11, 11, 17))
    fields: dict[str, Any] = {"group_id": group}
    if key_type in (5, 7, 8):
        fields["member_id"] = rng.choice("xy")
    key = encode_key(key_type, fields)
    if rng.random() < 0.4:
        return key, None
    epoch = rng.randrange(1, 6)
    parts = [{"topic_id": TOPIC_ID, "partitions": [rng.randrange(2)]}]
    values: dict[int, dict[str, Any]] = {
        3: {"epoch": epoch},
        5: member_value(),
        6: {"assignment_epoch": epoch},
        7: {"topic_partitions": parts},
        8: {
            "member_epoch": epoch,
            "previous_member_epoch": epoch - 1,
            "state": rng.randrange(3),
            "assigned_partitions": parts,
            "partitions_pending_revocation": [],
        },
        11: {"epoch": epoch, "metadata_hash": 1},
        17: {"epoch": epoch, "metadata_hash": 1},
    }
    return key, encode_value(key_type, 0, values[key_type])


class _Churn:
    """Consumer groups whose members come, hand partitions on and go, nearly always as a coordinator writes it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.epoch = 1
        self.held: dict[str, list[int]] = {}
        self.waiting: list[tuple[bytes, bytes | None]] = []

    def _put(self, key_type: int, fields: dict[str, Any], value: dict[str, Any] | None) -> None:
        key = encode_key(key_type, {"group_id": "k", **fields})
        self.waiting.append((key, None if value is None else encode_value(key_type, 0, value)))

    def _assign(self, member_id: str) -> None:
        taken = {partition for held in self.held.values() for partition in held} if self.rng.random() < 0.97 else set()
        self.held[member_id] = [partition for partition in range(5) if partition not in taken and self.rng.random() < 0.6]
        giving = self.held[member_id][:1] if self.rng.random() < 0.2 else []
        value = {
            "member_epoch": self.epoch,
            "previous_member_epoch": self.epoch - 1,
            "state": self.rng.randrange(3),
            "assigned_partitions": _holding(self.held[member_id][len(giving) :]),
            "partitions_pending_revocation": _holding(giving),
        }
        self._put(8, {"member_id": member_id}, value)

    def _step(self) -> None:
        rng, member_id = self.rng, self.rng.choice("xyz")
        self.epoch += rng.random() < 0.5
        if rng.random() < 0.1:
            self._put(3, {}, {"epoch": self.epoch})
        if member_id not in self.held:
            self._put(5, {"member_id": member_id}, member_value())
            self._put(7, {"member_id": member_id}, {"topic_partitions": _holding([rng.randrange(5)])})
            self._assign(member_id)
        elif rng.random() < 0.6:
            self.held[member_id] = []
            self._assign(member_id)
        else:
            del self.held[member_id]
            for key_type in (8, 7, 5):
                self._put(key_type, {"member_id": member_id}, None)
        if rng.random() < 0.02:
            self._put(rng.choice((3, 6)), {}, None)

    def record(self) -> tuple[bytes, bytes | None]:
        """The next one; now and then one gets lost or changes places with the one after it."""
        while len(self.waiting) < 2:
            self._step()
        odd = self.rng.random()
        if odd < 0.03:
            self.waiting.pop(0)
        elif odd < 0.06:
            self.waiting[0], self.waiting[1] = self.waiting[1], self.waiting[0]
        return self.waiting.pop(0) if self.waiting else self.record()


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
            key_type = rng.random()
            if key_type < 0.1:
                key = encode_key(1, {"group_id": "k", "topic": "t", "partition": 0})
                record = LogRecord(record_offset, key, rng.choice((None, commit_value(record_offset), commit_value(record_offset))))
            else:
                record = LogRecord(record_offset, *churn.record())
        elif kind < 0.12:
            control_type = rng.choice((0, 1, 1) if has_ordinary_transactions else (0, 1, 1, 2))
            record = LogRecord(record_offset, b"\0\0\0\1", b"\0\0\0\0\0\0", producer_id, True, control_type)
        elif kind < 0.30:
            record = LogRecord(record_offset, encode_key(2, {"group_id": group}), _classic_or_damaged(rng))
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
    """A value that decodes and that a loader may refuse: members or instances named twice, subscriptions that cannot be read."""
    subscriptions = (SUBSCRIPTION, b"", SUBSCRIPTION[:3], *MALFORMED_SUBSCRIPTIONS)
    members = [(rng.choice("ab"), rng.choice((None, "i", "k")), rng.choice(subscriptions)) for _ in range(rng.randrange(1, 4))]
    return classic_value_of(members, generation=generation, protocol_type=rng.choice(("consumer", "connect")), version=rng.choice((3, 4)))


def classic_value_of(
    members: list[tuple[str, str | None, bytes]], *, generation: int = 1, protocol_type: str = "consumer", version: int = 3
) -> bytes:
    """A value of key type 2 with members of these ids, instance ids and subscriptions."""
    value = {
        "protocol_type": protocol_type,
        "generation": generation,
        "protocol": "range",
        "leader": None,
        "current_state_timestamp_ms": 5_000,
        "members": [
            {
                "member_id": member_id,
                "group_instance_id": instance_id,
                "client_id": "c",
                "client_host": "/h",
                "rebalance_timeout_ms": 100,
                "session_timeout_ms": 10,
                "subscription": subscription,
                "assignment": b"",
            }
            for member_id, instance_id, subscription in members
        ],
    }
    return encode_value(2, version, value)


def _offset_record(rng: random.Random, record_offset: int, group: str, producer_id: int, has_ordinary_transactions: bool) -> LogRecord:
    key_type = rng.choice((0, 1, 1, 1, 1))
    key = encode_key(key_type, {"group_id": group, "topic": rng.choice("tu"), "partition": 0})
    version = rng.choice((0, 1, 2, 3, 4)) if key_type else rng.choice((0, 0, 1, 3))
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
    """The log as columns."""
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
