"""Replaying the latest records of a run and then the next records gives what replaying every record gives."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.answers.expiration import ExpirationJob, expirations_of
from groupcoord_spark.coordinator.semantics import JAVA, SCALA, Semantics, semantics_for
from groupcoord_spark.pipeline.exchange.kept_records import kept_records
from groupcoord_spark.pipeline.exchange.state_rows import state_rows
from groupcoord_spark.pipeline.read import superseded
from groupcoord_spark.pipeline.read.decode import decode_chunk
from groupcoord_spark.pipeline.replay.kept_records_replay import KeptRecordsReplay
from groupcoord_spark.pipeline.replay.latest_records import LatestRecords
from groupcoord_spark.protocol import encode_key
from tests.examples import examples
from tests.pipeline.logs import LogRecord, commit_value, random_log, records_of


def test_an_offset_of_key_type_0_may_come_back_though_a_record_after_it_does_not_decode() -> None:
    key = encode_key(0, {"group_id": "g", "topic": "t", "partition": 0})
    replay = KeptRecordsReplay(JAVA)
    replay.apply(kept([LogRecord(0, key, commit_value(0, 3)), LogRecord(1, key, b"\0\3\0")], JAVA))
    assert replay.type_0_offsets() == {("g", "t", 0)}


COORDINATORS = [JAVA, SCALA, semantics_for("java", "3.7"), semantics_for("java", "4.0.0")]


def kept(log: Sequence[LogRecord], semantics: Semantics) -> pa.RecordBatch:
    records = records_of(list(log))
    decoded = decode_chunk(records, semantics)
    return kept_records(records, np.flatnonzero(superseded.needed_for_replay(decoded.kinds)), decoded.decodes)


def result_of(replay: KeptRecordsReplay) -> dict[str, Any]:
    """Everything that the tables show of a replay, but for the warnings, which only the run of their record has."""
    state = replay.coordinator.finish()
    rows = state_rows(state, expirations_of(state, ExpirationJob(2_000_000, 60_000, replay.semantics), replay.type_0_offsets()))
    rows["warnings"] = [w for w in rows["warnings"] if w.code in ("R-1.26", "R-1.28", "R-3.29", "R-4.6")]
    return {**rows, "live_keys": replay.live_keys, "first_open_offset": replay.first_open_offset}


def nights_of(log: Sequence[LogRecord], cuts: Sequence[int]) -> list[Sequence[LogRecord]]:
    borders = [0, *sorted(cut % (len(log) + 1) for cut in cuts), len(log)]
    return [log[begin:end] for begin, end in pairwise(borders)]


def through_nights(nights: Sequence[Sequence[LogRecord]], semantics: Semantics) -> tuple[KeptRecordsReplay, pa.RecordBatch, Counter[Any]]:
    """Return the replay of the last run, its latest records, and the warnings of all runs."""
    latest, warnings = None, Counter[Any]()
    for night in nights:
        replay, held = KeptRecordsReplay(semantics), LatestRecords()
        if latest is not None:
            held.begin_with(latest)
            if latest.num_rows:
                replay.apply(latest)
        before = Counter(replay.coordinator.finish().warnings())
        if night:
            batch = kept(night, semantics)
            if batch.num_rows:
                replay.apply(batch)
                held.add(batch, replay)
        warnings += Counter(replay.coordinator.finish().warnings()) - before
        latest = held.reduced(replay)
    return replay, latest, warnings


@examples(80)
@given(
    semantics=st.sampled_from(COORDINATORS),
    seed=st.integers(0, 2**32),
    length=st.integers(1, 120),
    cuts=st.lists(st.integers(0, 120), max_size=6),
)
def test_nights_end_in_the_state_of_the_whole_log(semantics: Semantics, seed: int, length: int, cuts: list[int]) -> None:
    log = random_log(random.Random(seed), length)
    whole = KeptRecordsReplay(semantics)
    whole.apply(kept(log, semantics))
    warnings = Counter(whole.coordinator.finish().warnings())
    last, latest, warnings_of_nights = through_nights(nights_of(log, cuts), semantics)
    assert result_of(last) == result_of(whole)
    again = KeptRecordsReplay(semantics)
    if latest.num_rows:
        again.apply(latest)
    assert result_of(again) == result_of(whole)
    of_records = [w for w in warnings if w.code not in ("R-1.26", "R-1.28", "R-3.29", "R-4.6")]
    assert {w: warnings_of_nights[w] for w in of_records} == {w: warnings[w] for w in of_records}
    assert not warnings - warnings_of_nights
