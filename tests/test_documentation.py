"""What the README says is so: its commands and options exist, its output is what comes out, its blocks run, its reference is the tables'.

``console`` blocks are compared with what the commands print on the sample, ``python`` and ``sql`` blocks are run on it, and what ``bash``
blocks and tables name is looked up.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from groupcoord_spark.cli.commands import main
from groupcoord_spark.warehouse.tables import TABLES, reference

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TEXT, _, REFERENCE = README.partition("<!-- tables:begin -->\n")

OF_OTHER_INPUTS = {"look at the rows", "with an older connector", "read the topic"}
"""Stages that a run over segments does not have."""

NO_DELTA = "Spark's Delta reader is not here and cannot be fetched"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


def commands_named() -> Iterator[tuple[str, list[str]]]:
    """Name of the command and its words, for each groupcoord line of the shell blocks; jobs/nightly.py is the command nightly."""
    for block in [*blocks("bash"), *blocks("console")]:
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            for at, word in enumerate(words):
                if word.rsplit("/", 1)[-1] == "groupcoord" and at + 1 < len(words):
                    yield words[at + 1], words[at + 2 :]
                elif word.startswith("jobs/"):
                    yield Path(word).stem, words[at + 1 :]


def command(name: str) -> click.Command:
    assert isinstance(main, click.Group)
    found = main.get_command(click.Context(main), name)
    assert found is not None, f"there is no command {name}"
    return found


def options_of(name: str) -> set[str]:
    return {option for parameter in command(name).params for option in parameter.opts if option.startswith("--")}


def common_options() -> set[str]:
    return options_of("list") & options_of("timeline")


def section(title: str) -> str:
    return re.split(r"^## ", TEXT.partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def table_of_commands() -> list[str]:
    return re.findall(r"^\| `groupcoord ([\w-]+)", section("Commands"), re.MULTILINE)


def without_trailing_spaces(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


@pytest.fixture
def in_sample(sample_warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The working directory holds the sample's ./warehouse."""
    monkeypatch.chdir(sample_warehouse.path.parent)
    return sample_warehouse


class TestCommands:
    def test_commands_in_shell_blocks_take_the_options_they_are_given(self) -> None:
        named = list(commands_named())
        assert {"nightly", "list", "describe"} <= {name for name, _ in named}
        for name, words in named:
            command(name).make_context(name, words)

    def test_table_of_commands_lists_every_command(self) -> None:
        assert sorted(table_of_commands()) == sorted(main.list_commands(click.Context(main)))  # type: ignore[attr-defined]

    def test_options_of_nightly_are_all_there_and_no_others(self) -> None:
        named = set(re.findall(r"^\| `(--[a-z-]+)", section("Commands"), re.MULTILINE))
        assert named == options_of("nightly") - common_options()

    @pytest.mark.parametrize("name", [name for name in table_of_commands() if name != "nightly"])
    def test_options_of_other_commands_are_all_there_and_no_others(self, name: str) -> None:
        paragraph = section("Commands").partition(f"**{name}**")[2].partition("\n\n")[0]
        assert set(re.findall(r"`(--[a-z-]+)", paragraph)) == options_of(name) - common_options()

    def test_common_options_are_all_there_and_no_others(self) -> None:
        paragraph = section("Commands").partition("All commands but simulate take")[2]
        assert set(re.findall(r"`(--[a-z-]+)", paragraph)) == common_options()

    def test_no_option_is_named_anywhere_that_does_not_exist(self) -> None:
        of_others = {"--editable", "--list", "--describe", "--to", "--master", "--archives", "--properties-file", "--py-files"}
        of_others |= {"--reset-offsets", "--from-file", "--bootstrap-server", "--execute", "--offsets-decoder"}
        of_others |= {"--mutations", "--seed"}
        of_others |= {"--packages", "--repositories"}
        of_others |= {"--inplace", "--prefix"}
        known = set.union(*map(options_of, table_of_commands())) | of_others
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", TEXT)) - known == set()

    def test_make_targets_exist(self) -> None:
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        targets = set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))
        assert {"nightly", "test"} <= set(re.findall(r"\bmake ([a-z]+)$", "\n".join(blocks("bash")), re.MULTILINE)) <= targets

    def test_make_nightly_is_the_plain_line(self) -> None:
        plain = next(line for block in blocks("bash") for line in block.splitlines() if line.startswith(".venv/bin/groupcoord nightly"))
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        of_make = next(line for line in makefile.splitlines() if "groupcoord nightly $(SAMPLE)" in line).strip()
        sample = re.search(r"^SAMPLE := (.*)$", makefile, re.MULTILINE)
        assert sample is not None
        of_make = of_make.replace("@$(BIN)", ".venv/bin").replace("$(SAMPLE)", sample[1]).replace("$(WAREHOUSE)", "./warehouse")
        assert of_make == plain


