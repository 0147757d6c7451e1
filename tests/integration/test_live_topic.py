"""The topic read through Spark's Kafka connector, held against the log directory of the same broker."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition

from groupcoord_spark.warehouse import TABLES
from tests.conftest import FOR_FEW_ROWS
from tests.integration.groups import RECORDS, TOPICS, Groups
from tests.integration.kafka import Broker
from tests.running import rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

pytestmark = pytest.mark.broker

IN_TRANSACTIONS = {"transactional", "only-open"}
MARKERS = 2

OF_A_BATCH = {"producer_id", "producer_epoch", "is_transactional"}
"""Columns that are NULL or false throughout in a live run."""

NOT_SHOWN = {
    "committed_offsets": OF_A_BATCH,
    "offset_commits": OF_A_BATCH,
    "group_records": OF_A_BATCH,
    "offsets_partitions": {
        *("records", "decoded", "control_records", "bytes", "last_stable_offset", "latest_records"),
        *("end_file", "end_position", "segment_bytes", "leader_epoch"),  # of segment files
    },
}

CANNOT_BE_EQUAL = {
    *("log_ends", "pending_offsets", "transactions", "surviving_records", "latest_records", "warnings", "runs", "topic_health"),
}
"""Tables that are about what the connector does not show, or about the run; each has a test of its own."""


@dataclass(frozen=True)
class Nights:
    """Two warehouses of one state, and what the run that read it live said."""

    live: Path
    log: Path
    summary: str

    def rows(self, table: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Of the live run, and of the log's."""
        return rows_of(self.live, table), rows_of(self.log, table)


class Ended(NamedTuple):
    """How a command ended."""

    returncode: int
    stderr: str


class CommandsOfOneProcess:
    """``groupcoord`` called again and again in a process of its own: the connector must be there when Java starts, and Java starts once.

    The first run starts it, and it does not end with that run: the others find its session.
    """

    PROGRAM = """
import contextlib, io, json, sys
from groupcoord_spark.cli import main
from groupcoord_spark.pipeline import run_nightly
run_nightly.session_ends_with_block = contextlib.nullcontext
for line in sys.stdin:
    stderr = io.StringIO()
    with contextlib.redirect_stderr(stderr):
        try:
            main(json.loads(line))
        except SystemExit as ended:
            code = ended.code
    print(json.dumps([code, stderr.getvalue()]), flush=True)
"""

    def __init__(self, spark_conf: Path) -> None:
        """spark_conf: a directory for Spark's defaults: no code is compiled for the few rows of these runs."""
        defaults = "".join(f"{name} {value}\n" for name, value in FOR_FEW_ROWS.items())
        (spark_conf / "spark-defaults.conf").write_text(defaults, encoding="utf-8")
        environment, command = {**os.environ, "SPARK_CONF_DIR": str(spark_conf)}, [sys.executable, "-c", self.PROGRAM]
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, *words: str) -> Ended:
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps(words), file=self.process.stdin, flush=True)
        return Ended(*json.loads(self.process.stdout.readline()))


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandsOfOneProcess]:
    commands = CommandsOfOneProcess(tmp_path_factory.mktemp("conf"))
    with commands.process:
        yield commands


@pytest.fixture(scope="module")
def nights(
    broker: Broker, groups: Groups, local: LocalSession, commands: CommandsOfOneProcess, tmp_path_factory: pytest.TempPathFactory
) -> Nights:
    groups.rest()
    place = tmp_path_factory.mktemp("live")
    as_of_s = int(time.time())
    as_of = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(as_of_s))
    copied = broker.copy_offsets_log(place / "logs")
    done = live_night(commands, broker, place / "live", "--with-end-offsets", "--as-of", as_of)
    if missing := re.search(r"unresolved dependency: [^\]]*", done.stderr):
        pytest.skip(f"Spark's Kafka connector cannot be had from Maven Central ({missing[0]})")
    assert done.returncode == 0, done.stderr
    run(local, place / "log", copied, cluster="real", as_of_ms=as_of_s * 1000)
    return Nights(place / "live", place / "log", done.stderr)


def live_night(commands: CommandsOfOneProcess, broker: Broker, warehouse: Path, *options: str) -> Ended:
    return commands.run("nightly", broker.against, "--warehouse", str(warehouse), "--cluster", "real", *options)


def told(rows: list[dict[str, Any]], table: str) -> list[str]:
    """Return the rows of groups without transactions, without the columns that the connector does not fill."""
    left_out = NOT_SHOWN.get(table, set()) | {"run_id"}
    of_groups = [row for row in rows if table in ("offset_commits", "group_records") or row.get("group_id") not in IN_TRANSACTIONS]
    return sorted(repr({name: cell for name, cell in row.items() if name not in left_out}) for row in of_groups)


