"""The topology of a streams group: its record, and what it makes of the topics that exist (Kafka: ``InternalTopicManager``).

Rules: docs/reference/coordinator.md, chapter 13.7.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order
from groupcoord_spark.assignors.sticky_tasks import SubtopologyTasks
from groupcoord_spark.coordinator.groups.group import Value
from groupcoord_spark.simulator.messages import Error, RefusedError
from groupcoord_spark.simulator.messages.answers import Status, StatusCode
from groupcoord_spark.simulator.messages.requests import InternalTopic, Topology

Counts = Mapping[str, int]
"""Topic -> number of partitions."""


class ConfiguredTopology(NamedTuple):
    """What a topology makes of the topics.

    subtopologies: None if source topics are missing, or partition counts do not fit. internal_topics: the topology's.
    missing: the internal topics that the broker has to make, with their numbers of partitions.
    problem: why no task can be assigned; None: the topology is ready.
    """

    subtopologies: Mapping[str, SubtopologyTasks] | None
    internal_topics: Counts
    missing: Counts
    problem: Status | None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class _ProblemError(Exception):
    def __init__(self, code: StatusCode, topics: Iterable[str]) -> None:
        super().__init__(code.name)
        self.status = Status(code, ", ".join(sorted(topics)))


# The record


def topology_value(topology: Topology) -> dict[str, Any]:
    """Return the record value of a topology. Raises RefusedError if Kafka cannot build its map of the topology."""
    ids = [subtopology.subtopology_id for subtopology in topology.subtopologies]
    if topology.epoch < 0 or len(ids) != len(set(ids)):
        raise RefusedError(Error.UNKNOWN_SERVER_ERROR)
    return {
        "epoch": topology.epoch,
        "subtopologies": [
            {
                "subtopology_id": subtopology.subtopology_id,
                "source_topics": list(subtopology.source_topics),
                "source_topic_regex": list(subtopology.source_topic_regex),
                "state_changelog_topics": list(map(_topic_value, subtopology.state_changelog_topics)),
                "repartition_sink_topics": list(subtopology.repartition_sink_topics),
                "repartition_source_topics": list(map(_topic_value, subtopology.repartition_source_topics)),
                "copartition_groups": [
                    {
                        "source_topics": list(group.source_topics),
                        "source_topic_regex": [],
                        "repartition_source_topics": list(group.repartition_source_topics),
                    }
                    for group in subtopology.copartition_groups
                ],
            }
            for subtopology in topology.subtopologies
        ],
    }


def _topic_value(topic: InternalTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "topic_configs": [{"key": key, "value": value} for key, value in topic.configs],
    }


def is_same_topology(value: Value, other_value: Value) -> bool:
    """Return whether two records contain the same topology. Only the order of subtopologies may differ."""
    return value["epoch"] == other_value["epoch"] and _by_id(value) == _by_id(other_value)


def required_topics(value: Value) -> frozenset[str]:
    """Return the topics that must exist before tasks are assigned: all but the sinks, which are sources of other subtopologies."""
    topics: set[str] = set()
    for subtopology in value["subtopologies"]:
        topics.update(_sources(subtopology), _names(subtopology["state_changelog_topics"]))
    return frozenset(topics)


def source_subtopologies(value: Value) -> dict[str, str]:
    """Source topic, repartition topics included -> the subtopology that reads it."""
    return {topic: subtopology["subtopology_id"] for subtopology in _in_order(value) for topic in _sources(subtopology)}


def _by_id(value: Value) -> dict[str, Value]:
    return {subtopology["subtopology_id"]: subtopology for subtopology in value["subtopologies"]}


def _in_order(value: Value) -> list[Value]:
    """Return the subtopologies in the order of Kafka's map."""
    by_id = _by_id(value)
    return [by_id[name] for name in in_hash_order(by_id, hash_of_text)]


def _names(topics: Iterable[Value]) -> list[str]:
    return [topic["name"] for topic in topics]


def _sources(subtopology: Value) -> list[str]:
    return [*subtopology["source_topics"], *_names(subtopology["repartition_source_topics"])]


# What it makes of the topics


def configured_topology(value: Value, existing: Counts) -> ConfiguredTopology:
    """Configure a topology for the topics that exist.

    Raises:
        RefusedError: STREAMS_INVALID_TOPOLOGY: no topics could ever make tasks of the topology. UNKNOWN_SERVER_ERROR: it points to topics
            that it does not have.
    """
    groups = [group for subtopology in _in_order(value) for group in _copartition_groups(subtopology)]
    try:
        sources = {topic for subtopology in value["subtopologies"] for topic in subtopology["source_topics"]}
        if missing_sources := sources - existing.keys():
            raise _ProblemError(StatusCode.MISSING_SOURCE_TOPICS, missing_sources)
        decided = _decided_counts(value, existing, groups)
        counts = {**decided, **existing}
        subtopologies = {
            part["subtopology_id"]: SubtopologyTasks(_most_partitions(part, counts), bool(part["state_changelog_topics"]))
            for part in value["subtopologies"]
        }
        internal = _internal_topics(value, decided)
        wrong = [topic for topic, count in internal.items() if existing.get(topic, count) != count]
        if wrong:
            raise _ProblemError(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, wrong)
    except _ProblemError as problem:
        return ConfiguredTopology(None, {}, {}, problem.status)
    missing = {topic: count for topic, count in internal.items() if topic not in existing}
    status = Status(StatusCode.MISSING_INTERNAL_TOPICS, ", ".join(sorted(missing))) if missing else None
    return ConfiguredTopology(subtopologies, internal, missing, status)


