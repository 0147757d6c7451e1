"""The broker's settings a group depends on, and the topics it knows."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from groupcoord_spark.errors import UsageError

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero uuid, as Kafka writes it: no topic id."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic the broker knows: its partitions, and its id (base64url, 22 characters) since it has one."""

    partitions: int
    topic_id: str = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class Settings:
    """Broker settings by Kafka's names, with Kafka's defaults. None: the default of the simulated release."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int | None = None
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int | None = None
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    topics: Mapping[str, Topic] | None = None
    """Topics that exist; None: any topic and partition does, and none has an id."""

    def knows(self, topic: str, partition: int) -> bool:
        """Whether commits to this partition are let through."""
        if self.topics is None:
            return True
        known = self.topics.get(topic)
        return known is not None and 0 <= partition < known.partitions

    def topic_id(self, topic: str) -> str:
        """The topic's id, the zero id if it is not known."""
        known = self.topics.get(topic) if self.topics is not None else None
        return known.topic_id if known is not None else NO_TOPIC_ID


_MINUTE_MS = 60_000
_PROPERTIES = {
    "group.min.session.timeout.ms": ("group_min_session_timeout_ms", 1),
    "group.max.session.timeout.ms": ("group_max_session_timeout_ms", 1),
    "group.initial.rebalance.delay.ms": ("group_initial_rebalance_delay_ms", 1),
    "group.max.size": ("group_max_size", 1),
    "offset.metadata.max.bytes": ("offset_metadata_max_bytes", 1),
    "offsets.retention.minutes": ("offsets_retention_ms", _MINUTE_MS),
    "offsets.retention.check.interval.ms": ("offsets_retention_check_interval_ms", 1),
    "offsets.topic.num.partitions": ("offsets_topic_num_partitions", 1),
}


def read_settings(properties: Mapping[str, str | int], topics: Mapping[str, Topic] | None = None) -> Settings:
    """Settings from a broker's properties by Kafka's names; what is missing takes its default.

    Raises UsageError for a property no group depends on, and for a value that is no whole number.
    """
    values: dict[str, Any] = {}
    for name, value in properties.items():
        if name not in _PROPERTIES:
            raise UsageError(f"Setting {name!r} is not one a simulated group depends on. Known are {', '.join(sorted(_PROPERTIES))}.")
        field, unit = _PROPERTIES[name]
        try:
            values[field] = int(value) * unit
        except ValueError:
            raise UsageError(f"{name} {value!r} is not a whole number.") from None
    return replace(Settings(topics=topics), **values)


MemberIds = Callable[[str], str]
"""Makes a new member id of a client id (dynamic members) or an instance id (static ones)."""


def numbered_member_ids() -> MemberIds:
    """Member ids in the broker's own shape, ``name-UUID``, whose UUID only counts: the same run gives the same ids."""

    def count() -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number

    numbers = count()
    return lambda name: f"{name}-{uuid.UUID(int=next(numbers))}"
