"""Names that a user types: patterns, slips, completion, and a group under another name."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from groupcoord_spark.cli.names import did_you_mean, matching
from tests.cli.warehouse import groupcoord
from tests.conftest import SampleWarehouse


def test_a_known_name_stands_for_itself_and_other_names_may_be_patterns() -> None:
    known = {"app-1", "app-2", "app-*", "web"}
    assert matching(["web", "app-?", "app-?"], known) == (["app-*", "app-1", "app-2", "web"], [])
    assert matching(["app-*"], known) == (["app-*"], [])
    assert matching(["x*", "nobody"], known) == ([], ["x*", "nobody"])


def test_the_nearest_names_are_asked_for() -> None:
    assert did_you_mean(["App-rnge"], ["app-range", "web"]) == " Did you mean 'app-range'?"
    assert did_you_mean(["zzz"], ["app-range", "web"]) == ""


def test_describe_takes_patterns_and_asks_after_a_slip(place: str) -> None:
    result = groupcoord("describe", "--state", "--group", "p*", "--group", "queue", "--output", "csv", "--warehouse", place)
    assert [line.split(",")[0] for line in result.stdout.splitlines()[1:]] == ["plain", "queue"]
    result = groupcoord("describe", "--group", "plian", "--warehouse", place)
    assert result.exit_code == 1 and "Did you mean 'plain'?" in result.stderr
    result = groupcoord("describe", "--group", "x*", "--warehouse", place)
    assert result.exit_code == 1 and "No group matches 'x*'" in result.stderr


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("wyh", "Did you mean `groupcoord why`?"),
        ("rewinds", "Did you mean `groupcoord sql 'from rewinds'`?"),
        ("open-transactions", "Did you mean `groupcoord sql 'from open_transactions'`"),
        ("qqq", "`groupcoord --help` lists the commands."),
    ],
)
def test_a_word_that_is_no_command_gets_the_nearest_command_or_view(word: str, meant: str) -> None:
    result = groupcoord(word)
    assert result.exit_code == 2 and f"There is no command '{word}'. {meant}" in result.stderr


def test_a_group_that_is_gone_is_no_slip(place: str) -> None:
    for arguments in (["describe"], ["expire", "--offsets-retention", "7d"], ["assign", "--assignor", "range"]):
        result = groupcoord(*arguments, "--group", "early", "--warehouse", place)
        assert result.exit_code == 1 and "Group 'early' is gone in cluster 'prod'" in result.stderr
        assert f"`groupcoord why --group early --warehouse {place} --cluster prod` explains why" in result.stderr


def test_diff_expire_and_why_take_patterns(place: str, sample_warehouse: SampleWarehouse) -> None:
    def groups(*arguments: str, place: str = place) -> set[str]:
        result = groupcoord(*arguments, "--output", "json", "--warehouse", place)
        return {json.loads(line)["group"] for line in result.stdout.splitlines()}

    assert groups("expire", "--offsets-retention", "7d", "--group", "p*", "--group", "queue") == {"plain", "queue"}
    assert groups("diff", "--group", "[pe]*") == {"plain", "early"}
    assert "No group matches 'x*'" in groupcoord("diff", "--group", "x*", "--warehouse", place).stderr
    assert groups("why", "--group", "app-r[ar]*", place=str(sample_warehouse.path)) == {"app-range", "app-rr"}
    assert "matches 'x*', and none that is gone" in groupcoord("why", "--group", "x*", "--warehouse", str(sample_warehouse.path)).stderr


def test_help_lists_commands_and_options_by_purpose() -> None:
    assert groupcoord("--help").stdout.index("What happened:") < groupcoord("--help").stdout.index("Logs and rules:")
    for name, purposes in (("list", ["Options", "Which run", "Output"]), ("nightly", ["What is read", "Rules of expiration", "Output"])):
        text = groupcoord(name, "--help").stdout
        assert [line for line in text.splitlines() if line.removesuffix(":") in purposes] == [f"{purpose}:" for purpose in purposes]


def test_the_cluster_may_stand_in_the_environment(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUPCOORD_CLUSTER", "nowhere")
    result = groupcoord("list", "--warehouse", place)
    assert result.exit_code == 1 and "'nowhere'" in result.stderr
    assert groupcoord("list", "--cluster", "prod", "--warehouse", place).exit_code == 0


def test_offsets_of_one_group_can_be_set_for_another(place: str) -> None:
    result = groupcoord("export-offsets", "--group", "only-o*", "--as", "copy", "--warehouse", place)
    assert (result.exit_code, result.stdout) == (0, '"orders",0,-1\n')
    assert "--group copy --reset-offsets" in result.stderr
    result = groupcoord("export-offsets", "--group", "plain", "--group", "new", "--as", "copy", "--warehouse", place)
    assert result.exit_code == 2 and "--as takes the offsets of one group, and --group names 2 groups" in result.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["groupcoord", "wh"], ["why"]),
        (["groupcoord", "describe", "--group", "p"], ["plain"]),
        (["groupcoord", "why", "--group", "plain", "--topic", ""], ["gone", "orders"]),
    ],
)
def test_a_shell_completes_commands_groups_and_topics(place: str, words: list[str], expected: list[str]) -> None:
    asked = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1), "_GROUPCOORD_COMPLETE": "bash_complete"}
    program = "import sys; sys.argv[:] = ['groupcoord']; from groupcoord_spark.cli import main; main()"
    environment = {**os.environ, **asked, "GROUPCOORD_WAREHOUSE": place}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=False)
    assert [line.partition(",")[2] for line in done.stdout.splitlines()] == expected, done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script(shell: str) -> None:
    result = groupcoord("completion", shell)
    assert result.exit_code == 0 and "_GROUPCOORD_COMPLETE" in result.stdout and f"{shell}_complete" in result.stdout


AS_PEOPLE_TYPE_THEM = [
    (["describe", "plain"], ["describe", "--group", "plain"]),
    (["describe", "plain", "new", "--members"], ["describe", "--group", "plain", "--group", "new", "--members"]),
    (["why", "early"], ["why", "--group", "early"]),
    (["timeline", "plain"], ["timeline", "--group", "plain"]),
    (["lag"], ["list", "--lag"]),
    (["lag", "plain"], ["describe", "--group", "plain"]),
    (["lag", "--group", "plain"], ["describe", "--group", "plain"]),
    (["groups"], ["list"]),
    (["groups", "--state"], ["list", "--state"]),
    (["offsets"], ["describe", "--all-groups"]),
    (["offsets", "plain"], ["describe", "--group", "plain"]),
]


@pytest.mark.parametrize(("typed", "meant"), AS_PEOPLE_TYPE_THEM)
def test_words_as_people_type_them(place: str, typed: list[str], meant: list[str]) -> None:
    answers = [groupcoord(*words, "--warehouse", place) for words in (typed, meant)]
    assert (answers[0].exit_code, answers[0].output) == (answers[1].exit_code, answers[1].output)


@pytest.mark.parametrize("words", [["why"], ["timeline"], ["timeline", "plain", "--group", "new"]])
def test_a_command_about_a_group_needs_one(place: str, words: list[str]) -> None:
    refused = groupcoord(*words, "--warehouse", place)
    assert refused.exit_code == 2 and "Name " in refused.stderr


def test_a_broker_without_its_scheme_is_one_sentence(tmp_path: Path) -> None:
    refused = groupcoord("nightly", "localhost:9092", "--warehouse", str(tmp_path / "w"))
    assert refused.exit_code == 2 and "kafka://localhost:9092 reads the topic" in refused.stderr
    assert not (tmp_path / "w").exists()
