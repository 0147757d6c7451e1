"""Statistics of each key in the log of an offsets partition: one row for each key, which the loop over the records updates."""

import numpy as np
import pyarrow as pa

from groupcoord_spark.doctor.gather import record_loop as loop
from groupcoord_spark.doctor.gather.group_table import NONE, GroupTable
from groupcoord_spark.protocol.columnar import KeyColumns
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.protocol.slices import Ints, codes_of

_NO_RECORD = np.zeros(loop.KEY_COLUMNS, np.int64)
_NO_RECORD[loop.GROUP] = NONE
_NO_RECORD[[loop.LAST_OFFSET, loop.FIRST_COMMITTED, loop.LAST_COMMITTED]] = loop.NO_COMMIT
_NO_RECORD[[loop.FIRST_COMMIT_MS, loop.LAST_COMMIT_MS]] = NONE


class KeyTable:
    """Keys by number, starting at 1, in order of first occurrence. Row 0 is for records without a key.

    rows: int64, the columns that ``record_loop`` names.
    """

    def __init__(self) -> None:
        self._number_of: dict[bytes, int] = {}
        self.rows = np.tile(_NO_RECORD, (1, 1))

    def numbers(self, distinct: pa.BinaryArray, columns: KeyColumns, groups: GroupTable) -> Ints:
        """Return the number of each key, and a trailing 0. ``columns`` holds the same keys decoded, ``groups`` the numbers of their
        groups."""
        encoded = columns.group_id.dictionary_encode()
        group = np.append(groups.numbers(encoded.dictionary.to_pylist()), NONE)[codes_of(encoded)]
        keys_before = len(self._number_of)
        numbers = self._numbers(distinct.to_pylist())
        is_new = numbers > keys_before
        self.rows[numbers[is_new], loop.GROUP] = group[is_new]
        is_offset = (columns.key_type >= 0) & (columns.key_type < KeyType.GROUP_METADATA)
        self.rows[numbers[is_new], loop.IS_OFFSET] = is_offset[is_new]
        return np.append(numbers, 0)

    def keys(self) -> list[bytes]:
        """Return the bytes of the keys, starting with key number 1."""
        return [*self._number_of]

    def decided(self) -> Ints:
        """Return the rows of keys with a record outside of transactions or in a committed one."""
        rows = self.rows[1 : len(self._number_of) + 1]
        return np.asarray(rows[rows[:, loop.LAST_OFFSET] != loop.NO_COMMIT])

    def absorb(self, later: "KeyTable", group_numbers: Ints, groups: GroupTable) -> Ints:
        """Add a later part of the log, and return the number here of each of its keys, by the key's number there.

        group_numbers: of the later part's groups here. groups: counts the commits that repeat the offset of the last commit before.
        """
        numbers = self._numbers(later.keys())
        added = later.rows[1 : len(numbers) + 1].copy()
        added[:, loop.GROUP] = np.append(group_numbers, NONE)[added[:, loop.GROUP]]
        present = self.rows[numbers]
        last_ms = present[:, loop.LAST_COMMIT_MS]
        is_soon = (last_ms >= 0) & (added[:, loop.FIRST_COMMIT_MS] - last_ms < loop.FREQUENT_COMMITS_MS)
        is_repeated = is_soon & (added[:, loop.FIRST_COMMITTED] == present[:, loop.LAST_COMMITTED])
        groups.count_repeats(added[is_repeated, loop.GROUP])
        added[:, loop.CLOSED_BYTES] = np.where(added[:, loop.CLOSED_BYTES] > 0, added[:, loop.CLOSED_BYTES], present[:, loop.CLOSED_BYTES])
        has_first, has_last = present[:, loop.FIRST_COMMITTED] != loop.NO_COMMIT, added[:, loop.LAST_COMMITTED] == loop.NO_COMMIT
        for keeps_present, columns in (
            (has_first, slice(loop.FIRST_COMMITTED, loop.LAST_COMMITTED)),
            (has_last, slice(loop.LAST_COMMITTED, loop.KEY_COLUMNS)),
        ):
            added[keeps_present, columns] = present[keeps_present, columns]
        is_last = added[:, loop.LAST_OFFSET] > present[:, loop.LAST_OFFSET]
        added[~is_last, loop.LAST_OFFSET : loop.FIRST_COMMITTED] = present[~is_last, loop.LAST_OFFSET : loop.FIRST_COMMITTED]
        self.rows[numbers] = added
        return np.append(0, numbers)

    def _numbers(self, keys: list[bytes]) -> Ints:
        number_of = self._number_of
        numbers = [number_of.setdefault(key, len(number_of) + 1) for key in keys]
        if len(number_of) >= len(self.rows):
            self.rows = np.concatenate((self.rows, np.tile(_NO_RECORD, (max(len(number_of), len(self.rows)), 1))))
        return np.array(numbers, np.int64)
