"""Play one scenario on several releases and list the timeline rows that differ."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from groupcoord_spark.simulator.broker.release import release_for
from groupcoord_spark.simulator.scenario.playing import TimelineRow, play
from groupcoord_spark.simulator.scenario.reading import Scenario
from groupcoord_spark.simulator.scenario.timeline_text import record_text

_TIME_OF_REQUESTS_MS: Final = 100
"""A release that sends one more request, for example for a member id, runs some milliseconds late from then on. This does not count as a
difference."""


class Behaviour(NamedTuple):
    """What a release does at one row of the timeline. at_ms: milliseconds since the start of the scenario."""

    at_ms: int
    answer: str | None
    state: str | None
    generation: int | None
    records: str

    def is_like(self, second: "Behaviour") -> bool:
        """Everything is the same, and happens at the same time but for the time that a few requests take."""
        return self[1:] == second[1:] and abs(self.at_ms - second.at_ms) <= _TIME_OF_REQUESTS_MS


class ComparedRow(NamedTuple):
    """A row of the timelines with the same id. by_release: release -> what it does there; a release that lacks the row is left out."""

    id: str
    who: str
    what: str
    by_release: Mapping[str, Behaviour]

    def alike(self, releases: Sequence[str]) -> list[tuple[list[str], Behaviour | None]]:
        """Group the releases that behave the same in this row, with the behaviour of the first one; None if the row does not occur in
        them."""
        groups: list[tuple[list[str], Behaviour | None]] = []
        for release in releases:
            behaviour = self.by_release.get(release)
            for same, first in groups:
                if behaviour is first or (behaviour is not None and first is not None and behaviour.is_like(first)):
                    same.append(release)
                    break
            else:
                groups.append(([release], behaviour))
        return groups


def compare(scenario: Scenario, releases: Sequence[str]) -> list[ComparedRow]:
    """Return all rows of the timelines of these releases in time order, without routine heartbeats and retention checks.

    Raises UsageError as ``play`` does, and for a release that does not exist.
    """
    rows: dict[str, tuple[TimelineRow, dict[str, Behaviour]]] = {}
    for release in releases:
        for row in play(scenario, release_for(None, release)).rows:
            if not row.is_routine:
                behaviour = Behaviour(row.at_ms, row.answer, row.state, row.generation, "; ".join(map(record_text, row.records)))
                rows.setdefault(row.id, (row, {}))[1][release] = behaviour
    compared = [ComparedRow(row.id, row.who, row.what, by_release) for row, by_release in rows.values()]
    return sorted(compared, key=lambda row: min(behaviour.at_ms for behaviour in row.by_release.values()))
