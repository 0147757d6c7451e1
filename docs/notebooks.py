"""Runs the notebooks on the logs in their first lines and keeps them as they look then, beside their texts.

``make notebooks`` runs all of them, ``python -m docs.notebooks NAME...`` some.
A notebook is written as ``notebooks/NAME.py``; ``notebooks/NAME.ipynb`` has the same cells with what they gave. Cells, numbers and pictures
are the same each time, but for run ids and what the machine's fonts and libraries make of a picture.
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

import jupytext
import nbclient
import nbformat

from groupcoord_spark.cli.demo import unpack

ROOT = Path(__file__).parents[1]
NOTEBOOKS = ROOT / "notebooks"
MOST_BYTES = 300_000
PICTURE = ("02_where_did_my_offsets_go", ROOT / "docs" / "how-to" / "pictures" / "notebook.png")
"""The notebook whose first picture the documentation shows, and the file of the picture."""


def cells_of_text(text: Path) -> Any:
    """Return the notebook of a text, its cells numbered, so that a notebook that is made again has the same ids."""
    notebook = jupytext.read(text)
    notebook.metadata = nbformat.from_dict({"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}})
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"
    return notebook


def executed(text: Path) -> Any:
    """Run the notebook; return it with the output of its cells. Raises nbclient's CellExecutionError for a cell that fails."""
    notebook = cells_of_text(text)
    place = {"metadata": {"path": str(text.parent)}}
    nbclient.NotebookClient(notebook, kernel_name="python3", resources=place, record_timing=False).execute()
    for cell in notebook.cells:
        outputs = [output for output in cell.get("outputs", ()) if output.get("name") != "stderr"]
        if "outputs" in cell:
            cell.outputs = outputs
    notebook.metadata.pop("widgets", None)
    notebook.metadata["language_info"] = {"name": "python"}
    return notebook


def pictures_of(notebook: Any) -> list[bytes]:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [base64.b64decode(output.data["image/png"]) for output in outputs if "image/png" in output.get("data", {})]


if __name__ == "__main__":
    unpack(ROOT / "demo-logs")
    for text in [NOTEBOOKS / f"{name}.py" for name in sys.argv[1:]] or sorted(NOTEBOOKS.glob("*.py")):
        notebook = executed(text)
        written = nbformat.writes(notebook, version=4) + "\n"
        if len(written) > MOST_BYTES:
            sys.exit(f"{text.stem}: {len(written):,} bytes, more than {MOST_BYTES:,}. Show fewer rows, or smaller pictures.")
        text.with_suffix(".ipynb").write_text(written, encoding="utf-8")
        if text.stem == PICTURE[0]:
            PICTURE[1].write_bytes(pictures_of(notebook)[0])
        print(f"{text.stem}.ipynb", f"{len(written):,} bytes")
