"""The Parquet files of one task: a writer for each table that gets a row."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from groupcoord_spark.warehouse import TABLES, AddedFile, PartWriter


class TaskFiles:
    """Writers of one task, begun when their first row comes. A context manager: left by an exception it leaves no file behind."""

    def __init__(self, warehouse_uri: str, cluster: str, run_id: str) -> None:
        self._warehouse_uri = warehouse_uri
        self._cluster = cluster
        self._run_id = run_id
        self._writers: dict[str, PartWriter] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._open.__exit__(kind, error, trace)

    def write(self, table: str, columns: Mapping[str, Any] | pa.Table, **constants: Any) -> None:
        """Rows in wire-like columns; ``constants`` are the same in each of them. A ``run_id`` is added where the table has one."""
        rows = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
        if "run_id" in TABLES[table].by_name:
            constants["run_id"] = self._run_id
        for name, value in constants.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, TABLES[table].by_name[name].arrow_type), rows.num_rows))
        writer = self._writers.get(table)
        if writer is None:
            writer = self._writers[table] = self._open.enter_context(
                PartWriter(self._warehouse_uri, TABLES[table], self._cluster, self._run_id)
            )
        writer.write(rows)

    def close(self) -> dict[str, list[AddedFile]]:
        """Ends the files and names them, by table."""
        self._open.close()
        return {table: writer.files for table, writer in self._writers.items()}
