"""Compares uniform, server-range and simple (of share groups) with Kafka's own classes on random groups.

``python -m tests.tools.conformance.server_assignors JARS``

Run by hand. JARS is a directory with these jars of one Kafka release from 4.0.1 on (uniform of 4.0.0 is another): kafka-clients,
kafka-server-common, kafka-coordinator-common, kafka-group-coordinator, kafka-group-coordinator-api, and slf4j-api. The ``libs`` of a
broker has them, and Maven fetches each: ``mvn dependency:copy -Dartifact=org.apache.kafka:kafka-clients:4.3.1 -DoutputDirectory=JARS``.
JARS may be followed by the number of groups (2000) and the seed (1). Prints how many assignments were equal and the first difference, and
exits 1 on any.

Each group goes through several rounds, consumer groups and share groups: members come and go, topics grow to 200 partitions, and the
assignment of a round is the target that the next one begins with, in the order that the broker writes it into the record.
``ServerAssignors.java`` reads the lines ``topic NAME ID PARTITIONS``, ``member ID INSTANCE-ID|- TOPIC,TOPIC``,
``target ID TOPIC PARTITION,PARTITION`` and ``assign uniform|range|simple``, and answers with ``target`` lines and ``end``.
Kafka's class of simple is as here since 4.3.
"""

from __future__ import annotations

import random
import subprocess
import sys
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from groupcoord_spark.assignors import SERVER_ASSIGNORS, Assignment, Member, Topic, TopicPartition
from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order
from groupcoord_spark.assignors.membership import assignment_of
from groupcoord_spark.assignors.simple import simple_assignment

Target = list[tuple[str, list[int]]]
"""Topics and partitions in the order of a ConsumerGroupTargetAssignmentMemberValue."""


@dataclass
class Group:
    """A random group between two rounds."""

    topics: dict[str, Topic]
    subscriptions: dict[str, list[str]]
    instance_ids: dict[str, str | None]
    targets: dict[str, Target] = field(default_factory=dict)

    def members(self) -> list[Member]:
        return [
            Member(
                member_id,
                tuple(topics),
                instance_id=self.instance_ids[member_id],
                owned=tuple(TopicPartition(topic, number) for topic, numbers in self.targets.get(member_id, []) for number in numbers),
            )
            for member_id, topics in self.subscriptions.items()
        ]

    def lines(self, assignor: str) -> str:
        lines = [f"topic {name} {topic.topic_id} {topic.partitions}" for name, topic in self.topics.items()]
        for member_id, topics in self.subscriptions.items():
            lines.append(f"member {member_id} {self.instance_ids[member_id] or '-'} {','.join(topics)}")
            lines += [f"target {member_id} {topic} {','.join(map(str, numbers))}" for topic, numbers in self.targets.get(member_id, [])]
        return "\n".join([*lines, f"assign {assignor}", ""])


def random_group(chance: random.Random) -> Group:
    """Return a group of one to six topics with 1 to 200 partitions."""
    names = [f"topic-{chance.randrange(1000)}" for _ in range(chance.choice([1, 1, 2, 3, 6]))]
    topics = {name: Topic(_partitions(chance), topic_id=_id(chance)) for name in dict.fromkeys(names)}
    group = Group(topics, {}, {})
    for _ in range(chance.randint(1, 6)):
        _join(group, chance)
    return group


def change(group: Group, chance: random.Random) -> None:
    """Let members come and go, and topics grow."""
    for member_id in list(group.subscriptions):
        if len(group.subscriptions) > 1 and chance.random() < 0.2:
            del group.subscriptions[member_id]
            group.targets.pop(member_id, None)
    for _ in range(chance.choice([0, 1, 1, 2])):
        _join(group, chance)
    for name, topic in group.topics.items():
        if chance.random() < 0.1:
            more = min(200, topic.partitions + chance.randint(1, 20))
            group.topics[name] = Topic(more, topic_id=topic.topic_id)


