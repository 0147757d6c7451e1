"""Other files of a log directory, compared with the answers of the broker that wrote it; and copies that lack some of them."""

from __future__ import annotations

import json
import random
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.pipeline.beside_the_offsets import BesideTheOffsets, read_beside_the_offsets
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.warehouse import TABLES

CORPUS = Path(__file__).parent.parent / "golden" / "log-directory"
DAY_MS = 86_400_000


def read(logs: Path, **request: Any) -> BesideTheOffsets:
    asked = RunRequest((str(logs),), "/warehouse", "c", as_of_ms=0, retention_ms=DAY_MS, semantics=JAVA, **request)
    return read_beside_the_offsets(asked, InputKind.SEGMENTS, "run")


def rows(beside: BesideTheOffsets, table: str, columns: str) -> set[tuple[Any, ...]]:
    names = columns.split()
    stored = TABLES[table].from_milliseconds(beside.tables[table]).to_pylist()
    return {tuple(row[name] for name in names) for row in stored}


def oracle(name: str) -> Any:
    return json.loads((CORPUS / "oracle" / f"{name}.json").read_text())


def known(number: int) -> int | None:
    return None if number == -1 else number


def copied(tmp_path: Path, change: Callable[[Path], None]) -> BesideTheOffsets:
    logs = tmp_path / "logs"
    shutil.copytree(CORPUS / "logs", logs)
    change(logs)
    return read(logs)


STATE = "group_id topic_id partition start_offset state_epoch leader_epoch snapshot_epoch delivery_complete_count"


def test_share_groups_stand_where_the_broker_loads_them() -> None:
    beside, states = read(CORPUS / "logs"), oracle("share_state")
    assert rows(beside, "share_offsets", f"{STATE} topic state_partition record_offset") == {
        (
            *(state["group"], state["topic_id"], state["partition"], known(state["start_offset"]), state["state_epoch"]),
            *(state["leader_epoch"], state["snapshot_epoch"], known(state["delivery_complete_count"])),
            *(state["topic"], state["state_partition"], state["last_record_offset"]),
        )
        for state in states
    }
    batches = "group_id topic_id partition first_offset last_offset delivery_state delivery_count"
    assert rows(beside, "share_batches", batches) == {
        (state["group"], state["topic_id"], state["partition"], *batch) for state in states for batch in state["state_batches"]
    }
    assert beside.doubts == ()


def test_topics_settings_and_acls_are_those_that_the_broker_answers() -> None:
    beside, topics = read(CORPUS / "logs"), oracle("topics")
    existing = [topic for topic in topics if topic["exists"]]
    assert {row[:3] for row in rows(beside, "topics", "topic topic_id partition_count is_deleted all_topics_known") if not row[3]} == {
        (topic["topic"], topic["topic_id"], len(topic["partitions"])) for topic in existing
    }
    assert {row[-1] for row in rows(beside, "topics", "topic all_topics_known")} == {True}
    assert {row[:2] for row in rows(beside, "topic_configs", "topic name value")} == {
        (topic["topic"], name) for topic in existing for name in topic["configs"]
    }
    assert {row[:2] for row in rows(beside, "group_configs", "group_id name value")} == {
        (group["group"], name) for group in oracle("group_configs") for name in group["configs"]
    }
    columns = "resource_type resource_name pattern_type principal host operation permission"
    words = ("resource_type", "resource", "pattern", "principal", "host", "operation", "permission")
    assert rows(beside, "acls", columns) == {tuple(acl[word] for word in words) for acl in oracle("acls")}
    assert {topic["topic_id"]: topic["topic"] for topic in existing}.items() <= beside.topic_names.items()


def test_transactional_ids_are_those_that_the_broker_lists() -> None:
    columns = "transactional_id producer_id producer_epoch state transaction_timeout_ms"
    assert rows(read(CORPUS / "logs"), "transactional_ids", columns) == {
        (told["transactional_id"], told["producer_id"], told["producer_epoch"], told["state"], told["timeout_ms"])
        for told in oracle("transactions")
    }


PARTS = ("__cluster_metadata-0", "__share_group_state-1", "__transaction_state-0", "replication-offset-checkpoint")


@pytest.mark.parametrize("missing", PARTS)
def test_each_part_is_optional(tmp_path: Path, missing: str) -> None:
    def remove(logs: Path) -> None:
        shutil.rmtree(logs / missing) if (logs / missing).is_dir() else (logs / missing).unlink()

    lacking, whole = copied(tmp_path, remove), read(CORPUS / "logs")
    assert lacking.doubts == ()
    for table in whole.tables:
        count = lacking.tables[table].num_rows
        assert count <= whole.tables[table].num_rows
        if table != "log_ends":
            columns = " ".join(name for name in TABLES[table].by_name if name not in ("cluster", "topic"))
            assert rows(lacking, table, columns) <= rows(whole, table, columns)


def snapshot(logs: Path, offset: int) -> Path:
    return logs / "__cluster_metadata-0" / f"{offset:020}-0000000002.checkpoint"


TOPICS = "topic topic_id partition_count is_deleted"


