"""What a run leaves behind: Delta tables that SQL, delta-rs, DuckDB and Spark read alike.

Every table is declared once (``tables``). Workers write Parquet files and hand back a line for each (``PartWriter``, ``write_part``); the
driver commits a run's files to all tables back to back (``begin_run``, ``commit_run``). Readers go by the newest row of ``runs``, so they
see one night or the next and never a mixture (``open_warehouse``; in Spark ``views.register``). No Spark is needed here.
"""

from groupcoord_spark.warehouse.parts import AddedFile, PartWriter, write_part
from groupcoord_spark.warehouse.read import Run, Warehouse, find_warehouse, open_warehouse
from groupcoord_spark.warehouse.tables import TABLES, Column, Table
from groupcoord_spark.warehouse.write import RunStart, begin_run, commit_run, discarded_on_failure

__all__ = [
    "TABLES",
    "AddedFile",
    "Column",
    "PartWriter",
    "Run",
    "RunStart",
    "Table",
    "Warehouse",
    "begin_run",
    "commit_run",
    "discarded_on_failure",
    "find_warehouse",
    "open_warehouse",
    "write_part",
]
