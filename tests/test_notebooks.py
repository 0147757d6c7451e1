"""Notebooks run from top to bottom on the sample, as a user runs them: converted, by a kernel in their own directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat
import pytest

from docs.notebooks import MOST_BYTES, PICTURE, cells_of_text, pictures_of
from groupcoord_spark.warehouse.sql import names_in
from groupcoord_spark.warehouse.view_texts import VIEWS
from tests.conftest import FOR_FEW_ROWS, SampleWarehouse

pytestmark = pytest.mark.process

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
    assert first.source.startswith("LOGS = ")


def test_every_section_asks_a_question_and_ends_in_a_sentence(notebook: Any) -> None:
    texts = cells_of(notebook, "markdown")
    headings = [at for at, text in enumerate(texts) if text.startswith("## ")]
    assert all(texts[at].splitlines()[0].endswith("?") for at in headings)
    closing = [texts[at - 1] for at in [*headings[1:], len(texts)]]
    assert all(text.endswith(".") and not text.startswith("#") for text in closing)


def test_no_cell_is_about_a_linter(notebook: Any) -> None:
    assert not [cell for cell in notebook.cells if cell.cell_type == "raw" or "noqa" in cell.source]


def test_times_come_from_what_decode_gives(notebook: Any) -> None:
    # A bronze table may have Kafka's columns: only what ``decode`` gives has record_timestamp_ms in any case.
    assert not [source for source in cells_of(notebook, "code") if "raw.agg(" in source]


@pytest.mark.parametrize("text", NOTEBOOKS, ids=lambda path: path.stem)
def test_what_renders_has_the_cells_of_the_text_with_what_they_gave(text: Path) -> None:
    file = text.with_suffix(".ipynb")
    notebook = nbformat.read(file, as_version=4)
    columns = ("id", "cell_type", "source", "metadata")
    told = "run `make notebooks`"
    assert [[cell[name] for name in columns] for cell in notebook.cells] == [
        [cell[name] for name in columns] for cell in cells_of_text(text).cells
    ], told
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert "error" not in {output.output_type for output in outputs}
    assert pictures_of(notebook) and any("text/html" in output.get("data", {}) for output in outputs), told
    written = file.read_text(encoding="utf-8")
    assert len(written) <= MOST_BYTES and str(text.parents[1]) not in written


def test_the_picture_of_the_documentation_is_the_first_of_its_notebook() -> None:
    name, picture = PICTURE
    notebook = nbformat.read(NOTEBOOKS[0].with_name(f"{name}.ipynb"), as_version=4)
    assert pictures_of(notebook)[0] == picture.read_bytes()


FACTS_OF_LOGS = {
    "01_tour": "import json; print(json.dumps([len(groups), int(of_kinds['records'].sum()), len(expiring)]))",
    "02_where_did_my_offsets_go": "import json; print(json.dumps(int(losers.agg(F.sum('deleted_offsets')).first()[0])))",
    "03_rebalances": "import json; print(json.dumps(int(most['rebalances'].sum())))",
    "04_retention": "import json; print(json.dumps(counts['offsets'].tolist()))",
    "05_answers": "import json; print(json.dumps([story.conclusion, sorted(rewound['group_id'])]))",
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory, demo_warehouse: SampleWarehouse) -> dict[str, Any]:
    """Notebook -> what its cell of ``FACTS_OF_LOGS`` prints after all its cells, as JSON.

    The notebooks run one after the other in one kernel, where Spark starts once, for few rows. Each finds no name of the one before.
    """
    directory = tmp_path_factory.mktemp("notebooks")
    start = f"from groupcoord_spark.spark.session import session; session(settings={FOR_FEW_ROWS})"
    together, last = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(start)]), {}
    for name, facts in FACTS_OF_LOGS.items():
        jupytext.write(jupytext.read(NOTEBOOKS[0].with_name(f"{name}.py")), directory / f"{name}.ipynb")
        cells = nbformat.read(directory / f"{name}.ipynb", as_version=4).cells
        first = next(cell for cell in cells if cell.cell_type == "code")
        first.source = first.source.replace("../tests", str(NOTEBOOKS[0].parents[1] / "tests"))
        first.source = first.source.replace("../demo-logs", str(demo_warehouse.path.with_name("demo-logs")))
        together.cells += [nbformat.v4.new_code_cell("%reset -f"), *cells, nbformat.v4.new_code_cell(facts)]
        last[name] = (len(together.cells) - len(cells) - 1, len(together.cells))
    nbclient.NotebookClient(together, kernel_name="python3", resources={"metadata": {"path": str(directory)}}).execute()
    for begin, end in last.values():
        outputs = [output for cell in together.cells[begin:end] for output in cell.get("outputs", ())]
        assert any("image/png" in output.get("data", {}) for output in outputs)
    return {name: json.loads(together.cells[end - 1].outputs[0]["text"]) for name, (_, end) in last.items()}


def test_notebooks_run_on_any_log_by_their_first_line(found: dict[str, Any]) -> None:
    groups, records, expiring = found["01_tour"]
    assert (groups, records, expiring) == (12, 2610, 4)
    assert found["02_where_did_my_offsets_go"] == 2
    assert found["03_rebalances"] > 5
    under_7_days, under_1_day = found["04_retention"]
    assert 0 < under_7_days < under_1_day
    conclusion, rewound = found["05_answers"]
    assert conclusion.startswith("Group van-")
    empty = ["van-rewound-empty-classic"] * 2 + ["van-rewound-empty-consumer"] * 2
    assert rewound == ["van-live-classic", "van-live-consumer", *empty, *["van-rewound-simple"] * 2]


def test_every_view_has_a_cell_in_the_notebook_of_answers() -> None:
    statements = "\n".join(cells_of(jupytext.read(NOTEBOOKS[0].with_name("05_answers.py")), "code"))
    helpers = {"offset_commits_resolved", "record_positions"}
    assert helpers == set(VIEWS) - set(names_in(statements))
