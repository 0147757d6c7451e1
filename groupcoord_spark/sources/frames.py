"""Any DataFrame of records as raw rows: its columns as the nightly reads them (``sources/columns.py``), and as ``decode`` gives them."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import reduce
from itertools import chain
from typing import Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, types
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from groupcoord_spark.errors import InputError, UsageError
from groupcoord_spark.log.broker_dir.broker_files import OFFSETS_TOPIC
from groupcoord_spark.protocol.record_types import MarkerType
from groupcoord_spark.sources.columns import NAMES, OFFSET, OTHER_UNITS, PARTITION, TIMESTAMP, TOPIC, fields_of, needed_type
from groupcoord_spark.sources.rows import ABSENT, EVERY_ROW, FILLED_IN, RAW_SCHEMA, Wanted, WithNewer, wanted_records
from groupcoord_spark.storage.location import first_line, shown
from groupcoord_spark.wording import first_of

DEFAULT_CLUSTER: Final = "default"
"""The cluster of rows that name none."""

TOPICS_NAMED: Final = 3
"""Topics that a sentence names at most."""

RAW_NAMES: Final = tuple(RAW_SCHEMA.names)

READ_NAMES: Final = frozenset((*chain.from_iterable(NAMES.values()), TOPIC))
"""The columns of a frame that are read, in lower case."""


def readable(frame: DataFrame) -> DataFrame:
    """Return the frame with the names of READ_NAMES in lower case: ``spark.sql.caseSensitive`` may be set.

    Raises UsageError for anything but a DataFrame of Spark, and for a frame with two columns of one of these names.
    """
    # Before Spark 4.0 a frame of Spark Connect is not an instance of pyspark.sql.DataFrame.
    if not any(base.__name__ == "DataFrame" and base.__module__.startswith("pyspark.sql.") for base in type(frame).__mro__):
        raise UsageError(
            "A DataFrame of Spark with records of __consumer_offsets is needed, and this is"
            f" {type(frame).__module__.partition('.')[0]}.{type(frame).__name__}. A log is read with gc.read_segments(spark, path), one of"
            " pandas becomes one of Spark by spark.createDataFrame."
        )
    names = [name.lower() if name.lower() in READ_NAMES else name for name in frame.columns]
    if doubled := sorted(name for name, count in Counter(names).items() if count > 1):
        raise UsageError(f"The frame has two columns {doubled[0]!r}. Drop or rename one of them, for example before a join.")
    return frame if names == frame.columns else frame.toDF(*names)


def quoted(name: str) -> str:
    """Return the name of a column quoted for Spark, which accepts dots in it."""
    escaped = name.replace("`", "``")
    return f"`{escaped}`"


def raw_columns(frame: DataFrame) -> dict[str, Column]:
    """Raw column -> the expression that gives it; all of RAW_SCHEMA. A place or a time that the frame does not have is NULL.

    frame: from ``readable``. Raises UsageError for a frame without key and value, and for a column of another type than it must have.
    """
    fields, kinds = _checked_fields(frame), {field.name: field.dataType for field in frame.schema}
    columns = {}
    for field in RAW_SCHEMA:
        kind, name = from_arrow_type(field.type), fields.get(field.name)
        value = F.lit(None).cast(kind) if name is None else _as_field(field.name, name, kinds[name], kind)
        absent = {**ABSENT, "cluster": DEFAULT_CLUSTER}.get(field.name)
        columns[field.name] = (value if absent is None else F.coalesce(value, F.lit(absent).cast(kind))).alias(field.name)
    return columns


def of_the_offsets_topic(frame: DataFrame) -> DataFrame:
    """Return the rows of ``__consumer_offsets``: all rows, unless the frame names a topic, as Spark's Kafka source does."""
    if (name := fields_of(frame.columns).get(TOPIC)) is None:
        return frame
    topic = F.col(name).cast(types.StringType())
    return frame.where((topic == OFFSETS_TOPIC) | topic.isNull())


