"""What every command has in common: options, errors, exit codes, help."""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from groupcoord_spark import __version__
from groupcoord_spark.cli.commands import COMMANDS, Commands, main
from groupcoord_spark.cli.options import Duration, Moment
from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.wording import counted
from tests.cli.warehouse import groupcoord
from tests.conftest import SAMPLE_LOGS
from tests.warehouse.nights import AS_OF_MS, DAY_MS, begin_run, commit_run, group, night, run_fields, written


def command_line(*args, **environment):
    run = [sys.executable, "-m", "groupcoord_spark", *args]
    return subprocess.run(run, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device to write to")
@pytest.mark.parametrize("arguments", [["list", "--quiet"], ["dump", str(SAMPLE_LOGS)]])
def test_output_that_cannot_be_written_is_one_sentence(place, arguments):
    with Path("/dev/full").open("w") as full:
        run = [sys.executable, "-m", "groupcoord_spark", *arguments]
        environment = {**os.environ, "GROUPCOORD_WAREHOUSE": place}
        done = subprocess.run(run, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (1, "Error: The output cannot be read or written: No space left on device.\n")


def test_a_closed_stdout_is_no_error(place):
    closed = f"exec '{sys.executable}' -m groupcoord_spark list --quiet --warehouse '{place}' >&-"
    done = subprocess.run(["sh", "-c", closed], stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_version_tells_ours_sparks_and_deltas():
    spark, delta = (importlib.metadata.version(package) for package in ("pyspark", "deltalake"))
    assert groupcoord("--version").stdout == f"groupcoord {__version__} (Spark {spark}, Delta {delta})\n"


def test_help_lists_every_command_without_importing_one(monkeypatch):
    monkeypatch.setattr("groupcoord_spark.cli.commands.import_module", None)
    result = groupcoord("--help")
    assert result.exit_code == 0
    assert all(f"  {name} " in result.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_ends_with_an_example(name):
    last = groupcoord(name, "--help").stdout.rstrip().split("\n\n")[-1]
    assert last.split()[:3] == ["Example:", "groupcoord", name]


@pytest.mark.parametrize("name", ["list", "describe"])
def test_examples_of_read_commands_run(place, name, monkeypatch):
    monkeypatch.setenv("GROUPCOORD_WAREHOUSE", place)
    example = groupcoord(name, "--help").stdout.rstrip().split("\n\n")[-1].split("groupcoord ", 1)[1]
    assert groupcoord(*shlex.split(example)).exit_code == 0


def test_reading_starts_neither_spark_nor_pandas(place):
    code = (
        "import sys; from groupcoord_spark.cli import main\n"
        "for words in (['list', '--state'], ['describe', '--group', 'plain']):\n"
        "    try: main([*words, '--warehouse', sys.argv[1]])\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "print({'pandas', 'pyspark'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code, place], capture_output=True, text=True, check=False)
    assert result.stdout.endswith("set()\n"), result


def test_exit_codes_of_the_process(place, tmp_path):
    assert command_line("list", GROUPCOORD_WAREHOUSE=place).returncode == 0
    missing = command_line("list", "--warehouse", str(tmp_path / "none"))
    assert missing.returncode == 1
    assert missing.stderr == (
        f"Error: {tmp_path}/none is not a warehouse: nothing is there. Make one with"
        f" `groupcoord nightly INPUT --warehouse {tmp_path}/none`, or name another with --warehouse.\n"
    )
    assert command_line("lst").returncode == 2


def test_debug_shows_the_traceback(tmp_path):
    told = groupcoord("list", "--debug", "--warehouse", str(tmp_path / "none")).stderr
    assert "Traceback" in told and told.splitlines()[-1].startswith("Error: ")


def test_a_reader_that_leaves_is_no_error(place):
    run = f"{sys.executable} -m groupcoord_spark list --quiet --warehouse {shlex.quote(place)} | head -n 1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=False)
    assert (result.stdout.splitlines()[-1], result.stderr) == ("0", "")


def test_the_exit_code_of_an_alert_stays_if_the_reader_leaves(tmp_path):
    """Both where the output fits the buffer of stdout and where it is written while the answer is not known yet."""
    for number, groups in enumerate((["early"], [f"{n:0200}" for n in range(1_000)], [])):
        night(tmp_path, "prod", {"groups": list(map(group, groups))}, as_of_ms=AS_OF_MS + number * DAY_MS)
    for command in ("morning --fail-on group_vanished", "diff --fail-on gone"):
        run = f"{sys.executable} -m groupcoord_spark {command} --warehouse {shlex.quote(str(tmp_path))} | true; echo ${{PIPESTATUS[0]}}"
        result = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=False)
        assert result.stdout == "3\n", (command, result.stderr)


def test_output_that_cannot_be_finished_because_the_reader_left_is_quiet(tmp_path):
    night(tmp_path, "prod", {"groups": [group(f"{n:0200}") for n in range(1_000)]})
    run = f"{sys.executable} -m groupcoord_spark list --quiet --warehouse {shlex.quote(str(tmp_path))} | true; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", run], capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (KeyboardInterrupt(), 130, "Interrupted.\n"),
        (WarehouseError("The disk is full."), 1, "Error: The disk is full.\n"),
        (click.UsageError("No."), 2, "\n\nError: No.\n"),
    ],
)
def test_errors_become_a_sentence_and_a_code(monkeypatch, raised, code, said):
    @click.command()
    def failing():
        raise raised

    monkeypatch.setattr(Commands, "get_command", lambda self, ctx, name: failing)
    result = groupcoord("anything")
    assert result.exit_code == code
    assert result.stderr.endswith(said)


def test_a_command_decides_its_exit_code(monkeypatch):
    @click.command()
    def strict():
        return 1

    monkeypatch.setattr(Commands, "get_command", lambda self, ctx, name: strict)
    assert groupcoord("anything").exit_code == 1


def test_several_clusters_must_be_told_apart(tmp_path):
    for cluster in ("prod", "test"):
        night(tmp_path, cluster, {"groups": [group(f"of-{cluster}")]})
    result = groupcoord("list", "--warehouse", str(tmp_path))
    assert (result.exit_code, result.stderr) == (2, f"Error: {tmp_path} holds the clusters 'prod', 'test'. Name one with --cluster.\n")
    assert groupcoord("list", "--warehouse", str(tmp_path), "--cluster", "test").stdout == "of-test\n"


def test_runs_and_morning_answer_for_all_clusters_where_none_is_named(tmp_path):
    for number, cluster in enumerate(("prod", "test")):
        doubt = {"offsets_partition": 0, "code": "zero_tail", "detail": "."}
        start = begin_run(str(tmp_path), cluster)
        rows = {"groups": [group("g")], "warnings": [{"run_id": start.run_id, **doubt}] * number}
        commit_run(start, run_fields(as_of_ms=AS_OF_MS + number * DAY_MS), written(start, rows))
    listed = groupcoord("runs", "--warehouse", str(tmp_path)).stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["CLUSTER", "test", "prod"]
    assert groupcoord("runs", "--warehouse", str(tmp_path), "--cluster", "test").stdout.startswith("AS-OF")
    result = groupcoord("morning", "--warehouse", str(tmp_path), "--fail-on", "doubt")
    assert "test: 1 doubt of the run (zero_tail)." in result.stdout and "--cluster test" in result.stdout
    assert result.exit_code == 3 and result.stderr.splitlines() == [
        "Runs of 2 clusters from 2026-01-01T00:00:00.000Z to 2026-01-02T00:00:00.000Z: 1 kind of news in 1 of them.",
        "Alert: test: 1 doubt of the run (zero_tail).",
    ]
    news = [json.loads(line) for line in groupcoord("morning", "--warehouse", str(tmp_path), "--output", "json").stdout.splitlines()]
    assert [(row["cluster"], row["what"]) for row in news] == [("test", "doubt")]


def test_a_warehouse_without_a_finished_run_says_so(tmp_path):
    begin_run(str(tmp_path), "prod")
    result = groupcoord("list", "--warehouse", str(tmp_path))
    assert result.exit_code == 1
    assert "holds no finished run yet" in result.stderr


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1767225600000", 1767225600000),
        ("-1", -1),
        ("0", 0),
        ("2026-01-01", 1767225600000),
        ("2026-01-01T00:00:00.123", 1767225600123),
        ("2026-01-01T00:00:00Z", 1767225600000),
        ("2026-01-01 02:00:00+02:00", 1767225600000),
        ("0001-01-01", -62135596800000),
        ("9999-12-31T23:59:59.999Z", 253402300799999),
    ],
)
def test_time_is_iso_8601_or_epoch_milliseconds(text, milliseconds):
    assert Moment()(text) == milliseconds


