"""One generation of a classic group from its record, and the differences between two generations."""

from functools import lru_cache

from groupcoord_spark.coordinator.groups.classic import CONNECT, CONSUMER, connect_tasks, decoded_or_none
from groupcoord_spark.coordinator.groups.group import Value
from groupcoord_spark.coordinator.rebalances.group_records import NOT_KNOWN
from groupcoord_spark.coordinator.rebalances.moves import PartitionSet
from groupcoord_spark.protocol import assigned_partitions


class Generation:
    """The record of one generation."""

    __slots__ = ("has_join_end", "join_ended_ms", "leader_epoch", "members", "timestamp_ms", "value")

    def __init__(self, value: Value, timestamp_ms: int, leader_epoch: int) -> None:
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.leader_epoch = leader_epoch
        self.members: dict[str, Value] = {member["member_id"]: member for member in value["members"]}
        state_timestamp_ms = value.get("current_state_timestamp_ms")
        self.has_join_end = state_timestamp_ms is not None and state_timestamp_ms != NOT_KNOWN
        self.join_ended_ms: int = state_timestamp_ms if state_timestamp_ms is not None and self.has_join_end else timestamp_ms
        """End of the join phase, when all session timers started again. Records up to 2.1 do not have it: then the record's timestamp."""

    def partitions_of(self, member_id: str) -> PartitionSet:
        """Return the member's partitions or tasks in this generation, or an empty set if its bytes are malformed."""
        member = self.members[member_id]
        if self.value["protocol_type"] == CONSUMER:
            return _assigned(member["assignment"])
        if is_connect(self.value):
            return connect_tasks(member["subscription"], member["assignment"], self.value["protocol"]).current
        return frozenset()


def is_same_membership(old: Generation, new: Generation) -> bool:
    """Return whether the members are the same. A static member may have a new member id."""
    if old.members.keys() == new.members.keys():
        return True
    return len(old.members) == len(new.members) and {_identity(member) for member in old.members.values()} == {
        _identity(member) for member in new.members.values()
    }


def partitions_that_changed(old: Generation, new: Generation) -> tuple[dict[str, PartitionSet], dict[str, PartitionSet]]:
    """Member id -> partitions in the old generation, and in the new one. Members whose assignment is the same are in neither."""
    old_partitions: dict[str, PartitionSet] = {}
    new_partitions: dict[str, PartitionSet] = {}
    # Partitions of a Connect worker depend on its subscription as well.
    assignment_has_all = not is_connect(new.value)
    for member_id, member in new.members.items():
        old_member = old.members.get(member_id)
        if assignment_has_all and old_member is not None and old_member["assignment"] == member["assignment"]:
            continue
        if old_member is not None:
            old_partitions[member_id] = old.partitions_of(member_id)
        new_partitions[member_id] = new.partitions_of(member_id)
    for member_id in old.members.keys() - new.members.keys():
        old_partitions[member_id] = old.partitions_of(member_id)
    return old_partitions, new_partitions


def is_connect(value: Value) -> bool:
    """Return whether the members are Connect workers."""
    return bool(value["protocol_type"] == CONNECT)


def _identity(member: Value) -> tuple[str, str]:
    """Return the instance id of a static member, else the member id."""
    instance_id = member.get("group_instance_id")
    return ("member", member["member_id"]) if instance_id is None else ("instance", instance_id)


@lru_cache(maxsize=4096)
def _assigned(assignment: bytes) -> PartitionSet:
    return decoded_or_none(assigned_partitions, assignment) or frozenset()
