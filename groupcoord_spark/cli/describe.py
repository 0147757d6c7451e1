"""``groupcoord describe``: groups in detail, in the columns and with the rows of kafka-consumer-groups --describe (Kafka 4.x)."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TextIO

import click

from groupcoord_spark.answers.shown_groups import SharePosition, ShownGroup, ShownMember, shown_groups
from groupcoord_spark.cli.end_offsets import checkpoint_is_late_from, newest_end_offsets, remark_on_checkpoint
from groupcoord_spark.cli.names import named_groups
from groupcoord_spark.cli.options import Common, ShownRun, command, common_options, groups_option, semantics_of, shown_run_options
from groupcoord_spark.cli.render import lines, print_lines, printable, say, write_records
from groupcoord_spark.sources.end_offsets import EndOffsets, read_end_offsets
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.warehouse import Run, Warehouse

KIND_OF_GROUP: Final = {"share": "Share group", "streams": "Streams group"}
REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})

LINES_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class View:
    """One way to look at a group."""

    names: str
    rows: Callable[[ShownGroup, EndOffsets], list[tuple[Any, ...]]]
    """For programs: a value for each name."""
    lines: Callable[[ShownGroup, bool, EndOffsets], list[str]]
    """For people: Kafka's columns, with --verbose all of them."""


@command("describe", epilog="Example: groupcoord describe --all-groups --members --verbose")
@groups_option("The group", as_words=True)
@click.option("--all-groups", is_flag=True, help="Every group.")
@click.option("--offsets", is_flag=True, help="Committed offsets and their readers. [default]")
@click.option("--members", is_flag=True, help="Members and how many partitions they hold.")
@click.option("--state", is_flag=True, help="State, assignor and number of members.")
@click.option("--verbose", is_flag=True, help="Leader epochs of offsets; epochs and assignments of members; epochs of states.")
@click.option(
    "--end-offsets",
    "end_offsets_file",
    type=click.Path(exists=True, dir_okay=False),
    help="Log end offsets for LOG-END-OFFSET and LAG: lines topic:partition:offset (kafka-get-offsets) or topic,partition,offset, or JSON.",
)
@shown_run_options
@common_options
def describe(
    common: Common,
    groups: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    end_offsets_file: str | None,
    shown_run: ShownRun,
) -> None:
    """Groups as of one run: their offsets, members or state.

    CURRENT-OFFSET comes from the log; what the log does not know is `-`: the coordinator, and LOG-END-OFFSET and LAG where neither
    --end-offsets nor the run (replication-offset-checkpoint, nightly --end-offsets) has them. Assigned partitions without a commit are
    shown too.
    """
    if not groups and not all_groups:
        raise click.UsageError("Name groups with --group, or take --all-groups.")
    if groups and all_groups:
        raise click.UsageError("--group and --all-groups exclude each other: leave one of them out.")
    views = [name for name, is_asked in (("offsets", offsets), ("members", members), ("state", state)) if is_asked]
    if len(views) > 1:
        raise click.UsageError(f"{' and '.join(f'--{name}' for name in views)} are different views: ask for one at a time.")
    view = views[0] if views else "offsets"
    if end_offsets_file is not None and view != "offsets":
        raise click.UsageError("--end-offsets belongs to --offsets.")
    warehouse, run = common.run(shown_run)
    end_offsets: EndOffsets = {}
    if end_offsets_file is not None:
        end_offsets, remark = read_end_offsets(end_offsets_file)
        if remark is not None:
            common.say(remark)
    elif view == "offsets":
        end_offsets = newest_end_offsets(warehouse, run)
    wanted = None if all_groups else named_groups(groups, warehouse, run)
    # All that is built here is needed until the end: searching it for garbage would take a quarter of the time.
    gc.disable()
    try:
        shown = shown_groups(warehouse, run, semantics_of(run), wanted, with_members=view != "state", with_offsets=view == "offsets")
        if view == "offsets" and end_offsets_file is None:
            _take_checkpoint_as_late(shown, end_offsets, warehouse, run)
        if common.output == "table":
            _print_lines(shown, VIEWS[view], verbose, end_offsets, with_remarks=not common.quiet)
        else:
            rows = [VIEWS[view].rows(group, end_offsets) for group in shown]
            write_records(common.output, VIEWS[view].names.split(), chain.from_iterable(rows))
            for group, of_group in zip(shown, rows, strict=True):
                if view == "offsets" and not of_group:
                    common.say(_remark(group, is_shown=False) or "")
        if not common.quiet:
            if common.output != "table":  # kafka-streams-groups, like the table, names no member next to an offset
                _remark_on_owners(shown)
            if view == "state":
                _remark_on_settings(shown, warehouse, run)
            of_run = view == "offsets" and end_offsets_file is None
            if of_run and end_offsets and (remark := remark_on_checkpoint(warehouse, run)) is not None:
                say(remark)
            _remark_on_offsets_beyond_end(shown, end_offsets)
    finally:
        gc.enable()


