"""The five states of a classic group and the valid transitions (Kafka: ``ClassicGroupState``, ``GroupState``)."""

from enum import Enum


class State(Enum):
    """The state of a classic group, by the name that DescribeGroups shows. CompletingRebalance was called AwaitingSync up to 1.0."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS_STATES: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE}),
    State.PREPARING_REBALANCE: frozenset({State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY}),
    State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE}),
    State.STABLE: frozenset({State.COMPLETING_REBALANCE}),
    State.DEAD: frozenset(State),
}

CAN_REBALANCE = VALID_PREVIOUS_STATES[State.PREPARING_REBALANCE]
"""States from which a join phase may start."""
