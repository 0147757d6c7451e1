"""``groupcoord list``."""

from __future__ import annotations

import csv
import io
import json
import shlex

import pytest

from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, group, night, offset

NAMES = ["app", "idle", "new", "only-offsets", "plain", "queue", "workers"]


def test_groups_are_listed_by_name_alone(place):
    result = groupcoord("list", "--warehouse", place)
    assert (result.exit_code, result.stdout.splitlines(), result.stderr) == (0, NAMES, "")


def test_state_and_type_add_their_columns_in_kafkas_order_and_widths(place):
    lines = groupcoord("list", "--state", "--type", "--warehouse", place).stdout.splitlines()
    assert lines[0] == f"{'GROUP':<25} {'TYPE':<20} {'STATE':<20}"
    assert lines[3] == f"{'new':<25} {'Consumer':<20} {'Reconciling':<20}"
    assert len(lines) == 8
    assert groupcoord("list", "--state", "--warehouse", place).stdout.splitlines()[0].split() == ["GROUP", "STATE"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--state", "stable"], ["plain", "queue", "workers"]),
        (["--state", "Reconciling, NotReady"], ["app", "new"]),
        (["--type", "SHARE,streams"], ["app", "queue"]),
        (["--type", "Classic", "--state", "Empty"], ["idle", "only-offsets"]),
        (["--state", "Dead"], []),
    ],
)
def test_words_choose_groups(place, options, expected):
    lines = groupcoord("list", *options, "--warehouse", place).stdout.splitlines()
    assert [line.split()[0] for line in lines[1:]] == expected


def test_unknown_words_are_a_usage_error_that_names_the_known(place):
    result = groupcoord("list", "--state", "Stable,Sleeping", "--warehouse", place)
    assert result.exit_code == 2
    assert "'Sleeping' is not one of Empty, Stable," in result.stderr


def test_json_is_one_object_a_row(place):
    lines = groupcoord("list", "--type", "--output", "json", "--warehouse", place).stdout.splitlines()
    assert [json.loads(line) for line in lines][2] == {"group": "new", "type": "Consumer"}
    assert len(lines) == 7


def test_csv_has_a_line_of_names(place):
    rows = list(csv.reader(io.StringIO(groupcoord("list", "--state", "--output", "csv", "--warehouse", place).stdout)))
    assert rows[:2] == [["group", "state"], ["app", "NotReady"]]


def test_an_earlier_night_is_shown_with_at(place):
    assert groupcoord("list", "--at", "2026-01-01T12:00:00Z", "--warehouse", place).stdout == "early\n"


def test_a_group_id_cannot_move_the_cursor(tmp_path):
    night(tmp_path, "prod", {"groups": [group("a\x1b[2Jb\nc"), group("ünï")]})
    assert groupcoord("list", "--warehouse", str(tmp_path)).stdout == "a\\x1b[2Jb\\nc\nünï\n"
    first = groupcoord("list", "--output", "json", "--warehouse", str(tmp_path)).stdout.splitlines()[0]
    assert json.loads(first) == {"group": "a\x1b[2Jb\nc"}


def test_a_warehouse_without_groups_lists_nothing(tmp_path):
    night(tmp_path, "prod", {})
    assert groupcoord("list", "--warehouse", str(tmp_path)).stdout == ""
    assert groupcoord("list", "--state", "--warehouse", str(tmp_path)).stdout.split() == ["GROUP", "STATE"]


