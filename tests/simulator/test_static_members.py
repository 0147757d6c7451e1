"""Static members (KIP-345) that restart, are replaced, or stay silent."""

import pytest

from groupcoord_spark.simulator import Error, FailAppends, GroupState
from groupcoord_spark.simulator.messages.requests import JoinGroup
from tests.simulator.decision_table import by_release, case_id
from tests.simulator.rules import plays
from tests.simulator.scene import GROUP, READS_T, Scene, error_of

RANGE = (("range", READS_T),)
BOTH = (("range", READS_T), ("sticky", READS_T))
TURNED = (("sticky", READS_T), ("range", READS_T))


def static_scene(version, protocols=RANGE, **fields):
    """a leads, b follows, both static; CompletingRebalance."""
    scene = Scene(version)
    for name in ("a", "b"):
        scene.enter(name, group_instance_id=f"i-{name}", protocols=protocols, **fields)
    scene.join("a", group_instance_id="i-a", protocols=protocols, **fields)
    return scene


def restart(scene, name, protocols=RANGE, **fields):
    """Return a new process of the member joins without an id."""
    return scene.join(name, group_instance_id=f"i-{name}", member_id="", protocols=protocols, **fields)


# KAFKA-10284 came with 2.6.1, and 2.6 alone means its newest patch.
# "answered": the present generation, no rebalance. "written": the same, and so is the group record. "rebalance": the group starts over.
RESTARTS = by_release("""
    state               | protocols           | 2.3.1    | 2.4.1 | 2.6.0     | 2.6.1     | 2.6 | 2.7.2 | 3.9.1 | 4.3.1
    Stable              | same                | answered | "     | "         | written   | "   | "     | "     | "
    Stable              | another subscription| answered | "     | "         | written   | "   | "     | "     | "
    Stable              | elected one changes | answered | "     | "         | rebalance | "   | "     | "     | "
    CompletingRebalance | same                | answered | "     | rebalance | "         | "   | "     | "     | "
    PreparingRebalance  | same                | waits    | "     | "         | "         | "   | "     | "     | "
""")


@plays("C-4.5.1-3", "C-9.4.3")
@pytest.mark.parametrize(("version", "row", "expected"), RESTARTS, ids=case_id)
def test_the_restart_of_a_static_member(version, row, expected):
    scene = static_scene(version, BOTH)
    if row["state"] != "CompletingRebalance":
        scene.sync_all("a", "b")
    if row["state"] == "PreparingRebalance":
        scene.enter("c", protocols=BOTH)
    old_id, generation, written = scene.ids["b"], scene.group.generation, len(scene.records)
    offer = {
        "same": BOTH,
        "another subscription": (("range", READS_T + b"!"), ("sticky", READS_T)),
        # With b's vote alone turned there is a tie, which sticky wins in 4.x; without range it is elected everywhere.
        "elected one changes": (("sticky", READS_T),),
    }[row["protocols"]]
    call = restart(scene, "b", offer)
    assert scene.ids["b"] != old_id
    assert old_id not in scene.group.members and scene.group.static_members["i-b"] == scene.ids["b"]
    has_rebalance = scene.state is GroupState.PREPARING_REBALANCE
    actual = (
        "waits" if row["state"] == "PreparingRebalance" and call.answer is None
        else "rebalance" if has_rebalance
        else "written" if len(scene.records) > written
        else "answered"
    )  # fmt: skip
    assert actual == expected
    if actual in ("answered", "written"):
        assert (call.answer.error, call.answer.generation, call.answer.member_id) == (Error.NONE, generation, scene.ids["b"])
        assert scene.state.value == row["state"]
    if actual == "written":
        record = scene.records[-1]
        assert record.value["generation"] == generation
        (stored,) = (member for member in record.value["members"] if member["group_instance_id"] == "i-b")
        assert (stored["member_id"], stored["subscription"], stored["assignment"]) == (scene.ids["b"], offer[0][1], b"b")


LEADERS = by_release("""
    version | 2.4.1 | 2.8.2 | 3.1.0 | 3.2.0   | 4.3.1
    newest  | old   | "     | "     | new     | "
    8       | old   | "     | "     | "       | "
""")


