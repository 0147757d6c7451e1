"""What is known about rows of files, tables or a topic before they are read for the run.

``overview_of_files`` reads positions and keys once: where each offsets partition begins and ends, the clusters that the rows name, the
number of partitions of the offsets topic, and what the rows do not contain.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from groupcoord_spark.errors import BadCopyError, GroupcoordError, InputError, UsageError
from groupcoord_spark.log import LogPlan, PartitionLog, PlacedDoubt, RecordMark, record_crc
from groupcoord_spark.log.storage import shown
from groupcoord_spark.pipeline.division import Division
from groupcoord_spark.pipeline.plan.evidence import Evidence
from groupcoord_spark.pipeline.plan.partition_count import best_partition_count, group_hashes
from groupcoord_spark.pipeline.read.rows import FileRows, position_text, read_piece, rows_from
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.sources.live import KAFKA_CONNECTOR, LiveTopic, extent_of, live_frame
from groupcoord_spark.sources.rows import ROW_SCHEMA, InputKind, RowBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TRANSACTIONS, TIMESTAMPS, LEADER_EPOCHS = "transactions", "timestamps", "leader_epochs"
"""What an input may not contain, in the words of ``input.lacks`` in ``runs``."""

TRANSACTIONS_UNKNOWN: Final = (
    "The input does not tell producers and markers: offsets of transactions that are open or were aborted count as committed."
)

NOTHING_REMEMBERED: Final[Mapping[int, Collection[int]]] = {}

_HASHES: Final = 32


@dataclass(slots=True)
class PartitionOverview:
    """The rows of one offsets partition: number, first and last record offset, timestamp of the first, and hashes of some group ids.

    evidence: the first and the newest data record, and those at the offsets that the overview was asked about.
    """

    rows: int = 0
    first_offset: int | None = None
    first_timestamp_ms: int = NO_TIMESTAMP
    end_offset: int = 0
    hashes: set[int] = field(default_factory=set)
    evidence: Evidence = field(default_factory=Evidence)

    def add(self, other: PartitionOverview) -> None:
        """Add the overview that another task made of the same partition."""
        self.rows += other.rows
        if other.first_offset is not None and (self.first_offset is None or other.first_offset < self.first_offset):
            self.first_offset, self.first_timestamp_ms = other.first_offset, other.first_timestamp_ms
        self.end_offset = max(self.end_offset, other.end_offset)
        self.hashes |= other.hashes
        self.evidence = self.evidence.merged(other.evidence)


@dataclass(slots=True)
class RowOverview:
    """What is known about rows before they are read. Its size depends on the number of clusters and partitions, not on rows.

    partitions: by cluster (None: the rows name none) and offsets partition. faults: number of rows that are no records. first_fault: the
    sentence about the first of these rows, with its position.
    """

    partitions: dict[tuple[str | None, int], PartitionOverview] = field(default_factory=dict)
    faults: int = 0
    first_fault: str | None = None
    other_topics: int = 0
    without_transactions: int = 0
    without_timestamps: int = 0
    without_leader_epochs: int = 0

    def add_rows(self, batch: RowBatch, offsets: Mapping[int, Collection[int]] = NOTHING_REMEMBERED) -> None:
        """Add a batch of rows. offsets: by offsets partition the record offsets whose records are kept as marks."""
        self.other_topics += batch.other_topics
        self.without_transactions += batch.without_transactions
        self.without_timestamps += batch.without_timestamps
        self.without_leader_epochs += batch.without_leader_epochs
        rows = batch.rows
        is_fault = rows.column("fault").is_valid()
        faults = int(pc.sum(is_fault).as_py() or 0)
        if faults:
            self.faults += faults
            if self.first_fault is None:
                first = rows.filter(is_fault).slice(0, 1).to_pylist()[0]
                self.first_fault = f"{first['source']}, {position_text(first['source'], first['position'])}: {first['detail']}"
            rows = rows.filter(pc.invert(is_fault))
        if not rows.num_rows:
            return
        for cluster, of_cluster in _split(rows, "cluster"):
            for number, part in _split(of_cluster, "offsets_partition"):
                record_offsets = part.column("record_offset")
                first = pc.min(record_offsets).as_py()
                at = pc.index(record_offsets, pa.scalar(first, record_offsets.type)).as_py()
                partition = self.partitions.setdefault((cluster, number), PartitionOverview())
                timestamp_ms = part.column("record_timestamp_ms")[at].as_py()
                hashes: set[int] = set()
                evidence = _evidence(part, offsets.get(number, ()))
                if len(partition.hashes) < _HASHES:
                    data = (
                        part.filter(part.column("control_type").is_null()) if part.column("control_type").null_count else part.slice(0, 0)
                    )
                    hashes = group_hashes(data.column("key").slice(0, _HASHES).to_pylist())
                partition.add(PartitionOverview(part.num_rows, first, timestamp_ms, pc.max(record_offsets).as_py() + 1, hashes, evidence))

    def add(self, other: RowOverview) -> None:
        """Add the overview that another task made."""
        for name, partition in other.partitions.items():
            self.partitions.setdefault(name, PartitionOverview()).add(partition)
        self.faults += other.faults
        self.first_fault = self.first_fault or other.first_fault
        self.other_topics += other.other_topics
        self.without_transactions += other.without_transactions
        self.without_timestamps += other.without_timestamps
        self.without_leader_epochs += other.without_leader_epochs

    def clusters(self) -> list[str]:
        """The cluster names in the rows, sorted."""
        return sorted({cluster for cluster, _ in self.partitions if cluster is not None})


def _split(rows: pa.RecordBatch, name: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """(value, rows with this value) for each distinct value of a column."""
    column = rows.column(name)
    values = pc.unique(column).to_pylist()
    for value in values:
        if len(values) == 1:
            yield value, rows
        else:
            yield (
                value,
                rows.filter(column.is_null() if value is None else pc.fill_null(pc.equal(column, pa.scalar(value, column.type)), False)),
            )


def _evidence(rows: pa.RecordBatch, offsets: Collection[int]) -> Evidence:
    """The first and the newest data record of the rows, and the data records at ``offsets``."""
    data = rows.filter(rows.column("control_type").is_null()) if rows.column("control_type").null_count < len(rows) else rows
    if not data.num_rows:
        return Evidence()
    ends = pc.min_max(data.column("record_offset")).as_py()
    wanted = pa.array({ends["min"], ends["max"], *offsets}, pa.int64())
    evidence = Evidence()
    for row in data.filter(pc.is_in(data.column("record_offset"), wanted)).to_pylist():
        mark = RecordMark(row["record_offset"], row["record_timestamp_ms"], record_crc(row["key"], row["value"]))
        evidence = evidence.merged(Evidence(mark, mark, {mark.record_offset: mark} if mark.record_offset in offsets else {}))
    return evidence


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The plan of a run that reads rows.

    log: as in a plan of segments. lacks: what the input does not contain. frame: the rows of the cluster, unsorted. evidence: some records
    of each offsets partition. placed_groups: (hash of the group id, offsets partition of the group) of some groups. rows, faults: number
    of rows, and of rows that are no records.
    """

    kind: InputKind
    log: LogPlan
    lacks: tuple[str, ...]
    partition_count: int
    rows: int
    frame: DataFrame
    evidence: Mapping[int, Evidence] = field(default_factory=dict)
    placed_groups: Sequence[tuple[int, int]] = ()
    faults: int = 0

    def complete_from(self, offsets: Mapping[int, int]) -> set[int]:
        """The offsets partitions of which the input has a row for each record offset from the given one to the end of the log."""
        from pyspark.sql import functions as f

        if not offsets:
            return set()
        places = rows_from(self.frame, offsets).select("offsets_partition", "record_offset").distinct()
        counted = places.groupBy("offsets_partition").agg(f.count("record_offset").alias("rows")).collect()
        counts = {row.offsets_partition: row.rows for row in counted}
        ends = {log.offsets_partition: log.end_offset for log in self.log.partitions}
        return {number for number, offset in offsets.items() if counts.get(number, 0) == ends[number] - offset}


