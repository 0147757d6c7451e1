"""Causes that `why` names where no record names one, over runs made by hand. tests/pipeline/test_causes.py has the ones of a broker."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.answers.group_history import Question
from groupcoord_spark.answers.why import Outcome, Story, why
from groupcoord_spark.coordinator.semantics import semantics_for
from groupcoord_spark.protocol.definition import encode_key
from groupcoord_spark.warehouse import open_warehouse
from tests.cli.warehouse import groupcoord
from tests.shown_rows import connect
from tests.warehouse.nights import AS_OF_MS, commit, group, marker, night, offset

SECOND_MS, HOUR_MS = 1_000, 3_600_000
RETENTION_MS = 60 * SECOND_MS


def at(record_offset: int, seconds: float, **fields: Any) -> dict[str, Any]:
    """Return a commit of group g."""
    moment = AS_OF_MS + int(seconds * SECOND_MS)
    return commit(record_offset, record_timestamp_ms=moment, commit_timestamp_ms=moment, **fields)


def gone(record_offset: int, seconds: float, **fields: Any) -> dict[str, Any]:
    """Return a tombstone of an offset of group g."""
    return at(record_offset, seconds, **fields) | {"committed_offset": None, "is_tombstone": True, "commit_timestamp_ms": -1}


def own(record_offset: int, seconds: float, value: Any, key_type: int = 2, **fields: Any) -> dict[str, Any]:
    """Return a record of group g itself; ``value`` None: a tombstone."""
    place = {"offsets_partition": 0, "incarnation": 0, "record_offset": record_offset, "group_id": "g", "key_json": "{}"}
    facts = {"key_type": key_type, "is_tombstone": value is None, "is_transactional": False, "key_size": 5}
    written = {"value_version": None if value is None else 3, "value_json": None if value is None else json.dumps(value)}
    return {**place, **facts, **written, "record_timestamp_ms": AS_OF_MS + int(seconds * SECOND_MS), **fields}


def classic(*topics: str) -> dict[str, Any]:
    """Return the value of a classic group with a member that subscribes to these topics."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    subscription = struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)
    member = {"memberId": "m", "subscription": base64.b64encode(subscription).decode(), "assignment": ""}
    return {"protocolType": "consumer", "members": [member]}


def change(record_offset: int, seconds: float, members: int, group_type: str = "classic") -> dict[str, Any]:
    """Return a row of rebalances."""
    facts = {"group_type": group_type, "kind": "generation" if group_type == "classic" else "group_epoch", "to_generation": 1}
    cause = {"member_count": members, "cause": "member_joined" if members else "member_left", "confidence": "certain", "evidence": "."}
    place = {"offsets_partition": 0, "incarnation": 0, "record_offset": record_offset, "group_id": "g"}
    return {**place, **facts, **cause, "record_timestamp_ms": AS_OF_MS + int(seconds * SECOND_MS)}


def story(place: Path, release: str, **tables: Sequence[dict[str, Any]]) -> Story:
    semantics = semantics_for(None, release)
    run = {"semantics": semantics.name, "broker_version": semantics.broker_version, "as_of_ms": AS_OF_MS + HOUR_MS}
    night(place, "prod", tables, settings={"offsets.retention.ms": str(RETENTION_MS)}, **run)
    found = why(open_warehouse(str(place)), Question("prod", "g"), semantics)
    assert found is not None
    return found


def outcomes(found: Story) -> list[Outcome]:
    return [outcome for step in found.steps for outcome in step.outcomes]


def causes(found: Story) -> list[tuple[Any, ...]]:
    return [outcome[:4] for outcome in outcomes(found)]


def causes_of_view(place: Path) -> list[tuple[int, str]]:
    query = "SELECT record_offset, cause FROM tombstone_causes ORDER BY record_offset"
    return [(row["record_offset"], row["cause"]) for row in connect(place, "prod").sql(query).to_arrow_table().to_pylist()]


def test_a_commit_that_never_counted_is_not_the_last_value_of_an_offset(tmp_path: Path) -> None:
    staged = at(1, 1, producer_id=7, is_transactional=True)
    for name, tombstone, aborted in (("aborted", 3, 2), ("pending", 2, 3)):
        found = story(
            tmp_path / name, "4.3", offset_commits=[at(0, 0), staged, gone(tombstone, 5)], transactions=[marker(aborted, 7, "aborted")]
        )
        of_offset = [outcome for outcome in outcomes(found) if outcome.topic == "t"]
        (removal,) = [one for one in of_offset if one.cause not in ("transaction_aborted", "replaced_in_transaction")]
        assert [(record.what, record.record_offset) for record in removal.records] == [("last value", 0), ("tombstone", tombstone)]


