"""Offsets and groups that the coordinator's cleanup removes, with the time and the rule of docs/reference/expiration-rules.md.

Kafka: ``OffsetMetadataManager.cleanupExpiredOffsets``, ``OffsetExpirationConditionImpl``, ``GroupMetadataManager.maybeDeleteGroup``.

Times are integers in milliseconds. Kafka computes ages in 64 bits, so a very large age becomes negative, here as well. Commits that a live
broker has not yet written are not in the log, so the rules about these commits (X-A3, X-S1) never apply here.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, Protocol

from groupcoord_spark.coordinator.semantics import JAVA, Semantics
from groupcoord_spark.coordinator.state import GroupRow, PartitionState
from groupcoord_spark.coordinator.transactions import TopicPartition
from groupcoord_spark.protocol import encode_key
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP, KeyType

OFFSET_EXPIRED = "offset_expired"
GROUP_REMOVED = "group_removed"

SUBSCRIBED = "subscribed"
LIVE_GROUP = "live_group"
UNKNOWN_SUBSCRIPTION = "unknown_subscription"
PENDING_TRANSACTION = "pending_transaction"
SHARE_GROUP = "share_group"
TOPOLOGY_DESCRIPTION = "topology_description"
FAILING_CLEANUP = "failing_cleanup"
MEMBERS = "members"
OFFSETS = "offsets"

_INT64_MAX = 2**63 - 1


class Commit(Protocol):
    """The fields of a committed offset that decide when the offset expires; -1: none."""

    @property
    def commit_timestamp_ms(self) -> int:
        """When the offset was committed."""

    @property
    def expire_timestamp_ms(self) -> int:
        """The expiry that the commit asked for."""


class CommitTimes(NamedTuple):
    """A ``Commit`` without its other fields."""

    commit_timestamp_ms: int
    expire_timestamp_ms: int


class GroupFacts(NamedTuple):
    """The fields of a group that decide when the group and its offsets expire."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str | None
    generation: int
    member_count: int
    state_timestamp_ms: int | None
    subscribed_topics: frozenset[str] | None
    """None: not known. Streams groups: source and repartition topics of the topology, with or without members."""
    regular_expressions: tuple[str, ...] = ()
    """All regular expressions that have a record, including unused ones: each record needs a tombstone."""
    has_stored_description: bool = False
    """Streams groups: the broker's plugin has, or may have, a description of the topology."""
    has_producer_left_open: bool = False
    """Whether a producer counts as open for the group although a tombstone removed its pending offsets (Java 3.8.0 to 4.0.0)."""

    @staticmethod
    def of_row(row: GroupRow) -> "GroupFacts":
        """Return the facts in a row of the table ``groups``."""
        facts = GroupFacts._make(_FACTS_OF_ROW(row))
        return facts if row.subscribed_topics is None else facts._replace(subscribed_topics=frozenset(row.subscribed_topics))


_FACTS_OF_ROW = attrgetter(*GroupFacts._fields)


class OffsetExpiry(NamedTuple):
    """Expiry time and rule of one committed offset."""

    group_id: str
    topic: str
    partition: int
    base_timestamp_ms: int | None
    """Start of the offset's age. None if an explicit expiry decides, or if the offset does not expire."""
    expires_at_ms: int | None
    """Time of the first cleanup that removes the offset; None if never in the group's present state."""
    expired: bool
    rule: str
    blocked_by: str | None


class GroupExpiry(NamedTuple):
    """Removal time and rule of one group, if a cleanup removes it."""

    group_id: str
    removed: bool
    removed_at_ms: int | None
    """Time of the first cleanup that removes the group: now for a group without offsets, None if never in its present state."""
    rule: str | None
    """None: the cleanup of this broker removes no group."""
    blocked_by: str | None
    """The reason why the group stays for now; ``offsets`` also where offsets will expire later."""
    tombstone_count: int
    """Records that this cleanup appends for the group and its offsets."""


class Tombstone(NamedTuple):
    """A record without value that a cleanup appends. topic and partition are None for a tombstone of the group."""

    group_id: str
    key_type: int
    topic: str | None
    partition: int | None
    reason: str
    key: bytes


class GroupCleanup(NamedTuple):
    """Everything that a cleanup does to one group.

    facts: The group as the cleanup sees it. offsets: Sorted by topic and partition. tombstones: In the broker's append order.
    """

    facts: GroupFacts
    offsets: list[OffsetExpiry]
    group: GroupExpiry
    tombstones: list[Tombstone]


