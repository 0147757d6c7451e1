"""A group's life in order, from tables made by hand."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import Any

import pytest

from groupcoord_spark.protocol.consumer_protocol import Assignment, encode_assignment
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, commit, group, marker, night, offset

HOUR_MS = 3_600_000


def rebalance(record_offset: int, at_ms: int, **fields: Any) -> dict[str, Any]:
    return {
        "offsets_partition": 0,
        "incarnation": 0,
        "record_offset": record_offset,
        "record_timestamp_ms": AS_OF_MS + at_ms,
        "group_id": "g",
        "group_type": "classic",
        "kind": "generation",
        "to_generation": 1,
        "member_count": 1,
        "cause": "member_joined",
        "confidence": "certain",
        "evidence": "a joined.",
        **fields,
    }


def at(record_offset: int, at_ms: int, **fields: Any) -> dict[str, Any]:
    """Return a commit, or a tombstone; both times of it are the same."""
    moment = AS_OF_MS + at_ms
    return commit(record_offset, **{"record_timestamp_ms": moment, "commit_timestamp_ms": moment, **fields})


def tombstone(record_offset: int, at_ms: int, **fields: Any) -> dict[str, Any]:
    return at(record_offset, at_ms, is_tombstone=True, committed_offset=None, commit_timestamp_ms=-1, **fields)


def end(record_offset: int, at_ms: int) -> dict[str, Any]:
    place = {"offsets_partition": 0, "incarnation": 0, "record_offset": record_offset, "group_id": "g"}
    facts = {"key_type": 2, "is_tombstone": True, "is_transactional": False, "key_size": 5}
    return {**place, **facts, "record_timestamp_ms": AS_OF_MS + at_ms}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    where = tmp_path_factory.mktemp("timeline") / "warehouse"
    night(
        where,
        "prod",
        {
            "groups": [group("g"), group("silent")],
            "rebalances": [
                rebalance(0, 0, members_joined=["a-11111111-2222-3333-4444-555555555555"], leader_id="a"),
                rebalance(30, 3 * HOUR_MS, to_generation=2, member_count=0, members_left=["a"], cause="member_gone", evidence="a went."),
            ],
            "offset_commits": [
                *(at(1 + n, n * 60_000, partition=n % 3) for n in range(12)),
                at(13, 2 * HOUR_MS, committed_offset=13, is_transactional=True, producer_id=7),
                at(14, 2 * HOUR_MS, committed_offset=2, group_id="other"),
                tombstone(40, DAY_MS, partition=0),
                tombstone(41, 9 * DAY_MS, partition=1),
                tombstone(42, 9 * DAY_MS, partition=2),
            ],
            "transactions": [marker(15, 7, "committed", record_timestamp_ms=AS_OF_MS + 2 * HOUR_MS)],
            "group_records": [end(43, 9 * DAY_MS)],
            "offset_expirations": [],
        },
        settings={"offsets.retention.ms": str(7 * DAY_MS)},
        as_of_ms=AS_OF_MS,
    )
    return str(where)


def events(place: str, *options: str) -> list[dict[str, Any]]:
    result = groupcoord("timeline", "--warehouse", place, "--output", "json", "--group", "g", *options)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_events_come_in_the_order_of_the_records(place):
    assert [(event["event"], event["record_offset"]) for event in events(place)] == [
        ("rebalance", 0),
        ("commits", 1),
        ("commits", 13),
        ("rebalance", 30),
        ("offsets_removed", 40),
        ("offsets_removed", 41),
        ("group_removed", 43),
    ]


def test_commits_are_summed_up_until_something_else_or_an_hour_of_silence(place):
    first, second = [event for event in events(place) if event["event"] == "commits"]
    assert first["facts"]["commits"] == 12 and first["facts"]["commits_a_minute"] == pytest.approx(12 / 11, abs=1e-3)
    assert [one["last_committed_offset"] for one in first["facts"]["partitions"]] == [10, 11, 12]
    assert first["time"] == "2026-01-01T00:00:00.000Z" and first["until"] == "2026-01-01T00:11:00.000Z"
    assert (second["facts"]["commits"], second["facts"]["in_transactions"]) == (1, 1)


def test_what_was_removed_by_its_age_is_told_from_what_was_deleted(place):
    early, late = [event["facts"] for event in events(place) if event["event"] == "offsets_removed"]
    assert (early["reason"], late["reason"]) == ("deleted", "expired")
    assert [one["partition"] for one in late["partitions"]] == [1, 2]


def test_the_last_commit_stands_beside_a_member_that_is_gone(place):
    gone = next(event for event in events(place) if event["facts"].get("cause") == "member_gone")
    assert gone["what"].endswith("a went. The group's last commit was 1 h before.")


def test_a_range_keeps_its_records_only(place):
    assert [event["record_offset"] for event in events(place, "--from", "2026-01-01T01:00:00Z", "--to", "2026-01-02T00:00:00Z")] == [13, 30]


def test_people_see_the_beginning_of_a_uuid(place):
    shown = groupcoord("timeline", "--warehouse", place, "--group", "g").stdout
    assert "joined: a-11111111…; leader a" in shown


def test_what_is_to_expire_comes_last(sample_warehouse):
    rows = events_of_sample(sample_warehouse, "app-timed-out")
    assert [row["event"] for row in rows[-2:]] == ["expires", "expires"] and "payments 0-2: will be removed" in rows[-2]["what"]


def events_of_sample(sample_warehouse, group_id):
    result = groupcoord("timeline", "--warehouse", str(sample_warehouse.path), "--group", group_id, "--output", "json")
    return [json.loads(line) for line in result.stdout.splitlines()]


@pytest.mark.parametrize(
    ("options", "sentence", "code"),
    [
        (["--group", "nobody"], "Group 'nobody' is in no record of", 1),
        (["--group", "silent"], "its runs were run with --no-history", 1),
        (["--group", "g", "--topic", "orders"], "Group 'g' never committed an offset of topic 'orders', as far as the tables know.", 1),
        (["--group", "g", "--from", "2030-01-01"], "lies between --from and --to", 1),
        (["--group", "g", "--from", "2026-01-02", "--to", "2026-01-01"], "--to is not after --from", 2),
    ],
)
def test_a_group_without_records_is_one_sentence(place, options, sentence, code):
    result = groupcoord("timeline", "--warehouse", place, *options)
    assert result.exit_code == code and sentence in result.output


@pytest.fixture(scope="module")
def rewound(tmp_path_factory):
    """Two members share a topic; one of them goes back, while another group has the same topic."""
    where = tmp_path_factory.mktemp("rewound") / "warehouse"
    assignments = {"a": encode_assignment(Assignment(1, {"t": (0,)}, None)), "b": encode_assignment(Assignment(1, {"t": (1,)}, None))}
    stored = [{"memberId": name, "assignment": base64.b64encode(data).decode()} for name, data in assignments.items()]
    value = {"value_version": 3, "value_json": json.dumps({"protocolType": "consumer", "members": stored}), "is_tombstone": False}
    night(
        where,
        "prod",
        {
            "groups": [group("g")],
            "rebalances": [rebalance(0, 0, members_joined=["a", "b"], members_kept=[], member_count=2)],
            "group_records": [{**end(0, 0), **value}],
            "offset_commits": [
                *(at(1 + n, n * 1_000, partition=n % 2, committed_offset=100 + n) for n in range(10)),
                at(11, 11_000, partition=1, committed_offset=7),
                at(12, 12_000, partition=0, committed_offset=200, is_transactional=True, producer_id=5),
                at(13, 13_000, partition=1, committed_offset=8, is_transactional=True, producer_id=6),
                at(15, 15_000, partition=0, committed_offset=110),
                at(16, 16_000, partition=1, committed_offset=9, group_id="other"),
            ],
            "transactions": [marker(14, 5, "aborted", record_timestamp_ms=AS_OF_MS + 14_000)],
            "pending_offsets": [offset("g", "t", 1, 8, record_offset=13, producer_id=6)],
        },
    )
    return str(where)


def test_an_offset_that_went_back_is_an_event_of_its_own_with_its_partitions_owner(rewound):
    first, _, back, pending, gone, last = events(rewound)
    assert (first["event"], back["event"], last["event"]) == ("rebalance", "rewind", "commits")
    by_member = "One of 2 members committed it; the partition belonged to b. Cause: seek, likely."
    assert back["what"].startswith(f"t 1: went back from 109 to 7, by 102. {by_member}")
    wanted = {"topic": "t", "partition": 1, "from_committed_offset": 109, "to_committed_offset": 7, "back_by": 102, "owner": "b"}
    assert wanted.items() <= back["facts"].items()
    assert (pending["facts"]["result"], gone["facts"]["result"]) == ("open", "aborted")
    assert [(one["first_committed_offset"], one["last_committed_offset"]) for one in last["facts"]["partitions"]] == [(110, 110)]


def test_csv_has_the_same_facts(rewound):
    shown = groupcoord("timeline", "--warehouse", rewound, "--group", "g", "--output", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(shown)))
    assert [json.loads(row["facts"]) for row in rows] == [event["facts"] for event in events(rewound)]
    assert [row["event"] for row in rows] == ["rebalance", "commits", "rewind", "transaction", "transaction", "commits"]


def test_a_range_that_begins_with_a_rewind_knows_the_offset_before(rewound):
    back, *_ = events(rewound, "--from", "2026-01-01T00:00:11Z", "--to", "2026-01-01T00:00:12Z")
    assert (back["event"], back["facts"]["from_committed_offset"]) == ("rewind", 109)


def test_a_group_of_another_cluster_is_found_there(tmp_path):
    night(tmp_path, "old", {"groups": [group("moved")]})
    night(tmp_path, "new", {"groups": [group("stays")]})
    for command in ("timeline", "why"):
        result = groupcoord(command, "--group", "moved", "--cluster", "new", "--warehouse", str(tmp_path))
        assert "is in no record of cluster 'new'" in result.stderr and "It is in cluster 'old': --cluster." in result.stderr


def test_generations_in_which_nothing_changed_are_one_line_and_explained_once(tmp_path):
    """Of a group with a thousand rebalances the same sentence stood 300 times."""
    same = {"members_joined": [], "members_left": [], "leader_id": "a", "previous_leader_id": "a", "cause": "leader_rejoined"}
    same |= {"confidence": "likely", "evidence": "Same members."}
    quiet = [rebalance(10 * n, n * HOUR_MS, to_generation=n, **same) for n in (*range(2, 7), 8, 9, 11)]
    joins = [rebalance(10 * n, n * HOUR_MS, to_generation=n, members_joined=["b"]) for n in (7, 10)]
    commits = [at(10 * n + 1, n * HOUR_MS + 1, committed_offset=10 + n) for n in range(2, 7)]
    night(tmp_path, "prod", {"groups": [group("g")], "rebalances": [*quiet, *joins], "offset_commits": commits})
    words = ["timeline", "--group", "g", "--warehouse", str(tmp_path)]
    shown = groupcoord(*words).stdout.splitlines()[1:]
    first = "Generations 2 to 6: nothing changed, leader_rejoined (likely). Same members. 5 commits: t 0 at 12 to 16."
    assert [line.split()[1:3] for line in shown] == [["rebalance", generation] for generation in ("6", "7", "9", "10", "11")]
    assert shown[0].endswith(first) and shown[2].endswith("Generations 8 to 9: nothing changed, leader_rejoined (likely).")
    assert shown[4].endswith("leader_rejoined (likely).")
    assert groupcoord(*words, "--last", "2").stdout.splitlines()[1:] == shown[3:]
    since = groupcoord(*words, "--since", "2026-01-01T07:00:00Z").stdout.splitlines()[1:]
    assert [line.split()[2] for line in since] == ["7", "9", "10", "11"]
    assert len(groupcoord(*words, "--all").stdout.splitlines()[1:]) == 15
    assert len(groupcoord(*words, "--output", "json").stdout.splitlines()) == 15


def test_the_timeline_of_a_group_that_vanished_ends_with_that(tmp_path):
    commits = {"offset_commits": [at(0, 0)]}
    night(tmp_path, "prod", {"groups": [group("g"), group("h")], "committed_offsets": [offset("g", "t", 0, 0)], **commits})
    night(tmp_path, "prod", {"groups": [group("h")]}, as_of_ms=AS_OF_MS + DAY_MS)
    last = groupcoord("timeline", "--group", "g", "--warehouse", str(tmp_path)).stdout.splitlines()[-1]
    assert last.startswith("2026-01-02T00:00:00.000Z gone ")
    assert "The group was there in the run of 2026-01-01T00:00:00.000Z and gone by that of 2026-01-02T00:00:00.000Z" in last
