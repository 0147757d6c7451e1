"""The settings of streams groups: those of the broker, and those that an administrator has given to one group."""

from __future__ import annotations

from typing import Final, TypeVar

from groupcoord_spark.simulator.broker.broker import Broker

T = TypeVar("T", int, str)

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

DEFAULT_INITIAL_DELAY_MS: Final = 3_000


def session_timeout_ms(broker: Broker, group_id: str) -> int:
    """How long a member may be silent."""
    return _of_group(broker, group_id, "streams.session.timeout.ms", broker.settings.group_streams_session_timeout_ms)


def heartbeat_interval_ms(broker: Broker, group_id: str) -> int:
    """The time between two heartbeats of a member."""
    return _of_group(broker, group_id, "streams.heartbeat.interval.ms", broker.settings.group_streams_heartbeat_interval_ms)


def standby_replicas(broker: Broker, group_id: str) -> int:
    """How many standbys a task with state has."""
    return _of_group(broker, group_id, "streams.num.standby.replicas", broker.settings.group_streams_num_standby_replicas)


def initial_delay_ms(broker: Broker, group_id: str) -> int:
    """How long an Empty group waits for more members after the first one."""
    of_broker = broker.settings.group_streams_initial_rebalance_delay_ms
    is_hidden = broker.release.group_settings_hide_streams_delay and group_id in broker.group_settings
    return _of_group(broker, group_id, "streams.initial.rebalance.delay.ms", DEFAULT_INITIAL_DELAY_MS if is_hidden else of_broker)


def assignment_interval_ms(broker: Broker, group_id: str) -> int:
    """The time between two target assignments."""
    return _of_group(broker, group_id, "streams.assignment.interval.ms", broker.assignment_interval_ms("streams"))


def task_offset_interval_ms(broker: Broker, group_id: str) -> int:
    """The time after which a client reports the offsets of its tasks; 0: the release does not say it."""
    return _since_4_4(broker, group_id, "streams.task.offset.interval.ms", broker.settings.group_streams_task_offset_interval_ms, 0)


def acceptable_recovery_lag(broker: Broker, group_id: str) -> int:
    """How far a client may be behind to count as caught up; 0: the release does not say it."""
    return _since_4_4(broker, group_id, "streams.acceptable.recovery.lag", broker.settings.group_streams_acceptable_recovery_lag, 0)


def rack_aware_tags(broker: Broker, group_id: str) -> list[str]:
    """The client tags by which standbys are to be distributed."""
    tags = _since_4_4(broker, group_id, RACK_AWARE_TAGS_OF_GROUP, broker.settings.group_streams_rack_aware_assignment_tags, "")
    return [tag.strip() for tag in tags.split(",") if tag.strip()]


def _since_4_4(broker: Broker, group_id: str, name: str, of_broker: T, of_older_release: T) -> T:
    return _of_group(broker, group_id, name, of_broker) if broker.release.has_streams_of_4_4 else of_older_release


def _of_group(broker: Broker, group_id: str, name: str, of_broker: T) -> T:
    value: T = broker.group_settings.get(group_id, {}).get(name, of_broker)  # type: ignore[assignment]
    return value
