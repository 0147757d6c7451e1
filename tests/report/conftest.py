"""A report of a small run with something of everything, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from groupcoord_spark.report import gather, page
from groupcoord_spark.report.gather import Report
from groupcoord_spark.warehouse.read import open_warehouse
from tests.report.browser import BrowserPage, browser_command, browser_page
from tests.report.nights import eventful


@pytest.fixture(scope="session")
def eventful_report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    place = tmp_path_factory.mktemp("report") / "warehouse"
    run = eventful(place)
    return gather(open_warehouse(str(place)), run)


@pytest.fixture(scope="session")
def eventful_page(eventful_report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "report.html"
    out.write_text(page(eventful_report), encoding="utf-8")
    return out


@pytest.fixture(scope="package")
def browser() -> Iterator[BrowserPage]:
    command = browser_command()
    if command is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    with browser_page(command) as tab:
        yield tab
