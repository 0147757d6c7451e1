"""State of a group that outlives its generations: had it members, who had a partition before, which partitions were added to a topic."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Final

from groupcoord_spark.coordinator.groups.group import Value
from groupcoord_spark.coordinator.rebalances.group_records import NOT_KNOWN
from groupcoord_spark.coordinator.rebalances.moves import PartitionSet, union_of

_LONGEST_HANDOVER_MS: Final = 3_600_000
"""Former assignments are kept for this long."""


class GroupLife(ABC):
    """One group from its first record to its tombstone. Partitions are named by topic, or by topic id in groups of KIP-848."""

    group_type: str
    protocol_type: str | None

    def __init__(self) -> None:
        self.had_members = False
        self.is_removed = False
        self.removed_at_ms = NOT_KNOWN
        self._former: deque[tuple[int, Mapping[str, PartitionSet]]] = deque()
        """The end of each earlier assignment, and the partitions of the members whose assignment changed then."""
        self._known_partitions: set[tuple[str, int]] = set()
        """All that a member ever had."""
        self._partition_counts: dict[str, int] = {}
        """Topic -> one more than the highest partition that a member ever had; connector -> one more than its highest task."""
        self._added_later: set[tuple[str, int]] = set()
        """Partitions that the group was first assigned after it already had other partitions of the topic."""

    @property
    @abstractmethod
    def generation(self) -> int | None:
        """The newest generation or group epoch; None: no record has one."""

    @property
    @abstractmethod
    def members(self) -> Mapping[str, Value]:
        """Member id -> value, after the newest record."""

    @property
    @abstractmethod
    def state_timestamp_ms(self) -> int | None:
        """When a classic group took its state; None: the record does not say."""

    @property
    @abstractmethod
    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that members subscribe to; None: not known."""

    @abstractmethod
    def partitions_of(self, member_id: str) -> PartitionSet:
        """Return the partitions that the member is assigned."""

    def former_owner(self, topic: str, topic_id: str | None, partition: int, at_ms: int) -> str | None:
        """Return the member that had the partition before its present owner and may still process its records; None: there is none.

        The member is still in the group. It left the partition no longer ago than its rebalance timeout (max.poll.interval.ms): a member
        that does not poll for that long is removed from the group.
        """
        place, members = self._place(topic, topic_id, partition), self.members
        for until_ms, assignments in reversed(self._former):
            for member_id, partitions in assignments.items():
                if place in partitions and member_id in members and place not in self.partitions_of(member_id):
                    has_owner = any(place in self.partitions_of(other) for other in members)
                    return member_id if has_owner and at_ms - until_ms <= _rebalance_timeout_ms(members[member_id]) else None
        return None

    def has_new(self, topic: str, topic_id: str | None, partition: int) -> bool:
        """Return whether the partition was added to the topic while the group read it."""
        return self._place(topic, topic_id, partition) in self._added_later

    def _place(self, topic: str, topic_id: str | None, partition: int) -> tuple[str, int]:
        return (topic if self.group_type == "classic" else topic_id or "", partition)

    def _end_assignments(self, timestamp_ms: int, ended: Mapping[str, PartitionSet]) -> None:
        """Note the partitions that members had until now, and forget what was long ago."""
        self._former.append((timestamp_ms, ended))
        while timestamp_ms - self._former[0][0] > _LONGEST_HANDOVER_MS:
            self._former.popleft()

    def _new_partitions(self, partitions_after: Mapping[str, PartitionSet]) -> list[tuple[str, int]]:
        """Return the partitions with higher numbers than any member has had so far, and record them as known."""
        counts, other_partitions = self._partition_counts, union_of(partitions_after.values()) - self._known_partitions
        self._known_partitions |= other_partitions
        new_partitions = [place for place in other_partitions if place[1] >= counts.get(place[0], NOT_KNOWN)]
        self._added_later.update(place for place in new_partitions if place[0] in counts)
        for topic, partition in new_partitions:
            counts[topic] = max(partition + 1, counts.get(topic, NOT_KNOWN))
        return new_partitions


def _rebalance_timeout_ms(member: Value) -> int:
    timeout_ms: int = member.get("rebalance_timeout_ms") or 0
    # Records of old brokers have no rebalance timeout: then it is the session timeout.
    return timeout_ms if timeout_ms >= 0 else member.get("session_timeout_ms") or 0
