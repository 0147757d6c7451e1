"""Durations that users write, such as ``7d``."""

import re

from groupcoord_spark.errors import UsageError

_MINUTE_MS = 60_000
_UNITS_MS = {"ms": 1, "s": 1000, "m": _MINUTE_MS, "h": 60 * _MINUTE_MS, "d": 24 * 60 * _MINUTE_MS}
_INT32_MAX = 2**31 - 1


def read_duration(text: str) -> int:
    """The milliseconds of a text such as ``7d``, ``36h``, ``90m``, ``30s`` or ``60000ms``. Raises UsageError for any other text."""
    duration = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|h|d)\s*", text)
    if duration is None:
        raise UsageError(f"retention {text!r} is not a duration. Write for example 10d, 240h or 14400m.")
    milliseconds = int(duration[1]) * _UNITS_MS[duration[2]]
    if milliseconds > _INT32_MAX * _MINUTE_MS:
        raise UsageError(f"retention {text!r} is longer than the longest that Kafka takes, {_INT32_MAX} minutes. Write for example 3650d.")
    return milliseconds