def wanted_rows(frame: DataFrame, wanted: Wanted = EVERY_ROW, *, with_bytes: bool = True) -> DataFrame:
    """Return the wanted rows, with the columns of the frame that have a field of a raw row, under the name of the field.

    The columns are of the frame's own types: ``row_batch`` converts them where they are read. with_bytes: with keys and values.
    Raises UsageError for a stream, and where the frame lacks the partition and the offset of a record.
    """
    frame = readable(frame)
    if frame.isStreaming:
        raise UsageError(
            "The frame is a stream, and only `decode` takes one: the state follows from all records in their order. Write the stream to a"
            " table, and give the function that table as spark.read gives it. gc.run_nightly takes each micro-batch of foreachBatch."
        )
    fields = _checked_fields(frame)
    if missing := [NAMES[field][-1] for field in (PARTITION, OFFSET) if field not in fields]:
        raise UsageError(
            f"The frame has no column {' and no column '.join(map(repr, missing))}. The replay needs the place of each record in"
            " __consumer_offsets, because later records replace earlier ones. Only `decode` does without. Spark's Kafka source gives both"
            " columns: keep them where the table is written. If the frame has them under other names, rename them with withColumnRenamed."
        )
    rows = of_the_offsets_topic(frame)
    if wanted:
        places = raw_columns(frame)
        is_wanted = wanted_records(wanted, places[PARTITION], places[OFFSET], F.isnull)
        if isinstance(wanted, WithNewer):
            is_newer = places[TIMESTAMP] > wanted.newer_than_ms
            if TIMESTAMP in fields and isinstance(frame.schema[fields[TIMESTAMP]].dataType, types.TimestampType):
                # Readers skip files by a comparison with the column itself.
                is_newer = F.col(fields[TIMESTAMP]) > F.lit(datetime.fromtimestamp(wanted.newer_than_ms / 1000, UTC))
            is_wanted |= is_newer
        rows = rows.where(is_wanted)
    left_out = {TOPIC} if with_bytes else {TOPIC, "key", "value"}
    texts = {field.name for field in RAW_SCHEMA if field.type == pa.string()}
    numbers = {field.name for field in frame.schema if isinstance(field.dataType, types.NumericType)}
    return rows.select(
        *(
            (F.col(name).cast("string") if field in texts and name not in numbers else F.col(name)).alias(field)
            for field, name in fields.items()
            if field not in left_out
        )
    )


def _checked_fields(frame: DataFrame) -> dict[str, str]:
    """Field -> the column that has it. Raises UsageError for a frame without key and value, and for a column of a type that is none."""
    fields = fields_of(frame.columns)
    if missing := [name for name in ("key", "value") if name not in fields]:
        raise UsageError(
            f"The frame has no column {' and no column '.join(map(repr, missing))}. Records of __consumer_offsets are needed as Spark's"
            " Kafka source gives them: key and value as BINARY, and partition, offset and timestamp where they are known."
        )
    for field, name in fields.items():
        kind = frame.schema[name].dataType
        if field == TOPIC or RAW_SCHEMA.field(field).type == pa.string():
            continue  # any type has a text
        if field in ("key", "value") and isinstance(kind, types.StringType):
            raise UsageError(
                f"The column {name} is STRING. It must be BINARY, the bytes as they are in the topic. If the text is base64, convert it"
                f" with F.unbase64({name!r}), and if it is hex, with F.unhex({name!r}). Any other text has lost some of the bytes."
            )
        if (needed := needed_type(field, _arrow_type(kind))) is not None:
            way_out = "If it is about something else, rename it with withColumnRenamed."
            raise UsageError(f"The column {name} is {kind.simpleString().upper()}. It must be {needed}. {way_out}")
    return fields


def _arrow_type(kind: types.DataType) -> pa.DataType:
    """Return the type of a column in Arrow. From Spark 4.2 on ``to_arrow_type`` takes a timestamp with the zone of the session alone."""
    if isinstance(kind, types.TimestampType | types.TimestampNTZType):
        return pa.timestamp("us")
    return pa.struct([]) if isinstance(kind, types.StructType | types.ArrayType | types.MapType) else to_arrow_type(kind)


