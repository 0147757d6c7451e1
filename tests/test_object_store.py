"""Input and warehouse on an object store, which is moto's S3 server: several runs, readers, two runs at once, and what can be wrong."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from groupcoord_spark.log import plan_logs
from groupcoord_spark.warehouse import open_warehouse
from tests.cli.warehouse import groupcoord
from tests.conftest import GOLDEN
from tests.log.log_writer import batch, records, write_segment
from tests.object_store import DUMPS, WAREHOUSES, ObjectStore, object_store
from tests.running import rows_of, run, tables_of
from tests.sources.exports import of_sparks_kafka_source, raw_rows, write_parquet
from tests.tools.faults.two_runs import one_run, pauses
from tests.warehouse.nights import few_tables, make_tables

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.local_session import LocalSession

NIGHTS = [GOLDEN / "nights" / number / "logs" for number in ("1", "2")]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    pytest.importorskip("moto.server")
    with object_store(tmp_path_factory.mktemp("moto") / "log") as running, pytest.MonkeyPatch.context() as environment:
        for name, value in running.variables.items():
            environment.setenv(name, value)
        yield running


@pytest.fixture(scope="module")
def spark_with_keys(spark: SparkSession, store: ObjectStore) -> Iterator[SparkSession]:
    """Provide the session of all tests, whose Python workers now have the variables of the store."""
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment.update(store.variables)
    yield spark
    environment.clear()
    environment.update(before)


@pytest.fixture(scope="module")
def warehouses(
    spark_with_keys: SparkSession, local: LocalSession, store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Two runs on the store, and the same runs on the disk. The second one goes on from the first, and workers of Spark read it."""
    uri, place = f"s3a://{WAREHOUSES}/nights", tmp_path_factory.mktemp("nights") / "w"
    for number, (logs, session) in enumerate(zip(NIGHTS, (local, spark_with_keys), strict=True)):
        on_store = run(session, uri, store.upload(logs, f"night-{number}"))
        on_disk = run(local, place, logs)
        assert on_store.records_read == on_disk.records_read > 0
        assert on_store.reading == on_disk.reading
    assert on_store.reading.since_ms is not None
    return uri, place


def test_nights_on_a_store_have_the_rows_of_nights_on_a_disk(warehouses: tuple[str, Path]) -> None:
    uri, local = warehouses
    # topic_health names the place of the log
    not_compared = ("runs", "offsets_partitions", "latest_records", "decode_coverage", "topic_health")
    assert tables_of(uri, but=not_compared) == tables_of(local, but=not_compared)
    assert len(open_warehouse(uri).finished_runs("sample")) == 2


@pytest.mark.parametrize(
    "command",
    [
        ["list", "--state", "--type"],
        ["describe", "--group", "checkout-us"],
        ["why", "--group", "checkout-us"],
        ["sql", "SELECT group_id, state FROM groups ORDER BY group_id"],
        ["timeline", "--group", "checkout-us"],
        ["diff"],
    ],
    ids=lambda command: command[0],
)
def test_commands_print_the_same_from_a_store(warehouses: tuple[str, Path], command: list[str]) -> None:
    on_store, on_disk = (groupcoord(*command, "--warehouse", str(place)) for place in warehouses)
    assert on_store.exit_code == on_disk.exit_code == 0, on_store.stderr
    assert on_store.stdout == on_disk.stdout
    assert on_store.stdout.strip()


def test_a_store_keeps_no_marks_of_directories(warehouses: tuple[str, Path], store: ObjectStore) -> None:
    assert store.keys(WAREHOUSES, "nights/groups/")
    assert not [key for key in store.keys(WAREHOUSES, "nights/") if key.endswith("/")]


def test_upkeep_of_a_warehouse_on_a_store(warehouses: tuple[str, Path]) -> None:
    uri, _ = warehouses
    before = [rows_of(uri, table) for table in ("committed_offsets", "offset_commits")]
    with few_tables():
        result = groupcoord("maintain", "--warehouse", uri)
    assert result.exit_code == 0, result.stderr
    assert [rows_of(uri, table) for table in ("committed_offsets", "offset_commits")] == before


