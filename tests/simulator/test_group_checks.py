"""The checks of a request against its group, in the order of each release: one table for each request."""

import pytest

from groupcoord_spark.simulator import Error
from groupcoord_spark.simulator.messages.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetToCommit,
    SyncGroup,
    TxnOffsetCommit,
)
from tests.simulator.decision_table import by_release, case_id
from tests.simulator.rules import plays
from tests.simulator.scene import GROUP, READS_T, Scene

# "member" in the tables: a member's own id, one nobody has, or "" for none.
IDS = {"a": lambda scene: scene.ids["a"], "stranger": lambda scene: "nobody-1", "none": lambda scene: ""}
# "generation": the group's own, the one before, or none.
GENERATIONS = {"same": lambda now: now, "older": lambda now: now - 1, "none": lambda now: -1}


def _named(scene, row):
    group = scene.simulator.broker.group(GROUP)
    return {
        "generation": GENERATIONS[row["generation"]](1 if group is None else group.generation),
        "member_id": IDS[row["member"]](scene),
    }


HEARTBEATS = by_release("""
    state               | member   | generation | 0.10.2.2              | 2.0.1 | 2.4.1                     | 2.7.2 | 2.8.2 | 3.9.1 | 4.3.1
    absent              | a        | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    Dead                | a        | same       | UNKNOWN_MEMBER_ID     | "     | COORDINATOR_NOT_AVAILABLE | "     | "     | "     | "
    Empty               | a        | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    PreparingRebalance  | stranger | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    PreparingRebalance  | a        | older      | ILLEGAL_GENERATION    | "     | "                         | "     | "     | "     | "
    PreparingRebalance  | a        | same       | REBALANCE_IN_PROGRESS | "     | "                         | "     | "     | "     | "
    CompletingRebalance | stranger | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    CompletingRebalance | a        | older      | REBALANCE_IN_PROGRESS | "     | ILLEGAL_GENERATION        | "     | "     | "     | "
    CompletingRebalance | a        | same       | REBALANCE_IN_PROGRESS | "     | "                         | NONE  | "     | "     | "
    Stable              | stranger | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    Stable              | none     | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    Stable              | a        | older      | ILLEGAL_GENERATION    | "     | "                         | "     | "     | "     | "
    Stable              | a        | same       | NONE                  | "     | "                         | "     | "     | "     | "
""")


@plays("C-7.1-5")
@pytest.mark.parametrize(("version", "row", "expected"), HEARTBEATS, ids=case_id)
def test_heartbeat_is_answered_by_state_member_and_generation(version, row, expected):
    scene = Scene(version)
    scene.play(row["state"])
    assert scene.error(Heartbeat(GROUP, **_named(scene, row))) is Error[expected]


SYNCS = by_release("""
    state               | member   | generation | 0.10.2.2              | 2.0.1 | 2.4.1                     | 2.7.2 | 2.8.2 | 3.9.1 | 4.3.1
    absent              | a        | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    Dead                | a        | same       | UNKNOWN_MEMBER_ID     | "     | COORDINATOR_NOT_AVAILABLE | "     | "     | "     | "
    Empty               | a        | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    PreparingRebalance  | stranger | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    PreparingRebalance  | a        | older      | ILLEGAL_GENERATION    | "     | "                         | "     | "     | "     | "
    PreparingRebalance  | a        | same       | REBALANCE_IN_PROGRESS | "     | "                         | "     | "     | "     | "
    CompletingRebalance | stranger | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    CompletingRebalance | a        | older      | ILLEGAL_GENERATION    | "     | "                         | "     | "     | "     | "
    Stable              | stranger | same       | UNKNOWN_MEMBER_ID     | "     | "                         | "     | "     | "     | "
    Stable              | a        | older      | ILLEGAL_GENERATION    | "     | "                         | "     | "     | "     | "
    Stable              | a        | same       | NONE                  | "     | "                         | "     | "     | "     | "
""")


