"""A log with hostile names: no command prints one as it is, and every output stays what it claims to be."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from groupcoord_spark.cli.commands import COMMANDS
from groupcoord_spark.cli.mcp import Bounds, server_of
from groupcoord_spark.cli.options import Common
from groupcoord_spark.cli.render import printable
from tests.cli.test_mcp import answer_of_this_process
from tests.cli.test_untrusted_text import acted_on
from tests.cli.warehouse import groupcoord
from tests.conftest import DAY_MS
from tests.coordinator.records import classic_group, member, offset_commit, subscription, tombstone
from tests.log.log_writer import Rec, batch, write_segment
from tests.running import run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

NAMES = {
    "escape": "a\x1b[31m\x1b]0;title\x07",
    "nul": "n\x00ul",
    "lines": "two\nlines\r\nand\u2028more\x85",
    "eight_bits": "\x9b2J\x7f",
    "direction": "\u202eright\u2066\ufeff",
    "html": "</script><img src=x onerror=alert(1)>&amp;\"'",
    "markdown": "[x](javascript:alert(1)) `|` **b**",
    "label": 'quo"te\\n\\"} 1\n# EOF',
    "formula": '=HYPERLINK("http://e")',
    "tab": "\t+1",
    "shell": 'a\' $(touch x); `touch y` "b" \\ -',
    "dashes": "--warehouse=/other",
    "pattern": "app-*?[a]",
    "long": "g" * 200,
    "letters": "группа-組-🎉",
    "empty": "",
}
SOME = [NAMES[name] for name in ("escape", "nul", "lines", "direction", "shell", "dashes")]
NEW_MS = 1_795_000_000_000


def group_of(name: str, generation: int, first_offset: int) -> list[Any]:
    members = [
        member(name, subscription(name), client_id=name, client_host=name, group_instance_id=name or None),
        member(f"{name}2", subscription(name), client_id=name, client_host=name),
    ]
    return [
        classic_group(group=name, generation=generation, members=members, protocol=name, leader=name, state_ms=NEW_MS),
        offset_commit(f"{name}0", first_offset, group=name, commit_ms=NEW_MS),
        offset_commit(f"{name}1", first_offset + 1, group=name, commit_ms=NEW_MS),
    ]


def segment(place: Path, records: list[Any], base_offset: int, timestamp_ms: int) -> None:
    recs = [Rec(each.key, each.value, offset_delta=number, timestamp_delta=number) for number, each in enumerate(records)]
    # Bytes that are no text, as a group, and a value that is cut off.
    broken = [b"\x00\x01\x00\x03\xed\xa0\x80\x00\x01t\x00\x00\x00\x00", b"\x00\x02\x00\x02\xff\xfe"]
    recs += [Rec(key, b"\x00\x03\x00", offset_delta=len(recs) + number, timestamp_delta=len(recs)) for number, key in enumerate(broken)]
    write_segment(place, [batch(base_offset, recs, base_timestamp=timestamp_ms)], base_offset=base_offset)


@pytest.fixture(scope="module")
def place(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs over a growing log: in the second one some groups are gone, others went back."""
    where = tmp_path_factory.mktemp("hostile")
    first = [record for name in NAMES.values() for record in group_of(name, 1, 10)]
    segment(where / "logs", first, 0, NEW_MS)
    ends = {(name, partition): 12 for name in NAMES.values() for partition in (0, 1)}
    settings = {"cluster": "prod", "retention_ms": 7 * DAY_MS, "log_ends": ends}
    run(local, where / "warehouse", where / "logs", as_of_ms=NEW_MS + 1000, log_ends_sampled_at_ms=NEW_MS, **settings)
    second: list[Any] = []
    for number, name in enumerate(NAMES.values()):
        if number % 3 == 0:
            second += [tombstone(1, group=name, topic=name, partition=n) for n in (0, 1)] + [tombstone(2, group=name)]
        else:
            second += group_of(name, 2, 3 if number % 3 == 1 else 12)
    segment(where / "logs", second, len(first) + 2, NEW_MS + DAY_MS)
    run(local, where / "warehouse", where / "logs", as_of_ms=NEW_MS + DAY_MS + 1000, log_ends_sampled_at_ms=NEW_MS + DAY_MS, **settings)
    return where


def forms(*words: str, outputs: tuple[str, ...] = ("table", "json", "csv")) -> Iterator[tuple[str, ...]]:
    for output in outputs:
        yield (*words, "--output", output)


def calls() -> Iterator[tuple[str, ...]]:
    """Yield every command with the options that make it print names; SOME stands for one call for each of some names."""
    yield from forms("list", "--state", "--type", "--lag")
    for view in ("--offsets", "--members", "--state"):
        yield from forms("describe", "--all-groups", view, "--verbose")
    yield from forms("why", *(f"--group={name}" for name in NAMES.values()))
    for command in ("describe", "timeline", "assign"):
        yield from forms(command, "--group", "SOME", outputs=("table",))
    yield from forms("why", "--group", "SOME", "--topic", "SOME", outputs=("table",))
    for command in ("timeline", "assign"):
        yield from forms(command, f"--group={NAMES['escape' if command == 'timeline' else 'nul']}", outputs=("json", "csv"))
    yield from forms("diff")
    yield from forms("morning", outputs=("table", "json", "slack"))
    yield from forms("warnings")
    yield from forms("expire")
    yield from forms("expire", "--offsets")
    yield from forms("expire", "--offsets-retention", "99d", "--compare")
    yield from forms("plan", "--to-earliest", "--group", "SOME")
    yield from forms("coverage")
    yield from forms("runs")
    yield from forms("doctor")
    yield from forms("doctor", "LOGS")
    yield from forms("sql", "FROM groups JOIN committed_offsets USING (group_id) JOIN members USING (group_id)")
    yield from forms("sql", "FROM quarantined_records")
    yield from forms("sql", "FROM offset_commits")
    yield ("dump", "LOGS")
    yield ("export-offsets", "--group", "SOME")


