"""The validation ladders: what a request is asked, in which order, and what it is answered. The first row that holds answers.

A row is a condition of (group, request) and an error; NONE accepts the request there and then. A ladder nothing of which holds accepts
too. Which release climbs which ladder is told in release.py.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.group import Group
from groupcoord_spark.simulator.states import State


class GroupCheck(NamedTuple):
    """One rung: if the condition holds, the answer is given."""

    condition: Callable[[Group, Any], bool]
    answer: Error


GroupChecks = tuple[GroupCheck, ...]


def first_error(ladder: GroupChecks, group: Group, request: Any) -> Error:
    """The answer of the first row that holds; NONE if none does."""
    for condition, answer in ladder:
        if condition(group, request):
            return answer
    return Error.NONE


# Conditions of any request of a member


def is_dead(group: Group, request: Any) -> bool:
    """The group is gone, or went to another broker, while the request was on its way."""
    return group.state is State.DEAD


def is_empty(group: Group, request: Any) -> bool:
    """The group has no members."""
    return group.state is State.EMPTY


def is_completing(group: Group, request: Any) -> bool:
    """The group waits for its leader's SyncGroup."""
    return group.state is State.COMPLETING_REBALANCE


def instance_is_unknown(group: Group, request: Any) -> bool:
    """An instance id is given that no member has."""
    return request.group_instance_id is not None and request.group_instance_id not in group.static_members


def is_fenced(group: Group, request: Any) -> bool:
    """The instance id belongs to another member id: a second process has taken over."""
    return (
        request.group_instance_id is not None
        and group.static_members.get(request.group_instance_id, request.member_id) != request.member_id
    )


def is_not_a_member(group: Group, request: Any) -> bool:
    """The member id is not one of the group's members. A pending id is none."""
    return request.member_id not in group.members


def generation_differs(group: Group, request: Any) -> bool:
    """The request is of another generation than the group."""
    return bool(request.generation != group.generation)


# SyncGroup


def protocol_differs(group: Group, request: Any) -> bool:
    """Protocol type or name are given and not those of the group (KIP-559)."""
    return (request.protocol_type is not None and request.protocol_type != group.protocol_type) or (
        request.protocol is not None and request.protocol != group.protocol
    )


# JoinGroup


def protocols_do_not_fit(group: Group, request: Any) -> bool:
    """An Empty group wants a protocol type and a protocol; any other the same type and a protocol that all its members list."""
    names = [name for name, _ in request.protocols]
    if group.state is State.EMPTY:
        return not (request.protocol_type and names)
    return request.protocol_type != group.protocol_type or not group.supports_any(names)


def protocols_differ_from_members(group: Group, request: Any) -> bool:
    """As protocols_do_not_fit, but an Empty group takes anything."""
    return group.state is not State.EMPTY and protocols_do_not_fit(group, request)


def protocols_are_missing(group: Group, request: Any) -> bool:
    """No protocol is listed. Where nothing refuses that, the election throws IllegalArgumentException."""
    return not request.protocols


def member_id_is_pending(group: Group, request: Any) -> bool:
    """The member comes back with the id it was told to use."""
    return request.member_id in group.pending_members


def member_id_is_unknown(group: Group, request: Any) -> bool:
    """A member id is given that is not one of the group's members."""
    return bool(request.member_id) and request.member_id not in group.members


def member_id_is_fenced(group: Group, request: Any) -> bool:
    """A member id is given, and the instance id belongs to another one."""
    return bool(request.member_id) and is_fenced(group, request)


def member_id_has_unknown_instance(group: Group, request: Any) -> bool:
    """A member id is given with an instance id that no member has."""
    return bool(request.member_id) and instance_is_unknown(group, request)


# OffsetCommit and TxnOffsetCommit


def has_no_generation_and_group_is_empty(group: Group, request: Any) -> bool:
    """Sent without a generation while nobody is a member: a consumer that assigns its own partitions, or an administrator."""
    return request.generation < 0 and group.state is State.EMPTY


def has_no_member_fields(group: Group, request: Any) -> bool:
    """Neither generation nor member id nor instance id is given."""
    return request.generation < 0 and not request.member_id and request.group_instance_id is None


def generation_is_given_and_differs(group: Group, request: Any) -> bool:
    """A generation is given, and it is not the group's."""
    return bool(request.generation >= 0 and request.generation != group.generation)


