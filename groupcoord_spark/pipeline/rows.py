"""Raw rows of any input, in whatever order they come, as chunks of consecutive records: what the reader of segments gives by nature.

``look_at`` reads places and keys once, for what must be known before the first record is: where each partition begins and ends, of which
cluster the rows are, how many partitions there are, what the rows cannot tell. ``sorted_rows`` is the frame of all rows, each partition's
together and in the order of offsets; ``pieces_of`` makes chunks of it that go the way of a segment's.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from groupcoord_spark.errors import GroupcoordError, InputError, UsageError
from groupcoord_spark.log import Chunk, Doubt, LogPlan, Lost, PartitionLog, Records
from groupcoord_spark.log.storage import shown
from groupcoord_spark.pipeline.ingest import CHUNK_BYTES, records_of
from groupcoord_spark.pipeline.partition_count import best_partition_count, group_hashes
from groupcoord_spark.sources.json_lines import LinesPiece, plan_lines, read_lines
from groupcoord_spark.sources.live import KAFKA_CONNECTOR, LiveTopic, extent_of, live_frame
from groupcoord_spark.sources.rows import CONTROL_TYPES, NO_LEADER_EPOCH, ROW_COLUMNS, ROW_SCHEMA, InputKind, RowBatch
from groupcoord_spark.sources.tables import TablePiece, plan_delta, plan_parquet, read_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RowPiece = TablePiece | LinesPiece

ORDER: Final = ("offsets_partition", "record_offset", "record_timestamp_ms DESC", "producer_id DESC", "source", "position")
"""Of rows with one offset the first is taken: the newest, and the one that knows its producer."""

TRANSACTIONS, TIMESTAMPS, LEADER_EPOCHS = "transactions", "timestamps", "leader_epochs"
"""What an input may lack, in the words of ``runs``."""

TRANSACTIONS_UNKNOWN: Final = (
    "The input does not tell producers and markers: offsets of transactions that are open or were aborted count as committed."
)

CHUNK_ROWS: Final = 200_000
_HASHES: Final = 32
_NAMED_CONTROL: Final = {name: number for number, name in CONTROL_TYPES.items()}
_OTHER_CONTROL: Final = 127


@dataclass(slots=True)
class PartitionPlace:
    """Rows of one offsets partition: how many, the first and the last offset, the timestamp of the first, and hashes of some groups."""

    rows: int = 0
    first_offset: int | None = None
    first_timestamp_ms: int = -1
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
                self.first_fault = f"{first['source']}, {_position_of(first['source'], first['position'])}: {first['detail']}"
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


def _position_of(source: str, position: int | None) -> str:
    return "row" if position is None else f"row {position}" if source.endswith((".parquet", ".parq", ".pq")) else f"byte {position}"


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
class FileRows:
    """Files of rows, planned: nothing of a row has been looked at."""

    kind: InputKind
    inputs: tuple[str, ...]
    pieces: tuple[RowPiece, ...]

    @property
    def bytes(self) -> int:
        """Of all pieces, in their files."""
        return sum(piece.size for piece in self.pieces)


def plan_files(kind: InputKind, inputs: Sequence[str]) -> FileRows:
    """The pieces of work in files of rows. Raises InputError as their sources do, and where there is no file at all."""
    plans: dict[InputKind, Callable[[Sequence[str]], Sequence[RowPiece]]]
    plans = {InputKind.PARQUET: plan_parquet, InputKind.DELTA: plan_delta, InputKind.JSON: plan_lines}
    return FileRows(kind, tuple(inputs), tuple(plans[kind](inputs)))


def read_piece(piece: RowPiece, *, with_values: bool = True) -> Iterator[RowBatch]:
    """The rows of a piece. with_values: without, a reader that can leave the values out gives NULL for them."""
    return read_table(piece, with_values=with_values) if isinstance(piece, TablePiece) else read_lines(piece)


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


def file_frame(spark: SparkSession, files: FileRows) -> DataFrame:
    """All rows of files, of ROW_COLUMNS."""
    pieces = files.pieces

    def read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                for rows in read_piece(pieces[task]):
                    yield rows.rows

    return spark.range(0, len(pieces), 1, max(len(pieces), 1)).mapInArrow(read, ROW_COLUMNS)


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


def sorted_rows(frame: DataFrame) -> DataFrame:
    """The rows of each offsets partition together, in the order of their offsets."""
    from pyspark.sql import functions as f

    order = [f.col(name.removesuffix(" DESC")).desc() if name.endswith(" DESC") else f.col(name) for name in ORDER]
    return frame.repartition("offsets_partition").sortWithinPartitions(*order)


def sorted_table(files: FileRows, most_bytes: int) -> pa.Table | None:
    """The same as one table in memory, without Spark; None where the rows have more than ``most_bytes``."""
    batches, held = [], 0
    for piece in files.pieces:
        for batch in read_piece(piece):
            batches.append(batch.rows)
            held += batch.rows.nbytes
            if held > most_bytes:
                return None
    table = pa.Table.from_batches(batches, ROW_SCHEMA)
    keys = [(name.removesuffix(" DESC"), "descending" if name.endswith(" DESC") else "ascending") for name in ORDER]
    offset = ROW_SCHEMA.get_field_index("record_offset")
    # rows without an offset come first, as Spark has them
    by = table.set_column(offset, "record_offset", pc.fill_null(table.column(offset), -1))
    return table.take(pc.sort_indices(by, sort_keys=keys))


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of one offsets partition; -1 for those of which nobody knows it."""

    offsets_partition: int
    source: str


