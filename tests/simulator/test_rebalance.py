"""Join phase, sync phase, sessions: the members to wait for, for how long, and the leader afterwards."""

import pytest

from groupcoord_spark.simulator import Error, FailAppends, GroupState
from groupcoord_spark.simulator.broker.release import SizeRule
from groupcoord_spark.simulator.groups.clock import TimerKind
from groupcoord_spark.simulator.handlers.classic.join import size_allows
from groupcoord_spark.simulator.messages.requests import JoinGroup, LeaveGroup, Leaving
from tests.simulator.decision_table import by_release, case_id, table
from tests.simulator.rules import plays
from tests.simulator.scene import GROUP, READS_T, Scene, error_of

JAVA_AND_SCALA = pytest.mark.parametrize("version", ["4.3.1", "3.9.1", "2.8.2"])


def answered_at(scene, name):
    return scene.calls[name].answered_at_ms


# The initial delay


def test_the_initial_delay_is_extended_while_newcomers_come():
    """Delay 3000, rebalance timeout 10000; joins at 0, 1000 and 4000: generation 1 at 9000."""
    scene = Scene(group_initial_rebalance_delay_ms=3_000)
    for name, at_ms in (("a", 0), ("b", 1_000), ("c", 4_000)):
        scene.simulator.advance_to(at_ms)
        scene.enter(name, rebalance_timeout_ms=10_000)
    scene.pass_time(20_000)
    assert [answered_at(scene, name) for name in "abc"] == [9_000] * 3
    assert scene.calls["c"].answer.generation == 1


def test_the_last_extension_ends_at_the_rebalance_timeout():
    scene = Scene(group_initial_rebalance_delay_ms=3_000)
    for name, at_ms in (("a", 0), ("b", 1_000), ("c", 4_000), ("d", 7_000), ("e", 9_500)):
        scene.simulator.advance_to(at_ms)
        scene.enter(name, rebalance_timeout_ms=10_000)
    scene.pass_time(20_000)
    assert {answered_at(scene, name) for name in "abcde"} == {10_000}


def test_the_initial_delay_is_waited_in_full_even_if_the_rebalance_timeout_is_shorter():
    scene = Scene(group_initial_rebalance_delay_ms=3_000)
    scene.enter("a", rebalance_timeout_ms=1_000)
    scene.pass_time(5_000)
    assert answered_at(scene, "a") == 3_000


@pytest.mark.parametrize(("version", "second_ms"), [("4.3.1", 6_000), ("3.9.1", 3_000)])
def test_only_4_x_extends_the_delay_of_a_group_that_was_in_use_before(version, second_ms):
    scene = Scene(version, group_initial_rebalance_delay_ms=3_000)
    scene.enter("a")
    scene.pass_time(3_000)
    scene.leave("a")
    began_ms = scene.simulator.broker.now_ms
    scene.enter("b")
    scene.pass_time(1_000)
    scene.enter("c")
    scene.pass_time(20_000)
    assert answered_at(scene, "b") - began_ms == second_ms


@pytest.mark.parametrize(("version", "ends_ms"), [("4.3.1", 1_000), ("3.9.1", 3_000)])
def test_a_pending_id_that_expires_ends_the_delay_in_4_x(version, ends_ms):
    scene = Scene(version, group_initial_rebalance_delay_ms=3_000)
    scene.join("p", session_timeout_ms=1_000)
    scene.enter("a")
    scene.pass_time(5_000)
    assert answered_at(scene, "a") == ends_ms


def test_joins_and_leaves_never_end_the_delay():
    scene = Scene(group_initial_rebalance_delay_ms=3_000)
    scene.enter("a")
    scene.enter("b")
    scene.leave("b")
    assert error_of(scene.calls["b"]) is Error.UNKNOWN_MEMBER_ID
    scene.pass_time(2_999)
    assert scene.calls["a"].answer is None
    scene.pass_time(10_000)
    assert scene.calls["a"].answer.generation == 1


