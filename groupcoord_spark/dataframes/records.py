"""``decode``: one row for each record, with the fields of its key and a struct for each kind of value."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructField, StructType, TimestampType

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.dataframes.segments import register_source
from groupcoord_spark.errors import UsageError
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.read.decode import decode_chunk
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, NOT_A_CONTROL_RECORD
from groupcoord_spark.protocol.slices import Slices
from groupcoord_spark.sources.columns import TIMESTAMP, fields_of
from groupcoord_spark.sources.frames import RAW_NAMES, READ_NAMES, of_the_offsets_topic, quoted, raw_columns, readable, told_fields
from groupcoord_spark.sources.rows import FILLED_IN
from groupcoord_spark.spark import udfs
from groupcoord_spark.spark.column_functions import column_function, struct_of
from groupcoord_spark.spark.group_values import GROUP_VALUE, decode_group_value, decode_group_values
from groupcoord_spark.spark.session import require_package_on_workers
from groupcoord_spark.warehouse import TABLES

ERROR: Final = struct_of(code="string", detail="string")

_OF_KEY: Final = ("key_type", "key_name", "group_id", "topic", "partition", "member_id")
_OF_COMMIT: Final = tuple(name for name in udfs.VALUE.names if name != "error")

RECORD_TIMESTAMP: Final = "record_timestamp"

_COLUMNS: Final = {**TABLES["group_records"].by_name, **TABLES["offset_commits"].by_name}
_COMMENTS: Final = {
    **{name: column.comment for name, column in _COLUMNS.items()},
    "key_type": "Type of the key; NULL: a control record, or too short to have one.",
    "group_id": "The group; NULL: a control record, or the key does not decode.",
    "is_tombstone": "The record has no value: it deletes what its key names. NULL: a control record.",
    **{name: f"{_COLUMNS[name[:-3]].comment} Epoch milliseconds." for name in _OF_COMMIT if name.endswith("_ms")},
    "record_timestamp_ms": "Time of the record in epoch milliseconds; -1: none.",
    RECORD_TIMESTAMP: "Time of the record; NULL: none.",
    "offset_commit": "The value of a commit (key types 0 and 1); NULL: a tombstone, another type, or a value that does not decode.",
    "error": "Why the record does not decode, as in quarantined_records; NULL: it decodes.",
}
"""Column -> comment. A column that is also in a table of the warehouse has the table's comment."""

OFFSET_COMMIT: Final = StructType(
    [StructField(name, udfs.VALUE[name].dataType, metadata={"comment": _COMMENTS[name]}) for name in _OF_COMMIT]
)


@column_function(ERROR)
def decode_error(key: pd.Series, value: pd.Series) -> pd.DataFrame:
    """Return why a record does not decode: the code and the sentence of quarantined_records; NULL if the record decodes."""
    n = len(key)
    records = Records(
        record_offset=np.arange(n),
        timestamp_ms=np.full(n, NO_TIMESTAMP, np.int64),
        key=Slices.from_arrow(pa.array(key, pa.binary(), from_pandas=True)),
        value=Slices.from_arrow(pa.array(value, pa.binary(), from_pandas=True)),
        producer_id=np.full(n, NO_PRODUCER_ID, np.int64),
        producer_epoch=np.full(n, NO_PRODUCER_EPOCH, np.int16),
        is_transactional=np.zeros(n, np.bool_),
        control_type=np.full(n, NOT_A_CONTROL_RECORD, np.int8),
        position=np.zeros(n, np.int64),
    )
    faults = decode_chunk(records, JAVA).faults
    columns = {}
    for name, texts in (("code", faults.codes), ("detail", faults.details)):
        column = np.full(n, None, object)
        column[faults.row] = np.array(texts, object)[faults.note] if len(faults) else None
        columns[name] = column
    return pd.DataFrame(columns)


