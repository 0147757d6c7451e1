"""All that the history tables have of one group, place by place: commits, transactions, rebalances and removals with their causes."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.answers import offset_history as history
from groupcoord_spark.answers.partition_owners import KEY_TYPES
from groupcoord_spark.answers.removals import GroupRemoval, OffsetRemoval, Place, not_judged, removals_of
from groupcoord_spark.answers.run_changes import run_changes
from groupcoord_spark.answers.timeline import Event, EventKind, Expiry, Jump, LowerCommit, Piece, Transaction, expiries, iso, timeline
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.warehouse import Condition, Warehouse

_OF_SHARE: Final[Mapping[str, EventKind]] = {"share_reset": "share_reset", "share_gone": "share_removed"}
"""Change -> event."""


class Question(NamedTuple):
    """The group that is asked about, and the part of its history."""

    cluster: str
    group_id: str
    topic: str | None = None
    """Commits of this topic only; None: of every topic."""
    partition: int | None = None
    """Commits of this partition of the topic only; None: of every partition."""
    from_ms: int | None = None
    """First time of the events; None: all events."""
    to_ms: int | None = None
    """End of the time of the events; None: all events."""

    def asks_about(self, topic: str, partition: int) -> bool:
        """Return whether the question includes commits of the partition."""
        return self.topic in (None, topic) and self.partition in (None, partition)


class PlaceHistory(NamedTuple):
    """The history of one group in one offsets partition of one incarnation of ``__consumer_offsets``."""

    place: Place
    commits: pa.Table
    """``CountedCommits.rows``."""
    pieces: Sequence[Piece]
    """Commits, transactions and removals in order."""
    rebalances: Sequence[Mapping[str, Any]]
    """Rows of the table rebalances in order, with ``timestamp_ms``."""
    ends: Sequence[GroupRemoval]
    """Tombstones of the group."""
    removals: Mapping[int, OffsetRemoval]
    """Record offset of the tombstone of an offset -> cause. Of every partition, also of those that the question is not about."""

    def events(self, question: Question, retention_ms: int | None) -> Iterator[Event]:
        """Yield the events of the place in order."""
        limits = {"from_ms": question.from_ms, "to_ms": question.to_ms}
        return timeline(self.pieces, self.rebalances, self.ends, retention_ms=retention_ms, **limits)


def group_history(warehouse: Warehouse, question: Question, semantics: Semantics) -> list[PlaceHistory]:
    """Return the history of a group as of the newest run, place by place; empty if the history tables have no record of it.

    semantics: Of the broker that loads the records.
    """
    all_commits = rows_of(warehouse, question, "offset_commits", history.COMMIT_COLUMNS)
    markers = history.read_markers(warehouse, question.cluster, all_commits)
    removals = removals_of(warehouse, question.cluster, [question.group_id])
    rebalances = rows_of(warehouse, question, "rebalances").to_pylist()
    events = _events_by_place(warehouse, question)
    pending = {tuple(row.values()) for row in rows_of(warehouse, question, "pending_offsets", history.PENDING_COLUMNS).to_pylist()}
    commits = all_commits
    if question.topic is not None:
        commits = commits.filter(pc.equal(commits["topic"], question.topic))
    if question.partition is not None:
        commits = commits.filter(pc.equal(commits["partition"], question.partition))
    columns = ["producer_id", "transactional_id"]
    names = warehouse.read("transactional_ids", cluster=question.cluster, columns=columns)
    transactional_ids = dict(zip(*(names[column].to_pylist() for column in columns), strict=True))
    of_commits = map(Place, commits["incarnation"].to_pylist(), commits["offsets_partition"].to_pylist())
    places = {*of_commits, *map(Place.of, rebalances), *(removal.place for removal in removals.groups)}
    histories = []
    for place in _by_time(places, commits, rebalances):
        of_place, markers_of_place = history.of_place(commits, place), history.of_place(markers, place)
        counted = history.counted_commits(of_place, markers_of_place, semantics, pending, question.to_ms)
        rebalances_of_place = [_with_milliseconds(row) for row in rebalances if Place.of(row) == place]
        rebalances_of_place.sort(key=lambda row: row["record_offset"])
        ends = [removal for removal in removals.groups if removal.place == place]
        borders = {row["record_offset"] for row in rebalances_of_place} | {end.record_offset for end in ends}
        borders |= {transaction.at for transaction in counted.transactions}
        of_offsets = {removal.record_offset: removal for removal in removals.offsets if removal.place == place}
        for removal in not_judged(place, question.group_id, counted.rows, of_offsets):
            of_offsets[removal.record_offset] = removal
        pieces: list[Piece] = [*history.pieces_of(counted.rows, borders, of_offsets, question.from_ms, question.to_ms)]
        pieces = [*_with_evidence(warehouse, question, pieces, place), *counted.transactions]
        pieces = [_with_transactional_id(piece, transactional_ids) for piece in pieces]
        pieces = [*(_with_cause(piece, events.get(place, {})) for piece in pieces), *_jumps(question, events.get(place, {}))]
        histories.append(PlaceHistory(place, counted.rows, pieces, rebalances_of_place, ends, of_offsets))
    return histories


def _by_time(places: Collection[Place], commits: pa.Table, rebalances: Sequence[Mapping[str, Any]]) -> list[Place]:
    """Sort places by their first record: a group is in another offsets partition after the topic got more of them."""
    if len(places) < 2:
        return [*places]
    first: dict[Place, float] = {}
    for row in (*commits.select(["incarnation", "offsets_partition", "record_timestamp"]).to_pylist(), *rebalances):
        if row["record_timestamp"] is not None:
            first[Place.of(row)] = min(first.get(Place.of(row), inf), row["record_timestamp"].timestamp())
    return sorted(places, key=lambda place: (place.incarnation, first.get(place, inf), place))


_EventRows = Mapping[int, Sequence[Mapping[str, Any]]]
"""Record offset -> rows of offset_events."""


def _events_by_place(warehouse: Warehouse, question: Question) -> dict[Place, dict[int, list[Mapping[str, Any]]]]:
    """Return the rewinds, skips and copies of the group, by place and record offset."""
    events: dict[Place, dict[int, list[Mapping[str, Any]]]] = {}
    for row in rows_of(warehouse, question, "offset_events", where=[("kind", "in", ["rewound", "skipped", "moved"])]).to_pylist():
        events.setdefault(Place.of(row), {}).setdefault(row["record_offset"], []).append(row)
    return events


def _with_cause(piece: Piece, events: _EventRows) -> Piece:
    """Add the cause to a commit of a lower offset; return any other piece unchanged."""
    if not isinstance(piece, LowerCommit):
        return piece
    row = next((row for row in events.get(piece.record_offset, ()) if row["kind"] == "rewound"), None)
    return piece if row is None else piece._replace(**{name: row[name] for name in ("cause", "certainty", "evidence")})


def _jumps(question: Question, events: _EventRows) -> Iterator[Jump]:
    """Return the skips of the group, and its copies of another group's offsets."""
    for row in (row for rows in events.values() for row in rows):
        if row["kind"] != "rewound" and question.asks_about(row["topic"], row["partition"]):
            values = {name: row[name] for name in Jump._fields if name not in ("at", "time_ms")}
            yield Jump(at=row["record_offset"], time_ms=milliseconds(row["event_timestamp"]), **values)


