"""A broker of Kafka 4.3.1 with consumers at work: its log is copied, replayed, and its own answers are asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from groupcoord_spark.log import plan_logs, read_segment
from tests.cli.warehouse import groupcoord
from tests.integration.groups import RECORDS, TOPICS, Groups
from tests.integration.kafka import OFFSETS_PARTITIONS, Broker
from tests.running import rows_of, run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

pytestmark = pytest.mark.broker

LISTED = {"running-classic", "running-modern", "empty", "simple", "transactional", "only-open"}
OFFSETS = 6 + 6 + 6 + 2 + 2
OPEN = 3


@pytest.fixture(scope="module")
def warehouse(broker: Broker, groups: Groups, local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide one run of the broker's log, copied while its consumers were members and did not commit; they still do not."""
    groups.rest()
    place = tmp_path_factory.mktemp("night")
    summary = run(local, place / "warehouse", broker.copy_offsets_log(place / "logs"), cluster="real")
    assert (summary.records_quarantined, summary.offsets_partitions) == (0, OFFSETS_PARTITIONS)
    return place / "warehouse"


def test_broker_says_the_same_of_its_groups(broker: Broker, warehouse: Path) -> None:
    done = groupcoord("verify", "--warehouse", str(warehouse), "--against", broker.against)
    assert (done.exit_code, done.stdout) == (0, ""), (done.output, done.exc_info)
    compared = f"No difference in {len(LISTED)} groups, 4 members, {OFFSETS} committed offsets, {OPEN} offsets in open transactions."
    assert done.stderr.startswith(compared), done.stderr


def test_kafkas_own_tool_lists_the_same_groups(broker: Broker, warehouse: Path) -> None:
    ours = groupcoord("list", "--warehouse", str(warehouse)).stdout.split()
    assert set(broker.consumer_groups("--list").split()) == set(ours) == LISTED


def test_kafkas_own_tool_describes_the_same_offsets(broker: Broker, warehouse: Path) -> None:
    # its empty group prints a remark on stderr, as ours does
    theirs = [line.split()[:4] for line in broker.consumer_groups("--describe", "--group", "simple").splitlines() if "simple" in line]
    ours = groupcoord("describe", "--warehouse", str(warehouse), "--group", "simple").stdout
    assert sorted(theirs) == sorted(line.split()[:4] for line in ours.splitlines() if line.startswith("simple"))


@pytest.fixture(scope="module")
def asked(broker: Broker, warehouse: Path) -> Path:
    """Provide one run from the Admin API, in the state of the run over the log."""
    place = warehouse.with_name("asked")
    done = groupcoord("nightly", f"admin://{broker.servers}", "--warehouse", str(place))
    assert done.exit_code == 0, done.output
    assert f"{len(LISTED)} groups, {OFFSETS} committed offsets" in done.stderr and "  unknown   what only the log has" in done.stderr
    return place


def test_a_night_from_the_admin_api_is_what_the_broker_says(broker: Broker, asked: Path) -> None:
    done = groupcoord("verify", "--warehouse", str(asked), "--against", broker.against)
    assert (done.exit_code, done.stdout) == (0, ""), (done.output, done.exc_info)
    assert done.stderr.startswith(f"No difference in {len(LISTED)} groups, 4 members, {OFFSETS} committed offsets, 0 offsets in open")


NOT_TOLD = {
    "groups": {
        *("leader_id", "state_timestamp", "record_offset", "record_timestamp", "regular_expressions"),
        *("pending_offset_count",),  # of the topics that a group is known to read
    },
    "members": {
        *("is_leader", "uses_classic_protocol", "member_state", "previous_member_epoch", "session_timeout_ms"),
        *("record_offset", "rebalance_timeout_ms", "server_assignor", "subscription", "assignment", "user_data"),
    },
    "assignments": set(),
    "committed_offsets": {
        *("commit_timestamp", "expire_timestamp", "topic_id", "producer_id", "producer_epoch", "value_version", "record_offset"),
        *("record_timestamp",),
    },
}
"""Columns that the answers do not have."""
NOT_TOLD_OF_CLASSIC = {"generation"}


@pytest.mark.parametrize("table", NOT_TOLD)
def test_its_tables_are_those_of_the_log_but_for_what_no_answer_has(table: str, asked: Path, warehouse: Path) -> None:
    def told(place: Path) -> list[str]:
        rows = [row for row in rows_of(place, table) if row.get("kind") not in ("owned", "pending_revocation")]
        left_out = NOT_TOLD[table] | {"cluster"}
        return sorted(
            repr(
                {
                    name: cell
                    for name, cell in row.items()
                    if name not in left_out | (set() if "modern" in row["group_id"] else NOT_TOLD_OF_CLASSIC)
                }
            )
            for row in rows
        )

    assert told(asked) == told(warehouse)


def test_it_has_lag(asked: Path) -> None:
    rows = {(row["topic"], row["partition"]): (row["start_offset"], row["end_offset"]) for row in rows_of(asked, "log_ends")}
    assert rows == {(topic, n): (0, RECORDS // count) for topic, count in TOPICS.items() for n in range(count)}
    done = groupcoord("list", "--lag", "--warehouse", str(asked), "--output", "json")
    lags = {row["group"]: row["lag"] for row in map(json.loads, done.stdout.splitlines())}
    assert lags["simple"] == RECORDS // TOPICS["orders"] - 7 + RECORDS // TOPICS["payments"]


def test_answers_are_saved_and_a_commit_after_the_copy_is_a_difference(
    broker: Broker, groups: Groups, warehouse: Path, tmp_path: Path
) -> None:
    saved = str(tmp_path / "answers.json")
    assert groupcoord("verify", "--against", broker.against, "--save", saved, "--warehouse", str(tmp_path / "none")).exit_code == 0
    broker.consumer_groups("--reset-offsets", "--group", "simple", "--topic", "orders:1", "--to-offset", "3", "--execute")

    at_the_copy = groupcoord("verify", "--warehouse", str(warehouse), "--against", saved)
    assert (at_the_copy.exit_code, at_the_copy.stdout) == (0, "")
    now = groupcoord("verify", "--warehouse", str(warehouse), "--against", broker.against, "--output", "json")
    assert now.exit_code == 1
    rows = {row["what"]: (row["ours"], row["theirs"]) for row in map(json.loads, now.stdout.splitlines())}
    # confluent-kafka sends its metadata with the NUL that ends a text in C
    assert rows == {"offset of orders-1": (7, 3), "metadata of orders-1": ("a note\0", "")}


def test_copy_in_the_middle_of_commits_is_read_to_its_last_whole_batch(broker: Broker, groups: Groups, tmp_path: Path) -> None:
    groups.work()
    for n in range(5):
        copied = broker.copy_offsets_log(tmp_path / str(n))
        plan = plan_logs([str(copied)])
        chunks = [chunk for partition in plan.partitions for segment in partition.segments for chunk in read_segment(segment)]
        assert [lost for chunk in chunks for lost in chunk.lost] == []
        assert {doubt.code for chunk in chunks for doubt in chunk.doubts} <= {"tail_truncated", "zero_tail"}
        assert sum(len(chunk.records) for chunk in chunks) > OFFSETS
    groups.rest()
