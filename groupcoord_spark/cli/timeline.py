"""``groupcoord timeline``: a group's life in order, from the history tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli.options import Common, Moment, cluster_to_read, common_options, say_which_night
from groupcoord_spark.cli.render import lines, write_lines, write_records
from groupcoord_spark.cli.rules import rules_of
from groupcoord_spark.errors import GroupcoordError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from groupcoord_spark.coordinator.removal_causes import GroupRemoval, OwnRecord, Place
    from groupcoord_spark.coordinator.timeline import Event, GroupEnd, Piece
    from groupcoord_spark.warehouse.read import Condition, Warehouse

_UUID: Final = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")

NAMES: Final = ("time", "until", "event", "offsets_partition", "record_offset", "generation", "what", "facts")


@click.command(epilog="Example: groupcoord timeline --group app-range")
@click.option("--group", "group_id", required=True, metavar="GROUP", help="The group.")
@click.option("--from", "from_ms", type=Moment(is_border=True), help="Only events of that moment and later.")
@click.option("--to", "to_ms", type=Moment(is_border=True), help="Only events before that moment.")
@common_options
def timeline(common: Common, group_id: str, from_ms: int | None, to_ms: int | None) -> None:
    """A group's life: commits in stretches, offsets that went back, transactions that do not count, rebalances and removals with their
    causes, and what will expire.

    A stretch of commits ends with another event, or after an hour without a commit; commits in a transaction count from the end of the
    transaction on. Causes are inferred, as in the view tombstone_causes. What compaction took away before the first night with history
    is in no table.
    """
    from groupcoord_spark.warehouse.read import open_warehouse

    if from_ms is not None and to_ms is not None and to_ms <= from_ms:
        raise UsageError("--to is not after --from: no event lies between them.")
    warehouse = open_warehouse(common.warehouse)
    cluster = cluster_to_read(warehouse, common.cluster)
    say_which_night(common, warehouse, warehouse.run(cluster))
    events = _Reader(warehouse, cluster, group_id, from_ms, to_ms).events()
    if common.output == "table":
        cells = [(_iso(event.time_ms), event.event, event.generation, _with_short_ids(event.what)) for _, event in events]
        write_lines(lines(["TIME", "EVENT", "GENERATION", "WHAT"], cells, [24, 10, 10, None]))
        return
    rows = (
        (
            *(_iso(event.time_ms), _iso(event.until_ms), event.event, place, event.record_offset, event.generation, event.what),
            event.facts,
        )
        for place, event in events
    )
    write_records(common.output, NAMES, rows)


class _Reader:
    """Reads what the newest night's tables have of one group."""

    def __init__(self, warehouse: Warehouse, cluster: str, group_id: str, from_ms: int | None, to_ms: int | None) -> None:
        self._warehouse = warehouse
        self._cluster = cluster
        self._group_id = group_id
        self._from_ms = from_ms
        self._to_ms = to_ms

    def events(self) -> list[tuple[int | None, Event]]:
        """Events with their offsets partition, in order. Raises GroupcoordError for a group that no table knows."""
        from groupcoord_spark.answers import offset_history as history
        from groupcoord_spark.answers.removals import removals_of
        from groupcoord_spark.coordinator.timeline import timeline as in_order

        run = self._warehouse.run(self._cluster)
        semantics = rules_of(run)
        commits = self._read("offset_commits", history.COMMIT_COLUMNS)
        markers = history.read_markers(self._warehouse, self._cluster, commits)
        rebalances = self._read("rebalances").to_pylist()
        removals = removals_of(self._warehouse, self._cluster, [self._group_id], commits, markers)
        pending = {tuple(row.values()) for row in self._read("pending_offsets", history.PENDING_COLUMNS).to_pylist()}
        if not (commits.num_rows or rebalances or removals.groups):
            self._explain_nothing()
        events: list[tuple[int | None, Event]] = []
        for place in sorted({*history.places_of(commits), *map(_place, rebalances), *(record.place for record, _ in removals.groups)}):
            of_place, markers_of_place = history.of_place(commits, place), history.of_place(markers, place)
            counted = history.counted_commits(of_place, markers_of_place, semantics, pending, self._to_ms)
            rebalances_of_place = [_with_milliseconds(row) for row in rebalances if _place(row) == place]
            ends = [_end(record, removal) for record, removal in removals.groups if record.place == place]
            borders = {row["record_offset"] for row in rebalances_of_place} | {end.record_offset for end in ends}
            borders |= {transaction.at for transaction in counted.transactions}
            of_offsets = {record_offset: removal for (where, record_offset), removal in removals.offsets.items() if where == place}
            pieces = history.pieces_of(counted.rows, borders, of_offsets, self._from_ms, self._to_ms)
            in_place = in_order(
                [*self._with_evidence(pieces, place), *counted.transactions],
                rebalances_of_place,
                ends,
                retention_ms=run.retention_ms,
                from_ms=self._from_ms,
                to_ms=self._to_ms,
            )
            events += [(place.offsets_partition, event) for event in in_place]
        if not events:
            raise GroupcoordError(f"No record of group {self._group_id!r} lies between --from and --to in {self._where()}.")
        if self._to_ms is None:
            events += [(None, event) for event in self._expiries()]
        return events

    def _read(self, table: str, columns: Sequence[str] | None = None, where: Sequence[Condition] = ()) -> pa.Table:
        return self._warehouse.read(table, cluster=self._cluster, columns=columns, where=[("group_id", "=", self._group_id), *where])

    def _with_evidence(self, pieces: Sequence[Piece], place: Place) -> list[Piece]:
        """The pieces; commits of a lower offset with the partition's owner, and whether commits in between may be missing."""
        from groupcoord_spark.answers.offset_history import with_gaps, with_owners
        from groupcoord_spark.coordinator.partition_owners import KEY_TYPES
        from groupcoord_spark.coordinator.timeline import LowerCommit

        lower = [piece for piece in pieces if isinstance(piece, LowerCommit)]
        if not lower:
            return list(pieces)
        of_place: list[Condition] = [("incarnation", "=", place.incarnation), ("offsets_partition", "=", place.offsets_partition)]
        columns = ["run_id", "first_offset", "end_offset"]
        ranges = self._warehouse.read("surviving_records", cluster=self._cluster, columns=columns, where=of_place).to_pylist()
        age = {run.run_id: number for number, run in enumerate(self._warehouse.finished_runs(self._cluster))}
        ranges.sort(key=lambda row: age.get(row["run_id"], -1))
        lower = with_gaps(lower, [(row["run_id"], row["first_offset"], row["end_offset"]) for row in ranges])
        columns = ["record_offset", "key_type", "member_id", "value_json"]
        records = self._read("group_records", columns, [*of_place, ("key_type", "in", list(KEY_TYPES))])
        with_all = iter(with_owners(lower, records))
        return [next(with_all) if isinstance(piece, LowerCommit) else piece for piece in pieces]

    def _expiries(self) -> Iterator[Event]:
        from groupcoord_spark.coordinator.timeline import Expiry, expiries

        rows = []
        for row in self._read("offset_expirations", ["expires_at", "rule", "topic", "partition"]).to_pylist():
            if row["expires_at"] is not None:
                rows.append(Expiry(_milliseconds(row["expires_at"]) or 0, row["rule"], row["topic"], row["partition"]))
        for row in self._read("group_expirations", ["removed_at", "rule"]).to_pylist():
            if row["removed_at"] is not None:
                rows.append(Expiry(_milliseconds(row["removed_at"]) or 0, row["rule"] or "", None, None))
        yield from expiries(rows, self._warehouse.run(self._cluster).as_of_ms)

    def _where(self) -> str:
        return f"cluster {self._cluster!r} of {self._warehouse.location.uri}"

    def _explain_nothing(self) -> None:
        if self._read("groups", ["group_id"]).num_rows:
            raise GroupcoordError(
                f"The history tables have no record of group {self._group_id!r} in {self._where()}: its nights were run with --no-history."
            )
        raise GroupcoordError(f"Group {self._group_id!r} is in no record of {self._where()}. `groupcoord list` names those that exist.")


def _with_short_ids(text: str) -> str:
    """Member ids end in a UUID: its beginning tells them apart, for people."""
    return _UUID.sub(r"\1…", text)


def _place(row: dict[str, Any]) -> Place:
    from groupcoord_spark.coordinator.removal_causes import Place

    return Place(row["incarnation"], row["offsets_partition"])


def _with_milliseconds(row: dict[str, Any]) -> dict[str, Any]:
    left_out = ("cluster", "group_id", "record_timestamp", "timestamps_out_of_range", "offsets_partition", "incarnation")
    fields = {name: value for name, value in row.items() if name not in left_out}
    return {**fields, "timestamp_ms": _milliseconds(row["record_timestamp"])}


def _end(record: OwnRecord, removal: GroupRemoval) -> GroupEnd:
    from groupcoord_spark.coordinator.timeline import GroupEnd

    return GroupEnd(record.record_offset, record.timestamp_ms, record.key_type, removal)


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _iso(milliseconds: int | None) -> str | None:
    from groupcoord_spark.coordinator.timeline import iso

    return None if milliseconds is None else iso(milliseconds)