def _print_lines(groups: Sequence[ShownGroup], view: View, verbose: bool, end_offsets: EndOffsets, *, with_remarks: bool) -> None:
    remarks: list[str] = []
    waiting: list[str] = []
    in_one_place = _end_in_one_place(sys.stdout, sys.stderr)
    for group in groups:
        of_group = view.lines(group, verbose, end_offsets)
        remark = _remark(group, is_shown=bool(of_group)) if with_remarks else None
        if remark and in_one_place:  # printed between the lines of this group and of the group before
            print_lines(waiting)
            waiting.clear()
            sys.stdout.flush()
            say(f"\n{remark}")
        elif remark:
            remarks += ["", remark]
        waiting += of_group
        if len(waiting) >= LINES_AT_ONCE:
            print_lines(waiting)
            waiting.clear()
    if remarks:
        say("\n".join(remarks))
    print_lines(waiting)


def _remark_on_owners(groups: Sequence[ShownGroup]) -> None:
    unknown = [f"'{printable(group.group_id)}'" for group in groups if group.lacks_topology]
    if unknown:
        say(
            f"The members that read the partitions of {', '.join(unknown)} are not known: the topics of a task are in the history"
            " tables, and the group's runs were made with --no-history."
        )


def _remark_on_settings(groups: Sequence[ShownGroup], warehouse: Warehouse, run: Run) -> None:
    """Report group-level settings, session timeouts and heartbeats among them, which override the broker's."""
    settings: dict[str, list[str]] = {}
    rows = warehouse.read("group_configs", columns=["group_id", "name", "value"], run=run).to_pylist()
    for row in sorted(rows, key=lambda row: row["name"]):
        settings.setdefault(row["group_id"], []).append(f"{row['name']}={printable(row['value'])}")
    for group in groups:
        if group.group_id in settings:
            say(f"Group '{printable(group.group_id)}' has settings of its own: {', '.join(settings[group.group_id])}.")


def _take_checkpoint_as_late(groups: Sequence[ShownGroup], end_offsets: EndOffsets, warehouse: Warehouse, run: Run) -> None:
    """Mark the offsets beyond the end in a checkpoint that were committed after it, or so shortly before that it may lack the records."""
    late_from = checkpoint_is_late_from(warehouse, run)
    beyond = {
        (group.group_id, topic, partition): group
        for group in groups
        for _, topic, partition, committed, _ in group.offsets
        if late_from is not None and end_offsets.get((topic, partition), committed) < committed
    }
    if beyond and late_from is not None:
        columns = ["group_id", "topic", "partition"]
        rows = warehouse.read("committed_offsets", columns=columns, where=[("commit_timestamp", ">=", late_from)], run=run)
        for row in rows.to_pylist():
            if (group := beyond.get(tuple(row.values()))) is not None:
                group.beyond_late_end.add((row["topic"], row["partition"]))


def _remark_on_offsets_beyond_end(groups: Sequence[ShownGroup], end_offsets: EndOffsets) -> None:
    beyond = [
        f"{printable(topic)}-{partition} of group '{printable(group.group_id)}' ends at {end:,} and {committed:,} is committed"
        for group in groups
        for _, topic, partition, committed, _ in group.offsets
        if (end := end_offsets.get((topic, partition))) is not None and end < committed and (topic, partition) not in group.beyond_late_end
    ]
    if beyond:
        say(
            f"LAG is negative for {counted(len(beyond), 'partition')}: {beyond[0]}{', and so on' if len(beyond) > 1 else ''}."
            " The topic was created again or truncated, or the end offset is older than the commit."
        )


