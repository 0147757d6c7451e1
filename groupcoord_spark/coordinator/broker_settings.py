"""The broker settings on which the coordinator's rules depend, from a server.properties file."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from groupcoord_spark.coordinator.semantics import TOPOLOGY_DESCRIPTION_PLUGIN, Semantics
from groupcoord_spark.errors import UsageError

RETENTION_MINUTES: Final = "offsets.retention.minutes"
OFFSETS_PARTITIONS: Final = "offsets.topic.num.partitions"
CONSUMER_ASSIGNORS: Final = "group.consumer.assignors"
SHARE_ASSIGNORS: Final = "group.share.assignors"
DELETE_RETENTION: Final = "log.cleaner.delete.retention.ms"

SETTINGS_OF_RUNS: Final = (OFFSETS_PARTITIONS, CONSUMER_ASSIGNORS, SHARE_ASSIGNORS, TOPOLOGY_DESCRIPTION_PLUGIN, DELETE_RETENTION)
"""Settings that the table ``runs`` keeps as the user gave them. The retention has a column of its own."""

_MINUTE_MS: Final = 60_000
_INT32_MAX: Final = 2**31 - 1

_OFTEN_MISTAKEN: Final = (RETENTION_MINUTES, OFFSETS_PARTITIONS, CONSUMER_ASSIGNORS, TOPOLOGY_DESCRIPTION_PLUGIN)
"""Settings whose similar unknown names count as misspellings. For all other settings only a name with one or two wrong letters does."""
_SIMILAR: Final = 0.8
_VERY_SIMILAR: Final = 0.9
_PREFIX_OF_LISTENER: Final = "listener.name."


class DefaultAssignors(NamedTuple):
    """The assignors for groups whose members name none: the first assignors in the broker's lists."""

    consumer: str = "uniform"
    share: str = "simple"


KAFKAS_ASSIGNORS: Final = DefaultAssignors()


class DeleteRetention(NamedTuple):
    """The least time that a tombstone stays in the log after the cleaner has met it, and the source of this value.

    Source: TopicConfig.DELETE_RETENTION_MS_CONFIG and its default.
    """

    ms: int = 86_400_000
    source: str = "Kafka's default"

    def __str__(self) -> str:
        return f"{self.ms:,} ms, {self.source}"


KAFKAS_DELETE_RETENTION: Final = DeleteRetention()


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The broker settings that the rules need.

    offsets_partitions: Number of partitions of ``__consumer_offsets``; None: the file does not have the setting.
    """

    retention_ms: int
    default_assignors: DefaultAssignors = KAFKAS_ASSIGNORS
    offsets_partitions: int | None = None
    delete_retention: DeleteRetention = KAFKAS_DELETE_RETENTION


def read_broker_settings(properties: Mapping[str, str], semantics: Semantics) -> BrokerSettings:
    """Read the settings in a broker's properties. A missing setting gets the release's default; settings that no rule needs are ignored.

    Raises:
        UsageError: Kafka would not accept a value.
    """
    delete_retention_ms = _number(properties, DELETE_RETENTION)
    return BrokerSettings(
        retention_ms=(_number(properties, RETENTION_MINUTES) or semantics.default_retention_ms // _MINUTE_MS) * _MINUTE_MS,
        default_assignors=DefaultAssignors(
            consumer=_first_assignor(properties, CONSUMER_ASSIGNORS, {"UniformAssignor": "uniform", "RangeAssignor": "range"}),
            share=_first_assignor(properties, SHARE_ASSIGNORS, {"SimpleAssignor": "simple"}),
        ),
        offsets_partitions=_number(properties, OFFSETS_PARTITIONS),
        delete_retention=DeleteRetention(delete_retention_ms, "by the settings file") if delete_retention_ms else KAFKAS_DELETE_RETENTION,
    )


def refuse_misspelled_names(properties: Mapping[str, str]) -> None:
    """Raises UsageError for a misspelled name of a Kafka setting, and for properties without any Kafka setting.

    Other unknown names are accepted, because plugins of a broker have settings of their own.
    """
    kafka_names = kafka_setting_names()
    for name in properties:
        if name not in kafka_names and not name.startswith(_PREFIX_OF_LISTENER):
            meant = _meant_name(name)
            if meant is not None:
                raise UsageError(f"{name!r} is not a setting of a Kafka broker. Did you mean {meant}?")
    if not any(name in kafka_names or name.startswith(_PREFIX_OF_LISTENER) for name in properties):
        raise UsageError("no line is a setting of a Kafka broker. Give a server.properties, or a file like conf/coordinator.properties.")


@cache
def kafka_setting_names() -> frozenset[str]:
    """Return the names of all broker settings in the releases 0.8.2 to 4.4."""
    return frozenset((files(__package__) / "broker_setting_names.txt").read_text(encoding="utf-8").split())


def _meant_name(name: str) -> str | None:
    """Return the Kafka setting that the name probably misspells, or None if no setting has a similar name."""
    candidates = [kafka_name for kafka_name in sorted(kafka_setting_names()) if kafka_name.count(".") == name.count(".")]
    nearest = get_close_matches(name, candidates, n=1, cutoff=_SIMILAR)
    is_likely = nearest and (nearest[0] in _OFTEN_MISTAKEN or get_close_matches(name, nearest, cutoff=_VERY_SIMILAR))
    return nearest[0] if is_likely else None


def _number(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"\s*[0-9]{1,10}\s*", text) or not 1 <= int(text) <= _INT32_MAX:
        raise UsageError(f"{name} {text!r} is not a whole number from 1 to {_INT32_MAX}.")
    return int(text)


def _first_assignor(properties: Mapping[str, str], setting: str, names_of_classes: Mapping[str, str]) -> str:
    """Return the name of the first assignor in a broker's list. An assignor outside of Kafka is named by its class.

    names_of_classes: class -> name of Kafka's own assignors, which a list may name either way; the first one is the default.
    """
    first = properties.get(setting, "").split(",")[0].strip()
    names = list(names_of_classes.values())
    if not first:
        return names[0]
    if "." in first:
        return names_of_classes.get(first.rsplit(".", 1)[-1], first)
    if first not in names:
        raise UsageError(f"{setting} begins with {first!r}, which is neither one of {', '.join(names)} nor the name of a class.")
    return first
