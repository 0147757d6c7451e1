"""Which partitions a member of a streams group can answer queries about (KIP-535; Kafka: ``EndpointToPartitionsManager``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from groupcoord_spark.assignors.sticky_tasks import Task
from groupcoord_spark.simulator.groups.streams_tasks import CurrentTasks, tasks_by_subtopology
from groupcoord_spark.simulator.groups.streams_topology import source_subtopologies
from groupcoord_spark.simulator.messages.answers import EndpointPartitions
from groupcoord_spark.simulator.messages.errors import Error, RefusedError
from groupcoord_spark.simulator.messages.requests import Tasks


def endpoint_partitions(
    endpoint: Mapping[str, Any], tasks: CurrentTasks, topology: Mapping[str, Any], topics: Mapping[str, int]
) -> EndpointPartitions:
    """The partitions of a member's active and standby tasks.

    Args:
        topology: the value of the topology's record.
        topics: topic -> number of partitions, for those that exist.
    """
    active, standby = (_partitions(tasks.assigned[kind], topology, topics) for kind in ("active", "standby"))
    return EndpointPartitions(endpoint["host"], endpoint["port"], active, standby)


def _partitions(tasks: Iterable[Task], topology: Mapping[str, Any], topics: Mapping[str, int]) -> Tasks:
    """Topic -> partitions. As in Kafka, a topic with fewer partitions than the member has tasks gets the first numbers of the tasks."""
    partitions: dict[str, tuple[int, ...]] = {}
    by_subtopology = tasks_by_subtopology(tasks)
    for topic, subtopology in sorted(source_subtopologies(topology).items()):
        if subtopology not in by_subtopology:
            continue
        if topic not in topics:
            raise RefusedError(Error.UNKNOWN_SERVER_ERROR)
        partitions[topic] = by_subtopology[subtopology][: topics[topic]]
    return partitions
