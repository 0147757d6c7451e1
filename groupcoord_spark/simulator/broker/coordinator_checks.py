"""The checks that all requests have in common, which come before the group is looked up (docs/reference/coordinator.md, chapter 3).

The authorizer comes first: READ is the operation on a group for members and commits, DESCRIBE for questions, DELETE for deletions, as in
Kafka's documentation of ACLs. The order of the coordinator's own checks depends on the release: ``Release.coordinator_checks``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from groupcoord_spark.simulator.broker.release import CoordinatorCheck
from groupcoord_spark.simulator.messages import Error, requests
from groupcoord_spark.simulator.messages.calls import DESCRIPTIONS
from groupcoord_spark.simulator.messages.requests import JoinGroup, Request

if TYPE_CHECKING:
    from groupcoord_spark.simulator.broker.broker import Broker


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
    """Return whether the authorizer denies a request."""
    return any(isinstance(request, _REQUESTS[operation]) for operation in denied.group_operations)


_ERRORS = {
    CoordinatorCheck.ACTIVE: Error.COORDINATOR_NOT_AVAILABLE,
    CoordinatorCheck.GROUP_ID: Error.INVALID_GROUP_ID,
    CoordinatorCheck.SESSION_TIMEOUT: Error.INVALID_SESSION_TIMEOUT,
    CoordinatorCheck.LOADING: Error.COORDINATOR_LOAD_IN_PROGRESS,
    CoordinatorCheck.OWNED: Error.NOT_COORDINATOR,
}


def coordinator_error(broker: Broker, request: Request, group_id: str | None) -> Error:
    """Return the error of the first check that fails for one of the request's groups, or NONE."""
    for check in broker.release.coordinator_checks:
        if not _passes(check, broker, request, group_id):
            return _ERRORS[check]
    return Error.NONE


def _passes(check: CoordinatorCheck, broker: Broker, request: Request, group_id: str | None) -> bool:
    if check is CoordinatorCheck.ACTIVE:
        return broker.is_active
    if check is CoordinatorCheck.GROUP_ID:
        if not group_id and type(request) in broker.release.empty_group_id_refused:
            return False
        return group_id is not None or not broker.release.null_group_id_refused
    if check is CoordinatorCheck.SESSION_TIMEOUT:
        if not isinstance(request, JoinGroup):
            return True
        return broker.settings.group_min_session_timeout_ms <= request.session_timeout_ms <= broker.max_session_timeout_ms
    partition = broker.partitions.get(broker.partition_number(group_id or ""))
    if check is CoordinatorCheck.LOADING:
        return partition is None or not partition.is_loading
    return partition is not None
