"""Any DataFrame of records as raw rows: the columns that the nightly reads, made from the columns that the frame has.

A frame may have the columns of Spark's Kafka source (``key``, ``value``, ``topic``, ``partition``, ``offset``, ``timestamp``) or those of
the source ``consumer_offsets`` (``offsets_partition``, ``record_offset``, ``record_timestamp_ms``, ``producer_id`` and so on). Where a
frame has both, a name of the second kind counts, because in decoded records ``topic`` and ``partition`` are those of the consumed topic.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, types
from pyspark.sql import functions as F  # noqa: N812

from groupcoord_spark.errors import InputError, UsageError
from groupcoord_spark.log.files.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.files.storage import first_line, shown
from groupcoord_spark.protocol.record_types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, MarkerType
from groupcoord_spark.sources.rows import EVERY_ROW, LACKING, NO_OFFSET, NO_PARTITION, ROW_SCHEMA, UNKNOWN_PARTITION, Wanted, wanted_records

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

DEFAULT_CLUSTER: Final = "default"
SOURCE: Final = "DataFrame"
"""The source of rows whose frame does not name their files."""

KAFKA_NAMES: Final[Mapping[str, str]] = {"offsets_partition": "partition", "record_offset": "offset", "record_timestamp_ms": "timestamp"}
"""Raw column -> the name that Spark's Kafka source has for it."""

_ABSENT: Final[Mapping[str, tuple[types.DataType, Any]]] = {
    "producer_id": (types.LongType(), NO_PRODUCER_ID),
    "producer_epoch": (types.ShortType(), NO_PRODUCER_EPOCH),
    "is_transactional": (types.BooleanType(), False),
    "source": (types.StringType(), SOURCE),
    "leader_epoch": (types.IntegerType(), NO_LEADER_EPOCH),
}
"""Column -> its type, and its value where a frame or a row does not have it."""


def raw_columns(frame: DataFrame) -> dict[str, Column]:
    """Raw column -> the expression that gives it; all of RAW_SCHEMA. A place or a time that the frame does not have is NULL.

    frame: from ``readable``. Raises UsageError for a frame without key and value, and for a column of another type than it must have.
    """
    by_name = {field.name: field.dataType for field in frame.schema}
    missing = [name for name in ("key", "value") if name not in by_name]
    if missing:
        raise UsageError(
            f"The frame has no column {' and no column '.join(map(repr, missing))}. Records of __consumer_offsets are needed as Spark's"
            " Kafka source gives them: key and value as BINARY, and partition, offset and timestamp where they are known."
        )
    columns = {name: _bytes(name, by_name[name]) for name in ("key", "value")}
    places: tuple[tuple[str, types.DataType], ...] = (("offsets_partition", types.IntegerType()), ("record_offset", types.LongType()))
    for name, kind in places:
        given = _name_in(by_name, name)
        columns[name] = F.lit(None).cast(kind) if given is None else _as(given, by_name[given], kind)
    columns["record_timestamp_ms"] = _milliseconds(by_name)
    columns["control_type"] = _control_type(by_name.get("control_type"))
    cluster = F.lit(DEFAULT_CLUSTER)
    columns["cluster"] = F.coalesce(_as("cluster", by_name["cluster"], types.StringType()), cluster) if "cluster" in by_name else cluster
    position = types.LongType()
    columns["position"] = _as("position", by_name["position"], position) if "position" in by_name else F.lit(None).cast(position)
    for name, (kind, absent) in _ABSENT.items():
        value = F.lit(absent).cast(kind)
        columns[name] = F.coalesce(_as(name, by_name[name], kind), value) if name in by_name else value
    return {name: columns[name].alias(name) for name in RAW_NAMES}


RAW_NAMES: Final = tuple(name for name in ROW_SCHEMA.names if name not in ("fault", "detail"))

READ_NAMES: Final = frozenset((*RAW_NAMES, *KAFKA_NAMES.values(), "topic", "timestamptype"))
"""The columns of a frame that are not passed on as they are, in lower case."""


