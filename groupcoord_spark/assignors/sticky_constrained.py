"""Sticky assignment of a group whose members all subscribe to the same topics (AbstractStickyAssignor, ConstrainedAssignmentBuilder)."""

from collections import Counter, deque
from collections.abc import Collection, Sequence

from groupcoord_spark.assignors.membership import Member, TopicPartition, java_order
from groupcoord_spark.assignors.ownership_claims import ResolvedClaims
from groupcoord_spark.assignors.racks import GroupRacks


class ConstrainedSticky:
    """Assigns partitions so that the members' counts differ by at most one, and members keep owned partitions as far as that allows.

    members: in map order.
    partitions: all partitions of the subscribed topics, ascending by topic and number.
    partitions_by_member: the result, by member id.
    moving: partitions in the result that another member has to revoke first.
    """

    def __init__(
        self, members: Sequence[Member], partitions: Collection[TopicPartition], claims: ResolvedClaims, racks: GroupRacks
    ) -> None:
        self._members = members
        self._partitions = partitions
        self._claims = claims
        self._racks = racks
        self._min_quota, self._expected_over_min_quota = divmod(len(partitions), len(members))
        self._max_quota = self._min_quota + (1 if self._expected_over_min_quota else 0)
        self.partitions_by_member: dict[str, list[TopicPartition]] = {}
        self.moving: set[TopicPartition] = set()
        self._revoked_from: dict[TopicPartition, str] = {}
        # As in Kafka: members below the minimum quota, members exactly at it that may get one more, and the number above it.
        self._under_min_quota: list[Member] = []
        self._at_min_quota: deque[Member] = deque()
        self._over_min_quota = 0
        self._keep_owned()
        self._assign_free()

    def _keep_owned(self) -> None:
        for member in self._members:
            owned = self._claims.owned[member.member_id]
            keepable = [p for p in owned if p not in self._claims.contested and not self._racks.mismatch(member, p)]
            keepable.sort(key=lambda p: (p.partition, java_order(p.topic)))
            if len(keepable) < self._min_quota:
                self._under_min_quota.append(member)
                kept = keepable
            elif len(keepable) >= self._max_quota and self._over_min_quota < self._expected_over_min_quota:
                kept = keepable[: self._max_quota]
                self._over_min_quota += 1
                if self._over_min_quota == self._expected_over_min_quota:
                    self._at_min_quota.clear()
            else:
                kept = keepable[: self._min_quota]
                if self._over_min_quota < self._expected_over_min_quota:
                    self._at_min_quota.append(member)
            self.partitions_by_member[member.member_id] = list(kept)
            for partition in set(owned).difference(kept, self._claims.contested):
                self._revoked_from[partition] = member.member_id

    def _assign_free(self) -> None:
        kept = {partition for partitions in self.partitions_by_member.values() for partition in partitions}
        free = [partition for partition in self._partitions if partition not in kept]
        if self._racks.member_racks:
            members_by_rack = Counter(self._racks.member_racks)
            # Partitions with the fewest members in their racks are assigned first.
            free.sort(key=lambda p: sum(members_by_rack[rack] for rack in self._racks.racks_by_partition[p]))
        self._under_min_quota.sort(key=lambda member: java_order(member.member_id))
        self._at_min_quota = deque(sorted(self._at_min_quota, key=lambda member: java_order(member.member_id)))
        if self._racks.matter:
            free = self._assign_by_rack(free)
        self._assign_in_turn(free)

    def _assign_by_rack(self, free: list[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members in their racks that are below their quota. Returns the partitions that remain."""
        left: list[TopicPartition] = []
        turn = 0
        for partition in free:
            racks = self._racks.racks_by_partition[partition]
            if (index := self._index_by_rack(racks, turn)) is not None:
                member = self._under_min_quota[index]
                self._assign(partition, member)
                turn = index + 1
                if len(self.partitions_by_member[member.member_id]) >= self._min_quota:
                    del self._under_min_quota[index]
                    turn = index
                    if self._min_quota < self._max_quota and self._over_min_quota < self._expected_over_min_quota:
                        self._at_min_quota.append(member)
                turn = turn % len(self._under_min_quota) if self._under_min_quota else 0
            elif (extra := next((member for member in self._at_min_quota if member.rack in racks), None)) is not None:
                self._assign(partition, extra)
                self._at_min_quota.remove(extra)
                self._over_min_quota += 1
                if self._over_min_quota == self._expected_over_min_quota:
                    self._at_min_quota.clear()
            else:
                left.append(partition)
        return left

    def _index_by_rack(self, racks: frozenset[str], turn: int) -> int | None:
        """Return the index in ``_under_min_quota`` of the first member in one of these racks, searching from ``turn`` and wrapping
        around."""
        for step in range(len(self._under_min_quota)):
            index = (turn + step) % len(self._under_min_quota)
            if self._under_min_quota[index].rack in racks:
                return index
        return None

    def _assign_in_turn(self, free: list[TopicPartition]) -> None:
        in_turn = deque(self._under_min_quota)
        for partition in free:
            if in_turn:
                member = in_turn.popleft()
                self._assign(partition, member)
                if len(self.partitions_by_member[member.member_id]) < self._min_quota:
                    in_turn.append(member)
                else:
                    self._at_min_quota.append(member)
            elif self._at_min_quota:
                self._assign(partition, self._at_min_quota.popleft())
            else:
                # Claims of partitions that do not exist count for the quota. Kafka's assignor throws an exception here.
                break

    def _assign(self, partition: TopicPartition, member: Member) -> None:
        self.partitions_by_member[member.member_id].append(partition)
        revoked_from = self._revoked_from.get(partition)
        if partition in self._claims.contested or revoked_from not in (None, member.member_id):
            self.moving.add(partition)
