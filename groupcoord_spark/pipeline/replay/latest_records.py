"""The latest records of one offsets partition: replaying them gives the internal state that replaying the whole log gives.

The next run replays them in place of the log that this run has read. The reduction of ``read.superseded`` would also do, but it keeps every
record of a modern group, every marker and every tombstone, so its result grows forever. Here the state is known, and a smaller choice is
tried first: the records that produced the present state. The choice is replayed, and each group whose internal state differs keeps the
records that ``read.superseded`` keeps. A rule of this module can therefore never make a run wrong; a rule that rarely applies only keeps
more records. docs/explanation/incremental-nights.md has the full argument.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from groupcoord_spark.coordinator.groups.classic import ReplayedClassicGroup
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.exchange.kept_records import as_one, empty_batch, records_of_kept
from groupcoord_spark.pipeline.read.chunk_kinds import ChunkKinds
from groupcoord_spark.pipeline.read.decode import decode_kept_records
from groupcoord_spark.pipeline.read.superseded import last_row_by_code, needed_for_replay
from groupcoord_spark.pipeline.replay.carried_state import pending_by_group, state_of_group
from groupcoord_spark.pipeline.replay.kept_records_replay import KeptRecordsReplay
from groupcoord_spark.protocol.columnar import KeyColumns
from groupcoord_spark.protocol.record_types import NO_PRODUCER_ID, KeyType, MarkerType
from groupcoord_spark.protocol.slices import Ints, Mask, codes_of

HELD_BYTES = 128 << 20
"""Bytes of records that are held before they are reduced in the midst of a replay. A replay of fewer bytes reduces once, at its end."""


class LatestRecords:
    """Records of one offsets partition that reproduce its replay, reduced now and then to the latest ones."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._latest_rows = 0
        self._latest_bytes = 0
        self._bytes = 0

    def begin_with(self, latest: pa.RecordBatch) -> None:
        """Begin with the latest records of an earlier run, which are replayed before all others."""
        self._batches, self._latest_rows = [latest], latest.num_rows
        self._bytes = self._latest_bytes = latest.nbytes

    def add(self, batch: pa.RecordBatch, replay: KeptRecordsReplay) -> None:
        """Add a batch of KEPT that ``replay`` has just replayed."""
        self._batches.append(batch)
        self._bytes += batch.nbytes
        if self._bytes > max(HELD_BYTES, 2 * self._latest_bytes):
            self.begin_with(self.reduced(replay))

    def reduced(self, replay: KeptRecordsReplay) -> pa.RecordBatch:
        """Return the latest records as a batch of KEPT in record order."""
        held = as_one(self._batches) if self._batches else empty_batch()
        return held if held.num_rows == self._latest_rows else latest_of(held, self._latest_rows, replay)


def latest_of(held: pa.RecordBatch, latest_rows: int, replay: KeptRecordsReplay) -> pa.RecordBatch:
    """Return the records of ``held`` whose replay gives the internal state of ``replay``, the state after all of ``held``.

    Args:
        held: of KEPT, in the order of record offsets.
        latest_rows: this many leading rows are the result of an earlier reduction. Those whose group has no later row are kept as they are.
        replay: its state is not changed.
    """
    rows = _held_rows(held, latest_rows, replay)
    chosen = _latest(rows, replay)
    differing = _groups_that_differ(held, rows, chosen, replay)
    if differing:
        all_that_may_matter = needed_for_replay(rows.kinds)
        group_differs = np.append(np.isin(np.arange(len(rows.group_ids)), list(differing)), False)
        chosen = np.where(group_differs[rows.kinds.group_code], all_that_may_matter, chosen) & ~rows.kinds.is_control
        chosen |= _markers_of(rows, chosen)
        differing = _groups_that_differ(held, rows, chosen, replay)
    if differing is None or differing:
        chosen = needed_for_replay(rows.kinds)
    return held.filter(pa.array(chosen))


