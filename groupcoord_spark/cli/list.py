"""``groupcoord list``: groups, in the columns of kafka-consumer-groups --list."""

from typing import Final, NamedTuple

import click

from groupcoord_spark.answers.timeline import duration
from groupcoord_spark.cli.end_offsets import remark_on_checkpoint
from groupcoord_spark.cli.options import Common, ShownRun, Words, command, common_options, shown_run_options
from groupcoord_spark.cli.render import cell_text, print_lines
from groupcoord_spark.warehouse.read import Run, Warehouse
from groupcoord_spark.wording import command_line, counted

# Kafka's own words (GroupState, GroupType); the warehouse has the types in lower case, as the protocol names them.
STATES: Final = ("Empty", "Stable", "Assigning", "Reconciling", "NotReady", "PreparingRebalance", "CompletingRebalance", "Dead")
TYPES: Final = ("Classic", "Consumer", "Share", "Streams")

_LAG_OF_GROUPS: Final = """
SELECT group_id, lag, max_lag, hours_behind, hours_to_loss, partitions_without_end > 0 AS lag_is_partial, beyond_end
FROM lag_by_group WHERE lag IS NOT NULL
"""


@command("list", epilog="Example: groupcoord list --state Stable,Empty --type")
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
    "--lag",
    is_flag=True,
    help="Add LAG, records that the group has not read by the newest log ends (the copied checkpoint, or nightly --end-offsets);"
    " >= where some of its partitions have no log end; MAX-LAG, of one partition; BEHIND, the lag in time; LOSS-IN, when a topic's"
    " retention takes records that the group has not read.",
)
@shown_run_options
@common_options
def list_groups(common: Common, states: frozenset[str] | None, types: frozenset[str] | None, lag: bool, shown_run: ShownRun) -> None:
    """List every group that the coordinator would list, of all types, sorted by name.

    STATES and TYPES are words separated by commas, for example Stable,Empty.
    """
    import pyarrow.compute as pc

    from groupcoord_spark.warehouse import Condition

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
    warehouse, run = common.run(shown_run)
    groups = warehouse.read("groups", columns=list(columns.values()), where=where, run=run)
    groups = groups.take(pc.sort_indices(groups["group_id"]))
    cells = {name: groups[column].to_pylist() for name, column in columns.items()}
    if "type" in cells:
        cells["type"] = [word.capitalize() for word in cells["type"]]
    titles = [name.upper() for name in columns]
    if lag:
        lags, nothing = _lags(warehouse, run), _Lag(*[None] * len(_Lag._fields))
        if not lags:
            common.say(
                "No lag: this run has no log ends. Copy replication-offset-checkpoint with the log directory, or give the nightly"
                " --end-offsets FILE or --with-end-offsets."
            )
        elif remark := remark_on_checkpoint(warehouse, run):
            common.say(remark)
        if beyond := sum(lag.beyond_end or 0 for lag in lags.values()):
            statement = "from lag where remark = 'beyond_end'"
            more = command_line("sql", statement, "--run", run.run_id, warehouse=warehouse.location.uri, cluster=run.cluster)
            common.say(f"{counted(beyond, 'committed offset')} beyond the end of the log, with lag 0 here. `{more}` has the negative lag.")
        of_groups = [lags.get(group, nothing) for group in cells["group"]]
        shown_lags = of_groups if common.output != "table" else map(_cells, of_groups)
        names = _Lag._fields if common.output != "table" else _Lag._fields[:-2]
        columns |= dict.fromkeys(names, "")
        cells |= zip(names, map(list, zip(*shown_lags, strict=True)) if of_groups else [[]] * len(names), strict=True)
        titles += ["LAG", "MAX-LAG", "BEHIND", "LOSS-IN"]
    if common.output == "table" and len(columns) == 1:
        print_lines(cell_text(group) for group in cells["group"])
    else:
        width = max([15, *(len(cell_text(group)) for group in cells["group"])]) + 10
        least_widths = [width, *[20] * (len(columns) - 1)]
        common.show(list(columns), zip(*cells.values(), strict=True), titles=titles, least_widths=least_widths)


class _Lag(NamedTuple):
    """The lag of a group by the newest sample of log ends. hours_to_loss is 0 where records are gone that the group has not read.

    lag_is_partial: the sample lacks partitions of the group, so the lag is a lower bound. beyond_end: the number of committed offsets
    beyond the end of the log, which count as lag 0.
    """

    lag: int | None
    max_lag: int | None
    hours_behind: float | None
    hours_to_loss: float | None
    lag_is_partial: bool | None
    beyond_end: int | None


def _lags(warehouse: Warehouse, run: Run) -> dict[str, _Lag]:
    """Group -> its lag. Groups without a partition in the newest sample of log ends are left out."""
    from groupcoord_spark.warehouse.sql import SnapshotInDuckDB

    rows = SnapshotInDuckDB(warehouse, run=run).rows(_LAG_OF_GROUPS)
    group_ids, *columns = (column.to_pylist() for column in rows.columns)
    return dict(zip(group_ids, map(_Lag, *columns), strict=True))


def _cells(lag: _Lag) -> tuple[object, ...]:
    """For people: lengths of time in their greatest units, and ``>=`` before the lag where partitions have no sample."""
    behind, loss = (None if hours is None else duration(round(hours * 3_600_000)) for hours in (lag.hours_behind, lag.hours_to_loss))
    sum_of_lags, max_lag = (f">={figure}" if lag.lag_is_partial else figure for figure in (lag.lag, lag.max_lag))
    return sum_of_lags, max_lag, behind, "lost" if lag.hours_to_loss == 0 else loss
