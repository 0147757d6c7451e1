"""Replays the kept records of each offsets partition over the coordinator's rules, expires its offsets, packs the rows of its tables.

The body of ``groupBy(cluster, offsets_partition).applyInPandas``, in its iterator form: a partition's records pass by in batches, only its
state is held.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS, DefaultAssignors
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.transactions import OffsetKey, StoredOffset
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.exchange.kept_records import GROUP_CHANGES, RECORDS, PieceReport, as_one, records_of_kept
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
from groupcoord_spark.pipeline.read.decode import DecodedChunk, decode_again
from groupcoord_spark.pipeline.rebalances import REBALANCES, PartitionRebalances, RebalanceJob
from groupcoord_spark.pipeline.replay.redundant_assignments import find_redundant_records
from groupcoord_spark.pipeline.replay.unchecked_ownership import KeptRecordsCoordinator
from groupcoord_spark.protocol.columnar import decode_offset_value_columns, leading_int16
from groupcoord_spark.protocol.compiled import decode_key, decode_value
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD, KeyType
from groupcoord_spark.protocol.slices import Mask
from groupcoord_spark.spark.collector import without_collector

if TYPE_CHECKING:
    import pandas as pd


REPLAYED_AT_ONCE_BYTES = 4 << 20
"""Kept records of several small rows are replayed together: each look at a batch goes over the state of its groups."""

Ints = npt.NDArray[np.int64]

KNOWN_KEY_TYPES = [key_type for key_type, record_type in RECORD_TYPES.items() if record_type.dialect is None]


@dataclass(frozen=True, slots=True)
class ReplayJob:
    """What every replay of a run knows."""

    semantics: Semantics
    expiration: ExpirationJob
    writers: int
    rebalances: RebalanceJob
    default_assignors: DefaultAssignors = KAFKAS_ASSIGNORS


def partition_replay(job: ReplayJob) -> Callable[..., Iterator[pd.DataFrame]]:
    """The function for applyInPandas: (cluster, offsets_partition), frames of SHUFFLED in offset order -> frames of REPLAYED."""
    import pandas as pd

    is_first = True  # of a task: each gets a function of its own

    def replay_partition(key: tuple[Any, ...], frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        nonlocal is_first
        if is_first:
            # What readers left free in this worker is given back: it will hardly be wanted again.
            pa.default_memory_pool().release_unused()
            is_first = False
        with without_collector():  # the worker may run a user's own functions afterwards
            yield from _replayed(job, int(key[1]), frames)

    # applyInPandas takes the iterator form only where these are real types, not the text that annotations are in this file
    replay_partition.__annotations__ = {"key": tuple[Any, ...], "frames": Iterator[pd.DataFrame], "return": Iterator[pd.DataFrame]}
    return replay_partition


def _replayed(job: ReplayJob, offsets_partition: int, frames: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Frames of REPLAYED of one offsets partition."""
    import pandas as pd

    report = PartitionReport(offsets_partition)
    topic_names: dict[str, str] = {}
    replay = KeptRecordsReplay(job.semantics)
    rebalances = PartitionRebalances(job.rebalances, offsets_partition)
    own_writer = offsets_partition % job.writers
    waiting: list[pa.RecordBatch] = []
    for frame in frames:
        for kind, payload in zip(frame["kind"], frame["payload"], strict=True):
            if kind == RECORDS:
                batch = unpack_batch(payload)
                if waiting and sum(each.nbytes for each in waiting) + batch.nbytes > REPLAYED_AT_ONCE_BYTES:
                    replay.apply(_taken(waiting))
                waiting.append(batch)
            elif kind == GROUP_CHANGES:
                for rows_so_far in rebalances.apply(unpack_batch(payload)):
                    yield pd.DataFrame([(own_writer, LATER, REBALANCES, pack(rows_so_far))], columns=COLUMNS)
            else:
                piece: PieceReport = pickle.loads(payload)
                report.counts.add(piece.counts)
                report.take_files(piece.files)
                topic_names |= piece.topic_names
                report.found += piece.found
                report.from_history += piece.from_history
                report.warnings += piece.warnings
                report.refusals += piece.refusals
    if waiting:
        replay.apply(_taken(waiting))
    for last_rows in rebalances.finish():
        yield pd.DataFrame([(own_writer, LATER, REBALANCES, pack(last_rows))], columns=COLUMNS)
    state = replay.coordinator.finish()
    expirations = expirations_of(state, job.expiration, replay.type_0_offsets())
    rows = state_rows(state, expirations, job.default_assignors)
    report.live_keys, report.first_open_offset = replay.live_keys, replay.first_open_offset
    report.groups, report.offsets = len(rows["groups"]), len(rows["committed_offsets"])
    report.expired_offsets = sum(row.expired for row in expirations.offsets)
    report.removed_groups = sum(row.removed for row in expirations.groups)
    report.warnings += len(rows["warnings"])
    report.refusals += sum(warning.is_refusal for warning in state.warnings())
    for kind, payload in packed_rows(report, rows, {**topic_names, **state.topic_names}):
        writers = range(job.writers) if kind == TOPIC_NAMES else [own_writer]
        place = FIRST if kind == TOPIC_NAMES else LATER
        yield pd.DataFrame([(writer, place, kind, payload) for writer in writers], columns=COLUMNS)


