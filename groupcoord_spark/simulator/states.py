"""The five states of a classic group and the ways between them (Kafka: ``ClassicGroupState``, ``GroupState``)."""

from enum import Enum


class State(Enum):
    """State of a classic group, by the name DescribeGroups shows. CompletingRebalance was called AwaitingSync up to 1.0."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


VALID_PREVIOUS: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE}),
    State.PREPARING_REBALANCE: frozenset({State.STABLE, State.COMPLETING_REBALANCE, State.EMPTY}),
    State.COMPLETING_REBALANCE: frozenset({State.PREPARING_REBALANCE}),
    State.STABLE: frozenset({State.COMPLETING_REBALANCE}),
    State.DEAD: frozenset(State),
}

CAN_REBALANCE = VALID_PREVIOUS[State.PREPARING_REBALANCE]
