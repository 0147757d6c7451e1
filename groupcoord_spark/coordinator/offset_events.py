"""What happened to committed offsets: the rules that name the kind, the cause and the certainty of each event.

A change of a committed offset that is not a plain advance is an event: a tombstone, a lower offset, a first offset after a tombstone, an
offset that a client without membership wrote, an aborted commit. ``OffsetEvents`` takes the changes and the group records of one offsets
partition in the order of their record offsets, and judges each change by what is known at that record. A judgement never depends on later
records, so that a run that goes on from an earlier one finds the same events as a run that reads the whole log.

docs/reference/offset-events.md lists the kinds, the causes and the evidence that each certainty needs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

from groupcoord_spark.coordinator.expiration import SUBSCRIBED, Cleanup, GroupFacts, OffsetExpiry
from groupcoord_spark.coordinator.rebalances.group_histories import GroupHistories
from groupcoord_spark.coordinator.rebalances.group_life import GroupLife
from groupcoord_spark.coordinator.rebalances.group_records import GroupRecord
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.coordinator.transactions import StoredOffset
from groupcoord_spark.protocol.record_types import GROUP_KEY_TYPES, NO_LEADER_EPOCH, NO_TIMESTAMP

Kind = Literal["removed", "rewound", "skipped", "moved"]
Certainty = Literal["certain", "likely", "possible"]

REMOVED, REWOUND, SKIPPED, MOVED = "removed", "rewound", "skipped", "moved"

CAUSES: Final[Mapping[str, Mapping[str, str]]] = {
    REMOVED: {
        "expired": "A cleanup removed the offset or the group after its retention.",
        "group_deleted": "A request deleted the group (DeleteGroups).",
        "offsets_deleted": "A request deleted the offset (OffsetDelete).",
        "topic_deleted": "The topic was deleted.",
        "converted": "The record of the group was replaced by one of another protocol; its offsets stay.",
        "transaction_aborted": "The transaction of the commit was aborted, so the commit never counted.",
        "unknown": "The records do not show the cause.",
    },
    REWOUND: {
        "reset": "A client without membership wrote the offset, as kafka-consumer-groups --reset-offsets does.",
        "restarted_after_removal": "The group began again after its offset had been removed.",
        "topic_recreated": "The topic was deleted and created again, so that its offsets count from 0.",
        "log_truncated": "The log of the partition ends below the committed offset.",
        "late_commit": "A former owner of the partition committed after the partition had moved to another member.",
        "seek": "A member committed a lower offset.",
    },
    SKIPPED: {
        "reset": "A client without membership wrote the offset, as kafka-consumer-groups --reset-offsets does.",
        "restarted_after_removal": "The group began again after its offset had been removed, beyond the old offset.",
        "new_partition": "The partition is younger than the group, and the first commit is above its start.",
        "data_deleted": "The log start passed the committed offset.",
        "unknown": "The records do not show the cause.",
    },
    MOVED: {"copied": "Another group had committed the same offsets, and stopped: the group was renamed or copied."},
}
"""Kind -> cause -> what happened, in a sentence."""

_SOON_MS: Final = 3_600_000
"""A cleanup removes an offset within an hour after it is due, unless the coordinator was down or the retention differs."""
TOGETHER_MS: Final = 1_000
"""Tombstones of one topic within this time belong together: each coordinator writes its own when the topic is deleted."""
ONE_MOMENT_MS: Final = 10
"""Tombstones of several groups within this time have one cause; within a second, two requests may look the same."""
_CLOCKS_DIFFER_MS: Final = 1_000
"""How far the controller's clock may be ahead of the group coordinator's."""
_CHECKPOINT_AGE_MS: Final = 10_000
_SURE_BY_ADVANCE: Final[tuple[Certainty, ...]] = ("certain", "likely", "possible")
"""Certainty of the first, second and third advance without membership. One that keeps advancing is a client that reads."""


class Before(NamedTuple):
    """The committed offset before a change, or the one that the newest tombstone removed."""

    committed_offset: int
    record_offset: int
    leader_epoch: int
    commit_timestamp_ms: int
    expire_timestamp_ms: int
    topic_hash: int
    """Of the topic id; 0: the record has no id."""
    born_ms: int
    """Timestamp of the first commit since the newest tombstone."""


class Change(NamedTuple):
    """One change of a committed offset that may be an event."""

    op: Literal["commit", "tombstone", "abort"]
    group_id: str
    topic: str
    partition: int
    record_offset: int
    """Of the value or the tombstone."""
    at: int
    """Record offset from which the change counts: its own, or that of its marker."""
    at_ms: int
    key_type: int
    before: Before | None
    """None: no earlier value is known."""
    is_gone: bool
    """The value before was removed by a tombstone."""
    committed_offset: int = 0
    leader_epoch: int = NO_LEADER_EPOCH
    topic_hash: int = 0
    topic_id: str | None = None
    producer_id: int | None = None


class OffsetEvent(NamedTuple):
    """A row of the table ``offset_events``. Times and -1 for none are as in Kafka."""

    group_id: str
    topic: str | None
    partition: int | None
    record_offset: int
    event_timestamp_ms: int
    kind: str
    cause: str
    certainty: str
    from_committed_offset: int | None = None
    to_committed_offset: int | None = None
    from_record_offset: int | None = None
    records_reread: int | None = None
    records_skipped: int | None = None
    counts_are_exact: bool | None = None
    rule: str | None = None
    evidence: str = ""
    member_count: int | None = None
    commit_timestamp_ms: int = NO_TIMESTAMP
    expire_timestamp_ms: int = NO_TIMESTAMP
    base_timestamp_ms: int = NO_TIMESTAMP
    due_timestamp_ms: int = NO_TIMESTAMP
    key_type: int | None = None
    group_removed: bool | None = None
    groups_at_once: int | None = None
    producer_id: int | None = None
    leader_epoch: int = NO_LEADER_EPOCH
    topic_id: str | None = None
    other_group_id: str | None = None


class TopicLife(NamedTuple):
    """A topic by the cluster's metadata. Times are None where the metadata does not have them."""

    created_ms: int | None
    deleted_ms: int | None
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What other files of the log directory show. Everything is empty where the input has offsets partitions alone.

    log_extents: topic and partition -> start and end of the log; a start of None is not known. topics: name -> lives. all_topics_known:
    the metadata names every topic that exists.
    """

    log_extents: Mapping[tuple[str, int], tuple[int | None, int]] = field(default_factory=dict)
    topics: Mapping[str, tuple[TopicLife, ...]] = field(default_factory=dict)
    all_topics_known: bool = False
    sampled_at_ms: int = NO_TIMESTAMP
    """When the extents of the logs were read."""

    def start_of(self, topic: str, partition: int) -> int | None:
        """Return where the log of a partition starts; None: not known."""
        return self.log_extents.get((topic, partition), (None, -1))[0]

    def deletion_of(self, topic: str, commit_ms: int, gone_ms: int) -> int | None:
        """Return the time at which the topic was deleted while the offset was there; None: the metadata has no such time."""
        for life in self.topics.get(topic, ()):
            if life.deleted_ms is not None and commit_ms <= life.deleted_ms <= gone_ms + _CLOCKS_DIFFER_MS:
                return life.deleted_ms
        return None

    def existed_throughout(self, topic: str, commit_ms: int) -> bool:
        """Return whether the metadata still has the topic of the commit."""
        lives = self.topics.get(topic, ())
        return any(not life.is_deleted and life.created_ms is not None and life.created_ms <= commit_ms for life in lives)

    def is_no_more(self, topic: str, commit_ms: int) -> bool:
        """Return whether the metadata no longer has the topic of the commit."""
        lives = [life for life in self.topics.get(topic, ()) if not life.is_deleted]
        if not lives:
            return self.all_topics_known
        return all(life.created_ms is not None and life.created_ms > commit_ms for life in lives)


class Removal(NamedTuple):
    """An offset that a tombstone removed, and what its write shows of the cause."""

    change: Change
    cause: str
    certainty: Certainty
    evidence: str
    is_open: bool = False
    """No cleanup explains the removal."""
    member_count: int = 0
    base_timestamp_ms: int = NO_TIMESTAMP
    due_timestamp_ms: int = NO_TIMESTAMP
    rule: str | None = None
    """The rule of expiration, where the offset was due."""
    had_subscriber: bool = False
    """A member subscribed to the topic."""
    may_be_group: bool = False
    """Up to 3.9: the group had no members and may have gone with the offset, whatever took the offset."""
    group_removed: bool = False
    """The same write removed the group."""

    def event(self) -> OffsetEvent:
        """Return the row of the table."""
        change, before = self.change, self.change.before
        return OffsetEvent(
            change.group_id, change.topic, change.partition, change.at, change.at_ms, REMOVED, self.cause, self.certainty,
            None if before is None else before.committed_offset, None, None if before is None else before.record_offset,
            rule=self.rule,
            evidence=self.evidence,
            member_count=self.member_count,
            commit_timestamp_ms=NO_TIMESTAMP if before is None else before.commit_timestamp_ms,
            expire_timestamp_ms=NO_TIMESTAMP if before is None else before.expire_timestamp_ms,
            base_timestamp_ms=self.base_timestamp_ms,
            due_timestamp_ms=self.due_timestamp_ms,
            key_type=change.key_type,
            group_removed=self.group_removed,
            topic_id=change.topic_id,
        )  # fmt: skip


class OpenRemoval(NamedTuple):
    """The fields that decide about a removal whose cause depends on the offsets of the topic in all offsets partitions."""

    topic: str
    commit_timestamp_ms: int
    rule: str | None
    evidence: str
    group_removed: bool
    had_subscriber: bool
    may_be_group: bool


class Verdict(NamedTuple):
    """The cause of a removal."""

    cause: str
    certainty: Certainty
    evidence: str


class Copy(NamedTuple):
    """The first commits of a group, written at once by a client without membership: they may be copies of another group's offsets."""

    events: tuple[OffsetEvent, ...]


