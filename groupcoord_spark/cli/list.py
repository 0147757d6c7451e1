"""``groupcoord list``: groups, in the columns of kafka-consumer-groups --list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from groupcoord_spark.cli.options import Common, ShownRun, cluster_to_read, common_options, say_which_night, shown_run_options
from groupcoord_spark.cli.render import lines, shown, write_lines, write_records
from groupcoord_spark.cli.words import Words

if TYPE_CHECKING:
    from groupcoord_spark.warehouse.read import Run, Warehouse

# Kafka's own words (GroupState, GroupType); the warehouse has the types in lower case, as the protocol names them.
STATES: Final = ("Empty", "Stable", "Assigning", "Reconciling", "NotReady", "PreparingRebalance", "CompletingRebalance", "Dead")
TYPES: Final = ("Classic", "Consumer", "Share", "Streams")


@click.command("list", epilog="Example: groupcoord list --state Stable,Empty --type")
@click.option(
    "--state",
    "states",
    type=Words("STATES", STATES),
    metavar="[STATES]",
    is_flag=False,
    flag_value="",
    help="Add the column STATE; with STATES only those groups.",
)
@click.option(
    "--type",
    "types",
    type=Words("TYPES", TYPES),
    metavar="[TYPES]",
    is_flag=False,
    flag_value="",
    help="Add the column TYPE; with TYPES only those groups.",
)
@click.option(
    "--lag", is_flag=True, help="Add the column LAG: records that the group has not read, by the newest sample of nightly --end-offsets."
)
@shown_run_options
@common_options
def list_groups(common: Common, states: frozenset[str] | None, types: frozenset[str] | None, lag: bool, shown_run: ShownRun) -> None:
    """Every group the coordinator would list, sorted by name: classic, consumer, share and streams groups.

    STATES and TYPES are words separated by commas, for example Stable,Empty.
    """
    import pyarrow.compute as pc

    from groupcoord_spark.warehouse.read import Condition, open_warehouse

    where: list[Condition] = []
    if states:
        where.append(("state", "in", sorted(states)))
    if types:
        where.append(("group_type", "in", sorted(word.lower() for word in types)))
    columns = {"group": "group_id"}
    if types is not None:
        columns["type"] = "group_type"
    if states is not None:
        columns["state"] = "state"
    warehouse = open_warehouse(common.warehouse)
    run = shown_run.of(warehouse, cluster_to_read(warehouse, common.cluster))
    say_which_night(common, warehouse, run)
    groups = warehouse.read("groups", columns=list(columns.values()), where=where, run=run)
    groups = groups.take(pc.sort_indices(groups["group_id"]))
    cells = {name: groups[column].to_pylist() for name, column in columns.items()}
    if "type" in cells:
        cells["type"] = [word.capitalize() for word in cells["type"]]
    if lag:
        lags = _lags(warehouse, run)
        columns["lag"] = "lag"
        cells["lag"] = [lags.get(group) for group in cells["group"]]
    if common.output != "table":
        write_records(common.output, list(columns), zip(*cells.values(), strict=True))
    elif len(columns) == 1:
        write_lines(shown(group) for group in cells["group"])
    else:
        width = max([15, *(len(shown(group)) for group in cells["group"])]) + 10
        write_lines(lines([name.upper() for name in columns], zip(*cells.values(), strict=True), [width, *[20] * (len(columns) - 1)]))


def _lags(warehouse: Warehouse, run: Run) -> dict[str, int]:
    """Group -> sum of the lag of its partitions. Groups without a partition in the newest sample of log ends are left out."""
    from groupcoord_spark.cli.end_offsets import newest_end_offsets

    ends = newest_end_offsets(warehouse, run)
    names = ["group_id", "topic", "partition", "committed_offset"]
    offsets = warehouse.read("committed_offsets", columns=names, run=run)
    lags: dict[str, int] = {}
    for group_id, topic, partition, committed in zip(*(offsets[name].to_pylist() for name in names), strict=True):
        end = ends.get((topic, partition))
        # -1 is what some clients commit for "nowhere yet": no lag follows from it.
        if end is not None and committed != -1:
            lags[group_id] = lags.get(group_id, 0) + max(end - committed, 0)
    return lags
