"""The plan of a run that reads the topic itself, through Spark's Kafka connector.

A run that goes on from the last night fetches each offsets partition from the newest record of that night on: this record shows that the
log is the same, and everything past it is new.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.log import RecordMark
from groupcoord_spark.pipeline.plan.carry_over import ends_of_last_night
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory, last_nights, remembered_offsets
from groupcoord_spark.pipeline.plan.evidence import Evidence
from groupcoord_spark.pipeline.plan.input_rows import RowPlan, has_record, row_plan, rows_from
from groupcoord_spark.pipeline.plan.row_overview import RowOverview, overview_of_frame
from groupcoord_spark.sources.live import KAFKA_CONNECTOR, LiveTopic, TopicExtent, extent_of, live_frame
from groupcoord_spark.sources.rows import LEADER_EPOCHS, TRANSACTIONS, Extent, InputKind

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def plan_live_rows(spark: SparkSession, topic: LiveTopic, warehouse: str, *, cluster: str | None, goes_on: bool) -> RowPlan:
    """The plan of a run that reads a topic, up to its present end. The records are fetched once, into the local disks of the executors.

    Args:
        warehouse: whose last nights tell which records to look for, and up to where they have read.
        cluster: the name from the user.
        goes_on: the run may go on from the last night.
    Raises:
        GroupcoordError, InputError: as ``extent_of`` does.
    """
    extent = extent_of(spark, topic)
    nights = last_nights(warehouse)
    night_of = cluster or extent.cluster_id
    ends = ends_of_last_night(warehouse, night_of) if goes_on and night_of is not None else {}
    night = nights.get(night_of or "", {})
    live = _LiveRows(spark, topic, extent, cluster, remembered_offsets(nights.values()))
    starts = _starts(extent, ends, night)
    with _errors_of_kafka(spark, topic):
        first, of_first = live.fetched(starts)
        unsure = {number for number in starts if not has_record(_evidence(of_first, number), night[number].newest_record)}
        unsure -= live.partitions_with({number: night[number].first_record for number in unsure})
        fetched, overview = (first, of_first) if not unsure else live.fetched_again(first, starts, unsure)
    return live.plan(fetched, overview, {number: start for number, start in starts.items() if number not in unsure})


def _starts(extent: TopicExtent, ends: Mapping[int, int], night: Mapping[int, PartitionHistory]) -> dict[int, int]:
    """Offsets partition -> record offset from which it is fetched, for those of which the last night has read the beginning."""
    starts = {}
    for number, end in ends.items():
        if number in extent.end and number in night and end <= extent.end[number]:
            newest = night[number].newest_record
            start = end if newest is None else min(newest.record_offset, end)
            if start >= extent.first[number]:
                starts[number] = start
    return starts


def _evidence(overview: RowOverview, offsets_partition: int) -> Evidence:
    rows = overview.partitions.get((None, offsets_partition))
    return Evidence() if rows is None else rows.evidence


@dataclass(frozen=True, slots=True)
class _LiveRows:
    """What is fetched of a topic up to ``extent.end``. remembered: by offsets partition the record offsets of records to look for."""

    spark: SparkSession
    topic: LiveTopic
    extent: TopicExtent
    cluster: str | None
    remembered: Mapping[int, Collection[int]]

    def fetched(self, starts: Mapping[int, int], numbers: Collection[int] | None = None) -> tuple[list[DataFrame], RowOverview]:
        """The records of offsets partitions, from ``starts`` on or else from their beginning, on the disks of the executors.

        numbers: of the offsets partitions; None: all.
        """
        from pyspark import StorageLevel

        wanted = sorted(self.extent.end if numbers is None else numbers)
        firsts = {number: starts.get(number, self.extent.first[number]) for number in wanted}
        frame = self._frame(firsts, {number: self.extent.end[number] for number in wanted}).persist(StorageLevel.DISK_ONLY)
        overview = overview_of_frame(frame, self.remembered)
        for number in starts.keys() & set(wanted):
            overview.add_extent(Extent(None, number, self.extent.first[number], starts[number], rows=0))
        return [frame], overview

    def fetched_again(
        self, frames: list[DataFrame], starts: Mapping[int, int], whole: Collection[int]
    ) -> tuple[list[DataFrame], RowOverview]:
        """The same with some offsets partitions from their beginning."""
        of_whole, overview = self.fetched({}, whole)
        others = [frame.where(~frame["offsets_partition"].isin(sorted(whole))) for frame in frames]
        of_others = overview_of_frame(reduce(lambda one, other: one.union(other), others), self.remembered)
        for number in starts.keys() - set(whole):
            of_others.add_extent(Extent(None, number, self.extent.first[number], starts[number], rows=0))
        overview.add(of_others)
        return [*others, *of_whole], overview

    def partitions_with(self, marks: Mapping[int, RecordMark | None]) -> set[int]:
        """The offsets partitions that have their record."""
        known = {
            number: mark
            for number, mark in marks.items()
            if mark is not None and self.extent.first[number] <= mark.record_offset < self.extent.end[number]
        }
        if not known:
            return set()
        offsets = {number: mark.record_offset for number, mark in known.items()}
        frame = self._frame(offsets, {number: offset + 1 for number, offset in offsets.items()})
        overview = overview_of_frame(frame, {number: {offset} for number, offset in offsets.items()})
        return {number for number, mark in known.items() if has_record(_evidence(overview, number), mark)}

    def _frame(self, firsts: Mapping[int, int], ends: Mapping[int, int]) -> DataFrame:
        return live_frame(self.spark, self.topic, replace(self.extent, first=firsts, end=ends))

    def plan(self, frames: list[DataFrame], overview: RowOverview, starts: Mapping[int, int]) -> RowPlan:
        """The plan of a run that reads these frames. starts: of the offsets partitions that were not fetched from their beginning."""

        def frame_from(offsets: Mapping[int, int]) -> DataFrame:
            return rows_from(reduce(lambda one, other: one.union(other), frames), offsets)

        def look_at_whole(whole: Collection[int]) -> RowPlan:
            with _errors_of_kafka(self.spark, self.topic):
                again, of_again = self.fetched_again(frames, starts, whole)
            return self.plan(again, of_again, {number: start for number, start in starts.items() if number not in whole})

        def release() -> None:
            for frame in frames:
                frame.unpersist()

        rows = row_plan(InputKind.KAFKA, [self.topic.uri], overview, frame_from, cluster=self.cluster, ends=self.extent.end)
        logs = (
            replace(
                log,
                log_start_offset=self.extent.first[log.offsets_partition],
                is_surveyed=log.offsets_partition not in starts,
            )
            for log in rows.log.partitions
        )
        return replace(
            rows,
            log=replace(rows.log, partitions=tuple(logs), cluster_id=self.extent.cluster_id),
            lacks=(TRANSACTIONS, LEADER_EPOCHS),
            look_at_whole=look_at_whole,
            release=release,
        )


@contextmanager
def _errors_of_kafka(spark: SparkSession, topic: LiveTopic) -> Iterator[None]:
    """Raises GroupcoordError, one sentence, where the connector fails."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as failure:
        if re.search(r"(ClassNotFoundException|NoClassDefFoundError|NoSuchMethodError): \S*org[./]apache[./]spark", str(failure)):
            raise GroupcoordError(
                f"The Kafka connector of this Spark session was built for another release of Spark. Take {KAFKA_CONNECTOR}:{spark.version}."
            ) from failure
        raise GroupcoordError(f"{topic.uri}: the topic cannot be read: {_last_cause(failure)}") from failure


def _last_cause(failure: Exception) -> str:
    """The last cause in the text of Spark's exception, in one line."""
    causes = [line.strip() for line in str(failure).splitlines() if re.match(r"(Caused by: )?[\w.$]+(Error|Exception)\b", line.strip())]
    return (causes or [str(failure).splitlines()[0]])[-1].rstrip(".") + "."
