"""Which values of classic groups a broker surely loads, without decoding one of them."""

import numpy as np

from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.messages.classic import GROUP_METADATA_VALUE
from groupcoord_spark.protocol.programs import programs_of_classic_groups
from groupcoord_spark.protocol.slices import Mask, Slices, words_of

MOST_MEMBERS = 4096
"""A value with more members is left to ``coordinator.refusals``."""


def surely_loadable(values: Slices, *, checks_subscriptions: bool) -> Mask:
    """True for each value that breaks none of the rules R-2.1 to R-2.4 (docs/reference/replay-rules.md#r-2.1).

    False means that ``coordinator.refusals``, the definition, must decide. For a small input every row is False.

    Args:
        values: values of GroupMetadataValue, none of them null.
        checks_subscriptions: whether the broker's load fails over a member's subscription that it cannot read (R-2.4).
    """
    is_loadable = np.zeros(len(values), np.bool_)
    if loops := fast_path.loops_for(len(values)):
        stack, positions = np.empty(loops.DEEPEST, np.int64), np.empty(2 + 3 * MOST_MEMBERS, np.int64)
        hashes = np.empty((2, MOST_MEMBERS), np.int64)
        loops.check_classic_groups(
            values.data, words_of(values.data), values.start, values.end, checks_subscriptions,
            *programs_of_classic_groups(), GROUP_METADATA_VALUE.flexible_from, stack, positions, hashes, is_loadable,
        )  # fmt: skip
    return is_loadable
