"""``groupcoord expire``: rows, comparison, tombstones, and its sentences when it fails."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.log import plan_logs
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, group, night, offset


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two runs; in the second a live group, an Empty one restored a day ago, a simple one and one without offsets."""
    warehouse = tmp_path_factory.mktemp("expire") / "warehouse"
    week = {"offsets.retention.ms": str(7 * DAY_MS)}
    night(warehouse, "prod", {"groups": [group("early")]}, as_of_ms=AS_OF_MS - DAY_MS, settings=week)
    rows: dict[str, list[dict[str, Any]]] = {
        "groups": [
            group("live", state="Stable", member_count=1, subscribed_topics=["orders"], offset_count=2),
            group("restored", state_timestamp_ms=AS_OF_MS - 6 * DAY_MS, offset_count=1),
            group("tool", is_simple=True, protocol_type=None, offset_count=1, offsets_partition=1),
            group("vacant", state_timestamp_ms=AS_OF_MS),
        ],
        "committed_offsets": [
            offset("live", "orders", 0, 1, commit_timestamp_ms=AS_OF_MS - 30 * DAY_MS),
            offset("live", "old", 0, 1, commit_timestamp_ms=AS_OF_MS - 8 * DAY_MS),
            offset("restored", "orders", 0, 2, commit_timestamp_ms=AS_OF_MS - DAY_MS),
            offset("tool", "orders", 0, 3, commit_timestamp_ms=AS_OF_MS - 2 * DAY_MS, offsets_partition=1),
        ],
        "offsets_partitions": [ends(0, 40), ends(1, 50)],
    }
    night(warehouse, "prod", rows, as_of_ms=AS_OF_MS, settings=week)
    return str(warehouse)


def ends(number: int, end_offset: int) -> dict[str, Any]:
    counts = dict.fromkeys(("records", "decoded", "quarantined", "control_records", "live_keys", "bytes", "incarnation"), 0)
    return {"offsets_partition": number, "end_offset": end_offset, "last_stable_offset": end_offset, **counts}


def rows(place: str, *options: str) -> list[dict[str, Any]]:
    ran = groupcoord("expire", "--warehouse", place, "--output", "json", "--quiet", *options)
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.output.splitlines()]


def test_a_row_for_each_group(place: str) -> None:
    live, restored, tool, vacant = rows(place)
    assert (live["offsets"], live["expired"], live["never"], live["removed"]) == (2, 1, 1, False)
    assert (live["stays_because"], live["traps"]) == ("it has members", ["topic_is_unsubscribed"])
    assert (restored["next_expiry"], restored["removed_at"]) == ("2026-01-02T00:00:00.000Z",) * 2
    assert restored["traps"] == ["inherits_empty_time"]
    assert (tool["next_expiry"], tool["traps"]) == ("2026-01-06T00:00:00.000Z", ["is_simple_group"])
    assert (vacant["removed"], vacant["removed_at"]) == (True, "2026-01-01T00:00:00.000Z")


def test_a_row_for_each_offset_says_why_it_never_goes(place: str) -> None:
    told = {(row["group"], row["topic"]): row for row in rows(place, "--offsets")}
    assert told["live", "orders"]["never_because"] == "a member subscribes to the topic"
    assert told["live", "orders"]["expires_at"] is None
    assert (told["live", "old"]["rule"], told["live", "old"]["expired"]) == ("X-B3", True)


def test_members_may_be_taken_for_gone(place: str) -> None:
    told = {row["topic"]: row for row in rows(place, "--offsets", "--group", "live", "--assume-members-gone")}
    assert {row["expires_at"] for row in told.values()} == {"2026-01-08T00:00:00.000Z"}


def test_a_later_night_or_an_earlier_one(place: str) -> None:
    assert [row["removed"] for row in rows(place, "--as-of", "2026-01-02T00:00:00Z")] == [False, True, False, True]
    assert [row["group"] for row in rows(place, "--at", "2025-12-31T00:00:00Z")] == ["early"]


@pytest.mark.parametrize("options", [[], ["--offsets"], ["--offsets-retention", "3d", "--compare"]])
@pytest.mark.parametrize("output", ["json", "csv"])
def test_rows_for_programs_stand_alone_on_stdout_and_the_summary_on_stderr(place: str, options: list[str], output: str) -> None:
    ran = groupcoord("expire", "--warehouse", place, "--output", output, *options)
    assert ran.stdout == groupcoord("expire", "--warehouse", place, "--output", output, "--quiet", *options).stdout
    assert ran.stderr.startswith("As of 2026-01-01T00:00:00.000Z with retention ") and "would remove" in ran.stderr
    if output == "json":
        assert all(isinstance(json.loads(line), dict) for line in ran.stdout.splitlines())
    else:
        cells = list(csv.reader(io.StringIO(ran.stdout)))
        assert {len(row) for row in cells} == {len(cells[0])}
        assert {cell for row in cells[1:] for cell in row} & {"yes", "no", "True", "False"} == set()


