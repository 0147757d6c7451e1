"""``groupcoord diff``: what changed from one run to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli import options
from groupcoord_spark.cli.names import named_groups
from groupcoord_spark.cli.render import moment
from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.warehouse.tables import NIGHTLY
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.answers.run_changes import Change
    from groupcoord_spark.moments import RunTime
    from groupcoord_spark.warehouse.read import Run, Warehouse

NAMES: Final = ("change", "group", "topic", "partition", "from", "to", "why")

OF_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "born": ("group_born",),
    "changed": ("group_changed",),
    "rebalanced": ("group_rebalanced",),
    "gone": ("group_gone", "offset_gone", "share_gone", "topic_gone"),
    "rewound": ("offset_rewound", "share_reset"),
    "stopped": ("share_stopped",),
    "forward": ("offset_forward",),
    "new": ("offset_new",),
}
"""Word -> kinds of change. Pending offsets have no word: each transaction of a healthy cluster makes them."""


_NOUNS: Final = {"group": "group", "offset": "offset", "pending": "pending offset", "share": "share partition", "topic": "topic"}


@options.command(epilog="Example: groupcoord diff --fail-on rewound,gone")
@click.option(
    "--from", "from_night", type=options.MomentOfRun(), help="The earlier run, as of that moment. [default: the last that differs]"
)
@click.option("--to", "to_night", type=options.MomentOfRun(), help="The later run, as of that moment. [default: the newest]")
@options.groups_option("Only changes of that group")
@click.option(
    "--only",
    type=options.Words("WORDS", tuple(OF_WORDS)),
    metavar="WORDS",
    help="Only these changes: born, changed, rebalanced, gone, and so on.",
)
@click.option(
    "--fail-on",
    type=options.Words("WORDS", tuple(OF_WORDS)),
    metavar="WORDS",
    help="End with 3 if there is one of these changes, for an alert.",
)
@options.force_option
@options.common_options
def diff(
    common: options.Common,
    from_night: RunTime | None,
    to_night: RunTime | None,
    groups: tuple[str, ...],
    only: frozenset[str] | None,
    fail_on: frozenset[str] | None,
) -> int:
    """Show what changed between two runs: groups and offsets, and why they are gone or lower.

    WORDS, separated by commas, are born, changed, rebalanced, gone, rewound, forward and new.
    """
    from groupcoord_spark.warehouse.read import open_warehouse

    warehouse = open_warehouse(common.warehouse)
    earlier, later, changes = compared_runs(warehouse, warehouse.named_cluster(common.cluster), from_night, to_night)
    if groups:
        chosen = frozenset(named_groups(groups, warehouse, earlier, later))
        changes = [change for change in changes if change.group_id in chosen]
    shown_kinds = {kind for word in only for kind in OF_WORDS[word]} if only else None
    rows = [tuple(change) for change in changes if shown_kinds is None or change.change in shown_kinds]
    cells = ((*row[:4], _short(row[4]), _short(row[5]), row[6]) for row in rows)
    common.show(NAMES, rows, cells=cells, least_widths=[14, 15, 15, 9, 10, 10, None])
    counts = Counter(change.change for change in changes)
    same = runs_without_change(warehouse, earlier, later) if from_night is None and changes else ""
    common.say(f"From the run of {_name(earlier)} to that of {_name(later)}: {_counted(counts) or 'no change'}.{same}")
    failing = Counter({kind: counts[kind] for word in sorted(fail_on or ()) for kind in OF_WORDS[word] if counts[kind]})
    return options.alert(f"{_counted(failing)} since the run of {_name(earlier)}" if failing else "")


def compared_runs(
    warehouse: Warehouse, cluster: str, from_night: RunTime | None, to_night: RunTime | None
) -> tuple[Run, Run, list[Change]]:
    """Two runs and what changed between them; without ``from_night`` the first is the last run that differs from the second.

    Raises UsageError if the first is not before the second, GroupcoordError without an earlier run.
    """
    from groupcoord_spark.answers.run_changes import last_run_that_differs, run_changes

    later = warehouse.run(cluster, at_ms=to_night)
    if from_night is not None:
        earlier = warehouse.run(cluster, at_ms=from_night)
        if earlier.finished_at_ms > later.finished_at_ms:
            raise UsageError(f"--from is the run of {_name(earlier)}, which is later than that of --to, {_name(later)}.")
        return earlier, later, run_changes(warehouse, earlier, later)
    differing = last_run_that_differs(warehouse, later)
    if differing is None:
        raise GroupcoordError(
            f"{warehouse.location.uri} has no run of cluster {cluster!r} before that of {_name(later)} to compare it with."
        )
    return differing[0], later, differing[1]


def runs_without_change(warehouse: Warehouse, earlier: Run, later: Run) -> str:
    """Return a sentence about the runs in between that equal the second one, or ""."""
    finished = warehouse.finished_runs(later.cluster)
    between = [run for run in finished if run.kind == NIGHTLY and earlier.finished_at_ms < run.finished_at_ms < later.finished_at_ms]
    return f" Nothing has changed since the run of {_name(between[0])}, so the run before that one is compared." if between else ""


def _name(run: Run) -> str:
    return moment(run.as_of_ms) or run.run_id


def _short(side: Any) -> Any:
    """Format a group as ``classic Stable, generation 3, 2 members``; return an offset as it is."""
    if not isinstance(side, dict):
        return side
    return f"{side['type']} {side['state']}, generation {side['generation']}, {counted(side['members'], 'member')}"


def _counted(counts: Mapping[str, int]) -> str:
    """``2 offsets gone, 1 group born``, from the kinds of change."""
    parts = []
    for kind, count in counts.items():
        of, _, word = kind.partition("_")
        if count:
            parts.append(f"{counted(count, _NOUNS[of])} {word}")
    return ", ".join(parts)
