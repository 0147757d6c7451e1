"""``groupcoord sql``."""

from __future__ import annotations

import csv
import json

import pytest
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
    """`drop view groups` printed a table with the title SUCCESS, as did `vacuum`; CREATE OR REPLACE hid what the run has."""
    for statement in ("DROP VIEW groups", "CREATE OR REPLACE VIEW main.groups AS SELECT 1", "create or  replace table Groups AS SELECT 1"):
        refused = groupcoord("sql", "--warehouse", place, statement)
        assert refused.exit_code == 2 and "groups belongs to the run, and no statement changes a run." in refused.stderr
    assert groupcoord("sql", "--warehouse", place, "CREATE OR REPLACE TABLE mine AS FROM groups; VACUUM; DROP TABLE mine").stdout == ""
    made = groupcoord("sql", "--warehouse", place, "CREATE VIEW mine AS SELECT 1 AS n; DROP VIEW mine")
    assert (made.exit_code, made.stdout) == (0, "")


ODD_VALUES = [
    ("1 AS a, 2 AS a, 3 AS a_1", {"a": 1, "a_2": 2, "a_1": 3}),
    ("'nan'::DOUBLE AS n, 'inf'::FLOAT AS i, '-inf'::DOUBLE AS m", {"n": "NaN", "i": "Infinity", "m": "-Infinity"}),
    ("[1.5, 'nan'::DOUBLE, NULL, '-inf'::DOUBLE] AS list", {"list": [1.5, "NaN", None, "-Infinity"]}),
    ("TIME '01:02:03.5' AS t, TIMETZ '01:02:03+02' AS z", {"t": "01:02:03.5", "z": "01:02:03+02"}),
    ("INTERVAL '1 month 2 days 3 hours' AS i", {"i": "1 month 2 days 03:00:00"}),
    ("DATE '2026-01-01' AS d, DATE '20260-01-01' AS far, DATE 'infinity' AS e", {"d": "2026-01-01", "far": "20260-01-01", "e": "infinity"}),
    ("TIMESTAMPTZ '290000-01-01 00:00:00+00' AS far", {"far": "290000-01-01 00:00:00+00"}),
    ("TIMESTAMP '0044-03-15 (BC) 12:00:00' AS b, TIMESTAMP 'infinity' AS e", {"b": "0044-03-15 (BC) 12:00:00", "e": "infinity"}),
    ("TIMESTAMP_NS '2026-01-01 00:00:00.123456789' AS ns", {"ns": "2026-01-01 00:00:00.123456789"}),
    ("'00000000-0000-0000-0000-00000000000a'::UUID AS u", {"u": "00000000-0000-0000-0000-00000000000a"}),
    ("1.50::DECIMAL(10, 2) AS d, 170141183460469231731687303715884105727 AS h", {"d": 1.5, "h": 2**127 - 1}),
    ("340282366920938463463374607431768211455::UHUGEINT AS u, -5::HUGEINT AS n", {"u": 2**128 - 1, "n": -5}),
    (r"'\xFF\x00'::BLOB AS b, '101'::BIT AS bits", {"b": "ff00", "bits": "101"}),
    ("MAP {1: 'a', 2: NULL} AS m, {'a': {'b': [1]}} AS s", {"m": {"1": "a", "2": None}, "s": {"a": {"b": [1]}}}),
    ("{'t': TIMESTAMPTZ '2026-01-01 00:00:00+00', 'i': INTERVAL '1 hour'} AS s", {"s": {"t": "2026-01-01 00:00:00+00", "i": "01:00:00"}}),
    ("'a'::ENUM('a', 'b') AS e, union_value(n := 2) AS u", {"e": "a", "u": {"n": 2}}),
    ("NULL AS nothing, [] AS empty, true AS yes", {"nothing": None, "empty": [], "yes": True}),
]


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize(("columns", "expected"), ODD_VALUES)
def test_every_type_is_valid_json_without_a_loss(place, columns, expected):
    result = groupcoord("sql", f"SELECT {columns}", "--output", "json", "--warehouse", place)
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout, parse_constant=no_constant) == expected


def test_a_decimal_keeps_all_its_digits(place):
    result = groupcoord(
        "sql", "SELECT 1234567890123456789012345678.0123456789::DECIMAL(38, 10) AS d", "--output", "json", "--warehouse", place
    )
    assert result.stdout == '{"d": 1234567890123456789012345678.0123456789}\n'


@pytest.mark.parametrize("output", ["table", "csv", "json"])
def test_values_of_every_type_of_duckdb_are_printed(place, output):
    result = groupcoord("sql", "SELECT * EXCLUDE (medium_enum, bignum) FROM test_all_types()", "--output", output, "--warehouse", place)
    assert (result.exit_code, result.stderr) == (0, "")
    assert len(list(csv.reader(result.stdout.splitlines()))) == 4 - (output == "json")
