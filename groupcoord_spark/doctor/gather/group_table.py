"""What each group has in the log of an offsets partition: a row for each group, to which the loop over the records adds."""

from __future__ import annotations

from typing import Final

import numpy as np

from groupcoord_spark.doctor import groups
from groupcoord_spark.doctor.facts import Ints
from groupcoord_spark.doctor.gather import record_loop as loop

NONE: Final = -1

_NO_GROUP = np.zeros(loop.GROUP_COLUMNS, np.int64)
_NO_GROUP[[loop.FIRST_MS, loop.LAST_MS]] = 2**63 - 1, -1


class GroupTable:
    """Groups by number, in the order in which they are first seen.

    rows: int64, the columns that ``record_loop`` names. metadata_bytes: group number -> of the longest metadata among its long values.
    """

    def __init__(self) -> None:
        self._number_of: dict[str, int] = {}
        self.rows = np.zeros((0, loop.GROUP_COLUMNS), np.int64)
        self.metadata_bytes: dict[int, int] = {}

    def numbers(self, group_ids: list[str | None]) -> Ints:
        """The number of each group; -1 for None."""
        numbers = [NONE if group_id is None else self._number_of.setdefault(group_id, len(self._number_of)) for group_id in group_ids]
        if len(self._number_of) > len(self.rows):
            new = max(len(self._number_of) - len(self.rows), len(self.rows))
            self.rows = np.concatenate((self.rows, np.tile(_NO_GROUP, (new, 1))))
        return np.array(numbers, np.int64)

    def count_repeats(self, group_numbers: Ints) -> None:
        """Count a repeated commit for each of these numbers of groups; -1 is none."""
        self.rows[:, loop.REPEATED] += np.bincount(group_numbers[group_numbers >= 0], minlength=len(self.rows))

    def note_metadata(self, group: int, metadata_bytes: int) -> None:
        """Note the bytes of the metadata of one commit."""
        self.metadata_bytes[group] = max(self.metadata_bytes.get(group, 0), metadata_bytes)

    def absorb(self, other: GroupTable) -> Ints:
        """Add the facts of other groups, and return the numbers that these groups have here, by their number there."""
        numbers = self.numbers([*other._number_of])
        theirs, ours = other.rows[: len(numbers)], self.rows[numbers]
        self.rows[numbers] = ours + theirs
        self.rows[numbers, loop.MOST_RECORDS :] = np.maximum(ours, theirs)[:, loop.MOST_RECORDS :]
        self.rows[numbers, loop.FIRST_MS] = np.minimum(ours, theirs)[:, loop.FIRST_MS]
        for number, metadata_bytes in other.metadata_bytes.items():
            self.note_metadata(int(numbers[number]), metadata_bytes)
        return numbers

    def facts(self, keys: Ints, file_share: float) -> dict[str, groups.GroupInLog]:
        """The facts of each group. keys: the rows of all keys with a decided record. file_share: bytes in files of a byte of records."""
        last = np.zeros((len(self.rows), 2, 2, 2), np.int64)
        keys = keys[keys[:, loop.GROUP] >= 0]
        cell = (keys[:, loop.GROUP] * 2 + 1 - keys[:, loop.IS_OFFSET]) * 2 + keys[:, loop.LAST_IS_TOMBSTONE]
        flat = last.reshape(-1, 2)
        flat[:, 0] = np.bincount(cell, minlength=len(flat))
        flat[:, 1] = np.bincount(cell, keys[:, loop.LAST_BYTES], len(flat))
        offset_keys = np.bincount(keys[keys[:, loop.IS_OFFSET] > 0, loop.GROUP], minlength=len(self.rows))
        facts = {}
        for name, number in self._number_of.items():
            row = self.rows[number].tolist()
            facts[name] = groups.GroupInLog(
                name,
                _fates(row[: loop.OTHER_RECORDS], last[number, 0].tolist()),
                _fates(row[loop.OTHER_RECORDS : 2 * loop.OTHER_RECORDS], last[number, 1].tolist()),
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


def _fates(counts: list[int], last: list[list[int]]) -> dict[str, list[int]]:
    """[records, bytes] by fate. counts: of a row of the table. last: [records, bytes] of the last values, and of the last tombstones."""
    pairs = {
        groups.LIVE: last[0],
        groups.SUPERSEDED: _minus(counts[2 * loop.DECIDED :], last[0]),
        groups.TOMBSTONE: last[1],
        groups.SUPERSEDED_TOMBSTONE: _minus(counts[2 * loop.TOMBSTONE :], last[1]),
        groups.ABORTED: counts[2 * loop.ABORTED : 2 * loop.ABORTED + 2],
        groups.OPEN: counts[2 * loop.OPEN : 2 * loop.OPEN + 2],
    }
    return {fate: pair for fate, pair in pairs.items() if pair[0]}


def _minus(counts: list[int], last: list[int]) -> list[int]:
    return [counts[0] - last[0], counts[1] - last[1]]