@plays("C-6.1", "C-6.3-4", "C-6.6-7", "C-6.9")
@pytest.mark.parametrize(("version", "row", "expected"), SYNCS, ids=case_id)
def test_sync_is_answered_by_state_member_and_generation(version, row, expected):
    scene = Scene(version)
    scene.play(row["state"])
    assert scene.error(SyncGroup(GROUP, **_named(scene, row))) is Error[expected]


PROTOCOLS_OF_SYNC = by_release("""
    type     | name   | version | 2.4.1 | 2.5.0                       | 2.8.2 | 3.9.1 | 4.3.1
    none     | none   | 4       | NONE  | "                           | "     | "     | "
    connect  | range  | 5       | NONE  | INCONSISTENT_GROUP_PROTOCOL | "     | "     | "
    consumer | sticky | 5       | NONE  | INCONSISTENT_GROUP_PROTOCOL | "     | "     | "
    consumer | range  | 5       | NONE  | "                           | "     | "     | "
    none     | range  | 5       | -     | INCONSISTENT_GROUP_PROTOCOL | "     | "     | "
    consumer | none   | 5       | -     | INCONSISTENT_GROUP_PROTOCOL | "     | "     | "
""")


@plays("C-6.5")
@pytest.mark.parametrize(("version", "row", "expected"), PROTOCOLS_OF_SYNC, ids=case_id)
def test_sync_wants_the_elected_protocol(version, row, expected):
    scene = Scene(version)
    scene.play("Stable")
    named = {place: None if row[cell] == "none" else row[cell] for place, cell in (("protocol_type", "type"), ("protocol", "name"))}
    newest = scene.simulator.release.request_versions[SyncGroup].newest
    request = SyncGroup(GROUP, scene.group.generation, scene.ids["a"], version=min(int(row["version"]), newest), **named)
    assert scene.error(request) is Error[expected]


def test_sync_without_a_protocol_is_refused_whatever_else_is_wrong():
    assert Scene().error(SyncGroup("", 0, "", version=5)) is Error.INCONSISTENT_GROUP_PROTOCOL
    assert Scene().error(SyncGroup("", 0, "", version=4)) is Error.INVALID_GROUP_ID


# "waits": the request is kept for the join phase. "id": MEMBER_ID_REQUIRED.
JOINS = by_release("""
    state               | member   | protocol   | 0.10.2.2                    | 2.0.1 | 2.4.1                       | 2.8.2 | 3.9.1 | 4.3.1
    absent              | stranger | range      | UNKNOWN_MEMBER_ID           | "     | "                           | "     | "     | "
    absent              | none     | range      | NONE                        | "     | MEMBER_ID_REQUIRED          | "     | "     | "
    absent              | none     | nothing    | UNKNOWN_SERVER_ERROR        | -     | INCONSISTENT_GROUP_PROTOCOL | "     | "     | "
    absent              | none     | type-less  | NONE                        | -     | INCONSISTENT_GROUP_PROTOCOL | "     | "     | "
    Dead                | none     | range      | UNKNOWN_MEMBER_ID           | "     | COORDINATOR_NOT_AVAILABLE   | "     | "     | "
    Dead                | none     | sticky     | INCONSISTENT_GROUP_PROTOCOL | "     | COORDINATOR_NOT_AVAILABLE   | "     | "     | "
    Empty               | stranger | range      | UNKNOWN_MEMBER_ID           | "     | "                           | "     | "     | "
    Empty               | none     | sticky     | NONE                        | "     | MEMBER_ID_REQUIRED          | "     | "     | "
    PreparingRebalance  | none     | range      | waits                       | "     | MEMBER_ID_REQUIRED          | "     | "     | "
    PreparingRebalance  | none     | sticky     | INCONSISTENT_GROUP_PROTOCOL | "     | "                           | "     | "     | "
    PreparingRebalance  | a        | range      | waits                       | "     | "                           | "     | "     | "
    PreparingRebalance  | stranger | sticky     | INCONSISTENT_GROUP_PROTOCOL | "     | "                           | "     | "     | "
    PreparingRebalance  | stranger | range      | UNKNOWN_MEMBER_ID           | "     | "                           | "     | "     | "
    CompletingRebalance | none     | range      | waits                       | "     | MEMBER_ID_REQUIRED          | "     | "     | "
    CompletingRebalance | a        | range      | NONE                        | "     | "                           | "     | "     | "
    CompletingRebalance | a        | other type | INCONSISTENT_GROUP_PROTOCOL | "     | "                           | "     | "     | "
    CompletingRebalance | a        | changed    | waits                       | "     | "                           | "     | "     | "
    Stable              | none     | range      | waits                       | "     | MEMBER_ID_REQUIRED          | "     | "     | "
    Stable              | b        | range      | NONE                        | "     | "                           | "     | "     | "
    Stable              | b        | changed    | waits                       | "     | "                           | "     | "     | "
    Stable              | a        | range      | waits                       | "     | "                           | "     | "     | "
""")

