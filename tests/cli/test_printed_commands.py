"""Every command that a command, the report, an alert or an error prints runs as it stands, and shows the announced rows."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import struct
from collections import defaultdict
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import Result

from groupcoord_spark.answers.findings import NEWS
from groupcoord_spark.cli.run_summary import summary_text
from groupcoord_spark.report import gather, page
from groupcoord_spark.warehouse import open_warehouse
from tests.cli.test_terminal import ESCAPES, on_terminal
from tests.cli.warehouse import groupcoord
from tests.conftest import DAY_MS, GOLDEN
from tests.running import run

if TYPE_CHECKING:
    from groupcoord_spark.pipeline.run import Summary
    from tests.local_session import LocalSession

ALERTS = Path(__file__).parents[2] / "conf" / "prometheus" / "alerts.yml"
JUMPS, SICK = GOLDEN / "jumps" / "logs", GOLDEN / "sick" / "hanging" / "logs"

COPIED_AT_MS = (1_795_888_993_300, 1_795_888_993_600, 1_795_888_996_000, 1_795_889_009_400, 1_795_889_057_700, 1_795_889_098_500)
"""Before anything happens; after groups were deleted; after they began again and offsets were reset; after a topic was made again
and partitions were added; after expirations; after the expired groups began again and a topic's records were deleted unread."""


@pytest.fixture(scope="module")
def warehouse(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[Summary]]:
    """Runs of two clusters: one with an incident of each kind, whose copy job then stops, and one with a stuck transaction."""
    place = tmp_path_factory.mktemp("printed")
    nights = []
    for number, until_ms in enumerate(COPIED_AT_MS):
        logs = shutil.copytree(JUMPS, place / str(number)) if until_ms == COPIED_AT_MS[-1] else copied(place / str(number), until_ms)
        nights.append(run(local, place / "w", logs, cluster="jumps", as_of_ms=until_ms, retention_ms=60_000))
    nights.append(run(local, place / "w", logs, cluster="jumps", as_of_ms=COPIED_AT_MS[-1] + DAY_MS, retention_ms=60_000))
    nights.append(run(local, place / "w", SICK, cluster="it's sick"))
    return str(place / "w"), nights


def copied(target: Path, until_ms: int) -> Path:
    """Return a copy of the log directory as it was at that time, but for its checkpoints."""
    shutil.copytree(JUMPS, target, ignore=shutil.ignore_patterns("*checkpoint"))
    for segment in target.glob("*/*.log"):
        data, end = segment.read_bytes(), 0
        while end < len(data) and struct.unpack_from(">q", data, end + 35)[0] <= until_ms:  # maxTimestamp
            end += 12 + struct.unpack_from(">i", data, end + 8)[0]
        segment.write_bytes(data[:end])
    return target


def shown(command: str) -> Result:
    result = groupcoord(*shlex.split(command)[1:])
    assert result.exit_code in (0, 3), (command, result.stderr)
    return result


def rows_of(command: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in shown(f"{command} --output json").stdout.splitlines()]