@dataclass(slots=True)
class OpenQuestions:
    """What the removals and copies of other offsets partitions need of this one, and its own copies.

    ended: topic -> the times from the first commit to the tombstone of the offsets that were removed. births: topic -> the time of the
    oldest first commit among the offsets that are there. Times are in milliseconds.
    """

    copies: list[Copy] = field(default_factory=list)
    ended: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    births: dict[str, int] = field(default_factory=dict)
    _last_ends: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)
    """Topic -> the sorted first commits in ``ended``, and for each of them the last tombstone of these and the earlier ones."""

    def note_end(self, topic: str, born_ms: int, gone_ms: int) -> None:
        """Note the time of an offset that was removed; overlapping times are one."""
        times = self.ended.setdefault(topic, [])
        if times and times[-1][0] <= gone_ms and born_ms <= times[-1][1]:
            born_ms, gone_ms = min(born_ms, times[-1][0]), max(gone_ms, times[-1][1])
            times.pop()
        times.append((born_ms, gone_ms))

    def kept(self, topic: str, gone_ms: int) -> bool:
        """Return whether an offset of the topic existed before the time and still exists a second after it."""
        if self.births.get(topic, gone_ms) < gone_ms:
            return True
        if topic not in self._last_ends:
            times = sorted(self.ended.get(topic, ()))
            self._last_ends[topic] = [born_ms for born_ms, _ in times], [*accumulate((end_ms for _, end_ms in times), max)]
        births, last_ends = self._last_ends[topic]
        earlier = bisect_left(births, gone_ms)
        return earlier > 0 and last_ends[earlier - 1] > gone_ms + TOGETHER_MS


