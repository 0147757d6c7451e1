"""Which rows of docs/reference/coordinator.md a test plays: the decorator ``plays``, and the ids of all rows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

REFERENCE: Final = Path(__file__).parents[2] / "docs" / "reference" / "coordinator.md"

Test = TypeVar("Test", bound=Callable[..., Any])

PLAYED_BY: Final[dict[str, list[str]]] = defaultdict(list)
"""Id of a row -> the tests that play it."""


def plays(*rows: str) -> Callable[[Test], Test]:
    """Say which rows a test plays: ``@plays("C-4.1.3")``, or ``@plays("C-4.1.6-8")`` for three of them."""

    def named(test: Test) -> Test:
        for row in rows:
            chapter, _, numbers = row.rpartition(".")
            first, _, last = numbers.partition("-")
            for number in range(int(first), int(last or first) + 1):
                PLAYED_BY[f"{chapter}.{number}"].append(test.__name__)
        return test

    return named


def rows_of_the_reference() -> list[str]:
    """Return the ids of all rows, in their order."""
    return re.findall(r"^\| (C-[\d.]+)(?= )", REFERENCE.read_text("utf-8"), flags=re.MULTILINE)
