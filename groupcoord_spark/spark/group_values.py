"""The values of group records as nested columns: a pandas UDF whose struct follows from the declarations of the messages."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

from groupcoord_spark.protocol import DecodeError, decode_assignment, decode_key, decode_subscription, decode_value
from groupcoord_spark.protocol.consumer_protocol import listed_partitions
from groupcoord_spark.protocol.fields import Array, Blob, Field, FloatingPoint, Integer, Struct, Text, TruthValue, Type, UuidBytes
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.messages.embedded import CONSUMER_PROTOCOL_ASSIGNMENT, CONSUMER_PROTOCOL_SUBSCRIPTION
from groupcoord_spark.protocol.record_types import OFFSET_KEY_TYPES, KeyType
from groupcoord_spark.spark.column_functions import column_function

_CONSUMER: Final = "consumer"
"""The protocol type of classic groups whose members write subscriptions and assignments in the layout of Kafka's consumers."""

_INTEGERS: Final[Mapping[int, types.DataType]] = {1: types.ByteType(), 2: types.ShortType(), 4: types.IntegerType(), 8: types.LongType()}


def _spark_type(kind: Type) -> types.DataType:
    match kind:
        case Integer(size=size, signed=signed):
            return _INTEGERS[size] if signed else _INTEGERS[2 * size]
        case UuidBytes() | Text():
            return types.StringType()
        case Blob():
            return types.BinaryType()
        case TruthValue():
            return types.BooleanType()
        case FloatingPoint():
            return types.DoubleType()
        case Array(element=element):
            return types.ArrayType(_spark_type(element))
        case Struct(fields=fields):
            return types.StructType([_spark_field(field) for field in fields])


def _spark_field(field: Field) -> types.StructField:
    return types.StructField(field.name, _spark_type(field.type), metadata={"comment": field.meaning})


_PARTITIONS: Final = _spark_type(CONSUMER_PROTOCOL_ASSIGNMENT.fields[0].type)
_SUBSCRIPTION: Final = types.StructType(
    [types.StructField("version", types.ShortType()), *map(_spark_field, CONSUMER_PROTOCOL_SUBSCRIPTION.fields)]
)


def _classic_fields(fields: tuple[Field, ...]) -> types.StructType:
    """Return the fields of a GroupMetadataValue with decoded member subscriptions and assignments."""
    decoded: Mapping[str, types.DataType] = {"subscription": _SUBSCRIPTION, "assignment": _PARTITIONS}
    value = types.StructType([_spark_field(field) for field in fields])
    array = value["members"].dataType
    assert isinstance(array, types.ArrayType)
    assert isinstance(array.elementType, types.StructType)
    members = types.StructType([types.StructField(f.name, decoded.get(f.name, f.dataType), metadata=f.metadata) for f in array.elementType])
    return types.StructType(
        [types.StructField(f.name, types.ArrayType(members), metadata=f.metadata) if f.name == "members" else f for f in value]
    )


_GROUP_KEY_TYPES: Final = [key_type for key_type in KeyType if key_type not in OFFSET_KEY_TYPES]
_COMMIT_KEYS: Final = pa.array([key_type.to_bytes(2, "big") for key_type in OFFSET_KEY_TYPES], pa.binary())
_COLUMN_OF: Final[Mapping[int, str]] = {key_type: key_type.name.lower() for key_type in _GROUP_KEY_TYPES}

GROUP_VALUE: Final = types.StructType(
    [
        types.StructField("value_version", types.ShortType()),
        *(
            types.StructField(
                _COLUMN_OF[key_type],
                _classic_fields(RECORD_TYPES[key_type].value.fields)
                if key_type == KeyType.GROUP_METADATA
                else types.StructType([_spark_field(field) for field in RECORD_TYPES[key_type].value.fields]),
            )
            for key_type in _GROUP_KEY_TYPES
        ),
    ]
)
"""value_version, then one struct for each type of group record, with the fields of all versions of its value, and their comments."""


# Without comments: Spark compares the type with the type of Arrow's columns, which have none.
_VALUE: Final = from_arrow_type(to_arrow_type(GROUP_VALUE))


@column_function(_VALUE)
def decode_group_value(key: pd.Series, value: pd.Series) -> pd.DataFrame:
    """Decode the value of a group record (key type 2 and higher) into the struct of its type; the other structs are NULL.

    NULL for commits, tombstones and values that do not decode. A field missing from the value's version has Kafka's default. A member's
    ``subscription`` and ``assignment`` are NULL if they cannot be read, for example for Connect workers.
    """
    columns: dict[str, list[Any]] = {name: [None] * len(key) for name in GROUP_VALUE.names}
    for row, fields in _values(key, value):
        for name, field in fields.items():
            columns[name][row] = field
    return pd.DataFrame({name: pd.Series(column, dtype=object) for name, column in columns.items()})


@column_function(types.ArrayType(_VALUE))
def decode_group_values(key: pd.Series, value: pd.Series) -> pd.Series:
    """Decode as ``decode_group_value`` does, into an array of one struct; NULL where all columns of that struct would be NULL.

    Most records are commits. In an array they cost one NULL each, and as a struct one for each of the hundred nested fields.
    """
    rows: list[list[dict[str, Any]] | None] = [None] * len(key)
    for row, fields in _values(key, value):
        rows[row] = [fields]
    return pd.Series(rows, dtype=object)


def _values(key: pd.Series, value: pd.Series) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each row that has a group value, with the columns of GROUP_VALUE that are not NULL."""
    # Most records are commits, which the first two bytes of their keys show.
    is_commit = pc.is_in(pc.binary_slice(pa.array(key, pa.binary(), from_pandas=True), 0, 2), _COMMIT_KEYS)
    is_other = ~is_commit.to_numpy(zero_copy_only=False) & key.notna().to_numpy() & value.notna().to_numpy()
    for row in np.flatnonzero(is_other).tolist():
        try:
            key_type = decode_key(bytes(key.iloc[row])).key_type
            decoded = decode_value(key_type, bytes(value.iloc[row]))
        except DecodeError:
            continue
        if decoded is not None and key_type in _COLUMN_OF:
            fields = _with_members_decoded(decoded.fields) if key_type == KeyType.GROUP_METADATA else decoded.fields
            yield row, {"value_version": decoded.version, _COLUMN_OF[key_type]: fields}


def _with_members_decoded(value: Mapping[str, Any]) -> dict[str, Any]:
    is_consumer = value["protocol_type"] == _CONSUMER
    members = [
        {
            **member,
            "subscription": _subscription(member["subscription"]) if is_consumer else None,
            "assignment": _assignment(member["assignment"]) if is_consumer else None,
        }
        for member in value["members"]
    ]
    return {**value, "members": members}


def _subscription(data: bytes) -> dict[str, Any] | None:
    try:
        subscription = decode_subscription(data)
    except DecodeError:
        return None
    if subscription is None:
        return None
    fields = {name: getattr(subscription, name) for name in _SUBSCRIPTION.names}
    return {**fields, "topics": list(subscription.topics), "owned_partitions": listed_partitions(subscription.owned_partitions)}


def _assignment(data: bytes) -> list[dict[str, Any]] | None:
    """Return the partitions by topic, or an empty list if the member has none, which brokers also store as no bytes."""
    try:
        assignment = decode_assignment(data)
    except DecodeError:
        return None
    return [] if assignment is None else listed_partitions(assignment.partitions)
