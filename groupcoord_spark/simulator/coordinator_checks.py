"""The checks that come before any group is looked at, in each release's order (its ``coordinator_checks``)."""

from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.release import CoordinatorCheck
from groupcoord_spark.simulator.requests import JoinGroup

_ERRORS = {
    CoordinatorCheck.ACTIVE: Error.COORDINATOR_NOT_AVAILABLE,
    CoordinatorCheck.GROUP_ID: Error.INVALID_GROUP_ID,
    CoordinatorCheck.SESSION_TIMEOUT: Error.INVALID_SESSION_TIMEOUT,
    CoordinatorCheck.LOADING: Error.COORDINATOR_LOAD_IN_PROGRESS,
    CoordinatorCheck.OWNED: Error.NOT_COORDINATOR,
}


def coordinator_error(broker: Broker, request_type: type, group_id: str | None, joining: JoinGroup | None = None) -> Error:
    """The error of the first gate that stays shut, or NONE. ``joining``: the request itself, if it is a JoinGroup."""
    for gate in broker.release.coordinator_checks:
        if not _is_open(gate, broker, request_type, group_id, joining):
            return _ERRORS[gate]
    return Error.NONE


def _is_open(gate: CoordinatorCheck, broker: Broker, request_type: type, group_id: str | None, joining: JoinGroup | None) -> bool:
    if gate is CoordinatorCheck.ACTIVE:
        return broker.is_active
    if gate is CoordinatorCheck.GROUP_ID:
        if not group_id and request_type in broker.release.empty_group_id_refused:
            return False
        return group_id is not None or not broker.release.null_group_id_refused
    if gate is CoordinatorCheck.SESSION_TIMEOUT:
        if joining is None:
            return True
        return broker.settings.group_min_session_timeout_ms <= joining.session_timeout_ms <= broker.max_session_timeout_ms
    partition = broker.partitions.get(broker.partition_number(group_id or ""))
    if gate is CoordinatorCheck.LOADING:
        return partition is None or not partition.is_loading
    return partition is not None
