"""What the simulated coordinator writes goes through a whole run: the warehouse then holds what the coordinator knows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from groupcoord_spark.simulator import GroupState, release_for
from groupcoord_spark.simulator.groups.classic_group import ClassicGroup
from groupcoord_spark.simulator.messages.requests import GroupToFetch, OffsetFetch
from groupcoord_spark.simulator.scenario import ScenarioOutcome, play, read_scenario
from tests.cli.warehouse import groupcoord
from tests.running import rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

GROUPS = ("shop", "audit", "mail", "search", "billing")
MEMBERS = ("a", "b", "c")


def scenario(rng: random.Random, group_id: str) -> str:
    """Members that start, close, crash and commit at random; half of the groups have static ones."""
    is_static = rng.random() < 0.5
    steps: list[dict[str, Any]] = [{"at": "0s", "start": "a"}]
    running, at = {"a"}, 0
    for _ in range(12):
        at += rng.choice([1, 5, 20, 70])
        who = rng.choice(MEMBERS)
        if who not in running:
            steps.append({"at": f"{at}s", "start": who})
            running.add(who)
        elif rng.random() < 0.5:
            steps.append({"at": f"{at}s", rng.choice(["close", "crash"]): who})
            running.discard(who)
        else:
            offsets = {f"orders-{rng.randrange(6)}": rng.randrange(1_000)}
            steps.append({"at": f"{at}s", "commit": who, "mode": rng.choice(["sync", "async"]), "offsets": offsets})
    described = {
        "title": f"{group_id} at random",
        "group": group_id,
        "topics": {"orders": 6, "mails": 2},
        "client": {"topics": ["orders", "mails"], "partition.assignment.strategy": [rng.choice(["range", "cooperative-sticky"])]},
        "members": {name: {"group.instance.id": f"i-{name}"} if is_static else {} for name in MEMBERS},
        "steps": steps,
        "until": f"{at + rng.choice([1, 30, 200])}s",
    }
    return yaml.safe_dump(described, sort_keys=False)


def test_the_warehouse_holds_what_the_simulated_coordinator_knows(local: LocalSession, tmp_path: Path) -> None:
    rng = random.Random(12)
    known: dict[str, ScenarioOutcome] = {}
    for group_id in GROUPS:
        (tmp_path / f"{group_id}.yaml").write_text(text := scenario(rng, group_id))
        written = groupcoord("simulate", str(tmp_path / f"{group_id}.yaml"), "--segments", str(tmp_path / "logs"), "--quiet")
        assert written.exit_code == 0, written.output
        known[group_id] = play(read_scenario(text, group_id), release_for())
    run(local, tmp_path / "w", tmp_path / "logs")

    groups = {row["group_id"]: row for row in rows_of(tmp_path / "w", "groups")}
    members = rows_of(tmp_path / "w", "members")
    offsets = rows_of(tmp_path / "w", "committed_offsets")
    compared = 0
    for group_id, outcome in known.items():
        here, row = outcome.simulator.broker.group_of(group_id, ClassicGroup), groups[group_id]
        # A rebalance under way is not in the log.
        if here is not None and here.state in (GroupState.STABLE, GroupState.EMPTY):
            found = (row["state"], row["generation"], row["protocol"], row["leader_id"])
            assert found == (here.state.value, here.generation, here.protocol, here.leader)
            held = {each["member_id"]: each["assignment"] for each in members if each["group_id"] == group_id}
            assert held == {member.member_id: member.assignment for member in here.members}
            compared += 1
        answer = outcome.simulator.send(OffsetFetch((GroupToFetch(group_id),))).answer
        fetched = {(topic, number): one.committed_offset for topic, of in answer.groups[0].topics.items() for number, one in of.items()}
        assert fetched == {(each["topic"], each["partition"]): each["committed_offset"] for each in offsets if each["group_id"] == group_id}
    assert compared >= 3 and offsets

    generations = {(row["group_id"], row["to_generation"]) for row in rows_of(tmp_path / "w", "rebalances")}
    assert generations >= {(group_id, row["generation"]) for group_id, row in groups.items()}
