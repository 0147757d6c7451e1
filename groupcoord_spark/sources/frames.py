"""Any DataFrame of records as raw rows: its columns as the nightly reads them (``sources/columns.py``), and as ``decode`` gives them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, types
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from groupcoord_spark.errors import InputError, UsageError
from groupcoord_spark.log.files.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.files.storage import first_line, shown
from groupcoord_spark.protocol.record_types import MarkerType
from groupcoord_spark.sources.columns import NAMES, OFFSET, PARTITION, TIMESTAMP, TOPIC, fields_of, lacks_of, needed_type
from groupcoord_spark.sources.rows import ABSENT, EVERY_ROW, RAW_SCHEMA, TRANSACTIONS, Wanted, wanted_records

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

DEFAULT_CLUSTER: Final = "default"
"""The cluster of rows that name none."""

RAW_NAMES: Final = tuple(RAW_SCHEMA.names)

READ_NAMES: Final = frozenset((*chain.from_iterable(NAMES.values()), TOPIC, "timestamptype"))
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
    """The rows of ``__consumer_offsets``: all rows, unless the frame has the columns of Spark's Kafka source and so names a topic."""
    if (name := fields_of(frame.columns).get(TOPIC)) is None:
        return frame
    topic = F.col(name).cast(types.StringType())
    return frame.where((topic == OFFSETS_TOPIC) | topic.isNull())


def wanted_rows(frame: DataFrame, wanted: Wanted = EVERY_ROW, *, with_bytes: bool = True) -> DataFrame:
    """The wanted rows, with the columns of the frame that have a field of a raw row, under the name of the field.

    The columns are of the frame's own types: ``raw_rows`` converts them where they are read. with_bytes: with keys and values.
    Raises UsageError for a stream, and where the frame does not tell the partition and the offset of a record.
    """
    frame = readable(frame)
    if frame.isStreaming:
        raise UsageError(
            "The frame is a stream, and only `decode` takes one: the state follows from all records in their order. Write what `decode`"
            " gives to a table, and give the function that table as spark.read gives it, or call it in foreachBatch on the whole table."
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
        rows = rows.where(wanted_records(wanted, places[PARTITION], places[OFFSET], F.isnull))
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
        if (needed := needed_type(field, to_arrow_type(kind))) is not None:
            way_out = f"If the column has them in base64, convert it with F.unbase64({name!r})."
            if field not in ("key", "value"):
                way_out = "If it is about something else, rename it with withColumnRenamed."
            raise UsageError(f"The column {name} is {kind.simpleString().upper()}. It must be {needed}. {way_out}")
    return fields


def frame_of_delta(spark: SparkSession, inputs: Sequence[str]) -> DataFrame:
    """The rows of Delta tables at their newest version, as Spark's Delta reader gives them, with their place in the files.

    Raises InputError where the session has no Delta reader, or the reader cannot read the tables.
    """
    try:
        frames = [
            spark.read.format("delta").load(uri).withColumns({"source": F.lit(shown(uri)), "position": F.lit(None).cast(types.LongType())})
            for uri in inputs
        ]
    except (PySparkException, Py4JError) as error:
        raise InputError(
            f"{', '.join(map(shown, inputs))}: this Delta table has deleted rows or renamed columns, which only Spark's Delta reader knows,"
            f" and this session cannot read it: {first_line(error)} Give it Delta's package, as conf/spark-local.conf shows."
        ) from error
    return reduce(lambda union, frame: union.unionByName(frame, allowMissingColumns=True), frames)


def tells_transactions(frame: DataFrame) -> bool:
    """Whether the frame has the columns that say which records are of transactions, and how the transactions ended."""
    return TRANSACTIONS not in lacks_of(fields_of(frame.columns))


def _as_field(field: str, name: str, given: types.DataType, wanted: types.DataType) -> Column:
    """The column in the type ``wanted``; NULL where a value does not fit the type, as ``raw_rows`` has it."""
    column = F.col(name)
    if field == TIMESTAMP and isinstance(given, types.TimestampNTZType):  # UTC, whatever the zone of the session
        return F.unix_millis(F.to_utc_timestamp(column, F.current_timezone()))
    if field == TIMESTAMP and isinstance(given, types.TimestampType):
        return F.unix_millis(column)
    if field == "control_type" and isinstance(given, types.NumericType):  # the numbers that brokers store
        named = F.when(column < 0, F.lit(None).cast(wanted))
        for marker in MarkerType:
            named = named.when(column == marker.value, marker.name)
        return named.otherwise(column.cast(wanted))
    return column.cast(wanted) if isinstance(wanted, types.StringType | types.BinaryType) else column.try_cast(wanted)
