"""The rules over DataFrames are the rules over the tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.errors import UsageError
from groupcoord_spark.pipeline.expiration import ExpirationJob, expiration_rows
from groupcoord_spark.pipeline.what_if import WhatIf, cleanups, read_state_tables, what_if
from groupcoord_spark.warehouse import TABLES, open_warehouse
from tests.conftest import DAY_MS, SAMPLE_AS_OF_MS
from tests.running import plain_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def frames(spark: SparkSession, sample_warehouse: Any) -> list[Any]:
    warehouse = open_warehouse(str(sample_warehouse.path))
    tables = [warehouse.read(table) for table in ("committed_offsets", "pending_offsets", "groups")]
    # Spark takes no column without a chunk.
    whole = [table if table.num_rows else pa.table([pa.array([], f.type) for f in table.schema], schema=table.schema) for table in tables]
    return [spark.createDataFrame(table) for table in whole]


def rows_of(found: WhatIf, table: str) -> list[dict[str, Any]]:
    rows = plain_rows(table, getattr(found, table).toArrow())
    return sorted(rows, key=lambda row: (row["group_id"], row.get("topic"), row.get("partition")))


@pytest.mark.parametrize("table", WhatIf._fields)
def test_under_the_settings_of_the_night_it_gives_the_tables_of_the_night(frames: list[Any], sample_warehouse: Any, table: str) -> None:
    found = what_if(*frames, retention="7d", as_of_ms=SAMPLE_AS_OF_MS)
    stored = open_warehouse(str(sample_warehouse.path)).read(table)
    left_out = [name for name in ("may_come_back", "retention_changed") if name in stored.column_names]
    told = WhatIf(*(_Stored(stored.drop_columns(left_out)) for _ in WhatIf._fields))  # type: ignore[arg-type]
    assert rows_of(found, table) == rows_of(told, table) != []
    names = [name for name in TABLES[table].by_name if name not in left_out]
    assert getattr(found, table).columns == names


class _Stored:
    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def toArrow(self) -> Any:  # noqa: N802
        return self._rows


def test_under_other_settings_it_is_what_the_command_finds(frames: list[Any], sample_warehouse: Any) -> None:
    now_ms = SAMPLE_AS_OF_MS + 2 * DAY_MS
    found = rows_of(what_if(*frames, retention="1d", as_of_ms=now_ms, assume_members_gone=True), "offset_expirations")
    job = ExpirationJob(now_ms, DAY_MS, JAVA, assume_members_gone=True)
    state = read_state_tables(open_warehouse(str(sample_warehouse.path)), "sample")
    own = expiration_rows((cleaned for _, cleaned in cleanups(state, job)), job).offsets
    assert {(row["group_id"], row["topic"], row["partition"]): (row["expires_at"], row["rule"]) for row in found} == {
        row[:3]: (row.expires_at_ms, row.rule) for row in own
    }
    assert {row["expires_at"] for row in found if row["group_id"] == "app-static"} == {now_ms + DAY_MS}


def test_a_retention_that_is_none(frames: list[Any]) -> None:
    with pytest.raises(UsageError, match="'soon' is not a duration"):
        what_if(*frames, retention="soon", as_of_ms=0)
