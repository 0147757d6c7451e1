"""What files, tasks, chunks and batches cut apart gives the state that replaying record by record gives."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.answers.expiration import ExpirationJob, expirations_of
from groupcoord_spark.coordinator import PartitionReplay
from groupcoord_spark.coordinator.rebalances import KEY_TYPES, GroupRecord, Rebalance, rebalances
from groupcoord_spark.coordinator.semantics import JAVA, SCALA, Semantics
from groupcoord_spark.log import plan_logs
from groupcoord_spark.pipeline.division import Division
from groupcoord_spark.pipeline.exchange.state_rows import WRITTEN_ROWS, state_rows, to_arrow
from groupcoord_spark.pipeline.plan.tasks import partitions_in_one_sequence, read_tasks
from groupcoord_spark.pipeline.read.reader import ReadJob
from groupcoord_spark.pipeline.rebalances import REBALANCES, RebalanceJob
from groupcoord_spark.pipeline.replay.partition import ReplayJob
from groupcoord_spark.protocol import DecodeError, decode_key, decode_value, definition
from groupcoord_spark.warehouse import TABLES
from tests.conftest import DECODERS, decoder
from tests.coordinator.records import Record
from tests.examples import examples
from tests.log.log_writer import T0
from tests.log.test_ranges import ranges_of
from tests.pipeline.local_run import rows_of_reports, run_locally
from tests.pipeline.logs import LogRecord, random_log
from tests.pipeline.segment_files import random_codecs, write_log
from tests.running import plain_rows, rows_of, run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

AS_OF_MS, RETENTION_MS = 2_000_000, 60_000
HISTORY_TABLES = ("offset_commits", "group_records", "transactions")

Logs = Mapping[int, Sequence[LogRecord]]
Rows = Mapping[str, Sequence[Mapping[str, Any]]]


def replayed_by_the_rule(log: Sequence[LogRecord], semantics: Semantics) -> PartitionReplay:
    """Return each record decoded alone by the definition, applied alone."""
    replay = PartitionReplay(semantics)
    for each in log:
        group_id = None
        try:
            if each.control_type < 0:
                key = decode_key(each.key)
                group_id = key.fields.get("group_id")
                decode_value(key.key_type, each.value)
        except DecodeError as refusal:
            replay.refuse(each.record_offset, refusal.code, refusal.detail, group_id)
            continue
        record = Record(
            each.key,
            each.value,
            each.producer_id,
            0,
            each.is_transactional,
            each.control_type if each.control_type >= 0 else None,
            T0 + each.record_offset,
        )
        record.apply_to(replay, each.record_offset)
    return replay


def type_0_offsets(log: Sequence[LogRecord]) -> set[tuple[str, str, int]]:
    """Offsets whose newest record under a key of type 0 has a value; records that do not decode are none."""
    is_value: dict[tuple[str, str, int], bool] = {}
    for each in log:
        if each.control_type < 0 and each.key is not None and each.key.startswith(b"\0\0"):
            with suppress(DecodeError):
                fields = decode_key(each.key).fields
                is_value[fields["group_id"], fields["topic"], fields["partition"]] = decode_value(0, each.value) is not None
    return {offset for offset, is_there in is_value.items() if is_there}


def tables_by_the_rule(logs: Logs, semantics: Semantics) -> Rows:
    tables: dict[str, list[Mapping[str, Any]]] = {table: [] for table in WRITTEN_ROWS}
    for offsets_partition, log in logs.items():
        state = replayed_by_the_rule(log, semantics).finish()
        expirations = expirations_of(state, ExpirationJob(AS_OF_MS, RETENTION_MS, semantics), type_0_offsets(log))
        for table, rows in state_rows(state, expirations).items():
            arrow = to_arrow(TABLES[table], WRITTEN_ROWS[table], rows)
            tables[table] += rows_of_partition(table, arrow, offsets_partition)
    return tables


def rebalances_by_the_rule(logs: Logs) -> list[dict[str, Any]]:
    """Return each record decoded alone by the definition: no part of one is the same object as a part of another."""
    rows = []
    for offsets_partition, log in logs.items():
        arrow = to_arrow(TABLES[REBALANCES], Rebalance._fields, list(rebalances(group_records(log))))
        arrow = arrow.append_column("incarnation", pa.array([0] * arrow.num_rows, pa.int32()))
        rows += rows_of_partition(REBALANCES, arrow, offsets_partition)
    return rows


def group_records(log: Sequence[LogRecord]) -> Iterator[GroupRecord]:
    for each in log:
        if each.control_type < 0:
            with suppress(DecodeError):
                key = definition.decode_key(each.key)
                value = definition.decode_value(key.key_type, each.value)
                if key.key_type in KEY_TYPES:
                    fields = None if value is None else value.fields
                    yield GroupRecord(each.record_offset, T0 + each.record_offset, key.key_type, key.fields, fields)


def rows_of_partition(table: str, wire: pa.Table, offsets_partition: int) -> list[dict[str, Any]]:
    if "offsets_partition" in TABLES[table].by_name and "offsets_partition" not in wire.column_names:
        wire = wire.append_column("offsets_partition", pa.array([offsets_partition] * wire.num_rows, pa.int32()))
    if "run_id" in TABLES[table].by_name:
        wire = wire.append_column("run_id", pa.array(["run"] * wire.num_rows))
    return plain_rows(table, TABLES[table].from_milliseconds(wire))


def sorted_fields(row: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return sorted(row.items())


def comparable(tables: Rows) -> dict[str, Any]:
    """Return the rows sorted, without the names of topics, clusters and runs, which the replay does not set."""
    compared: dict[str, Any] = {}
    for table in WRITTEN_ROWS:
        rows = tables[table]
        if table == "warnings":
            rows = [row for row in rows if row["code"].startswith("R-")]
        left_out = {"cluster", "run_id"} | {"assignments": {"topic"}, "warnings": {"source", "position"}}.get(table, set())
        compared[table] = Counter(repr([each for each in sorted_fields(row) if each[0] not in left_out]) for row in rows)
    return compared


class Cut(random.Random):
    """How a log is cut: everything about it is drawn from one seed."""

    def write(self, directory: Path, logs: Logs) -> None:
        for offsets_partition, log in logs.items():
            write_log(
                directory,
                log,
                offsets_partition=offsets_partition,
                segments=self.randint(1, 4),
                largest_batch=self.randint(1, 8),
                codecs=random_codecs(self),
            )


def random_logs(rng: random.Random, length: int) -> Logs:
    """Random logs whose groups differ by partition: a group in two partitions is left out of the state in one of them."""
    partitions = rng.sample(range(5), rng.randint(1, 3))
    return {number: [in_partition(each, number) for each in random_log(rng, rng.randint(1, length))] for number in partitions}


def in_partition(record: LogRecord, offsets_partition: int) -> LogRecord:
    """Return the record with its group id, one letter after type and length, replaced by one that belongs into this partition of 5."""
    key = record.key
    if key is None or len(key) < 5 or key[2:4] != b"\0\1" or key[4] not in b"ghk":
        return record
    return record._replace(key=key[:4] + bytes([40 + 20 * b"ghk".index(key[4]) + offsets_partition]) + key[5:])


def read_and_replay(directory: Path, semantics: Semantics, cut: Cut) -> tuple[Rows, list[dict[str, Any]], int]:
    """(tables, rows of history, records read) of a run without Spark, with every border somewhere else."""
    plan = plan_logs([str(directory)])
    segments = [segment for each in plan.partitions for segment in each.segments]
    job = ReadJob(
        cluster="c",
        partition_count=5,
        warehouse_uri=str(directory / "warehouse"),
        run_id="run",
        semantics=semantics,
        with_history=True,
        history_ranges={},
        rebalances=RebalanceJob(str(directory / "warehouse"), "c", {}, None),
        chunk_bytes=cut.choice((1, 100, 700, 1 << 20)),
        row_bytes=cut.choice((1, 300, 2_000, 1 << 20)),
    )
    segments = [part for segment in segments for part in ranges_of(segment, cut.choice((70, 300, 1 << 20)))]
    tasks = read_tasks(segments, Division(cut.randint(1, 4), is_cluster=cut.choice((True, False))))
    if cut.choice((True, False)):
        job = replace(job, whole_partitions=partitions_in_one_sequence(tasks))
    replay_job = ReplayJob(semantics, ExpirationJob(AS_OF_MS, RETENTION_MS, semantics), cut.randint(1, 2), job.rebalances)
    reports = run_locally(tasks, job, replay_job, rows_per_frame=cut.choice((1, 2, 7, 1000)))
    assert all(report.counts.records == report.counts.decoded + report.counts.quarantined for report in reports)
    tables = rows_of_reports(job.warehouse_uri, reports)
    history = [row for table in HISTORY_TABLES for row in tables[table]]
    return tables, history, sum(report.counts.records for report in reports)


@examples(40)
@given(seed=st.integers(0, 2**32), length=st.integers(1, 60))
def test_a_log_cut_anywhere_gives_the_state_of_the_rule(seed: int, length: int) -> None:
    cut = Cut(seed)
    semantics, logs = cut.choice((JAVA, SCALA)), random_logs(cut, length)
    with tempfile.TemporaryDirectory() as directory, decoder(cut.choice(DECODERS)):
        cut.write(Path(directory), logs)
        tables, history, records = read_and_replay(Path(directory), semantics, cut)
    assert comparable(tables) == comparable(tables_by_the_rule(logs, semantics))
    assert sorted(map(repr, map(sorted_fields, tables[REBALANCES]))) == sorted(map(repr, map(sorted_fields, rebalances_by_the_rule(logs))))
    assert records == sum(map(len, logs.values()))
    places = Counter((row["offsets_partition"], row["record_offset"]) for row in history)
    assert set(places.values()) <= {1}
    assert places.keys() == {(p, each.record_offset) for p, log in logs.items() for each in log if is_in_history(each)}


def is_in_history(record: LogRecord) -> bool:
    """Return whether a record decodes, or is kept whole because its type, or the version of a group's value, is not known."""
    if record.control_type >= 0:
        return record.control_type <= 1
    try:
        key = decode_key(record.key)
    except DecodeError as refusal:
        return refusal.code == "unknown_key_type"
    try:
        decode_value(key.key_type, record.value)
    except DecodeError as refusal:
        return refusal.code == "unknown_value_version" and key.key_type > 1
    return True


