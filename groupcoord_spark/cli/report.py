"""``groupcoord report``: one page about one night."""

from __future__ import annotations

import os
from pathlib import Path

import click

from groupcoord_spark.cli.names import named_groups
from groupcoord_spark.cli.options import (
    Common,
    ShownRun,
    cluster_to_read,
    command,
    common_options_of_a_writer,
    groups_option,
    say_which_night,
    shown_run_options,
)
from groupcoord_spark.cli.render import say
from groupcoord_spark.errors import GroupcoordError


@command(epilog="Example: groupcoord report --out report.html")
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The page to write; a file of that name is replaced.",
)
@groups_option("Show the owners of this group's partitions over time, not of the 50 groups with most problems: the group")
@shown_run_options
@common_options_of_a_writer
def report(common: Common, out: Path, groups: tuple[str, ...], shown_run: ShownRun) -> None:
    """One page about one night: what is worst first, what expires when, who had which partition, lag, commits, and every table behind it.

    The page is one file that any browser shows without a network, on a phone too. Its tables can be sorted, filtered and saved as CSV.
    """
    from groupcoord_spark.report import gather, page
    from groupcoord_spark.warehouse.read import open_warehouse

    warehouse = open_warehouse(common.warehouse)
    cluster = cluster_to_read(warehouse, common.cluster)
    run = shown_run.of(warehouse, cluster)
    say_which_night(common, warehouse, run)
    chosen = named_groups(groups, warehouse, run) if groups else []
    _write(out, page(gather(warehouse, run, chosen)))
    if not common.quiet:
        say(f"{out}: {out.stat().st_size / 1e6:.1f} MB. Open it in a browser.")


def _write(out: Path, text: str) -> None:
    """Writes the page whole or not at all. Raises GroupcoordError where the file cannot be written."""
    beside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(out)
    except OSError as e:
        beside.unlink(missing_ok=True)
        raise GroupcoordError(f"{out} cannot be written: {e.strerror}. Name another file with --out.") from e
