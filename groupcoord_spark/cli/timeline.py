"""``groupcoord timeline``: a group's life in order, from the history tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli.options import Common, Moment, cluster_to_read, common_options
from groupcoord_spark.cli.render import lines, write_lines, write_records
from groupcoord_spark.errors import GroupcoordError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from groupcoord_spark.coordinator.timeline import Event, GroupEnd, PartitionStretch, Stretch
    from groupcoord_spark.warehouse.read import Condition, Warehouse

GROUP_KEYS: Final = (2, 3, 11, 17)
"""Types of the records whose tombstone ends a group."""

PAUSE_MS: Final = 3_600_000
"""A silence after which commits count as another stretch."""

_UUID: Final = re.compile(r"\b([0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")

NAMES: Final = ("time", "until", "event", "offsets_partition", "record_offset", "generation", "what", "facts")


@click.command(epilog="Example: groupcoord timeline --group app-range")
@click.option("--group", "group_id", required=True, metavar="GROUP", help="The group.")
@click.option("--from", "from_ms", type=Moment(is_border=True), help="Only records of that moment and later.")
@click.option("--to", "to_ms", type=Moment(is_border=True), help="Only records before that moment.")
@common_options
def timeline(common: Common, group_id: str, from_ms: int | None, to_ms: int | None) -> None:
    """A group's life: commits in stretches, rebalances with their causes, what was removed, what is to expire.

    A stretch of commits ends with another event, or after an hour without one. What compaction took away before the first night with
    history is in no table.
    """
    from groupcoord_spark.warehouse.read import open_warehouse

    if from_ms is not None and to_ms is not None and to_ms <= from_ms:
        raise UsageError("--to is not after --from: no record lies between them.")
    warehouse = open_warehouse(common.warehouse)
    found = list(_Reader(warehouse, cluster_to_read(warehouse, common.cluster), group_id, from_ms, to_ms).events())
    if common.output == "table":
        cells = [(_iso(event.time_ms), event.event, event.generation, _with_short_ids(event.what)) for _, event in found]
        write_lines(lines(["TIME", "EVENT", "GENERATION", "WHAT"], cells, [24, 10, 10, None]))
        return
    rows = (
        (
            *(_iso(event.time_ms), _iso(event.until_ms), event.event, place, event.record_offset, event.generation, event.what),
            event.facts,
        )
        for place, event in found
    )
    write_records(common.output, NAMES, rows)


class _Reader:
    """Reads what the newest night's tables hold of one group."""

    def __init__(self, warehouse: Warehouse, cluster: str, group_id: str, from_ms: int | None, to_ms: int | None) -> None:
        self._warehouse = warehouse
        self._cluster = cluster
        self._group_id = group_id
        bounds = ((">=", from_ms), ("<", to_ms))
        self._range: list[Condition] = [("record_timestamp", sign, _moment(at)) for sign, at in bounds if at is not None]
        self._is_open_ended = to_ms is None

    def events(self) -> Iterator[tuple[int | None, Event]]:
        """Events with their offsets partition, in order. Raises GroupcoordError for a group that no table knows."""
        from groupcoord_spark.coordinator.timeline import timeline as in_order

        commits = self._read("offset_commits", list(_COMMIT_COLUMNS), self._range)
        rebalances = self._read("rebalances", None, self._range).to_pylist()
        is_end: list[Condition] = [*self._range, ("key_type", "in", list(GROUP_KEYS)), ("is_tombstone", "=", True)]
        ends = self._read("group_records", ["incarnation", "offsets_partition", "record_offset", "record_timestamp", "key_type"], is_end)
        ends = ends.to_pylist()
        if not (commits.num_rows or rebalances or ends):
            self._explain_nothing()
        keys = zip(commits["incarnation"].to_numpy().tolist(), commits["offsets_partition"].to_numpy().tolist(), strict=True)
        places = {*keys, *((row["incarnation"], row["offsets_partition"]) for row in (*rebalances, *ends))}
        retention_ms = self._retention_ms()
        for incarnation, partition in sorted(places):
            of_place = [_with_milliseconds(row) for row in rebalances if _place(row) == (incarnation, partition)]
            ends_here = [_end(row) for row in ends if _place(row) == (incarnation, partition)]
            borders = sorted([row["record_offset"] for row in of_place] + [end.record_offset for end in ends_here])
            stretches = stretches_of(_of_place(commits, incarnation, partition), borders)
            for event in in_order(stretches, of_place, ends_here, retention_ms=retention_ms):
                yield partition, event
        if self._is_open_ended:
            for event in self._expiries():
                yield None, event

    def _read(self, table: str, columns: list[str] | None, where: list[Condition]) -> pa.Table:
        return self._warehouse.read(table, cluster=self._cluster, columns=columns, where=[("group_id", "=", self._group_id), *where])

    def _expiries(self) -> Iterator[Event]:
        from groupcoord_spark.coordinator.timeline import Expiry, expiries

        rows = []
        for row in self._read("offset_expirations", ["expires_at", "rule", "topic", "partition"], []).to_pylist():
            if row["expires_at"] is not None:
                rows.append(Expiry(_milliseconds(row["expires_at"]) or 0, row["rule"], row["topic"], row["partition"]))
        for row in self._read("group_expirations", ["removed_at", "rule"], []).to_pylist():
            if row["removed_at"] is not None:
                rows.append(Expiry(_milliseconds(row["removed_at"]) or 0, row["rule"] or "", None, None))
        yield from expiries(rows, self._warehouse.run(self._cluster).as_of_ms)

    def _retention_ms(self) -> int | None:
        told = dict(self._warehouse.run(self._cluster).fields["settings"] or {}).get("offsets.retention.ms")
        return None if told is None else int(told)

    def _explain_nothing(self) -> None:
        uri = self._warehouse.location.uri
        where = f"cluster {self._cluster!r} of {uri}"
        if self._range:
            raise GroupcoordError(f"No record of group {self._group_id!r} lies between --from and --to in {where}.")
        if self._read("groups", ["group_id"], []).num_rows:
            raise GroupcoordError(
                f"The history tables hold nothing of group {self._group_id!r} in {where}: its nights were run with --no-history."
            )
        raise GroupcoordError(f"Group {self._group_id!r} is in no record of {where}. `groupcoord list` names those that exist.")


