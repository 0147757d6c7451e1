"""Rows of inputs other than segments, as chunks of consecutive records, the form that segments are read in.

Only a task that reads the whole offsets partition may drop a record, and rows come in any order. The reading tasks therefore pack their
rows by offsets partition in record order (``packed_rows``). The task that replays a partition merges the pieces of all tasks
(``rows_in_order``) and reads them like the chunks of a segment (``with_rows_read``): each row crosses Java once, packed.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import chain, groupby, islice
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import CHUNK_BYTES, Chunk, Lost, PlacedDoubt, Records
from groupcoord_spark.pipeline.division import Division
from groupcoord_spark.pipeline.exchange.kept_records import ROWS, PieceReport, ShuffledRow, as_one, batches_of_size, records_of, to_spark
from groupcoord_spark.pipeline.exchange.task_files import TaskRows
from groupcoord_spark.pipeline.extents import Until
from groupcoord_spark.pipeline.read.reader import PartitionReader, ReadJob, rows_of_reports
from groupcoord_spark.protocol.record_types import CLOCKS_DIFFER_MS, NO_LEADER_EPOCH, NO_TIMESTAMP, NOT_A_CONTROL_RECORD, MarkerType
from groupcoord_spark.sources.byte_texts import FIRST_ROWS, NO_TEXT, TextForms, text_forms_of
from groupcoord_spark.sources.columns import lacks_of, row_batch
from groupcoord_spark.sources.frames import DEFAULT_CLUSTER, told_fields, wanted_rows
from groupcoord_spark.sources.inputs import InputKind, below, data_files
from groupcoord_spark.sources.json_lines import LINES_BYTES, first_documents, read_lines
from groupcoord_spark.sources.live import TopicExtent
from groupcoord_spark.sources.parquet import PIECE_BYTES, constants_of, delta_pieces, first_texts, has_text_in, read_parquet, readable_table
from groupcoord_spark.sources.rows import EVERY_ROW, ROW_SCHEMA, SOURCE, FilePiece, RowBatch, Wanted, cut
from groupcoord_spark.storage.location import Location
from groupcoord_spark.wording import counted

ORDER: Final = ("offsets_partition", "record_offset", "record_timestamp_ms DESC", "producer_id DESC", "source", "position")
"""The order of rows. Of several rows with one record offset the first is read: the newest, preferably with a producer id."""


CHUNK_ROWS: Final = 200_000
HELD_BYTES: Final = 32 << 20
"""Bytes of rows that a task holds, sorts and packs together."""
PACKED_BYTES: Final = 1 << 20
"""Bytes of rows in one packed piece. Of each such 32 MiB the merge may have to hold one piece, however the rows are ordered."""
FIRST_FILES: Final = 20
"""Maximum number of files whose first rows are inspected."""
_LACKS: Final = b"lacks"
"""In the metadata of packed rows: the words of LACKING for what these rows do not contain."""
_OTHER_CONTROL_TYPE: Final = 127
"""Stands for a control type that is neither COMMIT nor ABORT nor a number that fits a byte."""


def position_text(source: str, position: int | None) -> str:
    """``row 5`` or ``byte 5``: the position of a row in its file, for a sentence."""
    return "row" if position is None else f"row {position}" if source.endswith((".parquet", ".parq", ".pq")) else f"byte {position}"


OfBatches = Callable[[Iterator[RowBatch]], Iterator[pa.RecordBatch]]


class RowSource(ABC):
    """An input of rows.

    inputs: what the user gave, for sentences. extent: of a topic; None: nobody knows it before the rows are looked at. remarks: sentences
    about files that are not read.
    """

    kind: InputKind
    inputs: Sequence[str]
    extent: TopicExtent | None = None
    remarks: Sequence[str] = ()

    @abstractmethod
    def mapped(self, wanted: Wanted, function: OfBatches, columns: str, *, with_bytes: bool = True) -> DataFrame:
        """Return a frame of the function's results for the wanted rows. ``with_bytes``: it needs keys and values."""

    def release(self) -> None:
        """Free cached rows; most sources cache nothing."""
        return


