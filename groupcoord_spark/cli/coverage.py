"""``groupcoord coverage``: what was read of each kind of record, what decoded, and how complete the log was."""

from __future__ import annotations

from typing import Any

import click

from groupcoord_spark.cli.options import Common, at_option, cluster_to_read, common_options
from groupcoord_spark.cli.render import lines, write_lines, write_records

KINDS = ("key_type", "key_name", "value_version", "records", "bytes", "decoded", "quarantined", "misplaced")
PARTITIONS = ("offsets_partition", "first_offset", "end_offset", "records", "quarantined", "live_keys", "completeness")


@click.command(epilog="Example: groupcoord coverage --warehouse ./warehouse")
@click.option("--partitions", "by_partition", is_flag=True, help="A row for each partition of __consumer_offsets.")
@at_option
@common_options
def coverage(common: Common, by_partition: bool, at_ms: int | None) -> None:
    """Records of each key type and value version: read, decoded, quarantined, and misplaced (their group belongs to another partition).

    COMPLETENESS of a partition is records read against the span of their offsets. Compaction takes records away, so below 1 every count is
    a lower bound of what was once written.
    """
    from groupcoord_spark.warehouse.read import open_warehouse

    warehouse = open_warehouse(common.warehouse)
    cluster = cluster_to_read(warehouse, common.cluster)
    names: tuple[str, ...] = PARTITIONS if by_partition else KINDS
    table, stored = ("offsets_partitions", PARTITIONS[:-1]) if by_partition else ("decode_coverage", KINDS)
    found = warehouse.read(table, cluster=cluster, columns=stored, at_ms=at_ms).to_pylist()
    if by_partition:
        found = [{**row, "completeness": completeness(row)} for row in found]
    rows = sorted((tuple(row[name] for name in names) for row in found), key=_by_number)
    if common.output == "table":
        titles = [name.upper().replace("_", "-") for name in names]
        write_lines(lines(titles, rows, [*map(len, titles[:-1]), None]))
    else:
        write_records(common.output, names, rows)


def completeness(row: dict[str, Any]) -> float | None:
    """Records read against the span of offsets they lie in, 0 to 1; None for a partition without records."""
    if row["first_offset"] is None or row["end_offset"] <= row["first_offset"]:
        return None
    read, span = int(row["records"]), int(row["end_offset"]) - int(row["first_offset"])
    return round(read / span, 4)


def _by_number(row: tuple[Any, ...]) -> tuple[int, int]:
    """Key type and value version, tombstones first; the offsets partition is the whole order of its rows."""
    return int(row[0]), -1 if row[2] is None else int(row[2])
