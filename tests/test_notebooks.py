"""Notebooks run from top to bottom on the sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jupytext
import pytest

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
    assert first.source.startswith('WAREHOUSE = "./warehouse"')


def test_every_section_asks_a_question_and_ends_in_a_sentence(notebook: Any) -> None:
    texts = cells_of(notebook, "markdown")
    headings = [at for at, text in enumerate(texts) if text.startswith("## ")]
    assert all(texts[at].splitlines()[0].endswith("?") for at in headings)
    closing = [texts[at - 1] for at in [*headings[1:], len(texts)]]
    assert all(text.endswith(".") and not text.startswith("#") for text in closing)


def test_every_cell_runs_on_the_sample(notebook: Any, sample_warehouse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.chdir(sample_warehouse.path.parent)  # ./warehouse is there
    namespace: dict[str, Any] = {"__name__": "notebook"}
    for number, source in enumerate(cells_of(notebook, "code"), 1):
        exec(compile(source, f"cell {number}", "exec"), namespace)
    assert len(namespace["groups"]) == sample_warehouse.summary.groups == 22
    assert len(namespace["offsets"]) == sample_warehouse.summary.committed_offsets
    assert namespace["expirations"]["expired"].sum() == sample_warehouse.summary.expired_offsets
    assert namespace["commits"]["commits"].sum() == 115
