import pytest

from groupcoord_spark.simulator import GroupState
from groupcoord_spark.simulator.groups.classic_group import CAN_REBALANCE, VALID_PREVIOUS_STATES, ClassicGroup, InternalError
from tests.simulator.decision_table import case_id, table
from tests.simulator.rules import plays

TRANSITIONS = table("""
    from                | to Empty | to PreparingRebalance | to CompletingRebalance | to Stable | to Dead
    Empty               | no       | yes                   | no                     | no        | yes
    PreparingRebalance  | yes      | no                    | yes                    | no        | yes
    CompletingRebalance | no       | yes                   | no                     | yes       | yes
    Stable              | no       | yes                   | no                     | no        | yes
    Dead                | no       | no                    | no                     | no        | yes
""")


@plays("C-2.16")
@pytest.mark.parametrize("row", TRANSITIONS, ids=case_id)
def test_a_group_goes_only_where_there_is_a_way(row):
    for target in GroupState:
        group = ClassicGroup("g", 0, like_java=True)
        group.state = GroupState(row["from"])
        if row[f"to {target.value}"] == "yes":
            group.transition_to(target, 7)
            assert (group.state, group.previous_state, group.state_timestamp_ms) == (target, GroupState(row["from"]), 7)
        else:
            with pytest.raises(InternalError, match=row["from"]):
                group.transition_to(target, 7)


def test_a_rebalance_starts_from_every_state_with_a_way_to_it():
    can_rebalance = {GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}
    assert can_rebalance == CAN_REBALANCE == VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]
