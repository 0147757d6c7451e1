"""``groupcoord export-offsets``: a run's offsets as the file that kafka-consumer-groups --reset-offsets --from-file takes."""

import csv
import io
import sys

import click

from groupcoord_spark.cli.names import did_you_mean, matching
from groupcoord_spark.cli.options import Common, ShownRun, command, common_options_of_a_writer, groups_option, shown_run_options
from groupcoord_spark.cli.render import print_exactly, say, second
from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.wording import counted, shell_word


@command("export-offsets", epilog="Example: groupcoord export-offsets --group app-expiring --at 2026-11-21T08:00:00Z > offsets.csv")
@groups_option("The group", required=True)
@click.option("--as", "new_name", metavar="GROUP", help="Write the offsets of one group under the name of another group.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["reset-csv"]),
    default="reset-csv",
    show_default=True,
    help="What kafka-consumer-groups --reset-offsets --from-file reads.",
)
@shown_run_options
@common_options_of_a_writer
def export_offsets(common: Common, groups: tuple[str, ...], new_name: str | None, form: str, shown_run: ShownRun) -> None:
    """Export committed offsets of groups in any run, to reset the groups to them.

    A line for each offset, without a line of names: topic,partition,offset for one group; group,topic,partition,offset for several. A file
    of one group names no group, so --as changes only the command that is shown: the offsets of one group for another one.
    """
    import pyarrow.compute as pc

    names = ["group_id", "topic", "partition", "committed_offset"]
    warehouse, run = common.run(shown_run, is_said=False)
    group_ids = frozenset(warehouse.read("committed_offsets", columns=["group_id"], run=run)["group_id"].to_pylist())
    existing, missing = matching(groups, group_ids)
    wanted = sorted({*existing, *missing})
    # The tool cuts the file into lines before it looks at quotes.
    if broken := [group for group in [*wanted, new_name or ""] if "\n" in group]:
        raise GroupcoordError(f"Group {broken[0]!r} has a line break in its name: kafka-consumer-groups cannot read such a file.")
    if new_name is not None and len(wanted) > 1:
        raise UsageError(f"--as takes the offsets of one group, and --group names {counted(len(wanted), 'group')}.")
    offsets = warehouse.read("committed_offsets", columns=names, where=[("group_id", "in", wanted)], run=run)
    snapshot = f"the run of {second(run.as_of_ms)}"
    groups_with_offsets = set(offsets["group_id"].to_pylist())
    if without := [group for group in wanted if group not in groups_with_offsets]:
        raise GroupcoordError(
            f"Cluster {run.cluster!r} has no committed offset of group {', '.join(map(repr, without))} in {snapshot}."
            f" Name another run with --at.{did_you_mean(without, group_ids)}"
        )
    offsets = offsets.take(pc.sort_indices(offsets, sort_keys=[(name, "ascending") for name in names[:3]]))
    # In a file for several groups the tool takes a line of three columns for one of four, so the number of columns follows the groups.
    columns = names if len(wanted) > 1 else names[1:]
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n").writerows(
        zip(*(offsets[name].to_pylist() for name in columns), strict=True)
    )
    print_exactly(text.getvalue())
    if not common.quiet:
        sys.stdout.flush()
        to_set = wanted if new_name is None else [new_name]
        options = " ".join(f"--group {shell_word(group)}" for group in to_set) if len(wanted) <= 3 else "--group … (each of them)"
        members = "the group's members" if len(wanted) == 1 else "the groups' members"
        say(
            f"{counted(offsets.num_rows, 'offset')} of {counted(len(wanted), 'group')} in {snapshot}. With {members} stopped:"
            f" kafka-consumer-groups --bootstrap-server … {options} --reset-offsets --from-file FILE --execute"
        )
