"""Rows of the table ``rebalances``, from the group records that are new to the history tables.

Most of these records are superseded and not kept for the replay. A reader that has all records of an offsets partition makes the rows
itself. For other partitions the readers send the new group records to the replay, which makes the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

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

REBALANCES: Final = "rebalances"
LEADER_EPOCH: Final = "leader_epoch"
"""A column that new group records have in addition to KEPT: the leader epoch of the record's batch."""
RECORDS_AT_ONCE: Final = 1_000
"""Number of records that are Python objects at a time."""
ROWS_AT_ONCE: Final = 5_000
"""Number of rows in memory after which they go to the writer."""

LONGEST_CACHED_VALUE: Final = 1024
MOST_CACHED_VALUES: Final = 10_000


@dataclass(frozen=True, slots=True)
class RebalanceJob:
    """What the makers of rebalances need to know of the history.

    history_ranges: offsets partition -> record offsets that the history tables have. latest_records_version: Delta version of
    latest_records after the run that wrote the end of the history; None: there is no such run.
    """

    warehouse_uri: str
    cluster: str
    history_ranges: Mapping[int, HistoryRange]
    latest_records_version: int | None


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
        self._decoded_once = lru_cache(MOST_CACHED_VALUES)(self._decoded)

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
        may_repeat = key_type != KeyType.GROUP_METADATA and len(value) <= LONGEST_CACHED_VALUE
        return self._decoded_once(key_type, value) if may_repeat else self._decoded(key_type, value)

    def _decoded(self, key_type: int, value: bytes) -> Value | None:
        decoded = decode_value(key_type, value, shared=self._shared)
        return None if decoded is None else decoded.fields

    def finish(self) -> Iterator[pa.Table]:
        """The rows that are still in memory."""
        if self._rows:
            rows = to_arrow(TABLES[REBALANCES], Rebalance._fields, self._rows)
            incarnation = 0 if self._history_range is None else self._history_range.incarnation
            for name, number in (("offsets_partition", self._offsets_partition), ("incarnation", incarnation)):
                rows = rows.append_column(name, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
            self._rows = []
            yield rows

    def _continue_after_history(self) -> None:
        """Continue from the state at the end of the history: the log may have lost the records that led to it."""
        self._is_after_history = True
        history_range, version = self._history_range, self._job.latest_records_version
        if history_range is None or history_range.is_empty:
            return
        self._histories.forget()
        if version is not None:
            self._histories.recall(self._records_at_history_end(version))

    def _records_at_history_end(self, version: int) -> Iterator[GroupRecord]:
        """The group records that were live at the end of the history."""
        batch = latest_records(self._job.warehouse_uri, version, self._job.cluster, self._offsets_partition)
        records, decodes = records_of_kept(batch)
        is_data = decodes & (records.control_type == NOT_A_CONTROL_RECORD)
        for row in batch.filter(pa.array(is_data & np.isin(records.key.leading_int16(), KEY_TYPES))).to_pylist():
            key_type, _, key, _ = decode_key(row["key"])
            fields = None if row["value"] is None else self._fields(key_type, row["value"])
            yield GroupRecord(row["record_offset"], row["record_timestamp_ms"], key_type, key, fields)
