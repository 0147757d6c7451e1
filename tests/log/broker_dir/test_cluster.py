"""What records of the metadata log make of a cluster: topics, settings, rules, and the controller's transactions."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from groupcoord_spark.log.broker_dir.cluster import (
    ABORT_TRANSACTION,
    ACCESS_CONTROL_ENTRY,
    BEGIN_TRANSACTION,
    CONFIG,
    END_TRANSACTION,
    PARTITION,
    REMOVE_ACCESS_CONTROL_ENTRY,
    REMOVE_TOPIC,
    TOPIC,
    TOPIC_CONFIG,
    Cluster,
)
from groupcoord_spark.protocol.cluster_metadata import decode_metadata_record, metadata_json
from groupcoord_spark.protocol.definition import write_message
from groupcoord_spark.protocol.messages.cluster_metadata import RECORD_TYPES

RECORDS = Path(__file__).parents[2] / "golden" / "log-directory" / "oracle" / "metadata_records.jsonl.gz"
OLD, NEW, OTHER = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg", "AAAAAAAAAAAAAAAAAAAAAw"


def record(record_type: int, **fields: Any) -> bytes:
    message = RECORD_TYPES[record_type]
    version = message.versions[1]
    values = {field.name: field.absent_value() for field in message.fields} | fields
    return bytes([1, record_type, version]) + write_message(message, version, values)


def cluster(*values: bytes) -> Cluster:
    made = Cluster(is_complete=True)
    for number, value in enumerate(values):
        made.add(value, number)
    return made


def topics(made: Cluster) -> list[tuple[object, ...]]:
    return [tuple(topic) for topic in made.topics()]


def test_every_record_decodes_to_what_kafkas_classes_say() -> None:
    with gzip.open(RECORDS) as lines:
        told = [line for line in map(json.loads, lines) if "value_hex" in line]
    for line in told:
        decoded = decode_metadata_record(bytes.fromhex(line["value_hex"]))
        assert (decoded.record_type, decoded.name, decoded.version) == (line["type"], line["name"], line["version"])
        assert list(metadata_json(decoded).items()) == list(line["data"].items())


def test_topic_that_was_made_anew_is_another_topic() -> None:
    made = cluster(
        record(TOPIC, name="t", topic_id=OLD),
        record(PARTITION, partition_id=0, topic_id=OLD),
        record(CONFIG, resource_type=TOPIC_CONFIG, resource_name="t", name="retention.ms", value="1"),
        record(REMOVE_TOPIC, topic_id=OLD),
        record(TOPIC, name="t", topic_id=NEW),
        *(record(PARTITION, partition_id=number, topic_id=NEW) for number in range(3)),
    )
    assert topics(made) == [(NEW, "t", 3, 4, None), (OLD, "t", 1, 0, 3)]
    assert made.configs == {}


def test_setting_without_a_value_is_removed() -> None:
    setting = {"resource_type": 32, "resource_name": "g", "name": "consumer.session.timeout.ms"}
    assert cluster(record(CONFIG, **setting, value="9"), record(CONFIG, **setting, value=None)).configs == {(32, "g"): {}}


def test_transaction_counts_when_it_ends_and_never_when_it_is_aborted_or_open() -> None:
    topic = record(TOPIC, name="t", topic_id=OLD)
    begin, end, abort = record(BEGIN_TRANSACTION), record(END_TRANSACTION), record(ABORT_TRANSACTION, reason="no")
    assert topics(cluster(begin, topic)) == []
    assert topics(cluster(begin, topic, abort)) == []
    assert topics(cluster(begin, topic, end)) == [(OLD, "t", 0, 1, None)]
    assert topics(cluster(begin, topic, abort, begin, record(TOPIC, name="u", topic_id=NEW), end)) == [(NEW, "u", 0, 4, None)]


def test_rule_is_gone_after_its_removal() -> None:
    rule = record(
        ACCESS_CONTROL_ENTRY, id=OLD, resource_type=3, resource_name="app-", pattern_type=4, principal="User:a", host="*", operation=3,
        permission_type=3,
    )  # fmt: skip
    assert [tuple(acl) for acl in cluster(rule).acls.values()] == [("GROUP", "app-", "PREFIXED", "User:a", "*", "READ", "ALLOW")]
    assert cluster(rule, record(REMOVE_ACCESS_CONTROL_ENTRY, id=OLD)).acls == {}


def test_unknown_types_and_damaged_values_are_counted() -> None:
    made = cluster(bytes([1, 99, 0]), bytes([1, 99, 0]), record(TOPIC, name="t", topic_id=OLD)[:-3], b"", None)  # type: ignore[arg-type]
    assert made.skipped == {"of the unknown type 99": 2, "that do not decode": 3}
    assert not made.is_complete


def test_deleted_topics_get_their_names_from_records_or_from_an_older_snapshot() -> None:
    earlier = cluster(record(TOPIC, name="known", topic_id=OLD), record(REMOVE_TOPIC, topic_id=OLD), record(REMOVE_TOPIC, topic_id=NEW))
    assert earlier.has_unnamed_removals
    earlier.name_removed(cluster(record(TOPIC, name="older", topic_id=NEW), record(PARTITION, partition_id=1, topic_id=NEW)))
    now = Cluster(is_complete=True)
    now.add(record(TOPIC, name="stays", topic_id=OTHER), None)
    earlier.add(record(TOPIC, name="stays", topic_id=OTHER), 7)
    now.learn_history(earlier)
    assert topics(now) == [(OTHER, "stays", 0, 7, None), (OLD, "known", 0, 0, 1), (NEW, "older", 2, None, 2)]