class TestOutput:
    @pytest.mark.parametrize(
        "block", [block for block in blocks("console") if re.match(r"\$ groupcoord (list|describe|expire|export-offsets|timeline) ", block)]
    )
    def test_commands_print_what_is_shown(self, in_sample: Any, block: str) -> None:
        shown = re.split(r"^\$ ", block, flags=re.MULTILINE)
        for part in filter(None, shown):
            line, _, expected = part.partition("\n")
            printed = CliRunner().invoke(main, shlex.split(line)[1:])
            assert printed.exit_code == 0
            assert without_trailing_spaces(printed.output) == without_trailing_spaces(expected)

    def test_verify_says_of_the_sample_what_is_shown(self, in_sample: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        line, _, expected = next(block for block in blocks("console") if "groupcoord verify" in block).removeprefix("$ ").partition("\n")
        warehouse = str(in_sample.path)
        monkeypatch.chdir(ROOT)
        printed = CliRunner().invoke(main, [*shlex.split(line)[1:], "--warehouse", warehouse])
        assert (printed.exit_code, printed.stdout, printed.stderr) == (0, "", expected)

    def test_parts_of_a_file_of_answers_are_all_there(self) -> None:
        from groupcoord_spark.verification.answers import FORM

        rows = "\n".join(line for line in section("Is it so?").splitlines() if line.startswith("| `"))
        assert set(FORM) <= set(re.findall(r"`([a-z_]+)`", rows))

    def test_summary_of_nightly_is_the_one_shown(self, in_sample: Any) -> None:
        from groupcoord_spark.cli.nightly import summary_text

        shown = next(block for block in blocks("console") if "make nightly" in block)
        summary = summary_text(in_sample.summary, 7 * 86_400_000)
        after_the_run_id = 3
        assert [line for line in shown.splitlines() if line.startswith("  ")] == summary.strip("\n").splitlines()[1:]
        assert len(summary.splitlines()) > after_the_run_id

    def test_stages_shown_are_those_of_a_run(self) -> None:
        shown = next(block for block in blocks("console") if "make nightly" in block)
        sources = [ROOT / "groupcoord_spark" / room / "nightly.py" for room in ("cli", "pipeline")]
        named = re.findall(r'\.begin\("(.+?)"\)', "".join(source.read_text() for source in sources))
        assert [line[:24].rstrip() for line in shown.splitlines()[1:5]] == [
            stage for stage in dict.fromkeys(["plan", *named]) if stage not in OF_OTHER_INPUTS
        ]
        of_others = [block.split("\n\n")[0] for block in blocks("console") if "$ groupcoord nightly" in block]
        assert {line[:24].rstrip() for block in of_others for line in block.splitlines() if line[0] != "$"} == set(named)


class TestBlocks:
    @pytest.mark.parametrize("block", [block for block in blocks("python") if "spark" not in block.replace("groupcoord_spark", "")])
    def test_python_without_spark_runs(self, in_sample: Any, block: str) -> None:
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})

    @pytest.mark.parametrize("block", [block for block in blocks("python") if "spark = session()" in block])
    def test_python_with_spark_runs(self, spark: Any, block: str, capsys: pytest.CaptureFixture[str]) -> None:
        # The JVM does not follow when a test changes its directory.
        block = block.replace('"tests/golden/', f'"{ROOT}/tests/golden/')
        exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
        assert "app-nocommit" in capsys.readouterr().out

    @pytest.mark.parametrize("query", blocks("sql"))
    def test_sql_runs_in_duckdb(self, in_sample: Any, query: str) -> None:
        setup = next(block for block in blocks("python") if "import duckdb" in block)
        namespace: dict[str, Any] = {"__name__": "readme"}
        exec(compile(setup, "README.md", "exec"), namespace)
        assert namespace["night"].sql(query).to_arrow_table().num_rows > 0

    def test_three_ways_of_asking_give_one_answer(self, in_sample: Any) -> None:
        duckdb_block = next(block for block in blocks("python") if "import duckdb" in block)
        pandas_block = next(block for block in blocks("python") if "import pandas" in block)
        namespace: dict[str, Any] = {"__name__": "readme"}
        exec(compile(duckdb_block + pandas_block, "README.md", "exec"), namespace)
        query = re.search(r'"""(.*?)"""', duckdb_block, re.DOTALL)
        assert query is not None
        answer = namespace["night"].sql(query[1]).to_arrow_table().to_pylist()
        by_sql = {(row["group_id"], row["topic"]): row["partitions"] for row in answer}
        by_pandas = namespace["soon"].groupby(["group_id", "topic"]).size().to_dict()
        assert by_sql == by_pandas
        assert by_sql["app-expiring", "orders"] == 3

    def test_python_and_sql_run_in_spark_with_delta(self, in_sample: Any) -> None:
        # A process of its own: a session that is there cannot get Delta's jars.
        block = next(block for block in blocks("python") if "with_delta=True" in block)
        queries = [f"spark.sql({query!r}).show()\n" for query in blocks("sql")]
        queries += [block for block in blocks("python") if "what_if" in block]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "SPARK_MASTER": "local[1]"}
        script = [sys.executable, "-c", block + "".join(queries)]
        done = subprocess.run(script, capture_output=True, text=True, env=environment, check=False, timeout=300)
        if done.returncode and re.search("unresolved dependenc|not found: ivy|DELTA|SparkSubmit|download", done.stderr, re.IGNORECASE):
            pytest.skip(NO_DELTA)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("+\n") >= 3 * (1 + len(queries))


