"""Values of streams groups in a scenario file: topologies, tasks, endpoints, tags, and the settings of a group."""

import re
from typing import Any, Final

from groupcoord_spark.assignors.sticky_tasks import Task
from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator.broker.settings import RACK_AWARE_TAGS_OF_GROUP, SETTINGS_OF_GROUPS
from groupcoord_spark.simulator.messages.requests import CopartitionGroup, InternalTopic, Subtopology, Tasks, Topology
from groupcoord_spark.simulator.scenario.values import (
    PARTITIONS,
    TEXT,
    TEXTS,
    WHOLE,
    Key,
    ValueKind,
    by_name,
    described,
    mapping_of,
    nearest_word,
    object_schema,
    value_of,
    values_in,
)

_MOST_PORTS: Final = 65_535


def _topology(value: Any) -> Topology:
    fields = values_in(_TOPOLOGY_KEYS, value, "a topology")
    return Topology(fields.get("epoch", 0), fields["subtopologies"])


def _subtopologies(value: Any) -> tuple[Subtopology, ...]:
    return tuple(_subtopology(name, parts) for name, parts in mapping_of(value, "`subtopologies`").items())


def _subtopology(name: str, value: Any) -> Subtopology:
    where = f"subtopology {name!r}"
    fields = values_in(_SUBTOPOLOGY_KEYS, value, where)
    sources, repartition_sources = fields.get("source_topics", ()), [topic.name for topic in fields.get("repartition_source_topics", ())]
    groups = [_copartition_group(group, sources, repartition_sources, where) for group in fields.pop("copartition_groups", ())]
    return Subtopology(name, **fields, copartition_groups=tuple(groups))


def _copartition_groups(value: Any) -> list[tuple[str, ...]]:
    if not isinstance(value, list):
        raise ValueError
    return [value_of(TEXTS, group, "a group") for group in value]


def _copartition_group(group: tuple[str, ...], sources: tuple[str, ...], repartition_sources: list[str], where: str) -> CopartitionGroup:
    """Return a copartition group from topic names; the request holds indexes into the topic lists."""
    for topic in group:
        if topic not in sources and topic not in repartition_sources:
            advice = nearest_word(topic, [*sources, *repartition_sources])
            raise UsageError(f"`copartition_groups` of {where} names {topic!r}, which is not a source of it. {advice}")
    return CopartitionGroup(
        tuple(sources.index(topic) for topic in group if topic in sources),
        tuple(repartition_sources.index(topic) for topic in group if topic not in sources),
    )


def _internal_topics(value: Any) -> tuple[InternalTopic, ...]:
    if isinstance(value, dict):
        return tuple(InternalTopic(name, count) for name, count in _INTERNAL_COUNTS.read(value).items())
    return tuple(InternalTopic(name) for name in TEXTS.read(value))


def _tasks(value: Any) -> Tasks:
    if not isinstance(value, dict):
        raise ValueError
    for name, numbers in mapping_of(value, "tasks").items():
        if not isinstance(numbers, list):
            raise UsageError(f"write for example {{'0': [0, 1]}}, not {{{name!r}: {described(numbers)}}}.")
    tasks: Tasks = PARTITIONS.read(value)
    return tasks


def _task_offsets(value: Any) -> dict[Task, int]:
    offsets = {}
    for name, offset in _OFFSETS_BY_TASK.read(value).items():
        subtopology, _, number = name.rpartition("_")
        if not subtopology or not number.isdecimal():
            raise UsageError(f"write for example {{'0_1': 1000}}, a subtopology and a partition, not {{{name!r}: {offset}}}.")
        offsets[Task(subtopology, int(number))] = offset
    return offsets


def _endpoint(value: Any) -> tuple[str, int]:
    host, _, port = TEXT.read(value).rpartition(":")
    if not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > _MOST_PORTS:
        raise ValueError
    return host, int(port)


_OFFSETS_BY_TASK: Final = by_name(WHOLE, "task", "offsets by task such as {'0_1': 1000}")
_INTERNAL_COUNTS: Final = by_name(WHOLE, "topic", "")
_INTERNAL_TOPICS: Final = ValueKind(
    "names, or names with numbers of partitions such as {by-key: 4}",
    {"anyOf": [*TEXTS.schema["anyOf"], _INTERNAL_COUNTS.schema]},
    _internal_topics,
)
_SUBTOPOLOGY_KEYS: Final = (
    *(Key(name, TEXTS) for name in ("source_topics", "source_topic_regex", "repartition_sink_topics")),
    *(Key(name, _INTERNAL_TOPICS) for name in ("repartition_source_topics", "state_changelog_topics")),
    Key("copartition_groups", ValueKind("lists such as [[orders, clicks]]", {"type": "array", "items": TEXTS.schema}, _copartition_groups)),
)
_SUBTOPOLOGIES: Final = ValueKind(
    "subtopologies such as {'0': {source_topics: [orders]}}",
    {"type": "object", "additionalProperties": object_schema(_SUBTOPOLOGY_KEYS)},
    _subtopologies,
)
_TOPOLOGY_KEYS: Final = (Key("epoch", WHOLE), Key("subtopologies", _SUBTOPOLOGIES, is_required=True))
_GROUP_SETTINGS: Final = tuple(Key(name, TEXT if name == RACK_AWARE_TAGS_OF_GROUP else WHOLE) for name in SETTINGS_OF_GROUPS)

TOPOLOGY: Final = ValueKind(
    "a topology such as {subtopologies: {'0': {source_topics: [orders]}}}", object_schema(_TOPOLOGY_KEYS), _topology
)
TASKS: Final = ValueKind("tasks by subtopology such as {'0': [0, 1]}", PARTITIONS.schema, _tasks)
TASK_OFFSETS: Final = ValueKind("offsets by task such as {'0_1': 1000}", _OFFSETS_BY_TASK.schema, _task_offsets)
ENDPOINT: Final = ValueKind("a host and a port such as app-1:8080", {"type": "string", "pattern": r"^.+:\d+$"}, _endpoint)
TAGS: Final = by_name(TEXT, "tag", "tags such as {zone: a}")
GROUP_SETTINGS: Final = ValueKind(
    "settings such as {streams.num.standby.replicas: 1}",
    object_schema(_GROUP_SETTINGS),
    lambda value: values_in(_GROUP_SETTINGS, value, "the streams group"),
)
