"""Drops, in the worker that reads, every record that a later one supersedes, so that live keys set the cost and not records written.

From any state before a chunk (consecutive records of one offsets partition), replaying what is kept gives the state that replaying the
whole chunk gives: committed, pending and orphaned offsets and groups, under both semantics. Counts, history and the topic ids that only
dropped values name are not recoverable from what is kept: the reader takes them in the same pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

CLASSIC_GROUP_KEY = 2
NO_PRODUCER_ID = -1


@dataclass(frozen=True, slots=True)
class ChunkKinds:
    """What the drop must know of each of a chunk's ``n`` records, in offset order.

    key_code: int64, equal for records of one key, -1 where the key is null. group_code: int64, equal for keys of one group, -1 where the
    key names none. key_type: int16, -1 where it cannot be read. is_control, is_tombstone: bool. is_staged: the batch has a producer id or
    the transactional bit (Java goes by the first, Scala by the second). applies: bool, the record decodes, so that the coordinator
    takes it; one that does not apply changes nothing and supersedes nothing.
    """

    key_code: Ints
    group_code: Ints
    key_type: npt.NDArray[np.int16]
    is_control: Mask
    is_tombstone: Mask
    is_staged: Mask
    applies: Mask


def kept(kinds: ChunkKinds) -> Mask:
    """Which records of the chunk must be replayed; bool of length n.

    Kept are: control records; staged records; whatever does not apply; per key of an offset the last other value and the last
    tombstone; per group the last commit before each of its own records and at the end of the chunk; of classic group records of one group
    those that no classic value follows at once; and the records of all other types.
    """
    is_offset = (kinds.key_type == 0) | (kinds.key_type == 1)
    plain = is_offset & kinds.applies & ~kinds.is_staged & ~kinds.is_control
    keep = ~plain
    # The last tombstone stays even when a value follows: it also ends what an open transaction staged before this chunk.
    for among in (plain & ~kinds.is_tombstone, plain & kinds.is_tombstone):
        keep[_last_of_each(kinds.key_code, among)] = True
    is_own_record = (kinds.key_type >= CLASSIC_GROUP_KEY) & (kinds.group_code >= 0) & ~kinds.is_control
    is_commit = is_offset & kinds.applies & ~kinds.is_tombstone & ~kinds.is_control
    # A commit creates its group where there is none, and what the group's own next record then meets depends on that.
    keep[_last_of_each(kinds.group_code, is_commit)] = True
    keep[_commits_before_own_records(kinds.group_code, is_commit, is_own_record)] = True
    keep[_superseded_classic(kinds, is_own_record)] = False
    return keep


def _last_of_each(code: Ints, among: Mask) -> Ints:
    """Row of the last record of every code, of the rows in ``among``."""
    rows = np.flatnonzero(among)
    if not len(rows):
        return rows
    last = np.full(int(code.max()) + 1, -1, np.int64)
    last[code[rows]] = rows  # of several rows of one code numpy keeps the one assigned last
    return last[last >= 0]


def _commits_before_own_records(group_code: Ints, is_commit: Mask, is_own_record: Mask) -> Ints:
    """Row of the group's last commit before each of the group's own records."""
    if not is_own_record.any():
        return np.zeros(0, np.int64)
    has_own = np.zeros(int(group_code.max()) + 1, np.bool_)
    has_own[group_code[is_own_record]] = True
    rows = np.flatnonzero((is_commit | is_own_record) & has_own[group_code])
    rows = rows[np.argsort(group_code[rows], kind="stable")]
    group = group_code[rows]
    place = np.arange(len(rows))
    begin = np.maximum.accumulate(np.where(np.r_[True, group[1:] != group[:-1]], place, 0))
    commit = np.maximum.accumulate(np.where(is_commit[rows], place, -1))
    wanted = is_own_record[rows] & (commit >= begin)
    return rows[commit[wanted]]


def _superseded_classic(kinds: ChunkKinds, is_own_record: Mask) -> Ints:
    """Rows of classic group records that the next own record of their group replaces, that one being a classic value.

    Only plain replacement is dropped: a record of another type between two classic ones depends on the first, one that does not apply
    replaces nothing, and a tombstone of a group that was there is told apart from one of none.
    """
    rows = np.flatnonzero(is_own_record & kinds.applies)
    if not len(rows):
        return rows
    rows = rows[np.argsort(kinds.group_code[rows], kind="stable")]
    group, is_classic = kinds.group_code[rows], kinds.key_type[rows] == CLASSIC_GROUP_KEY
    replaces = is_classic & ~kinds.is_tombstone[rows]
    return rows[:-1][(group[:-1] == group[1:]) & is_classic[:-1] & replaces[1:]]