class OffsetEvents:
    """The events of one offsets partition. Give it changes and group records in order, then take the other attributes.

    groups: The groups before each record; the caller applies group records to them. removals: The removals of offsets whose cause is
    known. open_removals: Those that only the whole run can judge. events: All other events.
    """

    def __init__(self, semantics: Semantics, retention_ms: int, surroundings: Surroundings, groups: GroupHistories) -> None:
        self._semantics = semantics
        self._retention_ms = retention_ms
        self._surroundings = surroundings
        self._groups = groups
        self.events: list[OffsetEvent] = []
        self.removals: list[Removal] = []
        self.open_removals: list[Removal] = []
        self.questions = OpenQuestions()
        self._write_ms: int = NO_TIMESTAMP
        self._write: list[_Draft] = []
        self._removed: list[Removal] = []
        self._removed_groups: dict[str, OffsetEvent] = {}
        self._created_groups: set[str] = set()
        self._cleanup = Cleanup(NO_TIMESTAMP, retention_ms, semantics)
        """At the time of the write."""
        self._facts: GroupFacts | None = None
        """Of the group whose offset was removed last, if it has no record since: a cleanup removes many offsets of one group."""
        self._newest_records: dict[str, int] = {}
        """Group id -> record offset of the newest group record."""
        self._advances: dict[tuple[object, ...], tuple[int, int]] = {}
        """Offset -> the group's newest record, and the number of advances without membership since."""

    def change(self, change: Change) -> None:
        """Judge the next change."""
        if change.at_ms != self._write_ms or change.at_ms == NO_TIMESTAMP:
            self._begin(change.at_ms)
        group = self._groups.of(change.group_id)
        if change.op == "abort":
            self._write.append(_Draft(_aborted(change)))
        elif change.op == "tombstone":
            self._removed.append(self._removal(change, group))
        elif (draft := self._committed(change, group)) is not None:
            self._write.append(draft)

    def group_record(self, record: GroupRecord) -> None:
        """Judge the removal of a group by its next record. Apply the record to the groups afterwards."""
        group_id = record.key["group_id"]
        self._newest_records[group_id], self._facts = record.record_offset, None
        if record.timestamp_ms != self._write_ms or record.timestamp_ms == NO_TIMESTAMP:
            self._begin(record.timestamp_ms)
        if record.key_type in GROUP_KEY_TYPES:
            if record.value is None:
                times = record.timestamp_ms, REMOVED, "unknown", "certain"
                event = OffsetEvent(group_id, None, None, record.record_offset, *times, key_type=record.key_type, group_removed=True)
                self._removed_groups[group_id] = event
            else:
                self._created_groups.add(group_id)

    def _begin(self, at_ms: int) -> None:
        """Begin another write: a coordinator gives all records of a write one time."""
        self.end_write()
        self._write_ms = at_ms

    def end_write(self) -> None:
        """Judge what depends on all records of a write."""
        if self._write:
            self._judge_commits()
        causes: dict[str, set[str]] = {}
        if self._removed:
            self._judge_removed(causes)
        for group_id, event in self._removed_groups.items():
            self.events.append(self._group_removed(event, causes.get(group_id, set()), group_id in self._created_groups))
        self._removed_groups.clear()
        self._created_groups.clear()

    def _judge_commits(self) -> None:
        drafts, self._write = self._write, []
        restarts = [draft.event for draft in drafts if draft.is_restart]
        began_low = {event.group_id for event in restarts if event.kind == REWOUND}
        set_high = {event.group_id for event in restarts if event.kind == SKIPPED and event.leader_epoch == NO_LEADER_EPOCH}
        copies: dict[str, list[OffsetEvent]] = {}
        for draft in drafts:
            event = draft.event
            if draft.may_be_copy:
                copies.setdefault(event.group_id, []).append(event)
                continue
            if draft.is_restart and event.kind == SKIPPED and event.leader_epoch != NO_LEADER_EPOCH:
                if event.group_id in began_low:
                    event = _read_again_beyond(event)
                elif event.group_id not in set_high:
                    continue  # the group may as well have gone on where it was, or have begun at the start of the log
            self.events.append(event)
        self.questions.copies += [Copy(tuple(of_group)) for of_group in copies.values()]

    def _judge_removed(self, causes: dict[str, set[str]]) -> None:
        """Judge the removals of a write, and add the causes of each group to ``causes``."""
        removed, self._removed = self._removed, []
        topics_lost: dict[str, set[str]] = {}
        for removal in removed:
            if removal.may_be_group:
                topics_lost.setdefault(removal.change.group_id, set()).add(removal.change.topic)
        for removal in removed:
            group_id, before, at_ms = removal.change.group_id, removal.change.before, removal.change.at_ms
            if removal.is_open and (self._removed_groups or topics_lost):
                removal = self._removal_of_write(removal, len(topics_lost.get(group_id, ())))
            is_open = removal.is_open and removal.cause == "unknown" and before is not None and at_ms >= 0
            (self.open_removals if is_open else self.removals).append(removal)
            if self._removed_groups:
                causes.setdefault(group_id, set()).update((removal.cause, "open") if is_open else (removal.cause,))

    def _removal_of_write(self, removal: Removal, topics_lost: int) -> Removal:
        """Judge a removal that no cleanup explains: the same write may have removed the group.

        topics_lost: number of topics of which a group without members and without a record of its own lost offsets in the write.
        """
        group_id, is_known = removal.change.group_id, removal.change.before is not None
        if is_known and topics_lost > 1:
            evidence = "A group without members lost offsets of several topics at once; up to 3.9 its end has no record of its own."
            return removal._replace(cause="group_deleted", certainty="likely", evidence=evidence)
        if group_id not in self._removed_groups or group_id in self._created_groups:
            return removal
        removal = removal._replace(group_removed=True)
        if not is_known or removal.rule is not None or self._semantics.name == "scala":
            return removal  # up to 3.9 a group without members goes with its last offset
        evidence = "The offset was not due, and the group's own tombstone has the same time."
        return removal._replace(cause="group_deleted", certainty="certain", evidence=evidence)

    def _group_removed(self, event: OffsetEvent, causes: set[str], is_converted: bool) -> OffsetEvent:
        if event.event_timestamp_ms == NO_TIMESTAMP:
            return event._replace(certainty="possible", evidence="The record has no time.")
        if is_converted:
            return event._replace(cause="converted", evidence="The same write has the group's record of another type.")
        if event.key_type == 11 or "group_deleted" in causes:
            evidence = "Share groups do not expire." if event.key_type == 11 else "Offsets that were not due went in the same write."
            return event._replace(cause="group_deleted", evidence=evidence)
        if "unknown" in causes and "open" not in causes:
            return event._replace(certainty="possible", evidence="The offsets that went with it have no known cause.")
        evidence = "The cleanup found it without members and offsets."
        certainty = "certain" if "expired" in causes else "likely"
        if not causes:
            evidence = "It had no members and no offsets: a cleanup removes such a group, and DeleteGroups looks the same."
        return event._replace(cause="expired", certainty=certainty, rule=self._semantics.group_rule, evidence=evidence)

    def _removal(self, change: Change, group: GroupLife) -> Removal:
        """Judge the tombstone of an offset."""
        before, facts = change.before, self._facts
        if facts is None or facts.group_id != change.group_id:
            facts = self._facts = _facts_of(change.group_id, group)
        if before is None:
            evidence = "The last commit before the tombstone is in no record that was read."
            return Removal(change, "unknown", "possible", evidence, True, facts.member_count)
        self.questions.note_end(change.topic, before.born_ms, change.at_ms)
        if change.at_ms == NO_TIMESTAMP:
            return Removal(change, "unknown", "possible", "The tombstone has no time.", False, facts.member_count)
        if self._surroundings.deletion_of(change.topic, before.commit_timestamp_ms, change.at_ms) is not None:
            evidence = "The cluster's metadata has the deletion of the topic while the offset was there."
            return Removal(change, "topic_deleted", "certain", evidence, False, facts.member_count)
        if self._cleanup.now_ms != change.at_ms:
            self._cleanup = Cleanup(change.at_ms, self._retention_ms, self._semantics)
        expiry = self._cleanup.expiry_of(facts, change.topic, change.partition, before, is_pending=False)
        due_ms = NO_TIMESTAMP if expiry.expires_at_ms is None else expiry.expires_at_ms
        base_ms = NO_TIMESTAMP if expiry.base_timestamp_ms is None else expiry.base_timestamp_ms
        times = facts.member_count, base_ms, due_ms, expiry.rule if expiry.expired else None
        if expiry.expired and change.at_ms < due_ms + _SOON_MS:
            return Removal(change, "expired", "certain", _evidence_of_expiry(expiry, before), False, *times)
        evidence = f"{_evidence_of_expiry(expiry, before)} It had been due for more than an hour." if expiry.expired else ""
        may_be_group = self._semantics.name == "scala" and not group.had_members
        return Removal(change, "unknown", "possible", evidence, True, *times, expiry.blocked_by == SUBSCRIBED, may_be_group)

    def _committed(self, change: Change, group: GroupLife) -> _Draft | None:
        """Judge a commit that counts against the value before it."""
        before = change.before
        if before is None:
            return self._first(change, group)
        is_of_new_topic = 0 not in (before.topic_hash, change.topic_hash) and before.topic_hash != change.topic_hash
        if change.committed_offset < before.committed_offset:
            return self._rewound(change, group, before, is_of_new_topic)
        if change.committed_offset == before.committed_offset or is_of_new_topic:
            return None
        if change.is_gone:
            return self._restarted_above(change, group, before)
        return self._advanced(change, group, before)

    def _first(self, change: Change, group: GroupLife) -> _Draft | None:
        """Judge the first known commit of an offset."""
        if change.producer_id is not None or change.leader_epoch != NO_LEADER_EPOCH or change.committed_offset <= 0:
            return None
        if group.members:
            if not group.has_new(change.topic, change.topic_id, change.partition):
                return None
            start = self._surroundings.start_of(change.topic, change.partition) or 0
            if change.committed_offset <= start:
                return None
            evidence = "The group read other partitions of the topic before this one was added; no leader epoch: a position that was set."
            event = _event_of(change, group, SKIPPED, "new_partition", "likely", evidence, counts_are_exact=True)
            return _Draft(event._replace(from_committed_offset=start, records_skipped=change.committed_offset - start))
        if group.had_members:
            return None
        return _Draft(_event_of(change, group, MOVED, "copied", "likely"), may_be_copy=True)

    def _rewound(self, change: Change, group: GroupLife, before: Before, is_of_new_topic: bool) -> _Draft:
        difference = before.committed_offset - change.committed_offset
        start, end = self._surroundings.log_extents.get((change.topic, change.partition), (None, None))
        is_set = change.leader_epoch == NO_LEADER_EPOCH
        event = _event_of(change, group, REWOUND, "seek", "likely", before=before, records_reread=difference, counts_are_exact=is_set)
        if is_of_new_topic:
            evidence = "The two commits carry different topic ids."
            event = event._replace(cause="topic_recreated", certainty="certain", evidence=evidence)
            return _Draft(event._replace(records_reread=None, counts_are_exact=None))
        if change.is_gone:
            evidence = "The first commit after the tombstone is lower than the offset that was removed."
            reread, is_exact = difference, is_set or change.committed_offset == 0
            if start is not None and start <= change.committed_offset:
                reread, is_exact = before.committed_offset - start, True
                evidence += f" The log starts at {start}, where a group without offset begins with auto.offset.reset=earliest."
            event = event._replace(cause="restarted_after_removal", certainty="certain", evidence=evidence)
            return _Draft(event._replace(records_reread=reread, counts_are_exact=is_exact), is_restart=True)
        was_reset = not group.members and group.had_members and change.producer_id is None
        # A checkpoint of log ends is up to 5 s old.
        is_later_sample = before.commit_timestamp_ms + _CHECKPOINT_AGE_MS <= self._surroundings.sampled_at_ms
        if end is not None and change.committed_offset <= end < before.committed_offset and is_later_sample and not was_reset:
            return _Draft(event._replace(cause="log_truncated", evidence=f"The log ends at {end}, below the offset before."))
        if change.producer_id is not None:
            return _Draft(event._replace(evidence="A producer committed it in a transaction."))
        if not group.members:
            certainty: Certainty = "certain" if group.had_members else "likely"
            when = "while the group was Empty" if group.had_members else "to a group that never had members"
            return _Draft(event._replace(cause="reset", certainty=certainty, evidence=f"It was written {when}.", counts_are_exact=True))
        former = group.former_owner(change.topic, change.topic_id, change.partition, change.at_ms)
        if former is not None:
            evidence = f"The partition had moved from {former}, which was still a member, to another member."
            event = event._replace(cause="late_commit", evidence=evidence)
            return _Draft(event._replace(records_reread=None, counts_are_exact=None))
        return _Draft(event._replace(evidence="The group had members, and none of them had just lost the partition."))

    def _restarted_above(self, change: Change, group: GroupLife, before: Before) -> _Draft:
        """Judge a first commit after a tombstone that is higher than the removed offset."""
        is_set = change.leader_epoch == NO_LEADER_EPOCH
        how = "no leader epoch: a position that was set"
        if not is_set:
            how = "a leader epoch: a position that was read to, but the position of another partition of the same write was set"
        evidence = f"The first commit after the tombstone is higher than the offset that was removed; {how}."
        of_cause = SKIPPED, "restarted_after_removal", "likely" if is_set else "possible", evidence, before
        skipped = change.committed_offset - before.committed_offset if is_set else None
        event = _event_of(change, group, *of_cause, records_skipped=skipped, counts_are_exact=True if is_set else None)
        return _Draft(event, is_restart=True)

    def _advanced(self, change: Change, group: GroupLife, before: Before) -> _Draft | None:
        """Judge an advance. It is an event only if the position was set and not read to."""
        if change.producer_id is not None or change.leader_epoch != NO_LEADER_EPOCH:
            return None
        skipped = change.committed_offset - before.committed_offset
        event = _event_of(change, group, SKIPPED, "reset", "certain", before=before, records_skipped=skipped, counts_are_exact=True)
        if not group.members and group.had_members:
            certainty = self._certainty_of_reset(change)
            if certainty is None:
                return None
            return _Draft(event._replace(certainty=certainty, evidence="It was written while the group was Empty."))
        start = self._surroundings.start_of(change.topic, change.partition)
        was_read = before.leader_epoch != NO_LEADER_EPOCH
        if start is not None and was_read and before.committed_offset < start <= change.committed_offset:
            evidence = f"The log starts at {start}, above the offset before; no leader epoch: a position that was set."
            return _Draft(event._replace(cause="data_deleted", certainty="likely", evidence=evidence))
        if not group.members and was_read and self._certainty_of_reset(change) is not None:
            evidence = "The group never had members; no leader epoch: a position that was set."
            return _Draft(event._replace(certainty="possible", evidence=evidence))
        return None

    def _certainty_of_reset(self, change: Change) -> Certainty | None:
        """Return the certainty that an advance without membership is a reset; None if the client keeps advancing and so reads."""
        key, newest = change[1:4], self._newest_records.get(change.group_id, -1)
        of_newest, advances = self._advances.get(key, (newest, 0))
        advances = advances if of_newest == newest else 0
        self._advances[key] = newest, advances + 1
        return _SURE_BY_ADVANCE[advances] if advances < len(_SURE_BY_ADVANCE) else None