@dataclass(frozen=True, slots=True)
class RowFiles:
    """Files of rows. No row has been read.

    pieces: the pieces that may have a wanted row, as far as is known without opening their files. remarks: sentences about files that are
    not read. forms: of keys and values that are text.
    """

    kind: InputKind
    inputs: tuple[str, ...]
    pieces: Callable[[Wanted], list[FilePiece]]
    remarks: Sequence[str] = ()
    forms: TextForms = NO_TEXT


def row_files(kind: InputKind, inputs: Sequence[str]) -> RowFiles:
    """Return the files of the inputs. Only the first rows are read, for the form of keys and values.

    Raises:
        InputError: A directory cannot be listed, a table cannot be opened, or the bytes of values were replaced by characters.
    """
    tops = [Location.of(given) for given in inputs]
    if kind is InputKind.DELTA:
        tables = [(top, readable_table(top)) for top in tops]

        def pieces_of_tables(wanted: Wanted) -> list[FilePiece]:
            return [piece for top, table in tables for piece in delta_pieces(top, table, wanted)]

        has_text = any(map(has_text_in, (table for _, table in tables)))
        return RowFiles(kind, tuple(inputs), pieces_of_tables, (), _forms_in(kind, pieces_of_tables(EVERY_ROW) if has_text else ()))
    pieces, remarks = list[FilePiece](), list[str]()
    for top in tops:
        found = data_files(top, kind)
        remarks += [found.remark] if found.remark is not None else []
        for path, size in found.sizes.items():
            pieces += cut(below(top, path).uri, size, LINES_BYTES if kind is InputKind.JSON else PIECE_BYTES, constants_of(path))
    return RowFiles(kind, tuple(inputs), lambda _: pieces, remarks, _forms_in(kind, pieces))


def _forms_in(kind: InputKind, pieces: Sequence[FilePiece]) -> TextForms:
    """Return the forms of keys and values, by the first rows of the first files that have text.

    Raises InputError where the values have lost bytes.
    """
    first_rows: list[tuple[Any, Any]] = []
    source = ""
    for piece in islice((piece for piece in pieces if not piece.start), FIRST_FILES):
        of_piece = list(islice(first_documents(piece), FIRST_ROWS)) if kind is InputKind.JSON else first_texts(piece)
        if of_piece is None:
            break
        source = source or (piece.source if of_piece else "")
        first_rows += of_piece
        if len(first_rows) >= FIRST_ROWS:
            break
    try:
        return text_forms_of(first_rows[:FIRST_ROWS])
    except ValueError as error:
        raise InputError(f"{source}: {error}. Export keys and values in base64 or hex, or as bytes in Parquet.") from error


def read_piece(
    kind: InputKind, piece: FilePiece, wanted: Wanted = EVERY_ROW, forms: TextForms = NO_TEXT, *, with_bytes: bool = True
) -> Iterator[RowBatch]:
    """Return the wanted rows of a piece of a file of this kind.

    Args:
        forms: The forms of keys and values that are text.
        with_bytes: Whether keys and values are needed.
    """
    if kind is InputKind.JSON:
        return (batch.wanted(wanted) for batch in read_lines(piece, forms))
    return read_parquet(piece, wanted, with_bytes=with_bytes, forms=forms)