@few_tables()
def test_of_two_runs_at_once_on_a_store_one_finishes(store: ObjectStore, tmp_path: Path) -> None:
    make_tables(tmp_path)
    assert one_run(str(tmp_path), "prod", 1, 0) == "finished"
    uri = store.upload(tmp_path, "two-runs")
    with pauses(7), ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(lambda number: one_run(uri, "prod", number, 0), (2, 3)))
    finished = [number for number, end in zip((2, 3), ends, strict=True) if end == "finished"]
    refused = [end for end in ends if end != "finished"]
    assert finished
    assert all("Another run of cluster 'prod'" in end for end in refused), ends
    assert open_warehouse(uri).read("groups", cluster="prod")["group_id"].to_pylist() in [[f"g{number}"] for number in finished]


def test_a_plan_asks_a_store_for_the_size_and_the_end_of_each_file_and_little_else(store: ObjectStore, tmp_path: Path) -> None:
    for number in range(3):
        for base in range(0, 60, 20):
            write_segment(tmp_path / "logs", [batch(base, records(*[b"key"] * 20))], base_offset=base, offsets_partition=number)
    uri = store.upload(tmp_path / "logs", "planned")
    plan = plan_logs([uri])
    assert [(log.end_offset, len(log.segments)) for log in plan.partitions] == [(60, 3)] * 3
    asked = store.requests("planned/__consumer_offsets-")
    first, later = "planned/__consumer_offsets-0/00000000000000000000.log", "planned/__consumer_offsets-0/00000000000000000020.log"
    assert (asked["GET", first], asked["GET", later]) == (2, 1)
    assert sum(count for (method, key), count in asked.items() if key and method in ("GET", "HEAD")) == 2 * (9 + 3)
    before = store.requests("planned/")
    assert [log.end_offset for log in plan_logs([uri], lambda _: {0: 60, 1: 60, 2: 60}).partitions] == [60] * 3
    asked = store.requests("planned/") - before
    assert ("GET", later) not in asked
    assert ("HEAD", later) not in asked


def test_parquet_on_a_store_is_read(store: ObjectStore, tmp_path: Path) -> None:
    uri = store.upload(write_parquet(tmp_path / "export", of_sparks_kafka_source(raw_rows(NIGHTS[0])), files=3), "export")
    from_store = groupcoord("dump", uri)
    assert from_store.exit_code == 0, from_store.stderr
    assert from_store.stdout == groupcoord("dump", str(tmp_path / "export")).stdout
    assert len(from_store.stdout.splitlines()) > 100


@pytest.mark.parametrize("given", [f"s3://{DUMPS}/night-0", "s3://nowhere/logs"])
def test_a_bucket_that_is_not_there_is_one_sentence(given: str, store: ObjectStore) -> None:
    store.upload(NIGHTS[0], "night-0")
    place = f"s3://{WAREHOUSES}/new" if "nowhere" in given else "s3://nowhere/w"
    for command in (["nightly", given, "--warehouse", place], ["list", "--warehouse", "s3://nowhere/w"]):
        result = groupcoord(*command)
        assert result.exit_code == 1
        assert f"there is no bucket 'nowhere' at {store.url}. Check its name" in result.stderr
        assert result.stderr.count("Error:") == 1
        assert "Traceback" not in result.stderr


def test_keys_that_the_store_refuses_are_one_sentence(store: ObjectStore) -> None:
    with store.checks_keys():
        for command in (["nightly", f"s3://{DUMPS}/night-0"], ["list"], ["dump", f"s3://{DUMPS}/night-0"]):
            place = [] if command[0] == "dump" else ["--warehouse", f"s3://{WAREHOUSES}/nights"]
            result = groupcoord(*command, *place)
            assert result.exit_code == 1
            assert f"the object store at {store.url} refuses the access keys" in result.stderr
            assert "Check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY" in result.stderr
            assert len(result.stderr.strip().splitlines()) == 1


def test_a_store_that_does_not_answer_is_one_sentence(monkeypatch: pytest.MonkeyPatch, store: ObjectStore) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        for command in (["dump", f"s3://{DUMPS}/night-0"], ["list", "--warehouse", f"s3://{WAREHOUSES}/nights"]):
            result = groupcoord(*command)
            assert result.exit_code == 1
            assert f"the object store at {url} does not answer. Check the network" in result.stderr
            assert len(result.stderr.strip().splitlines()) == 1
