"""How brokers differ in what they load and expire, as values.

Nothing else in the coordinator asks for a release: whatever depends on one is a field here, with the rule it belongs to.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from groupcoord_spark.coordinator.releases import Release, release_named
from groupcoord_spark.errors import UsageError

DAY_MS = 24 * 60 * 60 * 1000

_CLASSIC_KEY_TYPES = frozenset({0, 1, 2})
_KEY_TYPES_4_0 = _CLASSIC_KEY_TYPES | frozenset(range(3, 9)) | frozenset(range(10, 15)) | {16}
_KEY_TYPES_4_1 = _KEY_TYPES_4_0 | {15, 17} | frozenset(range(19, 24))

OffsetRules = Literal["X-A0", "X-A1", "X-B"]
GroupRule = Literal["X-G0", "X-G1", "X-G2"]

TOPOLOGY_DESCRIPTION_PLUGIN = "group.streams.topology.description.plugin.class"
"""Setting of brokers since 4.4 (KIP-1331): the class that stores descriptions of topologies; without it they store none."""


@dataclass(frozen=True, slots=True)
class Semantics:
    """What one kind of broker makes of the records. Made by ``semantics_for``, not by hand."""

    name: Literal["java", "scala"]
    broker_version: str
    """The version as the user wrote it, for people to read."""
    release: Release
    """The release that it stands for: 4.2 stands for (4, 2, 2)."""

    # What its loader reads.
    known_key_types: frozenset[int] = _KEY_TYPES_4_1
    unknown_key_type_fails_load: bool = False
    newest_offset_value: tuple[int, int] = (0, 4)
    """Highest value version accepted under key type 0 and under key type 1; -1: the key type is not known."""
    newest_group_value: int = 4
    written_offset_value: int = 4
    """Version of the values it writes for commits that ask for no expiry of their own."""

    # Offsets and transactions.
    producer_id_means_transaction: bool = True
    """Java takes any batch with a producer id as transactional, Scala goes by the transactional bit."""
    tombstone_drops_pending: bool = True
    """A tombstone reaches the committed offset and every pending one; Scala's stays inside or outside of the transaction."""
    unknown_marker_aborts: bool = False
    keeps_topic_ids: bool = True

    # Groups (R-1.3, R-1.25, replay.md 2).
    groups_live_from_first_commit: bool = True
    """Java makes a simple group at the first commit; Scala builds groups after the last record."""
    stored_minus_one_means_session_timeout: bool = True
    state_without_members: Literal["Empty", "Stable"] = "Empty"
    fails_over_subscriptions: bool = True
    """Whether a member's subscription that cannot be parsed fails the load (R-2.4). Before 2.4 none is parsed; 4.2.2 and 4.4 go on."""
    takes_state_timestamp_of_value_3: bool = True
    """2.3.0 to 2.6.0 take the state timestamp from GroupMetadataValue version 2 alone, although they write version 3."""

    # Groups of the new protocols (R-3.x).
    initial_epoch: int = 1
    initial_validated_topology_epoch: int = 0
    streams_group_may_replace_simple: bool = True
    newer_epoch_takes_partitions_over: bool = True
    """A member with a higher epoch takes a partition from its owner, who may then give it up without owning it. False: both are refused
    (R-3.14 before KAFKA-19862)."""
    checks_target_assignment_epoch: bool = True
    """Whether the epoch and the timestamp of a target assignment must make sense (R-3.12)."""
    validates_topology: bool = True
    """Whether the group record says which topology was found ready; before 4.2 no streams group with members is ready after a load."""
    describes_pending_revocation: bool = True
    """Whether ConsumerGroupDescribe counts partitions that a member has yet to give up as assigned to the member."""

    # Expiration.
    offset_rules: OffsetRules = "X-B"
    expires_unsubscribed: bool = True
    pending_protects: bool = True
    pending_offsets_alone_keep_group: bool = True
    """Whether a group whose only offsets are in open transactions stays (KAFKA-19163)."""
    stored_description_keeps_group: bool = False
    """Whether a streams group stays while the broker's plugin holds a description of its topology (KIP-1331)."""
    group_rule: GroupRule | None = "X-G2"
    offset_tombstone_key_type: int = 1
    default_retention_ms: int = 7 * DAY_MS

    def accepts_value(self, key_type: int, value_version: int) -> bool:
        """Whether this broker loads an offset or a classic group (key types 0 to 2) of that value version (R-1.9).

        What it does not accept changes nothing when replayed, so it must not supersede an earlier record either.
        """
        return 0 <= value_version <= (*self.newest_offset_value, self.newest_group_value)[key_type]

    def with_settings(self, properties: Mapping[str, str]) -> "Semantics":
        """The semantics of a broker with these settings; most settings change no rule."""
        has_plugin = self.release >= (4, 4) and bool(properties.get(TOPOLOGY_DESCRIPTION_PLUGIN, "").strip())
        return replace(self, stored_description_keeps_group=has_plugin)


