"""The rows and sentences of the report, on small warehouses."""

from __future__ import annotations

import base64
import gzip
import json
import re
from datetime import UTC, date, datetime
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from groupcoord_spark.report import gather, index, page
from groupcoord_spark.report.gather import Report
from groupcoord_spark.report.ownership import Ownership, ended, stretches
from groupcoord_spark.report.packing import packed_tables
from groupcoord_spark.report.tables import TABLES
from groupcoord_spark.warehouse.read import RETENTION_SETTING, open_warehouse
from tests.report.nights import HOSTILE, HOUR_MS, generation, offsets_partition
from tests.warehouse.nights import AS_OF_MS, DAY_MS, commit, group, night, offset


def packed_part(html: str, name: str) -> str:
    found = re.search(rf'<script type="text/plain" id="{name}">(.*?)</script>', html)
    assert found is not None
    return gzip.decompress(base64.b64decode(found[1])).decode()


def rows_in_page(html: str) -> dict[str, list[dict[str, Any]]]:
    """Table -> rows as the page reads them."""
    data = json.loads(packed_part(html, "data"))

    def value(kind: str, cell: Any) -> Any:
        return data["texts"][cell] if kind == "text" and cell is not None else cell

    return {
        table["name"]: [
            {column["name"]: value(column["kind"], cell) for column, cell in zip(table["columns"], cells, strict=True)}
            for cells in zip(*(column["cells"] for column in table["columns"]), strict=True)
        ]
        for table in data["tables"]
    }


class TestFindings:
    def test_the_worst_come_first_with_their_numbers(self, eventful_report: Report) -> None:
        found = [(f.kind.level, f.number, f.sentence) for f in eventful_report.findings if f.number]
        assert found == [
            ("danger", 1, "partition so far behind that the group is about to lose data"),
            ("danger", 1, "transaction open for an hour or more"),
            ("warning", 1, "committed offset lower than before"),
            ("warning", 1, "committed offset of a living group about to expire: no member subscribes to the topic"),
            ("warning", 3, "committed offsets of 3 groups about to expire within a day"),
            ("note", 8, "committed offsets of 8 groups about to expire"),
            ("note", 1, "topic with committed offsets and no reader"),
            ("note", 7, "groups without members"),
        ]

    def test_a_group_has_its_problems_and_comes_first(self, eventful_report: Report) -> None:
        first = eventful_report.tables["groups"].slice(0, 1).to_pylist()[0]
        assert first["group_id"] == "moves"
        assert first["problems"] == "about to lose data, live and loses offsets, open transaction, rewound, expires within 7 days"

    def test_the_number_in_the_page_is_a_link_to_its_rows(self, eventful_report: Report) -> None:
        html = page(eventful_report)
        link = '<a href="#table-lag" class="number" data-where="[[&quot;share_of_log&quot;,&quot;&gt;=&quot;,0.9]]">1</a>'
        assert link in html


