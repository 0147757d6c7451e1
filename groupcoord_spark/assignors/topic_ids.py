"""Topic ids with their order and hash in Java, which the broker's assignors use."""

from functools import lru_cache
from typing import NamedTuple

from groupcoord_spark.assignors.membership import Topics
from groupcoord_spark.protocol.primitives import uuid_bytes


class TopicId(NamedTuple):
    """A topic id as two signed 64-bit numbers. Ids are ordered by the higher half, then by the lower half."""

    high: int
    low: int

    def java_hash(self) -> int:
        """Uuid.hashCode of Kafka's clients, as an unsigned 32-bit number."""
        folded = (self.high ^ self.low) & 0xFFFFFFFFFFFFFFFF
        return (folded >> 32) ^ (folded & 0xFFFFFFFF)


def topic_id_of(topic: str, topics: Topics) -> TopicId:
    """Return the id of a topic.

    Raises:
        ValueError: the topic has no id, or its id is not 22 characters of base64url.
    """
    text = topics[topic].topic_id
    if text is None:
        raise ValueError(f"Topic {topic!r} has no id. The broker's uniform assignor goes by topic ids: give it one.")
    return parse_topic_id(text)


@lru_cache(maxsize=1 << 12)
def parse_topic_id(text: str) -> TopicId:
    """Parse a topic id from its 22 characters.

    Raises:
        ValueError: the text is not base64url of 16 bytes.
    """
    raw = uuid_bytes(text)
    return TopicId(int.from_bytes(raw[:8], "big", signed=True), int.from_bytes(raw[8:], "big", signed=True))