@dataclass(frozen=True, slots=True)
class _HeldRows:
    """Columns of the ``n`` held records. A group is open to choice if a row after the earlier reduction concerns it.

    entity: int64[n], one code for each (group, topic, partition); keys of type 0 and 1 can mean the same offset. -1 for no offset.
    is_open: bool[n], data rows of groups that are open to choice, and data rows without a group.
    marker_ends: bool[n], control records that end a transaction, by the rules of the coordinator.
    """

    records: Records
    decodes: Mask
    kinds: ChunkKinds
    keys: pa.BinaryArray
    group_ids: list[str]
    entity: Ints
    open_groups: Ints
    is_open: Mask
    in_transaction: Mask
    marker_ends: Mask


def _held_rows(held: pa.RecordBatch, latest_rows: int, replay: KeptRecordsReplay) -> _HeldRows:
    records, decodes = records_of_kept(held)
    decoded = decode_kept_records(records, decodes, replay.semantics, records.distinct_keys())
    kinds = decoded.kinds
    group_ids = decoded.names.group_ids.to_pylist()
    in_transaction = ~kinds.is_control & (kinds.is_transactional | (kinds.producer_id != NO_PRODUCER_ID))
    is_later = np.arange(len(records)) >= latest_rows
    # A marker concerns the groups of the records in its transaction.
    ended = np.unique(kinds.producer_id[is_later & kinds.is_control])
    concerns = is_later | (in_transaction & np.isin(kinds.producer_id, ended))
    group_is_open = np.zeros(len(group_ids) + 1, np.bool_)
    group_is_open[kinds.group_code[concerns & ~kinds.is_control]] = True
    group_is_open[-1] = True
    return _HeldRows(
        records=records,
        decodes=decodes,
        kinds=kinds,
        keys=decoded.names.keys,
        group_ids=group_ids,
        entity=_entities(decoded.keys, kinds),
        open_groups=np.flatnonzero(group_is_open[:-1]),
        is_open=group_is_open[kinds.group_code] & ~kinds.is_control,
        in_transaction=in_transaction,
        marker_ends=kinds.is_control & (np.isin(kinds.control_type, list(MarkerType)) | np.bool_(replay.semantics.unknown_marker_aborts)),
    )


def _entities(keys: KeyColumns, kinds: ChunkKinds) -> Ints:
    """Return the column ``entity`` of _HeldRows."""
    groups, topics = (codes_of(column.dictionary_encode()) for column in (keys.group_id, keys.topic))
    partitions, partition_code = np.unique(keys.partition, return_inverse=True)
    combined = (groups * (int(topics.max(initial=0)) + 1) + topics) * len(partitions) + partition_code
    entity = np.unique(combined, return_inverse=True)[1].astype(np.int64)
    is_offset = np.isin(kinds.key_type, (KeyType.LEGACY_OFFSET_COMMIT, KeyType.OFFSET_COMMIT))
    return np.where(is_offset, np.append(entity, -1)[kinds.key_code], -1)


def _latest(rows: _HeldRows, replay: KeptRecordsReplay) -> Mask:
    """Choose (bool[n]) the records that produced the present state, and the records that these need around them.

    For groups that may be reduced, these are the records named by the state, the last record of each live key, one commit for a group that
    exists only through commits, and the tombstone of a group with remaining records. Each brings the last tombstone of the same offset and
    the last record of the same key after it, and each transactional record the markers that follow it.
    """
    kinds, n = rows.kinds, len(rows.kinds)
    chosen = ~rows.is_open & ~kinds.is_control
    chosen[_rows_at(rows, _offsets_in_state(rows, replay))] = True
    is_data = rows.is_open & ~kinds.is_control
    is_type_0 = is_data & rows.decodes & (kinds.key_type == KeyType.LEGACY_OFFSET_COMMIT)
    last_of_key = last_row_by_code(kinds.key_code, is_data & (kinds.key_code >= 0))
    last_of_type_0 = last_row_by_code(kinds.key_code, is_type_0)
    for last in (last_of_key, last_of_type_0):
        chosen[last[last >= 0]] |= ~kinds.is_tombstone[last[last >= 0]]
    chosen[_commits_of_bare_groups(rows, chosen, replay)] = True
    chosen[_rows_at(rows, _removals(rows, chosen, replay))] = True
    with_key = np.unique(kinds.key_code[chosen & rows.is_open & (kinds.key_code >= 0)])
    for last in (last_of_key, last_of_type_0):
        following = last[with_key] if len(last) else with_key[:0]
        chosen[following[following >= 0]] = True
    chosen[_tombstones_after(rows, chosen)] = True
    assert len(chosen) == n
    return chosen | _markers_of(rows, chosen)


