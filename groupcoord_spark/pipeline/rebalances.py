"""Rows of the table ``rebalances``, made of the group records that are new to the history tables, in nights with history.

Most of these are superseded and never reach the replay. Where one run of a reader has all of a partition its rows are made there; the
records of the others go along with what the replay needs, and their rows are made where the partition is replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from groupcoord_spark.coordinator.rebalances import GroupHistories, GroupRecord, Rebalance, Value, roles_of
from groupcoord_spark.pipeline.exchange.state_rows import to_arrow
from groupcoord_spark.pipeline.extents import HistoryRange
from groupcoord_spark.protocol.compiled import decode_key, decode_shared_value
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP, KeyType
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.location import locate
from groupcoord_spark.warehouse.read import rows_at

REBALANCES: Final = "rebalances"
LEADER_EPOCH: Final = "leader_epoch"
"""Of a record's batch: the column that records have here beside those of ingest.KEPT."""
RECORDS_AT_ONCE: Final = 1_000
"""So many records are Python objects at a time."""
ROWS_AT_ONCE: Final = 5_000
"""So many rows are held before they leave for the writer."""

LONGEST_REMEMBERED: Final = 1024
MOST_REMEMBERED: Final = 10_000

STATE_TABLES: Final = ("groups", "members", "assignments")


@dataclass(frozen=True, slots=True)
class RebalanceJob:
    """What is known of the history before wherever rebalances are made.

    held: what the history tables hold, by offsets partition. state_versions: versions of STATE_TABLES after the run that wrote its end;
    None where there is none.
    """

    warehouse_uri: str
    cluster: str
    held: Mapping[int, HistoryRange]
    state_versions: Mapping[str, int] | None


