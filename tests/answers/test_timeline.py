"""Events of one group as sentences and facts."""

from __future__ import annotations

from typing import Any

import pytest

from groupcoord_spark.answers.removals import GroupRemoval, OffsetRemoval, Place
from groupcoord_spark.answers.timeline import (
    Event,
    Expiry,
    LowerCommit,
    PartitionStretch,
    Piece,
    RemovedOffsets,
    Stretch,
    Transaction,
    expiries,
    timeline,
)

MINUTE_MS = 60_000
REMOVAL = OffsetRemoval(
    Place(0, 0), "g", "t", 0, record_offset=9, gone_ms=62_000, cause="expired", certainty="certain", rule="X-B2", evidence="It was due.",
    value_offset=1, commit_ms=1_000, expire_ms=None, base_ms=1_000, groups_at_once=None,
)  # fmt: skip
END = GroupRemoval(Place(0, 0), "g", record_offset=9, gone_ms=9_000, key_type=2, cause="expired", with_offsets=False)
ONE = PartitionStretch("t", 0, commits=1, replaced=0, lowest=5, highest=5)


def rebalance(at: int, *names: str, **fields: Any) -> dict[str, Any]:
    usual = {
        "record_offset": at,
        "timestamp_ms": at * 1_000,
        "kind": "generation",
        "to_generation": 1,
        "member_count": len(names),
        "members_joined": list(names),
        "members_left": [],
        "members_kept": [],
        "leader_id": None,
        "previous_leader_id": None,
        "protocol": None,
        "previous_protocol": None,
        "partitions_moved": None,
        "partitions_assigned": None,
        "partitions_released": None,
        "cause": "member_joined",
        "confidence": "certain",
        "evidence": "a joined.",
    }
    return {**usual, **fields}


def rewind(at: int = 5, **fields: Any) -> LowerCommit:
    usual = {"at": at, "record_offset": at, "time_ms": at * 1_000, "topic": "t", "topic_id": None, "partition": 0, "from_record_offset": 1}
    usual |= {"from_committed_offset": 9, "to_committed_offset": 8, "producer_id": None, "is_after_removal": False}
    return LowerCommit(**{**usual, **fields})


def events(*pieces: Piece, rebalances: tuple[dict[str, Any], ...] = (), ends: tuple[GroupRemoval, ...] = (), **limits: int) -> list[Event]:
    return list(timeline(pieces, rebalances, ends, retention_ms=MINUTE_MS, **limits))


def only(*pieces: Piece, **others: Any) -> str:
    (event,) = [event for event in events(*pieces, **others) if event.event not in ("rebalance", "assignment")]
    return event.what


NO_MEMBERS = "The group had no members then: an admin's tool committed it, or a client that is not a member."
NOT_KNOWN = "Who committed it is not known: the members of that time are in no record."


@pytest.mark.parametrize(
    ("before", "owner", "sentence"),
    [
        ((), None, NO_MEMBERS),
        ((rebalance(1, "a"),), None, "The group's only member then committed it: a."),
        ((rebalance(1, "a", "b"),), None, "One of 2 members committed it: a, b."),
        ((rebalance(1, "a", "b"),), "b", "One of 2 members committed it; the partition belonged to b."),
        ((rebalance(1, "a"), rebalance(2, member_count=0)), None, NO_MEMBERS),
        ((rebalance(1, members_joined=None, member_count=3),), None, "One of 3 members committed it."),
        ((rebalance(7, members_joined=None, member_count=3),), None, NOT_KNOWN),
        ((rebalance(7, "a"),), None, NO_MEMBERS),
    ],
)
def test_who_went_back_is_said_as_far_as_the_log_tells(before: tuple[dict[str, Any], ...], owner: str | None, sentence: str) -> None:
    assert only(rewind(owner=owner), rebalances=before) == f"t 0: went back from 9 to 8, by 1. {sentence}"


def test_a_rewind_in_a_transaction_names_the_producer() -> None:
    assert only(rewind(producer_id=7)) == "t 0: went back from 9 to 8, by 1. Producer 7 committed it in a transaction."


def test_commits_that_compaction_may_have_taken_are_mentioned() -> None:
    assert only(rewind(may_miss_commits=True)).endswith(" before a run read them: there may have been other commits.")


def test_a_lower_commit_after_a_removal_is_another_event() -> None:
    (event,) = events(rewind(is_after_removal=True))
    assert event.event == "committed_again" and event.what.startswith("t 0: committed again at 8, 1 below 9, where it was removed.")


def stretch(*partitions: PartitionStretch, in_transactions: int = 0, wait_ms: int = 0) -> Stretch:
    return Stretch(1, 1, 0, 0, in_transactions, wait_ms, partitions)


def test_a_stretch_tells_its_least_and_greatest_offset() -> None:
    assert only(stretch(ONE._replace(lowest=3, highest=7), ONE._replace(partition=1))) == "2 commits: t 0-1 at 3 to 7."


def test_commits_in_transactions_are_counted_apart() -> None:
    assert only(stretch(ONE, in_transactions=1)) == "1 commit (in a transaction): t 0 at 5."
    assert only(stretch(ONE, ONE._replace(partition=1), in_transactions=2)) == "2 commits (all in transactions): t 0-1 at 5."
    long = only(stretch(ONE._replace(commits=9), in_transactions=2, wait_ms=MINUTE_MS))
    assert long.startswith("9 commits (2 in transactions, open for up to 1 min)")


