"""Puts the entries of one file in the order of their offsets. No checksum covers offsets: one flipped bit moves good records elsewhere."""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from groupcoord_spark.log.damage import Damage
from groupcoord_spark.log.decode.batches import MAX_OFFSETS_IN_FILE, Entries, as_int64
from groupcoord_spark.protocol.slices import Mask, Positions


@dataclass(frozen=True, slots=True)
class Borders:
    """Where the offsets of a file begin and end.

    Attributes:
        file_base: the base offset in the name of the file.
        next_base: the base offset in the name of the next file; None for the last file.
        end_position: the number of bytes of the file.
    """

    file_base: int
    next_base: int | None
    end_position: int


@dataclass(slots=True)
class Order:
    """The entries of a file that are used, and those that are not.

    Attributes:
        kept: indices of the used entries, in the order of their offsets.
        invalid: indices of the entries whose place is not known. Duplicates are in neither.
        damages: a doubt about every entry that lies elsewhere than its offsets say.
    """

    kept: Positions
    invalid: Positions
    damages: list[Damage] = field(default_factory=list)


def is_in_order(entries: Entries, borders: Borders) -> bool:
    """True where every entry begins after the end of the entry before it, and all lie within the borders."""
    if len(entries) == 0:
        return True
    last = int(entries.last_offset[-1])
    return bool(
        int(entries.first_offset[0]) >= borders.file_base
        and last <= borders.file_base + MAX_OFFSETS_IN_FILE
        and (borders.next_base is None or last < borders.next_base)
        and (entries.first_offset[1:] > entries.last_offset[:-1]).all()
        # a chain that rises from first to last can only fall inside of an entry
        and (entries.last_offset >= entries.first_offset).all()
    )


def put_in_order(
    entries: Entries, borders: Borders, is_in_later_file: Callable[[Positions], Mask], same_bytes: Callable[[int, int], bool]
) -> Order:
    """Return the order of a file's entries. An entry with a wrong base offset is corrected in ``entries`` if only one place is possible.

    Args:
        is_in_later_file: of entries that end beyond the next file's base, the entries that belong in that file: a copy made during a
            cleaning has both the cleaner's merged file and the files that it replaces.
        same_bytes: True where two entries are equal byte for byte.
    """
    if is_in_order(entries, borders):
        return Order(np.arange(len(entries)), np.zeros(0, np.int64))
    file_base, next_base = _true_base(entries, borders.file_base), borders.next_base
    damages = [] if file_base == borders.file_base else [_renamed(borders.file_base, file_base)]
    overflows = _overflows(entries, file_base)
    damages += _overflow_damages(entries, overflows, file_base)
    takes_part = (entries.first_offset >= file_base) & (entries.last_offset >= entries.first_offset)
    takes_part &= (entries.last_offset <= file_base + MAX_OFFSETS_IN_FILE) | overflows
    allowed_end = next_base
    if next_base is not None:
        beyond = np.flatnonzero(takes_part & (entries.last_offset >= next_base))
        if len(beyond):
            confirmed = is_in_later_file(beyond)
            takes_part[beyond[~confirmed]] = False
            if confirmed.any():
                allowed_end = int(entries.last_offset[beyond[confirmed]].max()) + 1
    candidates = np.flatnonzero(takes_part)
    chain = candidates[_longest_chain(entries.first_offset[candidates], entries.last_offset[candidates], file_base, next_base)]
    kept = np.zeros(len(entries), np.bool_)
    kept[chain] = True
    taken = _TakenOffsets(entries, file_base, next_base, allowed_end, borders.end_position, kept)
    invalid: list[int] = []
    for i in np.flatnonzero(~kept).tolist():
        position, size = int(entries.position[i]), int(entries.size[i])
        first, last = int(entries.first_offset[i]), int(entries.last_offset[i])
        if any(same_bytes(i, twin) for twin in taken.twins_of(i)):
            detail = f"The entry with offsets {first} to {last} is in the file a second time, byte for byte; it is read once."
            damages.append(Damage("batch_duplicate", position, size, first, detail))
        elif (moved := taken.only_possible_offset(i)) is not None:
            end = moved + as_int64(last - first)
            entries.moved_by[i] = as_int64(int(entries.moved_by[i]) + moved - first)
            entries.first_offset[i], entries.last_offset[i] = moved, end
            taken.keep(i)
            detail = f"The entry claims offsets {first} to {last}; it lies where exactly {moved} to {end} are free, and is read there."
            damages.append(Damage("base_offset_repaired", position, size, moved, detail))
        elif taken.fits_its_offsets(i):
            taken.keep(i)
            detail = f"The entry with offsets {first} to {last} lies out of turn in the file; it is read in the order of its offsets."
            damages.append(Damage("batch_offset_disorder", position, size, first, detail))
        else:
            invalid.append(i)
    order = np.flatnonzero(kept)
    return Order(order[np.argsort(entries.first_offset[order], kind="stable")], np.array(invalid, np.int64), damages)


