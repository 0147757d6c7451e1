"""Runs over files that are cut into ranges."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.log import plan_logs
from groupcoord_spark.pipeline.division import Division
from groupcoord_spark.pipeline.exchange.state_rows import WRITTEN_ROWS
from groupcoord_spark.pipeline.plan import tasks
from groupcoord_spark.pipeline.plan.tasks import split_large_segments
from tests.pipeline.logs import random_log
from tests.pipeline.segment_files import random_codecs, write_log
from tests.pipeline.test_distributed_replay import AS_OF_MS, RETENTION_MS, comparable, tables_by_the_rule
from tests.running import rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession


def test_a_night_over_ranges_gives_the_state_of_the_rule(local: LocalSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(11)
    log = random_log(rng, 400)
    (path,) = write_log(tmp_path / "logs", log, codecs=random_codecs(rng))
    monkeypatch.setattr(tasks, "split_large_segments", partial(split_large_segments, range_bytes=path.stat().st_size // 7))
    summary = run(local, tmp_path / "w", tmp_path / "logs", as_of_ms=AS_OF_MS, retention_ms=RETENTION_MS)
    assert (summary.records_read, summary.bytes_read) == (len(log), path.stat().st_size)
    found = {table: rows_of(tmp_path / "w", table) for table in WRITTEN_ROWS}
    assert comparable(found) == comparable(tables_by_the_rule({0: log}, JAVA))


def test_only_files_that_would_hold_up_the_night_are_cut(local: LocalSession, tmp_path: Path) -> None:
    rng = random.Random(11)
    for offsets_partition, length in enumerate((400, 60, 50, 40)):
        write_log(tmp_path, random_log(rng, length), offsets_partition=offsets_partition)
    segments = [segment for each in plan_logs([str(tmp_path)]).partitions for segment in each.segments]
    two_cores = Division(2, is_cluster=False)
    read = split_large_segments(segments, local, two_cores, 1500)
    assert [part for part in read if part.offsets_partition > 0] == segments[1:]
    ranges = [part for part in read if part.offsets_partition == 0]
    assert len(ranges) > 3 and sum(part.bytes for part in ranges) == segments[0].size
    (tmp_path / "__consumer_offsets-0" / Path(segments[0].uri).name).write_bytes(b"x" * segments[0].size)
    assert split_large_segments(segments, local, two_cores, 1500) == segments
