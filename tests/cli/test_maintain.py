"""``groupcoord maintain``, and the upkeep that a nightly run does."""

from __future__ import annotations

import csv
import io
import json
from shutil import copytree

import pytest

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.pipeline.run_nightly import RUNS_BETWEEN_UPKEEP, do_upkeep
from groupcoord_spark.warehouse import open_warehouse
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, few_tables, group, night


@pytest.fixture(scope="module", autouse=True)
def each_run_goes_through_few_tables():
    with few_tables():
        yield


@pytest.fixture(scope="module")
def after_five_nights(tmp_path_factory):
    place = tmp_path_factory.mktemp("five") / "w"
    for number in range(5):
        night(place, "prod", {"groups": [group(f"g{number}")]}, as_of_ms=AS_OF_MS + number * DAY_MS)
    return place


@pytest.fixture
def five(after_five_nights, tmp_path):
    """Five runs that upkeep may change."""
    return str(copytree(after_five_nights, tmp_path / "w"))


def kept(place):
    return [run.is_kept for run in open_warehouse(place).finished_runs("prod")]


def test_each_table_that_changes_has_a_row(five):
    result = groupcoord("maintain", "--keep-nights", "2", "--output", "json", "--warehouse", five)
    (groups,) = [row for row in map(json.loads, result.stdout.splitlines()) if row["table"] == "groups"]
    assert (groups["files_deleted"], groups["rows_dropped"], groups["files_joined"]) == (3, 0, 0)
    assert result.stderr.startswith("Joined 0 files of history into 0, dropped 3 runs and 0 rows of history, deleted ")
    assert kept(five) == [False] * 3 + [True] * 2
    assert "dropped" in groupcoord("runs", "--warehouse", five).stdout.splitlines()[-1]
    result = groupcoord("list", "--at", "2026-01-01T00:00:00Z", "--warehouse", five)
    assert result.exit_code == 1
    assert f"`groupcoord runs --warehouse {five} --cluster prod` lists the runs that are kept" in result.stderr


def test_a_dry_run_says_what_would_be_done(five):
    result = groupcoord("maintain", "--keep-nights", "2", "--dry-run", "--output", "csv", "--warehouse", five)
    assert next(iter(csv.DictReader(io.StringIO(result.stdout))))["table"] == "groups"
    assert result.stderr.startswith("Would join 0 files of history into 0, drop 3 runs and 0 rows of history, delete 3 files")
    assert kept(five) == [True] * 5


def test_nothing_to_do_prints_no_table(five):
    groupcoord("maintain", "--warehouse", five)
    assert groupcoord("maintain", "--quiet", "--warehouse", five).output == ""


@pytest.mark.parametrize("options", [["--keep-nights", "0"], ["--keep-history", "soon"], ["--cluster", "none"]])
def test_what_makes_no_sense_is_refused(five, options):
    assert groupcoord("maintain", *options, "--warehouse", five).exit_code == (1 if options[0] == "--cluster" else 2)


class TestTheUpkeepOfANight:
    def done(self, place, nights, monkeypatch, fails=False):
        calls = []

        def maintain(warehouse, cluster, **options):
            calls.append((warehouse, cluster))
            if fails:
                raise WarehouseError("the disk is full.")
            return real(warehouse, cluster, **options)

        from groupcoord_spark.warehouse.maintenance import maintain as real

        monkeypatch.setattr("groupcoord_spark.pipeline.run_nightly.maintain", maintain)
        for _ in range(nights):
            night(place, "prod", {"groups": [group("g")]})
        return calls, do_upkeep(place, "prod")

    def test_is_done_each_tenth_night(self, five, monkeypatch):
        assert self.done(five, RUNS_BETWEEN_UPKEEP - 6, monkeypatch) == ([], None)
        calls, upkeep = self.done(five, 1, monkeypatch)
        assert (calls, upkeep.nights_dropped) == ([(five, "prod")], 0)

    def test_is_one_sentence_where_it_fails(self, five, monkeypatch):
        _, upkeep = self.done(five, RUNS_BETWEEN_UPKEEP - 5, monkeypatch, fails=True)
        assert upkeep == "Upkeep could not be done, and the run is written all the same: the disk is full."
