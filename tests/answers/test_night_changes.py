"""What changed from one run to another, over runs made by hand. tests/pipeline/test_timeline.py has the ones of a real cluster."""

from __future__ import annotations

import pytest

from groupcoord_spark.answers.group_history import Question
from groupcoord_spark.answers.run_changes import CHANGES, REASONS, last_run_that_differs, run_changes
from groupcoord_spark.answers.why import why as answer
from groupcoord_spark.coordinator.semantics import semantics_for
from groupcoord_spark.warehouse import begin_run, commit_run, open_warehouse
from tests.warehouse.nights import AS_OF_MS, DAY_MS, FEW_TABLES, commit, few_tables, group, marker, night, offset, run_fields, written

HOUR_MS = 3_600_000
LOG = {"last_stable_offset": 0, "records": 0, "decoded": 0, "quarantined": 0, "control_records": 0, "live_keys": 0, "bytes": 0}


READ = ("pending_offsets", "orphan_offsets", "offset_expirations", "group_expirations", "topics", "share_offsets", "transactional_ids")


@pytest.fixture(scope="module", autouse=True)
def each_night_goes_through_few_tables():
    with few_tables((*FEW_TABLES, *READ)):
        yield


def log(end_offset, incarnation=0):
    return [{"offsets_partition": 0, "incarnation": incarnation, "end_offset": end_offset, **LOG}]


def tombstone(record_offset, group_id, topic, **fields):
    gone = {"committed_offset": None, "value_version": None, "is_tombstone": True}
    return commit(record_offset, group_id=group_id, topic=topic, record_timestamp_ms=AS_OF_MS + HOUR_MS, **gone, **fields)


def changes(place, before, after):
    """Return the changes between two runs of these rows."""
    rows = {"offsets_partitions": log(100)}
    first = night(place, "prod", rows | before)
    second = night(place, "prod", {"offsets_partitions": log(200)} | after, as_of_ms=AS_OF_MS + DAY_MS)
    return [tuple(change) for change in run_changes(open_warehouse(str(place)), first, second)]


def test_equal_nights_have_no_changes(tmp_path):
    rows = {"groups": [group("a", generation=None)], "committed_offsets": [offset("a", "t", 0, 5)]}
    assert changes(tmp_path, rows, rows) == []


def test_groups_are_born_gone_changed_or_rebalanced(tmp_path):
    before = [group("gone"), group("changed"), group("rebalanced"), group("")]
    after = [group("born"), group("changed", state="Stable", member_count=2), group("rebalanced", generation=9), group("")]
    found = {(change, name): (then, now) for change, name, _, _, then, now, _ in changes(tmp_path, {"groups": before}, {"groups": after})}
    empty = {"type": "classic", "state": "Empty", "generation": 1, "members": 0}
    assert found == {
        ("group_gone", "gone"): (empty, None),
        ("group_born", "born"): (None, empty),
        ("group_changed", "changed"): (empty, empty | {"state": "Stable", "members": 2}),
        ("group_rebalanced", "rebalanced"): (empty, empty | {"generation": 9}),
    }


def test_offsets_are_new_forward_or_rewound(tmp_path):
    before = [offset("g", "t", 0, 5), offset("g", "t", 1, 5), offset("g", "t", 2, 5)]
    after = [
        offset("g", "t", 0, 6, record_offset=50),
        offset("g", "t", 1, 4),
        offset("g", "t", 2, 5, record_offset=51),
        offset("g", "", 0, 1),
    ]
    assert changes(tmp_path, {"committed_offsets": before}, {"committed_offsets": after}) == [
        ("offset_rewound", "g", "t", 1, 5, 4, None),
        ("offset_new", "g", "", 0, None, 1, None),
        ("offset_forward", "g", "t", 0, 5, 6, None),
    ]


def test_an_offset_that_expired_and_began_again_lower_has_the_cause_of_the_other_answers(tmp_path):
    """`diff` had no cause where `why` had one."""
    week = {"settings": {"offsets.retention.ms": str(7 * DAY_MS)}}
    times = {"commit_timestamp_ms": AS_OF_MS - 8 * DAY_MS, "record_timestamp_ms": AS_OF_MS - 8 * DAY_MS}
    before = {"committed_offsets": [offset("g", "t", 0, 60, record_offset=1)], "offsets_partitions": log(100), "groups": [group("g")]}
    first = night(tmp_path, "prod", {**before, "offset_commits": [commit(1, committed_offset=60, **times)]}, **week)
    again = commit(151, committed_offset=3, commit_timestamp_ms=AS_OF_MS + 1, record_timestamp_ms=AS_OF_MS + 1)
    after = {"committed_offsets": [offset("g", "t", 0, 3, record_offset=151)], "offsets_partitions": log(200), "groups": [group("g")]}
    later = {**after, "offset_commits": [tombstone(150, "g", "t"), again]}
    second = night(tmp_path, "prod", later, as_of_ms=AS_OF_MS + DAY_MS, **week)
    warehouse = open_warehouse(str(tmp_path))
    assert [change.why for change in run_changes(warehouse, first, second)] == ["restarted_after_removal"]
    story = answer(warehouse, Question("prod", "g"), semantics_for(None, "4.3"))
    assert story is not None and "restarted_after_removal" in story.conclusion
    assert "restarted_after_removal" in REASONS


