"""A classic group: its state, its members and the rules that follow from them.

Kafka: ``GroupMetadata`` and ``MemberMetadata``, ``ClassicGroup`` and ``ClassicGroupMember``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

from groupcoord_spark.coordinator.expiration import GroupFacts
from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.protocol import SubscriptionMalformed, SubscriptionUnknown, subscribed_topics
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator.groups.clock import Clock, Timer
from groupcoord_spark.simulator.groups.group import CommitRules, Group
from groupcoord_spark.simulator.groups.map_order import BrokerMap, in_vote_order
from groupcoord_spark.simulator.messages import Call, Error, RecordToWrite
from groupcoord_spark.simulator.messages.requests import OffsetCommit, TxnOffsetCommit


class GroupState(Enum):
    """The state of a classic group, by the name that DescribeGroups shows. CompletingRebalance was called AwaitingSync up to 1.0."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}

CAN_REBALANCE = VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]
"""States that can start a join phase."""


Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol that a member lists, in the order of its preference."""


@dataclass(slots=True, eq=False)
class ClassicGroupMember:
    """One member: the fields of its JoinGroup, its assignment, its waiting requests and the end of its session.

    awaiting_join, awaiting_sync: the request that waits for the end of the join or sync phase; None: no request waits.
    deadline_ms: when the session ends if no request of the member restarts it.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: Call | None = None
    awaiting_sync: Call | None = None
    is_new: bool = False  # no JoinGroup of the member was answered yet
    deadline_ms: int = 0
    session_timer: Timer | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        """Whether the member has a group instance id and may restart without a rebalance (KIP-345)."""
        return self.group_instance_id is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        """Return the member's metadata for one protocol, or empty bytes if the member does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: frozenset[str]) -> str | None:
        """Return the first candidate in the member's protocol list, or None."""
        return next((name for name, _ in self.protocols if name in candidates), None)


CONSUMER = "consumer"
"""The only protocol type whose member metadata the coordinator decodes."""


class InternalError(GroupcoordError):
    """Raised when the coordinator would throw IllegalStateException: for a transition that is not valid, or a vote without candidates."""


