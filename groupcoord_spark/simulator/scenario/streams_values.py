"""Values of streams groups in a scenario file: topologies, tasks, endpoints, tags, and the settings of a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator.broker.streams_settings import RACK_AWARE_TAGS_OF_GROUP, SETTINGS_OF_GROUPS
from groupcoord_spark.simulator.messages.streams_requests import CopartitionGroup, InternalTopic, Subtopology, Tasks, Topology
from groupcoord_spark.simulator.scenario.values import PARTITIONS, TEXT, TEXTS, WHOLE, Kind, described, mapping_of, nearest, value_of
from groupcoord_spark.simulator.scenario.yaml_text import MistakeError, line_of

_MOST_PORTS: Final = 65_535
_TOPOLOGY_KEYS: Final = ("epoch", "subtopologies")
_SUBTOPOLOGY_KEYS: Final = (
    "source_topics",
    "source_topic_regex",
    "repartition_sink_topics",
    "repartition_source_topics",
    "state_changelog_topics",
    "copartition_groups",
)


def _keys_of(value: Any, keys: tuple[str, ...], where: str) -> Mapping[str, Any]:
    """A mapping with these keys alone. Raises UsageError for any other key."""
    mapping = mapping_of(value, where)
    for name in mapping:
        if name not in keys:
            raise MistakeError(f"{where} has {name!r}, which means nothing there. {nearest(name, keys)}", line_of(mapping, name))
    return mapping


def _topology(value: Any) -> Topology:
    given = _keys_of(value, _TOPOLOGY_KEYS, "a topology")
    if "subtopologies" not in given:
        raise UsageError("a topology has no `subtopologies`. Write for example {subtopologies: {'0': {source_topics: [orders]}}}.")
    named = mapping_of(given["subtopologies"], "`subtopologies`")
    epoch: int = value_of(WHOLE, given.get("epoch", 0), "`epoch` of a topology")
    return Topology(epoch, tuple(_subtopology(name, of) for name, of in named.items()))


def _subtopology(name: str, value: Any) -> Subtopology:
    where = f"subtopology {name!r}"
    given = _keys_of(value, _SUBTOPOLOGY_KEYS, where)

    def texts(key: str) -> tuple[str, ...]:
        named: tuple[str, ...] = value_of(TEXTS, given.get(key, []), f"`{key}` of {where}")
        return named

    repartition_sources: tuple[InternalTopic, ...] = value_of(
        _INTERNAL_TOPICS, given.get("repartition_source_topics", []), f"`repartition_source_topics` of {where}"
    )
    groups = given.get("copartition_groups", [])
    if not isinstance(groups, list):
        raise UsageError(f"`copartition_groups` of {where} is {described(groups)}. Write for example [[orders, clicks]].")
    sources = texts("source_topics")
    return Subtopology(
        name,
        sources,
        texts("source_topic_regex"),
        value_of(_INTERNAL_TOPICS, given.get("state_changelog_topics", []), f"`state_changelog_topics` of {where}"),
        texts("repartition_sink_topics"),
        repartition_sources,
        tuple(_copartition_group(group, sources, [topic.name for topic in repartition_sources], where) for group in groups),
    )


def _copartition_group(value: Any, sources: tuple[str, ...], repartition_sources: list[str], where: str) -> CopartitionGroup:
    """A group by the names of its topics, which the request has as places in the lists of topics."""
    named: tuple[str, ...] = value_of(TEXTS, value, f"a group in `copartition_groups` of {where}")
    for topic in named:
        if topic not in sources and topic not in repartition_sources:
            advice = nearest(topic, [*sources, *repartition_sources])
            raise UsageError(f"`copartition_groups` of {where} names {topic!r}, which is no source of it. {advice}")
    return CopartitionGroup(
        tuple(sources.index(topic) for topic in named if topic in sources),
        tuple(repartition_sources.index(topic) for topic in named if topic not in sources),
    )


def _internal_topics(value: Any) -> tuple[InternalTopic, ...]:
    if isinstance(value, dict):
        return tuple(InternalTopic(name, value_of(WHOLE, count, f"topic {name!r}")) for name, count in mapping_of(value, "topics").items())
    return tuple(InternalTopic(name) for name in TEXTS.read(value))


def _tasks(value: Any) -> Tasks:
    if not isinstance(value, dict):
        raise ValueError
    for name, numbers in mapping_of(value, "tasks").items():
        if not isinstance(numbers, list):
            raise UsageError(f"write for example {{'0': [0, 1]}}, not {{{name!r}: {described(numbers)}}}.")
    tasks: Tasks = PARTITIONS.read(value)
    return tasks


def _endpoint(value: Any) -> tuple[str, int]:
    host, _, port = TEXT.read(value).rpartition(":")
    if not host or not port.isdecimal() or int(port) > _MOST_PORTS:
        raise ValueError
    return host, int(port)


def _tags(value: Any) -> Mapping[str, str]:
    if not isinstance(value, dict):
        raise ValueError
    return {name: value_of(TEXT, tag, f"tag {name!r}") for name, tag in mapping_of(value, "tags").items()}


def _group_settings(value: Any) -> Mapping[str, int | str]:
    if not isinstance(value, dict):
        raise ValueError
    given = mapping_of(value, "settings of the group")
    for name in given:
        if name not in SETTINGS_OF_GROUPS:
            raise MistakeError(f"{name!r} is no setting of a streams group. {nearest(name, SETTINGS_OF_GROUPS)}", line_of(given, name))
    return {name: value_of(_kind_of_setting(name), setting, name) for name, setting in given.items()}


def _kind_of_setting(name: str) -> Kind:
    return TEXT if name == RACK_AWARE_TAGS_OF_GROUP else WHOLE


_TOPIC_LISTS: Final = dict.fromkeys(("source_topics", "source_topic_regex", "repartition_sink_topics"), TEXTS.schema)
_INTERNAL_SCHEMA: Final = {"anyOf": [*TEXTS.schema["anyOf"], {"type": "object", "additionalProperties": WHOLE.schema}]}
_INTERNAL_TOPICS: Final = Kind("names, or names with numbers of partitions such as {by-key: 4}", _INTERNAL_SCHEMA, _internal_topics)
_SUBTOPOLOGY_SCHEMA: Final = {
    "type": "object",
    "properties": {
        **_TOPIC_LISTS,
        "repartition_source_topics": _INTERNAL_SCHEMA,
        "state_changelog_topics": _INTERNAL_SCHEMA,
        "copartition_groups": {"type": "array", "items": TEXTS.schema},
    },
    "additionalProperties": False,
}


def _object_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"type": "object", "additionalProperties": schema}


TOPOLOGY: Final = Kind(
    "a topology such as {subtopologies: {'0': {source_topics: [orders]}}}",
    {
        "type": "object",
        "properties": {"epoch": WHOLE.schema, "subtopologies": _object_of(_SUBTOPOLOGY_SCHEMA)},
        "required": ["subtopologies"],
        "additionalProperties": False,
    },
    _topology,
)
TASKS: Final = Kind("tasks by subtopology such as {'0': [0, 1]}", PARTITIONS.schema, _tasks)
ENDPOINT: Final = Kind("a host and a port such as app-1:8080", {"type": "string", "pattern": r"^.+:\d+$"}, _endpoint)
TAGS: Final = Kind("tags such as {zone: a}", _object_of(TEXT.schema), _tags)
GROUP_SETTINGS: Final = Kind(
    "settings such as {streams.num.standby.replicas: 1}",
    {"type": "object", "properties": {name: _kind_of_setting(name).schema for name in SETTINGS_OF_GROUPS}, "additionalProperties": False},
    _group_settings,
)
