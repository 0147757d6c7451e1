"""The differences between brokers in what they load and expire, as fields of ``Semantics``.

No other module of the coordinator asks for a release: each difference is a field here, with its rule of docs/reference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from groupcoord_spark.coordinator.releases import Release, release_named
from groupcoord_spark.errors import UsageError
from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.messages.classic import GROUP_METADATA_VALUE
from groupcoord_spark.protocol.messages.offsets import OFFSET_COMMIT_VALUE
from groupcoord_spark.protocol.record_types import CLASSIC_KEY_TYPES, KeyType

DAY_MS = 24 * 60 * 60 * 1000

OffsetRules = Literal["X-A0", "X-A1", "X-B"]
GroupRule = Literal["X-G0", "X-G1", "X-G2"]

TOPOLOGY_DESCRIPTION_PLUGIN = "group.streams.topology.description.plugin.class"
"""Setting of brokers since 4.4 (KIP-1331): the class that stores descriptions of topologies. Brokers without it store none."""


@dataclass(frozen=True, slots=True)
class Semantics:
    """The rules of one broker release. Call ``semantics_for`` to get one."""

    name: Literal["java", "scala"]
    broker_version: str
    """The version as the user wrote it, for messages."""
    release: Release
    """The release that the version means: 4.2 means (4, 2, 2)."""

    # Records that the loader accepts.
    known_key_types: frozenset[int]
    unknown_key_type_fails_load: bool = False
    newest_offset_value: tuple[int, int] = (0, 4)
    """Highest value version that the broker accepts for key type 0 and for key type 1; -1: the broker does not know the key type."""
    newest_group_value: int = 4
    limits_values: bool = False
    """Whether the loader refuses arrays of more than a million elements, and more than 10,000 or a negative number of tagged fields
    (R-1.10): 4.2.2, and since 4.4.0."""
    written_offset_value: int = 4
    """Version of the values that the broker writes for commits without an explicit expiry."""

    # Offsets and transactions.
    producer_id_means_transaction: bool = True
    """True (Java): a batch with a producer id is transactional. False (Scala): a batch with the transactional bit is transactional."""
    tombstone_drops_pending: bool = True
    """Whether a tombstone removes every pending offset in addition to the committed one (R-1.15): Java since 3.8.0."""
    transactional_tombstone_drops_own: bool = False
    """True (Scala): a tombstone in a transaction removes the pending offset of its own producer and no committed offset (R-1.15)."""
    tombstone_leaves_transaction_open: bool = False
    """Java 3.8.0 to 4.0.0: the producer of a pending offset that a tombstone removed still counts as open for the group, and the cleanup
    keeps the group until a marker finds another pending offset of the producer there (X-G2)."""
    later_marker_wins: bool = False
    """Java 3.7: a COMMIT marker also replaces commits that were written after the pending offset (R-1.19)."""
    unknown_marker_aborts: bool = False
    keeps_topic_ids: bool = True

    # Groups (R-1.3, R-1.25, docs/reference/replay-rules.md 2).
    groups_live_from_first_commit: bool = True
    """True (Java): the first commit creates a simple group. False (Scala): groups are built after the last record."""
    stored_minus_one_means_session_timeout: bool = True
    state_without_members: Literal["Empty", "Stable"] = "Empty"
    fails_over_subscriptions: bool = True
    """Whether a member's subscription that cannot be parsed makes the load fail (R-2.4). Releases before 2.4 parse no subscription;
    4.2.2 and 4.4 go on with the load."""
    takes_state_timestamp_of_value_3: bool = True
    """False (2.3.0 to 2.6.0): the broker reads the state timestamp of GroupMetadataValue version 2 only, although it writes version 3."""

    # Groups of the new protocols (R-3.x).
    initial_epoch: int = 1
    initial_validated_topology_epoch: int = 0
    streams_group_may_replace_simple: bool = True
    newer_epoch_takes_partitions_over: bool = True
    """True: a member with a higher epoch may take a partition that another member still owns, and the former owner may release the
    partition later. False: the loader refuses both records (R-3.14, before KAFKA-19862)."""
    forgets_former_instance_ids: bool = False
    """Whether a member that takes another instance id is no longer known by its former one (since 4.4, KAFKA-20747)."""
    checks_target_assignment_epoch: bool = True
    """Whether the loader refuses a target assignment with a negative epoch or timestamp (R-3.12)."""
    validates_topology: bool = True
    """Whether the group record has the validated topology epoch. Before 4.2 every streams group with members is NotReady after a load."""
    describes_pending_revocation: bool = True
    """Whether ConsumerGroupDescribe shows partitions that a member must still give up as assigned to the member."""

    # Expiration.
    offset_rules: OffsetRules = "X-B"
    expires_unsubscribed: bool = True
    pending_protects: bool = True
    pending_keeps_group: Literal["always", "beside_committed", "never"] = "always"
    """Whether the cleanup keeps a group that has pending offsets. ``beside_committed`` (3.8.0 to 4.0.0): only if the group has committed
    offsets too (KAFKA-19163). ``never``: Java 3.7."""
    share_offsets_fail_cleanup: bool = False
    """4.0 and 4.4: the cleanup of an offsets partition fails as a whole over a share group with a committed offset (X-C3)."""
    stored_description_keeps_group: bool = False
    """Whether the cleanup keeps a streams group while the broker's plugin has a description of the group's topology (KIP-1331)."""
    group_rule: GroupRule | None = "X-G2"
    offset_tombstone_key_type: int = KeyType.OFFSET_COMMIT
    default_retention_ms: int = 7 * DAY_MS

    def accepts_value(self, key_type: int, value_version: int) -> bool:
        """Return whether this broker loads this value version of an offset or a classic group, key type 0, 1 or 2 (R-1.9)."""
        # Dropped records rely on this: pipeline/read/superseded.py (a record that is not accepted supersedes no earlier record)
        return 0 <= value_version <= (*self.newest_offset_value, self.newest_group_value)[key_type]

    def describes_as_assigned(self, group_type: str, kind: str) -> bool:
        """Return whether a broker's description of a member includes an assignment of this kind (a value of ``assignments``)."""
        is_pending = group_type == "consumer" and kind == "pending_revocation" and self.describes_pending_revocation
        return kind == "current" or is_pending

    def loading_rules(self) -> "Semantics":
        """Return the semantics without fields that do not affect a load: names, expiration and the records that the broker writes."""
        return replace(self, broker_version="", release=(), **{name: getattr(JAVA, name) for name in _NOT_OF_LOADING})

    def with_settings(self, properties: Mapping[str, str]) -> "Semantics":
        """Return the semantics of a broker of this release with these settings. Most settings change no rule."""
        has_plugin = self.release >= (4, 4) and bool(properties.get(TOPOLOGY_DESCRIPTION_PLUGIN, "").strip())
        return replace(self, stored_description_keeps_group=has_plugin)


