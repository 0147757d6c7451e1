"""How many random examples the property tests try.

``make test`` tries the same examples in each run. GROUPCOORD_EXAMPLES=10 tries ten times as many, and others in each run.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

TIMES_AS_MANY = int(os.environ.get("GROUPCOORD_EXAMPLES", "1"))

# How long an example takes says how busy the machine is.
PROFILE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=TIMES_AS_MANY == 1, print_blob=True)

randoms = st.randoms(use_true_random=True)
"""Hypothesis draws only the seed: where it draws all the parts of a value, that takes twenty times as long as to make them from a seed."""


def examples(count: int) -> settings:
    """Return the decorator of a property test that tries ``count`` examples, and more where GROUPCOORD_EXAMPLES asks for more."""
    return settings(PROFILE, max_examples=count * TIMES_AS_MANY)