def _true_base(entries: Entries, file_base: int) -> int:
    """Return the base offset of the file: the number in its name, unless the file was renamed."""
    first = entries.first_offset
    if ((first >= file_base) & (first <= file_base + MAX_OFFSETS_IN_FILE)).any() or not (first >= 0).any():
        return file_base
    return int(first[first >= 0][0])


def _renamed(named_base: int, file_base: int) -> Damage:
    detail = f"The name of the file says that it begins at offset {named_base}; no entry in it lies there, the first begins at {file_base}."
    return Damage("segment_name_mismatch", 0, 0, file_base, detail)


def _overflows(entries: Entries, file_base: int) -> Mask:
    """True for entries that an old broker wrote too far above the base of the file (KAFKA-5413). A single one counts as damage instead."""
    above = entries.last_offset > file_base + MAX_OFFSETS_IN_FILE
    in_a_row = above.copy()
    in_a_row[1:] &= above[:-1]
    in_a_row[:-1] |= above[:-1] & above[1:]
    return in_a_row


def _overflow_damages(entries: Entries, in_a_row: Mask, file_base: int) -> Iterator[Damage]:
    """Yield a doubt about the first of several entries that overflow."""
    starts = np.flatnonzero(in_a_row & ~np.concatenate([[False], in_a_row[:-1]]))
    for i in starts.tolist():
        first = int(entries.first_offset[i])
        detail = f"Several entries from offset {first} on lie more than {MAX_OFFSETS_IN_FILE} above the base of their file, {file_base}."
        yield Damage("segment_offset_overflow", int(entries.position[i]), int(entries.size[i]), first, detail)


