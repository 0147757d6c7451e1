"""The replay of one offsets partition: from its kept records to the packed rows of its state and rule tables.

``partition_replay`` is the function of ``groupBy(cluster, offsets_partition).applyInPandas`` in its iterator form, in a night as in
``gc.replay``: the records of a partition come in batches, and only the state of the partition stays in memory.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS, DefaultAssignors
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import LoadWarning, PartitionState
from groupcoord_spark.errors import InputError, WarehouseError
from groupcoord_spark.log import ChangedFiles, PartitionLog
from groupcoord_spark.pipeline.exchange import kept_records
from groupcoord_spark.pipeline.exchange.carried_records import LATEST_RECORDS, TOPIC_IDS, carried_records, carried_topic_names
from groupcoord_spark.pipeline.exchange.health_facts import HealthPieces
from groupcoord_spark.pipeline.exchange.packing import pack
from groupcoord_spark.pipeline.exchange.state_rows import (
    COLUMNS,
    FIRST,
    LATER,
    PARTITION_REPORT,
    TOPIC_NAMES,
    PartitionReport,
    internals_of,
    packed_by_table,
    state_rows,
)
from groupcoord_spark.pipeline.expiration import RULE_COLUMNS, ExpirationJob, Expirations, expirations_of
from groupcoord_spark.pipeline.extents import CarriedState
from groupcoord_spark.pipeline.read.reader import ReadJob
from groupcoord_spark.pipeline.read.rows import with_rows_read
from groupcoord_spark.pipeline.rebalances import REBALANCES, PartitionRebalances, RebalanceJob
from groupcoord_spark.pipeline.replay.carried_state import CarriedStateComparison, LiveKeys
from groupcoord_spark.pipeline.replay.kept_records_replay import REPLAYED_AT_ONCE_BYTES, KeptRecordsReplay
from groupcoord_spark.pipeline.replay.latest_records import LatestRecords

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """The same for the replay of every offsets partition of a run.

    expiration: None: no rule is applied; the replay then gives the tables of INTERNALS, which the rules need. writers: number of tasks that
    write the state tables. read: how raw rows are read that come to the replay; None: none come. source: of such rows. carried: the latest
    records that the run goes on from; None: it goes on from none. changed: by offsets partition the files in which the live keys of these
    records must still be found. remembered: the latest records whose live keys must have left something in the logs that the run reads as
    a whole. compared: the offsets partitions of ``remembered`` whose state is compared with the state that the run reads. writes_latest:
    whether the run writes latest_records. health_logs: as in ReadJob.
    """

    semantics: Semantics
    expiration: ExpirationJob | None
    writers: int
    rebalances: RebalanceJob
    read: ReadJob | None = None
    source: str = ""
    default_assignors: DefaultAssignors = KAFKAS_ASSIGNORS
    carried: CarriedState | None = None
    changed: Mapping[int, ChangedFiles] = field(default_factory=dict)
    remembered: CarriedState | None = None
    compared: frozenset[int] = frozenset()
    writes_latest: bool = True
    health_logs: Mapping[int, PartitionLog] = field(default_factory=dict)


def partition_replay(job: ReplayJob) -> Callable[..., Iterator[pd.DataFrame]]:
    """The function for applyInPandas: (cluster, offsets_partition) and frames of SHUFFLED in the order of offsets -> frames of REPLAYED."""
    import pandas as pd

    is_first = True  # in this task: Spark unpickles the function once for each task

    def replay_partition(key: tuple[Any, ...], frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        nonlocal is_first
        if is_first:
            # Return the memory that the reading tasks of this worker freed; the replay hardly needs it.
            pa.default_memory_pool().release_unused()
            is_first = False
        cluster, offsets_partition = key[0], int(key[1])
        rows: Iterator[kept_records.ShuffledRow] = chain.from_iterable(kept_records.ShuffledRow.of(frame) for frame in frames)
        if job.read is not None:
            of_partition = replace(job.read, cluster=cluster, whole_partitions=frozenset([offsets_partition]))
            rows = with_rows_read(rows, offsets_partition, job.source, of_partition)
        replay = _PartitionReplay(job, offsets_partition)
        for row in chain(chain.from_iterable(map(replay.take, rows)), replay.end()):
            yield pd.DataFrame([(*row, cluster)], columns=[*COLUMNS, "cluster"])

    # applyInPandas needs real types to recognize the iterator form, and annotations are text in this file
    replay_partition.__annotations__ = {"key": tuple[Any, ...], "frames": Iterator[pd.DataFrame], "return": Iterator[pd.DataFrame]}
    return replay_partition


WriterRow = tuple[int, int, str, bytes]
"""A row of REPLAYED without its cluster."""


class _PartitionReplay:
    """Begins with what an earlier night left of one offsets partition, takes the rows of this run, and gives the rows of the tables."""

    def __init__(self, job: ReplayJob, offsets_partition: int) -> None:
        self._job = job
        self._offsets_partition = offsets_partition
        self._writer = offsets_partition % job.writers
        self._replay = KeptRecordsReplay(job.semantics)
        self._latest = LatestRecords()
        self._rebalances = PartitionRebalances(job.rebalances, offsets_partition)
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
            # A night that reads all of the log must not fail because of what an earlier one left, unless that is to be compared.
            with nullcontext() if offsets_partition in job.compared else suppress(WarehouseError):
                self._remember(job.remembered)

    def _go_on_from(self, carried: CarriedState) -> None:
        """Begin with the state of an earlier night. Raises WarehouseError where its tables cannot be read."""
        of_cluster = (self._job.rebalances.warehouse_uri, self._job.rebalances.cluster, carried, self._offsets_partition)
        records = carried_records(*of_cluster)
        self._topic_names |= carried_topic_names(*of_cluster)
        self._latest.begin_with(records)
        self._replay.apply_latest(records)
        self._warnings_of_earlier_run = Counter(self._replay.coordinator.finish().warnings())
        if (changed := self._job.changed.get(self._offsets_partition)) is not None:
            with suppress(InputError):  # the state is known without these files; what replaced one is looked at in the next night
                self._live_keys = LiveKeys(records, lambda: self._replay, changed)

    def _remember(self, remembered: CarriedState) -> None:
        """Keep what an earlier night left, to compare the log with it. Raises WarehouseError where its tables cannot be read."""
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
            for rows_so_far in self._rebalances.apply(row.batch):
                yield self._writer, LATER, REBALANCES, pack(rows_so_far)
        elif row.kind == kept_records.FACTS:
            self._health.add(row.first_offset, row.packed)
        elif row.kind == kept_records.REPORT:
            piece: kept_records.PieceReport = pickle.loads(row.packed)
            self._report.take_piece(piece)
            self._topic_names |= piece.topic_names
        else:
            yield self._writer, LATER, row.kind, row.packed

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
        for last_rows in self._rebalances.finish():
            yield self._writer, LATER, REBALANCES, pack(last_rows)
        state, type_0_offsets = self._replay.coordinator.finish(), self._replay.type_0_offsets()
        expirations = None if self._job.expiration is None else expirations_of(state, self._job.expiration, type_0_offsets)
        tables = state_rows(state, expirations, self._job.default_assignors)
        tables["warnings"] = self._new_warnings(state)
        self._topic_names |= state.topic_names
        if self._job.writes_latest:
            yield from self._rows_of_next_night()
        packed_names = pickle.dumps(self._topic_names)
        for writer in range(self._job.writers) if self._topic_names else ():
            yield writer, FIRST, TOPIC_NAMES, packed_names
        yield self._writer, LATER, PARTITION_REPORT, pickle.dumps(self._whole_report(tables, expirations))
        if expirations is None:
            for name, internals in internals_of(state, type_0_offsets).items():
                yield self._writer, LATER, name, pickle.dumps(internals)
        for name, payload in packed_by_table(self._offsets_partition, tables):
            yield self._writer, LATER, name, payload

    def _new_warnings(self, state: PartitionState) -> list[LoadWarning]:
        """The warnings of the replay that no earlier run has given, and one for each group whose carried state differs."""
        warnings = list((Counter(state.warnings()) - self._warnings_of_earlier_run).elements())
        self._report.refusals += sum(warning.is_refusal for warning in warnings)
        if self._carried_state is not None:
            differences = self._carried_state.differences(self._replay)
            self._report.differences = len(differences)
            warnings += differences
        return warnings

    def _rows_of_next_night(self) -> Iterator[WriterRow]:
        """Rows of the two tables with which the next night begins. Writers sort both tables by offsets partition."""
        latest = self._latest.reduced(self._replay)
        self._report.latest_records = latest.num_rows
        of_records = ((LATEST_RECORDS, part) for part in kept_records.batches_of_size([latest], kept_records.ROW_BYTES))
        ids_and_names = [pa.array(self._topic_names), pa.array(self._topic_names.values())]
        of_names = [(TOPIC_IDS, pa.RecordBatch.from_arrays(ids_and_names, ["topic_id", "topic"]))] if self._topic_names else []
        for table, rows in chain(of_records, of_names):
            number = pa.repeat(pa.scalar(self._offsets_partition, pa.int32()), rows.num_rows)
            yield self._writer, self._offsets_partition, table, pack(rows.append_column("offsets_partition", number))

    def _whole_report(self, tables: Mapping[str, Sequence[tuple[Any, ...]]], expirations: Expirations | None) -> PartitionReport:
        """What the driver gets, with the figures of the state after the last record."""
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
    """Number of rows of a table in which a column is true."""
    place = RULE_COLUMNS[table].index(column)
    return sum(row[place] for row in expirations[table])
