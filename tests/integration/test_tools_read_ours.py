"""What we write for Kafka's own tools, read by them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.cli.warehouse import groupcoord
from tests.integration.groups import Groups
from tests.integration.kafka import Broker, run_class
from tests.running import run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

pytestmark = pytest.mark.broker

Offsets = dict[tuple[str, int], int]

# Not beyond the end of the topics, where the tool would take the end instead.
SAVED: dict[str, Offsets] = {
    "saved": {("orders", 0): 3, ("orders", 3): 10, ("payments", 1): 0},
    'saved, "with" a comma': {("orders", 1): 5},
    "saved too": {("orders", 0): 9, ("payments", 0): 4},
}
LATER = 1


class Committed:
    """Offsets of groups as the broker has them."""

    def __init__(self, broker: Broker) -> None:
        self._admin = AdminClient({"bootstrap.servers": broker.servers, "log_level": 0})

    def of(self, group_id: str) -> Offsets:
        answer = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id].result()
        return {(each.topic, each.partition): each.offset for each in answer.topic_partitions}

    def move_all(self, group_id: str, to: int) -> None:
        """Set every offset of the group to values that another tool might have left."""
        places = [TopicPartition(topic, partition, to) for topic, partition in SAVED[group_id]]
        self._admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id, places)])[group_id].result()

    def delete_all(self) -> None:
        for deleted in self._admin.delete_consumer_groups(list(SAVED)).values():
            deleted.result()


@pytest.fixture(scope="module")
def committed(broker: Broker, groups: Groups) -> Iterator[Committed]:
    """Create the groups of SAVED, and delete them again."""
    for group_id, offsets in SAVED.items():
        groups.commit_as_tools_do(group_id, [TopicPartition(*place, offset) for place, offset in offsets.items()])
    of_groups = Committed(broker)
    yield of_groups
    of_groups.delete_all()


@pytest.fixture(scope="module")
def warehouse(
    broker: Broker, groups: Groups, committed: Committed, local: LocalSession, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Provide a run of the broker's log with the groups of SAVED as they are there."""
    place = tmp_path_factory.mktemp("saved")
    run(local, place / "warehouse", broker.copy_offsets_log(place / "logs"), cluster="real", as_of_ms=time.time_ns() // 1_000_000)
    return place / "warehouse"


@pytest.mark.parametrize("lost", [["saved"], list(SAVED)], ids=["one group", "several groups"])
def test_offsets_of_a_night_are_set_again(
    broker: Broker, committed: Committed, warehouse: Path, tmp_path: Path, lost: list[str]
) -> None:
    for group_id in SAVED:
        committed.move_all(group_id, LATER)
    named = [word for group_id in lost for word in ("--group", group_id)]
    exported = groupcoord("export-offsets", "--warehouse", str(warehouse), *named)
    assert exported.exit_code == 0, exported.output
    plan = tmp_path / "offsets.csv"
    plan.write_text(exported.stdout)

    broker.consumer_groups("--reset-offsets", *named, "--from-file", str(plan), "--execute")

    for group_id, offsets in SAVED.items():
        assert committed.of(group_id) == (offsets if group_id in lost else dict.fromkeys(offsets, LATER))


def test_tombstones_of_an_expiry_are_read_by_kafkas_own_dump(broker: Broker, warehouse: Path, tmp_path: Path) -> None:
    later = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 86_400))
    rules = ["--as-of", later, "--offsets-retention", "1h", "--assume-members-gone"]
    done = groupcoord("expire", "--warehouse", str(warehouse), *rules, "--write-tombstones", str(tmp_path / "plan"), "--codec", "lz4")
    assert done.exit_code == 0, done.output
    said = re.search(r"(\d+) tombstones in (\d+) batches of (\d+) offsets partitions", done.stderr)
    assert said is not None, done.stderr
    tombstones, batches, partitions = map(int, said.groups())
    segments = sorted((tmp_path / "plan").glob("__consumer_offsets-*/*.log"))
    assert len(segments) == partitions > 1

    files = ",".join(map(str, segments))
    dumped = run_class(broker.jars, "org.apache.kafka.tools.DumpLogSegments", "--offsets-decoder", "--files", files).splitlines()

    heads = [line for line in dumped if line.startswith("baseOffset:")]
    records = [line for line in dumped if line.startswith("| offset:")]
    assert (len(heads), len(records)) == (batches, tombstones)
    assert all("isvalid: true" in line and "compresscodec: lz4" in line and "producerId: -1 " in line for line in heads)
    assert all(line.endswith("payload: <DELETE>") for line in records)
    assert {group_id for group_id in SAVED if any(f'"group":"{group_id}"' in line.replace("\\", "") for line in records)} == set(SAVED)
    assert not [line for line in dumped if re.search("error|mismatch|corrupt|non-consecutive", line, re.IGNORECASE)]