def oldest_commits(committed: Mapping[str, Mapping[tuple[str, int], StoredOffset]]) -> dict[str, int]:
    """Return for each topic the time of its oldest committed offset, in milliseconds. committed: group id -> offsets."""
    oldest: dict[str, int] = {}
    for offsets in committed.values():
        for (topic, _), stored in offsets.items():
            if stored.record_timestamp_ms < oldest.get(topic, stored.record_timestamp_ms + 1):
                oldest[topic] = stored.record_timestamp_ms
    return oldest


def data_deleted(
    committed: Mapping[str, Mapping[tuple[str, int], StoredOffset]],
    surroundings: Surroundings,
    earlier_starts: Mapping[tuple[str, int], int],
) -> list[OffsetEvent]:
    """Return an event for each committed offset that the log start has passed since the last run.

    Args:
        committed: Group id -> offsets.
        surroundings: Of the run.
        earlier_starts: Topic and partition -> where its log started in the last run.
    """
    starts = {place: start for place, (start, _) in surroundings.log_extents.items() if start}
    events: list[OffsetEvent] = []
    if not starts:
        return events
    for group_id, offsets in committed.items():
        for place in offsets.keys() & starts.keys():
            stored, start = offsets[place], starts[place]
            if earlier_starts.get(place, 0) <= stored.committed_offset < start:
                of_record = stored.record_offset, surroundings.sampled_at_ms
                event = OffsetEvent(group_id, place[0], place[1], *of_record, SKIPPED, "data_deleted", "certain", topic_id=stored.topic_id)
                event = event._replace(evidence=f"The log starts at {start}, above the committed offset.")
                event = event._replace(from_committed_offset=stored.committed_offset, from_record_offset=stored.record_offset)
                event = event._replace(to_committed_offset=start, commit_timestamp_ms=stored.commit_timestamp_ms)
                skipped = start - max(stored.committed_offset, 0)
                events.append(event._replace(records_skipped=skipped, counts_are_exact=True, leader_epoch=stored.leader_epoch))
    return events


