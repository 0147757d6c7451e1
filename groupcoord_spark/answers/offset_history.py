"""The commits of a group from the history tables, in the order in which they counted for the coordinator."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.answers.partition_owners import PartitionOwners
from groupcoord_spark.answers.removals import OffsetRemoval, Place
from groupcoord_spark.answers.replaced_commits import Marker, OffsetRecord, replaced_commits
from groupcoord_spark.answers.timeline import LowerCommit, PartitionStretch, RemovedOffsets, Stretch, Transaction
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.warehouse import Condition, Warehouse

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

PAUSE_MS: Final = 3_600_000
"""After a longer pause than this, commits belong to another stretch."""

COMMIT_COLUMNS: Final = (
    *("cluster", "incarnation", "offsets_partition", "record_offset", "record_timestamp", "group_id", "topic", "topic_id", "partition"),
    *("committed_offset", "commit_timestamp", "expire_timestamp", "key_version", "value_version", "is_tombstone", "producer_id"),
    "is_transactional",
)
"""Columns of offset_commits that these functions read."""

PENDING_COLUMNS: Final = ("record_offset", "topic", "partition", "producer_id")
"""Columns of pending_offsets, in the order of a ``PendingKey``."""

_MARKER_COLUMNS: Final = ("cluster", "incarnation", "offsets_partition", "record_offset", "record_timestamp", "producer_id", "result")
_MAX_PRODUCERS_IN_FILTER: Final = 1_000
"""With more producers it is faster to read all markers than to filter by producer id."""

# The first marker of the producer after a commit ends its transaction, whatever the producer epoch.
_STEPS: Final = """
CREATE TEMP TABLE steps AS
SELECT *, is_transactional AND NOT is_tombstone AS is_staged
FROM (
  SELECT c.* REPLACE ({is_transactional} AS is_transactional), epoch_ms(c.record_timestamp) AS written_ms,
    m.record_offset AS marker_offset, epoch_ms(m.record_timestamp) AS marker_ms, m.result,
    LEAD(c.record_offset) OVER (PARTITION BY topic, partition ORDER BY c.record_offset) AS following
  FROM commits c ASOF LEFT JOIN markers m ON c.producer_id = m.producer_id AND c.record_offset < m.record_offset
)
"""

# Only offsets that have another record between a commit and its marker are replayed.
_REPLAYED: Final = """
SELECT record_offset, topic, partition, is_tombstone, COALESCE(producer_id, -1), is_transactional FROM commits
WHERE (topic, partition) IN (SELECT (topic, partition) FROM steps WHERE is_staged AND following < COALESCE(marker_offset, following + 1))
"""

# A marker at to_ms or later has not come yet.
_PLACED: Final = """
CREATE TEMP TABLE placed AS
SELECT *, has_ended AND result = 'committed' OR NOT is_staged AS is_decided,
  CASE WHEN has_ended THEN marker_offset ELSE record_offset END AS counted_offset,
  CASE WHEN has_ended THEN marker_ms ELSE written_ms END AS counted_ms
FROM (
  SELECT *, is_staged AND record_offset IN (SELECT unnest($replaced)) AS is_replaced,
    is_staged AND marker_offset IS NOT NULL AND ($to_ms IS NULL OR COALESCE(marker_ms, -1) < $to_ms) AS has_ended
  FROM steps
)
"""

# A transactional tombstone removes a commit of its own transaction and no committed offset where the semantics say so.
_COUNTED: Final = """
SELECT counted_offset, counted_ms, record_offset, topic, partition, committed_offset, topic_id, producer_id, is_tombstone, is_transactional,
  counted_ms - written_ms AS waited_ms, NOT is_replaced AS counts
FROM placed WHERE is_decided AND NOT (is_transactional AND is_tombstone AND $tombstones_drop_own)
ORDER BY counted_offset, record_offset
"""

_UNDECIDED: Final = """
SELECT producer_id, marker_offset, is_replaced AND NOT has_ended AS is_replaced, counted_offset, record_offset, written_ms, marker_ms,
  has_ended, result, topic, partition, committed_offset