def test_a_gone_offset_has_the_cause_of_its_tombstone(tmp_path):
    week = {"settings": {"offsets.retention.ms": str(7 * DAY_MS)}}
    place = tmp_path
    old_ms = AS_OF_MS - 7 * DAY_MS + HOUR_MS // 2
    kept = [commit(1, group_id="old", topic="t", commit_timestamp_ms=old_ms, record_timestamp_ms=old_ms)]
    kept += [commit(2, group_id="young", topic=topic, commit_timestamp_ms=AS_OF_MS) for topic in ("t", "u")]
    kept.append(commit(3, group_id="keeper", topic="t", commit_timestamp_ms=AS_OF_MS))  # so the topic was not deleted
    offsets = [offset("old", "t", 0, 1, record_offset=1), *(offset("young", topic, 0, 2, record_offset=2) for topic in ("t", "u"))]
    offsets.append(offset("lost", "t", 0, 3, record_offset=3))
    rows = {"offsets_partitions": log(100), "committed_offsets": offsets, "groups": [group("old"), group("lost"), group("young")]}
    first = night(place, "prod", {**rows, "offset_commits": kept}, **week)
    left = [offset("young", "u", 0, 2, record_offset=2)]
    gone = [tombstone(150, "old", "t"), tombstone(151, "young", "t")]
    rows = {"offsets_partitions": log(200), "committed_offsets": left, "groups": [group("young")], "offset_commits": gone}
    second = night(place, "prod", rows, **week)
    found = {(change, name): why for change, name, *_, why in run_changes(open_warehouse(str(place)), first, second)}
    assert found == {
        ("offset_gone", "old"): "expired",
        ("offset_gone", "young"): "offsets_deleted",
        ("offset_gone", "lost"): "not_known",
        ("group_gone", "old"): "expired",
        ("group_gone", "lost"): "not_known",
    }


@pytest.mark.parametrize(("cause_of_offset", "why"), [("topic_deleted", "topic_deleted"), ("expired", "expired")])
def test_a_group_that_a_cleanup_removed_after_its_topic_is_gone_with_the_topic(tmp_path, cause_of_offset, why):
    place = {"run_id": "r", "offsets_partition": 0, "incarnation": 0, "group_id": "g", "kind": "removed"}
    place |= {"certainty": "certain", "evidence": "."}
    events = [
        {**place, "topic": topic, "partition": partition, "record_offset": number, "cause": cause, "key_type": key_type}
        for number, (topic, partition, cause, key_type) in enumerate([("t", 0, cause_of_offset, 1), (None, None, "expired", 2)], 150)
    ]
    before = {"groups": [group("g")], "committed_offsets": [offset("g", "t", 0, 5, record_offset=10)]}
    found = {change: reason for change, *_, reason in changes(tmp_path, before, {"offset_events": events})}
    assert found == {"group_gone": why, "offset_gone": cause_of_offset}


def test_a_tombstone_that_the_later_night_had_not_read_explains_nothing(tmp_path):
    rows = {"offsets_partitions": log(100), "committed_offsets": [offset("g", "t", 0, 5, record_offset=10)], "offset_commits": [commit(10)]}
    first = night(tmp_path, "prod", rows)
    second = night(tmp_path, "prod", {"offsets_partitions": log(120)}, as_of_ms=AS_OF_MS + DAY_MS)
    night(tmp_path, "prod", {"offsets_partitions": log(200), "offset_commits": [tombstone(150, "g", "t")]}, as_of_ms=AS_OF_MS + 2 * DAY_MS)
    (change,) = run_changes(open_warehouse(str(tmp_path)), first, second)
    assert (change.change, change.why) == ("offset_gone", "not_known")


def test_a_topic_that_was_begun_anew_and_orphans_are_reasons_of_their_own(tmp_path):
    offsets = {"committed_offsets": [offset("g", "t", 0, 5, record_offset=10)]}
    orphan = {"orphan_offsets": offsets["committed_offsets"]}
    (change,) = changes(tmp_path / "orphans", offsets, orphan)
    assert change[-1] == "orphaned"
    (change,) = changes(tmp_path / "anew", offsets, {"offsets_partitions": log(3, incarnation=1)})
    assert change[-1] == "topic_begun_anew"


def test_what_lay_in_a_partition_that_the_copy_lacks_is_not_said_to_be_expired(tmp_path):
    expiry = {"group_id": "g", "topic": "t", "partition": 0, **EXPIRIES, "expires_at_ms": AS_OF_MS + HOUR_MS}
    before = {"groups": [group("g")], "committed_offsets": [offset("g", "t", 0, 5, record_offset=10)], "offset_expirations": [expiry]}
    earlier = {**log(100)[0], "first_offset": 0}
    found = changes(tmp_path, before | {"offsets_partitions": [earlier]}, {"offsets_partitions": [earlier | {"first_offset": None}]})
    assert {change[-1] for change in found} == {"partition_missing"} and len(found) == 2


