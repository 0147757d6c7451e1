"""The replay of one offsets partition: from its kept records to the packed rows of its state and rule tables.

``partition_replay`` is the function of ``mapInArrow`` over rows sorted by (cluster, offsets partition), in a run as in ``gc.replay``. The
records of a partition come in batches, and only the state of the partition stays in memory.
"""

import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain, groupby
from typing import Any

import pyarrow as pa

from groupcoord_spark.answers.expiration import RULE_COLUMNS, ExpirationJob, Expirations, expirations_of
from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS, DefaultAssignors
from groupcoord_spark.coordinator.offset_events import data_deleted, oldest_commits
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import LoadWarning, PartitionState
from groupcoord_spark.errors import InputError, WarehouseError
from groupcoord_spark.log import ChangedFiles, PartitionLog
from groupcoord_spark.log.partition_count import PlacedGroups
from groupcoord_spark.pipeline.exchange import kept_records
from groupcoord_spark.pipeline.exchange.carried_records import LATEST_RECORDS, TOPIC_IDS, carried_records, carried_topic_names
from groupcoord_spark.pipeline.exchange.health_facts import HealthPieces
from groupcoord_spark.pipeline.exchange.packing import pack, with_column
from groupcoord_spark.pipeline.exchange.state_rows import (
    FIRST,
    LATER,
    PARTITION_REPORT,
    PLACED_GROUPS,
    REPLAYED_ARROW,
    TOPIC_NAMES,
    PartitionReport,
    internals_of,
    packed_by_table,
    placed_groups_of,
    state_rows,
)
from groupcoord_spark.pipeline.extents import NO_HISTORY, CarriedState
from groupcoord_spark.pipeline.read.offset_events import OFFSET_EVENTS, OffsetEventJob, PartitionOffsetEvents, rows_of_events
from groupcoord_spark.pipeline.read.reader import ReadJob
from groupcoord_spark.pipeline.read.rows import with_rows_read
from groupcoord_spark.pipeline.rebalances import REBALANCES, PartitionRebalances, RebalanceJob
from groupcoord_spark.pipeline.replay.carried_state import CarriedStateComparison, LiveKeys
from groupcoord_spark.pipeline.replay.kept_records_replay import REPLAYED_AT_ONCE_BYTES, KeptRecordsReplay
from groupcoord_spark.pipeline.replay.latest_records import LatestRecords


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """The same for the replay of every offsets partition of a run.

    ``expiration`` None applies no rule; the replay then gives the tables of INTERNALS, which the rules need. ``writers`` is the number of
    tasks that write the state tables. ``read`` defines how raw rows are read; None without raw rows, which come from ``source``.
    ``carried`` are the latest records that the run continues from, or None. ``changed`` lists by offsets partition the files that must
    still contain the live keys of these records. ``remembered`` are latest records whose live keys must have left a trace in logs that are
    read whole. ``compared`` are the offsets partitions of ``remembered`` whose state is compared with the state read. ``writes_latest``:
    the run writes latest_records. ``health_logs``: see ReadJob.
    """

    semantics: Semantics
    expiration: ExpirationJob | None
    writers: int
    rebalances: RebalanceJob
    offset_events: OffsetEventJob | None = None
    read: ReadJob | None = None
    source: str = ""
    default_assignors: DefaultAssignors = KAFKAS_ASSIGNORS
    carried: CarriedState | None = None
    changed: Mapping[int, ChangedFiles] = field(default_factory=dict)
    remembered: CarriedState | None = None
    compared: frozenset[int] = frozenset()
    writes_latest: bool = True
    health_logs: Mapping[int, PartitionLog] = field(default_factory=dict)
    lost_before: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Topic and partition -> where its log started in the last run."""


def partition_replay(job: ReplayJob) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for mapInArrow: batches of SHUFFLED, sorted by cluster, offsets partition and offset -> batches of REPLAYED."""

    def replay_partitions(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Return the memory that the reading tasks of this worker freed; the replay hardly needs it.
        pa.default_memory_pool().release_unused()
        clusters_and_rows = ((batch.column("cluster").to_pylist(), kept_records.ShuffledRow.of(batch)) for batch in batches)
        rows = chain.from_iterable(zip(clusters, of_batch, strict=True) for clusters, of_batch in clusters_and_rows)
        for (cluster, offsets_partition), of_place in groupby(rows, key=lambda row: (row[0], row[1].offsets_partition)):
            for row in _replayed(job, cluster, offsets_partition, (row for _, row in of_place)):
                columns = [pa.array([value], field.type) for value, field in zip((*row, cluster), REPLAYED_ARROW, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=REPLAYED_ARROW)

    return replay_partitions


WriterRow = tuple[int, int, str, bytes]
"""A row of REPLAYED without its cluster."""


def _replayed(job: ReplayJob, cluster: str, offsets_partition: int, rows: Iterator[kept_records.ShuffledRow]) -> Iterator[WriterRow]:
    """Yield what the replay of one offsets partition gives. rows: the rows of SHUFFLED of that partition."""
    if job.read is not None:
        read = replace(job.read, cluster=cluster, whole_partitions=frozenset([offsets_partition]))
        rows = with_rows_read(rows, offsets_partition, job.source, read)
    replay = _PartitionReplay(job, offsets_partition)
    yield from chain.from_iterable(map(replay.take, rows))
    yield from replay.end()


class _PartitionReplay:
    """Begins with what an earlier run left of one offsets partition, takes the rows of this run, and gives the rows of the tables."""

    def __init__(self, job: ReplayJob, offsets_partition: int) -> None:
        self._job = job
        self._offsets_partition = offsets_partition
        self._writer = offsets_partition % job.writers
        self._replay = KeptRecordsReplay(job.semantics)
        self._latest = LatestRecords()
        self._events: PartitionOffsetEvents | None = None
        if job.offset_events is not None:
            self._events = PartitionOffsetEvents(job.offset_events, job.rebalances, offsets_partition)
        self._rebalances = PartitionRebalances(job.rebalances, offsets_partition, self._events)
        self._held_group_records: deque[pa.RecordBatch] = deque()
        """New group records whose chunk may have changes that have not come yet."""
        self._health = HealthPieces()
        self._report = PartitionReport(offsets_partition)
        self._topic_names: dict[str, str] = {}
        self._pending_batches: list[pa.RecordBatch] = []
        self._warnings_of_earlier_run: Counter[LoadWarning] = Counter()
        self._live_keys: LiveKeys | None = None
        self._carried_state: CarriedStateComparison | None = None
        if job.carried is not None and offsets_partition in job.carried.end_offsets:
            self._go_on_from(job.carried)
        elif job.remembered is not None and offsets_partition in job.remembered.end_offsets:
            # A run that reads all of the log must not fail because of what an earlier one left, unless that is to be compared.
            with nullcontext() if offsets_partition in job.compared else suppress(WarehouseError):
                self._remember(job.remembered)

    def _go_on_from(self, carried: CarriedState) -> None:
        """Begin with the state of an earlier run. Raises WarehouseError where its tables cannot be read."""
        of_cluster = (self._job.rebalances.warehouse_uri, self._job.rebalances.cluster, carried, self._offsets_partition)
        records = carried_records(*of_cluster)
        self._topic_names |= carried_topic_names(*of_cluster)
        self._latest.begin_with(records)
        self._replay.apply_latest(records)
        self._warnings_of_earlier_run = Counter(self._replay.coordinator.finish().warnings())
        if (changed := self._job.changed.get(self._offsets_partition)) is not None:
            with suppress(InputError):  # the state is known without these files; what replaced one is looked at in the next run
                self._live_keys = LiveKeys(records, lambda: self._replay, changed)

    def _remember(self, remembered: CarriedState) -> None:
        """Keep what an earlier run left, to compare the log with it. Raises WarehouseError where its tables cannot be read."""
        records = carried_records(self._job.rebalances.warehouse_uri, self._job.rebalances.cluster, remembered, self._offsets_partition)
        of_earlier = cache(lambda: KeptRecordsReplay.of(records, self._job.semantics))
        self._live_keys = LiveKeys(records, of_earlier)
        if self._offsets_partition in self._job.compared:
            self._carried_state = CarriedStateComparison(of_earlier(), remembered.end_offsets[self._offsets_partition])

    def take(self, row: kept_records.ShuffledRow) -> Iterator[WriterRow]:
        """Take the next row of the offsets partition, and give the rows that need not wait for the end."""
        if row.kind == kept_records.RECORDS:
            batch = row.batch
            if sum(pending.nbytes for pending in self._pending_batches) + batch.nbytes > REPLAYED_AT_ONCE_BYTES:
                self._apply_pending()
            self._pending_batches.append(batch)
        elif row.kind == kept_records.NEW_GROUP_RECORDS:
            yield from self._rows_of_history(row.first_offset)
            self._held_group_records.append(row.batch)
        elif row.kind == kept_records.OFFSET_CHANGES and self._events is not None:
            yield from self._rows_of_history(row.first_offset)
            self._rebalances.reach(row.first_offset)
            self._events.take_changes(row.batch)
        elif row.kind == kept_records.FACTS:
            self._health.add(row.first_offset, row.packed)
        elif row.kind == kept_records.REPORT:
            piece: kept_records.PieceReport = pickle.loads(row.packed)
            self._report.take_piece(piece)
            self._topic_names |= piece.topic_names
        else:
            yield self._writer, LATER, row.kind, row.packed

    def _rows_of_history(self, record_offset: int | None) -> Iterator[WriterRow]:
        """Apply the group records and changes that came before a record; None: all of them."""
        held = self._held_group_records
        while held and (record_offset is None or held[0].column("record_offset")[-1].as_py() < record_offset):
            for rows_so_far in self._rebalances.apply(held.popleft()):
                yield self._writer, LATER, REBALANCES, pack(rows_so_far)
        if self._events is not None and record_offset is not None:
            self._events.drain(held[0].column("record_offset")[0].as_py() if held else record_offset)

    def _apply_pending(self) -> None:
        """Replay the pending batches as one batch."""
        if not self._pending_batches:
            return
        batch = kept_records.as_one(self._pending_batches)
        self._pending_batches.clear()  # no row is in memory twice
        self._replay.apply(batch)
        if self._job.writes_latest:
            self._latest.add(batch, self._replay)
        if self._carried_state is not None:
            self._carried_state.see(batch)
        if self._live_keys is not None:
            self._live_keys.see(batch.column("key"), batch.column("record_offset").to_numpy())

    def end(self) -> Iterator[WriterRow]:
        """Give all other rows, after the last row has been taken."""
        self._apply_pending()
        yield from self._rows_of_history(None)
        for last_rows in self._rebalances.finish():
            yield self._writer, LATER, REBALANCES, pack(last_rows)
        for events in self._events_of_partition():
            yield self._writer, LATER, OFFSET_EVENTS, pack(events)
        state, type_0_offsets = self._replay.coordinator.finish(), self._replay.type_0_offsets()
        expirations = None if self._job.expiration is None else expirations_of(state, self._job.expiration, type_0_offsets)
        tables = state_rows(state, expirations, self._job.default_assignors)
        tables["warnings"] = self._new_warnings(state)
        self._topic_names |= state.topic_names
        if self._job.writes_latest:
            yield from self._rows_of_next_run()
        packed_names = pickle.dumps(self._topic_names)
        for writer in range(self._job.writers) if self._topic_names else ():
            yield writer, FIRST, TOPIC_NAMES, packed_names
        yield self._writer, LATER, PARTITION_REPORT, pickle.dumps(self._whole_report(tables, expirations))
        placed_groups = placed_groups_of(self._offsets_partition, tables)
        if expirations is None:
            for name, internals in {**internals_of(state, type_0_offsets), PLACED_GROUPS: placed_groups}.items():
                yield self._writer, LATER, name, pickle.dumps(internals)
        else:
            packed_groups = pickle.dumps(PlacedGroups.of(placed_groups))
            for writer in range(self._job.writers) if placed_groups else ():
                yield writer, FIRST, PLACED_GROUPS, packed_groups
        for name, payload in packed_by_table(self._offsets_partition, tables):
            yield self._writer, self._offsets_partition, name, payload

    def _events_of_partition(self) -> Iterator[pa.Table]:
        """Return the remaining rows of offset_events, and the facts that the whole run needs to judge the others."""
        if self._events is None or self._job.offset_events is None:
            return
        committed = self._replay.coordinator.offsets.committed
        if self._report.offset_questions is None:
            yield from self._events.finish()
            self._report.offset_questions = self._events.questions()
        questions = self._report.offset_questions.open
        if not questions.births:
            questions.births = oldest_commits(committed)
        history_range = self._job.rebalances.history_ranges.get(self._offsets_partition, NO_HISTORY)
        lost = data_deleted(committed, self._job.offset_events.surroundings, self._job.lost_before)
        if lost:
            yield rows_of_events(lost, self._offsets_partition, history_range)

    def _new_warnings(self, state: PartitionState) -> list[LoadWarning]:
        """Return the replay's warnings that no earlier run gave, and one for each group whose carried state differs."""
        warnings = list((Counter(state.warnings()) - self._warnings_of_earlier_run).elements())
        self._report.refusals += sum(warning.is_refusal for warning in warnings)
        if self._carried_state is not None:
            differences = self._carried_state.differences(self._replay)
            self._report.differences = len(differences)
            warnings += differences
        return warnings

    def _rows_of_next_run(self) -> Iterator[WriterRow]:
        """Yield the rows of the two tables that the next run starts from. Writers sort both by offsets partition."""
        latest = self._latest.reduced(self._replay)
        self._report.latest_records = latest.num_rows
        of_records = ((LATEST_RECORDS, part) for part in kept_records.batches_of_size([latest], kept_records.ROW_BYTES))
        ids_and_names = [pa.array(self._topic_names), pa.array(self._topic_names.values())]
        of_names = [(TOPIC_IDS, pa.RecordBatch.from_arrays(ids_and_names, ["topic_id", "topic"]))] if self._topic_names else []
        for table, rows in chain(of_records, of_names):
            number = pa.repeat(pa.scalar(self._offsets_partition, pa.int32()), rows.num_rows)
            yield self._writer, self._offsets_partition, table, pack(with_column(rows, "offsets_partition", number))

    def _whole_report(self, tables: Mapping[str, Sequence[tuple[Any, ...]]], expirations: Expirations | None) -> PartitionReport:
        """Return the driver's report, with the statistics of the state after the last record."""
        report, replay = self._report, self._replay
        report.vanished = None if self._live_keys is None else self._live_keys.vanished(replay)
        report.health = self._health.facts(self._job.health_logs.get(self._offsets_partition))
        report.open_producers = frozenset(replay.open_since)
        report.live_keys, report.first_open_offset = replay.live_keys, replay.first_open_offset
        report.groups, report.offsets = len(tables["groups"]), len(tables["committed_offsets"])
        if expirations is not None:
            report.expired_offsets = _number_of(expirations, "offset_expirations", "expired")
            report.removed_groups = _number_of(expirations, "group_expirations", "removed")
        report.warnings += len(tables["warnings"])
        return report


def _number_of(expirations: Expirations, table: str, column: str) -> int:
    """Return the number of rows of a table with true in a column."""
    place = RULE_COLUMNS[table].index(column)
    return sum(row[place] for row in expirations[table])
