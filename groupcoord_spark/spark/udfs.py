"""Functions that decode records in notebooks and SQL: pandas UDFs over the ``key`` and ``value`` columns of any DataFrame.

from groupcoord_spark.spark.udfs import decode_offsets_key, decode_offsets_value, register
register(spark)                      # the same names in spark.sql
raw.select(decode_offsets_key("key").alias("k"), decode_offsets_value("key", "value").alias("v"))
"""

from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType

from groupcoord_spark.protocol import RECORD_TYPES
from groupcoord_spark.protocol.columnar import KeyColumns, decode_key_columns, decode_offset_value_columns
from groupcoord_spark.protocol.fields import Field, Integer
from groupcoord_spark.protocol.json_texts import key_json_column, value_json_column
from groupcoord_spark.protocol.messages.offsets import OFFSET_COMMIT_VALUE
from groupcoord_spark.protocol.record_types import OFFSET_KEY_TYPES
from groupcoord_spark.protocol.slices import Slices
from groupcoord_spark.spark.column_functions import column_function, struct_of

KEY = struct_of(
    key_type="short",
    key_name="string",
    group_id="string",
    topic="string",
    partition="integer",
    member_id="string",
    key_json="string",
    error="string",
)
KEY_FIELDS: Final = struct_of(**{field.name: field.dataType.typeName() for field in KEY if field.name not in ("key_json", "error")})
_FIELDS: Final = OFFSET_COMMIT_VALUE.fields
NONE: Final = -1
"""Kafka's number for "none", in the fields that have it as their default."""
_NAMES_BY_TYPE: Final = {key_type: record_type.key.name for key_type, record_type in RECORD_TYPES.items()}
_KEY_NAMES: Final = np.array([*map(_NAMES_BY_TYPE.get, range(max(RECORD_TYPES) + 1)), None], object)
"""By key type the name of the key, and None at the end."""
_NUMBERS: Final = {2: "short", 4: "integer", 8: "long"}
VALUE = struct_of(
    value_version="short",
    **{field.name: _NUMBERS[field.type.size] if isinstance(field.type, Integer) else "string" for field in _FIELDS},
    error="string",
)


def _slices(column: pd.Series) -> Slices:
    return Slices.from_arrow(pa.array(column, pa.binary(), from_pandas=True))


def _texts(column: pa.Array | pa.ChunkedArray) -> pd.Series:
    """Return the texts as a Series. A long column has several chunks, but Spark accepts only single-chunk columns in a struct."""
    texts: pd.Series = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).to_pandas()
    return texts


def _nullable(values: Any, of: Any, is_null: Any) -> Any:
    # pandas' own nullable integers: as floats, offsets beyond 2^53 would change
    return pd.arrays.IntegerArray(np.asarray(values).astype(of), np.asarray(is_null, np.bool_))


@column_function(KEY)
def decode_offsets_key(key: pd.Series) -> pd.DataFrame:
    """Decode the fields of a record's key. ``error`` is the reason code if the key does not decode or its type is unknown."""
    slices = _slices(key)
    columns = decode_key_columns(slices)
    return pd.DataFrame(
        {
            **_key_fields(columns),
            "key_json": _texts(key_json_column(slices)),
            "error": _texts(columns.status.cast(pa.string())),
        }
    )


@column_function(KEY_FIELDS)
def decode_key_fields(key: pd.Series) -> pd.DataFrame:
    """Decode the fields of a record's key as ``decode_offsets_key`` does, without the text in JSON."""
    return pd.DataFrame(_key_fields(decode_key_columns(_slices(key))))


def _key_fields(columns: KeyColumns) -> dict[str, Any]:
    has_type = columns.key_type >= 0
    has_partition = columns.ok & np.isin(columns.key_type, list(OFFSET_KEY_TYPES))
    return {
        "key_type": _nullable(columns.key_type, "int16", ~has_type),
        "key_name": _KEY_NAMES[np.where(columns.ok, columns.key_type, NONE)],
        "group_id": _texts(columns.group_id),
        "topic": _texts(columns.topic),
        "partition": _nullable(columns.partition, "int32", ~has_partition),
        "member_id": _texts(columns.member_id),
    }


@column_function(VALUE)
def decode_offsets_value(key: pd.Series, value: pd.Series) -> pd.DataFrame:
    """Decode the fields of a commit's value (key types 0 and 1); all NULL for tombstones and other key types.

    NULL also stands for Kafka's -1 in the fields where it means "none".
    """
    keys, values = _slices(key), _slices(value)
    key_type = decode_key_columns(keys).key_type
    is_offset = np.isin(key_type, list(OFFSET_KEY_TYPES)) & ~values.is_null
    rows = np.flatnonzero(is_offset)
    columns = decode_offset_value_columns(key_type[rows], values.take(rows))
    status = columns.status.cast(pa.string())
    refused = np.asarray(status.is_valid().to_numpy(zero_copy_only=False), np.bool_)
    at = np.full(len(key), -1, np.int64)
    at[rows] = np.arange(len(rows))
    into = pa.array(at, mask=~is_offset)

    def spread(column: Any, is_null: Any = None) -> Any:
        if isinstance(column, pa.Array):
            return _texts(column.take(into))
        array = pa.array(column, mask=is_null).take(into)
        return _nullable(array.fill_null(0).to_numpy(zero_copy_only=False), column.dtype, array.is_null().to_numpy(zero_copy_only=False))

    def of_field(field: Field) -> Any:
        column = columns.fields[field.name]
        return spread(column, refused | (column == NONE) if field.default == NONE else refused)

    return pd.DataFrame(
        {
            "value_version": spread(columns.value_version, columns.value_version < 0),
            **{field.name: of_field(field) for field in _FIELDS},
            "error": spread(status),
        }
    )


@column_function(StringType())
def decode_offsets_value_json(key: pd.Series, value: pd.Series) -> pd.Series:
    """Decode a value of any key type to Kafka's JSON; NULL for tombstones and values that do not decode."""
    keys = decode_key_columns(_slices(key))
    return _texts(value_json_column(np.where(keys.ok, keys.key_type, np.int16(-1)), _slices(value)))


def register(spark: SparkSession) -> None:
    """Register the functions for ``spark.sql``, under their own names."""
    for function in (decode_offsets_key, decode_offsets_value, decode_offsets_value_json):
        spark.udf.register(function.name, function.udf)