@dataclass(frozen=True, slots=True)
class Cleanup:
    """One execution of the coordinator's cleanup: its time, the retention and the broker's rules."""

    now_ms: int
    retention_ms: int
    semantics: Semantics = JAVA
    assume_members_gone: bool = False
    """Treat groups with members as if the last member had been fenced at now_ms: the log cannot show that a member is dead (R-4.3)."""
    with_tombstones: bool = True
    """False: tombstones of offsets are counted only, which saves half of the time where many offsets expire."""

    def of_partition(self, state: PartitionState) -> Iterator[GroupCleanup]:
        """Yield the cleanup of every group of an offsets partition, sorted by group id. A cleanup ignores orphan offsets (X-G5)."""
        pending: dict[str, set[TopicPartition]] = {}
        for group_id, topic, partition in state.pending_by_partition():
            pending.setdefault(group_id, set()).add((topic, partition))
        groups = state.groups()
        fails = any(self.fails_over(group.group_type, state.offsets_of(group.group_id)) for group in groups)
        for group in groups:
            yield self.of_group(group, state.offsets_of(group.group_id), pending.get(group.group_id, ()), fails=fails)

    def fails_over(self, group_type: str, offsets: Collection[TopicPartition]) -> bool:
        """Return whether a group of this type with these offsets makes the cleanup of the whole offsets partition fail (X-C3)."""
        return self.semantics.share_offsets_fail_cleanup and group_type == "share" and bool(offsets)

    def of_group(
        self,
        group: GroupFacts | GroupRow,
        offsets: Mapping[TopicPartition, Commit],
        pending: Collection[TopicPartition],
        *,
        fails: bool = False,
    ) -> GroupCleanup:
        """Return the cleanup of one group.

        offsets: (topic, partition) -> committed offset. pending: (topic, partition) of the group's offsets in open transactions, of any
        producer. fails: the cleanup of the offsets partition fails (``fails_over``), so that nothing of it is removed.
        """
        group = self.facts_of(group)
        expiries = [
            self.expiry_of(group, topic, partition, stored, is_pending=(topic, partition) in pending)
            for (topic, partition), stored in sorted(offsets.items(), key=lambda item: item[0])
        ]
        removed, removed_at_ms, rule, blocked_by = self._removal(group, expiries, bool(pending))
        if fails:
            expiries = [
                expiry if expiry.expires_at_ms is None else expiry._replace(expires_at_ms=None, expired=False, blocked_by=FAILING_CLEANUP)
                for expiry in expiries
            ]
            if blocked_by in (None, OFFSETS):
                removed, removed_at_ms, blocked_by = False, None, FAILING_CLEANUP
        expired = [expiry for expiry in expiries if expiry.expired]
        tombstones = list(self._group_tombstones(group)) if removed else []
        group_expiry = GroupExpiry(group.group_id, removed, removed_at_ms, rule, blocked_by, len(expired) + len(tombstones))
        if self.with_tombstones:
            tombstones = [*map(self._offset_tombstone, expired), *tombstones]
        return GroupCleanup(group, expiries, group_expiry, tombstones)

    def facts_of(self, group: GroupFacts | GroupRow) -> GroupFacts:
        """Return the facts about the group that this cleanup uses.

        With ``assume_members_gone`` a group with members is Empty since now_ms and subscribes to no topic, as after its last member left.
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

    def expiry_of(self, group: GroupFacts, topic: str, partition: int, stored: Commit, *, is_pending: bool) -> OffsetExpiry:
        """Return the expiry of one committed offset. is_pending: a transaction with a commit of the offset is open."""
        rule, blocked_by, base_ms = self._rule_for(group, topic, stored)
        expires_at_ms: int | None = None
        if blocked_by is None:
            if rule == "X-A0":
                expires_at_ms = self._due(base_ms, self.retention_ms + 1)
            elif rule == "X-A1":
                # Brokers up to 2.0 expire an offset only after its expire time, hence 1 ms more.
                if stored.expire_timestamp_ms != NO_TIMESTAMP:
                    base_ms, expires_at_ms = None, _sum(stored.expire_timestamp_ms, 1)
                else:
                    expires_at_ms = _sum(stored.commit_timestamp_ms, self.retention_ms + 1)
            elif stored.expire_timestamp_ms != NO_TIMESTAMP:
                rule, base_ms, expires_at_ms = "X-B0", None, stored.expire_timestamp_ms
            else:
                expires_at_ms = self._due(base_ms, self.retention_ms)
            if is_pending and self.semantics.pending_protects:
                rule, blocked_by, expires_at_ms = "X-J1", PENDING_TRANSACTION, None
        expired = expires_at_ms is not None and self.now_ms >= expires_at_ms
        return OffsetExpiry(group.group_id, topic, partition, base_ms, expires_at_ms, expired, rule, blocked_by)

    def _rule_for(self, group: GroupFacts, topic: str, stored: Commit) -> tuple[str, str | None, int | None]:
        """(rule, blocked_by, base_timestamp_ms) of an offset, before explicit expiry and pending transactions are looked at."""
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
        """Return when ``now - base_ms`` first reaches ``after_ms``, or None if the time or the subtraction overflows 64 bits."""
        if base_ms is None or self.now_ms - base_ms > _INT64_MAX:
            return None
        return _sum(base_ms, after_ms)

    def _removal(
        self, group: GroupFacts, expiries: list[OffsetExpiry], has_pending: bool
    ) -> tuple[bool, int | None, str | None, str | None]:
        """(removed, removed_at_ms, rule, blocked_by) of a group, for GroupExpiry."""
        rule = self.semantics.group_rule
        if rule is None or rule == "X-G0":
            # Kafka 0.9 writes the tombstone when the last member leaves, and its cleanup looks at offsets only.
            return False, None, rule, MEMBERS if group.member_count else None
        if group.group_type == "share":
            return False, None, "X-C3", SHARE_GROUP
        if group.has_stored_description and self.semantics.stored_description_keeps_group:
            # The broker first has the plugin delete the description. This reason comes before MEMBERS, because it is the only sign of the
            # description in the state tables.
            return False, None, rule, TOPOLOGY_DESCRIPTION
        if group.state != "Empty":
            return False, None, rule, MEMBERS
        keeps = self.semantics.pending_keeps_group
        if (has_pending or group.has_producer_left_open) and (keeps == "always" or (keeps == "beside_committed" and expiries)):
            return False, None, rule, PENDING_TRANSACTION
        if not expiries:
            return True, self.now_ms, rule, None
        moments = [expiry.expires_at_ms for expiry in expiries if expiry.expires_at_ms is not None]
        removed_at_ms = max(moments) if len(moments) == len(expiries) else None
        removed = removed_at_ms is not None and self.now_ms >= removed_at_ms
        return removed, removed_at_ms, rule, None if removed else OFFSETS

    def _offset_tombstone(self, expiry: OffsetExpiry) -> Tombstone:
        key_type = self.semantics.offset_tombstone_key_type
        key = encode_key(key_type, {"group_id": expiry.group_id, "topic": expiry.topic, "partition": expiry.partition})
        return Tombstone(expiry.group_id, key_type, expiry.topic, expiry.partition, OFFSET_EXPIRED, key)

    def _group_tombstones(self, group: GroupFacts) -> Iterator[Tombstone]:
        """Tombstones of a group without members (X-G3). Scala writes a tombstone only where the group has completed a generation."""
        if self.semantics.group_rule == "X-G1" and group.generation <= 0:
            return
        for key_type in _TOMBSTONES_OF_GROUP[group.group_type]:
            keys = [{"group_id": group.group_id}]
            if key_type == KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION:
                keys = [{"group_id": group.group_id, "regular_expression": regex} for regex in group.regular_expressions]
            for key in keys:
                yield Tombstone(group.group_id, key_type, None, None, GROUP_REMOVED, encode_key(key_type, key))


_TOMBSTONES_OF_GROUP = {
    "classic": (KeyType.GROUP_METADATA,),
    "consumer": (
        KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
        KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION,
        KeyType.CONSUMER_GROUP_PARTITION_METADATA,
        KeyType.CONSUMER_GROUP_METADATA,
    ),
    "streams": (KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, KeyType.STREAMS_GROUP_METADATA, KeyType.STREAMS_GROUP_TOPOLOGY),
}
"""Group type -> key types of the tombstones, in the broker's append order."""


def _unless_subscribed(rule: str, group: GroupFacts, topic: str, commit_ms: int) -> tuple[str, str | None, int | None]:
    """(rule, blocked_by, base_timestamp_ms): blocked by ``subscribed`` where a member subscribes to the topic."""
    if group.subscribed_topics is not None and topic in group.subscribed_topics:
        return rule, SUBSCRIBED, None
    return rule, None, commit_ms


def _sum(moment_ms: int, more_ms: int) -> int | None:
    """Return the sum of two times, or None if it exceeds 64 bits, so that the time never comes."""
    total = moment_ms + more_ms
    return total if total <= _INT64_MAX else None
