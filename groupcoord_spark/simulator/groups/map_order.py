"""The iteration order of the broker's hash maps, which decides who becomes the next leader and which protocol wins a tied vote.

Kafka keeps members in a ``java.util.HashMap`` (4.x) or in Scala's ``mutable.HashMap`` (before). Both iterate over their slots upwards and
never shrink, so the order follows from the keys and the largest size that the map has had. Two cases are not modelled: Java slots with nine
or more keys (trees), and the maps of Scala 2.11 and 2.12 (builds of 0.8 to 2.x), which iterate here in the order of Scala 2.13.
Rules: docs/reference/coordinator.md, chapter 1.1.
"""

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from groupcoord_spark.assignors.java_maps import FIRST_SIZE, hash_of_text, in_hash_order, spread_hash

V = TypeVar("V")


def _signed(number: int) -> int:
    return number - (1 << 32) if number >= 1 << 31 else number


class BrokerMap(Generic[V]):
    """Values by string key, iterated in the order of ``java.util.HashMap`` (``like_java``) or of Scala 2.13's ``mutable.HashMap``."""

    __slots__ = ("_items", "_like_java", "_ordered", "_size")

    def __init__(self, like_java: bool) -> None:
        self._items: dict[str, V] = {}
        self._like_java = like_java
        self._size = FIRST_SIZE
        self._ordered: list[V] | None = None

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: str) -> bool:
        return key in self._items

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[V]:
        """Iterate over the values in map order."""
        if self._ordered is None:
            self._ordered = [self._items[key] for key in self.keys()]
        return iter(self._ordered)

    def keys(self) -> list[str]:
        """Return the keys in map order."""
        mask = self._size - 1
        if self._like_java:  # within a slot: order of insertion, which doubling keeps
            return sorted(self._items, key=lambda key: spread_hash(key) & mask)
        return sorted(self._items, key=lambda key: (spread_hash(key) & mask, _signed(spread_hash(key))))

    def get(self, key: str) -> V | None:
        """Return the value of the key, or None."""
        return self._items.get(key)

    def put(self, key: str, value: V) -> None:
        """Store a value. The table doubles at the same size as the broker's."""
        if not self._like_java and len(self._items) + 1 >= self._size * 3 // 4:
            self._size *= 2
        self._items[key] = value
        if self._like_java and len(self._items) > self._size * 3 // 4:
            self._size *= 2
        self._ordered = None

    def pop(self, key: str) -> V | None:
        """Remove a key and return its value; None if the key is not in the map. The table keeps its size."""
        self._ordered = None
        return self._items.pop(key, None)


def _trie_hash(key: str) -> int:
    h = hash_of_text(key)
    h = (h + (~(h << 9) & 0xFFFFFFFF)) & 0xFFFFFFFF
    h ^= h >> 14
    h = (h + (h << 4)) & 0xFFFFFFFF
    return h ^ (h >> 10)


def _in_trie_order(keys: list[str], shift: int) -> Iterator[str]:
    by_slot: dict[int, list[str]] = {}
    for key in keys:
        by_slot.setdefault((_trie_hash(key) >> shift) & 31, []).append(key)
    slots = sorted(by_slot)
    for slot in slots:
        if len(by_slot[slot]) == 1:
            yield by_slot[slot][0]
    for slot in slots:
        if len(by_slot[slot]) > 1:
            yield from by_slot[slot] if shift >= 30 else _in_trie_order(by_slot[slot], shift + 5)


def in_vote_order(names: Iterable[str], like_java: bool) -> list[str]:
    """Return distinct names in the order that the broker uses to break ties between votes; the first wins.

    Java counts in a HashMap that is filled in the order of the votes. Scala counts in an ``immutable.HashMap``: a trie of 32-way nodes
    whose single keys come before its subtrees.
    """
    if like_java:
        return in_hash_order(names, hash_of_text)
    return list(_in_trie_order(list(dict.fromkeys(names)), 0))
