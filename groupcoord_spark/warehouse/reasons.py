"""Why an offset or a group goes or stays: the rules of the column ``rule``, and a sentence for each word of ``blocked_by``."""

from collections.abc import Mapping
from typing import Final

OFFSET_RULES: Final = ("X-A0", "X-A1", "X-B0", "X-B1", "X-B2", "X-B3", "X-B4", "X-J1", "X-C1", "X-C2", "X-C3")
GROUP_RULES: Final = ("X-G0", "X-G1", "X-G2", "X-C3")

OFFSET_STAYS_BECAUSE: Final[Mapping[str, str]] = {
    "subscribed": "a member subscribes to the topic",
    "live_group": "the group has members and is not of consumers: nothing of it expires",
    "unknown_subscription": "the group has members and what they subscribe to cannot be read: nothing of it expires",
    "pending_transaction": "a transaction with this offset is open",
    "share_group": "share groups do not expire",
    "failing_cleanup": "the cleanup of its offsets partition fails, because a share group there has offsets",
}
GROUP_STAYS_BECAUSE: Final[Mapping[str, str]] = {
    "members": "it has members",
    "offsets": "it has offsets that never expire in their present state",
    "pending_transaction": "a transaction with its offsets is open",
    "share_group": "share groups do not expire",
    "topology_description": "the broker still has to delete the description of its topology",
    "failing_cleanup": "the cleanup of its offsets partition fails, because a share group there has offsets",
}
NEVER_OLD_ENOUGH: Final = "its time is so far off that the retention after it is beyond all clocks"
NO_GROUP_IS_REMOVED: Final = "brokers before 0.10.1 remove no group in a cleanup"
