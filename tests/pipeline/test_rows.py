"""Rows of tables and lines of JSON: put in order, they are what the segments were; whole runs over them say the same."""

from __future__ import annotations

import base64
import json
import random
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from groupcoord_spark.cli.progress import StageLines
from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.errors import InputError, UsageError
from groupcoord_spark.log import Chunk, RecordMark, record_crc
from groupcoord_spark.pipeline.exchange.kept_records import ShuffledRow
from groupcoord_spark.pipeline.extents import Until
from groupcoord_spark.pipeline.night import run_stages
from groupcoord_spark.pipeline.plan.evidence import Evidence, group_hashes
from groupcoord_spark.pipeline.plan.input_rows import plan_rows, row_plan
from groupcoord_spark.pipeline.plan.row_overview import RowOverview
from groupcoord_spark.pipeline.read import rows as pipeline_rows
from groupcoord_spark.pipeline.read.rows import FileRows, chunks_by_partition, packed_rows, row_files, rows_in_order, sorted_table
from groupcoord_spark.pipeline.run import RunRequest, Summary
from groupcoord_spark.protocol import encode_key
from groupcoord_spark.sources.inputs import InputKind, kind_of
from groupcoord_spark.sources.rows import ROW_SCHEMA, RowBatch
from groupcoord_spark.warehouse.write import open_to_write
from tests.cli.warehouse import groupcoord
from tests.conftest import DAY_MS, GOLDEN
from tests.log import log_writer
from tests.pipeline.logs import SUBSCRIPTION, classic_group_key, classic_value_of
from tests.pipeline.segment_files import write_log
from tests.pipeline.test_nightly import commits
from tests.running import AS_OF_MS, rows_of, run, tables_of
from tests.sources.exports import kcat_lines, lines, of_sparks_kafka_source, raw_rows, write_parquet
from tests.warehouse.nights import make_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

pytestmark = pytest.mark.usefixtures("tables_of_a_log")

KEY = encode_key(2, {"group_id": "k"})
TRANSACTIONS = GOLDEN / "transactions" / "logs"


def row(offset: int | None, value: bytes | None = b"v", partition: int = 0, **changed: Any) -> dict[str, Any]:
    usual = {"record_timestamp_ms": 5, "key": KEY, "producer_id": -1, "producer_epoch": -1, "is_transactional": False, "source": "f"}
    return {**usual, "offsets_partition": partition, "record_offset": offset, "value": value, "position": 0, **changed}


def table(*rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), ROW_SCHEMA)


def chunks_of(rows: pa.Table, batch_rows: int) -> dict[int, list[Chunk]]:
    return {piece.offsets_partition: list(chunks) for piece, chunks in chunks_by_partition(rows.to_batches(max_chunksize=batch_rows), "in")}


def in_order(directory: Path) -> pa.Table:
    found = sorted_table(row_files(kind_of([str(directory)]), [str(directory)]), 1 << 30)
    assert found is not None
    return found