OFFERS = {
    "range": {"protocols": (("range", READS_T),)},
    "sticky": {"protocols": (("sticky", READS_T),)},
    "changed": {"protocols": (("range", READS_T + b"!"),)},
    "nothing": {"protocols": ()},
    "type-less": {"protocol_type": "", "protocols": (("range", READS_T),)},
    "other type": {"protocol_type": "connect", "protocols": (("range", READS_T),)},
}


@plays("C-4.1.3-4", "C-4.1.6-8", "C-4.1.11", "C-4.3.1-5")
@pytest.mark.parametrize(("version", "row", "expected"), JOINS, ids=case_id)
def test_join_is_answered_by_state_member_and_protocol(version, row, expected):
    scene = Scene(version)
    scene.play(row["state"])
    member_id = {**IDS, "b": lambda scene: scene.ids["b"]}[row["member"]](scene)
    call = scene.simulator.send(JoinGroup(GROUP, 10_000, 60_000, member_id, client_id="d", **OFFERS[row["protocol"]]))
    scene.pass_time(0)
    actual = "waits" if call.answer is None else call.answer.error.name
    assert actual == expected


@pytest.mark.parametrize("version", ["2.2.0", "2.8.2", "4.3.1"])
def test_join_below_version_4_gets_no_id_first(version):
    scene = Scene(version)
    assert scene.error(JoinGroup(GROUP, 10_000, protocols=OFFERS["range"]["protocols"], version=3)) is None
    assert len(scene.group.members) == 1


# An instance id that belongs to a ("own"), to the other member, or to nobody.
STATIC = by_release("""
    request      | member   | instance | 2.4.1              | 2.8.2 | 3.1.0             | 3.9.1 | 4.3.1
    Join         | a        | own      | NONE               | "     | "                 | "     | "
    Join         | a        | other    | FENCED_INSTANCE_ID | "     | "                 | "     | "
    Join         | stranger | own      | FENCED_INSTANCE_ID | "     | "                 | "     | "
    Join         | a        | nobody's | UNKNOWN_MEMBER_ID  | "     | "                 | "     | "
    Sync         | a        | own      | NONE               | "     | "                 | "     | "
    Sync         | a        | other    | FENCED_INSTANCE_ID | "     | "                 | "     | "
    Sync         | stranger | nobody's | UNKNOWN_MEMBER_ID  | "     | "                 | "     | "
    Sync         | a        | nobody's | NONE               | "     | UNKNOWN_MEMBER_ID | "     | "
    Heartbeat    | a        | own      | NONE               | "     | "                 | "     | "
    Heartbeat    | a        | other    | FENCED_INSTANCE_ID | "     | "                 | "     | "
    Heartbeat    | a        | nobody's | NONE               | "     | UNKNOWN_MEMBER_ID | "     | "
    OffsetCommit | a        | own      | NONE               | "     | "                 | "     | "
    OffsetCommit | a        | other    | FENCED_INSTANCE_ID | "     | "                 | "     | "
    OffsetCommit | a        | nobody's | NONE               | "     | UNKNOWN_MEMBER_ID | "     | "
    LeaveGroup   | a        | own      | NONE               | "     | "                 | "     | "
    LeaveGroup   | a        | other    | FENCED_INSTANCE_ID | "     | "                 | "     | "
    LeaveGroup   | none     | own      | NONE               | "     | "                 | "     | "
    LeaveGroup   | none     | nobody's | UNKNOWN_MEMBER_ID  | "     | "                 | "     | "
    LeaveGroup   | a        | nobody's | NONE               | "     | UNKNOWN_MEMBER_ID | "     | "
""")