@dataclass(frozen=True)
class FileRows(RowSource):
    """The rows of files, which the workers read."""

    session: SparkSession
    kind: InputKind
    inputs: Sequence[str]
    pieces: Callable[[Wanted], list[FilePiece]]
    remarks: Sequence[str] = ()
    forms: TextForms = NO_TEXT

    def mapped(self, wanted: Wanted, function: OfBatches, columns: str, *, with_bytes: bool = True) -> DataFrame:
        kind, pieces, forms = self.kind, self.pieces(wanted), self.forms

        def read(batches: Iterable[pa.RecordBatch]) -> Iterator[RowBatch]:
            for batch in batches:
                for task in batch.column(0).to_pylist():
                    yield from read_piece(kind, pieces[task], wanted, forms, with_bytes=with_bytes)

        tasks = Division.of(self.session).row_tasks(sum(piece.end - piece.start for piece in pieces), len(pieces))
        return self.session.range(0, len(pieces), 1, tasks).mapInArrow(lambda batches: function(read(batches)), columns)


@dataclass(frozen=True)
class FrameRows(RowSource):
    """The rows of a DataFrame with the columns of Spark's Kafka source or of the source ``consumer_offsets``.

    Raises UsageError as ``wanted_rows`` does.
    """

    frame: DataFrame
    kind: InputKind = InputKind.DATAFRAME
    inputs: Sequence[str] = (SOURCE,)

    def mapped(self, wanted: Wanted, function: OfBatches, columns: str, *, with_bytes: bool = True) -> DataFrame:
        rows = wanted_rows(self.frame, wanted, with_bytes=with_bytes)
        fields, lacks = rows.columns, lacks_of(told_fields(rows))

        @wraps(function)  # explain() has its name
        def of_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return function(row_batch(dict(zip(fields, batch.columns, strict=True)), batch.num_rows, lacks=lacks) for batch in batches)

        return rows.mapInArrow(of_batches, columns)


