"""Sticky assignment of a group whose members name different topics (AbstractStickyAssignor, GeneralAssignmentBuilder)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence

from groupcoord_spark.assignors.least_loaded import LeastLoaded
from groupcoord_spark.assignors.membership import Member, TopicPartition, java_order
from groupcoord_spark.assignors.ownership_claims import ResolvedClaims
from groupcoord_spark.assignors.partition_set import PartitionHashSet
from groupcoord_spark.assignors.racks import GroupRacks


class GeneralSticky:
    """Hands out what nobody owns to the least loaded, then moves partitions one by one until no move betters the balance.

    partitions: all of the subscribed topics. previous: for those claimed of older generations, by whom.
    Members are known by their rank, the place by member id. Counts and holders change together.
    """

    def __init__(
        self,
        members: Iterable[Member],
        partitions: Iterable[TopicPartition],
        claims: ResolvedClaims,
        previous: Mapping[TopicPartition, str],
        racks: GroupRacks,
    ) -> None:
        self._racks = racks
        self._members = sorted(members, key=lambda member: java_order(member.member_id))
        self._subscribed = [frozenset(member.topics) for member in self._members]
        naming: dict[str, list[int]] = {}
        for rank, topics in enumerate(self._subscribed):
            for topic in topics:
                naming.setdefault(topic, []).append(rank)
        self._subscribers = {topic: frozenset(ranks) for topic, ranks in naming.items()}
        self._partitions = sorted(partitions, key=lambda p: (len(self._subscribers[p.topic]), java_order(p.topic), p.partition))
        ranks = {member.member_id: rank for rank, member in enumerate(self._members)}
        self._counts = [0] * len(self._members)
        self._owner_by_partition: dict[TopicPartition, int] = {}
        self._movements = _Movements()

        has_revoked = self._keep_owned(claims)
        is_new = not self._owner_by_partition
        free = [partition for partition in self._partitions if partition not in self._owner_by_partition]
        self._hand_out(free)

        self._movable_partitions = [partition for partition in self._partitions if len(self._subscribers[partition.topic]) > 1]
        of_topic = Counter(partition.topic for partition in self._partitions)
        self._assignable_counts = [sum(of_topic[topic] for topic in topics) for topics in self._subscribed]
        self._balancing = self._balancing_members()
        self._least_loaded = LeastLoaded(self._counts, self._subscribers)
        # Kafka's assignor fails where such a claim is that of a member that takes no part; here the claim counts for nothing
        self._previous_owners = {
            partition: ranks[member_id]
            for partition, member_id in previous.items()
            if partition in self._owner_by_partition and ranks[member_id] in self._balancing
        }
        self._has_unsubscribed_previous_owners = any(
            partition.topic not in self._subscribed[rank] for partition, rank in self._previous_owners.items()
        )
        self._last_unbalanced: TopicPartition | None = None
        self._balance([] if has_revoked else free, is_new=is_new)

    def held(self) -> dict[str, list[TopicPartition]]:
        """By member id, what it gets."""
        held: dict[str, list[TopicPartition]] = {member.member_id: [] for member in self._members}
        for partition, rank in self._owner_by_partition.items():
            held[self._members[rank].member_id].append(partition)
        return held

    def _keep_owned(self, claims: ResolvedClaims) -> bool:
        """Let members keep what they own and may have; whether somebody had to give up something."""
        has_revoked = False
        for rank, member in enumerate(self._members):
            for partition in claims.owned[member.member_id]:
                if partition.topic not in self._subscribed[rank] or self._racks.mismatch(member, partition):
                    has_revoked = True
                else:
                    self._assign(partition, rank)
        return has_revoked

    def _hand_out(self, free: list[TopicPartition]) -> None:
        """Give each free partition to the least loaded subscriber; where racks matter, first to those in its racks."""
        if self._racks.matter:
            free = self._hand_out_by_rack(free)
        least_loaded = LeastLoaded(self._counts, self._subscribers)
        for partition in free:
            if (rank := least_loaded.first(partition.topic)) is not None:
                self._assign(partition, rank)

    def _hand_out_by_rack(self, free: list[TopicPartition]) -> list[TopicPartition]:
        """Give the partitions that some subscriber can read nearby to the least loaded of these; the partitions that are left."""
        in_rack: dict[str, set[int]] = {}
        for rank, member in enumerate(self._members):
            in_rack.setdefault(member.rack or "", set()).add(rank)
        nearby = {(topic, rack): subscribers & in_rack[rack] for topic, subscribers in self._subscribers.items() for rack in in_rack}
        least_loaded = LeastLoaded(self._counts, nearby)
        left: list[TopicPartition] = []
        for partition in free:
            # "": a member without a rack is at home everywhere
            racks = ("", *self._racks.of_partitions[partition])
            if (to := least_loaded.first(*((partition.topic, rack) for rack in racks))) is None:
                left.append(partition)
            else:
                self._assign(partition, to)
        return left

    def _assign(self, partition: TopicPartition, rank: int) -> None:
        self._owner_by_partition[partition] = rank
        self._counts[rank] += 1

    def _balancing_members(self) -> frozenset[int]:
        """The members whose load can change: all but those that hold every partition they may, none of it shared."""
        has_shared = {self._owner_by_partition[partition] for partition in self._movable_partitions}
        return frozenset(rank for rank, count in enumerate(self._counts) if count < self._assignable_counts[rank] or rank in has_shared)

    def _balance(self, first: Iterable[TopicPartition], *, is_new: bool) -> None:
        """Pass over the partitions handed out just now, then over all; all is undone if it helped nothing and cost moves."""
        owner_by_partition_before, imbalance_before = dict(self._owner_by_partition), self._imbalance()
        self._pass_over([partition for partition in first if len(self._subscribers[partition.topic]) > 1])
        has_moved = self._pass_over(self._movable_partitions)
        if not is_new and has_moved and self._imbalance() >= imbalance_before:
            self._owner_by_partition = owner_by_partition_before

    def _pass_over(self, movable: Sequence[TopicPartition]) -> bool:
        """Move partitions until a pass over them moves none; whether any moved.

        A partition that moves instead of another one can undo what an earlier pass did. With claims of older generations that may go
        round for ever, in Kafka's assignor too, which then never answers. Here the passes end where one begins as an earlier one did.
        """
        has_moved = False
        begun: set[Hashable] = set()
        while (
            state := (tuple(self._owner_by_partition[partition] for partition in self._movable_partitions), self._movements.state())
        ) not in begun:
            begun.add(state)
            moved = 0
            for partition in movable:
                if self._has_unsubscribed_previous_owners and self._is_balanced():
                    break
                if (to := self._better_owner(partition)) is not None:
                    self._move(partition, to)
                    moved += 1
            if not moved:
                break
            has_moved = True
        return has_moved

    def _better_owner(self, partition: TopicPartition) -> int | None:
        """Who should have the partition rather than its owner: who held it in an older generation, else the least loaded subscriber.

        None if that one would then have more than the owner has left.
        """
        count = self._counts[self._owner_by_partition[partition]]
        before = self._previous_owners.get(partition)
        if before is not None and count > self._counts[before] + 1:
            return before
        least = self._least_loaded.first(partition.topic)
        return least if least is not None and count > self._counts[least] + 1 else None

    def _is_balanced(self) -> bool:
        """Whether no subscriber could take a partition from a member that would still have no fewer.

        The assignor asks it before each partition. That matters only where somebody may get back a partition of a topic it no longer
        names: otherwise a balanced group has no move left. The partition that told last is asked first.
        """
        if self._last_unbalanced is None or not self._is_unbalanced(self._last_unbalanced):
            self._last_unbalanced = next(filter(self._is_unbalanced, self._movable_partitions), None)
        return self._last_unbalanced is None

    def _is_unbalanced(self, partition: TopicPartition) -> bool:
        counts, count = self._counts, self._counts[self._owner_by_partition[partition]]
        least = self._least_loaded.first(partition.topic)
        if least is None or count <= counts[least] + 1:
            return False
        # who has as many partitions as its topics have wants none, whichever they are
        return any(
            count > counts[rank] + 1 and counts[rank] != self._assignable_counts[rank] for rank in self._subscribers[partition.topic]
        )

    def _move(self, partition: TopicPartition, to: int) -> None:
        moving = self._movements.instead_of(partition, self._owner_by_partition[partition], to)
        owner = self._owner_by_partition[moving]
        self._movements.record(moving, owner, to)
        self._owner_by_partition[moving] = to
        self._counts[owner] -= 1
        self._counts[to] += 1
        self._least_loaded.has_fallen(owner)

    def _imbalance(self) -> int:
        """The sum of the differences between the counts of all pairs of balancing members."""
        ascending = sorted(self._counts[rank] for rank in self._balancing)
        return sum(count * (2 * i - len(ascending) + 1) for i, count in enumerate(ascending))


class _Movements:
    """Which partitions have moved between which members since balancing began, by topic and (original, present) member."""

    def __init__(self) -> None:
        self._pair_of: dict[TopicPartition, tuple[int, int]] = {}
        self._moved: dict[tuple[str, int, int], PartitionHashSet] = {}

    def state(self) -> Hashable:
        """All that decides what ``instead_of`` will answer."""
        return frozenset((moved_between, moved.state()) for moved_between, moved in self._moved.items())

    def instead_of(self, partition: TopicPartition, owner: int, to: int) -> TopicPartition:
        """The partition to move to a member: rather than this one, one of its topic that came from there to where this one began."""
        origin = self._pair_of[partition][0] if partition in self._pair_of else owner
        came_from_there = self._moved.get((partition.topic, to, origin))
        return partition if came_from_there is None else came_from_there.first()

    def record(self, partition: TopicPartition, owner: int, to: int) -> None:
        """Note that a partition goes from one member to another; back where it began, it has not moved."""
        origin = owner
        if partition in self._pair_of:
            origin, present = self._pair_of.pop(partition)
            moved = self._moved[partition.topic, origin, present]
            moved.remove(partition)
            if not moved:
                del self._moved[partition.topic, origin, present]
        if origin != to:
            self._pair_of[partition] = origin, to
            self._moved.setdefault((partition.topic, origin, to), PartitionHashSet()).add(partition)