def pieces_of(batches: Iterable[pa.RecordBatch], source: str) -> Iterator[tuple[Piece, Iterator[Chunk]]]:
    """Each partition's chunks; the batches are of ROW_SCHEMA and sorted. A partition's chunks must be taken before the next one's."""

    def runs() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            numbers = batch.column("offsets_partition").to_numpy()
            borders = np.flatnonzero(np.diff(numbers)) + 1
            for begin, end in zip([0, *borders.tolist()], [*borders.tolist(), len(numbers)], strict=True):
                if end > begin:
                    yield int(numbers[begin]), batch.slice(begin, end - begin)

    for number, of_partition in groupby(runs(), key=lambda run: run[0]):
        yield Piece(number, source), _Chunks(number, source).of(rows for _, rows in of_partition)


class _Chunks:
    """The chunks of one offsets partition."""

    def __init__(self, offsets_partition: int, source: str) -> None:
        self._offsets_partition = offsets_partition
        self._source = source
        self._last: pa.RecordBatch | None = None
        self._duplicates = 0

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Chunks of some tens of megabytes."""
        waiting: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            waiting.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield self._chunk(pa.concat_batches(waiting))
                waiting, rows, size = [], 0, 0
        if waiting:
            yield self._chunk(pa.concat_batches(waiting))
        if self._duplicates:
            detail = f"{self._duplicates} rows of the partition are there more than once, byte for byte; one of each is taken."
            doubt = Doubt("row_duplicate", self._source, self._offsets_partition, 0, 0, None, detail, self._duplicates)
            yield Chunk(Records.none(), [], [doubt], 0)

    def _chunk(self, rows: pa.RecordBatch) -> Chunk:
        size = sum(_bytes_in(rows.column(name)) for name in ("key", "value"))
        is_fault = rows.column("fault").is_valid()
        lost: list[Lost] = []
        if pc.any(is_fault).as_py():
            lost = [self._lost(row, row["fault"], row["detail"]) for row in rows.filter(is_fault).to_pylist()]
            rows = rows.filter(pc.invert(is_fault))
        rows = self._without_repeated(rows, lost)
        if not rows.num_rows:
            return Chunk(Records.none(), lost, [], size)
        epochs = rows.column("leader_epoch").fill_null(NO_LEADER_EPOCH).to_numpy(zero_copy_only=False)
        return Chunk(_records(rows), lost, [], size, record_leader_epoch=epochs, sources=rows.column("source").to_pylist())

    def _lost(self, row: Mapping[str, Any], code: str, detail: str) -> Lost:
        size = len(row["key"] or b"") + len(row["value"] or b"")
        place = (row["source"], self._offsets_partition, row["position"], size, row["record_offset"])
        return Lost(code, *place, detail, 1, row["key"], row["value"])

    def _without_repeated(self, rows: pa.RecordBatch, lost: list[Lost]) -> pa.RecordBatch:
        """The first row of each offset; the others are the same once more, or lost."""
        ours = 0
        if self._last is not None:
            rows, ours = pa.concat_batches([self._last, rows]), 1
        if not rows.num_rows:
            return rows
        offsets = rows.column("record_offset").to_numpy()
        is_first = np.r_[True, offsets[1:] != offsets[:-1]]
        if not is_first.all():
            again = np.flatnonzero(~is_first)
            taken = np.maximum.accumulate(np.where(is_first, np.arange(len(offsets)), 0))[again]
            is_same = np.ones(len(again), np.bool_)
            for name in ("key", "value"):
                one, other = rows.column(name).take(pa.array(again)), rows.column(name).take(pa.array(taken))
                same = pc.if_else(pc.or_(one.is_null(), other.is_null()), pc.and_(one.is_null(), other.is_null()), pc.equal(one, other))
                is_same &= same.to_numpy(zero_copy_only=False).astype(np.bool_)
            self._duplicates += int(is_same.sum())
            for row, first in zip(again[~is_same].tolist(), taken[~is_same].tolist(), strict=True):
                where = rows.slice(first, 1).select(["source", "position"]).to_pylist()[0]
                place = f"{where['source']}, {_position_of(where['source'], where['position'])}"
                detail = (
                    f"Offset {offsets[row]} of partition {self._offsets_partition} is also at {place}, with other bytes; that one is taken."
                )
                lost.append(self._lost(rows.slice(row, 1).to_pylist()[0], "offset_conflict", detail))
        is_first[:ours] = False
        kept = rows.filter(pa.array(is_first))
        if kept.num_rows:
            self._last = kept.slice(kept.num_rows - 1, 1)
        return kept


def _bytes_in(column: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)


def _records(rows: pa.RecordBatch) -> Records:
    n = rows.num_rows
    if not n:
        return Records.none()

    control = rows.column("control_type")
    control_type = np.full(n, -1, np.int8)
    if control.null_count < n:
        codes = control.dictionary_encode()
        numbers = np.array([*map(_control_number, codes.dictionary.to_pylist()), -1], np.int8)
        control_type = numbers[codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return records_of(rows, control_type, rows.column("position").fill_null(-1).to_numpy(zero_copy_only=False))


def _control_number(name: str) -> int:
    if name in _NAMED_CONTROL:
        return _NAMED_CONTROL[name]
    return int(name) if name.isascii() and name.isdecimal() and int(name) < _OTHER_CONTROL else _OTHER_CONTROL
