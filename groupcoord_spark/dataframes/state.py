"""``replay``: the state of the group coordinator after a frame of records, as the frames of the nightly's state tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from groupcoord_spark.coordinator.authors import other_coordinator
from groupcoord_spark.coordinator.semantics import JAVA, Semantics, semantics_for
from groupcoord_spark.dataframes.partitions import by_offsets_partition, kept
from groupcoord_spark.dataframes.rows_of_tables import PACKED, RowsInMemory, frame_of, packed, packed_rows_of, plain_frame_of, schema_of
from groupcoord_spark.errors import UsageError
from groupcoord_spark.log import Chunk
from groupcoord_spark.moments import Moment, milliseconds_of
from groupcoord_spark.pipeline.exchange.counts import PartitionCounts
from groupcoord_spark.pipeline.exchange.kept_records import kept_records
from groupcoord_spark.pipeline.exchange.state_rows import WRITTEN_ROWS
from groupcoord_spark.pipeline.expiration import kept_for
from groupcoord_spark.pipeline.plan.input_rows import TRANSACTIONS_UNKNOWN
from groupcoord_spark.pipeline.read import superseded
from groupcoord_spark.pipeline.read.decode import DecodedChunk, decode_chunk
from groupcoord_spark.pipeline.read.history_files import source_of, write_chunk, write_notes
from groupcoord_spark.pipeline.read.reader import topic_names_of
from groupcoord_spark.pipeline.replay.kept_records_replay import KeptRecordsReplay
from groupcoord_spark.sources.frames import SOURCE, tells_transactions
from groupcoord_spark.spark.collector import without_collector

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOPIC_NAMES: Final = "topic_names"
TYPE_0_OFFSETS: Final = "type_0_offsets"
KEPT_GROUPS: Final = "kept_groups"
KINDS: Final = "kinds"

OF_NO_TABLE: Final[Mapping[str, pa.Schema]] = {
    TOPIC_NAMES: pa.schema([("topic_id", pa.string()), ("name", pa.string())]),
    TYPE_0_OFFSETS: pa.schema([("group_id", pa.string()), ("topic", pa.string()), ("partition", pa.int32())]),
    KEPT_GROUPS: pa.schema([("group_id", pa.string()), ("kept_for", pa.string())]),
    KINDS: pa.schema([("key_type", pa.int32()), ("value_version", pa.int32()), ("decoded", pa.int64())]),
}
"""Rows of the replay that belong to no table of the warehouse, and their columns after ``cluster``."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of the coordinator, as frames with the columns of the tables of these names.

    warnings and quarantined_records have no run_id, because no run wrote them. type_0_offsets (cluster, group_id, topic, partition):
    offsets whose newest record has a key of type 0, so that they come back after their tombstone. kept_groups (cluster, group_id,
    kept_for): groups that a cleanup may keep for a reason that no other frame shows. Both are None for a state of other origin, for example
    from the tables of a warehouse; ``expire`` then goes by the state alone.
    """

    committed_offsets: DataFrame
    pending_offsets: DataFrame
    orphan_offsets: DataFrame
    groups: DataFrame
    members: DataFrame
    assignments: DataFrame
    warnings: DataFrame
    quarantined_records: DataFrame
    type_0_offsets: DataFrame | None = None
    kept_groups: DataFrame | None = None
    replayed: DataFrame | None = None
    """The frame that all others are made of. It is kept on the executors after its first use; ``unpersist`` frees them."""

    def unpersist(self) -> None:
        """Free the memory and the disks of the executors. The frames can still be used; each of them then replays again."""
        if self.replayed is not None:
            self.replayed.unpersist()


def replay(
    records: DataFrame, *, semantics: Semantics | str = JAVA, until: Moment | Mapping[int, int] | None = None
) -> State:
    """The state of the coordinator after these records. Nothing is computed before one of the frames is used.

    Args:
        records: raw records, or what ``decode`` gave of them: all, or those of some groups with all control records (``of_groups``).
        semantics: ``java``, ``scala``, a release of Kafka such as ``3.6``, or what ``semantics_for`` returns.
        until: only the records before the first one that is later than this moment are replayed; or by offsets partition the offset of
            the first record that is not replayed.
    Raises:
        UsageError: the frame is a stream, lacks a column, or has a column of another type; ``semantics`` or ``until`` is not known.
    """
    from pyspark.sql import functions as F  # noqa: N812

    rules = named_semantics(semantics)
    end = _End.of(until)

    def work(cluster: str, offsets_partition: int, chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        with without_collector():
            yield from _replayed(rules, end, cluster, offsets_partition, chunks)

    replayed = kept(by_offsets_partition(records, work, PACKED))
    names = plain_frame_of(replayed, TOPIC_NAMES, OF_NO_TABLE[TOPIC_NAMES]).groupBy("cluster", "topic_id").agg(F.max("name").alias("name"))
    assignments = frame_of(replayed, "assignments")
    named = assignments.join(names, on=["cluster", "topic_id"], how="left").select(
        *(
            F.coalesce(assignments["topic"], names["name"]).alias("topic", metadata=field.metadata)
            if field.name == "topic"
            else assignments[field.name]
            for field in assignments.schema
        )
    )
    return State(
        committed_offsets=frame_of(replayed, "committed_offsets"),
        pending_offsets=frame_of(replayed, "pending_offsets"),
        orphan_offsets=frame_of(replayed, "orphan_offsets"),
        groups=frame_of(replayed, "groups"),
        members=frame_of(replayed, "members"),
        assignments=named,
        warnings=frame_of(replayed, "warnings").unionByName(
            _of_clusters(replayed, rules, tells_transactions=tells_transactions(records)), allowMissingColumns=True
        ),
        quarantined_records=frame_of(replayed, "quarantined_records"),
        type_0_offsets=plain_frame_of(replayed, TYPE_0_OFFSETS, OF_NO_TABLE[TYPE_0_OFFSETS]),
        kept_groups=plain_frame_of(replayed, KEPT_GROUPS, OF_NO_TABLE[KEPT_GROUPS]),
        replayed=replayed,
    )


def _of_clusters(replayed: DataFrame, semantics: Semantics, *, tells_transactions: bool) -> DataFrame:
    """The columns of a warning that are not NULL, for each cluster whose records give one.

    Another coordinator than that of the semantics wrote the records, or nothing tells which records are of transactions.
    """
    columns = pa.schema([(name, pa.string()) for name in ("cluster", "code", "detail")])
    declared = schema_of("warnings")
    schema = StructType([declared[name] for name in columns.names])

    def of_cluster(key: tuple[pa.Scalar, ...], kinds: pa.Table) -> pa.Table:
        records: Counter[tuple[int, int]] = Counter()
        for key_type, value_version, decoded in zip(*(kinds[name].to_pylist() for name in OF_NO_TABLE[KINDS].names), strict=True):
            records[key_type, value_version] += decoded
        details = {
            "other_coordinator": other_coordinator(semantics, records),
            "transactions_unknown": None if tells_transactions else TRANSACTIONS_UNKNOWN,
        }
        rows = [{"cluster": key[0].as_py(), "code": code, "detail": detail} for code, detail in details.items() if detail]
        return pa.Table.from_pylist(rows, columns)

    of_cluster.__annotations__ = {"key": tuple[pa.Scalar, ...], "kinds": pa.Table, "return": pa.Table}
    return plain_frame_of(replayed, KINDS, OF_NO_TABLE[KINDS]).groupBy("cluster").applyInArrow(of_cluster, schema)


def named_semantics(semantics: Semantics | str) -> Semantics:
    """The semantics of that name. Raises UsageError for a name and a release that do not exist."""
    if isinstance(semantics, Semantics):
        return semantics
    return semantics_for(semantics) if semantics in ("java", "scala") else semantics_for(broker_version=str(semantics))


@dataclass(frozen=True, slots=True)
class _End:
    """Where the replay of a partition ends. time_ms: before the first later record; offsets: before that record offset."""

    time_ms: int | None = None
    offsets: Mapping[int, int] | None = None

    @staticmethod
    def of(until: Moment | Mapping[int, int] | None) -> _End:
        if isinstance(until, Mapping):
            numbers: list[object] = [*until, *until.values()]
            if wrong := [each for each in numbers if not isinstance(each, Integral)]:
                raise UsageError(f"until={{partition: offset}} takes two whole numbers, for example {{0: 1000}}; {wrong[0]!r} is none.")
            return _End(offsets=dict(until))
        return _End(None if until is None else milliseconds_of(until))

    def cut(self, chunks: Iterator[Chunk], offsets_partition: int) -> Iterator[Chunk]:
        """The chunks as far as they are before the end. All chunks are taken, because the caller's iterator must be read to its end."""
        is_after = False
        for chunk in chunks:
            if is_after:
                continue
            records = chunk.records
            if self.time_ms is not None:
                after = np.flatnonzero(records.timestamp_ms > self.time_ms)
            else:
                end = (self.offsets or {}).get(offsets_partition)
                after = np.flatnonzero(records.record_offset >= end) if end is not None else np.zeros(0, np.int64)
            is_after = bool(len(after))
            yield chunk.part(np.arange(after[0]), chunk.lost, chunk.doubts, chunk.bytes) if is_after else chunk


