"""What must be known of rows in files, tables or a topic before the first of them is read.

``look_at`` reads places and keys once: where each partition begins and ends, of which cluster the rows are, how many partitions there are,
and what the rows cannot tell.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from groupcoord_spark.errors import GroupcoordError, InputError, UsageError
from groupcoord_spark.log import Doubt, LogPlan, PartitionLog
from groupcoord_spark.log.storage import shown
from groupcoord_spark.pipeline.plan.partition_count import best_partition_count, group_hashes
from groupcoord_spark.pipeline.read.rows import FileRows, position_of, read_piece
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.sources.live import KAFKA_CONNECTOR, LiveTopic, extent_of, live_frame
from groupcoord_spark.sources.rows import ROW_SCHEMA, InputKind, RowBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TRANSACTIONS, TIMESTAMPS, LEADER_EPOCHS = "transactions", "timestamps", "leader_epochs"
"""What an input may lack, in the words of ``runs``."""

TRANSACTIONS_UNKNOWN: Final = (
    "The input does not tell producers and markers: offsets of transactions that are open or were aborted count as committed."
)

_HASHES: Final = 32


@dataclass(slots=True)
class PartitionPlace:
    """Rows of one offsets partition: how many, the first and the last offset, the timestamp of the first, and hashes of some groups."""

    rows: int = 0
    first_offset: int | None = None
    first_timestamp_ms: int = NO_TIMESTAMP
    end_offset: int = 0
    hashes: set[int] = field(default_factory=set)

    def add(self, other: PartitionPlace) -> None:
        """Take in what another task saw of the partition."""
        self.rows += other.rows
        if other.first_offset is not None and (self.first_offset is None or other.first_offset < self.first_offset):
            self.first_offset, self.first_timestamp_ms = other.first_offset, other.first_timestamp_ms
        self.end_offset = max(self.end_offset, other.end_offset)
        self.hashes |= other.hashes


@dataclass(slots=True)
class Places:
    """What is known of rows before they are read. Its size depends on clusters and partitions, not on rows.

    partitions: by cluster (None: the rows tell none) and offsets partition. faults: rows that are no records; first_fault: what the first
    of them said, and where.
    """

    partitions: dict[tuple[str | None, int], PartitionPlace] = field(default_factory=dict)
    faults: int = 0
    first_fault: str | None = None
    other_topics: int = 0
    without_transactions: int = 0
    without_timestamps: int = 0
    without_leader_epochs: int = 0

    def look(self, batch: RowBatch) -> None:
        """Take in some rows."""
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
                self.first_fault = f"{first['source']}, {position_of(first['source'], first['position'])}: {first['detail']}"
            rows = rows.filter(pc.invert(is_fault))
        if not rows.num_rows:
            return
        for cluster, of_cluster in _split(rows, "cluster"):
            for number, part in _split(of_cluster, "offsets_partition"):
                offsets = part.column("record_offset")
                first = pc.min(offsets).as_py()
                at = pc.index(offsets, pa.scalar(first, offsets.type)).as_py()
                place = self.partitions.setdefault((cluster, number), PartitionPlace())
                timestamp_ms = part.column("record_timestamp_ms")[at].as_py()
                hashes: set[int] = set()
                if len(place.hashes) < _HASHES:
                    data = (
                        part.filter(part.column("control_type").is_null()) if part.column("control_type").null_count else part.slice(0, 0)
                    )
                    hashes = group_hashes(data.column("key").slice(0, _HASHES).to_pylist())
                place.add(PartitionPlace(part.num_rows, first, timestamp_ms, pc.max(offsets).as_py() + 1, hashes))

    def add(self, other: Places) -> None:
        """Take in what another task saw."""
        for name, place in other.partitions.items():
            self.partitions.setdefault(name, PartitionPlace()).add(place)
        self.faults += other.faults
        self.first_fault = self.first_fault or other.first_fault
        self.other_topics += other.other_topics
        self.without_transactions += other.without_transactions
        self.without_timestamps += other.without_timestamps
        self.without_leader_epochs += other.without_leader_epochs

    def clusters(self) -> list[str]:
        """The clusters that the rows name."""
        return sorted({cluster for cluster, _ in self.partitions if cluster is not None})


def _split(rows: pa.RecordBatch, name: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """The rows by the values of a column."""
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


@dataclass(frozen=True, slots=True)
class RowPlan:
    """What a run reads of rows.

    log: what a plan of segments would say of them. lacks: what the input cannot tell. frame: the rows of the cluster, in no order.
    """

    kind: InputKind
    log: LogPlan
    lacks: tuple[str, ...]
    partition_count: int
    rows: int
    frame: DataFrame


def look_at(spark: SparkSession, files: FileRows) -> Places:
    """Places of the rows in files, and what they lack; the values are not read where the format lets them be."""
    pieces = files.pieces
    if not pieces:
        return Places()

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        places = Places()
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for rows in read_piece(pieces[task], with_values=False):
                    places.look(rows)
        yield pa.RecordBatch.from_pydict({"places": pa.array([pickle.dumps(places)], pa.binary())})

    tasks = min(len(pieces), 4 * spark.sparkContext.defaultParallelism)
    return _gathered(spark.range(0, len(pieces), 1, tasks).mapInArrow(look, "places BINARY"))


def look_at_frame(frame: DataFrame) -> Places:
    """Places of rows that are a frame already."""

    def look(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        places = Places()
        for batch in batches:
            places.look(RowBatch(batch.cast(ROW_SCHEMA), without_transactions=batch.num_rows))
        yield pa.RecordBatch.from_pydict({"places": pa.array([pickle.dumps(places)], pa.binary())})

    return _gathered(frame.mapInArrow(look, "places BINARY"))


def _gathered(looked: DataFrame) -> Places:
    places = Places()
    for row in looked.collect():
        places.add(pickle.loads(row.places))
    return places


def row_plan(
    kind: InputKind,
    inputs: Sequence[str],
    places: Places,
    frame: DataFrame,
    *,
    cluster: str | None,
    ends: Mapping[int, int] | None = None,
) -> RowPlan:
    """What to read of rows whose places are known.

    cluster: the one that the user names. Of rows of several clusters those of that one are read; rows of one cluster are taken to be the
    one that is named, whatever they call it. ends: end offset of every partition that the topic has, where that is known.
    Raises InputError where no row is a record of the offsets topic, UsageError where it is not clear which cluster is meant.
    """
    source = ", ".join(map(shown, inputs))
    if not places.partitions and not ends:
        raise InputError(_nothing_there(source, places))
    names = places.clusters()
    if len(names) > 1 and cluster not in names:
        raise UsageError(f"{source} holds rows of the clusters {', '.join(map(repr, names))}. Say with --cluster which one to read.")
    chosen = cluster if len(names) > 1 else None
    of_partition: dict[int, PartitionPlace] = {number: PartitionPlace(end_offset=end) for number, end in (ends or {}).items()}
    others = 0
    for (name, number), place in places.partitions.items():
        if chosen is not None and name != chosen:
            others += place.rows
        else:
            of_partition.setdefault(number, PartitionPlace()).add(place)
    lacking = {
        TRANSACTIONS: places.without_transactions,
        TIMESTAMPS: places.without_timestamps,
        LEADER_EPOCHS: places.without_leader_epochs,
    }
    lacks = tuple(word for word, rows in lacking.items() if rows)
    doubts = [
        Doubt(code, source, None, 0, 0, None, detail, count)
        for code, detail, count in (
            (
                "other_topic",
                f"{places.other_topics} rows are of other topics than __consumer_offsets; they are not read.",
                places.other_topics,
            ),
            ("other_cluster", f"{others} rows are of other clusters than {chosen!r}; they are not read.", others),
            ("transactions_unknown", TRANSACTIONS_UNKNOWN, places.without_transactions or (TRANSACTIONS in lacks)),
        )
        if count
    ]
    partitions = tuple(
        PartitionLog(number, source, (), place.first_offset, place.first_timestamp_ms, place.end_offset, 0)
        for number, place in sorted(of_partition.items())
    )
    hashes = [(each, number) for number, place in of_partition.items() for each in place.hashes]
    least = max(of_partition, default=0) + 1
    if chosen is not None:
        frame = frame.where((frame["cluster"] == chosen) | frame["fault"].isNotNull())
    named = names[0] if len(names) == 1 and names[0] != "default" else chosen
    return RowPlan(
        kind,
        LogPlan(partitions, named, None, tuple(doubts)),
        lacks,
        len(ends) if ends else best_partition_count(hashes, least),
        sum(place.rows for place in of_partition.values()) + places.faults,
        frame,
    )


def _nothing_there(source: str, places: Places) -> str:
    if places.first_fault is not None:
        return f"{source}: none of its {places.faults} rows is a record of __consumer_offsets. {places.first_fault}"
    if places.other_topics:
        return f"{source}: all of its {places.other_topics} rows are of other topics than __consumer_offsets."
    return f"{source}: there are no rows. Give an export of the topic __consumer_offsets."


def live_rows(spark: SparkSession, topic: LiveTopic, *, cluster: str | None) -> RowPlan:
    """A topic up to where it ends now. It is fetched once, into the executors' local disks.

    Raises GroupcoordError and InputError as ``extent_of`` does.
    """
    from pyspark import StorageLevel

    extent = extent_of(spark, topic)
    try:
        frame = live_frame(spark, topic, extent).persist(StorageLevel.DISK_ONLY)
        places = look_at_frame(frame)
    except (PySparkException, Py4JJavaError) as failure:
        if re.search(r"(ClassNotFoundException|NoClassDefFoundError|NoSuchMethodError): \S*org[./]apache[./]spark", str(failure)):
            raise GroupcoordError(
                f"The Kafka connector of this Spark session was built for another release of Spark. Take {KAFKA_CONNECTOR}:{spark.version}."
            ) from failure
        raise GroupcoordError(f"{topic.uri}: the topic cannot be read: {_said(failure)}") from failure
    rows = row_plan(InputKind.KAFKA, [topic.uri], places, frame, cluster=cluster, ends=extent.end)
    return replace(rows, log=replace(rows.log, cluster_id=extent.cluster_id), lacks=(TRANSACTIONS, LEADER_EPOCHS))


def _said(failure: Exception) -> str:
    """The last cause that Spark tells, in one line."""
    causes = [line.strip() for line in str(failure).splitlines() if re.match(r"(Caused by: )?[\w.$]+(Error|Exception)\b", line.strip())]
    return (causes or [str(failure).splitlines()[0]])[-1].rstrip(".") + "."