def test_older_snapshot_and_the_log_after_it_give_the_same_cluster(tmp_path: Path) -> None:
    older = copied(tmp_path, lambda logs: snapshot(logs, 514).unlink())
    whole = read(CORPUS / "logs")
    assert rows(older, "topics", TOPICS) == rows(whole, "topics", TOPICS)
    for table in ("group_configs", "topic_configs", "acls"):
        columns = " ".join(TABLES[table].primary_key[1:])
        assert rows(older, table, columns) == rows(whole, table, columns)


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_damaged_snapshot_is_one_sentence_and_the_one_before_counts(tmp_path: Path, damage: str) -> None:
    def change(logs: Path) -> None:
        path = snapshot(logs, 514)
        data = bytearray(path.read_bytes())
        if damage == "flipped":
            data[len(data) // 2] ^= 1
        path.write_bytes({"cut": bytes(data[:-30]), "flipped": bytes(data), "empty": b""}[damage])

    beside = copied(tmp_path, change)
    assert {row for row in rows(beside, "topics", TOPICS) if not row[3]} == {
        row for row in rows(read(CORPUS / "logs"), "topics", TOPICS) if not row[3]
    }
    assert [doubt.code for doubt in beside.doubts] == ["log_directory_file_not_used"]


def test_metadata_log_without_a_snapshot_tells_only_what_it_has(tmp_path: Path) -> None:
    def change(logs: Path) -> None:
        for path in (logs / "__cluster_metadata-0").glob("*.checkpoint"):
            path.unlink()

    beside, whole = copied(tmp_path, change), read(CORPUS / "logs")
    assert rows(beside, "topics", TOPICS) == rows(beside, "topic_configs", "topic") == set()  # the topics are older than the log
    for table in ("group_configs", "acls"):
        columns = " ".join(TABLES[table].primary_key[1:])
        assert rows(beside, table, columns) <= rows(whole, table, columns)


def test_damaged_batch_of_share_states_makes_their_states_unknown_not_wrong(tmp_path: Path) -> None:
    def change(logs: Path) -> None:
        path = logs / "__share_group_state-0" / "00000000000000000133.log"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    beside, whole = copied(tmp_path, change), read(CORPUS / "logs")
    assert rows(beside, "share_offsets", STATE) < rows(whole, "share_offsets", STATE)
    assert [doubt.code for doubt in beside.doubts] == ["log_directory_file_not_used"]


def test_segment_of_share_states_that_was_not_copied_makes_nothing_wrong(tmp_path: Path) -> None:
    beside = copied(tmp_path, lambda logs: (logs / "__share_group_state-1" / "00000000000000000116.log").unlink())
    assert rows(beside, "share_offsets", STATE) <= rows(read(CORPUS / "logs"), "share_offsets", STATE)


def test_names_of_the_user_win_over_those_of_the_metadata() -> None:
    (topic_id, name), *_ = read(CORPUS / "logs").topic_names.items()
    beside = read(CORPUS / "logs", topic_names={topic_id: f"{name} by the user"})
    assert beside.topic_names[topic_id] == f"{name} by the user"


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Damage a file once: bits, a cut, zeros, bytes put in, a stretch twice; often under a right checksum."""
    changed, at = bytearray(data), rng.randrange(len(data))
    match rng.randrange(5):
        case 0:
            for _ in range(rng.randint(1, 4)):
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        case 1:
            del changed[at:]
        case 2:
            changed[at : at + rng.randint(1, 200)] = bytes(min(200, len(changed) - at))
        case 3:
            changed[at:at] = rng.randbytes(rng.randint(1, 50))
        case _:
            changed[at:at] = changed[at : at + rng.randint(1, 500)]
    return with_right_checksums(changed) if rng.random() < 0.6 else bytes(changed)


def with_right_checksums(data: bytearray) -> bytes:
    """Return the batches of a segment with the checksum of what they hold now, so that the decoders see the damage."""
    at = 0
    while at + 61 <= len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
        if size < 61 or at + size > len(data):
            break
        data[at + 17 : at + 21] = crc32c(bytes(data[at + 21 : at + size])).to_bytes(4, "big")
        at += size
    return bytes(data)


def test_no_damage_of_any_file_ends_the_night(tmp_path: Path) -> None:
    seed = secrets.randbits(32)
    rng = random.Random(seed)
    shutil.copytree(CORPUS / "logs", tmp_path / "logs")
    files = [
        path
        for path in sorted((tmp_path / "logs").rglob("*"))
        if path.is_file() and path.stat().st_size and "__consumer_offsets" not in path.parent.name and path.suffix != ".snapshot"
    ]
    for number in range(50):
        harmed = {path: path.read_bytes() for path in rng.sample(files, 3)}
        for path, whole in harmed.items():
            path.write_bytes(damaged(whole, rng))
        try:
            beside = read(tmp_path / "logs")
            for table, columns in beside.tables.items():
                TABLES[table].from_milliseconds(columns)
        except Exception as error:
            pytest.fail(f"seed {seed}, mutation {number} of {[path.name for path in harmed]}: {type(error).__name__}: {error}")
        for path, whole in harmed.items():
            path.write_bytes(whole)


def test_topics_are_named_by_partition_metadata_where_the_cluster_metadata_is_not_there(tmp_path: Path) -> None:
    def change(logs: Path) -> None:
        shutil.rmtree(logs / "__cluster_metadata-0")
        for partition in (0, 1):
            (logs / f"orders-{partition}").mkdir()
            (logs / f"orders-{partition}" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABB\n")
        (logs / "broken-0").mkdir()
        (logs / "broken-0" / "partition.metadata").write_bytes(b"\xff\x00no metadata")

    names = copied(tmp_path, change).topic_names
    assert names["AAAAAAAAAAAAAAAAAAAABB"] == "orders" and "broken" not in names.values()
