"""Makes the pictures of the documentation from the demo: `make nightly`, then `python -m docs.pictures ./warehouse`.

It needs a Chromium. The report says nothing of the present, so the same warehouse gives the same pictures, but for the machine's fonts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from groupcoord_spark.cli.demo import CLUSTER
from groupcoord_spark.report import gather, page
from groupcoord_spark.warehouse.read import open_warehouse
from tests.report.browser import BrowserPage, browser_command, browser_page

PICTURES = Path(__file__).parent / "how-to" / "pictures"


class Picture(NamedTuple):
    """One picture: its file, the look of the window, what is done on the page, and from where to where it reaches."""

    name: str
    width: int
    scheme: str
    height: int
    begins_at: str
    """CSS selector of the first element; the picture begins there."""
    script: str = "null"


ALL = (
    Picture("report-worst.png", 1000, "light", 560, "#worst"),
    Picture("report-owners.png", 1000, "light", 330, "#owners", "groupcoordReport.showOwners('search-indexer', true)"),
    Picture("report-table.png", 1000, "light", 330, "#table-groups", "groupcoordReport.openTable('groups', [['state', '=', 'Stable']])"),
    Picture("report-phone.png", 390, "dark", 760, "#groups"),
)


def take(tab: BrowserPage, report: Path, picture: Picture, folder: Path) -> None:
    """Writes one picture of the report into the folder."""
    tab.look_like(picture.width, 900, picture.scheme)
    tab.open(report)
    tab.run(f"Promise.resolve({picture.script}).then(() => new Promise((resolve) => setTimeout(resolve, 500)))")
    tab.run("document.activeElement.blur()")
    top = tab.place_of(picture.begins_at)["y"]
    tab.screenshot(folder / picture.name, {"x": 0, "y": max(0, top - 12), "width": picture.width, "height": picture.height})


def main(warehouse_uri: str) -> None:
    """Makes all pictures. Raises SystemExit where there is no browser."""
    command = browser_command()
    if command is None:
        raise SystemExit("There is no Chromium on this machine. On Debian and Ubuntu run: apt-get install chromium")
    warehouse = open_warehouse(warehouse_uri)
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, browser_page(command) as tab:
        report = Path(folder) / "report.html"
        report.write_text(page(gather(warehouse, warehouse.run(CLUSTER))), encoding="utf-8")
        for picture in ALL:
            take(tab, report, picture, PICTURES)
            print(f"{picture.name}: {(PICTURES / picture.name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