def _with_transactional_id(piece: Piece, transactional_ids: Mapping[int, str]) -> Piece:
    """Return the piece with the transactional id of its producer, if the log of transactions contains it."""
    if isinstance(piece, Transaction | LowerCommit) and piece.producer_id is not None:
        return piece._replace(transactional_id=transactional_ids.get(piece.producer_id))
    return piece


def rows_of(
    warehouse: Warehouse, question: Question, table: str, columns: Sequence[str] | None = None, where: Sequence[Condition] = ()
) -> pa.Table:
    """Return the rows of the group in a table."""
    return warehouse.read(table, cluster=question.cluster, columns=columns, where=[("group_id", "=", question.group_id), *where])


def expiry_events(warehouse: Warehouse, question: Question) -> Iterator[Event]:
    """Yield the upcoming expirations of the group and of the queried partitions, the earliest first."""
    rows = []
    for row in rows_of(warehouse, question, "offset_expirations", ["expires_at", "rule", "topic", "partition"]).to_pylist():
        if row["expires_at"] is not None and question.asks_about(row["topic"], row["partition"]):
            rows.append(Expiry(milliseconds(row["expires_at"]) or 0, row["rule"], row["topic"], row["partition"]))
    for row in rows_of(warehouse, question, "group_expirations", ["removed_at", "rule"]).to_pylist():
        if row["removed_at"] is not None:
            rows.append(Expiry(milliseconds(row["removed_at"]) or 0, row["rule"] or "", None, None))
    yield from expiries(rows, warehouse.run(question.cluster).as_of_ms)


