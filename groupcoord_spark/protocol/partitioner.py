"""Which partition of the offsets topic holds a group, and which of ``__transaction_state`` a transactional id."""

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
    """Return the number that Kafka divides by the partition count; the remainder is the partition.

    Kafka's ``Utils.abs`` returns 0 for the only number whose absolute value does not fit an int32. Clearing the sign bit instead would give
    a different partition for every negative hash.
    """
    return abs(java_string_hash(text)) & 0x7FFFFFFF


@lru_cache(maxsize=1 << 16)
def offsets_partition_for(group_id: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` for a group. ``partitions`` is the topic's partition count (50 by default)."""
    return partitioning_hash(group_id) % partitions
