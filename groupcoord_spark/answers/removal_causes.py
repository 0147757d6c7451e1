"""The removals of offsets and groups, each with its probable cause and the facts behind it: rows of the view ``tombstone_causes``.

No record names a cause, so a cause can be wrong in the cases that docs/reference/rebalances.md lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

Cause = Literal["expiry", "delete_groups", "topic_deletion", "offset_delete", "conversion", "unknown"]


class Place(NamedTuple):
    """An offsets partition of one incarnation of ``__consumer_offsets``."""

    incarnation: int
    offsets_partition: int

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Place:
        """The place of a row of a history table."""
        return cls(row["incarnation"], row["offsets_partition"])


class OffsetRemoval(NamedTuple):
    """A tombstone of a committed offset."""

    place: Place
    group_id: str
    topic: str
    partition: int
    record_offset: int
    """Of the tombstone."""
    gone_ms: int | None
    cause: Cause
    value_offset: int | None
    """Record offset of the last commit before the tombstone, even from before an earlier tombstone; None: no commit is known."""
    commit_ms: int | None
    expire_ms: int | None
    base_ms: int | None
    """The time from which the offset's age counted: its last commit, or the time at which the group became Empty."""
    groups_at_once: int | None
    """Number of groups that lost offsets of the topic at the same time; None: the cause does not depend on other groups."""
    offsets_kept: int | None
    """Number of offsets of the topic, of any group, that existed before and afterwards; None: the cause does not depend on other groups."""
    had_expired: bool = False
    """Whether the offset was old enough for a cleanup to take it."""
    group_removed: bool = False
    """Whether the same write removed the group."""
    had_subscriber: bool = False
    """Whether a member subscribed to the topic, so that nothing but the deletion of the topic could take the offset."""
    metadata_shows: str | None = None
    """The clause by which the cluster's metadata shows that the topic was deleted; None: the metadata was not copied, or does not."""

    @property
    def due_by(self) -> Literal["commit", "empty", "explicit"]:
        """The start of an expired offset's age: its last commit, or the group became empty; or an explicit expiry decided."""
        if self.expire_ms is not None:
            return "explicit"
        return "commit" if self.base_ms == self.commit_ms else "empty"

    @property
    def age_ms(self) -> int | None:
        """Time from the start of the age (of an explicit expiry: from that time) to the tombstone; for other causes from the last commit.

        None: not known.
        """
        since_ms = self.commit_ms
        if self.cause == "expiry":
            since_ms = self.base_ms if self.expire_ms is None else self.expire_ms
        return None if since_ms is None or self.gone_ms is None else self.gone_ms - since_ms


class GroupRemoval(NamedTuple):
    """A tombstone of a group itself."""

    place: Place
    group_id: str
    record_offset: int
    gone_ms: int | None
    key_type: int
    cause: Cause
    with_offsets: bool
    """Whether the same write removed offsets of the group."""