def readable(frame: DataFrame) -> DataFrame:
    """The frame, with the names of READ_NAMES in lower case: Spark may tell upper case from lower case (``spark.sql.caseSensitive``).

    Raises UsageError for what is no DataFrame of Spark, and for a frame with two columns of one of these names.
    """
    if not isinstance(frame, DataFrame):
        raise UsageError(
            "A DataFrame of Spark with records of __consumer_offsets is needed, and this is"
            f" {type(frame).__module__.partition('.')[0]}.{type(frame).__name__}. A log is read with"
            " spark.read.format('consumer_offsets').load(path), one of pandas becomes one of Spark by spark.createDataFrame."
        )
    names = [name.lower() if name.lower() in READ_NAMES else name for name in frame.columns]
    if doubled := sorted(name for name, count in Counter(names).items() if count > 1):
        raise UsageError(f"The frame has two columns {doubled[0]!r}. Drop or rename one of them, for example before a join.")
    return frame if names == frame.columns else frame.toDF(*names)


def quoted(name: str) -> str:
    """The name of a column as Spark reads it whatever is in it, dots too."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def of_the_offsets_topic(frame: DataFrame) -> DataFrame:
    """The rows of ``__consumer_offsets``: all rows, unless the frame has the columns of Spark's Kafka source and so names a topic."""
    names = {name.lower() for name in frame.columns}
    if "topic" in names and "offsets_partition" not in names:
        topic = F.col("topic").cast(types.StringType())
        return frame.where((topic == OFFSETS_TOPIC) | topic.isNull())
    return frame


def raw_rows(frame: DataFrame, wanted: Wanted = EVERY_ROW, *, with_bytes: bool = True) -> DataFrame:
    """The wanted records as a frame with the columns of ROW_SCHEMA, as the nightly reads them. with_bytes: with keys and values.

    Raises UsageError for a stream, and where the frame does not tell the partition and the offset of a record.
    """
    frame = readable(frame)
    if frame.isStreaming:
        raise UsageError(
            "The frame is a stream, and only `decode` takes one: the state follows from all records in their order. Write what `decode`"
            " gives to a table, and give the function that table as spark.read gives it, or call it in foreachBatch on the whole table."
        )
    names = frame.columns
    missing = [kafka for raw, kafka in KAFKA_NAMES.items() if raw != "record_timestamp_ms" and _name_in(names, raw) is None]
    if missing:
        raise UsageError(
            f"The frame has no column {' and no column '.join(map(repr, missing))}. The replay needs the place of each record in"
            " __consumer_offsets, because later records replace earlier ones. Only `decode` does without. Spark's Kafka source gives both"
            " columns: keep them where the table is written. If the frame has them under other names, rename them with withColumnRenamed."
        )
    columns, rows = raw_columns(frame), of_the_offsets_topic(frame)
    if wanted:
        rows = rows.where(wanted_records(wanted, columns["offsets_partition"], columns["record_offset"], F.isnull))
    if not with_bytes:
        columns |= {name: F.lit(None).cast(types.BinaryType()).alias(name) for name in ("key", "value")}
    rows = rows.select(*columns.values())
    has_partition = F.coalesce(F.col("offsets_partition") >= 0, F.lit(False))
    has_offset = F.coalesce(F.col("record_offset") >= 0, F.lit(False))
    nothing = F.lit(None).cast(types.StringType())
    return (
        rows.withColumn("fault", F.when(has_partition & has_offset, nothing).otherwise("row_without_place"))
        .withColumn("detail", F.when(~has_partition, NO_PARTITION).when(~has_offset, NO_OFFSET))
        .withColumn("offsets_partition", F.when(has_partition, F.col("offsets_partition")).otherwise(UNKNOWN_PARTITION))
        .withColumn("record_offset", F.when(has_offset, F.col("record_offset")))
    )


