"""The plan of a run that reads rows of files, of a DataFrame or of a topic instead of segments.

A run that goes on from the last night looks only at the rows that this night cannot have read: those before its first record, and those
from its newest record on. The newest record shows that the log is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.errors import BadCopyError, InputError, UsageError
from groupcoord_spark.log import LogPlan, PartitionLog, PlacedDoubt, RecordMark
from groupcoord_spark.log.files.storage import shown
from groupcoord_spark.pipeline.exchange.kept_records import SHUFFLED
from groupcoord_spark.pipeline.plan.carry_over import ends_of_last_night
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory, last_night_of, remembered_offsets
from groupcoord_spark.pipeline.plan.evidence import Evidence
from groupcoord_spark.pipeline.plan.row_overview import PartitionOverview, RowOverview, overview_of
from groupcoord_spark.pipeline.read.rows import OfBatches, RowSource
from groupcoord_spark.sources.rows import EVERY_ROW, LACKING, NO_END, TRANSACTIONS, RowBatch, Wanted, from_offsets
from groupcoord_spark.warehouse import Warehouse
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


TRANSACTIONS_UNKNOWN: Final = (
    "The input does not tell producers and markers: offsets of transactions that are open or were aborted count as committed."
)

_NO_NAME: Final = "default"
"""The cluster in the rows of our own source where nobody has named one."""

_PLACES: Final = "offsets_partition INT, record_offset BIGINT"


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The plan of a run that reads rows.

    Attributes:
        source: of the rows.
        log: as in a plan of segments.
        lacks: what the input does not contain.
        rows, faults: number of rows that were looked at, and of rows that are no records. read_before: number of record offsets that were
            not looked at, because the last night has read them.
        cluster: the cluster whose rows are read; None: the rows of all clusters are.
        evidence: some records of each offsets partition, and some groups.
    """

    source: RowSource
    log: LogPlan
    lacks: tuple[str, ...]
    rows: int
    faults: int = 0
    read_before: int = 0
    cluster: str | None = None
    evidence: Mapping[int, Evidence] = field(default_factory=dict)

    def packed_from(self, offsets: Mapping[int, int], pack: OfBatches) -> DataFrame:
        """The rows from these record offsets on as a frame of SHUFFLED. offsets: by offsets partition; of any other all rows are read."""
        return self._mapped(from_offsets(offsets), pack, SHUFFLED)

    def complete_from(self, offsets: Mapping[int, int]) -> set[int]:
        """The offsets partitions of which the input has a row for each record offset from the given one to the end of the log."""
        if not offsets:
            return set()
        others = {log.offsets_partition: () for log in self.log.partitions if log.offsets_partition not in offsets}
        places = self._mapped({**others, **from_offsets(offsets)}, _places, _PLACES, with_bytes=False)
        counts: dict[int, int] = dict(places.distinct().groupBy("offsets_partition").count().collect())
        ends = {log.offsets_partition: log.end_offset for log in self.log.partitions}
        return {number for number, offset in offsets.items() if counts.get(number, 0) == ends[number] - offset}

    def first_later_than(self, time_ms: int) -> dict[int, int]:
        """Offsets partition -> record offset of its first row later than ``time_ms``; absent if there is none."""

        def later(batches: Iterable[RowBatch]) -> Iterator[pa.RecordBatch]:
            is_later = pc.field("record_timestamp_ms") > time_ms
            return _places(replace(batch, rows=batch.rows.filter(is_later)) for batch in batches)

        return dict(self._mapped(EVERY_ROW, later, _PLACES, with_bytes=False).groupBy("offsets_partition").min("record_offset").collect())

    def _mapped(self, wanted: Wanted, function: OfBatches, columns: str, *, with_bytes: bool = True) -> DataFrame:
        if (cluster := self.cluster) is None:
            return self.source.mapped(wanted, function, columns, with_bytes=with_bytes)
        is_wanted = (pc.field("cluster") == cluster) | pc.field("fault").is_valid()

        def of_cluster(batches: Iterator[RowBatch]) -> Iterator[pa.RecordBatch]:
            return function(replace(batch, rows=batch.rows.filter(is_wanted)) for batch in batches)

        return self.source.mapped(wanted, of_cluster, columns, with_bytes=with_bytes)


def _places(batches: Iterable[RowBatch]) -> Iterator[pa.RecordBatch]:
    """The offsets partition and the record offset of the rows that are records."""
    for batch in batches:
        yield batch.rows.filter(pc.field("fault").is_null()).select(["offsets_partition", "record_offset"])


def plan_rows(source: RowSource, warehouse: Warehouse, *, cluster: str | None, goes_on: bool, accept_empty: bool = False) -> RowPlan:
    """The plan of a run that reads rows. Raises as ``row_plan`` does.

    Args:
        warehouse: whose last nights tell which records to look for, and up to where they have read.
        cluster: the name from the user.
        goes_on: the run may go on from the last night.
        accept_empty: without any row the plan is one without partitions.
    """
    nights = {name: last_night_of(warehouse, name) for name in warehouse.clusters_with_nights()}
    named = cluster or (None if source.extent is None else source.extent.cluster_id)
    night_of = named or next(iter(nights if len(nights) == 1 else ()), None)
    night = nights.get(night_of or "", {})
    ends = ends_of_last_night(warehouse, night_of) if goes_on and night_of is not None else {}
    remembered = remembered_offsets(nights.values())
    read = {number: night[number] for number in ends if night[number].newest_record is not None and night[number].first_offset is not None}
    overview = overview_of(source, _unread(read), remembered)
    if unsure := _unsure(overview, read, night_of if named is None else None):
        read = {number: history for number, history in read.items() if number not in unsure}
        overview = overview_of(source, _unread(read), remembered)
    for (_, number), rows in overview.partitions.items():
        if number in read:  # the rows after its first record were not looked at
            rows.first_offset, rows.evidence = read[number].first_offset, replace(rows.evidence, first_record=None)
    read_before = sum(
        history.newest_record.record_offset - (history.first_offset or 0) for history in read.values() if history.newest_record
    )
    return row_plan(source, overview, cluster=cluster, accept_empty=accept_empty, read_before=read_before)