class TestOwnership:
    def test_each_move_of_a_partition_ends_one_stretch_and_begins_another(self) -> None:
        records = [
            generation(0, 1000, {"one": {"orders": [0, 1]}}),
            generation(1, 2000, {"one": {"orders": [0]}, "two": {"orders": [1]}}),
            generation(2, 3000, {}),
        ]
        rows = [{**record, "at_ms": record["record_timestamp_ms"], "member_id": None} for record in records]
        found = {(s.topic, s.partition, s.member_id, s.from_ms, s.until_ms, s.record_offset) for s in stretches(rows, {})}
        assert found == {
            ("orders", 0, "one", 1000, 3000, 0),
            ("orders", 1, "one", 1000, 2000, 0),
            ("orders", 1, "two", 2000, 3000, 1),
        }

    def test_a_consumer_group_names_topics_by_id_and_a_member_keeps_what_it_must_give_up(self) -> None:
        def record(number: int, member: str, assigned: list[int], revoked: list[int]) -> dict[str, Any]:
            topics = {
                "assignedPartitions": [{"topicId": "T1", "partitions": assigned}],
                "partitionsPendingRevocation": [{"topicId": "T1", "partitions": revoked}],
            }
            place = {"group_id": "g", "offsets_partition": 0, "incarnation": 0, "record_offset": number, "at_ms": number}
            return {**place, "key_type": 8, "member_id": member, "value_json": json.dumps(topics)}

        rows = [record(1, "one", [0, 1], []), record(2, "one", [0], [1]), record(3, "two", [1], []), record(4, "one", [0], [])]
        found = sorted((s.topic, s.partition, s.member_id, s.from_ms, s.until_ms) for s in stretches(rows, {"T1": "orders"}))
        assert found == [("orders", 0, "one", 1, None), ("orders", 1, "one", 1, 4), ("orders", 1, "two", 3, None)]

    def test_what_members_had_ends_where_the_group_begins_anew(self) -> None:
        def record(incarnation: int, at_ms: int, member: str, group_id: str = "g") -> dict[str, Any]:
            value = {"assignedPartitions": [{"topicId": "T1", "partitions": [0]}], "partitionsPendingRevocation": []}
            place = {"group_id": group_id, "offsets_partition": 0, "incarnation": incarnation, "record_offset": at_ms}
            return {**place, "at_ms": at_ms, "key_type": 8, "member_id": member, "value_json": json.dumps(value)}

        rows = [record(0, 1, "one"), record(1, 5, "two"), record(0, 7, "three", "h")]
        found = sorted((s.group_id, s.member_id, s.from_ms, s.until_ms) for s in stretches(rows, {"T1": "orders"}))
        assert found == [("g", "one", 1, 5), ("g", "two", 5, None), ("h", "three", 7, None)]

    def test_an_end_without_a_time_is_an_end(self) -> None:
        # Records before Kafka 0.10 have no timestamps.
        generations = generation(0, 0, {"one": {"orders": [0]}}), generation(1, 0, {"two": {"orders": [0]}})
        rows = [{**record, "at_ms": None, "member_id": None} for record in generations]
        found = [(s.member_id, s.from_ms, s.until_ms, s.is_current) for s in stretches(rows, {})]
        assert found == [("one", None, None, False), ("two", None, None, True)]

    def test_a_member_that_the_night_does_not_have_has_no_partition_whatever_its_last_record_says(self) -> None:
        # The tombstone was written and cleaned between two runs.
        one, two = (Ownership("g", "orders", 0, member, at_ms, None, True, 0, at_ms) for member, at_ms in (("one", 10), ("two", 20)))
        alone = Ownership("h", "orders", 0, "one", 10, None, True, 0, 10)
        found = [(s.group_id, s.member_id, s.until_ms, s.is_current) for s in ended([one, two, alone], {("g", "two")})]
        assert found == [("g", "one", 20, False), ("g", "two", None, True), ("h", "one", None, False)]

    def test_the_report_has_the_stretches_of_the_chosen_groups(self, eventful_report: Report) -> None:
        owners = eventful_report.tables["owners"].select(["partition", "member_id", "owned_from", "owned_until"]).to_pylist()
        hours = [
            (
                row["partition"],
                row["member_id"],
                *(
                    moment and (moment.timestamp() * 1000 - AS_OF_MS + 2 * DAY_MS) / HOUR_MS
                    for moment in (row["owned_from"], row["owned_until"])
                ),
            )
            for row in owners
        ]
        assert hours == [(0, "one", 0, 24), (0, "two", 24, None), (1, "one", 0, 1), (1, "two", 1, 24), (1, "one", 24, None)]


class TestDaysOfGroups:
    def test_the_last_record_of_a_day_gives_the_state(self, eventful_report: Report) -> None:
        rows = [row for row in eventful_report.tables["group_days"].to_pylist() if row["group_id"] == "moves"]
        assert [(row["day"], row["state"], row["rebalances"], row["commits"]) for row in rows] == [
            (date(2025, 12, 30), "members", 2, 4),
            (date(2025, 12, 31), "members", 1, 2),
        ]

    def test_a_group_that_the_night_does_not_have_is_gone(self, tmp_path: Path) -> None:
        # A group that had vanished was painted as one with members up to the day of the run.
        commits = [commit(1, committed_offset=9, group_id="vanished"), commit(2, committed_offset=3, group_id="there")]
        night(tmp_path, "prod", {"groups": [group("there")], "offset_commits": commits})
        warehouse = open_warehouse(str(tmp_path))
        days = gather(warehouse, warehouse.run("prod")).tables["group_days"].to_pylist()
        last = {row["group_id"]: row["state"] for row in sorted(days, key=lambda row: row["day"])}
        assert last == {"vanished": "gone", "there": None}


