"""``groupcoord plan``: what a reset of offsets, or a failover to a mirrored cluster, would do to groups."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from groupcoord_spark.cli.names import did_you_mean, matching
from groupcoord_spark.cli.options import Common, Moment, ShownRun, Words, alert, command, common_options, groups_option, shown_run_options
from groupcoord_spark.errors import GroupcoordError, InputError, UsageError
from groupcoord_spark.wording import counted, first_of

if TYPE_CHECKING:
    from groupcoord_spark.answers.failover import Failover
    from groupcoord_spark.answers.reset_plan import Place, Reset
    from groupcoord_spark.warehouse.read import Run, Warehouse

ALERTS: Final = ("active", "read-again", "skipped", "out-of-range", "forgotten", "no-offset")


@command(epilog="Example: groupcoord plan offsets.csv --group app-range --fail-on active,skipped")
@click.argument("file", metavar="[FILE]", required=False)
@groups_option("Only this group; with a FILE of one group, its name")
@click.option("--to-earliest", is_flag=True, help="Plan a reset to the start of each log.")
@click.option("--to-datetime", "to_ms", type=Moment(), help="Plan a reset to the offsets that the groups had committed at this time.")
@click.option("--shift-by", type=int, metavar="NUMBER", help="Plan a reset by this number of offsets; negative: back.")
@click.option("--failover", is_flag=True, help="Plan that the groups continue in this cluster, the target of MirrorMaker.")
@click.option("--source", metavar="WAREHOUSE|CLUSTER", help="With --failover: the run of the source, here or in another warehouse.")
@click.option("--source-cluster", metavar="NAME", help="The cluster to read in the warehouse of --source. [default: its only one]")
@click.option("--alias", metavar="NAME", help="With --failover: MirrorMaker's name of the source. [default: the only one]")
@click.option("--fail-on", type=Words("WORDS", ALERTS), metavar="WORDS", help="End with 3 if one of these is planned, for an alert.")
@shown_run_options
@common_options
def plan(
    common: Common,
    file: str | None,
    groups: tuple[str, ...],
    to_earliest: bool,
    to_ms: int | None,
    shift_by: int | None,
    failover: bool,
    source: str | None,
    source_cluster: str | None,
    alias: str | None,
    fail_on: frozenset[str] | None,
    shown_run: ShownRun,
) -> int:
    """Show what a reset of offsets or a failover would do, before it is done.

    FILE is what kafka-consumer-groups --reset-offsets --export or groupcoord export-offsets writes; - reads it from stdin. READ-AGAIN and
    SKIPPED count the offsets between the committed and the new one. STATUS is ok, below_log or beyond_log (Kafka moves the offset to the
    end of the log), range_unknown, forgotten (FILE leaves a committed partition out) or no_offset. Kafka refuses to reset a group that is
    not Empty.

    --failover shows for each group and partition the offset that MirrorMaker's client translates, the group's own commit in this cluster,
    and from which of them it starts. With --source the mirrored records read again and skipped from the translated offset on have bounds.
    """
    ways = [file is not None, to_earliest, to_ms is not None, shift_by is not None, failover]
    if sum(ways) != 1:
        raise UsageError("Give one of FILE, --to-earliest, --to-datetime, --shift-by and --failover.")
    if not failover and (source or source_cluster or alias):
        raise UsageError("--source, --source-cluster and --alias are for --failover. Add it, or leave them out.")
    if source_cluster and not source:
        raise UsageError("--source-cluster names a cluster in the warehouse of --source. Name the warehouse too.")
    warehouse, run = common.run(shown_run)
    if failover:
        return _plan_failover(common, warehouse, run, groups, source, source_cluster, alias, fail_on or frozenset())
    from groupcoord_spark.answers import reset_plan

    offsets: dict[Place, int | None]
    if file is not None:
        offsets = _read_file(file, groups)
        chosen = {group for group, _, _ in offsets}
    else:
        if not groups:
            raise UsageError("Name the groups to reset with --group.")
        chosen = _groups_with_offsets(warehouse, run, groups)
        if to_earliest:
            offsets = reset_plan.earliest_offsets(warehouse, run, chosen)
        elif to_ms is not None:
            offsets = reset_plan.offsets_at(warehouse, run, chosen, to_ms)
        else:
            offsets = reset_plan.shifted_offsets(warehouse, run, chosen, shift_by or 0)
    planned = reset_plan.plan_reset(warehouse, run, chosen, offsets)
    common.show(reset_plan.Reset._fields, planned)
    return _alert(planned, fail_on or frozenset(), common)


def _read_file(name: str, groups: Sequence[str]) -> dict[Place, int | None]:
    from groupcoord_spark.answers.reset_plan import offsets_in_file

    try:
        text = sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise InputError(f"{name} cannot be read: {getattr(error, 'strerror', None) or 'it is not UTF-8'}.") from error
    return offsets_in_file("stdin" if name == "-" else name, text.splitlines(), groups)


def _groups_with_offsets(warehouse: Warehouse, run: Run, groups: Sequence[str]) -> set[str]:
    """Return the named groups and those that match a pattern. Raises GroupcoordError for one without committed offsets."""
    known = frozenset(warehouse.read("committed_offsets", columns=["group_id"], run=run)["group_id"].to_pylist())
    existing, missing = matching(groups, known)
    if missing:
        named = ", ".join(map(repr, missing))
        raise GroupcoordError(f"Cluster {run.cluster!r} has no committed offset of group {named} in the run.{did_you_mean(missing, known)}")
    return set(existing)


def _alert(planned: Sequence[Reset], fail_on: frozenset[str], common: Common) -> int:
    active = {row.group: row for row in planned if row.is_active}
    for row in active.values():
        common.say(f"Group {row.group!r} is {row.group_state}, {counted(row.members, 'member')}: Kafka refuses the reset until they stop.")
    due = Counter(
        {
            "active": len(active),
            "read-again": sum(bool(row.read_again) for row in planned),
            "skipped": sum(bool(row.skipped) for row in planned),
            "out-of-range": sum(row.status in ("below_log", "beyond_log") for row in planned),
            "forgotten": sum(row.status == "forgotten" for row in planned),
            "no-offset": sum(row.status == "no_offset" for row in planned),
        }
    )
    return _alert_of(due, fail_on)


def _alert_of(due: Counter[str], fail_on: frozenset[str]) -> int:
    return alert(", ".join(f"{word} {due[word]:,}" for word in ALERTS if word in fail_on and due[word]))


def _plan_failover(
    common: Common,
    warehouse: Warehouse,
    run: Run,
    groups: Sequence[str],
    source: str | None,
    source_cluster: str | None,
    alias: str | None,
    fail_on: frozenset[str],
) -> int:
    from groupcoord_spark.answers.failover import Failover, plan_failover

    if fail_on & {"active", "forgotten"}:
        raise UsageError("--fail-on active and forgotten are about a reset. With --failover leave them out.")
    planned = plan_failover(warehouse, run, _source_of(warehouse, source, source_cluster), alias)
    if groups:
        existing, missing = matching(groups, frozenset(row.group for row in planned))
        if missing:
            raise GroupcoordError(f"The plan has no group {', '.join(map(repr, missing))}: no checkpoint and no committed offset.")
        planned = [row for row in planned if row.group in existing]
    if failing := sorted({row.group for row in planned if row.state == "client_fails"}):
        common.say(
            f"RemoteClusterUtils.translateOffsets fails for {counted(len(failing), 'group')}: a checkpoint is a tombstone, has no key or"
            " has a negative offset. It works again when the cleaner has removed that record, which `groupcoord dump` shows."
        )
    common.show(Failover._fields, planned, cells=map(_cells, planned), titles=_TITLES)
    due = Counter(
        {
            "read-again": sum(bool(row.read_again_most) for row in planned),
            "skipped": sum(bool(row.skipped_most) for row in planned),
            "out-of-range": sum(row.log_position in ("below_log", "beyond_log") for row in planned),
            "no-offset": sum(row.starts_from is None for row in planned),
        }
    )
    return _alert_of(due, fail_on)


_TITLES: Final = (
    *("GROUP", "TOPIC", "PARTITION", "TRANSLATED", "COMMITTED", "STARTS-FROM", "IN-LOG", "UPSTREAM", "SOURCE", "STATE"),
    *("READ-AGAIN", "SKIPPED"),
)


def _cells(row: Failover) -> tuple[object, ...]:
    bounds = ((row.read_again_least, row.read_again_most), (row.skipped_least, row.skipped_most))
    texts = (None if least is None else str(least) if least == most else f"{least} to {most}" for least, most in bounds)
    place = row.group, row.topic, row.partition, row.translated, row.target_committed, row.starts_from, row.log_position
    return *place, row.checkpoint_upstream, row.source_committed, row.state, *texts


def _source_of(warehouse: Warehouse, source: str | None, cluster: str | None) -> tuple[Warehouse, Run] | None:
    """Return the newest run of the source: of a cluster of this warehouse, or of another warehouse."""
    from groupcoord_spark.warehouse.read import open_warehouse

    if source is None:
        return None
    if cluster is None and source in warehouse.clusters():
        return warehouse, warehouse.run(source)
    other = open_warehouse(source)
    clusters = other.clusters()
    if cluster is None and len(clusters) > 1:
        raise UsageError(f"{source} holds the clusters {first_of([*map(repr, clusters)], 5)}. Name one with --source-cluster.")
    return other, other.run(cluster or other.named_cluster(None))
