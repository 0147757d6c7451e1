"""The newest sample of log end offsets that the warehouse has."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from groupcoord_spark.sources.end_offsets import EndOffsets
    from groupcoord_spark.warehouse.read import Run, Warehouse


def newest_end_offsets(warehouse: Warehouse, run: Run) -> EndOffsets:
    """End offsets of the newest sample that was stored up to a run; empty where no run had one."""
    columns = ["topic", "partition", "end_offset"]
    newest = _newest_sample(warehouse, run, columns)
    topics, partitions, ends = (newest[name].to_pylist() for name in columns)
    return dict(zip(zip(topics, partitions, strict=True), ends, strict=True))


def remark_on_checkpoint(warehouse: Warehouse, run: Run) -> str | None:
    """Return a sentence with source and age of the newest log ends up to a run if they come from a broker's checkpoint, else None."""
    from groupcoord_spark.cli.options import minute_and_age

    newest = _newest_sample(warehouse, run, ["source", "written_at"])
    if not newest.num_rows or newest["source"][0].as_py() != "checkpoint":
        return None
    written = sorted({time // 1000 for time in newest["written_at"].cast("int64").to_pylist()})
    oldest = "" if written[0] // 60_000 == written[-1] // 60_000 else f"; the oldest one at {minute_and_age(written[0])}"
    return f"Log ends are the high watermarks in replication-offset-checkpoint, written at {minute_and_age(written[-1])}{oldest}."


def checkpoint_is_late_from(warehouse: Warehouse, run: Run) -> datetime | None:
    """Return the time after which the newest checkpoint may lack what was committed; None where the log ends are from elsewhere.

    A broker writes its checkpoint each ``replica.high.watermark.checkpoint.interval.ms``, 5 seconds by default.
    """
    newest = _newest_sample(warehouse, run, ["source"])
    if not newest.num_rows or newest["source"][0].as_py() != "checkpoint":
        return None
    sampled_at: datetime = newest["sampled_at"][0].as_py()
    return sampled_at - timedelta(seconds=5)


def _newest_sample(warehouse: Warehouse, run: Run, columns: list[str]) -> pa.Table:
    """Return the run's own sample of log ends, which a run over a log directory always has, else the newest earlier one."""
    import pyarrow.compute as pc

    samples = warehouse.read("log_ends", columns=[*columns, "sampled_at"], where=[("run_id", "=", run.run_id)], run=run)
    if not samples.num_rows:
        samples = warehouse.read("log_ends", columns=[*columns, "sampled_at"], run=run)
    return samples.filter(pc.equal(samples["sampled_at"], pc.max(samples["sampled_at"])))
