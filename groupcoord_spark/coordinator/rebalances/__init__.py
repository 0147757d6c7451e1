"""The rebalances of groups: members that joined and left, partitions that moved, and the probable cause of each new generation or epoch.

``GroupHistories`` takes the decoded records of one offsets partition in the order of their offsets, and returns a row (``Rebalance``) for
each record that begins a generation or an epoch. ``rebalances`` does the same for a sequence of records. Both can start from the last
records of each group: the rows then name the same members as if all records had been read, and count the same moves of partitions or
none.

A classic group has a record when the leader has sent the assignment and when the last member has left. The cause of a generation is
inferred from this record and the one before: from their members, their times and the members' timeouts. A modern group has the records of
a change right before the record of the new epoch. ``confidence`` says how sure a cause is; a cause that the records do not show is
``unknown``.
"""

from groupcoord_spark.coordinator.groups.group import Value
from groupcoord_spark.coordinator.rebalances.causes import Cause, Confidence
from groupcoord_spark.coordinator.rebalances.group_histories import GroupHistories, rebalances
from groupcoord_spark.coordinator.rebalances.group_records import KEY_TYPES, GroupRecord
from groupcoord_spark.coordinator.rebalances.rows import Rebalance
