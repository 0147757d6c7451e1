"""The allowed imports: the layers of rooms, and the modules that start without Spark, pandas or numpy."""

from __future__ import annotations

import ast
import logging
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from groupcoord_spark.spark.session import SETTINGS

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "groupcoord_spark"

SPARK = {"pyspark", "py4j", "delta"}
STORAGE = {"deltalake", "duckdb"}
NUMBERS = {"numpy", "pandas", "pyarrow"}


class Import(NamedTuple):
    """One imported module, and where. at_runtime: not under TYPE_CHECKING; at_start: when the file is imported, not in a function."""

    file: str
    line: int
    module: str
    at_runtime: bool
    at_start: bool

    @property
    def room(self) -> str | None:
        """Of ours: the room or module below the package."""
        parts = self.module.split(".")
        return parts[1] if parts[0] == PACKAGE.name and len(parts) > 1 else None


def imports_of(path: Path) -> Iterator[Import]:
    file = str(path.relative_to(ROOT))

    def visit(node: ast.AST, at_runtime: bool, at_start: bool) -> Iterator[Import]:
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = path.relative_to(ROOT).with_suffix("").parts[: -node.level] if node.level else ()
            source = ".".join([*above, *filter(None, [node.module])])
            # `from groupcoord_spark import pipeline` names a room.
            modules = [f"{source}.{name.name}" for name in node.names] if source == PACKAGE.name else [source]
        for module in modules:
            yield Import(file, node.lineno, module, at_runtime, at_start)  # type: ignore[attr-defined]
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, False, at_start)
            for child in node.orelse:
                yield from visit(child, at_runtime, at_start)
            return
        in_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, at_runtime, at_start and not in_function)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")), True, True)


def imports_in(room: str) -> list[Import]:
    return [each for path in sorted((PACKAGE / room).rglob("*.py")) for each in imports_of(path)]


def told(imports: list[Import]) -> list[str]:
    return [f"{each.file}:{each.line} imports {each.module}" for each in imports]


def test_arrows_run_one_way() -> None:
    # The contracts are in pyproject.toml, [tool.importlinter]; `lint-imports` prints the same report.
    from importlinter.cli import lint_imports

    loggers = [each for each in logging.Logger.manager.loggerDict.values() if isinstance(each, logging.Logger)]
    before = [each.disabled for each in loggers]
    try:
        assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True) == 0
    finally:  # import-linter disables every logger that there is
        for each, was_disabled in zip(loggers, before, strict=True):
            each.disabled = was_disabled


def test_every_room_is_in_a_layer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == {room.strip() for layer in contracts[0]["layers"] for room in layer.split("|")}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions count too. Imports for types alone do not: nothing is loaded by them."""
    from grimp import build_graph

    graph = build_graph(PACKAGE.name, exclude_type_checking_imports=True)
    imported = {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}
    while leaves := [name for name, targets in imported.items() if not targets & imported.keys()]:
        for name in leaves:
            del imported[name]
    while ends := imported.keys() - set().union(*imported.values()):
        for name in ends:
            del imported[name]
    assert {name: sorted(targets & imported.keys()) for name, targets in imported.items()} == {}


def test_definitions_of_protocol_do_without_numpy() -> None:
    names = ("fields", "primitives", "definition", "errors", "partitioner", "consumer_protocol")
    definitions = [PACKAGE / "protocol" / f"{name}.py" for name in names]
    definitions += sorted((PACKAGE / "protocol" / "messages").glob("*.py"))
    found = [each for path in definitions for each in imports_of(path)]
    assert told([each for each in found if each.module.split(".")[0] in NUMBERS]) == []


def test_warehouse_starts_without_spark() -> None:
    found = [each for each in imports_in("warehouse") if each.module.split(".")[0] in SPARK]
    assert told([each for each in found if each.at_runtime and each.at_start]) == []


def test_list_and_describe_start_without_spark_and_pandas() -> None:
    found = [each for name in ("list", "describe", "options", "render") for each in imports_of(PACKAGE / "cli" / f"{name}.py")]
    slow = SPARK | {"pandas"}
    assert told([each for each in found if each.at_runtime and (each.module.split(".")[0] in slow or each.room == "pipeline")]) == []


def test_nobody_imports_cli_but_jobs_and_main() -> None:
    others = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] not in ("cli", "__main__.py")]
    assert told([each for path in others for each in imports_of(path) if each.room == "cli"]) == []


def test_jobs_start_a_command_and_nothing_else() -> None:
    found = [each for path in sorted((ROOT / "jobs").glob("*.py")) for each in imports_of(path)]
    assert {each.room for each in found if each.module.startswith(PACKAGE.name)} == {"cli"}


def test_spark_local_conf_holds_the_settings_of_a_local_session() -> None:
    lines = (ROOT / "conf" / "spark-local.conf").read_text(encoding="utf-8").splitlines()
    pairs = (line.split(None, 1) for line in lines if line.strip() and not line.startswith("#"))
    assert {name: value.strip() for name, value in pairs} == SETTINGS


@pytest.mark.parametrize("name", ["spark-local.conf", "spark-cluster.conf"])
def test_commented_delta_lines_are_those_of_a_session_with_delta(name: str) -> None:
    from groupcoord_spark.spark.session import delta_settings

    lines = (ROOT / "conf" / name).read_text(encoding="utf-8").splitlines()
    offered = dict(line.removeprefix("# ").split(None, 1) for line in lines if line.startswith(("# spark.jars.packages", "# spark.sql.")))
    assert offered.items() <= delta_settings().items()


def test_property_tests_take_the_shared_profile() -> None:
    """Its examples are the same in each run, or as many more as GROUPCOORD_EXAMPLES says, and a failure prints how to repeat it."""
    own = re.compile(r"(?<!\w)settings\((?!PROFILE|examples\()[^)]*(?:max_examples|deadline|print_blob|derandomize)")
    paths = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "examples.py"]
    assert [str(path.relative_to(ROOT)) for path in paths if own.search(path.read_text(encoding="utf-8"))] == []
