"""A stand-in for a Spark session that takes a run through all its stages in this process: no Java, no workers.

The stand-in has what a run asks of a session and no more: jobs of ``mapInArrow``, shuffles, and counts of groups. Functions are
pickled as for a worker, their columns must be as declared, and where Spark leaves the order of rows open they come in another order than
they were made in. What Spark alone can show (frames of users, failures, plans, processes) is tested with Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import cloudpickle
from pyspark.sql import Row

ROWS_OF_A_BATCH = 100
"""Rows that a function gets at a time: few, so that some of the tests' runs have several batches."""

TYPES = {
    "BOOLEAN": pa.bool_(), "TINYINT": pa.int8(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64(),
    "STRING": pa.string(), "BINARY": pa.binary(),
}


class LocalSession:
    """The session. cores: as ``local[cores]``, the number of its tasks."""

    def __init__(self, cores: int = 2) -> None:
        self.conf = {"spark.sql.shuffle.partitions": "2", "spark.sql.adaptive.enabled": "false"}
        self.sparkContext = SimpleNamespace(
            master=f"local[{cores}]",
            defaultParallelism=cores,
            getLocalProperty=lambda name: None,
            setLocalProperty=lambda name, value: None,
            accumulator=lambda value, param: Unread(),
            statusTracker=lambda: SimpleNamespace(getJobIdsForGroup=list),
            _jsc=SimpleNamespace(sc=lambda: SimpleNamespace(getLocalProperties=lambda: None)),
        )

    def range(self, start: int, end: int, step: int, tasks: int) -> LocalFrame:
        """Numbers in tasks, consecutive numbers in each."""
        numbers = range(start, end, step)
        borders = pairwise(len(numbers) * task // tasks for task in range(tasks + 1))
        schema = schema_of("id BIGINT")
        return LocalFrame(schema, [pa.table([pa.array(numbers[first:last], pa.int64())], schema) for first, last in borders])


class Unread:
    """An accumulator that nobody reads: Spark has its stages named by one."""

    def add(self, value: str) -> None:
        pass


class LocalFrame:
    """A frame. tasks: the rows of each task."""

    def __init__(self, schema: pa.Schema, tasks: Iterable[pa.Table]) -> None:
        self._schema = schema
        self._tasks = list(tasks)

    def mapInArrow(self, function: Callable[[Iterator[pa.RecordBatch]], Iterable[pa.RecordBatch]], columns: str) -> LocalFrame:  # noqa: N802
        schema, pickled = schema_of(columns), cloudpickle.dumps(function)
        return LocalFrame(schema, (_table(schema, cloudpickle.loads(pickled)(iter(_batches(rows)))) for rows in self._tasks))

    def union(self, other: LocalFrame) -> LocalFrame:
        assert other._schema == self._schema
        return LocalFrame(self._schema, [*self._tasks, *other._tasks])

    def repartition(self, *by: int | str) -> LocalFrame:
        """Put rows with the same values into one task, the last task first. by: number of tasks, if given, and columns."""
        count, columns = (by[0], by[1:]) if isinstance(by[0], int) else (2, by)
        rows = pa.concat_tables(reversed(self._tasks))
        task_of = pa.array([hash(values) % count for values in _values(rows, columns)], pa.int64())
        return LocalFrame(self._schema, [rows.filter(pc.equal(task_of, task)) for task in range(count)])

    def sortWithinPartitions(self, *columns: str, ascending: Sequence[bool] = ()) -> LocalFrame:  # noqa: N802
        """NULL is the smallest value, as in Spark."""
        orders = list(zip(columns, ascending or [True] * len(columns), strict=True))

        def in_order(rows: pa.Table) -> pa.Table:
            places = list(range(rows.num_rows))
            for name, is_ascending in reversed(orders):
                keys = [(value is not None, 0 if value is None else value) for value in rows.column(name).to_pylist()]
                places.sort(key=keys.__getitem__, reverse=not is_ascending)
            return rows.take(pa.array(places, pa.int64()))

        return LocalFrame(self._schema, map(in_order, self._tasks))

    def where(self, condition: str) -> LocalFrame:
        return LocalFrame(self._schema, (duckdb.from_arrow(rows).filter(condition).to_arrow_table() for rows in self._tasks))

    def select(self, *columns: str) -> LocalFrame:
        return LocalFrame(pa.schema([self._schema.field(name) for name in columns]), (rows.select(columns) for rows in self._tasks))

    def distinct(self) -> LocalFrame:
        return LocalFrame(self._schema, [pa.concat_tables(self._tasks).group_by(self._schema.names).aggregate([])])

    def groupBy(self, *columns: str) -> LocalGroups:  # noqa: N802
        return LocalGroups(self._tasks, columns)

    def collect(self) -> list[Row]:
        return [Row(**row) for rows in self._tasks for row in rows.to_pylist()]


class LocalGroups:
    """Groups of the rows of each task, which are sorted by the columns of the groups."""

    def __init__(self, tasks: Sequence[pa.Table], columns: Sequence[str]) -> None:
        self._tasks = tasks
        self._columns = columns

    def count(self) -> LocalFrame:
        return self._aggregated([([], "count_all")])

    def min(self, column: str) -> LocalFrame:
        return self._aggregated([(column, "min")])

    def _aggregated(self, aggregations: Sequence[tuple[Any, str]]) -> LocalFrame:
        rows = pa.concat_tables(self._tasks).group_by(self._columns).aggregate(aggregations)
        return LocalFrame(rows.schema, [rows])


def schema_of(columns: str) -> pa.Schema:
    """Return the Arrow schema of columns as Spark is given them: ``writer INT, payload BINARY``."""
    return pa.schema([(name, TYPES[kind]) for name, kind in (column.split() for column in columns.split(", "))])


def _table(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(batches, schema)


def _batches(rows: pa.Table) -> list[pa.RecordBatch]:
    return list(rows.combine_chunks().to_batches(ROWS_OF_A_BATCH))


def _values(rows: pa.Table, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(rows.column(name).to_pylist() for name in columns), strict=True))
