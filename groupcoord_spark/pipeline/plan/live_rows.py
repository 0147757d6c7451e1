"""The rows of a topic, through Spark's Kafka connector.

A run that goes on from the last run fetches each offsets partition from the newest record of that run on.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import reduce

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.pipeline.read.rows import FrameRows, OfBatches, RowSource
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.sources.live import KAFKA_CONNECTOR, LiveTopic, TopicExtent, live_frame
from groupcoord_spark.sources.rows import NO_END, Wanted


@dataclass(frozen=True)
class LiveRows(RowSource):
    """The records of a topic up to ``extent.end``, fetched as far as they are wanted, once, onto the local disks of the executors.

    ``fetched`` maps an offsets partition to the frame with its records, and to the frame's first record offset.
    """

    session: SparkSession
    topic: LiveTopic
    extent: TopicExtent
    kind = InputKind.KAFKA
    fetched: dict[int, tuple[DataFrame, int]] = field(default_factory=dict)

    @property
    def inputs(self) -> Sequence[str]:  # type: ignore[override]
        return (self.topic.uri,)

    def mapped(self, wanted: Wanted, function: OfBatches, columns: str, *, with_bytes: bool = True) -> DataFrame:
        """As of any source. Raises GroupcoordError, one sentence, where the connector fails."""
        starts = {number: self._start(number, wanted) for number in self.extent.end}
        missing = {number: start for number, start in starts.items() if number not in self.fetched or start < self.fetched[number][1]}
        if missing:
            frame = self._fetched_from(missing)
            self.fetched.update({number: (frame, start) for number, start in missing.items()})
        numbers: dict[int, list[int]] = {}
        for number, (frame, _) in self.fetched.items():
            numbers.setdefault(id(frame), []).append(number)
        frames = {id(frame): frame for frame, _ in self.fetched.values()}
        parts = (frame.where(frame["partition"].isin(numbers[name])) for name, frame in frames.items())
        rows = FrameRows(reduce(lambda one, other: one.union(other), parts))
        return rows.mapped(wanted, function, columns, with_bytes=with_bytes)

    def _start(self, number: int, wanted: Wanted) -> int:
        """Return the first wanted record offset of an offsets partition that the topic has, or its end."""
        first, end = self.extent.first[number], self.extent.end[number]
        ranges = wanted.get(number, ((0, NO_END),))
        return min((max(lowest, first) for lowest, beyond in ranges if lowest < end and beyond > first), default=end)

    def _fetched_from(self, starts: Mapping[int, int]) -> DataFrame:
        from pyspark import StorageLevel

        extent = replace(self.extent, first=starts, end={number: self.extent.end[number] for number in starts})
        with _errors_of_kafka(self.session, self.topic):
            frame = live_frame(self.session, self.topic, extent).persist(StorageLevel.DISK_ONLY)
            frame.count()
        return frame

    def release(self) -> None:
        for frame, _ in self.fetched.values():
            frame.unpersist()


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
    """Return the last cause in the text of Spark's exception, in one line."""
    causes = [line.strip() for line in str(failure).splitlines() if re.match(r"(Caused by: )?[\w.$]+(Error|Exception)\b", line.strip())]
    return (causes or [str(failure).splitlines()[0]])[-1].rstrip(".") + "."
