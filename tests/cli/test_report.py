"""``groupcoord report``."""

from __future__ import annotations

import pytest

from groupcoord_spark.warehouse.read import open_warehouse
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, group, night


def test_the_page_is_written_and_named(place, tmp_path):
    out = tmp_path / "report.html"
    result = groupcoord("report", "--out", str(out), "--warehouse", place)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"{out}: 0.5 MB. Open it in a browser.\n"
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_an_earlier_night_and_one_run(place, tmp_path):
    out = tmp_path / "report.html"
    result = groupcoord("report", "--out", str(out), "--at", "2026-01-01T00:00:00Z", "--warehouse", place)
    assert result.stderr.startswith("run of 2026-01-01T00:00Z")
    assert 'Run of <time datetime="2026-01-01T00:00:00+00:00">' in out.read_text(encoding="utf-8")
    first = open_warehouse(place).finished_runs("prod")[0]
    before = out.read_bytes()
    assert groupcoord("report", "--out", str(out), "--run", first.run_id, "--quiet", "--warehouse", place).stderr == ""
    assert out.read_bytes() == before


def test_groups_for_the_timelines_are_names_or_patterns(place, tmp_path):
    out = tmp_path / "report.html"
    assert groupcoord("report", "--out", str(out), "--group", "pla*", "--group", "idle", "--quiet", "--warehouse", place).exit_code == 0
    result = groupcoord("report", "--out", str(out), "--group", "plane", "--warehouse", place)
    assert result.exit_code == 1
    assert "Group 'plane' does not exist" in result.stderr and "Did you mean 'plain'?" in result.stderr


def test_a_file_that_cannot_be_written_is_named_before_the_tables_are_read(place, tmp_path, monkeypatch):
    monkeypatch.setattr("groupcoord_spark.report.gather", lambda *_: pytest.fail("the tables are read"))
    out = tmp_path / "nowhere" / "report.html"
    result = groupcoord("report", "--out", str(out), "--warehouse", place)
    assert result.exit_code == 2
    assert result.stderr.endswith(f"Error: {out} cannot be written: No such file or directory. Name another file.\n")


def test_several_clusters_ask_for_one(tmp_path):
    for cluster in ("east", "west"):
        night(tmp_path / "w", cluster, {"groups": [group("g")]}, as_of_ms=AS_OF_MS)
    result = groupcoord("report", "--out", str(tmp_path / "r.html"), "--warehouse", str(tmp_path / "w"))
    assert result.exit_code == 2
    assert "Name one with --cluster." in result.stderr
    result = groupcoord("report", "--all-clusters", "--out", str(tmp_path / "r.html"), "--warehouse", str(tmp_path / "w"))
    assert result.stderr == f"{tmp_path / 'r.html'}: the index of 2 pages. Open it in a browser.\n"
    assert {file.name for file in tmp_path.glob("*.html")} == {"r.html", "r-east.html", "r-west.html"}
    assert 'href="r-west.html"' in (tmp_path / "r.html").read_text(encoding="utf-8")
