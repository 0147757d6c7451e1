"""Compares the assignor of streams groups with Kafka's own class on random groups.

``python -m tests.tools.conformance.task_assignors JARS [GROUPS] [SEED]``

Run by hand, with JARS as server_assignors.py describes them, of a release since 4.2. Prints how many assignments were equal and the first
difference, and exits 1 on any. With ``--record`` it writes Kafka's answers to ``tests/golden/assignors/tasks.jsonl.gz``.

Each group goes through several rounds: members come and go, subtopologies grow, and the assignment of a round is the target with which
the next one begins. ``TaskAssignors.java`` reads the lines ``subtopology ID TASKS stateful|stateless``, ``member ID PROCESS ACTIVE|-
STANDBY|- [OFFSETS|-]`` and ``assign REPLICAS``, and answers with ``target`` lines and ``end``. A task is ``SUBTOPOLOGY_PARTITION``, and
with its offset, which members report since 4.4, ``SUBTOPOLOGY_PARTITION=OFFSET``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from groupcoord_spark.assignors.sticky_tasks import SubtopologyTasks, Task, TaskMember, sticky_tasks

GOLDEN = Path(__file__).parents[2] / "golden" / "assignors" / "tasks.jsonl.gz"
ROUNDS = 5

Targets = dict[str, tuple[str, str]]
"""Member id -> (active, standby), as the lines have them."""


@dataclass
class Group:
    """A random group between two rounds. members: member id -> process id."""

    subtopologies: dict[str, tuple[int, bool]]
    members: dict[str, str]
    replicas: int
    targets: Targets = field(default_factory=dict)
    offsets: dict[str, str] = field(default_factory=dict)
    """Member id -> offsets, as the lines have them; only for releases since 4.4."""

    def lines(self) -> list[str]:
        """Return the lines that ask for the next target."""
        lines = [f"subtopology {name} {tasks} {'stateful' if of else 'stateless'}" for name, (tasks, of) in self.subtopologies.items()]
        for member_id, process_id in self.members.items():
            lines.append(f"member {member_id} {process_id} {' '.join(self.targets.get(member_id, ('-', '-')))}")
            lines[-1] += f" {self.offsets[member_id]}" if member_id in self.offsets else ""
        return [*lines, f"assign {self.replicas}"]


def target_of(lines: list[str], **rules: bool) -> Targets:
    """Return the target assignment that is computed here for the lines of one group. rules: of the release, as in sticky_tasks."""
    subtopologies: dict[str, SubtopologyTasks] = {}
    members: dict[str, TaskMember] = {}
    for line in lines[:-1]:
        kind, name, *rest = line.split(" ")
        if kind == "subtopology":
            subtopologies[name] = SubtopologyTasks(int(rest[0]), rest[1] == "stateful")
        else:
            members[name] = TaskMember(rest[0], _tasks(rest[1]), _tasks(rest[2]), _offsets(rest[3]) if rest[3:] else {})
    replicas = int(lines[-1].split(" ")[1])
    assigned = sticky_tasks(members, subtopologies, replicas, **rules)
    return {member_id: (_text(tasks.active), _text(tasks.standby)) for member_id, tasks in sorted(assigned.items())}


def _tasks(text: str) -> list[Task]:
    split = [] if text == "-" else [task.split("_") for task in text.split(",")]
    return [Task(name, int(number)) for name, number in split]


def _offsets(text: str) -> dict[Task, int]:
    split = [] if text == "-" else [offset.split("=") for offset in text.split(",")]
    return {_tasks(task)[0]: int(offset) for task, offset in split}


def _text(tasks: Any) -> str:
    return ",".join(f"{name}_{number}" for name, number in sorted(tasks)) or "-"


def random_group(chance: random.Random) -> Group:
    """Return a group of one to four subtopologies, and one to four processes with several members each."""
    subtopologies = {str(number): (chance.choice([1, 2, 3, 4, 8, 13]), chance.random() < 0.6) for number in range(chance.randint(1, 4))}
    group = Group(subtopologies, {}, chance.choice([0, 0, 1, 1, 2]))
    for _ in range(chance.randint(1, 4)):
        _start_process(group, chance)
    return group


def change(group: Group, chance: random.Random) -> None:
    """Let members come and go, subtopologies grow, and the number of standbys change."""
    for member_id in list(group.members):
        if len(group.members) > 1 and chance.random() < 0.25:
            del group.members[member_id]
            group.targets.pop(member_id, None)
    if chance.random() < 0.6:
        _start_process(group, chance)
    for name, (tasks, is_stateful) in group.subtopologies.items():
        if chance.random() < 0.15:
            group.subtopologies[name] = (tasks + chance.randint(1, 4), is_stateful)
    if chance.random() < 0.2:
        group.replicas = chance.randint(0, 2)


def _start_process(group: Group, chance: random.Random) -> None:
    process_id = _id(chance)
    for _ in range(chance.choice([1, 1, 2, 3, 5])):
        group.members[_id(chance)] = process_id


def _id(chance: random.Random) -> str:
    return str(uuid.UUID(int=chance.getrandbits(128), version=4))


class Kafka:
    """A process of TaskAssignors.java."""

    def __init__(self, jars: str) -> None:
        program = Path(__file__).with_name("TaskAssignors.java")
        command = ["java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"]
        command += ["-cp", f"{jars}/*", str(program)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def target_of(self, lines: list[str]) -> Targets:
        """Return the target assignment that Kafka computes."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\n".join([*lines, ""]))
        self._process.stdin.flush()
        target: Targets = {}
        for line in self._process.stdout:
            if line == "end\n":
                return target
            _, member_id, active, standby = line.split()
            target[member_id] = (active, standby)
        raise AssertionError("Kafka's class did not answer")

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def _report_offsets(group: Group, chance: random.Random) -> None:
    """Let members report offsets of tasks, as instances do that have state on their disks."""
    tasks = [f"{name}_{number}" for name, (count, _) in group.subtopologies.items() for number in range(count)]
    for member_id in group.members:
        restored = [f"{task}={chance.choice([0, 5, 5, 1_000, chance.randint(0, 10_000)])}" for task in tasks if chance.random() < 0.2]
        group.offsets[member_id] = ",".join(restored) or "-"


