"""``groupcoord diff``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from groupcoord_spark.answers.run_changes import CHANGES, REASONS
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, group, night, offset


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """Three runs: in the second an offset is rewound, in the third a group is gone; a point-in-time run comes after the third."""
    place = tmp_path_factory.mktemp("diff")
    groups = [group("a"), group("b")]
    night(place, "prod", {"groups": groups, "committed_offsets": [offset("a", "t", 0, 9), offset("b", "t", 0, 1)]})
    rows = {"groups": groups, "committed_offsets": [offset("a", "t", 0, 4), offset("b", "t", 0, 2)]}
    night(place, "prod", rows, as_of_ms=AS_OF_MS + DAY_MS)
    night(place, "prod", {"groups": [group("a")], "committed_offsets": [offset("a", "t", 0, 4)]}, as_of_ms=AS_OF_MS + 2 * DAY_MS)
    return str(place)


def rows(place, *options):
    return [json.loads(line) for line in groupcoord("diff", "--output", "json", *options, "--warehouse", place).stdout.splitlines()]


def test_the_two_newest_nights_are_compared(three):
    assert rows(three) == [
        {
            "change": "group_gone",
            "group": "b",
            "topic": None,
            "partition": None,
            "from": {"type": "classic", "state": "Empty", "generation": 1, "members": 0},
            "to": None,
            "why": "not_known",
        },
        {"change": "offset_gone", "group": "b", "topic": "t", "partition": 0, "from": 2, "to": None, "why": "not_known"},
    ]


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (["--to", "2026-01-02T08:00:00Z"], ["offset_rewound", "offset_forward"]),
        (["--from", "2026-01-01T08:00:00Z"], ["group_gone", "offset_gone", "offset_rewound"]),
        (["--from", "2026-01-03T08:00:00Z"], []),
        (["--from", "2026-01-01T08:00:00Z", "--only", "rewound,born"], ["offset_rewound"]),
    ],
)
def test_any_two_nights_can_be_compared(three, options, changes):
    assert [row["change"] for row in rows(three, *options)] == changes


def test_a_look_back_is_no_night_to_compare_with(tmp_path):
    night(tmp_path, "prod", {"groups": [group("a")]})
    night(tmp_path, "prod", {}, as_of_ms=AS_OF_MS - DAY_MS, kind="point_in_time", settings={"until": "2025-12-31T00:00:00Z"})
    night(tmp_path, "prod", {"groups": [group("a"), group("b")]}, as_of_ms=AS_OF_MS + DAY_MS)
    assert [(row["change"], row["group"]) for row in rows(str(tmp_path))] == [("group_born", "b")]


def test_people_get_a_table_and_the_counts(three):
    result = groupcoord("diff", "--warehouse", three)
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["CHANGE", "GROUP", "TOPIC", "PARTITION", "FROM", "TO", "WHY"]
    assert "classic Empty, generation 1, 0 members" in lines[1]
    counts = "1 group gone, 1 offset gone"
    assert result.stderr == f"From the run of 2026-01-02T00:00:00.000Z to that of 2026-01-03T00:00:00.000Z: {counts}.\n"
    table = list(csv.reader(io.StringIO(groupcoord("diff", "--output", "csv", "--warehouse", three).stdout)))
    assert table[2] == ["offset_gone", "b", "t", "0", "2", "", "not_known"]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (["--fail-on", "rewound,gone"], 3),
        (["--fail-on", "rewound"], 0),
        (["--fail-on", "rewound", "--to", "2026-01-02T08:00:00Z"], 3),
        (["--fail-on", "gone", "--only", "rewound"], 3),
        (["--fail-on", "lost"], 2),
        (["--from", "2026-01-03T08:00:00Z", "--to", "2026-01-01T08:00:00Z"], 2),
        (["--to", "2026-01-01T08:00:00Z"], 1),
    ],
)
def test_fail_on_ends_with_3(three, options, code):
    result = groupcoord("diff", *options, "--warehouse", three)
    assert result.exit_code == code, result.stderr
    if code:
        assert result.stderr.splitlines()[-1].startswith("Alert: " if code == 3 else "Error: ")


def test_a_second_run_over_the_same_copy_hides_nothing(tmp_path):
    """`diff` said "no change" after it, and the alert that was due did not come."""
    night(tmp_path, "prod", {"groups": [group("a"), group("b")]})
    for _ in range(3):
        night(tmp_path, "prod", {"groups": [group("a")]}, as_of_ms=AS_OF_MS + DAY_MS)
    result = groupcoord("diff", "--fail-on", "gone", "--warehouse", str(tmp_path))
    assert result.exit_code == 3
    assert result.stderr.splitlines() == [
        "From the run of 2026-01-01T00:00:00.000Z to that of 2026-01-02T00:00:00.000Z: 1 group gone."
        " Nothing has changed since the run of 2026-01-02T00:00:00.000Z, so the run before that one is compared.",
        "Alert: 1 group gone since the run of 2026-01-01T00:00:00.000Z.",
    ]
    assert groupcoord("diff", "--from", "2026-01-02T08:00:00Z", "--warehouse", str(tmp_path)).stderr.endswith(": no change.\n")


def test_nights_that_are_all_alike_show_no_change(tmp_path):
    for at in range(3):
        night(tmp_path, "prod", {"groups": [group("a")]}, as_of_ms=AS_OF_MS + at * DAY_MS)
    said = "From the run of 2026-01-02T00:00:00.000Z to that of 2026-01-03T00:00:00.000Z: no change.\n"
    assert groupcoord("diff", "--warehouse", str(tmp_path)).stderr == said


def test_every_change_and_reason_is_explained_in_the_reference():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
    assert all(f"| `{word}` | {sentence} |" in page for word, sentence in {**CHANGES, **REASONS}.items())
