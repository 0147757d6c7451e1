"""Times as users of notebooks write them."""

from __future__ import annotations

from datetime import UTC, datetime

from groupcoord_spark.errors import UsageError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds_of(moment: datetime | str | int) -> int:
    """Epoch milliseconds of a datetime, an ISO 8601 text or a number of milliseconds. A time without a zone is one of UTC.

    Raises UsageError for a text that is no time.
    """
    if isinstance(moment, int):
        return moment
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError:
            raise UsageError(f"{moment!r} is not a time. Write for example 2026-11-20T03:00:00Z, or a number of milliseconds.") from None
    since_epoch = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (since_epoch.days * 86_400 + since_epoch.seconds) * 1000 + since_epoch.microseconds // 1000