def errors() -> Iterator[tuple[str, ...]]:
    """Yield calls that fail with a sentence about a name that does not exist."""
    for command in ("describe", "why", "timeline", "expire", "assign", "export-offsets", "diff", "report --out OUT"):
        yield (*command.split(), "--group", "BAD")
    for option in ("--cluster", "--state", "--run", "--at"):
        yield ("list", option, "BAD")
    yield ("sql", "SELECT BAD")
    yield from [("nightly", "BAD"), ("dump", "BAD"), ("doctor", "BAD"), ("simulate", "BAD"), ("verify", "--against", "BAD"), ("BAD",)]


def test_every_command_is_walked() -> None:
    # Those that print no names: they make a warehouse, keep it up, or print our own text.
    without_names = {"maintain", "completion", "warm-up", "simulate", "demo", "nightly", "verify", "mcp", "report", "metrics"}
    assert {words[0] for words in calls()} | without_names == set(COMMANDS)


@pytest.mark.parametrize("words", list(calls()), ids=lambda words: printable(" ".join(words))[:60])
def test_no_command_prints_what_a_terminal_acts_on(place: Path, words: tuple[str, ...]) -> None:
    names = SOME if "SOME" in words else [""]
    for name in names:
        # A name with a pattern's characters also matches others; a name that begins with a dash needs the sign.
        replaced = [
            f"{words[n - 1]}={name}" if word == "SOME" else str(place / "logs") if word == "LOGS" else word for n, word in enumerate(words)
        ]
        typed = [word for n, word in enumerate(replaced) if not (n + 1 < len(words) and words[n + 1] == "SOME")]
        warehouse = ["--warehouse", str(place / "warehouse")] if words[:2] != ("doctor", "LOGS") and words[0] != "dump" else []
        done = groupcoord(*typed, *warehouse)
        assert done.exit_code in (0, 1, 3) and "Traceback" not in done.output, (name, done.output, done.exception)
        if words[0] != "export-offsets":  # Kafka's tool needs each name as it is
            assert (acted_on(done.stdout), acted_on(done.stderr)) == ("", ""), name
        assert acted_on(done.stderr) == "", name
        if words[-1] in ("json", "slack") or words[0] == "dump":
            for line in done.stdout.splitlines():
                json.loads(line, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
        if words[-1] == "csv":
            for row in csv.reader(io.StringIO(done.stdout)):
                assert not any(cell.startswith(("=", "+", "@", "\t")) for cell in row), row


@pytest.mark.parametrize("words", list(errors()), ids=" ".join)
def test_no_sentence_of_an_error_holds_what_a_terminal_acts_on(place: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    for name in ("no\x1b[31m\x9b2J\n\u202eErr", "no'\"\\\r"):
        done = groupcoord(
            *(word.replace("BAD", name).replace("OUT", str(tmp_path / "x")) for word in words), "--warehouse", str(place / "warehouse")
        )
        assert done.exit_code in (1, 2) and "Traceback" not in done.output
        assert (acted_on(done.stdout), acted_on(done.stderr)) == ("", "")


def test_metrics_have_one_line_for_each_sample_and_every_name_exactly(place: Path) -> None:
    text = groupcoord("metrics", "--warehouse", str(place / "warehouse")).stdout
    groups = {
        sample.labels["group"] for family in text_string_to_metric_families(text) for sample in family.samples if "group" in sample.labels
    }
    with_lag = {name for number, name in enumerate(NAMES.values()) if number % 3}
    assert with_lag <= groups and text.rstrip().endswith("# EOF")


def test_the_page_holds_no_name_as_markup(place: Path, tmp_path: Path) -> None:
    done = groupcoord("report", "--out", str(tmp_path / "page.html"), "--warehouse", str(place / "warehouse"))
    assert done.exit_code == 0, done.stderr
    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<img src=x" not in html and not set(html) & {"\x1b", "\x00", "\x9b", "\u202e", "\u2028"}
    assert acted_on(done.stderr) == "" and len(re.findall("</script>", html)) == len(re.findall("<script", html))


def test_tools_of_agents_answer_with_every_name(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mcp import Client

    monkeypatch.setattr("groupcoord_spark.cli.mcp.answer_of", answer_of_this_process)

    async def ask() -> tuple[list[Any], list[Any]]:
        async with Client(server_of(Common(str(place / "warehouse")), Bounds())) as client:
            all_at_once = [await client.call_tool(tool, {}) for tool in ("morning", "list_groups", "diff", "lag", "expiring", "doctor")]
            of_each = [await client.call_tool("why", {"group": name}) for name in SOME]
            return all_at_once, of_each

    answers, of_each = asyncio.run(ask())
    assert not any(answer.is_error for answer in answers), [answer.content for answer in answers if answer.is_error]
    listed = {row["group"] for row in answers[1].structured_content["rows"]}
    assert listed == {name for number, name in enumerate(NAMES.values()) if number % 3}
    stories = dict(zip(SOME, of_each, strict=True))
    for name, story in stories.items():
        assert story.is_error or story.structured_content["rows"][-1]["group"] == name
