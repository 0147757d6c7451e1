"""`groupcoord timeline`, and the changes from run to run, over five runs of a real broker whose log was cleaned between them."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.answers.run_changes import Change, run_changes
from groupcoord_spark.warehouse import open_warehouse
from tests.cli.warehouse import groupcoord
from tests.conftest import GOLDEN

GROUPS = [
    *("audit-za", "basket-us", "billing-us", "brief-us", "checkout-us", "eos-za", "export-in", "loyalty", "pricing", "pulse"),
    *("settle-us", "stuck-us"),
]


@pytest.fixture(scope="module")
def warehouse(five_nights: Path) -> Path:
    return five_nights


@cache
def all_events(warehouse: Path, group_id: str) -> list[dict[str, Any]]:
    result = groupcoord("timeline", "--warehouse", str(warehouse), "--group", group_id, "--output", "json")
    return [json.loads(line) for line in result.stdout.splitlines()]


def events(warehouse: Path, group_id: str, kind: str) -> list[dict[str, Any]]:
    return [event for event in all_events(warehouse, group_id) if event["event"] == kind]


@pytest.fixture(scope="module")
def changes(warehouse: Path) -> dict[tuple[int, int], list[Change]]:
    """Two consecutive runs by their numbers, and what changed from the first to the second."""
    opened = open_warehouse(str(warehouse))
    pairs = enumerate(pairwise(opened.finished_runs("nights")), 1)
    return {(number, number + 1): list(run_changes(opened, before, after)) for number, (before, after) in pairs}


def test_every_offset_that_went_back_is_an_event_of_its_own(warehouse: Path) -> None:
    """Three groups that went back were shown as one rising stretch each."""
    rewinds = {(group, event["what"].split(". ")[0]) for group in GROUPS for event in events(warehouse, group, "rewind")}
    assert rewinds == {
        ("audit-za", "orders 0: went back from 60 to 3, by 57"),
        ("export-in", "orders 1: went back from 1021 to 5, by 1016"),
        ("pricing", "orders 1: went back from 1801 to 7, by 1794"),
    }


def test_who_went_back_is_said_as_far_as_the_log_tells(warehouse: Path) -> None:
    (of_member,), (of_admin,) = events(warehouse, "pricing", "rewind"), events(warehouse, "audit-za", "rewind")
    assert (of_member["facts"]["member_count"], len(of_member["facts"]["members"])) == (1, 1)
    assert "The group's only member then committed it" in of_member["what"]
    assert of_admin["facts"]["member_count"] == 0 and "The group had no members then" in of_admin["what"]


def test_stretches_are_told_from_their_least_to_their_greatest_offset(warehouse: Path) -> None:
    stretches = [event["what"].split(": ")[1] for event in events(warehouse, "pricing", "commits")]
    assert stretches == ["orders 0-3 at 100 to 1803.", "orders 0-3 at 1900 to 2103."]


def test_changes_of_consecutive_nights_are_those_of_the_brokers_answers(changes: dict[tuple[int, int], list[Change]]) -> None:
    for expected in json.loads((GOLDEN / "nights" / "changes.json").read_text()):
        of_kind: dict[str, list[Change]] = defaultdict(list)
        for change in changes[expected["from_night"], expected["to_night"]]:
            of_kind[change.change].append(change)
        changed = {change.group_id: (change.before, change.after) for change in of_kind["group_changed"]}
        assert {group: tuple(list(map(side.get, ("type", "state", "members"))) for side in sides) for group, sides in changed.items()} == {
            row["group"]: (row["from"], row["to"]) for row in expected["groups_changed"]
        }
        for kind in ("born", "gone"):
            assert [change.group_id for change in of_kind[f"group_{kind}"]] == expected[f"groups_{kind}"]
        for kind, listed in {"new": "new", "forward": "forward", "rewound": "back", "gone": "gone"}.items():
            assert [change[1:6] for change in of_kind[f"offset_{kind}"]] == [
                (row["group"], row["topic"], row["partition"], row.get("from"), row.get("to")) for row in expected[f"offsets_{listed}"]
            ]
        for kind in ("new", "gone"):
            assert [change[1:4] for change in of_kind[f"pending_{kind}"]] == [
                (row["group"], row["topic"], row["partition"]) for row in expected[f"pending_{kind}"]
            ]


def test_why_groups_and_offsets_are_gone_is_known_from_the_history(changes: dict[tuple[int, int], list[Change]]) -> None:
    assert {(change.group_id, change.topic, change.why) for found in changes.values() for change in found if change.why} == {
        *((group, None, "group_deleted") for group in ("brief-us", "loyalty", "reports-za", "season-eu", "export-in")),
        *((group, "orders", "group_deleted") for group in ("brief-us", "reports-za", "export-in")),
        *((group, "payments", "group_deleted") for group in ("loyalty", "season-eu")),
        ("audit-za", "orders", "offsets_deleted"),
        ("export-in", "visits", "topic_deleted"),
        ("billing-us", "orders", "aborted"),
        ("settle-us", "orders", "committed"),
        # The three offsets that went back, in groups without members and with them.
        *((group, "orders", "reset") for group in ("audit-za", "export-in")),
        ("pricing", "orders", "seek"),
    }


def test_an_offset_committed_again_below_where_it_was_removed_is_no_rewind(warehouse: Path) -> None:
    assert [event["facts"]["partition"] for event in events(warehouse, "loyalty", "committed_again")] == [0, 1]
    assert (
        "payments 0: committed again at 10, 690 below 700, where it was removed."
        in events(warehouse, "loyalty", "committed_again")[0]["what"]
    )


def test_a_transaction_counts_when_it_is_committed_and_never_before(warehouse: Path) -> None:
    (stuck,) = events(warehouse, "stuck-us", "transaction")
    assert "still open since 2026-11-21T03:21:48.306Z, so they do not count yet" in stuck["what"]
    assert [event["facts"]["result"] for event in events(warehouse, "billing-us", "transaction")] == ["aborted", "open"]
    (settled,) = events(warehouse, "settle-us", "commits")
    assert settled["until"] == "2026-11-21T03:22:09.360Z" and "(2 in transactions, open for up to 1 min 2 s)" in settled["what"]
    shown = groupcoord("timeline", "--warehouse", str(warehouse), "--group", "settle-us", "--to", "2026-11-21T03:22:00Z").stdout
    assert "open since 2026-11-21T03:21:06.437Z until after the last moment shown (committed at 2026-11-21T03:22:09.360Z)" in shown
