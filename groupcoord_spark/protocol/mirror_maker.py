"""Decodes records of MirrorMaker's topics as its classes do, and formats them as CheckpointFormatter and OffsetSyncFormatter."""

import re
from collections.abc import Mapping
from typing import Any, Final

from groupcoord_spark.protocol import errors
from groupcoord_spark.protocol.definition import FieldReader
from groupcoord_spark.protocol.fields import Message
from groupcoord_spark.protocol.messages.mirror_maker import CHECKPOINT_KEY, CHECKPOINT_VALUE, OFFSET_SYNC_KEY, OFFSET_SYNC_VALUE

CHECKPOINTS_TOPIC: Final = re.compile(r"(?P<alias>.+?)(?P<separator>[._-]+)checkpoints(?P=separator)internal")
"""Names of the topics with checkpoints: the alias of the source cluster, and ``replication.policy.separator``."""
OFFSET_SYNCS_TOPIC: Final = re.compile(r"mm2-offset-syncs(?P<separator>[._-]+).+(?P=separator)internal")


def is_mirror_topic(topic: str) -> bool:
    """Return whether MirrorMaker keeps checkpoints or offset syncs in a topic of this name."""
    return CHECKPOINTS_TOPIC.fullmatch(topic) is not None or OFFSET_SYNCS_TOPIC.fullmatch(topic) is not None


def messages_of(topic: str) -> tuple[Message, Message]:
    """Return the messages of the keys and values in a topic of MirrorMaker."""
    is_checkpoint = CHECKPOINTS_TOPIC.fullmatch(topic) is not None
    return (CHECKPOINT_KEY, CHECKPOINT_VALUE) if is_checkpoint else (OFFSET_SYNC_KEY, OFFSET_SYNC_VALUE)


def decode_mirror_key(topic: str, key: bytes | None) -> dict[str, Any]:
    """Return the fields of a key. Bytes after them are ignored, as MirrorMaker does.

    Raises NullKey, KeyTruncated, KeyMalformed where the key cannot be decoded.
    """
    if key is None:
        raise errors.NullKey("The record has no key, and MirrorMaker's client fails at it.")
    return _fields(messages_of(topic)[0], key, 0, errors.KeyTruncated, errors.KeyMalformed)


def decode_mirror_value(topic: str, value: bytes) -> dict[str, Any]:
    """Return the fields of a value. The version of a checkpoint and bytes after the fields are ignored, as MirrorMaker does.

    Raises ValueTruncated, ValueMalformed where the value cannot be decoded.
    """
    message = messages_of(topic)[1]
    return _fields(message, value, 2 if message is CHECKPOINT_VALUE else 0, errors.ValueTruncated, errors.ValueMalformed)


def mirror_text(key: Mapping[str, Any], value: Mapping[str, Any]) -> str:
    """Return the text that Kafka's formatter prints for a record."""
    place = f"topicPartition={key['topic']}-{key['partition']}"
    offsets = f"upstreamOffset={value['upstream_offset']}, downstreamOffset={value['downstream_offset']}"
    if "group_id" not in key:
        return f"OffsetSync{{{place}, {offsets}}}"
    return f"Checkpoint{{consumerGroupId={key['group_id']}, {place}, {offsets}, metadata={value['metadata']}}}"


def _fields(
    message: Message, data: bytes, at: int, truncated: type[errors.DecodeError], malformed: type[errors.DecodeError]
) -> dict[str, Any]:
    try:
        return FieldReader(data, message, 0).read_struct(message.fields, at)[0]
    except errors.Underflow as fault:
        raise truncated(fault.sentence(message.name)) from fault
    except errors.FieldFault as fault:
        raise malformed(fault.sentence(message.name)) from fault
