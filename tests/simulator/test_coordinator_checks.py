"""The checks before the group is looked up, in the order of each release."""

import pytest

from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator import BeginLoad, Error, LosePartition, SetActive
from groupcoord_spark.simulator.messages.requests import (
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    SyncGroup,
    TxnOffsetCommit,
)
from tests.simulator.decision_table import by_release, case_id
from tests.simulator.rules import plays
from tests.simulator.scene import READS_T, Scene

OFFSET = (OffsetToCommit("t", 0, 1),)
REQUESTS = {
    "JoinGroup": lambda group: JoinGroup(group, 10_000, protocols=(("range", READS_T),)),
    "JoinGroup, short session": lambda group: JoinGroup(group, 0, protocols=(("range", READS_T),)),
    "JoinGroup, long session": lambda group: JoinGroup(group, 2_000_000, protocols=(("range", READS_T),)),
    "SyncGroup": lambda group: SyncGroup(group, 1, "m"),
    "Heartbeat": lambda group: Heartbeat(group, 1, "m"),
    "LeaveGroup": lambda group: LeaveGroup(group, (Leaving("m"),)),
    "OffsetCommit": lambda group: OffsetCommit(group, OFFSET),
    "TxnOffsetCommit": lambda group: TxnOffsetCommit(group, 7, OFFSET),
    "OffsetFetch": lambda group: OffsetFetch((GroupToFetch(group),)),
    "DescribeGroups": lambda group: DescribeGroups((group,)),
    "DeleteGroups": lambda group: DeleteGroups((group,)),
    "OffsetDelete": lambda group: OffsetDelete(group, {"t": (0,)}),
}


def error_in(answer):
    """Return the one error of an answer about one group and one partition; a member's own error counts as none."""
    if answer is None:
        return Error.NONE
    if hasattr(answer, "groups"):
        return answer.groups[0].error
    if hasattr(answer, "error"):
        return answer.error
    return next(iter(answer.errors.values()))


GATES = by_release("""
    request                  | broker            | 0.10.2.2                     | 2.4.1                        | 4.3.1
    JoinGroup                | not active        | COORDINATOR_NOT_AVAILABLE    | "                            | "
    JoinGroup                | not active, no id | COORDINATOR_NOT_AVAILABLE    | INVALID_GROUP_ID             | COORDINATOR_NOT_AVAILABLE
    JoinGroup                | no id             | INVALID_GROUP_ID             | "                            | "
    JoinGroup                | loading           | COORDINATOR_LOAD_IN_PROGRESS | "                            | "
    JoinGroup                | not the leader    | NOT_COORDINATOR              | "                            | "
    JoinGroup, short session | leader            | INVALID_SESSION_TIMEOUT      | "                            | "
    JoinGroup, long session  | leader            | INVALID_SESSION_TIMEOUT      | "                            | "
    JoinGroup, short session | loading           | COORDINATOR_LOAD_IN_PROGRESS | "                            | INVALID_SESSION_TIMEOUT
    JoinGroup, short session | not the leader    | NOT_COORDINATOR              | "                            | INVALID_SESSION_TIMEOUT
    SyncGroup                | no id             | UNKNOWN_MEMBER_ID            | INVALID_GROUP_ID             | "
    SyncGroup                | loading           | UNKNOWN_MEMBER_ID            | REBALANCE_IN_PROGRESS        | "
    SyncGroup                | not the leader    | NOT_COORDINATOR              | "                            | "
    Heartbeat                | no id             | UNKNOWN_MEMBER_ID            | INVALID_GROUP_ID             | "
    Heartbeat                | loading           | NONE                         | "                            | "
    Heartbeat                | not the leader    | NOT_COORDINATOR              | "                            | "
    LeaveGroup               | no id             | UNKNOWN_MEMBER_ID            | INVALID_GROUP_ID             | "
    LeaveGroup               | loading           | COORDINATOR_LOAD_IN_PROGRESS | "                            | "
    OffsetCommit             | no id             | NONE                         | "                            | "
    OffsetCommit             | loading           | COORDINATOR_LOAD_IN_PROGRESS | "                            | "
    OffsetCommit             | not the leader    | NOT_COORDINATOR              | "                            | "
    TxnOffsetCommit          | no id             | -                            | NONE                         | "
    OffsetFetch              | no id             | NONE                         | "                            | "
    OffsetFetch              | loading           | COORDINATOR_LOAD_IN_PROGRESS | "                            | "
    OffsetFetch              | not the leader    | NOT_COORDINATOR              | "                            | "
    DescribeGroups           | not the leader    | NOT_COORDINATOR              | "                            | "
    DescribeGroups           | loading           | COORDINATOR_LOAD_IN_PROGRESS | "                            | "
    DeleteGroups             | not the leader    | -                            | NOT_COORDINATOR              | "
    DeleteGroups             | no id             | -                            | GROUP_ID_NOT_FOUND           | "
    OffsetDelete             | no id             | -                            | INVALID_GROUP_ID             | "
    OffsetDelete             | loading           | -                            | COORDINATOR_LOAD_IN_PROGRESS | "
""")