def share_events(warehouse: Warehouse, question: Question) -> Iterator[Event]:
    """Yield the changes of a share group's positions between runs: reset or altered, deleted, or removed with the topic.

    The history tables have no records of ``__share_group_state``, so an event has the time of the first run that shows it.
    """
    last_run = warehouse.run(question.cluster)
    if not warehouse.read("share_offsets", columns=["partition"], run=last_run).num_rows:
        return
    for earlier_run, run in pairwise(warehouse.kept_runs(last_run)):
        for change in run_changes(warehouse, earlier_run, run, question.group_id):
            if change.change not in _OF_SHARE or not question.asks_about(change.topic or "", change.partition or 0):
                continue
            between = f"between the runs of {iso(earlier_run.as_of_ms)} and {iso(run.as_of_ms)}"
            if change.change == "share_reset":
                clause = f"went back from {change.before} to {change.after} {between}: the start offset was reset or altered"
            else:
                why = {"topic_deleted": "with its topic, which was deleted", "group_deleted": "with the group, by a request"}
                clause = f"was removed {between}, {why.get(change.why or '', 'by a request or with its topic')}"
            facts = {"topic": change.topic, "partition": change.partition, "from": change.before, "to": change.after, "why": change.why}
            kind = _OF_SHARE[change.change]
            yield Event(run.as_of_ms, None, kind, None, None, f"{change.topic} {change.partition}: {clause}.", facts)


def milliseconds(moment: datetime | None) -> int | None:
    """Convert a TIMESTAMP to epoch milliseconds, or NULL to None."""
    return None if moment is None else round(moment.timestamp() * 1000)


def _with_evidence(warehouse: Warehouse, question: Question, pieces: Sequence[Piece], place: Place) -> list[Piece]:
    """Return the pieces with evidence for lower commits: the partition's owner, and whether commits in between may be missing."""
    lower = [piece for piece in pieces if isinstance(piece, LowerCommit)]
    if not lower:
        return list(pieces)
    of_place: list[Condition] = [("incarnation", "=", place.incarnation), ("offsets_partition", "=", place.offsets_partition)]
    columns = ["run_id", "first_offset", "end_offset"]
    ranges = warehouse.read("surviving_records", cluster=question.cluster, columns=columns, where=of_place).to_pylist()
    age = {run.run_id: number for number, run in enumerate(warehouse.finished_runs(question.cluster))}
    ranges.sort(key=lambda row: age.get(row["run_id"], -1))
    read_ranges = [(row["run_id"], row["first_offset"], row["end_offset"]) for row in ranges]
    lower = history.with_gaps(lower, [*read_ranges, *_ranges_of_history(warehouse, question, of_place, lower)])
    columns = ["record_offset", "key_type", "member_id", "value_json"]
    records = rows_of(warehouse, question, "group_records", columns, [*of_place, ("key_type", "in", list(KEY_TYPES))])
    with_all = iter(history.with_owners(lower, records))
    return [next(with_all) if isinstance(piece, LowerCommit) else piece for piece in pieces]


def _ranges_of_history(
    warehouse: Warehouse, question: Question, of_place: Sequence[Condition], lower: Sequence[LowerCommit]
) -> Iterator[tuple[str, int, int]]:
    """Yield the ranges of record offsets in the history between each lower commit and the one before.

    A run that goes on from the last run reads new records alone, and so has no rows of surviving_records.
    """
    first, last = min(commit.from_record_offset for commit in lower), max(commit.record_offset for commit in lower)
    where = [*of_place, ("record_offset", ">=", first), ("record_offset", "<=", last)]
    tables = ("offset_commits", "group_records", "transactions")
    columns = [warehouse.read(table, cluster=question.cluster, columns=["record_offset"], where=where)["record_offset"] for table in tables]
    offsets = np.unique(np.concatenate([column.to_numpy() for column in columns]))
    begins = np.flatnonzero(np.append(True, offsets[1:] > offsets[:-1] + 1))
    ends = offsets[np.append(begins[1:], len(offsets)) - 1] + 1
    yield from ((f"history from {begin}", int(begin), int(end)) for begin, end in zip(offsets[begins], ends, strict=True))


def _with_milliseconds(row: Mapping[str, Any]) -> dict[str, Any]:
    left_out = ("cluster", "group_id", "record_timestamp", "timestamps_out_of_range", "offsets_partition", "incarnation")
    fields = {name: value for name, value in row.items() if name not in left_out}
    return {**fields, "timestamp_ms": milliseconds(row["record_timestamp"])}
