"""State and rules of one offsets partition as packed rows of their tables, on their way to the writers."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS, DefaultAssignors
from groupcoord_spark.coordinator.state import AssignmentRow, GroupRow, LoadWarning, MemberRow, OffsetRow, PartitionState
from groupcoord_spark.pipeline.exchange.counts import PartitionCounts
from groupcoord_spark.pipeline.exchange.packing import pack
from groupcoord_spark.pipeline.expiration import Expirations, GroupExpirationRow, OffsetExpirationRow, TombstoneRow
from groupcoord_spark.warehouse import TABLES, AddedFile, Table

REPLAYED = "writer INT, place INT, kind STRING, payload BINARY"
"""Rows from the replay to the writers; a writer takes them by place.

kind: a table, ``topic_names`` (which every writer gets) or ``report``.
"""

COLUMNS = ["writer", "place", "kind", "payload"]

FIRST, LATER = 0, 1
"""Topic names come first: a writer fills them into the rows that follow."""

WRITTEN = "payload BINARY"
"""A pickled list of PartitionReports for each writer; its files ride with one that stands for no partition."""

PARTITION_REPORT, TOPIC_NAMES = "report", "topic_names"

WRITTEN_ROWS: Mapping[str, type[NamedTuple]] = {
    "committed_offsets": OffsetRow,
    "pending_offsets": OffsetRow,
    "orphan_offsets": OffsetRow,
    "groups": GroupRow,
    "members": MemberRow,
    "assignments": AssignmentRow,
    "offset_expirations": OffsetExpirationRow,
    "group_expirations": GroupExpirationRow,
    "tombstones": TombstoneRow,
    "warnings": LoadWarning,
}
"""Table -> the rows that the replay makes of it."""


@dataclass(slots=True)
class PartitionReport:
    """One offsets partition after its replay: what the driver needs to know of it, whatever its size."""

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
    found: int = 0
    from_history: int = 0
    files: dict[str, list[AddedFile]] = field(default_factory=dict)

    def take_files(self, files: Mapping[str, Sequence[AddedFile]]) -> None:
        """Carry more files on to the driver."""
        for table, added in files.items():
            self.files.setdefault(table, []).extend(added)


def state_rows(
    state: PartitionState, expirations: Expirations, default_assignors: DefaultAssignors = KAFKAS_ASSIGNORS
) -> dict[str, Sequence[tuple[Any, ...]]]:
    """Rows of every state and rule table, by table; those of assignments without topic names, which all partitions reveal together."""
    return {
        "committed_offsets": state.committed_offsets(),
        "pending_offsets": state.pending_offsets(),
        "orphan_offsets": state.orphan_offsets(),
        "groups": state.groups(default_assignors=default_assignors),
        "members": state.members(),
        "assignments": state.assignments({}),
        "offset_expirations": expirations.offsets,
        "group_expirations": expirations.groups,
        "tombstones": expirations.tombstones,
        "warnings": state.warnings(),
    }


def to_arrow(table: Table, kind: type[NamedTuple], rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows as wire-like columns (``<name>_ms`` integers, Kafka's -1) of the table; fields that are no column of it are left out."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(kind._fields)
    wire = {name: of for column in table.columns for name, of in _wire_fields(column)}
    return pa.table({name: pa.array(values, wire[name]) for name, values in zip(kind._fields, columns, strict=True) if name in wire})


def _wire_fields(column: Any) -> Iterator[tuple[str, pa.DataType]]:
    yield column.name, column.arrow_type
    if column.is_time:
        yield f"{column.name}_ms", pa.int64()


def packed_rows(
    report: PartitionReport, rows: Mapping[str, Sequence[tuple[Any, ...]]], topic_names: Mapping[str, str]
) -> Iterator[tuple[str, bytes]]:
    """(kind, payload) for the writers: the report, the topic names, and the rows of each table that has any."""
    yield PARTITION_REPORT, pickle.dumps(report)
    if topic_names:
        yield TOPIC_NAMES, pickle.dumps(dict(topic_names))
    for name, found in rows.items():
        if found:
            arrow = to_arrow(TABLES[name], WRITTEN_ROWS[name], found)
            if "offsets_partition" in TABLES[name].by_name:
                arrow = arrow.append_column("offsets_partition", pa.array([report.offsets_partition] * len(found), pa.int32()))
            yield name, pack(arrow)