def test_traps_are_a_list_in_json_and_words_with_commas_in_csv(place: str) -> None:
    assert [row["traps"] for row in rows(place)] == [["topic_is_unsubscribed"], ["inherits_empty_time"], ["is_simple_group"], []]
    ran = groupcoord("expire", "--warehouse", place, "--output", "csv", "--quiet")
    told = list(csv.DictReader(io.StringIO(ran.stdout)))
    assert [row["traps"] for row in told] == ["topic_is_unsubscribed", "inherits_empty_time", "is_simple_group", ""]
    assert [row["removed"] for row in told] == ["false", "false", "false", "true"]


def test_the_summary_says_what_would_be_removed_in_the_right_number(place: str) -> None:
    ran = groupcoord("expire", "--warehouse", place, "--group", "vacant")
    assert ran.stderr.endswith("  a cleanup would remove 0 of 0 offsets and 1 of 1 group\n")
    ran = groupcoord("expire", "--warehouse", place, "--group", "tool")
    assert ran.stderr.endswith("  a cleanup would remove 0 of 1 offset and 0 of 1 group\n")


def test_comparison_is_by_day_and_group(place: str) -> None:
    assert rows(place, "--offsets-retention", "3d", "--compare") == [
        {"day": "2026-01-01", "group": "restored", "offsets_lost": 1, "offsets_gained": 0, "group_lost": True, "group_gained": False},
        {"day": "2026-01-02", "group": "tool", "offsets_lost": 1, "offsets_gained": 0, "group_lost": True, "group_gained": False},
    ]
    ran = groupcoord("expire", "--warehouse", place, "--offsets-retention", "3d", "--compare")
    changes = "would remove 2 offsets and 2 groups sooner, and keep 0 offsets and 0 groups longer"
    assert f"  against retention 7d (java 4.3.1): {changes}\n" in ran.stderr


def test_other_semantics_are_remarked_on(place: str) -> None:
    ran = groupcoord("expire", "--warehouse", place, "--broker-version", "1.1")
    assert ran.exit_code == 0
    assert "only the cleanup is that of scala 1.1" in ran.stderr


@pytest.mark.parametrize(("release", "removed"), [(None, False), ("4.3", True), ("4.4.0", False)])
def test_streams_group_whose_description_is_stored_stays_in_what_is_asked_later(tmp_path: Path, release: str | None, removed: bool) -> None:
    streams = {"group_type": "streams", "protocol_type": "streams"}
    judged = {"as_of_ms": AS_OF_MS, "removed": False, "tombstone_count": 0}
    of_night = {
        "groups": [group("described", **streams), group("plain", **streams)],
        "group_expirations": [{**judged, "group_id": "described", "blocked_by": "topology_description"}, {**judged, "group_id": "plain"}],
    }
    settings = {"offsets.retention.ms": str(DAY_MS), "group.streams.topology.description.plugin.class": "org.example.Plugin"}
    night(tmp_path / "w", "prod", of_night, broker_version="4.4.0", settings=settings)
    described, plain = rows(str(tmp_path / "w"), *(() if release is None else ("--broker-version", release)))
    assert (described["removed"], plain["removed"]) == (removed, True)
    because = None if removed else "the broker still has to delete the description of its topology"
    assert described["stays_because"] == because


def test_tombstones_are_segments_that_begin_where_the_log_ended(place: str, tmp_path: Path) -> None:
    late = ("expire", "--warehouse", place, "--as-of", "2026-01-20T00:00:00Z", "--write-tombstones", str(tmp_path / "plan"))
    ran = groupcoord(*late, "--codec", "zstd")
    assert ran.exit_code == 0
    assert "6 tombstones in 2 batches of 2 offsets partitions written to" in ran.stderr
    found = {partition.offsets_partition: partition for partition in plan_logs([str(tmp_path / "plan")]).partitions}
    assert {number: (partition.segments[0].base_offset, partition.end_offset) for number, partition in found.items()} == {
        0: (40, 44),
        1: (50, 52),
    }
    again = groupcoord(*late)
    assert (again.exit_code, "is there already. Name an empty or new directory" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--group", "nobody"], 1, "Group 'nobody' does not exist in cluster"),
        (["--compare", "--offsets"], 2, "--compare counts by day and group"),
        (["--codec", "gzip"], 2, "--codec belongs to --write-tombstones"),
        (["--write-tombstones", ""], 2, "the name is empty. Name a new or empty directory."),
        (["--offsets-retention", "soon"], 2, "'soon' is not a duration"),
        (["--semantics", "java", "--broker-version", "3.6"], 2, "has the scala coordinator, not java"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence(place: str, options: list[str], code: int, sentence: str) -> None:
    ran = groupcoord("expire", "--warehouse", place, *options)
    assert (ran.exit_code, sentence in ran.stderr) == (code, True), ran.stderr


def test_a_run_that_does_not_tell_its_retention(tmp_path: Path) -> None:
    night(tmp_path / "w", "prod", {"groups": [group("g")]}, settings={})
    ran = groupcoord("expire", "--warehouse", str(tmp_path / "w"))
    assert (ran.exit_code, "Say it with --offsets-retention" in ran.stderr) == (1, True)
    assert groupcoord("expire", "--warehouse", str(tmp_path / "w"), "--offsets-retention", "1d").exit_code == 0
