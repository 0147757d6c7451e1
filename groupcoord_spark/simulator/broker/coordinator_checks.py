"""The checks that all requests have in common, which come before the group is looked up (docs/reference/coordinator.md, chapter 3).

Each release makes them in its own order: ``Release.coordinator_checks``.
"""

from groupcoord_spark.simulator.broker.broker import Broker
from groupcoord_spark.simulator.broker.release import CoordinatorCheck
from groupcoord_spark.simulator.messages import Error
from groupcoord_spark.simulator.messages.requests import JoinGroup, Request

_ERRORS = {
    CoordinatorCheck.ACTIVE: Error.COORDINATOR_NOT_AVAILABLE,
    CoordinatorCheck.GROUP_ID: Error.INVALID_GROUP_ID,
    CoordinatorCheck.SESSION_TIMEOUT: Error.INVALID_SESSION_TIMEOUT,
    CoordinatorCheck.LOADING: Error.COORDINATOR_LOAD_IN_PROGRESS,
    CoordinatorCheck.OWNED: Error.NOT_COORDINATOR,
}


def coordinator_error(broker: Broker, request: Request, group_id: str | None) -> Error:
    """The error of the first check that the request fails for one of its groups; NONE if it passes all checks."""
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
