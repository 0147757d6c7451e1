"""Replaying what the drop keeps gives the state that replaying everything gives."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groupcoord_spark.coordinator.semantics import JAVA, SCALA, Semantics
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline import compact
from groupcoord_spark.pipeline.decode import decode_chunk
from groupcoord_spark.pipeline.expire import ExpirationJob, expirations_of
from groupcoord_spark.pipeline.ingest import kept_records, reduced_again
from groupcoord_spark.pipeline.ownership import Settled, settled
from groupcoord_spark.pipeline.replay import KeptRecordsReplay
from groupcoord_spark.pipeline.state import state_rows
from groupcoord_spark.protocol import encode_key, encode_value
from tests.pipeline.logs import LogRecord, classic_value, commit_value, random_log
from tests.pipeline.logs import records_of as columns_of

# A record that a later one replaces whole is dropped with the doubt or refusal it would have met; see compact.kept.
TOLD_BY_THE_SUCCESSOR = {"R-2.1", "R-2.2", "R-2.4", "R-3.4"}


def nothing_settled(records: Records, *_: Any) -> Settled:
    return Settled(frozenset(), frozenset(), np.zeros(len(records), np.bool_))


def state_of(chunks: list[list[LogRecord]], semantics: Semantics, *, drop: bool) -> dict[str, Any]:
    """Without ``drop`` the records are applied one by one."""
    with patch("groupcoord_spark.pipeline.replay.settled", settled if drop else nothing_settled):
        return _state_of(chunks, semantics, drop=drop)


def _state_of(chunks: list[list[LogRecord]], semantics: Semantics, *, drop: bool) -> dict[str, Any]:
    replay = KeptRecordsReplay(semantics)
    for chunk in chunks:
        records = columns_of(chunk)
        decoded = decode_chunk(records, semantics)
        rows = compact.kept(decoded.kinds) if drop else np.ones(len(chunk), np.bool_)
        if rows.any():
            replay.apply(kept_records(records, np.flatnonzero(rows), decoded.decodes))
    state = replay.coordinator.finish()
    rows = state_rows(state, expirations_of(state, ExpirationJob(2_000_000, 60_000, semantics)))
    warnings = rows.pop("warnings")
    told = {(w.code, w.group_id) for w in warnings if w.code == "R-3.4"}
    exact = sorted(w for w in warnings if w.code not in TOLD_BY_THE_SUCCESSOR)
    return {**rows, "warnings": exact, "refused": told, "live_keys": replay.live_keys, "first_open_offset": replay.first_open_offset}


def chunks_of(log: list[LogRecord], sizes: list[int]) -> list[list[LogRecord]]:
    chunks, at = [], 0
    while at < len(log):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(log[at : at + size])
        at += size
    return chunks


@pytest.mark.parametrize("semantics", [JAVA, SCALA], ids=["java", "scala"])
@settings(max_examples=400, print_blob=True, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 60), sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4))
def test_what_is_kept_replays_to_the_same_state(semantics: Semantics, seed: int, length: int, sizes: list[int]) -> None:
    log = random_log(random.Random(seed), length)
    chunks = chunks_of(log, sizes)
    assert state_of(chunks, semantics, drop=True) == state_of([log], semantics, drop=False)


@settings(max_examples=150, print_blob=True, deadline=None)
@given(seed=st.integers(0, 2**32), length=st.integers(2, 60))
def test_dropping_again_from_joined_chunks_changes_nothing(seed: int, length: int) -> None:
    log = random_log(random.Random(seed), length)
    records = columns_of(log)
    whole = kept_records(records, np.arange(len(log)), decode_chunk(records, JAVA).decodes)
    once = reduced_again(whole, JAVA)
    twice = reduced_again(once, JAVA)
    assert once.num_rows >= twice.num_rows
    first, second = KeptRecordsReplay(JAVA), KeptRecordsReplay(JAVA)
    first.apply(once)
    second.apply(twice)
    assert first.coordinator.finish().committed_offsets() == second.coordinator.finish().committed_offsets()


def kept_offsets(log: list[LogRecord]) -> list[int]:
    records = columns_of(log)
    return records.record_offset[compact.kept(decode_chunk(records, JAVA).kinds)].tolist()


OFFSET = encode_key(1, {"group_id": "g", "topic": "t", "partition": 0})
OTHER = encode_key(1, {"group_id": "g", "topic": "u", "partition": 0})
GROUP = encode_key(2, {"group_id": "g"})


def test_of_many_commits_of_one_key_the_last_is_kept() -> None:
    assert kept_offsets([LogRecord(i, OFFSET, commit_value(i)) for i in range(50)]) == [49]


def test_the_last_tombstone_stays_beside_the_value_after_it() -> None:
    log = [LogRecord(0, OFFSET, None), LogRecord(1, OFFSET, None), LogRecord(2, OFFSET, commit_value(1))]
    assert kept_offsets(log) == [1, 2]


def test_a_value_before_its_tombstone_stays_because_it_made_the_group() -> None:
    assert kept_offsets([LogRecord(0, OFFSET, commit_value(1)), LogRecord(1, OFFSET, None)]) == [0, 1]


def test_the_last_commit_before_a_group_record_is_kept() -> None:
    before = [LogRecord(0, OTHER, commit_value(1)), LogRecord(1, OFFSET, commit_value(1))]
    after = [LogRecord(3, OFFSET, commit_value(2)), LogRecord(4, OTHER, commit_value(3))]
    assert kept_offsets([*before, LogRecord(2, GROUP, None), *after]) == [1, 2, 3, 4]


def test_a_record_that_does_not_decode_supersedes_nothing_and_is_kept() -> None:
    assert kept_offsets([LogRecord(0, OFFSET, commit_value(1)), LogRecord(1, OFFSET, b"\0\x03\0")]) == [0, 1]


def test_of_classic_group_records_in_a_row_the_last_is_kept() -> None:
    log = [LogRecord(i, GROUP, classic_value(i + 1, 1)) for i in range(5)]
    assert kept_offsets(log) == [4]


def test_records_in_transactions_and_markers_are_kept() -> None:
    staged = [LogRecord(0, OFFSET, commit_value(1), 7, True), LogRecord(1, OTHER, commit_value(2), 7, True)]
    assert kept_offsets([*staged, LogRecord(2, b"\0\0\0\1", None, 7, True, 1)]) == [0, 1, 2]


def test_of_what_a_transaction_stages_for_one_key_the_first_and_the_last_are_kept() -> None:
    staged = [LogRecord(i, OFFSET, commit_value(i), 7, True) for i in range(5)]
    assert kept_offsets([*staged, LogRecord(5, b"\0\0\0\1", None, 7, True, 1)]) == [0, 4, 5]


def test_a_target_is_kept_before_the_tombstone_of_its_member() -> None:
    target = encode_key(7, {"group_id": "g", "member_id": "x"})
    member = encode_key(5, {"group_id": "g", "member_id": "x"})
    epoch = LogRecord(0, encode_key(3, {"group_id": "g"}), encode_value(3, 0, {"epoch": 1}))
    nothing = encode_value(7, 0, {"topic_partitions": []})
    targets = [LogRecord(i, target, nothing) for i in (1, 2)]
    assert kept_offsets([epoch, *targets, LogRecord(3, member, None), LogRecord(4, target, nothing)]) == [0, 2, 3, 4]
    assert kept_offsets([epoch, *targets, LogRecord(4, target, nothing)]) == [0, 4]
