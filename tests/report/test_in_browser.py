"""The page in a headless Chromium: what is drawn and listed is what the tables have, and nothing complains or asks a network."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.report import gather, page
from groupcoord_spark.report.gather import Report
from groupcoord_spark.warehouse.read import open_warehouse
from tests.report.browser import BrowserPage
from tests.report.many_groups import build
from tests.report.nights import HOSTILE, LONG, generation, offsets_partition
from tests.warehouse.nights import AS_OF_MS, DAY_MS, commit, group, member, night

SIZES = pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")])


def marks(browser: BrowserPage, chart: str, layer: str) -> int:
    """Marks of a layer of a picture that can be seen."""
    found: int = browser.run(f"document.querySelectorAll(`[data-chart={chart}] g[class*='{layer}_marks'] > *`).length")
    return found


def table_texts(browser: BrowserPage, name: str) -> list[list[str]]:
    """Return the cells of the rows that a table shows."""
    rows = f"[...document.querySelectorAll('#table-{name} tbody tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    found: list[list[str]] = browser.run(rows)
    return found


def nothing_is_wrong(browser: BrowserPage) -> None:
    assert browser.complaints() == []
    assert browser.requests() == []
    assert browser.run("document.getElementById('failure').hidden")


@SIZES
def test_pictures_have_a_mark_for_each_row(
    browser: BrowserPage, eventful_page: Path, eventful_report: Report, width: int, scheme: str
) -> None:
    browser.look_like(width, 900, scheme)
    browser.open(eventful_page)
    nothing_is_wrong(browser)
    rows = {name: table.num_rows for name, table in eventful_report.tables.items()}
    assert marks(browser, "calendar", "goes") == rows["expiring_days"] == 7
    assert marks(browser, "calendar", "days") == 14
    # moves on three days; every other group has one commit, on the day before the run, and stays as it was on the run's
    assert marks(browser, "group_days", "states") == 3 + 2 * len(HOSTILE)
    assert marks(browser, "group_days", "rebalances") == 2
    assert marks(browser, "ownership", "owned") == rows["owners"] == 5
    assert marks(browser, "ownership", "commits") == 6
    assert marks(browser, "ownership", "jumps") == rows["rewinds"] + rows["skips"] == 1
    assert marks(browser, "lag", "lags") == 1
    assert marks(browser, "commit_hours", "hours") == rows["commit_hours"] == 4
    assert marks(browser, "group_templates", "templates") == rows["group_templates"] == 1 + len(HOSTILE)


def test_pictures_of_the_demo_have_dates_and_legends(browser: BrowserPage, demo_warehouse: Any, tmp_path: Path) -> None:
    warehouse = open_warehouse(str(demo_warehouse.path))
    (tmp_path / "shop.html").write_text(page(gather(warehouse, warehouse.run("shop"))), encoding="utf-8")
    browser.look_like(1000, 900)
    browser.open(tmp_path / "shop.html")
    browser.run("groupcoordReport.showOwners('search-indexer', true)")
    nothing_is_wrong(browser)
    texts = {
        chart: browser.run(f"[...document.querySelectorAll('[data-chart={chart}] text')].map((text) => text.textContent)")
        for chart in ("group_days", "lag_history", "ownership")
    }
    assert {"09 Nov", "20 Nov", "members", "gone"} <= set(texts["group_days"])
    assert {"newsletter-mailer", "shipping", "ledger"} <= set(texts["lag_history"]) and "checkout" not in texts["lag_history"]
    # the first label has its day, also where it is an hour
    assert any(text.startswith("06:00") and text.endswith("18 Nov") for text in texts["lag_history"])
    assert {"went back", "skipped records"} <= set(texts["ownership"])
    assert marks(browser, "ownership", "jumps") == 3


@SIZES
def test_the_page_is_as_wide_as_its_window(browser: BrowserPage, eventful_page: Path, width: int, scheme: str) -> None:
    browser.look_like(width, 900, scheme)
    browser.open(eventful_page)
    browser.run("[...groupcoordReport.views.values()].forEach((view) => view.open())")
    assert browser.run("document.documentElement.scrollWidth") == width


def test_every_table_lists_its_rows(browser: BrowserPage, eventful_page: Path, eventful_report: Report) -> None:
    browser.look_like(1280, 900)
    browser.open(eventful_page)
    browser.run("[...groupcoordReport.views.values()].forEach((view) => view.open())")
    for name, rows in eventful_report.tables.items():
        assert len(table_texts(browser, name)) == rows.num_rows, name
    nothing_is_wrong(browser)


def test_each_number_of_the_findings_opens_as_many_rows(browser: BrowserPage, eventful_page: Path, eventful_report: Report) -> None:
    browser.open(eventful_page)
    expected = [finding.rows for finding in eventful_report.findings if finding.number]
    shown = browser.run(
        "[...document.querySelectorAll('#worst a.number')].map((link) => { link.click();"
        " return document.querySelectorAll(`${link.getAttribute('href')} tbody tr`).length; })"
    )
    assert shown == expected
    nothing_is_wrong(browser)


def test_hostile_group_ids_are_texts(browser: BrowserPage, eventful_page: Path) -> None:
    browser.look_like(1280, 900)
    browser.open(eventful_page)
    browser.run("groupcoordReport.openTable('groups')")
    shown = {row[0] for row in table_texts(browser, "groups")}
    assert {"(empty)", "=1+1", "bell\\x07 and turn\\u202e around", "${title} %s {{ datum }} datum.name"} <= shown
    assert all(len(text) <= 48 for text in shown)
    assert any(text.startswith("long-xxx") and "…" in text for text in shown)
    browser.look_like(390, 844)
    browser.open(eventful_page)
    browser.run("groupcoordReport.openTable('groups')")
    assert max(len(row[0]) for row in table_texts(browser, "groups")) == 20  # the next columns are seen, too
    assert browser.run("document.title").startswith("prod </title>")
    assert browser.run("document.querySelectorAll('main img').length") == 0
    nothing_is_wrong(browser)


def test_a_table_is_sorted_filtered_and_saved(browser: BrowserPage, eventful_page: Path) -> None:
    browser.open(eventful_page)
    browser.run("groupcoordReport.openTable('expiring')")
    first_to_go = [row[4] for row in table_texts(browser, "expiring")]
    assert first_to_go == sorted(first_to_go)
    browser.run("[...document.querySelectorAll('#table-expiring th button')].find((head) => head.textContent === 'first at').click()")
    assert [row[4] for row in table_texts(browser, "expiring")] == sorted(first_to_go, reverse=True)
    assert browser.run("document.querySelector('#table-expiring th[aria-sort]').getAttribute('aria-sort')") == "descending"
    _type(browser, "expiring", "MOVES")
    assert [row[0] for row in table_texts(browser, "expiring")] == ["moves"]
    assert browser.run("document.querySelector('#table-expiring .count').textContent") == "1 of 8 rows"
    _type(browser, "expiring", "")
    lines = browser.run("groupcoordReport.views.get('expiring').csv()").split("\n")
    assert lines[0].startswith("group_id,topic,what,offsets,first_at,")
    assert len(lines) == 1 + 8 + 1
    assert "'=1+1,orders,offsets,1,2026-01-04T00:00:00.000Z," in "\n".join(lines)
    assert any(line.startswith(f"{LONG},orders") for line in lines)


def test_a_condition_can_be_removed(browser: BrowserPage, eventful_page: Path) -> None:
    browser.open(eventful_page)
    browser.run("groupcoordReport.openTable('expiring', [['live_group_loses', '=', true]])")
    assert len(table_texts(browser, "expiring")) == 1
    browser.run("document.querySelector('#table-expiring .chip').click()")
    assert len(table_texts(browser, "expiring")) == 8


def test_another_group_is_chosen_for_the_owners(browser: BrowserPage, eventful_page: Path) -> None:
    browser.open(eventful_page)
    browser.run("groupcoordReport.showOwners('=1+1', true) && new Promise((resolve) => setTimeout(resolve, 300))")
    assert (marks(browser, "ownership", "owned"), marks(browser, "ownership", "commits")) == (0, 1)
    assert "only commits are known" in browser.run("document.querySelector('[data-chart=ownership] .said').textContent")
    nothing_is_wrong(browser)


@SIZES
def test_a_group_has_a_page_of_its_own(browser: BrowserPage, eventful_page: Path, width: int, scheme: str) -> None:
    browser.look_like(width, 900, scheme)
    browser.open(eventful_page, "#group/moves")
    nothing_is_wrong(browser)
    assert browser.run("document.documentElement.scrollWidth") == width
    said = browser.run("document.getElementById('group').innerText")
    assert "Group moves" in said and "2 members" in said
    assert "groupcoord why --group moves --warehouse " in said and "--cluster 'prod </title>'" in said
    shown = browser.run(
        "Object.fromEntries([...document.querySelectorAll('#group details')].map((d) => [d.id, d.querySelectorAll('tbody tr').length]))"
    )
    assert (shown["group-members"], shown["group-offsets"], shown["group-events"]) == (2, 2, 4)
    assert not browser.run("document.getElementById('news').getClientRects().length")
    browser.run("location.hash = '#news', new Promise((resolve) => setTimeout(resolve, 300))")
    assert browser.run("document.getElementById('group').hidden && document.getElementById('news').getClientRects().length")


@pytest.mark.parametrize("group_id", HOSTILE)
def test_a_group_with_a_hostile_name_has_a_page_too(browser: BrowserPage, eventful_page: Path, group_id: str) -> None:
    browser.open(eventful_page)
    browser.run(
        f"location.hash = '#group/' + encodeURIComponent({json.dumps(group_id)}), new Promise((resolve) => setTimeout(resolve, 300))"
    )
    assert browser.run("document.querySelectorAll('#group-offsets tbody tr').length") == 1
    assert browser.run("document.documentElement.scrollWidth") == browser.run("document.documentElement.clientWidth")
    nothing_is_wrong(browser)


def test_a_gone_group_and_a_former_member_lead_to_what_is_known_of_them(browser: BrowserPage, tmp_path: Path) -> None:
    rows: dict[str, Any] = {"offset_commits": [commit(2, group_id="moves")], "offsets_partitions": [offsets_partition(3)]}
    rows["group_records"] = [generation(0, AS_OF_MS, {"former": {"orders": [0]}}), generation(1, AS_OF_MS + 1, {"new": {"orders": [0]}})]
    texts = {"copy": "/dump", "summary": ".", "evidence": "{}", "since_ms": AS_OF_MS, "read_at_ms": AS_OF_MS, "severity": "sick"}
    rows["topic_health"] = [{"offsets_partition": 0, "finding": "cleaning_blocked_by_open_transaction", **texts}]
    night(tmp_path / "w", "prod", {"groups": [group("goes"), group("moves")]}, as_of_ms=AS_OF_MS)
    rows |= {"groups": [group("moves")], "members": [member("moves", "new")]}
    run = night(tmp_path / "w", "prod", rows, as_of_ms=AS_OF_MS + DAY_MS)
    (tmp_path / "page.html").write_text(page(gather(open_warehouse(str(tmp_path / "w")), run, ["moves"])), encoding="utf-8")
    browser.look_like(390, 900)
    browser.open(tmp_path / "page.html", "#group/goes")
    said = browser.run("document.getElementById('group').innerText")
    assert "It was there in the run of 2026-01-01 00:00:00Z. The history has no record of its removal" in said
    browser.run("location.hash = '#news', new Promise((resolve) => setTimeout(resolve, 300))")
    # A reason of 36 letters does not widen the page.
    assert browser.run("document.documentElement.scrollWidth") == 390
    find = "(() => { const i = document.querySelector('#find input'); i.value = 'former'; i.dispatchEvent(new Event('input')); })()"
    browser.run(f"{find}, document.querySelector('#find li button').click()")
    assert [row[3] for row in table_texts(browser, "owners")] == ["former"]
    browser.run("groupcoordReport.openTable('health')")
    assert table_texts(browser, "health")[0][0] == "cleaning_blocked_by_open_transaction"
    nothing_is_wrong(browser)


def test_one_field_finds_groups_topics_clients_and_hosts(browser: BrowserPage, eventful_page: Path) -> None:
    browser.look_like(390, 900)
    browser.open(eventful_page)

    def found(text: str) -> list[str]:
        script = (
            f"(() => {{ const i = document.querySelector('#find input'); i.value = {json.dumps(text)}; i.dispatchEvent(new Event('input'));"
        )
        names: list[str] = browser.run(script + " return [...document.querySelectorAll('#find li')].map((li) => li.innerText); })()")
        return names

    assert found("MOV")[0] == "movesgroup"
    assert found("orders")[0] == "orderstopic"
    assert found("no such")[0] == "Nothing on this page has these letters."
    found("orders")
    browser.run("document.querySelector('#find li button').click()")
    assert table_texts(browser, "topic_readers") != []


def test_a_wide_table_says_that_it_scrolls(browser: BrowserPage, eventful_page: Path) -> None:
    browser.look_like(390, 900)
    browser.open(eventful_page)
    browser.run("groupcoordReport.openTable('groups'), new Promise((resolve) => setTimeout(resolve, 300))")
    assert browser.run("document.querySelector('#table-groups .scroll').classList.contains('more')")
    browser.run("(document.querySelector('#table-groups .scroll').scrollLeft = 1e6, new Promise((resolve) => setTimeout(resolve, 300)))")
    assert not browser.run("document.querySelector('#table-groups .scroll').classList.contains('more')")


def test_a_link_to_a_table_opens_it(browser: BrowserPage, eventful_page: Path) -> None:
    browser.open(eventful_page, "#table-completeness")
    assert len(table_texts(browser, "completeness")) == 1
    browser.run("location.hash = '#table-rewinds', new Promise((resolve) => setTimeout(resolve, 300))")
    assert len(table_texts(browser, "rewinds")) == 1


def test_every_control_has_a_name_and_headings_are_in_order(browser: BrowserPage, eventful_page: Path) -> None:
    browser.look_like(1280, 900)
    browser.open(eventful_page)
    browser.run("[...groupcoordReport.views.values()].forEach((view) => view.open())")
    tree = browser.ask("Accessibility.getFullAXTree")["nodes"]
    controls = [node for node in tree if node.get("role", {}).get("value") in ("button", "link", "searchbox", "combobox", "table", "image")]
    assert len(controls) > 50
    assert [node["role"]["value"] for node in controls if not node.get("name", {}).get("value")] == []
    levels = [int(name[1]) for name in browser.run("[...document.querySelectorAll('h1, h2, h3')].map((head) => head.tagName)")]
    assert levels[0] == 1 and all(after <= before + 1 for before, after in pairwise(levels))


CONTRAST = """(() => {
  const light = (text) => {
    const parts = text.match(/[\\d.]+/g).map((part) => part / 255);
    const [r, g, b] = parts.map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const color = getComputedStyle(at).backgroundColor;
      if (color !== "rgba(0, 0, 0, 0)") return color;
    }
    return "rgb(255, 255, 255)";
  };
  const low = [];
  for (const node of document.querySelectorAll("body *:not(script, style, svg, svg *)")) {
    if (![...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()) || !node.getClientRects().length) continue;
    const [one, other] = [light(getComputedStyle(node).color), light(ground(node))].sort((a, b) => b - a);
    if ((one + 0.05) / (other + 0.05) < 4.5) low.push(`${node.tagName} ${node.textContent.trim().slice(0, 30)}`);
  }
  return low;
})()"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_have_the_contrast_of_wcag_aa(browser: BrowserPage, eventful_page: Path, scheme: str) -> None:
    browser.look_like(1280, 900, scheme)
    browser.open(eventful_page)
    assert browser.run(CONTRAST) == []