@plays("C-4.1.9-10", "C-6.2", "C-8.4")
@pytest.mark.parametrize(("version", "row", "expected"), STATIC, ids=case_id)
def test_an_instance_id_has_to_be_the_members_own(version, row, expected):
    scene = Scene(version)
    scene.enter("b", group_instance_id="i-b")
    scene.enter("a", group_instance_id="i-a")
    scene.join("b", group_instance_id="i-b")
    scene.sync_all("a", "b")
    instance = {"own": "i-a", "other": "i-b", "nobody's": "i-x"}[row["instance"]]
    member_id, generation = IDS[row["member"]](scene), scene.group.generation
    if row["request"] == "Join":
        actual = scene.join("a", member_id=member_id, group_instance_id=instance).answer.error
    elif row["request"] == "OffsetCommit":
        actual = scene.commit(1, generation=generation, member_id=member_id, group_instance_id=instance)
    elif row["request"] == "LeaveGroup":
        actual = scene.ask(LeaveGroup(GROUP, (Leaving(member_id, instance),))).members[0].error
    else:
        actual = scene.error({"Sync": SyncGroup, "Heartbeat": Heartbeat}[row["request"]](GROUP, generation, member_id, instance))
    assert actual is Error[expected]


COMMITS = by_release("""
    state               | member   | generation | 0.10.2.2              | 2.4.1                     | 2.8.2 | 3.9.1 | 4.3.1
    absent              | none     | none       | NONE                  | "                         | "     | "     | "
    absent              | a        | same       | ILLEGAL_GENERATION    | "                         | "     | "     | GROUP_ID_NOT_FOUND
    Dead                | none     | none       | UNKNOWN_MEMBER_ID     | COORDINATOR_NOT_AVAILABLE | "     | "     | "
    Empty               | none     | none       | NONE                  | "                         | "     | "     | "
    Empty               | stranger | none       | NONE                  | "                         | "     | "     | "
    Empty               | a        | same       | UNKNOWN_MEMBER_ID     | "                         | "     | "     | "
    PreparingRebalance  | a        | same       | NONE                  | "                         | "     | "     | "
    PreparingRebalance  | a        | older      | ILLEGAL_GENERATION    | "                         | "     | "     | "
    PreparingRebalance  | none     | none       | UNKNOWN_MEMBER_ID     | "                         | "     | "     | "
    CompletingRebalance | a        | same       | REBALANCE_IN_PROGRESS | "                         | "     | "     | "
    CompletingRebalance | a        | older      | REBALANCE_IN_PROGRESS | ILLEGAL_GENERATION        | "     | "     | "
    CompletingRebalance | stranger | same       | REBALANCE_IN_PROGRESS | UNKNOWN_MEMBER_ID         | "     | "     | "
    Stable              | a        | same       | NONE                  | "                         | "     | "     | "
    Stable              | a        | older      | ILLEGAL_GENERATION    | "                         | "     | "     | "
    Stable              | a        | none       | ILLEGAL_GENERATION    | "                         | "     | "     | "
    Stable              | stranger | same       | UNKNOWN_MEMBER_ID     | "                         | "     | "     | "
    Stable              | none     | none       | UNKNOWN_MEMBER_ID     | "                         | "     | "     | "
""")