_NOT_OF_LOADING: Final = (
    *("written_offset_value", "describes_pending_revocation", "forgets_former_instance_ids", "offset_rules", "expires_unsubscribed"),
    *("pending_protects", "tombstone_leaves_transaction_open", "pending_keeps_group", "share_offsets_fail_cleanup"),
    *("stored_description_keeps_group", "group_rule", "offset_tombstone_key_type", "default_retention_ms"),
)
"""Fields of Semantics that change nothing of what a load makes of a log."""


def _key_types_read_by(release: Release) -> frozenset[int]:
    """Return the key types that a release reads. It skips types of early access releases, which have a dialect (R-1.6)."""
    return frozenset(kind.key_type for kind in RECORD_TYPES.values() if kind.dialect is None and release >= kind.read_since)


def _java(release: Release, text: str) -> Semantics:
    is_3_7 = release < (3, 8)
    before_4_0_1 = release < (4, 0, 1)
    before_4_1 = release < (4, 1)
    before_4_2 = release < (4, 2)
    before_4_3 = release < (4, 3)
    limits_values = release == (4, 2, 2) or release >= (4, 4)
    newest_offset = OFFSET_COMMIT_VALUE.newest_version(release)
    return Semantics(
        name="java",
        broker_version=text,
        release=release,
        known_key_types=_key_types_read_by(release),
        newest_offset_value=(newest_offset if before_4_1 else 0, newest_offset),
        newest_group_value=GROUP_METADATA_VALUE.newest_version(release),
        written_offset_value=3 if before_4_1 else 4,
        limits_values=limits_values,
        tombstone_drops_pending=not is_3_7,
        tombstone_leaves_transaction_open=before_4_0_1 and not is_3_7,
        later_marker_wins=is_3_7,
        fails_over_subscriptions=not limits_values,
        initial_epoch=0 if before_4_3 else 1,
        initial_validated_topology_epoch=0 if release < (4, 4) else -1,
        streams_group_may_replace_simple=release >= (4, 2, 1),  # KAFKA-20254
        newer_epoch_takes_partitions_over=release >= ((4, 0, 2) if before_4_1 else (4, 1, 2)),
        forgets_former_instance_ids=release >= (4, 4),
        checks_target_assignment_epoch=not before_4_3,
        validates_topology=not before_4_2,
        describes_pending_revocation=not before_4_3,
        pending_protects=not is_3_7,
        pending_keeps_group="never" if is_3_7 else "beside_committed" if before_4_0_1 else "always",
        share_offsets_fail_cleanup=release[:2] in ((4, 0), (4, 4)),
    )


