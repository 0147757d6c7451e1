"""The broker settings that groups depend on, the overrides of single streams groups, and the topics that exist."""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Any, Final

from groupcoord_spark.assignors.group import stand_in_topic_id
from groupcoord_spark.coordinator.releases import Release, release_named, version_text
from groupcoord_spark.errors import UsageError

NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero uuid in Kafka's text form: no topic id."""


@dataclass(frozen=True, slots=True)
class ClusterTopic:
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
    offsets_commit_timeout_ms: int = 5_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignment_interval_ms: int | None = None
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_max_size: int = 200
    group_share_assignment_interval_ms: int | None = None
    group_streams_session_timeout_ms: int = 45_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_max_size: int = 2_147_483_647
    group_streams_num_standby_replicas: int = 0
    group_streams_initial_rebalance_delay_ms: int = 3_000
    group_streams_assignment_interval_ms: int | None = None
    group_streams_task_offset_interval_ms: int = 60_000
    group_streams_acceptable_recovery_lag: int = 10_000
    group_streams_num_warmup_replicas: int = 2
    group_streams_rack_aware_assignment_tags: str = ""
    group_consumer_migration_policy: str = "bidirectional"
    offsets_topic_is_missing: bool = False
    """``__consumer_offsets`` does not exist at the start: the first FindCoordinator has it created."""
    log_message_format_version: str | None = None
    """Log message format of brokers 0.11 to 2.8; None for the release's own format."""
    topics: Mapping[str, ClusterTopic] | None = None
    """Name -> topic, for the topics that exist. None: every topic and partition exists, and no topic has an id."""

    def has_partition(self, topic: str, partition: int) -> bool:
        """Return whether the partition exists. The broker passes only commits for existing partitions to the coordinator."""
        if self.topics is None:
            return True
        existing = self.topics.get(topic)
        return existing is not None and 0 <= partition < existing.partitions

    def has_old_message_format(self, release: Release) -> bool:
        """Return whether the offsets topic uses a message format without transactions (before 0.11). Brokers ignore the setting since
        3.0."""
        version = self.log_message_format_version
        return version is not None and release < (3, 0) and release_named(version) < (0, 11)

    @property
    def allows_upgrades(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self.group_consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def allows_downgrades(self) -> bool:
        """Whether a consumer group whose members all use the classic protocol becomes a classic group."""
        return self.group_consumer_migration_policy in ("bidirectional", "downgrade")

    def with_topic(self, topic: str, partitions: int) -> "Settings":
        """Return the settings with this partition count for a topic, whether or not it already exists.

        Raises:
            UsageError: every topic exists already, or the topic exists and has as many partitions.
        """
        if self.topics is None:
            raise UsageError(f"Topic {topic!r} cannot change where every topic exists: name the topics that exist at the start.")
        existing = self.topics.get(topic)
        if existing is not None and existing.partitions >= partitions:
            raise UsageError(f"Topic {topic!r} has {existing.partitions} partitions already: a topic can only get more.")
        changed = ClusterTopic(partitions, stand_in_topic_id(topic)) if existing is None else replace(existing, partitions=partitions)
        return replace(self, topics={**self.topics, topic: changed})

    def without_topic(self, topic: str) -> "Settings":
        """Return the settings without a topic, unless every topic exists."""
        if self.topics is None:
            return self
        return replace(self, topics={name: existing for name, existing in self.topics.items() if name != topic})

    def topic_id(self, topic: str) -> str:
        """Return the topic's id, or the zero id for an unknown topic."""
        existing = self.topics.get(topic) if self.topics is not None else None
        return existing.topic_id if existing is not None else NO_TOPIC_ID


SETTINGS_OF_GROUPS: Final = (
    "streams.session.timeout.ms",
    "streams.heartbeat.interval.ms",
    "streams.num.standby.replicas",
    "streams.initial.rebalance.delay.ms",
    "streams.assignment.interval.ms",
    "streams.task.offset.interval.ms",
    "streams.acceptable.recovery.lag",
    "streams.num.warmup.replicas",
    "streams.rack.aware.assignment.tags",
)
"""Settings of a group (``kafka-configs --group``). Each takes the place of the broker's, whose name has ``group.`` before it.

The last four came with 4.4. 4.4.0 makes no warm-up tasks yet, whatever their number.
"""
RACK_AWARE_TAGS_OF_GROUP: Final = "streams.rack.aware.assignment.tags"
SETTINGS_SINCE_4_4: Final = SETTINGS_OF_GROUPS[-4:]
INITIAL_DELAY_OF_GROUP: Final = "streams.initial.rebalance.delay.ms"

MESSAGE_FORMAT = "log.message.format.version"
MIGRATION_POLICY = "group.consumer.migration.policy"
RACK_AWARE_TAGS = "group.streams.rack.aware.assignment.tags"
MIGRATION_POLICIES = ("bidirectional", "upgrade", "downgrade", "disabled")
_RETENTION = "offsets.retention.minutes"
_MINUTE_MS = 60_000
_TEXTS = {
    MESSAGE_FORMAT: "log_message_format_version",
    MIGRATION_POLICY: "group_consumer_migration_policy",
    RACK_AWARE_TAGS: "group_streams_rack_aware_assignment_tags",
}
"""Kafka's name of each text -> its field of Settings."""
_NO_NUMBERS = (*_TEXTS.values(), "offsets_retention_ms", "offsets_topic_is_missing", "topics")
_NUMBERS = {field.name.replace("_", "."): (field.name, 1) for field in fields(Settings) if field.name not in _NO_NUMBERS}
_NUMBERS[_RETENTION] = ("offsets_retention_ms", _MINUTE_MS)
"""Kafka's name of each number -> its field of Settings, and how many of the field's unit make one of Kafka's."""


def read_settings(properties: Mapping[str, str | int], topics: Mapping[str, ClusterTopic] | None = None) -> Settings:
    """Settings from broker properties with Kafka's names; a property that is missing has its default.

    Raises:
        UsageError: groups do not depend on the property, or the value is not a whole number.
    """
    values: dict[str, Any] = {}
    for name, value in properties.items():
        if name in _TEXTS:
            values[_TEXTS[name]] = _read_text(name, str(value))
            continue
        if name not in _NUMBERS:
            names = ", ".join(sorted([*_NUMBERS, *_TEXTS]))
            raise UsageError(f"Setting {name!r} is not one a simulated group depends on. Known are {names}.")
        field, unit = _NUMBERS[name]
        try:
            values[field] = int(value) * unit
        except ValueError:
            raise UsageError(f"{name} {value!r} is not a whole number.") from None
    return replace(Settings(topics=topics), **values)


def _read_text(name: str, value: str) -> str:
    if name == MESSAGE_FORMAT:
        return version_text(release_named(value))
    if name == MIGRATION_POLICY:
        if value.lower() not in MIGRATION_POLICIES:
            raise UsageError(f"{name} {value!r} is not one of {', '.join(MIGRATION_POLICIES)}.")
        return value.lower()
    return value


def property_values(settings: Settings) -> dict[str, int | str | None]:
    """Kafka's name of each property -> its value in Kafka's unit; None: the default of the simulated release."""
    texts = {name: getattr(settings, field) or None for name, field in _TEXTS.items()}
    numbers = {name: (getattr(settings, field), unit) for name, (field, unit) in _NUMBERS.items()}
    return {**{name: None if value is None else value // unit for name, (value, unit) in numbers.items()}, **texts}


MemberIds = Callable[[str], str]
"""Makes a new member id from the client id (dynamic member) or from the instance id (static member)."""


def numbered_member_ids() -> MemberIds:
    """Return a generator of member ids in the broker's form ``name-UUID``, with a counter instead of a random UUID.

    The same requests get the same member ids. The counter is common to all groups, and member ids decide the order of the broker's map of
    members: a request of one group can change which member of another group becomes the next leader. In Kafka that is random.
    """

    numbers = count(1)
    return lambda name: f"{name}-{uuid.UUID(int=next(numbers))}"
