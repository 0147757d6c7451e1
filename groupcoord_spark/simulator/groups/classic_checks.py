"""The checks of a request against its group, in the order in which each release makes them.

A check is a condition on (group, request) and the error that answers the request if the condition is true. The first true condition
decides; the error NONE accepts the request without the checks that follow. A request for which no condition is true is accepted.
The constants are named after the first release with these checks; release.py says which release uses which.
Rules: docs/reference/coordinator.md, chapters 4.1 (JoinGroup), 6 (SyncGroup), 7 (Heartbeat), 8 (LeaveGroup) and 9.1 (OffsetCommit).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from groupcoord_spark.simulator.groups.classic_group import ClassicGroup
from groupcoord_spark.simulator.groups.states import State
from groupcoord_spark.simulator.messages.errors import Error


class GroupCheck(NamedTuple):
    """A condition on (group, request), and the error that answers the request if the condition is true."""

    condition: Callable[[ClassicGroup, Any], bool]
    error: Error


GroupChecks = tuple[GroupCheck, ...]


def first_error(checks: GroupChecks, group: ClassicGroup, request: Any) -> Error:
    """The error of the first check whose condition is true; NONE if no condition is true."""
    for condition, error in checks:
        if condition(group, request):
            return error
    return Error.NONE


# Conditions of any request of a member


def is_dead(group: ClassicGroup, request: Any) -> bool:
    """The group was removed, or its partition moved to another broker, after the request had looked the group up."""
    return group.state is State.DEAD


def is_empty(group: ClassicGroup, request: Any) -> bool:
    """The group has no members."""
    return group.state is State.EMPTY


def is_completing(group: ClassicGroup, request: Any) -> bool:
    """The group waits for the SyncGroup of its leader."""
    return group.state is State.COMPLETING_REBALANCE


def instance_is_unknown(group: ClassicGroup, request: Any) -> bool:
    """The request names an instance id that no member has."""
    return request.group_instance_id is not None and request.group_instance_id not in group.static_members


def is_fenced(group: ClassicGroup, request: Any) -> bool:
    """The instance id belongs to another member id, because a newer process joined with the same instance id."""
    return (
        request.group_instance_id is not None
        and group.static_members.get(request.group_instance_id, request.member_id) != request.member_id
    )


def is_not_a_member(group: ClassicGroup, request: Any) -> bool:
    """The group has no member with this member id. A pending member id is not a member."""
    return request.member_id not in group.members


def generation_differs(group: ClassicGroup, request: Any) -> bool:
    """The request names another generation than that of the group."""
    return bool(request.generation != group.generation)


# SyncGroup


def protocol_differs(group: ClassicGroup, request: Any) -> bool:
    """The request names a protocol type or a protocol other than that of the group (KIP-559)."""
    return (request.protocol_type is not None and request.protocol_type != group.protocol_type) or (
        request.protocol is not None and request.protocol != group.protocol
    )


# JoinGroup


def protocols_do_not_fit(group: ClassicGroup, request: Any) -> bool:
    """The protocols of the request do not suit the group.

    An Empty group accepts any protocol type that is not empty, with at least one protocol. Any other group accepts its own protocol type,
    with a protocol that all its members list.
    """
    names = [name for name, _ in request.protocols]
    if group.state is State.EMPTY:
        return not (request.protocol_type and names)
    return request.protocol_type != group.protocol_type or not group.supports_any(names)


def protocols_differ_from_members(group: ClassicGroup, request: Any) -> bool:
    """The same as protocols_do_not_fit, except that an Empty group accepts everything."""
    return group.state is not State.EMPTY and protocols_do_not_fit(group, request)


def protocols_are_missing(group: ClassicGroup, request: Any) -> bool:
    """The request lists no protocol. A broker without this check fails in the vote with IllegalArgumentException."""
    return not request.protocols


def member_id_is_pending(group: ClassicGroup, request: Any) -> bool:
    """The member id is one that MEMBER_ID_REQUIRED gave to a new member."""
    return request.member_id in group.pending_members


def member_id_is_unknown(group: ClassicGroup, request: Any) -> bool:
    """The request names a member id that no member of the group has."""
    return bool(request.member_id) and request.member_id not in group.members


def member_id_is_fenced(group: ClassicGroup, request: Any) -> bool:
    """The request names a member id, and its instance id belongs to another member id."""
    return bool(request.member_id) and is_fenced(group, request)


def member_id_has_unknown_instance(group: ClassicGroup, request: Any) -> bool:
    """The request names a member id, and an instance id that no member has."""
    return bool(request.member_id) and instance_is_unknown(group, request)


# OffsetCommit and TxnOffsetCommit


def has_no_generation_and_group_is_empty(group: ClassicGroup, request: Any) -> bool:
    """The request names no generation and the group has no members: a consumer that uses assign(), or an administrator."""
    return request.generation < 0 and group.state is State.EMPTY


def has_no_member_fields(group: ClassicGroup, request: Any) -> bool:
    """The request names no generation, no member id and no instance id."""
    return request.generation < 0 and not request.member_id and request.group_instance_id is None


def generation_is_given_and_differs(group: ClassicGroup, request: Any) -> bool:
    """The request names a generation other than that of the group."""
    return bool(request.generation >= 0 and request.generation != group.generation)


# Checks that several requests have in common

NOT_A_MEMBER = GroupCheck(is_not_a_member, Error.UNKNOWN_MEMBER_ID)
FENCED = GroupCheck(is_fenced, Error.FENCED_INSTANCE_ID)
UNKNOWN_INSTANCE = GroupCheck(instance_is_unknown, Error.UNKNOWN_MEMBER_ID)
OTHER_GENERATION = GroupCheck(generation_differs, Error.ILLEGAL_GENERATION)
DEAD_IS_UNKNOWN_MEMBER = GroupCheck(is_dead, Error.UNKNOWN_MEMBER_ID)
DEAD_IS_NOT_AVAILABLE = GroupCheck(is_dead, Error.COORDINATOR_NOT_AVAILABLE)
ACCEPTED_WITHOUT_MEMBERS = GroupCheck(has_no_generation_and_group_is_empty, Error.NONE)
REBALANCING = GroupCheck(is_completing, Error.REBALANCE_IN_PROGRESS)

# Is the sender a member? LeaveGroup makes only these checks

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
    """The answer to a heartbeat in one state.

    checks: made first; the error of a check is the answer.
    answer: the error if all checks pass; NONE and REBALANCE_IN_PROGRESS are both answers to a member in good standing.
    restarts_session: True if a heartbeat that passes the checks restarts the member's session timeout.
    """

    checks: GroupChecks
    answer: Error
    restarts_session: bool


HeartbeatRules = dict[State, HeartbeatRule]


def _heartbeat_rules(dead: GroupCheck, member: GroupChecks, completing: HeartbeatRule) -> HeartbeatRules:
    member_and_generation = (*member, OTHER_GENERATION)
    return {
        State.DEAD: HeartbeatRule((dead,), Error.UNKNOWN_MEMBER_ID, restarts_session=False),
        State.EMPTY: HeartbeatRule(member, Error.UNKNOWN_MEMBER_ID, restarts_session=False),
        State.COMPLETING_REBALANCE: completing,
        State.PREPARING_REBALANCE: HeartbeatRule(member_and_generation, Error.REBALANCE_IN_PROGRESS, restarts_session=True),
        State.STABLE: HeartbeatRule(member_and_generation, Error.NONE, restarts_session=True),
    }


_MEMBER_AND_GENERATION_2_3 = (*MEMBER_CHECKS_2_3, OTHER_GENERATION)
_MEMBER_AND_GENERATION_3_0 = (*MEMBER_CHECKS_3_0, OTHER_GENERATION)

HEARTBEAT_RULES_0_10 = _heartbeat_rules(
    DEAD_IS_UNKNOWN_MEMBER, MEMBER_CHECKS_0_10, HeartbeatRule(MEMBER_CHECKS_0_10, Error.REBALANCE_IN_PROGRESS, restarts_session=False)
)
HEARTBEAT_RULES_2_3 = _heartbeat_rules(
    DEAD_IS_NOT_AVAILABLE, MEMBER_CHECKS_2_3, HeartbeatRule(_MEMBER_AND_GENERATION_2_3, Error.REBALANCE_IN_PROGRESS, restarts_session=False)
)
HEARTBEAT_RULES_2_6 = _heartbeat_rules(
    DEAD_IS_NOT_AVAILABLE, MEMBER_CHECKS_2_3, HeartbeatRule(_MEMBER_AND_GENERATION_2_3, Error.NONE, restarts_session=True)
)
HEARTBEAT_RULES_3_0 = _heartbeat_rules(
    DEAD_IS_NOT_AVAILABLE, MEMBER_CHECKS_3_0, HeartbeatRule(_MEMBER_AND_GENERATION_3_0, Error.NONE, restarts_session=True)
)
