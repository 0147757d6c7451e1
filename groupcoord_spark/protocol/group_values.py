"""Which values of classic groups a broker's loader takes without an objection, found without decoding one."""

from __future__ import annotations

import numpy as np

from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.slices import Mask, Slices

MOST_MEMBERS = 4096
"""Of a group that is looked at here; a larger one is left to the definition."""


def surely_without_refusals(values: Slices, *, checks_subscriptions: bool) -> Mask:
    """True for each value that breaks none of the rules R-2.1 to R-2.4; False means "ask ``coordinator.refusals``", the definition.

    values: of GroupMetadataValue, none of them null. checks_subscriptions: whether the loader fails over a member's subscription that it
    cannot read (R-2.4).
    Of a small input all is left to the definition.
    """
    is_sure = np.zeros(len(values), np.bool_)
    if loops := fast_path.loops_for(len(values)):
        member_hashes, instance_hashes = np.empty(MOST_MEMBERS, np.int64), np.empty(MOST_MEMBERS, np.int64)
        loops.classic_groups_without_refusals(
            values.data, values.start, values.end, checks_subscriptions, member_hashes, instance_hashes, is_sure
        )
    return is_sure