def test_a_group_that_everybody_left_during_the_delay_is_empty_in_generation_1():
    scene = Scene(group_initial_rebalance_delay_ms=3_000)
    scene.enter("a")
    scene.leave("a")
    assert scene.state is GroupState.PREPARING_REBALANCE
    scene.pass_time(3_000)
    assert (scene.state, scene.group.generation) == (GroupState.EMPTY, 1)


def test_0_10_has_no_delay():
    scene = Scene("0.10.2.2", group_initial_rebalance_delay_ms=3_000)
    assert scene.join("a").answer.generation == 1


# The join phase


@JAVA_AND_SCALA
def test_the_join_phase_waits_for_all_members(version):
    scene = Scene(version)
    scene.stabilize("a", "b")
    generation = scene.group.generation
    scene.enter("c")
    scene.join("a")
    scene.pass_time(5_000)
    assert scene.state is GroupState.PREPARING_REBALANCE
    scene.join("b")
    assert [scene.calls[name].answer.generation for name in "abc"] == [generation + 1] * 3
    assert [bool(scene.calls[name].answer.members) for name in "abc"] == [scene.leader == name for name in "abc"]


@JAVA_AND_SCALA
def test_who_misses_the_rebalance_timeout_is_out(version):
    scene = Scene(version)
    scene.stabilize("a", "b", rebalance_timeout_ms=2_000)
    began_ms = scene.simulator.broker.now_ms
    scene.enter("c", rebalance_timeout_ms=1_500)
    scene.join("b", rebalance_timeout_ms=2_000)
    scene.pass_time(1_999)
    assert scene.calls["b"].answer is None
    scene.pass_time(1)
    assert answered_at(scene, "b") == began_ms + 2_000  # the largest of the three
    assert scene.members == ["b", "c"]


@JAVA_AND_SCALA
def test_a_pending_id_holds_the_join_phase_up(version):
    scene = Scene(version)
    scene.stabilize("a")
    scene.join("p", session_timeout_ms=1_000)
    scene.join("a")
    assert scene.calls["a"].answer is None
    scene.pass_time(1_000)
    assert scene.calls["a"].answer.generation == 2
    assert error_of(scene.join("p")) is Error.UNKNOWN_MEMBER_ID


@JAVA_AND_SCALA
def test_a_leader_that_is_silent_is_replaced_by_one_that_joined(version):
    scene = Scene(version)
    scene.form("a", "b", "c", rebalance_timeout_ms=1_000)
    scene.sync_all("a", "b", "c")
    leader = scene.leader
    others = [name for name in "abc" if name != leader]
    scene.enter("d", rebalance_timeout_ms=1_000)
    for name in others:
        scene.join(name, rebalance_timeout_ms=1_000)
    scene.pass_time(1_000)
    waiting = [scene.ids[name] for name in (*others, "d")]
    assert scene.group.leader == next(key for key in scene.group.members.keys() if key in waiting)  # noqa: SIM118


@JAVA_AND_SCALA
def test_member_ids_taken_by_another_group_may_make_another_member_the_next_leader(version):
    # Kafka's ids are random, so there it is chance; here the ids count on over all groups, and the map's order follows from them.
    leaders = set()
    for taken_ids in range(32):
        scene = Scene(version)
        for _ in range(taken_ids):
            scene.simulator.send(JoinGroup("another group", protocols=(("range", READS_T),)))
        scene.form("a", "b", "c")
        scene.sync_all("a", "b", "c")
        scene.leave(scene.leader)
        leaders.add(scene.leader)
        assert scene.group.leader == scene.group.members.keys()[0]
    assert len(leaders) > 1


def test_0_10_lets_the_first_of_those_that_remain_lead():
    scene = Scene("0.10.2.2")
    scene.stabilize("a", "b", "c")
    scene.leave(scene.leader)
    assert scene.group.leader == scene.group.members.keys()[0]


@JAVA_AND_SCALA
def test_a_newer_join_takes_the_place_of_the_one_that_waits(version):
    scene = Scene(version)
    scene.stabilize("a", "b")
    first = scene.join("a", protocols=(("range", READS_T + b"1"),))
    second = scene.join("a", protocols=(("range", READS_T + b"2"),))
    scene.join("b")
    assert first.answer is None
    assert second.answer.error is Error.NONE


