"""``groupcoord warnings``."""

from __future__ import annotations

import json

import pytest

from groupcoord_spark.warehouse import begin_run, commit_run
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, group, night, run_fields, written

PLACE = {"offsets_partition": 3, "record_offset": 70}


@pytest.fixture(scope="module")
def doubtful(tmp_path_factory):
    """Provide a run without doubts, and one with doubts of two codes and a quarantined record."""
    place = tmp_path_factory.mktemp("warnings")
    first = night(place, "prod", {})
    start = begin_run(str(place), "prod")
    doubts = [{"code": "R-2.4", "detail": f"member {n}", "group_id": f"g{n}", **PLACE, "record_offset": n} for n in range(3)]
    doubts.append({"code": "tail_truncated", "detail": "cut at 5", "source": "/dump/0.log", "position": 5})
    lost = {"reason": "value_truncated", "detail": "too short", **PLACE, "source": "/dump/3.log", "position": 9, "size": 12}
    rows = {"warnings": [{**row, "run_id": start.run_id} for row in doubts], "quarantined_records": [{**lost, "run_id": start.run_id}]}
    run = commit_run(
        start,
        run_fields(as_of_ms=AS_OF_MS + DAY_MS, records_read=1, records_quarantined=1),
        written(start, rows),
    )
    return str(place), first, run


def rows(*args):
    return [json.loads(line) for line in groupcoord("warnings", "--output", "json", *args).stdout.splitlines()]


def test_codes_come_with_a_count_a_sentence_and_an_example(doubtful):
    place, _, run = doubtful
    by_code = rows("--warehouse", place)
    assert [(row["code"], row["table"], row["count"]) for row in by_code] == [
        *(("R-2.4", "warnings", 3), ("tail_truncated", "warnings", 1), ("value_truncated", "quarantined_records", 1)),
    ]
    assert by_code[0]["meaning"].startswith("The subscription of a member cannot be read")
    assert (by_code[1]["source"], by_code[1]["position"], by_code[1]["group"]) == ("/dump/0.log", 5, None)
    assert by_code[2]["meaning"] and by_code[2]["record_offset"] == 70
    assert groupcoord("warnings", "--warehouse", place).stderr == f"Run {run.run_id}: 4 doubts, 1 row of quarantined_records.\n"


def test_the_table_names_a_place_for_each_code(doubtful):
    lines = groupcoord("warnings", "--warehouse", doubtful[0]).stdout.splitlines()
    assert lines[0].split() == ["CODE", "COUNT", "FOR", "EXAMPLE", "AT", "MEANING"]
    assert "/dump/0.log at byte 5" in lines[2] and "__consumer_offsets-3 at offset 70" in lines[3]


def test_one_code_shows_its_rows(doubtful):
    of_code = rows("--warehouse", doubtful[0], "--code", "R-2.4")
    assert [(row["group"], row["detail"], row["record_offset"]) for row in of_code] == [(f"g{n}", f"member {n}", n) for n in range(3)]
    (lost,) = rows("--warehouse", doubtful[0], "--code", "value_truncated")
    assert (lost["table"], lost["size"], lost["source"]) == ("quarantined_records", 12, "/dump/3.log")
    table = groupcoord("warnings", "--warehouse", doubtful[0], "--code", "R-2.4").stdout.splitlines()
    assert table[1].split() == ["__consumer_offsets-3", "at", "offset", "0", "g0", "member", "0"]


def test_a_group_has_its_own_doubts_only(doubtful):
    assert [(row["code"], row["count"]) for row in rows("--warehouse", doubtful[0], "--group", "g1")] == [("R-2.4", 1)]


def test_a_group_has_the_doubts_that_name_it_and_one_that_never_existed_is_refused(tmp_path):
    detail = "3 of 9 live keys of the last run lost their record (of 'gone', 'g+one')."
    night(tmp_path, "prod", {"groups": [group("gone"), group("g+one"), group("one")]})
    start = begin_run(str(tmp_path), "prod")
    doubts = [{"code": "keys_vanished", "detail": detail, "run_id": start.run_id}]
    commit_run(start, run_fields(as_of_ms=AS_OF_MS + DAY_MS), written(start, {"groups": [group("one")], "warnings": doubts}))
    for name, count in (("gone", 1), ("g+one", 1), ("one", 0)):
        assert len(rows("--warehouse", str(tmp_path), "--group", name)) == count, name
    refused = groupcoord("warnings", "--warehouse", str(tmp_path), "--group", "never")
    assert (refused.exit_code, "Group 'never' does not exist in cluster 'prod'" in refused.stderr) == (1, True)


def test_any_run_can_be_asked_for(doubtful):
    place, first, run = doubtful
    assert len(rows("--warehouse", place, "--run", run.run_id)) == 3
    assert rows("--warehouse", place, "--run", first.run_id) == []
    assert rows("--warehouse", place, "--at", "2026-01-01T12:00:00Z") == []


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--run", "none"], 1, "holds no run 'none' of cluster 'prod'"),
        (["--run", "none", "--at", "now"], 2, "--run names one run: leave --at and --look-back out."),
        (["--code", "R-99"], 2, "--code 'R-99' is not a code that a run writes."),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(doubtful, options, code, sentence):
    result = groupcoord("warnings", *options, "--warehouse", doubtful[0])
    assert (result.exit_code, sentence in result.stderr) == (code, True), result.stderr
