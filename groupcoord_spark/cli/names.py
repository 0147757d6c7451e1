"""The groups and topics that a user names: exact names, patterns such as ``app-*``, and suggestions for unknown names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from groupcoord_spark.cli.render import second
from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.wording import command_line

if TYPE_CHECKING:
    from groupcoord_spark.warehouse import Condition, Run, Warehouse

_PATTERN_CHARACTERS = frozenset("*?[")


def is_pattern(name: str) -> bool:
    """Return whether an unknown name is a pattern."""
    return not _PATTERN_CHARACTERS.isdisjoint(name)


def matching(named: Iterable[str], names: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the known names that the user's names match, sorted, and the user's names that match nothing.

    A name that is known stands for itself, whatever characters it has. Any other name with ``*``, ``?`` or ``[`` is a pattern.
    """
    matched, missing = set(), []
    for name in dict.fromkeys(named):
        if name in names:
            matched.add(name)
        elif not is_pattern(name):
            missing.append(name)
        elif matches := [known_name for known_name in names if fnmatchcase(known_name, name)]:
            matched.update(matches)
        else:
            missing.append(name)
    return sorted(matched), missing


def nearest(missing: Sequence[str], names: Collection[str], cutoff: float = 0.7) -> list[str]:
    """Up to three known names that are near to a missing one, the nearest of each first. cutoff: as for difflib, 1 for the same name."""
    from difflib import get_close_matches

    by_lower_case = {name.lower(): name for name in names}
    near = dict.fromkeys(
        by_lower_case[match] for name in missing for match in get_close_matches(name.lower(), list(by_lower_case), n=3, cutoff=cutoff)
    )
    return list(near)[:3]


def did_you_mean(missing: Sequence[str], names: Collection[str]) -> str:
    """Return a question with the nearest known names, to follow an error sentence, or ""."""
    near = nearest(missing, names)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def named_groups(named: Sequence[str], warehouse: Warehouse, *runs: Run) -> list[str]:
    """Return the groups of any of these runs, the newest last, whose names are given or match a pattern, sorted.

    Raises GroupcoordError for a name or a pattern without a group: the group is gone, or which names are the nearest.
    """
    run = runs[-1]
    tables = [warehouse.read("groups", columns=["group_id"], run=each) for each in runs]
    names = frozenset(name for table in tables for name in table["group_id"].to_pylist())
    groups, missing = matching(named, names)
    if not missing:
        return groups
    where, quoted = f"in cluster {run.cluster!r} of {warehouse.location.uri}", ", ".join(map(repr, missing))
    if gone := _earlier_groups(missing, warehouse, run):
        raise GroupcoordError(
            f"Group {', '.join(map(repr, gone))} is gone {where}: earlier records have it, and the run of {second(run.as_of_ms)} has not."
            f" `{command_line('why', '--group', gone[0], warehouse=warehouse.location.uri, cluster=run.cluster)}` explains why."
        )
    problem = f"No group matches {quoted}" if any(map(is_pattern, missing)) else f"Group {quoted} does not exist"
    listed = command_line("list", "--run", run.run_id, warehouse=warehouse.location.uri, cluster=run.cluster)
    raise GroupcoordError(f"{problem} {where}.{did_you_mean(missing, names)} `{listed}` names those that do.")


def refuse_unknown_group(group_id: str, warehouse: Warehouse, run: Run) -> None:
    """Raise GroupcoordError for a group that neither the run nor an earlier record has."""
    if not _earlier_groups([group_id], warehouse, run):
        named_groups([group_id], warehouse, run)


def _earlier_groups(missing: Sequence[str], warehouse: Warehouse, run: Run) -> list[str]:
    """Return the names that are groups in a run's history, or in the previous run."""
    runs = [each for each in warehouse.finished_runs(run.cluster) if each.finished_at_ms < run.finished_at_ms and each.is_kept]
    places = [(run, "offset_commits"), (run, "group_records"), *((each, "groups") for each in runs[-1:])]
    where: list[Condition] = [("group_id", "in", list(missing))]
    tables = [warehouse.read(table, columns=["group_id"], where=where, run=of_run) for of_run, table in places]
    return sorted({name for table in tables for name in table["group_id"].unique().to_pylist()})