@dataclass(slots=True, eq=False)
class ClassicGroup(Group):
    """The state of one classic group, with its timers and waiting requests. The rules of its rebalances are in rebalance.py."""

    group_id: str
    state_timestamp_ms: int | None
    like_java: bool
    """Whether the group's maps iterate in Java's order instead of Scala's."""
    members: BrokerMap[ClassicGroupMember] = field(init=False)
    created_by: Call | None = None
    """The commit that has created the group."""
    state: GroupState = GroupState.EMPTY
    previous_state: GroupState | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    generation: int = 0
    leader: str | None = None
    static_members: dict[str, str] = field(default_factory=dict)
    """Group instance id -> member id."""
    pending_members: dict[str, Timer] = field(default_factory=dict)
    """Member id of a MEMBER_ID_REQUIRED answer -> timer after which the id is forgotten (KIP-394)."""
    pending_sync: set[str] = field(default_factory=set)
    """Member ids that the sync timer waits for. The old id of a replaced static member stays in the set."""
    new_member_in_delay: bool = False
    """A new member joined during the current initial delay, which is extended for it."""
    in_initial_delay: bool = False
    supporters: dict[str, int] = field(default_factory=dict)
    """Protocol -> number of members that list the protocol."""
    subscribed_topics: frozenset[str] | None = None
    """Topics that the members of a "consumer" group subscribed to in the last join phase; None: not known."""
    waiting_joins: int = 0
    join_timer: Timer | None = None
    sync_timer: Timer | None = None

    group_type: ClassVar[str] = "classic"

    def __post_init__(self) -> None:
        self.members = BrokerMap(self.like_java)

    def transition_to(self, state: GroupState, now_ms: int) -> None:
        """Change the state and its timestamp. Raises InternalError if the transition is not valid."""
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise InternalError(f"Group {self.group_id!r} cannot go from {self.state.value} to {state.value}.")
        self.previous_state = self.state
        self.state = state
        self.state_timestamp_ms = now_ms

    # As a group of any kind

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def epoch(self) -> int:
        return self.generation

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_dead(self) -> bool:
        return self.state is GroupState.DEAD

    def validate_commit(self, request: OffsetCommit | TxnOffsetCommit, rules: CommitRules) -> Error:
        """Return the error of the first check that fails in this release."""
        return rules.first_error(self, request)

    def validate_offset_delete(self) -> Error:
        """Only of a group of consumers it is known which topics its members read."""
        return Error.NONE if self.is_empty or self.protocol_type == CONSUMER else Error.NON_EMPTY_GROUP

    def expiration_facts(self, *, expires_while_rebalancing: bool) -> GroupFacts:
        """Return the facts about the group that the expiration rules need.

        During a rebalance the topics are not known, so that no offset expires (X-B4). A group that was loaded from the log is never in a
        rebalance. Brokers 2.4 to 2.7 did not make this exception (X-B3): ``expires_while_rebalancing``.
        """
        topics = self.subscribed_topics
        if self.state is GroupState.EMPTY:
            topics = frozenset()
        elif self.state in (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE) and not expires_while_rebalancing:
            topics = None
        return GroupFacts(
            group_id=self.group_id,
            group_type=self.group_type,
            state=self.state.value,
            protocol_type=self.protocol_type,
            generation=self.generation,
            member_count=len(self.members),
            state_timestamp_ms=self.state_timestamp_ms,
            subscribed_topics=topics,
        )

    def tombstones(self) -> list[RecordToWrite]:
        return [RecordToWrite(KeyType.GROUP_METADATA, {"group_id": self.group_id})]

    def end(self, now_ms: int) -> Callable[[Clock], None]:
        """Mark the group as Dead and cancel its timers. Return a function that restores it."""
        state, previous_state, timestamp_ms = self.state, self.previous_state, self.state_timestamp_ms
        self.transition_to(GroupState.DEAD, now_ms)
        timers = [self.join_timer, self.sync_timer, *self.pending_members.values(), *(member.session_timer for member in self.members)]
        running = [timer for timer in timers if timer is not None and not timer.is_cancelled and not timer.is_fired]
        for timer in running:
            timer.is_cancelled = True

        def run_again(clock: Clock) -> None:
            self.state, self.previous_state, self.state_timestamp_ms = state, previous_state, timestamp_ms
            for timer in running:
                clock.revive(timer)

        return run_again

    # Members

    def add(self, member: ClassicGroupMember) -> None:
        """Add a member. The first member sets the protocol type; a member added while the group has no leader becomes the leader."""
        if not self.members:
            self.protocol_type = member.protocol_type
        self.members.put(member.member_id, member)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count(member.protocols, 1)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id. If it was the leader, the first remaining member in map order becomes the leader."""
        pending = self.pending_members.pop(member_id, None)
        if pending is not None:
            pending.is_cancelled = True
        self.pending_sync.discard(member_id)
        member = self.members.pop(member_id)
        if member is None:
            return
        self._count(member.protocols, -1)
        if member.awaiting_join is not None:
            self.waiting_joins -= 1
        if member.session_timer is not None:
            member.session_timer.is_cancelled = True
        if member.group_instance_id is not None:
            self.static_members.pop(member.group_instance_id, None)
        if self.leader == member_id:
            self.leader = next((remaining.member_id for remaining in self.members), None)

    def rename(self, member: ClassicGroupMember, new_id: str) -> None:
        """Give a static member a new member id. The leader and ``static_members`` change to it, ``pending_sync`` does not."""
        self.members.pop(member.member_id)
        if self.leader == member.member_id:
            self.leader = new_id
        member.member_id = new_id
        if member.session_timer is not None:
            member.session_timer.member_id = new_id
        self.members.put(new_id, member)
        if member.group_instance_id is not None:
            self.static_members[member.group_instance_id] = new_id

    def update_protocols(self, member: ClassicGroupMember, protocols: Protocols) -> None:
        """Replace the protocols that a member lists."""
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def wait_for_join_phase(self, member: ClassicGroupMember, call: Call) -> None:
        """Keep the member's JoinGroup until the join phase ends. An earlier JoinGroup of the member that waits is never answered."""
        if member.awaiting_join is None:
            self.waiting_joins += 1
        member.awaiting_join = call

    def take_awaiting_join(self, member: ClassicGroupMember) -> Call | None:
        """Take the member's waiting JoinGroup to answer it; None if no JoinGroup waits."""
        call = member.awaiting_join
        if call is not None:
            self.waiting_joins -= 1
            member.awaiting_join = None
        return call

    def _count(self, protocols: Protocols, change: int) -> None:
        for name in dict.fromkeys(name for name, _ in protocols):
            self.supporters[name] = self.supporters.get(name, 0) + change

    # Derived from the members

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of all members; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members), default=0)

    @property
    def all_have_joined(self) -> bool:
        """Return whether a JoinGroup of every member is waiting and no member id is pending."""
        return self.waiting_joins == len(self.members) and not self.pending_members

    def supports_any(self, protocols: Iterable[str]) -> bool:
        """Return whether all members support one of these protocols; True for a group without members."""
        return any(self.supporters.get(name, 0) == len(self.members) for name in protocols)

    def elected_protocol(self) -> str:
        """Return the protocol with the most votes. Each member votes for the first protocol in its list that all members support.

        Raises:
            InternalError: the members have no protocol in common. JoinGroup does not let that happen.
        """
        candidates = frozenset(name for name, count in self.supporters.items() if count == len(self.members))
        votes: dict[str, int] = {}
        for member in self.members:
            vote = member.vote(candidates)
            if vote is None:
                raise InternalError(f"Member {member.member_id!r} of group {self.group_id!r} supports none of {sorted(candidates)}.")
            votes[vote] = votes.get(vote, 0) + 1
        if len(votes) == 1:
            return next(iter(votes))
        return max(in_vote_order(votes, self.like_java), key=lambda name: votes[name])

    def start_generation(self, now_ms: int) -> None:
        """Start the next generation: CompletingRebalance with the elected protocol, or Empty if the group has no members."""
        self.generation += 1
        self.protocol = self.elected_protocol() if self.members else None
        self.subscribed_topics = self._topics_of_members()
        self.pending_sync.clear()
        self.transition_to(GroupState.COMPLETING_REBALANCE if self.members else GroupState.EMPTY, now_ms)

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member may be subscribed to the topic. True for every topic if a "consumer" group's subscriptions are
        unknown."""
        if self.state is GroupState.EMPTY:
            return False
        if self.subscribed_topics is None:
            return self.protocol_type == CONSUMER
        return topic in self.subscribed_topics

    def _topics_of_members(self) -> frozenset[str] | None:
        if self.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in self.members:
            try:
                topics |= subscribed_topics(member.metadata_for(self.protocol))
            except (SubscriptionUnknown, SubscriptionMalformed):
                return None
        return frozenset(topics)
