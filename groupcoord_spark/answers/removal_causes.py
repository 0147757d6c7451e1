"""The probable cause of each tombstone of an offset or a group, by the same rules as the view ``tombstone_causes``.

The view answers for a whole warehouse in SQL, and needs Spark, DuckDB or Trino; these functions answer for one group within a second.
A test compares the two. No record names a cause, so both can be wrong in the same cases, which docs/reference/rebalances.md lists.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal, NamedTuple

from groupcoord_spark.protocol.record_types import KeyType

Cause = Literal["expiry", "delete_groups", "topic_deletion", "offset_delete", "conversion", "unknown"]

_HOUR_MS: Final = 3_600_000
_EPISODE_GAP_MS: Final = 1_000
"""The deletion of a topic writes its tombstones with no longer pause than this."""
_AT_ONCE_MS: Final = 10
_FIRST_VERSION_WITH_STATE_TIME: Final = 2


class Place(NamedTuple):
    """An offsets partition of one incarnation of ``__consumer_offsets``."""

    incarnation: int
    offsets_partition: int


class OwnRecord(NamedTuple):
    """The record of a group as a whole, whose tombstone removes the group: of one of the GROUP_KEY_TYPES."""

    place: Place
    record_offset: int
    timestamp_ms: int | None
    group_id: str
    key_type: int
    is_tombstone: bool
    is_empty: bool
    """Whether the record says since when a classic group has no members: see ``is_empty_group``."""


class OffsetLifetime(NamedTuple):
    """A committed offset between two tombstones of the same offset. Aborted commits are left out."""

    place: Place
    group_id: str
    topic: str
    partition: int
    born_ms: int | None
    """Time of the first commit after the tombstone before; None: there is no commit between the two tombstones."""
    value_offset: int | None
    """Record offset of the last commit before the closing tombstone, even from before the earlier tombstone; None: no commit is known."""
    commit_ms: int | None
    expire_ms: int | None
    tombstone_offset: int | None
    """Record offset of the closing tombstone; None: the offset still exists."""
    gone_ms: int | None


class OffsetRemoval(NamedTuple):
    """The probable cause of a tombstone of an offset, with the facts behind it."""

    cause: Cause
    lifetime: OffsetLifetime
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
    whole_group: bool = False
    """Whether the group went because the write took its last offsets (up to 3.9)."""
    had_subscriber: bool = False
    """Whether a member subscribed to the topic, so that nothing but the deletion of the topic could take the offset."""
    metadata_shows: str | None = None
    """The clause by which the cluster's metadata shows that the topic was deleted; None: the metadata was not copied, or does not."""

    @property
    def due_by(self) -> Literal["commit", "empty", "explicit"]:
        """The start of an expired offset's age: its last commit, or the group became empty; or an explicit expiry decided."""
        if self.lifetime.expire_ms is not None:
            return "explicit"
        return "commit" if self.base_ms == self.lifetime.commit_ms else "empty"

    @property
    def age_ms(self) -> int | None:
        """Time from the start of the age (of an explicit expiry: from that time) to the tombstone; for other causes from the last commit.

        None: not known.
        """
        since_ms = self.lifetime.commit_ms
        if self.cause == "expiry":
            since_ms = self.base_ms if self.lifetime.expire_ms is None else self.lifetime.expire_ms
        return None if since_ms is None or self.lifetime.gone_ms is None else self.lifetime.gone_ms - since_ms


class GroupRemoval(NamedTuple):
    """The probable cause of a tombstone of a group, and whether the same write removed offsets of the group."""

    cause: Cause
    with_offsets: bool


