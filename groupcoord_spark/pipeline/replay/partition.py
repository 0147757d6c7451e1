"""The replay of one offsets partition: from its kept records to the packed rows of its state and rule tables.

``partition_replay`` is the function of ``groupBy(cluster, offsets_partition).applyInPandas`` in its iterator form: the records of a
partition come in batches, and only the state of the partition stays in memory.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS, DefaultAssignors
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.state import LoadWarning
from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.exchange.kept_records import (
    NEW_GROUP_RECORDS,
    RECORDS,
    ROW_BYTES,
    PieceReport,
    as_one,
    batches_of_size,
    records_of_kept,
)
from groupcoord_spark.pipeline.exchange.packing import pack, unpack_batch
from groupcoord_spark.pipeline.exchange.state_rows import (
    COLUMNS,
    FIRST,
    LATER,
    TOPIC_NAMES,
    PartitionReport,
    packed_rows,
    state_rows,
)
from groupcoord_spark.pipeline.expiration import ExpirationJob, expirations_of
from groupcoord_spark.pipeline.extents import CarriedState
from groupcoord_spark.pipeline.read.carried_records import LATEST_RECORDS, TOPIC_IDS, carried_records, carried_topic_names
from groupcoord_spark.pipeline.read.decode import DecodedChunk, decode_checked_records
from groupcoord_spark.pipeline.rebalances import REBALANCES, PartitionRebalances, RebalanceJob
from groupcoord_spark.pipeline.replay.latest_records import CarriedStateComparison, LatestRecords
from groupcoord_spark.pipeline.replay.redundant_assignments import find_redundant_records
from groupcoord_spark.pipeline.replay.unchecked_ownership import KeptRecordsCoordinator
from groupcoord_spark.protocol.columnar import decode_offset_value_columns, leading_int16
from groupcoord_spark.protocol.generated import decode_key, decode_value
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD, KeyType
from groupcoord_spark.protocol.slices import Mask
from groupcoord_spark.spark.collector import without_collector

if TYPE_CHECKING:
    import pandas as pd


REPLAYED_AT_ONCE_BYTES = 4 << 20
"""Bytes of records that are replayed together. Small batches are joined, because each batch costs one pass over the state of its groups."""

Ints = npt.NDArray[np.int64]

TOPIC_NAMES_ARROW = pa.schema([("topic_id", pa.string()), ("topic", pa.string())])

KNOWN_KEY_TYPES = [key_type for key_type, record_type in RECORD_TYPES.items() if record_type.dialect is None]


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """The same for the replay of every offsets partition of a run.

    writers: number of tasks that write the state tables. carried: the latest records that the run goes on from; None: it goes on from none.
    compared: the latest records whose state is compared with the state that the run reads; None: there is no comparison. writes_latest:
    whether the run writes latest_records.
    """

    semantics: Semantics
    expiration: ExpirationJob
    writers: int
    rebalances: RebalanceJob
    default_assignors: DefaultAssignors = KAFKAS_ASSIGNORS
    carried: CarriedState | None = None
    compared: CarriedState | None = None
    writes_latest: bool = True


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
        with without_collector():  # only in this block: the worker may run functions of the user later
            yield from _replayed(job, int(key[1]), frames)

    # applyInPandas needs real types to recognize the iterator form, and annotations are text in this file
    replay_partition.__annotations__ = {"key": tuple[Any, ...], "frames": Iterator[pd.DataFrame], "return": Iterator[pd.DataFrame]}
    return replay_partition


def _replayed(job: ReplayJob, offsets_partition: int, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Frames of REPLAYED, for one offsets partition."""
    import pandas as pd

    report = PartitionReport(offsets_partition)
    topic_names: dict[str, str] = {}
    replay = KeptRecordsReplay(job.semantics)
    latest = LatestRecords()
    given: Counter[LoadWarning] = Counter()
    """Warnings that an earlier run has given."""
    if (carried := carried_by(job.carried, offsets_partition)) is not None:
        records = carried_records(job.rebalances.warehouse_uri, job.rebalances.cluster, carried, offsets_partition)
        topic_names |= carried_topic_names(job.rebalances.warehouse_uri, job.rebalances.cluster, carried, offsets_partition)
        latest.begin_with(records)
        for part in batches_of_size([records], REPLAYED_AT_ONCE_BYTES):
            replay.apply(part)
        given = Counter(replay.coordinator.finish().warnings())
    comparison = None
    if (compared := carried_by(job.compared, offsets_partition)) is not None:
        records = carried_records(job.rebalances.warehouse_uri, job.rebalances.cluster, compared, offsets_partition)
        comparison = CarriedStateComparison(records, compared.end_offsets[offsets_partition], replay.anew())
    rebalances = PartitionRebalances(job.rebalances, offsets_partition)
    own_writer = offsets_partition % job.writers
    pending_batches: list[pa.RecordBatch] = []

    def apply_pending() -> None:
        batch = _take_all(pending_batches)
        replay.apply(batch)
        if job.writes_latest:
            latest.add(batch, replay)
        if comparison is not None:
            comparison.apply(batch)

    for frame in frames:
        for kind, payload in zip(frame["kind"], frame["payload"], strict=True):
            if kind == RECORDS:
                batch = unpack_batch(payload)
                if pending_batches and sum(pending.nbytes for pending in pending_batches) + batch.nbytes > REPLAYED_AT_ONCE_BYTES:
                    apply_pending()
                pending_batches.append(batch)
            elif kind == NEW_GROUP_RECORDS:
                for rows_so_far in rebalances.apply(unpack_batch(payload)):
                    yield pd.DataFrame([(own_writer, LATER, REBALANCES, pack(rows_so_far))], columns=COLUMNS)
            else:
                piece: PieceReport = pickle.loads(payload)
                report.counts.add(piece.counts)
                report.take_files(piece.files)
                topic_names |= piece.topic_names
                report.records_after_complete += piece.records_after_complete
                report.records_from_history += piece.records_from_history
                report.warnings += piece.warnings
                report.refusals += piece.refusals
    if pending_batches:
        apply_pending()
    for last_rows in rebalances.finish():
        yield pd.DataFrame([(own_writer, LATER, REBALANCES, pack(last_rows))], columns=COLUMNS)
    state = replay.coordinator.finish()
    expirations = expirations_of(state, job.expiration, replay.type_0_offsets())
    rows = state_rows(state, expirations, job.default_assignors)
    new_warnings = list((Counter(state.warnings()) - given).elements())
    report.refusals += sum(warning.is_refusal for warning in new_warnings)
    if comparison is not None:
        differences = comparison.differences(replay)
        report.differences = len(differences)
        new_warnings += differences
    rows["warnings"] = new_warnings
    report.live_keys, report.first_open_offset = replay.live_keys, replay.first_open_offset
    report.groups, report.offsets = len(rows["groups"]), len(rows["committed_offsets"])
    report.expired_offsets = sum(row.expired for row in expirations.offsets)
    report.removed_groups = sum(row.removed for row in expirations.groups)
    report.warnings += len(new_warnings)
    all_topic_names = {**topic_names, **state.topic_names}
    if job.writes_latest:
        latest_batch = latest.reduced(replay)
        report.latest_records = latest_batch.num_rows
        for part in batches_of_size([latest_batch], ROW_BYTES):
            yield pd.DataFrame([_row_of_next_night(own_writer, offsets_partition, LATEST_RECORDS, part)], columns=COLUMNS)
        names = pa.RecordBatch.from_pydict({"topic_id": [*all_topic_names], "topic": [*all_topic_names.values()]}, TOPIC_NAMES_ARROW)
        if names.num_rows:
            yield pd.DataFrame([_row_of_next_night(own_writer, offsets_partition, TOPIC_IDS, names)], columns=COLUMNS)
    for kind, payload in packed_rows(report, rows, all_topic_names):
        writers = range(job.writers) if kind == TOPIC_NAMES else [own_writer]
        place = FIRST if kind == TOPIC_NAMES else LATER
        yield pd.DataFrame([(writer, place, kind, payload) for writer in writers], columns=COLUMNS)