def test_static_members_keep_their_place_unheard():
    scene = Scene()
    for name in "ab":
        scene.enter(name, group_instance_id=f"i-{name}", rebalance_timeout_ms=1_000)
    scene.join("a", group_instance_id="i-a", rebalance_timeout_ms=1_000)
    scene.sync_all("a", "b")
    scene.join("a", group_instance_id="i-a", protocols=(("range", READS_T + b"!"),), rebalance_timeout_ms=1_000)
    scene.pass_time(1_000)
    assert scene.members == ["a", "b"]
    assert {member.member_id for member in scene.calls["a"].answer.members} in (set(), set(scene.ids.values()))
    # They are gone one rebalance timeout later, having missed the sync phase too.
    scene.sync("a")
    scene.pass_time(1_000)
    assert scene.members == ["a"]


def test_a_group_of_silent_static_members_waits_on_until_their_sessions_end():
    scene = Scene()
    scene.enter("a", group_instance_id="i-a", rebalance_timeout_ms=2_000)
    scene.sync("a")
    scene.join("d", rebalance_timeout_ms=2_000)
    scene.join("d", rebalance_timeout_ms=2_000)
    scene.leave("d")
    scene.pass_time(9_000)
    assert (scene.state, scene.group.generation) == (GroupState.PREPARING_REBALANCE, 1)
    scene.pass_time(2_000)
    assert (scene.state, scene.group.generation) == (GroupState.EMPTY, 2)


def test_silent_static_members_without_a_rebalance_timeout_do_not_stop_the_clock():
    scene = Scene("2.7.2")
    scene.enter("a", group_instance_id="i-a", rebalance_timeout_ms=0)
    scene.sync("a")
    scene.join("d", rebalance_timeout_ms=0)
    scene.join("d", rebalance_timeout_ms=0)
    scene.leave("d")
    scene.pass_time(20_000)
    assert scene.state is GroupState.EMPTY


VOTES = table("""
    members' lists                                            | java               | scala
    B A; A B C; D B A                                         | B                  | B
    range roundrobin; roundrobin range                        | range              | roundrobin
    range cooperative-sticky; cooperative-sticky              | cooperative-sticky | cooperative-sticky
    range sticky; sticky range                                | sticky             | range
    A B; B A                                                  | A                  | A
""")


@pytest.mark.parametrize("row", VOTES, ids=case_id)
def test_the_protocol_with_most_votes_is_elected(row):
    for version, expected in (("4.3.1", row["java"]), ("3.9.1", row["scala"]), ("2.8.2", row["scala"])):
        lists = [tuple((name, READS_T) for name in names.split()) for names in row["members' lists"].split(";")]
        scene = Scene(version, group_initial_rebalance_delay_ms=1_000)
        for number, protocols in enumerate(lists):
            scene.enter(f"m{number}", protocols=protocols)
        scene.pass_time(5_000)
        assert scene.calls["m0"].answer.protocol == expected


# The sync phase


@plays("C-6.8")
@JAVA_AND_SCALA
def test_the_leaders_assignment_reaches_all_that_wait_and_strangers_are_left_out(version):
    scene = Scene(version)
    scene.form("a", "b")
    follower = next(name for name in "ab" if name != scene.leader)
    waiting = scene.sync(follower)
    assert waiting.answer is None
    scene.ids["stranger"] = "nobody-1"
    leading = scene.sync(scene.leader, {scene.leader: b"mine", "stranger": b"theirs"})
    assert (leading.answer.assignment, waiting.answer.assignment) == (b"mine", b"")
    assert scene.state is GroupState.STABLE
    stored = {member["member_id"]: member["assignment"] for member in scene.records[-1].value["members"]}
    assert stored == {scene.ids[scene.leader]: b"mine", scene.ids[follower]: b""}