FROM placed WHERE NOT is_decided ORDER BY record_offset
"""

# A piece begins at a lower commit and behind it, where another event or a pause lies between, and where the cause of a removal changes.
_PIECES: Final = """
WITH valued AS (
  SELECT *,
    LAST_VALUE(
      CASE WHEN counts AND NOT is_tombstone
        THEN {'committed_offset': committed_offset, 'record_offset': record_offset, 'topic_id': topic_id} END
      IGNORE NULLS
    ) OVER earlier AS previous,
    LAST_VALUE(CASE WHEN counts THEN is_tombstone END IGNORE NULLS) OVER earlier AS is_after_removal
  FROM counted
  WINDOW earlier AS (PARTITION BY topic, partition ORDER BY counted_offset, record_offset ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
removed AS (SELECT unnest($removed) AS record_offset, unnest($causes) AS cause),
borders AS (SELECT unnest($borders) AS border),
shown AS (
  SELECT v.*, COALESCE(counts AND NOT is_tombstone AND committed_offset < previous.committed_offset, FALSE) AS is_lower, b.border,
    CASE WHEN is_tombstone THEN {'cause': r.cause, 'counted_ms': counted_ms} END AS removal
  FROM valued v
  LEFT JOIN removed r ON r.record_offset = v.record_offset
  ASOF LEFT JOIN borders b ON b.border < v.counted_offset
  WHERE ($from_ms IS NULL OR counted_ms >= $from_ms) AND ($to_ms IS NULL OR counted_ms < $to_ms)
),
begun AS (
  SELECT *,
    is_lower OR COALESCE(LAG(is_lower) OVER in_order, TRUE) OR border IS DISTINCT FROM LAG(border) OVER in_order
    OR removal IS DISTINCT FROM LAG(removal) OVER in_order
    OR COALESCE(counted_ms, -1) - LAG(COALESCE(counted_ms, -1)) OVER in_order > $pause_ms AS begins
  FROM shown WINDOW in_order AS (ORDER BY counted_offset, record_offset)
),
numbered AS (
  SELECT *, COUNT(*) FILTER (begins) OVER (ORDER BY counted_offset, record_offset ROWS UNBOUNDED PRECEDING) AS piece FROM begun
),
partitions AS (
  SELECT piece, LIST(
    {'topic': topic, 'partition': partition, 'commits': commits, 'replaced': replaced, 'lowest': lowest, 'highest': highest}
    ORDER BY topic, partition
  ) AS partitions
  FROM (
    SELECT piece, topic, partition, COUNT(*) FILTER (counts) AS commits, COUNT(*) FILTER (NOT counts) AS replaced,
      MIN(committed_offset) FILTER (counts) AS lowest, MAX(committed_offset) FILTER (counts) AS highest
    FROM numbered GROUP BY piece, topic, partition
  ) GROUP BY piece
),
pieces AS (
  SELECT piece, MIN(counted_offset) AS counted_offset, FIRST(record_offset ORDER BY counted_offset, record_offset) AS record_offset,
    FIRST(counted_ms ORDER BY counted_offset, record_offset) AS counted_ms,
    CASE WHEN BOOL_OR(counts) THEN MIN(counted_ms) FILTER (counts) ELSE MIN(counted_ms) END AS from_ms,
    CASE WHEN BOOL_OR(counts) THEN MAX(counted_ms) FILTER (counts) ELSE MAX(counted_ms) END AS until_ms,
    COUNT(*) FILTER (is_transactional AND counts) AS in_transactions, GREATEST(COALESCE(MAX(waited_ms), 0), 0) AS longest_wait_ms,
    LAST(record_offset ORDER BY counted_offset, record_offset) AS last_record_offset,
    LIST(record_offset ORDER BY counted_offset, record_offset) FILTER (is_tombstone) AS tombstones,
    FIRST({
      'topic': topic, 'topic_id': topic_id, 'partition': partition, 'from_committed_offset': previous.committed_offset,
      'to_committed_offset': committed_offset, 'from_record_offset': previous.record_offset,
      'producer_id': CASE WHEN is_transactional THEN producer_id END, 'is_after_removal': is_after_removal,
      'is_of_new_topic': COALESCE(topic_id <> previous.topic_id, FALSE)
    }) FILTER (is_lower) AS lower
  FROM numbered GROUP BY piece
)
SELECT * EXCLUDE (piece) FROM pieces JOIN partitions USING (piece) ORDER BY piece
"""

PendingKey = tuple[int, str, int, int]
"""(record offset, topic, partition, producer id) of a pending offset in the newest run."""


class CountedCommits(NamedTuple):
    """The offset records of one group in one place, in the order in which they count."""

    rows: pa.Table
    """Commits and tombstones with these columns: counted_offset (record offset from which the commit counts: its own, or that of the
    marker of its transaction), counted_ms (time of that record), record_offset, topic, topic_id, partition, committed_offset (NULL: a
    tombstone), producer_id, is_tombstone, is_transactional, waited_ms (time from the commit to the marker), counts (False: a later commit
    or a tombstone of the offset came before the marker)."""
    transactions: list[Transaction]
    """Transactions whose commits do not count, or do not count yet. Their commits are not in ``rows``."""


def read_markers(warehouse: Warehouse, cluster: str, commits: pa.Table) -> pa.Table:
    """Read the rows of ``transactions`` with the markers of these commits' producers."""
    producers = pc.unique(commits["producer_id"]).drop_null().to_pylist()
    where: list[Condition] = [("offsets_partition", "in", pc.unique(commits["offsets_partition"]).to_pylist())]
    if len(producers) <= _MAX_PRODUCERS_IN_FILTER:
        where.append(("producer_id", "in", producers))
    return warehouse.read("transactions", cluster=cluster, columns=_MARKER_COLUMNS, where=where)


def of_place(rows: pa.Table, place: Place) -> pa.Table:
    """Return the rows of one place."""
    is_there = (pc.equal(rows[name], number) for name, number in place._asdict().items())
    return rows.filter(pc.and_(*is_there))


@cache
def _database() -> DuckDBPyConnection:
    """Return an empty database, which is kept: DuckDB takes longer to make one than most statements take."""
    import duckdb

    return duckdb.connect()


@contextmanager
def duckdb_over(**tables: pa.Table) -> Iterator[DuckDBPyConnection]:
    """Open a connection of DuckDB to these tables. Everything created through it must be temporary."""
    with _database().cursor() as connection:
        for name, rows in tables.items():
            connection.register(name, rows)
        yield connection


def counted_commits(
    commits: pa.Table, markers: pa.Table, semantics: Semantics, pending: Collection[PendingKey], to_ms: int | None = None
) -> CountedCommits:
    """Return the offset records of one group in one place, with the results of their transactions.

    Args:
        commits: Rows of offset_commits (``COMMIT_COLUMNS``) of one group and place.
        markers: From ``read_markers``, of the same place.
        semantics: Of the broker that loads the records.
        pending: Pending offsets of the newest run.
        to_ms: A transaction that ended at this time or later counts as open; None: no limit.
    """
    is_transactional = "c.producer_id IS NOT NULL" if semantics.producer_id_means_transaction else "c.is_transactional"
    with duckdb_over(commits=_accepted(commits, semantics), markers=markers) as connection:
        connection.execute(_STEPS.format(is_transactional=is_transactional))
        records = [OffsetRecord(*row) for row in connection.execute(_REPLAYED).fetchall()]
        ends = connection.execute("SELECT record_offset, producer_id, result = 'committed' FROM markers").fetchall() if records else []
        replaced = replaced_commits(records, (Marker(*end) for end in ends), semantics)
        connection.execute(_PLACED, {"replaced": sorted(replaced), "to_ms": to_ms})
        rows = connection.sql(_COUNTED, params={"tombstones_drop_own": semantics.transactional_tombstone_drops_own}).to_arrow_table()
        of_transactions: dict[tuple[int, int | None, bool], list[dict[str, Any]]] = {}
        for commit in connection.sql(_UNDECIDED).to_arrow_table().to_pylist():
            of_transactions.setdefault((commit["producer_id"], commit["marker_offset"], commit["is_replaced"]), []).append(commit)
    return CountedCommits(rows, [_transaction(of_transaction, pending) for of_transaction in of_transactions.values()])


def _transaction(commits: Sequence[Mapping[str, Any]], pending: Collection[PendingKey]) -> Transaction:
    """Yield the transactions of commits that do not count, or do not count yet, in order."""
    first = commits[0]
    marker_offset, producer_id = first["marker_offset"], first["producer_id"]
    keys = [(commit["record_offset"], commit["topic"], commit["partition"]) for commit in commits]
    is_pending = marker_offset is not None or any((*key, producer_id) in pending for key in keys)
    committed: dict[tuple[str, int], list[int]] = {}
    for commit in commits:
        committed.setdefault((commit["topic"], commit["partition"]), []).append(commit["committed_offset"])
    return Transaction(
        at=first["counted_offset"],
        record_offset=first["record_offset"],
        producer_id=producer_id,
        result="aborted" if first["has_ended"] else "replaced" if first["is_replaced"] else "open" if is_pending else "unknown",
        since_ms=first["written_ms"],
        ended_ms=first["marker_ms"],
        ended_later=None if first["has_ended"] else first["result"],
        partitions=[PartitionStretch(*place, len(of), 0, min(of), max(of)) for place, of in sorted(committed.items())],
        commits=keys,
        marker_offset=marker_offset,
    )


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
    causes = [
        f"{removal.cause} {removal.due_by} {removal.topic if removal.cause == 'topic_deleted' else ''}" for removal in removals.values()
    ]
    parameters = {"removed": list(removals), "causes": causes, "borders": sorted(borders), "pause_ms": PAUSE_MS}
    with duckdb_over(counted=rows) as connection:
        piece_rows = connection.sql(_PIECES, params={**parameters, "from_ms": from_ms, "to_ms": to_ms}).to_arrow_table().to_pylist()
    pieces: list[Stretch | LowerCommit | RemovedOffsets] = []
    for piece in piece_rows:
        at, record_offset, time_ms = piece["counted_offset"], piece["record_offset"], piece["counted_ms"]
        partitions = [PartitionStretch(**of_partition) for of_partition in piece["partitions"]]
        if piece["lower"] is not None:
            pieces.append(LowerCommit(at=at, record_offset=record_offset, time_ms=time_ms, **piece["lower"]))
        elif piece["tombstones"]:
            pieces.append(RemovedOffsets(at, record_offset, time_ms, partitions, [removals[offset] for offset in piece["tombstones"]]))
        else:
            times, waits = (piece["from_ms"], piece["until_ms"]), (piece["in_transactions"], piece["longest_wait_ms"])
            pieces.append(Stretch(at, record_offset, *times, *waits, partitions, piece["last_record_offset"]))
    return pieces


def with_gaps(commits: Sequence[LowerCommit], survivors: Sequence[tuple[str, int, int]]) -> list[LowerCommit]:
    """Set ``may_miss_commits`` where records since the previous commit were compacted away before a run read them.

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
    """Add the member that had the partition at the time of each commit.

    Args:
        commits: Of one place.
        records: record_offset, key_type, member_id and value_json of the group's records of ``partition_owners.KEY_TYPES``, of the same
            place.
    """
    owners = PartitionOwners()
    rows = iter(records.take(pc.sort_indices(records, sort_keys=[("record_offset", "ascending")])).to_pylist())
    row = next(rows, None)
    owned: dict[int, LowerCommit] = {}
    for commit in sorted(commits, key=lambda commit: commit.record_offset):
        while row is not None and row["record_offset"] < commit.record_offset:
            owners.apply(row["key_type"], row["member_id"], None if row["value_json"] is None else json.loads(row["value_json"]))
            row = next(rows, None)
        owner = owners.owner_of(commit.topic, commit.topic_id, commit.partition)
        owned[commit.record_offset] = commit._replace(owner=owner)
    return [owned[commit.record_offset] for commit in commits]


def _accepted(commits: pa.Table, semantics: Semantics) -> pa.Table:
    """Return the tombstones, and the records whose value version the broker's loader accepts (R-1.9)."""
    for versions in commits.filter(pc.invert(commits["is_tombstone"])).group_by(["key_version", "value_version"]).aggregate([]).to_pylist():
        if not semantics.accepts_value(versions["key_version"], versions["value_version"]):
            is_refused = (pc.fill_null(pc.equal(commits[name], version), False) for name, version in versions.items())
            commits = commits.filter(pc.invert(pc.and_(*is_refused)))
    return commits
