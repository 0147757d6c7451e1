"""Rows of the table ``rebalances``, from the group records that are new to the history tables.

Most of these records are superseded and not kept for the replay. A reader that has all records of an offsets partition makes the rows
itself. For other partitions the readers send the new group records to the replay, which makes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from groupcoord_spark.coordinator.rebalances import GroupHistories, GroupRecord, Rebalance, Value
from groupcoord_spark.coordinator.rebalances.group_records import KEY_TYPES
from groupcoord_spark.pipeline.exchange.state_rows import to_arrow
from groupcoord_spark.pipeline.extents import HistoryRange
from groupcoord_spark.protocol.definition import SharedElements, decode_key, decode_value
from groupcoord_spark.protocol.record_types import KEY_TYPES_OF, NO_TIMESTAMP, NOT_A_CONTROL_RECORD, KeyType
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.declaration import TIMESTAMPS_OUT_OF_RANGE
from groupcoord_spark.warehouse.read import Condition, rows_of_partition

REBALANCES: Final = "rebalances"
LEADER_EPOCH: Final = "leader_epoch"
"""A column that new group records have in addition to KEPT: the leader epoch of the record's batch."""
RECORDS_AT_ONCE: Final = 1_000
"""Number of records that are Python objects at a time."""
ROWS_AT_ONCE: Final = 5_000
"""Number of rows in memory after which they go to the writer."""

LONGEST_CACHED_VALUE: Final = 1024
MOST_CACHED_VALUES: Final = 10_000

STATE_TABLES: Final = ("groups", "members", "assignments")
LATEST_RECORDS: Final = "latest_records"


@dataclass(frozen=True, slots=True)
class RebalanceJob:
    """What the makers of rebalances need to know of the history.

    history_ranges: offsets partition -> record offsets that the history tables have. state_versions: table -> Delta version after the run
    that wrote the end of the history, of STATE_TABLES, or of LATEST_RECORDS where one of these was deleted; None: there is no such run.
    """

    warehouse_uri: str
    cluster: str
    history_ranges: Mapping[int, HistoryRange]
    state_versions: Mapping[str, int] | None