def test_a_night_without_anything_says_so(browser: BrowserPage, tmp_path: Path) -> None:
    without = offsets_partition(5, history_first_offset=None, history_end_offset=None)
    run = night(tmp_path / "w", "prod", {"groups": [group("g")], "offsets_partitions": [without]}, as_of_ms=AS_OF_MS)
    out = tmp_path / "report.html"
    out.write_text(page(gather(open_warehouse(str(tmp_path / "w")), run)), encoding="utf-8")
    browser.open(out)
    nothing_is_wrong(browser)
    said = browser.run(
        "Object.fromEntries([...document.querySelectorAll('figure')]"
        ".map((figure) => [figure.dataset.chart, figure.querySelector('.said').textContent]))"
    )
    assert said["calendar"] == "Nothing goes while every group stays as it is."
    for name in ("group_days", "ownership", "commit_hours"):
        assert said[name].startswith("This warehouse has no history")
    assert said["lag"].startswith("This run has no log ends")


@pytest.fixture(scope="module")
def large_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("large")
    build(place / "warehouse")
    warehouse = open_warehouse(str(place / "warehouse"))
    out = place / "report.html"
    out.write_text(page(gather(warehouse, warehouse.run("large"))), encoding="utf-8")
    return out


def test_ten_thousand_groups_fit_into_three_megabytes(large_page: Path) -> None:
    assert large_page.stat().st_size < 3_000_000


def test_ten_thousand_groups_are_shown(browser: BrowserPage, large_page: Path) -> None:
    browser.look_like(390, 844)
    browser.open(large_page)
    nothing_is_wrong(browser)
    browser.run("groupcoordReport.openTable('groups')")
    assert browser.run("document.querySelector('#table-groups .count').textContent") == "10,000 of 10,000 rows"
    assert len(table_texts(browser, "groups")) == 25
    browser.run("groupcoordReport.openTable('lag')")
    carried = browser.run("document.querySelector('#table-lag .count').textContent")
    assert carried == "20,000 of 20,000 rows; the page carries the first 20,000 rows of 30,000"


def _type(browser: BrowserPage, table: str, text: str) -> None:
    found: Any = browser.run(
        f"(() => {{ const field = document.querySelector('#table-{table} input'); field.value = {json.dumps(text)};"
        " field.dispatchEvent(new Event('input')); return true; })()"
    )
    assert found