def frame_of_delta(spark: SparkSession, inputs: Sequence[str]) -> DataFrame:
    """The rows of Delta tables at their newest version, as Spark's Delta reader gives them, with their place in the files.

    Raises InputError where the session has no Delta reader, or the reader cannot read the tables.
    """
    try:
        frames = [
            spark.read.format("delta")
            .load(given)
            .withColumns({"source": F.lit(shown(given)), "position": F.lit(None).cast(types.LongType())})
            for given in inputs
        ]
    except (PySparkException, Py4JError) as error:
        raise InputError(
            f"{', '.join(map(shown, inputs))}: this Delta table has deleted rows or renamed columns, which only Spark's Delta reader knows,"
            f" and this session cannot read it: {first_line(error)} Give it Delta's package, as conf/spark-local.conf shows."
        ) from error
    return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)


def lacks_of(frame: DataFrame) -> frozenset[str]:
    """What rows of the frame do not tell, of LACKING."""
    columns = {name.lower() for name in frame.columns}
    tells = (tells_transactions(frame), columns & {"timestamp", "record_timestamp_ms"}, "leader_epoch" in columns)
    return frozenset(word for word, is_told in zip(LACKING, tells, strict=True) if not is_told)


def tells_transactions(frame: DataFrame) -> bool:
    """Whether the frame has the columns that tell which records are of transactions, and how those ended."""
    return {"producer_id", "is_transactional", "control_type"} <= {name.lower() for name in frame.columns}


def _name_in(names: Iterable[str] | Mapping[str, Any], raw: str) -> str | None:
    """The name under which a frame with these columns has the raw column; None: the frame does not have it."""
    return next((name for name in (raw, KAFKA_NAMES[raw]) if name in names and not (name != raw and "offsets_partition" in names)), None)


def _as(name: str, given: types.DataType, wanted: types.DataType) -> Column:
    """The column as one of that type; NULL where a text is no such number."""
    if isinstance(wanted, types.StringType):
        return F.col(name).cast(wanted)
    if isinstance(given, types.NumericType | types.StringType | types.BooleanType | types.NullType):
        return F.col(name).try_cast(wanted)
    raise UsageError(
        f"The column {name} is {given.simpleString().upper()}. It must be {wanted.simpleString().upper()}. If it is about something else,"
        " rename it with withColumnRenamed."
    )


def _bytes(name: str, kind: types.DataType) -> Column:
    if isinstance(kind, types.BinaryType | types.NullType):
        return F.col(name).cast(types.BinaryType())
    raise UsageError(
        f"The column {name} is {kind.simpleString().upper()}. It must be BINARY, the bytes as they are in the topic: text loses some of"
        f" them. If the column has them in base64, convert it with F.unbase64({name!r})."
    )


def _milliseconds(by_name: Mapping[str, types.DataType]) -> Column:
    """Epoch milliseconds; -1 where there is no time. Numbers already are milliseconds."""
    given = _name_in(by_name, "record_timestamp_ms")
    if given is None:
        return F.lit(NO_TIMESTAMP).cast(types.LongType())
    kind = by_name[given]
    if isinstance(kind, types.TimestampNTZType):  # a time without a zone is one of UTC, whatever the zone of the session
        milliseconds = F.unix_millis(F.to_utc_timestamp(F.col(given), F.current_timezone()))
    elif isinstance(kind, types.TimestampType):
        milliseconds = F.unix_millis(F.col(given))
    elif isinstance(kind, types.NumericType):
        milliseconds = F.col(given).cast(types.LongType())
    else:
        raise UsageError(f"The column {given} is {kind.simpleString().upper()}. It must be a TIMESTAMP, or a BIGINT of epoch milliseconds.")
    return F.coalesce(milliseconds, F.lit(NO_TIMESTAMP).cast(types.LongType()))


def _control_type(kind: types.DataType | None) -> Column:
    """COMMIT, ABORT, the number of another control type, or NULL. The column may also have the numbers that brokers store."""
    if kind is None:
        return F.lit(None).cast(types.StringType())
    control = F.col("control_type")
    if not isinstance(kind, types.NumericType):
        return control.cast(types.StringType())
    named = F.when(control < 0, F.lit(None).cast(types.StringType()))
    for marker in MarkerType:
        named = named.when(control == marker.value, marker.name)
    return named.otherwise(control.cast(types.StringType()))
