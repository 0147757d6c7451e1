"""Checks of a request against its group, in the order of each release.

A check is a condition on (group, request) and the error that answers the request if the condition holds. The first condition that holds
decides; the error NONE accepts the request and skips the remaining checks. A request that meets no condition is accepted. Each constant is
named after the first release that makes these checks; release.py maps releases to checks.
Rules: docs/reference/coordinator.md, chapters 4.1 (JoinGroup), 6 (SyncGroup), 7 (Heartbeat), 8 (LeaveGroup) and 9.1 (OffsetCommit).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from groupcoord_spark.simulator.groups.classic_group import ClassicGroup, GroupState
from groupcoord_spark.simulator.messages import Error


class GroupCheck(NamedTuple):
    """A condition on (group, request), and the error that answers the request if the condition is true."""

    condition: Callable[[ClassicGroup, Any], Any]
    error: Error


GroupChecks = tuple[GroupCheck, ...]


def first_error(checks: GroupChecks, group: ClassicGroup, request: Any) -> Error:
    """Return the error of the first check whose condition holds, or NONE."""
    for condition, error in checks:
        if condition(group, request):
            return error
    return Error.NONE


# Any request of a member

DEAD_IS_UNKNOWN_MEMBER = GroupCheck(lambda group, request: group.state is GroupState.DEAD, Error.UNKNOWN_MEMBER_ID)
"""The group was removed, or its partition moved to another broker, after the request had looked the group up."""
DEAD_IS_NOT_AVAILABLE = DEAD_IS_UNKNOWN_MEMBER._replace(error=Error.COORDINATOR_NOT_AVAILABLE)
EMPTY_IS_UNKNOWN_MEMBER = GroupCheck(lambda group, request: group.state is GroupState.EMPTY, Error.UNKNOWN_MEMBER_ID)
REBALANCING = GroupCheck(lambda group, request: group.state is GroupState.COMPLETING_REBALANCE, Error.REBALANCE_IN_PROGRESS)
"""The group waits for the SyncGroup of its leader."""
NOT_A_MEMBER = GroupCheck(lambda group, request: request.member_id not in group.members, Error.UNKNOWN_MEMBER_ID)
"""The group has no member with this member id. A pending member id is not a member."""
OTHER_GENERATION = GroupCheck(lambda group, request: request.generation != group.generation, Error.ILLEGAL_GENERATION)


def _names_unknown_instance(group: ClassicGroup, request: Any) -> bool:
    return request.group_instance_id is not None and request.group_instance_id not in group.static_members


def _is_fenced(group: ClassicGroup, request: Any) -> bool:
    instance_id, member_id = request.group_instance_id, request.member_id
    return instance_id is not None and group.static_members.get(instance_id, member_id) != member_id


UNKNOWN_INSTANCE = GroupCheck(_names_unknown_instance, Error.UNKNOWN_MEMBER_ID)
"""The request names an instance id that no member has."""
FENCED = GroupCheck(_is_fenced, Error.FENCED_INSTANCE_ID)
"""The instance id belongs to another member id, because a newer process joined with the same instance id."""

# SyncGroup

OTHER_PROTOCOL = GroupCheck(
    lambda group, request: request.protocol_type not in (None, group.protocol_type) or request.protocol not in (None, group.protocol),
    Error.INCONSISTENT_GROUP_PROTOCOL,
)
"""The request names a protocol type or protocol that differs from the group's (KIP-559)."""

# JoinGroup


def _does_not_fit(group: ClassicGroup, request: Any) -> bool:
    names = [name for name, _ in request.protocols]
    if group.state is GroupState.EMPTY:
        return not (request.protocol_type and names)
    return request.protocol_type != group.protocol_type or not group.supports_any(names)


