"""``groupcoord report``: one page about one run."""

from pathlib import Path
from urllib.parse import quote

import click

from groupcoord_spark.cli.names import named_groups
from groupcoord_spark.cli.options import Common, ShownRun, command, common_options_of_a_writer, groups_option, shown_run_options
from groupcoord_spark.cli.render import refuse_unwritable, write_whole
from groupcoord_spark.errors import UsageError
from groupcoord_spark.wording import counted


@command(epilog="Example: groupcoord report --out report.html")
@click.option(
    "--out",
    required=True,
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The page to write; a file of that name is replaced.",
)
@groups_option("Draw who had which partition of this group, not of the 50 groups with most problems: its name")
@click.option("--all-clusters", is_flag=True, help="A page for each cluster of the warehouse, FILE-CLUSTER.html, and FILE as their index.")
@shown_run_options
@common_options_of_a_writer
def report(common: Common, out: Path, groups: tuple[str, ...], all_clusters: bool, shown_run: ShownRun) -> None:
    """Write one page about one run: news, findings, expirations, lag, groups, tables.

    The page is one file that any browser shows without a network, on a phone too. Its tables can be sorted, filtered and saved as CSV.
    """
    from groupcoord_spark.report import gather, index, page
    from groupcoord_spark.warehouse.read import open_warehouse

    refuse_unwritable(out)
    if all_clusters:
        if groups or shown_run.run_id is not None:
            raise UsageError("--all-clusters shows every cluster: leave --group and --run out.")
        warehouse, entries = open_warehouse(common.warehouse), []
        for cluster in warehouse.clusters_with_nightly_runs():
            of_cluster = gather(warehouse, shown_run.of(warehouse, cluster))
            beside = out.with_name(f"{out.stem}-{quote(cluster, safe='')}{out.suffix or '.html'}")
            write_whole(beside, page(of_cluster))
            entries.append((beside.name, of_cluster))
        write_whole(out, index(entries))
        common.say(f"{out}: the index of {counted(len(entries), 'page')}. Open it in a browser.")
        return
    warehouse, run = common.run(shown_run)
    chosen = named_groups(groups, warehouse, run) if groups else []
    write_whole(out, page(gather(warehouse, run, chosen)))
    common.say(f"{out}: {out.stat().st_size / 1e6:.1f} MB. Open it in a browser.")
