"""What a reset of committed offsets would do: offsets read again or skipped, offsets out of range, partitions that are left out."""

import csv
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import pyarrow.compute as pc

from groupcoord_spark.errors import InputError, UsageError
from groupcoord_spark.warehouse.read import Run, Warehouse
from groupcoord_spark.warehouse.sql import SnapshotInDuckDB

Place = tuple[str, str, int]
"""Group, topic and partition."""

RESETTABLE_STATES: Final = frozenset({"Empty", "Dead"})
"""kafka-consumer-groups refuses to reset a group in any other state."""
STATUSES: Final = ("ok", "below_log", "beyond_log", "range_unknown", "forgotten", "no_offset")


class Extent(NamedTuple):
    """The offsets of a partition's log. start: the first one, or None if it is not known; end: the one after the last."""

    start: int | None
    end: int


class Reset(NamedTuple):
    """What a reset does to one partition of a group.

    Attributes:
        new_offset: The offset that was asked for; None: the partition is left out, or no offset is known.
        set_to: The offset that Kafka commits: it moves an offset out of range to the nearest end of the log. None where it is not known.
        read_again, skipped: Offsets between the committed and the new one, of those that the log has: records, markers of transactions and
            gaps of compaction. None where the group has no committed offset, or it stays.
        status: One of STATUSES.
        group_state: State of the group; None: the group does not exist in the run.
    """

    group: str
    topic: str
    partition: int
    committed: int | None
    new_offset: int | None
    set_to: int | None
    read_again: int | None
    skipped: int | None
    status: str
    group_state: str | None
    members: int

    @property
    def is_active(self) -> bool:
        """Whether Kafka refuses to reset the group now."""
        return self.group_state is not None and self.group_state not in RESETTABLE_STATES


def plan_reset(warehouse: Warehouse, run: Run, groups: Collection[str], new_offsets: Mapping[Place, int | None]) -> list[Reset]:
    """Return a row for each partition that the reset names, and for each committed partition of the groups that it leaves out.

    Args:
        warehouse, run: The committed offsets before the reset.
        groups: The groups that are reset.
        new_offsets: The offset for each place; None where no offset is known.
    """
    committed, extents = committed_offsets(warehouse, run, groups), log_extents(warehouse, run)
    rows = warehouse.read("groups", columns=["group_id", "state", "member_count"], run=run).to_pylist()
    states = {row["group_id"]: (row["state"], row["member_count"]) for row in rows}
    return [
        _reset(place, committed.get(place), new_offsets.get(place), extents.get(place[1:]), place in new_offsets)._replace(
            group_state=states.get(place[0], (None, 0))[0], members=states.get(place[0], (None, 0))[1]
        )
        for place in sorted(committed.keys() | new_offsets.keys())
    ]


def _reset(place: Place, committed: int | None, new_offset: int | None, extent: Extent | None, is_named: bool) -> Reset:
    if new_offset is None:
        return Reset(*place, committed, None, None, None, None, "no_offset" if is_named else "forgotten", None, 0)
    start, end = extent or (None, None)
    if start is not None and new_offset < start:
        set_to, status = start, "below_log"
    elif end is not None and new_offset > end:
        set_to, status = end, "beyond_log"
    else:
        set_to, status = new_offset, "ok" if start is not None else "range_unknown"
    read_again = skipped = None
    if committed is not None:
        # a commit outside of the log has nothing to read between it and the log
        position = max(committed if end is None else min(committed, end), start or 0)
        read_again, skipped = max(position - set_to, 0), max(set_to - position, 0)
    return Reset(*place, committed, new_offset, set_to, read_again, skipped, status, None, 0)


def committed_offsets(warehouse: Warehouse, run: Run, groups: Collection[str] | None = None) -> dict[Place, int]:
    """Return the committed offset of each group, topic and partition, of some groups or all."""
    columns = ["group_id", "topic", "partition", "committed_offset"]
    rows = warehouse.read(
        "committed_offsets", columns=columns, where=[] if groups is None else [("group_id", "in", sorted(groups))], run=run
    )
    return {(group, topic, partition): offset for group, topic, partition, offset in zip(*map(_values, rows.columns), strict=True)}


