"""Runs over Parquet, Delta tables and lines of JSON go on from the last run and open only new files; the state is the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.functions import lit

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.pipeline.night import run_stages
from groupcoord_spark.pipeline.plan import live_rows
from groupcoord_spark.pipeline.plan.input_rows import plan_rows
from groupcoord_spark.pipeline.plan.live_rows import LiveRows
from groupcoord_spark.pipeline.progress import Progress
from groupcoord_spark.pipeline.read.rows import row_files
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.sources import parquet
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.sources.live import LiveTopic, TopicExtent
from groupcoord_spark.sources.rows import Wanted, from_offsets
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.declaration import WriteMode
from groupcoord_spark.warehouse.write import open_to_write
from tests.cli.warehouse import groupcoord
from tests.conftest import DAY_MS, GOLDEN
from tests.examples import TIMES_AS_MANY
from tests.pipeline.segment_files import write_log
from tests.pipeline.test_nightly import commits
from tests.pipeline.test_rows import night_over
from tests.running import AS_OF_MS, rows_of, run, tables_of
from tests.sources.exports import of_sparks_kafka_source, raw_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.local_session import LocalSession

pytestmark = pytest.mark.usefixtures("tables_of_a_log")

NIGHTS = GOLDEN / "nights"

ALL_NIGHTS = (1, 2, 3, 4, 5)
LAST = 5 if TIMES_AS_MANY > 1 else 3
"""The last run that is read; up to the third one, which a cleaning precedes, in `make test`."""

COUNTS_OF_READING = ("records", "decoded", "quarantined", "control_records", "bytes", "read_from", "first_offset")
"""Columns of offsets_partitions that go on from run to run, where a run over everything begins again."""

NOT_STATE = ("runs", "warnings", "quarantined_records", "decode_coverage", "surviving_records")


def logs(night: int) -> Path:
    return NIGHTS / str(night) / "logs"


def dump_in_parquet(place: Path, night: int) -> Path:
    """Return the whole dump of a run: a file for each offsets partition, of small row groups."""
    raw = raw_rows(logs(night), "nights")
    for number in pc.unique(raw["offsets_partition"]).to_pylist():
        folder = place / str(night) / f"offsets_partition={number}"
        folder.mkdir(parents=True)
        of_partition = raw.filter(pc.equal(raw["offsets_partition"], number)).drop_columns(["offsets_partition"])
        pq.write_table(of_partition, folder / "part-00000.parquet", row_group_size=20)
    return place / str(night)


def dump_of_sparks_kafka_source(place: Path, night: int) -> Path:
    """Return the whole dump of a run in one file, without transactions, and with all offsets partitions in one row group."""
    (place / str(night)).mkdir(parents=True)
    pq.write_table(of_sparks_kafka_source(raw_rows(logs(night))), place / str(night) / "part-00000.parquet")
    return place / str(night)


def dump_in_lines(place: Path, night: int) -> Path:
    place.mkdir(exist_ok=True)
    dumped = groupcoord("dump", str(logs(night)), "--quiet", "--bytes").stdout
    (place / f"{night}.jsonl").write_text(dumped)
    return place / f"{night}.jsonl"


def growing_table(place: Path, night: int, **layout: Any) -> Path:
    """Return a Delta table that each run appends to new rows, as a stream into a lake does."""
    return append_to_table(place, raw_rows(logs(night), "nights"), **layout)


def append_to_table(place: Path, raw: pa.Table, **layout: Any) -> Path:
    if (place / "_delta_log").exists():
        there = DeltaTable(str(place)).to_pyarrow_table(columns=["offsets_partition", "record_offset"])
        places = {(row["offsets_partition"], row["record_offset"]) for row in there.to_pylist()}
        is_new = [(row["offsets_partition"], row["record_offset"]) not in places for row in raw.to_pylist()]
        raw = raw.filter(pa.array(is_new))
    write_deltalake(str(place), raw, mode="append", **layout)
    return place


FORMS: Mapping[str, Callable[[Path, int], Path]] = {
    "parquet": dump_in_parquet,
    "kafka-source": dump_of_sparks_kafka_source,
    "json": dump_in_lines,
    "delta": lambda place, night: growing_table(place, night, partition_by=["offsets_partition"]),
    "delta-one-file": growing_table,
}


def state_of(warehouse: Path) -> dict[str, list[str]]:
    """Return the tables that are about the log, without counts of what was read; with the history where each run was read in both ways."""
    appended = () if TIMES_AS_MANY > 1 else tuple(name for name, table in TABLES.items() if table.write is WriteMode.APPENDED)
    tables = tables_of(warehouse, but=(*NOT_STATE, *appended))
    for name in COUNTS_OF_READING:
        tables["offsets_partitions"] = [re.sub(rf"'{name}': [^,}}]*,? ?", "", row) for row in tables["offsets_partitions"]]
    return tables


@contextmanager
def without_files_below(table: Path, ends: Mapping[int, int]) -> Iterator[int]:
    """Files of a partitioned Delta table that have only rows below these ends are away, but for the newest one of each offsets partition.

    Yields how many files are away.
    """
    actions = pa.table(DeltaTable(str(table)).get_add_actions(flatten=True)).to_pylist()
    old = [action for action in actions if action["max.record_offset"] < ends.get(int(action["partition.offsets_partition"]), 0)]
    newest = {action["partition.offsets_partition"]: action["path"] for action in sorted(old, key=lambda row: row["max.record_offset"])}
    away = [table / action["path"] for action in old if action["path"] not in newest.values()]
    for file in away:
        file.rename(file.with_suffix(".away"))
    yield len(away)
    for file in away:
        file.with_suffix(".away").rename(file)


@pytest.fixture(scope="module")
def states_of_whole_nights(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[int, Any]]:
    """By a form: run -> state of a run that read the whole dump in it; of the first and last one, or where there is time of each."""

    @cache
    def states(form: str) -> dict[int, Any]:
        place, by_night = tmp_path_factory.mktemp("whole"), {}
        for night in ALL_NIGHTS[:LAST]:
            dump = FORMS[form](place / "in", night)
            if TIMES_AS_MANY > 1 or night in (1, LAST):
                night_over(local, place / "w", dump, cluster="nights", full=True)
                by_night[night] = state_of(place / "w")
        return by_night

    return states


@pytest.mark.parametrize("form", FORMS)
def test_nights_that_go_on_give_the_state_of_nights_that_read_all(
    local: LocalSession, tmp_path: Path, form: str, states_of_whole_nights: Callable[[str], dict[int, Any]]
) -> None:
    went_on = []
    # Dumps of one log give one state. What Spark's Kafka source leaves out is not in it, and tables keep what the log cleaner takes away.
    expected = states_of_whole_nights({"json": "parquet", "delta-one-file": "delta"}.get(form, form))
    for night in ALL_NIGHTS[:LAST]:
        summary = night_over(local, tmp_path / "w", FORMS[form](tmp_path / "in", night), cluster="nights")
        went_on += [summary.reading.new_records] if summary.reading.since_ms is not None else []
        if night in expected:
            assert state_of(tmp_path / "w") == expected[night]
    # Without markers a gap in the offsets may be one or a record that was cleaned away: then the partition is read whole.
    assert len(went_on) >= (LAST - 1 if form != "kafka-source" else 1)


def test_files_of_a_delta_table_below_the_ends_of_the_last_night_are_not_opened(local: LocalSession, tmp_path: Path) -> None:
    away = []
    for end in (10, 20, 40):
        write_log(tmp_path / str(end), commits(0, end))
        table = append_to_table(tmp_path / "in", raw_rows(tmp_path / str(end)), partition_by=["offsets_partition"])
        known = rows_of(tmp_path / "w", "offsets_partitions") if (tmp_path / "w").exists() else []
        with without_files_below(table, {row["offsets_partition"]: row["end_offset"] for row in known}) as count:
            summary = night_over(local, tmp_path / "w", table)
        away.append(count)
    assert away == [0, 0, 1]
    assert (summary.records_read, summary.reading.new_records, summary.reading.whole) == (20, 20, {})


def test_rows_that_are_put_before_those_of_the_last_night_are_read(local: LocalSession, tmp_path: Path) -> None:
    # A stream into a lake begins with the newest records, and the older ones are added later.
    write_log(tmp_path / "logs", commits(0, 40))
    raw = raw_rows(tmp_path / "logs")
    table = append_to_table(tmp_path / "in", raw.slice(20))
    night_over(local, tmp_path / "w", table)
    append_to_table(tmp_path / "in", raw)
    assert night_over(local, tmp_path / "w", table).records_read == 40
    night_over(local, tmp_path / "whole", table)
    assert state_of(tmp_path / "w") == state_of(tmp_path / "whole")


def test_lines_that_are_no_records_do_not_outweigh_the_rows_that_an_earlier_night_has_read(local: LocalSession, tmp_path: Path) -> None:
    write_log(tmp_path / "logs", commits(0, 40))
    good = groupcoord("dump", str(tmp_path / "logs"), "--quiet", "--bytes").stdout
    (tmp_path / "in.jsonl").write_text(good + "{oops\n" * 10)
    quarantined = [night_over(local, tmp_path / "w", tmp_path / "in.jsonl").records_quarantined for _ in range(2)]
    assert quarantined == [10, 10]


def test_of_a_topic_only_the_newest_records_are_fetched_and_each_record_once(
    spark: SparkSession, local: LocalSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_log(tmp_path / "logs", commits(0, 40))
    rows = spark.createDataFrame(of_sparks_kafka_source(raw_rows(tmp_path / "logs")))
    fetched: list[dict[int, tuple[int, int]]] = []

    def frame_of_topic(_: SparkSession, topic: LiveTopic, extent: TopicExtent) -> DataFrame:
        fetched.append({number: (extent.first[number], end) for number, end in extent.end.items()})
        of_extent = [f"partition = {number} AND offset >= {first} AND offset < {end}" for number, (first, end) in fetched[-1].items()]
        return rows.where(" OR ".join(f"({part})" for part in of_extent)).withColumn("source", lit(topic.uri))

    monkeypatch.setattr(live_rows, "live_frame", frame_of_topic)
    for end in (25, 40):
        source = LiveRows(spark, LiveTopic("kafka://a:9092", "a:9092", "t", {}), TopicExtent("id", {0: 0, 7: 3}, {0: end, 7: 3}))
        planned = plan_rows(source, open_to_write(str(tmp_path / "w")), cluster="sample", goes_on=True)
        request = RunRequest(("kafka://a:9092",), str(tmp_path / "w"), "sample", AS_OF_MS, 7 * DAY_MS, JAVA)
        summary = run_stages(request, planned.log, spark, Progress(), planned)
        assert (summary.input_kind, summary.lacks) == ("kafka", ("transactions", "leader_epochs"))
    assert fetched == [{0: (0, 25), 7: (3, 3)}, {0: (24, 40), 7: (3, 3)}]
    assert summary.reading.new_records == 15 and 0 not in summary.reading.whole
    run(local, tmp_path / "segments", tmp_path / "logs")
    names = ("committed_offsets", "groups")
    of_topic, of_segments = ([tables_of(tmp_path / place)[name] for name in names] for place in ("w", "segments"))
    # A consumer does not get the epoch of the producer.
    assert of_topic == [[row.replace("'producer_epoch': 0", "'producer_epoch': None") for row in rows] for rows in of_segments]


class TestWhatIsRead:
    """Which row groups are read. Of each offsets partition there are the record offsets 0 to 99."""

    ENDS: ClassVar = from_offsets({0: 100, 1: 70})

    def write(self, place: Path, *, is_mixed: bool, **columns: Any) -> Path:
        rows = [(number, offset) for number in (0, 1, 2) for offset in range(100)]
        rows = sorted(rows, key=lambda row: row[1]) if is_mixed else rows
        place.mkdir()
        numbers, offsets = ([row[at] for row in rows] for at in (0, 1))
        of_all = {"key": [b"k"] * 300, "value": [b"v"] * 300, "partition": numbers, "offset": offsets}
        of_all |= {name: [value] * 300 for name, value in columns.items()}
        pq.write_table(pa.table(of_all), place / "a.parquet", row_group_size=10)
        return place

    def rows_and_groups(self, place: Path, wanted: Wanted, patch: pytest.MonkeyPatch) -> tuple[list[tuple[int, int]], list[int]]:
        """(offsets partition and record offset of each row, the row groups that are read)"""
        groups: list[int] = []
        rows_of_batch = parquet._rows

        def noted(columns: Any, source: str, first_row: int, *others: Any) -> Any:
            groups.append(first_row // 10)
            return rows_of_batch(columns, source, first_row, *others)

        patch.setattr(parquet, "_rows", noted)
        pieces = row_files(InputKind.PARQUET, [str(place)]).pieces(wanted)
        rows = [row for piece in pieces for batch in parquet.read_parquet(piece, wanted) for row in batch.rows.to_pylist()]
        return [(row["offsets_partition"], row["record_offset"]) for row in rows], groups

    @pytest.mark.parametrize("topic", [None, "__consumer_offsets"])
    def test_are_row_groups_with_wanted_rows_alone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str | None) -> None:
        place = self.write(tmp_path / "in", is_mixed=False, cluster="c", **({} if topic is None else {"topic": topic}))
        assert self.rows_and_groups(place, self.ENDS, monkeypatch)[1] == [*range(17, 20), *range(20, 30)]
        wanted = {0: ((12, 13),), 1: ((99, 100),), 2: ((0, 3), (95, 2**63 - 1))}
        rows, groups = self.rows_and_groups(place, wanted, monkeypatch)
        assert groups == [1, 19, 20, 29]
        assert rows == [(0, 12), (1, 99), (2, 0), (2, 1), (2, 2), *((2, offset) for offset in range(95, 100))]
        assert self.rows_and_groups(place, {0: (), 1: (), 2: ()}, monkeypatch) == ([], [])

    def test_are_no_row_groups_of_other_topics(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        place = self.write(tmp_path / "in", is_mixed=False, topic="orders")
        assert self.rows_and_groups(place, {}, monkeypatch) == ([], [])

    def test_are_places_alone_where_rows_of_partitions_are_mixed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        place = self.write(tmp_path / "in", is_mixed=True)
        rows, groups = self.rows_and_groups(place, from_offsets({0: 100, 1: 70, 2: 100}), monkeypatch)
        assert rows == [(1, offset) for offset in range(70, 100)]
        assert groups == list(range(21, 30))

    def test_are_rows_without_a_place_always(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "in").mkdir()
        rows = {"key": [b"k"] * 4, "value": [b"v"] * 4, "partition": [0, 0, 0, None], "offset": [1, None, -2, 1]}
        pq.write_table(pa.table(rows), tmp_path / "in" / "a.parquet")
        assert self.rows_and_groups(tmp_path / "in", from_offsets({0: 100}), monkeypatch)[0] == [(0, None), (0, None), (-1, 1)]

    def test_are_offsets_that_are_text_by_their_number(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "in").mkdir()
        rows = {"key": [b"k"] * 3, "value": [b"v"] * 3, "partition": ["0"] * 3, "offset": ["8", "9", "10"]}
        pq.write_table(pa.table(rows), tmp_path / "in" / "a.parquet")
        assert self.rows_and_groups(tmp_path / "in", from_offsets({0: 10}), monkeypatch)[0] == [(0, 10)]

    @pytest.mark.parametrize("partition_by", [None, ["offsets_partition"]])
    def test_are_files_of_a_delta_table_with_wanted_rows_by_its_log(self, tmp_path: Path, partition_by: list[str] | None) -> None:
        for first in (0, 100):
            for number in (0, 1):
                offsets = pa.array(range(first, first + 100), pa.int64())
                rows = {"key": [b"k"] * 100, "value": [b"v"] * 100, "record_offset": offsets, "offsets_partition": [number] * 100}
                write_deltalake(str(tmp_path / "a b"), pa.table(rows), mode="append", partition_by=partition_by)
        for file in (tmp_path / "a b").rglob("*.parquet"):
            file.unlink()  # no file is opened
        pieces = row_files(InputKind.DELTA, [str(tmp_path / "a b")]).pieces
        wanted: list[Wanted] = [{}, {0: ()}, from_offsets({0: 100, 1: 200}), from_offsets({0: 99, 1: 150})]
        assert [len(pieces(of_test)) for of_test in wanted] == [4, 2, 1, 3]
