"""Reading commands show runs, and a point-in-time run where they are asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import Result

from groupcoord_spark.warehouse import open_warehouse
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, commit, group, night, offset
from tests.warehouse.test_two_runs import newest_rows, rows_of_readers


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, then a point-in-time run between them, and another cluster that has a point-in-time run alone."""
    place = tmp_path_factory.mktemp("look-backs") / "w"
    for number in (1, 3):
        offsets = [offset(f"g{number}", "t", 0, number)]
        rows = {"groups": [group(f"g{number}")], "committed_offsets": offsets, "offset_commits": [commit(number)]}
        night(place, "prod", rows, as_of_ms=AS_OF_MS + number * DAY_MS)
    doubts = [{"run_id": "r", "code": "other_topic", "detail": "d"}]
    past = {"groups": [group("g2")], "committed_offsets": [offset("g2", "t", 0, 2)], "warnings": doubts}
    night(place, "prod", past, kind="point_in_time", as_of_ms=AS_OF_MS + 2 * DAY_MS)
    night(place, "other", {"groups": [group("o")]}, kind="point_in_time")
    return place


def groups(warehouse: Path, *options: str) -> list[str]:
    return groupcoord("list", "--warehouse", str(warehouse), "--cluster", "prod", *options).stdout.split()


def test_without_options_the_newest_night_is_shown(warehouse: Path) -> None:
    assert groups(warehouse) == ["g3"]
    assert groups(warehouse, "--at", str(AS_OF_MS + 2 * DAY_MS)) == ["g1"]


def test_a_look_back_is_shown_where_it_is_asked_for(warehouse: Path) -> None:
    run_id = open_warehouse(str(warehouse)).run("prod", look_back=True).run_id
    for options in (["--look-back"], ["--look-back", "--at", str(AS_OF_MS + 9 * DAY_MS)], ["--run", run_id]):
        assert groups(warehouse, *options) == ["g2"]
    told = groupcoord("describe", "--all-groups", "--warehouse", str(warehouse), "--cluster", "prod", "--look-back").stdout
    assert "g2" in told and "g3" not in told


def test_a_look_back_is_compared_with_an_earlier_night_and_its_trends_end_with_itself(warehouse: Path) -> None:
    opened = open_warehouse(str(warehouse))
    first, last = (night.run_id for night in opened.finished_runs("prod") if night.kind == "nightly")
    past = opened.run("prod", look_back=True)
    assert [night.run_id for night in opened.kept_runs(past)] == [first]
    assert [night.run_id for night in opened.kept_runs(opened.run("prod", run_id=last))] == [first, last]
    told = groupcoord("morning", "--look-back", "--warehouse", str(warehouse), "--cluster", "prod")
    assert "since that of 2026-01-02" in told.stderr and "g1" in told.stdout and "g3" not in told.stdout


def test_what_is_not_there_is_said(warehouse: Path) -> None:
    def refused(cluster: str, *options: str) -> str:
        result = groupcoord("list", "--warehouse", str(warehouse), "--cluster", cluster, *options)
        assert result.exit_code != 0
        return str(result.stderr)

    assert "holds no run of cluster 'other', only a point-in-time run: show it with --run 2" in refused("other")
    assert "holds no run 'x' of cluster 'prod'; its newest are 2" in refused("prod", "--run", "x")
    assert "knows no point-in-time run of cluster 'prod' that early" in refused("prod", "--look-back", "--at", str(AS_OF_MS))
    assert "--run names one run: leave --at and --look-back out" in refused("prod", "--run", "x", "--look-back")


def test_a_night_is_named_by_its_distance_from_the_newest(warehouse: Path, tmp_path: Path) -> None:
    assert groups(warehouse, "--at", "-0") == ["g3"] and groups(warehouse, "--at", "-1") == ["g1"]
    assert groups(warehouse, "--look-back", "--at", "-0") == ["g2"]
    refused = groupcoord("list", "--warehouse", str(warehouse), "--cluster", "prod", "--at", "-2")
    assert refused.exit_code == 1 and "holds 2 runs of cluster 'prod', so there is none 2 before the newest" in refused.stderr
    for number in (1, 2, 2):  # a second run over the same dump is no other run
        night(tmp_path / "w", "prod", {"groups": [group(f"night-{number}")]}, as_of_ms=AS_OF_MS + number * DAY_MS)
    asked = ["--warehouse", str(tmp_path / "w"), "--output", "json"]
    assert '"night-1"' in groupcoord("list", "--at", "-1", *asked).stdout
    assert groupcoord("sql", "from groups", "--at", "-1", *asked).stdout.count("night-1") == 1
    assert "night-2" in groupcoord("diff", "--from", "-1", "--to", "-0", *asked).stdout


def test_the_beginning_of_a_run_s_id_names_the_run(tmp_path: Path) -> None:
    first, second = (night(tmp_path / "w", "prod", {"groups": [group(name)]}, as_of_ms=AS_OF_MS) for name in ("one", "two"))
    common = first.run_id[: next(at for at, letter in enumerate(first.run_id) if second.run_id[at] != letter)]

    def shown(run: str) -> Result:
        return groupcoord("list", "--run", run, "--warehouse", str(tmp_path / "w"))

    assert shown(second.run_id[: len(common) + 1]).stdout.split() == ["two"]
    assert shown(first.run_id).stdout.split() == ["one"]
    assert f"2 runs of cluster 'prod' begin with {common!r}" in shown(common).stderr


def test_the_newest_version_of_each_table_is_the_newest_nights(warehouse: Path) -> None:
    assert newest_rows(warehouse) == rows_of_readers(warehouse)
    opened = open_warehouse(str(warehouse))
    assert opened.read("warnings", cluster="prod").num_rows == 0
    assert opened.read("warnings", run=opened.run("prod", look_back=True)).num_rows == 1


def test_the_next_night_does_not_see_the_look_back(tmp_path: Path) -> None:
    from groupcoord_spark.warehouse import begin_run

    night(tmp_path, "prod", {"groups": [group("g1")]})
    night(tmp_path, "prod", {"groups": [group("g2")]}, kind="point_in_time")
    start = begin_run(str(tmp_path), "prod")
    assert start.previous("groups")["group_id"].to_pylist() == ["g1"]
    assert [run.kind for run in start.finished] == ["nightly", "point_in_time"]


def test_a_look_back_of_the_first_release_is_passed_over_and_its_rows_leave_the_tables(tmp_path: Path) -> None:
    # That release left its rows in the newest versions, and appended to the history.
    from groupcoord_spark.warehouse import begin_run

    night(tmp_path, "prod", {"groups": [group("g1")], "offset_commits": [commit(1)]})
    settings = {"settings": {"until": "then"}, "kind": None}
    night(tmp_path, "prod", {"groups": [group("g2")], "offset_commits": [commit(2)]}, **settings)
    opened = open_warehouse(str(tmp_path))
    assert [row["kind"] for row in opened.runs().to_pylist()] == ["nightly", "point_in_time"]
    assert opened.read("groups")["group_id"].to_pylist() == ["g1"]
    begin_run(str(tmp_path), "prod")
    assert newest_rows(tmp_path) == rows_of_readers(tmp_path)
