"""Rows of a topic that was created again, in one table with the rows of the topic before."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.errors import BadCopyError
from groupcoord_spark.pipeline.plan.incarnations import OffsetsByTime
from groupcoord_spark.pipeline.run_nightly import run_nightly
from groupcoord_spark.protocol.record_types import CLOCKS_DIFFER_MS, NO_TIMESTAMP
from groupcoord_spark.sources.rows import RAW_SCHEMA
from tests.cli.test_bad_copies import export
from tests.conftest import DAY_MS
from tests.examples import examples
from tests.log.log_writer import T0
from tests.pipeline.logs import commit_value, offset_key
from tests.running import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

Rows = Sequence[tuple[int, int]]
"""(record offset, timestamp)."""


def one_log(rng: random.Random, begin_ms: int, length: int) -> Rows:
    """Return the places of a log after compaction. Its clocks step back, by less than clocks of brokers differ."""
    rows, now = [], begin_ms
    for offset in range(length):
        now += rng.choice((1, 1_000, 600_000, CLOCKS_DIFFER_MS))
        if offset == 0 or rng.random() < 0.7:
            rows.append((offset, max(begin_ms, now - rng.choice((0, 0, 1_000, CLOCKS_DIFFER_MS // 2)))))
    return rows


def summary_of(rng: random.Random, rows: Rows) -> OffsetsByTime:
    """Of the rows in any order, as several tasks see them."""
    shuffled = list(rows)
    rng.shuffle(shuffled)
    total = OffsetsByTime()
    cut = rng.randint(0, len(shuffled))
    for part in (shuffled[:cut], shuffled[cut:], [(7, NO_TIMESTAMP)]):
        seen = OffsetsByTime()
        for begin in range(0, len(part), 5):
            offsets, times = zip(*part[begin : begin + 5], strict=True)
            seen.add_rows(np.array(offsets), np.array(times))
        total.add(seen)
    return total


@examples(100)
@given(seed=st.integers(0, 2**32))
def test_a_log_whose_clocks_step_back_is_one_incarnation(seed: int) -> None:
    rng = random.Random(seed)
    assert summary_of(rng, one_log(rng, T0, rng.randint(1, 80))).begin_of_newest() is None


@examples(100)
@given(seed=st.integers(0, 2**32))
def test_the_newest_incarnation_begins_between_its_records_and_those_before(seed: int) -> None:
    rng = random.Random(seed)
    rows, begin = list(one_log(rng, T0, rng.randint(20, 80))), T0
    for _ in range(rng.randint(1, 3)):
        begin = max(time for _, time in rows) + rng.choice((2 * CLOCKS_DIFFER_MS, 30 * DAY_MS))
        anew = one_log(rng, begin, rng.randint(20, 80))
        rows += anew
        before = rows[: -len(anew)]
    begin_of_newest = summary_of(rng, rows).begin_of_newest()
    assert begin_of_newest is not None
    assert max(time for _, time in before) < begin_of_newest <= min(time for _, time in anew)


def test_the_summary_of_rows_of_many_years_stays_small() -> None:
    seen = OffsetsByTime()
    seen.add_rows(np.arange(20_000), T0 + np.arange(20_000) * DAY_MS)
    assert len(seen.buckets) <= 4_096 and seen.begin_of_newest() is None


def raw(*incarnations: tuple[int, int, int], partition: int = 0) -> pa.Table:
    """Return rows of the package's own format. incarnations: (begin, records, what is added to the committed offsets)."""
    rows: list[dict[str, Any]] = []
    for begin_ms, count, committed in incarnations:
        rows += [
            {
                "cluster": "c",
                "offsets_partition": partition,
                "record_offset": offset,
                "record_timestamp_ms": begin_ms + offset * 60_000,
                "key": offset_key(f"g{offset % 3}"),
                "value": commit_value(committed + offset),
                "producer_id": -1,
                "producer_epoch": -1,
                "is_transactional": False,
                "control_type": None,
                "source": "s",
                "position": offset,
                "leader_epoch": -1,
            }
            for offset in range(count)
        ]
    return pa.Table.from_pylist(rows, RAW_SCHEMA)


