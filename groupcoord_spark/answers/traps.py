"""The reasons why an offset expires sooner than people expect: consequences of the rules, no rules of their own."""

from typing import NamedTuple

from groupcoord_spark.coordinator.expiration import Commit, GroupFacts, OffsetExpiry
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP


class Traps(NamedTuple):
    """The traps of one offset."""

    inherits_empty_time: bool
    """The offset was committed while the group was Empty, so its age counts from the earlier time at which the group became Empty."""
    topic_is_unsubscribed: bool
    """The group has members, and no member subscribes to the topic: the offset expires although the group is in use."""
    is_simple_group: bool
    """The group has no members: the offset expires without another commit, even while a client reads the partition."""
    has_explicit_expiry: bool
    """A time that was stored with the commit decides, whatever the retention is."""

    def names(self) -> list[str]:
        """Return the names of the caveats that apply."""
        return [name for name, is_true in zip(self._fields, self, strict=True) if is_true]


NO_TRAPS = Traps(False, False, False, False)


def traps_of(group: GroupFacts, stored: Commit, expiry: OffsetExpiry) -> Traps:
    """Return the expiry caveats of one committed offset. ``group``: the facts that the cleanup used (``Cleanup.facts_of``)."""
    if expiry.blocked_by is not None:
        return NO_TRAPS
    rule = expiry.rule
    is_explicit = rule == "X-B0" or (rule == "X-A1" and stored.expire_timestamp_ms != NO_TIMESTAMP)
    base_ms = expiry.base_timestamp_ms
    return Traps(
        inherits_empty_time=rule == "X-B1" and base_ms is not None and base_ms < stored.commit_timestamp_ms,
        # Before 2.1 a subscription protects no offset, so a missing subscription is not a caveat.
        topic_is_unsubscribed=group.member_count > 0 and rule not in ("X-A0", "X-A1"),
        is_simple_group=group.group_type == "classic" and group.protocol_type is None,
        has_explicit_expiry=is_explicit,
    )
