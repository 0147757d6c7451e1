"""The newest sample of log end offsets that the warehouse has."""

from __future__ import annotations

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
    """The source and the age of the newest log ends up to a run, in a sentence, where they are a broker's checkpoint; else None."""
    from groupcoord_spark.cli.options import minute_and_age

    newest = _newest_sample(warehouse, run, ["source", "written_at"])
    if not newest.num_rows or newest["source"][0].as_py() != "checkpoint":
        return None
    written = sorted({time // 1000 for time in newest["written_at"].cast("int64").to_pylist()})
    oldest = "" if written[0] // 60_000 == written[-1] // 60_000 else f"; the oldest one at {minute_and_age(written[0])}"
    return f"Log ends are the high watermarks in replication-offset-checkpoint, written at {minute_and_age(written[-1])}{oldest}."


def _newest_sample(warehouse: Warehouse, run: Run, columns: list[str]) -> pa.Table:
    """The rows of the run's own sample, of which a night over a log directory always has one, else of the newest one before."""
    import pyarrow.compute as pc

    samples = warehouse.read("log_ends", columns=[*columns, "sampled_at"], where=[("run_id", "=", run.run_id)], run=run)
    if not samples.num_rows:
        samples = warehouse.read("log_ends", columns=[*columns, "sampled_at"], run=run)
    return samples.filter(pc.equal(samples["sampled_at"], pc.max(samples["sampled_at"])))
