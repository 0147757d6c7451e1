"""The commits of a group from the history tables, in the order in which they counted for the coordinator."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.answers.commit_results import Marker, OffsetRecord, results_of
from groupcoord_spark.answers.removal_causes import OffsetLifetime, OffsetRemoval, Place
from groupcoord_spark.answers.timeline import LowerCommit, PartitionStretch, RemovedOffsets, Stretch, Transaction
from groupcoord_spark.coordinator.partition_owners import PartitionOwners
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.warehouse.read import Condition, Warehouse

PAUSE_MS: Final = 3_600_000
"""After a longer pause than this, commits belong to another stretch."""

COMMIT_COLUMNS: Final = (
    *("incarnation", "offsets_partition", "record_offset", "record_timestamp", "group_id", "topic", "topic_id", "partition"),
    *("committed_offset", "commit_timestamp", "expire_timestamp", "key_version", "value_version", "is_tombstone", "producer_id"),
    "is_transactional",
)
"""Columns of offset_commits that these functions read."""

PENDING_COLUMNS: Final = ("record_offset", "topic", "partition", "producer_id")
"""Columns of pending_offsets, in the order of a ``PendingKey``."""

_MARKER_COLUMNS: Final = ("incarnation", "offsets_partition", "record_offset", "record_timestamp", "producer_id", "result")
_NONE: Final = -1
"""Stands for NULL in arrays of record offsets, producer ids and milliseconds."""
_FAR: Final = np.iinfo(np.int64).max
_MAX_PRODUCERS_IN_FILTER: Final = 1_000
"""With more producers it is faster to read all markers than to filter by producer id."""

Longs = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

PendingKey = tuple[int, str, int, int]
"""(record offset, topic, partition, producer id) of a pending offset in the newest run."""


class CountedCommits(NamedTuple):
    """The offset records of one group in one place, in the order in which they count."""

    rows: pa.Table
    """Commits and tombstones with these columns: at (record offset from which the commit counts: its own, or that of the marker of its
    transaction), at_ms (time of that record), record_offset, topic, topic_id, partition, committed_offset (NULL: a tombstone), producer_id,
    is_tombstone, is_transactional, waited_ms (time from the commit to the marker), counts (False: a later commit or a tombstone of the
    offset came before the marker)."""
    transactions: list[Transaction]
    """Transactions whose commits do not count, or do not count yet. Their commits are not in ``rows``."""


def read_markers(warehouse: Warehouse, cluster: str, commits: pa.Table) -> pa.Table:
    """Rows of ``transactions``: the markers of every producer of these commits."""
    producers = pc.unique(commits["producer_id"]).drop_null().to_pylist()
    where: list[Condition] = [("offsets_partition", "in", pc.unique(commits["offsets_partition"]).to_pylist())]
    if len(producers) <= _MAX_PRODUCERS_IN_FILTER:
        where.append(("producer_id", "in", producers))
    return warehouse.read("transactions", cluster=cluster, columns=_MARKER_COLUMNS, where=where)


def of_place(rows: pa.Table, place: Place) -> pa.Table:
    """The rows of one place."""
    return rows.filter(pa.array(_is_at(rows, place)))


def counted_commits(
    commits: pa.Table, markers: pa.Table, semantics: Semantics, pending: Collection[PendingKey], to_ms: int | None = None
) -> CountedCommits:
    """The offset records of one group in one place, with the results of their transactions.

    Args:
        commits: Rows of offset_commits (``COMMIT_COLUMNS``) of one group and place.
        markers: From ``read_markers``, of the same place.
        semantics: Of the broker that loads the records.
        pending: Pending offsets of the newest run.
        to_ms: A transaction that ended at this time or later counts as open; None: no limit.
    """
    commits = commits.filter(pa.array(_accepted(commits, semantics)))
    commits = commits.take(pc.sort_indices(commits, sort_keys=[("record_offset", "ascending")]))
    record_offsets, producers = _longs(commits["record_offset"]), _longs(commits["producer_id"])
    tombstones, written_ms = _mask(commits["is_tombstone"]), _longs(milliseconds(commits["record_timestamp"]))
    transactional = producers != _NONE if semantics.producer_id_means_transaction else _mask(commits["is_transactional"])
    at, at_ms = record_offsets.copy(), written_ms.copy()
    kept, counts = np.ones(len(commits), np.bool_), np.ones(len(commits), np.bool_)
    transactions: list[Transaction] = []
    if transactional.any():
        staged = np.flatnonzero(transactional & ~tombstones)
        if semantics.transactional_tombstone_drops_own:
            # A transactional tombstone removes a commit of its own transaction and no committed offset.
            kept = ~(transactional & tombstones)
        marker_at, marker_ms, is_commit = _ends(record_offsets[staged], producers[staged], markers)
        is_replaced = _replaced(commits, staged, marker_at, markers, semantics)
        has_ended = marker_at != _NONE
        if to_ms is not None:
            has_ended &= marker_ms < to_ms
        at[staged[has_ended]], at_ms[staged[has_ended]] = marker_at[has_ended], marker_ms[has_ended]
        uncounted = ~(has_ended & is_commit)
        kept[staged[uncounted]] = False
        counts[staged[is_replaced]] = False
        written: dict[tuple[int, int, bool], list[int]] = {}
        for position in np.flatnonzero(uncounted).tolist():
            key = int(producers[staged[position]]), int(marker_at[position]), bool(is_replaced[position] and not has_ended[position])
            written.setdefault(key, []).append(position)
        for (producer_id, end, replaced), positions in written.items():
            first, rows = positions[0], commits.take(pa.array(staged[positions]))
            keys = list(zip(*(rows[name].to_pylist() for name in ("record_offset", "topic", "partition")), strict=True))
            is_pending = end != _NONE or any((*key, producer_id) in pending for key in keys)
            transactions.append(
                Transaction(
                    at=int(at[staged[first]]),
                    record_offset=int(record_offsets[staged[first]]),
                    producer_id=producer_id,
                    result="aborted" if has_ended[first] else "replaced" if replaced else "open" if is_pending else "unknown",
                    since_ms=_or_none(written_ms[staged[first]]),
                    ended_ms=_or_none(marker_ms[first]) if end != _NONE else None,
                    ended_later="committed" if is_commit[first] else "aborted" if end != _NONE and not has_ended[first] else None,
                    partitions=_partitions(rows, np.ones(len(rows), np.bool_), np.zeros(len(rows), np.int64))[0],
                    commits=keys,
                    marker_offset=end if end != _NONE else None,
                )
            )
    rows = pa.table(
        {
            "at": at,
            "at_ms": _with_nulls(at_ms),
            "record_offset": record_offsets,
            "topic": commits["topic"],
            "partition": commits["partition"],
            "committed_offset": commits["committed_offset"],
            "topic_id": commits["topic_id"],
            "producer_id": commits["producer_id"],
            "is_tombstone": tombstones,
            "is_transactional": transactional,
            "waited_ms": at_ms - written_ms,
            "counts": counts,
        }
    ).filter(pa.array(kept))
    rows = rows.take(pc.sort_indices(rows, sort_keys=[("at", "ascending"), ("record_offset", "ascending")]))
    return CountedCommits(rows, transactions)


def pieces_of(
    rows: pa.Table, borders: Collection[int], removals: Mapping[int, OffsetRemoval], from_ms: int | None = None, to_ms: int | None = None
) -> list[Stretch | LowerCommit | RemovedOffsets]:
    """Stretches of commits, commits of lower offsets, and removals, in order.

    A stretch ends at a border, at a commit of a lower offset, at a removal and at a pause of an hour.

    Args:
        rows: From ``counted_commits``.
        borders: Record offsets of all other events of the group.
        removals: Record offset of a tombstone -> cause of the tombstone.
        from_ms: First time of the rows. Rows before it still decide whether a commit has a lower offset. None: all rows.
        to_ms: End of the time of the rows; None: all rows.
    """
    at, at_ms, record_offsets = _longs(rows["at"]), _longs(rows["at_ms"]), _longs(rows["record_offset"])
    tombstones, counts = _mask(rows["is_tombstone"]), _mask(rows["counts"])
    previous, is_lower, is_after_removal = _find_lower(rows, tombstones, counts)
    is_shown = np.ones(len(rows), np.bool_)
    if from_ms is not None:
        is_shown &= at_ms >= from_ms
    if to_ms is not None:
        is_shown &= (at_ms < to_ms) & (at_ms != _NONE)
    shown = np.flatnonzero(is_shown)
    if not len(shown):
        return []
    # A number for each cause of removal, 0 for commits: where the number changes, another piece begins.
    cause_numbers = np.zeros(len(rows), np.int64)
    numbers: dict[object, int] = {}
    for row in np.flatnonzero(tombstones & is_shown).tolist():
        removal = removals[int(record_offsets[row])]
        topic = removal.lifetime.topic if removal.cause == "topic_deletion" else None
        cause_numbers[row] = numbers.setdefault((removal.cause, removal.due_by, topic, int(at_ms[row])), len(numbers) + 1)
    sides = np.searchsorted(np.array(sorted(borders), np.int64), at[shown])
    begins = np.ones(len(shown), np.bool_)
    begins[1:] = (np.diff(sides) != 0) | (np.diff(cause_numbers[shown]) != 0) | (np.diff(at_ms[shown]) > PAUSE_MS)
    begins |= is_lower[shown]
    begins[1:] |= is_lower[shown][:-1]
    numbered = np.cumsum(begins) - 1
    partitions = _partitions(rows.take(pa.array(shown)), counts[shown], numbered)
    in_transactions = np.bincount(numbered, _mask(rows["is_transactional"])[shown] & counts[shown]).astype(np.int64)
    waited_ms = np.zeros(len(partitions), np.int64)
    np.maximum.at(waited_ms, numbered, _longs(rows["waited_ms"])[shown])
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(shown)) - 1
    lower_commits = _lower_commits(rows, np.flatnonzero(is_lower & is_shown), previous, is_after_removal)
    pieces: list[Stretch | LowerCommit | RemovedOffsets] = []
    for piece, (first, last) in enumerate(zip(firsts.tolist(), lasts.tolist(), strict=True)):
        row = int(shown[first])
        place = int(at[row]), int(record_offsets[row])
        if is_lower[row]:
            pieces.append(next(lower_commits))
        elif tombstones[row]:
            removals_of_piece = [removals[int(record_offsets[row_of_piece])] for row_of_piece in shown[first : last + 1]]
            pieces.append(RemovedOffsets(*place, _or_none(at_ms[row]), partitions[piece], removals_of_piece))
        else:
            times = at_ms[shown[first : last + 1]]
            counted = times[counts[shown[first : last + 1]]]
            times = counted if len(counted) else times
            times = times[times != _NONE]
            begin_ms, end_ms = (int(times.min()), int(times.max())) if len(times) else (None, None)
            in_transaction, longest_wait_ms = int(in_transactions[piece]), int(waited_ms[piece])
            last_record_offset = int(record_offsets[shown[last]])
            pieces.append(Stretch(*place, begin_ms, end_ms, in_transaction, longest_wait_ms, partitions[piece], last_record_offset))
    return pieces


def with_gaps(commits: Sequence[LowerCommit], survivors: Sequence[tuple[str, int, int]]) -> list[LowerCommit]:
    """The commits, with ``may_miss_commits`` where records since the commit before were compacted away before a run read them.

    Args:
        commits: Of one place.
        survivors: (run id, first record offset, end offset) of each range of records that the log still had when the run read the log, of
            the same place, oldest run first.
    """
    read_until, gaps = -1, []
    for _, first, end in sorted(survivors, key=lambda survivor: survivor[1:]):
        if first > read_until and read_until >= 0:
            gaps.append((read_until, first))
        read_until = max(read_until, end)
    checked = []
    for commit in commits:
        is_unread = any(begin < commit.record_offset and end > commit.from_record_offset for begin, end in gaps)
        # One run read both commits: a compaction that removed a commit between them would have removed the older commit too.
        if is_unread:
            reader = next((run for run, first, end in survivors if first <= commit.record_offset < end), None)
            is_unread = not any(run == reader and first <= commit.from_record_offset < end for run, first, end in survivors)
        checked.append(commit._replace(may_miss_commits=is_unread))
    return checked


def with_owners(commits: Sequence[LowerCommit], records: pa.Table) -> list[LowerCommit]:
    """The commits, with the member that had the partition at that time.

    Args:
        commits: Of one place.
        records: record_offset, key_type, member_id and value_json of the group's records of ``partition_owners.KEY_TYPES``, of the same
            place.
    """
    owners = PartitionOwners()
    rows = iter(records.take(pc.sort_indices(records, sort_keys=[("record_offset", "ascending")])).to_pylist())
    row = next(rows, None)
    owned: dict[int, LowerCommit] = {}
    for commit in sorted(commits, key=lambda one: one.record_offset):
        while row is not None and row["record_offset"] < commit.record_offset:
            owners.apply(row["key_type"], row["member_id"], None if row["value_json"] is None else json.loads(row["value_json"]))
            row = next(rows, None)
        owner = owners.owner_of(commit.topic, commit.topic_id, commit.partition)
        owned[commit.record_offset] = commit._replace(owner=owner)
    return [owned[commit.record_offset] for commit in commits]


def milliseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """A TIMESTAMP column as epoch milliseconds."""
    return pc.divide(times.cast(pa.int64()), 1000)


def lifetimes_of(commits: pa.Table, markers: pa.Table) -> list[OffsetLifetime]:
    """The lifetimes of all offsets in rows of offset_commits.

    A commit of an aborted transaction is left out, unless a tombstone came before the ABORT marker.

    Args:
        commits: Rows of offset_commits (``COMMIT_COLUMNS``), of any groups and places.
        markers: From ``read_markers``.
    """
    if not len(commits):
        return []
    codes = _codes(commits, ("incarnation", "offsets_partition", "group_id", "topic", "partition"))
    order = np.lexsort((_longs(commits["record_offset"]), codes))
    commits, codes = commits.take(pa.array(order)), codes[order]
    has_producer = np.flatnonzero(_longs(commits["producer_id"]) != _NONE)
    if len(has_producer):
        is_aborted, next_tombstone = np.zeros(len(commits), np.bool_), _next_tombstones(commits, codes)
        staged = commits.take(pa.array(has_producer))
        for place in places_of(staged):
            there = np.flatnonzero(_is_at(staged, place))
            staged_there = staged.take(pa.array(there))
            marker_at, _, is_commit = _ends(
                _longs(staged_there["record_offset"]), _longs(staged_there["producer_id"]), of_place(markers, place)
            )
            is_aborted[has_producer[there]] = (marker_at != _NONE) & ~is_commit & (marker_at < next_tombstone[has_producer[there]])
        if is_aborted.all():
            return []
        commits, codes = commits.filter(pa.array(~is_aborted)), codes[~is_aborted]
    tombstones, times = _mask(commits["is_tombstone"]), _longs(milliseconds(commits["record_timestamp"]))
    rows = np.arange(len(commits))
    is_new_key = np.append(True, codes[1:] != codes[:-1])
    begins = np.flatnonzero(is_new_key | np.append(False, tombstones[:-1]))
    ends = np.append(begins[1:], len(rows)) - 1
    born_ms = np.minimum.reduceat(np.where(tombstones | (times == _NONE), _FAR, times), begins)
    values = np.maximum.accumulate(np.where(tombstones, _NONE, rows))[ends]
    values = np.where(values >= np.maximum.accumulate(np.where(is_new_key, rows, 0))[ends], values, _NONE)
    names = commits.select(["incarnation", "offsets_partition", "group_id", "topic", "partition"]).take(pa.array(ends)).to_pylist()
    record_offsets = _longs(commits["record_offset"])
    commit_ms, expire_ms = (_longs(milliseconds(commits[name]), _FAR) for name in ("commit_timestamp", "expire_timestamp"))
    return [
        OffsetLifetime(
            Place(name["incarnation"], name["offsets_partition"]),
            name["group_id"],
            name["topic"],
            name["partition"],
            _or_none(born, _FAR),
            int(record_offsets[value]) if value != _NONE else None,
            _or_none(commit_ms[value], _FAR) if value != _NONE else None,
            _or_none(expire_ms[value], _FAR) if value != _NONE else None,
            int(record_offsets[end]) if tombstones[end] else None,
            _or_none(times[end]) if tombstones[end] else None,
        )
        for name, born, value, end in zip(names, born_ms.tolist(), values.tolist(), ends.tolist(), strict=True)
    ]


def _next_tombstones(commits: pa.Table, codes: Longs) -> Longs:
    """For each row the record offset of the first tombstone of its offset from there on. Rows: sorted by code and record offset."""
    last_of_code = np.searchsorted(codes, codes, "right") - 1
    rows = np.arange(len(commits))
    following = np.minimum.accumulate(np.where(_mask(commits["is_tombstone"]), rows, len(rows))[::-1])[::-1]
    record_offsets = np.append(_longs(commits["record_offset"]), _FAR)
    next_tombstones: Longs = np.where(following <= last_of_code, record_offsets[following], _FAR)
    return next_tombstones


class _Ends(NamedTuple):
    """For each commit the marker that ended its transaction."""

    offsets: Longs
    """Record offset of the marker; -1: the transaction has no marker."""
    times_ms: Longs
    is_commit: Mask


def _ends(record_offsets: Longs, producers: Longs, markers: pa.Table) -> _Ends:
    """The first marker after each commit with the commit's producer id, whatever the producer epoch (R-1.17). All are of one place."""
    offsets, times_ms = np.full(len(record_offsets), _NONE, np.int64), np.full(len(record_offsets), _NONE, np.int64)
    is_commit = np.zeros(len(record_offsets), np.bool_)
    markers = markers.take(pc.sort_indices(markers, sort_keys=[("producer_id", "ascending"), ("record_offset", "ascending")]))
    marker_offsets, marker_ms = _longs(markers["record_offset"]), _longs(milliseconds(markers["record_timestamp"]))
    marker_producers, committed = _longs(markers["producer_id"]), _mask(pc.equal(markers["result"], "committed"))
    order = np.argsort(producers, kind="stable")
    first_of_producer = np.flatnonzero(np.append(True, np.diff(producers[order]) != 0)) if len(order) else order
    for of_producer in np.split(order, first_of_producer[1:]):
        if not len(of_producer):
            continue
        begin, end = (np.searchsorted(marker_producers, producers[of_producer[0]], side) for side in ("left", "right"))
        marker = begin + np.searchsorted(marker_offsets[begin:end], record_offsets[of_producer])
        has_end = marker < end
        marker, of_producer = marker[has_end], of_producer[has_end]
        offsets[of_producer], times_ms[of_producer], is_commit[of_producer] = marker_offsets[marker], marker_ms[marker], committed[marker]
    return _Ends(offsets, times_ms, is_commit)


