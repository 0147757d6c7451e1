"""DeleteGroups, OffsetDelete, topics that go, and the cleanup by age."""

import pytest

from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.simulator import CleanUp, ClusterTopic, DeleteTopic, Error, FailAppends, GroupState
from groupcoord_spark.simulator.groups.clock import TimerKind
from groupcoord_spark.simulator.messages.requests import (
    DeleteGroups,
    EndTxn,
    GroupToFetch,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    TxnOffsetCommit,
)
from tests.simulator.decision_table import by_release, case_id, table
from tests.simulator.rules import plays
from tests.simulator.scene import GROUP, Scene, subscription

MINUTE_MS = 60_000


def delete(scene):
    return scene.ask(DeleteGroups((GROUP,))).errors[GROUP]


def delete_offset(scene, topic="t", partition=0):
    answer = scene.ask(OffsetDelete(GROUP, {topic: (partition,)}))
    return answer.error if answer.error is not Error.NONE else answer.errors[topic, partition]


def stage(scene, topic="t", partition=0):
    scene.ask(TxnOffsetCommit(GROUP, 7, (OffsetToCommit(topic, partition, 9),)))


def tombstones(scene, since):
    """Return the records from a position of the log on: t/0 for an offset, 2T for the group."""
    written = scene.records[since:]
    assert all(record.value is None for record in written)
    return ["2T" if record.key_type == KeyType.GROUP_METADATA else f"{record.key['topic']}/{record.key['partition']}" for record in written]


def committed(scene):
    topics = scene.ask(OffsetFetch((GroupToFetch(GROUP),))).groups[0].topics
    return sorted(f"{topic}/{partition}" for topic, partitions in topics.items() for partition in partitions)


@plays("C-9.6.1-3")
@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.3.1"])
@pytest.mark.parametrize("state", ["absent", "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"])
def test_only_empty_groups_can_be_deleted(version, state):
    scene = Scene(version)
    scene.play(state)
    expected = {"absent": Error.GROUP_ID_NOT_FOUND, "Empty": Error.NONE}.get(state, Error.NON_EMPTY_GROUP)
    assert delete(scene) is expected
    assert (scene.state is None) == (state in ("absent", "Empty"))


DELETIONS = by_release("""
    group                                 | 3.9.1        | 4.3.1
    plain commit t/0                      | t/0          | t/0 2T
    left by its members, t/0              | t/0 2T       | t/0 2T
    plain t/0, pending t/0 and t/1        | t/0          | t/0 t/1 2T
    pending t/1 only                      |              | t/1 2T
    pending id only                       |              | 2T
""")


@plays("C-9.4.5")
@pytest.mark.parametrize(("version", "row", "expected"), DELETIONS, ids=case_id)
def test_deleting_a_group_writes_its_tombstones_in_one_batch(version, row, expected):
    scene = Scene(version)
    if "left" in row["group"]:
        scene.play("Empty")
    if "pending id" in row["group"]:
        scene.join("p")
    if "t/0" in row["group"]:
        scene.commit(1)
    for partition in (0, 1):
        if "pending t" in row["group"] and f"t/{partition}" in row["group"].partition("pending")[2]:
            stage(scene, "t", partition)
    since = len(scene.records)
    assert delete(scene) is Error.NONE
    assert tombstones(scene, since) == expected.split()
    assert len({record.batch for record in scene.records[since:]}) <= 1
    # The transaction's end brings nothing back.
    scene.ask(EndTxn(7, committed=True))
    assert scene.state is None and committed(scene) == []


def test_a_deletion_that_cannot_be_written_leaves_the_group():
    scene = Scene()
    scene.commit(1)
    scene.simulator.act(FailAppends(Error.NOT_LEADER_OR_FOLLOWER))
    assert delete(scene) is Error.NOT_COORDINATOR
    assert scene.state is GroupState.EMPTY


