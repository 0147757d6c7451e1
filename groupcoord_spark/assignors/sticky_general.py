"""Sticky assignment of a group whose members subscribe to different topics (AbstractStickyAssignor, GeneralAssignmentBuilder)."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from heapq import heapify, heappush, heapreplace

from groupcoord_spark.assignors.java_maps import FIRST_SIZE, hash_of_text, slot_of, slots_after_puts
from groupcoord_spark.assignors.membership import Member, TopicPartition, java_order
from groupcoord_spark.assignors.ownership_claims import ResolvedClaims
from groupcoord_spark.assignors.racks import GroupRacks


def hash_of_partition(partition: TopicPartition) -> int:
    """TopicPartition.hashCode of Kafka's clients, as an unsigned 32-bit number."""
    return (31 * (31 + partition.partition) + hash_of_text(partition.topic)) & 0xFFFFFFFF


class PartitionHashSet:
    """A HashSet of partitions that knows which partition its iterator returns first."""

    __slots__ = ("_hashes", "_slots")

    def __init__(self) -> None:
        self._hashes: dict[TopicPartition, int] = {}
        self._slots = FIRST_SIZE

    def __len__(self) -> int:
        return len(self._hashes)

    def add(self, partition: TopicPartition) -> None:
        self._hashes[partition] = hash_of_partition(partition)
        self._slots = max(self._slots, slots_after_puts(len(self._hashes)))

    def remove(self, partition: TopicPartition) -> None:
        del self._hashes[partition]

    def state(self) -> tuple[int, tuple[TopicPartition, ...]]:
        """Return the full state of the set for comparisons: its number of slots, and its partitions in insertion order."""
        return self._slots, tuple(self._hashes)

    def first(self) -> TopicPartition:
        """Return the partition in the lowest slot, or the first inserted of several in that slot."""
        return min(self._hashes, key=lambda partition: slot_of(self._hashes[partition], self._slots))


