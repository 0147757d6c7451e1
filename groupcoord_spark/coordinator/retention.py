"""How long offsets are kept: the broker's own settings, read from properties or from a word such as ``7d``."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.errors import UsageError

RETENTION_MINUTES = "offsets.retention.minutes"
CHECK_INTERVAL_MS = "offsets.retention.check.interval.ms"
CONSUMER_ASSIGNORS = "group.consumer.assignors"

_MINUTE_MS = 60_000
_UNITS_MS = {"ms": 1, "s": 1000, "m": _MINUTE_MS, "h": 60 * _MINUTE_MS, "d": 24 * 60 * _MINUTE_MS}
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """What the cleanup of offsets needs of a broker's configuration."""

    retention_ms: int
    check_interval_ms: int = 600_000
    default_assignor: str = "uniform"
    """First of group.consumer.assignors: what a consumer group uses whose members name none."""


def read_duration(text: str) -> int:
    """Milliseconds of ``7d``, ``36h``, ``90m``, ``30s`` or ``60000ms``. Raises UsageError."""
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h|d)\s*", text)
    if found is None:
        raise UsageError(f"retention {text!r} is not a duration. Write for example 10d, 240h or 14400m.")
    milliseconds = int(found[1]) * _UNITS_MS[found[2]]
    if milliseconds > _INT32_MAX * _MINUTE_MS:
        raise UsageError(f"retention {text!r} is longer than the longest that Kafka takes, {_INT32_MAX} minutes. Write for example 3650d.")
    return milliseconds


def read_settings(properties: Mapping[str, str], semantics: Semantics) -> RetentionSettings:
    """Settings from a broker's properties (keys that are not needed are left alone); what is missing takes that release's default.

    Raises UsageError where a value is no number in Kafka's range.
    """
    return RetentionSettings(
        retention_ms=_number(properties, RETENTION_MINUTES, semantics.default_retention_ms // _MINUTE_MS) * _MINUTE_MS,
        check_interval_ms=_number(properties, CHECK_INTERVAL_MS, 600_000),
        default_assignor=_assignor_name(properties.get(CONSUMER_ASSIGNORS, "")),
    )


def _number(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if not re.fullmatch(r"\s*\d+\s*", text) or not 1 <= int(text) <= _INT32_MAX:
        raise UsageError(f"{name} {text!r} is not a whole number from 1 to {_INT32_MAX}. Kafka's default is {default}.")
    return int(text)


def _assignor_name(listed: str) -> str:
    """Name of the first assignor; Kafka's own classes may be listed by class name."""
    first = listed.split(",")[0].strip()
    class_name = first.rsplit(".", 1)[-1]
    return {"": "uniform", "UniformAssignor": "uniform", "RangeAssignor": "range"}.get(class_name, first)