# Rows that several ladders share

NOT_A_MEMBER = GroupCheck(is_not_a_member, Error.UNKNOWN_MEMBER_ID)
FENCED = GroupCheck(is_fenced, Error.FENCED_INSTANCE_ID)
UNKNOWN_INSTANCE = GroupCheck(instance_is_unknown, Error.UNKNOWN_MEMBER_ID)
OTHER_GENERATION = GroupCheck(generation_differs, Error.ILLEGAL_GENERATION)
DEAD_IS_UNKNOWN_MEMBER = GroupCheck(is_dead, Error.UNKNOWN_MEMBER_ID)
DEAD_IS_NOT_AVAILABLE = GroupCheck(is_dead, Error.COORDINATOR_NOT_AVAILABLE)
ACCEPTED_WITHOUT_MEMBERS = GroupCheck(has_no_generation_and_group_is_empty, Error.NONE)
REBALANCING = GroupCheck(is_completing, Error.REBALANCE_IN_PROGRESS)

# Who may speak for a member: LeaveGroup climbs these alone

MEMBER_CHECKS_0_10: GroupChecks = (NOT_A_MEMBER,)
MEMBER_CHECKS_2_3: GroupChecks = (FENCED, NOT_A_MEMBER)
MEMBER_CHECKS_3_0: GroupChecks = (UNKNOWN_INSTANCE, FENCED, NOT_A_MEMBER)

JOIN_CHECKS_0_10: GroupChecks = (
    GroupCheck(protocols_differ_from_members, Error.INCONSISTENT_GROUP_PROTOCOL),
    GroupCheck(member_id_is_unknown, Error.UNKNOWN_MEMBER_ID),
    DEAD_IS_UNKNOWN_MEMBER,
    GroupCheck(protocols_are_missing, Error.UNKNOWN_SERVER_ERROR),
)
JOIN_CHECKS_1_0: GroupChecks = (
    GroupCheck(protocols_do_not_fit, Error.INCONSISTENT_GROUP_PROTOCOL),
    GroupCheck(member_id_is_unknown, Error.UNKNOWN_MEMBER_ID),
    DEAD_IS_UNKNOWN_MEMBER,
)
JOIN_CHECKS_2_2: GroupChecks = (
    DEAD_IS_UNKNOWN_MEMBER,
    GroupCheck(protocols_do_not_fit, Error.INCONSISTENT_GROUP_PROTOCOL),
    GroupCheck(member_id_is_pending, Error.NONE),
    GroupCheck(member_id_is_unknown, Error.UNKNOWN_MEMBER_ID),
)
JOIN_CHECKS_2_3: GroupChecks = (
    DEAD_IS_NOT_AVAILABLE,
    GroupCheck(protocols_do_not_fit, Error.INCONSISTENT_GROUP_PROTOCOL),
    GroupCheck(member_id_is_pending, Error.NONE),
    GroupCheck(member_id_is_fenced, Error.FENCED_INSTANCE_ID),
    GroupCheck(member_id_has_unknown_instance, Error.UNKNOWN_MEMBER_ID),
    GroupCheck(member_id_is_unknown, Error.UNKNOWN_MEMBER_ID),
)

SYNC_CHECKS_0_10: GroupChecks = (NOT_A_MEMBER, OTHER_GENERATION, DEAD_IS_UNKNOWN_MEMBER)
SYNC_CHECKS_2_3: GroupChecks = (DEAD_IS_NOT_AVAILABLE, *MEMBER_CHECKS_2_3, OTHER_GENERATION)
SYNC_CHECKS_2_5: GroupChecks = (*SYNC_CHECKS_2_3, GroupCheck(protocol_differs, Error.INCONSISTENT_GROUP_PROTOCOL))
SYNC_CHECKS_3_0: GroupChecks = (
    GroupCheck(is_empty, Error.UNKNOWN_MEMBER_ID),
    DEAD_IS_NOT_AVAILABLE,
    *MEMBER_CHECKS_3_0,
    OTHER_GENERATION,
    GroupCheck(protocol_differs, Error.INCONSISTENT_GROUP_PROTOCOL),
)