def _offsets_in_state(rows: _HeldRows, replay: KeptRecordsReplay) -> list[int]:
    """Return the record offsets that the state of the open groups and transactions names."""
    store = replay.coordinator.offsets
    open_ids = {rows.group_ids[code] for code in rows.open_groups.tolist()}
    named = list(replay.open_since.values())
    for group_id in open_ids:
        named += [stored.record_offset for stored in store.committed.get(group_id, {}).values()]
        group = replay.coordinator.group(group_id)
        if group is not None:
            if group.record_offset is not None:
                named.append(group.record_offset)
            if not isinstance(group, ReplayedClassicGroup):
                named += [row.record_offset for row in group.member_rows(group_id) if row.record_offset is not None]
    for (group_id, _, _), by_producer in store.pending.items():
        if group_id in open_ids:
            named += [staged.record_offset for staged in by_producer.values()]
    return named


def _commits_of_bare_groups(rows: _HeldRows, chosen: Mask, replay: KeptRecordsReplay) -> Ints:
    """Return the last commit of each open group that exists through a commit, if no commit of the group is chosen."""
    kinds = rows.kinds
    is_offset = np.isin(kinds.key_type, (KeyType.LEGACY_OFFSET_COMMIT, KeyType.OFFSET_COMMIT))
    is_commit = is_offset & kinds.coordinator_accepts & ~kinds.is_tombstone & ~kinds.is_control
    last = last_row_by_code(kinds.group_code, is_commit)
    has_commit = last_row_by_code(kinds.group_code, is_commit & chosen) >= 0
    bare = []
    for code in rows.open_groups.tolist():
        if code < len(last) and last[code] >= 0 and not (code < len(has_commit) and has_commit[code]):
            group = replay.coordinator.group(rows.group_ids[code])
            if group is not None and group.record_offset is None:
                bare.append(int(last[code]))
    return np.array(bare, np.int64)


def _removals(rows: _HeldRows, chosen: Mask, replay: KeptRecordsReplay) -> list[int]:
    """Return record offsets of tombstones that removed open groups with a chosen record; with Scala of all open groups (R-1.28)."""
    has_record = np.zeros(len(rows.group_ids) + 1, np.bool_)
    has_record[rows.kinds.group_code[chosen & rows.is_open]] = True
    counts_later = not replay.semantics.groups_live_from_first_commit
    open_ids = [rows.group_ids[code] for code in rows.open_groups.tolist() if counts_later or has_record[code]]
    removals = (replay.coordinator.removed_at(group_id) for group_id in open_ids)
    return [record_offset for record_offset in removals if record_offset is not None]


def _tombstones_after(rows: _HeldRows, chosen: Mask) -> Ints:
    """For each offset with a chosen record, choose its last tombstone after that record from each producer."""
    kinds = rows.kinds
    tombstones = np.flatnonzero(rows.is_open & kinds.is_tombstone & (rows.entity >= 0))
    if not len(tombstones):
        return tombstones
    first = np.full(int(rows.entity.max()) + 1, len(kinds), np.int64)
    there = np.flatnonzero(chosen & (rows.entity >= 0) & ~kinds.is_tombstone)[::-1]
    first[rows.entity[there]] = there  # in reverse order: the first row wins
    tombstones = tombstones[tombstones > first[rows.entity[tombstones]]]
    of = np.stack((rows.entity[tombstones], kinds.producer_id[tombstones], kinds.is_transactional[tombstones]))[:, ::-1]
    _, from_the_end = np.unique(of, axis=1, return_index=True)
    return tombstones[len(tombstones) - 1 - from_the_end]