class TestExpiry:
    def test_the_calendar_counts_the_rows_of_the_table(self, eventful_report: Report) -> None:
        days = eventful_report.tables["expiring_days"].to_pylist()
        goes = eventful_report.tables["expiring"].to_pylist()
        assert sum(row["offsets"] for row in days) == sum(row["offsets"] for row in goes) == 8
        assert days[0] == {"day": date(2026, 1, 1), "offsets": 2, "groups_with_offsets": 2, "groups_removed": 0}
        assert [row["days_left"] for row in goes[:2]] == [0, 0.5]


class TestPacking:
    def test_numbers_beyond_those_of_javascript_and_every_text_come_back(self, eventful_report: Report) -> None:
        tables = rows_in_page(page(eventful_report))
        assert {row["group_id"] for row in tables["groups"]} == {"moves", *HOSTILE}
        lag = {row["group_id"]: row for row in tables["lag"]}
        assert lag["=1+1"]["committed_offset"] == str(2**63 - 1)
        assert tables["nights"][0]["as_of"] == AS_OF_MS
        assert tables["expiring_days"][0]["day"] == (date(2026, 1, 1) - date(1970, 1, 1)).days

    def test_a_long_table_is_cut_and_says_how_many_rows_there_are(self) -> None:
        rows = {table.name: pa.table({"n": pa.array([], pa.int64())}) for table in TABLES}
        rows["groups"] = pa.table({"n": list(range(20_001))})
        groups = next(table for table in packed_tables(rows, {})["tables"] if table["name"] == "groups")
        assert (groups["all_rows"], len(groups["columns"][0]["cells"])) == (20_001, 20_000)


class TestPage:
    def test_no_text_of_the_topic_is_html(self, eventful_report: Report) -> None:
        html = page(eventful_report)
        for text in HOSTILE:
            assert escape(text) == text or text not in html
        assert "<title>prod &lt;/title&gt;, 2026-01-01 00:00 UTC: consumer groups</title>" in html

    def test_the_same_report_gives_the_same_page(self, eventful_report: Report) -> None:
        assert page(eventful_report) == page(eventful_report)

    def test_the_library_is_in_the_page_and_nothing_is_asked_for(self, eventful_report: Report) -> None:
        html = page(eventful_report)
        assert "window.vegaEmbed=" in packed_part(html, "library")
        assert "default-src 'none'" in html and "unsafe-eval" not in html
        assert not re.findall(r'(?:src|href)="(?!#|data:,)', html)


def report_of(place: Path, rows: dict[str, list[dict[str, Any]]], **fields: Any) -> Report:
    run = night(place, "prod", rows, as_of_ms=AS_OF_MS, **fields)
    return gather(open_warehouse(str(place)), run)


@pytest.mark.parametrize(("retention_ms", "shown"), [(DAY_MS, "1 d"), (60_000, "1 min"), (36 * HOUR_MS, "1 d 12 h")])
def test_the_retention_is_told_in_units_that_fit_it(retention_ms: int, shown: str, tmp_path: Path) -> None:
    assert f", offsets retention {shown}</dd>" in page(report_of(tmp_path / "w", {}, settings={RETENTION_SETTING: str(retention_ms)}))


class TestWhatANightLacks:
    def test_an_empty_warehouse(self, tmp_path: Path) -> None:
        html = page(report_of(tmp_path / "w", {}))
        assert "The offsets topic was empty: there is nothing to show but the runs." in html

    def test_no_history_and_no_log_ends(self, tmp_path: Path) -> None:
        without = offsets_partition(5, history_first_offset=None, history_end_offset=None)
        report = report_of(
            tmp_path / "w", {"groups": [group("g")], "committed_offsets": [offset("g", "t", 0, 1)], "offsets_partitions": [without]}
        )
        html = page(report)
        assert "This warehouse has no history" in html and "No lag: this run has no log ends" in html
        assert "no history</a><small></small>" in html  # in place of the completeness
        lacking = {table["name"] for table in json.loads(packed_part(html, "data"))["tables"] if table["lacks"]}
        assert lacking == {table.name for table in TABLES if table.needs in ("history", "log_ends")}
        assert "Could not be looked for: 6" in html

    def test_a_history_that_ends_early(self, tmp_path: Path) -> None:
        html = page(report_of(tmp_path / "w", {"offsets_partitions": [offsets_partition(9, history_end_offset=5)]}))
        assert "The history ends before the log does" in html

    def test_a_compacted_history_gives_lower_bounds(self, tmp_path: Path) -> None:
        from tests.warehouse.nights import commit

        commits = [commit(0, committed_offset=9), commit(3, committed_offset=2)]
        report = report_of(tmp_path / "w", {"offset_commits": commits, "offsets_partitions": [offsets_partition(4)]})
        assert report.completeness == 0.5
        html = page(report)
        assert "The history has 50 % of all records ever written" in html and ">≥ 1</a>" in html

    def test_an_earlier_night_is_shown_as_it_was(self, tmp_path: Path) -> None:
        place = tmp_path / "w"
        first = night(place, "prod", {"groups": [group("early")]}, as_of_ms=AS_OF_MS)
        night(place, "prod", {"groups": [group("late")]}, as_of_ms=AS_OF_MS + DAY_MS)
        report = gather(open_warehouse(str(place)), first)
        assert report.tables["groups"]["group_id"].to_pylist() == ["early"]
        assert report.tables["nights"].num_rows == 1
        assert datetime.fromtimestamp(AS_OF_MS / 1000, UTC).strftime("%Y-%m-%d") in page(report)


