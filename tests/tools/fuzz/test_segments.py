"""A few hundred mutations of real segments, the same ones in each run unless GROUPCOORD_EXAMPLES asks for more.

``python -m tests.tools.fuzz.segments`` does many.
"""

from __future__ import annotations

import secrets

from tests.examples import TIMES_AS_MANY
from tests.tools.fuzz.mutations import HARMS, SEALED
from tests.tools.fuzz.segments import run

MUTATIONS = 200 * TIMES_AS_MANY


def test_mutated_segments_are_survived() -> None:
    seed = 20_261_121 if TIMES_AS_MANY == 1 else secrets.randbelow(10**9)
    print(f"seed {seed}")
    tally, failed = run(seed, 0, MUTATIONS)
    assert failed == [], f"seed {seed}: the line that makes it again is on stderr"
    assert tally.decoded > 10 * MUTATIONS
    assert set(tally.kinds) <= {*HARMS, *SEALED}
    assert len(tally.kinds) > 25