@pytest.mark.parametrize("batch_rows", [1, 2, 7])
@pytest.mark.parametrize("chunk_rows", [1, 3, 1000])
class TestChunks:
    @pytest.fixture(autouse=True)
    def few_rows(self, monkeypatch, chunk_rows):
        monkeypatch.setattr(pipeline_rows, "CHUNK_ROWS", chunk_rows)

    def test_are_of_one_partition_and_hold_its_records_in_order(self, tmp_path, batch_rows):
        raw = raw_rows(TRANSACTIONS)
        found = chunks_of(in_order(write_parquet(tmp_path / "in", raw, files=3)), batch_rows)
        for number, chunks in found.items():
            of_partition = raw.filter(pa.compute.equal(raw["offsets_partition"], number))
            assert [offset for chunk in chunks for offset in chunk.records.record_offset.tolist()] == of_partition[
                "record_offset"
            ].to_pylist()
            for name in ("key", "value"):
                stored = [each for chunk in chunks for each in getattr(chunk.records, name).to_arrow().to_pylist()]
                assert stored == of_partition[name].to_pylist()
            control = [each for chunk in chunks for each in chunk.records.control_type.tolist()]
            assert control == [{None: -1, "COMMIT": 1, "ABORT": 0}[each] for each in of_partition["control_type"].to_pylist()]
            assert not any(chunk.lost or chunk.doubts for chunk in chunks)

    def test_have_one_row_of_each_offset_and_tell_how_many_more_there_were(self, batch_rows):
        (chunks,) = chunks_of(table(row(1), row(1), row(1), row(2, None), row(2, None), row(3)), batch_rows).values()
        assert [offset for chunk in chunks for offset in chunk.records.record_offset.tolist()] == [1, 2, 3]
        (doubt,) = [doubt for chunk in chunks for doubt in chunk.doubts]
        assert (doubt.code, doubt.records) == ("row_duplicate", 3)
        assert not any(chunk.lost for chunk in chunks)

    def test_lose_a_row_whose_offset_another_has_with_other_bytes(self, batch_rows):
        (chunks,) = chunks_of(
            table(row(1, b"a", source="x", position=7), row(1, b"b"), row(1, None), row(1, b"a"), row(2)), batch_rows
        ).values()
        assert [value for chunk in chunks for value in chunk.records.value.to_arrow().to_pylist()] == [b"a", b"v"]
        lost = [each for chunk in chunks for each in chunk.lost]
        assert [(each.code, each.record_offset, each.key, each.value) for each in lost] == [
            ("offset_conflict", 1, KEY, b"b"),
            ("offset_conflict", 1, KEY, None),
        ]
        assert "also at x, byte 7, with other bytes" in lost[0].detail

    def test_lose_rows_that_are_no_records_with_their_place(self, batch_rows):
        fault = {"fault": "row_malformed", "detail": "why"}
        found = chunks_of(table(row(None, b"line", -1, position=3, **fault), row(None, b"w", 4, **fault), row(0, partition=4)), batch_rows)
        (nowhere,) = [each for chunk in found[-1] for each in chunk.lost]
        assert (nowhere.source, nowhere.position, nowhere.value, nowhere.detail) == ("f", 3, b"line", "why")
        assert [each.record_offset for chunk in found[4] for each in chunk.lost] == [None]
        assert [offset for chunk in found[4] for offset in chunk.records.record_offset.tolist()] == [0]


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_many_tasks_in_any_order_are_merged_in_the_order_of_their_offsets(monkeypatch, seed):
    """Pieces overlap, rows are there twice, and the merge holds more than it gives: small limits make it cut everywhere."""
    numbers = random.Random(seed)
    for limit in ("HELD_BYTES", "PACKED_BYTES", "CHUNK_BYTES"):
        monkeypatch.setattr(pipeline_rows, limit, numbers.randrange(200, 6_000))
    every = [row(offset, b"v%d" % offset, partition=offset % 3, cluster="ab"[offset % 2]) for offset in range(400)]
    every += [*numbers.sample(every, 30), row(None, b"line", -1, fault="row_malformed", detail="why", cluster="a")]
    if seed:  # the first one: as a log is written
        numbers.shuffle(every)
    tasks = [table(*every[begin : begin + 150]) for begin in range(0, len(every), 150)]
    packed = [batch for task in tasks for batch in packed_rows(None)(map(RowBatch, task.to_batches(max_chunksize=20)))]
    found = []
    shuffled = pa.Table.from_batches(packed).sort_by("first_offset")
    for place in sorted(set(zip(*(shuffled[name].to_pylist() for name in ("cluster", "offsets_partition")), strict=True))):
        is_here = pc.and_(pc.equal(shuffled["cluster"], place[0]), pc.equal(shuffled["offsets_partition"], place[1]))
        (pieces,) = shuffled.filter(is_here).combine_chunks().to_batches()
        in_order = list(rows_in_order(ShuffledRow.of(pieces)))
        offsets = [offset for batch in in_order for offset in batch["record_offset"].to_pylist()]
        assert offsets == sorted(offsets, key=lambda offset: -1 if offset is None else offset), seed
        found += [(*place, offset) for offset in offsets]
        assert {name for batch in in_order for name in batch["cluster"].to_pylist()} == {place[0]}
    assert sorted(found, key=str) == sorted(((r["cluster"], r["offsets_partition"], r["record_offset"]) for r in every), key=str), seed
    assert len(packed) > 10


