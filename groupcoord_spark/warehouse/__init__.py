"""What a run leaves behind: Delta tables that SQL, delta-rs, DuckDB and Spark read.

Every table is declared once (``tables``). Workers write Parquet files and return one AddedFile for each (``PartWriter``, ``write_part``).
The driver then commits the files of a run to all tables, one right after the other (``begin_run``, ``commit_run``). Readers go by the
newest row of ``runs``, so they see one run or the next and never a mixture (``open_warehouse``; in Spark ``views.register``). Nothing
here needs Spark.
"""

from groupcoord_spark.warehouse.parts import AddedFile, PartWriter, write_part
from groupcoord_spark.warehouse.read import Run, Warehouse, open_warehouse
from groupcoord_spark.warehouse.stored_file import Condition
from groupcoord_spark.warehouse.tables import TABLES, Column, Table
from groupcoord_spark.warehouse.write import RunStart, begin_run, commit_run, discarded_on_failure
