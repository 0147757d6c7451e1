"""Bytes of the offsets topic to values and back.

Keys and values of every record type a Kafka release wrote, what members put into their groups' records, and transaction markers. What a
message looks like is declared in ``messages``; ``scalar`` reads and writes one record by those tables and is the definition of correct.
Two faster decoders say the same, which tests prove: ``compiled`` (``decode_key`` and ``decode_value`` here) gives one record as Python
values, ``columnar`` and ``survey`` give many records as columns, by the compiled ``loops``. A record that cannot be read raises a
DecodeError with a stable code; one that is accepted with a doubt carries Findings. No files, no Spark, no clock.
"""

from .compiled import decode_key, decode_value, key_json_texts, value_json_texts
from .consumer_protocol import (
    Assignment,
    ConnectAssignment,
    ConnectMetadata,
    StickyUserData,
    Subscription,
    assigned_partitions,
    decode_assignment,
    decode_connect_assignment,
    decode_connect_metadata,
    decode_cooperative_sticky_generation,
    decode_sticky_user_data,
    decode_subscription,
    subscribed_topics,
)
from .errors import DecodeError, EncodeError, Finding, SubscriptionMalformed, SubscriptionUnknown
from .fields import ZERO_UUID
from .from_json import encode_key_json, encode_value_json
from .messages import RECORD_TYPES
from .partitioner import java_string_hash, offsets_partition_for
from .scalar import (
    UNKNOWN_TAGS,
    DecodedKey,
    DecodedValue,
    decode_control_key,
    decode_end_transaction_marker,
    encode_key,
    encode_value,
    key_json,
    value_json,
)
from .slices import Slices

__all__ = [
    "RECORD_TYPES",
    "UNKNOWN_TAGS",
    "ZERO_UUID",
    "Assignment",
    "ConnectAssignment",
    "ConnectMetadata",
    "DecodeError",
    "DecodedKey",
    "DecodedValue",
    "EncodeError",
    "Finding",
    "Slices",
    "StickyUserData",
    "Subscription",
    "SubscriptionMalformed",
    "SubscriptionUnknown",
    "assigned_partitions",
    "decode_assignment",
    "decode_connect_assignment",
    "decode_connect_metadata",
    "decode_control_key",
    "decode_cooperative_sticky_generation",
    "decode_end_transaction_marker",
    "decode_key",
    "decode_sticky_user_data",
    "decode_subscription",
    "decode_value",
    "encode_key",
    "encode_key_json",
    "encode_value",
    "encode_value_json",
    "java_string_hash",
    "key_json",
    "key_json_texts",
    "offsets_partition_for",
    "subscribed_topics",
    "value_json",
    "value_json_texts",
]
