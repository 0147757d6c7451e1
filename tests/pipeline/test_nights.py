"""A log cut into runs, compacted between them or not, gives the rows that one run over the whole log gives. Without Spark."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.answers.expiration import ExpirationJob
from groupcoord_spark.coordinator.semantics import JAVA, SCALA, Semantics
from groupcoord_spark.log import PartitionLog, changed_files, has_every_offset, plan_logs, segments_from
from groupcoord_spark.pipeline.exchange.kept_records import KEPT, as_one, empty_batch
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport
from groupcoord_spark.pipeline.extents import CarriedState, HistoryRange
from groupcoord_spark.pipeline.outcome import files_by_table
from groupcoord_spark.pipeline.read.reader import ReadJob
from groupcoord_spark.pipeline.rebalances import RebalanceJob
from groupcoord_spark.pipeline.replay import partition
from groupcoord_spark.pipeline.replay.partition import ReplayJob
from groupcoord_spark.protocol.definition import decode_key
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.wording import first_of
from tests.coordinator.records import group_epoch
from tests.examples import examples
from tests.log.log_writer import write_segment
from tests.pipeline.local_run import rows_of_reports, run_locally
from tests.pipeline.logs import LogRecord, classic_group_key, classic_value, commit_value, offset_key, random_log
from tests.pipeline.segment_files import batch_of, batches_of
from tests.pipeline.test_distributed_replay import AS_OF_MS, RETENTION_MS, Rows, comparable, sorted_fields

OF_THE_END = ("R-1.26", "R-1.28", "R-3.29", "R-4.6")
"""Warnings about the state at the end of a log. A run gives those that the last run has not given."""

HISTORY = ("offset_commits", "group_records", "transactions")

COORDINATORS = st.sampled_from([JAVA, SCALA])


class Night(NamedTuple):
    """What a run leaves: its rows, its reports, and what the next run goes on from."""

    rows: Rows
    report: PartitionReport
    latest: pa.RecordBatch
    log: PartitionLog
    went_on: bool
    history_end: int


def contiguous(log: Sequence[LogRecord]) -> list[LogRecord]:
    return [record._replace(record_offset=offset) for offset, record in enumerate(log)]


def nights_of(rng: random.Random, log: Sequence[LogRecord], nights: int) -> list[Sequence[LogRecord]]:
    borders = [0, *sorted(rng.randint(0, len(log)) for _ in range(nights - 1)), len(log)]
    return [log[begin:end] for begin, end in pairwise(borders)]


def cleaned(rng: random.Random, log: Sequence[LogRecord], read: int, *, keeps_tombstones: bool = False) -> list[LogRecord]:
    """Return the log after the cleaner: below a random point of the read records, superseded records are gone, and some tombstones.

    The last record stays: the cleaner leaves the active segment alone, and a log never ends before its end.
    """
    point = rng.randint(0, min(read, log[-1].record_offset) if log else 0)
    last = {record.key: record.record_offset for record in log if record.control_type < 0}
    is_old = [record.record_offset < point and record.control_type < 0 for record in log]
    drops_tombstones = rng.random() < 0.5 and not keeps_tombstones
    return [
        record
        for record, old in zip(log, is_old, strict=True)
        if not old or (last[record.key] == record.record_offset and not (record.value is None and drops_tombstones))
    ]


def write(directory: Path, rng: random.Random, nights: Sequence[Sequence[LogRecord]]) -> PartitionLog:
    """Return the directory of a partition; no batch has records of two runs. The plan of the log."""
    shutil.rmtree(directory, ignore_errors=True)
    batches = [batch for night in nights for batch in batches_of(night, 4)]
    borders = sorted({0, len(batches), *(rng.randint(0, len(batches)) for _ in range(rng.randint(0, 2)))})
    for begin, end in pairwise(borders):
        part = batches[begin:end]
        # The first file of a log keeps its name when the cleaner takes its first records.
        write_segment(directory, [batch_of(batch) for batch in part], base_offset=part[0][0].record_offset if begin else 0)
    if len(borders) < 2:
        write_segment(directory, [], base_offset=0)
    (log,) = plan_logs([str(directory)]).partitions
    return log


def read_night(
    directory: Path, log: PartitionLog, before: Night | None, semantics: Semantics, *, full: bool = False, with_history: bool = True
) -> Night:
    """Return a run over the log, which goes on from the last run where that is possible."""
    end, history_end = (0, 0) if before is None else (before.log.end_offset, before.history_end)
    segments, carried, changed = log.segments, None, {}
    if before is not None and not full and (history_end == end or not with_history):
        new = segments_from(log, end, before.log.end_file, before.log.end_position)
        if has_every_offset(new, end, log.end_offset):
            segments, carried = new, CarriedState({}, {0: end}, {})
            files = changed_files(log, before.log.files, end, before.log.end_position)
            changed = {} if files is None else {0: files}
    history_range = HistoryRange(0, 0, history_end)
    rebalances = RebalanceJob(str(directory / "warehouse"), "c", {0: history_range}, None)
    job = ReadJob(
        "c",
        5,
        str(directory / "warehouse"),
        "run",
        semantics,
        with_history=with_history,
        history_ranges={0: history_range},
        rebalances=rebalances,
        carried_partitions=frozenset(() if carried is None else (0,)),
    )
    expiration = ExpirationJob(AS_OF_MS, RETENTION_MS, semantics)
    remembered = CarriedState({}, {0: end}, {}) if carried is None and before is not None else None
    compared = frozenset([0] if full and before is not None else [])
    replay_job = ReplayJob(semantics, expiration, 1, rebalances, carried=carried, changed=changed, remembered=remembered, compared=compared)
    latest = empty_batch() if before is None else before.latest
    with (
        patch.object(partition, "carried_records", lambda *_: latest),
        patch.object(partition, "carried_topic_names", lambda *_: {}),
    ):
        tasks = [[segments]] if segments else []
        if not tasks and carried is None:
            return Night(dict.fromkeys(TABLES, ()), PartitionReport(0), empty_batch(), log, went_on=False, history_end=0)
        reports = run_locally(tasks, job, replay_job)
    return Night(
        rows_of_reports(job.warehouse_uri, reports),
        next(report for report in reports if report.offsets_partition == 0),
        latest_records(job.warehouse_uri, reports),
        log,
        carried is not None,
        log.end_offset if with_history else history_end,
    )


def latest_records(warehouse: str, reports: Sequence[PartitionReport]) -> pa.RecordBatch:
    table = TABLES["latest_records"]
    files = files_by_table(reports).get(table.name, [])
    parts = [pq.ParquetFile(f"{warehouse}/{table.name}/{file.path}").read() for file in files]
    if not parts:
        return empty_batch()
    rows = pa.concat_tables(parts).select([column.name for column in table.columns if column.name != "cluster"])
    return as_one(table.to_milliseconds(rows.cast(pa.schema(table.file_schema))).select(KEPT.names).cast(KEPT).to_batches())


def state_of(night: Night) -> dict[str, Any]:
    tables = comparable({table: night.rows.get(table, ()) for table in TABLES})
    return {table: rows for table, rows in tables.items() if table != "warnings"}


def warnings_of(nights: Sequence[Night]) -> Mapping[str, Counter[str]]:
    """Warnings of all runs, apart for those about the state at the end of the log."""
    given: dict[str, Counter[str]] = {"of records": Counter(), "of the end": Counter()}
    for night in nights:
        for row in night.rows.get("warnings", ()):
            if row["code"].startswith("R-"):
                place = [field for field in sorted_fields(row) if field[0] not in ("cluster", "run_id", "source", "position")]
                given["of the end" if row["code"] in OF_THE_END else "of records"][repr(place)] += 1
    return given


def history_of(nights: Sequence[Night]) -> list[int]:
    return sorted(row["record_offset"] for night in nights for table in HISTORY for row in night.rows.get(table, ()))


def assert_state_and_history_of_one_run(nights: Sequence[Night], whole: Night) -> None:
    """Check that the last run has the state of one run over the whole log, and all runs together its history."""
    last = nights[-1]
    assert all(night.report.vanished is None for night in nights)
    assert state_of(last) == state_of(whole)
    figures = [(night.report.live_keys, night.report.first_open_offset, night.report.groups) for night in (last, whole)]
    assert figures[0] == figures[1]
    assert history_of(nights) == history_of([whole])


@examples(12)
@given(semantics=COORDINATORS, seed=st.integers(0, 2**32), length=st.integers(1, 80), count=st.integers(2, 5))
def test_nights_with_a_cleaning_before_each_give_the_rows_of_one_run(semantics: Semantics, seed: int, length: int, count: int) -> None:
    rng = random.Random(seed)
    log = contiguous(random_log(rng, length))
    parts = nights_of(rng, log, count)
    directory = Path(tempfile.mkdtemp())
    try:
        whole = read_night(directory, write(directory, rng, parts), None, semantics)
        nights: list[Night] = []
        on_disk: list[Sequence[LogRecord]] = []
        for part in parts:
            if nights:
                on_disk = [cleaned(rng, [record for each in on_disk for record in each], nights[-1].log.end_offset)]
            on_disk = [*on_disk, part]
            nights.append(read_night(directory, write(directory, rng, on_disk), nights[-1] if nights else None, semantics))
    finally:
        shutil.rmtree(directory)
    first = next((number for number, part in enumerate(parts) if part), 0)
    assert all(night.went_on for night in nights[first + 1 :])
    assert_state_and_history_of_one_run(nights, whole)
    assert sum(night.report.counts.records for night in nights) == whole.report.counts.records
    given_by_nights, given_at_once = warnings_of(nights), warnings_of([whole])
    assert given_by_nights["of records"] == given_at_once["of records"]
    assert not given_at_once["of the end"] - given_by_nights["of the end"]


@examples(12)
@given(semantics=COORDINATORS, seed=st.integers(0, 2**32), length=st.integers(2, 80))
def test_a_night_after_the_cleaner_was_at_work_on_new_records_reads_the_whole_log(semantics: Semantics, seed: int, length: int) -> None:
    rng = random.Random(seed)
    log = contiguous(random_log(rng, length))
    cut = rng.randint(1, length - 1)
    left = cleaned(rng, log, length)
    directory = Path(tempfile.mkdtemp())
    try:
        first = read_night(directory, write(directory, rng, [log[:cut]]), None, semantics)
        parts = [[r for r in left if r.record_offset < cut], [r for r in left if r.record_offset >= cut]]
        plan = write(directory, rng, parts)
        second, whole = read_night(directory, plan, first, semantics), read_night(directory, plan, None, semantics)
    finally:
        shutil.rmtree(directory)
    missing = cut + len(parts[1]) < plan.end_offset or plan.end_offset < cut
    assert second.went_on is not missing
    if missing:
        assert state_of(second) == state_of(whole)


@examples(12)
@given(semantics=COORDINATORS, seed=st.integers(0, 2**32), length=st.integers(2, 120))
def test_no_key_vanishes_by_a_cleaning_that_keeps_tombstones(semantics: Semantics, seed: int, length: int) -> None:
    rng = random.Random(seed)
    log = contiguous(random_log(rng, length))
    cut = rng.randint(1, length - 1)
    left = cleaned(rng, log, length, keeps_tombstones=True)
    directory = Path(tempfile.mkdtemp())
    try:
        first = read_night(directory, write(directory, rng, [log[:cut]]), None, semantics)
        parts = [[r for r in left if r.record_offset < cut], [r for r in left if r.record_offset >= cut]]
        second = read_night(directory, write(directory, rng, parts), first, semantics, full=True)
    finally:
        shutil.rmtree(directory)
    assert second.report.vanished is None


def write_files(directory: Path, log: Sequence[LogRecord], cut: int) -> PartitionLog:
    """Return the plan of a log with a file for every ten offsets, and one that begins at ``cut``."""
    shutil.rmtree(directory, ignore_errors=True)
    for begin, end in pairwise([*range(0, cut, 10), cut, log[-1].record_offset + 1]):
        records = [record for record in log if begin <= record.record_offset < end]
        write_segment(directory, [batch_of(batch) for batch in batches_of(records, 4)], base_offset=begin)
    return plan_logs([str(directory)]).partitions[0]


@examples(12)
@given(seed=st.integers(0, 2**32))
def test_live_keys_of_a_lost_range_vanish_and_no_others(seed: int) -> None:
    rng = random.Random(seed)
    commits = [(offset_key(f"g{rng.randrange(6)}", partition=rng.randrange(3)), rng.random() < 0.2) for _ in range(60)]
    log = [LogRecord(at, key, None if is_tombstone else commit_value(at)) for at, (key, is_tombstone) in enumerate(commits)]
    cut = rng.randint(20, 50)
    begin = rng.randint(0, cut - 1)
    end = rng.randint(begin + 1, cut)
    left = [record for record in log if not begin <= record.record_offset < end]
    newest = {record.key: record for record in log[:cut]}
    last_left = {record.key: record.record_offset for record in left}
    live = sorted((record for record in newest.values() if record.value is not None), key=lambda record: record.record_offset)
    lost = [record for record in live if last_left.get(record.key, -1) < record.record_offset]
    directory = Path(tempfile.mkdtemp())
    try:
        whole = read_night(directory, write_files(directory, log, cut), None, JAVA)
        first = read_night(directory, write_files(directory, log[:cut], cut), None, JAVA)
        plan = write_files(directory, left, cut)
        of_new_records, of_all = (read_night(directory, plan, first, JAVA, full=full) for full in (False, True))
    finally:
        shutil.rmtree(directory)
    assert (of_new_records.went_on, of_all.went_on) == (True, False)
    assert state_of(of_new_records) == state_of(whole)
    groups = dict.fromkeys(repr(decode_key(record.key).fields["group_id"]) for record in lost)
    for night in (of_new_records, of_all):
        vanished = night.report.vanished
        if not lost:
            assert vanished is None
            continue
        assert vanished is not None and vanished.is_kept is night.went_on
        assert (vanished.keys, vanished.live_keys) == (len(lost), len(live))
        assert (vanished.first_offset, vanished.last_offset) == (lost[0].record_offset, lost[-1].record_offset)
        assert vanished.groups == first_of(list(groups), 5)
        assert {record for record in live if vanished.run[0] <= record.record_offset <= vanished.run[1]} <= set(lost)


def test_keys_of_the_former_kind_of_a_converted_group_do_not_vanish() -> None:
    rng = random.Random(1)
    before = [LogRecord(0, classic_group_key(), classic_value(1, 0)), LogRecord(1, offset_key(), commit_value(1))]
    epoch = group_epoch(2, group="g")
    directory = Path(tempfile.mkdtemp())
    try:
        first = read_night(directory, write(directory, rng, [before]), None, JAVA)
        left = [before[1:], [LogRecord(3, epoch.key, epoch.value)]]
        reports = [read_night(directory, write(directory, rng, left), first, JAVA).report]
        reports.append(read_night(directory, write(directory, rng, [before[1:], [LogRecord(3, b"\x00\x63", b"x")]]), first, JAVA).report)
    finally:
        shutil.rmtree(directory)
    assert reports[0].vanished is None
    assert reports[1].vanished is not None and reports[1].vanished.groups == "'g'"


KINDS_OF_NIGHTS = ("usual", "usual", "usual", "full", "without history", "missing")
"""missing: the input of the run lacks the offsets partition; its state is carried over."""


@examples(12)
@given(semantics=COORDINATORS, seed=st.integers(0, 2**32), length=st.integers(1, 80), count=st.integers(3, 7))
def test_nights_of_every_kind_give_the_rows_of_one_run(semantics: Semantics, seed: int, length: int, count: int) -> None:
    rng = random.Random(seed)
    log = contiguous(random_log(rng, length))
    parts = nights_of(rng, log, count)
    between = ["full", *(rng.choice(KINDS_OF_NIGHTS) for _ in parts[3:])]
    rng.shuffle(between)
    kinds = ["usual", *between, "usual"]
    directory = Path(tempfile.mkdtemp())
    try:
        whole = read_night(directory, write(directory, rng, parts), None, semantics)
        nights: list[Night] = []
        for number, kind in enumerate(kinds, 1):
            before = nights[-1] if nights else None
            if kind == "missing" and before is not None:
                plan = replace(before.log, segments=())
                night = read_night(directory, plan, before, semantics, with_history=before.history_end == before.log.end_offset)
                assert night.report.counts.records == 0
            else:
                plan = write(directory, rng, parts[:number])
                is_full, with_history = kind == "full", kind != "without history"
                night = read_night(directory, plan, before, semantics, full=is_full, with_history=with_history)
            nights.append(night)
    finally:
        shutil.rmtree(directory)
    assert_state_and_history_of_one_run(nights, whole)
    differing = [row for night in nights for row in night.rows.get("warnings", ()) if row["code"] == "carried_state_differs"]
    assert differing == []