class GeneralSticky:
    """Assigns free partitions to the members with the fewest, then moves single partitions until no move improves the balance.

    partitions: all partitions of the subscribed topics.
    previous: partition -> last owner in an older generation.
    A member is known by its rank, its index in the order of member ids. ``_counts`` (partitions by rank) and ``_owner_by_partition`` (rank)
    always change together.
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
        self._subscribers: dict[str, list[int]] = {}
        for rank, topics in enumerate(self._subscribed):
            for topic in topics:
                self._subscribers.setdefault(topic, []).append(rank)
        self._partitions = sorted(partitions, key=lambda p: (len(self._subscribers[p.topic]), java_order(p.topic), p.partition))
        ranks = {member.member_id: rank for rank, member in enumerate(self._members)}
        self._counts = [0] * len(self._members)
        self._least_of_topic = {topic: [(0, rank) for rank in ranks] for topic, ranks in self._subscribers.items()}
        self._owner_by_partition: dict[TopicPartition, int] = {}
        self._movements = _Movements()

        has_revoked = self._keep_owned(claims)
        is_new = not self._owner_by_partition
        free = [partition for partition in self._partitions if partition not in self._owner_by_partition]
        self._assign_free(free)

        self._movable_partitions = [partition for partition in self._partitions if len(self._subscribers[partition.topic]) > 1]
        of_topic = Counter(partition.topic for partition in self._partitions)
        self._assignable_counts = [sum(of_topic[topic] for topic in topics) for topics in self._subscribed]
        self._balancing = self._balancing_members()
        # Kafka's assignor throws an exception if the last owner does not take part in balancing. Here such a claim is ignored.
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

    def partitions_by_member(self) -> dict[str, list[TopicPartition]]:
        """Member id -> assigned partitions."""
        partitions_by_member: dict[str, list[TopicPartition]] = {member.member_id: [] for member in self._members}
        for partition, rank in self._owner_by_partition.items():
            partitions_by_member[self._members[rank].member_id].append(partition)
        return partitions_by_member

    def _keep_owned(self, claims: ResolvedClaims) -> bool:
        """Let members keep the owned partitions that they may have. Returns whether a member lost an owned partition."""
        has_revoked = False
        for rank, member in enumerate(self._members):
            for partition in claims.owned[member.member_id]:
                if partition.topic not in self._subscribed[rank] or self._racks.mismatch(member, partition):
                    has_revoked = True
                else:
                    self._assign(partition, rank)
        return has_revoked

    def _assign_free(self, free: list[TopicPartition]) -> None:
        """Assign each free partition to the subscriber with the fewest partitions; if racks matter, first to subscribers in its racks."""
        if self._racks.matter:
            free = self._assign_by_rack(free)
        for partition in free:
            self._assign(partition, self._least_loaded(self._least_of_topic[partition.topic])[1])

    def _assign_by_rack(self, free: list[TopicPartition]) -> list[TopicPartition]:
        """Assign each partition to the subscriber in its racks with the fewest partitions. Returns those without a subscriber there."""
        nearby: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for topic, subscribers in self._subscribers.items():
            for rank in subscribers:
                nearby.setdefault((topic, self._members[rank].rack or ""), []).append((self._counts[rank], rank))
        for heap in nearby.values():
            heapify(heap)
        left: list[TopicPartition] = []
        for partition in free:
            # A member without a rack ("") matches every rack.
            racks = ("", *self._racks.racks_by_partition[partition])
            heaps = [nearby[partition.topic, rack] for rack in racks if (partition.topic, rack) in nearby]
            if heaps:
                self._assign(partition, min(map(self._least_loaded, heaps))[1])
            else:
                left.append(partition)
        return left

    def _least_loaded(self, heap: list[tuple[int, int]]) -> tuple[int, int]:
        """Return the lowest count in a heap and the lowest rank that has it.

        Counts in a heap may be too low, as they are corrected only here: a search among all subscribers for each partition would take
        minutes in a large group.
        """
        while (count := self._counts[heap[0][1]]) != heap[0][0]:
            heapreplace(heap, (count, heap[0][1]))
        return heap[0]

    def _assign(self, partition: TopicPartition, rank: int) -> None:
        self._owner_by_partition[partition] = rank
        self._counts[rank] += 1

    def _balancing_members(self) -> frozenset[int]:
        """Return the members whose partition count can change.

        A member that owns all partitions of its topics is left out if no other member may take any of them.
        """
        has_shared = {self._owner_by_partition[partition] for partition in self._movable_partitions}
        return frozenset(rank for rank, count in enumerate(self._counts) if count < self._assignable_counts[rank] or rank in has_shared)

    def _balance(self, first: Iterable[TopicPartition], *, is_new: bool) -> None:
        """Balance the partitions that were just assigned, then all partitions.

        Both steps are undone if the second step moved partitions without improving the balance, unless the group is new.
        """
        owner_by_partition_before, imbalance_before = dict(self._owner_by_partition), self._imbalance()
        self._move_until_stable([partition for partition in first if len(self._subscribers[partition.topic]) > 1])
        has_moved = self._move_until_stable(self._movable_partitions)
        if not is_new and has_moved and self._imbalance() >= imbalance_before:
            self._owner_by_partition = owner_by_partition_before

    def _move_until_stable(self, movable: Sequence[TopicPartition]) -> bool:
        """Try to move each partition, in passes until a pass moves none. Returns whether a partition moved.

        A partition that moves instead of another one can undo a move of an earlier pass. With claims of older generations that can repeat
        without end, in Kafka's assignor too, which then never returns. Here the passes end when a pass starts in the same state as an
        earlier pass.
        """
        has_moved = False
        earlier_states: set[Hashable] = set()
        while (
            state := (tuple(self._owner_by_partition[partition] for partition in self._movable_partitions), self._movements.state())
        ) not in earlier_states:
            earlier_states.add(state)
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
        """Return the rank of a better owner: the last owner of an older generation, else the subscriber with the fewest partitions.

        None if that member would then have more partitions than the present owner has left.
        """
        count = self._counts[self._owner_by_partition[partition]]
        previous_owner = self._previous_owners.get(partition)
        if previous_owner is not None and count > self._counts[previous_owner] + 1:
            return previous_owner
        least_count, least = self._least_loaded(self._least_of_topic[partition.topic])
        return least if count > least_count + 1 else None

    def _is_balanced(self) -> bool:
        """Return whether no partition could move to a subscriber with at least two partitions fewer than its owner.

        The assignor tests this before each partition. The test matters only if a member may get back a partition of a topic that it no
        longer subscribes to; otherwise a balanced group has no moves left. ``_last_unbalanced`` is tested first, because it often decides.
        """
        if self._last_unbalanced is None or not self._is_unbalanced(self._last_unbalanced):
            self._last_unbalanced = next(filter(self._is_unbalanced, self._movable_partitions), None)
        return self._last_unbalanced is None

    def _is_unbalanced(self, partition: TopicPartition) -> bool:
        counts, count = self._counts, self._counts[self._owner_by_partition[partition]]
        # A member that has as many partitions as its topics together takes no more.
        return any(
            count > counts[rank] + 1 and counts[rank] != self._assignable_counts[rank] for rank in self._subscribers[partition.topic]
        )

    def _move(self, partition: TopicPartition, to: int) -> None:
        moving = self._movements.instead_of(partition, self._owner_by_partition[partition], to)
        owner = self._owner_by_partition[moving]
        self._movements.record(moving, owner, to)
        self._owner_by_partition[moving] = to
        self._counts[owner] -= 1
        for topic in self._subscribed[owner] & self._least_of_topic.keys():
            heappush(self._least_of_topic[topic], (self._counts[owner], owner))
        self._counts[to] += 1

    def _imbalance(self) -> int:
        """Return the sum of the differences in partition count over all pairs of members that take part in balancing."""
        ascending = sorted(self._counts[rank] for rank in self._balancing)
        return sum(count * (2 * i - len(ascending) + 1) for i, count in enumerate(ascending))


class _Movements:
    """The partitions that have moved since balancing began, by topic, original owner and present owner (Kafka: PartitionMovements)."""

    def __init__(self) -> None:
        self._pair_of: dict[TopicPartition, tuple[int, int]] = {}
        self._moved: dict[tuple[str, int, int], PartitionHashSet] = {}

    def state(self) -> Hashable:
        """Return the full state of the movements for comparisons."""
        return frozenset((moved_between, moved.state()) for moved_between, moved in self._moved.items())

    def instead_of(self, partition: TopicPartition, owner: int, to: int) -> TopicPartition:
        """Return the partition that should move to the member ``to`` in place of this one.

        If another partition of the topic has moved from ``to`` to the original owner of this one, that partition moves back. Else this one.
        """
        origin = self._pair_of[partition][0] if partition in self._pair_of else owner
        moved_the_other_way = self._moved.get((partition.topic, to, origin))
        return partition if moved_the_other_way is None else moved_the_other_way.first()

    def record(self, partition: TopicPartition, owner: int, to: int) -> None:
        """Store a move. A partition that returns to its original owner counts as not moved."""
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