def overview_of_files(spark: SparkSession, files: FileRows, offsets: Mapping[int, Collection[int]] = NOTHING_REMEMBERED) -> RowOverview:
    """The overview of the rows in files. offsets: by offsets partition the record offsets whose records are kept as marks."""
    pieces = files.pieces
    if not pieces:
        return RowOverview()

    def summarize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        overview = RowOverview()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for rows in read_piece(pieces[task]):
                    overview.add_rows(rows, offsets)
        yield pa.RecordBatch.from_pydict({"overview": pa.array([pickle.dumps(overview)], pa.binary())})

    tasks = Division.of(spark).row_tasks(files.bytes, len(pieces))
    return _collected(spark.range(0, len(pieces), 1, tasks).mapInArrow(summarize, "overview BINARY"))


def overview_of_frame(frame: DataFrame, offsets: Mapping[int, Collection[int]] = NOTHING_REMEMBERED) -> RowOverview:
    """The overview of the rows of a frame. offsets: by offsets partition the record offsets whose records are kept as marks."""

    def summarize(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        overview = RowOverview()
        for batch in batches:
            overview.add_rows(RowBatch(batch.cast(ROW_SCHEMA), without_transactions=batch.num_rows), offsets)
        yield pa.RecordBatch.from_pydict({"overview": pa.array([pickle.dumps(overview)], pa.binary())})

    return _collected(frame.mapInArrow(summarize, "overview BINARY"))


def _collected(frame: DataFrame) -> RowOverview:
    overview = RowOverview()
    for row in frame.collect():
        overview.add(pickle.loads(row.overview))
    return overview


def row_plan(
    kind: InputKind,
    inputs: Sequence[str],
    overview: RowOverview,
    frame: DataFrame,
    *,
    cluster: str | None,
    ends: Mapping[int, int] | None = None,
    accept_empty: bool = False,
) -> RowPlan:
    """The plan of a run, from the overview of its rows.

    Args:
        cluster: the name from the user. If the rows name several clusters, only rows of this cluster are read; if they name one, all rows
            are read, whatever its name.
        ends: end offset of every partition of the topic, where this is known.
        accept_empty: without any row the plan is one without partitions.
    Raises:
        InputError: no row is a record of the offsets topic.
        BadCopyError: there are no rows.
        UsageError: the rows name several clusters and ``cluster`` is none of them.
    """
    source = ", ".join(map(shown, inputs))
    if not overview.partitions and not ends:
        if overview.faults or overview.other_topics:
            raise InputError(_no_records(source, overview))
        if not accept_empty:
            raise BadCopyError(
                f"{source}: there are no rows. Give an export of the topic __consumer_offsets, or go on with --accept empty."
            )
    names = overview.clusters()
    if len(names) > 1 and cluster not in names:
        raise UsageError(f"{source} holds rows of the clusters {', '.join(map(repr, names))}. Say with --cluster which one to read.")
    chosen_cluster = cluster if len(names) > 1 else None
    partitions: dict[int, PartitionOverview] = {number: PartitionOverview(end_offset=end) for number, end in (ends or {}).items()}
    rows_of_other_clusters = 0
    for (name, number), partition in overview.partitions.items():
        if chosen_cluster is not None and name != chosen_cluster:
            rows_of_other_clusters += partition.rows
        else:
            partitions.setdefault(number, PartitionOverview()).add(partition)
    lacking = {
        TRANSACTIONS: overview.without_transactions,
        TIMESTAMPS: overview.without_timestamps,
        LEADER_EPOCHS: overview.without_leader_epochs,
    }
    lacks = tuple(word for word, rows in lacking.items() if rows)
    doubts = [
        PlacedDoubt(code, detail, source, None, 0, 0, None, count)
        for code, detail, count in (
            (
                "other_topic",
                f"{overview.other_topics} rows are of other topics than __consumer_offsets; they are not read.",
                overview.other_topics,
            ),
            (
                "other_cluster",
                f"{rows_of_other_clusters} rows are of other clusters than {chosen_cluster!r}; they are not read.",
                rows_of_other_clusters,
            ),
            ("transactions_unknown", TRANSACTIONS_UNKNOWN, overview.without_transactions or (TRANSACTIONS in lacks)),
        )
        if count
    ]
    logs = tuple(
        PartitionLog(number, source, (), partition.first_offset, partition.first_timestamp_ms, partition.end_offset, 0)
        for number, partition in sorted(partitions.items())
    )
    hashes = [(group_hash, number) for number, partition in partitions.items() for group_hash in partition.hashes]
    lowest = max(partitions, default=0) + 1
    if chosen_cluster is not None:
        frame = frame.where((frame["cluster"] == chosen_cluster) | frame["fault"].isNotNull())
    named = names[0] if len(names) == 1 and names[0] != "default" else chosen_cluster
    return RowPlan(
        kind,
        LogPlan(logs, named, None, tuple(doubts)),
        lacks,
        len(ends) if ends else best_partition_count(hashes, lowest),
        sum(partition.rows for partition in partitions.values()) + overview.faults,
        frame,
        {number: partition.evidence for number, partition in partitions.items()},
        hashes,
        overview.faults,
    )


def _no_records(source: str, overview: RowOverview) -> str:
    if overview.first_fault is not None:
        return f"{source}: none of its {overview.faults} rows is a record of __consumer_offsets. {overview.first_fault}"
    return f"{source}: all of its {overview.other_topics} rows are of other topics than __consumer_offsets."


def live_rows(
    spark: SparkSession, topic: LiveTopic, *, cluster: str | None, offsets: Mapping[int, Collection[int]] = NOTHING_REMEMBERED
) -> RowPlan:
    """The plan of a run that reads a topic, up to its present end. The topic is fetched once, into the local disks of the executors.

    Raises:
        GroupcoordError, InputError: as ``extent_of`` does.
    """
    from pyspark import StorageLevel

    extent = extent_of(spark, topic)
    try:
        frame = live_frame(spark, topic, extent).persist(StorageLevel.DISK_ONLY)
        overview = overview_of_frame(frame, offsets)
    except (PySparkException, Py4JJavaError) as failure:
        if re.search(r"(ClassNotFoundException|NoClassDefFoundError|NoSuchMethodError): \S*org[./]apache[./]spark", str(failure)):
            raise GroupcoordError(
                f"The Kafka connector of this Spark session was built for another release of Spark. Take {KAFKA_CONNECTOR}:{spark.version}."
            ) from failure
        raise GroupcoordError(f"{topic.uri}: the topic cannot be read: {_last_cause(failure)}") from failure
    rows = row_plan(InputKind.KAFKA, [topic.uri], overview, frame, cluster=cluster, ends=extent.end)
    return replace(rows, log=replace(rows.log, cluster_id=extent.cluster_id), lacks=(TRANSACTIONS, LEADER_EPOCHS))


def _last_cause(failure: Exception) -> str:
    """The last cause in the text of Spark's exception, in one line."""
    causes = [line.strip() for line in str(failure).splitlines() if re.match(r"(Caused by: )?[\w.$]+(Error|Exception)\b", line.strip())]
    return (causes or [str(failure).splitlines()[0]])[-1].rstrip(".") + "."
