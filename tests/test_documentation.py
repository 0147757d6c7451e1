"""What README and docs/ say is true: commands and options exist, blocks run and print the shown output, and generated parts are up to date.
Links lead to files and anchors, and every rule and code that the package names can be looked up.

``console`` blocks are compared with what the commands print on the sample, ``python`` and ``sql`` blocks are run on it, and what ``bash``
blocks and tables name is looked up.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner
from pyspark.sql.pandas.types import from_arrow_schema

from groupcoord_spark.cli.commands import main
from groupcoord_spark.cli.demo import NIGHTS, QUESTIONS
from groupcoord_spark.coordinator.offset_events import CAUSES
from groupcoord_spark.simulator import simulator
from groupcoord_spark.warehouse.tables import TABLES
from groupcoord_spark.warehouse.view_texts import VIEWS
from tests.warehouse.nights import few_views

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "groupcoord_spark"
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = (README, *sorted(DOCS.rglob("*.md")))
TUTORIAL = DOCS / "tutorial.md"
OF_THE_DEMO = (README, TUTORIAL)
"""Pages whose commands are asked of the demo's warehouse; those of other pages, of the sample's."""
CLI = DOCS / "reference" / "cli.md"
TABLE_PAGE = DOCS / "reference" / "tables.md"
WARNING_CODE_PAGE = DOCS / "reference" / "warning-codes.md"

README_LINES = 120

OF_OTHER_INPUTS = {"look at the rows", "with an older connector", "read the topic", "ask for end offsets", "publish"}
"""Stages that a run over segments without --publish does not have."""

OPTIONS_OF_OTHER_PROGRAMS = {
    *("--editable", "--list", "--describe", "--to", "--master", "--archives", "--properties-file", "--py-files"),
    *("--reset-offsets", "--from-file", "--export", "--bootstrap-server", "--execute", "--offsets-decoder", "--formatter"),
    *("--topic", "--partition", "--start-offset", "--conf"),
    *("--json", "--fail", "--header", "--data-binary"),  # curl
    *("--mutations", "--seed", "--packages", "--repositories", "--inplace", "--prefix", "--help"),
    *("--no-compile", "--yes", "--exclude", "--compress-level", "--constraint", "--ignore-failed-read"),
    *("--release", "--show", "--scale", "--record", "--protocol", "--count", "--only"),  # tests.tools.conformance
    *("--rm", "--tag", "--volume", "--build"),  # docker
    *("--annotate", "--message"),  # git
    "--kill",  # tests.tools.faults.failing_calls
    *("--no-deps", "--no-build-isolation", "--wheel-dir", "--exclude-editable", "--write"),
}

RULE_ID = re.compile(r"\b(R-\d+\.\d+|X-[A-Z]\d*)\b")
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
EXPLICIT_ANCHOR = re.compile(r'<a id="([^"]+)">')
LINK = re.compile(r"\]\(([^()\s]+)\)")
LINK_AS_TEXT = re.compile(r"\[([^\]]*)\]\([^)]*\)")

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def load_generator() -> ModuleType:
    """docs/generate.py, which belongs to no package."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = load_generator()


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def written_by_hand(page: Path) -> str:
    """Return the page without its generated parts."""
    text: str = GENERATOR.GENERATED_PART.sub("", text_of(page))
    return text


ALL_TEXT = "\n".join(written_by_hand(page) for page in PAGES)


def blocks(language: str, page: Path | None = None) -> list[str]:
    """Return the code blocks of a language, of one page or of all; a block that several pages show is there once."""
    text = ALL_TEXT if page is None else written_by_hand(page)
    return list(dict.fromkeys(re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)))


def commands_named() -> Iterator[tuple[str, list[str]]]:
    """Yield the command and its words for each groupcoord line of the shell blocks; jobs/nightly.py is the command nightly."""
    typed = (line for block in blocks("console") for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ "))
    for block in [*blocks("bash"), *typed]:
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line.removeprefix("$ "), comments=True)
            for at, word in enumerate(words):
                if word.rsplit("/", 1)[-1] == "groupcoord" and at + 1 < len(words):
                    yield words[at + 1], list(takewhile(lambda word: word not in ("|", ">"), words[at + 2 :]))
                elif word.startswith("jobs/"):
                    yield Path(word).stem, words[at + 1 :]