def log_extents(warehouse: Warehouse, run: Run) -> dict[tuple[str, int], Extent]:
    """Return where the logs of topics began and ended, by the newest sample of the run; empty if there is none."""
    columns = ["topic", "partition", "start_offset", "end_offset", "sampled_at"]
    rows = warehouse.read("log_ends", columns=columns, run=run)
    rows = rows.filter(pc.equal(rows["sampled_at"], pc.max(rows["sampled_at"]))).drop_columns(["sampled_at"])
    return {(topic, partition): Extent(start, end) for topic, partition, start, end in zip(*map(_values, rows.columns), strict=True)}


def offsets_in_file(name: str, lines: Iterable[str], groups: Collection[str]) -> dict[Place, int | None]:
    """Return the offsets in a file of kafka-consumer-groups --reset-offsets --export, or of ``groupcoord export-offsets``.

    Args:
        groups: The groups that are reset: the one group of a file without a column of groups, or a choice of those in the file.
    Raises:
        InputError: A line is not of such a file.
        UsageError: The file does not name its group, and not exactly one group is given; or a given group is not in the file.
    """
    offsets: dict[Place, int | None] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row:
            continue
        if len(row) == 3:
            if len(groups) != 1:
                raise UsageError(f"{name} names no group in line {number}: it is of one group. Name the group with --group.")
            row = [*groups, *row]
        *place, partition, offset = row
        if len(place) != 2 or not (_is_number(partition, 2**31) and _is_number(offset, 2**63)):
            raise InputError(
                f"{name}: line {number} is not GROUP,TOPIC,PARTITION,OFFSET or, for one group, TOPIC,PARTITION,OFFSET. Export the file with"
                " `groupcoord export-offsets` or with kafka-consumer-groups --reset-offsets --export."
            )
        if not groups or place[0] in groups:
            offsets[place[0], place[1], int(partition)] = int(offset)  # Kafka takes the last line of a partition
    if missing := sorted(set(groups) - {group for group, _, _ in offsets}):
        raise UsageError(f"{name} has no offset of group {', '.join(map(repr, missing))}. Leave the group out, or name another file.")
    if not offsets:
        raise InputError(f"{name} has no line with an offset.")
    return offsets


def earliest_offsets(warehouse: Warehouse, run: Run, groups: Collection[str]) -> dict[Place, int | None]:
    """Return the log start offset of each committed partition; None where it is not known."""
    extents = log_extents(warehouse, run)
    return {place: extents[place[1:]].start if place[1:] in extents else None for place in committed_offsets(warehouse, run, groups)}


def shifted_offsets(warehouse: Warehouse, run: Run, groups: Collection[str], by: int) -> dict[Place, int | None]:
    """Return each committed offset plus a number, which may be negative."""
    return {place: offset + by for place, offset in committed_offsets(warehouse, run, groups).items()}


def offsets_at(warehouse: Warehouse, run: Run, groups: Collection[str], time_ms: int) -> dict[Place, int | None]:
    """Return the offset that each group had committed at a time, for each partition with a committed offset then or now.

    None where the history has no commit of the partition until then. Aborted and open transactions do not count.
    """
    with_names = ", ".join("'" + group.replace("'", "''") + "'" for group in groups)
    rows = SnapshotInDuckDB(warehouse, run=run).rows(
        "SELECT group_id, topic, partition, arg_max(CASE WHEN is_tombstone THEN -1 ELSE committed_offset END,"
        " struct_pack(i := incarnation, o := counted_offset)) AS offset_then FROM counted_commits"
        f" WHERE group_id IN ({with_names}) AND counted_at <= make_timestamptz({time_ms * 1000}) GROUP BY ALL"
    )
    then = {(group, topic, partition): offset for group, topic, partition, offset in zip(*map(_values, rows.columns), strict=True)}
    known: dict[Place, int | None] = dict.fromkeys(committed_offsets(warehouse, run, groups))
    return known | {place: offset for place, offset in then.items() if offset >= 0}


def _values(column: object) -> list[object]:
    return column.to_pylist()  # type: ignore[attr-defined, no-any-return]


def _is_number(text: str, end: int) -> bool:
    return text.strip().isdecimal() and len(text) < 20 and int(text) < end
