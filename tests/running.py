"""Runs run in a session of the tests, and the tables they leave as plain rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from groupcoord_spark.cli.progress import StageLines
from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.log import plan_logs
from groupcoord_spark.pipeline.night import run_stages
from groupcoord_spark.pipeline.run import RunRequest, Summary
from groupcoord_spark.sources.segments import tasks_of
from groupcoord_spark.warehouse import TABLES, Warehouse, open_warehouse
from tests.conftest import DAY_MS
from tests.warehouse.nights import make_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tests.local_session import LocalSession

AS_OF_MS = 1_795_250_000_000
"""A moment soon after the golden logs were written."""


def run(spark: SparkSession | LocalSession, warehouse: Path | str, *inputs: Path | str, **changed: Any) -> Summary:
    """Return one run over the inputs; ``changed`` are fields of RunRequest other than their usual values."""
    paths = tuple(str(each) for each in inputs)
    usual = {"cluster": "sample", "as_of_ms": AS_OF_MS, "retention_ms": 7 * DAY_MS, "semantics": JAVA}
    make_tables(warehouse)
    night = RunRequest(inputs=paths, warehouse=str(warehouse), **{**usual, **changed})
    return run_stages(night, plan_logs(paths), spark, StageLines(quiet=True))


def batches_of_source(path: Path, **options: str) -> list[pa.RecordBatch]:
    """Return what the source ``consumer_offsets`` reads, without the two processes that Spark starts for each frame of it."""
    return [batch for task in tasks_of([str(path)], **options) for batch in task.batches()]


def raw(spark: SparkSession, *logs: Path, clusters: Sequence[str] = ()) -> DataFrame:
    """Return the raw records of logs as one frame.

    clusters: names of the logs; without them each log has the name that the source gives it.
    """
    batches = [
        batch
        for path, cluster in zip_longest(logs, clusters)
        for batch in batches_of_source(path, **({"cluster": cluster} if cluster else {}))
    ]
    return spark.createDataFrame(pa.Table.from_batches(batches))


def rows_of(warehouse: Path | str, table: str, cluster: str | None = None, *, run_id: str | None = None) -> list[dict[str, Any]]:
    """Return a table's rows as its readers see it. Times are epoch milliseconds, exact also where no TIMESTAMP can hold them.

    run_id: as of that run; the cluster is then ``sample`` where none is named.
    """
    return _rows_of(open_warehouse(str(warehouse)), table, cluster, run_id)


def _rows_of(opened: Warehouse, table: str, cluster: str | None, run_id: str | None) -> list[dict[str, Any]]:
    if run_id is not None:
        return plain_rows(table, opened.read(table, run=opened.run(cluster or "sample", run_id=run_id)))
    return plain_rows(table, opened.runs(cluster) if table == "runs" else opened.read(table, cluster=cluster))


def plain_rows(table: str, columns: pa.Table) -> list[dict[str, Any]]:
    """Return columns of a table as rows, with times as in ``rows_of``."""
    for at, column in enumerate(columns.schema):
        if pa.types.is_timestamp(column.type):
            columns = columns.set_column(at, column.name, columns[column.name].cast(pa.int64()))
    times = [column.name for column in TABLES[table].columns if column.is_time]
    rows = columns.to_pylist()
    for row in rows:
        row |= {name: row[name] // 1000 for name in times if row[name] is not None}
        row |= {strange["column"]: strange["milliseconds"] for strange in row.pop("timestamps_out_of_range", None) or []}
    return list(rows)


def tables_of(
    warehouse: Path | str, cluster: str | None = None, *, but: tuple[str, ...] = ("runs",), run_id: str | None = None
) -> dict[str, list[str]]:
    """Return every table's rows in an order that does not depend on how they were written, without the name of their run."""
    opened = open_warehouse(str(warehouse))
    return {
        table: sorted(
            repr({name: value for name, value in row.items() if name != "run_id"}) for row in _rows_of(opened, table, cluster, run_id)
        )
        for table in TABLES
        if table not in but
    }


def commits_of(warehouse: Path | str) -> dict[str, bytes]:
    """Return the commits of all Delta tables of a warehouse: where they are the same, readers get the same rows."""
    return {str(file.relative_to(warehouse)): file.read_bytes() for file in Path(warehouse).glob("*/_delta_log/*.json")}