def _end_in_one_place(first: TextIO, second: TextIO) -> bool:
    try:
        return os.path.sameopenfile(first.fileno(), second.fileno())
    except (OSError, ValueError):
        return False


def _remark(group: ShownGroup, *, is_shown: bool) -> str | None:
    """Return the remark of Kafka's tools on the group's state, or else why a group without lines has none."""
    kind, name = KIND_OF_GROUP.get(group.group_type, "Consumer group"), printable(group.group_id)
    if group.share_offsets is not None:
        return None if is_shown else f"{kind} '{name}' has no offset information."
    if group.state == "Empty":
        return f"{kind} '{name}' has no active members."
    if group.state in REBALANCING:
        return f"Warning: {kind} '{name}' is rebalancing."
    if group.state == "NotReady":
        return f"Warning: {kind} '{name}' is not ready."
    if is_shown:
        return None
    if group.group_type == "classic" and group.protocol_type == "connect":
        return (
            f"Connect group '{name}' has no lines: its members are workers, which have connectors and tasks instead of partitions (see"
            " --members). Sink connectors commit offsets as the groups connect-NAME."
        )
    if group.group_type == "classic" and group.protocol_type not in ("consumer", None, ""):
        return f"Group '{name}' has no lines: its members, of protocol type '{printable(group.protocol_type)}', have no partitions."
    if group.group_type == "share":
        return f"{kind} '{name}' has no lines: no member of it has a partition, and its offsets are in the topic __share_group_state."
    return f"{kind} '{name}' has no lines: it has no committed offset, and no member of it has a partition."


def _offset_rows(group: ShownGroup, end_offsets: EndOffsets) -> list[tuple[Any, ...]]:
    """Members' partitions, the member with most of them first, then offsets that no member reads."""
    if group.share_offsets is not None:
        return [_share_row(group, position, end_offsets) for position in group.share_offsets]
    rows: list[tuple[Any, ...]] = []
    read: set[tuple[str, int]] = set()
    if group.members:
        offset_at = {(topic, partition): (committed, epoch) for _, topic, partition, committed, epoch in group.offsets}
        for member in sorted(group.members, key=lambda m: -len(m.held_partitions)):
            for place in sorted(member.held_partitions):
                read.add(place)
                committed, epoch = offset_at.get(place, (None, None))
                end = end_offsets.get(place)
                rows.append((group.group_id, *place, epoch, committed, end, _lag(group, place, end, committed), *member.reader))
    for group_id, topic, partition, committed, epoch in sorted(group.offsets, key=itemgetter(1, 2)):
        if (topic, partition) not in read:
            end = end_offsets.get((topic, partition))
            lag = _lag(group, (topic, partition), end, committed)
            rows.append((group_id, topic, partition, epoch, committed, end, lag, None, None, None))
    return rows


def _share_row(group: ShownGroup, position: SharePosition, end_offsets: EndOffsets) -> tuple[Any, ...]:
    end, lag = end_offsets.get((position.topic, position.partition)), None
    if end is not None and position.start_offset is not None and position.delivery_complete_count is not None:
        lag = max(end - position.start_offset - position.delivery_complete_count, 0)
    epoch = None if position.start_offset is None else position.leader_epoch
    return group.group_id, position.topic, position.partition, epoch, position.start_offset, end, lag, None, None, None


def _lag(group: ShownGroup, place: tuple[str, int], end: int | None, committed: int | None) -> int | None:
    """Return the lag as kafka-consumer-groups prints it: negative beyond the end, but for commits that a checkpoint may be too old for."""
    # -1 is what some clients commit for "nowhere yet": no lag follows from it.
    if end is None or committed is None or committed == -1:
        return None
    return max(end - committed, 0) if place in group.beyond_late_end else end - committed