def packed_rows(cluster: str | None) -> OfBatches:
    """Return the function for ``RowSource.mapped``: raw rows in any order -> rows of SHUFFLED of the kind ROWS.

    ``cluster`` overrides the ``cluster`` column; None keeps it, with DEFAULT_CLUSTER for rows without one.
    """

    def pack_rows(batches: Iterable[RowBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        lacks: frozenset[str] = frozenset()
        size = 0
        for batch in batches:
            held.append(batch.rows)
            lacks |= batch.lacks
            size += held[-1].nbytes
            if size >= HELD_BYTES:
                yield from _packed(held, cluster, lacks)
                held, size = [], 0
        if size:
            yield from _packed(held, cluster, lacks)

    return pack_rows


def _packed(held: list[pa.RecordBatch], cluster: str | None, lacks: frozenset[str]) -> Iterator[pa.RecordBatch]:
    rows = as_one(held).replace_schema_metadata({_LACKS: " ".join(lacks)})
    offsets, numbers = _offsets(rows), rows.column("offsets_partition").to_numpy(zero_copy_only=False)
    clusters = rows.column("cluster").fill_null(DEFAULT_CLUSTER).dictionary_encode()
    codes = np.zeros(len(numbers), np.int64) if cluster is not None else clusters.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((offsets, numbers, codes))
    if (np.diff(order) < 0).any():
        rows, offsets, numbers, codes = rows.take(pa.array(order)), offsets[order], numbers[order], codes[order]
    borders = np.flatnonzero((np.diff(numbers) != 0) | (np.diff(codes) != 0)) + 1
    for begin, end in zip([0, *borders.tolist()], [*borders.tolist(), len(numbers)], strict=True):
        name = cluster if cluster is not None else clusters.dictionary[int(codes[begin])].as_py()
        for piece in batches_of_size([rows.slice(begin, end - begin)], PACKED_BYTES):
            yield from to_spark(name, [ShuffledRow(int(numbers[begin]), int(offsets[begin]), ROWS, piece)])
            begin += piece.num_rows


def _offsets(rows: pa.RecordBatch) -> Any:
    """int64[n], the record offsets; -1 for rows without one, which come first."""
    return rows.column("record_offset").fill_null(-1).to_numpy(zero_copy_only=False)


def rows_in_order(pieces: Iterable[ShuffledRow]) -> Iterator[pa.RecordBatch]:
    """Yield the raw rows of one offsets partition in the order ORDER.

    pieces: of the kind ROWS, by their first offsets: as soon as a piece begins, all rows below its first offset are there.
    """
    held: list[pa.RecordBatch] = []
    size, enough = 0, CHUNK_BYTES
    for piece in pieces:
        if size >= enough:
            rows = _sorted(held)
            end = int(np.searchsorted(_offsets(rows), piece.first_offset))
            yield rows.slice(0, end)
            held = [rows.slice(end)]
            size = held[0].nbytes
            enough = max(CHUNK_BYTES, 2 * size)
        held.append(piece.batch)
        size += held[-1].nbytes
    if held:
        yield _sorted(held)


def _sorted(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    rows = as_one(batches)
    offsets = _offsets(rows)
    if (np.diff(offsets) > 0).all():
        return rows
    order = np.argsort(offsets, kind="stable")
    return rows.take(pa.array(order)) if (np.diff(offsets[order]) > 0).all() else rows.take(_order_of(rows))


def _order_of(rows: pa.RecordBatch | pa.Table) -> pa.Array:
    """Return the row numbers in the order ORDER. Rows without a record offset come first."""
    keys = [(name.removesuffix(" DESC"), "descending" if name.endswith(" DESC") else "ascending") for name in ORDER]
    by = pa.table({name: rows[name] for name, _ in keys} | {"record_offset": pc.fill_null(rows["record_offset"], -1)})
    return pc.sort_indices(by, sort_keys=keys)


def with_rows_read(shuffled: Iterable[ShuffledRow], offsets_partition: int, source: str, job: ReadJob) -> Iterator[ShuffledRow]:
    """Yield rows of SHUFFLED of one offsets partition in offset order, with raw rows replaced by the reader's output.

    source: for rows that name none.
    """
    others: deque[ShuffledRow] = deque()
    lacks: set[str] = set()
    rest = iter(shuffled)

    def pieces() -> Iterator[ShuffledRow]:
        for row in rest:
            if row.kind == ROWS:
                batch = row.batch
                lacks.update((batch.schema.metadata or {}).get(_LACKS, b"").decode().split())
                yield row._replace(payload=batch)
            else:
                others.append(row)

    of_rows = pieces()
    if (first := next(of_rows, None)) is not None:  # without a row there is nothing to report
        chunks = _PartitionChunks(offsets_partition, source).of(rows_in_order(chain([first], of_rows)))
        if not job.warehouse_uri:  # a run has looked at all rows before
            chunks = _of_one_incarnation(chunks, offsets_partition)
        if job.until is not None:
            chunks = _before(chunks, job.until, offsets_partition)
        files, reports = TaskRows(), dict[int, PieceReport]()
        reader = PartitionReader(job, files, offsets_partition, reports)
        read = reader.read([(RowPiece(offsets_partition, source), chunks)])
        for row in read:
            while others and others[0].first_offset < row.first_offset:
                yield others.popleft()
            yield row
        reports[offsets_partition].lacks = frozenset(lacks)
        yield from rows_of_reports(reports, files)
    others.extend(row for row in rest if row.kind != ROWS)  # Spark wants its iterator to be read to the end
    yield from others


def _of_one_incarnation(chunks: Iterable[Chunk], offsets_partition: int) -> Iterator[Chunk]:
    """Yield the chunks. Raises InputError where their records are of several incarnations of the topic."""
    newest_ms = NO_TIMESTAMP
    for chunk in chunks:
        times = chunk.records.timestamp_ms
        newest = np.maximum.accumulate(np.r_[newest_ms, times])
        is_earlier = (times > NO_TIMESTAMP) & (times < newest[1:] - CLOCKS_DIFFER_MS)
        if is_earlier.any():
            row = int(np.argmax(is_earlier))
            raise InputError(
                f"The rows of offsets partition {offsets_partition} are of several incarnations of the topic: the record at offset"
                f" {chunk.records.record_offset[row]} is older, by more than the clocks of brokers differ, than one at a lower offset. Give"
                f" the rows of one, for example records.where(\"timestamp >= '...'\"), or run_nightly(..., accept=['recreated'])."
            )
        newest_ms = int(newest[-1])
        yield chunk


def _before(chunks: Iterable[Chunk], until: Until, offsets_partition: int) -> Iterator[Chunk]:
    """Yield the chunks up to the first record later than ``until``."""
    for chunk in chunks:
        records = chunk.records
        if until.time_ms is not None:
            is_after = records.timestamp_ms > until.time_ms
        else:
            is_after = records.record_offset >= until.end_offsets.get(offsets_partition, 1 << 63)
        if is_after.any():
            yield chunk.part(np.arange(np.argmax(is_after)), chunk.lost, chunk.doubts, chunk.bytes)
            return
        yield chunk


def sorted_table(files: RowFiles, most_bytes: int) -> pa.Table | None:
    """Return all rows, sorted, as one table in memory, without Spark; None if they need more than ``most_bytes``."""
    batches, size = [], 0
    for piece in files.pieces(EVERY_ROW):
        for batch in read_piece(files.kind, piece, EVERY_ROW, files.forms):
            batches.append(batch.rows)
            size += batch.rows.nbytes
            if size > most_bytes:
                return None
    table = pa.Table.from_batches(batches, ROW_SCHEMA)
    return table.take(_order_of(table))


@dataclass(frozen=True, slots=True)
class RowPiece:
    """The rows of one offsets partition; -1 for rows whose offsets partition is not known."""

    offsets_partition: int
    source: str


def chunks_by_partition(batches: Iterable[pa.RecordBatch], source: str) -> Iterator[tuple[RowPiece, Iterator[Chunk]]]:
    """(piece, chunks) for each offsets partition. Take all chunks of a partition before the next partition.

    batches: of ROW_SCHEMA, sorted by ORDER.
    """

    def slices_of_partitions() -> Iterator[tuple[int, pa.RecordBatch]]:
        for batch in batches:
            numbers = batch.column("offsets_partition").to_numpy()
            borders = np.flatnonzero(np.diff(numbers)) + 1
            for begin, end in zip([0, *borders.tolist()], [*borders.tolist(), len(numbers)], strict=True):
                if end > begin:
                    yield int(numbers[begin]), batch.slice(begin, end - begin)

    for number, of_partition in groupby(slices_of_partitions(), key=lambda part: part[0]):
        yield RowPiece(number, source), _PartitionChunks(number, source).of(rows for _, rows in of_partition)


class _PartitionChunks:
    """Makes the chunks of one offsets partition."""

    def __init__(self, offsets_partition: int, source: str) -> None:
        self._offsets_partition = offsets_partition
        self._source = source
        self._last: pa.RecordBatch | None = None
        self._duplicates = 0

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Chunk]:
        """Chunks of about CHUNK_ROWS rows or CHUNK_BYTES bytes."""
        pending_batches: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in batches:
            pending_batches.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= CHUNK_ROWS or size >= CHUNK_BYTES:
                yield self._chunk(as_one(pending_batches))
                pending_batches, rows, size = [], 0, 0
        if pending_batches:
            yield self._chunk(as_one(pending_batches))
        if self._duplicates:
            detail = f"The partition has {counted(self._duplicates, 'row')} more than once, byte for byte; one of each is taken."
            doubt = PlacedDoubt("row_duplicate", detail, self._source, self._offsets_partition, 0, 0, None, self._duplicates)
            yield Chunk(Records.none(), [], [doubt], 0)

    def _chunk(self, rows: pa.RecordBatch) -> Chunk:
        size = sum(pc.sum(pc.binary_length(rows.column(name))).as_py() or 0 for name in ("key", "value"))
        is_fault = rows.column("fault").is_valid()
        lost: list[Lost] = []
        if pc.any(is_fault).as_py():
            lost = [self._lost(row, row["fault"], row["detail"]) for row in rows.filter(is_fault).to_pylist()]
            rows = rows.filter(pc.invert(is_fault))
        rows = self._without_duplicates(rows, lost)
        if not rows.num_rows:
            return Chunk(Records.none(), lost, [], size)
        epochs = rows.column("leader_epoch").fill_null(NO_LEADER_EPOCH).to_numpy(zero_copy_only=False)
        return Chunk(_records(rows), lost, [], size, record_leader_epoch=epochs, sources=rows.column("source").to_pylist())

    def _lost(self, row: Mapping[str, Any], code: str, detail: str) -> Lost:
        size = len(row["key"] or b"") + len(row["value"] or b"")
        place = (row["source"], self._offsets_partition, row["position"], size, row["record_offset"])
        return Lost(code, *place, detail, 1, row["key"], row["value"])

    def _without_duplicates(self, rows: pa.RecordBatch, lost: list[Lost]) -> pa.RecordBatch:
        """Return the first row of each record offset. Equal further rows count as duplicates, different ones as lost."""
        from_last_chunk = 0
        if self._last is not None:
            rows, from_last_chunk = as_one([self._last, rows]), 1
        if not rows.num_rows:
            return rows
        offsets = rows.column("record_offset").to_numpy()
        if (offsets[1:] < offsets[:-1]).any():
            raise AssertionError(f"Rows of offsets partition {self._offsets_partition} are not sorted by their record offsets.")
        is_first = np.r_[True, offsets[1:] != offsets[:-1]]
        if not is_first.all():
            repeated = np.flatnonzero(~is_first)
            taken = np.maximum.accumulate(np.where(is_first, np.arange(len(offsets)), 0))[repeated]
            is_same = np.ones(len(repeated), np.bool_)
            for name in ("key", "value"):
                one, other = rows.column(name).take(pa.array(repeated)), rows.column(name).take(pa.array(taken))
                same = pc.if_else(pc.or_(one.is_null(), other.is_null()), pc.and_(one.is_null(), other.is_null()), pc.equal(one, other))
                is_same &= same.to_numpy(zero_copy_only=False).astype(np.bool_)
            self._duplicates += int(is_same.sum())
            for row, first in zip(repeated[~is_same].tolist(), taken[~is_same].tolist(), strict=True):
                where = rows.slice(first, 1).select(["source", "position"]).to_pylist()[0]
                place = f"{where['source']}, {position_text(where['source'], where['position'])}"
                detail = (
                    f"Offset {offsets[row]} of partition {self._offsets_partition} is also at {place}, with other bytes; that one is taken."
                )
                lost.append(self._lost(rows.slice(row, 1).to_pylist()[0], "offset_conflict", detail))
        is_first[:from_last_chunk] = False
        kept = rows.filter(pa.array(is_first))
        if kept.num_rows:
            self._last = kept.slice(kept.num_rows - 1, 1)
        return kept


def _records(rows: pa.RecordBatch) -> Records:
    n = rows.num_rows
    if not n:
        return Records.none()

    control = rows.column("control_type")
    control_type = np.full(n, NOT_A_CONTROL_RECORD, np.int8)
    if control.null_count < n:
        codes = control.dictionary_encode()
        numbers = np.array([*map(_control_number, codes.dictionary.to_pylist()), NOT_A_CONTROL_RECORD], np.int8)
        control_type = numbers[codes.indices.fill_null(-1).to_numpy(zero_copy_only=False)]
    return records_of(rows, control_type, rows.column("position").fill_null(-1).to_numpy(zero_copy_only=False))


def _control_number(name: str) -> int:
    if name in MarkerType.__members__:
        return MarkerType[name]
    return int(name) if name.isascii() and name.isdecimal() and int(name) < _OTHER_CONTROL_TYPE else _OTHER_CONTROL_TYPE
