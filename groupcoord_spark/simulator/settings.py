"""The broker settings that groups depend on, and the topics that exist."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from groupcoord_spark.errors import UsageError

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero uuid in Kafka's text form: no topic id."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the cluster: its number of partitions, and its topic id (base64url, 22 characters)."""

    partitions: int
    topic_id: str = NO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class Settings:
    """Broker settings with Kafka's names and defaults. None: the default of the simulated release."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int | None = None
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int | None = None
    offsets_retention_check_interval_ms: int = 600_000
    offsets_topic_num_partitions: int = 50
    topics: Mapping[str, Topic] | None = None
    """Name -> topic, for the topics that exist. None: every topic and partition exists, and no topic has an id."""

    def has_partition(self, topic: str, partition: int) -> bool:
        """Whether the partition exists, so that the broker passes commits for it to the coordinator."""
        if self.topics is None:
            return True
        known = self.topics.get(topic)
        return known is not None and 0 <= partition < known.partitions

    def topic_id(self, topic: str) -> str:
        """The topic's id; the zero id if the topic is unknown."""
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
    """Settings from broker properties with Kafka's names; a property that is missing has its default.

    Raises:
        UsageError: groups do not depend on the property, or the value is not a whole number.
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
"""Makes a new member id from the client id (dynamic member) or from the instance id (static member)."""


def numbered_member_ids() -> MemberIds:
    """A maker of member ids in the broker's form, ``name-UUID``, with a counter instead of a random UUID.

    The same requests get the same member ids. The counter is common to all groups, and member ids decide the order of the broker's map of
    members: a request of one group can change which member of another group becomes the next leader. In Kafka that is random.
    """

    def count() -> Iterator[int]:
        number = 0
        while True:
            number += 1
            yield number

    numbers = count()
    return lambda name: f"{name}-{uuid.UUID(int=next(numbers))}"