def test_of_rows_with_one_offset_the_newest_is_taken_and_then_the_one_that_knows_its_producer(tmp_path):
    rows = [row(1, b"old"), row(1, b"new", record_timestamp_ms=6), row(2, b"plain"), row(2, b"told", producer_id=9)]
    found = in_order(write_parquet(tmp_path / "in", table(*rows).drop_columns(["fault", "detail"])))
    assert found["value"].to_pylist() == [b"new", b"old", b"told", b"plain"]


class TestRowOverview:
    def looked(self, *rows: dict[str, Any]) -> RowOverview:
        overview = RowOverview()
        for batch in table(*rows).to_batches(max_chunksize=2):
            overview.add_rows(RowBatch(batch, lacks=frozenset(["transactions"])))
        return overview

    def planned(self, overview: RowOverview, cluster: str | None = None) -> Any:
        source = FileRows(None, InputKind.JSON, ["in"], lambda wanted: [])  # type: ignore[arg-type]
        return row_plan(source, overview, cluster=cluster)

    def test_tell_where_partitions_begin_and_end(self):
        plan = self.planned(self.looked(row(7, record_timestamp_ms=9), row(3, record_timestamp_ms=8), row(2, partition=5)))
        told = [(each.offsets_partition, each.first_offset, each.end_offset) for each in plan.log.partitions]
        assert told == [(0, 3, 8), (5, 2, 3)]
        assert (plan.rows, plan.lacks, [doubt.code for doubt in plan.log.doubts]) == (3, ("transactions",), ["transactions_unknown"])

    def test_show_the_first_and_the_newest_record_and_those_asked_about(self):
        markers = {"control_type": "COMMIT"}
        rows = table(row(7, b"old"), row(3), row(4), row(5), row(7, b"new", record_timestamp_ms=6), row(9, **markers), row(2, **markers))
        for batch_rows in (1, 2, 7):
            overview = RowOverview()
            for batch in rows.to_batches(max_chunksize=batch_rows):
                overview.add_rows(RowBatch(batch), {0: [5, 6, 9]})
            expected = {offset: RecordMark(offset, 5, record_crc(KEY, b"v")) for offset in (3, 5)}
            newest = RecordMark(7, 6, record_crc(KEY, b"new"))
            assert self.planned(overview).evidence == {0: Evidence(expected[3], newest, {5: expected[5]}, group_hashes([KEY]))}

    def test_without_a_key_of_the_topic_are_refused_with_what_the_keys_look_like(self):
        text = base64.b64encode(KEY)
        with pytest.raises(InputError, match=r"in: no key of its rows is one of __consumer_offsets\. They are base64 text \(the first"):
            self.planned(self.looked(row(1, key=None), row(2, key=text), row(3, control_type="COMMIT")))
        assert self.planned(self.looked(row(1, key=text), row(2))).rows == 2

    def test_without_any_field_for_a_value_are_refused(self):
        for counts, is_refused in (({"value_absent": 2}, True), ({"value_absent": 2, "value_there": 1}, False)):
            overview = RowOverview()
            overview.add_rows(RowBatch(table(row(1, None)).to_batches()[0], counts=counts))
            with (
                pytest.raises(InputError, match="no line has a value, so that every record would be a tombstone")
                if is_refused
                else nullcontext()
            ):
                assert {doubt.code for doubt in self.planned(overview).log.doubts} == {"value_absent"}

    def test_tell_the_cluster_where_the_rows_name_one(self):
        assert self.planned(self.looked(row(1))).log.cluster_id is None
        assert self.planned(self.looked(row(1, cluster="a"))).log.cluster_id == "a"
        assert self.planned(self.looked(row(1, cluster="default"))).log.cluster_id is None

    def test_of_several_clusters_ask_which_one(self):
        with pytest.raises(UsageError, match=r"in holds rows of the clusters 'a', 'b'\. Say with --cluster which one to read"):
            self.planned(self.looked(row(1, cluster="a"), row(1, cluster="b")))

    def test_of_no_record_at_all_refuse_with_the_first_fault(self):
        with pytest.raises(InputError, match=r"in: none of its 1 rows is a record of __consumer_offsets\. f, byte 3: why"):
            self.planned(self.looked(row(None, position=3, fault="row_malformed", detail="why")))
        with pytest.raises(InputError, match="there are no rows"):
            self.planned(RowOverview())
        with pytest.raises(InputError, match=r"all of its 2 rows are of other topics than __consumer_offsets\. Give an export"):
            self.planned(RowOverview(other_topics=2))

    def test_of_other_topics_name_some_of_them(self):
        looked = RowOverview()
        for name in ("payments", "orders", "users", "audit"):
            looked.add_rows(RowBatch(pa.RecordBatch.from_pylist([], ROW_SCHEMA), 1, topics=frozenset({name})))
        with pytest.raises(InputError, match=r"all of its 4 rows are of other topics than \S+ \(such as 'audit', 'orders', 'payments'\)"):
            self.planned(looked)


