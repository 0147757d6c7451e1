"""What a cleanup of offsets removes, when, and why not: every rule of every era, over state that has been replayed.

Times are integers in milliseconds. Kafka computes ages in 64 bits that wrap; so does this. Commits that a live broker has in flight are not
in the log, so the rules about them (X-A3, X-S1) never apply here.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from groupcoord_spark.coordinator.semantics import JAVA, Semantics
from groupcoord_spark.coordinator.state import GroupRow, PartitionState
from groupcoord_spark.coordinator.transactions import TopicPartition
from groupcoord_spark.protocol import encode_key

OFFSET_EXPIRED = "offset_expired"
GROUP_REMOVED = "group_removed"

SUBSCRIBED = "subscribed"
LIVE_GROUP = "live_group"
UNKNOWN_SUBSCRIPTION = "unknown_subscription"
PENDING_TRANSACTION = "pending_transaction"
SHARE_GROUP = "share_group"
TOPOLOGY_DESCRIPTION = "topology_description"
MEMBERS = "members"
OFFSETS = "offsets"

_INT64_MAX = 2**63 - 1
_NO_TIMESTAMP = -1


class CommitTimes(Protocol):
    """What expiration asks of a committed offset; a StoredOffset has it."""

    @property
    def commit_timestamp_ms(self) -> int: ...

    @property
    def expire_timestamp_ms(self) -> int:
        """-1: none asked for."""


class GroupFacts(NamedTuple):
    """What expiration asks of a group."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str | None
    generation: int
    member_count: int
    state_timestamp_ms: int | None
    subscribed_topics: frozenset[str] | None
    """None: cannot be known. Streams groups: source and repartition topics of the topology, members or not."""
    regular_expressions: tuple[str, ...] = ()
    """Every stored one, used or not: each has a record, so each needs a tombstone."""
    has_stored_description: bool = False
    """Streams groups: the broker's plugin holds, or may hold, a description of the topology."""

    @staticmethod
    def of_row(row: GroupRow) -> "GroupFacts":
        return GroupFacts(
            group_id=row.group_id,
            group_type=row.group_type,
            state=row.state,
            protocol_type=row.protocol_type,
            generation=row.generation,
            member_count=row.member_count,
            state_timestamp_ms=row.state_timestamp_ms,
            subscribed_topics=None if row.subscribed_topics is None else frozenset(row.subscribed_topics),
            regular_expressions=row.regular_expressions,
            has_stored_description=row.has_stored_description,
        )


class OffsetExpiry(NamedTuple):
    """When one committed offset expires, and by which rule."""

    group_id: str
    topic: str
    partition: int
    base_timestamp_ms: int | None
    """What its age counts from; None: it has no age (an explicit expiry, or nothing expires it)."""
    expires_at_ms: int | None
    """First moment at which a cleanup removes it; None: never in its present state."""
    expired: bool
    rule: str
    blocked_by: str | None


class GroupExpiry(NamedTuple):
    """Whether a cleanup removes the group."""

    group_id: str
    removed: bool
    removed_at_ms: int | None
    """First cleanup that removes it; None: never in its present state. A group that holds nothing goes with any cleanup: then it is now."""
    rule: str | None
    """None: that broker removes no group."""
    blocked_by: str | None
    """What keeps it for now; ``offsets`` also where they are only not yet due."""
    tombstone_count: int
    """Records this cleanup appends for the group, those of offsets included."""


class Tombstone(NamedTuple):
    """A record without value that a cleanup appends; topic and partition only for offsets."""

    group_id: str
    key_type: int
    topic: str | None
    partition: int | None
    reason: str
    key: bytes


class GroupCleanup(NamedTuple):
    """Everything a cleanup does to one group: its offsets by (topic, partition), itself, and the records in the order they are appended."""

    offsets: list[OffsetExpiry]
    group: GroupExpiry
    tombstones: list[Tombstone]


