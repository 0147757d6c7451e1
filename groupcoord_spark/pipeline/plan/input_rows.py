"""The plan of a run that reads rows of files, of a DataFrame or of a topic instead of segments.

A run that goes on from the last run looks only at the rows that this run cannot have read: those before its first record, and those
from its newest record on. The newest record shows that the log is the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from groupcoord_spark.errors import BadCopyError, InputError, UsageError
from groupcoord_spark.log import LogPlan, PartitionLog, PlacedDoubt, RecordMark
from groupcoord_spark.pipeline.exchange.kept_records import SHUFFLED
from groupcoord_spark.pipeline.plan.carry_over import ends_of_last_run
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory, last_run_of, remembered_offsets
from groupcoord_spark.pipeline.plan.evidence import Evidence
from groupcoord_spark.pipeline.plan.row_overview import PartitionOverview, RowOverview, overview_of
from groupcoord_spark.pipeline.read.rows import OfBatches, RowSource
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.sources.byte_texts import shape_of_keys
from groupcoord_spark.sources.columns import OTHER_UNITS
from groupcoord_spark.sources.json_lines import VALUE_NAMES
from groupcoord_spark.sources.rows import (
    EVERY_INCARNATION,
    EVERY_ROW,
    LACKING,
    NO_END,
    TRANSACTIONS,
    VALUE_THERE,
    RowBatch,
    Wanted,
    WithNewer,
    from_offsets,
    of_incarnation,
)
from groupcoord_spark.storage.location import shown
from groupcoord_spark.warehouse import Warehouse
from groupcoord_spark.wording import counted, first_of

TRANSACTIONS_UNKNOWN: Final = (
    "The input does not tell producers and markers: offsets of transactions that are open or were aborted count as committed."
)

_COUNTED: Final = {
    "value_absent": ("line", "with a key and no field for a value, as Spark writes NULL: read as tombstones."),
    "value_empty": ("value", "with an empty text: read as tombstones, because a broker writes no empty value."),
    "timestamp_implausible": ("timestamp", "before 2014 or after 2099, in every unit from seconds to nanoseconds: read as milliseconds."),
}
"""Code -> what is counted, and the rest of the sentence."""

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
        rows, faults: number of rows examined, and of malformed rows. read_before: number of record offsets skipped, because the last run
            has read them.
        cluster: the cluster whose rows are read; None: the rows of all clusters are.
        evidence: some records of each offsets partition, and some groups.
        begins_ms: as ``of_incarnation`` takes it.
    """

    source: RowSource
    log: LogPlan
    lacks: tuple[str, ...]
    rows: int
    faults: int = 0
    read_before: int = 0
    cluster: str | None = None
    evidence: Mapping[int, Evidence] = field(default_factory=dict)
    begins_ms: Mapping[int, int] = field(default_factory=dict)

    def packed_from(self, offsets: Mapping[int, int], pack: OfBatches) -> DataFrame:
        """Return the rows from these record offsets on as a frame of SHUFFLED; partitions not in ``offsets`` are read whole."""
        return self._mapped(from_offsets(offsets), pack, SHUFFLED)

    def complete_from(self, offsets: Mapping[int, int]) -> set[int]:
        """Return the offsets partitions with a row for each record offset from the given one to the end of the log."""
        if not offsets:
            return set()
        others = {log.offsets_partition: () for log in self.log.partitions if log.offsets_partition not in offsets}
        places = self._mapped({**others, **from_offsets(offsets)}, _places, _PLACES, with_bytes=False)
        counts: dict[int, int] = dict(places.distinct().groupBy("offsets_partition").count().collect())
        ends = {log.offsets_partition: log.end_offset for log in self.log.partitions}
        return {number for number, offset in offsets.items() if counts.get(number, 0) == ends[number] - offset}

    def first_later_than(self, time_ms: int) -> dict[int, int]:
        """Return the record offset of the first record later than ``time_ms`` by offsets partition, if there is one."""

        def later(batches: Iterable[RowBatch]) -> Iterator[pa.RecordBatch]:
            is_later = pc.field("record_timestamp_ms") > time_ms
            return _places(replace(batch, rows=batch.rows.filter(is_later)) for batch in batches)

        return dict(self._mapped(EVERY_ROW, later, _PLACES, with_bytes=False).groupBy("offsets_partition").min("record_offset").collect())

    def _mapped(self, wanted: Wanted, function: OfBatches, columns: str, *, with_bytes: bool = True) -> DataFrame:
        cluster, begins_ms = self.cluster, self.begins_ms
        if cluster is None and not begins_ms:
            return self.source.mapped(wanted, function, columns, with_bytes=with_bytes)
        is_wanted = pc.scalar(True) if cluster is None else (pc.field("cluster") == cluster) | pc.field("fault").is_valid()

        def of_cluster(batches: Iterator[RowBatch]) -> Iterator[pa.RecordBatch]:
            of_incarnations = (of_incarnation(batch, begins_ms) for batch in batches)
            return function(replace(batch, rows=batch.rows.filter(is_wanted)) for batch in of_incarnations)

        return self.source.mapped(wanted, of_cluster, columns, with_bytes=with_bytes)


