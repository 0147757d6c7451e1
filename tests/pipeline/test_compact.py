"""Replaying what the drop keeps gives the state that replaying everything gives."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.answers.expiration import ExpirationJob, expirations_of
from groupcoord_spark.coordinator.semantics import JAVA, SCALA, Semantics, semantics_for
from groupcoord_spark.coordinator.state import LoadWarning
from groupcoord_spark.log import Records
from groupcoord_spark.pipeline.exchange.kept_records import kept_records
from groupcoord_spark.pipeline.exchange.state_rows import state_rows
from groupcoord_spark.pipeline.read import superseded
from groupcoord_spark.pipeline.read.decode import DecodedChunk, decode_chunk
from groupcoord_spark.pipeline.read.superseded import SupersedeBuffer
from groupcoord_spark.pipeline.replay.kept_records_replay import KeptRecordsReplay
from groupcoord_spark.pipeline.replay.redundant_assignments import RedundantRecords, find_redundant_records
from groupcoord_spark.protocol.record_types import MarkerType
from tests.coordinator.records import group_epoch
from tests.examples import examples
from tests.pipeline.logs import (
    MALFORMED_SUBSCRIPTIONS,
    OTHER_MARKER,
    LogRecord,
    classic_group_key,
    classic_value,
    classic_value_of,
    commit_value,
    log_of,
    marker,
    offset_key,
    random_log,
)
from tests.pipeline.logs import records_of as columns_of

COORDINATORS = [JAVA, SCALA, semantics_for("java", "3.7"), semantics_for("java", "4.0.0")]


pytestmark = pytest.mark.usefixtures("with_loops")


def nothing_redundant(decoded: DecodedChunk, *_: Any) -> RedundantRecords:
    return RedundantRecords(frozenset(), frozenset(), np.zeros(len(decoded.records), np.bool_))


def state_of(chunks: list[list[LogRecord]], semantics: Semantics, *, drop: bool) -> dict[str, Any]:
    """Without ``drop`` the records are applied one by one."""
    of_module = "groupcoord_spark.pipeline.replay.kept_records_replay.find_redundant_records"
    with patch(of_module, find_redundant_records if drop else nothing_redundant):
        return _state_of(chunks, semantics, drop=drop)


def _state_of(chunks: list[list[LogRecord]], semantics: Semantics, *, drop: bool) -> dict[str, Any]:
    replay, refused = KeptRecordsReplay(semantics), []
    for chunk in chunks:
        records = columns_of(chunk)
        decoded = decode_chunk(records, semantics)
        refused += refused_alone(records, decoded)
        rows = superseded.needed_for_replay(decoded.kinds) if drop else np.ones(len(chunk), np.bool_)
        if rows.any():
            replay.apply(kept_records(records, np.flatnonzero(rows), decoded.decodes))
    return _told_of(replay, semantics, refused)


def refused_alone(records: Records, decoded: DecodedChunk) -> list[LoadWarning]:
    """Return what the reader warns of."""
    notes = decoded.refusals
    group_ids = decoded.keys.group_id.take(pa.array(decoded.key_code[notes.row], mask=decoded.key_code[notes.row] < 0)).to_pylist()
    columns = (records.record_offset[notes.row].tolist(), group_ids, *(column.to_pylist() for column in notes.columns()))
    return list(map(LoadWarning, *columns))


def _told_of(replay: KeptRecordsReplay, semantics: Semantics, refused: list[LoadWarning]) -> dict[str, Any]:
    state = replay.coordinator.finish()
    rows = state_rows(state, expirations_of(state, ExpirationJob(2_000_000, 60_000, semantics)))
    warnings = Counter([*rows.pop("warnings"), *refused])
    return {**rows, "warnings": warnings, "live_keys": replay.live_keys, "first_open_offset": replay.first_open_offset}


def chunks_of(log: list[LogRecord], sizes: list[int]) -> list[list[LogRecord]]:
    chunks, at = [], 0
    while at < len(log):
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(log[at : at + size])
        at += size
    return chunks


@examples(80)
@given(
    semantics=st.sampled_from(COORDINATORS),
    seed=st.integers(0, 2**32),
    length=st.integers(1, 60),
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4),
    rows=st.integers(0, 30),
)
def test_what_is_kept_at_once_and_what_is_left_after_waiting_replay_to_the_same_state(
    semantics: Semantics, seed: int, length: int, sizes: list[int], rows: int
) -> None:
    log = random_log(random.Random(seed), length)
    chunks, replayed_one_by_one = chunks_of(log, sizes), state_of([log], semantics, drop=False)
    assert state_of(chunks, semantics, drop=True) == replayed_one_by_one
    assert state_after_waiting(chunks, semantics, rows) == replayed_one_by_one


def state_after_waiting(chunks: list[list[LogRecord]], semantics: Semantics, rows: int) -> dict[str, Any]:
    """Chunks that wait for each other as in a reader, and are looked at again with this number of rows held back."""
    replay = KeptRecordsReplay(semantics)
    waiting = SupersedeBuffer(buffer_bytes=2_000, least_rows_to_filter=rows)
    parts: list[pa.RecordBatch] = []
    refused: list[LoadWarning] = []
    for chunk in chunks:
        records = columns_of(chunk)
        decoded = decode_chunk(records, semantics)
        refused += refused_alone(records, decoded)
        parts += waiting.add(decoded)
    parts += waiting.flush()
    for part in parts:
        replay.apply(part)
    return _told_of(replay, semantics, refused)


@examples(60)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 60), sizes=st.lists(st.integers(1, 20), min_size=1, max_size=4))
def test_chunks_that_are_joined_are_what_they_are_as_one(seed: int, length: int, sizes: list[int]) -> None:
    log = random_log(random.Random(seed), length)
    parts = [decode_chunk(columns_of(chunk), JAVA) for chunk in chunks_of(log, sizes)]
    together, names = superseded.concatenated([(part.kinds, part.names) for part in parts])
    again, _ = superseded.concatenated([(together, names)])
    whole = decode_chunk(columns_of(log), JAVA)
    for kinds in (together, again):
        for each in fields(superseded.ChunkKinds):
            assert np.array_equal(getattr(kinds, each.name), getattr(whole.kinds, each.name))
    assert [each.to_pylist() for each in names] == [each.to_pylist() for each in whole.names]


ABORT, COMMIT = MarkerType.ABORT, MarkerType.COMMIT


def kept_offsets(log: list[LogRecord]) -> list[int]:
    records = columns_of(log)
    return records.record_offset[superseded.needed_for_replay(decode_chunk(records, JAVA).kinds)].tolist()


OFFSET = offset_key()
OTHER = offset_key(topic="u")
GROUP = classic_group_key()


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


def test_of_a_thousand_records_of_one_key_that_do_not_decode_one_is_kept_for_the_live_keys() -> None:
    undecodable = [LogRecord(i, OFFSET, b"\0\x03\0") for i in range(1000)]
    assert kept_offsets([*undecodable, *(LogRecord(1000 + i, None, b"\0\0") for i in range(1000))]) == [999]


def test_an_open_transaction_begins_with_a_record_that_does_not_decode() -> None:
    log = [LogRecord(0, OFFSET, b"\0\x03\0", 7, True), LogRecord(1, OFFSET, commit_value(1), 7, True)]
    assert kept_offsets(log) == [0, 1]
    assert state_of([log], JAVA, drop=True)["first_open_offset"] == 0


def test_what_a_loader_refuses_in_a_group_record_is_warned_of_though_a_later_record_replaces_it() -> None:
    refused = classic_value_of([("a", None, MALFORMED_SUBSCRIPTIONS[0])])
    log = [LogRecord(0, GROUP, refused), LogRecord(1, GROUP, classic_value(2, 1))]
    assert kept_offsets(log) == [1]
    assert [(each.record_offset, each.code) for each in state_of([log], JAVA, drop=True)["warnings"]] == [(0, "R-2.4")]


def test_each_record_of_a_consumer_group_over_a_classic_group_is_warned_of() -> None:
    epochs = log_of([group_epoch(number) for number in range(1, 5)], first_offset=1)
    warnings = state_of([[LogRecord(0, GROUP, classic_value(1, 1)), *epochs]], JAVA, drop=True)["warnings"]
    assert [(each.record_offset, each.code) for each in warnings] == [(i, "R-3.4") for i in range(1, 5)]


def test_of_classic_group_records_in_a_row_the_last_is_kept() -> None:
    log = [LogRecord(i, GROUP, classic_value(i + 1, 1)) for i in range(5)]
    assert kept_offsets(log) == [4]


def test_a_tombstone_of_a_classic_group_does_not_supersede_the_record_before_it() -> None:
    assert kept_offsets([LogRecord(0, GROUP, classic_value(1, 1)), LogRecord(1, GROUP, None)]) == [0, 1]


def test_records_in_transactions_and_markers_are_kept() -> None:
    staged = [LogRecord(0, OFFSET, commit_value(1), 7, True), LogRecord(1, OTHER, commit_value(2), 7, True)]
    assert kept_offsets([*staged, marker(2, 7, COMMIT)]) == [0, 1, 2]


def staged(record_offset: int, key: bytes, producer_id: int) -> LogRecord:
    return LogRecord(record_offset, key, commit_value(record_offset), producer_id, True)


def test_of_what_an_open_transaction_stages_for_one_key_the_first_and_the_last_are_kept() -> None:
    assert kept_offsets([staged(i, OFFSET, 7) for i in range(5)]) == [0, 4]


def test_of_what_a_committed_transaction_staged_for_one_key_the_last_is_kept() -> None:
    assert kept_offsets([*(staged(i, OFFSET, 7) for i in range(5)), marker(5, 7, COMMIT)]) == [4, 5]


def test_what_an_aborted_transaction_staged_is_dropped_but_for_the_newest_record_of_a_key() -> None:
    aborted = [staged(0, OFFSET, 7), staged(1, OTHER, 7), marker(2, 7, ABORT)]
    assert kept_offsets([*aborted, LogRecord(3, OFFSET, commit_value(3))]) == [1, 2, 3]


def test_a_committed_value_is_dropped_where_a_plain_record_comes_after_the_marker() -> None:
    plain = LogRecord(9, OFFSET, commit_value(9))
    assert kept_offsets([staged(0, OFFSET, 7), marker(1, 7, COMMIT), plain]) == [1, 9]
    assert kept_offsets([staged(0, OFFSET, 7), plain._replace(record_offset=1), marker(2, 7, COMMIT)]) == [0, 1, 2]


def test_a_committed_value_is_dropped_where_a_later_one_is_committed_by_a_later_marker() -> None:
    first, second = staged(0, OFFSET, 7), staged(1, OFFSET, 8)
    assert kept_offsets([first, second, marker(2, 7, COMMIT), marker(3, 8, COMMIT)]) == [1, 2, 3]
    assert kept_offsets([first, second, marker(2, 8, COMMIT), marker(3, 7, COMMIT)]) == [0, 1, 2, 3]
    assert kept_offsets([first, second, marker(2, 7, COMMIT)]) == [0, 1, 2]


def test_nothing_that_was_committed_is_dropped_where_the_coordinators_see_a_transaction_differently() -> None:
    committed = [staged(0, OFFSET, 7), marker(1, 7, COMMIT), LogRecord(2, OFFSET, commit_value(2))]
    for odd in (LogRecord(3, OTHER, None, 7, True), LogRecord(3, OTHER, commit_value(3), 7, False), marker(3, 7, OTHER_MARKER)):
        assert kept_offsets([*committed, odd]) == [0, 1, 2, 3]


def test_the_commit_that_begins_a_log_is_kept_before_the_first_record_of_its_group() -> None:
    log = [LogRecord(0, OFFSET, commit_value(1)), LogRecord(1, GROUP, classic_value(1, 1)), LogRecord(2, OFFSET, commit_value(2))]
    assert kept_offsets(log) == [0, 1, 2]


def test_of_classic_records_of_each_group_the_last_is_kept() -> None:
    log = [LogRecord(i, classic_group_key(group), classic_value(i + 1, 1)) for i, group in enumerate("aabbcc")]
    assert kept_offsets(log) == [1, 3, 5]


def test_of_what_a_second_producer_staged_for_one_key_the_last_is_kept() -> None:
    log = [staged(0, OTHER, 7), *(staged(i, OFFSET, 8) for i in (1, 2, 3)), marker(4, 7, COMMIT), marker(5, 8, COMMIT)]
    assert kept_offsets(log) == [0, 3, 4, 5]


def test_values_of_one_transaction_are_not_those_of_other_keys_in_the_next_one() -> None:
    third = offset_key(topic="v")
    first = [*(staged(i, key, 7) for i, key in enumerate((OFFSET, OTHER, third))), marker(3, 7, COMMIT)]
    second = [staged(4, OFFSET, 7), marker(5, 7, COMMIT)]
    still_open = [staged(6, OTHER, 9), staged(7, third, 9)]
    assert kept_offsets([*first, *second, *still_open]) == [1, 2, 3, 4, 5, 6, 7]


def test_the_commits_before_the_first_record_of_every_group_are_kept() -> None:
    log = []
    for number, group in enumerate("abc"):
        commits = [LogRecord(3 * number + i, offset_key(group), commit_value(i)) for i in (0, 2)]
        log += [commits[0], LogRecord(3 * number + 1, classic_group_key(group), classic_value(1, 1)), commits[1]]
    assert kept_offsets(log) == list(range(9))


def test_a_commit_before_a_record_that_finds_its_group_is_dropped() -> None:
    commits = [LogRecord(i, OFFSET, commit_value(i)) for i in (0, 2, 4)]
    first, second = LogRecord(1, GROUP, classic_value(1, 1)), LogRecord(3, GROUP, classic_value(2, 1))
    assert kept_offsets([commits[0], first, commits[1], second, commits[2]]) == [0, 3, 4]


@pytest.mark.parametrize("greatest", [(1 << 16) - 2, (1 << 16) - 1, 1 << 16, (1 << 16) + 1])
def test_codes_on_both_sides_of_sixteen_bits_are_sorted_and_those_without_come_first_or_last(greatest: int) -> None:
    code = np.array([greatest, 0, -1, 1, greatest, -1, 0], np.int64)
    rows = superseded.stable_order(code).tolist()
    assert [row for row in rows if code[row] >= 0] == [1, 6, 3, 0, 4]
    assert rows[:2] == [2, 5] or rows[-2:] == [2, 5]