@pytest.mark.parametrize("table", [table for table in TABLES if table not in CANNOT_BE_EQUAL])
def test_tables_are_equal_but_for_what_the_connector_does_not_show(nights: Nights, table: str) -> None:
    live, log = nights.rows(table)
    assert told(live, table) == told(log, table)


def test_state_holds_groups_of_both_protocols_and_tombstones(nights: Nights) -> None:
    assert {(row["group_id"], row["group_type"], row["state"]) for row in rows_of(nights.live, "groups")} >= {
        ("running-classic", "classic", "Stable"),
        ("running-modern", "consumer", "Stable"),
    }
    tombstones = [row for table in ("offset_commits", "group_records") for row in rows_of(nights.live, table) if row["is_tombstone"]]
    assert "deleted" in {row["group_id"] for row in tombstones}


def test_every_commit_of_a_transaction_counts_as_committed(nights: Nights) -> None:
    def committed(rows: list[dict[str, Any]]) -> set[tuple[str, str, int, int]]:
        names = ("group_id", "topic", "partition", "committed_offset")
        return {tuple(row[name] for name in names) for row in rows if row["group_id"] in IN_TRANSACTIONS}  # type: ignore[misc]

    live, log = nights.rows("committed_offsets")
    assert committed(log) == {("transactional", "orders", 0, 11), ("transactional", "orders", 1, 12)}
    assert committed(live) == {
        ("transactional", "orders", 0, 99),  # aborted
        ("transactional", "orders", 1, 55),  # open
        ("transactional", "payments", 1, 3),  # open
        ("only-open", "payments", 0, 8),  # open
    }
    live, log = nights.rows("pending_offsets")
    assert (live, len(log)) == ([], 3)


def test_markers_are_not_there_and_nothing_else_is_missing(nights: Nights) -> None:
    live, log = nights.rows("transactions")
    assert (live, sorted(row["result"] for row in log)) == ([], ["aborted", "committed"])
    markers = {(row["offsets_partition"], row["record_offset"]) for row in log}

    def survivors(rows: list[dict[str, Any]]) -> set[tuple[int, int]]:
        return {(row["offsets_partition"], each) for row in rows for each in range(row["first_offset"], row["end_offset"])}

    live, log = nights.rows("surviving_records")
    assert survivors(live) == survivors(log) - markers


def test_brokers_say_where_the_logs_of_all_topics_start_and_end(nights: Nights) -> None:
    live, log = nights.rows("log_ends")
    extents = {(row["topic"], row["partition"]): (row["start_offset"], row["end_offset"]) for row in live}
    of_groups = {place: extent for place, extent in extents.items() if place[0] in TOPICS}
    expected = {(topic, n): (0, RECORDS // count) for topic, count in TOPICS.items() for n in range(count)}
    assert (of_groups, log) == (expected, [])
    assert {row["sampled_at"] for row in live} and not any(topic.startswith("__") for topic, _ in extents)


def test_run_says_what_it_cannot_know(nights: Nights) -> None:
    (live,), (log,) = nights.rows("runs")
    assert (live["input_kind"], log["input_kind"]) == ("kafka", "segments")
    assert (dict(live["settings"])["input.lacks"], dict(log["settings"])["input.lacks"]) == ("transactions, leader_epochs", "nothing")
    assert live["records_read"] == log["records_read"] - MARKERS
    assert "  unknown   transactions: no producers, no markers; commits of open and aborted ones count" in nights.summary
    codes = [{row["code"] for row in rows} for rows in nights.rows("warnings")]
    assert codes == [{"transactions_unknown"}, set()]


def test_a_second_night_fetches_what_is_new_and_has_the_state_of_a_whole_one(
    broker: Broker, groups: Groups, nights: Nights, commands: CommandsOfOneProcess
) -> None:
    # The last test of this file: the warehouse has more runs after it.
    groups.commit_as_tools_do("committed-later", [TopicPartition("orders", 0, 3)])
    second = live_night(commands, broker, nights.live)
    assert second.returncode == 0, second.stderr
    fetched = [int(count.replace(",", "")) for count in re.findall(r"read the topic +([\d,]+) rows", second.stderr)]
    (first_records, records) = (row["records_read"] for row in rows_of(nights.live, "runs"))
    assert "  read      incremental: " in second.stderr
    # The newest record of each offsets partition is fetched again: it shows that the log is the same.
    assert 0 < records <= fetched[0] < first_records // 2
    assert "committed-later" in {row["group_id"] for row in rows_of(nights.live, "committed_offsets")}
    whole = live_night(commands, broker, nights.live, "--full")
    assert "compared  with the state that the earlier runs carried on: it is the same" in whole.stderr, whole.stderr
    groups.delete("committed-later")  # other tests count the groups of this broker
