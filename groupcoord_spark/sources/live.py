"""The offsets topic, read through Spark's Kafka connector as a batch whose end is fixed before it begins.

What a consumer is given has no markers, no producer ids, no transactional bits and no leader epochs, also when it reads uncommitted
records: such an input cannot distinguish open, aborted and committed transactions, nor when a coordinator moved. Options of the client
(authentication, TLS) come from a properties file, the one that Kafka's own tools take as ``--command-config``; they go to the client and
nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from groupcoord_spark.errors import GroupcoordError, InputError, UsageError
from groupcoord_spark.log.broker_dir.broker_files import OFFSETS_TOPIC
from groupcoord_spark.properties import without_values
from groupcoord_spark.sources.inputs import KAFKA_SCHEME

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA_CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13"
"""Maven coordinates of the connector, without its version: that is Spark's own."""

FALLBACK_VERSION: Final = "4.0.0"
"""Where a repository has no connector of Spark's own version, or not spark-token-provider-kafka-0-10_2.13, without which it does not load:
the newest release that such a mirror has whole. Built for 4.0, it misses the LogKeys that 4.1 moved (as 4.1.0-preview1 does), and so fails
where Spark logs at level INFO; the sessions that we start log errors only."""

PATIENCE_MS: Final = 20_000
"""How long a broker may take to answer; ``default.api.timeout.ms`` of the properties file has another value."""

# Options that the connector sets itself and does not accept, or that would change which records are read.
_NOT_PASSED_ON: Final = {
    *("bootstrap.servers", "key.deserializer", "value.deserializer", "key.serializer", "value.serializer"),
    *("auto.offset.reset", "enable.auto.commit", "interceptor.classes", "isolation.level", "group.id", "client.id"),
}
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class LiveTopic:
    """A topic by its URI, ``kafka://host:port[,host:port…][/topic]``. options: of the client; they are never shown."""

    uri: str
    brokers: str
    topic: str
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TopicExtent:
    """First and end offset of each partition of the topic at one moment, and the id of the cluster."""

    cluster_id: str | None
    first: Mapping[int, int]
    end: Mapping[int, int]


def live_topic(inputs: Sequence[str], options: Mapping[str, str]) -> LiveTopic:
    """Return the topic of the URI. Raises UsageError for several URIs, and as ``brokers_of`` does."""
    if len(inputs) > 1:
        raise UsageError(
            f"{len(inputs)} topics are given, and one run reads one. Several brokers of a cluster are kafka://one:9092,two:9092."
        )
    brokers = brokers_of(inputs[0])
    topic = inputs[0].removeprefix(KAFKA_SCHEME).partition("/")[2]
    passed_on = {name: value for name, value in options.items() if name not in _NOT_PASSED_ON}
    return LiveTopic(inputs[0].rstrip("/"), brokers, topic.rstrip("/") or OFFSETS_TOPIC, passed_on)


def brokers_of(uri: str) -> str:
    """Return the bootstrap servers of ``kafka://HOST:PORT[,HOST:PORT…]``, or with ``admin://``. Raises UsageError for other texts."""
    scheme, _, rest = uri.partition("://")
    brokers = rest.partition("/")[0]
    if "@" in brokers:
        raise UsageError(
            f"A {scheme}:// URI has no place for user and password: they would be seen. Put them into a properties file and name it with"
            " --command-config, as Kafka's own tools have it."
        )
    if not all(map(_ADDRESS.fullmatch, brokers.split(","))):
        raise UsageError(f"{uri!r} is not an address of Kafka. Write {scheme}://host:9092, or {scheme}://host:9092,other:9092.")
    return brokers


def extent_of(spark: SparkSession, topic: LiveTopic) -> TopicExtent:
    """Return the present extent of the topic, from Kafka's admin client, which comes with the connector.

    Raises GroupcoordError where the connector is not there or the brokers do not answer, InputError where there is no such topic.
    """
    with _admin_client(spark, topic) as (jvm, admin):
        names = jvm.java.util.Collections.singleton(topic.topic)
        description = admin.describeTopics(names).allTopicNames().get().get(topic.topic)
        extents = _log_extents(jvm, admin, [(topic.topic, partition.partition()) for partition in description.partitions()])
        return TopicExtent(
            admin.describeCluster().clusterId().get(),
            {partition: start for (_, partition), (start, _) in extents.items()},
            {partition: end for (_, partition), (_, end) in extents.items()},
        )


