"""What the groups have in the log of an offsets partition: facts of each group, sums over all of them, and the table that the loop fills.

The rules need the sums and the few groups that may be findings: their size does not grow with the groups.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from groupcoord_spark.doctor.gather import record_loop as loop
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.protocol.slices import Ints

LIVE, SUPERSEDED, TOMBSTONE, SUPERSEDED_TOMBSTONE = "live", "superseded", "tombstone", "superseded_tombstone"
ABORTED, OPEN = "aborted", "open"
FATES: Final = (LIVE, SUPERSEDED, TOMBSTONE, SUPERSEDED_TOMBSTONE, ABORTED, OPEN)
"""Fates of records."""

MOST_NAMES: Final = 20
"""Names of groups in the evidence of one finding."""
_LARGEST_GROUPS: Final = 10
"""The most groups with a finding: each of them wrote at least a tenth of the partition."""
WIDE_COMMIT: Final = 100

_UUID = r"[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}"
_THROWAWAY = (
    ("console-consumer", re.compile(r"console-consumer-[0-9]+")),
    ("perf-consumer", re.compile(r"perf-consumer-[0-9]+")),
    ("uuid", re.compile(rf"(?:.*[-_.])?{_UUID}", re.DOTALL | re.IGNORECASE)),
    ("spark-kafka", re.compile(rf"spark-kafka-(?:source|relation)-{_UUID}-.*", re.DOTALL)),  # the names that Spark gives its readers
)
THROWAWAY_KINDS: Final = tuple(kind for kind, _ in _THROWAWAY)


@dataclass(slots=True)
class GroupInLog:
    """Statistics of one group in the log. Bytes are uncompressed record bytes, except ``batch_bytes``, the bytes of its batches in the
    files.

    A record is open (its transaction has no marker), aborted, live (the last value of its key), a tombstone (the last record of its key),
    superseded or a superseded tombstone. Each fate has [records, bytes], for offsets and for all other records of the group.

    Attributes:
        commits: values of offset commits. repeated_commits: commits of an offset already committed for the same partition less than
            ``record_loop.FREQUENT_COMMITS_MS`` before.
        batches, most_records_in_batch: of the batches whose first record is the group's; records of other groups in them do not count.
        first_timestamp_ms, last_timestamp_ms: of its records.
        keys: distinct partitions with an offset, live or not.
        large_commit_bytes: bytes of the commits whose value has more than ``record_loop.LARGE_VALUE`` bytes: their metadata is long.
        metadata_bytes: the longest metadata of such a commit; 0 without one.
    """

    group_id: str
    offset_fates: dict[str, list[int]] = field(default_factory=dict)
    group_fates: dict[str, list[int]] = field(default_factory=dict)
    batch_bytes: int = 0
    batches: int = 0
    commits: int = 0
    repeated_commits: int = 0
    transactional_records: int = 0
    large_commit_bytes: int = 0
    most_records_in_batch: int = 0
    first_timestamp_ms: int = NO_TIMESTAMP
    last_timestamp_ms: int = NO_TIMESTAMP
    keys: int = 0
    metadata_bytes: int = 0

    def fates(self) -> dict[str, list[int]]:
        """[records, bytes] by fate, of offsets and other records together."""
        totals: dict[str, list[int]] = {}
        for fates in (self.offset_fates, self.group_fates):
            _add_fates(totals, fates)
        return totals

    @property
    def record_bytes(self) -> int:
        """Bytes of all its records."""
        return sum(size for _, size in self.fates().values())

    @property
    def records(self) -> int:
        """Number of all its records."""
        return sum(records for records, _ in self.fates().values())


@dataclass(frozen=True, slots=True)
class ThrowawayGroups:
    """Groups with a new name for each client start. ``deleted`` counts those without a live record; ``names`` holds the first ones."""

    groups: int
    deleted: int
    record_bytes: int
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HabitOfGroups:
    """The groups with a habit that fills the log. size: bytes that they wrote so. largest: the group that wrote most of them."""

    groups: int
    size: int
    largest: tuple[GroupInLog, ...]


def _wide_bytes(group: GroupInLog) -> int:
    # many members that commit a partition each make large batches too, where the coordinator waits for further commits
    is_wide = min(group.keys, group.most_records_in_batch) >= WIDE_COMMIT and 2 * group.records >= WIDE_COMMIT * group.batches
    return group.batch_bytes if is_wide and group.commits else 0


BYTES_OF_HABIT: Final[Mapping[str, Callable[[GroupInLog], int]]] = {
    "repeats": lambda group: group.batch_bytes if group.repeated_commits and 2 * group.repeated_commits >= group.commits else 0,
    "metadata": lambda group: group.large_commit_bytes if group.metadata_bytes else 0,
    "wide": _wide_bytes,
}
"""Habit -> the bytes that a group wrote so; 0 where it has another habit. Those of metadata are bytes of records, others of batches."""


@dataclass(frozen=True, slots=True)
class GroupSums:
    """Sums over all groups of a partition.

    Attributes:
        groups: how many. fates: [records, bytes] by fate.
        habits: by a key of BYTES_OF_HABIT, without habits that no group has.
        most_transactional: the group with the most records of transactions, if any.
        with_tombstones: how many groups have tombstones. tombstone_prefix: what the names of all these begin with.
        offset_tombstones, group_tombstones: tombstones, also superseded ones, of offsets and of all other records.
        throwaway: by a kind of THROWAWAY_KINDS, without kinds that have no group.
    """

    groups: int = 0
    fates: dict[str, list[int]] = field(default_factory=dict)
    habits: dict[str, HabitOfGroups] = field(default_factory=dict)
    most_transactional: str | None = None
    with_tombstones: int = 0
    tombstone_prefix: str = ""
    offset_tombstones: int = 0
    group_tombstones: int = 0
    throwaway: dict[str, ThrowawayGroups] = field(default_factory=dict)


def sums_of_groups(groups: Sequence[GroupInLog]) -> GroupSums:
    """Return the sums over the groups of one offsets partition."""
    fates: dict[str, list[int]] = {}
    for group in groups:
        _add_fates(fates, group.fates())
    with_tombstones = [group for group in groups if _tombstones(group.offset_fates) or _tombstones(group.group_fates)]
    writer = max(groups, key=lambda group: group.transactional_records, default=None)
    return GroupSums(
        len(groups),
        {fate: fates[fate] for fate in FATES if fate in fates},
        _habits_of(groups),
        writer.group_id if writer is not None and writer.transactional_records else None,
        len(with_tombstones),
        _common_prefix([group.group_id for group in with_tombstones]),
        sum(_tombstones(group.offset_fates) for group in with_tombstones),
        sum(_tombstones(group.group_fates) for group in with_tombstones),
        _throwaway_of(groups),
    )


def _add_fates(totals: dict[str, list[int]], fates: dict[str, list[int]]) -> None:
    for fate, (records, size) in fates.items():
        total = totals.setdefault(fate, [0, 0])
        total[0] += records
        total[1] += size


def _habits_of(groups: Sequence[GroupInLog]) -> dict[str, HabitOfGroups]:
    habits = {}
    for habit, bytes_of in BYTES_OF_HABIT.items():
        with_habit = sorted((group for group in groups if bytes_of(group)), key=bytes_of, reverse=True)
        if with_habit:
            habits[habit] = HabitOfGroups(len(with_habit), sum(map(bytes_of, with_habit)), tuple(with_habit[:_LARGEST_GROUPS]))
    return habits


def _throwaway_of(groups: Sequence[GroupInLog]) -> dict[str, ThrowawayGroups]:
    kinds = {}
    for kind, pattern in _THROWAWAY:
        of_kind = [group for group in groups if pattern.fullmatch(group.group_id)]
        if of_kind:
            deleted = sum(LIVE not in group.fates() for group in of_kind)
            names = tuple(group.group_id for group in of_kind[:MOST_NAMES])
            kinds[kind] = ThrowawayGroups(len(of_kind), deleted, sum(group.record_bytes for group in of_kind), names)
    return kinds


def _tombstones(fates: dict[str, list[int]]) -> int:
    return sum(fates.get(fate, [0, 0])[0] for fate in (TOMBSTONE, SUPERSEDED_TOMBSTONE))


def _common_prefix(names: Sequence[str]) -> str:
    """Return the common prefix of all names, or "" without names."""
    lowest, highest = min(names, default=""), max(names, default="")
    return lowest[: next((place for place, letter in enumerate(lowest) if highest[place : place + 1] != letter), len(lowest))]


NONE: Final = -1

_NO_GROUP = np.zeros(loop.GROUP_COLUMNS, np.int64)
_NO_GROUP[[loop.FIRST_MS, loop.LAST_MS]] = 2**63 - 1, -1


class GroupTable:
    """Groups by number, in order of first occurrence.

    rows: int64, the columns that ``record_loop`` names. metadata_bytes: group number -> of the longest metadata among its long values.
    """

    def __init__(self) -> None:
        self._number_of: dict[str, int] = {}
        self.rows = np.zeros((0, loop.GROUP_COLUMNS), np.int64)
        self.metadata_bytes: dict[int, int] = {}

    def numbers(self, group_ids: list[str | None]) -> Ints:
        """Return the number of each group, or -1 for None."""
        numbers = [NONE if group_id is None else self._number_of.setdefault(group_id, len(self._number_of)) for group_id in group_ids]
        if len(self._number_of) > len(self.rows):
            new = max(len(self._number_of) - len(self.rows), len(self.rows))
            self.rows = np.concatenate((self.rows, np.tile(_NO_GROUP, (new, 1))))
        return np.array(numbers, np.int64)

    def count_repeats(self, group_numbers: Ints) -> None:
        """Count a repeated commit for each of these group numbers, ignoring -1."""
        self.rows[:, loop.REPEATED] += np.bincount(group_numbers[group_numbers >= 0], minlength=len(self.rows))

    def note_metadata(self, group: int, metadata_bytes: int) -> None:
        """Note the bytes of the metadata of one commit."""
        self.metadata_bytes[group] = max(self.metadata_bytes.get(group, 0), metadata_bytes)

    def absorb(self, later: "GroupTable") -> Ints:
        """Add a later part of the log, and return the number here of each of its groups, by the group's number there."""
        numbers = self.numbers([*later._number_of])
        added, present = later.rows[: len(numbers)], self.rows[numbers]
        self.rows[numbers] = present + added
        self.rows[numbers, loop.MOST_RECORDS :] = np.maximum(present, added)[:, loop.MOST_RECORDS :]
        self.rows[numbers, loop.FIRST_MS] = np.minimum(present, added)[:, loop.FIRST_MS]
        for number, metadata_bytes in later.metadata_bytes.items():
            self.note_metadata(int(numbers[number]), metadata_bytes)
        return numbers

    def sums(self, keys: Ints, file_share: float) -> GroupSums:
        """Return the sums over all groups. Groups that no rule names are added up first, because there may be a million.

        keys, file_share: as in ``facts``.
        """
        columns = [loop.REPEATED, loop.TRANSACTIONAL, 2 * loop.TOMBSTONE, loop.OTHER_RECORDS + 2 * loop.TOMBSTONE]
        is_alone = (self.rows[:, columns] > 0).any(axis=1) | (self.rows[:, loop.MOST_RECORDS] >= WIDE_COMMIT)
        is_alone[[*self.metadata_bytes]] = True
        for _, pattern in _THROWAWAY:
            is_alone[[number for name, number in self._number_of.items() if pattern.fullmatch(name)]] = True
        alone = {name: number for name, number in self._number_of.items() if is_alone[number]}
        last, others = _last_records(keys, len(self.rows))[~is_alone].sum(axis=0), self.rows[~is_alone].sum(axis=0)
        together = GroupInLog("", *_fates(others, last))
        return replace(sums_of_groups([*self.facts(keys, file_share, alone).values(), together]), groups=len(self._number_of))

    def facts(self, keys: Ints, file_share: float, chosen: Mapping[str, int] | None = None) -> dict[str, GroupInLog]:
        """Return the statistics of each group.

        Args:
            keys: the rows of keys with a decided record.
            file_share: file bytes per record byte.
            chosen: group id -> number, of the groups to return; None: all.
        """
        last = _last_records(keys, len(self.rows))
        offset_keys = np.bincount(keys[keys[:, loop.IS_OFFSET] > 0, loop.GROUP], minlength=len(self.rows))
        facts = {}
        for name, number in (self._number_of if chosen is None else chosen).items():
            row = self.rows[number].tolist()
            facts[name] = GroupInLog(
                name,
                *_fates(self.rows[number], last[number]),
                row[loop.BATCH_BYTES] + round(file_share * row[loop.SHARED_BYTES]),
                row[loop.BATCHES],
                row[loop.COMMITS],
                row[loop.REPEATED],
                row[loop.TRANSACTIONAL],
                row[loop.LARGE_BYTES],
                row[loop.MOST_RECORDS],
                row[loop.FIRST_MS],
                row[loop.LAST_MS],
                int(offset_keys[number]),
                self.metadata_bytes.get(number, 0),
            )
        return facts


