"""The groups and topics that a user names: exact names, patterns such as ``app-*``, and the nearest names where there is none."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from groupcoord_spark.cli.render import second
from groupcoord_spark.errors import GroupcoordError

if TYPE_CHECKING:
    from groupcoord_spark.warehouse import Condition, Run, Warehouse

_PATTERN_CHARACTERS = frozenset("*?[")


def is_pattern(name: str) -> bool:
    """Whether a name that is not known stands for the names that it matches."""
    return not _PATTERN_CHARACTERS.isdisjoint(name)


def matching(named: Iterable[str], names: Collection[str]) -> tuple[list[str], list[str]]:
    """The known names that the user named, sorted, and the names that match nothing.

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
    """A question with the nearest known names, to stand after an error sentence; empty where no name is near."""
    near = nearest(missing, names)
    return f" Did you mean {' or '.join(map(repr, near))}?" if near else ""


def named_groups(named: Sequence[str], warehouse: Warehouse, *runs: Run) -> list[str]:
    """The groups of any of these nights, the newest last, that are named or match a pattern, sorted.

    Raises GroupcoordError for a name or a pattern without a group: the group is gone, or which names are the nearest.
    """
    run = runs[-1]
    tables = [warehouse.read("groups", columns=["group_id"], run=night) for night in runs]
    names = frozenset(name for table in tables for name in table["group_id"].to_pylist())
    groups, missing = matching(named, names)
    if not missing:
        return groups
    where, quoted = f"in cluster {run.cluster!r} of {warehouse.location.uri}", ", ".join(map(repr, missing))
    if gone := _earlier_groups(missing, warehouse, run):
        raise GroupcoordError(
            f"Group {', '.join(map(repr, gone))} is gone {where}: earlier records have it, and the night of {second(run.as_of_ms)} has not."
            f" `groupcoord why --group {shlex.quote(gone[0])}` tells why."
        )
    problem = f"No group matches {quoted}" if any(map(is_pattern, missing)) else f"Group {quoted} does not exist"
    raise GroupcoordError(f"{problem} {where}.{did_you_mean(missing, names)} `groupcoord list` names those that do.")


def _earlier_groups(missing: Sequence[str], warehouse: Warehouse, run: Run) -> list[str]:
    """The names that are groups of the history of a run, or of the night before."""
    nights = [night for night in warehouse.finished_runs(run.cluster) if night.finished_at_ms < run.finished_at_ms and night.is_kept]
    places = [(run, "offset_commits"), (run, "group_records"), *((night, "groups") for night in nights[-1:])]
    where: list[Condition] = [("group_id", "in", list(missing))]
    tables = [warehouse.read(table, columns=["group_id"], where=where, run=of_run) for of_run, table in places]
    return sorted({name for table in tables for name in table["group_id"].unique().to_pylist()})