def nights_with_news(warehouse: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield each run of each cluster, as options that choose it, and its news."""
    for cluster, count in (("jumps", len(COPIED_AT_MS) + 1), ("it's sick", 1)):
        for number in range(count):
            night = f"--at -{number} --warehouse {warehouse} --cluster {shlex.quote(cluster)}"
            yield night, rows_of(f"groupcoord morning {night}")


def test_every_command_of_morning_shows_what_it_announces(warehouse: tuple[str, list[Summary]]) -> None:
    reasons = defaultdict(set)
    for _, news in nights_with_news(warehouse[0]):
        for item in news:
            reasons[item["what"]].add(item["reason"])
            rows = rows_of(item["command"])
            match NEWS[item["what"]].command:
                case "sql":
                    # Between offsets that are about to expire lie some that an earlier run announced.
                    assert len(rows) >= item["number"] and (len(rows) == item["number"] or item["what"] == "expiring"), item
                    assert {row["group_id"] for row in rows} >= set(item["groups"]), item
                case "diff":
                    of_kind = [row for row in rows if row["change"] == item["what"].replace(item["what"].partition("_")[2], "gone")]
                    found = [row for row in of_kind if row["why"] == item["reason"]]
                    assert {row["group"] for row in found} >= set(item["groups"]) and len(found) >= item["number"], item
                case "doctor":
                    of_kind = [row for row in rows if row["finding"] == item["reason"]]
                    assert len(of_kind) >= item["number"], item
                case command:
                    assert command == "runs" and rows[0]["records_read"] == 0, item
    assert reasons["rewound"] >= {"restarted_after_removal", "reset", "topic_recreated", "late_commit", "seek"}
    assert reasons["group_expired"] | reasons["offset_expired"] >= {"expired"}
    assert reasons["may_have_skipped"] >= {"new_partition"} and reasons["skipped"] >= {"reset"}
    assert reasons["sick"] >= {"hanging_transaction"}
    assert {"lost", "stalled", "copy_unchanged", "expiring", "offset_deleted"} <= reasons.keys()


def test_commands_on_a_terminal_of_80_columns_can_be_copied(warehouse: tuple[str, list[Summary]]) -> None:
    (printed,) = on_terminal(("morning", "--warehouse", warehouse[0], "--cluster", "jumps", "--at", "-1", "--lines", "50"))
    lines = [line.rstrip("\r") for line in ESCAPES.sub("", printed).split("\n")]
    assert max(map(len, lines)) <= 80
    commands = ESCAPES.sub("", printed).replace("\r", "").replace("\\\n", " ").replace("\n", " ")
    night = f"--at -1 --warehouse {warehouse[0]} --cluster jumps"
    for item in rows_of(f"groupcoord morning {night}"):
        assert " ".join(item["command"].split()) in " ".join(commands.split())


def test_every_command_of_the_report_shows_what_it_announces(warehouse: tuple[str, list[Summary]]) -> None:
    opened = open_warehouse(warehouse[0])
    night = opened.run("jumps", run_id=warehouse[1][-3].run_id)
    commands = [unescape(text) for text in re.findall(r"<code>(groupcoord [^<]*)</code>", page(gather(opened, night)))]
    morning = f"groupcoord morning --run {night.run_id} --warehouse {warehouse[0]} --cluster jumps"
    assert len(commands) > 3 and commands == [item["command"] for item in rows_of(morning)]


def test_every_command_of_an_alert_runs(warehouse: tuple[str, list[Summary]]) -> None:
    rules = [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    commands = {command for rule in rules for command in re.findall(r"`(groupcoord [^`]*)`", rule["annotations"]["description"])}
    assert len(commands) == 3
    for command in commands:
        in_warehouse = command.replace("{{ $labels.warehouse }}", warehouse[0])
        assert in_warehouse != command
        shown(in_warehouse.replace("{{ $labels.cluster }}", "jumps"))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("describe --group app-renamed-q", "was deleted by a request"),
        ("list --run 1", "segments"),
        ("describe --group app-nobody", "app-seeks-q"),
        ("timeline --group app-nobody", "app-seeks-q"),
        ("warnings --group app-nobody", "app-seeks-q"),
        ("warnings --code nobody", ""),
    ],
)
def test_the_command_of_an_error_runs(warehouse: tuple[str, list[Summary]], words: str, expected: str) -> None:
    result = groupcoord(*words.split(), "--warehouse", warehouse[0], "--cluster", "jumps")
    assert result.exit_code, result.stdout
    commands = re.findall(r"`(groupcoord [^`]*)`", result.stderr)
    assert commands, result.stderr
    assert all(expected in shown(command).stdout for command in commands)


def test_every_command_of_the_summary_of_a_run_runs(warehouse: tuple[str, list[Summary]]) -> None:
    for summary in warehouse[1]:
        for command in re.findall(r"`(groupcoord [^`]*)`", summary_text(summary)):
            assert warehouse[0] in command and summary.run_id in command
            shown(command)
