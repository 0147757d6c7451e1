"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 offset``, ``3 groups``, ``1,000 batches``: the number, and the noun in its singular or plural."""
    plural = f"{noun}es" if noun.endswith(("ch", "x", "s")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"
