"""An option's words from a list, separated by commas."""

from __future__ import annotations

from collections.abc import Sequence

import click


class Words(click.ParamType):  # type: ignore[type-arg]
    """Words from a list, separated by commas, in any case; no word at all stands for every one of them."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.name = name
        self._known = {word.lower(): word for word in known}

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> frozenset[str]:
        if isinstance(value, frozenset):
            return value
        asked = [word.strip() for word in str(value).split(",") if word.strip()]
        unknown = ", ".join(repr(word) for word in asked if word.lower() not in self._known)
        if unknown:
            self.fail(f"{unknown} is not one of {', '.join(self._known.values())}.", param, ctx)
        return frozenset(self._known[word.lower()] for word in asked)
