"""The settings of streams groups: those of the broker, and those that an administrator has given to one group."""

from __future__ import annotations

from typing import Any, Final

from groupcoord_spark.simulator.broker.broker import Broker

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

_INITIAL_DELAY: Final = "streams.initial.rebalance.delay.ms"
_DEFAULT_INITIAL_DELAY_MS: Final = 3_000


def streams_setting(broker: Broker, group_id: str, name: str) -> Any:
    """A setting of a streams group, else the broker's; 0 or "" for one that the release does not know. name: of ``SETTINGS_OF_GROUPS``."""
    if name in SETTINGS_SINCE_4_4 and not broker.release.has_streams_of_4_4:
        return "" if name == RACK_AWARE_TAGS_OF_GROUP else 0
    of_group = broker.group_settings.get(group_id, {})
    if name in of_group:
        return of_group[name]
    if name == _INITIAL_DELAY and of_group and broker.release.group_settings_hide_streams_delay:
        return _DEFAULT_INITIAL_DELAY_MS
    if name == "streams.assignment.interval.ms":
        return broker.assignment_interval_ms("streams")
    return getattr(broker.settings, f"group_{name.replace('.', '_')}")
