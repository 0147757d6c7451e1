"""What the groups have in common whose partitions the broker assigns: consumer, share and streams groups.

The state of such a group is what a replay of its records gives, as in Kafka 4.x: each change is a record, and is applied when it is
written.
"""

import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from groupcoord_spark.assignors.java_maps import hash_of_text
from groupcoord_spark.coordinator.expiration import GroupFacts
from groupcoord_spark.protocol.record_types import KEY_TYPES_OF, KeyType, ModernKeyTypes
from groupcoord_spark.simulator.groups.clock import Clock, Timer
from groupcoord_spark.simulator.groups.group import CommitRules, Group
from groupcoord_spark.simulator.messages import Error, RecordToWrite
from groupcoord_spark.simulator.messages.requests import GroupToFetch, OffsetCommit, OffsetToCommit, TxnOffsetCommit

FIRST_VERSION_WITH_EPOCHS: Final = 9
"""First version of OffsetCommit whose generation may be a member epoch."""
REFRESH_MS: Final = 2**31 - 1
"""How long a group trusts what it knows of its topics, unless a topic changes: 24.8 days."""
_VALUE_VERSION: Final = 0
_GOLDEN_RATIO: Final = -7046029254386353131


@dataclass(slots=True, eq=False)
class ModernGroup(Group):
    """A group with what only the running broker knows: its timers, and when it last looked at the topics."""

    group_id: str
    replayed: Any
    metadata_hash: int = 0
    assignment_timestamp_ms: int = 0
    refreshes_metadata: bool = False
    """A topic has changed: the next heartbeat of any member looks at the topics again."""
    metadata_deadline_ms: int = 0
    session_timers: dict[str, Timer] = field(default_factory=dict)
    rebalance_timers: dict[str, Timer] = field(default_factory=dict)
    """Of members that have to give something up."""
    slots: int = 2
    """Of Kafka's map of members, which never shrinks."""

    new_member: ClassVar[Mapping[str, Any]]
    """The metadata that a member begins with."""

    @property
    def key_types(self) -> ModernKeyTypes:
        """The key types of the group's records."""
        return KEY_TYPES_OF[self.group_type]

    @property
    def members(self) -> Mapping[str, Any]:
        """Member id -> member."""
        members: Mapping[str, Any] = self.replayed.members
        return members

    @property
    def state_name(self) -> str:
        return str(self.replayed.state)

    @property
    def epoch(self) -> int:
        return int(self.replayed.generation)

    @property
    def protocol_type(self) -> str:
        return str(self.replayed.protocol_type)

    @property
    def is_empty(self) -> bool:
        return not self.members

    def members_in_order(self) -> list[str]:
        """Return the member ids in the order of Kafka's member map (TimelineHashMap): by slot, the newest member of a slot first."""
        newest_first = list(self.members)[::-1]
        return sorted(newest_first, key=lambda member_id: _timeline_slot(member_id, self.slots))

    def grow(self, members: int) -> None:
        """Double the slots of the member map until it has room for this many members. Kafka counts a stored member again: one more."""
        while members * 3 > self.slots * 4:
            self.slots *= 2

    def metadata_of(self, member_id: str) -> Mapping[str, Any]:
        """Return the metadata of a member, or the initial metadata for an unknown member."""
        member = self.members.get(member_id)
        return self.new_member if member is None or member.metadata is None else member.metadata

    def static_member_id(self, instance_id: str) -> str | None:
        """Return the member id of a static instance id, or None."""
        return next((id_ for id_ in self.members if self.metadata_of(id_).get("instance_id") == instance_id), None)

    def static_error(self, member_id: str, instance_id: str | None) -> Error:
        """Return the error for an instance id that is unknown or belongs to a different member than the request names."""
        static_id = None if instance_id is None else self.static_member_id(instance_id)
        if instance_id is None or static_id == member_id:
            return Error.NONE
        return Error.UNKNOWN_MEMBER_ID if static_id is None else Error.FENCED_INSTANCE_ID

    def is_revoking(self, member_id: str) -> bool:
        """Return whether a member still has to revoke partitions or tasks."""
        return (self.members[member_id].state or "").startswith("UNREVOKED")

    # Requests

    @abstractmethod
    def changes_of(self, request: Any) -> dict[str, Any]:
        """Return the metadata fields that a heartbeat sets; None keeps the previous value."""

    def changed_metadata(self, member_id: str, request: Any) -> dict[str, Any]:
        """Return the member's metadata updated by its heartbeat."""
        changed = {name: value for name, value in self.changes_of(request).items() if value is not None}
        return {**self.metadata_of(member_id), **changed, "client_id": request.client_id, "client_host": request.client_host}

    def member_epoch(self, member_id: str) -> int:
        """Return the epoch of a member."""
        return int(self.members[member_id].member_epoch)

    def speaks_classic_protocol(self, member_id: str) -> bool:
        """Return whether a member joined through JoinGroup."""
        return False

    def epochs_of(self, member_id: str, offsets: Iterable[OffsetToCommit], topic_ids: Mapping[str, str]) -> list[int | None]:
        """Return the epoch of each partition's assignment to the member, or None for a partition that it does not own."""
        return [None for _ in offsets]

    def validate_commit(self, request: OffsetCommit | TxnOffsetCommit, rules: CommitRules) -> Error:
        """Return the error of a commit (docs/reference/coordinator.md, chapter 9.1).

        A member with an older epoch may commit for what it has had since that epoch, what it is giving up included.
        """
        is_transactional = isinstance(request, TxnOffsetCommit)
        if request.generation < 0 and (not self.members or (is_transactional and not request.member_id)):
            return Error.NONE
        if request.member_id not in self.members:
            return Error.UNKNOWN_MEMBER_ID
        epoch = self.member_epoch(request.member_id)
        is_classic = self.speaks_classic_protocol(request.member_id)
        if not is_classic and not is_transactional and rules.version < FIRST_VERSION_WITH_EPOCHS:
            return Error.UNSUPPORTED_VERSION
        if request.generation == epoch:
            return Error.NONE
        if request.generation < epoch and rules.takes_older_epochs:
            epochs = self.epochs_of(request.member_id, request.offsets, rules.topic_ids)
            if all(since is not None and request.generation >= since for since in epochs):
                return Error.NONE
        return Error.STALE_MEMBER_EPOCH if rules.tells_stale_epoch and not is_classic else Error.ILLEGAL_GENERATION

    def validate_fetch(self, requested: GroupToFetch) -> Error:
        """Return the error of an offset fetch. A request without a member id comes from an administrator."""
        if requested.member_id is None and requested.member_epoch < 0:
            return Error.NONE
        if requested.member_id is None or requested.member_id not in self.members:
            return Error.UNKNOWN_MEMBER_ID
        if requested.member_epoch == self.member_epoch(requested.member_id):
            return Error.NONE
        return Error.ILLEGAL_GENERATION if self.speaks_classic_protocol(requested.member_id) else Error.STALE_MEMBER_EPOCH

    def is_subscribed_to(self, topic: str) -> bool:
        return bool(self.members) and topic in self.replayed.subscribed_topics

    def expiration_facts(self, *, expires_while_rebalancing: bool) -> GroupFacts:
        return GroupFacts(
            group_id=self.group_id,
            group_type=self.group_type,
            state=self.state_name,
            protocol_type=self.protocol_type,
            generation=self.epoch,
            member_count=len(self.members),
            state_timestamp_ms=None,
            subscribed_topics=frozenset(self.replayed.subscribed_topics),
            regular_expressions=self.replayed.regular_expressions,
        )

    def note_changed_topics(self) -> None:
        self.refreshes_metadata = True

    def trust_metadata(self, now_ms: int) -> None:
        """Look at the topics again after a change of a topic, or when the deadline has passed."""
        self.refreshes_metadata, self.metadata_deadline_ms = False, now_ms + REFRESH_MS

    # Timers

    @property
    def timers(self) -> tuple[dict[str, Timer], ...]:
        """Member id -> timer, for each kind of timers."""
        return self.session_timers, self.rebalance_timers

    def cancel_timers(self, member_id: str) -> None:
        """Cancel the timers of a member that has left."""
        for timers in self.timers:
            cancel_timer(timers, member_id)

    def cancel_timers_without_member(self) -> None:
        """Cancel the timers of those who are not members."""
        for member_id in {member_id for timers in self.timers for member_id in timers} - self.members.keys():
            self.cancel_timers(member_id)

    def end(self, now_ms: int) -> Callable[[Clock], None]:
        """Cancel the timers of all members. Returns what lets them run again."""
        stopped = [(timers, dict(timers)) for timers in self.timers]
        for member_id in {member_id for timers in self.timers for member_id in timers}:
            self.cancel_timers(member_id)

        def run_again(clock: Clock) -> None:
            for timers, running in stopped:
                timers.update(running)
                for timer in running.values():
                    clock.revive(timer)

        return run_again

    # Records

    def record(self, key_type: KeyType, value: Mapping[str, Any] | None, **key: Any) -> RecordToWrite:
        """Return a record of the group, or its tombstone without a value. ``key`` holds the key fields other than the group id."""
        version, content = (None, None) if value is None else (_VALUE_VERSION, dict(value))
        return RecordToWrite(key_type, {"group_id": self.group_id, **key}, version, content)

    def member_record(self, member_id: str, metadata: Mapping[str, Any] | None) -> RecordToWrite:
        """Return the record of a member's metadata, or its tombstone for None."""
        return self.record(self.key_types.member, metadata, member_id=member_id)

    def epoch_record(self, epoch: int, metadata_hash: int) -> RecordToWrite:
        """Return the record of a new group epoch."""
        return self.record(self.key_types.group, {"epoch": epoch, "metadata_hash": metadata_hash})

    def target_epoch_record(self, epoch: int, timestamp_ms: int) -> RecordToWrite:
        """Return the record of the target assignment's epoch."""
        return self.record(self.key_types.target_epoch, {"assignment_epoch": epoch, "assignment_timestamp_ms": timestamp_ms})

    def removal_records(self, member_id: str) -> list[RecordToWrite]:
        """Return the tombstones of a member that leaves."""
        key_types = self.key_types
        return [self.record(key_type, None, member_id=member_id) for key_type in (key_types.current, key_types.target, key_types.member)]

    def note(self, key_type: int | None, value: Mapping[str, Any] | None) -> None:
        """Remember what the replay of a record of the group does not keep."""
        if value is None:
            return
        if key_type == self.key_types.group:
            self.metadata_hash = value.get("metadata_hash", 0)
        elif key_type == self.key_types.target_epoch:
            self.assignment_timestamp_ms = value.get("assignment_timestamp_ms", 0)


def cancel_timer(timers: dict[str, Timer], name: str) -> None:
    """Cancel one timer, if it runs. name: of a member or a group."""
    timer = timers.pop(name, None)
    if timer is not None:
        timer.is_cancelled = True


def metadata_hash(topics: Mapping[str, int]) -> int:
    """Return a hash that changes with the group's topics. It differs from Kafka's own hash, but no other record depends on the value."""
    text = ",".join(f"{topic}:{partitions}" for topic, partitions in sorted(topics.items()))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True) if topics else 0


def _timeline_slot(text: str, slots: int) -> int:
    """Return the slot of a text in Kafka's ``TimelineHashMap``: the upper bits of its hash times the golden ratio."""
    java_hash = hash_of_text(text)
    signed = java_hash - (1 << 32) if java_hash >= 1 << 31 else java_hash
    return ((signed * _GOLDEN_RATIO) & ((1 << 64) - 1)) >> (65 - slots.bit_length())
