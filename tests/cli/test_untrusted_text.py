"""Texts that clients chose: no terminal acts on them, no spreadsheet runs them, no encoding of stdout breaks a command."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.cli.commands import COMMANDS as COMMAND_NAMES
from groupcoord_spark.cli.render import cell_text, printable, terminal_json, write_records
from groupcoord_spark.protocol.consumer_protocol import Subscription, encode_subscription
from tests.cli.processes import in_turn, of_each
from tests.cli.test_dump import commit as commit_record
from tests.cli.warehouse import groupcoord
from tests.log.log_writer import batch, write_segment
from tests.warehouse.nights import AS_OF_MS, DAY_MS, assignment, commit, group, member, night, offset

HOSTILE = "=a\x1b[31m\x07\r\n\x7f\x9b2J\u202eb\u2028\ufeff"
"""A formula, an escape sequence of 7 and one of 8 bits, a bell, line breaks, a change of direction and marks that cannot be seen."""

WEEK = {"offsets.retention.ms": str(7 * DAY_MS)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Provide a warehouse where every text that a client, a tool or a person can choose is HOSTILE."""
    where = tmp_path_factory.mktemp("hostile") / "warehouse"
    subscription = encode_subscription(Subscription(3, (HOSTILE,), None, {}, -1, None))
    of_rebalance = {"group_type": "classic", "kind": "generation", "to_generation": 1, "member_count": 1, "record_timestamp_ms": AS_OF_MS}
    cause = {"cause": "member_joined", "confidence": "certain", "evidence": f"{HOSTILE} joined."}
    counts = {"records": 1, "decoded": 0, "quarantined": 1, "control_records": 0, "live_keys": 0, "bytes": 9, "incarnation": 0}
    night(
        where,
        HOSTILE,
        {
            "groups": [
                group(HOSTILE, state="Stable", protocol=HOSTILE, member_count=1, subscribed_topics=[HOSTILE], offset_count=1),
                group(f"{HOSTILE} Empty", offset_count=1, state_timestamp_ms=AS_OF_MS - DAY_MS),
                group(f"{HOSTILE} Connect", state="Stable", protocol_type="connect"),
                group(f"{HOSTILE} other", state="Stable", protocol_type=HOSTILE),
            ],
            "committed_offsets": [
                offset(HOSTILE, HOSTILE, 0, 7, metadata=HOSTILE),
                offset(f"{HOSTILE} Empty", HOSTILE, 0, 7, commit_timestamp_ms=AS_OF_MS - 30 * DAY_MS),
            ],
            "members": [
                member(HOSTILE, HOSTILE, client_id=HOSTILE, client_host=HOSTILE, instance_id=HOSTILE, subscription=subscription),
            ],
            "assignments": [assignment(HOSTILE, HOSTILE, HOSTILE, 0)],
            "offset_commits": [commit(1, group_id=HOSTILE, topic=HOSTILE, metadata=HOSTILE)],
            "rebalances": [
                {**of_rebalance, **cause, "offsets_partition": 0, "incarnation": 0, "record_offset": 0, "group_id": HOSTILE},
            ],
            "offsets_partitions": [{"offsets_partition": 0, "first_offset": 0, "end_offset": 1, "last_stable_offset": 1, **counts}],
            "decode_coverage": [
                {"key_type": 1, "key_name": HOSTILE, "records": 1, "bytes": 9, "decoded": 1, "quarantined": 0, "misplaced": 0}
            ],
        },
        as_of_ms=AS_OF_MS,
        settings=WEEK,
    )
    return str(where)


def answers(tmp_path: Path) -> str:
    """Return a broker's answers that differ from the warehouse."""
    (tmp_path / "answers.json").write_text(json.dumps({"groups": [{"group": f"{HOSTILE}!", "state": HOSTILE}], "offsets": []}))
    return str(tmp_path / "answers.json")


COMMANDS: list[list[str]] = [
    ["list", "--state", "--type"],
    ["describe", "--all-groups"],
    ["describe", "--all-groups", "--members", "--verbose"],
    ["describe", "--all-groups", "--state", "--verbose"],
    ["expire"],
    ["expire", "--offsets"],
    ["expire", "--offsets-retention", "99d", "--compare"],
    ["coverage"],
    ["runs"],
    ["timeline", "--group", HOSTILE],
    ["assign", "--group", HOSTILE],
    ["verify", "--against", "ANSWERS"],
]
WITHOUT_ROWS: list[list[str]] = [
    ["describe", "--group", f"{HOSTILE}?"],
    ["timeline", "--group", f"{HOSTILE}?"],
    ["assign", "--group", f"{HOSTILE}?"],
    ["expire", "--group", f"{HOSTILE}?"],
    ["export-offsets", "--group", f"{HOSTILE}?"],
    ["warnings", "--run", f"{HOSTILE}?"],
    ["warnings", "--code", f"{HOSTILE}?"],
    ["list", "--cluster", f"{HOSTILE}?"],
    ["list", "--state", HOSTILE],
    ["simulate", HOSTILE],
    ["nightly", HOSTILE],
    ["dump", HOSTILE],
    [HOSTILE],
]


