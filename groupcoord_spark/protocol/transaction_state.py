"""Decodes records of the topic ``__transaction_state``."""

from __future__ import annotations

from typing import Any, NamedTuple

from groupcoord_spark.protocol.definition import FieldReader
from groupcoord_spark.protocol.errors import UnknownKeyType, UnknownValueVersion
from groupcoord_spark.protocol.fields import Int16, Message
from groupcoord_spark.protocol.messages.transaction_state import TRANSACTION_LOG_KEY, TRANSACTION_LOG_VALUE
from groupcoord_spark.protocol.primitives import read_integer

STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
)  # fmt: skip
"""Names of the states by their number."""


class TransactionState(NamedTuple):
    """What the coordinator knows of one transactional id.

    state: a name in STATES, or the number of a state of a later release. partitions: (topic, partition) of the transaction.
    start_timestamp_ms: -1 where no transaction has begun.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    partitions: tuple[tuple[str, int], ...]
    last_update_timestamp_ms: int
    start_timestamp_ms: int


def decode_transaction_state(key: bytes, value: bytes | None) -> tuple[str, TransactionState | None]:
    """The transactional id of a record, and its state; None for a tombstone: the coordinator has forgotten the id.

    Raises DecodeError where key or value do not decode.
    """
    transactional_id = _fields(TRANSACTION_LOG_KEY, key)["transactional_id"]
    if value is None:
        return transactional_id, None
    fields = _fields(TRANSACTION_LOG_VALUE, value)
    status = fields["status"]
    return transactional_id, TransactionState(
        transactional_id,
        fields["producer_id"],
        fields["producer_epoch"],
        STATES[status] if 0 <= status < len(STATES) else str(status),
        fields["timeout_ms"],
        tuple((topic["topic"], number) for topic in fields["partitions"] or () for number in topic["partition_ids"]),
        fields["last_update_timestamp_ms"],
        fields["start_timestamp_ms"],
    )


def _fields(message: Message, data: bytes) -> dict[str, Any]:
    version, at = read_integer(data, 0, Int16)
    lowest, highest = message.versions
    if not lowest <= version <= highest:
        error = UnknownKeyType if message is TRANSACTION_LOG_KEY else UnknownValueVersion
        raise error(f"{message.name} has version {version}; versions {lowest} to {highest} are known.")
    return FieldReader(data, message, version).read_struct(message.fields, at)[0]