class PartitionRebalances:
    """The rebalances of one offsets partition. Its new group records are applied in the order of their record offsets."""

    def __init__(self, job: RebalanceJob, offsets_partition: int) -> None:
        self._job = job
        self._offsets_partition = offsets_partition
        self._history_range = job.history_ranges.get(offsets_partition)
        self._histories = GroupHistories()
        self._is_after_history = False
        self._rows: list[Rebalance] = []
        self._shared = SharedElements()
        self._cached_values: dict[tuple[int, bytes], Value | None] = {}

    def apply(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Apply a batch of new group records. Gives rows of the table once there are ROWS_AT_ONCE."""
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
            if not self._is_after_history and self._history_range is not None and record_offset >= self._history_range.end_offset:
                self._continue_after_history()
            key_type, _, key, _ = keys[code]
            fields = None if value is None else self._fields(key_type, value)
            row = self._histories.apply(GroupRecord(record_offset, timestamp_ms, key_type, key, fields, leader_epoch))
            if row is not None:
                self._rows.append(row)

    def _fields(self, key_type: int, value: bytes) -> Value | None:
        """The decoded value. Short values of members and targets mostly repeat, so equal bytes give the same object."""
        if key_type == KeyType.GROUP_METADATA or len(value) > LONGEST_CACHED_VALUE:
            return self._decoded(key_type, value)
        cache_key = key_type, value
        fields = self._cached_values.get(cache_key)
        if fields is None:
            if len(self._cached_values) >= MOST_CACHED_VALUES:
                self._cached_values.clear()
            fields = self._cached_values[cache_key] = self._decoded(key_type, value)
        return fields

    def _decoded(self, key_type: int, value: bytes) -> Value | None:
        decoded = decode_value(key_type, value, shared=self._shared)
        return None if decoded is None else decoded.fields

    def finish(self) -> Iterator[pa.Table]:
        """The rows that are still in memory."""
        if self._rows:
            rows = to_arrow(TABLES[REBALANCES], Rebalance, self._rows)
            incarnation = 0 if self._history_range is None else self._history_range.incarnation
            for name, number in (("offsets_partition", self._offsets_partition), ("incarnation", incarnation)):
                rows = rows.append_column(name, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
            self._rows = []
            yield rows

    def _continue_after_history(self) -> None:
        """Continue from the state at the end of the history: the log may have lost the records that led to it."""
        self._is_after_history = True
        history_range, versions = self._history_range, self._job.state_versions
        if history_range is None or history_range.is_empty:
            return
        self._histories.forget()
        if versions is not None:
            is_from_latest = not versions.keys() >= set(STATE_TABLES)
            self._histories.recall(self._latest_records(versions) if is_from_latest else self._records_of_state(versions))

    def _latest_records(self, versions: Mapping[str, int]) -> Iterator[GroupRecord]:
        """The group records that were live at the end of the history: the same state as ``_records_of_state`` gives, read more slowly."""
        job, table = self._job, TABLES[LATEST_RECORDS]
        columns = ["record_offset", "record_timestamp", "key", "value", "control_type", "decodes", TIMESTAMPS_OUT_OF_RANGE.name]
        rows = rows_of_partition(job.warehouse_uri, table.name, versions[table.name], job.cluster, columns, self._offsets_partition)
        for row in table.to_milliseconds(rows).sort_by("record_offset").to_pylist():
            if row["decodes"] and row["key"] is not None and row["control_type"] == NOT_A_CONTROL_RECORD:
                key_type, _, key, _ = decode_key(row["key"])
                if key_type in KEY_TYPES:
                    fields = None if row["value"] is None else self._fields(key_type, row["value"])
                    yield GroupRecord(row["record_offset"], row["record_timestamp_ms"], key_type, key, fields)

    def _records_of_state(self, versions: Mapping[str, int]) -> Iterator[GroupRecord]:
        def rows(table: str, columns: str, *where: Condition) -> list[dict[str, Any]]:
            job, wanted = self._job, columns.split()
            read = rows_of_partition(job.warehouse_uri, table, versions[table], job.cluster, wanted, self._offsets_partition, *where)
            return list(read.to_pylist())

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
            rows("assignments", "group_id member_id kind task_type topic_id subtopology partition", ("kind", "=", "target")),
        )


def records_of_state(
    groups: Iterable[Mapping[str, Any]], members: Iterable[Mapping[str, Any]], assignments: Iterable[Mapping[str, Any]]
) -> Iterator[GroupRecord]:
    """Group records that lead to the state in the rows of the state tables, as far as rebalances depend on it."""
    members_of: dict[str, list[Mapping[str, Any]]] = {}
    for member in members:
        members_of.setdefault(member["group_id"], []).append(member)
    targets_of: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in assignments:
        if row["kind"] == "target" and row["task_type"] in (None, "active"):
            targets_of.setdefault(row["group_id"], {}).setdefault(row["member_id"], []).append(row)
    for group in groups:
        if group["record_offset"] is None:
            continue  # the group exists only by its commits, without a group record
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
    key_types = KEY_TYPES_OF[group["group_type"]]
    timestamp_ms = _milliseconds(group["record_timestamp"])

    def record(key_type: int, value: Mapping[str, Any], **key: str) -> GroupRecord:
        return GroupRecord(group["record_offset"], timestamp_ms, key_type, {"group_id": group["group_id"], **key}, value)

    for member in members:
        yield record(key_types.member, {**member, "subscribed_topic_names": member["subscribed_topics"]}, member_id=member["member_id"])
    yield record(key_types.group, {"epoch": group["generation"]})
    for member_id, targets_of_member in targets.items():
        tasks = [
            {"topic_id": row["topic_id"], "subtopology_id": row["subtopology"], "partitions": [row["partition"]]}
            for row in targets_of_member
        ]
        target = {"active_tasks": tasks} if group["group_type"] == "streams" else {"topic_partitions": tasks}
        yield record(key_types.target, target, member_id=member_id)
    # A group without a target assignment begins with assignment epoch 1, without a record of it.
    if targets or (group["assignment_epoch"] is not None and group["assignment_epoch"] > 1):
        yield record(key_types.target_epoch, {"assignment_epoch": group["assignment_epoch"]})


def _milliseconds(moment: datetime | None) -> int:
    """Epoch milliseconds; NO_TIMESTAMP for None."""
    return NO_TIMESTAMP if moment is None else round(moment.timestamp() * 1000)