def _replaced(commits: pa.Table, staged: Longs, marker_offsets: Longs, markers: pa.Table, semantics: Semantics) -> Mask:
    """For each staged commit whether a later commit or a tombstone replaced it before the end of its transaction.

    Only offsets that have another record between a commit and its marker are replayed. commits: sorted by record offset.
    """
    codes, record_offsets = _codes(commits, ("topic", "partition")), _longs(commits["record_offset"])
    order = np.argsort(codes, kind="stable")
    following = np.full(len(commits), _FAR, np.int64)
    is_same = codes[order][1:] == codes[order][:-1]
    following[order[:-1][is_same]] = record_offsets[order[1:][is_same]]
    is_clear = np.where(marker_offsets == _NONE, following[staged] == _FAR, following[staged] > marker_offsets)
    if is_clear.all():
        return np.zeros(len(staged), np.bool_)
    replayed = commits.filter(pa.array(np.isin(codes, codes[staged[~is_clear]])))
    names = ("record_offset", "topic", "partition", "is_tombstone", "producer_id", "is_transactional")
    columns = [pc.fill_null(replayed[name], -1).to_pylist() if name == "producer_id" else replayed[name].to_pylist() for name in names]
    ends = zip(*(markers[name].to_pylist() for name in ("record_offset", "producer_id", "result")), strict=True)
    results = results_of(
        (OffsetRecord(*record) for record in zip(*columns, strict=True)),
        (Marker(record_offset, producer_id, result == "committed") for record_offset, producer_id, result in ends),
        semantics,
    )
    replaced = [offset for offset, result in results.items() if result.result == "replaced"]
    return np.isin(record_offsets[staged], np.array(replaced, np.int64))


