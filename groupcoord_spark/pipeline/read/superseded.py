"""Which records of a chunk must be replayed. The reader drops the others, which later records supersede.

So the cost of the shuffle and of the replay depends on the number of live keys, not on the number of records. The promise: from any state
before the chunk (consecutive records of one offsets partition), the kept records lead to the same state and the same warnings as all
records of the chunk, for committed, pending and orphan offsets and for groups, with both semantics. The kept records do not give counts,
history, topic ids of dropped values, or refusals that depend on one record alone: the reader takes these in the same pass. A record that a
loader may refuse because of the state before it is never dropped. docs/explanation/why-records-may-be-dropped.md says why the rules hold.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from groupcoord_spark.pipeline.exchange.kept_records import kept_records
from groupcoord_spark.pipeline.read.chunk_kinds import ChunkKinds, CodeNames, concatenated
from groupcoord_spark.pipeline.read.decode import DecodedChunk
from groupcoord_spark.protocol.record_types import GROUP_KEY_TYPES, NO_PRODUCER_ID, KeyType, MarkerType
from groupcoord_spark.protocol.slices import Ints, Mask

BUFFER_BYTES = 16 << 20
"""Size of the buffer that makes it release its records."""
LEAST_ROWS_TO_FILTER = 100_000
"""Below this number of rows the buffer is not filtered again: that would cost more than it saves."""


def needed_for_replay(kinds: ChunkKinds) -> Mask:
    """Return which records of the chunk must be replayed, as bool of length n.

    "Plain" is a record of an offset outside of a transaction, a "group record" is a record of key type 2 or above. Kept are:

    - all control records;
    - of each key of an offset: the last plain value, the last plain tombstone, and the last record;
    - of transactional commits: the rows of _visible_transactional_commits, and all tombstones;
    - of each group: the last commit before each group record that may find no group, and the last commit of the chunk;
    - group records, except the result of _superseded_classic_records;
    - of records that the coordinator does not accept: the last of each key (the last record decides whether the key is live), the last of
      each key of type 0 that decodes (it decides whether the offset may come back), and the first record of a transaction that is still
      open.
    """
    is_offset = (kinds.key_type == KeyType.LEGACY_OFFSET_COMMIT) | (kinds.key_type == KeyType.OFFSET_COMMIT)
    is_commit = is_offset & kinds.coordinator_accepts & ~kinds.is_tombstone & ~kinds.is_control
    has_producer = kinds.producer_id != NO_PRODUCER_ID
    plain = is_offset & kinds.coordinator_accepts & ~kinds.is_control & ~has_producer & ~kinds.is_transactional
    # Where the producer id and the transactional bit disagree, the two coordinators disagree too: all such records are kept.
    staged = is_commit & has_producer & kinds.is_transactional
    is_refused = ~kinds.coordinator_accepts & ~kinds.is_control
    is_kept: Mask = ~(plain | staged | is_refused)
    if kinds.keeps_ended_transactions:
        is_kept |= plain & kinds.is_tombstone
    # The last tombstone stays even if a value follows: it also drops what an open transaction staged before this chunk.
    for among in (plain & ~kinds.is_tombstone, plain & kinds.is_tombstone):
        is_kept[_last_rows(kinds.key_code, among)] = True
    if is_refused.any():
        is_kept[_last_rows(kinds.key_code, is_refused & (kinds.key_code >= 0))] = True
        is_kept[_last_rows(kinds.key_code, is_refused & kinds.decodes & (kinds.key_type == KeyType.LEGACY_OFFSET_COMMIT))] = True
    if kinds.is_transactional.any():
        transactions = _transactions(kinds)
        is_kept[_first_rows_of_open_transactions(transactions)] = True
        is_kept[_visible_transactional_commits(kinds, plain, staged, transactions)] = True
        is_kept[_last_rows(kinds.key_code, plain | staged)] = True
    is_group_record = (kinds.key_type >= KeyType.GROUP_METADATA) & (kinds.group_code >= 0) & ~kinds.is_control
    # A commit creates the group if it does not exist, and the effect of the next group record depends on that.
    is_kept[_last_rows(kinds.group_code, is_commit)] = True
    if is_group_record.any():
        is_kept[_commits_before_group_records(kinds, is_commit, is_group_record)] = True
        rows = np.flatnonzero(is_group_record & kinds.coordinator_accepts)
        rows = rows[stable_order(kinds.group_code[rows])]
        is_kept[_superseded_classic_records(kinds, rows)] = False
    return is_kept


class _Transactions(NamedTuple):
    """The rows of all records inside of transactions, by producer and then in the order of the log.

    transaction: the number of the row's transaction. marker: the row of the control record that ends the transaction; -1 where the
    transaction is open at the end of the chunk.
    """

    row: Ints
    transaction: Ints
    marker: Ints


def _transactions(kinds: ChunkKinds) -> _Transactions:
    """Return all transactional records of the chunk without the control records that end the transactions."""
    rows = np.flatnonzero(kinds.is_transactional | kinds.is_control)
    rows = rows[np.argsort(kinds.producer_id[rows], kind="stable")]
    producer, is_control = kinds.producer_id[rows], kinds.is_control[rows]
    transaction = np.cumsum(is_control | np.r_[True, producer[1:] != producer[:-1]])
    next_control = np.minimum.accumulate(np.where(is_control, np.arange(len(rows)), len(rows))[::-1])[::-1]
    is_ended = np.append(producer, NO_PRODUCER_ID)[next_control] == producer
    marker = np.where(is_ended, np.append(rows, -1)[next_control], -1)
    values = ~is_control
    return _Transactions(rows[values], transaction[values], marker[values])


def _first_rows_of_open_transactions(transactions: _Transactions) -> Ints:
    """Return the first row of each transaction that is open at the end of the chunk."""
    row, transaction, marker = transactions
    begins: Ints = row[np.r_[True, transaction[1:] != transaction[:-1]][: len(row)] & (marker < 0)]
    return begins


def _visible_transactional_commits(kinds: ChunkKinds, plain: Mask, staged: Mask, transactions: _Transactions) -> Ints:
    """Return the rows of transactional commits to replay: the last value of each transaction and key, without those that have no effect.

    An aborted value has no effect. A committed value has none if a later record overrides it for certain: a plain record of the key after
    the marker, or the value with the greatest record offset that any transaction commits for the key, if its marker is later. All markers
    are kept, because a marker also ends what its producer staged before the chunk; the same record overrides that value too.
    """
    is_staged = staged[transactions.row]
    rows, transaction, marker = (column[is_staged] for column in transactions)
    if not len(rows):
        return rows
    of_key = transaction * (int(kinds.key_code.max()) + 1) + kinds.key_code[rows]
    _, from_the_end = np.unique(of_key[::-1], return_index=True)
    last = len(rows) - 1 - from_the_end
    rows, marker = rows[last], marker[last]
    if not kinds.keeps_ended_transactions and _coordinators_agree(kinds, plain, staged):
        is_committed = (marker >= 0) & (kinds.control_type[marker] == MarkerType.COMMIT)
        key = kinds.key_code[rows]
        last_plain = last_row_by_code(kinds.key_code, plain)
        last_marker = np.full(len(last_plain), -1, np.int64)
        in_order = np.flatnonzero(is_committed)[np.argsort(rows[is_committed])]
        last_marker[key[in_order]] = marker[in_order]
        is_overtaken = (last_plain[key] > marker) | (last_marker[key] > marker)
        rows = rows[(marker < 0) | (is_committed & ~is_overtaken)]
    visible: Ints = rows
    return visible


def _coordinators_agree(kinds: ChunkKinds, plain: Mask, staged: Mask) -> bool:
    """Return whether both coordinators read every commit of the chunk the same way.

    They do not where a commit has only one of a producer id and the transactional bit, or where a marker has an unknown type.
    """
    is_offset = (kinds.key_type == KeyType.LEGACY_OFFSET_COMMIT) | (kinds.key_type == KeyType.OFFSET_COMMIT)
    is_unusual = is_offset & kinds.coordinator_accepts & ~kinds.is_control & ~plain & ~staged
    return not is_unusual.any() and bool(np.isin(kinds.control_type[kinds.is_control], (MarkerType.ABORT, MarkerType.COMMIT)).all())


def _last_rows(code: Ints, among: Mask) -> Ints:
    """Return the last row of each code, among the rows in ``among``."""
    last = last_row_by_code(code, among)
    return last[last >= 0]


def last_row_by_code(code: Ints, among: Mask) -> Ints:
    """By code the last row in ``among``; -1 where the code has no row there."""
    rows = np.flatnonzero(among)
    last = np.full(int(code.max(initial=-1)) + 1, -1, np.int64)
    last[code[rows]] = rows  # numpy keeps the last assignment to a position
    return last


def stable_order(code: Ints) -> Ints:
    """Return row numbers in stable order by code."""
    # numpy sorts 16-bit integers with a radix sort, in a quarter of the time. As uint16, -1 becomes the last code.
    narrow = code.astype(np.uint16) if len(code) and int(code.max()) < (1 << 16) - 1 else code
    return np.argsort(narrow, kind="stable")


def _commits_before_group_records(kinds: ChunkKinds, is_commit: Mask, is_group_record: Mask) -> Ints:
    """For each group record that may find no group: the row of the group's last commit before the record, which creates the group.

    After an accepted value the group exists, with some type, until a tombstone that can remove the group.
    """
    rows = np.flatnonzero(is_group_record)
    rows = rows[stable_order(kinds.group_code[rows])]
    group, is_tombstone = kinds.group_code[rows], kinds.is_tombstone[rows]
    makes_group = kinds.coordinator_accepts[rows] & ~is_tombstone
    may_remove = is_tombstone & np.isin(kinds.key_type[rows], list(GROUP_KEY_TYPES))
    place = np.arange(len(rows))
    begin = np.maximum.accumulate(np.where(np.r_[True, group[1:] != group[:-1]], place, 0))
    change = np.maximum.accumulate(np.where(makes_group | may_remove, place, -1))
    last_change = np.r_[-1, change[:-1]]  # strictly before the row
    may_find_no_group = rows[(last_change < begin) | ~makes_group[last_change]]

    # Nearly all commits come after the last such record of their group; the search only looks at the commits before it.
    last_may_find_no_group = np.full(int(kinds.group_code.max()) + 1, -1, np.int64)
    last_may_find_no_group[kinds.group_code[may_find_no_group]] = may_find_no_group
    commits = np.flatnonzero(is_commit)
    commits = commits[commits < last_may_find_no_group[kinds.group_code[commits]]]
    of_group = len(kinds.group_code)
    places, wanted = (kinds.group_code[rows] * of_group + rows for rows in (may_find_no_group, commits))
    commit_of_record = np.full(len(may_find_no_group), -1, np.int64)
    commit_of_record[np.searchsorted(places, wanted)] = commits  # in the order of the log: the last commit wins
    last_commits: Ints = commit_of_record[commit_of_record >= 0]
    return last_commits


def _superseded_classic_records(kinds: ChunkKinds, rows: Ints) -> Ints:
    """Return the rows of classic group records (key type 2) whose group's next group record is a classic value.

    rows: rows of group records, sorted by group. A record of another type between two classic records depends on the first of them, and a
    tombstone has another effect if the group exists: these are not dropped. The refusals of a classic value (rules R-2.1 to R-2.4 of
    docs/reference/replay-rules.md) depend on the value alone, and the reader has noted them.
    """
    group, is_classic = kinds.group_code[rows], kinds.key_type[rows] == KeyType.GROUP_METADATA
    replaces = is_classic & ~kinds.is_tombstone[rows]
    superseded: Ints = rows[:-1][(group[:-1] == group[1:]) & is_classic[:-1] & replaces[1:]]
    return superseded


def kept_of_chunk(decoded: DecodedChunk) -> tuple[Ints, pa.RecordBatch]:
    """Return the rows that the replay needs, and these records as a batch of KEPT."""
    rows = np.flatnonzero(needed_for_replay(decoded.kinds))
    return rows, kept_records(decoded.records, rows, decoded.decodes)


class SupersedeBuffer:
    """The kept records of consecutive chunks of one offsets partition, without those that a later chunk supersedes."""

    def __init__(self, *, buffer_bytes: int = BUFFER_BYTES, least_rows_to_filter: int = LEAST_ROWS_TO_FILTER) -> None:
        self._buffer_bytes = buffer_bytes
        self._least_rows_to_filter = least_rows_to_filter
        self._batches: list[pa.RecordBatch] = []
        # First the records that were filtered together, then each chunk after them.
        self._chunks: list[tuple[ChunkKinds, CodeNames]] = []
        self._filtered_rows = 0

    def add(self, decoded: DecodedChunk) -> list[pa.RecordBatch]:
        """Add the records of a chunk that the replay needs. Returns the records that leave the buffer, mostly none.

        All records leave once they have the size of the buffer.
        """
        rows, batch = kept_of_chunk(decoded)
        self._batches.append(batch)
        self._chunks.append((decoded.kinds.take(rows), decoded.names))
        # Filtering all records again pays once there are twice as many.
        if sum(len(kinds) for kinds, _ in self._chunks) <= max(2 * self._filtered_rows, self._least_rows_to_filter):
            return []
        self._filter()
        return self._take_all() if sum(batch.nbytes for batch in self._batches) >= self._buffer_bytes else []

    def flush(self) -> list[pa.RecordBatch]:
        """Return all records of the buffer, filtered again."""
        if len(self._chunks) > 1:
            self._filter()
        return self._take_all()

    def _take_all(self) -> list[pa.RecordBatch]:
        taken = [batch for batch in self._batches if batch.num_rows]
        self._batches, self._chunks, self._filtered_rows = [], [], 0
        return taken

    def _filter(self) -> None:
        kinds, names = concatenated(self._chunks)
        is_kept = needed_for_replay(kinds)
        ends = np.cumsum([batch.num_rows for batch in self._batches])
        # filter in place: at most one batch exists in two copies at a time
        for place, of_batch in enumerate(np.split(is_kept, ends[:-1])):
            self._batches[place] = self._batches[place].filter(pa.array(of_batch))
        self._chunks = [(kinds.take(is_kept), names)]
        self._filtered_rows = int(np.count_nonzero(is_kept))
