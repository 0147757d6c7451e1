"""``run_nightly``: a run from Python, in the tests' own session."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pytest

import groupcoord_spark as gc
from groupcoord_spark.errors import BadCopyError, InputError, UsageError
from groupcoord_spark.pipeline.progress import Stage
from groupcoord_spark.pipeline.run_nightly import until_of
from tests.conftest import SAMPLE_AS_OF_MS, SAMPLE_LOGS, SampleWarehouse
from tests.pipeline.test_rows import night_over
from tests.running import raw, tables_of
from tests.sources.exports import raw_rows, write_parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

AS_OF = datetime.fromtimestamp(SAMPLE_AS_OF_MS / 1000, UTC)


@pytest.mark.spark
def test_a_night_from_python_writes_what_the_command_writes(spark: SparkSession, sample_warehouse: SampleWarehouse, tmp_path: Path) -> None:
    stages: list[Stage] = []
    summary = gc.run_nightly(
        SAMPLE_LOGS, tmp_path / "w", cluster="sample", as_of=AS_OF, retention=timedelta(days=7), spark=spark, progress=stages.append
    )
    assert tables_of(tmp_path / "w") == tables_of(sample_warehouse.path)
    assert (summary.cluster, summary.as_of_ms, summary.retention_ms) == ("sample", SAMPLE_AS_OF_MS, 7 * 86_400_000)
    assert summary.records_read == summary.records_decoded + summary.records_quarantined > 0
    assert [stage.name for stage in stages] == ["plan", "read, replay and write", "commit"]
    assert gc.open_warehouse(str(tmp_path / "w")).run("sample").run_id == summary.run_id
    assert not spark.sparkContext._jsc.sc().isStopped()  # type: ignore[union-attr]
    empty = tmp_path / "empty" / "__consumer_offsets-0"
    empty.mkdir(parents=True)
    with pytest.raises(BadCopyError):
        gc.run_nightly([empty.parent], tmp_path / "w", cluster="sample", spark=spark)


@pytest.mark.spark
def test_a_night_over_a_dataframe_goes_on_from_the_night_before(
    spark: SparkSession, sample_warehouse: SampleWarehouse, tmp_path: Path
) -> None:
    # A bronze table with the columns of Spark's Kafka source: half of it, and then all of it.
    raw(spark, SAMPLE_LOGS).selectExpr(
        "key", "value", "'__consumer_offsets' AS topic", "offsets_partition AS partition", "record_offset AS offset",
        "timestamp_millis(record_timestamp_ms) AS timestamp", "producer_id", "producer_epoch", "is_transactional", "control_type",
    ).write.parquet(str(tmp_path / "bronze"))  # fmt: skip
    bronze = spark.read.parquet(str(tmp_path / "bronze"))
    place = tmp_path / "w"
    first = gc.run_nightly(bronze.where("offset < 20"), place, cluster="sample", as_of=AS_OF, upkeep=False)
    second = gc.run_nightly(bronze, place, cluster="sample", as_of=AS_OF, upkeep=False)
    assert first.input_kind == second.input_kind == "dataframe" and first.lacks == ("leader_epochs",)
    assert 0 < second.reading.new_records < second.records_read + first.records_read
    columns = ["group_id", "topic", "partition", "committed_offset", "record_offset"]
    night = gc.open_warehouse(place).snapshot("sample")
    expected = gc.open_warehouse(sample_warehouse.path).snapshot("sample")
    for table in ("committed_offsets", "groups"):
        shown = columns if table == "committed_offsets" else ["group_id", "state", "member_count"]
        rows, expected_rows = (sorted(of.table(table).select(shown).to_pylist(), key=str) for of in (night, expected))
        assert rows == expected_rows
    with pytest.raises(UsageError, match="no column 'value'"):
        gc.run_nightly(bronze.drop("value"), place, cluster="sample")
    with pytest.raises(UsageError, match=r"this is pandas\.DataFrame"):
        gc.run_nightly(pd.DataFrame({"key": [b""]}), place)  # type: ignore[arg-type]


@pytest.mark.spark
def test_a_delta_table_with_deleted_rows_and_renamed_columns_is_read_as_it_is(
    spark_with_delta: SparkSession, local: LocalSession, tmp_path: Path
) -> None:
    """Deletion vectors and column mapping: the files have rows that are gone and names that nobody gave."""
    table = str(tmp_path / "bronze")
    places = "offsets_partition AS partition, record_offset AS offset"
    records = raw(spark_with_delta, SAMPLE_LOGS).selectExpr("key", "value", *places.split(", "), "record_timestamp_ms AS timestamp")
    (
        records.withColumnRenamed("value", "payload")
        .repartition(2)
        .write.format("delta")
        .option("delta.enableDeletionVectors", "true")
        .option("delta.columnMapping.mode", "name")
        .save(table)
    )
    spark_with_delta.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN payload TO value")
    spark_with_delta.sql(f"DELETE FROM delta.`{table}` WHERE partition = 0 AND offset >= 5")
    names = ("key", "value", "offsets_partition", "record_offset", "record_timestamp_ms")
    left = duckdb.from_arrow(raw_rows(SAMPLE_LOGS).select(names)).filter("offsets_partition <> 0 OR record_offset < 5").to_arrow_table()
    summary = gc.run_nightly(table, tmp_path / "w", cluster="sample", as_of=AS_OF, spark=spark_with_delta)
    night_over(local, tmp_path / "of-rows", write_parquet(tmp_path / "left", left), as_of_ms=SAMPLE_AS_OF_MS)
    assert (summary.input_kind, summary.records_read) == ("delta", left.num_rows)
    rows = [tables_of(tmp_path / place)["committed_offsets"] for place in ("w", "of-rows")]
    assert rows[0] == rows[1] != []


@pytest.mark.spark
def test_the_examples_of_the_reference_page_run(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    for example in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(example.replace("tests/golden", f"{root}/tests/golden").replace("./warehouse", f"{tmp_path}/w"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("plan ") and "Stable" in printed


class TestArguments:
    """What makes no sense is refused before Spark starts."""

    def test_of_no_release(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError):
            gc.run_nightly(SAMPLE_LOGS, tmp_path, broker_version="17.1")

    def test_settings_with_a_misspelled_name(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="settings: "):
            gc.run_nightly(SAMPLE_LOGS, tmp_path, settings={"offsets.retention.minuts": "5"})

    def test_a_word_of_accept_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="'emty' is not a word of accept"):
            gc.run_nightly(SAMPLE_LOGS, tmp_path, accept=["emty"])

    def test_topic_ids_of_another_form(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="topic_ids gives 'orders' the id '1'"):
            gc.run_nightly(SAMPLE_LOGS, tmp_path, topic_ids={"orders": "1"})

    def test_end_offsets_of_an_until_are_whole_numbers(self) -> None:
        assert until_of({0: 5}).end_offsets == {0: 5}  # type: ignore[union-attr]
        for wrong in ({"0": 5}, {0: -1}, {0: 1.5}):
            with pytest.raises(UsageError, match="until must map"):
                until_of(wrong)  # type: ignore[arg-type]

    def test_until_keeps_the_text_of_the_user(self) -> None:
        until = until_of("2026-11-20T03:00:00Z")
        assert until is not None
        assert (until.text, until.time_ms) == ("2026-11-20T03:00:00Z", 1_795_143_600_000)


def test_the_door_is_lazy() -> None:
    program = "import groupcoord_spark, sys, json; print(json.dumps(sorted({m.split('.')[0] for m in sys.modules})))"
    loaded = json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True).stdout)
    assert not {"pyspark", "pandas", "numpy", "pyarrow", "deltalake"} & set(loaded)
    assert {"run_nightly", "open_warehouse", "decode", "replay", "expire", "rebalances", "register"} <= set(dir(gc))
    with pytest.raises(AttributeError, match="'groupcoord_spark' has no attribute 'nothing'"):
        gc.nothing  # type: ignore[attr-defined]  # noqa: B018


def test_a_first_run_is_known_by_the_compiled_files_that_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from groupcoord_spark.protocol import fast_path

    room = tmp_path / "protocol"
    room.mkdir()
    (room / "loops.py").touch()
    monkeypatch.setattr(fast_path, "__file__", str(room / "fast_path.py"))
    of_package = f"protocol_{hashlib.sha1(str(room).encode()).hexdigest()}"
    for place, named in ((room / "__pycache__", ""), (tmp_path / "named" / of_package, str(tmp_path / "named"))):
        monkeypatch.setenv("NUMBA_CACHE_DIR", named)
        assert "warm-up" in str(fast_path.remark_on_compiling.__wrapped__())
        place.mkdir(parents=True)
        code = place / "loops.some_function-12.py311.nbi"
        code.touch()
        assert fast_path.remark_on_compiling.__wrapped__() is None
        os.utime(code, (1, 1))  # of the release before
        assert fast_path.remark_on_compiling.__wrapped__() is not None


def test_names_of_the_release_before_still_work_and_warn(tmp_path: Path) -> None:
    from tests.warehouse.nights import group, night

    night(tmp_path, "prod", {"groups": [group("g")]})
    with pytest.warns(DeprecationWarning, match="now called run_nightly"):
        assert gc.run_night is gc.run_nightly
    with pytest.warns(DeprecationWarning, match="now called Warehouse.snapshot"):
        snapshot = gc.open_warehouse(tmp_path).night("prod")
    assert snapshot.run == gc.open_warehouse(tmp_path).snapshot().run
    assert "cluster 'prod' as of 2026-01-01" in repr(snapshot) and f"'prod': run {snapshot.run.run_id}" in repr(gc.open_warehouse(tmp_path))
    night(tmp_path, "test", {"groups": [group("g")]})
    with pytest.raises(UsageError, match="holds the clusters 'prod', 'test'"):
        gc.open_warehouse(tmp_path).snapshot()


def test_a_night_is_read_back_as_tables_views_and_answers(tmp_path: Path) -> None:
    from tests.warehouse.nights import AS_OF_MS, DAY_MS, group, night

    night(tmp_path, "prod", {"groups": [group("old")]}, as_of_ms=AS_OF_MS)
    night(tmp_path, "prod", {"groups": [group("new")]}, as_of_ms=AS_OF_MS + DAY_MS)
    warehouse = gc.open_warehouse(str(tmp_path))
    newest, first = warehouse.snapshot("prod"), warehouse.snapshot("prod", at=AS_OF_MS)
    assert newest.table("groups")["group_id"].to_pylist() == ["new"]
    assert first.sql("SELECT group_id FROM groups").to_pylist() == [{"group_id": "old"}]
    assert warehouse.snapshot("prod", run=first.run.run_id).table("groups")["group_id"].to_pylist() == ["old"]
    assert newest.view("idle_groups").num_rows >= 0
    for wrong in (newest.table, newest.view):
        with pytest.raises(UsageError, match="There is no"):
            wrong("nothing")


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ([1, 2], "1 is of the type int"),
        ([], "there is none"),
        (b"logs", "108 is of the type int"),
        (["logs", None], "None is of the type NoneType"),
    ],
)
def test_inputs_that_are_no_paths_are_one_sentence(tmp_path: Path, inputs: Any, what: str) -> None:
    with pytest.raises(InputError, match=rf"The inputs of a run are paths or URIs, or one DataFrame, and {what}\."):
        gc.run_nightly(inputs, tmp_path / "w")
    assert not (tmp_path / "w").exists()
