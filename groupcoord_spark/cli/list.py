"""``groupcoord list``: groups, in the columns of kafka-consumer-groups --list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from groupcoord_spark.cli.options import Common, at_option, cluster_to_read, common_options
from groupcoord_spark.cli.render import lines, shown, write_lines, write_records

if TYPE_CHECKING:
    from groupcoord_spark.warehouse.read import Warehouse

# Kafka's own words (GroupState, GroupType); the warehouse has the types in lower case, as the protocol names them.
STATES: Final = ("Empty", "Stable", "Assigning", "Reconciling", "NotReady", "PreparingRebalance", "CompletingRebalance", "Dead")
TYPES: Final = ("Classic", "Consumer", "Share", "Streams")


class Words(click.ParamType):  # type: ignore[type-arg]
    """Words from a list, separated by commas, in any case; no word at all stands for every one of them."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self._known = {word.lower(): word for word in known}

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        asked = [word.strip() for word in str(value).split(",") if word.strip()]
        unknown = ", ".join(repr(word) for word in asked if word.lower() not in self._known)
        if unknown:
            self.fail(f"{unknown} is not one of {', '.join(self._known.values())}.", param, ctx)
        return frozenset(self._known[word.lower()] for word in asked)


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
@at_option
@common_options
def list_groups(common: Common, states: frozenset[str] | None, types: frozenset[str] | None, lag: bool, at_ms: int | None) -> None:
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
    cluster = cluster_to_read(warehouse, common.cluster)
    groups = warehouse.read("groups", cluster=cluster, columns=list(columns.values()), where=where, at_ms=at_ms)
    groups = groups.take(pc.sort_indices(groups["group_id"]))
    cells = {name: groups[column].to_pylist() for name, column in columns.items()}
    if "type" in cells:
        cells["type"] = [word.capitalize() for word in cells["type"]]
    if lag:
        lags = _lags(warehouse, cluster, at_ms)
        columns["lag"] = "lag"
        cells["lag"] = [lags.get(group) for group in cells["group"]]
    if common.output != "table":
        write_records(common.output, list(columns), zip(*cells.values(), strict=True))
    elif len(columns) == 1:
        write_lines(shown(group) for group in cells["group"])
    else:
        width = max([15, *(len(shown(group)) for group in cells["group"])]) + 10
        write_lines(lines([name.upper() for name in columns], zip(*cells.values(), strict=True), [width, *[20] * (len(columns) - 1)]))


def _lags(warehouse: Warehouse, cluster: str, at_ms: int | None) -> dict[str, int]:
    """Group -> sum of the lag of its partitions. Groups without a partition in the newest sample of log ends are left out."""
    from groupcoord_spark.cli.end_offsets import newest_end_offsets

    ends = newest_end_offsets(warehouse, cluster, at_ms)
    names = ["group_id", "topic", "partition", "committed_offset"]
    offsets = warehouse.read("committed_offsets", cluster=cluster, columns=names, at_ms=at_ms)
    lags: dict[str, int] = {}
    for group_id, topic, partition, committed in zip(*(offsets[name].to_pylist() for name in names), strict=True):
        end = ends.get((topic, partition))
        # -1 is what some clients commit for "nowhere yet": no lag follows from it.
        if end is not None and committed != -1:
            lags[group_id] = lags.get(group_id, 0) + max(end - committed, 0)
    return lags
