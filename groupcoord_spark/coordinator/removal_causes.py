"""Why tombstones of offsets and groups were written, inferred as the view ``tombstone_causes`` infers it.

The view answers for a whole warehouse in SQL, and needs Spark, DuckDB or Trino; these functions answer for one group within a second.
A test compares the two. No record names a cause, so both can be wrong in the same cases, which docs/reference/rebalances.md lists.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Final, Literal, NamedTuple

Cause = Literal["expiry", "delete_groups", "topic_deletion", "offset_delete", "conversion", "unknown"]

_HOUR_MS: Final = 3_600_000
_EPISODE_GAP_MS: Final = 1_000
"""Tombstones of one topic that are further apart than this are not of one topic deletion."""
_AT_ONCE_MS: Final = 10
_CLASSIC_KEY: Final = 2
_SHARE_KEY: Final = 11
_FIRST_VERSION_WITH_STATE_TIME: Final = 2


class Place(NamedTuple):
    """Where a record is: incarnation and number of a partition of __consumer_offsets."""

    incarnation: int
    offsets_partition: int


class OwnRecord(NamedTuple):
    """A record of a group itself: of key type 2, 3, 11 or 17."""

    place: Place
    record_offset: int
    timestamp_ms: int | None
    group_id: str
    key_type: int
    is_tombstone: bool
    is_empty: bool
    """A classic group without members, whose record says since when: see ``is_empty_group``."""


class OffsetLife(NamedTuple):
    """One committed offset from its first commit, or the first after a tombstone, to the next tombstone. Aborted commits are not in it."""

    place: Place
    group_id: str
    topic: str
    partition: int
    born_ms: int | None
    """Time of its first commit; None: it has none, two tombstones follow each other."""
    value_offset: int | None
    """Record offset of the last commit before the tombstone, of an earlier life if this one has none; None: no commit is known."""
    commit_ms: int | None
    expire_ms: int | None
    tombstone_offset: int | None
    """None: the offset is still there."""
    gone_ms: int | None


class OffsetRemoval(NamedTuple):
    """Why an offset was removed, and from what that is inferred."""

    cause: Cause
    life: OffsetLife
    base_ms: int | None
    """What the offset's age counted from: its last commit, or when the group became Empty."""
    groups_at_once: int | None
    """Groups that lost offsets of the topic within the same second or so; None: the cause does not depend on it."""
    offsets_kept: int | None
    """Offsets of the topic, of any group, that were there before and afterwards; None as above."""

    @property
    def due_by(self) -> Literal["commit", "empty", "explicit"]:
        """What an expired offset outlived: its last commit, the group's last member, or a moment that the commit itself asked for."""
        if self.life.expire_ms is not None:
            return "explicit"
        return "commit" if self.base_ms == self.life.commit_ms else "empty"

    @property
    def age_ms(self) -> int | None:
        """An expired offset's: since what made it due. Any other's: since its last commit. None: not known."""
        since_ms = self.life.commit_ms
        if self.cause == "expiry":
            since_ms = self.base_ms if self.life.expire_ms is None else self.life.expire_ms
        return None if since_ms is None or self.life.gone_ms is None else self.life.gone_ms - since_ms


class GroupRemoval(NamedTuple):
    """Why a group was removed, and whether offsets of the group were removed by the same write."""

    cause: Cause
    with_offsets: bool


class _Judged(NamedTuple):
    life: OffsetLife
    base_ms: int | None
    late_ms: int | None
    """How long the offset had been due; negative: it was not. None: the records do not say."""
    group_removed: bool

    @property
    def was_due(self) -> bool:
        return self.late_ms is not None and self.late_ms >= 0

    @property
    def was_just_due(self) -> bool:
        return self.late_ms is not None and 0 <= self.late_ms < _HOUR_MS

    @property
    def needs_its_topic(self) -> bool:
        """Whether the cause depends on what happened to the topic's other offsets."""
        is_clear = self.was_just_due or (self.group_removed and not self.was_due)
        return self.life.value_offset is not None and self.late_ms is not None and not is_clear


class _Episode(NamedTuple):
    began_ms: int
    ended_ms: int
    groups: int
    kept: int
    soon_after: int


def is_empty_group(key_type: int, value_version: int | None, value_json: str | None) -> bool:
    """Whether a group's own record starts the age of its offsets: that of a classic group without members, from value version 2 on."""
    if key_type != _CLASSIC_KEY or value_version is None or value_version < _FIRST_VERSION_WITH_STATE_TIME or value_json is None:
        return False
    return '"members":[]' in value_json and '"protocolType":""' not in value_json


def topics_to_look_at(lives: Iterable[OffsetLife], own: Sequence[OwnRecord], retention_ms: int | None) -> set[str]:
    """Topics of which every group's lives are needed to tell why offsets of these lives were removed."""
    return {judged.life.topic for judged in _judged(lives, own, retention_ms) if judged.needs_its_topic}


def removals_of_offsets(
    lives: Sequence[OffsetLife], own: Sequence[OwnRecord], retention_ms: int | None, topic_lives: Sequence[OffsetLife] = ()
) -> dict[tuple[Place, int], OffsetRemoval]:
    """The removal behind each tombstone of ``lives``, by the tombstone's place and record offset.

    own: all records of the groups themselves, of every group in both. topic_lives: all lives of ``topics_to_look_at``.
    """
    of_topics = _judged(topic_lives, own, retention_ms)
    episodes = {
        topic: _episodes([judged for judged in of_topics if judged.life.topic == topic], [one for one in topic_lives if one.topic == topic])
        for topic in {life.topic for life in topic_lives}
    }
    removals = {}
    for judged in _judged(lives, own, retention_ms):
        life = judged.life
        if life.tombstone_offset is None:
            continue
        episode = None
        if life.gone_ms is not None and not judged.was_just_due:
            among = episodes.get(life.topic, ())
            episode = next((one for one in among if one.began_ms <= life.gone_ms <= one.ended_ms), None)
        seen = (None, None) if episode is None else (episode.groups, episode.kept)
        removals[life.place, life.tombstone_offset] = OffsetRemoval(_cause(judged, episode), life, judged.base_ms, *seen)
    return removals


