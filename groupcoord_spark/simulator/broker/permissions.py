"""Permissions: a request that the broker's authorizer refuses never reaches the coordinator.

Operations on groups as in Kafka's documentation of its ACLs: READ for members and commits, DESCRIBE for questions, DELETE for deletions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from groupcoord_spark.simulator.messages import requests
from groupcoord_spark.simulator.messages.calls import DESCRIPTIONS

READ: Final = "READ"
DESCRIBE: Final = "DESCRIBE"
DELETE: Final = "DELETE"
GROUP_OPERATIONS: Final = (READ, DESCRIBE, DELETE)


@dataclass(frozen=True, slots=True)
class Denied:
    """What the authorizer refuses to every client: operations on all groups, and every operation on some topics."""

    group_operations: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.group_operations or self.topics)


_REQUESTS: Final[Mapping[str, tuple[type[requests.Request], ...]]] = {
    READ: (
        *(requests.JoinGroup, requests.SyncGroup, requests.Heartbeat, requests.LeaveGroup, requests.OffsetCommit),
        *(requests.TxnOffsetCommit, requests.AddOffsetsToTxn),
        *(requests.ConsumerGroupHeartbeat, requests.ShareGroupHeartbeat, requests.StreamsGroupHeartbeat),
    ),
    DESCRIBE: (requests.FindCoordinator, requests.OffsetFetch, *DESCRIPTIONS),
    DELETE: (requests.DeleteGroups, requests.OffsetDelete),
}
"""Operation -> the requests that need it. ListGroups and the markers of transactions need none of a group."""


def is_denied(request: requests.Request, denied: Denied) -> bool:
    """Whether the authorizer refuses a request."""
    return any(isinstance(request, _REQUESTS[operation]) for operation in denied.group_operations)
