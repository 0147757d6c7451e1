"""``groupcoord coverage``: how many records of each kind were read and decoded, and how complete the log was."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import click
import pyarrow as pa

from groupcoord_spark.cli.options import Common, ShownRun, command, common_options, shown_run_options
from groupcoord_spark.log import CODES
from groupcoord_spark.sources.rows import ROW_CODES
from groupcoord_spark.wording import counted

STORED = ("key_type", "key_name", "value_version", "records", "bytes", "decoded", "quarantined", "misplaced")
KINDS = (*STORED, "reasons")
LOST = ("reason", "key", "value", "records")
OF_VALUES = {"value_too_short", "unknown_value_version", "value_truncated", "value_malformed", "value_beyond_limits"}
PARTITIONS = ("offsets_partition", "first_offset", "end_offset", "records", "quarantined", "live_keys", "surviving_share")


@command(epilog="Example: groupcoord coverage --warehouse ./warehouse")
@click.option("--partitions", "by_partition", is_flag=True, help="A row for each partition of __consumer_offsets.")
@shown_run_options
@common_options
def coverage(common: Common, by_partition: bool, shown_run: ShownRun) -> None:
    """Count records of each key type and value version: read, decoded, quarantined.

    REASONS counts the quarantined ones by their codes. SURVIVING-SHARE of a partition is records read against the offsets from the start of
    its log to its end (of inputs other than segments: from the first record on); a line on stderr has the figure of all partitions.
    Compaction removes records, so below 1 every count is a lower bound. The table counts everything that the runs up to this one read, also
    records that compaction has removed since, but no control records of transactions.
    """
    warehouse, run = common.run(shown_run)
    names: tuple[str, ...] = PARTITIONS if by_partition else KINDS
    partitions = warehouse.read("offsets_partitions", columns=PARTITIONS[:-1], run=run).to_pylist()
    if by_partition:
        coverage_rows = [{**row, "surviving_share": share_of_offsets(row)} for row in partitions]
    else:
        coverage_rows = warehouse.read("decode_coverage", columns=STORED, run=run).to_pylist()
        lost = warehouse.read("quarantined_records", columns=LOST, where=[("run_id", "=", run.run_id)], run=run)
        reasons = reasons_of(lost.to_batches()) if any(row["quarantined"] for row in coverage_rows) else {}
        for row in coverage_rows:
            counts = reasons.get((row["key_type"], row["value_version"]), Counter()).most_common()
            row["reasons"] = dict(counts) if common.output == "json" else ", ".join(f"{reason} {n}" for reason, n in counts) or None
    rows = sorted((tuple(row[name] for name in names) for row in coverage_rows), key=_by_number)
    common.show(names, rows)
    if not by_partition:
        total = sum(row["records"] for row in coverage_rows)
        common.say(f"The table counts {counted(total, 'record')} that the runs up to this one read, each of them once.")
    common.say(of_all(partitions))


def of_all(partitions: Sequence[dict[str, Any]]) -> str:
    """Return a sentence about the records left in the log after compaction, over all partitions."""
    spans = [row for row in partitions if share_of_offsets(row) is not None]
    if not spans:
        return "No record was read."
    records = sum(row["records"] for row in spans)
    offsets = sum(row["end_offset"] - row["first_offset"] for row in spans)
    sentence = (
        f"The copy of this run has {counted(records, 'record')} (control records included) on {counted(offsets, 'offset')}"
        f" of the log (surviving share {records / offsets:.4f}) in {counted(len(spans), 'offsets partition')}"
    )
    return f"{sentence}." if records >= offsets else f"{sentence}: counts are lower bounds of what was written (--partitions shows where)."


def reasons_of(quarantined: Iterable[pa.RecordBatch]) -> dict[tuple[int, int | None], Counter[str]]:
    """Count quarantined records for each reason, by key type (-1 if unreadable) and value version (None if absent)."""
    reasons: dict[tuple[int, int | None], Counter[str]] = {}
    for batch in quarantined:
        for row in _counted_by_kind(batch):
            key, value = row["key"], row["value"]
            kind, version = -1, None
            # a malformed line or batch has no key, whatever bytes are in its place
            if key is not None and len(key) >= 2 and row["reason"] not in ROW_CODES and row["reason"] not in CODES:
                kind = int.from_bytes(key, "big", signed=True)
                if row["reason"] in OF_VALUES and value is not None and len(value) >= 2:
                    version = int.from_bytes(value, "big", signed=True)
            reasons.setdefault((kind, None if version == -1 else version), Counter())[row["reason"]] += row["records_sum"]
    return reasons


def _counted_by_kind(quarantined: pa.RecordBatch) -> list[dict[str, Any]]:
    """Count records by reason and by the first two bytes of key and value: few rows for millions of faults."""
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {name: pc.binary_slice(quarantined.column(name), 0, 2) for name in ("key", "value")}
    columns |= {"reason": quarantined.column("reason"), "records": pc.fill_null(quarantined.column("records"), 1)}
    rows: list[dict[str, Any]] = pa.table(columns).group_by(["key", "value", "reason"]).aggregate([("records", "sum")]).to_pylist()
    return rows


def share_of_offsets(row: dict[str, Any]) -> float | None:
    """Return the records read per offset between the start and the end of the log, 0 to 1; None for a partition without offsets."""
    if row["first_offset"] is None or row["end_offset"] <= row["first_offset"]:
        return None
    read, span = int(row["records"]), int(row["end_offset"]) - int(row["first_offset"])
    return round(read / span, 4)


def _by_number(row: tuple[Any, ...]) -> tuple[int, int]:
    """Sort key: key type and value version, tombstones first; or the offsets partition."""
    return int(row[0]), -1 if row[2] is None else int(row[2])