def night_over(
    spark: SparkSession | LocalSession, warehouse: Path, *inputs: Path, cluster: str | None = "sample", **changed: Any
) -> Summary:
    """As ``groupcoord nightly`` does it."""
    make_tables(warehouse)
    paths = tuple(map(str, inputs))
    files = row_files(kind_of(paths), paths)
    goes_on = not changed.get("full") and changed.get("until") is None
    source = FileRows(spark, files.kind, files.inputs, files.pieces, files.remarks, files.forms)
    rows = plan_rows(source, open_to_write(str(warehouse)), cluster=cluster, goes_on=goes_on)
    usual = {"cluster": cluster or "sample", "as_of_ms": AS_OF_MS, "retention_ms": 7 * DAY_MS, "semantics": JAVA}
    night = RunRequest(inputs=paths, warehouse=str(warehouse), **{**usual, **changed})
    return run_stages(night, rows.log, spark, StageLines(quiet=True), rows)


def test_files_of_a_folder_that_are_not_read_are_a_warning(local, tmp_path):
    write_parquet(tmp_path / "in", raw_rows(TRANSACTIONS))
    (tmp_path / "in" / "manifest.json").write_text('{"rows": 7}')
    night_over(local, tmp_path / "w", tmp_path / "in")
    (warning,) = [row for row in rows_of(tmp_path / "w", "warnings") if row["code"] == "files_not_read"]
    assert warning["detail"] == f"{tmp_path / 'in'}: 1 of 3 files is not read: manifest.json (JSON without records)."