OFFSET_DELETIONS = table("""
    state               | type     | topic  | answer
    absent              | consumer | t      | GROUP_ID_NOT_FOUND
    Empty               | consumer | t      | NONE
    Empty               | connect  | t      | NONE
    Empty               | consumer | nosuch | UNKNOWN_TOPIC_OR_PARTITION
    Stable              | consumer | t      | GROUP_SUBSCRIBED_TO_TOPIC
    Stable              | consumer | u      | NONE
    Stable              | consumer | nosuch | UNKNOWN_TOPIC_OR_PARTITION
    Stable              | connect  | u      | NON_EMPTY_GROUP
    PreparingRebalance  | consumer | t      | GROUP_SUBSCRIBED_TO_TOPIC
    PreparingRebalance  | consumer | u      | NONE
    CompletingRebalance | consumer | t      | GROUP_SUBSCRIBED_TO_TOPIC
""")


@plays("C-9.6.5-8")
@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.3.1"])
@pytest.mark.parametrize("row", OFFSET_DELETIONS, ids=case_id)
def test_offsets_that_somebody_reads_are_not_deleted(version, row):
    scene = Scene(version, topics={"t": ClusterTopic(1), "u": ClusterTopic(1)})
    if row["type"] == "connect":
        scene.enter("a", protocol_type="connect", protocols=(("compatible", b"?"),))
        if row["state"] == "Empty":
            scene.leave("a")
    else:
        scene.play(row["state"])
    assert delete_offset(scene, row["topic"]) is Error[row["answer"]]


def test_a_subscription_that_cannot_be_read_may_be_to_anything():
    scene = Scene()
    scene.stabilize("a", protocols=(("range", b"\x00"),))
    assert delete_offset(scene, "anything") is Error.GROUP_SUBSCRIBED_TO_TOPIC


def test_before_the_first_join_phase_is_over_every_topic_counts_as_read():
    scene = Scene(group_initial_rebalance_delay_ms=3_000)
    scene.enter("a")
    assert delete_offset(scene, "u") is Error.GROUP_SUBSCRIBED_TO_TOPIC


USED_UP = by_release("""
    group                          | 3.9.1        | 4.3.1
    plain commit t/0               | t/0, gone    | t/0, stays
    plain commits t/0 and u/0      | t/0, stays   | t/0, stays
    left by its members, t/0       | t/0 2T, gone | t/0, stays
    pending t/0 only               | , stays      | t/0, stays
    plain and pending t/0          | t/0, stays   | t/0, stays
""")


@pytest.mark.parametrize(("version", "row", "expected"), USED_UP, ids=case_id)
def test_the_last_offset_takes_an_empty_group_with_it_in_scala(version, row, expected):
    scene = Scene(version)
    if "left" in row["group"]:
        scene.play("Empty")
    if "only" not in row["group"]:
        scene.commit(1)
    if "u/0" in row["group"]:
        scene.commit(1, "u")
    if "pending" in row["group"]:
        stage(scene)
    since = len(scene.records)
    assert delete_offset(scene) is Error.NONE
    written, fate = (cell.strip() for cell in expected.split(","))
    assert tombstones(scene, since) == written.split()
    assert (scene.state is None) == (fate == "gone")
    # Pending offsets are dropped: the transaction's end does not bring them back.
    scene.ask(EndTxn(7, committed=True))
    assert committed(scene) == (["u/0"] if "u/0" in row["group"] else [])


@pytest.mark.parametrize(("version", "is_gone"), [("3.9.1", True), ("4.3.1", False)])
def test_the_end_of_a_topic_takes_its_offsets(version, is_gone):
    scene = Scene(version)
    scene.commit(1)
    since = len(scene.records)
    scene.simulator.act(DeleteTopic("other"))
    scene.simulator.act(DeleteTopic("t"))
    assert tombstones(scene, since) == ["t/0"]
    assert (scene.state is None) == is_gone


# Cleanup. Retention is a minute; the check runs at 100000.

CLEANUPS = table("""
    group                      | commits at             | java     | scala    | 2.0
    plain                      | t 40000                | t/0 2T   | t/0      |
    plain                      | t 40001                |          |          |
    plain                      | t 39999                | t/0 2T   | t/0      | t/0
    left at 30000              | t 40001                | t/0 2T   | t/0 2T   |
    left at 50000              | t 10000                |          |          | t/0 2T
    Stable, reads t            | t 10000                |          |          | t/0
    Stable, reads t            | u 10000                | u/0      | u/0      | u/0
    CompletingRebalance        | u 10000                |          |          | u/0
    Stable connect             | t 10000                |          |          | t/0
    plain, t/0 pending         | t 10000                |          | t/0      | t/0
    plain, t/1 pending         | t 10000                | t/0      | t/0      | t/0
    left at 10000, no offsets  |                        | 2T       | 2T       | 2T
""")


