"""Which partition of the offsets topic holds a group, and which of ``__transaction_state`` a transactional id."""

from __future__ import annotations

import struct
from functools import lru_cache


def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode``: ``h = 31 h + u`` over the UTF-16 code units, as a signed 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    h = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        h = 31 * h + unit & 0xFFFFFFFF
    return h - (1 << 32) if h >= 1 << 31 else h


def partitioning_hash(text: str) -> int:
    """The number that Kafka divides by the partition count: the remainder is the partition.

    Kafka's ``Utils.abs`` makes 0 of the one number whose absolute value is no int32. Clearing the sign bit instead would give another
    partition for every negative hash.
    """
    return abs(java_string_hash(text)) & 0x7FFFFFFF


@lru_cache(maxsize=1 << 16)
def offsets_partition_for(group_id: str, partitions: int) -> int:
    """The partition of ``__consumer_offsets`` that holds a group. partitions: how many the topic has (50 by default)."""
    return partitioning_hash(group_id) % partitions
