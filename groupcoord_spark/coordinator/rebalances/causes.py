"""The causes of a rebalance, the confidence in a cause, and parts of the sentences for the evidence."""

from collections.abc import Collection
from typing import Literal, NamedTuple

from groupcoord_spark.coordinator.rebalances.group_records import NOT_KNOWN
from groupcoord_spark.wording import first_of

Cause = Literal[
    "member_joined",
    "member_left",
    "member_expelled",
    "member_gone",
    "member_restarted",
    "subscription_changed",
    "partitions_changed",
    "follow_up",
    "probing",
    "leader_rejoined",
    "coordinator_moved",
    "group_converted",
    "unknown",
]
Confidence = Literal["certain", "likely", "possible"]


class Reason(NamedTuple):
    """A cause, the confidence in it (None: the cause is unknown), and the sentence with the evidence."""

    cause: Cause
    confidence: Confidence | None
    evidence: str


def coordinator_moved(epoch_before: int, epoch: int) -> bool:
    """Return whether two batches have different known leader epochs."""
    return NOT_KNOWN not in (epoch_before, epoch) and epoch_before != epoch


def move_sentence(epoch_before: int, epoch: int) -> str:
    """Return the sentence about two different leader epochs."""
    return f"In between the partition's leader epoch went from {epoch_before} to {epoch}: the coordinator moved or was restarted."


def names_of(names: Collection[str]) -> str:
    """Return the first names in alphabetical order and the number of the remaining ones."""
    return first_of(sorted(names))


def group_of_size(members: int) -> str:
    """Words for the group that new members joined: ``a group of 3``, ``an empty group``."""
    return f"a group of {members}" if members else "an empty group"
