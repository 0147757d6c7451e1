"""StreamsGroupHeartbeat from the fields that a step names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from groupcoord_spark.simulator.messages.streams_requests import StreamsGroupHeartbeat, Topology

REBALANCE_TIMEOUT_MS: Final = 300_000
_TASKS: Final = ("active_tasks", "standby_tasks", "warmup_tasks")
_AS_GIVEN: Final = (
    *("group_instance_id", "rack_id", "rebalance_timeout_ms", "topology", "process_id", "user_endpoint", "client_tags"),
    *("endpoint_information_epoch", "shutdown_application"),
)


def streams_heartbeat(group_id: str, topology: Topology | None, fields: Mapping[str, Any]) -> StreamsGroupHeartbeat:
    """The heartbeat. Without a field of its own a member that joins has no tasks, a process of its own and the scenario's topology.

    topology: that of the scenario. A list of tasks that the step leaves out is empty if it names another one.
    """
    member_id, epoch = fields["member_id"], fields["member_epoch"]
    joins = {"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "topology": topology, "process_id": member_id} if epoch == 0 else {}
    reports = epoch == 0 or any(name in fields for name in _TASKS)
    tasks = {name: fields.get(name, {} if reports else None) for name in _TASKS}
    given = {name: fields[name] for name in _AS_GIVEN if name in fields}
    client_id = fields.get("client_id", member_id)
    return StreamsGroupHeartbeat(group_id, member_id, epoch, client_id=client_id, **{**joins, **tasks, **given})