SIMPLE = [at(0, 0, partition=0), at(1, 0, topic="u"), gone(2, 5, partition=0), gone(3, 5, topic="u")]


def test_up_to_3_9_a_simple_group_that_loses_everything_at_once_was_deleted_and_has_no_tombstone(tmp_path: Path) -> None:
    # The Scala coordinator writes no tombstone for a group without a generation: `why` said OffsetDelete, and nothing of the group.
    others = [at(4, 0, group_id="other"), at(5, 0, group_id="other", topic="u")]
    found = story(tmp_path, "3.9", offset_commits=[*SIMPLE, *others])
    assert causes(found) == [
        ("t", 0, "group_deleted", "likely"),
        ("u", 0, "group_deleted", "likely"),
        (None, None, "group_deleted", "likely"),
    ]
    assert "went at 2026-01-01T00:00:05.000Z with its last offset" in found.conclusion
    assert causes_of_view(tmp_path) == [(2, "group_deleted"), (3, "group_deleted")]


def test_in_4_x_the_same_records_are_offset_deletes(tmp_path: Path) -> None:
    # The coordinator of 4.x writes the tombstone of every group that it deletes.
    others = [at(4, 0, group_id="other"), at(5, 0, group_id="other", topic="u")]
    found = story(tmp_path, "4.3", offset_commits=[*SIMPLE, *others])
    assert causes(found)[:2] == [("t", 0, "offsets_deleted", "certain"), ("u", 0, "offsets_deleted", "certain")]
    assert causes_of_view(tmp_path) == [(2, "offsets_deleted"), (3, "offsets_deleted")]


def test_up_to_3_9_a_group_that_keeps_an_offset_was_not_deleted(tmp_path: Path) -> None:
    there = {"groups": [group("g", is_simple=True)], "committed_offsets": [offset("g", "u", 0, 1)]}
    found = story(tmp_path, "3.9", offset_commits=[*SIMPLE[:3], at(9, 0, group_id="other")], **there)
    assert causes(found) == [("t", 0, "offsets_deleted", "possible"), ("u", 0, "still_there", None), (None, None, "still_there", None)]


def test_up_to_3_9_a_topic_that_is_deleted_takes_empty_groups_along(tmp_path: Path) -> None:
    # The write that takes the last offset removes an Empty group too, which looked like DeleteGroups.
    of_g = [at(1, 0), gone(2, 5)]
    of_other = [at(4, 0, group_id="other"), at(5, 0, group_id="other", topic="u"), gone(6, 5, group_id="other")]
    records = [own(0, -1, {"protocolType": "consumer", "members": []}), own(3, 5, None)]
    rebalances = [change(0, -1, 0)]
    found = story(tmp_path / "scala", "3.9", offset_commits=[*of_g, *of_other], group_records=records, rebalances=rebalances)
    assert ("t", 0, "topic_deleted", "likely") in causes(found)
    assert causes(found)[-1][:3] == (None, None, "topic_deleted")
    assert causes_of_view(tmp_path / "scala") == [(2, "topic_deleted"), (3, "expired"), (6, "topic_deleted")]
    found = story(tmp_path / "java", "4.3", offset_commits=[*of_g, *of_other], group_records=records, rebalances=rebalances)
    assert ("t", 0, "group_deleted", "certain") in causes(found)


@pytest.mark.parametrize(("topic", "cause"), [("t", "topic_deleted"), ("u", "expired")])
def test_an_old_offset_of_a_topic_that_a_member_subscribes_to_went_with_its_topic(tmp_path: Path, topic: str, cause: str) -> None:
    """By the age of its commit alone it looked expired. A cleanup spares the topics of members, and requests are refused."""
    commits = [at(1, 0, topic=topic), gone(2, 90, topic=topic)]
    found = story(tmp_path, "4.3", offset_commits=commits, group_records=[own(0, -1, classic("t"))], rebalances=[change(0, -1, 1)])
    assert [outcome[:3] for outcome in causes(found)] == [(topic, 0, cause)]
    assert ("a member subscribed to the topic" in found.conclusion) == (topic == "t")