def _member_rows(group: ShownGroup, end_offsets: EndOffsets) -> list[tuple[Any, ...]]:
    is_consumer_group = group.group_type == "consumer"
    return [
        (
            group.group_id,
            member.member_id,
            member.instance_id,
            member.host,
            member.client_id,
            member.partition_count,
            member.epoch if group.has_epochs else None,
            _assignment(member.current),
            group.assignment_epoch if group.has_epochs else None,
            _assignment(member.target),
            not member.uses_classic_protocol if is_consumer_group else None,
        )
        for member in group.members
    ]


def _assignment(partitions_of: Mapping[str, Iterable[int]]) -> str | None:
    """``orders:0,1;payments:3``; a connector without a task is its name alone."""
    texts = []
    for name, partitions in partitions_of.items():
        numbers = ",".join(map(str, sorted(partitions)))
        texts.append(f"{name}:{numbers}" if numbers else name)
    return ";".join(sorted(texts)) or None


def _state_rows(group: ShownGroup, end_offsets: EndOffsets) -> list[tuple[Any, ...]]:
    epochs = (group.generation, group.assignment_epoch) if group.has_epochs else (None, None)
    return [(group.group_id, None, group.protocol or None, group.state, *epochs, group.member_count)]


def _lines(
    titles: str, widths: Sequence[int | None], rows: Iterable[tuple[Any, ...]], verbose: bool, of_verbose: Sequence[int]
) -> list[str]:
    """Return a table in the columns of Kafka's tools, or nothing without rows.

    Args:
        titles: Of the columns, separated by bars.
        widths: As for ``lines``.
        rows: A cell for each column.
        of_verbose: Columns that are there with --verbose alone.
    """
    shown_columns = itemgetter(*(at for at in range(len(widths)) if verbose or at not in of_verbose))
    cells = list(map(shown_columns, rows))
    return ["", *lines(shown_columns(titles.split("|")), cells, shown_columns(widths))] if cells else []


def _offset_lines(group: ShownGroup, verbose: bool, end_offsets: EndOffsets) -> list[str]:
    rows = _offset_rows(group, end_offsets)
    if group.share_offsets is not None:  # as kafka-share-groups prints them
        titles, cells = "GROUP|TOPIC|PARTITION|LEADER-EPOCH|START-OFFSET|LAG", ((*row[:5], row[6]) for row in rows)
        return _lines(titles, (15, 15, 10, 13, 13, None), cells, verbose, [3])
    if group.group_type == "streams":
        titles = "GROUP|TOPIC|PARTITION|CURRENT-OFFSET|LEADER-EPOCH|LOG-END-OFFSET|OFFSET-LAG"
        cells = ((*row[:3], row[4], row[3], row[5], row[6]) for row in rows)
        return _lines(titles, (15, 15, 10, 15, 15, 15, None), cells, verbose, [3, 4, 5])
    titles = "GROUP|TOPIC|PARTITION|LEADER-EPOCH|CURRENT-OFFSET|LOG-END-OFFSET|LAG|CONSUMER-ID|HOST|CLIENT-ID"
    return _lines(titles, (15, 15, 10, 15, 15, 15, 15, 15, 15, None), rows, verbose, [3])


def _share_member_lines(group: ShownGroup, verbose: bool) -> list[str]:
    """Return the lines of a share group's members as kafka-share-groups prints them, or only the remark if it has none."""
    rows = [
        (group.group_id, row.member_id, row.host, row.client_id, row.partition_count, row.epoch, _assignment(row.current) or "")
        for row in group.members
    ]
    titles = "GROUP|CONSUMER-ID|HOST|CLIENT-ID|#PARTITIONS|MEMBER-EPOCH|ASSIGNMENT"
    return _lines(titles, (15, 15, 15, 15, 12, 13, None), rows, verbose, [5])


def _streams_member_lines(group: ShownGroup, verbose: bool) -> list[str]:
    """Return the lines of a streams group's members as kafka-streams-groups prints them, or only the remark if it has none."""
    rows = [
        (
            *(group.group_id, group.assignment_epoch, group.topology_epoch, member.member_id, "streams", member.epoch),
            *(member.process_id, member.client_id, _tasks(member, with_target=verbose)),
        )
        for member in group.members
    ]
    titles = "GROUP|TARGET-ASSIGNMENT-EPOCH|TOPOLOGY-EPOCH|MEMBER|MEMBER-PROTOCOL|MEMBER-EPOCH|PROCESS|CLIENT-ID|ASSIGNMENTS"
    return _lines(titles, (15, 25, 14, 15, 15, 15, 15, 15, None), rows, verbose, [1, 2, 4, 5])


