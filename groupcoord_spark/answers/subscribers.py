"""The topics that the members of a group subscribe to, from the records of the group in order."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from groupcoord_spark.protocol.consumer_protocol import subscribed_topics
from groupcoord_spark.protocol.errors import DecodeError
from groupcoord_spark.protocol.record_types import KeyType

KEY_TYPES: Final = (KeyType.GROUP_METADATA, KeyType.CONSUMER_GROUP_MEMBER_METADATA, KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION)
"""Key types of the records that ``Subscribers`` reads."""


class Subscribers:
    """The subscriptions of one classic or consumer group. Apply the group's records in order, then ask ``has_subscriber``."""

    def __init__(self) -> None:
        self._classic_topics: frozenset[str] = frozenset()
        self._consumer_topics: dict[str, tuple[frozenset[str], str]] = {}
        """Member id -> topics by name, and the expression ('': none)."""
        self._matches: dict[str, frozenset[str]] = {}
        """Expression -> topics that match."""

    def apply(self, key_type: int, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        """Apply a record of one of the ``KEY_TYPES``, key and value as in Kafka's JSON. value: None: a tombstone."""
        if key_type == KeyType.GROUP_METADATA:
            # A group with another protocol type, such as Kafka Connect's, subscribes to no topic.
            members = value["members"] if value is not None and value["protocolType"] == "consumer" else ()
            self._classic_topics = frozenset().union(*(_topics(member["subscription"]) for member in members))
        elif key_type == KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION:
            self._matches.pop(key["regularExpression"], None)
            if value is not None:
                self._matches[key["regularExpression"]] = frozenset(value["topics"])
        else:
            self._consumer_topics.pop(key["memberId"], None)
            if value is not None:
                by_name = frozenset(value["subscribedTopicNames"] or ())
                self._consumer_topics[key["memberId"]] = by_name, value["subscribedTopicRegex"] or ""

    def has_subscriber(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, by its name or by an expression."""
        by_members = self._consumer_topics.values()
        return topic in self._classic_topics or any(
            topic in by_name or topic in self._matches.get(expression, ()) for by_name, expression in by_members
        )


def _topics(subscription: str) -> frozenset[str]:
    """Topics of a subscription in base64; empty where the bytes cannot be decoded."""
    try:
        return subscribed_topics(base64.b64decode(subscription))
    except (ValueError, DecodeError):
        return frozenset()