def acted_on(text: str) -> str:
    """Return what of a text a terminal does not simply print."""
    return "".join(c for c in text if c != "\n" and not c.isprintable())


@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda arguments: " ".join(map(printable, arguments)))
@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_no_command_prints_what_a_terminal_acts_on(place: str, tmp_path: Path, arguments: list[str], output: str) -> None:
    named = [answers(tmp_path) if word == "ANSWERS" else word for word in arguments]
    done = groupcoord(*named, "--warehouse", place, "--output", output)
    assert done.exit_code == (1 if arguments[0] == "verify" else 0), done.stderr
    assert done.stdout
    assert (acted_on(done.stdout), acted_on(done.stderr)) == ("", "")


@pytest.mark.parametrize("arguments", WITHOUT_ROWS, ids=lambda arguments: " ".join(map(printable, arguments)))
def test_no_sentence_on_stderr_holds_what_a_terminal_acts_on(place: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPCOORD_WAREHOUSE", place)
    done = groupcoord(*arguments)
    assert done.exit_code in (0, 1, 2) and not (done.exit_code == 0 and done.stdout)
    assert (acted_on(done.stdout), acted_on(done.stderr)) == ("", "")


def test_the_traceback_of_debug_holds_nothing_that_a_terminal_acts_on(place: str) -> None:
    done = groupcoord("describe", "--group", f"{HOSTILE}?", "--debug", "--warehouse", place)
    assert "Traceback" in done.stderr and acted_on(done.stderr) == ""


def test_dump_writes_as_json_escapes_what_a_terminal_acts_on(tmp_path: Path) -> None:
    write_segment(tmp_path, [batch(0, [commit_record(HOSTILE, metadata=f"{HOSTILE} ü")])], base_offset=0, offsets_partition=0)
    done = groupcoord("dump", str(tmp_path))
    assert (acted_on(done.stdout), acted_on(done.stderr)) == ("", "")
    line = json.loads(done.stdout)
    assert (line["key"]["data"]["group"], line["value"]["data"]["metadata"]) == (HOSTILE, f"{HOSTILE} ü")
    assert "ü" in done.stdout


def test_json_keeps_every_text_exactly(place: str) -> None:
    (row,) = (
        json.loads(line)
        for line in groupcoord("describe", "--group", HOSTILE, "--warehouse", place, "--output", "json").stdout.splitlines()
    )
    assert (row["group"], row["topic"], row["host"], row["client_id"], row["consumer_id"]) == (HOSTILE,) * 5


def test_reset_csv_keeps_every_name_exactly_for_kafkas_tool(tmp_path: Path) -> None:
    topic = "=a\x1b[31m\x9b組🎉"
    night(tmp_path / "w", "prod", {"groups": [group("g")], "committed_offsets": [offset("g", topic, 0, 7)]})
    words = ("export-offsets", "--group", "g", "--warehouse", str(tmp_path / "w"))
    done = run(*words, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout.decode("utf-8")) == (0, f'"{topic}",0,7\n')
    assert groupcoord(*words).stdout == f'"{topic}",0,7\n'


def test_a_cell_shows_the_escape_of_what_a_terminal_acts_on() -> None:
    assert cell_text(HOSTILE) == r"=a\x1b[31m\x07\r\n\x7f\x9b2J\u202eb\u2028\ufeff"
    assert cell_text("группа-組-🎉") == "группа-組-🎉"


def test_json_escapes_are_those_of_json() -> None:
    text = json.dumps(HOSTILE, ensure_ascii=False)
    assert json.loads(terminal_json(text)) == HOSTILE and acted_on(terminal_json(text)) == ""


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1+1", "'-1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", r"'\t=1"),
        ("\r=1", r"'\r=1"),
        ('=HYPERLINK("x")', '\'=HYPERLINK("x")'),
        ("-1", "-1"),
        ("-12.5", "-12.5"),
        (-1, "-1"),
        ("a=1", "a=1"),
        (None, ""),
        (True, "true"),
        (False, "false"),
        (["a", "b"], "a,b"),
        (["=a"], "'=a"),
        ([], ""),
        ({"a": "\x9b"}, '{"a": "\\u009b"}'),
    ],
)
def test_a_cell_of_csv_is_no_formula_and_a_number_stays_one(value: Any, cell: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_records("csv", ["name"], [[value, ""]])
    assert list(csv.reader(io.StringIO(capsys.readouterr().out)))[1] == [cell, ""]


def test_rows_of_csv_are_lines(place: str) -> None:
    for arguments in (["list"], ["describe", "--all-groups"], ["expire", "--offsets"]):
        lines = groupcoord(*arguments, "--warehouse", place, "--output", "csv", "--quiet").stdout.split("\n")
        assert {len(row) for row in csv.reader(lines[:-1])} == {len(lines[0].split(","))}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "groupcoord_spark", *arguments]
    return subprocess.run(command, capture_output=True, check=False, env={**os.environ, **environment})