@dataclass(slots=True)
class _Draft:
    """An event of the present write, which its other records may change."""

    event: OffsetEvent
    is_restart: bool = False
    may_be_copy: bool = False


def _event_of(
    change: Change,
    group: GroupLife,
    kind: str,
    cause: str,
    certainty: str,
    evidence: str = "",
    before: Before | None = None,
    **columns: Any,
) -> OffsetEvent:
    is_commit = change.op == "commit"
    return OffsetEvent(
        change.group_id,
        change.topic,
        change.partition,
        change.record_offset if is_commit else change.at,
        change.at_ms,
        kind,
        cause,
        certainty,
        from_committed_offset=None if before is None else before.committed_offset,
        to_committed_offset=change.committed_offset if is_commit else None,
        from_record_offset=None if before is None else before.record_offset,
        evidence=evidence,
        member_count=len(group.members),
        commit_timestamp_ms=NO_TIMESTAMP if before is None else before.commit_timestamp_ms,
        producer_id=change.producer_id,
        leader_epoch=change.leader_epoch if is_commit else NO_LEADER_EPOCH,
        topic_id=change.topic_id,
        **columns,
    )


def _facts_of(group_id: str, group: GroupLife) -> GroupFacts:
    """Return what the rules of expiration need."""
    state = "Stable" if group.members else "Empty"
    of_members = group.generation or 0, len(group.members), group.state_timestamp_ms, group.subscribed_topics
    return GroupFacts(group_id, group.group_type, state, group.protocol_type, *of_members)