def _find_lower(rows: pa.Table, tombstones: Mask, counts: Mask) -> tuple[Longs, Mask, Mask]:
    """The commits of lower offsets.

    Returns:
        For each row: the row of the last commit before it of the same topic partition that counts (-1: none), whether the row commits a
        lower offset than that commit, and whether a tombstone is between the two.
    """
    codes = _codes(rows, ("topic", "partition"))
    considered = np.flatnonzero(counts)
    considered = considered[np.argsort(codes[considered], kind="stable")]
    codes, is_tombstone = codes[considered], tombstones[considered]
    positions = np.arange(len(considered))
    is_new = np.append(True, codes[1:] != codes[:-1]) if len(considered) else np.zeros(0, np.bool_)
    begin = np.maximum.accumulate(np.where(is_new, positions, 0))
    last_value = np.maximum.accumulate(np.where(is_tombstone, _NONE, positions))
    before = np.append(_NONE, last_value[:-1])[: len(considered)]
    has_before = (before >= begin) & ~is_new
    committed = _longs(rows["committed_offset"])[considered]
    lower = has_before & ~is_tombstone
    lower[lower] = committed[lower] < committed[before[lower]]
    previous, is_lower, is_after = np.full(len(rows), _NONE, np.int64), np.zeros(len(rows), np.bool_), np.zeros(len(rows), np.bool_)
    previous[considered[has_before]] = considered[before[has_before]]
    is_lower[considered[lower]] = True
    is_after[considered] = before < positions - 1
    return previous, is_lower, is_after


