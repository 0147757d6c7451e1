"""``groupcoord sql``."""

from __future__ import annotations

import json

from click.testing import CliRunner

from groupcoord_spark.cli.commands import main
from tests.cli.warehouse import groupcoord


def test_rows_of_a_statement_are_aligned_under_their_names(place):
    result = groupcoord("sql", "SELECT group_type, COUNT(*) AS n FROM groups GROUP BY 1 ORDER BY 1", "--warehouse", place)
    assert (result.exit_code, result.stderr) == (0, "")
    assert [line.split() for line in result.stdout.splitlines()] == [
        *(["GROUP_TYPE", "N"], ["classic", "4"], ["consumer", "1"], ["share", "1"], ["streams", "1"]),
    ]


def test_json_has_times_in_utc_lists_and_exact_numbers(place):
    query = "SELECT SUM(committed_offset) AS sum, [1, 2] AS list, TIMESTAMPTZ '2026-01-01 01:00:00+01' AS time, 'ab'::BLOB AS bytes"
    result = groupcoord("sql", f"{query} FROM committed_offsets WHERE group_id = 'plain'", "--output", "json", "--warehouse", place)
    expected = {"sum": 121, "list": [1, 2], "time": "2026-01-01T00:00:00.000Z", "bytes": "6162"}
    assert json.loads(result.stdout) == expected


def test_several_statements_from_standard_input(place):
    result = CliRunner().invoke(main, ["sql", "--output", "csv", "--warehouse", place], input="SELECT 1 AS a;\nSELECT 2 AS b")
    assert result.stdout.splitlines() == ["a", "1", "b", "2"]


def test_an_earlier_night(place):
    result = groupcoord("sql", "SELECT group_id FROM groups", "--at", "2026-01-01T00:00:00Z", "--warehouse", place)
    assert result.stdout.splitlines() == ["GROUP_ID", "early"]


def test_a_statement_that_cannot_be_run(place):
    result = groupcoord("sql", "SELECT * FROM nothing", "--warehouse", place)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Table with name nothing does not exist" in result.stderr


def test_views_are_printed_and_not_run(place):
    result = groupcoord("sql", "--print-views", "spark", "--warehouse", place)
    assert "CREATE OR REPLACE VIEW groups AS\nSELECT `cluster`, `group_id`," in result.stdout
    assert groupcoord("sql", "SELECT 1", "--print-views", "spark", "--warehouse", place).exit_code == 2


def test_what_belongs_to_the_night_is_not_dropped_and_own_views_come_and_go_without_a_word(place):
    """`drop view groups` printed a table with the title SUCCESS, as did `vacuum`; CREATE OR REPLACE hid what the night has."""
    for statement in ("DROP VIEW groups", "CREATE OR REPLACE VIEW main.groups AS SELECT 1", "create or  replace table Groups AS SELECT 1"):
        refused = groupcoord("sql", "--warehouse", place, statement)
        assert refused.exit_code == 2 and "groups belongs to the night, and no statement changes a night." in refused.stderr
    assert groupcoord("sql", "--warehouse", place, "CREATE OR REPLACE TABLE mine AS FROM groups; VACUUM; DROP TABLE mine").stdout == ""
    made = groupcoord("sql", "--warehouse", place, "CREATE VIEW mine AS SELECT 1 AS n; DROP VIEW mine")
    assert (made.exit_code, made.stdout) == (0, "")