def _replayed(
    semantics: Semantics, end: _End, cluster: str, offsets_partition: int, chunks: Iterator[Chunk]
) -> Iterator[pa.RecordBatch]:
    """Rows of PACKED for one offsets partition: what the nightly's reader and its replay make of the same records."""
    files = RowsInMemory()
    replay_of_partition = KeptRecordsReplay(semantics)
    topic_names: dict[str, str] = {}
    counts = PartitionCounts()
    for chunk in end.cut(chunks, offsets_partition):
        decoded = decode_chunk(chunk.records, semantics)
        write_chunk(files, offsets_partition, SOURCE, chunk, decoded, None)
        write_notes(files, offsets_partition, decoded.refusals, chunk.records, decoded, source_of(chunk, SOURCE))
        for table, rows in files.taken():
            yield from packed(cluster, offsets_partition, table, rows)
        topic_names |= topic_names_of(decoded)
        _count_kinds(counts, chunk, decoded)
        kept = kept_records(chunk.records, np.flatnonzero(superseded.needed_for_replay(decoded.kinds)), decoded.decodes)
        if kept.num_rows:
            replay_of_partition.apply(kept)
    state = replay_of_partition.coordinator.finish()
    groups = state.groups()
    rows_of_tables: Mapping[str, Sequence[tuple[Any, ...]]] = {
        "committed_offsets": state.committed_offsets(),
        "pending_offsets": state.pending_offsets(),
        "orphan_offsets": state.orphan_offsets(),
        "groups": groups,
        "members": state.members(),
        "assignments": state.assignments({}),
        "warnings": state.warnings(),
    }
    for table, rows_of_table in rows_of_tables.items():
        yield from packed_rows_of(cluster, offsets_partition, table, WRITTEN_ROWS[table], rows_of_table)
    rows_of_no_table: Mapping[str, Sequence[tuple[Any, ...]]] = {
        TOPIC_NAMES: [*{**topic_names, **state.topic_names}.items()],
        TYPE_0_OFFSETS: [*replay_of_partition.type_0_offsets()],
        KEPT_GROUPS: [(group.group_id, reason) for group in groups for reason in kept_for(group)],
        KINDS: [(*kind, count.decoded) for kind, count in counts.by_kind.items()],
    }
    for name, tuples in rows_of_no_table.items():
        schema = OF_NO_TABLE[name]
        columns = [pa.array(column, kind) for column, kind in zip(zip(*tuples, strict=True), schema.types, strict=False)]
        if columns:
            yield from packed(cluster, offsets_partition, name, pa.Table.from_arrays(columns, schema=schema))


def _count_kinds(counts: PartitionCounts, chunk: Chunk, decoded: DecodedChunk) -> None:
    """Count the records of the chunk that are no control records by key type and value version."""
    is_data = ~decoded.kinds.is_control
    sizes = (chunk.records.key.lengths() + chunk.records.value.lengths())[is_data]
    counts.count_kinds(
        decoded.stored_key_type[is_data],
        decoded.value_version[is_data],
        sizes,
        decoded.decodes[is_data],
        np.zeros(len(sizes), np.bool_),
    )