def _places(batches: Iterable[RowBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the offsets partition and record offset of the rows that are records."""
    for batch in batches:
        yield batch.rows.filter(batch.rows["fault"].is_null()).select(["offsets_partition", "record_offset"])


def plan_rows(
    source: RowSource,
    warehouse: Warehouse,
    *,
    cluster: str | None,
    goes_on: bool,
    accept_empty: bool = False,
    accept_recreated: bool = False,
) -> RowPlan:
    """Plan a run that reads rows. Raises the errors of ``row_plan``.

    Args:
        warehouse: its last runs decide the records to look for, and the start offsets.
        cluster: the name from the user.
        goes_on: the run may go on from the last run.
        accept_empty: without any row the plan is one without partitions.
        accept_recreated: of rows of several incarnations of the topic, those of the newest one are read.
    """
    runs = {name: last_run_of(warehouse, name) for name in warehouse.clusters_with_nightly_runs()}
    named = cluster or (None if source.extent is None else source.extent.cluster_id)
    run_of = named or next(iter(runs if len(runs) == 1 else ()), None)
    run = runs.get(run_of or "", {})
    ends = ends_of_last_run(warehouse, run_of) if goes_on and run_of is not None else {}
    remembered = remembered_offsets(runs.values())
    read = {number: run[number] for number in ends if run[number].newest_record is not None and run[number].first_offset is not None}
    begins_ms = {number: history.begin_ms for number, history in run.items() if history.begin_ms is not None}
    overview = overview_of(source, _unread(read), remembered, begins_ms)
    if unsure := _unsure(overview, read, run_of if named is None else None):
        read = {number: history for number, history in read.items() if number not in unsure}
        overview = overview_of(source, _unread(read), remembered, begins_ms)
    if begun := begins_of_newest(overview, run_of):
        if not accept_recreated:
            raise BadCopyError(_several_incarnations(source, begun))
        begins_ms, read = {**begins_ms, **begun}, {}
        overview = overview_of(source, EVERY_ROW, remembered, begins_ms)
    for (_, number), rows in overview.partitions.items():
        if number in read:  # the rows after its first record were not looked at
            rows.first_offset, rows.evidence = read[number].first_offset, replace(rows.evidence, first_record=None)
    read_before = sum(
        history.newest_record.record_offset - (history.first_offset or 0) for history in read.values() if history.newest_record
    )
    return row_plan(source, overview, cluster=cluster, accept_empty=accept_empty, read_before=read_before, begins_ms=begins_ms)


def begins_of_newest(overview: RowOverview, cluster: str | None) -> dict[int, int]:
    """Return offsets partition -> begin of the newest incarnation; {} where all rows are of one.

    A partition whose own rows do not show where the incarnation begins has the earliest time of the others: the whole topic was created
    again.
    """
    names = overview.clusters()
    partitions = overview.of_clusters(cluster if len(names) > 1 else None)
    found = {number: begin for number, rows in partitions.items() if (begin := rows.times.begin_of_newest()) is not None}
    return {number: found.get(number, min(found.values())) for number in partitions} if found else {}


def _several_incarnations(source: RowSource, begins_ms: Mapping[int, int]) -> str:
    return (
        f"{', '.join(map(shown, source.inputs))} has rows of several incarnations of the topic: records after {_moment(begins_ms)} have"
        " lower offsets than older records, and are newer by more than the clocks of brokers differ. If the topic was deleted and created"
        " again, go on with --accept recreated: the rows of the newest incarnation are read. If the rows are of several clusters, give each"
        " its own table. If the clock of one broker was wrong, read the segments instead."
    )


def _moment(begins_ms: Mapping[int, int]) -> str:
    return f"{datetime.fromtimestamp(min(begins_ms.values()) / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _unread(read: Mapping[int, PartitionHistory]) -> Wanted:
    """Return the filter for records that the last run cannot have read, and its newest ones. ``read``: by offsets partition."""
    ranges = WithNewer()
    for number, history in read.items():
        assert history.newest_record is not None, "a run without a newest record tells nothing of the log"
        newest = (history.newest_record.record_offset, NO_END)
        ranges[number] = ((0, history.first_offset), newest) if history.first_offset else (newest,)
    ranges.newer_than_ms = max((history.newest_timestamp_ms for history in read.values()), default=NO_TIMESTAMP)
    return ranges


def _unsure(overview: RowOverview, read: Mapping[int, PartitionHistory], assumed_cluster: str | None) -> set[int]:
    """Return the offsets partitions whose rows do not prove that the log is still the last run's.

    assumed_cluster: the cluster of the run, where neither the user nor the input names one.
    """
    names = overview.clusters()
    if assumed_cluster is not None and len(names) == 1 and names != [assumed_cluster]:
        return set(read)
    rows = overview.of_clusters()
    if overview.faults > sum(partition.rows for partition in rows.values()):
        return set(read)  # records that the run has read may be among rows that are malformed now; only all rows give their number
    return {
        number
        for number, history in read.items()
        if number not in rows
        or not _has_record(rows[number].evidence, history.newest_record)
        or (rows[number].first_offset or 0) < (history.first_offset or 0)
    }


def _has_record(evidence: Evidence, mark: RecordMark | None) -> bool:
    """Return whether the sample record is among the evidence, unchanged."""
    seen = None if mark is None else evidence.record_at(mark.record_offset)
    return mark is not None and seen is not None and seen.is_same(mark)


def row_plan(
    source: RowSource,
    overview: RowOverview,
    *,
    cluster: str | None,
    accept_empty: bool = False,
    read_before: int = 0,
    begins_ms: Mapping[int, int] = EVERY_INCARNATION,
) -> RowPlan:
    """Plan a run from the overview of its rows.

    Args:
        cluster: the name from the user. If the rows name several clusters, only rows of this cluster are read; if they name one, all rows
            are read, whatever its name.
        accept_empty: without any row the plan is one without partitions.
        read_before, begins_ms: as in ``RowPlan``.
    Raises:
        InputError: no row is a record of the offsets topic.
        BadCopyError: the input has no rows.
        UsageError: the rows name several clusters, but not ``cluster``.
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
    if overview.other_keys and not overview.has_key:
        raise InputError(f"{inputs}: no key of its rows is one of __consumer_offsets. {shape_of_keys(overview.other_keys)}")
    if overview.counts["value_absent"] and not overview.counts[VALUE_THERE]:
        raise InputError(
            f"{inputs}: no line has a value, so that every record would be a tombstone. The fields of a value are"
            f" {', '.join(VALUE_NAMES)}. If a writer leaves out NULL, have it write null (Spark: option('ignoreNullFields', 'false'))."
        )
    names = overview.clusters()
    if len(names) > 1 and cluster not in names:
        raise UsageError(f"{inputs} holds rows of the clusters {first_of([*map(repr, names)], 5)}. Say with --cluster which one to read.")
    chosen_cluster = cluster if len(names) > 1 else None
    partitions = overview.of_clusters(chosen_cluster)
    for number in begins_ms:
        partitions.setdefault(number, PartitionOverview())  # all of its rows may be of an earlier incarnation
    for number, end in ({} if extent is None else extent.end).items():
        partitions.setdefault(number, PartitionOverview()).end_offset = end
    rows = sum(partition.rows for partition in partitions.values())
    of_other_clusters = sum(partition.rows for partition in overview.partitions.values()) - rows
    doubts = [
        PlacedDoubt(code, detail, inputs, None, 0, 0, None, count)
        for code, detail, count in (
            (
                "other_topic",
                f"The input has {counted(overview.other_topics, 'row')} of other topics{_named(overview)};"
                " only rows of __consumer_offsets are read.",
                overview.other_topics,
            ),
            (
                "other_cluster",
                f"The input has {counted(of_other_clusters, 'row')} of other clusters; only rows of {chosen_cluster!r} are read.",
                of_other_clusters,
            ),
            *((code, f"{counted(overview.counts[code], what)} {then}", overview.counts[code]) for code, (what, then) in _COUNTED.items()),
            *(
                (
                    "timestamp_unit",
                    f"{counted(overview.counts[unit.name], 'timestamp')} in {unit.name}, by their size: they are read as such.",
                    overview.counts[unit.name],
                )
                for unit in OTHER_UNITS
            ),
            ("transactions_unknown", TRANSACTIONS_UNKNOWN, rows if TRANSACTIONS in overview.lacks else 0),
        )
        if count
    ]
    if begins_ms:
        detail = f"Rows before {_moment(begins_ms)} are of an earlier incarnation of the topic; they are not read."
        doubts.append(PlacedDoubt("earlier_incarnation", detail, inputs, None, 0, 0, None))
    doubts += [PlacedDoubt("files_not_read", remark, inputs, None, 0, 0, None) for remark in source.remarks]
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
        begins_ms,
    )


def _no_records(source: str, overview: RowOverview) -> str:
    if overview.first_fault is not None:
        return f"{source}: none of its {overview.faults} rows is a record of __consumer_offsets. {overview.first_fault}"
    return (
        f"{source}: all of its {overview.other_topics} rows are of other topics than __consumer_offsets{_named(overview)}."
        " Give an export of __consumer_offsets."
    )


def _named(overview: RowOverview) -> str:
    """Return the names of some of the other topics, in brackets."""
    return f" (such as {', '.join(map(repr, overview.topics))})" if overview.topics else ""
