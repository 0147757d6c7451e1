"""Decodes records of the topic ``__transaction_state``."""

from typing import NamedTuple

from groupcoord_spark.protocol.definition import decode_key, decode_value
from groupcoord_spark.protocol.messages.transaction_state import RECORD_TYPES

STATES = (
    "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence",
)  # fmt: skip
"""Names of the states by their number."""


def state_name(status: int) -> str:
    """Return the name of a state, or the number as text for a state of a later release, as Kafka's formatter prints it since 4.4."""
    return STATES[status] if 0 <= status < len(STATES) else str(status)


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
    """Return the transactional id of a record and its state, or None for a tombstone, which means that the coordinator has dropped the id.

    Raises DecodeError where key or value do not decode.
    """
    decoded_key = decode_key(key, record_types=RECORD_TYPES)
    transactional_id = decoded_key.fields["transactional_id"]
    decoded = decode_value(decoded_key.key_type, value, record_types=RECORD_TYPES)
    if decoded is None:
        return transactional_id, None
    fields, status = decoded.fields, decoded.fields["status"]
    return transactional_id, TransactionState(
        transactional_id,
        fields["producer_id"],
        fields["producer_epoch"],
        state_name(status),
        fields["timeout_ms"],
        tuple((topic["topic"], number) for topic in fields["partitions"] or () for number in topic["partition_ids"]),
        fields["last_update_timestamp_ms"],
        fields["start_timestamp_ms"],
    )