def _last_records(keys: Ints, groups: int) -> Ints:
    """int64[groups, 2, 2, 2]: of offsets and of other keys, [records, bytes] of the last values, and of the last tombstones."""
    keys = keys[keys[:, loop.GROUP] >= 0]
    cell = (keys[:, loop.GROUP] * 2 + 1 - keys[:, loop.IS_OFFSET]) * 2 + keys[:, loop.LAST_IS_TOMBSTONE]
    last = np.stack((np.bincount(cell, minlength=4 * groups), np.bincount(cell, keys[:, loop.LAST_BYTES], 4 * groups)), axis=1)
    return last.astype(np.int64).reshape(-1, 2, 2, 2)


def _fates(row: Ints, last: Ints) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """[records, bytes] by fate, of offsets and of other keys. row: of the table. last: an element of ``_last_records``."""
    counts = row.tolist()
    of_offsets, of_others = last.tolist()
    return _fates_of(counts[: loop.OTHER_RECORDS], of_offsets), _fates_of(counts[loop.OTHER_RECORDS : 2 * loop.OTHER_RECORDS], of_others)


def _fates_of(counts: list[int], last: list[list[int]]) -> dict[str, list[int]]:
    pairs = {
        LIVE: last[0],
        SUPERSEDED: _minus(counts[2 * loop.DECIDED :], last[0]),
        TOMBSTONE: last[1],
        SUPERSEDED_TOMBSTONE: _minus(counts[2 * loop.TOMBSTONE :], last[1]),
        ABORTED: counts[2 * loop.ABORTED : 2 * loop.ABORTED + 2],
        OPEN: counts[2 * loop.OPEN : 2 * loop.OPEN + 2],
    }
    return {fate: pair for fate, pair in pairs.items() if pair[0]}


def _minus(counts: list[int], last: list[int]) -> list[int]:
    return [counts[0] - last[0], counts[1] - last[1]]
