"""Which transactions without a marker hang, and how certain it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from groupcoord_spark.doctor.hanging_transactions import (
    Certainty,
    Judgement,
    OpenTransaction,
    ProducerElsewhere,
    judge_by_coordinator,
    judge_by_log,
)
from groupcoord_spark.log.broker_dir.transaction_states import KnownTransactions
from groupcoord_spark.protocol.transaction_state import TransactionState

MINUTE = 60_000
BEGAN = 1_000 * MINUTE

TRANSACTION = OpenTransaction(
    producer_id=7, producer_epoch=3, first_offset=100, last_offset=101, first_timestamp_ms=BEGAN, last_timestamp_ms=BEGAN, records=2,
    batches=1, bytes=150, marker_epoch=-1, batches_after=10, bytes_after=900, pending=(("g", "t", 0),),
)  # fmt: skip
ELSEWHERE = ProducerElsewhere(offsets_partition=4, marker_offset=9, marker_timestamp_ms=-1, marker_epoch=3, is_commit=True, highest_epoch=3)
STATE = TransactionState("app", 7, 3, "Ongoing", 60_000, (("__consumer_offsets", 0), ("orders", 1)), BEGAN, BEGAN)


def judged(transaction: OpenTransaction = TRANSACTION, *elsewhere: ProducerElsewhere, age_ms: int = MINUTE, **settings: Any) -> Judgement:
    now_ms = BEGAN + age_ms
    return judge_by_log(transaction, elsewhere, now_ms=now_ms, newest_here_ms=settings.pop("newest_here_ms", now_ms), **settings)


def by_coordinator(
    state: TransactionState = STATE, *, age_ms: int = MINUTE // 2, offsets_partition: int = 0, is_complete: bool = False
) -> Judgement | None:
    known = KnownTransactions({state.producer_id: state}, BEGAN + age_ms, is_complete)
    return judge_by_coordinator(TRANSACTION, offsets_partition, known, now_ms=BEGAN + age_ms)


def test_transaction_of_a_minute_is_not_decidable() -> None:
    assert judged().certainty is Certainty.UNDECIDED
    assert not judged().hangs


def test_marker_with_a_higher_epoch_before_makes_it_certain() -> None:
    assert judged(replace(TRANSACTION, marker_epoch=4)).certainty is Certainty.CERTAIN


def test_marker_with_the_same_epoch_before_decides_nothing() -> None:
    judgement = judged(replace(TRANSACTION, marker_epoch=3))
    assert judgement.certainty is Certainty.UNDECIDED
    assert "came late after its marker" in judgement.reason


def test_higher_epoch_in_another_partition_makes_it_certain() -> None:
    assert judged(TRANSACTION, replace(ELSEWHERE, highest_epoch=4)).certainty is Certainty.CERTAIN


def test_marker_with_a_higher_epoch_alone_decides_nothing() -> None:
    """Since KIP-890 a transaction's own markers have the next epoch."""
    assert judged(TRANSACTION, replace(ELSEWHERE, marker_epoch=4, marker_timestamp_ms=BEGAN - 1)).certainty is Certainty.UNDECIDED


def test_later_marker_in_another_partition_makes_it_certain_once_this_partition_is_newer() -> None:
    other = replace(ELSEWHERE, marker_timestamp_ms=BEGAN + 500)
    assert judged(TRANSACTION, other).certainty is Certainty.CERTAIN
    assert judged(TRANSACTION, other, newest_here_ms=BEGAN + 600).certainty is Certainty.UNDECIDED


def test_earlier_marker_in_another_partition_decides_nothing() -> None:
    assert judged(TRANSACTION, replace(ELSEWHERE, marker_timestamp_ms=BEGAN)).certainty is Certainty.UNDECIDED


def test_age_beyond_the_longest_timeout_makes_it_likely() -> None:
    assert judged(age_ms=15 * MINUTE).certainty is Certainty.UNDECIDED
    assert judged(age_ms=15 * MINUTE + 1).certainty is Certainty.LIKELY
    assert judged(age_ms=16 * MINUTE, max_timeout_ms=60 * MINUTE).certainty is Certainty.CANDIDATE
    assert judged(age_ms=61 * MINUTE, max_timeout_ms=60 * MINUTE).certainty is Certainty.LIKELY


def test_snapshot_and_cleaned_records_behind_it_make_it_likely() -> None:
    assert judged(replace(TRANSACTION, in_no_snapshot=200)).certainty is Certainty.LIKELY
    assert judged(replace(TRANSACTION, is_cleaned_behind=True)).certainty is Certainty.LIKELY


def test_coordinator_that_knows_the_transaction_says_that_it_is_open() -> None:
    judgement = by_coordinator()
    assert judgement is not None and judgement.certainty is Certainty.OPEN


def test_coordinator_that_lets_the_timeout_pass_says_that_it_is_overdue() -> None:
    judgement = by_coordinator(age_ms=MINUTE + 1)
    assert judgement is not None and judgement.certainty is Certainty.OVERDUE


def test_coordinator_that_does_not_know_the_transaction_makes_it_certain() -> None:
    unlike = (
        STATE._replace(state="CompleteCommit", partitions=()),
        STATE._replace(partitions=(("orders", 1),)),
        STATE._replace(producer_epoch=4),
        STATE._replace(start_timestamp_ms=BEGAN + 5_000),
    )
    for state in unlike:
        judgement = by_coordinator(state)
        assert judgement is not None and judgement.certainty is Certainty.CERTAIN, state
    of_other_partition = by_coordinator(offsets_partition=1)
    assert of_other_partition is not None and of_other_partition.certainty is Certainty.CERTAIN


def test_coordinators_log_that_was_copied_earlier_decides_nothing() -> None:
    assert by_coordinator(STATE._replace(state="CompleteCommit"), age_ms=999) is None


def test_producer_that_the_complete_log_of_the_coordinator_does_not_know_hangs() -> None:
    of_another_producer = STATE._replace(producer_id=8)
    judgement = by_coordinator(of_another_producer, is_complete=True)
    assert judgement is not None and judgement.certainty is Certainty.CERTAIN
    assert "find-hanging" in judgement.reason


def test_producer_that_a_part_of_the_coordinators_log_does_not_know_is_judged_by_the_log() -> None:
    of_another_producer = STATE._replace(producer_id=8)
    assert by_coordinator(of_another_producer, is_complete=False) is None
    assert by_coordinator(of_another_producer, is_complete=True, age_ms=-1) is None


@pytest.mark.parametrize(("state", "epoch"), [("PrepareCommit", 4), ("PrepareAbort", 4), ("PrepareEpochFence", 3)])
def test_transaction_whose_markers_are_to_come_is_open_also_with_the_epoch_of_the_next_one(state: str, epoch: int) -> None:
    judgement = by_coordinator(STATE._replace(state=state, producer_epoch=epoch))
    assert judgement is not None and judgement.certainty is Certainty.OPEN


def test_transaction_is_open_where_the_coordinator_has_written_nothing_since_it_began() -> None:
    """As in a copy of a stopped broker with one transactional client."""
    judgement = by_coordinator(age_ms=0)
    assert judgement is not None and judgement.certainty is Certainty.OPEN