PROTOCOLS_DO_NOT_FIT = GroupCheck(_does_not_fit, Error.INCONSISTENT_GROUP_PROTOCOL)
"""The protocols of the request do not suit the group.

An Empty group accepts any protocol type that is not empty, with at least one protocol. Any other group accepts its own protocol type,
with a protocol that all its members list.
"""
PROTOCOLS_DIFFER_FROM_MEMBERS = GroupCheck(
    lambda group, request: group.state is not GroupState.EMPTY and _does_not_fit(group, request), Error.INCONSISTENT_GROUP_PROTOCOL
)
"""The same, except that an Empty group accepts everything."""
NO_PROTOCOLS = GroupCheck(lambda group, request: not request.protocols, Error.UNKNOWN_SERVER_ERROR)
"""The request lists no protocol. A broker without PROTOCOLS_DO_NOT_FIT fails in the vote with IllegalArgumentException."""
ACCEPTED_AS_PENDING = GroupCheck(lambda group, request: request.member_id in group.pending_members, Error.NONE)
"""The member id was issued to a new member by MEMBER_ID_REQUIRED."""
NAMES_UNKNOWN_MEMBER = GroupCheck(
    lambda group, request: bool(request.member_id) and request.member_id not in group.members, Error.UNKNOWN_MEMBER_ID
)
MEMBER_IS_FENCED = GroupCheck(lambda group, request: bool(request.member_id) and _is_fenced(group, request), Error.FENCED_INSTANCE_ID)
"""The request names a member id, and its instance id belongs to another member id."""
MEMBER_NAMES_UNKNOWN_INSTANCE = GroupCheck(
    lambda group, request: bool(request.member_id) and _names_unknown_instance(group, request), Error.UNKNOWN_MEMBER_ID
)

# OffsetCommit and TxnOffsetCommit

ACCEPTED_WITHOUT_MEMBERS = GroupCheck(lambda group, request: request.generation < 0 and group.state is GroupState.EMPTY, Error.NONE)
"""The request names no generation and the group has no members: a consumer that uses assign(), or an administrator."""
ACCEPTED_WITHOUT_MEMBER_FIELDS = GroupCheck(
    lambda group, request: request.generation < 0 and not request.member_id and request.group_instance_id is None, Error.NONE
)
NAMES_OTHER_GENERATION = GroupCheck(
    lambda group, request: request.generation >= 0 and request.generation != group.generation, Error.ILLEGAL_GENERATION
)

# Is the sender a member? LeaveGroup makes only these checks

MEMBER_CHECKS_0_10: GroupChecks = (NOT_A_MEMBER,)
MEMBER_CHECKS_2_3: GroupChecks = (FENCED, NOT_A_MEMBER)
MEMBER_CHECKS_3_0: GroupChecks = (UNKNOWN_INSTANCE, FENCED, NOT_A_MEMBER)

JOIN_CHECKS_0_10: GroupChecks = (PROTOCOLS_DIFFER_FROM_MEMBERS, NAMES_UNKNOWN_MEMBER, DEAD_IS_UNKNOWN_MEMBER, NO_PROTOCOLS)
JOIN_CHECKS_1_0: GroupChecks = (PROTOCOLS_DO_NOT_FIT, NAMES_UNKNOWN_MEMBER, DEAD_IS_UNKNOWN_MEMBER)
JOIN_CHECKS_2_2: GroupChecks = (DEAD_IS_UNKNOWN_MEMBER, PROTOCOLS_DO_NOT_FIT, ACCEPTED_AS_PENDING, NAMES_UNKNOWN_MEMBER)
JOIN_CHECKS_2_3: GroupChecks = (
    DEAD_IS_NOT_AVAILABLE,
    PROTOCOLS_DO_NOT_FIT,
    ACCEPTED_AS_PENDING,
    MEMBER_IS_FENCED,
    MEMBER_NAMES_UNKNOWN_INSTANCE,
    NAMES_UNKNOWN_MEMBER,
)

SYNC_CHECKS_0_10: GroupChecks = (NOT_A_MEMBER, OTHER_GENERATION, DEAD_IS_UNKNOWN_MEMBER)
SYNC_CHECKS_2_3: GroupChecks = (DEAD_IS_NOT_AVAILABLE, *MEMBER_CHECKS_2_3, OTHER_GENERATION)
SYNC_CHECKS_2_5: GroupChecks = (*SYNC_CHECKS_2_3, OTHER_PROTOCOL)
SYNC_CHECKS_3_0: GroupChecks = (EMPTY_IS_UNKNOWN_MEMBER, DEAD_IS_NOT_AVAILABLE, *MEMBER_CHECKS_3_0, OTHER_GENERATION, OTHER_PROTOCOL)