class _RemovedLifetime(NamedTuple):
    """The closing tombstone of a lifetime, with all that is known without the other offsets of its topic."""

    lifetime: OffsetLifetime
    base_ms: int | None
    late_ms: int | None
    """Time between the expiry and the tombstone; negative: the offset had not expired. None: not known."""
    group_removed: bool
    """Whether the same write removed the group."""
    whole_group: bool
    """Whether the write removed the last offsets of a group that cannot outlive its offsets: see ``removals_of_offsets``."""

    @property
    def had_expired(self) -> bool:
        return self.late_ms is not None and self.late_ms >= 0

    @property
    def had_just_expired(self) -> bool:
        return self.late_ms is not None and 0 <= self.late_ms < _HOUR_MS

    @property
    def needs_its_topic(self) -> bool:
        """Whether the cause depends on the other offsets of the topic."""
        is_clear = self.had_just_expired or (self.group_removed and not self.had_expired and not self.whole_group)
        return self.lifetime.value_offset is not None and self.late_ms is not None and not is_clear


class _Episode(NamedTuple):
    """A series of tombstones of one topic without long pauses, and the other offsets of the topic at that time."""

    began_ms: int
    ended_ms: int
    groups: int
    """Number of groups that lost an offset."""
    kept: int
    """Number of offsets that existed before and after the series."""
    soon_after: int
    """Number of offsets that were committed anew within an hour after the series."""


def is_empty_group(key_type: int, value_version: int | None, value_json: str | None) -> bool:
    """Whether a record says since when a classic group has no members, so that the age of the group's offsets counts from that time.

    Args:
        key_type: Of the record.
        value_version: None for a tombstone. The time is there from version 2 on.
        value_json: The value as in Kafka's JSON; None for a tombstone.
    """
    if key_type != KeyType.GROUP_METADATA or value_version is None or value_version < _FIRST_VERSION_WITH_STATE_TIME or value_json is None:
        return False
    return '"members":[]' in value_json and '"protocolType":""' not in value_json


def topics_to_look_at(
    lifetimes: Sequence[OffsetLifetime], own: Sequence[OwnRecord], retention_ms: int | None, *, groups_go_with_offsets: bool
) -> set[str]:
    """Topics for which the cause of a tombstone depends on the offsets of all groups. Arguments: of ``removals_of_offsets``."""
    removed_lifetimes = _removed_lifetimes(lifetimes, own, retention_ms, groups_go_with_offsets=groups_go_with_offsets)
    return {removed.lifetime.topic for removed in removed_lifetimes if removed.needs_its_topic}


def removals_of_offsets(
    lifetimes: Sequence[OffsetLifetime],
    own: Sequence[OwnRecord],
    retention_ms: int | None,
    topic_lifetimes: Sequence[OffsetLifetime] = (),
    *,
    groups_go_with_offsets: bool = False,
) -> dict[tuple[Place, int], OffsetRemoval]:
    """(place, record offset) of each tombstone -> cause of the tombstone.

    Args:
        lifetimes: Of all offsets of the groups that are asked about.
        own: All records of GROUP_KEY_TYPES, of every group in ``lifetimes`` and ``topic_lifetimes``.
        retention_ms: ``offsets.retention.minutes`` in milliseconds; None: not known.
        topic_lifetimes: Lifetimes of all offsets of all groups in the topics of ``topics_to_look_at``.
        groups_go_with_offsets: The coordinator of Kafka 0.8.2 to 3.9 (Scala, GroupMetadataManager.cleanupGroupMetadata): any write that
            takes the last offset of a group without members removes the group as well, and a group that never had a generation has no
            tombstone. False: the coordinator of 4.x, where only DeleteGroups and the cleanup remove groups.
    """
    removed_of_topics = _removed_lifetimes(topic_lifetimes, own, retention_ms, groups_go_with_offsets=groups_go_with_offsets)
    episodes = {
        topic: _episodes(
            [removed for removed in removed_of_topics if removed.lifetime.topic == topic],
            [lifetime for lifetime in topic_lifetimes if lifetime.topic == topic],
        )
        for topic in {lifetime.topic for lifetime in topic_lifetimes}
    }
    removals = {}
    for removed in _removed_lifetimes(lifetimes, own, retention_ms, groups_go_with_offsets=groups_go_with_offsets):
        lifetime = removed.lifetime
        if lifetime.tombstone_offset is None:
            continue
        episode = None
        if lifetime.gone_ms is not None and not removed.had_just_expired:
            topic_episodes = episodes.get(lifetime.topic, ())
            episode = next((episode for episode in topic_episodes if episode.began_ms <= lifetime.gone_ms <= episode.ended_ms), None)
        groups_at_once, offsets_kept = (None, None) if episode is None else (episode.groups, episode.kept)
        cause = _cause_of_offset(removed, episode)
        removals[lifetime.place, lifetime.tombstone_offset] = OffsetRemoval(
            cause, lifetime, removed.base_ms, groups_at_once, offsets_kept, removed.had_expired, removed.group_removed, removed.whole_group
        )
    return removals