def carried_by(carried: CarriedState | None, offsets_partition: int) -> CarriedState | None:
    """``carried``, where it has the offsets partition; else None."""
    return carried if carried is not None and offsets_partition in carried.end_offsets else None


def _row_of_next_night(writer: int, offsets_partition: int, table: str, rows: pa.RecordBatch) -> tuple[int, int, str, bytes]:
    """A row of REPLAYED for a table that the next night reads by offsets partition, and whose rows are therefore sorted by it."""
    number = pa.repeat(pa.scalar(offsets_partition, pa.int32()), rows.num_rows)
    return writer, LATER + 1 + offsets_partition, table, pack(rows.append_column("offsets_partition", number))


def _take_all(pending_batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All batches as one batch; the list is empty afterwards, so that no row is in memory twice."""
    batch = as_one(pending_batches)
    pending_batches.clear()
    return batch


class KeptRecordsReplay:
    """The replay of one offsets partition from batches of kept records. Also counts live keys and open transactions, which need the log."""

    def __init__(self, semantics: Semantics) -> None:
        self.coordinator = KeptRecordsCoordinator(semantics)
        self.semantics = semantics
        self._live_keys: set[bytes] = set()
        self._type_0_keys: set[bytes] = set()
        self.open_since: dict[int, int] = {}
        """Producer id -> record offset of the first record of its open transaction."""
        self._next_offset = 0

    def apply(self, batch: pa.RecordBatch) -> None:
        """Replay a batch of KEPT that follows all earlier batches. Records that are not accepted are skipped; the reader has warned."""
        first, last = batch.column("record_offset")[0].as_py(), batch.column("record_offset")[-1].as_py()
        if first < self._next_offset:
            raise AssertionError(f"records from {first} on follow those up to {self._next_offset}: the shuffle lost their order")
        self._next_offset = last + 1
        records, decodes = records_of_kept(batch)
        key_type = leading_int16(records.key)
        distinct_keys = records.distinct_keys()
        self._update_live_keys(records, *distinct_keys, is_type_0=decodes & (key_type == KeyType.LEGACY_OFFSET_COMMIT))
        self._update_open_transactions(records)
        is_read = decodes & ((records.control_type != NOT_A_CONTROL_RECORD) | np.isin(key_type, KNOWN_KEY_TYPES))
        if not is_read.all():
            records = records.take(is_read)
            distinct_keys = records.distinct_keys()
        decoded = decode_checked_records(records, self.semantics, distinct_keys)
        raw_keys = distinct_keys[1]
        coordinator = self.coordinator
        without_collisions, others, is_redundant = find_redundant_records(records, decoded, coordinator)
        coordinator.rule_out_collisions(without_collisions, others)
        keys = decoded.keys
        group_ids, topics, partitions = keys.group_id.to_pylist(), keys.topic.to_pylist(), keys.partition.tolist()
        values = self._offset_values(records, decoded.kinds.key_type, decoded.decodes)
        self._put_group_values(values, records, decoded, is_redundant)
        applied = np.flatnonzero((decoded.kinds.coordinator_accepts | decoded.kinds.is_control) & ~is_redundant)
        group_keys: dict[int, Mapping[str, Any]] = {}
        rows = zip(
            applied.tolist(),
            records.record_offset[applied].tolist(),
            records.timestamp_ms[applied].tolist(),
            records.control_type[applied].tolist(),
            records.producer_id[applied].tolist(),
            records.is_transactional[applied].tolist(),
            decoded.kinds.key_type[applied].tolist(),
            decoded.key_code[applied].tolist(),
            strict=True,
        )
        for row, record_offset, timestamp_ms, control_type, producer_id, is_transactional, key_type, code in rows:
            if control_type != NOT_A_CONTROL_RECORD:
                coordinator.apply_marker(producer_id, control_type)
            elif key_type >= KeyType.GROUP_METADATA:
                key = group_keys.get(code)
                if key is None:
                    key = group_keys[code] = decode_key(raw_keys[code].as_py()).fields
                group_value = decode_value(key_type, values[row])
                version, fields = (None, None) if group_value is None else (group_value.version, group_value.fields)
                coordinator.apply_group_record(record_offset, timestamp_ms, key_type, key, version, fields)
            else:
                coordinator.apply_offset_commit(
                    producer_id, is_transactional, key_type, group_ids[code], topics[code], partitions[code], values[row]
                )

    def _put_group_values(self, values: list[Any], records: Records, decoded: DecodedChunk, is_redundant: Mask) -> None:
        """Put the bytes of group records into ``values``. They are decoded one by one, when they are applied."""
        is_own_record = (decoded.kinds.key_type >= KeyType.GROUP_METADATA) & (records.control_type == NOT_A_CONTROL_RECORD)
        rows = np.flatnonzero(is_own_record & ~is_redundant)
        for row, value in zip(rows.tolist(), records.value.take(rows).to_arrow().to_pylist(), strict=True):
            values[row] = value

    def _offset_values(self, records: Records, key_type: npt.NDArray[np.int16], decodes: Mask) -> list[Any]:
        """For each record its StoredOffset; None for tombstones and for records that are no commits."""
        is_offset = (key_type >= 0) & (key_type < KeyType.GROUP_METADATA) & decodes & ~records.value.is_null
        rows = np.flatnonzero(is_offset & (records.control_type == NOT_A_CONTROL_RECORD))
        columns = decode_offset_value_columns(key_type[rows], records.value.take(rows))
        stored = map(
            StoredOffset,
            columns.committed_offset.tolist(),
            columns.leader_epoch.tolist(),
            columns.metadata.to_pylist(),
            columns.commit_timestamp_ms.tolist(),
            columns.expire_timestamp_ms.tolist(),
            columns.topic_id.to_pylist(),
            columns.value_version.tolist(),
            records.producer_id[rows].tolist(),
            records.producer_epoch[rows].tolist(),
            records.record_offset[rows].tolist(),
            records.timestamp_ms[rows].tolist(),
        )
        values: list[Any] = [None] * len(key_type)
        for row, value in zip(rows.tolist(), stored, strict=True):
            values[row] = value
        return values

    def _update_live_keys(self, records: Records, key_code: Ints, distinct: pa.BinaryArray, *, is_type_0: Mask) -> None:
        """Update the sets of live keys. is_type_0: bool[n], records that decode and have key type 0; only their offsets can come back."""
        keys = distinct.to_pylist()
        has_key = key_code >= 0
        for live, rows in ((self._live_keys, np.flatnonzero(has_key)), (self._type_0_keys, np.flatnonzero(has_key & is_type_0))):
            newest = np.full(len(keys), -1, np.int64)
            newest[key_code[rows]] = rows
            seen = np.flatnonzero(newest >= 0)
            for code, is_gone in zip(seen.tolist(), records.value.is_null[newest[seen]].tolist(), strict=True):
                if is_gone:
                    live.discard(keys[code])
                else:
                    live.add(keys[code])

    def _update_open_transactions(self, records: Records) -> None:
        is_control = records.control_type != NOT_A_CONTROL_RECORD
        rows = np.flatnonzero(is_control | records.is_transactional)
        columns = (records.record_offset[rows].tolist(), records.producer_id[rows].tolist(), is_control[rows].tolist())
        for record_offset, producer_id, ends in zip(*columns, strict=True):
            if ends:
                self.open_since.pop(producer_id, None)
            else:
                self.open_since.setdefault(producer_id, record_offset)

    def anew(self) -> KeptRecordsReplay:
        """A replay with the same semantics that has replayed nothing yet."""
        return KeptRecordsReplay(self.semantics)

    def live_among(self, keys: set[bytes]) -> tuple[set[bytes], set[bytes]]:
        """Which of these keys are live, and which of them are live keys of type 0."""
        return self._live_keys & keys, self._type_0_keys & keys

    @property
    def live_keys(self) -> int:
        """Number of keys whose newest record has a value: the number of records after a perfect compaction."""
        return len(self._live_keys)

    def type_0_offsets(self) -> set[OffsetKey]:
        """(group_id, topic, partition) of the commits that are live in the log under a key of type 0."""
        fields = (decode_key(key).fields for key in self._type_0_keys)
        return {(key["group_id"], key["topic"], key["partition"]) for key in fields}

    @property
    def first_open_offset(self) -> int | None:
        """Record offset of the first record of the oldest open transaction; None: no transaction is open."""
        return min(self.open_since.values(), default=None)