def _taken(waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All that waits, as one batch that alone still holds it."""
    batch = as_one(waiting)
    waiting.clear()
    return batch


class KeptRecordsReplay:
    """One offsets partition's replay over batches of kept records, with what its log alone can tell beside the state."""

    def __init__(self, semantics: Semantics) -> None:
        self.coordinator = KeptRecordsCoordinator(semantics)
        self._semantics = semantics
        self._live_keys: set[bytes] = set()
        self._type_0_keys: set[bytes] = set()
        self._open_since: dict[int, int] = {}
        self._next_offset = 0

    def apply(self, batch: pa.RecordBatch) -> None:
        """Replay records of ingest.KEPT, all of them after those applied before. What does not apply has been warned of by its reader."""
        first, last = batch.column("record_offset")[0].as_py(), batch.column("record_offset")[-1].as_py()
        if first < self._next_offset:
            raise AssertionError(f"records from {first} on follow those up to {self._next_offset}: the shuffle lost their order")
        self._next_offset = last + 1
        records, decodes = records_of_kept(batch)
        key_type = leading_int16(records.key)
        distinct_keys = records.distinct_keys()
        self._follow_live_keys(records, *distinct_keys, is_type_0=decodes & (key_type == KeyType.LEGACY_OFFSET_COMMIT))
        self._follow_open_transactions(records)
        is_read = decodes & ((records.control_type != NOT_A_CONTROL_RECORD) | np.isin(key_type, KNOWN_KEY_TYPES))
        if not is_read.all():
            records = records.take(is_read)
            distinct_keys = records.distinct_keys()
        decoded = decode_again(records, self._semantics, distinct_keys)
        raw_keys = distinct_keys[1]
        coordinator = self.coordinator
        without_collisions, others, needless = find_redundant_records(records, decoded, coordinator)
        coordinator.rule_out_collisions(without_collisions, others)
        keys = decoded.keys
        group_ids, topics, partitions = keys.group_id.to_pylist(), keys.topic.to_pylist(), keys.partition.tolist()
        values = self._offset_values(records, decoded.kinds.key_type, decoded.decodes)
        self._put_group_values(values, records, decoded, needless)
        applied = np.flatnonzero((decoded.kinds.coordinator_accepts | decoded.kinds.is_control) & ~needless)
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

    def _put_group_values(self, values: list[Any], records: Records, decoded: DecodedChunk, needless: Mask) -> None:
        """The values of groups' own records into the list, as bytes: they are decoded once their turn comes."""
        is_own_record = (decoded.kinds.key_type >= KeyType.GROUP_METADATA) & (records.control_type == NOT_A_CONTROL_RECORD)
        rows = np.flatnonzero(is_own_record & ~needless)
        for row, value in zip(rows.tolist(), records.value.take(rows).to_arrow().to_pylist(), strict=True):
            values[row] = value

    def _offset_values(self, records: Records, key_type: npt.NDArray[np.int16], decodes: Mask) -> list[Any]:
        """For each record the offset it stores; None for tombstones and for records that store none."""
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

    def _follow_live_keys(self, records: Records, key_code: Ints, distinct: pa.BinaryArray, *, is_type_0: Mask) -> None:
        """is_type_0: records that decode and have a key of type 0; what does not decode is no offset that could come back."""
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

    def _follow_open_transactions(self, records: Records) -> None:
        is_control = records.control_type != NOT_A_CONTROL_RECORD
        rows = np.flatnonzero(is_control | records.is_transactional)
        columns = (records.record_offset[rows].tolist(), records.producer_id[rows].tolist(), is_control[rows].tolist())
        for record_offset, producer_id, ends in zip(*columns, strict=True):
            if ends:
                self._open_since.pop(producer_id, None)
            else:
                self._open_since.setdefault(producer_id, record_offset)

    @property
    def live_keys(self) -> int:
        """Keys whose newest record carries a value: what the log would hold after a perfect compaction."""
        return len(self._live_keys)

    def type_0_offsets(self) -> set[OffsetKey]:
        """(group_id, topic, partition) that the log holds an offset for under a key of type 0."""
        fields = (decode_key(key).fields for key in self._type_0_keys)
        return {(each["group_id"], each["topic"], each["partition"]) for each in fields}

    @property
    def first_open_offset(self) -> int | None:
        """Offset of the first record of the oldest transaction without a marker; None: no transaction is open."""
        return min(self._open_since.values(), default=None)