_COMMIT_COLUMNS: Final = (
    *("incarnation", "offsets_partition", "record_offset", "record_timestamp", "topic", "partition", "committed_offset"),
    *("commit_timestamp", "expire_timestamp", "is_tombstone", "is_transactional"),
)


def stretches_of(commits: pa.Table, borders: list[int]) -> list[Stretch]:
    """Records of offset_commits of one place, in stretches that end at the borders, at a change to tombstones or back, and at a pause."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from groupcoord_spark.coordinator.timeline import PartitionStretch, Stretch

    if not commits.num_rows:
        return []
    commits = commits.take(pc.sort_indices(commits, sort_keys=[("record_offset", "ascending")]))
    milliseconds = {
        name: pc.divide(commits[name].cast(pa.int64()), 1000) for name in ("record_timestamp", "commit_timestamp", "expire_timestamp")
    }
    offsets = commits["record_offset"].to_numpy()
    tombstones = commits["is_tombstone"].to_numpy()
    times = pc.fill_null(milliseconds["record_timestamp"], -1).to_numpy()
    between = np.searchsorted(np.array(borders, np.int64), offsets)
    begins = np.ones(len(offsets), np.bool_)
    begins[1:] = (np.diff(between) != 0) | (tombstones[1:] != tombstones[:-1]) | (np.diff(times) > PAUSE_MS)
    numbered = pa.table(
        {
            "stretch": np.cumsum(begins) - 1,
            "topic": commits["topic"],
            "partition": commits["partition"],
            "committed_offset": commits["committed_offset"],
            "is_transactional": commits["is_transactional"].cast(pa.int8()),
            **milliseconds,
        }
    )
    # First and last are those of the log: the rows stand in its order, and one thread keeps it.
    grouped = numbered.group_by(["stretch", "topic", "partition"], use_threads=False).aggregate(
        [
            *(("committed_offset", how) for how in ("count", "first", "last")),
            *(("record_timestamp", how) for how in ("min", "max")),
            ("is_transactional", "sum"),
            ("commit_timestamp", "last"),
            ("expire_timestamp", "last"),
            ("topic", "count"),
        ]
    )
    by_stretch: dict[int, list[PartitionStretch]] = {}
    for row in sorted(grouped.to_pylist(), key=lambda each: (each["stretch"], each["topic"], each["partition"])):
        by_stretch.setdefault(row["stretch"], []).append(
            PartitionStretch(
                topic=row["topic"],
                partition=row["partition"],
                records=row["topic_count"],
                first_committed_offset=row["committed_offset_first"],
                last_committed_offset=row["committed_offset_last"],
                from_ms=row["record_timestamp_min"],
                until_ms=row["record_timestamp_max"],
                in_transactions=row["is_transactional_sum"],
                last_commit_ms=row["commit_timestamp_last"],
                expire_ms=row["expire_timestamp_last"],
            )
        )
    first = np.flatnonzero(begins)
    return [Stretch(int(offsets[at]), bool(tombstones[at]), by_stretch[number]) for number, at in enumerate(first.tolist())]


def _with_short_ids(text: str) -> str:
    """Member ids end in a UUID: its beginning tells them apart, for people."""
    return _UUID.sub(r"\1…", text)


def _of_place(commits: pa.Table, incarnation: int, partition: int) -> pa.Table:
    import pyarrow.compute as pc

    return commits.filter(pc.and_(pc.equal(commits["incarnation"], incarnation), pc.equal(commits["offsets_partition"], partition)))


def _place(row: dict[str, Any]) -> tuple[int, int]:
    return row["incarnation"], row["offsets_partition"]


def _with_milliseconds(row: dict[str, Any]) -> dict[str, Any]:
    left_out = ("cluster", "group_id", "record_timestamp", "timestamps_out_of_range", "offsets_partition", "incarnation")
    told = {name: value for name, value in row.items() if name not in left_out}
    return {**told, "timestamp_ms": _milliseconds(row["record_timestamp"])}


def _end(row: dict[str, Any]) -> GroupEnd:
    from groupcoord_spark.coordinator.timeline import GroupEnd

    return GroupEnd(row["record_offset"], _milliseconds(row["record_timestamp"]), row["key_type"])


def _moment(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _milliseconds(moment: datetime | None) -> int | None:
    return None if moment is None else round(moment.timestamp() * 1000)


def _iso(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else f"{_moment(milliseconds):%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"
