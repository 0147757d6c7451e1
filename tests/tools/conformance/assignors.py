"""Holds the assignors against answers of Kafka's own classes: ``python -m tests.tools.conformance.assignors FILE...``

A file has one JSON line a case (``.gz`` or plain): the group, the assignment and its quality. Prints one line an assignor, with counts
and the first difference, and exits 1 on any. A line's assignment and figures have to be equal. Where the line says that Kafka's answer
depends on hash order, one that is valid and whose figures lie in the range of Kafka's answers would do, and is counted apart.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from groupcoord_spark.assignors import (
    CLIENT_ASSIGNORS,
    SERVER_ASSIGNORS,
    Assignment,
    Member,
    Topic,
    TopicPartition,
    Topics,
    quality_of,
    uniform_from_ordered_targets,
)
from groupcoord_spark.assignors.java_maps import in_hash_order, slots_after_puts
from groupcoord_spark.assignors.topic_ids import topic_id_of


def _uniform_of_case(members: Sequence[Member], topics: Topics) -> Assignment:
    """Return what uniform gives where the target was handed to Kafka's class in the collections of those who recorded the cases.

    They were filled by computeIfAbsent and add, the broker's are made otherwise (``uniform_assignment``). Such a map takes a new topic in
    front of those in the same slot and grows one topic later; such a set has as many slots as single additions need.
    """
    return uniform_from_ordered_targets([replace(member, owned=_in_order_of_case(member, topics)) for member in members], topics)


def _in_order_of_case(member: Member, topics: Topics) -> tuple[TopicPartition, ...]:
    targets: dict[str, list[int]] = {}
    for topic, partition in member.owned:
        if topic in topics:
            targets.setdefault(topic, []).append(partition)
    newest_first = in_hash_order(
        reversed(targets), lambda topic: topic_id_of(topic, topics).java_hash(), slots_after_puts(len(targets) - 1)
    )
    return tuple(TopicPartition(topic, partition) for topic in newest_first for partition in in_hash_order(targets[topic], int))


ASSIGNORS = {**CLIENT_ASSIGNORS, "uniform": _uniform_of_case, "server-range": SERVER_ASSIGNORS["range"]}
"""By the name a line gives them."""

EQUAL, AS_GOOD = "equal", "as good"


def lines_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the cases of a file."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            if line.strip():
                yield json.loads(line)


def group_of(line: Mapping[str, Any]) -> tuple[list[Member], dict[str, Topic]]:
    """Return the members and topics of a case."""
    topics = {
        name: Topic(
            topic["partitions"],
            racks=None if topic["racks"] is None else tuple(frozenset(racks) for racks in topic["racks"]),
            topic_id=topic["id"],
        )
        for name, topic in line["topics"].items()
    }
    members = [
        Member(
            member["member_id"],
            tuple(member["topics"]),
            instance_id=member["instance_id"],
            rack=member["rack"],
            owned=partitions_of(member["owned"]),
            generation=member["generation"],
        )
        for member in line["members"]
    ]
    return members, topics


def partitions_of(by_topic: Iterable[tuple[str, Sequence[int]]]) -> tuple[TopicPartition, ...]:
    """Return the partitions of [[topic, [partition, ...]], ...], in that order."""
    return tuple(TopicPartition(topic, partition) for topic, partitions in by_topic for partition in partitions)


def measures_of(members: Sequence[Member], topics: Topics, assignment: Assignment) -> dict[str, int]:
    """Return the quality of an assignment, by the names in a line."""
    quality = quality_of(members, topics, assignment)
    return {
        "max-min": quality.balance.spread,
        "moved": quality.moved,
        "unassigned": quality.unassigned,
        "rack_misses": quality.rack_misses,
        "not_subscribed": quality.not_subscribed,
    }


def verdict_on(line: Mapping[str, Any]) -> str:
    """EQUAL, AS_GOOD, or the first difference."""
    members, topics = group_of(line)
    assignment = ASSIGNORS[line["assignor"]](members, topics)
    expected = {member_id: partitions_of(partitions) for member_id, partitions in line["assignment"].items()}
    measures = measures_of(members, topics, assignment)
    if assignment == expected:
        for name, measure in measures.items():
            if measure != line[name]:
                return f"{name} of an equal assignment: expected {line[name]}, got {measure}"
        return EQUAL
    if not line["deterministic"]:
        flaw = _flaw_in(assignment, topics)
        for name, measure in measures.items():
            least, most = line["variants"][name]
            if flaw is None and not least <= measure <= most:
                flaw = f"{name}: expected {least} to {most}, got {measure}"
        return AS_GOOD if flaw is None else flaw
    for member_id, partitions in expected.items():
        if assignment.get(member_id) != partitions:
            return f"{member_id}: expected {_told(partitions)}, got {_told(assignment.get(member_id, ()))}"
    return f"members: expected {sorted(expected)}, got {sorted(assignment)}"


def _flaw_in(assignment: Assignment, topics: Topics) -> str | None:
    assigned = Counter(partition for partitions in assignment.values() for partition in partitions)
    for (topic, partition), times in assigned.items():
        if topic not in topics or partition >= topics[topic].partitions:
            return f"{topic}-{partition} does not exist"
        if times > 1:
            return f"{topic}-{partition} is with {times} members"
    return None


def _told(partitions: Sequence[TopicPartition]) -> str:
    return "[" + " ".join(f"{topic}-{partition}" for topic, partition in partitions) + "]"


def main(paths: Sequence[str]) -> int:
    """Check the files and print; the exit code."""
    if not paths:
        print("usage: python -m tests.tools.conformance.assignors FILE...", file=sys.stderr)
        return 2
    lines: Counter[str] = Counter()
    verdicts: Counter[tuple[str, str]] = Counter()
    first: dict[str, str] = {}
    for path in paths:
        for line in lines_of(Path(path)):
            name = line["assignor"]
            lines[name] += 1
            verdict = verdict_on(line)
            if verdict not in (EQUAL, AS_GOOD):
                first.setdefault(name, f"{line['case']} round {line['round']}: {verdict}")
            verdicts[name, verdict] += 1
    for name in lines:
        equal, as_good = verdicts[name, EQUAL], verdicts[name, AS_GOOD]
        summary = f"{name}: {equal} of {lines[name]} equal"
        if as_good:
            summary += f", {as_good} as good"
        if name in first:
            summary += f", {lines[name] - equal - as_good} different; first: {first[name]}"
        print(summary)
    return 1 if first else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