COMMIT_CHECKS_0_10: GroupChecks = (DEAD_IS_UNKNOWN_MEMBER, ACCEPTED_WITHOUT_MEMBERS, REBALANCING, NOT_A_MEMBER, OTHER_GENERATION)
COMMIT_CHECKS_2_3: GroupChecks = (DEAD_IS_NOT_AVAILABLE, FENCED, ACCEPTED_WITHOUT_MEMBERS, NOT_A_MEMBER, OTHER_GENERATION, REBALANCING)
COMMIT_CHECKS_2_8: GroupChecks = (DEAD_IS_NOT_AVAILABLE, ACCEPTED_WITHOUT_MEMBERS, *MEMBER_CHECKS_2_3, OTHER_GENERATION, REBALANCING)
COMMIT_CHECKS_3_0: GroupChecks = (DEAD_IS_NOT_AVAILABLE, ACCEPTED_WITHOUT_MEMBERS, *MEMBER_CHECKS_3_0, OTHER_GENERATION, REBALANCING)

TXN_COMMIT_CHECKS_0_11: GroupChecks = (DEAD_IS_UNKNOWN_MEMBER,)
TXN_COMMIT_CHECKS_2_3: GroupChecks = (DEAD_IS_NOT_AVAILABLE,)
TXN_COMMIT_CHECKS_2_5: GroupChecks = (DEAD_IS_NOT_AVAILABLE, FENCED, NAMES_UNKNOWN_MEMBER, NAMES_OTHER_GENERATION)
TXN_COMMIT_CHECKS_3_0: GroupChecks = (
    DEAD_IS_NOT_AVAILABLE,
    ACCEPTED_WITHOUT_MEMBERS,
    ACCEPTED_WITHOUT_MEMBER_FIELDS,
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


HeartbeatRules = dict[GroupState, HeartbeatRule]


def _heartbeat_rules(dead: GroupCheck, member: GroupChecks, completing: HeartbeatRule) -> HeartbeatRules:
    in_generation = (*member, OTHER_GENERATION)
    return {
        GroupState.DEAD: HeartbeatRule((dead,), Error.UNKNOWN_MEMBER_ID, restarts_session=False),
        GroupState.EMPTY: HeartbeatRule(member, Error.UNKNOWN_MEMBER_ID, restarts_session=False),
        GroupState.COMPLETING_REBALANCE: completing,
        GroupState.PREPARING_REBALANCE: HeartbeatRule(in_generation, Error.REBALANCE_IN_PROGRESS, restarts_session=True),
        GroupState.STABLE: HeartbeatRule(in_generation, Error.NONE, restarts_session=True),
    }


_STABLE_2_3 = HeartbeatRule((*MEMBER_CHECKS_2_3, OTHER_GENERATION), Error.NONE, restarts_session=True)
_STABLE_3_0 = HeartbeatRule((*MEMBER_CHECKS_3_0, OTHER_GENERATION), Error.NONE, restarts_session=True)
_COMPLETING_0_10 = HeartbeatRule(MEMBER_CHECKS_0_10, Error.REBALANCE_IN_PROGRESS, restarts_session=False)
_COMPLETING_2_3 = _COMPLETING_0_10._replace(checks=_STABLE_2_3.checks)

HEARTBEAT_RULES_0_10 = _heartbeat_rules(DEAD_IS_UNKNOWN_MEMBER, MEMBER_CHECKS_0_10, _COMPLETING_0_10)
HEARTBEAT_RULES_2_3 = _heartbeat_rules(DEAD_IS_NOT_AVAILABLE, MEMBER_CHECKS_2_3, _COMPLETING_2_3)
HEARTBEAT_RULES_2_6 = _heartbeat_rules(DEAD_IS_NOT_AVAILABLE, MEMBER_CHECKS_2_3, _STABLE_2_3)
HEARTBEAT_RULES_3_0 = _heartbeat_rules(DEAD_IS_NOT_AVAILABLE, MEMBER_CHECKS_3_0, _STABLE_3_0)
