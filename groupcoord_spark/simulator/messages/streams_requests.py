"""The requests of streams groups (KIP-1071), with Kafka's field names in snake_case, and the topology that a member sends.

``requests.py`` has the requests of the other groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from groupcoord_spark.simulator.messages.requests import Request

Tasks = Mapping[str, tuple[int, ...]]
"""Subtopology -> partition numbers of its tasks."""


class InternalTopic(NamedTuple):
    """A topic that the broker makes for the application. partitions: 0, as many as its sources; configs: setting -> value."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Topics of a subtopology that must have the same number of partitions: places in its lists of topics."""

    source_topics: tuple[int, ...] = ()
    repartition_source_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A part of a topology that has tasks of its own.

    repartition_sink_topics: topics that it writes for other subtopologies, which have them among their repartition source topics.
    """

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_topic_regex: tuple[str, ...] = ()
    state_changelog_topics: tuple[InternalTopic, ...] = ()
    repartition_sink_topics: tuple[str, ...] = ()
    repartition_source_topics: tuple[InternalTopic, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class Topology:
    """What an application reads, keeps and writes. epoch: a member with an older one than the group's is told that it is stale."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]


@dataclass(frozen=True, slots=True)
class StreamsGroupHeartbeat(Request):
    """Join a streams group, stay in it, report one's tasks, or leave. None: as in the request before.

    member_epoch: 0 to join, -1 to leave. active_tasks, standby_tasks, warmup_tasks: what the client has now; all three or none.
    user_endpoint: host and port at which the client answers queries. endpoint_information_epoch: of the last answer that listed them.
    shutdown_application: all members of the group are told to stop.
    """

    group_id: str | None
    member_id: str
    member_epoch: int
    endpoint_information_epoch: int = 0
    group_instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topology: Topology | None = None
    active_tasks: Tasks | None = None
    standby_tasks: Tasks | None = None
    warmup_tasks: Tasks | None = None
    process_id: str | None = None
    user_endpoint: tuple[str, int] | None = None
    client_tags: Mapping[str, str] | None = None
    shutdown_application: bool = False
    client_id: str = ""
    client_host: str = "/127.0.0.1"


@dataclass(frozen=True, slots=True)
class StreamsGroupDescribe(Request):
    """Get the state, the epochs, the topology and the members of streams groups."""

    group_ids: tuple[str, ...]