def _tasks(member: ShownMember, *, with_target: bool) -> str:
    """``ACTIVE:0:[0,2];1:[0,2];STANDBY:1:[1];``, with --verbose also the target's, as Kafka's tool prints them."""
    texts = []
    for kind, prefix in (("current", ""), ("target", "TARGET-"))[: 1 + with_target]:
        for task_type in ("active", "standby", "warmup"):
            numbers_of = member.tasks.get(kind, {}).get(task_type, {})
            numbers = "".join(f"{name}:[{','.join(map(str, sorted(numbers_of[name])))}];" for name in sorted(numbers_of))
            texts.append(f"{prefix}{task_type.upper()}:{numbers}" if numbers else "")
    return "".join(texts)


def _member_lines(group: ShownGroup, verbose: bool, end_offsets: EndOffsets) -> list[str]:
    if group.group_type == "share":
        return _share_member_lines(group, verbose)
    if group.group_type == "streams":
        return _streams_member_lines(group, verbose)
    titles = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths: list[int | None] = [15, 15, 17, 15, 15, 15]
    rows = _member_rows(group, end_offsets)
    # Kafka prints an empty cell for a dynamic member, and the column only where a member is static.
    has_static = any(row[2] for row in rows)
    kinds = {row[10] for row in rows}
    if verbose:
        titles += ["CURRENT-EPOCH", "CURRENT-ASSIGNMENT", "TARGET-EPOCH", "TARGET-ASSIGNMENT"]
        widths += [15, 20, 15, 20]
        if kinds >= {True, False}:
            titles.append("UPGRADED")
            widths.append(None)
    else:
        titles.append("")
        widths.append(None)
    cells = []
    for row in rows:
        of_member = (*row[:2], row[2] or "", *row[3:6])
        epochs = (*row[6:10], *(("true" if row[10] else "false",) if "UPGRADED" in titles else ())) if verbose else ("",)
        cells.append((*of_member, *epochs))
    if not has_static:
        del titles[2], widths[2]
        cells = [(*row[:2], *row[3:]) for row in cells]
    # As in Kafka's tool the titles stand there for a group without members too.
    return ["", *lines(titles, cells, widths)]


def _state_lines(group: ShownGroup, verbose: bool, end_offsets: EndOffsets) -> list[str]:
    row = _state_rows(group, end_offsets)[0]
    if group.group_type == "share":  # as kafka-share-groups prints it
        titles = "GROUP|COORDINATOR (ID)|STATE|GROUP-EPOCH|ASSIGNMENT-EPOCH|#MEMBERS"
        return _lines(titles, (15, 25, 15, 12, 17, None), [(*row[:2], *row[3:])], verbose, [3, 4])
    if group.group_type == "streams":
        titles = "GROUP|COORDINATOR (ID)|STATE|GROUP-EPOCH|TARGET-ASSIGNMENT-EPOCH|#MEMBERS"
        return _lines(titles, (15, 25, 25, 15, 25, None), [(*row[:2], *row[3:])], verbose, [3, 4])
    titles = "GROUP|COORDINATOR (ID)|ASSIGNMENT-STRATEGY|STATE|GROUP-EPOCH|TARGET-ASSIGNMENT-EPOCH|#MEMBERS"
    return _lines(titles, (15, 25, 20, 20, 15, 25, None), [row], verbose, [4, 5])


VIEWS: Final[Mapping[str, View]] = {
    "offsets": View(
        "group topic partition leader_epoch current_offset log_end_offset lag consumer_id host client_id", _offset_rows, _offset_lines
    ),
    "members": View(
        "group consumer_id group_instance_id host client_id partitions"
        " current_epoch current_assignment target_epoch target_assignment upgraded",
        _member_rows,
        _member_lines,
    ),
    "state": View("group coordinator assignment_strategy state group_epoch target_assignment_epoch members", _state_rows, _state_lines),
}
