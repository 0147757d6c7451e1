"""The simulator answers and writes what a real broker 4.3.1 did.

Classic members in consumer groups, upgrades and downgrades; members of share groups and of streams groups.
"""

from __future__ import annotations

import copy

import pytest

from tests.simulator.rules import plays
from tests.tools.conformance import transcripts
from tests.tools.conformance.scripts import SCRIPTS


@plays("C-13.5.1", "C-13.5.3-19", "C-13.6.1-4", "C-13.6.6-8", "C-13.6.10-16", "C-13.7.1", "C-13.7.3-6", "C-13.7.8-36", "C-13.7.39")
@pytest.mark.parametrize("name", SCRIPTS)
def test_the_simulator_answers_and_writes_what_the_broker_did(name: str) -> None:
    recorded = transcripts.load(name)
    assert transcripts.simulated_lines(SCRIPTS[name], recorded, recorded["group"]) == recorded["lines"]


def test_the_comparison_sees_other_requests() -> None:
    recorded = transcripts.load("downgrade")
    steps = copy.deepcopy(SCRIPTS["downgrade"])
    steps[4] = ("C", "new", {})
    assert transcripts.simulated_lines(steps, recorded, recorded["group"]) != recorded["lines"]