def removals_of_groups(own: Iterable[OwnRecord], of_offsets: Iterable[OffsetRemoval]) -> dict[tuple[Place, int], GroupRemoval]:
    """(place, record offset) of each tombstone of a group -> cause of the tombstone.

    Args:
        own: All records of GROUP_KEY_TYPES of these groups.
        of_offsets: All removals of offsets of these groups.
    """
    causes: dict[tuple[Place, str, int | None], set[Cause]] = {}
    for removal in of_offsets:
        causes.setdefault((removal.lifetime.place, removal.lifetime.group_id, removal.lifetime.gone_ms), set()).add(removal.cause)
    records_of_write: dict[tuple[Place, str, int | None], list[OwnRecord]] = {}
    for record in own:
        records_of_write.setdefault((record.place, record.group_id, record.timestamp_ms), []).append(record)
    removals = {}
    for write, records in records_of_write.items():
        causes_of_offsets = causes.get(write, set())
        for record in records:
            if record.is_tombstone:
                is_conversion = any(not other.is_tombstone for other in records)
                cause = _cause_of_group(record, causes_of_offsets, is_conversion)
                removals[record.place, record.record_offset] = GroupRemoval(cause, bool(causes_of_offsets))
    return removals


def _cause_of_group(record: OwnRecord, causes_of_offsets: Collection[Cause], is_conversion: bool) -> Cause:
    if record.timestamp_ms is None:
        return "unknown"
    if is_conversion:
        return "conversion"
    # A cleanup removes no share groups (X-C3): only a request does.
    if "delete_groups" in causes_of_offsets or record.key_type == KeyType.SHARE_GROUP_METADATA:
        return "delete_groups"
    return "unknown" if "unknown" in causes_of_offsets else "expiry"


def _cause_of_offset(removed: _RemovedLifetime, episode: _Episode | None) -> Cause:
    if removed.lifetime.value_offset is None or removed.late_ms is None:
        return "unknown"
    if removed.had_just_expired:
        return "expiry"
    nobody_kept = episode is not None and episode.kept == 0
    if episode is not None and nobody_kept and episode.groups > 1:
        at_once = episode.ended_ms < episode.began_ms + _AT_ONCE_MS
        if episode.soon_after == 0 or at_once:
            return "topic_deletion"
    if removed.had_expired:
        return "expiry"
    if removed.group_removed or removed.whole_group:
        return "delete_groups"
    return "topic_deletion" if episode is not None and nobody_kept and episode.soon_after == 0 else "offset_delete"