def test_now_is_now(now):
    assert Moment()("now") == now


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "12:00", "1e12", "253402300800000", "٣"])
def test_what_is_no_time_is_told_with_an_example(text):
    with pytest.raises(click.BadParameter, match=r"is not a time\. Write now, 2026-11-20T03:00:00Z or epoch|outside of the years"):
        Moment()(text)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1795231377", "'1795231377' looks like seconds, and a number is epoch milliseconds: did you mean 1795231377000?"),
        ("1795231377000000", "looks like microseconds, and a number is epoch milliseconds: did you mean 1795231377000?"),
        ("1795231377000000000", "looks like nanoseconds, and a number is epoch milliseconds: did you mean 1795231377000?"),
        ("0", "'0' is 1970-01-01T00:00:00.000Z, outside of the years 2010 to 2100. If that time is meant, add --force."),
        ("2009-12-31T23:59:59Z", "outside of the years 2010 to 2100"),
        ("2101-01-01", "outside of the years 2010 to 2100"),
        ("0206-11-20", "outside of the years 2010 to 2100"),
    ],
)
@pytest.mark.parametrize(
    "options", [["list", "--at"], ["expire", "--as-of"], ["nightly", str(SAMPLE_LOGS), "--as-of"], ["nightly", "x", "--until"]]
)
def test_seconds_and_unusual_years_are_not_taken_for_a_time(place, options, text, sentence):
    result = groupcoord(*options, text, "--warehouse", place)
    assert (result.exit_code, result.stdout) == (2, "")
    assert sentence in result.stderr