@plays("C-3.1-4", "C-4.1.1", "C-9.1.1")
@pytest.mark.parametrize(("version", "row", "expected"), GATES, ids=case_id)
def test_the_first_gate_that_stays_shut_answers(version, row, expected):
    scene = Scene(version, group_min_session_timeout_ms=6_000)
    group_id = "" if "no id" in row["broker"] else "g"
    number = scene.simulator.broker.partition_number(group_id)
    if "not active" in row["broker"]:
        scene.simulator.act(SetActive(False))
    elif row["broker"] == "loading":
        scene.simulator.act(BeginLoad(number))
    elif row["broker"] == "not the leader":
        scene.simulator.act(LosePartition(number))
    assert error_in(scene.ask(REQUESTS[row["request"]](group_id))) is Error[expected]


def test_a_group_id_that_is_null_is_no_group_id_for_anybody_since_2_0():
    for version, expected in (("2.0.1", Error.INVALID_GROUP_ID), ("0.11.0", Error.NONE)):
        assert error_in(Scene(version).ask(OffsetCommit(None, OFFSET))) is expected


@plays("C-4.1.2")
@pytest.mark.parametrize(("version", "longest_ms"), [("0.10.2.2", 300_000), ("2.0.1", 300_000), ("2.3.0", 1_800_000), ("4.3.1", 1_800_000)])
def test_the_longest_session_is_the_releases_default(version, longest_ms):
    for session_ms, is_too_long in ((longest_ms, False), (longest_ms + 1, True)):
        answer = Scene(version).ask(JoinGroup("g", session_ms, protocols=(("range", READS_T),)))
        assert (error_in(answer) is Error.INVALID_SESSION_TIMEOUT) == is_too_long


@pytest.mark.parametrize(
    ("version", "request_"),
    [
        ("0.10.2.2", TxnOffsetCommit("g", 7, OFFSET)),
        ("1.0.0", DeleteGroups(("g",))),
        ("2.3.1", OffsetDelete("g", {})),
        ("2.2.0", JoinGroup("g", group_instance_id="i")),
    ],
    ids=["TxnOffsetCommit", "DeleteGroups", "OffsetDelete", "static member"],
)
def test_what_a_release_does_not_know_cannot_be_asked_of_it(version, request_):
    with pytest.raises(UsageError, match=version):
        Scene(version).ask(request_)


def test_the_coordinator_of_a_group_leads_the_partition_of_its_hash():
    scene = Scene()
    coordinators = scene.ask(FindCoordinator(("g", "", "polygenelubricants"))).coordinators
    # The last name's hash is the one number without a positive counterpart.
    assert [(coordinator.key, coordinator.error, coordinator.offsets_partition) for coordinator in coordinators] == [
        ("g", Error.NONE, 103 % 50),
        ("", Error.INVALID_GROUP_ID, -1),
        ("polygenelubricants", Error.NONE, 0),
    ]
    assert scene.ask(FindCoordinator(("",), version=3)).coordinators[0].error is Error.NONE


def test_groups_are_not_listed_while_a_partition_loads():
    scene = Scene()
    scene.commit(1)
    assert [one.group_id for one in scene.ask(ListGroups()).groups] == ["g"]
    scene.simulator.act(BeginLoad(0))
    assert scene.ask(ListGroups()).error is Error.COORDINATOR_LOAD_IN_PROGRESS