def _removed_lifetimes(
    lifetimes: Sequence[OffsetLifetime], own: Iterable[OwnRecord], retention_ms: int | None, *, groups_go_with_offsets: bool
) -> list[_RemovedLifetime]:
    """Each lifetime that has a closing tombstone."""
    group_records: dict[tuple[Place, str], list[OwnRecord]] = {}
    for record in sorted(own, key=lambda record: record.record_offset):
        group_records.setdefault((record.place, record.group_id), []).append(record)
    record_offsets = {group: [record.record_offset for record in records] for group, records in group_records.items()}
    removed_at = {group: {record.timestamp_ms for record in records if record.is_tombstone} for group, records in group_records.items()}
    last_removals = _last_removals(lifetimes) if groups_go_with_offsets else {}
    removed_lifetimes = []
    for lifetime in lifetimes:
        if lifetime.tombstone_offset is None:
            continue
        group, base_ms, due_ms = (lifetime.place, lifetime.group_id), lifetime.commit_ms, lifetime.expire_ms
        records_before = bisect_left(record_offsets.get(group, []), lifetime.tombstone_offset)
        state = group_records[group][records_before - 1] if records_before else None
        if state is not None and state.is_empty:
            base_ms = state.timestamp_ms
        if due_ms is None and base_ms is not None and retention_ms is not None:
            # The view counts the retention in whole seconds.
            due_ms = base_ms + retention_ms // 1000 * 1000
        late_ms = None if lifetime.gone_ms is None or due_ms is None else lifetime.gone_ms - due_ms
        group_removed = lifetime.gone_ms is not None and lifetime.gone_ms in removed_at.get(group, ())
        # Without a record of its own the group never had a generation: its removal leaves no tombstone of the group.
        never_had_members = state is None or state.is_tombstone
        whole_group = groups_go_with_offsets and (group_removed or (never_had_members and lifetime.gone_ms in last_removals.get(group, ())))
        removed_lifetimes.append(_RemovedLifetime(lifetime, base_ms, late_ms, group_removed, whole_group))
    return removed_lifetimes


def _last_removals(lifetimes: Iterable[OffsetLifetime]) -> dict[tuple[Place, str], set[int]]:
    """Group -> times of the writes after which the group had no offset."""
    spans: dict[tuple[Place, str], list[tuple[int | None, int | None]]] = {}
    for lifetime in lifetimes:
        spans.setdefault((lifetime.place, lifetime.group_id), []).append((lifetime.born_ms, lifetime.gone_ms))
    last: dict[tuple[Place, str], set[int]] = {}
    for group, of_group in spans.items():
        # From the last write backwards: ``begun`` is the earliest first commit of an offset that is gone later.
        ends = sorted({gone_ms for _, gone_ms in of_group if gone_ms is not None}, reverse=True)
        by_end: dict[int | None, list[int]] = {}
        for born_ms, gone_ms in of_group:
            if born_ms is not None:
                by_end.setdefault(gone_ms, []).append(born_ms)
        begun = min(by_end.get(None, []), default=None)
        last[group] = set()
        for end_ms in ends:
            if begun is None or begun > end_ms:
                last[group].add(end_ms)
            begun = min([born_ms for born_ms in (begun, *by_end.get(end_ms, [])) if born_ms is not None], default=None)
    return last


def _episodes(removed_lifetimes: Iterable[_RemovedLifetime], lifetimes: Iterable[OffsetLifetime]) -> list[_Episode]:
    """Each series of tombstones of one topic whose cause depends on the topic.

    Args:
        removed_lifetimes: Of the topic.
        lifetimes: All lifetimes of the topic.
    """
    tombstones = sorted(
        (removed.lifetime.gone_ms, removed.lifetime.group_id)
        for removed in removed_lifetimes
        if removed.needs_its_topic and removed.lifetime.gone_ms is not None
    )
    series: list[list[tuple[int, str]]] = []
    for gone_ms, group_id in tombstones:
        if series and gone_ms <= series[-1][-1][0] + _EPISODE_GAP_MS:
            series[-1].append((gone_ms, group_id))
        else:
            series.append([(gone_ms, group_id)])
    spans = [(lifetime.born_ms, lifetime.gone_ms) for lifetime in lifetimes if lifetime.born_ms is not None]
    episodes = []
    for one_series in series:
        (began_ms, _), (ended_ms, _) = one_series[0], one_series[-1]
        kept = len([1 for born_ms, gone_ms in spans if born_ms < began_ms and (gone_ms is None or gone_ms > ended_ms)])
        soon_after = len([1 for born_ms, _ in spans if ended_ms < born_ms < ended_ms + _HOUR_MS])
        episodes.append(_Episode(began_ms, ended_ms, len({group_id for _, group_id in one_series}), kept, soon_after))
    return episodes
