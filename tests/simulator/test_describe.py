"""DescribeGroups and ListGroups in every state."""

import pytest

from groupcoord_spark.simulator import Error
from groupcoord_spark.simulator.messages.requests import DescribeGroups, ListGroups
from tests.simulator.decision_table import by_release, case_id
from tests.simulator.rules import plays
from tests.simulator.scene import GROUP, READS_T, Scene

# State shown, protocol, metadata of a (m: shown), assignment of a.
DESCRIBED = by_release("""
    state               | 0.10.2.2               | 2.8.2                     | 3.9.1 | 4.3.1
    absent              | Dead, , , none         | "                         | "     | "
    Dead                | Dead, , , none         | "                         | "     | "
    Empty               | Empty, , , none        | "                         | "     | "
    PreparingRebalance  | PreparingRebalance, , , | "                        | "     | PreparingRebalance, , , a
    CompletingRebalance | AwaitingSync, , ,      | CompletingRebalance, , ,  | "     | "
    Stable              | Stable, range, m, a    | "                         | "     | "
""")


@plays("C-2.1-5")
@pytest.mark.parametrize(("version", "row", "expected"), DESCRIBED, ids=case_id)
def test_metadata_and_protocol_are_shown_only_while_the_group_is_stable(version, row, expected):
    scene = Scene(version)
    scene.play(row["state"])
    group = scene.simulator.describe(GROUP)
    members = [member for member in group.members if member.client_id == "a"]
    metadata = "none" if not members else "m" if members[0].metadata == READS_T else members[0].metadata.decode()
    assignment = "none" if not members else members[0].assignment.decode()
    metadata = "" if metadata == "none" else metadata
    assert [group.state, group.protocol, metadata, assignment] == [cell.strip() for cell in expected.split(",")]
    assert group.error is Error.NONE


@pytest.mark.parametrize(
    ("version", "name"),
    [("0.11.0.3", "AwaitingSync"), ("1.0.2", "AwaitingSync"), ("1.1.0", "CompletingRebalance"), ("2.0.1", "CompletingRebalance")],
)
def test_completing_rebalance_is_called_awaiting_sync_up_to_1_0(version, name):
    scene = Scene(version)
    scene.play("CompletingRebalance")
    assert scene.ask(DescribeGroups((GROUP,))).groups[0].state == name
    assert [group.state for group in scene.ask(ListGroups()).groups] == [name]
    assert name in {entry.state for entry in scene.entries}


def test_an_unknown_group_is_an_error_from_version_6_on():
    scene = Scene("4.3.1")
    shown = [scene.ask(DescribeGroups((GROUP,), version=version)).groups[0] for version in (5, 6, None)]
    assert [one.error for one in shown] == [Error.NONE, Error.GROUP_ID_NOT_FOUND, Error.GROUP_ID_NOT_FOUND]
    assert {one.state for one in shown} == {"Dead"}
    assert Scene("3.9.1").ask(DescribeGroups((GROUP,))).groups[0].error is Error.NONE


def test_pending_members_are_not_shown():
    scene = Scene()
    scene.stabilize("a")
    scene.join("p")
    assert [member.client_id for member in scene.simulator.describe(GROUP).members] == ["a"]


def test_members_are_shown_in_map_order():
    scene = Scene(group_initial_rebalance_delay_ms=10)
    for number in range(40):
        scene.enter(f"m{number}")
    shown = [member.member_id for member in scene.simulator.describe(GROUP).members]
    assert shown == scene.group.members.keys() != sorted(shown)


FILTERS = by_release("""
    filter                    | 2.8.2 | 3.9.1 | 4.3.1
    none                      | yes   | yes   | yes
    Stable                    | yes   | yes   | yes
    stable                    | no    | yes   | yes
    Empty                     | no    | no    | no
    Empty,Stable              | yes   | yes   | yes
    no such state             | no    | no    | no
""")


@pytest.mark.parametrize(("version", "row", "expected"), FILTERS, ids=case_id)
def test_groups_are_listed_by_state(version, row, expected):
    scene = Scene(version)
    scene.play("Stable")
    states = () if row["filter"] == "none" else tuple(row["filter"].split(","))
    listed = scene.ask(ListGroups(states)).groups
    shown = [(one.group_id, one.protocol_type, one.state) for one in listed]
    assert shown == ([(GROUP, "consumer", "Stable")] if expected == "yes" else [])
