"""Share groups of KIP-932: key types 10 to 15, rules R-3.16 to R-3.21 of docs/reference/replay-rules.md."""

from groupcoord_spark.coordinator.broker_settings import DefaultAssignors
from groupcoord_spark.coordinator.groups.modern import Refusals, ReplayedModernGroup


class ReplayedShareGroup(ReplayedModernGroup):
    """A share group. Several members may have the same partition, and the group's positions are in the topic ``__share_group_state``."""

    __slots__ = ()

    group_type = "share"
    refusals = Refusals("R-3.18", "R-3.19", "R-3.20", "R-3.21", "R-3.16", "R-3.17")
    type_conflict = "R-3.6"
    simple_conflict = "R-3.3"

    @property
    def state(self) -> str:
        return "Stable" if self.members else "Empty"

    def protocol(self, default_assignors: DefaultAssignors) -> str:
        return default_assignors.share
