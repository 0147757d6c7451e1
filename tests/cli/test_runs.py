"""``groupcoord runs``, and the line that says which run a command shows."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, group, night

WARNING = {"code": "tail_truncated", "detail": "cut"}
LOST = {"reason": "value_truncated", "detail": "too short"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs, and a point-in-time run after them."""
    place = tmp_path_factory.mktemp("runs")
    first = night(place, "prod", {"groups": [group("a")]}, records_read=5, records_decoded=5)
    doubts = [{**WARNING, "run_id": "x"}] * 3
    rows = {"groups": [group("a"), group("b")], "warnings": doubts, "quarantined_records": [{**LOST, "run_id": "x"}]}
    second = night(place, "prod", rows, as_of_ms=AS_OF_MS + DAY_MS, records_read=9, records_decoded=8, records_quarantined=1)
    past = night(place, "prod", {}, as_of_ms=AS_OF_MS - DAY_MS, kind="point_in_time", settings={"until": "2025-12-31T00:00:00Z"})
    return str(place), [past.run_id, second.run_id, first.run_id]


def test_runs_are_listed_newest_first_with_their_figures(runs):
    place, run_ids = runs
    rows = [json.loads(line) for line in groupcoord("runs", "--output", "json", "--warehouse", place).stdout.splitlines()]
    assert [row["run_id"] for row in rows] == run_ids
    assert [row["kind"] for row in rows] == ["point_in_time", "nightly", "nightly"]
    assert [(row["groups"], row["warnings"], row["records_read"], row["records_quarantined"]) for row in rows] == [
        *((0, 0, 0, 0), (2, 3, 9, 1), (1, 0, 5, 0)),
    ]
    assert (rows[1]["as_of"], rows[1]["inputs"], rows[1]["is_kept"]) == ("2026-01-02T00:00:00.000Z", ["/dump"], True)


def test_runs_as_a_table_and_as_csv(runs):
    place, run_ids = runs
    lines = groupcoord("runs", "--warehouse", place).stdout.splitlines()
    assert lines[0].split() == ["AS-OF", "KIND", "RUN", "INPUT", "RECORDS", "QUARANTINED", "DOUBTS", "GROUPS", "VERSION", "TABLES"]
    assert lines[2].split()[:8] == ["2026-01-02T00:00:00.000Z", "nightly", run_ids[1], "segments", "9", "1", "3", "2"]
    rows = list(csv.DictReader(io.StringIO(groupcoord("runs", "--output", "csv", "--warehouse", place).stdout)))
    assert [row["run_id"] for row in rows] == run_ids


@pytest.mark.parametrize(
    ("hours_later", "options", "line"),
    [
        (1, [], ""),
        (36, [], ""),
        (37, [], "run of 2026-01-02T00:00Z, 37 hours ago\n"),
        (73, [], "run of 2026-01-02T00:00Z, 3 days ago\n"),
        (73, ["--quiet"], ""),
        (1, ["--at", "2026-01-01T12:00:00Z"], "run of 2026-01-01T00:00Z, 25 hours ago\n"),
    ],
)
@pytest.mark.parametrize("command", [["list"], ["describe", "--all-groups", "--state"]])
def test_a_command_says_which_night_it_shows_if_it_is_old_or_not_the_newest(place, monkeypatch, command, hours_later, options, line):
    now_ms = AS_OF_MS + DAY_MS + hours_later * 3_600_000
    monkeypatch.setattr("groupcoord_spark.cli.options.now_ms", lambda: now_ms)
    result = groupcoord(*command, *options, "--warehouse", place)
    assert (result.exit_code, [text for text in result.stderr.splitlines(keepends=True) if "run of" in text]) == (0, [line] * bool(line))