@JAVA_AND_SCALA
def test_who_never_syncs_is_out_after_the_rebalance_timeout(version):
    scene = Scene(version)
    scene.form("a", "b", rebalance_timeout_ms=1_200)
    leader = scene.leader
    follower = next(name for name in "ab" if name != leader)
    waiting = scene.sync(follower)
    scene.pass_time(1_200)
    assert waiting.answer.error is Error.REBALANCE_IN_PROGRESS
    assert scene.members == [follower]


def test_before_2_8_nothing_but_its_session_removes_who_never_syncs():
    scene = Scene("2.7.2")
    scene.form("a", "b", rebalance_timeout_ms=1_200)
    scene.pass_time(1_200)
    assert scene.members == ["a", "b"]


def test_a_member_with_rebalance_timeout_0_joins_and_is_gone():
    scene = Scene()
    assert scene.enter("a", rebalance_timeout_ms=0).answer.generation == 1
    assert (scene.state, scene.group.generation) == (GroupState.EMPTY, 2)


APPEND_ERRORS = by_release("""
    log                              | 2.8.2                     | 3.9.1                     | 4.3.1
    UNKNOWN_TOPIC_OR_PARTITION       | COORDINATOR_NOT_AVAILABLE | "                         | "
    NOT_ENOUGH_REPLICAS              | COORDINATOR_NOT_AVAILABLE | "                         | "
    NOT_ENOUGH_REPLICAS_AFTER_APPEND | COORDINATOR_NOT_AVAILABLE | "                         | NOT_ENOUGH_REPLICAS_AFTER_APPEND
    NOT_LEADER_OR_FOLLOWER           | NOT_COORDINATOR           | "                         | "
    KAFKA_STORAGE_ERROR              | NOT_COORDINATOR           | "                         | "
    REQUEST_TIMED_OUT                | REBALANCE_IN_PROGRESS     | "                         | COORDINATOR_NOT_AVAILABLE
    MESSAGE_TOO_LARGE                | UNKNOWN_SERVER_ERROR      | "                         | "
    RECORD_LIST_TOO_LARGE            | UNKNOWN_SERVER_ERROR      | "                         | "
    INVALID_FETCH_SIZE               | UNKNOWN_SERVER_ERROR      | "                         | "
""")


@plays("C-6.10-13")
@pytest.mark.parametrize(("version", "row", "expected"), APPEND_ERRORS, ids=case_id)
def test_an_assignment_that_cannot_be_written_starts_the_rebalance_over(version, row, expected):
    scene = Scene(version)
    scene.form("a", "b")
    follower = next(name for name in "ab" if name != scene.leader)
    waiting = scene.sync(follower)
    scene.simulator.act(FailAppends(Error[row["log"]]))
    leading = scene.sync(scene.leader, {follower: b"x"})
    assert (waiting.answer.error, leading.answer.error) == (Error[expected],) * 2
    assert scene.state is GroupState.PREPARING_REBALANCE
    assert all(member.assignment == b"" for member in scene.group.members)


# Sessions


SEEN = table("""
    state               | request      | 2.4.1 | 2.8.2 | 3.9.1 | 4.3.1
    Stable              | Heartbeat    | yes   | yes   | yes   | yes
    Stable              | OffsetCommit | yes   | yes   | yes   | yes
    Stable              | SyncGroup    | yes   | yes   | yes   | no
    Stable              | old commit   | no    | no    | no    | no
    PreparingRebalance  | Heartbeat    | yes   | yes   | yes   | yes
    PreparingRebalance  | OffsetCommit | yes   | yes   | yes   | yes
    CompletingRebalance | Heartbeat    | no    | yes   | yes   | yes
    CompletingRebalance | JoinGroup    | no    | no    | no    | no
""")


@pytest.mark.parametrize("row", SEEN, ids=case_id)
@pytest.mark.parametrize("version", ["2.4.1", "2.8.2", "3.9.1", "4.3.1"])
def test_a_member_that_is_seen_lives_on(version, row):
    scene = Scene(version)
    scene.play(row["state"])
    deadline_ms = scene.group.members[scene.ids["b"]].deadline_ms
    scene.pass_time(100)
    if row["request"] == "Heartbeat":
        scene.heartbeat("b")
    elif row["request"] == "SyncGroup":
        scene.sync("b")
    elif row["request"] == "JoinGroup":
        scene.join("b")
    else:
        scene.commit(1, name="b", **({"generation": 0} if row["request"] == "old commit" else {}))
    assert (scene.group.members[scene.ids["b"]].deadline_ms > deadline_ms) == (row[version] == "yes")


