"""What real Kafka answered about the golden logs, in the shape of the tables that must say the same.

Every ``expected_...`` maps a row's key to the known fields; every ``found_...`` maps the same key to the table's row, which it
gets from ``rows``: a function that gives the rows of a table by its name.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from groupcoord_spark.coordinator.semantics import Semantics, semantics_for
from groupcoord_spark.protocol import ZERO_UUID
from tests.conftest import GOLDEN

NOT_TOLD: Final = object()
"""The value of a field that this broker did not know: whatever the table has is right."""

Answers = Mapping[Any, Mapping[str, Any]]
RowsOf = Callable[[str], list[dict[str, Any]]]

OFFSET_KEYS = (0, 1)
PARTITION_METADATA_KEY = 4


@dataclass(frozen=True)
class Corpus:
    """Logs and the answers of the broker that wrote them (or, where their tail was cut, of one that recovered from them)."""

    name: str

    @property
    def folder(self) -> Path:
        return GOLDEN / self.name

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @cached_property
    def facts(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / "corpus.json").read_text(encoding="utf-8")))

    @property
    def semantics(self) -> Semantics:
        return semantics_for(self.facts["coordinator"], self.facts["broker"])

    @property
    def read_at_ms(self) -> int:
        """When the answers were given."""
        folder = next(each for each in self._answered if (each / "read_at_ms.txt").exists())
        return int((folder / "read_at_ms.txt").read_text().split()[0])

    @property
    def _answered(self) -> list[Path]:
        return [self.folder / "oracle", self.folder / "oracle" / "reloaded"]

    def answer(self, file: str) -> Any:
        """Return an answer of the broker; None where it could give none."""
        path = next((folder / file for folder in self._answered if (folder / file).exists()), None)
        return None if path is None else json.loads(path.read_text(encoding="utf-8"))

    @cached_property
    def records(self) -> list[dict[str, Any]]:
        """Every record of the logs as Kafka's own classes read it."""
        with gzip.open(self.folder / "oracle" / "records.jsonl.gz", "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    @cached_property
    def topic_of_id(self) -> dict[str, str]:
        """Topic id -> name of the topics that exist."""
        return {topic_id: topic for topic, topic_id in (self.answer("topic_ids.json") or {}).items()}

    @property
    def lists_only_groups_of_members(self) -> bool:
        """Brokers before 0.10.1 list no group that has offsets alone."""
        return self.semantics.group_rule in (None, "X-G0")


def differences(expected: Answers, found: Answers) -> list[str]:
    """Keys on one side alone, and known fields that differ."""
    return [
        *(f"{key!r} is missing" for key in expected if key not in found),
        *(f"{key!r} is not in the answer" for key in found if key not in expected),
        *(
            f"{key!r}: {field} should be {value!r}, is {found[key][field]!r}"
            for key, fields in expected.items()
            if key in found
            for field, value in fields.items()
            if value is not NOT_TOLD and found[key][field] != value
        ),
    ]


def or_none(value: Any, absent: Any = -1) -> Any:
    """Kafka's word for "none" as NULL."""
    return None if value == absent else value


def if_told(value: Any) -> Any:
    return NOT_TOLD if value is None else value


# Records


def expected_records(corpus: Corpus) -> dict[str, dict[Any, dict[str, Any]]]:
    """History table -> (offsets partition, record offset) -> row."""
    tables: dict[str, dict[Any, dict[str, Any]]] = {"offset_commits": {}, "group_records": {}, "transactions": {}}
    for record in corpus.records:
        place = record["partition"], record["offset"]
        row = {"record_timestamp": or_none(record["timestamp"])}
        key = record["key"]
        if record["control"]:
            result = {"COMMIT": "committed", "ABORT": "aborted"}[record["control"]]
            tables["transactions"][place] = {**row, "result": result, "producer_id": record["producer_id"]}
        elif key is None:
            continue
        elif key["type"] in OFFSET_KEYS and not key.get("unknown"):
            tables["offset_commits"][place] = {**row, **_expected_commit(record)}
        else:
            tables["group_records"][place] = {**row, **_expected_group_record(record)}
    return tables


def _expected_commit(record: Mapping[str, Any]) -> dict[str, Any]:
    key, value = record["key"]["data"], record["value"]
    stored = value["data"] if value else {}
    return {
        "group_id": key["group"],
        "topic": key["topic"],
        "partition": key["partition"],
        "key_version": record["key"]["type"],
        "is_tombstone": value is None,
        "is_transactional": record["transactional"],
        "producer_id": or_none(record["producer_id"]),
        "value_version": value["version"] if value else None,
        "committed_offset": stored.get("offset"),
        "metadata": stored.get("metadata"),
        "leader_epoch": or_none(stored.get("leaderEpoch")),
        "commit_timestamp": or_none(stored.get("commitTimestamp")),
        "expire_timestamp": or_none(stored.get("expireTimestamp")),
        "topic_id": or_none(stored.get("topicId"), ZERO_UUID),
    }


def _expected_group_record(record: Mapping[str, Any]) -> dict[str, Any]:
    key, value = record["key"], record["value"]
    is_known = not key.get("unknown")
    return {
        "key_type": key["type"],
        "key_json": key["data"] if is_known else None,
        "is_tombstone": record["value_hex"] is None,
        # The first two bytes of a value of unknown type need not be a version.
        "value_version": value["version"] if value and is_known else None,
        "value_json": value["data"] if value and "data" in value else None,
    }


def found_records(rows: RowsOf, table: str) -> dict[Any, dict[str, Any]]:
    found = rows(table)
    for row in found:
        row |= {name: None if row[name] is None else json.loads(row[name]) for name in ("key_json", "value_json") if name in row}
    return {(row["offsets_partition"], row["record_offset"]): row for row in found}


# Offsets


def of_offsets(rows: Iterable[dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    return {(row["group_id"], row["topic"], row["partition"]): row for row in rows}


def expected_offsets(corpus: Corpus, *, orphans: bool) -> dict[Any, dict[str, Any]]:
    """Committed offsets of the groups that exist, or of those that do not."""
    groupless = set((corpus.answer("meta.json") or {}).get("groups_without_state", []))
    return {
        (row["group"], row["topic"], row["partition"]): _expected_offset(row)
        for row in corpus.answer("offsets.json")
        if (row["group"] in groupless) == orphans
    }


def _expected_offset(row: Mapping[str, Any]) -> dict[str, Any]:
    # Where the commit's time was known everything was, and null is a value; a live broker answers null for what it does not answer.
    everything_is_told = row.get("commit_timestamp") is not None

    def told(field: str, absent: Any = NOT_TOLD) -> Any:
        return or_none(row[field], absent) if everything_is_told and field in row else NOT_TOLD

    return {
        "committed_offset": row["offset"],
        "metadata": if_told(row.get("metadata")),
        "leader_epoch": or_none(row["leader_epoch"]) if "leader_epoch" in row else NOT_TOLD,
        "commit_timestamp": told("commit_timestamp", -1),
        "expire_timestamp": told("expire_timestamp"),
        "topic_id": told("topic_id"),
        "record_offset": told("record_offset"),
    }


# Groups, members, assignments


def expected_groups(corpus: Corpus) -> dict[Any, dict[str, Any]]:
    return {
        group["group"]: {
            "group_type": if_told(group["type"]),
            "state": if_told(group["state"]),
            "protocol_type": if_told(group.get("protocol_type")),
            "protocol": if_told(group.get("protocol")),
            "generation": if_told(group.get("generation")),
            "leader_id": if_told(group.get("leader")),
            "member_count": len(group["members"]),
            "assignment_epoch": if_told(group.get("assignment_epoch")),
        }
        for group in corpus.answer("groups.json")
    }


def found_groups(corpus: Corpus, rows: RowsOf) -> dict[Any, dict[str, Any]]:
    found = [row for row in rows("groups") if not (corpus.lists_only_groups_of_members and row["is_simple"])]
    # The broker answers with the empty text where a group has no protocol.
    return {row["group_id"]: {**row, "protocol_type": row["protocol_type"] or "", "protocol": row["protocol"] or ""} for row in found}


def expected_members(corpus: Corpus) -> dict[Any, dict[str, Any]]:
    return {
        (group["group"], member["member_id"]): {
            "instance_id": member.get("instance_id") or None,
            "client_id": member["client_id"],
            "client_host": member["client_host"],
            "rack_id": _expected_rack(group, member),
            "member_epoch": if_told(member.get("epoch")),
            "subscribed_topics": NOT_TOLD if member.get("subscribed_topics") is None else set(member["subscribed_topics"]),
            "subscribed_topic_regex": member["subscribed_regex"] or None if "subscribed_regex" in member else NOT_TOLD,
        }
        for group in corpus.answer("groups.json")
        for member in group["members"]
    }


def _expected_rack(group: Mapping[str, Any], member: Mapping[str, Any]) -> Any:
    """Return the rack of a classic member, which is inside of its subscription; None where that cannot be read."""
    rack = member.get("rack_id")
    return NOT_TOLD if rack is None and group["type"] == "classic" and member.get("subscribed_topics") is None else rack


def found_members(corpus: Corpus, rows: RowsOf) -> dict[Any, dict[str, Any]]:
    listed = {group["group"] for group in corpus.answer("groups.json")}
    return {
        (row["group_id"], row["member_id"]): {
            **row,
            "instance_id": row["instance_id"] or None,
            "subscribed_topic_regex": row["subscribed_topic_regex"] or None,
            "subscribed_topics": None if row["subscribed_topics"] is None else set(row["subscribed_topics"]),
        }
        for row in rows("members")
        if row["group_id"] in listed
    }


HOLDINGS = {"assignment": "current", "target_assignment": "target", "standby_tasks": "standby", "warmup_tasks": "warmup"}
"""What a broker says of a member's partitions or tasks."""


def expected_holdings(corpus: Corpus, holding: str) -> dict[Any, set[Any]]:
    """(group, member) -> what it holds, for members with a known answer."""
    return {
        (group["group"], member["member_id"]): {(name, number) for name, numbers in member[holding] for number in numbers}
        for group in corpus.answer("groups.json")
        for member in group["members"]
        if member.get(holding) is not None
    }


def found_holdings(corpus: Corpus, rows: RowsOf, holding: str) -> dict[Any, set[Any]]:
    """Return the same of the members that have any."""
    types = {group["group"]: group["type"] for group in corpus.answer("groups.json")}
    task_types = {"standby_tasks": ("standby",), "warmup_tasks": ("warmup",)}.get(holding, (None, "active"))
    held: dict[Any, set[Any]] = {}
    for row in rows("assignments"):
        kinds = ["target"] if holding == "target_assignment" else ["current"]
        if holding == "assignment" and types.get(row["group_id"]) == "consumer" and corpus.semantics.describes_pending_revocation:
            kinds.append("pending_revocation")
        if row["kind"] in kinds and row["task_type"] in task_types and _is_described(corpus, row):
            name = row["subtopology"] or row["topic"] or corpus.topic_of_id.get(row["topic_id"], row["topic_id"])
            held.setdefault((row["group_id"], row["member_id"]), set()).add((name, row["partition"]))
    return held


def _is_described(corpus: Corpus, row: Mapping[str, Any]) -> bool:
    """Topics that are gone are not described; another of their name, made later, has another id."""
    return not corpus.topic_of_id or row["topic_id"] is None or row["topic_id"] in corpus.topic_of_id


def topics_named_by_the_log(corpus: Corpus) -> dict[str, str]:
    """Topic id -> name as far as offsets and old partition metadata show it, without topics of an id that is gone."""
    names: dict[str, str] = {}
    for record in corpus.records:
        key, value = record["key"], record["value"]
        if not key or not value or "data" not in value:
            continue
        if key["type"] == 1 and "topicId" in value["data"]:
            names[value["data"]["topicId"]] = key["data"]["topic"]
        elif key["type"] == PARTITION_METADATA_KEY:
            names |= {topic["topicId"]: topic["topicName"] for topic in value["data"]["topics"]}
    return {topic_id: topic for topic_id, topic in names.items() if not corpus.topic_of_id or corpus.topic_of_id.get(topic_id) == topic}


# Warnings and expiration


def expected_skips(corpus: Corpus) -> set[tuple[int, int]]:
    """(offsets partition, record offset) of the records whose type this broker does not know."""
    known = corpus.semantics.known_key_types
    return {
        (record["partition"], record["offset"])
        for record in corpus.records
        if record["key"] and not record["control"] and (record["key"].get("unknown") or record["key"]["type"] not in known)
    }


def refused_by_kafka(corpus: Corpus) -> set[tuple[int, int]]:
    """(offsets partition, record offset) of the records over which Kafka's own loader gave up."""
    return {(each["partition"], each["offset"]) for each in corpus.answer("hostile.json") or []}


def tombstone_keys(case: Mapping[str, Any]) -> Counter[str]:
    """Keys of the records that a cleanup appends, as hex."""
    return listed(case, (each["key_hex"] for each in case["tombstones"]))


def listed(case: Mapping[str, Any], keys: Iterable[str]) -> Counter[str]:
    """Return the keys without those of offsets where the answer lists groups alone."""
    is_complete = case.get("tombstones_complete", True)
    return Counter(key for key in keys if is_complete or int(key[:4], 16) not in OFFSET_KEYS)