def decode(frame: DataFrame) -> DataFrame:
    """Decode ``__consumer_offsets`` records, one row for each record.

    In:  any frame with key and value as BINARY: of Spark's Kafka source, of the source ``consumer_offsets``, of a table with such columns;
         also a streaming one. Rows that name another topic than ``__consumer_offsets`` are left out.
    Out: the raw columns (cluster, offsets_partition, record_offset, ...) and record_timestamp, then key_type, key_name, group_id, topic,
         partition and member_id of the key, value_version and is_tombstone, then one struct for each kind of value (offset_commit,
         group_metadata, consumer_group_member_metadata, ...), at most one of them is not NULL, then error (code, detail), which is NULL if
         the record decodes, then the other columns of the frame, such as offset and timestamp of Spark's Kafka source. ``topic`` and
         ``partition`` are those of the offset that was committed; of control records the columns of key and value are NULL.
         record_timestamp is the frame's own column where that is a TIMESTAMP: readers of files skip by a filter on it.
    Raises UsageError for anything but a frame, for a frame without key and value, and for one with another column of a name that ``decode``
    makes; GroupcoordError where the Python workers of the session lack the package.
    """
    frame = readable(frame)
    raw, told = raw_columns(frame), told_fields(frame)
    require_package_on_workers(frame.sparkSession)
    made = {*_OF_KEY, "value_version", "is_tombstone", "offset_commit", *GROUP_VALUE.names, "error"}
    names = {name.lower() for name in frame.columns}
    replaced = {*RAW_NAMES, *(made & READ_NAMES), RECORD_TIMESTAMP}
    if made <= names:  # decoded already: decode it again
        replaced |= made
    other_columns = [name for name in frame.columns if name.lower() not in replaced]
    if taken := sorted(name for name in other_columns if name.lower() in made):
        raise UsageError(
            f"The frame already has a column {taken[0]!r}, and decode makes one of that name. Rename it with withColumnRenamed, or drop it."
        )
    is_data = F.col("control_type").isNull()
    key = F.when(is_data, F.col("key"))
    rows = of_the_offsets_topic(frame).select(*raw.values(), _moment(frame, raw), *(F.col(quoted(name)) for name in other_columns))
    decoded = rows.select(
        "*",
        udfs.decode_key_fields(key).alias("_key"),
        udfs.decode_offsets_value(key, "value").alias("_commit"),
        decode_group_values(key, "value").alias("_groups"),
        decode_error(key, "value").alias("_error"),
    )
    has_commit = F.col("_commit.value_version").isNotNull() & F.col("_commit.error").isNull()
    group = F.get("_groups", F.lit(0))
    commit = F.struct(*(F.col(f"_commit.{name}") for name in _OF_COMMIT))
    return decoded.select(
        *(_commented(name, F.col(name), {} if name in told else {FILLED_IN: True}) for name in RAW_NAMES),
        _commented(RECORD_TIMESTAMP, F.col(RECORD_TIMESTAMP)),
        *(_commented(name, F.col(f"_key.{name}")) for name in _OF_KEY),
        _commented("value_version", F.coalesce(F.col("_commit.value_version"), group.getField("value_version"))),
        _commented("is_tombstone", F.when(is_data, F.col("value").isNull())),
        _commented("offset_commit", F.when(has_commit, commit).cast(OFFSET_COMMIT)),
        *(group.getField(field.name).cast(field.dataType).alias(field.name) for field in GROUP_VALUE if field.name != "value_version"),
        _commented("error", F.when(is_data & F.col("_error.code").isNotNull(), F.col("_error"))),
        *(F.col(quoted(name)) for name in other_columns),
    )


def _moment(frame: DataFrame, raw: Mapping[str, Column]) -> Column:
    """Return record_timestamp: the column of the frame itself where it has one of that type."""
    given = fields_of(frame.columns).get(TIMESTAMP)
    if given is not None and isinstance(frame.schema[given].dataType, TimestampType):
        return F.col(given).alias(RECORD_TIMESTAMP)
    milliseconds = raw[TIMESTAMP]
    return F.when(milliseconds >= 0, F.timestamp_millis(milliseconds)).alias(RECORD_TIMESTAMP)


def _commented(name: str, column: Column, metadata: Mapping[str, Any] = MappingProxyType({})) -> Column:
    """Return the column under that name, with its comment if there is one, and more metadata."""
    comment = {"comment": _COMMENTS[name]} if name in _COMMENTS else {}
    return column.alias(name, metadata={**comment, **metadata})


def of_groups(records: DataFrame, *group_ids: str) -> DataFrame:
    """Return the decoded records of these groups and all control records, which end the groups' transactions.

    Without the control records ``replay`` would show committed offsets of transactions as pending.
    """
    return records.where(F.col("group_id").isin(*group_ids) | F.col("control_type").isNotNull())


def register(spark: SparkSession) -> None:
    """Register the source ``consumer_offsets``, and for ``spark.sql`` the functions that decode columns, under their own names."""
    register_source(spark)
    udfs.register(spark)
    for function in (decode_group_value, decode_error):
        spark.udf.register(function.name, function.udf)
