"""The answers to requests of streams groups (KIP-1071). ``answers.py`` has those of the other groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from groupcoord_spark.simulator.messages.answers import Answer
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.streams_requests import Tasks


class StatusCode(IntEnum):
    """What a member of a streams group is told beside its tasks."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class Status(NamedTuple):
    """One status. about: the topics, the epochs, the member or the setting that it is about; Kafka makes a sentence of them."""

    code: StatusCode
    about: str


class EndpointPartitions(NamedTuple):
    """The partitions whose records a member can answer queries about. active, standby: topic -> partitions."""

    host: str
    port: int
    active: Tasks
    standby: Tasks


@dataclass(frozen=True, slots=True)
class StreamsGroupHeartbeatAnswer(Answer):
    """The answer to StreamsGroupHeartbeat. Tasks, endpoints: None: as in the answer before."""

    error: Error
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    task_offset_interval_ms: int = 0
    acceptable_recovery_lag: int = 0
    status: tuple[Status, ...] = ()
    active_tasks: Tasks | None = None
    standby_tasks: Tasks | None = None
    warmup_tasks: Tasks | None = None
    endpoint_information_epoch: int = 0
    partitions_by_user_endpoint: tuple[EndpointPartitions, ...] | None = None


class MemberTasks(NamedTuple):
    """Tasks of a member by their type."""

    active: Tasks
    standby: Tasks
    warmup: Tasks


class DescribedStreamsMember(NamedTuple):
    """A member of a streams group as StreamsGroupDescribe shows it."""

    member_id: str
    member_epoch: int
    rack_id: str | None
    client_id: str
    topology_epoch: int
    process_id: str
    user_endpoint: tuple[str, int] | None
    client_tags: Mapping[str, str]
    assignment: MemberTasks
    target: MemberTasks


class DescribedSubtopology(NamedTuple):
    """A subtopology as StreamsGroupDescribe shows it. Of internal topics: name -> partitions, 0 while they are not decided."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    repartition_source_topics: Mapping[str, int]
    state_changelog_topics: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class DescribedStreamsGroup:
    """A streams group as StreamsGroupDescribe shows it."""

    group_id: str
    error: Error
    state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    topology_epoch: int | None = None
    subtopologies: tuple[DescribedSubtopology, ...] = ()
    members: tuple[DescribedStreamsMember, ...] = ()


@dataclass(frozen=True, slots=True)
class StreamsGroupDescribeAnswer(Answer):
    """The answer to StreamsGroupDescribe, group by group."""

    groups: tuple[DescribedStreamsGroup, ...]