COMMIT_CHECKS_0_10: GroupChecks = (DEAD_IS_UNKNOWN_MEMBER, ACCEPTED_WITHOUT_MEMBERS, REBALANCING, NOT_A_MEMBER, OTHER_GENERATION)
COMMIT_CHECKS_2_3: GroupChecks = (DEAD_IS_NOT_AVAILABLE, FENCED, ACCEPTED_WITHOUT_MEMBERS, NOT_A_MEMBER, OTHER_GENERATION, REBALANCING)
COMMIT_CHECKS_2_8: GroupChecks = (DEAD_IS_NOT_AVAILABLE, ACCEPTED_WITHOUT_MEMBERS, *MEMBER_CHECKS_2_3, OTHER_GENERATION, REBALANCING)
COMMIT_CHECKS_3_0: GroupChecks = (DEAD_IS_NOT_AVAILABLE, ACCEPTED_WITHOUT_MEMBERS, *MEMBER_CHECKS_3_0, OTHER_GENERATION, REBALANCING)

TXN_COMMIT_CHECKS_0_11: GroupChecks = (DEAD_IS_UNKNOWN_MEMBER,)
TXN_COMMIT_CHECKS_2_3: GroupChecks = (DEAD_IS_NOT_AVAILABLE,)
TXN_COMMIT_CHECKS_2_5: GroupChecks = (
    DEAD_IS_NOT_AVAILABLE,
    FENCED,
    GroupCheck(member_id_is_unknown, Error.UNKNOWN_MEMBER_ID),
    GroupCheck(generation_is_given_and_differs, Error.ILLEGAL_GENERATION),
)
TXN_COMMIT_CHECKS_3_0: GroupChecks = (
    DEAD_IS_NOT_AVAILABLE,
    ACCEPTED_WITHOUT_MEMBERS,
    GroupCheck(has_no_member_fields, Error.NONE),
    *MEMBER_CHECKS_3_0,
    OTHER_GENERATION,
)


class HeartbeatRule(NamedTuple):
    """What a heartbeat gets in one state: the ladder first, then the answer; ``restarts_session`` puts the session off."""

    ladder: GroupChecks
    answer: Error
    restarts_session: bool


HeartbeatRules = dict[State, HeartbeatRule]


def _heartbeats(dead: GroupCheck, member: GroupChecks, completing: HeartbeatRule) -> HeartbeatRules:
    of_this_generation = (*member, OTHER_GENERATION)
    return {
        State.DEAD: HeartbeatRule((dead,), Error.UNKNOWN_MEMBER_ID, restarts_session=False),
        State.EMPTY: HeartbeatRule(member, Error.UNKNOWN_MEMBER_ID, restarts_session=False),
        State.COMPLETING_REBALANCE: completing,
        State.PREPARING_REBALANCE: HeartbeatRule(of_this_generation, Error.REBALANCE_IN_PROGRESS, restarts_session=True),
        State.STABLE: HeartbeatRule(of_this_generation, Error.NONE, restarts_session=True),
    }


_MEMBER_AND_GENERATION_2_3 = (*MEMBER_CHECKS_2_3, OTHER_GENERATION)
_MEMBER_AND_GENERATION_3_0 = (*MEMBER_CHECKS_3_0, OTHER_GENERATION)

HEARTBEAT_RULES_0_10 = _heartbeats(
    DEAD_IS_UNKNOWN_MEMBER, MEMBER_CHECKS_0_10, HeartbeatRule(MEMBER_CHECKS_0_10, Error.REBALANCE_IN_PROGRESS, restarts_session=False)
)
HEARTBEAT_RULES_2_3 = _heartbeats(
    DEAD_IS_NOT_AVAILABLE, MEMBER_CHECKS_2_3, HeartbeatRule(_MEMBER_AND_GENERATION_2_3, Error.REBALANCE_IN_PROGRESS, restarts_session=False)
)
HEARTBEAT_RULES_2_6 = _heartbeats(
    DEAD_IS_NOT_AVAILABLE, MEMBER_CHECKS_2_3, HeartbeatRule(_MEMBER_AND_GENERATION_2_3, Error.NONE, restarts_session=True)
)
HEARTBEAT_RULES_3_0 = _heartbeats(
    DEAD_IS_NOT_AVAILABLE, MEMBER_CHECKS_3_0, HeartbeatRule(_MEMBER_AND_GENERATION_3_0, Error.NONE, restarts_session=True)
)
