"""What happened to groups: each new generation or epoch, who came and went with it, what moved, and why, as far as the records tell.

``GroupHistories`` takes the decoded records of one offsets partition in offset order and gives a row (``Rebalance``) for each record that
began a generation or an epoch; ``rebalances`` does so for a whole sequence. Either goes on from records that lead to a known state: the
rows after it name the same members as if nothing had stopped, and count the same moves of partitions or none.

Classic groups write a record when the leader has handed in the assignment and when nobody is left: the cause of a generation is inferred
from two of them in succession, from their times and from the timeouts of the members. Groups of the new protocols write what changed
right before the epoch that it brought about. A row says how sure its cause is; where the records do not tell, it says so.
"""

from groupcoord_spark.coordinator.rebalances.findings import Cause, Confidence
from groupcoord_spark.coordinator.rebalances.group_histories import GroupHistories, rebalances
from groupcoord_spark.coordinator.rebalances.records import CLASSIC_KEY, KEY_TYPES, GroupRecord, Roles, Value, roles_of
from groupcoord_spark.coordinator.rebalances.rows import Rebalance

__all__ = [
    "CLASSIC_KEY",
    "KEY_TYPES",
    "Cause",
    "Confidence",
    "GroupHistories",
    "GroupRecord",
    "Rebalance",
    "Roles",
    "Value",
    "rebalances",
    "roles_of",
]