@pytest.fixture(scope="module")
def of_segments(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    warehouse = tmp_path_factory.mktemp("segments") / "w"
    run(local, warehouse, TRANSACTIONS)
    return warehouse


def without_bytes_read(tables: dict[str, list[str]]) -> dict[str, list[str]]:
    """Segments count the bytes of their files, rows those of their keys and values; only segments have files, and a health."""
    import re

    of_files = r"'(bytes|end_file|end_position|segment_bytes|leader_epoch)': (\d+|None|\[.*?\])"
    tables["offsets_partitions"] = [re.sub(of_files, "", line) for line in tables["offsets_partitions"]]
    return {name: rows for name, rows in tables.items() if name != "topic_health"}


@pytest.mark.parametrize("options", [["--bytes"], []])
def test_a_dump_goes_in_as_it_came_out_and_gives_the_tables_of_its_segments(local, tmp_path, of_segments, options):
    told = groupcoord("dump", str(TRANSACTIONS), "--quiet", *options)
    dumped = told.stdout.splitlines(keepends=True)
    random.Random(1).shuffle(dumped)
    (tmp_path / "in.jsonl").write_text("".join(dumped))
    assert groupcoord("dump", str(tmp_path / "in.jsonl"), "--quiet", *options).stdout == told.stdout
    summary = night_over(local, tmp_path / "w", tmp_path / "in.jsonl")
    assert (summary.records_quarantined, summary.lacks) == (0, () if options else ("leader_epochs",))
    found, expected = (without_bytes_read(tables_of(each)) for each in (tmp_path / "w", of_segments))
    if not options:
        # the one thing that JSON does not say of this log is the epoch in the values of markers
        found["transactions"] = expected["transactions"] = []
        found["latest_records"] = expected["latest_records"] = []
    assert found == expected
    assert [each["input_kind"] for each in rows_of(tmp_path / "w", "runs")] == ["json"]


def test_the_raw_schema_in_parquet_gives_the_tables_of_its_segments(spark, tmp_path, of_segments):
    night_over(spark, tmp_path / "w", write_parquet(tmp_path / "in", raw_rows(TRANSACTIONS), files=3))
    assert without_bytes_read(tables_of(tmp_path / "w")) == without_bytes_read(tables_of(of_segments))


def test_a_look_back_over_rows_is_that_over_segments(local, tmp_path):
    # The history has a part of the records, the rows have the rest.
    log = commits(0, 40)
    write_log(tmp_path / "old", log[:12])
    write_log(tmp_path / "logs", log[5:])
    moments = (Until("then", time_ms=log_writer.T0 + 20), Until("ends.json", end_offsets={0: 21}))
    exported = write_parquet(tmp_path / "in", raw_rows(tmp_path / "logs"), files=2)
    (tmp_path / "in.jsonl").write_text(groupcoord("dump", str(tmp_path / "logs"), "--quiet", "--bytes").stdout)
    looked_back = {}
    for kind, inputs in (("segments", tmp_path / "logs"), ("parquet", exported), ("json", tmp_path / "in.jsonl")):
        run(local, tmp_path / kind, tmp_path / "old")
        over = run if kind == "segments" else night_over
        looked_back[kind] = []
        for until in moments:
            summary = over(local, tmp_path / kind, inputs, until=until)
            assert (summary.records_read, summary.point_in_time.records_from_history) == (16, 12)
            assert rows_of(tmp_path / kind, "runs")[-1]["kind"] == "point_in_time"
            looked_back[kind].append(without_bytes_read(tables_of(tmp_path / kind, run_id=summary.run_id)))
    assert [len(tables["committed_offsets"]) for tables in looked_back["segments"]] == [3, 3]
    assert looked_back["parquet"] == looked_back["json"] == looked_back["segments"]


def test_a_look_back_to_a_time_over_rows_without_timestamps_is_refused(local, tmp_path):
    exported = of_sparks_kafka_source(raw_rows(TRANSACTIONS))
    without = exported.drop_columns(["timestamp"])
    with pytest.raises(UsageError, match="Name a file of end offsets with --until instead"):
        night_over(local, tmp_path / "w", write_parquet(tmp_path / "in", without), until=Until("then", time_ms=5))


def log_of_a_coordinator_that_moved(logs: Path) -> Path:
    """Two generations of one group with nothing new in the second, in batches of two leader epochs."""
    key = classic_group_key()
    values = [classic_value_of([("a", None, SUBSCRIPTION)], generation=generation) for generation in (2, 3)]
    records = [[log_writer.Rec(key, value)] for value in values]
    batches = [log_writer.batch(i, each, base_timestamp=log_writer.T0 + 9_000 * i, leader_epoch=4 + i) for i, each in enumerate(records)]
    folder = logs / "__consumer_offsets-0"
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    return logs


def test_a_coordinator_that_moved_is_seen_in_dumps_and_in_parquet_as_in_segments(local, tmp_path):
    logs = log_of_a_coordinator_that_moved(tmp_path / "logs")
    (tmp_path / "in.jsonl").write_text(groupcoord("dump", str(logs), "--quiet", "--bytes").stdout)
    run(local, tmp_path / "segments", logs)
    night_over(local, tmp_path / "lines", tmp_path / "in.jsonl")
    night_over(local, tmp_path / "parquet", write_parquet(tmp_path / "in", raw_rows(logs)))
    causes = {name: [row["cause"] for row in rows_of(tmp_path / name, "rebalances")] for name in ("segments", "lines", "parquet")}
    assert causes["segments"][-1] == "coordinator_moved"
    assert causes["lines"] == causes["parquet"] == causes["segments"]


def test_without_transactions_every_commit_counts_and_the_run_says_so(local, tmp_path, of_segments):
    exported = of_sparks_kafka_source(raw_rows(TRANSACTIONS))
    other_topics = exported.slice(0, 2).set_column(2, "topic", pa.array(["orders"] * 2))
    summary = night_over(local, tmp_path / "w", write_parquet(tmp_path / "in", pa.concat_tables([exported, other_topics])))
    assert (summary.records_read, summary.lacks) == (exported.num_rows, ("transactions", "leader_epochs"))
    assert {each["code"] for each in rows_of(tmp_path / "w", "warnings")} >= {"transactions_unknown", "other_topic"}
    assert dict(rows_of(tmp_path / "w", "runs")[0]["settings"])["input.lacks"] == "transactions, leader_epochs"
    assert rows_of(tmp_path / "w", "pending_offsets") == rows_of(tmp_path / "w", "transactions") == []

    def plain(warehouse: Path, tables: tuple[str, ...]) -> set[tuple[Any, ...]]:
        names = ("group_id", "topic", "partition")
        return {tuple(each[name] for name in names) for name in tables for each in rows_of(warehouse, name)}

    known = plain(of_segments, ("committed_offsets", "pending_offsets", "orphan_offsets"))
    assert plain(tmp_path / "w", ("committed_offsets", "orphan_offsets")) >= known
    touched = {each["group_id"] for each in rows_of(of_segments, "offset_commits") if each["is_transactional"]}
    for name in ("groups", "committed_offsets", "members", "assignments"):
        ours, theirs = (
            [{**each, "pending_offset_count": 0} for each in rows_of(warehouse, name) if each["group_id"] not in touched]
            for warehouse in (tmp_path / "w", of_segments)
        )
        assert sorted(map(repr, ours)) == sorted(map(repr, theirs))


def test_lines_that_are_no_records_are_quarantined_with_their_place_and_counted(local, tmp_path):
    good = b"".join(kcat_lines(raw_rows(GOLDEN / "classic-modern" / "logs")))
    bad = lines([{"partition": 3, "key": "AAA=", "value": None}, {"partition": 3, "offset": 900, "key": "AAA=", "value": "no"}])
    (tmp_path / "in").write_bytes(good + b"{oops\n" + bad)
    summary = night_over(local, tmp_path / "w", tmp_path / "in")
    assert summary.records_read == summary.records_decoded + summary.records_quarantined == good.count(b"\n") + 3
    assert summary.quarantined_by_reason == {"row_malformed": 2, "row_without_place": 1}
    quarantined = sorted(rows_of(tmp_path / "w", "quarantined_records"), key=lambda each: each["position"])
    assert [(each["offsets_partition"], each["record_offset"], each["position"]) for each in quarantined] == [
        (None, None, len(good)),
        (3, None, len(good) + 6),
        (3, 900, len(good) + 6 + bad.index(b"\n") + 1),
    ]
    assert {each["source"] for each in quarantined} == {str(tmp_path / "in")}
    assert json.loads(quarantined[1]["value"]) == {"partition": 3, "key": "AAA=", "value": None}
    (unread,) = [each for each in rows_of(tmp_path / "w", "decode_coverage") if each["key_type"] == -1]
    assert (unread["records"], unread["quarantined"]) == (3, 3)


def test_of_rows_of_several_clusters_the_named_one_is_read(local, tmp_path):
    raw = raw_rows(GOLDEN / "classic-modern" / "logs", cluster="a")
    other = raw_rows(TRANSACTIONS, cluster="b")
    write_parquet(tmp_path / "in", pa.concat_tables([raw, other]))
    summary = night_over(local, tmp_path / "w", tmp_path / "in", cluster="a", with_history=False)
    assert summary.records_read == raw.num_rows
    assert [each["detail"] for each in rows_of(tmp_path / "w", "warnings")] == [
        f"The input has {other.num_rows} rows of other clusters; only rows of 'a' are read."
    ]