def command(name: str) -> click.Command:
    assert isinstance(main, click.Group)
    found = main.get_command(click.Context(main), name)
    assert found is not None, f"there is no command {name}"
    return found


def command_names() -> list[str]:
    assert isinstance(main, click.Group)
    return main.list_commands(click.Context(main))


def options_of(name: str) -> set[str]:
    return {option for parameter in command(name).params for option in parameter.opts if option.startswith("--")}


def section(page: Path, title: str) -> str:
    """Return the text below a heading of the second level, up to the next one."""
    return re.split(r"^## ", text_of(page).partition(f"\n## {title}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def words_in_first_column(text: str) -> list[str]:
    return re.findall(r"^\| `(\w+)`[^|]*\|", text, re.MULTILINE)


def without_trailing_spaces(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.splitlines()).strip()


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Return what a link to the page may name after ``#``: explicit anchors, and headings as GitHub turns them into anchors."""
    text = CODE_BLOCK.sub("", text_of(page))
    anchors = set(EXPLICIT_ANCHOR.findall(text))
    for heading in HEADING.findall(text):
        words = LINK_AS_TEXT.sub(r"\1", heading).replace("`", "").lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        repetition = 0
        while (anchor := f"{slug}-{repetition}" if repetition else slug) in anchors:
            repetition += 1
        anchors.add(anchor)
    return frozenset(anchors)


def broken_links(page: Path) -> Iterator[str]:
    """Yield the relative links of the page that lead to no file, or to no anchor of that file."""
    text = INLINE_CODE.sub("", CODE_BLOCK.sub("", text_of(page)))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{link}: there is no such file"
        elif page != README and not target.is_relative_to(DOCS):
            yield f"{link}: the site has no such page"
        elif anchor and anchor not in anchors_of(target):
            yield f"{link}: the page has no such anchor"


def rule_anchors() -> set[str]:
    """Anchors of the pages that explain rules. The list of warning codes only leads to them."""
    return {anchor for page in (DOCS / "reference").glob("*.md") if page != WARNING_CODE_PAGE for anchor in anchors_of(page)}


@cache
def night_in_duckdb() -> Any:
    """Return the connection that the block with DuckDB makes, with every view. It is made while ./warehouse is the sample's."""
    namespace: dict[str, Any] = {"__name__": "docs"}
    exec(compile(next(block for block in blocks("python") if "import duckdb" in block), "docs", "exec"), namespace)
    return namespace["night"]


@pytest.fixture
def in_sample(sample_warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Provide the working directory holds the sample's ./warehouse."""
    monkeypatch.chdir(sample_warehouse.path.parent)
    return sample_warehouse


@pytest.fixture
def in_demo(demo_warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Provide the working directory holds the demo's ./warehouse."""
    monkeypatch.chdir(demo_warehouse.path.parent)
    return demo_warehouse


def printed_by(line: str) -> str:
    """Return what a command prints, without the id of a run and the directory of the warehouse."""
    printed = CliRunner().invoke(main, shlex.split(line)[1:])
    assert printed.exit_code == 0, printed.output
    of_run = r" --run \d{8}T\d{6}Z-[0-9a-f]{8}| --warehouse \S+/warehouse| --cluster shop"
    return without_trailing_spaces(re.sub(of_run, "", printed.output))


class TestPages:
    def test_readme_is_short(self) -> None:
        assert len(text_of(README).splitlines()) <= README_LINES

    @each_page
    def test_no_page_has_an_explicit_anchor_twice(self, page: Path) -> None:
        anchors = EXPLICIT_ANCHOR.findall(text_of(page))
        assert [anchor for anchor, count in Counter(anchors).items() if count > 1] == []

    @each_page
    def test_every_relative_link_leads_to_a_file_and_an_anchor(self, page: Path) -> None:
        assert list(broken_links(page)) == []

    def test_every_page_can_be_reached_from_the_readme(self) -> None:
        reached, to_follow = {README}, [README]
        while to_follow:
            page = to_follow.pop()
            targets = {(page.parent / link.partition("#")[0]).resolve() for link in LINK.findall(text_of(page)) if ".md" in link}
            to_follow += targets - reached
            reached |= targets
        assert {page for page in PAGES if page.name != "index.md"} <= reached

    def test_menu_of_the_site_has_every_page(self) -> None:
        menu = text_of(ROOT / "mkdocs.yml").partition("\nnav:\n")[2]
        in_menu = re.findall(r"([\w./-]+\.md)$", menu, re.MULTILINE)
        assert sorted(in_menu) == sorted(str(page.relative_to(DOCS)) for page in PAGES if page != README)

    def test_the_site_has_no_source_files_and_draws_nothing_by_another_hosts_script(self) -> None:
        config = text_of(ROOT / "mkdocs.yml")
        assert re.search(r"^exclude_docs: \|\n  \*\.py$", config, re.MULTILINE)
        assert "mermaid" not in config
        assert blocks("mermaid") == []


PLACE = re.compile(r"`([\w./-]+(?:\.py|/))`((?:(?:: |, (?! ))`(?!\w+\.py)[A-Za-z_][\w.]*`(?!:))*)")
"""A file or a folder, and the names that are to be looked for in it."""
KAFKA_NAMES = DOCS / "reference" / "kafka-names.md"


def names_in(source: Path) -> set[str]:
    """Return what a file defines: functions, classes and constants, and ``Class.method``."""
    tree = ast.parse(source.read_text(encoding="utf-8"))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


class TestPlacesInTheCode:
    @pytest.mark.parametrize(
        "page", [KAFKA_NAMES, DOCS / "contributing.md", DOCS / "explanation" / "architecture.md"], ids=lambda page: page.stem
    )
    def test_every_file_and_every_name_in_it_is_there(self, page: Path) -> None:
        places = PLACE.findall(written_by_hand(page))
        assert len(places) > 30
        for file, names in places:
            is_path = "/" in file.rstrip("/")
            found = next((path for path in ((PACKAGE / file, ROOT / file) if is_path else ROOT.rglob(file)) if path.exists()), None)
            assert found is not None, file
            if named := set(re.findall(r"`([\w.]+)`", names)):
                assert named <= names_in(found), file

    def test_every_request_of_the_simulator_has_its_function(self) -> None:
        rows = section(KAFKA_NAMES, "Requests").splitlines()
        for request, handler in simulator._HANDLERS.items():
            place = f"`{handler.__module__.removeprefix('groupcoord_spark.').replace('.', '/')}.py`"
            of_request = [row for row in rows if re.match(rf"\|[^|]*\b{request.__name__}\b[^|]*\|", row)]
            assert any(place in row and f"`{handler.__name__}`" in row for row in of_request), request.__name__


class TestGeneratedParts:
    @pytest.mark.parametrize("page", GENERATOR.GENERATED_PAGES, ids=lambda page: page.name)
    def test_page_is_what_make_reference_writes(self, page: Path) -> None:
        assert text_of(page) == GENERATOR.with_generated_parts(text_of(page))

    def test_every_part_stands_on_one_page(self) -> None:
        parts = [part[1] for page in PAGES for part in GENERATOR.GENERATED_PART.findall(text_of(page))]
        assert sorted(parts) == sorted(GENERATOR.parts())

    def test_every_option_of_every_command_is_in_the_reference(self) -> None:
        common = section(CLI, "Common options")
        for name in command_names():
            rows = re.findall(r"^\| `(--[^`]+)`", common + section(CLI, name), re.MULTILINE)
            assert options_of(name) <= set(re.findall(r"--[a-z-]+", " ".join(rows))), name

    def test_columns_by_which_tables_are_joined_exist(self) -> None:
        for left, right, _, columns in GENERATOR.RELATIONS:
            assert set(columns) <= set(TABLES[left].by_name) & set(TABLES[right].by_name), (left, right)

    def test_every_table_is_joined_to_another(self) -> None:
        assert {each for left, right, _, _ in GENERATOR.RELATIONS for each in (left, right)} >= set(TABLES) - {"decode_coverage"}

    def test_every_code_and_reason_has_an_anchor(self) -> None:
        codes = {*TABLES["warnings"].by_name["code"].words, *TABLES["quarantined_records"].by_name["reason"].words}
        assert {"tail_truncated", "R-2.4", "null_key"} <= codes
        assert sorted(code for code in codes if code.lower() not in anchors_of(WARNING_CODE_PAGE)) == []


class TestCommands:
    def test_commands_in_shell_blocks_take_the_options_they_are_given(self) -> None:
        named = list(commands_named())
        assert {"nightly", "list", "describe", "expire", "verify"} <= {name for name, _ in named}
        for name, words in named:
            command(name).make_context(name, words)

    def test_table_of_commands_lists_every_command(self) -> None:
        in_table = re.findall(r"^\| `groupcoord ([\w-]+)", section(CLI, "All commands"), re.MULTILINE)
        assert sorted(in_table) == sorted(command_names())

    @pytest.mark.parametrize("name", command_names())
    def test_remarks_on_a_command_name_its_options_only(self, name: str) -> None:
        remarks = GENERATOR.GENERATED_PART.sub("", section(CLI, name))
        assert set(re.findall(r"`(--[a-z-]+)", remarks)) - options_of(name) == set()

    def test_no_option_is_named_anywhere_that_does_not_exist(self) -> None:
        known = set.union(*map(options_of, command_names())) | OPTIONS_OF_OTHER_PROGRAMS
        assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", ALL_TEXT)) - known == set()

    def test_make_targets_exist(self) -> None:
        targets = set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
        named = set(re.findall(r"`make ([a-z]+)", ALL_TEXT)) | set(re.findall(r"^make ([a-z]+)$", "\n".join(blocks("bash")), re.MULTILINE))
        assert {"nightly", "test", "reference", "docs"} <= named <= targets

    def test_make_nightly_is_the_plain_line(self) -> None:
        plain = next(line for block in blocks("bash") for line in block.splitlines() if line.startswith(".venv/bin/groupcoord demo"))
        of_make = next(line for line in text_of(ROOT / "Makefile").splitlines() if "groupcoord demo" in line).strip()
        assert of_make.replace("@$(BIN)", ".venv/bin").replace("$(WAREHOUSE)", "./warehouse") == plain


THE_NIGHT_SHOWN = next(block for block in blocks("console", TUTORIAL) if block.startswith("$ groupcoord nightly"))


class TestOutput:
    @pytest.mark.parametrize(
        "block",
        [
            block
            for page in PAGES
            if page not in OF_THE_DEMO
            for block in blocks("console", page)
            if re.match(r"\$ groupcoord (list|describe|expire|export-offsets|timeline|why) ", block)
        ],
    )
    def test_commands_print_what_is_shown(self, in_sample: Any, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
        # It is the time of the sample's run, as for a reader of the pages: no command says that the run is old.
        monkeypatch.setattr("groupcoord_spark.cli.options.now_ms", lambda: in_sample.summary.as_of_ms)
        shown = re.split(r"^\$ ", block, flags=re.MULTILINE)
        for part in filter(None, shown):
            line, _, expected = part.partition("\n")
            assert printed_by(line) == without_trailing_spaces(expected)

    @pytest.mark.parametrize(
        "block", [block for page in OF_THE_DEMO for block in blocks("console", page) if "$ groupcoord nightly" not in block]
    )
    def test_commands_print_of_the_demo_what_is_shown(self, in_demo: Any, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("groupcoord_spark.cli.options.now_ms", lambda: NIGHTS[-1])
        for part in filter(None, re.split(r"^\$ ", block, flags=re.MULTILINE)):
            line, _, expected = part.partition("\n")
            assert printed_by(line) == without_trailing_spaces(expected)

    def test_answers_of_the_readme_are_those_of_the_demo(self, in_demo: Any) -> None:
        rows = re.findall(r"^\| [^|]+\? \| ([^|]+) \| `(groupcoord [^`]+)` \|$", text_of(README), re.MULTILINE)
        assert len(rows) == len(QUESTIONS)
        for answer, line in rows:
            printed = printed_by(line)
            assert [name for name in re.findall(r"`([\w-]+)`", answer) if name not in printed] == [], line
        behind, skipped = rows[1][0], rows[3][0]
        (records,) = re.findall(r"by (\d+) records", behind)
        assert re.search(rf"^shipping +{records} ", printed_by(rows[1][1]), re.MULTILINE)
        counts = json.loads(f"[{','.join(printed_by(rows[3][1] + ' --output json').splitlines())}]")
        assert f"{sum(row['records_skipped'] for row in counts)} of" in skipped

    @pytest.mark.parametrize("block", [block for block in blocks("console") if block.startswith("$ groupcoord doctor tests/")])
    def test_doctor_says_of_the_golden_logs_what_is_shown(self, block: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(ROOT)
        line, _, shown = block.removeprefix("$ ").partition("\n")
        printed = CliRunner().invoke(main, shlex.split(line)[1:]).stdout
        beginning, dots, rest = without_trailing_spaces(shown).rpartition("\n...")
        if dots:
            assert rest == ""
            assert without_trailing_spaces(printed).startswith(beginning)
        else:
            assert without_trailing_spaces(printed) == without_trailing_spaces(shown)

    def test_no_console_block_is_left_out(self) -> None:
        compared = r"\$ (groupcoord (list|describe|doctor|expire|export-offsets|timeline|why|verify|nightly|dump|morning)( |\n))"
        assert [block for block in blocks("console") if not re.match(compared, block)] == []

    def test_verify_says_of_the_sample_what_is_shown(self, in_sample: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        line, _, expected = next(block for block in blocks("console") if "groupcoord verify" in block).removeprefix("$ ").partition("\n")
        warehouse = str(in_sample.path)
        monkeypatch.chdir(ROOT)
        printed = CliRunner().invoke(main, [*shlex.split(line)[1:], "--warehouse", warehouse])
        assert (printed.exit_code, printed.stdout, printed.stderr) == (0, "", expected)

    def test_parts_of_a_file_of_answers_are_all_there(self) -> None:
        from groupcoord_spark.verification import Answers

        rows = "\n".join(
            line for line in section(DOCS / "how-to" / "verify.md", "A file of answers").splitlines() if line.startswith("| `")
        )
        assert {part.name for part in fields(Answers)} - {"source"} <= set(re.findall(r"`([a-z_]+)`", rows))

    def test_summary_of_nightly_is_the_one_shown(self, in_sample: Any) -> None:
        from groupcoord_spark.cli.run_summary import summary_text

        shown = [line for line in THE_NIGHT_SHOWN.splitlines() if line.startswith("  ")]
        summary = re.sub(r" --run \S+ --warehouse \S+ --cluster sample`", " --run …`", summary_text(in_sample.summary))
        assert shown == summary.strip("\n").splitlines()[1:]

    def test_stages_shown_are_those_of_a_run(self) -> None:
        shown = THE_NIGHT_SHOWN
        sources = [PACKAGE / "pipeline" / f"{name}.py" for name in ("run_nightly", "night")]
        calls = re.findall(r'\.begin\((".+")\)', "".join(source.read_text() for source in sources))
        named = [stage for call in calls for stage in re.findall(r'"(.+?)"', re.sub(r" if .+? else ", ", ", call))]
        assert [line[:24].rstrip() for line in shown.splitlines()[1:5]] == [
            stage for stage in dict.fromkeys(["plan", *named]) if stage not in OF_OTHER_INPUTS
        ]
        of_others = [block.split("\n\n")[0] for block in blocks("console") if "$ groupcoord nightly" in block]
        shown = {line[:24].rstrip() for block in of_others for line in block.splitlines() if line[0] != "$"}
        assert shown == set(named) - {"ask for end offsets", "publish"}


class TestBlocks:
    # tests/pipeline/test_run_nightly.py runs what starts a run.
    @pytest.mark.parametrize(
        "block",
        [block for block in blocks("python") if not re.search(r"(?<!groupcoord_)spark|groupcoord_spark\.dataframes|run_nightly\(", block)],
    )
    def test_python_without_spark_runs(self, in_sample: Any, block: str) -> None:
        exec(compile(block, "docs", "exec"), {"__name__": "docs"})

    @pytest.mark.parametrize("block", [block for block in blocks("python") if "spark = session()" in block])
    def test_python_with_spark_runs(self, spark: Any, block: str, capsys: pytest.CaptureFixture[str]) -> None:
        # The JVM does not follow when a test changes its directory.
        block = block.replace('"tests/golden/', f'"{ROOT}/tests/golden/')
        exec(compile(block, "docs", "exec"), {"__name__": "docs"})
        assert "app-nocommit" in capsys.readouterr().out

    @pytest.mark.parametrize("query", blocks("sql"))
    def test_sql_runs_in_duckdb(self, in_sample: Any, query: str) -> None:
        assert night_in_duckdb().sql(query).to_arrow_table().num_rows > 0

    def test_three_ways_of_asking_give_one_answer(self, in_sample: Any) -> None:
        duckdb_block = next(block for block in blocks("python") if "import duckdb" in block)
        pandas_block = next(block for block in blocks("python") if "import pandas" in block)
        namespace: dict[str, Any] = {"__name__": "docs"}
        exec(compile(duckdb_block + pandas_block, "docs", "exec"), namespace)
        query = re.search(r'"""(.*?)"""', duckdb_block, re.DOTALL)
        assert query is not None
        answer = namespace["night"].sql(query[1]).to_arrow_table().to_pylist()
        by_sql = {(row["group_id"], row["topic"]): row["partitions"] for row in answer}
        by_pandas = namespace["soon"].groupby(["group_id", "topic"]).size().to_dict()
        assert by_sql == by_pandas
        assert by_sql["app-expiring", "orders"] == 3

    def test_python_and_sql_run_in_spark_with_delta(
        self, spark_with_delta: Any, in_sample: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """Spark reads every table from Delta with the columns that tests/pipeline/test_views_alike.py gives the views in Spark.

        Queries then read the rows of a view, so that it is not planned again.
        """
        block = next(block for block in blocks("python") if "with_delta=True" in block)
        queries = blocks("sql")
        views_read = [view for view in VIEWS if re.search(rf"\b(FROM|JOIN) {view}\b", "".join(queries))]
        assert {"tombstone_causes", "rebalance_rate", "expiring", "offset_commits_resolved"} == set(views_read)
        # The JVM does not follow when a test changes its directory.
        namespace: dict[str, Any] = {"__name__": "docs"}
        with few_views(views_read):
            exec(compile(block.replace('"./warehouse"', repr(str(in_sample.path))), "docs", "exec"), namespace)
        for name, table in TABLES.items():
            assert namespace["spark"].table(name).schema.simpleString() == from_arrow_schema(table.arrow_schema).simpleString()
        for view in views_read:
            rows = night_in_duckdb().sql(f"FROM {view}").to_arrow_table()
            namespace["spark"].createDataFrame(rows).createOrReplaceTempView(view)
        scripts = [f"spark.sql({query!r}).show()\n" for query in queries]
        scripts += [block for block in blocks("python") if "expire(State(" in block]
        exec(compile("".join(scripts).replace('"./warehouse"', repr(str(in_sample.path))), "docs", "exec"), namespace)
        assert capsys.readouterr().out.count("+\n") >= 3 * (1 + len(scripts))


class TestScenarioLanguage:
    PAGE = DOCS / "reference" / "scenario-language.md"

    @pytest.mark.parametrize("scenario", blocks("yaml"))
    def test_scenario_shown_can_be_played(self, scenario: str, tmp_path: Path) -> None:
        (tmp_path / "shown.yaml").write_text(scenario, encoding="utf-8")
        played = CliRunner().invoke(main, ["simulate", str(tmp_path / "shown.yaml"), "--output", "json"])
        assert played.exit_code == 0, played.output
        assert "JoinGroup" in played.output


class TestWords:
    def test_every_rule_that_the_code_names_can_be_looked_up(self) -> None:
        rules = {rule for path in PACKAGE.rglob("*.py") for rule in RULE_ID.findall(path.read_text(encoding="utf-8"))}
        assert len(rules) > 60
        assert sorted(rule for rule in rules if rule.lower() not in rule_anchors()) == []

    def test_every_rule_that_a_page_names_can_be_looked_up(self) -> None:
        rules = {rule for page in PAGES for rule in RULE_ID.findall(text_of(page))}
        assert sorted(rule for rule in rules if rule.lower() not in rule_anchors()) == []

    def test_overview_names_every_table_once(self) -> None:
        rows = [line.split("|")[2] for line in section(TABLE_PAGE, "Kinds of tables").splitlines() if line.startswith("| ") and "`" in line]
        assert sorted(re.findall(r"`(\w+)`", "".join(rows))) == sorted(TABLES)

    def test_every_table_and_view_answers_a_question(self) -> None:
        answers = section(TABLE_PAGE, "Which table answers what?")
        assert {*TABLES, *VIEWS} <= set(re.findall(r"`(\w+)`", answers))

    def test_views_that_read_the_history_are_listed(self) -> None:
        long_tables, reading = {"offset_commits", "group_records"}, set[str]()
        for view, query in VIEWS.items():
            statement = re.sub("--.*", "", query)
            if (reading | long_tables) & set(re.findall(r"\b(?:FROM|JOIN) (\w+)", statement)):
                reading.add(view)
        beginning = text_of(DOCS / "reference" / "views.md").partition("\n## ")[0]
        assert {*reading, "completeness"} == set(re.findall(r"`(\w+)`", beginning.partition("Most views read")[2]))

    def test_table_of_views_lists_every_view(self) -> None:
        assert words_in_first_column(section(TABLE_PAGE, "Views")) == list(VIEWS)

    def test_rules_explained_are_those_of_the_tables(self) -> None:
        explained = set(re.findall(r"`(X-[A-Z]\d)`", section(TABLE_PAGE, "Rules of expiration in the tables")))
        words = {*TABLES["offset_expirations"].by_name["rule"].words, *TABLES["group_expirations"].by_name["rule"].words}
        assert explained == words

    def test_causes_explained_are_those_of_the_table(self) -> None:
        explained = words_in_first_column(section(DOCS / "reference" / "rebalances.md", "Rebalances"))
        assert explained == list(TABLES["rebalances"].by_name["cause"].words)

    @pytest.mark.parametrize("kind", CAUSES)
    def test_causes_of_offset_events_explained_are_those_of_the_judge(self, kind: str) -> None:
        explained = words_in_first_column(section(DOCS / "reference" / "offset-events.md", kind))
        assert explained == list(CAUSES[kind])
        assert {*CAUSES[kind]} <= {*TABLES["offset_events"].by_name["cause"].words}

    def test_traps_explained_are_columns(self) -> None:
        explained = words_in_first_column(section(DOCS / "how-to" / "what-if-retention.md", "Traps"))
        traps = [column.name for column in TABLES["offset_expirations"].columns if column.sentence.startswith("Trap:")]
        assert explained == traps

    def test_files_named_are_there(self) -> None:
        named = set(re.findall(r"(?<![\w/.])(?:tests|conf|jobs|notebooks|benchmarks)/[\w./-]*\w", ALL_TEXT))
        assert {"conf/spark-local.conf", "jobs/nightly.py", "notebooks/01_tour.py"} <= named
        assert [name for name in sorted(named) if not (ROOT / name).exists()] == []

    def test_files_of_the_package_named_are_there(self) -> None:
        named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*/[\w.-]*)`", ALL_TEXT))
        files = {name for name in named if name.endswith((".py", ".md", ".yaml"))}
        assert "protocol/definition.py" in files
        assert [name for name in sorted(files) if not (ROOT / name).exists() and not (PACKAGE / name).exists()] == []

    def test_golden_folders_named_are_there(self) -> None:
        paragraph = section(DOCS / "tutorial.md", "6. Go on").partition("dumps, too:")[2].partition("Read one")[0]
        folders = re.findall(r"`([a-z0-9.-]+)`", paragraph)
        assert {"kip848", "streams"} <= set(folders)
        assert [name for name in folders if not (ROOT / "tests/golden" / name / "logs").is_dir()] == []

    def test_jars_to_fetch_by_hand_are_of_the_release_that_is_fetched_otherwise(self) -> None:
        from groupcoord_spark.spark.session import delta_package

        _, artifact, version = delta_package().split(":")
        assert f"{artifact}-{version}.jar" in ALL_TEXT