def _aborted(change: Change) -> OffsetEvent:
    """Return the event of a commit whose transaction was aborted; the committed offset does not change."""
    return OffsetEvent(
        change.group_id, change.topic, change.partition, change.at, change.at_ms, REMOVED, "transaction_aborted", "certain",
        from_committed_offset=change.committed_offset, from_record_offset=change.record_offset,
        producer_id=change.producer_id, leader_epoch=change.leader_epoch, topic_id=change.topic_id,
        evidence="The abort marker of its producer follows the commit.",
    )  # fmt: skip


def _read_again_beyond(event: OffsetEvent) -> OffsetEvent:
    """Judge a restart above the old offset next to one below it: the group read on from the start of the log."""
    evidence = "Other partitions of the same write began below their old offsets, so this one was probably read beyond its old offset."
    return event._replace(kind=REWOUND, certainty="possible", records_skipped=None, counts_are_exact=None, evidence=evidence)


def _evidence_of_expiry(expiry: OffsetExpiry, before: Before) -> str:
    if expiry.base_timestamp_ms is None:
        return "The tombstone follows the time that the commit asked for."
    since = "the last commit was made" if expiry.base_timestamp_ms == before.commit_timestamp_ms else "the group became Empty"
    return f"The tombstone follows the end of the retention, which counts from when {since}."


