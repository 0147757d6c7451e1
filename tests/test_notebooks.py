"""Notebooks run from top to bottom on the sample, as a user runs them: converted, by a kernel in their own directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat
import pytest

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.warehouse import find_warehouse

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.py"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request: pytest.FixtureRequest) -> Any:
    return jupytext.read(request.param)


def cells_of(notebook: Any, kind: str) -> list[str]:
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


def test_title_is_a_question(notebook: Any) -> None:
    title = cells_of(notebook, "markdown")[0].splitlines()[0]
    assert title.startswith("# ")
    assert title.endswith("?")


def test_first_code_cell_holds_the_parameters(notebook: Any) -> None:
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    assert first.metadata.get("tags") == ["parameters"]
    assert first.source.startswith("WAREHOUSE = None")


def test_every_section_asks_a_question_and_ends_in_a_sentence(notebook: Any) -> None:
    texts = cells_of(notebook, "markdown")
    headings = [at for at, text in enumerate(texts) if text.startswith("## ")]
    assert all(texts[at].splitlines()[0].endswith("?") for at in headings)
    closing = [texts[at - 1] for at in [*headings[1:], len(texts)]]
    assert all(text.endswith(".") and not text.startswith("#") for text in closing)


FACTS = """
print(json.dumps([len(groups), len(offsets), int(expirations["expired"].sum()), int(commits["commits"].sum())]))
"""


def test_the_notebook_found_no_warehouse_from_its_own_directory(
    notebook: Any, sample_warehouse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GROUPCOORD_WAREHOUSE", raising=False)
    directory = tmp_path / "notebooks"
    directory.mkdir()
    (tmp_path / "warehouse").symlink_to(sample_warehouse.path)
    jupytext.write(notebook, directory / "notebook.ipynb")
    converted = nbformat.read(directory / "notebook.ipynb", as_version=4)
    converted.cells.append(nbformat.v4.new_code_cell(FACTS))
    nbclient.NotebookClient(converted, kernel_name="python3", resources={"metadata": {"path": str(directory)}}).execute()
    groups, offsets, expired, commits = json.loads(converted.cells[-1].outputs[0]["text"])
    summary = sample_warehouse.summary
    assert (groups, offsets, expired) == (summary.groups, summary.committed_offsets, summary.expired_offsets)
    assert (groups, commits) == (22, 115)


def test_the_nearest_warehouse_is_found_from_below(sample_warehouse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GROUPCOORD_WAREHOUSE", raising=False)
    below = tmp_path / "warehouse" / "more"  # a directory of that name that is none is passed by
    below.mkdir(parents=True)
    with pytest.raises(WarehouseError, match=r"There is no warehouse in a directory 'warehouse' of .*more or above\. Run `make nightly`"):
        find_warehouse(below)
    (below / "warehouse").symlink_to(sample_warehouse.path)
    assert find_warehouse(below) == str(below / "warehouse")
    monkeypatch.setenv("GROUPCOORD_WAREHOUSE", "s3://bucket/elsewhere")
    assert find_warehouse(below) == "s3://bucket/elsewhere"
