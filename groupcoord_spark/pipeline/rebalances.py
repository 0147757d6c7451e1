"""Rows of the table ``rebalances``, from the group records that are new to the history tables.

Most of these records are superseded and not kept for the replay. A reader that has all records of an offsets partition makes the rows
itself. For other partitions the readers send the new group records to the replay, which makes the rows.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol

import numpy as np
import pyarrow as pa

from groupcoord_spark.coordinator.rebalances import GroupHistories, GroupRecord, Rebalance, Value
from groupcoord_spark.coordinator.rebalances.group_records import KEY_TYPES
from groupcoord_spark.pipeline.exchange.carried_records import latest_records
from groupcoord_spark.pipeline.exchange.kept_records import records_of_kept
from groupcoord_spark.pipeline.exchange.state_rows import to_arrow
from groupcoord_spark.pipeline.extents import HistoryRange
from groupcoord_spark.protocol.definition import SharedElements, decode_key, decode_value
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD, KeyType
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.read import TablesOfRun

REBALANCES: Final = "rebalances"
LEADER_EPOCH: Final = "leader_epoch"
"""A column that new group records have in addition to KEPT: the leader epoch of the record's batch."""
RECORDS_AT_ONCE: Final = 1_000
"""Number of records that are Python objects at a time."""
ROWS_AT_ONCE: Final = 5_000
"""Number of rows in memory after which they go to the writer."""
NAMES_AT_ONCE: Final = 500_000
"""Number of names of members in these rows after which they go too: rows of a group of 10,000 members are large."""

LONGEST_CACHED_VALUE: Final = 1024
MOST_CACHED_VALUES: Final = 10_000


@dataclass(frozen=True, slots=True)
class RebalanceJob:
    """What the makers of rebalances need to know of the history.

    history_ranges: offsets partition -> record offsets that the history tables have. tables_at_history_end: as the run
    left them that wrote the end of the history; None: there is no such run.
    """

    warehouse_uri: str
    cluster: str
    history_ranges: Mapping[int, HistoryRange]
    tables_at_history_end: TablesOfRun | None


class Follower(Protocol):
    """Takes the group records that ``PartitionRebalances`` decodes, in the same order."""

    groups: GroupHistories
    """The groups before each record."""

    def recall_offsets(self, latest: pa.RecordBatch) -> None:
        """Begin with the latest records at the end of the history."""

    def group_record(self, record: GroupRecord) -> None:
        """Take a new group record before it is applied to the groups."""


class PartitionRebalances:
    """The rebalances of one offsets partition. Its new group records are applied in the order of their record offsets."""

    def __init__(self, job: RebalanceJob, offsets_partition: int, follower: Follower | None = None) -> None:
        self._job = job
        self._follower = follower
        self._offsets_partition = offsets_partition
        self._history_range = job.history_ranges.get(offsets_partition)
        self._histories = GroupHistories() if follower is None else follower.groups
        self._is_after_history = False
        self._rows: list[Rebalance] = []
        self._names = 0
        self._shared = SharedElements()
        self._decoded_once = lru_cache(MOST_CACHED_VALUES)(self._decoded)

    def apply(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Apply a batch of new group records. Gives rows of the table once there are ROWS_AT_ONCE."""
        for begin in range(0, batch.num_rows, RECORDS_AT_ONCE):
            self._follow(batch.slice(begin, RECORDS_AT_ONCE))
            if len(self._rows) >= ROWS_AT_ONCE or self._names >= NAMES_AT_ONCE:
                yield from self.finish()

    def _follow(self, batch: pa.RecordBatch) -> None:
        encoded = batch.column("key").dictionary_encode()
        keys = [decode_key(key) for key in encoded.dictionary.to_pylist()]
        columns = ("record_offset", "record_timestamp_ms", LEADER_EPOCH)
        numbers = (batch.column(name).to_numpy().tolist() for name in columns)
        rows = zip(encoded.indices.to_numpy().tolist(), batch.column("value").to_pylist(), *numbers, strict=True)
        for code, value, record_offset, timestamp_ms, leader_epoch in rows:
            self.reach(record_offset)
            key_type, _, key, _ = keys[code]
            fields = None if value is None else self._fields(key_type, value)
            record = GroupRecord(record_offset, timestamp_ms, key_type, key, fields, leader_epoch)
            if self._follower is not None and self._is_after_history:
                self._follower.group_record(record)
            row = self._histories.apply(record)
            if row is not None:
                self._rows.append(row)
                self._names += sum(map(len, filter(None, (row.members_joined, row.members_left, row.members_kept))))

    def reach(self, record_offset: int) -> None:
        """Continue from the end of the history, where the next new record follows it."""
        if not self._is_after_history and (self._history_range is None or record_offset >= self._history_range.end_offset):
            self._continue_after_history()

    def _fields(self, key_type: int, value: bytes) -> Value | None:
        """Decode the value. Short values of members and targets repeat often, so equal bytes return the same object."""
        may_repeat = key_type != KeyType.GROUP_METADATA and len(value) <= LONGEST_CACHED_VALUE
        return self._decoded_once(key_type, value) if may_repeat else self._decoded(key_type, value)

    def _decoded(self, key_type: int, value: bytes) -> Value | None:
        decoded = decode_value(key_type, value, shared=self._shared)
        return None if decoded is None else decoded.fields

    def finish(self) -> Iterator[pa.Table]:
        """Yield the rows that are still in memory."""
        if self._rows:
            rows = to_arrow(TABLES[REBALANCES], Rebalance._fields, self._rows)
            incarnation = 0 if self._history_range is None else self._history_range.incarnation
            for name, number in (("offsets_partition", self._offsets_partition), ("incarnation", incarnation)):
                rows = rows.append_column(name, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
            self._rows, self._names = [], 0
            yield rows

    def _continue_after_history(self) -> None:
        """Continue from the state at the end of the history: the log may have lost the records that led to it."""
        self._is_after_history = True
        history_range, tables = self._history_range, self._job.tables_at_history_end
        if history_range is None or history_range.is_empty:
            return
        self._histories.forget()
        if tables is not None:
            batch = latest_records(self._job.warehouse_uri, tables, self._job.cluster, self._offsets_partition)
            self._histories.recall(self._group_records(batch))
            if self._follower is not None:
                self._follower.recall_offsets(batch)

    def _group_records(self, batch: pa.RecordBatch) -> Iterator[GroupRecord]:
        """Yield the group records that were live at the end of the history."""
        records, decodes = records_of_kept(batch)
        is_data = decodes & (records.control_type == NOT_A_CONTROL_RECORD)
        for row in batch.filter(pa.array(is_data & np.isin(records.key.leading_int16(), KEY_TYPES))).to_pylist():
            key_type, _, key, _ = decode_key(row["key"])
            fields = None if row["value"] is None else self._fields(key_type, row["value"])
            yield GroupRecord(row["record_offset"], row["record_timestamp_ms"], key_type, key, fields)
