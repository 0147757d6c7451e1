"""``groupcoord maintain``: the upkeep of a warehouse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from groupcoord_spark.cli.options import Common, Duration, command, common_options
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.warehouse.maintenance import Upkeep

NAMES: Final = ("table", "files_joined", "files_made", "rows_dropped", "files_deleted", "bytes_deleted")


@command(epilog="Example: groupcoord maintain --keep-nights 30 --keep-history 400d --dry-run")
@click.option(
    "--keep-nights", type=click.IntRange(min=1), default=30, show_default=True, metavar="N", help="Runs whose tables stay readable."
)
@click.option(
    "--keep-history",
    "keep_history_ms",
    type=Duration(),
    default="400d",
    show_default=True,
    help="How long rows of history stay. Records that were still in the log at that time stay longer: point-in-time runs need them.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@common_options
def maintain(common: Common, keep_nights: int, keep_history_ms: int, dry_run: bool) -> None:
    """Join the files of history of each month that is over, drop old runs and old history, and delete files that nothing needs any more.

    A row for each table that changes: compacted files of history, and the new files; dropped rows of history; and the deleted files and
    bytes. Kept runs, point-in-time runs and the history within --keep-history show the same rows as before. The command may run at any
    time, also during a nightly run.
    """
    from groupcoord_spark.warehouse.maintenance import maintain as upkeep
    from groupcoord_spark.warehouse.read import open_warehouse

    cluster = open_warehouse(common.warehouse).named_cluster(common.cluster)
    done = upkeep(common.warehouse, cluster, keep_nights=keep_nights, keep_history_ms=keep_history_ms, dry_run=dry_run)
    rows = [row for row in ([getattr(table, name) for name in NAMES] for table in done.tables) if any(row[1:])]
    if rows or common.output != "table":
        common.show(NAMES, rows, least_widths=[20, *map(len, NAMES[1:-1]), None])
    common.say(upkeep_text(done, dry_run=dry_run))


def upkeep_text(done: Upkeep, *, dry_run: bool) -> str:
    """Return a sentence about what upkeep did, or would do."""
    joined, made, rows, files, size = (sum(getattr(table, name) for table in done.tables) for name in NAMES[1:])
    runs = counted(done.nights_dropped, "run")
    if done.look_backs_dropped:
        runs += f" and {counted(done.look_backs_dropped, 'point-in-time run')}"
    join, drop, delete = ("Would join", "drop", "delete") if dry_run else ("Joined", "dropped", "deleted")
    return (
        f"{join} {counted(joined, 'file')} of history into {made:,}, {drop} {runs} and {counted(rows, 'row')} of history,"
        f" {delete} {counted(files, 'file')} ({size / 1e6:,.1f} MB)."
    )
