"""Sticky assignment of a group whose members all name the same topics (AbstractStickyAssignor, ConstrainedAssignmentBuilder)."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Sequence

from groupcoord_spark.assignors.membership import Member, TopicPartition, java_order
from groupcoord_spark.assignors.ownership_claims import ResolvedClaims
from groupcoord_spark.assignors.racks import GroupRacks


class ConstrainedSticky:
    """Hands out partitions so that counts differ by at most one, and members keep what they own as far as that allows.

    members: in map order. partitions: all of the subscribed topics, ascending by topic and number.
    held: by member id, what it gets. changing_hands: partitions given to one member that another one has still to give up.
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
        self.held: dict[str, list[TopicPartition]] = {}
        self.changing_hands: set[TopicPartition] = set()
        self._revoked_from: dict[TopicPartition, str] = {}
        # members that must get more, members that have the least share and may get one more, and how many have got it
        self._under_min_quota: list[Member] = []
        self._at_min_quota: deque[Member] = deque()
        self._over_min_quota = 0
        self._keep_owned()
        self._hand_out_free()

    def _keep_owned(self) -> None:
        for member in self._members:
            owned = self._claims.owned[member.member_id]
            wanted = [p for p in owned if p not in self._claims.contested and not self._racks.mismatch(member, p)]
            wanted.sort(key=lambda p: (p.partition, java_order(p.topic)))
            if len(wanted) < self._min_quota:
                self._under_min_quota.append(member)
                kept = wanted
            elif len(wanted) >= self._max_quota and self._over_min_quota < self._expected_over_min_quota:
                kept = wanted[: self._max_quota]
                self._over_min_quota += 1
                if self._over_min_quota == self._expected_over_min_quota:
                    self._at_min_quota.clear()
            else:
                kept = wanted[: self._min_quota]
                if self._over_min_quota < self._expected_over_min_quota:
                    self._at_min_quota.append(member)
            self.held[member.member_id] = list(kept)
            for partition in set(owned).difference(kept, self._claims.contested):
                self._revoked_from[partition] = member.member_id

    def _hand_out_free(self) -> None:
        kept = {partition for held in self.held.values() for partition in held}
        free = [partition for partition in self._partitions if partition not in kept]
        if self._racks.of_members:
            members_in = Counter(self._racks.of_members)
            # the partitions that the fewest members can read nearby choose first
            free.sort(key=lambda p: sum(members_in[rack] for rack in self._racks.of_partitions[p]))
        self._under_min_quota.sort(key=lambda member: java_order(member.member_id))
        self._at_min_quota = deque(sorted(self._at_min_quota, key=lambda member: java_order(member.member_id)))
        if self._racks.matter:
            free = self._hand_out_by_rack(free)
        self._hand_out_in_turn(free)

    def _hand_out_by_rack(self, free: list[TopicPartition]) -> list[TopicPartition]:
        """Give partitions to members of their racks while there are some that have room; the partitions that are left."""
        left: list[TopicPartition] = []
        turn = 0
        for partition in free:
            racks = self._racks.of_partitions[partition]
            if (place := self._place_by_rack(racks, turn)) is not None:
                member = self._under_min_quota[place]
                self._give(partition, member)
                turn = place + 1
                if len(self.held[member.member_id]) >= self._min_quota:
                    del self._under_min_quota[place]
                    turn = place
                    if self._min_quota < self._max_quota and self._over_min_quota < self._expected_over_min_quota:
                        self._at_min_quota.append(member)
                turn = turn % len(self._under_min_quota) if self._under_min_quota else 0
            elif (extra := next((member for member in self._at_min_quota if member.rack in racks), None)) is not None:
                self._give(partition, extra)
                self._at_min_quota.remove(extra)
                self._over_min_quota += 1
                if self._over_min_quota == self._expected_over_min_quota:
                    self._at_min_quota.clear()
            else:
                left.append(partition)
        return left

    def _place_by_rack(self, racks: frozenset[str], turn: int) -> int | None:
        """The place in ``_under_min_quota`` of the first member of these racks, seen from ``turn`` around."""
        for step in range(len(self._under_min_quota)):
            place = (turn + step) % len(self._under_min_quota)
            if self._under_min_quota[place].rack in racks:
                return place
        return None

    def _hand_out_in_turn(self, free: list[TopicPartition]) -> None:
        in_turn = deque(self._under_min_quota)
        for partition in free:
            if in_turn:
                member = in_turn.popleft()
                self._give(partition, member)
                if len(self.held[member.member_id]) < self._min_quota:
                    in_turn.append(member)
                else:
                    self._at_min_quota.append(member)
            elif self._at_min_quota:
                self._give(partition, self._at_min_quota.popleft())
            else:
                # claims of partitions that the topic does not have take up room; Kafka's assignor fails here
                break

    def _give(self, partition: TopicPartition, member: Member) -> None:
        self.held[member.member_id].append(partition)
        revoked_from = self._revoked_from.get(partition)
        if partition in self._claims.contested or revoked_from not in (None, member.member_id):
            self.changing_hands.add(partition)