def _internal_topics(value: Value, decided: Counts) -> dict[str, int]:
    """Return the partition counts of the internal topics: the count in the topology if it has one, else the decided count."""
    return {
        topic["name"]: topic["partitions"] or decided[topic["name"]]
        for subtopology in _in_order(value)
        for topic in (*subtopology["repartition_source_topics"], *subtopology["state_changelog_topics"])
    }


def _copartition_groups(subtopology: Value) -> list[frozenset[str]]:
    sources, repartition_sources = subtopology["source_topics"], _names(subtopology["repartition_source_topics"])
    groups = []
    for group in subtopology["copartition_groups"]:
        named = [*_at(sources, group["source_topics"]), *_at(repartition_sources, group["repartition_source_topics"])]
        groups.append(frozenset(named))
    return groups


def _at(topics: Sequence[str], places: Iterable[int]) -> list[str]:
    if any(not 0 <= place < len(topics) for place in places):
        raise RefusedError(Error.UNKNOWN_SERVER_ERROR)
    return [topics[place] for place in places]


def _decided_counts(value: Value, existing: Counts, groups: Iterable[frozenset[str]]) -> dict[str, int]:
    """Decide the partition count of each internal topic: repartition topics from their sources, then copartition groups, then
    changelogs."""
    decided = _repartition_counts(value, existing)
    repartition = [topic for subtopology in value["subtopologies"] for topic in subtopology["repartition_source_topics"]]
    fixed = {topic["name"] for topic in repartition if topic["partitions"]}
    flexible = {topic["name"] for topic in repartition if not topic["partitions"]}
    for group in groups:
        decided |= _copartitioned(group, fixed, flexible, {**decided, **existing})
    counts = {**decided, **existing}
    for subtopology in _in_order(value):
        if not _sources(subtopology):
            raise RefusedError(Error.STREAMS_INVALID_TOPOLOGY)
        decided |= dict.fromkeys(_names(subtopology["state_changelog_topics"]), _most_partitions(subtopology, counts))
    return decided


def _most_partitions(subtopology: Value, counts: Counts) -> int:
    return max(counts[topic] for topic in _sources(subtopology))


def _repartition_counts(value: Value, existing: Counts) -> dict[str, int]:
    """Return the partition counts of repartition topics: in rounds, the largest known source of a subtopology that writes the topic."""
    subtopologies = _in_order(value)
    repartition = [topic for subtopology in subtopologies for topic in subtopology["repartition_source_topics"]]
    counts = {topic["name"]: topic["partitions"] for topic in repartition if topic["partitions"]}
    is_complete = False
    while not is_complete:
        is_complete, makes_progress = True, False
        for subtopology in subtopologies:
            for sink in subtopology["repartition_sink_topics"]:
                if sink in counts:
                    continue
                of_sources = [counts[topic] for topic in _names(subtopology["repartition_source_topics"]) if topic in counts]
                of_sources += [existing[topic] for topic in subtopology["source_topics"] if topic in existing]
                if of_sources:
                    counts[sink], makes_progress = max(of_sources), True
                else:
                    is_complete = False
        if not is_complete and not makes_progress:
            raise RefusedError(Error.STREAMS_INVALID_TOPOLOGY)
    if any(topic["name"] not in counts for topic in repartition):
        raise RefusedError(Error.STREAMS_INVALID_TOPOLOGY)
    return counts


def _copartitioned(group: frozenset[str], fixed: set[str], flexible: set[str], counts: Counts) -> dict[str, int]:
    """Return the partition counts of the repartition topics in a copartition group.

    Existing external topics decide. Otherwise the fixed repartition topics decide (of the whole topology, as in Kafka), else the largest
    count.
    """
    if not group:
        return {}
    if any(topic not in counts for topic in group):
        raise RefusedError(Error.UNKNOWN_SERVER_ERROR)
    repartition = {topic for topic in group if topic in fixed or topic in flexible}
    deciding = (group - repartition) or fixed
    if deciding and len({counts[topic] for topic in deciding}) > 1:
        raise _ProblemError(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, deciding)
    decided = counts[next(iter(deciding))] if deciding else max(counts[topic] for topic in repartition)
    wrong = [topic for topic in repartition if topic in fixed and counts[topic] != decided]
    if wrong:
        raise _ProblemError(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, wrong)
    return dict.fromkeys(repartition, decided)


INTERNAL_TOPICS_OF_KAFKA: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def all_topics(topology: Topology) -> set[str]:
    """Return all topics of a topology, including sinks."""
    topics: set[str] = set()
    for subtopology in topology.subtopologies:
        topics.update(subtopology.source_topics, subtopology.repartition_sink_topics)
        topics.update(topic.name for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics))
    return topics
