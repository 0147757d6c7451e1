"""Runs over copies of a log whose leaders change and that is truncated, cleaned and recreated: each shows its copy or is refused."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from groupcoord_spark.coordinator.broker_settings import DeleteRetention
from groupcoord_spark.errors import BadCopyError
from groupcoord_spark.log import PartitionLog, has_every_offset, plan_logs, segments_from
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory, remembered_offsets
from groupcoord_spark.pipeline.plan.evidence import Evidence, evidence_of_segments
from groupcoord_spark.pipeline.plan.log_changes import LogChange, change_of, compared_logs
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from tests.conftest import DAY_MS
from tests.examples import examples
from tests.log.log_writer import T0
from tests.pipeline.replicated_log import Cluster, Commit, Replica
from tests.running import rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

pytestmark = pytest.mark.usefixtures("tables_of_a_log")

AS_OF_MS = T0 + 30 * DAY_MS
SETTINGS = {"retention_ms": 10**12, "delete_retention": DeleteRetention(0, "of the model, whose cleaner may take tombstones at once")}
LOSSES = ("log_truncated", "keys_vanished")
HARMLESS = {"append", "change_leader", "roll", "clean", "lag"}


def shown(warehouse: Path) -> dict[str, tuple[int, int]]:
    rows = rows_of(warehouse, "committed_offsets", "sample")
    return {row["group_id"]: (row["committed_offset"], row["record_offset"]) for row in rows}


def lost_groups(before: Replica, now: Replica) -> set[str]:
    """Return the groups whose commit of the last run is gone, with neither a later record nor the commit itself left."""
    newest = {record.group: record.offset for record in now.records}
    return {group for group, (_, offset) in before.state.items() if newest.get(group, -1) < offset}


@examples(4)
@given(seed=st.integers(0, 2**32), with_checkpoint=st.booleans(), with_topic_id=st.booleans())
def test_each_run_shows_the_copy_or_is_refused(local: LocalSession, seed: int, with_checkpoint: bool, with_topic_id: bool) -> None:
    rng = random.Random(seed)
    cluster, directory = Cluster(rng), Path(tempfile.mkdtemp())
    side_files = {"with_checkpoint": with_checkpoint, "with_topic_id": with_topic_id}
    last: Replica | None = None
    try:
        cluster.append()
        for number in range(6):
            copied = cluster.copy(directory / "in", **side_files)
            note(f"run {number}: {', '.join(cluster.happened)}")
            is_harmless = last is not None and HARMLESS.issuperset(cluster.happened)
            try:
                summary = run(local, directory / "w", directory / "in", **SETTINGS, as_of_ms=AS_OF_MS + number)
            except BadCopyError as refusal:
                note(f"refused: {refusal}")
                assert not is_harmless
                return
            assert shown(directory / "w") == copied.state
            warnings = rows_of(directory / "w", "warnings", "sample")
            codes = {row["code"] for row in warnings if row["run_id"] == summary.run_id}.intersection(LOSSES)
            assert not (is_harmless and "log_truncated" in codes)
            assert last is None or codes or not lost_groups(last, copied)
            last, cluster.happened = copied, [] if copied is cluster.leader else ["the last copy was of another replica"]
            for _ in range(rng.randint(1, 6)):
                cluster.step()
    finally:
        shutil.rmtree(directory)


def remembered(last: PartitionHistory | None, log: PartitionLog, seen: Evidence) -> PartitionHistory:
    """Return what a run over the log leaves for the next one."""
    newest_ms = NO_TIMESTAMP if seen.newest_record is None else seen.newest_record.timestamp_ms
    known = last or PartitionHistory()
    return PartitionHistory(
        end_offset=log.end_offset,
        newest_timestamp_ms=max(newest_ms, known.newest_timestamp_ms),
        first_offset=log.log_start_offset,
        first_record=seen.first_record or known.first_record,
        newest_record=seen.newest_record or known.newest_record,
        leader_epoch=seen.epoch_of(log.end_offset - 1),
    )


def state_of_incremental(last: Replica, now: Replica) -> dict[str, tuple[int, int]]:
    new = tuple(record for record in now.records if record.offset >= last.end)
    first = Commit(-1, 0, "none", None, 0)
    old = tuple(first._replace(group=group, committed_offset=committed, offset=offset) for group, (committed, offset) in last.state.items())
    return Replica(records=(*old, *new)).state


@examples(50)
@given(seed=st.integers(0, 2**32), with_checkpoint=st.booleans(), with_topic_id=st.booleans())
def test_a_run_goes_on_only_from_what_the_log_still_has(seed: int, with_checkpoint: bool, with_topic_id: bool) -> None:
    """As the test above, for the decision alone, which takes milliseconds."""
    rng = random.Random(seed)
    cluster, directory = Cluster(rng), Path(tempfile.mkdtemp())
    last: tuple[Replica, PartitionHistory, str | None] | None = None
    try:
        cluster.append()
        for number in range(10):
            copied = cluster.copy(directory / "in", with_checkpoint=with_checkpoint, with_topic_id=with_topic_id)
            note(f"run {number}: {', '.join(cluster.happened)}: {copied}")
            is_harmless = HARMLESS.issuperset(cluster.happened)  # two brokers may have other records at the same offsets
            try:
                plan = plan_logs([str(directory / "in")])
            except BadCopyError as refusal:
                assert "are not copies of one partition" in str(refusal) and not is_harmless
                return
            (log,) = plan.partitions
            history = {} if last is None else {0: last[1]}
            seen = evidence_of_segments(plan, remembered_offsets([history]), history)
            if last is not None:
                same_id = None if None in (plan.topic_id, last[2]) else plan.topic_id == last[2]
                (compared,) = compared_logs(plan, history, seen, is_same_topic=same_id).values()
                change = change_of(compared)
                note(f"  {change.name}, {last[1]}, {seen}")
                if is_harmless:
                    assert change in (LogChange.CONTINUED, LogChange.UNPROVEN)
                    assert change is LogChange.CONTINUED or not (with_checkpoint and with_topic_id and copied.records)
                new = segments_from(log, last[0].end, log.end_file, None)
                if change is LogChange.CONTINUED and has_every_offset(new, last[0].end, log.end_offset):
                    assert state_of_incremental(last[0], copied) == copied.state
                if change in (LogChange.RECREATED, LogChange.OLDER, LogChange.END_REPLACED, LogChange.ODD, LogChange.EMPTIED):
                    return
            last = copied, remembered(None if last is None else last[1], log, seen[0]), plan.topic_id
            cluster.happened = [] if copied is cluster.leader else ["the last copy was of another replica"]
            for _ in range(rng.randint(1, 6)):
                cluster.step()
    finally:
        shutil.rmtree(directory)
