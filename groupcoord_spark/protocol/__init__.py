"""The bytes of records of the offsets topic, decoded to values, and values encoded to bytes.

The room covers the keys and values of every record type that a Kafka release wrote, the bytes that members put into the records of their
groups, and transaction markers. ``messages`` declares the layout of every message as a table. ``definition`` reads and writes one record by
these tables, and it is the definition of correct. ``columnar`` and ``value_checks`` decode many records to columns with ``loops``, which
numba compiles; tests prove that the results are the same.

A record that cannot be decoded raises a DecodeError with a stable code. A record that is accepted with a doubt carries Doubts. Nothing here
opens a file, needs Spark or looks at a clock.
"""

from .consumer_protocol import (
    assigned_partitions,
    decode_assignment,
    decode_connect_assignment,
    decode_connect_metadata,
    decode_subscription,
    subscribed_topics,
)
from .definition import (
    UNKNOWN_TAGS,
    decode_end_transaction_marker,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    key_json,
    value_json,
)
from .errors import DecodeError, EncodeError, SubscriptionMalformed, SubscriptionUnknown
from .fields import ZERO_UUID
from .from_json import encode_key_json, encode_value_json
from .messages import RECORD_TYPES
from .partitioner import java_string_hash, offsets_partition_for
from .slices import Slices
