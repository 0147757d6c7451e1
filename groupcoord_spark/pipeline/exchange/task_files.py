"""The rows of tables that one Spark task makes: to Parquet files of its own, or on with the task's other rows to those who write."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from groupcoord_spark.warehouse import TABLES, AddedFile, PartWriter


class TaskFiles(ExitStack):
    """The writers of one task; a writer starts with its first row. After an exception in a block with them no file is left."""

    def __init__(self, warehouse_uri: str, cluster: str, run_id: str) -> None:
        super().__init__()
        self._warehouse_uri = warehouse_uri
        self._cluster = cluster
        self._run_id = run_id
        self._writers: dict[str, PartWriter] = {}

    def write(self, table: str, columns: Mapping[str, Any] | pa.Table, **constants: Any) -> None:
        """Write rows, given as columns with Kafka's values (times as ``<name>_ms``). constants: columns with one value for all rows.

        The column run_id is added if the table has one.
        """
        if "run_id" in TABLES[table].by_name:
            constants["run_id"] = self._run_id
        rows = _with_constants(table, columns, constants)
        writer = self._writers.get(table)
        if writer is None:
            writer = PartWriter(self._warehouse_uri, TABLES[table], self._cluster, self._run_id)
            self._writers[table] = self.enter_context(writer)
        writer.write(rows)

    def taken(self) -> Iterator[tuple[str, pa.Table]]:
        """Return (table, rows) that travel with the task's other rows: none, because all of it is in files."""
        return iter(())

    def written(self) -> dict[str, list[AddedFile]]:
        """Table -> the files that were written. No more rows can be written."""
        self.close()
        return {table: writer.files for table, writer in self._writers.items()}


class TaskRows(TaskFiles):
    """The same without files: rows stay in memory until they are taken. The writer adds ``run_id``."""

    def __init__(self) -> None:
        super().__init__("", "", "")
        self._rows: list[tuple[str, pa.Table]] = []

    def write(self, table: str, columns: Mapping[str, Any] | pa.Table, **constants: Any) -> None:
        """Add rows. The parameters are the same as in TaskFiles."""
        self._rows.append((table, _with_constants(table, columns, constants)))

    def taken(self) -> Iterator[tuple[str, pa.Table]]:
        """(table, rows) of all that was written since the last call."""
        rows, self._rows = self._rows, []
        return iter(rows)


def _with_constants(table: str, columns: Mapping[str, Any] | pa.Table, constants: Mapping[str, Any]) -> pa.Table:
    """Return the rows as a table, with additional constant columns."""
    rows = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
    for name, value in constants.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value, TABLES[table].by_name[name].arrow_type), rows.num_rows))
    return rows