def answered(kafka: Kafka, groups: int, seed: int, *, reports_offsets: bool = False) -> Iterator[tuple[list[str], Targets]]:
    """Yield the lines of random groups, with Kafka's answers."""
    chance = random.Random(seed)
    for _ in range(groups):
        group = random_group(chance)
        for _ in range(ROUNDS):
            if reports_offsets:
                _report_offsets(group, chance)
            lines = group.lines()
            group.targets = kafka.target_of(lines)
            yield lines, dict(group.targets)
            change(group, chance)


def recorded() -> list[tuple[list[str], Mapping[str, list[str]]]]:
    """Return the recorded lines of groups, with Kafka's answers."""
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        return [(case["lines"], case["target"]) for case in map(json.loads, lines)]


def main(arguments: list[str]) -> int:
    """Compare random groups. Returns 1 if any assignment differs."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("jars")
    parser.add_argument("groups", type=int, nargs="?", default=2_000)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--record", action="store_true")
    chosen = parser.parse_args(arguments)
    kafka = Kafka(chosen.jars)
    cases = list(answered(kafka, chosen.groups, chosen.seed))
    kafka.stop()
    different = [(lines, target) for lines, target in cases if target_of(lines) != target]
    print(f"{len(cases) - len(different)} of {len(cases)} assignments are equal")
    if different:
        print("\n".join(different[0][0]), "\nKafka:", different[0][1], "\nhere: ", target_of(different[0][0]))
    if chosen.record:
        with gzip.GzipFile(GOLDEN, "wb", mtime=0) as out:
            for lines, target in cases:
                out.write((json.dumps({"lines": lines, "target": target}) + "\n").encode())
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
