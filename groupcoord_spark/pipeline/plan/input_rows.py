"""The plan of a run that reads rows of files, tables or a topic instead of segments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.errors import BadCopyError, InputError, UsageError
from groupcoord_spark.log import LogPlan, PartitionLog, PlacedDoubt, RecordMark
from groupcoord_spark.log.files.storage import shown
from groupcoord_spark.log.partition_count import best_partition_count
from groupcoord_spark.pipeline.exchange.kept_records import SHUFFLED
from groupcoord_spark.pipeline.plan.carry_over import ends_of_last_night
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory, last_nights, remembered_offsets
from groupcoord_spark.pipeline.plan.evidence import Evidence
from groupcoord_spark.pipeline.plan.row_overview import (
    PartitionOverview,
    RowOverview,
    overview_of_files,
    overview_of_frame,
    records_in_files,
)
from groupcoord_spark.pipeline.read.rows import FileRows, file_frame
from groupcoord_spark.sources.frames import SOURCE, raw_rows, tells_transactions
from groupcoord_spark.sources.rows import LACKING, TRANSACTIONS, InputKind, RowFilter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TRANSACTIONS_UNKNOWN: Final = (
    "The input does not tell producers and markers: offsets of transactions that are open or were aborted count as committed."
)

_NO_NAME: Final = "default"
"""The cluster in the rows of our own source where nobody has named one."""

FrameFrom = Callable[[Mapping[int, int]], "DataFrame"]
"""By offsets partition the record offset up to which an earlier run has read it -> a frame of the rows past that, with ROW_COLUMNS."""

Pack = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Batches of ROW_SCHEMA -> batches of SHUFFLED."""


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The plan of a run that reads rows.

    Attributes:
        log: as in a plan of segments.
        lacks: what the input does not contain.
        rows, faults: number of rows, and of rows that are no records.
        frame_from: the rows of the cluster that an earlier run has not read, unsorted.
        packed_from: the same rows as a frame of SHUFFLED, packed by the function where they are read.
        places_from: the same rows; other columns than those of the place need not be filled.
        evidence: some records of each offsets partition.
        placed_groups: (hash of the group id, offsets partition of the group) of some groups.
        look_at_whole: the plan in which these offsets partitions are looked at from their beginning; None: all of them are.
        release: to be called when the rows are no longer needed.
    """

    kind: InputKind
    log: LogPlan
    lacks: tuple[str, ...]
    partition_count: int
    rows: int
    frame_from: FrameFrom
    packed_from: Callable[[Mapping[int, int], Pack], DataFrame]
    places_from: FrameFrom
    evidence: Mapping[int, Evidence] = field(default_factory=dict)
    placed_groups: Sequence[tuple[int, int]] = ()
    faults: int = 0
    look_at_whole: Callable[[Collection[int]], RowPlan] | None = None
    release: Callable[[], object] = lambda: None

    def complete_from(self, offsets: Mapping[int, int]) -> set[int]:
        """The offsets partitions of which the input has a row for each record offset from the given one to the end of the log."""
        if not offsets:
            return set()
        places = self.places_from(offsets).where("record_offset IS NOT NULL").select("offsets_partition", "record_offset").distinct()
        counts: dict[int, int] = dict(places.groupBy("offsets_partition").count().collect())
        ends = {log.offsets_partition: log.end_offset for log in self.log.partitions}
        return {number for number, offset in offsets.items() if counts.get(number, 0) == ends[number] - offset}


def plan_file_rows(
    spark: SparkSession, files: FileRows, warehouse: str, *, cluster: str | None, goes_on: bool, accept_empty: bool = False
) -> RowPlan:
    """The plan of a run that reads files of rows. Raises as ``row_plan`` does.

    Args:
        warehouse: whose last nights tell which records to look for, and up to where they have read.
        cluster: the name from the user.
        goes_on: the run may go on from the last night. Row groups of tables that have only rows below the ends of that night are then not
            opened, apart from those with the records that tell whether the dump is of the same log.
    """
    nights = last_nights(warehouse)
    ends: Mapping[int, int] = {}
    if goes_on and files.kind is not InputKind.JSON:  # lines have no statistics: each line is parsed to know its place
        night_of = cluster or _only_cluster(files) or next(iter(nights if len(nights) == 1 else ()), None)
        ends = ends_of_last_night(warehouse, night_of) if night_of is not None else {}
    overview = None
    if ends and night_of is not None:
        overview = _overview_past(spark, files, ends, nights[night_of])
        names = overview.clusters()
        if cluster is None and len(names) == 1 and names != [night_of]:
            overview = None  # rows of another cluster than the one that the warehouse has
    if overview is None:
        overview = overview_of_files(spark, files, RowFilter(offsets=remembered_offsets(nights.values())))

    def files_from(offsets: Mapping[int, int], pack: Pack | None = None, *, only_places: bool = False) -> DataFrame:
        return file_frame(spark, files, offsets, pack, only_places=only_places)

    return row_plan(files.kind, files.inputs, overview, files_from, cluster=cluster, accept_empty=accept_empty, is_of_files=True)


def plan_frame_rows(
    frame: DataFrame,
    warehouse: str,
    *,
    cluster: str | None,
    accept_empty: bool = False,
    kind: InputKind = InputKind.DATAFRAME,
    inputs: Sequence[str] = (SOURCE,),
) -> RowPlan:
    """The plan of a run that reads a DataFrame. Raises as ``row_plan`` does, and UsageError as ``raw_rows`` does.

    Args:
        frame: with the columns of Spark's Kafka source, or those of the source ``consumer_offsets``.
        warehouse: whose last nights tell which records to look for.
        cluster: the name from the user.
        accept_empty: without any row the plan is one without partitions.
        kind, inputs: what the frame was read from; a DataFrame of the user.
    """
    rows = raw_rows(frame)
    remembered = remembered_offsets(last_nights(warehouse).values())
    overview = overview_of_frame(rows, remembered)
    columns = {name.lower() for name in frame.columns}
    told = (tells_transactions(frame), columns & {"timestamp", "record_timestamp_ms"}, "leader_epoch" in columns)
    if overview.lacks:  # there are rows
        overview.lacks = frozenset(word for word, is_told in zip(LACKING, told, strict=True) if not is_told)
    return row_plan(kind, inputs, overview, partial(rows_from, rows), cluster=cluster, accept_empty=accept_empty)


def rows_from(frame: DataFrame, end_offsets: Mapping[int, int]) -> DataFrame:
    """The rows that an earlier run has not read. end_offsets: offsets partition -> record offset up to which it has read the partition."""
    from pyspark.sql import functions as f

    if not end_offsets:
        return frame
    ends = f.create_map(*(f.lit(number) for pair in end_offsets.items() for number in pair))
    is_new = f.col("record_offset") >= f.coalesce(f.try_element_at(ends, f.col("offsets_partition")), f.lit(0))
    return frame.where(is_new | f.col("fault").isNotNull())


def _only_cluster(files: FileRows) -> str | None:
    """The cluster that the rows name, where their statistics tell it; None also for the name that exports have where nobody gave one."""
    names = files.clusters()
    return names[0] if len(names) == 1 and names[0] != _NO_NAME else None


def _overview_past(spark: SparkSession, files: FileRows, ends: Mapping[int, int], night: Mapping[int, PartitionHistory]) -> RowOverview:
    """The overview of the rows past the ends of a night, with what shows that the others are of the same log.

    Usually that is the newest record of the night. Of a partition without this record, or whose first record is another one now, the first
    and the last record are looked at, too.
    """
    newest = {number: {before.newest_record.record_offset} for number, before in night.items() if before.newest_record is not None}
    overview = overview_of_files(spark, files, RowFilter(ends, newest))
    others: dict[int, set[int]] = {}
    for number, rows in overview.of_clusters().items():
        before = night.get(number, PartitionHistory())
        first = None if before.first_record is None else before.first_record.record_offset
        is_sure = has_record(rows.evidence, before.newest_record) and rows.first_offset in (first, before.first_offset)
        if not rows.is_whole and not is_sure:
            others[number] = {offset for offset in (first, rows.first_offset, rows.end_offset - 1) if offset is not None}
    if others:
        for place, found in records_in_files(spark, files, others).partitions.items():
            overview.partitions[place].evidence = overview.partitions[place].evidence.merged(found.evidence)
    return overview


def has_record(evidence: Evidence, mark: RecordMark | None) -> bool:
    """Whether the record of the mark is among the evidence, as it was."""
    seen = None if mark is None else evidence.record_at(mark.record_offset)
    return mark is not None and seen is not None and seen.is_same(mark)


def row_plan(
    kind: InputKind,
    inputs: Sequence[str],
    overview: RowOverview,
    frame_from: Callable[..., DataFrame],
    *,
    cluster: str | None,
    ends: Mapping[int, int] | None = None,
    accept_empty: bool = False,
    is_of_files: bool = False,
) -> RowPlan:
    """The plan of a run, from the overview of its rows.

    Args:
        frame_from: a FrameFrom; with ``is_of_files`` it also takes a Pack, and ``only_places``.
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
    partitions = overview.of_clusters(chosen_cluster)
    for number, end in (ends or {}).items():
        partitions.setdefault(number, PartitionOverview()).end_offset = end
    rows = sum(partition.rows for partition in partitions.values())
    of_other_clusters = sum(partition.rows for partition in overview.partitions.values()) - rows
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
                f"{of_other_clusters} rows are of other clusters than {chosen_cluster!r}; they are not read.",
                of_other_clusters,
            ),
            ("transactions_unknown", TRANSACTIONS_UNKNOWN, rows if TRANSACTIONS in overview.lacks else 0),
        )
        if count
    ]
    logs = tuple(
        PartitionLog(number, source, (), partition.first_offset, None, partition.end_offset, 0)
        for number, partition in sorted(partitions.items())
    )
    hashes = [(group_hash, number) for number, partition in partitions.items() for group_hash in partition.hashes]
    lowest = max(partitions, default=0) + 1

    def chosen_from(offsets: Mapping[int, int], **only: bool) -> DataFrame:
        frame = frame_from(offsets, **only)
        return frame if chosen_cluster is None else frame.where((frame["cluster"] == chosen_cluster) | frame["fault"].isNotNull())

    def packed_from(offsets: Mapping[int, int], pack: Pack) -> DataFrame:
        if not is_of_files:
            return chosen_from(offsets).mapInArrow(pack, SHUFFLED)
        return frame_from(offsets, pack if chosen_cluster is None else lambda batches: pack(_of_cluster(batches, chosen_cluster)))

    named = names[0] if len(names) == 1 and names[0] != _NO_NAME else chosen_cluster
    return RowPlan(
        kind,
        LogPlan(logs, named, None, tuple(doubts)),
        tuple(word for word in LACKING if word in overview.lacks),
        len(ends) if ends else best_partition_count(hashes, lowest),
        rows + overview.faults,
        chosen_from,
        packed_from,
        partial(chosen_from, only_places=True) if is_of_files else chosen_from,
        {number: partition.shown() for number, partition in partitions.items()},
        hashes,
        overview.faults,
    )


def _of_cluster(batches: Iterable[pa.RecordBatch], cluster: str) -> Iterator[pa.RecordBatch]:
    """The rows of the cluster, and those that are no records."""
    for batch in batches:
        is_of_cluster = pc.fill_null(pc.equal(batch.column("cluster"), cluster), False)
        yield batch.filter(pc.or_(is_of_cluster, batch.column("fault").is_valid()))


def _no_records(source: str, overview: RowOverview) -> str:
    if overview.first_fault is not None:
        return f"{source}: none of its {overview.faults} rows is a record of __consumer_offsets. {overview.first_fault}"
    return f"{source}: all of its {overview.other_topics} rows are of other topics than __consumer_offsets."