def _lower_commits(rows: pa.Table, lower: Longs, previous: Longs, is_after_removal: Mask) -> Iterator[LowerCommit]:
    """One LowerCommit for each row in ``lower``."""
    commits, befores = rows.take(pa.array(lower)).to_pylist(), rows.take(pa.array(previous[lower])).to_pylist()
    for commit, before, after_removal in zip(commits, befores, is_after_removal[lower].tolist(), strict=True):
        yield LowerCommit(
            at=commit["at"],
            record_offset=commit["record_offset"],
            time_ms=commit["at_ms"],
            topic=commit["topic"],
            topic_id=commit["topic_id"],
            partition=commit["partition"],
            from_committed_offset=before["committed_offset"],
            to_committed_offset=commit["committed_offset"],
            from_record_offset=before["record_offset"],
            producer_id=commit["producer_id"] if commit["is_transactional"] else None,
            is_after_removal=after_removal,
            is_of_new_topic=None not in (ids := {before["topic_id"], commit["topic_id"]}) and len(ids) == 2,
        )


def _partitions(rows: pa.Table, counts: Mask, pieces: Longs) -> list[list[PartitionStretch]]:
    """For each piece the sums of its rows by topic and partition. ``pieces``: for each row the number of its piece."""
    columns = {
        "piece": pieces,
        "topic": rows["topic"],
        "partition": rows["partition"],
        "committed_offset": pc.if_else(pa.array(counts), rows["committed_offset"], pa.scalar(None, pa.int64())),
        "counts": counts.astype(np.int64),
    }
    sums = [("counts", "sum"), ("counts", "count"), ("committed_offset", "min"), ("committed_offset", "max")]
    grouped = pa.table(columns).group_by(["piece", "topic", "partition"]).aggregate(sums)
    of_pieces: list[list[PartitionStretch]] = [[] for _ in range(int(pieces.max()) + 1)] if len(pieces) else []
    for row in sorted(grouped.to_pylist(), key=lambda one: (one["topic"], one["partition"])):
        of_pieces[row["piece"]].append(
            PartitionStretch(
                topic=row["topic"],
                partition=row["partition"],
                commits=row["counts_sum"],
                replaced=row["counts_count"] - row["counts_sum"],
                lowest=row["committed_offset_min"],
                highest=row["committed_offset_max"],
            )
        )
    return of_pieces


