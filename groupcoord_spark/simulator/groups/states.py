"""The five states of a classic group and the valid transitions (Kafka: ``ClassicGroupState``, ``GroupState``)."""

from enum import Enum


class GroupState(Enum):
    """The state of a classic group, by the name that DescribeGroups shows. CompletingRebalance was called AwaitingSync up to 1.0."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.STABLE, GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.COMPLETING_REBALANCE}),
    GroupState.DEAD: frozenset(GroupState),
}

CAN_REBALANCE = VALID_PREVIOUS_STATES[GroupState.PREPARING_REBALANCE]
"""States from which a join phase may start."""
