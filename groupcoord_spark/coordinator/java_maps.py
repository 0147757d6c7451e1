"""The order of keys put into Java's HashMap, as functions of their hashes: Kafka's assignors break ties between equal members by it.

A table has a power of two of slots, 16 at first, doubles when it holds more than three quarters of that, and never shrinks.
Keys come by slot and, within one, in the order in which they were put. Slots of nine and more keys (trees) are not modelled.
The broker's maps, which live on and lose keys, and Scala's before 4.x, are in simulator/map_order.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final, TypeVar

from groupcoord_spark.protocol import java_string_hash

K = TypeVar("K")

FIRST_SIZE: Final = 16
_UINT32: Final = 0xFFFFFFFF


@lru_cache(maxsize=1 << 16)
def hash_of_text(text: str) -> int:
    """String.hashCode, as an unsigned 32-bit number."""
    return java_string_hash(text) & _UINT32


def spread(java_hash: int) -> int:
    """``h ^ (h >>> 16)``: the upper half of a hash folded into the lower, from which the slot is taken."""
    return java_hash ^ (java_hash >> 16)


@lru_cache(maxsize=1 << 16)
def spread_hash(text: str) -> int:
    """The folded hash of a text."""
    return spread(hash_of_text(text))


def slot_of(java_hash: int, slots: int) -> int:
    """The slot of a key with this hash."""
    return spread(java_hash) & (slots - 1)


def slots_after_puts(keys: int) -> int:
    """The slots of a table into which so many keys were put one by one."""
    slots = FIRST_SIZE
    while keys > slots * 3 // 4:
        slots *= 2
    return slots


def slots_of_copy(keys: int) -> int:
    """The slots of a HashSet that was made as a copy of so many keys, which asks for keys / 0.75 + 1 at once."""
    slots = FIRST_SIZE
    while slots < keys * 4 // 3 + 1:
        slots *= 2
    return slots


def in_hash_order(keys: Iterable[K], hash_of: Callable[[K], int], slots: int | None = None) -> list[K]:
    """The distinct keys in the order a HashMap gives them that took them in the given order.

    slots: the size of the table, where it did not grow by single puts.
    """
    distinct = list(dict.fromkeys(keys))
    table = slots_after_puts(len(distinct)) if slots is None else slots
    return sorted(distinct, key=lambda key: slot_of(hash_of(key), table))