def log_extents_of(spark: SparkSession, topic: LiveTopic) -> dict[tuple[str, int], tuple[int, int]]:
    """(topic, partition) -> start and end offset of the log at present, for every topic of the cluster except Kafka's internal ones.

    Partitions without a leader are left out. Raises GroupcoordError as ``extent_of`` does.
    """
    with _admin_client(spark, topic) as (jvm, admin):
        descriptions = admin.describeTopics(admin.listTopics().names().get()).allTopicNames().get().entrySet()
        partitions = [
            (entry.getKey(), partition.partition())
            for entry in descriptions
            for partition in entry.getValue().partitions()
            if partition.leader() is not None
        ]
        return _log_extents(jvm, admin, partitions)


def _log_extents(jvm: Any, admin: Any, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], tuple[int, int]]:
    """(topic, partition) -> start and end offset."""
    spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
    asked = {place: jvm.org.apache.kafka.common.TopicPartition(*place) for place in partitions}
    offsets = []
    for wanted in (spec.earliest(), spec.latest()):
        request = jvm.java.util.HashMap()
        for place in asked.values():
            request.put(place, wanted)
        answers = admin.listOffsets(request).all().get()
        offsets.append({place: answers.get(topic_partition).offset() for place, topic_partition in asked.items()})
    starts, ends = offsets
    return {place: (starts[place], ends[place]) for place in asked}


@contextmanager
def _admin_client(spark: SparkSession, topic: LiveTopic) -> Iterator[tuple[Any, Any]]:
    """Return the JVM and Kafka's admin client in it. Failures of the client become the errors that ``extent_of`` names."""
    from py4j.protocol import Py4JError, Py4JJavaError

    jvm: Any = spark.sparkContext._jvm
    properties = jvm.java.util.Properties()
    options = {"default.api.timeout.ms": str(PATIENCE_MS), "request.timeout.ms": str(PATIENCE_MS // 2), **topic.options}
    for name, value in {**options, "bootstrap.servers": topic.brokers}.items():
        properties.put(name, value)
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
    except Py4JJavaError as error:
        message = without_values(_innermost_message(error), topic.options)
        raise UsageError(f"{topic.uri}: Kafka's client does not take these options: {message}.") from None
    except (Py4JError, TypeError):
        raise GroupcoordError(
            f"This Spark session has no Kafka connector. Start it with --packages {KAFKA_CONNECTOR}:{spark.version}, or without a session"
            " of your own."
        ) from None
    try:
        yield jvm, admin
    except Py4JJavaError as error:
        message = _innermost_message(error)
        if "UnknownTopicOrPartition" in message or "InvalidTopic" in message:
            raise InputError(
                f"{topic.uri}: the cluster has no topic {topic.topic!r}. Kafka makes it when the first group commits."
            ) from None
        raise GroupcoordError(
            f"{topic.uri}: the brokers did not answer as they should: {without_values(message, topic.options)}. See address, listener and"
            " --command-config."
        ) from None
    finally:
        admin.close(jvm.java.time.Duration.ofMillis(0))


def _innermost_message(error: Any) -> str:
    """Return the message of the innermost cause in one line."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    text = f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"
    return text.splitlines()[0].rstrip(".")


def live_frame(spark: SparkSession, topic: LiveTopic, extent: TopicExtent) -> DataFrame:
    """Return a frame of the records from ``extent.first`` to before ``extent.end``, with the columns of Spark's Kafka source."""
    from pyspark.sql import functions as f

    def offsets(of: Mapping[int, int]) -> str:
        return json.dumps({topic.topic: {str(number): offset for number, offset in of.items()}})

    # The connector's own admin client leaves internal topics out; its older way asks a consumer, which with `assign` joins no group: a
    # group of ours would be a record in what is read.
    spark.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", topic.brokers)
    for name, value in topic.options.items():
        reader = reader.option(f"kafka.{name}", value)
    rows = (
        reader.option("kafka.isolation.level", "read_uncommitted")
        .option("assign", json.dumps({topic.topic: sorted(extent.end)}))
        .option("startingOffsets", offsets(extent.first))
        .option("endingOffsets", offsets(extent.end))
        .load()
    )
    return rows.select("key", "value", "partition", "offset", "timestamp", f.lit(topic.uri).alias("source"))