def test_commits_that_were_replaced_before_their_transaction_ended_are_not_counted() -> None:
    reason = "never counted: a later commit or a removal of the same offset came before the end of its transaction."
    assert only(stretch(ONE._replace(replaced=1))) == f"1 commit: t 0 at 5. 1 more (t 0) {reason}"
    assert only(stretch(ONE._replace(commits=0, replaced=1, lowest=None, highest=None))) == f"1 commit (t 0) {reason}"


@pytest.mark.parametrize(
    ("result", "fields", "fate"),
    [
        ("aborted", {"ended_ms": 4_000}, "aborted after 3 s, so it does not count."),
        ("open", {}, "still open since 1970-01-01T00:00:01.000Z, so it does not count yet."),
        ("open", {"ended_ms": 4_000, "ended_later": "aborted"}, "until after the last moment shown (aborted at 1970-01-01T00:00:04.000Z)"),
        ("replaced", {}, "does not count any more: a later commit or a removal of the same offset came first."),
        ("unknown", {}, "no record of its end was read, and the newest run does not know it as open"),
    ],
)
def test_a_transaction_whose_commits_do_not_count_says_so(result: Any, fields: dict[str, Any], fate: str) -> None:
    usual: dict[str, Any] = {"ended_ms": None, "ended_later": None, **fields}
    what = only(Transaction(1, 1, 7, result, 1_000, partitions=[ONE], **usual))
    assert what.startswith("1 commit in a transaction of producer 7 (t 0 at 5): ") and fate in what


@pytest.mark.parametrize(
    ("removal", "sentence"),
    [
        (REMOVAL, "expired, 1 min 1 s after the last commit (offsets are kept for 1 min)."),
        (REMOVAL._replace(base_ms=2_000), "expired, 1 min after the group became Empty (offsets are kept for 1 min)."),
        (
            REMOVAL._replace(expire_ms=60_000),
            "expired, 2 s after the moment that its last commit asked for.",
        ),
        (
            REMOVAL._replace(cause="group_deleted"),
            "deleted with the whole group by a request (DeleteGroups), 1 min 1 s after the last commit (certain: it was due).",
        ),
        (
            REMOVAL._replace(cause="offsets_deleted", groups_at_once=1),
            "deleted by a request (OffsetDelete), 1 min 1 s after the last commit (certain: it was due).",
        ),
        (
            REMOVAL._replace(cause="topic_deleted", certainty="likely", commit_ms=None, evidence="No group kept one."),
            "removed because the topic was deleted (likely: no group kept one).",
        ),
        (
            REMOVAL._replace(cause="unknown", certainty="possible", commit_ms=None, evidence="The tombstone has no time."),
            "removed, and why is not known (possible: the tombstone has no time).",
        ),
    ],
)
def test_a_removal_says_its_cause(removal: OffsetRemoval, sentence: str) -> None:
    assert only(RemovedOffsets(9, 9, 62_000, [ONE], [removal])) == f"t 0: {sentence}"


@pytest.mark.parametrize(
    ("removal", "sentence"),
    [
        (END._replace(cause="group_deleted", with_offsets=True), "The group was deleted by a request (DeleteGroups)."),
        (
            END._replace(cause="expired", with_offsets=True),
            "The group was removed by the same cleanup: it had no members and no offset was left.",
        ),
        (END._replace(cause="expired", with_offsets=False), "A cleanup does that, and a request (DeleteGroups) looks the same."),
        (END._replace(cause="converted", with_offsets=False), "the group changes its protocol."),
        (END._replace(cause="unknown", with_offsets=False), "why is not known"),
    ],
)
def test_the_end_of_a_group_says_its_cause(removal: GroupRemoval, sentence: str) -> None:
    assert sentence in only(ends=(removal,))


def test_a_conversion_that_is_a_rebalance_is_not_told_as_the_groups_end() -> None:
    converted = rebalance(9, "a", cause="group_converted", evidence="The group was a classic group.")
    end = END._replace(record_offset=8, cause="converted")
    assert [event.event for event in events(rebalances=(converted,), ends=(end,))] == ["rebalance"]


def test_a_target_assignment_does_not_say_again_why_its_epoch_came() -> None:
    why = {"cause": "member_gone", "evidence": "b went."}
    epoch = rebalance(1, "a", kind="group_epoch", **why)
    first, second = events(rebalances=(epoch, rebalance(2, "a", kind="assignment", **why)))
    assert "b went." in first.what and second.what == "Target assignment 1. member_gone (certain)."
    counted = "It answers 2 group epochs; the cause is that of the last."
    late = rebalance(2, "a", kind="assignment", cause="member_gone", evidence=f"{counted} b went.")
    assert events(rebalances=(epoch, late))[1].what == f"Target assignment 1. member_gone (certain): {counted}"


def test_a_range_keeps_the_events_of_its_time_and_knows_the_members_before_it() -> None:
    (event,) = events(rewind(5), rebalances=(rebalance(1, "a"),), from_ms=2_000, to_ms=6_000)
    assert event.event == "rewind" and event.facts["members"] == ["a"]


def test_what_is_due_and_what_will_be_due_are_told_apart() -> None:
    due, later = expiries([Expiry(1, "X-B2", "t", 0), Expiry(9, "X-G2", None, None)], as_of_ms=5)
    assert due.what == "t 0: due to be removed by the next cleanup (rule X-B2)."
    assert later.what == "The group: will be removed, if nothing changes until then (rule X-G2)."