@plays("C-9.1.2-8")
@pytest.mark.parametrize(("version", "row", "expected"), COMMITS, ids=case_id)
def test_offset_commit_is_answered_by_state_member_and_generation(version, row, expected):
    scene = Scene(version)
    scene.play(row["state"])
    assert scene.commit(1, **_named(scene, row)) is Error[expected]


def test_a_generation_in_an_unknown_group_is_told_apart_only_from_version_9_on():
    assert Scene("4.3.1").commit(1, generation=1, version=8) is Error.ILLEGAL_GENERATION
    assert Scene("3.9.1").commit(1, generation=1, version=9) is Error.ILLEGAL_GENERATION


TXN_COMMITS = by_release("""
    state               | member   | generation | 0.11.0 | 2.4.1 | 2.7.2              | 3.9.1              | 4.3.1
    absent              | none     | none       | NONE   | "     | "                  | "                  | "
    absent              | none     | same       | NONE   | "     | ILLEGAL_GENERATION | UNKNOWN_MEMBER_ID  | ILLEGAL_GENERATION
    Stable              | none     | none       | NONE   | "     | "                  | "                  | "
    Stable              | stranger | same       | NONE   | "     | UNKNOWN_MEMBER_ID  | "                  | "
    Stable              | a        | older      | NONE   | "     | ILLEGAL_GENERATION | "                  | "
    Stable              | a        | none       | NONE   | "     | "                  | ILLEGAL_GENERATION | "
    CompletingRebalance | a        | same       | NONE   | "     | "                  | "                  | "
    PreparingRebalance  | a        | same       | NONE   | "     | "                  | "                  | "
""")


@plays("C-9.1.9-12")
@pytest.mark.parametrize(("version", "row", "expected"), TXN_COMMITS, ids=case_id)
def test_transactional_commits_care_less_about_the_group(version, row, expected):
    scene = Scene(version)
    scene.play(row["state"])
    answer = scene.ask(TxnOffsetCommit(GROUP, 7, (OffsetToCommit("t", 0, 1),), **_named(scene, row)))
    assert answer.errors["t", 0] is Error[expected]


@plays("C-9.1.9-12")
@pytest.mark.parametrize(
    ("version", "expected"),
    [("0.11.0", Error.UNKNOWN_MEMBER_ID), ("2.3.0", Error.COORDINATOR_NOT_AVAILABLE), ("4.3.1", Error.COORDINATOR_NOT_AVAILABLE)],
)
def test_transactional_commits_care_whether_the_group_is_dead(version, expected):
    scene = Scene(version)
    scene.play("Dead")
    assert scene.ask(TxnOffsetCommit(GROUP, 7, (OffsetToCommit("t", 0, 1),))).errors["t", 0] is expected


LEAVES = by_release("""
    state  | member   | 0.10.2.2          | 2.0.1 | 2.4.1                     | 3.9.1 | 4.3.1
    absent | a        | UNKNOWN_MEMBER_ID | "     | "                         | "     | "
    Dead   | a        | UNKNOWN_MEMBER_ID | "     | COORDINATOR_NOT_AVAILABLE | "     | "
    Empty  | a        | UNKNOWN_MEMBER_ID | "     | "                         | "     | "
    Stable | stranger | UNKNOWN_MEMBER_ID | "     | "                         | "     | "
    Stable | a        | NONE              | "     | "                         | "     | "
""")


@plays("C-8.1-2", "C-8.6")
@pytest.mark.parametrize(("version", "row", "expected"), LEAVES, ids=case_id)
def test_leaving_is_answered_member_by_member(version, row, expected):
    scene = Scene(version)
    scene.play(row["state"])
    answer = scene.ask(LeaveGroup(GROUP, (Leaving(IDS[row["member"]](scene)),)))
    assert (answer.members[0].error if answer.members else answer.error) is Error[expected]
    # Old requests name one member and get one answer; a Dead group is the whole request's error.
    assert bool(answer.members) == (version not in ("0.10.2.2", "2.0.1") and row["state"] != "Dead")
