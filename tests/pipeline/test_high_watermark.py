"""Runs up to the high watermark: nothing beyond it is in the tables, and the next run goes on from there."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from groupcoord_spark.cli.progress import StageLines
from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.log import cut_at_high_watermarks, plan_logs
from groupcoord_spark.pipeline.night import run_stages
from groupcoord_spark.pipeline.run import RunRequest, Summary
from tests.conftest import DAY_MS, SAMPLE_LOGS
from tests.running import AS_OF_MS, rows_of, run, tables_of

if TYPE_CHECKING:
    from tests.local_session import LocalSession


def night_up_to_watermark(local: LocalSession, warehouse: Path, logs: Path) -> Summary:
    request = RunRequest((str(logs),), str(warehouse), "sample", AS_OF_MS, 7 * DAY_MS, JAVA)
    return run_stages(request, cut_at_high_watermarks(plan_logs([str(logs)])), local, StageLines(quiet=True))


def test_next_night_goes_on_from_the_high_watermark(local: LocalSession, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    shutil.copytree(SAMPLE_LOGS, logs)
    ends = {log.offsets_partition: log.end_offset for log in plan_logs([str(logs)]).partitions}
    watermarks = {number: end if number else end - 1 for number, end in ends.items()}
    lines = [f"__consumer_offsets {number} {watermark}" for number, watermark in watermarks.items()]
    (logs / "replication-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))

    first = night_up_to_watermark(local, tmp_path / "cut", logs)
    assert first.beyond_high_watermark == {0: 1}
    assert [row["code"] for row in rows_of(tmp_path / "cut", "warnings") if row["code"].startswith("beyond")] == ["beyond_high_watermark"]
    assert {row["offsets_partition"]: row["end_offset"] for row in rows_of(tmp_path / "cut", "offsets_partitions")} == watermarks
    assert max(row["record_offset"] for row in rows_of(tmp_path / "cut", "offset_commits") if row["offsets_partition"] == 0) < watermarks[0]

    second = run(local, tmp_path / "cut", logs)
    run(local, tmp_path / "whole", logs)
    assert second.reading.new_records == 1
    of_nights = ("runs", "offsets_partitions", "surviving_records", "warnings", "topic_health", "decode_coverage", "log_ends")
    assert tables_of(tmp_path / "cut", but=of_nights) == tables_of(tmp_path / "whole", but=of_nights)
