"""What makes people lose offsets sooner than they expect, told of each offset: traps in the rules, not rules."""

from typing import NamedTuple

from groupcoord_spark.coordinator.expiration import CommitTimes, GroupFacts, OffsetExpiry

_NO_TIMESTAMP = -1


class Traps(NamedTuple):
    """Which traps an offset is in."""

    inherits_empty_time: bool
    """Committed while the group was Empty already: it ages from the moment the group became Empty (a restore lives short)."""
    topic_is_unsubscribed: bool
    """The group lives and no member subscribes to the topic: the offset expires under it."""
    is_simple_group: bool
    """No membership keeps it, only the next commit does, whether a reader is at work or not."""
    has_explicit_expiry: bool
    """A moment stored with the commit decides, whatever the retention is."""

    def names(self) -> list[str]:
        """Those it is in."""
        return [name for name, caught in zip(self._fields, self, strict=True) if caught]


NO_TRAPS = Traps(False, False, False, False)


def traps_of(group: GroupFacts, stored: CommitTimes, expiry: OffsetExpiry) -> Traps:
    """The traps of one committed offset. ``group`` as the cleanup judged it (``Cleanup.facts_of``)."""
    if expiry.blocked_by is not None:
        return NO_TRAPS
    rule = expiry.rule
    is_explicit = rule == "X-B0" or (rule == "X-A1" and stored.expire_timestamp_ms != _NO_TIMESTAMP)
    base_ms = expiry.base_timestamp_ms
    return Traps(
        inherits_empty_time=rule == "X-B1" and base_ms is not None and base_ms < stored.commit_timestamp_ms,
        # Before 2.1 nobody asks for subscriptions: there it is no trap of this offset but the rule for all.
        topic_is_unsubscribed=group.member_count > 0 and rule not in ("X-A0", "X-A1"),
        is_simple_group=group.group_type == "classic" and group.protocol_type is None,
        has_explicit_expiry=is_explicit,
    )