def _unread(read: Mapping[int, PartitionHistory]) -> Wanted:
    """The records that a night cannot have read, and its newest ones. read: by offsets partition, what the night knows."""
    ranges = {}
    for number, history in read.items():
        assert history.newest_record is not None, "a night without a newest record tells nothing of the log"
        newest = (history.newest_record.record_offset, NO_END)
        ranges[number] = ((0, history.first_offset), newest) if history.first_offset else (newest,)
    return ranges


def _unsure(overview: RowOverview, read: Mapping[int, PartitionHistory], assumed_cluster: str | None) -> set[int]:
    """The offsets partitions of which the rows do not show that the log is still the one that the night has read.

    assumed_cluster: the cluster of the night, where neither the user nor the input names one.
    """
    names = overview.clusters()
    if assumed_cluster is not None and len(names) == 1 and names != [assumed_cluster]:
        return set(read)
    rows = overview.of_clusters()
    if overview.faults > sum(partition.rows for partition in rows.values()):
        return set(read)  # what the night has read may be among the rows that are no records now: only a look at all rows says how many
    return {
        number
        for number, history in read.items()
        if number not in rows
        or not _has_record(rows[number].evidence, history.newest_record)
        or (rows[number].first_offset or 0) < (history.first_offset or 0)
    }


def _has_record(evidence: Evidence, mark: RecordMark | None) -> bool:
    """Whether the record of the mark is among the evidence, as it was."""
    seen = None if mark is None else evidence.record_at(mark.record_offset)
    return mark is not None and seen is not None and seen.is_same(mark)


def row_plan(source: RowSource, overview: RowOverview, *, cluster: str | None, accept_empty: bool = False, read_before: int = 0) -> RowPlan:
    """The plan of a run, from the overview of its rows.

    Args:
        cluster: the name from the user. If the rows name several clusters, only rows of this cluster are read; if they name one, all rows
            are read, whatever its name.
        accept_empty: without any row the plan is one without partitions.
        read_before: as in ``RowPlan``.
    Raises:
        InputError: no row is a record of the offsets topic.
        BadCopyError: there are no rows.
        UsageError: the rows name several clusters and ``cluster`` is none of them.
    """
    inputs = ", ".join(map(shown, source.inputs))
    extent = source.extent
    if not overview.partitions and (extent is None or not extent.end):
        if overview.faults or overview.other_topics:
            raise InputError(_no_records(inputs, overview))
        if not accept_empty:
            raise BadCopyError(
                f"{inputs}: there are no rows. Give an export of the topic __consumer_offsets, or go on with --accept empty."
            )
    names = overview.clusters()
    if len(names) > 1 and cluster not in names:
        raise UsageError(f"{inputs} holds rows of the clusters {', '.join(map(repr, names))}. Say with --cluster which one to read.")
    chosen_cluster = cluster if len(names) > 1 else None
    partitions = overview.of_clusters(chosen_cluster)
    for number, end in ({} if extent is None else extent.end).items():
        partitions.setdefault(number, PartitionOverview()).end_offset = end
    rows = sum(partition.rows for partition in partitions.values())
    of_other_clusters = sum(partition.rows for partition in overview.partitions.values()) - rows
    doubts = [
        PlacedDoubt(code, detail, inputs, None, 0, 0, None, count)
        for code, detail, count in (
            (
                "other_topic",
                f"The input has {counted(overview.other_topics, 'row')} of other topics; only rows of __consumer_offsets are read.",
                overview.other_topics,
            ),
            (
                "other_cluster",
                f"The input has {counted(of_other_clusters, 'row')} of other clusters; only rows of {chosen_cluster!r} are read.",
                of_other_clusters,
            ),
            ("transactions_unknown", TRANSACTIONS_UNKNOWN, rows if TRANSACTIONS in overview.lacks else 0),
        )
        if count
    ]
    starts: Mapping[int, int] = {} if extent is None else extent.first
    logs = tuple(
        PartitionLog(number, inputs, (), partition.first_offset, partition.end_offset, 0, starts.get(number))
        for number, partition in sorted(partitions.items())
    )
    named = names[0] if len(names) == 1 and names[0] != _NO_NAME else chosen_cluster
    return RowPlan(
        source,
        LogPlan(logs, named if extent is None else extent.cluster_id, None, tuple(doubts)),
        tuple(word for word in LACKING if word in overview.lacks),
        rows + overview.faults,
        overview.faults,
        read_before,
        chosen_cluster,
        {number: partition.evidence for number, partition in partitions.items()},
    )


def _no_records(source: str, overview: RowOverview) -> str:
    if overview.first_fault is not None:
        return f"{source}: none of its {overview.faults} rows is a record of __consumer_offsets. {overview.first_fault}"
    return f"{source}: all of its {overview.other_topics} rows are of other topics than __consumer_offsets."