@dataclass(frozen=True, slots=True)
class Cleanup:
    """One run of the cleanup: its clock, the retention and the broker."""

    now_ms: int
    retention_ms: int
    semantics: Semantics = JAVA
    assume_members_gone: bool = False
    """Judge live groups as if their last member had been fenced at now: the log cannot tell a dead member from a quiet one (R-4.3)."""
    with_tombstones: bool = True
    """False: tombstones of offsets are counted and not made, which is half of the work where many expire."""

    def of_partition(self, state: PartitionState) -> Iterator[GroupCleanup]:
        """The cleanup of every group of an offsets partition, by group id. Orphan offsets are not seen (X-G5)."""
        pending: dict[str, set[TopicPartition]] = {}
        for group_id, topic, partition in state.pending_by_partition():
            pending.setdefault(group_id, set()).add((topic, partition))
        for group in state.groups():
            yield self.of_group(group, state.offsets_of(group.group_id), pending.get(group.group_id, ()))

    def of_group(
        self, group: GroupFacts | GroupRow, offsets: Mapping[TopicPartition, CommitTimes], pending: Collection[TopicPartition]
    ) -> GroupCleanup:
        """The cleanup of one group, from its row or the few facts of it that matter.

        ``pending``: (topic, partition) of its offsets in open transactions, of any producer.
        """
        group = self.facts_of(group)
        expiries = [
            self._expiry_of(group, topic, partition, stored, (topic, partition) in pending)
            for (topic, partition), stored in sorted(offsets.items(), key=lambda item: item[0])
        ]
        expired = [expiry for expiry in expiries if expiry.expired]
        removal = self._removal_of(group, expiries, bool(pending))
        of_group = list(self._group_tombstones(group)) if removal.removed else []
        removal = removal._replace(tombstone_count=len(expired) + len(of_group))
        if not self.with_tombstones:
            return GroupCleanup(expiries, removal, of_group)
        return GroupCleanup(expiries, removal, [*map(self._offset_tombstone, expired), *of_group])

    def facts_of(self, group: GroupFacts | GroupRow) -> GroupFacts:
        """The group as this cleanup judges it: as stored, or as the coordinator leaves it when the last member is gone.

        Then it is Empty since now, and subscribed to nothing.
        """
        if isinstance(group, GroupRow):
            group = GroupFacts.of_row(group)
        if not self.assume_members_gone or group.group_type == "share" or not group.member_count:
            return group
        return group._replace(
            state="Empty",
            member_count=0,
            generation=group.generation + 1,
            state_timestamp_ms=self.now_ms if group.group_type == "classic" else None,
            subscribed_topics=frozenset(),
            regular_expressions=(),
        )

    def _expiry_of(self, group: GroupFacts, topic: str, partition: int, stored: CommitTimes, is_pending: bool) -> OffsetExpiry:
        rule, blocked_by, base_ms = self._rule_for(group, topic, stored)
        expires_at_ms: int | None = None
        if blocked_by is None:
            if rule == "X-A0":
                expires_at_ms = self._due(base_ms, self.retention_ms + 1)
            elif rule == "X-A1":
                # Brokers of that time fixed the moment when they loaded the partition; it has to be past, not reached.
                if stored.expire_timestamp_ms != _NO_TIMESTAMP:
                    base_ms, expires_at_ms = None, _sum(stored.expire_timestamp_ms, 1)
                else:
                    expires_at_ms = _sum(stored.commit_timestamp_ms, self.retention_ms + 1)
            elif stored.expire_timestamp_ms != _NO_TIMESTAMP:
                rule, base_ms, expires_at_ms = "X-B0", None, stored.expire_timestamp_ms
            else:
                expires_at_ms = self._due(base_ms, self.retention_ms)
            if is_pending and self.semantics.pending_protects:
                rule, blocked_by, expires_at_ms = "X-J1", PENDING_TRANSACTION, None
        expired = expires_at_ms is not None and self.now_ms >= expires_at_ms
        return OffsetExpiry(group.group_id, topic, partition, base_ms, expires_at_ms, expired, rule, blocked_by)

    def _rule_for(self, group: GroupFacts, topic: str, stored: CommitTimes) -> tuple[str, str | None, int | None]:
        """Rule, what keeps the offset from it, and what the age counts from."""
        commit_ms = stored.commit_timestamp_ms
        if self.semantics.offset_rules != "X-B":
            return self.semantics.offset_rules, None, commit_ms
        if group.group_type == "share":
            return "X-C3", SHARE_GROUP, None
        if group.group_type == "consumer":
            return _unless_subscribed("X-C1", group, topic, commit_ms)
        if group.group_type == "streams":
            return ("X-C2", None, commit_ms) if group.state == "Empty" else _unless_subscribed("X-C2", group, topic, commit_ms)
        if group.protocol_type is None:
            return "X-B2", None, commit_ms
        if group.state == "Empty":
            return "X-B1", None, commit_ms if group.state_timestamp_ms is None else group.state_timestamp_ms
        if group.protocol_type != "consumer" or not self.semantics.expires_unsubscribed:
            return "X-B4", LIVE_GROUP, None
        if group.subscribed_topics is None:
            return "X-B4", UNKNOWN_SUBSCRIPTION, None
        return _unless_subscribed("X-B3", group, topic, commit_ms)

    def _due(self, base_ms: int | None, after_ms: int) -> int | None:
        """Moment from which ``now - base`` reaches ``after_ms``; None where the subtraction wraps, or the moment is beyond 64 bits."""
        if base_ms is None or self.now_ms - base_ms > _INT64_MAX:
            return None
        return _sum(base_ms, after_ms)

    def _removal_of(self, group: GroupFacts, expiries: list[OffsetExpiry], has_pending: bool) -> GroupExpiry:
        kept = GroupExpiry(group.group_id, False, None, self.semantics.group_rule, None, 0)
        if self.semantics.group_rule is None or self.semantics.group_rule == "X-G0":
            # 0.9 writes the tombstone when the last member leaves; its cleanups look at offsets alone.
            return kept._replace(blocked_by=MEMBERS if group.member_count else None)
        if group.group_type == "share":
            return kept._replace(rule="X-C3", blocked_by=SHARE_GROUP)
        if group.has_stored_description and self.semantics.stored_description_keeps_group:
            # The broker has the description deleted first, and then writes that it is. Members or not: the state of a night tells by this
            # word alone that there is a description.
            return kept._replace(blocked_by=TOPOLOGY_DESCRIPTION)
        if group.state != "Empty":
            return kept._replace(blocked_by=MEMBERS)
        if has_pending and (expiries or self.semantics.pending_offsets_alone_keep_group):
            return kept._replace(blocked_by=PENDING_TRANSACTION)
        if not expiries:
            return kept._replace(removed=True, removed_at_ms=self.now_ms)
        moments = [expiry.expires_at_ms for expiry in expiries if expiry.expires_at_ms is not None]
        removed_at_ms = max(moments) if len(moments) == len(expiries) else None
        removed = removed_at_ms is not None and self.now_ms >= removed_at_ms
        return kept._replace(removed=removed, removed_at_ms=removed_at_ms, blocked_by=None if removed else OFFSETS)

    def _offset_tombstone(self, expiry: OffsetExpiry) -> Tombstone:
        key_type = self.semantics.offset_tombstone_key_type
        key = encode_key(key_type, {"group_id": expiry.group_id, "topic": expiry.topic, "partition": expiry.partition})
        return Tombstone(expiry.group_id, key_type, expiry.topic, expiry.partition, OFFSET_EXPIRED, key)

    def _group_tombstones(self, group: GroupFacts) -> Iterator[Tombstone]:
        """X-G3, for a group without members. Scala writes one only where a generation was ever completed."""
        if self.semantics.group_rule == "X-G1" and group.generation <= 0:
            return
        for key_type in _GROUP_KEY_TYPES[group.group_type]:
            for own in [{"regular_expression": regex} for regex in group.regular_expressions] if key_type == _REGEX_KEY_TYPE else [{}]:
                key = encode_key(key_type, {"group_id": group.group_id, **own})
                yield Tombstone(group.group_id, key_type, None, None, GROUP_REMOVED, key)


_REGEX_KEY_TYPE = 16
_GROUP_KEY_TYPES = {"classic": (2,), "consumer": (6, _REGEX_KEY_TYPE, 4, 3), "streams": (20, 17, 23)}


def _unless_subscribed(rule: str, group: GroupFacts, topic: str, commit_ms: int) -> tuple[str, str | None, int | None]:
    if group.subscribed_topics is not None and topic in group.subscribed_topics:
        return rule, SUBSCRIBED, None
    return rule, None, commit_ms


def _sum(moment_ms: int, more_ms: int) -> int | None:
    """A moment later than 64 bits can say never comes."""
    total = moment_ms + more_ms
    return total if total <= _INT64_MAX else None