def _java(release: Release, text: str) -> Semantics:
    before_4_1 = release < (4, 1)
    before_4_2 = release < (4, 2)
    before_4_3 = release < (4, 3)
    return Semantics(
        name="java",
        broker_version=text,
        release=release,
        known_key_types=_KEY_TYPES_4_0 if before_4_1 else _KEY_TYPES_4_1,
        newest_offset_value=(4, 4) if before_4_1 else (0, 4),
        written_offset_value=3 if before_4_1 else 4,
        fails_over_subscriptions=release < (4, 4) and release != (4, 2, 2),
        initial_epoch=0 if before_4_3 else 1,
        initial_validated_topology_epoch=0 if release < (4, 4) else -1,
        streams_group_may_replace_simple=release >= (4, 2, 1),  # KAFKA-20254
        newer_epoch_takes_partitions_over=release >= ((4, 0, 2) if before_4_1 else (4, 1, 2)),
        checks_target_assignment_epoch=not before_4_3,
        validates_topology=not before_4_2,
        describes_pending_revocation=not before_4_3,
        pending_offsets_alone_keep_group=release >= (4, 0, 1),
    )


def _scala(release: Release, text: str) -> Semantics:
    known = _CLASSIC_KEY_TYPES
    rules: OffsetRules = "X-B"
    group_rule: GroupRule | None = "X-G1"
    newest_offset = (4, 4) if release >= (3, 4, 1) else (3, 3)
    if release < (2, 1):
        rules, newest_offset = "X-A1", (1, 1)
    has_state_empty = release >= (0, 10, 1)
    if not has_state_empty:
        group_rule = "X-G0"
    if release < (0, 9):
        known, rules, newest_offset, group_rule = frozenset({0}), "X-A0", (0, -1), None
    # First release that reads each version of GroupMetadataValue.
    newest_group = sum(release >= first for first in ((0, 10, 1), (2, 1), (2, 3), (3, 4, 1)))
    return Semantics(
        name="scala",
        broker_version=text,
        release=release,
        known_key_types=known,
        unknown_key_type_fails_load=release < (3, 4, 1),
        newest_offset_value=newest_offset,
        newest_group_value=newest_group,
        written_offset_value=3 if release >= (2, 1) else 1 if release >= (0, 9) else 0,
        producer_id_means_transaction=False,
        tombstone_drops_pending=False,
        unknown_marker_aborts=True,
        keeps_topic_ids=False,
        groups_live_from_first_commit=False,
        stored_minus_one_means_session_timeout=False,
        state_without_members="Empty" if has_state_empty else "Stable",
        fails_over_subscriptions=release >= (2, 4),
        takes_state_timestamp_of_value_3=not (2, 3) <= release < (2, 6, 1),
        offset_rules=rules,
        expires_unsubscribed=release >= (2, 4),
        pending_protects=False,
        group_rule=group_rule,
        offset_tombstone_key_type=0 if release < (0, 9) else 1,
        default_retention_ms=DAY_MS if release < (2, 0) else 7 * DAY_MS,
    )


def semantics_for(name: str | None = None, broker_version: str | None = None) -> Semantics:
    """The semantics of a coordinator (``java``, ``scala``) or of a release such as ``2.8.2``; with neither: Java 4.3.

    A name alone means 4.3 (java) or 3.9 (scala), and a line of releases (4.2) its newest patch release. Raises UsageError for a name or a
    release that does not exist, and where the two contradict each other.
    """
    if name not in (None, "java", "scala"):
        raise UsageError(f"semantics {name!r} is not known. Write java (the coordinator of Kafka 4.x) or scala (0.8.2 to 3.9).")
    text = (broker_version if broker_version is not None else "3.9" if name == "scala" else "4.3").strip()
    release = release_named(text)
    is_java = release >= (4, 0)
    if name is not None and (name == "java") != is_java:
        has = "java" if is_java else "scala"
        raise UsageError(f"Kafka {text} has the {has} coordinator, not {name}. Leave one of the two out.")
    return _java(release, text) if is_java else _scala(release, text)


JAVA = semantics_for("java")
"""Kafka 4.3, the default."""
SCALA = semantics_for("scala")
"""Kafka 3.9, the last release with the Scala coordinator."""