@pytest.mark.parametrize(
    "options", [["--at", "2101-01-01", "--force"], ["--force", "--at", "2101-01-01"], ["--at", "2100-12-31"], ["--at", "now"]]
)
def test_an_unusual_year_is_taken_with_force(place, options):
    assert groupcoord("list", *options, "--warehouse", place).exit_code == 0


@pytest.mark.parametrize("command", [["timeline", "--group", "g"], ["dump", str(SAMPLE_LOGS)]])
def test_a_range_may_begin_in_any_year_but_not_in_seconds(place, command):
    warehouse = ["--warehouse", place] if command[0] == "timeline" else []
    assert "did you mean 1795231377000?" in groupcoord(*command, "--from", "1795231377", *warehouse).stderr
    assert "outside of the years 2010" not in groupcoord(*command, "--from", "1999-01-01", *warehouse).stderr


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "offset", "0 offsets"),
        (1, "offset", "1 offset"),
        (2, "batch", "2 batches"),
        (1, "batch", "1 batch"),
        (1000, "group", "1,000 groups"),
    ],
)
def test_one_is_singular_and_every_other_number_plural(number, noun, text):
    assert counted(number, noun) == text


def test_no_count_is_printed_beside_a_noun_that_is_always_plural():
    plural_after_count = re.compile(
        r"\{[^{}]*\} (?:[a-z]+ )?(?:offsets|groups|records|partitions|members|batches|tombstones|differences|places)\b"
    )
    allowed = {" decoded", " of them"}
    sources = (Path(__file__).parents[2] / "groupcoord_spark" / "cli").glob("*.py")
    found = [match[0] for path in sorted(sources) for match in plural_after_count.finditer(path.read_text(encoding="utf-8"))]
    assert [text for text in found if not any(word in text for word in allowed)] == []


def test_durations_have_a_unit():
    assert [Duration()(text) for text in ("7d", "36h", "90m", "60000ms")] == [604_800_000, 129_600_000, 5_400_000, 60_000]
    with pytest.raises(click.BadParameter, match="'ten days' is not a duration"):
        Duration()("ten days")


def test_main_is_what_jobs_start(place, capsys):
    with pytest.raises(SystemExit) as left:
        main(args=["list", "--warehouse", place])
    assert left.value.code == 0
    assert capsys.readouterr().out.startswith("app\n")
