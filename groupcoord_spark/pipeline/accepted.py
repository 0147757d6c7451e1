"""The words of ``--accept``: what a run may do although its input looks like a bad copy."""

from collections.abc import Mapping
from typing import Final

EMPTY, MISSING, OLDER, RECREATED = "empty", "missing", "older", "recreated"
MISPLACED, MALFORMED, EARLIER, HOLE = "misplaced", "malformed", "earlier", "hole"

ACCEPTED_WORDS: Final[Mapping[str, str]] = {
    EMPTY: "The input has no record: the state becomes empty, the history stays.",
    MISSING: "Offsets partitions that the last run had are not in the input: their groups are dropped.",
    OLDER: "The input is older than the last run: the state goes back, the history stays.",
    RECREATED: "The topic was deleted and created again: its history goes on with a new incarnation.",
    MISPLACED: "Most groups are in other offsets partitions than the partition count of the last run gives them.",
    MALFORMED: "More than half of the rows or lines are quarantined.",
    EARLIER: "The run is as of a moment before the last run: the order of the runs is not that of their times.",
    HOLE: "The input lacks a range of offsets that the last run read: the groups that were only there are gone.",
}
"""Word -> what the user accepts with it, and the consequence."""