def judge_removal(
    removal: OpenRemoval, kept: int, groups_at_once: int, surroundings: Surroundings, *, kept_is_sure: bool, is_one_moment: bool
) -> Verdict:
    """Return the cause of a removal that only the whole run can judge.

    Args:
        removal: Of one of ``OffsetEvents.open_removals``.
        kept: Number of offsets partitions with an offset of the topic, of any group, that existed before and afterwards.
        groups_at_once: Number of groups that lost offsets of the topic within a second of the removal.
        surroundings: Of the run.
        kept_is_sure: Whether the log of one of these offsets partitions goes on after the removal.
        is_one_moment: Whether the groups lost their offsets within ``ONE_MOMENT_MS``.
    """
    if groups_at_once > 1 and not kept:
        evidence = f"{groups_at_once} groups lost their offsets of the topic at once, and none kept one."
        return Verdict("topic_deleted", "likely" if is_one_moment else "possible", evidence)
    if removal.rule is not None:
        return Verdict("expired", "likely", removal.evidence)
    if removal.had_subscriber:
        evidence = "A member subscribed to the topic: requests to delete the offset are refused, and cleanups spare it."
        return Verdict("topic_deleted", "likely", evidence)
    if removal.group_removed or removal.may_be_group:
        evidence = "The group may have gone in the same write: DeleteGroups, or its last offset was deleted (Kafka up to 3.9)."
        if removal.group_removed:
            return Verdict("group_deleted", "likely", evidence)
        if kept:
            return Verdict("offsets_deleted", "possible", evidence)
    if kept:
        evidence = "The offset was not due, the group stays, and other offsets of the topic stay: the topic was not deleted."
        return Verdict("offsets_deleted", "certain" if kept_is_sure else "likely", evidence)
    if surroundings.existed_throughout(removal.topic, removal.commit_timestamp_ms):
        evidence = "The offset was not due, the group stays, and by the cluster's metadata the topic still exists."
        return Verdict("offsets_deleted", "certain", evidence)
    if surroundings.topics and surroundings.is_no_more(removal.topic, removal.commit_timestamp_ms):
        return Verdict("topic_deleted", "likely", "By the cluster's metadata the topic of the commit does not exist any more.")
    evidence = "No other offset of the topic was left, which speaks for a deleted topic; OffsetDelete of all of them looks the same."
    return Verdict("topic_deleted", "possible", evidence)


