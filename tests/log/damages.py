"""Kinds of damage to a file, each on a random place, and which entries it leaves alone."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Harmed:
    """A damaged file. untouched: indices of the entries whose bytes are all there as they were, in one piece."""

    data: bytes
    untouched: frozenset[int]


def harm(rng: random.Random, kind: str, entries: list[bytes]) -> Harmed:
    """Return the file made of ``entries`` after one damage of ``kind``."""
    return KINDS[kind](rng, entries)


def _place(entries: list[bytes], at: int) -> tuple[int, int]:
    """Return the entry that holds byte ``at`` of the file, and the byte in it."""
    for i, entry in enumerate(entries):
        if at < len(entry):
            return i, at
        at -= len(entry)
    raise IndexError


def _between(entries: list[bytes], start: int, end: int) -> range:
    """Return the entries that have bytes from ``start`` to ``end`` of the file."""
    return range(_place(entries, start)[0], _place(entries, end - 1)[0] + 1)


def _all_but(entries: list[bytes], *touched: int) -> frozenset[int]:
    return frozenset(range(len(entries))) - frozenset(touched)


def _overwritten(entries: list[bytes], start: int, new: bytes) -> Harmed:
    data = bytearray(b"".join(entries))
    new = new[: len(data) - start]
    data[start : start + len(new)] = new
    touched = _between(entries, start, start + len(new))
    return Harmed(bytes(data), _all_but(entries, *touched))


def _flip_bits(rng: random.Random, entries: list[bytes], most: int) -> Harmed:
    data = bytearray(b"".join(entries))
    touched = set()
    for _ in range(rng.randint(1, most)):
        at = rng.randrange(len(data))
        data[at] ^= 1 << rng.randrange(8)
        touched.add(_place(entries, at)[0])
    return Harmed(bytes(data), _all_but(entries, *touched))


def _flip_header_bit(rng: random.Random, entries: list[bytes], first: int, last: int) -> Harmed:
    i = rng.randrange(len(entries))
    entry = bytearray(entries[i])
    entry[rng.randint(first, last)] ^= 1 << rng.randrange(8)
    return Harmed(b"".join([*entries[:i], bytes(entry), *entries[i + 1 :]]), _all_but(entries, i))


def _overwrite(rng: random.Random, entries: list[bytes], most: int, zeros: bool) -> Harmed:
    size = sum(map(len, entries))
    n = rng.randint(1, min(most, size))
    return _overwritten(entries, rng.randrange(size - n + 1), bytes(n) if zeros else rng.randbytes(n))


def _insert(rng: random.Random, entries: list[bytes], make: Callable[[int], bytes]) -> Harmed:
    data = b"".join(entries)
    at = rng.randrange(len(data) + 1)
    new = make(rng.randint(1, 200))
    inside = set()
    if at < len(data):
        i, byte = _place(entries, at)
        if byte:
            inside.add(i)
    return Harmed(data[:at] + new + data[at:], _all_but(entries, *inside))


def _delete(rng: random.Random, entries: list[bytes], most: int) -> Harmed:
    data = b"".join(entries)
    n = rng.randint(1, min(most, len(data)))
    at = rng.randrange(len(data) - n + 1)
    touched = _between(entries, at, at + n)
    return Harmed(data[:at] + data[at + n :], _all_but(entries, *touched))


def _cut(rng: random.Random, entries: list[bytes]) -> Harmed:
    data = b"".join(entries)
    at = rng.randrange(len(data))
    return Harmed(data[:at], frozenset(range(_place(entries, at)[0])))


def _set_length(rng: random.Random, entries: list[bytes]) -> Harmed:
    i = rng.randrange(len(entries))
    following = len(entries[i]) - 12 + sum(map(len, entries[i + 1 : i + 1 + rng.randint(0, 3)]))
    length = rng.choice([0, -1, 13, 14, 48, 49, following, 2**31 - 1, -(2**31), rng.randrange(5000), len(b"".join(entries[i:])) - 12])
    entry = entries[i][:8] + struct.pack(">i", length) + entries[i][12:]
    return Harmed(b"".join([*entries[:i], entry, *entries[i + 1 :]]), _all_but(entries, i))


def _set_offset(rng: random.Random, entries: list[bytes]) -> Harmed:
    i = rng.randrange(len(entries))
    (old,) = struct.unpack_from(">q", entries[i])
    offset = rng.choice([0, -1, old + rng.randint(-50, 50), old ^ 1 << rng.randrange(63), 2**63 - 1, rng.randrange(2**31), old + 2**31])
    entry = struct.pack(">q", offset) + entries[i][8:]
    return Harmed(b"".join([*entries[:i], entry, *entries[i + 1 :]]), _all_but(entries, i))


def _swap(rng: random.Random, entries: list[bytes], neighbours: bool) -> Harmed:
    i = rng.randrange(len(entries) - 1)
    j = i + 1 if neighbours else rng.randrange(len(entries))
    order = list(range(len(entries)))
    order[i], order[j] = order[j], order[i]
    return Harmed(b"".join(entries[k] for k in order), _all_but(entries, i, j))


def _repeat(rng: random.Random, entries: list[bytes], adjacent: bool) -> Harmed:
    i = rng.randrange(len(entries))
    at = i + 1 if adjacent else rng.randrange(len(entries) + 1)
    return Harmed(b"".join([*entries[:at], entries[i], *entries[at:]]), _all_but(entries))


def _stale(rng: random.Random, entries: list[bytes]) -> Harmed:
    """Old bytes of an earlier entry lie where a later one should be, as after a lost write."""
    i = rng.randrange(len(entries))
    return _overwritten(entries, sum(map(len, entries[:i])), entries[rng.randrange(len(entries))])


def _zero_tail(rng: random.Random, entries: list[bytes]) -> Harmed:
    return Harmed(b"".join(entries) + bytes(rng.randint(1, 5000)), _all_but(entries))


def _lose_sector(rng: random.Random, entries: list[bytes], zeros: bool) -> Harmed:
    start = rng.randrange(max(1, sum(map(len, entries)) // 512)) * 512
    return _overwritten(entries, start, bytes(512) if zeros else rng.randbytes(512))


KINDS: dict[str, Callable[[random.Random, list[bytes]], Harmed]] = {
    "one bit flipped": lambda rng, entries: _flip_bits(rng, entries, 1),
    "some bits flipped": lambda rng, entries: _flip_bits(rng, entries, 5),
    "bit of an offset flipped": lambda rng, entries: _flip_header_bit(rng, entries, 0, 7),
    "bit of a length flipped": lambda rng, entries: _flip_header_bit(rng, entries, 8, 11),
    "bit of epoch or checksum flipped": lambda rng, entries: _flip_header_bit(rng, entries, 12, 20),
    "bit of a magic flipped": lambda rng, entries: _flip_header_bit(rng, entries, 16, 16),
    "bytes overwritten": lambda rng, entries: _overwrite(rng, entries, 20, False),
    "many bytes overwritten": lambda rng, entries: _overwrite(rng, entries, 2000, False),
    "bytes zeroed": lambda rng, entries: _overwrite(rng, entries, 100, True),
    "many bytes zeroed": lambda rng, entries: _overwrite(rng, entries, 3000, True),
    "sector zeroed": lambda rng, entries: _lose_sector(rng, entries, True),
    "sector overwritten": lambda rng, entries: _lose_sector(rng, entries, False),
    "bytes inserted": lambda rng, entries: _insert(rng, entries, rng.randbytes),
    "zeros inserted": lambda rng, entries: _insert(rng, entries, bytes),
    "bytes deleted": lambda rng, entries: _delete(rng, entries, 20),
    "many bytes deleted": lambda rng, entries: _delete(rng, entries, 1000),
    "cut": _cut,
    "false length": _set_length,
    "false offset": _set_offset,
    "neighbours swapped": lambda rng, entries: _swap(rng, entries, True),
    "two swapped": lambda rng, entries: _swap(rng, entries, False),
    "repeated": lambda rng, entries: _repeat(rng, entries, True),
    "repeated elsewhere": lambda rng, entries: _repeat(rng, entries, False),
    "stale": _stale,
    "zeros at the end": _zero_tail,
}
