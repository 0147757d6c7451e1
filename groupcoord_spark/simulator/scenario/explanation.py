"""The settings of a scenario: its own and the defaults of its releases."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from groupcoord_spark.simulator.broker.release import Release
from groupcoord_spark.simulator.broker.settings import property_values
from groupcoord_spark.simulator.scenario.language import BROKER_SETTINGS, MEMBER_SETTINGS, shown_setting
from groupcoord_spark.simulator.scenario.reading import Scenario


class ExplainedSetting(NamedTuple):
    """A setting with its value. who: ``broker``, or the members that have the value, separated by commas."""

    who: str
    setting: str
    value: str
    meaning: str


def explained_settings(scenario: Scenario, release: Release) -> list[ExplainedSetting]:
    """Return the broker and member settings that affect the outcome, without those that have no value."""
    return [*_of_broker(scenario, release), *_of_members(scenario)]


def _of_broker(scenario: Scenario, release: Release) -> Iterator[ExplainedSetting]:
    yield ExplainedSetting("broker", "version", release.semantics.broker_version, "The release whose coordinator answers.")
    values = property_values(scenario.settings)
    defaults: Mapping[str, int] = {
        **{f"group.{kind}.assignment.interval.ms": release.assignment_interval_ms for kind in ("consumer", "share", "streams")},
        "group.max.session.timeout.ms": release.max_session_timeout_ms,
        "offsets.retention.minutes": release.semantics.default_retention_ms // 60_000,
    }
    for key in BROKER_SETTINGS:
        value = values[key.name] if values[key.name] is not None else defaults.get(key.name)
        if value is not None:
            yield ExplainedSetting("broker", key.name, str(value), key.meaning)


def _of_members(scenario: Scenario) -> Iterator[ExplainedSetting]:
    for key in MEMBER_SETTINGS:
        members_by_value: dict[Any, list[str]] = {}
        for name, settings in scenario.members.items():
            value = getattr(settings, key.name.replace(".", "_"))
            if value not in (None, "", ()):
                members_by_value.setdefault(value, []).append(name)
        for value, members in members_by_value.items():
            who = "all members" if len(members) == len(scenario.members) > 1 else ", ".join(members)
            yield ExplainedSetting(who, key.name, shown_setting(key.kind, value), key.meaning)