@pytest.mark.parametrize(("version", "row", "expected"), LEADERS, ids=case_id)
def test_a_restarted_leader_is_told_its_old_id_or_to_skip_the_assignment(version, row, expected):
    scene = static_scene(version)
    scene.sync_all("a", "b")
    assert scene.leader == "a"
    old_id = scene.ids["a"]
    newest = scene.simulator.release.request_versions[JoinGroup].newest
    answer = restart(scene, "a", version=None if row["version"] == "newest" else min(int(row["version"]), newest)).answer
    assert scene.group.leader == scene.ids["a"] == answer.member_id
    if expected == "new":
        assert (answer.leader, answer.skip_assignment, len(answer.members)) == (answer.member_id, True, 2)
    else:
        assert (answer.leader, answer.skip_assignment, answer.members) == (old_id, False, ())


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.3.1"])
def test_whatever_the_old_process_waits_for_is_fenced(version):
    scene = static_scene(version)
    syncing = scene.sync("b")
    restart(scene, "b")
    assert error_of(syncing) is Error.FENCED_INSTANCE_ID
    joining, old_id = scene.calls["b"], scene.ids["b"]
    restart(scene, "b")
    assert (joining.answer.error, joining.answer.member_id) == (Error.FENCED_INSTANCE_ID, old_id)


def test_the_new_process_inherits_where_the_old_one_ran():
    scene = static_scene("4.3.1")
    scene.sync_all("a", "b")
    scene.simulator.send(JoinGroup(GROUP, 10_000, 60_000, "", "i-b", "consumer", RANGE, "another", "/10.0.0.9"))
    described = next(member for member in scene.simulator.describe(GROUP).members if member.group_instance_id == "i-b")
    assert (described.client_id, described.client_host) == ("b", "/127.0.0.1")


@pytest.mark.parametrize(
    ("version", "session_ms", "rebalance_ms"), [("2.8.2", 10_000, 60_000), ("3.3.0", 20_000, 30_000), ("4.3.1", 20_000, 30_000)]
)
def test_a_restart_changes_the_timeouts_since_3_3(version, session_ms, rebalance_ms):
    scene = static_scene(version)
    scene.sync_all("a", "b")
    scene.pass_time(1_000)
    restart(scene, "b", session_timeout_ms=20_000, rebalance_timeout_ms=30_000)
    member = scene.group.members[scene.ids["b"]]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (session_ms, rebalance_ms)
    assert member.deadline_ms == 1_000 + 10_000  # the session that starts now is still the old one


def test_a_restart_that_cannot_be_written_is_taken_back():
    scene = static_scene("4.3.1", BOTH)
    scene.sync_all("a", "b")
    old_id = scene.ids["b"]
    scene.simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS))
    answer = restart(scene, "b", (*RANGE,), session_timeout_ms=9_000).answer
    assert (answer.error, answer.member_id, answer.generation) == (Error.COORDINATOR_NOT_AVAILABLE, "", scene.group.generation)
    member = scene.group.members[old_id]
    assert (member.protocols, member.session_timeout_ms) == (BOTH, 10_000)
    assert scene.group.static_members["i-b"] == old_id


@pytest.mark.parametrize(("version", "is_spared"), [("3.9.1", False), ("4.3.1", True)])
def test_a_newcomer_replaced_while_it_waits_may_expire_in_scala(version, is_spared):
    scene = Scene(version)
    scene.stabilize("a", session_timeout_ms=500_000, rebalance_timeout_ms=500_000)
    scene.join("b", group_instance_id="i-b", session_timeout_ms=2_000)
    restart(scene, "b", session_timeout_ms=2_000)
    scene.pass_time(2_000)
    assert (len(scene.group.members) == 2) == is_spared


def test_the_sync_timer_still_waits_for_the_old_id():
    scene = static_scene("4.3.1", rebalance_timeout_ms=1_200)
    scene.sync("a", {"a": b"1", "b": b"2"})
    assert scene.state is GroupState.STABLE
    restart(scene, "b", rebalance_timeout_ms=1_200)
    scene.sync("b")
    scene.pass_time(1_200)
    assert scene.state is GroupState.PREPARING_REBALANCE
    assert scene.members == ["a", "b"]


def test_static_members_need_no_id_first():
    scene = Scene()
    assert scene.join("a", group_instance_id="i-a").answer.error is Error.NONE
    assert scene.ids["a"].startswith("i-a-")
    assert scene.join("d").answer.error is Error.MEMBER_ID_REQUIRED
    assert scene.ids["d"].startswith("d-")
