"""Rows of the table ``offset_events``, from the changes that ``OffsetTable`` finds and from the group records of an offsets partition.

A reader that has all records of an offsets partition makes the rows itself. For other partitions the readers send the changes to the
replay, which knows what came before each part and has the group records in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.offset_events import REMOVED, Before, Change, OffsetEvent, OffsetEvents, Surroundings
from groupcoord_spark.coordinator.rebalances import GroupHistories, GroupRecord
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.exchange.kept_records import OffsetQuestions, records_of_kept
from groupcoord_spark.pipeline.exchange.packing import pack
from groupcoord_spark.pipeline.exchange.state_rows import to_arrow
from groupcoord_spark.pipeline.extents import NO_HISTORY, HistoryRange
from groupcoord_spark.pipeline.read import offset_loop as loop
from groupcoord_spark.pipeline.read.decode import DecodedChunk, decode_kept_records
from groupcoord_spark.pipeline.read.offset_table import OffsetTable, OffsetValues, before_of, hash_of_topic
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.protocol import encode_key
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.protocol.slices import Mask
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.read import TablesOfRun, rows_at
from groupcoord_spark.warehouse.tables import NO_TOPIC_ID

OFFSET_EVENTS: Final = "offset_events"
ROWS_AT_ONCE: Final = 5_000
"""Number of rows in memory after which they go to the writer."""

_OPS: Final[Mapping[int, Literal["commit", "tombstone", "abort"]]] = {
    loop.COMMITTED_OP: "commit",
    loop.REMOVED_OP: "tombstone",
    loop.ABORTED_OP: "abort",
}
_REMOVED_COLUMNS: Final = (
    *("group_id", "topic", "partition", "record_offset", "incarnation", "cause", "from_committed_offset", "from_record_offset"),
    *("commit_timestamp", "topic_id", "timestamps_out_of_range"),
)


@dataclass(frozen=True, slots=True)
class OffsetEventJob:
    """What the makers of offset events need to know.

    surroundings: what other files of the log directory show. earlier: the tables that the last run left; None: there is no earlier run, or
    it had no table offset_events.
    """

    semantics: Semantics
    retention_ms: int
    surroundings: Surroundings
    earlier: TablesOfRun | None = None


class PartitionOffsetEvents:
    """The events of one offsets partition. Its new records are applied in the order of their record offsets."""

    def __init__(self, job: OffsetEventJob, history: RebalanceJob, offsets_partition: int) -> None:
        self._job = job
        self._history = history
        self._offsets_partition = offsets_partition
        self._range = history.history_ranges.get(offsets_partition, NO_HISTORY)
        self._table = OffsetTable(job.semantics, job.surroundings)
        self.groups = GroupHistories()
        self._judge = OffsetEvents(job.semantics, job.retention_ms, job.surroundings, self.groups)
        self._queue: deque[Change | _Marker] = deque()
        self._topic_id_of: dict[int, str] = {}
        self._touched: set[str] = set()
        self._removed: dict[str, dict[tuple[str, int], Before]] = {}
        """Group id -> offset -> the value that an earlier run saw removed."""
        self._staged: dict[int, dict[bytes, list[int]]] = {}
        """Producer id -> key -> the commit in its open transaction, of earlier parts."""
        self._is_of_parts = False
        self._open_removals: list[pa.Table] = []

    def first_new(self, records: Records) -> int | None:
        """Return the record offset of the first record that is new to the history; None: there is none."""
        new = np.flatnonzero(self.new(records))
        return int(records.record_offset[new[0]]) if len(new) else None

    def new(self, records: Records) -> Mask:
        """bool[n]: the record is new, and follows all records of the history."""
        is_new: Mask = records.record_offset >= (self._range.end_offset if not self._range.is_empty else 0)
        return is_new

    def recall_offsets(self, latest: pa.RecordBatch) -> None:
        """Begin with the latest records of the run that wrote the end of the history."""
        records, decodes = records_of_kept(latest)
        if len(records):
            decoded = decode_kept_records(records, decodes, self._job.semantics, records.distinct_keys())
            values = OffsetValues.of(np.flatnonzero(_of_offsets(decoded)), decoded)
            topic_ids = pc.unique(values.columns.fields["topic_id"]).drop_null().to_pylist()
            self._topic_id_of |= {hash_of_topic(topic_id): topic_id for topic_id in topic_ids}
            self._table.find(decoded, values, np.ones(len(records), np.bool_), loop.IS_RECALL)
            for staged in self._table.staged_rows():
                of_producer = self._staged.setdefault(staged[loop.OF_PRODUCER], {})
                of_producer[self._table.key(staged[loop.OF_KEY])] = _row_of_staged(staged, -1)

    def take_chunk(self, decoded: DecodedChunk, values: OffsetValues) -> None:
        """Queue the changes of a chunk. values: of all offset records that are new."""
        self._learn_topics(decoded)
        flags = loop.NOTHING_BEFORE if self._range.is_empty else 0
        changes = self._table.find(decoded, values, self.new(decoded.records), flags)
        self._enqueue(map(self._change, changes.tolist()))

    def take_changes(self, batch: pa.RecordBatch) -> None:
        """Queue the changes that the reader of a part of the partition sent."""
        self._is_of_parts = True
        keys = batch.column("key").to_pylist()
        topic_ids = batch.column("topic_id").to_pylist()
        columns = np.stack([batch.column(f"c{place}").to_numpy() for place in range(loop.CHANGE_COLUMNS)], axis=1)
        steps: list[Change | _Marker] = []
        for key, topic_id, row in zip(keys, topic_ids, columns.tolist(), strict=True):
            if topic_id is not None:
                self._topic_id_of[_topic_of(row)] = topic_id
            if row[loop.OP] in _OPS:
                row[loop.KEY] = self._table.number(key)
                steps.append(self._change(row))
            else:
                steps.append(_Marker(key, row))
        self._enqueue(steps)

    def group_record(self, record: GroupRecord) -> None:
        """Judge the changes before a group record, and the removal of its group."""
        if self._queue and self._queue[0].at < record.record_offset:
            self.drain(record.record_offset)
        self._judge.group_record(record)
        self._touched.add(record.key["group_id"])

    def end_chunk(self) -> Iterator[pa.Table]:
        """Judge all changes in the queue. Give rows of the table once there are ROWS_AT_ONCE."""
        self.drain(None)
        self._table.set_members((group_id, bool(self.groups.of(group_id).members)) for group_id in self._touched)
        self._touched.clear()
        if len(self._judge.events) + len(self._judge.removals) >= ROWS_AT_ONCE:
            yield from self._rows()
        if len(self._judge.open_removals) >= ROWS_AT_ONCE:
            self._keep_open_removals()

    def finish(self) -> Iterator[pa.Table]:
        """Yield the rows that are still in memory."""
        self.drain(None)
        self._judge.end_write()
        yield from self._rows()

    def questions(self) -> OffsetQuestions:
        """Return what only the whole run can judge, after the last record."""
        self._judge.questions.births = self._table.births()
        self._keep_open_removals()
        return OffsetQuestions(self._judge.questions, pack(pa.concat_tables(self._open_removals)))

    def _keep_open_removals(self) -> None:
        """Turn the removals that only the whole run can judge into rows, which take a fraction of the memory."""
        rows = rows_of_events([removal.event() for removal in self._judge.open_removals], self._offsets_partition, self._range)
        for name in ("had_subscriber", "may_be_group"):
            values = [getattr(removal, name) for removal in self._judge.open_removals]
            rows = rows.append_column(name, pa.array(values, pa.bool_()))
        self._open_removals.append(rows)
        self._judge.open_removals = []

    def _rows(self) -> Iterator[pa.Table]:
        events = [*self._judge.events, *(removal.event() for removal in self._judge.removals)]
        if events:
            yield rows_of_events(events, self._offsets_partition, self._range)
        self._judge.events, self._judge.removals = [], []

    def drain(self, before: int | None) -> None:
        """Judge the changes before a record offset; None: all changes in the queue."""
        queue = self._queue
        while queue and (before is None or queue[0].at < before):
            step = queue.popleft()
            if isinstance(step, _Marker):
                self._apply_marker(step)
            elif (change := self._with_earlier(step)) is not None:
                self._judge.change(change)

    def _with_earlier(self, change: Change) -> Change | None:
        """Return the change with what an earlier part or an earlier run knows of the value before.

        None: it is the tombstone of an offset that was gone already.
        """
        of_key = self._of_key(change) if self._is_of_parts else None
        if change.before is None:
            before, is_gone = self._known(change, of_key)
            topic_id = change.topic_id or (None if before is None else self._topic_id_of.get(before.topic_hash))
            change = change._replace(before=before, is_gone=change.is_gone or is_gone, topic_id=topic_id)
        if change.op != "tombstone":
            return change
        if of_key is not None:
            of_key[loop.TOMBSTONE_AT] = max(of_key[loop.TOMBSTONE_AT], change.record_offset)
        if change.is_gone:
            return None
        if of_key is None:
            return change
        if (before := change.before) is not None:
            if of_key[loop.STATE] == loop.LIVE:  # the offset is older than its part of the log
                before = before._replace(born_ms=int(of_key[loop.BORN_MS]))
                change = change._replace(before=before)
            of_key[loop.COMMITTED : loop.BORN_MS + 1] = before
        of_key[loop.STATE] = loop.GONE
        return change

    def _of_key(self, change: Change) -> npt.NDArray[np.int64]:
        """Return the columns that the parts up to the change left of its offset."""
        key = {"group_id": change.group_id, "topic": change.topic, "partition": change.partition}
        of_key: npt.NDArray[np.int64] = self._table.rows[self._table.number(encode_key(KeyType.OFFSET_COMMIT, key)[2:])]
        return of_key

    def _known(self, change: Change, of_key: npt.NDArray[np.int64] | None) -> tuple[Before | None, bool]:
        """Return the value before, None where neither an earlier part nor an earlier run knows one, and whether it is gone."""
        if of_key is not None and of_key[loop.STATE] != loop.UNKNOWN:
            before = before_of(of_key[loop.COMMITTED : loop.BORN_MS + 1].tolist()) if of_key[loop.RECORD] >= 0 else None
            return before, bool(of_key[loop.STATE] == loop.GONE)
        removed = self._removed.get(change.group_id, {}).get((change.topic, change.partition))
        return removed, removed is not None

    def _look_up(self, group_ids: list[str]) -> None:
        """Find the values that earlier runs saw removed, of these groups."""
        missing = sorted(set(group_ids) - self._removed.keys())
        if not missing or self._range.is_empty or self._job.earlier is None:
            return
        self._removed |= {group_id: {} for group_id in missing}
        where = [("offsets_partition", "=", self._offsets_partition), ("kind", "=", REMOVED), ("group_id", "in", missing)]
        uri, cluster = self._history.warehouse_uri, self._history.cluster
        rows = rows_at(uri, TABLES[OFFSET_EVENTS], self._job.earlier, cluster, _REMOVED_COLUMNS, where)
        for row in TABLES[OFFSET_EVENTS].to_milliseconds(rows).sort_by("record_offset").to_pylist():
            is_value = row["topic"] is not None and row["from_record_offset"] is not None and row["cause"] != "transaction_aborted"
            if is_value and row["incarnation"] == self._range.incarnation:
                topic_hash = 0 if row["topic_id"] == NO_TOPIC_ID else hash_of_topic(row["topic_id"])
                values = row["from_committed_offset"], row["from_record_offset"], -1, row["commit_timestamp_ms"], -1, topic_hash, -1
                self._removed[row["group_id"]][row["topic"], row["partition"]] = Before(*values)

    def _apply_marker(self, step: _Marker) -> None:
        """Apply a marker whose transaction began in an earlier part, or take what a part leaves of an offset or a transaction."""
        row = step.row
        if row[loop.OP] == loop.MARKER_OP:
            is_commit = bool(row[loop.O_COMMITTED])
            for key, commit in self._staged.pop(row[loop.O_PRODUCER], {}).items():
                self._end(key, commit, row, is_commit=is_commit)
            return
        assert step.key is not None
        if row[loop.OP] == loop.REPLACED_OP:
            self._staged.get(row[loop.O_PRODUCER], {}).pop(step.key, None)
            return
        number = self._table.number(step.key)
        if row[loop.OP] == loop.LAST_OP:
            of_key = self._table.rows[number]
            is_continued = row[loop.O_ADVANCES] and of_key[loop.STATE] == loop.LIVE
            born_ms = of_key[loop.BORN_MS] if is_continued else row[loop.B_BORN_MS]
            of_key[loop.STATE] = row[loop.B_STATE]
            if row[loop.B_RECORD] >= 0:
                of_key[loop.COMMITTED : loop.BORN_MS + 1] = row[loop.B_COMMITTED : loop.B_BORN_MS + 1]
                of_key[loop.BORN_MS] = born_ms
            of_key[loop.TOMBSTONE_AT] = max(of_key[loop.TOMBSTONE_AT], row[loop.O_RECORD])
        else:
            self._staged.setdefault(row[loop.O_PRODUCER], {})[step.key] = row

    def _end(self, key: bytes, commit: list[int], marker: list[int], *, is_commit: bool) -> None:
        """End the transaction of a commit of an earlier part."""
        of_key = self._table.rows[self._table.number(key)]
        record = commit[loop.O_RECORD]
        if self._job.semantics.tombstone_drops_pending and record < of_key[loop.TOMBSTONE_AT]:
            return
        is_older = of_key[loop.STATE] == loop.LIVE and record < of_key[loop.RECORD] and not self._job.semantics.later_marker_wins
        if is_commit and is_older:
            return
        row = list(commit)
        row[loop.OP] = loop.COMMITTED_OP if is_commit else loop.ABORTED_OP
        row[loop.KEY], row[loop.O_AT], row[loop.O_AT_MS] = self._table.number(key), marker[loop.O_AT], marker[loop.O_AT_MS]
        row[loop.B_STATE] = row[loop.B_RECORD] = -1
        change = self._with_earlier(self._change(row))
        assert change is not None, "a commit or an abort"
        self._judge.change(change)
        if is_commit:
            born_ms = of_key[loop.BORN_MS] if of_key[loop.STATE] == loop.LIVE else commit[loop.O_AT_MS]
            of_key[loop.STATE], of_key[loop.BORN_MS] = loop.LIVE, born_ms
            of_key[loop.COMMITTED], of_key[loop.RECORD], of_key[loop.EPOCH] = row[loop.O_COMMITTED], record, row[loop.O_EPOCH]
            of_key[loop.COMMIT_MS], of_key[loop.EXPIRE_MS] = row[loop.O_COMMIT_MS], row[loop.O_EXPIRE_MS]

    def _change(self, row: list[int]) -> Change:
        """Build the change of a row of changes."""
        # A tombstone whose value lies before the first record that was read leaves a state without a value.
        before = before_of(row[loop.B_COMMITTED : loop.B_BORN_MS + 1]) if row[loop.B_RECORD] >= 0 else None
        return Change(
            _OPS[row[loop.OP]],
            *self._table.name(row[loop.KEY]),
            row[loop.O_RECORD],
            row[loop.O_AT],
            row[loop.O_AT_MS],
            KeyType.OFFSET_COMMIT,
            before,
            row[loop.B_STATE] == loop.GONE,
            row[loop.O_COMMITTED],
            row[loop.O_EPOCH],
            row[loop.O_TOPIC],
            self._topic_id_of.get(_topic_of(row)),
            None if row[loop.O_PRODUCER] < 0 else row[loop.O_PRODUCER],
        )

    def _enqueue(self, steps: Iterable[Change | _Marker]) -> None:
        """Add to the queue, and look up together what earlier runs saw removed."""
        before = len(self._queue)
        self._queue.extend(steps)
        added = islice(self._queue, before, None)
        self._look_up([step.group_id for step in added if isinstance(step, Change) and step.before is None])

    def _learn_topics(self, decoded: DecodedChunk) -> None:
        self._topic_id_of |= {hash_of_topic(topic_id): topic_id for topic_id in decoded.topic_names()}


class PartChanges:
    """The changes of a part of an offsets partition, as batches for the replay."""

    def __init__(self, job: OffsetEventJob, history_range: HistoryRange) -> None:
        self._table = OffsetTable(job.semantics, job.surroundings)
        self._range = history_range
        self._last_offset = -1
        self._topic_id_of: dict[int, str] = {}

    def take_chunk(self, decoded: DecodedChunk, values: OffsetValues) -> pa.RecordBatch | None:
        """Return the changes of a chunk; None: there are none. values: of all offset records that are new."""
        records = decoded.records
        is_new = records.record_offset >= (self._range.end_offset if not self._range.is_empty else 0)
        if is_new.any():
            self._last_offset = int(records.record_offset[-1])
        self._topic_id_of |= {hash_of_topic(topic_id): topic_id for topic_id in decoded.topic_names()}
        changes = self._table.find(decoded, values, is_new, loop.ALL_BEFORE)
        if not len(changes):
            return None
        rows = changes.tolist()
        return self._batch([self._table.key(row[loop.KEY]) if row[loop.KEY] >= 0 else None for row in rows], rows)

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the state that the part leaves of each offset and open transaction."""
        keys, rows = [], []
        for key, of_key in self._table.last_rows():
            row = [-1] * loop.CHANGE_COLUMNS
            row[loop.OP], row[loop.O_AT], row[loop.O_RECORD] = loop.LAST_OP, self._last_offset, of_key[loop.TOMBSTONE_AT]
            row[loop.B_STATE] = of_key[loop.STATE]
            row[loop.B_COMMITTED : loop.B_BORN_MS + 1] = of_key[loop.COMMITTED : loop.BORN_MS + 1]
            row[loop.O_ADVANCES] = int(of_key[loop.TOMBSTONE_AT] < 0)
            keys.append(key)
            rows.append(row)
        for staged in self._table.staged_rows():
            keys.append(self._table.key(staged[loop.OF_KEY]))
            rows.append(_row_of_staged(staged, self._last_offset))
        if rows:
            yield self._batch(keys, rows)

    def _batch(self, keys: Sequence[bytes | None], rows: Sequence[Sequence[int]]) -> pa.RecordBatch:
        columns = np.array(rows, np.int64).T
        topic_ids = pa.array([self._topic_id_of.get(_topic_of(row)) for row in rows], pa.string())
        arrays = [pa.array(columns[loop.O_AT]), pa.array(keys, pa.binary()), topic_ids, *map(pa.array, columns)]
        return pa.RecordBatch.from_arrays(arrays, ["at", "key", "topic_id", *(f"c{place}" for place in range(loop.CHANGE_COLUMNS))])