def _partitions(chance: random.Random) -> int:
    return chance.randint(1, chance.choice([8, 40, 200]))


def _id(chance: random.Random) -> str:
    return urlsafe_b64encode(chance.randbytes(16)).decode().rstrip("=")


def _join(group: Group, chance: random.Random) -> None:
    member_id = _id(chance)
    everything = list(group.topics)
    is_choosy = chance.random() < 0.1
    group.subscriptions[member_id] = sorted(chance.sample(everything, chance.randint(1, len(everything)))) if is_choosy else everything
    group.instance_ids[member_id] = f"instance-{chance.randrange(10_000)}" if chance.random() < 0.2 else None


def answered(group: Group, assignor: str, questions: IO[str], answers: IO[str]) -> dict[str, Target]:
    """Return the target of each member as Kafka's class computes it."""
    questions.write(group.lines(assignor))
    questions.flush()
    targets: dict[str, Target] = {member_id: [] for member_id in group.subscriptions}
    for line in answers:
        if line == "end\n":
            return targets
        _, member_id, topic, numbers = line.split()
        targets[member_id].append((topic, [int(number) for number in numbers.split(",")]))
    raise SystemExit("The Java program ended early; its message is above.")


def assignment_in(targets: Mapping[str, Target]) -> Assignment:
    """Return the targets as the assignors here give an assignment."""
    return assignment_of(
        {member_id: [TopicPartition(topic, number) for topic, numbers in of for number in numbers] for member_id, of in targets.items()}
    )


def assigned(group: Group, assignor: str) -> Assignment:
    """Return the assignment of the assignors here."""
    if assignor != "simple":
        return SERVER_ASSIGNORS[assignor](group.members(), group.topics)
    ids = {name: topic.topic_id or "" for name, topic in group.topics.items()}
    targets = simple_assignment(
        {member_id: [ids[name] for name in in_hash_order(names, hash_of_text)] for member_id, names in group.subscriptions.items()},
        {member_id: {ids[topic]: numbers for topic, numbers in target} for member_id, target in group.targets.items()},
        {ids[name]: range(topic.partitions) for name, topic in group.topics.items()},
        is_homogeneous=len({frozenset(names) for names in group.subscriptions.values()}) == 1,
    )
    names = {topic_id: name for name, topic_id in ids.items()}
    return assignment_in({member_id: [(names[topic], numbers) for topic, numbers in of.items()] for member_id, of in targets.items()})


def compared(
    jars: str, groups: int, seed: int, kinds: Sequence[Sequence[str]] = (("range", "uniform"), ("simple",))
) -> tuple[int, list[str]]:
    """(number of equal assignments, a text for each other one) of random groups.

    jars: the directory of the jars. kinds: as BY_KIND.
    """
    chance = random.Random(seed)
    command = ["java", "-cp", f"{jars}/*", str(Path(__file__).with_name("ServerAssignors.java"))]
    equal, different = 0, []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as java:
        assert java.stdin is not None and java.stdout is not None
        for number in range(groups):
            for assignors in kinds:
                group = random_group(chance)
                for round_number in range(chance.randint(1, 6)):
                    for assignor in assignors:
                        targets = answered(group, assignor, java.stdin, java.stdout)
                        if assigned(group, assignor) == assignment_in(targets):
                            equal += 1
                        else:
                            different.append(f"{assignor} differs in round {round_number} of group {number}:\n{group.lines(assignor)}")
                    group.targets = targets
                    change(group, chance)
        java.stdin.close()
    return equal, different


def main(arguments: Sequence[str]) -> int:
    """Compare and print; the exit code."""
    if not arguments:
        print("usage: python -m tests.tools.conformance.server_assignors JARS [GROUPS [SEED]]", file=sys.stderr)
        return 2
    equal, different = compared(arguments[0], *map(int, arguments[1:3] or ["2000"]), *([1] if len(arguments) < 3 else []))
    print("\n".join([*different[:1], f"{equal} of {equal + len(different)} assignments equal"]))
    return 1 if different or not equal else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
