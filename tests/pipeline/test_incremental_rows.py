"""Nights over Parquet, Delta tables and lines of JSON go on from the night before and open only what is new; the state is the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from groupcoord_spark.pipeline.read.rows import pieces_with
from groupcoord_spark.sources.rows import RowFilter
from groupcoord_spark.sources.tables import TablePiece, plan_delta, plan_parquet, read_table
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.declaration import WriteMode
from tests.cli.warehouse import groupcoord
from tests.conftest import GOLDEN
from tests.examples import TIMES_AS_MANY
from tests.pipeline.segment_files import write_log
from tests.pipeline.test_nightly import commits
from tests.pipeline.test_rows import night_over
from tests.running import rows_of, tables_of
from tests.sources.exports import of_sparks_kafka_source, raw_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

NIGHTS = GOLDEN / "nights"

ALL_NIGHTS = (1, 2, 3, 4, 5)
LAST = 5 if TIMES_AS_MANY > 1 else 3
"""The last night that is read; up to the third one, which a cleaning precedes, in `make test`."""

COUNTS_OF_READING = ("records", "decoded", "quarantined", "control_records", "bytes", "read_from", "first_offset")
"""Columns of offsets_partitions that go on from night to night, where a run over everything begins anew."""

NOT_STATE = ("runs", "warnings", "quarantined_records", "decode_coverage", "surviving_records")


def logs(night: int) -> Path:
    return NIGHTS / str(night) / "logs"


def dump_in_parquet(place: Path, night: int) -> Path:
    """The whole dump of a night: a file for each offsets partition, of small row groups."""
    raw = raw_rows(logs(night), "nights")
    for number in pc.unique(raw["offsets_partition"]).to_pylist():
        folder = place / str(night) / f"offsets_partition={number}"
        folder.mkdir(parents=True)
        of_partition = raw.filter(pc.equal(raw["offsets_partition"], number)).drop_columns(["offsets_partition"])
        pq.write_table(of_partition, folder / "part-00000.parquet", row_group_size=20)
    return place / str(night)


def dump_of_sparks_kafka_source(place: Path, night: int) -> Path:
    """The whole dump of a night in one file, without transactions, and with all offsets partitions in one row group."""
    (place / str(night)).mkdir(parents=True)
    pq.write_table(of_sparks_kafka_source(raw_rows(logs(night))), place / str(night) / "part-00000.parquet")
    return place / str(night)


def dump_in_lines(place: Path, night: int) -> Path:
    place.mkdir(exist_ok=True)
    dumped = groupcoord("dump", str(logs(night)), "--quiet", "--bytes").stdout
    (place / f"{night}.jsonl").write_text(dumped)
    return place / f"{night}.jsonl"


def growing_table(place: Path, night: int, **layout: Any) -> Path:
    """A Delta table to which each night appends what was not there before, as a stream into a lake does."""
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
    """The tables that are about the log, without counts of what was read; with the history where each night was read in both ways."""
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


@pytest.mark.parametrize("form", FORMS)
def test_nights_that_go_on_give_the_state_of_nights_that_read_all(local: LocalSession, tmp_path: Path, form: str) -> None:
    went_on = []
    for night in ALL_NIGHTS[:LAST]:
        dump = FORMS[form](tmp_path / "in", night)
        summary = night_over(local, tmp_path / "w", dump, cluster="nights")
        went_on += [summary.reading.new_records] if summary.reading.since_ms is not None else []
        if night > 1 and TIMES_AS_MANY == 1 and night < LAST:
            continue
        night_over(local, tmp_path / "whole", dump, cluster="nights", full=True)
        assert state_of(tmp_path / "w") == state_of(tmp_path / "whole")
    # Without markers a gap in the offsets may be one or a record that was cleaned away: then the partition is read whole.
    assert len(went_on) >= (LAST - 1 if form != "kafka-source" else 1)


def test_files_of_a_delta_table_below_the_ends_of_the_last_night_are_not_opened(spark: SparkSession, tmp_path: Path) -> None:
    away = []
    for end in (10, 20, 40):
        write_log(tmp_path / str(end), commits(0, end))
        table = append_to_table(tmp_path / "in", raw_rows(tmp_path / str(end)), partition_by=["offsets_partition"])
        known = rows_of(tmp_path / "w", "offsets_partitions") if (tmp_path / "w").exists() else []
        with without_files_below(table, {row["offsets_partition"]: row["end_offset"] for row in known}) as count:
            summary = night_over(spark, tmp_path / "w", table)
        away.append(count)
    assert away == [0, 0, 1]
    assert (summary.records_read, summary.reading.new_records, summary.reading.whole) == (20, 20, {})


class TestPieces:
    """Which row groups are opened. Of each offsets partition there are the record offsets 0 to 99."""

    ENDS: ClassVar = {0: 100, 1: 70}

    def write(self, place: Path, *, is_mixed: bool, **columns: Any) -> Path:
        rows = [(number, offset) for number in (0, 1, 2) for offset in range(100)]
        rows = sorted(rows, key=lambda row: row[1]) if is_mixed else rows
        place.mkdir()
        numbers, offsets = ([row[at] for row in rows] for at in (0, 1))
        of_all = {"key": [b"k"] * 300, "value": [b"v"] * 300, "partition": numbers, "offset": offsets}
        of_all |= {name: [value] * 300 for name, value in columns.items()}
        pq.write_table(pa.table(of_all), place / "a.parquet", row_group_size=10)
        return place

    def row_groups(self, place: Path, wanted: RowFilter) -> list[int]:
        pieces = pieces_with(plan_parquet([str(place)]), wanted)
        return [group for piece in pieces if isinstance(piece, TablePiece) for group in piece.row_groups or ()]

    def wanted_rows(self, place: Path, wanted: RowFilter) -> list[tuple[int, int]]:
        batches = [batch for piece in pieces_with(plan_parquet([str(place)]), wanted) for batch in read_table(piece, wanted)]  # type: ignore[arg-type]
        return [(row["offsets_partition"], row["record_offset"]) for batch in batches for row in batch.rows.to_pylist()]

    def test_with_new_rows_alone_are_opened(self, tmp_path: Path) -> None:
        place = self.write(tmp_path / "in", is_mixed=False, topic="__consumer_offsets", cluster="c")
        assert self.row_groups(place, RowFilter(self.ENDS)) == [*range(17, 20), *range(20, 30)]
        assert self.row_groups(place, RowFilter({0: 100, 1: 100, 2: 95}, {0: {12}, 1: {99}})) == [1, 19, 29]
        assert self.row_groups(place, RowFilter({}, {0: {12}}, takes_new=False)) == [1]

    def test_of_other_topics_are_not_opened(self, tmp_path: Path) -> None:
        assert self.row_groups(self.write(tmp_path / "in", is_mixed=False, topic="orders"), RowFilter(self.ENDS)) == []

    def test_with_rows_of_several_partitions_are_opened_for_their_places(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        place = self.write(tmp_path / "in", is_mixed=True)
        wanted = RowFilter({0: 100, 1: 70, 2: 100})
        assert self.row_groups(place, wanted) == list(range(30))
        read: list[tuple[int, tuple[str, ...]]] = []
        iter_batches = pq.ParquetFile.iter_batches

        def noted(file: Any, *args: Any, row_groups: list[int], columns: list[str]) -> Any:
            read.extend((group, tuple(columns)) for group in row_groups)
            return iter_batches(file, *args, row_groups=row_groups, columns=columns)

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
        assert self.wanted_rows(place, wanted) == [(1, offset) for offset in range(70, 100)]
        assert [group for group, columns in read if "value" in columns] == list(range(21, 30))

    @pytest.mark.parametrize("is_mixed", [False, True])
    def test_rows_that_are_left_out_are_counted(self, tmp_path: Path, is_mixed: bool) -> None:
        place = self.write(tmp_path / "in", is_mixed=is_mixed, cluster="c")
        wanted = RowFilter(self.ENDS)
        left_out = [extent for piece in plan_parquet([str(place)]) for batch in read_table(piece, wanted) for extent in batch.left_out]
        assert {extent.cluster for extent in left_out} == {"c"}
        counts = [sum(extent.rows for extent in left_out if extent.offsets_partition == number) for number in (0, 1, 2)]
        assert counts == [100, 70, 0]

    def test_rows_without_a_place_are_always_read(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        rows = {"key": [b"k"] * 3, "value": [b"v"] * 3, "partition": [0, 0, 0], "offset": [1, None, -2]}
        pq.write_table(pa.table(rows), tmp_path / "in" / "a.parquet")
        assert self.wanted_rows(tmp_path / "in", RowFilter({0: 100})) == [(0, None), (0, None)]

    def test_offsets_that_are_text_are_not_compared_as_texts(self, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        rows = {"key": [b"k"] * 3, "value": [b"v"] * 3, "partition": ["0"] * 3, "offset": ["8", "9", "10"]}
        pq.write_table(pa.table(rows), tmp_path / "in" / "a.parquet")
        assert self.wanted_rows(tmp_path / "in", RowFilter({0: 10})) == [(0, 10)]

    def test_of_a_delta_table_are_its_files_where_the_log_tells_their_extent(self, tmp_path: Path) -> None:
        table = FORMS["delta"](tmp_path / "in", 1)
        for file in table.rglob("*.parquet"):
            file.unlink()
        pieces = plan_delta([str(table)])
        assert {piece.extent.offsets_partition for piece in pieces if piece.extent is not None} == {0, 1, 2, 3}
        assert [piece.row_groups for piece in pieces] == [None] * 4