def removals_of_groups(own: Iterable[OwnRecord], of_offsets: Iterable[OffsetRemoval]) -> dict[tuple[Place, int], GroupRemoval]:
    """The removal behind each tombstone of a group itself, by its place and record offset.

    own: all records of the groups themselves, of_offsets: all removals of their offsets.
    """
    causes: dict[tuple[Place, str, int | None], set[Cause]] = {}
    for removal in of_offsets:
        causes.setdefault((removal.life.place, removal.life.group_id, removal.life.gone_ms), set()).add(removal.cause)
    together: dict[tuple[Place, str, int | None], list[OwnRecord]] = {}
    for record in own:
        together.setdefault((record.place, record.group_id, record.timestamp_ms), []).append(record)
    removals = {}
    for write, records in together.items():
        with_offsets = causes.get(write, set())
        for record in records:
            if record.is_tombstone:
                is_conversion = any(not other.is_tombstone for other in records)
                cause = _cause_of_group(record, with_offsets, is_conversion)
                removals[record.place, record.record_offset] = GroupRemoval(cause, bool(with_offsets))
    return removals


def _cause_of_group(record: OwnRecord, causes_of_offsets: Collection[Cause], is_conversion: bool) -> Cause:
    if record.timestamp_ms is None:
        return "unknown"
    if is_conversion:
        return "conversion"
    # A cleanup leaves share groups alone (X-C3): only a request removes them.
    if "delete_groups" in causes_of_offsets or record.key_type == _SHARE_KEY:
        return "delete_groups"
    return "unknown" if "unknown" in causes_of_offsets else "expiry"


def _cause(judged: _Judged, episode: _Episode | None) -> Cause:
    if judged.life.value_offset is None or judged.late_ms is None:
        return "unknown"
    if judged.was_just_due:
        return "expiry"
    nobody_kept = episode is not None and episode.kept == 0
    if episode is not None and nobody_kept and episode.groups > 1:
        at_once = episode.ended_ms < episode.began_ms + _AT_ONCE_MS
        if episode.soon_after == 0 or at_once:
            return "topic_deletion"
    if judged.was_due:
        return "expiry"
    if judged.group_removed:
        return "delete_groups"
    return "topic_deletion" if episode is not None and nobody_kept and episode.soon_after == 0 else "offset_delete"


def _judged(lives: Iterable[OffsetLife], own: Iterable[OwnRecord], retention_ms: int | None) -> list[_Judged]:
    """What is known of each removed life without looking at its topic."""
    of_group: dict[tuple[Place, str], list[OwnRecord]] = {}
    for record in sorted(own, key=lambda one: one.record_offset):
        of_group.setdefault((record.place, record.group_id), []).append(record)
    offsets = {group: [record.record_offset for record in records] for group, records in of_group.items()}
    removed_at = {group: {record.timestamp_ms for record in records if record.is_tombstone} for group, records in of_group.items()}
    judged = []
    for life in lives:
        if life.tombstone_offset is None:
            continue
        group, base_ms, due_ms = (life.place, life.group_id), life.commit_ms, life.expire_ms
        records_before = bisect_left(offsets.get(group, []), life.tombstone_offset)
        if records_before and (state := of_group[group][records_before - 1]).is_empty:
            base_ms = state.timestamp_ms
        if due_ms is None and base_ms is not None and retention_ms is not None:
            # Whole seconds of retention, as the view counts.
            due_ms = base_ms + retention_ms // 1000 * 1000
        late_ms = None if life.gone_ms is None or due_ms is None else life.gone_ms - due_ms
        group_removed = life.gone_ms is not None and life.gone_ms in removed_at.get(group, ())
        judged.append(_Judged(life, base_ms, late_ms, group_removed))
    return judged


def _episodes(judged: Iterable[_Judged], lives: Iterable[OffsetLife]) -> list[_Episode]:
    """Times at which offsets of one topic were removed for no reason of their own, and what became of the topic's other offsets then."""
    removed = sorted((one.life.gone_ms, one.life.group_id) for one in judged if one.needs_its_topic and one.life.gone_ms is not None)
    runs: list[list[tuple[int, str]]] = []
    for gone_ms, group_id in removed:
        if runs and gone_ms <= runs[-1][-1][0] + _EPISODE_GAP_MS:
            runs[-1].append((gone_ms, group_id))
        else:
            runs.append([(gone_ms, group_id)])
    spans = [(life.born_ms, life.gone_ms) for life in lives if life.born_ms is not None]
    episodes = []
    for run in runs:
        (began_ms, _), (ended_ms, _) = run[0], run[-1]
        kept = len([1 for born_ms, gone_ms in spans if born_ms < began_ms and (gone_ms is None or gone_ms > ended_ms)])
        soon_after = len([1 for born_ms, _ in spans if ended_ms < born_ms < ended_ms + _HOUR_MS])
        episodes.append(_Episode(began_ms, ended_ms, len({group_id for _, group_id in run}), kept, soon_after))
    return episodes
