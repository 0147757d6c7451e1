"""The rows of the state and rule tables of one offsets partition, packed, from the replay to the writers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from groupcoord_spark.answers.expiration import RULE_COLUMNS, Expirations, kept_for
from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS, DefaultAssignors
from groupcoord_spark.coordinator.groups.group import AssignmentRow, MemberRow
from groupcoord_spark.coordinator.state import GroupRow, LoadWarning, OffsetRow, PartitionState
from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset
from groupcoord_spark.doctor import PartitionFacts
from groupcoord_spark.pipeline.exchange.counts import PartitionCounts
from groupcoord_spark.pipeline.exchange.kept_records import OffsetQuestions, PieceReport
from groupcoord_spark.pipeline.exchange.packing import pack
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.warehouse import TABLES, AddedFile, Table

REPLAYED = "writer INT, place INT, kind STRING, payload BINARY, cluster STRING"
"""Rows from the replay to the writers; a writer reads its rows in the order of ``place``.

kind: the name of a table (payload: packed rows), ``topic_names`` and ``placed_groups`` (pickled, sent to every writer), ``report``
(pickled), or one of INTERNALS (pickled rows).
"""

REPLAYED_ARROW = pa.schema({"writer": pa.int32(), "place": pa.int32(), "kind": pa.string(), "payload": pa.binary(), "cluster": pa.string()})

COLUMNS = ["writer", "place", "kind", "payload"]
"""What the writers get."""

FIRST, LATER = -2, -1
"""Values of ``place``. What every writer gets comes first: topic names for the rows of assignments, and where the groups are. Rows of one
offsets partition have its number."""

WRITTEN = "payload BINARY"
"""One row for each writer: a pickled list of PartitionReports. A report with offsets_partition -1 has the files of the writer."""

PARTITION_REPORT, TOPIC_NAMES, PLACED_GROUPS = "report", "topic_names", "placed_groups"

TYPE_0_OFFSETS, KEPT_GROUPS = "type_0_offsets", "kept_groups"
INTERNALS = (TYPE_0_OFFSETS, KEPT_GROUPS)
"""What the rules of expiration need of the state and no state table shows: the offsets whose newest record has a key of type 0, so that
they come back after their tombstone (group_id, topic, partition), and the groups that a cleanup may keep (group_id, kept_for)."""

_OFFSET_COLUMNS = ("group_id", "topic", "partition", *StoredOffset._fields)
_COMMIT_TIMESTAMP, _RECORD_TIMESTAMP = _OFFSET_COLUMNS.index("commit_timestamp_ms"), GroupRow._fields.index("record_timestamp_ms")

TABLES_OF_GROUPS = ("committed_offsets", "pending_offsets", "orphan_offsets", "groups", "members", "assignments", *RULE_COLUMNS)
"""The tables that have only what a client of the cluster can reach."""

WRITTEN_ROWS: Mapping[str, Sequence[str]] = {
    "committed_offsets": _OFFSET_COLUMNS,
    "pending_offsets": _OFFSET_COLUMNS,
    "orphan_offsets": _OFFSET_COLUMNS,
    "groups": GroupRow._fields,
    "members": MemberRow._fields,
    "assignments": AssignmentRow._fields,
    **RULE_COLUMNS,
    "warnings": LoadWarning._fields,
}
"""Table -> the columns of the rows that the replay makes for it."""


@dataclass(frozen=True, slots=True)
class VanishedKeys:
    """Live keys of the last run that are gone, without a later record or a tombstone in the records read.

    keys: their number. live_keys: number of all live keys of that run. groups: the first ones by name, as text. first_offset,
    last_offset: the lowest and the highest record offset of theirs. run: the first and the last record offset of the longest run of them,
    without a live key in between. groups_in_run: number of the groups of that run. is_kept: the state keeps them, because the run read only
    new records.
    """

    keys: int
    live_keys: int
    groups: str
    first_offset: int
    last_offset: int
    run: tuple[int, int]
    groups_in_run: int
    is_kept: bool = False


@dataclass(slots=True)
class PartitionReport:
    """What the driver gets about one replayed offsets partition. Its size does not depend on the number of records."""

    offsets_partition: int
    counts: PartitionCounts = field(default_factory=PartitionCounts)
    live_keys: int = 0
    first_open_offset: int | None = None
    groups: int = 0
    offsets: int = 0
    expired_offsets: int = 0
    removed_groups: int = 0
    warnings: int = 0
    refusals: int = 0
    records_after_complete: int = 0
    records_from_history: int = 0
    latest_records: int | None = None
    """Number of rows of latest_records; None: none were written."""
    differences: int | None = None
    """Number of groups whose carried state differs from the state that was read; None: not compared."""
    vanished: VanishedKeys | None = None
    """Live keys of the last run that are gone without a trace, if any; None if no file changed and the run was incremental."""
    health: PartitionFacts | None = None
    """Facts about the records that the run read; None: none were gathered."""
    open_producers: frozenset[int] = frozenset()
    """Producers with an open transaction at the end of the log."""
    unreachable_groups: int = 0
    """Groups that are left out of TABLES_OF_GROUPS and of the numbers above."""
    partition_counts: tuple[int, ...] = ()
    """Counts of ``unreachable_groups`` of log.partition_count, in the report of a writer."""
    offset_questions: OffsetQuestions | None = None
    """What only the whole run can judge of the offset events."""
    files: dict[str, list[AddedFile]] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()
    """Words of LACKING for what the raw rows that the replay read do not contain."""

    def take_piece(self, piece: PieceReport) -> None:
        """Add what one reader reports, but for its topic names."""
        self.counts.add(piece.counts)
        self.take_files(piece.files)
        self.records_after_complete += piece.records_after_complete
        self.records_from_history += piece.records_from_history
        self.warnings += piece.warnings
        self.refusals += piece.refusals
        self.offset_questions = piece.offset_questions or self.offset_questions
        self.lacks |= piece.lacks

    def take_files(self, files: Mapping[str, Sequence[AddedFile]]) -> None:
        """Add files, by table."""
        for table, added in files.items():
            self.files.setdefault(table, []).extend(added)


def state_rows(
    state: PartitionState, expirations: Expirations | None, default_assignors: DefaultAssignors = KAFKAS_ASSIGNORS
) -> dict[str, Sequence[tuple[Any, ...]]]:
    """Table -> rows of the state and rule tables. Rows of assignments have no topic names yet: those come from all offsets partitions."""
    return {
        "committed_offsets": _columns_of(state.committed_offsets()),
        "pending_offsets": _columns_of(state.pending_offsets()),
        "orphan_offsets": _columns_of(state.orphan_offsets()),
        "groups": state.groups(default_assignors=default_assignors),
        "members": state.members(),
        "assignments": state.assignments({}),
        **(expirations or {}),
        "warnings": state.warnings(),
    }


def _columns_of(offsets: Iterable[OffsetRow]) -> list[tuple[Any, ...]]:
    return [(group_id, topic, partition, *commit) for group_id, topic, partition, commit in offsets]


def placed_groups_of(offsets_partition: int, tables: Mapping[str, Sequence[tuple[Any, ...]]]) -> list[tuple[str, int, int, int]]:
    """Return (group id, offsets partition, time of its newest commit, time of its newest group record), from rows of ``state_rows``.

    A time is -1 where the group has no such record.
    """
    newest_commits: dict[str, int] = {}
    for name in ("committed_offsets", "pending_offsets", "orphan_offsets"):
        for row in tables[name]:
            newest_commits[row[0]] = max(newest_commits.get(row[0], NO_TIMESTAMP), row[_COMMIT_TIMESTAMP])
    of_records = {row[0]: NO_TIMESTAMP if row[_RECORD_TIMESTAMP] is None else row[_RECORD_TIMESTAMP] for row in tables["groups"]}
    return [
        (group_id, offsets_partition, newest_commits.get(group_id, NO_TIMESTAMP), of_records.get(group_id, NO_TIMESTAMP))
        for group_id in newest_commits | of_records
    ]


def internals_of(state: PartitionState, type_0_offsets: Iterable[OffsetKey]) -> dict[str, list[tuple[Any, ...]]]:
    """Return the rows of each table in INTERNALS."""
    kept_groups = [(group.group_id, reason) for group in state.groups() for reason in kept_for(group)]
    return {TYPE_0_OFFSETS: list(type_0_offsets), KEPT_GROUPS: kept_groups}


def to_arrow(table: Table, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Return the rows as columns of the table in Kafka's representation (times as ``<name>_ms`` integers, -1 for none).

    Columns that the table lacks are the last ones, and are left out.
    """
    names = [name for name in columns if name in table.by_name or name.removesuffix("_ms") in table.by_name]
    return table.columns_of(names, rows if len(names) == len(columns) else (row[: len(names)] for row in rows))


def packed_by_table(offsets_partition: int, rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> Iterator[tuple[str, bytes]]:
    """(table, packed rows) of each table that has any."""
    for name, rows_of_table in rows.items():
        if rows_of_table:
            arrow = to_arrow(TABLES[name], WRITTEN_ROWS[name], rows_of_table)
            if "offsets_partition" in TABLES[name].by_name:
                arrow = arrow.append_column("offsets_partition", pa.repeat(pa.scalar(offsets_partition, pa.int32()), len(rows_of_table)))
            yield name, pack(arrow)
