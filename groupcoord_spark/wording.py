"""Numbers and lists in sentences."""

from __future__ import annotations

from collections.abc import Sequence


def counted(number: int, noun: str) -> str:
    """``1 offset``, ``3 groups``, ``1,000 batches``: the number, and the noun in its singular or plural."""
    plural = f"{noun}es" if noun.endswith(("ch", "x", "s")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def first_of(texts: Sequence[str], most: int | None = 3, *, count: int | None = None, noun: str = "") -> str:
    """``a, b, c and 2 more``: the first texts, and how many there are besides.

    most: so many texts are named; None: all. count: how many there are, where ``texts`` does not have them all. noun: of what.
    """
    named = texts[:most]
    number_left = (len(texts) if count is None else count) - len(named)
    more = counted(number_left, f"more {noun}") if noun else f"{number_left:,} more"
    return f"{', '.join(named)} and {more}" if number_left > 0 and most is not None else ", ".join(named)
