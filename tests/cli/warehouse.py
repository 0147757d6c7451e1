"""One warehouse for the commands: a group of each kind and state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from groupcoord_spark.cli.commands import main
from tests.warehouse.nights import AS_OF_MS, DAY_MS, assignment, group, member, night, offset

PLAIN = member("plain", "app-1-aa", client_id="app-1")
OTHER = member("plain", "app-2-bb", client_id="app-2", client_host="/10.0.0.2")


def modern(group_id: str, group_type: str, **fields: Any) -> dict[str, Any]:
    return group(group_id, group_type=group_type, protocol_type=group_type, **fields)


def build(place: Path) -> str:
    """Two runs: the first has one group only."""
    night(place, "prod", {"groups": [group("early")]}, as_of_ms=AS_OF_MS)
    night(
        place,
        "prod",
        {
            "groups": [
                group("plain", state="Stable", protocol="range", member_count=2),
                group("idle"),
                group("only-offsets", is_simple=True, protocol_type=None),
                modern("new", "consumer", state="Reconciling", protocol="uniform", generation=5, assignment_epoch=4, member_count=2),
                modern("queue", "share", state="Stable", generation=2, assignment_epoch=2, member_count=1),
                modern("app", "streams", state="NotReady", generation=3, assignment_epoch=1, member_count=1),
                group("workers", state="Stable", protocol_type="connect", protocol="sessioned", member_count=1),
            ],
            "committed_offsets": [
                offset("plain", "orders", 2, 12, leader_epoch=4),
                offset("plain", "orders", 0, 10),
                offset("plain", "gone", 0, 99),
                offset("only-offsets", "orders", 0, -1),
                offset("new", "orders", 0, 5),
                offset("app", "lines", 0, 7),
            ],
            "members": [
                OTHER,
                PLAIN,
                member("new", "m-old", uses_classic_protocol=True, member_epoch=4),
                member("new", "m-new", uses_classic_protocol=False, member_epoch=5, instance_id="inst-1"),
                member("queue", "s-1", member_epoch=2),
                member("app", "t-1", member_epoch=3),
                member("workers", "w-1", client_id="worker"),
            ],
            "assignments": [
                *(assignment("plain", "app-2-bb", "orders", n) for n in (10, 2, 1)),
                assignment("plain", "app-1-aa", "orders", 0),
                assignment("plain", "app-1-aa", "orders", 0, kind="owned"),
                assignment("new", "m-old", "orders", 0),
                assignment("new", "m-old", "orders", 1, kind="pending_revocation"),
                assignment("new", "m-old", "orders", 0, kind="target"),
                assignment("new", "m-new", None, 3, kind="target", topic_id="MkTRaXlSRfWvFLT1M3hZWA"),
                assignment("queue", "s-1", "orders", 0),
                assignment("app", "t-1", None, 0, subtopology="0", task_type="active"),
                assignment("app", "t-1", None, 1, subtopology="0", task_type="standby"),
                assignment("workers", "w-1", None, None, subtopology="sink", task_type="connector"),
                assignment("workers", "w-1", None, 0, subtopology="sink", task_type="task"),
                assignment("workers", "w-1", None, None, subtopology="idle-sink", task_type="connector"),
            ],
        },
        as_of_ms=AS_OF_MS + DAY_MS,
    )
    return str(place)


def groupcoord(*args: str | Path) -> Result:
    """Run the command, and return what it prints and its exit code."""
    return CliRunner().invoke(main, [str(arg) for arg in args])