@pytest.fixture(scope="module")
def letters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide a warehouse and a log with one group whose name has letters beyond ASCII, one of them beyond 16 bits."""
    where = tmp_path_factory.mktemp("letters")
    night(where / "w", "ü", {"groups": [group("組🎉", offset_count=1)], "committed_offsets": [offset("組🎉", "ü", 0, 7)]}, settings=WEEK)
    write_segment(where / "logs", [batch(0, [commit_record("組🎉")])], base_offset=0, offsets_partition=0)
    return where


ASCII = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}


@pytest.mark.parametrize("encoding", [{"PYTHONIOENCODING": "ascii"}, ASCII])
def test_an_ascii_terminal_gets_escapes_and_no_traceback(letters: Path, encoding: dict[str, str]) -> None:
    expected: list[tuple[list[str], int, str]] = [
        (["list"], 0, r"\u7d44\U0001f389"),
        (["list", "--output", "csv"], 0, r"\u7d44\U0001f389"),
        (["list", "--output", "json"], 0, r'{"group": "\u7d44\ud83c\udf89"}'),
        (["describe", "--all-groups"], 0, r"\u7d44\U0001f389"),
        (["expire", "--offsets"], 0, r"\u7d44\U0001f389"),
        (["dump", str(letters / "logs")], 0, r"\u7d44\ud83c\udf89"),
        (["--help"], 0, "nightly"),
        (["verify", "--help"], 0, "--against"),
        (["describe", "--group", "ü"], 1, r"'\xfc'"),
        (["ü"], 2, r"'\xfc'"),
    ]
    environment = {**os.environ, "GROUPCOORD_WAREHOUSE": str(letters / "w"), **encoding}
    done = subprocess.run(in_turn(words for words, *_ in expected), capture_output=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    streams = (of_each(stream.decode("ascii")) for stream in (done.stdout, done.stderr))  # fails for any other byte
    for (_, code, escaped), (rows, ended), (said, _) in zip(expected, *streams, strict=True):
        assert (ended, "Traceback" in rows + said) == (code, False), rows + said
        assert escaped in (said if code else rows)


def test_a_word_that_is_no_text_in_the_locale_is_refused_in_a_sentence(letters: Path) -> None:
    done = run("describe", "--group", "ü", GROUPCOORD_WAREHOUSE=str(letters / "w"), **ASCII)
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1)
    assert b"is not text in the encoding of this locale, ascii. Set LC_ALL=C.UTF-8." in done.stderr


def test_the_locale_c_gets_no_traceback(letters: Path) -> None:
    done = run("list", "--quiet", "--warehouse", str(letters / "w"), LANG="C", LC_ALL="C")
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 1)


@pytest.mark.parametrize(
    ("arguments", "pipe"),
    [
        (["expire"], "| true"),
        (["dump", "LOGS"], "| true"),
        (["list", "--quiet", "--output", "json"], "| true"),
        (["export-offsets", "--group", "組🎉"], "| true"),
        (["expire"], "2>&1 | true"),
        (["dump", "LOGS"], "2>&1 >/dev/null | true"),
    ],
)
def test_whoever_reads_no_further_ends_a_command_quietly(letters: Path, arguments: list[str], pipe: str) -> None:
    named = [str(letters / "logs") if word == "LOGS" else word for word in arguments]
    command = shlex.join([sys.executable, "-m", "groupcoord_spark", *named])
    environment = {**os.environ, "GROUPCOORD_WAREHOUSE": str(letters / "w")}
    done = subprocess.run(
        ["bash", "-c", f"{command} {pipe}; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, check=False, env=environment
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device to write to")
@pytest.mark.parametrize("stderr", ["2>/dev/full", "2>&-"])
@pytest.mark.parametrize(("arguments", "code"), [(["expire"], 0), (["list", "--cluster", "none"], 1), (["lst"], 2)])
def test_a_stderr_that_takes_nothing_changes_neither_rows_nor_code(letters: Path, stderr: str, arguments: list[str], code: int) -> None:
    environment = {**os.environ, "GROUPCOORD_WAREHOUSE": str(letters / "w")}
    command = shlex.join([sys.executable, "-m", "groupcoord_spark", *arguments])
    done = subprocess.run(["bash", "-c", f"{command} {stderr}"], capture_output=True, check=False, env=environment)
    assert (done.returncode, done.stderr, done.stdout != b"") == (code, b"", code == 0)


@pytest.mark.parametrize("name", COMMAND_NAMES)
def test_help_is_plain_ascii_since_click_prints_it_in_every_encoding(name: str) -> None:
    assert groupcoord(name, "--help").stdout.isascii()


def test_only_the_module_for_printing_writes_to_the_streams() -> None:
    package = Path(__file__).parents[2] / "groupcoord_spark" / "cli"
    may_write = {"render.py", "progress.py", "commands.py"}
    direct = re.compile(r"click\.echo|\bprint\(|sys\.stderr\b.*write|print_exc")
    writing = [path.name for path in sorted(package.glob("*.py")) if path.name not in may_write and direct.search(path.read_text())]
    assert writing == []