def _row_of_staged(staged: Sequence[int], at: int) -> list[int]:
    """Build a row of changes for a commit in an open transaction. at: the record that it follows."""
    row = [-1] * loop.CHANGE_COLUMNS
    row[loop.OP], row[loop.O_AT], row[loop.O_RECORD] = loop.STAGED_OP, at, staged[loop.S_RECORD]
    row[loop.O_COMMITTED], row[loop.O_EPOCH], row[loop.O_TOPIC] = staged[loop.S_COMMITTED], staged[loop.S_EPOCH], staged[loop.S_TOPIC]
    row[loop.O_COMMIT_MS], row[loop.O_EXPIRE_MS] = staged[loop.S_COMMIT_MS], staged[loop.S_EXPIRE_MS]
    row[loop.O_PRODUCER], row[loop.O_AT_MS] = staged[loop.OF_PRODUCER], staged[loop.S_MS]
    return row


def _topic_of(row: Sequence[int]) -> int:
    """Return the number of the topic id in a row of changes, of the new value or the one before; 0 or -1 for none."""
    return row[loop.O_TOPIC] if row[loop.O_TOPIC] not in (0, -1) else row[loop.B_TOPIC]


def _of_offsets(decoded: DecodedChunk) -> Mask:
    kinds = decoded.kinds
    is_offset: Mask = (kinds.key_type >= 0) & (kinds.key_type < KeyType.GROUP_METADATA) & decoded.decodes & ~kinds.is_control
    return is_offset


def rows_of_events(events: Sequence[OffsetEvent], offsets_partition: int, history_range: HistoryRange) -> pa.Table:
    """Return the events as rows of the table, with Kafka's values."""
    rows = to_arrow(TABLES[OFFSET_EVENTS], OffsetEvent._fields, events)
    for name, number in (("offsets_partition", offsets_partition), ("incarnation", history_range.incarnation)):
        rows = rows.append_column(name, pa.repeat(pa.scalar(number, pa.int32()), rows.num_rows))
    return rows


@dataclass(slots=True)
class _Marker:
    """A row of changes that is not a change of its own: a marker, or what a part leaves of an offset or a transaction."""

    key: bytes | None
    row: list[int]

    @property
    def at(self) -> int:
        """When it counts."""
        return self.row[loop.O_AT]
