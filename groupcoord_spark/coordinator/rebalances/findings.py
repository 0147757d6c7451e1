"""Why a group rebalanced: the causes, how sure one is, and the words in which its evidence is given."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal, NamedTuple

from groupcoord_spark.coordinator.rebalances.records import NOT_KNOWN

Cause = Literal[
    "member_joined",
    "member_left",
    "member_expelled",
    "member_gone",
    "member_restarted",
    "subscription_changed",
    "partitions_changed",
    "follow_up",
    "leader_rejoined",
    "coordinator_moved",
    "group_converted",
    "unknown",
]
Confidence = Literal["certain", "likely", "possible"]
_NAMED: Final = 3
"""So many members are named in a sentence; the row lists all of them."""


class Finding(NamedTuple):
    """A cause, how sure it is (None where it is unknown), and a sentence that says from what."""

    cause: Cause
    confidence: Confidence | None
    evidence: str


def coordinator_moved(epoch_before: int, epoch: int) -> bool:
    """Whether the leader epochs of two batches differ, where both are known."""
    return NOT_KNOWN not in (epoch_before, epoch) and epoch_before != epoch


def how_it_moved(epoch_before: int, epoch: int) -> str:
    """The sentence for two leader epochs that differ."""
    return f"In between the partition's leader epoch went from {epoch_before} to {epoch}: the coordinator moved or was restarted."


def names_of(names: Collection[str]) -> str:
    """The first names in order, and how many more there are."""
    first = ", ".join(sorted(names)[:_NAMED])
    return first if len(names) <= _NAMED else f"{first} and {len(names) - _NAMED} more"


def a_group_of(members: int) -> str:
    """The group that newcomers met."""
    return f"a group of {members}" if members else "an empty group"
