"""Reads log end offsets from a file, for the columns that the log of ``__consumer_offsets`` cannot fill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from groupcoord_spark.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa

    from groupcoord_spark.warehouse.read import Run, Warehouse

EndOffsets = Mapping[tuple[str, int], int]
"""Topic and partition -> log end offset."""


def read_end_offsets(path: str) -> EndOffsets:
    """Offsets of a file in one of three forms: JSON ``{"orders": {"0": 1500}}``, lines ``orders:0:1500`` as kafka-get-offsets prints them,
    or CSV, lines ``orders,0,1500``. Empty lines, comments (``#``) and a heading (``topic,partition,offset``) are skipped, as are partitions
    whose offset is empty (no leader).

    Raises UsageError naming the file, the line and what was expected.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{path} cannot be read as text: {e}.") from e
    if text.lstrip().startswith("{"):
        return _from_json(path, text)
    offsets: dict[tuple[str, int], int] = {}
    is_first = True
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        # Neither separator can be part of a topic's name.
        parts = [part.strip().strip('"') for part in line.rsplit("," if "," in line else ":", 2)]
        is_heading = is_first and len(parts) == 3 and "partition" in parts[1].lower()
        is_first = False
        if is_heading:
            continue
        try:
            topic, partition, offset = parts
            if offset:
                offsets[topic, int(partition)] = int(offset)
        except ValueError as e:
            raise UsageError(f"{path}, line {number}: {line.strip()!r} is not topic:partition:offset or topic,partition,offset.") from e
    return offsets


def changed_at_ms(path: str) -> int:
    """When the file was changed last, in epoch milliseconds: the time of the sample."""
    return Path(path).stat().st_mtime_ns // 1_000_000


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


def _from_json(path: str, text: str) -> EndOffsets:
    expected = 'expected {"topic": {"partition": offset}}'
    try:
        topics = json.loads(text)
        return {(topic, int(partition)): int(offset) for topic, of_topic in topics.items() for partition, offset in of_topic.items()}
    except json.JSONDecodeError as e:
        raise UsageError(f"{path}, line {e.lineno}: not JSON: {e.msg}; {expected}.") from e
    except (AttributeError, TypeError, ValueError) as e:
        raise UsageError(f"{path}: {expected}: {e}.") from e
