"""Health of the offsets topic over the runs: findings, since when each exists, and how fast the log grows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from groupcoord_spark.warehouse.read import Run, Warehouse
from groupcoord_spark.warehouse.tables import NIGHTLY, TABLES

TOPIC_HEALTH: Final = "topic_health"
MOST_RUNS: Final = 8
"""Growth is measured over a week of runs: the cleaner makes a log smaller at once, so that one run alone says little."""


@dataclass(frozen=True, slots=True)
class RunSizes:
    """Bytes of the segment files of each offsets partition, as a run found them."""

    as_of_ms: int
    log_bytes: Mapping[int, int]

    @property
    def total(self) -> int:
        """Bytes of all offsets partitions."""
        return sum(self.log_bytes.values())


@dataclass(frozen=True, slots=True)
class HealthHistory:
    """Health of the offsets topic over the runs.

    Attributes:
        run: the run whose findings are shown.
        rows: the rows of topic_health of that run, with times as ``<name>_ms`` and the evidence as a dict.
        runs: up to MOST_RUNS runs that are not later than the run, the oldest first.
    """

    run: Run
    rows: tuple[Mapping[str, Any], ...]
    runs: tuple[RunSizes, ...]

    def since_ms(self, offsets_partition: int | None, finding: str, subject: object) -> int | None:
        """Return the first run since which the finding has existed, or None if the run does not have it."""
        name = offsets_partition, finding, None if subject is None else str(subject)
        return next((row["since_ms"] for row in self.rows if (row["offsets_partition"], row["finding"], row["subject"]) == name), None)

    def sizes(self, offsets_partition: int) -> list[tuple[int, int]]:
        """(as_of, bytes) of the runs that know the offsets partition, the oldest first."""
        return [(run.as_of_ms, run.log_bytes[offsets_partition]) for run in self.runs if offsets_partition in run.log_bytes]

    def bytes_per_night(self, offsets_partition: int) -> int | None:
        """By how many bytes the offsets partition grew from run to run, on average; None where one run alone knows it."""
        return _mean_growth([size for _, size in self.sizes(offsets_partition)])

    @property
    def total_per_run(self) -> int | None:
        """By how many bytes the whole topic grew from run to run, on average; None where one run alone knows it."""
        return _mean_growth([run.total for run in self.runs])


def _mean_growth(sizes: Sequence[int]) -> int | None:
    return round((sizes[-1] - sizes[0]) / (len(sizes) - 1)) if len(sizes) > 1 else None


def health_history(warehouse: Warehouse, run: Run) -> HealthHistory:
    """Return the findings of a run, and the log sizes of the runs up to it. Raises WarehouseError if the tables cannot be read."""
    earlier = {
        each.as_of_ms: each
        for each in warehouse.finished_runs(run.cluster)
        if each.kind == NIGHTLY and each.as_of_ms <= run.as_of_ms and TOPIC_HEALTH in each.table_versions
    }
    runs = [earlier[as_of_ms] for as_of_ms in sorted(earlier)[-MOST_RUNS:]]
    return HealthHistory(run, tuple(_rows(warehouse, run)), tuple(_sizes(warehouse, each) for each in runs))


def _rows(warehouse: Warehouse, run: Run) -> list[dict[str, Any]]:
    rows = TABLES[TOPIC_HEALTH].to_milliseconds(warehouse.read(TOPIC_HEALTH, run=run)).to_pylist()
    return [{**row, "evidence": json.loads(row["evidence"])} for row in rows]


def _sizes(warehouse: Warehouse, run: Run) -> RunSizes:
    rows = warehouse.read(TOPIC_HEALTH, columns=["offsets_partition", "log_bytes"], run=run)
    sizes = zip(rows["offsets_partition"].to_pylist(), rows["log_bytes"].to_pylist(), strict=True)
    return RunSizes(run.as_of_ms, {number: size for number, size in sizes if number is not None and size is not None})
