"""The groups and topics that a user names: exact names, patterns such as ``app-*``, and the nearest names where there is none."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from groupcoord_spark.errors import GroupcoordError

_PATTERN_CHARACTERS = frozenset("*?[")


def matching(named: Iterable[str], known: Collection[str]) -> tuple[list[str], list[str]]:
    """The known names that the user named, sorted, and the names that match nothing.

    A name that is known stands for itself, whatever characters it has. Any other name with ``*``, ``?`` or ``[`` is a pattern.
    """
    found, missing = set(), []
    for name in dict.fromkeys(named):
        if name in known:
            found.add(name)
        elif _PATTERN_CHARACTERS.isdisjoint(name):
            missing.append(name)
        elif matches := [one for one in known if fnmatchcase(one, name)]:
            found.update(matches)
        else:
            missing.append(name)
    return sorted(found), missing


def did_you_mean(missing: Sequence[str], known: Collection[str]) -> str:
    """A question with the nearest known names, to stand after an error sentence; empty where no name is near."""
    from difflib import get_close_matches

    by_lower_case = {name.lower(): name for name in known}
    near = dict.fromkeys(
        by_lower_case[match] for name in missing for match in get_close_matches(name.lower(), list(by_lower_case), n=3, cutoff=0.7)
    )
    return f" Did you mean {' or '.join(map(repr, list(near)[:3]))}?" if near else ""


def refuse_missing_groups(missing: Sequence[str], known: Collection[str], cluster: str, warehouse: str) -> None:
    """Raises GroupcoordError for groups that do not exist, with the nearest names; does nothing where none is missing."""
    if not missing:
        return
    patterns = [name for name in missing if not _PATTERN_CHARACTERS.isdisjoint(name)]
    what = f"Group {', '.join(map(repr, missing))} does not exist" if not patterns else f"No group matches {', '.join(map(repr, missing))}"
    raise GroupcoordError(
        f"{what} in cluster {cluster!r} of {warehouse}.{did_you_mean(missing, known)} `groupcoord list` names those that do."
    )
