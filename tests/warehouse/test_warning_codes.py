"""The codes of ``warnings`` that are documented are those that the package writes, found by looking at its sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from groupcoord_spark.log import CODES, DamageKind
from groupcoord_spark.sources.rows import ROW_CODES
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.warning_codes import WARNING_CODES
from tests.test_documentation import GENERATOR

PACKAGE = Path(__file__).parents[2] / "groupcoord_spark"

PLACE_OF_THE_CODE = {"doubt": 0, "doubt_record": 0, "Doubt": 0, "PlacedDoubt": 0, "same": 1, "refuse": 1, "LoadWarning": 2}
"""Function or class that makes a row of warnings, or an object that becomes one -> which of its arguments is the code."""

NEVER_WRITTEN = {"protocol/consumer_protocol.py"}
"""Where a Doubt is about a subscription or an assignment: no table has it."""

DECLARATIONS = {"log/damage.py", "sources/rows.py"}
"""Where codes are explained: standing there makes none of them a code that is written."""

RULE = re.compile(r"R-\d+\.\d+")
CODE = re.compile(r"[a-z0-9]+(_[a-z0-9]+)+")

WRITTEN_AS_THEY_ARE = {name: code for name, code in {**CODES, **ROW_CODES}.items() if code.kind is not DamageKind.LOST}
"""Codes with a declaration of their own that are not loss: they may be written through a variable."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(("warehouse/", "cli/", *NEVER_WRITTEN)):
            yield name, ast.parse(path.read_text(encoding="utf-8"))


def text_of(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def constants_of(tree: ast.Module) -> dict[str, ast.expr]:
    """Return the values that a file gives to names at its top."""
    assigned = (node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None)
    targets = ((node.targets[0] if isinstance(node, ast.Assign) else node.target, node.value) for node in assigned)
    return {target.id: value for target, value in targets if isinstance(target, ast.Name) and value is not None}


NAMED_CODES = constants_of(ast.parse((PACKAGE / "protocol" / "errors.py").read_text(encoding="utf-8")))
"""Codes that more than one file writes have a name there."""


def is_sentence(node: ast.expr, constants: Mapping[str, ast.expr]) -> bool:
    if isinstance(node, ast.Name):
        node = constants.get(node.id, node)
    last = node.values[-1] if isinstance(node, ast.JoinedStr) and node.values else node
    return (text_of(last) or "").endswith(".")


def called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id if isinstance(node.func, ast.Name) else ""


def codes_in(name: str, tree: ast.Module) -> Iterator[str]:
    """Codes in the arguments of calls, in rows, in tables of code and sentence, and rules of the loader wherever they stand."""
    constants = constants_of(tree)
    for node in ast.walk(tree):
        found: list[str | None] = []
        if isinstance(node, ast.Call) and len(node.args) > PLACE_OF_THE_CODE.get(called(node), 99):
            code = node.args[PLACE_OF_THE_CODE[called(node)]]
            named = code.id if isinstance(code, ast.Name) else code.attr if isinstance(code, ast.Attribute) else ""
            found = [text_of(NAMED_CODES.get(named, code))]
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found = [text_of(value) for key, value in pairs if key is not None and text_of(key) == "code"]
        elif isinstance(node, ast.Tuple) and any(is_sentence(each, constants) for each in node.elts):
            found = [text_of(node.elts[0])]  # a line of a table of codes and sentences, which a loop makes rows of
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_rule = RULE.fullmatch(node.value) and name.startswith("coordinator/")
            is_declared = node.value in WRITTEN_AS_THEY_ARE and name not in DECLARATIONS
            found = [node.value] if is_rule or is_declared else []
        yield from (code for code in found if code is not None and (RULE.fullmatch(code) or CODE.fullmatch(code)))


@cache
def codes_written() -> dict[str, set[str]]:
    written: dict[str, set[str]] = {}
    for name, tree in sources():
        for code in codes_in(name, tree):
            written.setdefault(code, set()).add(name)
    return written


def test_every_code_that_is_written_is_documented() -> None:
    losses = set(TABLES["quarantined_records"].by_name["reason"].words)
    undocumented = {code: files for code, files in codes_written().items() if code not in WARNING_CODES and code not in losses}
    assert undocumented == {}


def test_every_code_that_is_documented_is_written() -> None:
    assert [code for code in WARNING_CODES if code not in codes_written()] == []


def test_every_declared_code_that_is_no_loss_is_documented_in_the_same_words() -> None:
    assert {code: WARNING_CODES.get(code) for code in WRITTEN_AS_THEY_ARE} == {
        name: code.sentence for name, code in WRITTEN_AS_THEY_ARE.items()
    }


def test_a_new_code_in_any_of_the_forms_is_noticed() -> None:
    forms = {
        "log/order.py": 'report.doubt("new_code", 0, 0, None, "It is new.")',
        "log/directory.py": 'doubts.append(PlacedDoubt("new_code", "It is new.", source, None, 0, 0, None))',
        "protocol/definition.py": 'reader.doubt("new_code", "It is new.")',
        "protocol/consumer_protocol.py": 'reader.doubt(errors.BEYOND_LIMITS, "It is new.")',
        "protocol/columnar.py": 'doubts = (Doubt("new_code", detail),)',
        "coordinator/streams.py": 'self._check_group_can_go(group_id, "R-9.9")',
        "pipeline/outcome.py": 'rows.append({"run_id": run_id, "code": "new_code", "detail": sentence})',
        "pipeline/decode.py": 'notes = (("new_code", is_known & is_new, "It is new."),)',
        "pipeline/notes.py": 'NEW = "It is new."\nnotes = [("new_code", is_new, NEW)]',
        "pipeline/rows.py": 'doubts = [PlacedDoubt(code) for code, detail, count in (("new_code", f"{count} rows are new.", count),)]',
    }
    found = {name: set(codes_in(name, ast.parse(source))) for name, source in forms.items()}
    codes = {"coordinator/streams.py": "R-9.9", "protocol/consumer_protocol.py": "beyond_limits"}
    assert found == {name: {codes.get(name, "new_code")} for name in forms}


def test_the_column_and_its_reference_name_every_code() -> None:
    column = TABLES["warnings"].by_name["code"]
    assert column.words == tuple(WARNING_CODES)
    text = GENERATOR.tables_reference([TABLES["warnings"]])
    assert all(f"| `{code}` | {sentence} |" in text for code, sentence in WARNING_CODES.items())
    assert all(sentence.endswith(".") for sentence in WARNING_CODES.values())