def judge_copy(copy: Copy, candidates: Sequence[Mapping[str, Any]], surroundings: Surroundings) -> list[OffsetEvent]:
    """Return the events of a group whose first offsets are those of another group; empty: no group had them all.

    Args:
        copy: From ``OpenQuestions``.
        candidates: group_id, topic, partition, committed_offset, commit_timestamp (milliseconds) and record_offset of offsets of other
            groups that are equal to one of the copies, as the run leaves them or saw them removed.
        surroundings: Of the run.
    """
    by_group: dict[str, dict[tuple[str, int], Mapping[str, Any]]] = {}
    made_ms = copy.events[0].event_timestamp_ms
    for row in candidates:
        if row["commit_timestamp"] is not None and row["commit_timestamp"] <= made_ms:
            by_group.setdefault(row["group_id"], {})[row["topic"], row["partition"]] = row
    complete = [(group_id, rows) for group_id, rows in by_group.items() if len(rows) == len(copy.events)]
    if not complete:
        return []
    group_id, rows = min(complete, key=lambda group: (-max(row["commit_timestamp"] for row in group[1].values()), group[0]))
    ends = [surroundings.log_extents.get((event.topic or "", event.partition or 0), (None, None))[1] for event in copy.events]
    at_ends = all(event.to_committed_offset == end for event, end in zip(copy.events, ends, strict=True))
    is_likely = len(copy.events) > 1 and not at_ends
    offsets = "offset" if len(copy.events) == 1 else f"{len(copy.events)} offsets"
    evidence = f"A client without membership wrote the same {offsets} that group {group_id} had committed, which made no commit since."
    return [
        event._replace(
            certainty="likely" if is_likely else "possible",
            other_group_id=group_id,
            from_committed_offset=event.to_committed_offset,
            from_record_offset=rows[event.topic or "", event.partition or 0]["record_offset"],
            evidence=evidence,
        )
        for event in copy.events
    ]