def test_subscriptions_of_consumer_groups_count_by_name_and_by_expression(tmp_path: Path) -> None:
    commits = [at(10 + n, 0, topic=topic) for n, topic in enumerate("tuv")] + [
        gone(20 + n, 90, topic=topic) for n, topic in enumerate("tuv")
    ]
    by_name = {"subscribedTopicNames": ["t"], "subscribedTopicRegex": "^u.*"}
    records = [
        own(0, -1, {"epoch": 1}, key_type=3),
        own(1, -1, by_name, key_type=5, key_json=json.dumps({"groupId": "g", "memberId": "m"})),
        own(2, -1, {"topics": ["u"]}, key_type=16, key_json=json.dumps({"groupId": "g", "regularExpression": "^u.*"})),
    ]
    found = story(tmp_path, "4.3", offset_commits=commits, group_records=records, rebalances=[change(0, -1, 1, "consumer")])
    assert [cause for _, _, cause, _ in causes(found)] == ["topic_deleted", "topic_deleted", "expired"]


def test_an_offset_that_was_old_enough_and_went_with_many_probably_went_with_its_topic(tmp_path: Path) -> None:
    """Hours after it was due, with the offsets of another group: a deleted topic, or a cleanup after the retention was made shorter."""
    late = HOUR_MS / SECOND_MS * 2
    commits = [at(0, 0), at(1, 0, group_id="other"), gone(2, late), gone(3, late, group_id="other")]
    found = story(tmp_path, "4.3", offset_commits=commits)
    assert causes(found)[0] == ("t", 0, "topic_deleted", "likely")


def test_a_tombstone_whose_commit_was_compacted_away_has_no_known_cause(tmp_path: Path) -> None:
    found = story(tmp_path / "alone", "4.3", offset_commits=[gone(2, 5)])
    assert causes(found)[0] == ("t", 0, "unknown", "possible")
    assert "the last commit before the tombstone is in no record that was read" in found.conclusion


def test_the_tombstone_of_the_last_member_is_evidence_that_the_group_became_empty(tmp_path: Path) -> None:
    records = [own(4, 9, None, key_type=5, key_json="{}"), own(5, 9, {"epoch": 2}, key_type=3)]
    found = story(
        tmp_path,
        "4.3",
        offset_commits=[at(1, 0)],
        group_records=records,
        rebalances=[change(0, -1, 1, "consumer"), change(5, 9, 0, "consumer")],
    )
    (left,) = [outcome for outcome in outcomes(found) if outcome.cause == "group_left_empty"]
    assert [record.record_offset for record in left.records] == [4, 5]


def test_a_group_tombstone_without_a_time_has_a_row_in_the_view(tmp_path: Path) -> None:
    # Records of 0.9 have no times: the view left the tombstones of such groups out.
    story(tmp_path, "3.9", offset_commits=[at(1, 0)], group_records=[own(3, 0, None, record_timestamp_ms=None)])
    assert causes_of_view(tmp_path) == [(3, "unknown")]


def test_nights_that_go_on_from_the_one_before_miss_no_commit_that_the_history_has(tmp_path: Path) -> None:
    """They have no rows of surviving_records: every rewind that they read was said to have lost records to compaction."""
    first = {"surviving_records": [{"offsets_partition": 0, "incarnation": 0, "first_offset": 0, "end_offset": 1, "run_id": "r"}]}
    whole = story(tmp_path / "whole", "4.3", offset_commits=[at(0, 0, committed_offset=9), at(1, 1), at(2, 2, committed_offset=3)], **first)
    assert not any("Compaction took" in step.what for step in whole.steps)
    hole = story(tmp_path / "hole", "4.3", offset_commits=[at(0, 0, committed_offset=9), at(7, 2, committed_offset=3)], **first)
    assert any("Compaction took" in step.what for step in hole.steps)