class TestWords:
    def test_reference_is_what_the_tables_say(self) -> None:
        assert REFERENCE.partition("<!-- tables:end -->")[0] == reference(TABLES.values())

    def test_overview_names_every_table_once(self) -> None:
        overview = section("The tables").partition("The column `rule`")[0]
        rows = [line.split("|")[2] for line in overview.splitlines() if line.startswith("| ") and "`" in line]
        assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(TABLES)

    def test_rules_explained_are_those_of_the_tables(self) -> None:
        explained = set(re.findall(r"`(X-[A-Z]\d)`", section("The tables")))
        words = {*TABLES["offset_expirations"].by_name["rule"].words, *TABLES["group_expirations"].by_name["rule"].words}
        assert explained == words

    def test_causes_explained_are_those_of_the_table(self) -> None:
        explained = re.findall(r"^\| `(\w+)` \|", section("Rebalances"), re.MULTILINE)
        assert explained == list(TABLES["rebalances"].by_name["cause"].words)

    def test_codes_and_columns_named_exist(self) -> None:
        codes = {*TABLES["warnings"].by_name["code"].words, *TABLES["quarantined_records"].by_name["reason"].words}
        assert {"tail_truncated", "R-2.4"} <= codes

    def test_files_named_are_there(self) -> None:
        named = set(re.findall(r"(?:tests|conf|jobs|notebooks|benchmarks)/[\w./-]*\w", TEXT))
        assert {"conf/spark.conf", "jobs/nightly.py", "notebooks/01_tour.py"} <= named
        assert [name for name in sorted(named) if not (ROOT / name).exists()] == []

    def test_golden_folders_named_are_there(self) -> None:
        paragraph = section("The sample").partition("Other folders")[2].partition("notebooks/")[0]
        assert [name for name in re.findall(r"`([a-z0-9.-]+)`", paragraph) if not (ROOT / "tests/golden" / name / "logs").is_dir()] == []

    def test_links_lead_to_headings_of_this_file(self) -> None:
        headings = re.findall(r"^#+ (.+)$", README, re.MULTILINE)
        anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
        assert [link for link in re.findall(r"\]\(#([^)]+)\)", TEXT) if link not in anchors] == []

    def test_jars_to_fetch_by_hand_are_of_the_release_that_is_fetched_otherwise(self) -> None:
        from groupcoord_spark.spark.session import DELTA_PACKAGE

        _, artifact, version = DELTA_PACKAGE.split(":")
        assert f"{artifact}-{version}.jar" in TEXT