def _accepted(commits: pa.Table, semantics: Semantics) -> Mask:
    """For each record whether the broker's loader accepts its value version (R-1.9)."""
    versions = _longs(commits["value_version"])
    key_versions = _longs(commits["key_version"])
    accepted = np.ones(len(commits), np.bool_)
    for key_version, version in {*zip(key_versions.tolist(), versions.tolist(), strict=True)}:
        if version != _NONE and not semantics.accepts_value(key_version, version):
            accepted &= (versions != version) | (key_versions != key_version)
    return accepted


def _codes(rows: pa.Table, names: Iterable[str]) -> Longs:
    """For each row a number: rows with equal values in all of these columns have the same number."""
    codes = np.zeros(len(rows), np.int64)
    for name in names:
        encoded = rows[name].combine_chunks().dictionary_encode()
        codes = np.unique(codes * (len(encoded.dictionary) + 1) + encoded.indices.to_numpy(), return_inverse=True)[1]
    return codes


def places_of(rows: pa.Table) -> list[Place]:
    """The places of the rows, sorted."""
    return sorted({*map(Place, rows["incarnation"].to_pylist(), rows["offsets_partition"].to_pylist())})


def _is_at(rows: pa.Table, place: Place) -> Mask:
    is_there: Mask = (_longs(rows["incarnation"]) == place.incarnation) & (_longs(rows["offsets_partition"]) == place.offsets_partition)
    return is_there


def _longs(column: pa.ChunkedArray, absent: int = _NONE) -> Longs:
    longs: Longs = pc.fill_null(column.cast(pa.int64()), absent).to_numpy()
    return longs


def _mask(column: pa.ChunkedArray) -> Mask:
    mask: Mask = np.asarray(column.to_numpy(), np.bool_)
    return mask


def _with_nulls(numbers: Longs) -> pa.Array:
    return pa.array(numbers, mask=numbers == _NONE)


def _or_none(number: int, absent: int = _NONE) -> int | None:
    return None if number == absent else int(number)
