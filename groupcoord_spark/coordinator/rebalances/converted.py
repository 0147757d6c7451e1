"""Groups that go on as groups of another type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from groupcoord_spark.coordinator.rebalances.records import Value


@dataclass(slots=True)
class Converted:
    """What is left of a group that became one of another type under the same id."""

    group_type: str
    generation: int
    timestamp_ms: int
    members: Mapping[str, Value]