def frame_of_delta(spark: SparkSession, inputs: Sequence[str]) -> DataFrame:
    """Return the rows of Delta tables at their newest version, as Spark's Delta reader gives them, with their place in the files.

    Raises InputError where the session has no Delta reader, or the reader cannot read the tables.
    """
    try:
        frames = [
            spark.read.format("delta").load(uri).withColumns({"source": F.lit(shown(uri)), "position": F.lit(None).cast(types.LongType())})
            for uri in inputs
        ]
    except (PySparkException, Py4JError) as error:
        raise InputError(
            f"{', '.join(map(shown, inputs))}: this Delta table has deleted rows, renamed columns or paths with `..`, which only"
            f" Spark's Delta reader knows, and this session cannot read it: {first_line(error)} Give it Delta's package, as"
            " conf/spark-local.conf shows."
        ) from error
    return reduce(lambda union, frame: union.unionByName(frame, allowMissingColumns=True), frames)


def told_fields(frame: DataFrame) -> set[str]:
    """Return the fields of raw rows that the frame has, without those that ``decode`` filled in because its own frame lacked them."""
    filled_in = {field.name for field in frame.schema if field.metadata.get(FILLED_IN)}
    return {field for field, name in fields_of(frame.columns).items() if name not in filled_in}


def _milliseconds(times: Column, *, is_whole: bool = True) -> Column:
    """Return a column of epoch times in milliseconds: what ``columns.in_milliseconds`` does where Spark makes the columns."""
    milliseconds = times if is_whole else F.round(times)
    for unit in OTHER_UNITS:
        first, end = unit.span
        factor, divisor = 1_000 // unit.per_second, unit.per_second // 1_000
        # `/` gives a double, which is exact where nothing is left over.
        even = times - F.pmod(times, F.lit(divisor)) if is_whole and divisor else times
        converted = times * factor if factor else even / divisor
        milliseconds = F.when((times >= first) & (times < end), F.round(converted)).otherwise(milliseconds)
    # The same as try_cast, which Spark 3.5 does not have for an expression.
    return F.when((milliseconds >= -(2.0**63)) & (milliseconds < 2.0**63), milliseconds.cast("bigint"))


def refuse_other_topics(frame: DataFrame) -> None:
    """Raise InputError for a frame that has rows, and no row of ``__consumer_offsets``. The first such row ends the search."""
    frame = readable(frame)
    if (name := fields_of(frame.columns).get(TOPIC)) is None or frame.isStreaming or not of_the_offsets_topic(frame).isEmpty():
        return
    if topics := sorted(str(topic) for (topic,) in frame.select(name).distinct().limit(TOPICS_NAMED + 1).collect()):
        raise InputError(
            f"The frame has no row of __consumer_offsets: the column {name} has {first_of(list(map(repr, topics)), TOPICS_NAMED)}. Give the"
            " rows of __consumer_offsets. If these are a copy of them under another name, drop that column."
        )


def _as_field(field: str, name: str, given: types.DataType, wanted: types.DataType) -> Column:
    """Return the column in the type ``wanted``; NULL where a value does not fit the type, as ``row_batch`` has it."""
    column = F.col(name)
    if field == TIMESTAMP and isinstance(given, types.TimestampNTZType):  # UTC, whatever the zone of the session
        return _milliseconds(F.unix_millis(F.to_utc_timestamp(column, F.current_timezone())))
    if field == TIMESTAMP and isinstance(given, types.TimestampType):
        return _milliseconds(F.unix_millis(column))
    if field == TIMESTAMP and isinstance(given, types.NumericType):
        return _milliseconds(column.cast("bigint" if (is_whole := isinstance(given, types.IntegralType)) else "double"), is_whole=is_whole)
    if field == "control_type" and isinstance(given, types.NumericType):  # the numbers that brokers store
        named = F.when(column < 0, F.lit(None).cast(wanted))
        for marker in MarkerType:
            named = named.when(column == marker.value, marker.name)
        return named.otherwise(column.cast(wanted))
    if isinstance(wanted, types.StringType | types.BinaryType):
        return column.cast(wanted)
    return F.expr(f"try_cast({quoted(name)} AS {wanted.simpleString()})")