def test_what_is_new_comes_first_and_gone_groups_are_named(tmp_path: Path) -> None:
    night(tmp_path / "w", "prod", {"groups": [group("stays"), group("goes")]}, as_of_ms=AS_OF_MS)
    run = night(tmp_path / "w", "prod", {"groups": [group("stays")]}, as_of_ms=AS_OF_MS + DAY_MS)
    report = gather(open_warehouse(str(tmp_path / "w")), run)
    assert [one.groups for one in report.morning.news] == [["goes"]]
    assert report.trends["groups"] == [2, 1]
    text = page(report)
    assert text.index('id="news"') < text.index('id="worst"')
    assert '<a href="#group/goes"><bdi>goes</bdi></a>' in text
    assert "groupcoord diff --only gone --from " in text and f"--group goes --warehouse {tmp_path}/w --cluster prod</code>" in text
    assert 'aria-label="2 runs: 2, 1"' in text


def test_findings_of_the_doctor_and_every_group_are_on_the_page(tmp_path: Path) -> None:
    texts = {"copy": "/dump", "summary": "It hangs.", "evidence": "{}", "since_ms": AS_OF_MS, "read_at_ms": AS_OF_MS}
    found = [{"finding": name, "severity": word, **texts} for name, word in (("hanging_transaction", "sick"), ("not_due", "normal"))]
    groups = [group("idle"), group("live", member_count=1), group("simple", is_simple=True)]
    night(tmp_path, "prod", {"groups": groups, "topic_health": found})
    warehouse = open_warehouse(str(tmp_path))
    report = gather(warehouse, warehouse.run("prod"))
    sentences = [finding.sentence for finding in report.findings if finding.kind.table == "health"]
    assert sentences[0] == "finding of the doctor that someone must act on"
    assert report.tables["health"]["finding"].to_pylist() == ["hanging_transaction"]
    days = report.tables["group_days"].to_pylist()
    assert {row["group_id"]: row["state"] for row in days} == {"idle": "empty", "live": "members", "simple": None}


def test_a_point_in_time_run_is_compared_with_the_runs_before_its_as_of(tmp_path: Path) -> None:
    for day, names in ((1, "a"), (3, "abc")):
        night(tmp_path, "prod", {"groups": [group(name) for name in names]}, as_of_ms=AS_OF_MS + day * DAY_MS)
    night(tmp_path, "prod", {"groups": [group("b")]}, kind="point_in_time", as_of_ms=AS_OF_MS + 2 * DAY_MS)
    warehouse = open_warehouse(str(tmp_path))
    report = gather(warehouse, warehouse.run("prod", look_back=True))
    assert report.morning.since is not None and report.morning.since.as_of_ms == AS_OF_MS + DAY_MS
    assert report.morning.gone_groups == {"a": "not_known"} and report.trends["groups"] == [1, 1]
    assert '"news"' in page(report) and "Since the run of 2026-01-02" in page(report)


def test_the_index_names_every_cluster_the_worst_first(tmp_path: Path) -> None:
    night(tmp_path / "w", "b<c>", {"groups": [group("goes")]}, as_of_ms=AS_OF_MS)
    for cluster in ("a", "b<c>"):
        night(tmp_path / "w", cluster, {}, as_of_ms=AS_OF_MS + DAY_MS)
    warehouse = open_warehouse(str(tmp_path / "w"))
    text = index([(f"{cluster}.html", gather(warehouse, warehouse.run(cluster))) for cluster in ("a", "b<c>")])
    assert text.index("b&lt;c&gt;") < text.index('href="a.html"') and "b%3Cc%3E.html" in text