EXPIRIES = {"as_of_ms": AS_OF_MS, "retention_ms": DAY_MS, "base_timestamp_ms": AS_OF_MS, "expired": False, "rule": "X-B1"} | dict.fromkeys(
    ("inherits_empty_time", "topic_is_unsubscribed", "is_simple_group", "has_explicit_expiry", "may_come_back", "retention_changed"), False
)


@pytest.mark.parametrize(
    ("due_after_ms", "code", "why"),
    [
        (HOUR_MS, "tail_truncated", "expiry_due"),
        (DAY_MS, "keys_vanished", "expiry_due"),
        (DAY_MS + 1, "keys_vanished", "vanished"),
        (DAY_MS + 1, "tail_truncated", "not_known"),
    ],
)
def test_without_a_tombstone_what_was_due_and_what_vanished_say_why(tmp_path, due_after_ms, code, why):
    expiry = {"group_id": "g", "topic": "t", "partition": 0, **EXPIRIES, "expires_at_ms": AS_OF_MS + due_after_ms}
    of_group = {"group_id": "g", "as_of_ms": AS_OF_MS, "removed": False, "removed_at_ms": AS_OF_MS + due_after_ms, "tombstone_count": 1}
    before = {"groups": [group("g")], "committed_offsets": [offset("g", "t", 0, 5, record_offset=10)]}
    before |= {"offset_expirations": [expiry], "group_expirations": [of_group], "offsets_partitions": log(100)}
    first = night(tmp_path, "prod", before)
    make = begin_run(str(tmp_path), "prod")
    rows = {"offsets_partitions": log(200), "warnings": [{"run_id": make.run_id, "offsets_partition": 0, "code": code, "detail": "."}]}
    second = commit_run(make, run_fields(as_of_ms=AS_OF_MS + DAY_MS), written(make, rows))
    night(tmp_path, "prod", {"offsets_partitions": log(300)}, as_of_ms=AS_OF_MS + 2 * DAY_MS)
    warehouse = open_warehouse(str(tmp_path))
    found_changes = [(change.change, change.why) for change in run_changes(warehouse, first, second)]
    assert found_changes == [("group_gone", why), ("offset_gone", why)]
    found = answer(warehouse, Question("prod", "g"), semantics_for(None, "4.3"))
    assert found is not None and found.conclusion.startswith(
        "Group g was there in the run of 2026-01-01T00:00:00.000Z and gone by that of 2026-01-02T00:00:00.000Z: "
    )
    assert found.conclusion.endswith(REASONS[why][1:])
    of_offset = answer(warehouse, Question("prod", "g", "t"), semantics_for(None, "4.3"))
    assert of_offset is not None and of_offset.conclusion.startswith("Of group g, t 0 was there in the run of 2026-01-01")


@pytest.mark.parametrize(("markers", "why"), [(["aborted"], "aborted"), (["committed", "aborted"], "committed"), ([], "not_known")])
def test_pending_offsets_are_gone_by_the_first_marker_after_them(tmp_path, markers, why):
    waiting = [offset("g", "t", 0, 5, producer_id=7, record_offset=10), offset("g", "t", 0, 6, producer_id=8, record_offset=9)]
    ends = [marker(5, 7, "aborted"), *(marker(20 + n, 7, result) for n, result in enumerate(markers))]
    now = [offset("g", "t", 1, 9, producer_id=9, record_offset=40)]
    found = changes(tmp_path, {"pending_offsets": waiting}, {"pending_offsets": now, "transactions": ends})
    assert found == [("pending_gone", "g", "t", 0, 5, None, why), ("pending_new", "g", "t", 1, None, 9, None)]


def test_an_offset_that_waits_in_another_transaction_is_no_change(tmp_path):
    then, now = ([offset("g", "t", 0, 5, producer_id=number)] for number in (7, 8))
    assert changes(tmp_path, {"pending_offsets": then}, {"pending_offsets": now}) == []


def test_a_night_that_dropped_the_groups_of_a_missing_partition_differs_although_its_log_ends_alike(tmp_path):
    for at, names in enumerate((("a", "b"), ("a",), ("a",))):
        rows = {"groups": [group(name) for name in names], "offsets_partitions": log(100)}
        after = night(tmp_path, "prod", rows, groups=len(names), as_of_ms=AS_OF_MS + at * DAY_MS)
    before, changes = last_run_that_differs(open_warehouse(str(tmp_path)), after)
    assert (before.as_of_ms, [change.group_id for change in changes]) == (AS_OF_MS, ["b"])


def test_what_may_need_a_look_is_listed_first():
    assert next(iter(CHANGES)) == "group_gone" and list(CHANGES)[-1] == "offset_forward"