@pytest.mark.parametrize(("seed", "semantics"), [(3, SCALA), (77, JAVA)], ids=["scala", "java"])
def test_a_night_gives_the_state_of_the_rule(local: LocalSession, tmp_path: Path, seed: int, semantics: Semantics) -> None:
    assert_night_gives_the_state_of_the_rule(local, tmp_path, seed, semantics)


def test_a_night_of_spark_gives_the_state_of_the_rule(spark: SparkSession, tmp_path: Path) -> None:
    assert_night_gives_the_state_of_the_rule(spark, tmp_path, 3, JAVA)


def assert_night_gives_the_state_of_the_rule(
    session: SparkSession | LocalSession, tmp_path: Path, seed: int, semantics: Semantics
) -> None:
    cut = Cut(seed)
    logs = {offsets_partition: [in_partition(each, offsets_partition) for each in random_log(cut, 120)] for offsets_partition in range(5)}
    cut.write(tmp_path / "logs", logs)
    run(session, tmp_path / "w", tmp_path / "logs", as_of_ms=AS_OF_MS, retention_ms=RETENTION_MS, semantics=semantics)
    tables = {table: rows_of(tmp_path / "w", table) for table in WRITTEN_ROWS}
    assert comparable(tables) == comparable(tables_by_the_rule(logs, semantics))