def test_lag_is_the_sum_over_the_newest_sample(tmp_path):
    ends = [{"topic": "t", "partition": n, "end_offset": 50 + n, "sampled_at_ms": AS_OF_MS, "run_id": "r"} for n in range(2)]
    older = [{**row, "end_offset": 1, "sampled_at_ms": AS_OF_MS - 1} for row in ends]
    offsets = [offset("a", "t", 0, 40), offset("a", "t", 1, 60), offset("a", "u", 0, 1), offset("b", "u", 0, 3)]
    night(tmp_path, "prod", {"groups": [group("a"), group("b")], "committed_offsets": offsets, "log_ends": [*older, *ends]})
    rows = groupcoord("list", "--lag", "--output", "json", "--warehouse", str(tmp_path)).stdout.splitlines()
    of_a = {"group": "a", "lag": 10, "max_lag": 10, "hours_behind": 0.0, "hours_to_loss": None, "lag_is_partial": True, "beyond_end": 0}
    assert [json.loads(row) for row in rows] == [of_a, {**dict.fromkeys(of_a), "group": "b"}]
    lines = groupcoord("list", "--lag", "--warehouse", str(tmp_path)).stdout.splitlines()
    assert [" ".join(line.split()) for line in lines[1:]] == ["a >=10 >=10 0 ms -", "b - - - -"]
    lines = groupcoord("describe", "--group", "a", "--output", "csv", "--warehouse", str(tmp_path)).stdout.splitlines()
    assert [line.split(",")[5:7] for line in lines[1:]] == [["50", "10"], ["51", "-9"], ["", ""]]


def test_lag_is_a_lower_bound_where_the_newest_sample_lacks_a_partition_of_a_topic(tmp_path):
    ends = [{"topic": "t", "partition": n, "end_offset": 50, "sampled_at_ms": AS_OF_MS - n, "run_id": "r"} for n in range(2)]
    night(tmp_path, "prod", {"groups": [group("a")], "committed_offsets": [offset("a", "t", n, 60) for n in range(2)], "log_ends": ends})
    (line,) = groupcoord("list", "--lag", "--warehouse", str(tmp_path)).stdout.splitlines()[1:]
    assert line.split()[:3] == ["a", ">=0", ">=0"]


def test_an_offset_beyond_the_end_is_marked_and_the_named_command_shows_it(tmp_path):
    ends = [{"topic": "t", "partition": 0, "end_offset": 7, "sampled_at_ms": AS_OF_MS, "run_id": "r"}]
    offsets = [offset("a", "t", 0, 10, commit_timestamp_ms=AS_OF_MS - 60_000)]
    night(tmp_path, "prod", {"groups": [group("a")], "committed_offsets": offsets, "log_ends": ends})
    (row,) = groupcoord("list", "--lag", "--output", "json", "--warehouse", str(tmp_path)).stdout.splitlines()
    assert (json.loads(row)["lag"], json.loads(row)["beyond_end"]) == (0, 1)
    remark = groupcoord("list", "--lag", "--warehouse", str(tmp_path)).stderr
    assert "1 committed offset beyond the end of the log" in remark
    _, *words = shlex.split(remark.split("`")[1])
    assert json.loads(groupcoord(*words, "--output", "json").stdout)["lag"] == -3


def test_lag_says_how_long_a_group_is_behind_and_when_it_loses_records(tmp_path):
    sample = {"topic": "t", "partition": 0, "run_id": "r"}
    ends = [{**sample, "end_offset": 100 * n, "start_offset": 24 * n, "sampled_at_ms": AS_OF_MS + n * 86_400_000} for n in range(3)]
    offsets = [offset("a", "t", 0, 150), offset("b", "t", 0, 40), offset("c", "t", 0, 200)]
    night(tmp_path, "prod", {"groups": [group(name) for name in "abc"], "committed_offsets": offsets, "log_ends": ends})
    lines = groupcoord("list", "--lag", "--warehouse", str(tmp_path)).stdout.splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "GROUP LAG MAX-LAG BEHIND LOSS-IN",
        "a 50 50 12 h 4 d 6 h",
        "b 160 160 1 d 14 h lost",
        "c 0 0 - -",
    ]


@pytest.mark.parametrize("word", ["--state=--warehouse=/other", "--state=-x", "--type=--cluster=other"])
def test_what_follows_the_sign_is_a_value_and_no_option(place, word):
    refused = groupcoord("list", "--warehouse", place, word)
    assert refused.exit_code == 2 and f"{word.partition('=')[2]!r} is not one of" in refused.stderr