@pytest.mark.parametrize(("version", "column"), [("4.3.1", "java"), ("3.9.1", "scala"), ("2.0.1", "2.0")])
@pytest.mark.parametrize("row", CLEANUPS, ids=case_id)
def test_what_a_cleanup_removes(version, column, row):
    scene = Scene(
        version,
        offsets_retention_ms=MINUTE_MS,
        offsets_retention_check_interval_ms=10**9,
        group_initial_rebalance_delay_ms=0,
    )
    kind = row["group"]
    moments = [int(row["commits at"].split()[1])] if row["commits at"] else []
    forever = {"session_timeout_ms": 300_000, "rebalance_timeout_ms": 300_000}

    def commit():
        if not moments:
            return
        scene.simulator.advance_to(max(moments[0], scene.simulator.broker.now_ms))
        topic = row["commits at"].split()[0]
        # Nobody rewinds a broker's clock: where the members came first, the commit comes from one of them.
        named = {"name": "a"} if scene.state in (GroupState.STABLE,) else {}
        scene.commit(1, topic, **named)

    if kind.startswith("left"):
        left_ms = int(kind.split()[2].rstrip(","))
        if moments and moments[0] < left_ms:
            scene.stabilize("a", **forever)
            commit()
            scene.simulator.advance_to(left_ms)
            scene.leave("a")
        else:
            scene.simulator.advance_to(left_ms)
            scene.stabilize("a", **forever)
            scene.leave("a")
            commit()
    elif kind.startswith("Stable connect"):
        scene.stabilize("a", protocol_type="connect", protocols=(("compatible", subscription("u")),), **forever)
        commit()
    elif kind.startswith("plain"):
        commit()
    else:
        scene.stabilize("a", **forever)
        commit()
        if kind == "CompletingRebalance":
            scene.join("a", protocols=(("range", subscription("t", "v")),), **forever)
    if "pending" in kind:
        stage(scene, "t", int(kind.split()[1][2:]))
    scene.simulator.advance_to(100_000)
    since = len(scene.records)
    scene.simulator.act(CleanUp())
    assert tombstones(scene, since) == row[column].split()
    again = len(scene.records)
    scene.simulator.act(CleanUp())
    assert len(scene.records) == again


def test_unread_offsets_go_during_a_rebalance_only_from_2_4_to_2_7():
    for version, expected in (("2.3.1", []), ("2.4.1", ["u/0"]), ("2.7.2", ["u/0"]), ("2.8.2", [])):
        scene = Scene(version, offsets_retention_ms=MINUTE_MS)
        scene.stabilize("a", session_timeout_ms=300_000, rebalance_timeout_ms=300_000)
        scene.commit(1, "u", name="a")
        scene.enter("b", session_timeout_ms=300_000, rebalance_timeout_ms=300_000)
        scene.pass_time(MINUTE_MS)
        since = len(scene.records)
        scene.simulator.act(CleanUp())
        assert scene.state is GroupState.PREPARING_REBALANCE
        assert tombstones(scene, since) == expected


def test_the_cleanup_runs_at_every_interval_and_shows_in_the_timeline_when_it_removes_something():
    scene = Scene(offsets_retention_ms=MINUTE_MS, offsets_retention_check_interval_ms=50_000)
    scene.commit(1)
    scene.pass_time(200_000)
    assert [(entry.at_ms, len(entry.records)) for entry in scene.entries if entry.timer is TimerKind.CLEANUP] == [(100_000, 2)]
    assert scene.state is None


def test_scala_keeps_a_group_whose_transaction_has_lost_all_its_offsets():
    scene = Scene("3.9.1", offsets_retention_ms=MINUTE_MS)
    stage(scene)
    delete_offset(scene)
    scene.pass_time(2 * MINUTE_MS)
    scene.simulator.act(CleanUp())
    assert scene.state is GroupState.EMPTY
    scene.ask(EndTxn(7, committed=False))
    scene.simulator.act(CleanUp())
    assert scene.state is None