@JAVA_AND_SCALA
def test_a_silent_member_is_removed_at_its_deadline_and_the_group_rebalances(version):
    scene = Scene(version)
    scene.stabilize("a", "b", session_timeout_ms=10_000)
    for _ in range(4):
        scene.pass_time(2_499)
        scene.heartbeat("a")
    assert scene.members == ["a", "b"]
    scene.pass_time(4)
    assert scene.members == ["a"]
    assert scene.entries[-1].timer is TimerKind.SESSION
    assert scene.entries[-1].state == "PreparingRebalance"
    assert scene.heartbeat("a") is Error.REBALANCE_IN_PROGRESS


def test_who_waits_for_an_answer_does_not_expire():
    scene = Scene()
    scene.stabilize("a", "b", session_timeout_ms=1_000)
    scene.join("a", protocols=(("range", READS_T + b"!"),), session_timeout_ms=1_000)
    for _ in range(4):
        scene.pass_time(500)
        scene.heartbeat("b")
    assert scene.members == ["a", "b"]


@pytest.mark.parametrize(("version", "is_member_after"), [("2.0.1", True), ("2.8.2", False), ("4.3.1", False)])
def test_a_newcomer_waits_at_most_five_minutes(version, is_member_after):
    scene = Scene(version, group_max_session_timeout_ms=1_000_000)
    scene.stabilize("a", session_timeout_ms=1_000_000, rebalance_timeout_ms=900_000)
    scene.enter("b", rebalance_timeout_ms=900_000)
    scene.pass_time(299_999)
    assert len(scene.group.members) == 2
    scene.pass_time(1)
    assert (len(scene.group.members) == 2) == is_member_after
    assert (error_of(scene.calls["b"]) is Error.UNKNOWN_MEMBER_ID) != is_member_after


# Leaving


@plays("C-8.7")
@pytest.mark.parametrize(("version", "generations", "answer_of_a"), [("3.9.1", 2, Error.NONE), ("4.3.1", 1, Error.UNKNOWN_MEMBER_ID)])
def test_scala_acts_after_each_member_that_leaves_and_4_x_after_the_last(version, generations, answer_of_a):
    """PreparingRebalance, a waits, b does not: leave [b, a]."""
    scene = Scene(version)
    scene.stabilize("a", "b")
    generation = scene.group.generation
    waiting = scene.join("a", protocols=(("range", READS_T + b"!"),))
    scene.leave("b", "a")
    assert error_of(waiting) is answer_of_a
    assert (scene.state, scene.group.generation) == (GroupState.EMPTY, generation + generations)


@pytest.mark.parametrize(("version", "answer_of_b"), [("3.9.1", Error.REBALANCE_IN_PROGRESS), ("4.3.1", None)])
def test_a_waiting_sync_of_one_that_leaves_too(version, answer_of_b):
    """CompletingRebalance, b waits with SyncGroup: leave [a, b]."""
    scene = Scene(version)
    scene.form("a", "b")
    b = next(name for name in "ab" if name != scene.leader)
    waiting = scene.sync(b)
    scene.leave(scene.leader, b)
    assert error_of(waiting) is answer_of_b
    assert scene.state is GroupState.EMPTY


@plays("C-8.5")
@pytest.mark.parametrize(("version", "state"), [("3.9.1", GroupState.STABLE), ("4.3.1", GroupState.PREPARING_REBALANCE)])
def test_a_pending_id_that_leaves_a_stable_group(version, state):
    scene = Scene(version)
    scene.stabilize("a")
    scene.join("p")
    assert scene.ask(LeaveGroup(GROUP, (Leaving(scene.ids["p"]),))).members[0].error is Error.NONE
    assert scene.state is state
    assert error_of(scene.join("p")) is Error.UNKNOWN_MEMBER_ID


