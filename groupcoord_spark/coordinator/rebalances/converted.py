"""Groups that become groups of another type (KIP-848)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupcoord_spark.coordinator.rebalances.group_records import Value


@dataclass(slots=True)
class ConvertedGroup:
    """The last state of a group before a group of another type replaced it under the same id."""

    group_type: str
    generation: int
    timestamp_ms: int
    members: Mapping[str, Value]
