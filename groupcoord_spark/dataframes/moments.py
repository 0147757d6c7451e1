"""Times and durations as users of notebooks write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from numbers import Integral

from groupcoord_spark.coordinator.retention import read_duration
from groupcoord_spark.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

Moment = datetime | date | str | int
"""A time: with a zone, or ISO 8601 (UTC unless the text says otherwise), or a day, which begins in UTC, or epoch milliseconds."""


def milliseconds_of(moment: object) -> int:
    """Epoch milliseconds of a Moment. A time without a zone is one of UTC.

    Raises UsageError for what is no time.
    """
    if isinstance(moment, bool):
        raise _no_time(moment)
    if isinstance(moment, Integral):
        return int(moment)
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError:
            raise _no_time(moment) from None
    if not isinstance(moment, date):
        raise _no_time(moment)
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def retention_of(retention: timedelta | str) -> int:
    """Milliseconds of a retention. Raises UsageError for what is no duration, and for one that Kafka does not take."""
    return read_duration(f"{retention // _MILLISECOND}ms" if isinstance(retention, timedelta) else str(retention))


def _no_time(given: object) -> UsageError:
    return UsageError(f"{given!r} is not a time. Write for example 2026-11-20T03:00:00Z, a datetime, or a number of milliseconds.")