class PartitionRebalances:
    """The groups of one offsets partition while their new records pass by in offset order."""

    def __init__(self, job: RebalanceJob, offsets_partition: int) -> None:
        self._job = job
        self._offsets_partition = offsets_partition
        self._held = job.held.get(offsets_partition)
        self._histories = GroupHistories()
        self._is_after_held = False
        self._rows: list[Rebalance] = []
        self._remembered: dict[tuple[int, bytes], Value | None] = {}

    def apply(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Follow records of kind ingest.GROUP_CHANGES; rows of the table as soon as there are many."""
        for begin in range(0, batch.num_rows, RECORDS_AT_ONCE):
            self._follow(batch.slice(begin, RECORDS_AT_ONCE))
            if len(self._rows) >= ROWS_AT_ONCE:
                yield from self.finish()

    def _follow(self, batch: pa.RecordBatch) -> None:
        encoded = batch.column("key").dictionary_encode()
        keys = [decode_key(key) for key in encoded.dictionary.to_pylist()]
        columns = ("record_offset", "record_timestamp_ms", LEADER_EPOCH)
        numbers = (batch.column(name).to_numpy().tolist() for name in columns)
        rows = zip(encoded.indices.to_numpy().tolist(), batch.column("value").to_pylist(), *numbers, strict=True)
        for code, value, record_offset, timestamp_ms, leader_epoch in rows:
            if not self._is_after_held and self._held is not None and record_offset >= self._held.end_offset:
                self._go_on_after_held()
            key_type, _, key, _ = keys[code]
            fields = None if value is None else self._fields(key_type, value)
            row = self._histories.apply(GroupRecord(record_offset, timestamp_ms, key_type, key, fields, leader_epoch))
            if row is not None:
                self._rows.append(row)

    def _fields(self, key_type: int, value: bytes) -> Value | None:
        """The decoded value, the same object where a short one comes again: those of members and their targets mostly do."""
        if key_type == KeyType.GROUP_METADATA or len(value) > LONGEST_REMEMBERED:
            return _decoded(key_type, value)
        which = key_type, value
        fields = self._remembered.get(which)
        if fields is None:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            fields = self._remembered[which] = _decoded(key_type, value)
        return fields

    def finish(self) -> Iterator[pa.Table]:
        """The rows that are left."""
        if self._rows:
            rows = to_arrow(TABLES[REBALANCES], Rebalance, self._rows)
            incarnation = 0 if self._held is None else self._held.incarnation
            for name, number in (("offsets_partition", self._offsets_partition), ("incarnation", incarnation)):
                rows = rows.append_column(name, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
            self._rows = []
            yield rows

    def _go_on_after_held(self) -> None:
        """What follows continues what the history holds, which need not be in this log any more: take up the state that it ended with."""
        self._is_after_held = True
        held, versions = self._held, self._job.state_versions
        if held is None or held.end_offset == held.first_offset:
            return
        self._histories.forget()
        if versions is not None:
            self._histories.recall(self._records_of_state(versions))

    def _records_of_state(self, versions: Mapping[str, int]) -> Iterator[GroupRecord]:
        location = locate(self._job.warehouse_uri)

        def rows(table: str, columns: str) -> list[dict[str, Any]]:
            wanted = columns.split()
            where = [("offsets_partition", "=", self._offsets_partition)]
            return list(rows_at(location, TABLES[table], versions[table], self._job.cluster, wanted, where).to_pylist())

        return records_of_state(
            rows(
                "groups",
                "group_id group_type protocol_type protocol generation assignment_epoch leader_id state_timestamp record_offset"
                " record_timestamp",
            ),
            rows(
                "members",
                "group_id member_id instance_id client_id client_host rebalance_timeout_ms session_timeout_ms subscription assignment"
                " subscribed_topics subscribed_topic_regex server_assignor topology_epoch",
            ),
            rows("assignments", "group_id member_id kind task_type topic_id subtopology partition"),
        )


def _decoded(key_type: int, value: bytes) -> Value | None:
    decoded = decode_shared_value(key_type, value)
    return None if decoded is None else decoded.fields


def records_of_state(
    groups: Iterable[Mapping[str, Any]], members: Iterable[Mapping[str, Any]], assignments: Iterable[Mapping[str, Any]]
) -> Iterator[GroupRecord]:
    """Rows of the state tables as records that would lead to that state, as far as rebalances ask for it."""
    members_of: dict[str, list[Mapping[str, Any]]] = {}
    for member in members:
        members_of.setdefault(member["group_id"], []).append(member)
    targets_of: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in assignments:
        if row["kind"] == "target" and row["task_type"] in (None, "active"):
            targets_of.setdefault(row["group_id"], {}).setdefault(row["member_id"], []).append(row)
    for group in groups:
        if group["record_offset"] is None:
            continue  # known by its commits alone: no record of its own
        of_group = members_of.get(group["group_id"], ())
        if group["group_type"] == "classic":
            yield _classic_record(group, of_group)
        else:
            yield from _modern_records(group, of_group, targets_of.get(group["group_id"], {}))


def _classic_record(group: Mapping[str, Any], members: Iterable[Mapping[str, Any]]) -> GroupRecord:
    value = {
        "protocol_type": group["protocol_type"] or "",
        "generation": group["generation"],
        "protocol": group["protocol"],
        "leader": group["leader_id"],
        "current_state_timestamp_ms": _milliseconds(group["state_timestamp"]),
        "members": [{**member, "group_instance_id": member["instance_id"]} for member in members],
    }
    key = {"group_id": group["group_id"]}
    return GroupRecord(group["record_offset"], _milliseconds(group["record_timestamp"]), KeyType.GROUP_METADATA, key, value)


def _modern_records(
    group: Mapping[str, Any], members: Iterable[Mapping[str, Any]], targets: Mapping[str, list[Mapping[str, Any]]]
) -> Iterator[GroupRecord]:
    roles = roles_of(group["group_type"])
    timestamp_ms = _milliseconds(group["record_timestamp"])

    def record(key_type: int, value: Mapping[str, Any], **key: str) -> GroupRecord:
        return GroupRecord(group["record_offset"], timestamp_ms, key_type, {"group_id": group["group_id"], **key}, value)

    for member in members:
        yield record(roles.member, {**member, "subscribed_topic_names": member["subscribed_topics"]}, member_id=member["member_id"])
    yield record(roles.epoch, {"epoch": group["generation"]})
    for member_id, held in targets.items():
        tasks = [{"topic_id": each["topic_id"], "subtopology_id": each["subtopology"], "partitions": [each["partition"]]} for each in held]
        target = {"active_tasks": tasks} if group["group_type"] == "streams" else {"topic_partitions": tasks}
        yield record(roles.target, target, member_id=member_id)
    # Before its first target assignment a group counts as at the epoch it begins with.
    if targets or (group["assignment_epoch"] is not None and group["assignment_epoch"] > 1):
        yield record(roles.assignment, {"assignment_epoch": group["assignment_epoch"]})


def _milliseconds(moment: datetime | None) -> int:
    """-1 where the tables have none."""
    return NO_TIMESTAMP if moment is None else round(moment.timestamp() * 1000)
