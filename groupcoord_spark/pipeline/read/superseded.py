"""Drops, in the worker that reads, every record that a later one supersedes, so that live keys set the cost and not records written.

From any state before a chunk (consecutive records of one offsets partition), replaying what is kept gives the state and the warnings that
replaying the whole chunk gives: committed, pending and orphaned offsets and groups, under both semantics. Counts, history, the topic ids
that only dropped values name, and what a loader refuses because of a record alone are not recoverable from what is kept: the reader takes
them in the same pass. A record that a loader may refuse because of the state that it meets is never dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.protocol.record_types import GROUP_KEY_TYPES, NO_PRODUCER_ID, KeyType, MarkerType
from groupcoord_spark.protocol.slices import codes_of

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ChunkKinds:
    """What the drop must know of each of a chunk's ``n`` records, in offset order.

    key_code: int64, equal for records of one key, -1 where the key is null. group_code: int64, equal for keys of one group, -1 where the
    key names none. member_code: int64, equal for keys of one member id, in whatever group. key_type: int16, -1 where it cannot be read.
    producer_id: int64, -1 for none. control_type: int8, as in Records. is_control, is_tombstone: bool. is_transactional: the bit of the
    batch (Scala goes by it, Java by the producer id). coordinator_accepts: bool, the record decodes and the coordinator
    takes records of its kind. A record that is not accepted is refused whatever came before it: it changes nothing and supersedes nothing.
    """

    key_code: Ints
    group_code: Ints
    member_code: Ints
    key_type: npt.NDArray[np.int16]
    producer_id: Ints
    control_type: npt.NDArray[np.int8]
    is_control: Mask
    is_tombstone: Mask
    is_transactional: Mask
    coordinator_accepts: Mask

    def __len__(self) -> int:
        return len(self.key_type)

    def take(self, rows: Mask | Ints) -> ChunkKinds:
        """Those of some of the records."""
        return ChunkKinds(*(getattr(self, each.name)[rows] for each in fields(self)))


class Names(NamedTuple):
    """What the codes of a chunk stand for: its distinct keys, group ids and member ids, each in the place that is its code."""

    keys: pa.BinaryArray
    group_ids: pa.StringArray
    member_ids: pa.StringArray


def joined(chunks: Sequence[tuple[ChunkKinds, Names]]) -> tuple[ChunkKinds, Names]:
    """The same of consecutive chunks taken together, with new codes."""
    columns = {each.name: [getattr(kinds, each.name) for kinds, _ in chunks] for each in fields(ChunkKinds)}
    together = []
    for code, of_chunks in zip(("key_code", "group_code", "member_code"), zip(*(names for _, names in chunks), strict=True), strict=True):
        encoded = pa.concat_arrays(of_chunks).dictionary_encode()
        together.append(encoded.dictionary)
        new = np.split(codes_of(encoded), np.cumsum([len(each) for each in of_chunks])[:-1])
        columns[code] = [np.append(now, -1)[before] for now, before in zip(new, columns[code], strict=True)]
    return ChunkKinds(*map(np.concatenate, columns.values())), Names(*together)


def kept(kinds: ChunkKinds) -> Mask:
    """Which records of the chunk must be replayed; bool of length n.

    Kept are: control records; per key of an offset the last plain value, the last plain tombstone and the last record of all; of what
    transactions stage what _lasting_of_staged says, and all tombstones; per group the last commit before each of its own records and at
    the end of the chunk; and the group's own records but for those of _superseded_classic. Of records that do not apply only the last of
    each key is kept, which decides whether the key is live, and the record with which an open transaction began.
    """
    is_offset = (kinds.key_type == KeyType.LEGACY_OFFSET_COMMIT) | (kinds.key_type == KeyType.OFFSET_COMMIT)
    is_commit = is_offset & kinds.coordinator_accepts & ~kinds.is_tombstone & ~kinds.is_control
    has_producer = kinds.producer_id != NO_PRODUCER_ID
    plain = is_offset & kinds.coordinator_accepts & ~kinds.is_control & ~has_producer & ~kinds.is_transactional
    # where the two signs of a transaction disagree, the coordinators do as well: such records are all kept
    staged = is_commit & has_producer & kinds.is_transactional
    is_refused = ~kinds.coordinator_accepts & ~kinds.is_control
    keep: Mask = ~(plain | staged | is_refused)
    # The last tombstone stays even when a value follows: it also ends what an open transaction staged before this chunk.
    for among in (plain & ~kinds.is_tombstone, plain & kinds.is_tombstone):
        keep[_last_of_each(kinds.key_code, among)] = True
    if is_refused.any():
        keep[_last_of_each(kinds.key_code, is_refused & (kinds.key_code >= 0))] = True
    if kinds.is_transactional.any():
        transactions = _transactions(kinds)
        keep[_first_of_open(transactions)] = True
        keep[_lasting_of_staged(kinds, plain, staged, transactions)] = True
        keep[_last_of_each(kinds.key_code, plain | staged)] = True
    is_own_record = (kinds.key_type >= KeyType.GROUP_METADATA) & (kinds.group_code >= 0) & ~kinds.is_control
    # A commit creates its group where there is none, and what the group's own next record then meets depends on that.
    keep[_last_of_each(kinds.group_code, is_commit)] = True
    if is_own_record.any():
        keep[_commits_before_own_records(kinds, is_commit, is_own_record)] = True
        own = np.flatnonzero(is_own_record & kinds.coordinator_accepts)
        own = own[stable_order(kinds.group_code[own])]
        keep[_superseded_classic(kinds, own)] = False
    return keep


class _Transactions(NamedTuple):
    """Rows of transactions and markers, producer by producer; ``transaction`` numbers the transactions.

    marker: the row of the control record that ends the transaction, -1 where the transaction is open at the end of the chunk.
    """

    row: Ints
    transaction: Ints
    marker: Ints


def _transactions(kinds: ChunkKinds) -> _Transactions:
    """The records of transactions, whatever they are, without the control records that end these."""
    rows = np.flatnonzero(kinds.is_transactional | kinds.is_control)
    rows = rows[np.argsort(kinds.producer_id[rows], kind="stable")]
    producer, is_control = kinds.producer_id[rows], kinds.is_control[rows]
    transaction = np.cumsum(is_control | np.r_[True, producer[1:] != producer[:-1]])
    next_control = np.minimum.accumulate(np.where(is_control, np.arange(len(rows)), len(rows))[::-1])[::-1]
    is_ended = np.append(producer, NO_PRODUCER_ID)[next_control] == producer
    marker = np.where(is_ended, np.append(rows, -1)[next_control], -1)
    values = ~is_control
    return _Transactions(rows[values], transaction[values], marker[values])


def _first_of_open(transactions: _Transactions) -> Ints:
    """Rows with which transactions began that are open at the end of the chunk."""
    row, transaction, marker = transactions
    begins: Ints = row[np.r_[True, transaction[1:] != transaction[:-1]][: len(row)] & (marker < 0)]
    return begins


def _lasting_of_staged(kinds: ChunkKinds, plain: Mask, staged: Mask, transactions: _Transactions) -> Ints:
    """Rows of the values staged by transactions that can be seen after the chunk, or decide what is.

    Of each transaction that is one value of every key, the last. What ABORT ends goes. What COMMIT ends goes where something after the
    marker surely takes its place: a plain record of the key, or, under a later marker, the value with the greatest offset of all that
    transactions commit for the key. Markers stay: they also end what was staged before the chunk, which is then in the same way overtaken.
    """
    is_staged = staged[transactions.row]
    rows, transaction, marker = (column[is_staged] for column in transactions)
    if not len(rows):
        return rows
    of_key = transaction * (int(kinds.key_code.max()) + 1) + kinds.key_code[rows]
    _, from_the_end = np.unique(of_key[::-1], return_index=True)
    last = len(rows) - 1 - from_the_end
    rows, marker = rows[last], marker[last]
    if _is_ordinary(kinds, plain, staged):
        is_committed = (marker >= 0) & (kinds.control_type[marker] == MarkerType.COMMIT)
        key = kinds.key_code[rows]
        last_plain = _last_by_code(kinds.key_code, plain)
        last_marker = np.full(len(last_plain), -1, np.int64)
        in_order = np.flatnonzero(is_committed)[np.argsort(rows[is_committed])]
        last_marker[key[in_order]] = marker[in_order]
        is_overtaken = (last_plain[key] > marker) | (last_marker[key] > marker)
        rows = rows[(marker < 0) | (is_committed & ~is_overtaken)]
    lasting: Ints = rows
    return lasting


def _is_ordinary(kinds: ChunkKinds, plain: Mask, staged: Mask) -> bool:
    """Whether offsets are committed, inside of transactions and out of them, only in ways in which both coordinators see the same."""
    is_offset = (kinds.key_type == KeyType.LEGACY_OFFSET_COMMIT) | (kinds.key_type == KeyType.OFFSET_COMMIT)
    odd = is_offset & kinds.coordinator_accepts & ~kinds.is_control & ~plain & ~staged
    return not odd.any() and bool(np.isin(kinds.control_type[kinds.is_control], (MarkerType.ABORT, MarkerType.COMMIT)).all())


def _last_of_each(code: Ints, among: Mask) -> Ints:
    """Row of the last record of every code, of the rows in ``among``."""
    last = _last_by_code(code, among)
    return last[last >= 0]


def _last_by_code(code: Ints, among: Mask) -> Ints:
    """For every code the row of its last record in ``among``; -1 where it has none."""
    rows = np.flatnonzero(among)
    last = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
    last[code[rows]] = rows  # of several rows of one code numpy keeps the one assigned last
    return last


def stable_order(code: Ints) -> Ints:
    """Rows code by code, those of one code as they were."""
    # numpy sorts two bytes by their digits, which takes a quarter of the time; -1 is then the last code instead of the first
    narrow = code.astype(np.uint16) if len(code) and int(code.max()) < (1 << 16) - 1 else code
    return np.argsort(narrow, kind="stable")


def _commits_before_own_records(kinds: ChunkKinds, is_commit: Mask, is_own_record: Mask) -> Ints:
    """Row of the group's last commit before each of the group's own records that may find no group without it.

    After a value that applies the group is there, of whatever type, until a tombstone that can remove it.
    """
    own = np.flatnonzero(is_own_record)
    own = own[stable_order(kinds.group_code[own])]
    group, is_tombstone = kinds.group_code[own], kinds.is_tombstone[own]
    makes_group = kinds.coordinator_accepts[own] & ~is_tombstone
    may_remove = is_tombstone & np.isin(kinds.key_type[own], list(GROUP_KEY_TYPES))
    place = np.arange(len(own))
    begin = np.maximum.accumulate(np.where(np.r_[True, group[1:] != group[:-1]], place, 0))
    change = np.maximum.accumulate(np.where(makes_group | may_remove, place, -1))
    last_change = np.r_[-1, change[:-1]]  # before each row, not at it
    asking = own[(last_change < begin) | ~makes_group[last_change]]

    # Nearly all commits lie behind the last record of their group that asks: only those before it are looked at one by one.
    last_asking = np.full(int(kinds.group_code.max()) + 1, -1, np.int64)
    last_asking[kinds.group_code[asking]] = asking
    commits = np.flatnonzero(is_commit)
    commits = commits[commits < last_asking[kinds.group_code[commits]]]
    of_group = len(kinds.group_code)
    places, wanted = (kinds.group_code[rows] * of_group + rows for rows in (asking, commits))
    before = np.full(len(asking), -1, np.int64)
    before[np.searchsorted(places, wanted)] = commits  # in their order, so that the last one stands
    found: Ints = before[before >= 0]
    return found


def _superseded_classic(kinds: ChunkKinds, own: Ints) -> Ints:
    """Rows of classic group records that the next own record of their group replaces, that one being a classic value.

    own: rows of groups' own records, group by group. Only plain replacement is dropped: a record of another type between two classic ones
    depends on the first, and a tombstone of a group that was there is told apart from one of none. What a loader refuses in such a value
    (R-2.1 to R-2.4) depends on the value alone, and the reader has noted it.
    """
    group, is_classic = kinds.group_code[own], kinds.key_type[own] == KeyType.GROUP_METADATA
    replaces = is_classic & ~kinds.is_tombstone[own]
    superseded: Ints = own[:-1][(group[:-1] == group[1:]) & is_classic[:-1] & replaces[1:]]
    return superseded