def _markers_of(rows: _HeldRows, chosen: Mask) -> Mask:
    """Choose (bool[n]) the control records after a chosen record of their producer, up to the end of its transaction."""
    kinds = rows.kinds
    is_marker = np.zeros(len(kinds), np.bool_)
    places = np.flatnonzero(kinds.is_control | (chosen & rows.in_transaction))
    places = places[np.argsort(kinds.producer_id[places], kind="stable")]
    producer, ends, is_control = kinds.producer_id[places], rows.marker_ends[places], kinds.is_control[places]
    begins = np.r_[True, (producer[1:] != producer[:-1]) | ends[:-1]][: len(places)]
    transaction = np.cumsum(begins) - 1
    at = np.arange(len(places))
    first_record = np.full(int(begins.sum()), len(places), np.int64)
    records = at[~is_control][::-1]
    first_record[transaction[records]] = records
    is_marker[places[is_control & (at > first_record[transaction])]] = True
    return is_marker


def _groups_that_differ(held: pa.RecordBatch, rows: _HeldRows, chosen: Mask, replay: KeptRecordsReplay) -> set[int] | None:
    """Codes of the open groups whose internal state is another one after the replay of the chosen records.

    None: what belongs to no group differs (open transactions, live keys).
    """
    kinds = rows.kinds
    open_transactions = replay.coordinator.offsets.open_transactions()
    to_compare = _groups_to_compare(rows, replay)
    is_compared = np.append(np.isin(np.arange(len(rows.group_ids)), to_compare), True)[kinds.group_code] & rows.is_open
    producers = np.unique(kinds.producer_id[chosen & is_compared & rows.in_transaction])
    producers = np.union1d(producers, np.array([*open_transactions, *replay.open_since], np.int64))
    replayed = chosen & (is_compared | ((kinds.is_control | rows.in_transaction) & np.isin(kinds.producer_id, producers)))
    again = KeptRecordsReplay.of(held.filter(pa.array(replayed)), replay.semantics)
    open_keys = set(rows.keys.take(pa.array(np.unique(kinds.key_code[is_compared & (kinds.key_code >= 0)]))).to_pylist())
    if (
        again.open_since != replay.open_since
        or again.coordinator.offsets.open_transactions() != open_transactions
        or again.live_among(open_keys) != replay.live_among(open_keys)
    ):
        return None
    pending, pending_again = map(pending_by_group, (replay, again))
    differing = set()
    for code in to_compare.tolist():
        group_id = rows.group_ids[code]
        if state_of_group(replay, group_id, pending) != state_of_group(again, group_id, pending_again):
            differing.add(code)
    return differing


def _groups_to_compare(rows: _HeldRows, replay: KeptRecordsReplay) -> Ints:
    """Codes of the open groups about which the choice is not certain already.

    It is certain for a group that exists, if all records of the group are accepted, of key type 1 or 2 and outside of transactions. The
    chosen commits are those in the state, no tombstone of theirs follows, any of them creates the group, and the chosen value of key type
    2, if the state has one, replaces the group as a whole.
    """
    kinds = rows.kinds
    has_simple_key = np.isin(kinds.key_type, (KeyType.OFFSET_COMMIT, KeyType.GROUP_METADATA))
    is_simple_record = has_simple_key & kinds.coordinator_accepts & ~rows.in_transaction
    is_certain = np.ones(len(rows.group_ids) + 1, np.bool_)
    is_certain[kinds.group_code[rows.is_open & ~is_simple_record]] = False
    codes = rows.open_groups.tolist()
    return np.array([code for code in codes if not is_certain[code] or replay.coordinator.group(rows.group_ids[code]) is None], np.int64)


def _rows_at(rows: _HeldRows, record_offsets: list[int]) -> Ints:
    """Return the rows with these record offsets, skipping offsets without a row."""
    wanted = np.array(record_offsets, np.int64)
    at = np.searchsorted(rows.records.record_offset, wanted)
    is_there = at < len(rows.records)
    is_there[is_there] = rows.records.record_offset[at[is_there]] == wanted[is_there]
    return at[is_there]
