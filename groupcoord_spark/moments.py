"""Times and durations as users write them, in options, settings and arguments."""

import re
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from numbers import Integral
from typing import Final

from groupcoord_spark.errors import UsageError

Moment = datetime | date | str | int
"""A time: ISO 8601 or a datetime (UTC unless it says otherwise), a day, which begins in UTC, epoch milliseconds, or ``now``."""


@dataclass(frozen=True, slots=True)
class RunsAgo:
    """A run by its distance from the newest one: 1 is the last run the newest."""

    number: int


RunTime = int | RunsAgo
"""Which run: the newest one as of that time in epoch milliseconds or earlier, or by its distance from the newest."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MINUTE_MS: Final = 60_000
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": _MINUTE_MS, "h": 60 * _MINUTE_MS, "d": 24 * 60 * _MINUTE_MS}
_INT32_MAX: Final = 2**31 - 1


def milliseconds_of(moment: object) -> int:
    """Epoch milliseconds of a Moment. A time without a zone is one of UTC.

    Raises UsageError for an invalid time.
    """
    if isinstance(moment, bool):
        raise _no_time(moment)
    if isinstance(moment, Integral):
        return int(moment)
    if isinstance(moment, str):
        milliseconds = now_ms() if moment.strip() == "now" else written_time(moment.strip())
        if milliseconds is None:
            raise _no_time(moment)
        return milliseconds
    if not isinstance(moment, date):
        raise _no_time(moment)
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return _since_epoch(moment)


def written_time(text: str) -> int | None:
    """Epoch milliseconds of a number or an ISO 8601 time; None: the text is neither."""
    if is_number(text):
        return int(text)
    try:
        return _since_epoch(datetime.fromisoformat(text))
    except ValueError:
        return None


def is_number(text: str) -> bool:
    """Return whether the text is a whole number of at most 19 digits, like epoch milliseconds."""
    return re.fullmatch("-?[0-9]{1,19}", text) is not None


def now_ms() -> int:
    """Return the current time in epoch milliseconds."""
    return time.time_ns() // 1_000_000


def read_duration(text: str) -> int:
    """Return the milliseconds of a text such as ``7d``, ``36h``, ``90m``, ``30s`` or ``60000ms``. Raises UsageError for any other text."""
    duration = re.fullmatch(r"\s*([0-9]{1,19})\s*(ms|s|m|h|d)\s*", text)
    if duration is None:
        raise UsageError(f"retention {text!r} is not a duration. Write for example 10d, 240h or 14400m.")
    milliseconds = int(duration[1]) * _UNITS_MS[duration[2]]
    if milliseconds > _INT32_MAX * _MINUTE_MS:
        raise UsageError(f"retention {text!r} is longer than the longest that Kafka takes, {_INT32_MAX} minutes. Write for example 3650d.")
    return milliseconds


def retention_of(retention: timedelta | str | int) -> int:
    """Milliseconds of a retention; a number already has that unit. Raises UsageError as ``read_duration`` does."""
    if isinstance(retention, timedelta):
        return read_duration(f"{retention // _MILLISECOND}ms")
    return read_duration(f"{retention}ms" if type(retention) is int else str(retention))


def _since_epoch(moment: datetime) -> int:
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def _no_time(value: object) -> UsageError:
    return UsageError(f"{value!r} is not a time. Write for example 2026-11-20T03:00:00Z, a datetime, or a number of milliseconds.")