@plays("C-9.4.2")
def test_the_last_leave_passes_through_a_rebalance_and_writes_an_empty_group():
    scene = Scene()
    scene.stabilize("a")
    scene.pass_time(500)
    scene.leave("a")
    assert (scene.state, scene.group.generation) == (GroupState.EMPTY, 2)
    record = scene.records[-1]
    assert record.value == {
        "protocol_type": "consumer",
        "generation": 2,
        "protocol": None,
        "leader": None,
        "current_state_timestamp_ms": 500,
        "members": [],
    }


# group.max.size


SIZES = table("""
    rule       | state               | member   | waits | members | waiting | allowed
    NONE       | Stable              | newcomer | no    | 9       | 0       | yes
    BY_WAITING | Empty               | newcomer | no    | 0       | 0       | yes
    BY_WAITING | PreparingRebalance  | newcomer | no    | 3       | 1       | yes
    BY_WAITING | PreparingRebalance  | newcomer | no    | 2       | 2       | no
    BY_WAITING | PreparingRebalance  | known    | no    | 3       | 2       | no
    BY_WAITING | PreparingRebalance  | known    | yes   | 3       | 2       | yes
    BY_WAITING | CompletingRebalance | known    | no    | 2       | 0       | yes
    BY_WAITING | CompletingRebalance | newcomer | no    | 2       | 0       | no
    BY_WAITING | Stable              | newcomer | no    | 1       | 0       | yes
    BY_WAITING | Stable              | newcomer | no    | 2       | 0       | no
    BY_MEMBERS | Stable              | newcomer | no    | 1       | 0       | yes
    BY_MEMBERS | Stable              | newcomer | no    | 2       | 0       | no
    BY_MEMBERS | Stable              | pending  | no    | 2       | 0       | yes
    BY_MEMBERS | PreparingRebalance  | known    | no    | 2       | 0       | yes
    BY_MEMBERS | PreparingRebalance  | known    | no    | 3       | 0       | no
    BY_MEMBERS | PreparingRebalance  | known    | yes   | 3       | 1       | yes
""")


@plays("C-4.4.1-3")
@pytest.mark.parametrize("row", SIZES, ids=case_id)
def test_who_is_within_a_group_max_size_of_two(row):
    scene = Scene(group_initial_rebalance_delay_ms=1_000)
    for number in range(int(row["members"])):
        scene.enter(f"m{number}")
    if row["members"] == "0":
        scene.commit(1)
    group = scene.group
    group.state = GroupState(row["state"])
    waiting = [name for name in scene.ids if name != "m0" or row["member"] != "known" or row["waits"] == "yes"][: int(row["waiting"])]
    for member in group.members:
        if member.client_id not in waiting:
            group.take_awaiting_join(member)
    member_id = {"newcomer": "", "pending": "p-1", "known": scene.ids.get("m0", "")}[row["member"]]
    assert size_allows(SizeRule[row["rule"]], 2, group, member_id) == (row["allowed"] == "yes")


@plays("C-4.1.5")
@pytest.mark.parametrize(("version", "others_go_on"), [("3.9.1", True), ("4.3.1", False)])
def test_a_member_refused_for_size_is_out_and_scala_goes_on_at_once(version, others_go_on):
    scene = Scene(version, group_max_size=2)
    scene.stabilize("a", "b")
    scene.leave("b")
    assert scene.state is GroupState.PREPARING_REBALANCE
    scene.enter("c")
    scene.enter("d")
    refused = scene.join("a")
    assert (refused.answer.error, refused.answer.member_id) == (Error.GROUP_MAX_SIZE_REACHED, "")
    assert scene.members == ["c", "d"]
    assert (scene.calls["c"].answer is not None) == others_go_on


def test_a_restart_without_an_id_is_refused_while_the_group_is_full():
    scene = Scene(group_max_size=1)
    scene.enter("a", group_instance_id="i-a")
    scene.sync("a")
    assert error_of(scene.join("b", group_instance_id="i-a")) is Error.GROUP_MAX_SIZE_REACHED