OLD, NEW = (T0, 50, 1_000), (T0 + 20 * DAY_MS, 10, 5_000)
STATE_OF_NEW = [("g0", 5_009), ("g1", 5_007), ("g2", 5_008)]


def state(warehouse: Path) -> list[tuple[str, int]]:
    return sorted((row["group_id"], row["committed_offset"]) for row in rows_of(warehouse, "committed_offsets", "c"))


def night(local: LocalSession, warehouse: Path, given: Path, *accept: str, day: int = 21) -> None:
    run_nightly(given, warehouse, cluster="c", as_of=f"2023-12-{day:02}", retention="3000d", accept=accept, upkeep=False, spark=local)


@pytest.mark.usefixtures("tables_of_a_log")
@pytest.mark.parametrize("kind", ["parquet", "delta", "json"])
class TestOneTable:
    def test_of_two_incarnations_is_refused_and_the_newest_is_read_where_that_is_accepted(
        self, local: LocalSession, tmp_path: Path, kind: str
    ) -> None:
        rows = raw(OLD, NEW)
        shuffled = rows.take(pa.array(random.Random(1).sample(range(rows.num_rows), rows.num_rows)))
        given = export(kind, shuffled, tmp_path / "in")
        with pytest.raises(BadCopyError, match=r"records after 2023-11-2\dT[0-9:]*Z have lower offsets .* --accept recreated"):
            night(local, tmp_path / "w", given)
        night(local, tmp_path / "w", given, "recreated")
        assert state(tmp_path / "w") == STATE_OF_NEW
        assert "earlier_incarnation" in {row["code"] for row in rows_of(tmp_path / "w", "warnings", "c")}
        night(local, tmp_path / "w", given, day=22)
        assert state(tmp_path / "w") == STATE_OF_NEW

    def test_to_which_the_rows_of_a_new_incarnation_are_added_is_refused(self, local: LocalSession, tmp_path: Path, kind: str) -> None:
        given = export(kind, pa.concat_tables([raw(OLD), raw((T0, 5, 77), partition=1)]), tmp_path / "in")
        night(local, tmp_path / "w", given)
        if kind == "delta":
            write_deltalake(given, DeltaTable(export(kind, raw(NEW), tmp_path / "added")).to_pyarrow_table(), mode="append")
        else:
            for file in sorted(export(kind, raw(NEW), tmp_path / "added").iterdir()):
                file.rename(given / f"b-{file.name}")
        with pytest.raises(BadCopyError, match="--accept recreated"):
            night(local, tmp_path / "w", given, day=22)
        night(local, tmp_path / "w", given, "recreated", day=22)
        assert state(tmp_path / "w") == STATE_OF_NEW
        night(local, tmp_path / "w", given, day=23)
        assert state(tmp_path / "w") == STATE_OF_NEW
        incarnations = [row["incarnation"] for row in rows_of(tmp_path / "w", "offsets_partitions", "c")]
        assert incarnations == [1, 1]


def test_a_frame_of_two_incarnations_is_refused_and_gc_replay_names_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    import groupcoord_spark as gc

    frame = spark.createDataFrame(raw(OLD, NEW))
    with pytest.raises(BadCopyError, match="several incarnations"):
        gc.run_nightly(frame, tmp_path / "w", cluster="c", as_of="2023-12-21", spark=spark)
    with pytest.raises(Exception, match="offsets partition 0 are of several incarnations of the topic: the record at offset 10 is older"):
        gc.replay(frame).committed_offsets.collect()
    newest = gc.replay(frame.where(f"record_timestamp_ms >= {NEW[0]}")).committed_offsets.collect()
    assert sorted((row.group_id, row.committed_offset) for row in newest) == STATE_OF_NEW
