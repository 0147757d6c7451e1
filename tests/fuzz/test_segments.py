"""A few hundred mutations of real segments; ``python -m tests.fuzz.segments`` does many."""

from __future__ import annotations

import os
import secrets

from tests.fuzz.mutations import HARMS, SEALED
from tests.fuzz.segments import run

MUTATIONS = int(os.environ.get("GROUPCOORD_MUTATIONS", "200"))


def test_mutated_segments_are_survived() -> None:
    seed = secrets.randbelow(10**9)
    print(f"seed {seed}")
    tally, failed = run(seed, 0, MUTATIONS)
    assert failed == [], f"seed {seed}: the line that makes it again is on stderr"
    assert tally.decoded > 10 * MUTATIONS
    assert set(tally.kinds) <= {*HARMS, *SEALED}
    assert len(tally.kinds) > 25
