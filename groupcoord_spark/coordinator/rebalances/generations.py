"""One generation of a classic group as its record tells it, and what two of them in succession have in common."""

from __future__ import annotations

from groupcoord_spark.coordinator.groups.classic import CONNECT, CONSUMER, connect_tasks, decoded_or_none
from groupcoord_spark.coordinator.rebalances.moves import Holding, Moves, moves_between
from groupcoord_spark.coordinator.rebalances.records import NOT_KNOWN, Value
from groupcoord_spark.protocol import assigned_partitions


class Generation:
    """What the record of one generation says, and what was read out of it so far."""

    __slots__ = ("held", "join_ended_ms", "leader_epoch", "members", "tells_join_end", "timestamp_ms", "value")

    members: dict[str, Value]
    held: dict[str, Holding]

    def __init__(self, value: Value, timestamp_ms: int, leader_epoch: int, before: Generation | None = None) -> None:
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.leader_epoch = leader_epoch
        if before is not None and _tell_the_same_members(before.value, value):
            self.members, self.held = before.members, before.held
        else:
            self.members, self.held = {member["member_id"]: member for member in value["members"]}, {}
        told = value.get("current_state_timestamp_ms")
        self.tells_join_end = told is not None and told != NOT_KNOWN
        self.join_ended_ms: int = told if told is not None and told != NOT_KNOWN else timestamp_ms
        """When all session timers began anew; until 2.1 no record tells it."""

    def holding(self, member_id: str) -> Holding:
        held = self.held.get(member_id)
        if held is None:
            held = self.held[member_id] = _held(self.value, self.members[member_id])
        return held


def is_same_membership(old: Generation, new: Generation) -> bool:
    """Whether the members are the same but for static ones under new ids."""
    if old.members.keys() == new.members.keys():
        return True
    return len(old.members) == len(new.members) and {_lasting_id(member) for member in old.members.values()} == {
        _lasting_id(member) for member in new.members.values()
    }


def holdings_that_changed(old: Generation, new: Generation) -> tuple[dict[str, Holding], dict[str, Holding]]:
    """What members had and what they have, of those whose assignment is another: the others keep what they have."""
    before: dict[str, Holding] = {}
    after: dict[str, Holding] = {}
    if new.members is old.members:
        return before, after
    assignment_tells_all = not is_connect(new.value)
    for member_id, member in new.members.items():
        earlier = old.members.get(member_id)
        if assignment_tells_all and earlier is not None and earlier["assignment"] == member["assignment"]:
            if member_id in old.held:
                new.held[member_id] = old.held[member_id]
            continue
        if earlier is not None:
            before[member_id] = old.holding(member_id)
        after[member_id] = new.holding(member_id)
    for member_id in old.members.keys() - new.members.keys():
        before[member_id] = old.holding(member_id)
    return before, after


def moves_from_nothing(new: Generation) -> Moves:
    """Of a group's first generation: all partitions had no owner before."""
    return moves_between({}, {member_id: new.holding(member_id) for member_id in new.members})


def _tell_the_same_members(before: Value, now: Value) -> bool:
    """Whether all members are as they were, and their bytes mean the same."""
    same: bool = (
        now["members"] == before["members"] and now["protocol"] == before["protocol"] and now["protocol_type"] == before["protocol_type"]
    )
    return same


def is_connect(value: Value) -> bool:
    """Whether the members are Connect workers."""
    return bool(value["protocol_type"] == CONNECT)


def _lasting_id(member: Value) -> tuple[str, str]:
    instance_id = member.get("group_instance_id")
    return ("member", member["member_id"]) if instance_id is None else ("instance", instance_id)


def _held(value: Value, member: Value) -> Holding:
    """What the member has in this generation; nothing where its bytes do not parse."""
    if value["protocol_type"] == CONSUMER:
        return decoded_or_none(assigned_partitions, member["assignment"]) or frozenset()
    if value["protocol_type"] == CONNECT:
        return frozenset(connect_tasks(member["subscription"], member["assignment"], value["protocol"]).current)
    return frozenset()