@dataclass(slots=True)
class _TakenOffsets:
    """The offsets that entries have so far, while the entries outside of the longest chain are given theirs."""

    entries: Entries
    file_base: int
    next_base: int | None
    allowed_end: int | None
    end_position: int
    kept: Mask
    _firsts: list[int] = field(default_factory=list)
    _last_of: dict[int, int] = field(default_factory=dict)
    _at: dict[tuple[int, int], list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i in np.flatnonzero(self.kept).tolist():
            first = int(self.entries.first_offset[i])
            self._firsts.append(first)
            self._last_of[first] = int(self.entries.last_offset[i])
            self._at.setdefault((first, int(self.entries.size[i])), []).append(i)
        self._firsts.sort()

    def keep(self, i: int) -> None:
        first = int(self.entries.first_offset[i])
        self.kept[i] = True
        insort(self._firsts, first)
        self._last_of[first] = int(self.entries.last_offset[i])

    def twins_of(self, i: int) -> list[int]:
        """Entries of the chain with the same first offset and size as entry ``i``."""
        return self._at.get((int(self.entries.first_offset[i]), int(self.entries.size[i])), [])

    def only_possible_offset(self, i: int) -> int | None:
        """Return the first offset of the gap between entry ``i`` and its neighbours if the entry fills it exactly, else None."""
        entries = self.entries
        start, end = int(entries.position[i]), int(entries.position[i] + entries.size[i])
        gap_start = gap_end = None
        touches_kept = False
        if start == 0:
            gap_start = self.file_base
        elif i > 0 and self.kept[i - 1] and entries.position[i - 1] + entries.size[i - 1] == start:
            gap_start, touches_kept = int(entries.last_offset[i - 1]) + 1, True
        if end == self.end_position:
            gap_end = self.next_base
        elif i + 1 < len(entries) and self.kept[i + 1] and entries.position[i + 1] == end:
            gap_end, touches_kept = int(entries.first_offset[i + 1]), True
        if gap_start is None or gap_end is None or not touches_kept:
            return None
        covered = as_int64(int(entries.last_offset[i]) - int(entries.first_offset[i])) + 1
        return gap_start if gap_end - gap_start == covered and self._is_free(gap_start, gap_end - 1) else None

    def fits_its_offsets(self, i: int) -> bool:
        """True where the offsets of entry ``i`` are free and those right before or after them are not."""
        first, last = int(self.entries.first_offset[i]), int(self.entries.last_offset[i])
        if first < self.file_base or last > self.file_base + MAX_OFFSETS_IN_FILE or last < first:
            return False
        if self.allowed_end is not None and last >= self.allowed_end:
            return False
        at = bisect_left(self._firsts, first)
        touches = last + 1 in self._last_of or (at > 0 and self._last_of[self._firsts[at - 1]] + 1 == first)
        return touches and self._is_free(first, last)

    def _is_free(self, first: int, last: int) -> bool:
        at = bisect_left(self._firsts, first)
        if at < len(self._firsts) and self._firsts[at] <= last:
            return False
        return at == 0 or self._last_of[self._firsts[at - 1]] < first


def _longest_chain(first: Positions, last: Positions, file_base: int, next_base: int | None) -> Positions:
    """Indices of the longest chain of entries that are in order as they lie; on a tie the one with more contacts, then the lower end.

    A contact is an entry that begins where the one before it in the chain has ended, or at the base of the file, or ends at the base of
    the next. Everything before the first and after the last entry out of turn is in every longest chain.
    """
    n = len(first)
    if n == 0:
        return np.zeros(0, np.int64)
    reached = np.maximum.accumulate(last)
    to_come = np.minimum.accumulate(first[::-1])[::-1]
    is_cut = np.ones(n + 1, np.bool_)
    is_cut[1:-1] = reached[:-1] < to_come[1:]
    alone = is_cut[:-1] & is_cut[1:]
    if alone.all():
        return np.arange(n)
    disturbed = np.flatnonzero(~alone)
    begin, end = int(disturbed[0]), int(disturbed[-1]) + 1
    touches_before = int(last[begin - 1]) + 1 if begin else file_base
    touches_after = int(first[end]) if end < n else next_base
    inner = _best_chain(first[begin:end].tolist(), last[begin:end].tolist(), touches_before, touches_after)
    return np.concatenate([np.arange(begin), np.array(inner, np.int64) + begin, np.arange(end, n)])


def _best_chain(first: list[int], last: list[int], touches_before: int, touches_after: int | None) -> list[int]:
    # A chain is (entries, contacts, -end, index of its last entry), and the better one is the greater tuple.
    none = (0, 0, 0, -1)
    # The best chain for each end, without chains that a better one with a lower end makes useless: ends and chains rise together.
    ends: list[int] = []
    best: list[tuple[int, int, int, int]] = []
    ending_at: dict[int, tuple[int, int, int, int]] = {}
    previous: list[int] = []
    final = none
    for i, (begins, ends_at) in enumerate(zip(first, last, strict=True)):
        at = bisect_left(ends, begins)
        predecessor = best[at - 1] if at else none
        contact = 1 if predecessor[3] < 0 and begins == touches_before else 0
        touching = ending_at.get(begins - 1)
        if touching is not None and (touching[0], touching[1] + 1) > (predecessor[0], predecessor[1] + contact):
            predecessor, contact = touching, 1
        length, contacts = predecessor[0] + 1, predecessor[1] + contact
        previous.append(predecessor[3])
        chain = (length, contacts, -ends_at, i)
        at = bisect_left(ends, ends_at)
        if not at or best[at - 1] < chain:
            beyond = at
            while beyond < len(best) and best[beyond] < chain:
                beyond += 1
            ends[at:beyond], best[at:beyond] = [ends_at], [chain]
        ending_at[ends_at] = max(ending_at.get(ends_at, chain), chain)
        final = max(final, (length, contacts + (ends_at + 1 == touches_after), -ends_at, i))
    kept = []
    i = final[3]
    while i >= 0:
        kept.append(i)
        i = previous[i]
    return kept[::-1]
