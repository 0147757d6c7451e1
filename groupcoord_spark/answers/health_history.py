"""What the nights say about the health of the offsets topic: their findings, since when each is there, and how fast the log grows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from groupcoord_spark.warehouse.read import Run, Warehouse
from groupcoord_spark.warehouse.tables import NIGHT, TABLES

TOPIC_HEALTH: Final = "topic_health"
MOST_NIGHTS: Final = 8
"""Growth is measured over a week of nights: the cleaner makes a log smaller at once, so that one night alone says little."""


@dataclass(frozen=True, slots=True)
class NightSizes:
    """Bytes of the segment files of each offsets partition, as a night found them."""

    as_of_ms: int
    log_bytes: Mapping[int, int]

    @property
    def total(self) -> int:
        """Bytes of all offsets partitions."""
        return sum(self.log_bytes.values())


@dataclass(frozen=True, slots=True)
class HealthHistory:
    """What the nights say.

    Attributes:
        run: the run whose findings are shown.
        rows: the rows of topic_health of that run, with times as ``<name>_ms`` and the evidence as a dict.
        nights: up to MOST_NIGHTS nights that are not later than the run, the oldest first.
    """

    run: Run
    rows: tuple[Mapping[str, Any], ...]
    nights: tuple[NightSizes, ...]

    def since_ms(self, offsets_partition: int | None, finding: str, subject: object) -> int | None:
        """The night since which the finding is there; None where the run does not have it."""
        name = offsets_partition, finding, None if subject is None else str(subject)
        return next((row["since_ms"] for row in self.rows if (row["offsets_partition"], row["finding"], row["subject"]) == name), None)

    def sizes(self, offsets_partition: int) -> list[tuple[int, int]]:
        """(as_of, bytes) of the nights that know the offsets partition, the oldest first."""
        return [(night.as_of_ms, night.log_bytes[offsets_partition]) for night in self.nights if offsets_partition in night.log_bytes]

    def bytes_per_night(self, offsets_partition: int) -> int | None:
        """By how many bytes the offsets partition grew from night to night, on average; None where one night alone knows it."""
        return _mean_growth([size for _, size in self.sizes(offsets_partition)])

    @property
    def total_per_night(self) -> int | None:
        """By how many bytes the whole topic grew from night to night, on average; None where one night alone knows it."""
        return _mean_growth([night.total for night in self.nights])


def _mean_growth(sizes: Sequence[int]) -> int | None:
    return round((sizes[-1] - sizes[0]) / (len(sizes) - 1)) if len(sizes) > 1 else None


def health_history(warehouse: Warehouse, run: Run) -> HealthHistory:
    """The findings of a run, and the sizes of the nights up to it. Raises WarehouseError where the tables cannot be read."""
    earlier = {
        night.as_of_ms: night
        for night in warehouse.finished_runs(run.cluster)
        if night.kind == NIGHT and night.as_of_ms <= run.as_of_ms and TOPIC_HEALTH in night.table_versions
    }
    nights = [earlier[as_of_ms] for as_of_ms in sorted(earlier)[-MOST_NIGHTS:]]
    return HealthHistory(run, tuple(_rows(warehouse, run)), tuple(_sizes(warehouse, night) for night in nights))


def _rows(warehouse: Warehouse, run: Run) -> list[dict[str, Any]]:
    rows = TABLES[TOPIC_HEALTH].to_milliseconds(warehouse.read(TOPIC_HEALTH, run=run)).to_pylist()
    return [{**row, "evidence": json.loads(row["evidence"])} for row in rows]


def _sizes(warehouse: Warehouse, night: Run) -> NightSizes:
    rows = warehouse.read(TOPIC_HEALTH, columns=["offsets_partition", "log_bytes"], run=night)
    sizes = zip(rows["offsets_partition"].to_pylist(), rows["log_bytes"].to_pylist(), strict=True)
    return NightSizes(night.as_of_ms, {number: size for number, size in sizes if number is not None and size is not None})
