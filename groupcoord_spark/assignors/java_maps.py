"""The iteration order of Java's HashMap, which Kafka's assignors rely on to break ties between equal members.

A table has a power of two of slots: 16 at first, doubled when more than three quarters of them are used, and never reduced. The iterator
goes by slot and, within a slot, by insertion order. Slots with nine or more keys in tables of 64 or more slots (trees) are not modelled.
Maps that lose keys, and Scala's maps before 4.x, are in simulator/groups/map_order.py.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final, TypeVar

from groupcoord_spark.protocol import java_string_hash

K = TypeVar("K")

FIRST_SIZE: Final = 16
_MOST_KEYS_OF_SLOT: Final = 8
_FIRST_SIZE_WITH_TREES: Final = 64
_UINT32: Final = 0xFFFFFFFF


@lru_cache(maxsize=1 << 16)
def hash_of_text(text: str) -> int:
    """String.hashCode, as an unsigned 32-bit number."""
    return java_string_hash(text) & _UINT32


def spread(java_hash: int) -> int:
    """``h ^ (h >>> 16)``: the hash with its upper half folded into the lower half, whose lowest bits are the slot."""
    return java_hash ^ (java_hash >> 16)


@lru_cache(maxsize=1 << 16)
def spread_hash(text: str) -> int:
    """Return the spread hash of a text."""
    return spread(hash_of_text(text))


def slot_of(java_hash: int, slots: int) -> int:
    """Return the slot of a key with this hash."""
    return spread(java_hash) & (slots - 1)


def slots_after_puts(keys: int) -> int:
    """Return the number of slots of a table after ``keys`` single puts."""
    slots = FIRST_SIZE
    while keys > slots * 3 // 4:
        slots *= 2
    return slots


def slots_of_copy(keys: int) -> int:
    """Return the number of slots of a HashSet copied from ``keys`` keys: the copy allocates keys / 0.75 + 1 slots at once."""
    slots = FIRST_SIZE
    while slots < keys * 4 // 3 + 1:
        slots *= 2
    return slots


def in_hash_order(keys: Iterable[K], hash_of: Callable[[K], int], slots: int | None = None) -> list[K]:
    """Return the distinct keys in the iteration order of a HashMap filled in the given order.

    Args:
        slots: initial number of slots; None for the default of 16, grown by single puts.
    """
    distinct = list(dict.fromkeys(keys))
    table = slots_after_puts(len(distinct)) if slots is None else slots
    if table < _FIRST_SIZE_WITH_TREES and len(distinct) > _MOST_KEYS_OF_SLOT:
        table = max(table, _slots_after_full_slots([hash_of(key) for key in distinct], slots))
    return sorted(distinct, key=lambda key: slot_of(hash_of(key), table))


def in_order_of_copy(numbers: Iterable[int]) -> list[int]:
    """Return the distinct numbers in the order of a ``HashSet<Integer>`` copied from the list: by slot, then in list order.

    The order is ascending while all numbers are below the number of slots, at least 16: [9 .. 17] becomes 16, 17, 9 .. 15. Sizes are Java
    17's; since Java 19 a copy of exactly 12, 24, 48 ... numbers has half as many slots.
    """
    distinct = list(dict.fromkeys(numbers))
    return in_hash_order(distinct, int, slots_of_copy(len(distinct)))


def _slots_after_full_slots(hashes: Sequence[int], fixed_slots: int | None) -> int:
    """Return the number of slots of a small table after single puts of these keys.

    Below 64 slots the ninth key of a slot doubles the table, instead of making a tree.
    fixed_slots: number of slots that the table was made with, enough for all keys; None: 16, grown by single puts.
    """
    slots = FIRST_SIZE if fixed_slots is None else fixed_slots
    for count, java_hash in enumerate(hashes, 1):
        if slots >= _FIRST_SIZE_WITH_TREES:
            break
        slot = slot_of(java_hash, slots)
        if sum(slot_of(earlier, slots) == slot for earlier in hashes[:count]) > _MOST_KEYS_OF_SLOT:
            slots *= 2
        if fixed_slots is None and count > slots * 3 // 4:
            slots *= 2
    return slots
