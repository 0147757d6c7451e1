"""The one loop over the records of a chunk for the facts of groups and keys: Python, or compiled by numba where the other loops are.

The file imports nothing of this package: numba compiles a loop again only when the file of the loop changes.
"""

import numpy as np

NO_COMMIT = -(2**63)
"""In columns of committed offsets: no commit. Clients do not commit this offset. In LAST_OFFSET: no record."""

LARGE_VALUE = 512
"""Values of offset commits above this many bytes are large: their metadata is long, and the longest of a group is decoded."""

DECIDED, TOMBSTONE, ABORTED, OPEN, WAITING, CONTROL = range(6)
"""What became of a record: DECIDED is in no transaction or committed (in the table of groups TOMBSTONE, where it has no value), OPEN will
have no marker any more, WAITING may still have one. A group has [records, bytes] of the first four for its offsets, and the same for its
other records: columns 0 to 15 of its row."""

FREQUENT_COMMITS_MS = 1_000
"""Clients commit every 5 seconds by default, also where nothing moves: only much faster repetition is an error of the client."""

OTHER_RECORDS = 8
BATCH_BYTES, SHARED_BYTES, BATCHES, COMMITS, REPEATED, TRANSACTIONAL, LARGE_BYTES = range(16, 23)
MOST_RECORDS, FIRST_MS, LAST_MS, LONGEST_VALUE = range(23, 27)
GROUP_COLUMNS = 27
"""BATCH_BYTES: of batches that start with a record of the group. SHARED_BYTES: of its records in other groups' batches, less other
groups' records in its own; a coordinator puts concurrent commits into one batch. REPEATED: commits of an offset committed less than
FREQUENT_COMMITS_MS earlier."""

GROUP, IS_OFFSET, CLOSED_BYTES, LAST_OFFSET, LAST_BYTES, LAST_IS_TOMBSTONE = range(6)
FIRST_COMMITTED, FIRST_COMMIT_MS, LAST_COMMITTED, LAST_COMMIT_MS = range(6, 10)
KEY_COLUMNS = 10
"""The key's row in the table of groups, -1 where the key does not decode; whether it is the key of an offset; of its last record that was
decided before the active segment begins; of its last decided record; of its first and last commit."""

RECORD_BYTES, ENDED_BYTES = range(2)
TOTALS = 2
"""Bytes of the records, and of those whose transaction was decided before the active segment begins, or that are in none."""

COMMITTED_AT, COMMITTED_END = 2, 10
"""In every version of a commit's value the committed offset stands in these bytes."""


def add_records(
    data, value_start, value_end, is_tombstone, code, fate, record_offset, size, timestamp_ms, is_new, is_transactional, batch,
    first_offset, last_offset, batch_bytes, key_of_code, is_active, missing, groups, keys, longest, totals,
):  # fmt: skip
    """Adds records in the order of their offsets to the tables of groups and keys.

    Args:
        code: the place of each record's key in ``key_of_code``, which has its row in ``keys``; -1, the last place, for none.
        is_new: the records are seen for the first time. Else they waited for a marker: only what depends on their fate is added, and
            ``is_transactional`` to ``batch_bytes`` are empty.
        batch: the row of each record's batch in ``first_offset``, ``last_offset``, ``batch_bytes`` and ``missing``.
        is_active: the records are decided in the active segment.
        missing: filled with the runs of missing offsets in each batch; -1 on entry and for a batch without records.
        longest: filled with the record of each group with the longest value of a commit, where it is longer than all earlier ones.
    """
    earlier, group_of_batch, records_of_batch = np.int64(-1), np.int64(-1), 0
    for row in range(len(code)):
        key, kind, record_bytes = key_of_code[code[row]], fate[row], size[row]
        group, is_offset = keys[key, GROUP], keys[key, IS_OFFSET] != 0
        if is_new:
            offset, of_batch = record_offset[row], batch[row]
            if of_batch != earlier:
                if earlier >= 0 and record_offset[row - 1] < last_offset[earlier]:
                    missing[earlier] += 1
                if group_of_batch >= 0:
                    groups[group_of_batch, MOST_RECORDS] = max(groups[group_of_batch, MOST_RECORDS], records_of_batch)
                missing[of_batch] = max(missing[of_batch], 0) + (offset > first_offset[of_batch])
                earlier, group_of_batch, records_of_batch = of_batch, group if kind != CONTROL else np.int64(-1), 0
                if group_of_batch >= 0:
                    groups[group, BATCH_BYTES] += batch_bytes[of_batch]
                    groups[group, BATCHES] += 1
            elif offset - 1 > record_offset[row - 1]:
                missing[of_batch] += 1
            if group == group_of_batch:
                records_of_batch += 1
            elif group >= 0 and group_of_batch >= 0:
                groups[group, SHARED_BYTES] += record_bytes
                groups[group_of_batch, SHARED_BYTES] -= record_bytes
        if kind == CONTROL:
            continue
        length = value_end[row] - value_start[row]
        is_commit = is_offset and not is_tombstone[row]
        if is_new:
            totals[RECORD_BYTES] += record_bytes
            if group >= 0:
                groups[group, FIRST_MS] = min(groups[group, FIRST_MS], timestamp_ms[row])
                groups[group, LAST_MS] = max(groups[group, LAST_MS], timestamp_ms[row])
                groups[group, TRANSACTIONAL] += is_transactional[row]
                groups[group, COMMITS] += is_commit
                if is_commit and length > LARGE_VALUE:
                    groups[group, LARGE_BYTES] += record_bytes
                    if length > groups[group, LONGEST_VALUE]:
                        groups[group, LONGEST_VALUE], longest[group] = length, row
        if group >= 0 and kind <= OPEN:
            column = 2 * kind
            if kind == DECIDED and is_tombstone[row]:
                column = 2 * TOMBSTONE
            if not is_offset:
                column += OTHER_RECORDS
            groups[group, column] += 1
            groups[group, column + 1] += record_bytes
        if not is_active and kind in (DECIDED, ABORTED):
            totals[ENDED_BYTES] += record_bytes
        if kind != DECIDED:
            continue
        if record_offset[row] > keys[key, LAST_OFFSET]:
            keys[key, LAST_OFFSET], keys[key, LAST_BYTES], keys[key, LAST_IS_TOMBSTONE] = (
                record_offset[row],
                record_bytes,
                is_tombstone[row],
            )
            if not is_active:
                keys[key, CLOSED_BYTES] = record_bytes
        if is_commit and length >= COMMITTED_END:
            committed = np.int64(0)
            for place in range(value_start[row] + COMMITTED_AT, value_start[row] + COMMITTED_END):
                committed = committed << 8 | np.int64(data[place])
            time = timestamp_ms[row]
            if committed == keys[key, LAST_COMMITTED] and group >= 0 and 0 <= keys[key, LAST_COMMIT_MS] > time - FREQUENT_COMMITS_MS:
                groups[group, REPEATED] += 1
            if keys[key, FIRST_COMMITTED] == NO_COMMIT:
                keys[key, FIRST_COMMITTED], keys[key, FIRST_COMMIT_MS] = committed, time
            keys[key, LAST_COMMITTED], keys[key, LAST_COMMIT_MS] = committed, time
    if earlier >= 0 and record_offset[len(code) - 1] < last_offset[earlier]:
        missing[earlier] += 1
    if group_of_batch >= 0:
        groups[group_of_batch, MOST_RECORDS] = max(groups[group_of_batch, MOST_RECORDS], records_of_batch)
