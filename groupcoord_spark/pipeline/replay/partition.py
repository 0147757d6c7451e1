"""The replay of one offsets partition: from its kept records to the packed rows of its state and rule tables.

``partition_replay`` is the function of ``groupBy(cluster, offsets_partition).applyInPandas`` in its iterator form, in a night as in
``gc.replay``: the records of a partition come in batches, and only the state of the partition stays in memory.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS, DefaultAssignors
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import LoadWarning
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
from groupcoord_spark.pipeline.replay.carried_state import CarriedStateComparison, EarlierNight, LiveKeys
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
        for row in _replayed(job, offsets_partition, rows):
            yield pd.DataFrame([(*row, cluster)], columns=[*COLUMNS, "cluster"])

    # applyInPandas needs real types to recognize the iterator form, and annotations are text in this file
    replay_partition.__annotations__ = {"key": tuple[Any, ...], "frames": Iterator[pd.DataFrame], "return": Iterator[pd.DataFrame]}
    return replay_partition


def _replayed(job: ReplayJob, offsets_partition: int, rows: Iterable[kept_records.ShuffledRow]) -> Iterator[tuple[int, int, str, bytes]]:
    """Rows of REPLAYED without their cluster, for one offsets partition."""
    report = PartitionReport(offsets_partition)
    topic_names: dict[str, str] = {}
    replay = KeptRecordsReplay(job.semantics)
    latest = LatestRecords()
    given: Counter[LoadWarning] = Counter()
    """Warnings that an earlier run has given."""
    earlier = EarlierNight()
    warehouse = (job.rebalances.warehouse_uri, job.rebalances.cluster)
    if job.carried is not None and offsets_partition in job.carried.end_offsets:
        records = carried_records(*warehouse, job.carried, offsets_partition)
        topic_names |= carried_topic_names(*warehouse, job.carried, offsets_partition)
        latest.begin_with(records)
        replay.apply_latest(records)
        given = Counter(replay.coordinator.finish().warnings())
        if (changed := job.changed.get(offsets_partition)) is not None:
            with suppress(InputError):  # the state is known without these files; what replaced one is looked at in the next night
                earlier.live_keys = LiveKeys(records, lambda: replay, changed)
    elif job.remembered is not None and offsets_partition in job.remembered.end_offsets:
        is_compared = offsets_partition in job.compared
        # A night that reads all of the log must not fail because of what an earlier one left, unless that is to be compared.
        with nullcontext() if is_compared else suppress(WarehouseError):
            records = carried_records(*warehouse, job.remembered, offsets_partition)
            of_earlier = cache(lambda: KeptRecordsReplay.of(records, job.semantics))
            earlier.live_keys = LiveKeys(records, of_earlier)
            if is_compared:
                earlier.state = CarriedStateComparison(of_earlier(), job.remembered.end_offsets[offsets_partition])
    rebalances = PartitionRebalances(job.rebalances, offsets_partition)
    own_writer = offsets_partition % job.writers
    pending_batches: list[pa.RecordBatch] = []
    health = HealthPieces()

    def apply_pending() -> None:
        batch = kept_records.as_one(pending_batches)
        pending_batches.clear()  # no row is in memory twice
        replay.apply(batch)
        if job.writes_latest:
            latest.add(batch, replay)
        earlier.see(batch)

    for row in rows:
        if row.kind == kept_records.RECORDS:
            batch = row.batch
            if pending_batches and sum(pending.nbytes for pending in pending_batches) + batch.nbytes > REPLAYED_AT_ONCE_BYTES:
                apply_pending()
            pending_batches.append(batch)
        elif row.kind == kept_records.NEW_GROUP_RECORDS:
            for rows_so_far in rebalances.apply(row.batch):
                yield own_writer, LATER, REBALANCES, pack(rows_so_far)
        elif row.kind == kept_records.FACTS:
            health.add(row.first_offset, row.packed)
        elif row.kind == kept_records.REPORT:
            piece: kept_records.PieceReport = pickle.loads(row.packed)
            report.take_piece(piece)
            topic_names |= piece.topic_names
        else:
            yield own_writer, LATER, row.kind, row.packed
    if pending_batches:
        apply_pending()
    for last_rows in rebalances.finish():
        yield own_writer, LATER, REBALANCES, pack(last_rows)
    state = replay.coordinator.finish()
    expirations = None if job.expiration is None else expirations_of(state, job.expiration, replay.type_0_offsets())
    tables = state_rows(state, expirations, job.default_assignors)
    new_warnings = list((Counter(state.warnings()) - given).elements())
    report.refusals += sum(warning.is_refusal for warning in new_warnings)
    if earlier.state is not None:
        differences = earlier.state.differences(replay)
        report.differences = len(differences)
        new_warnings += differences
    if earlier.live_keys is not None:
        report.vanished = earlier.live_keys.vanished(replay)
    tables["warnings"] = new_warnings
    report.health = health.facts(job.health_logs.get(offsets_partition))
    report.open_producers = frozenset(replay.open_since)
    report.live_keys, report.first_open_offset = replay.live_keys, replay.first_open_offset
    report.groups, report.offsets = len(tables["groups"]), len(tables["committed_offsets"])
    if expirations is not None:
        report.expired_offsets = _number_of(expirations, "offset_expirations", "expired")
        report.removed_groups = _number_of(expirations, "group_expirations", "removed")
    report.warnings += len(new_warnings)
    all_topic_names = {**topic_names, **state.topic_names}
    if job.writes_latest:
        latest_batch = latest.reduced(replay)
        report.latest_records = latest_batch.num_rows
        for part in kept_records.batches_of_size([latest_batch], kept_records.ROW_BYTES):
            yield _row_of_next_night(own_writer, offsets_partition, LATEST_RECORDS, part)
        if all_topic_names:
            names = pa.RecordBatch.from_arrays([pa.array(all_topic_names), pa.array(all_topic_names.values())], ["topic_id", "topic"])
            yield _row_of_next_night(own_writer, offsets_partition, TOPIC_IDS, names)
    for writer in range(job.writers) if all_topic_names else ():
        yield writer, FIRST, TOPIC_NAMES, pickle.dumps(all_topic_names)
    yield own_writer, LATER, PARTITION_REPORT, pickle.dumps(report)
    if expirations is None:
        for name, internals in internals_of(state, replay.type_0_offsets()).items():
            yield own_writer, LATER, name, pickle.dumps(internals)
    for name, payload in packed_by_table(offsets_partition, tables):
        yield own_writer, LATER, name, payload


def _number_of(expirations: Expirations, table: str, column: str) -> int:
    """Number of rows of a table in which a column is true."""
    place = RULE_COLUMNS[table].index(column)
    return sum(row[place] for row in expirations[table])


def _row_of_next_night(writer: int, offsets_partition: int, table: str, rows: pa.RecordBatch) -> tuple[int, int, str, bytes]:
    """A row of REPLAYED for a table that the next night reads by offsets partition, and whose rows are therefore sorted by it."""
    number = pa.repeat(pa.scalar(offsets_partition, pa.int32()), rows.num_rows)
    return writer, offsets_partition, table, pack(rows.append_column("offsets_partition", number))