def _scala(release: Release, text: str) -> Semantics:
    rules: OffsetRules = "X-B"
    group_rule: GroupRule | None = "X-G1"
    newest_offset = (OFFSET_COMMIT_VALUE.newest_version(release),) * 2
    if release < (2, 1):
        rules = "X-A1"
    has_state_empty = release >= (0, 10, 1)
    if not has_state_empty:
        group_rule = "X-G0"
    if release < (0, 9):
        rules, newest_offset, group_rule = "X-A0", (0, -1), None
    return Semantics(
        name="scala",
        broker_version=text,
        release=release,
        known_key_types=_key_types_read_by(release) & CLASSIC_KEY_TYPES,
        unknown_key_type_fails_load=release < (3, 4, 1),
        newest_offset_value=newest_offset,
        newest_group_value=GROUP_METADATA_VALUE.newest_version(release),
        written_offset_value=3 if release >= (2, 1) else 1 if release >= (0, 9) else 0,
        producer_id_means_transaction=False,
        tombstone_drops_pending=False,
        transactional_tombstone_drops_own=True,
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
        offset_tombstone_key_type=KeyType.LEGACY_OFFSET_COMMIT if release < (0, 9) else KeyType.OFFSET_COMMIT,
        default_retention_ms=DAY_MS if release < (2, 0) else 7 * DAY_MS,
    )


def semantics_for(name: str | None = None, broker_version: str | None = None) -> Semantics:
    """Return the semantics of a coordinator or of a broker release, by default Kafka 4.3.

    Args:
        name: ``java`` (alone: Kafka 4.3) or ``scala`` (alone: Kafka 3.9). Kafka 3.7 to 3.9 have both: Scala by default, Java as a preview
            where ``group.coordinator.rebalance.protocols`` names ``consumer``, or ``group.coordinator.new.enable`` is true.
        broker_version: A release such as ``2.8.2``, or a line of releases such as ``4.2``, which means its newest patch release.
    Raises:
        UsageError: The name or the release does not exist, or the release does not have the named coordinator.
    """
    if name not in (None, "java", "scala"):
        has_java = "the coordinator of Kafka 4.x, a preview in 3.7 to 3.9"
        raise UsageError(f"semantics {name!r} is not known. Write java ({has_java}) or scala (0.8.2 to 3.9).")
    text = (broker_version if broker_version is not None else "3.9" if name == "scala" else "4.3").strip()
    release = release_named(text)
    has_both = (3, 7) <= release < (4, 0)
    is_java = name == "java" if has_both else release >= (4, 0)
    if name is not None and (name == "java") != is_java:
        has = "java" if is_java else "scala"
        raise UsageError(f"Kafka {text} has the {has} coordinator, not {name}. Leave one of the two out.")
    return _java(release, text) if is_java else _scala(release, text)


JAVA = semantics_for("java")
"""Kafka 4.3, the default."""
SCALA = semantics_for("scala")
"""Kafka 3.9, the last release with the Scala coordinator."""