def test_records_in_quarantine_that_name_the_group_are_part_of_the_story(tmp_path: Path) -> None:
    # A group whose last commit could not be read had the story of its commit before, and nothing said so.
    keys = [encode_key(1, {"group_id": "g", "topic": "t", "partition": 0}), encode_key(2, {"group_id": "g"})]
    keys += [encode_key(1, {"group_id": "gg", "topic": "t", "partition": 0}), b"\x00\x01g"]
    lost = {"offsets_partition": 0, "source": "f", "reason": "value_truncated", "detail": "It ends early.", "run_id": "r"}
    rows = [{**lost, "record_offset": 7 + n, "key": key} for n, key in enumerate(keys)]
    found = story(tmp_path, "4.3", offset_commits=[at(0, 0, committed_offset=9)], quarantined_records=[*rows, *rows[:1]])
    assert [(step.what, step.records[0].record_offset) for step in found.steps if step.event == "quarantined"] == [
        ("A record of t 0 could not be read: It ends early. (value_truncated)", 7),
        ("A record of the group could not be read: It ends early. (value_truncated)", 8),
    ]
    assert found.conclusion.endswith(" 2 records of it could not be read: what they said is missing here.")
    of_partition = why(open_warehouse(str(tmp_path)), Question("prod", "g", "t", 0), semantics_for(None, "4.3"))
    assert of_partition is not None
    assert of_partition.conclusion.endswith(" 1 record of it could not be read: what it said is missing here.")


def test_a_lower_offset_of_a_topic_that_was_made_anew_is_said_to_be_one(tmp_path: Path) -> None:
    ids = {"topic_id": "MkTRaXlSRfWvFLT1M3hZWA"}, {"topic_id": "Uz_G2kQIRWC33YW4WQUDVQ"}
    found = story(tmp_path, "4.3", offset_commits=[at(0, 0, committed_offset=9, **ids[0]), at(1, 1, committed_offset=3, **ids[1])])
    assert any("The topic was created again between the two commits" in step.what for step in found.steps)
    assert "went back from 9 to 3 at 2026-01-01T00:00:01.000Z (topic_recreated, certain)" in found.conclusion
    same = [at(0, 0, committed_offset=9), at(1, 1, committed_offset=3, **ids[1])]
    assert not any("created again" in step.what for step in story(tmp_path / "same", "4.3", offset_commits=same).steps)


def test_what_is_there_is_said_once_with_its_offsets(tmp_path: Path) -> None:
    # The table had a line for each partition, then a line for when it expires, and the conclusion said both again.
    there = [offset("g", topic, partition, 10 + partition) for topic in "abcde" for partition in range(3)]
    commits = [at(n, 0, topic=row["topic"], partition=row["partition"]) for n, row in enumerate(there)]
    tables = {"offset_commits": commits, "committed_offsets": there, "groups": [group("g", is_simple=True, offset_count=15)]}
    found = story(tmp_path, "4.3", **tables)
    places = ", ".join(f"{topic} 0-2 at 10 to 12" for topic in "abcde")
    assert f"{places} are there, and no rule of expiration is known for them" in found.conclusion
    printed = groupcoord("why", "--group", "g", "--warehouse", str(tmp_path)).stdout.splitlines()
    assert printed[0] == found.conclusion and [line.split()[1] for line in printed[3:]] == ["commits"]


def test_of_a_busy_group_the_events_that_bear_on_the_answer_are_shown(tmp_path: Path) -> None:
    """893 lines stood above the answer, and a line for each partition of one jump."""
    commits = [at(n, 10 * n, committed_offset=100 + n, topic="other") for n in range(0, 200, 2)]
    tombs = [gone(201 + partition, 2_000_000, topic="t", partition=partition) for partition in range(3)]
    first = [at(198 + partition, 1_990_000, committed_offset=9, topic="t", partition=partition) for partition in range(3)]
    again = [at(205 + partition, 2_010_000, committed_offset=3, topic="t", partition=partition) for partition in range(3)]
    later = [at(300 + n, 2_020_000 + 4_000_000 * n, committed_offset=400 + n, topic="other") for n in range(50)]
    there = [offset("g", "t", partition, 3) for partition in range(3)]
    tables = {"offset_commits": [*commits[:-1], *first, *tombs, *again, *later], "committed_offsets": there}
    found = story(tmp_path, "4.3", **tables, groups=[group("g", is_simple=True, offset_count=3)])
    printed = groupcoord("why", "--group", "g", "--warehouse", str(tmp_path)).stdout.splitlines()
    assert printed[0] == found.conclusion and printed[-1].endswith("events in all: --all shows each of them.")
    shown = [line.split()[1] for line in printed[3:-2]]
    assert len(shown) == 20 and shown.count("offsets_removed") == 1
    whole = groupcoord("why", "--group", "g", "--all", "--warehouse", str(tmp_path)).stdout.splitlines()
    assert len(whole) > 50 and whole[0] == found.conclusion
