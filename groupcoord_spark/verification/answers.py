"""The answers of a broker as one JSON object.

    {"asked_at_ms": [1795244009000, 1795244009400],
     "protocol_types": ["", "consumer"],
     "groups": [{"group": "orders-app", "type": "classic", "state": "Stable", "protocol_type": "consumer", "protocol": "range",
                 "generation": null, "assignment_epoch": null, "leader": null,
                 "members": [{"member_id": "app-1-0f…", "instance_id": null, "client_id": "app-1", "client_host": "/10.0.0.7",
                              "rack_id": null, "epoch": null, "subscribed_topics": ["orders"], "subscribed_regex": null,
                              "assignment": [["orders", [0, 1]]], "target_assignment": null}]}],
     "offsets": [{"group": "orders-app", "topic": "orders", "partition": 0, "offset": 12, "leader_epoch": 3, "metadata": ""}],
     "pending": [{"group": "orders-app", "topic": "orders", "partition": 1}],
     "pending_topics": {"orders-app": ["orders"]},
     "topic_ids": {"orders": "SNUh5tB4Q5G6KuYP3j9F0g"}}

Every part and every field except names and partition numbers is optional; a missing part or a null field is not compared. Exceptions are
``instance_id``, ``rack_id`` and ``subscribed_regex``, where null means that the member has none (for ``rack_id`` only next to subscribed
topics, because a classic member's rack is in its subscription).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Required, TypedDict

import msgspec

from groupcoord_spark.errors import GroupcoordError, UsageError

Row = Mapping[str, Any]

_Partitions = list[tuple[str, list[int]]] | None


class _Member(TypedDict, total=False):
    member_id: Required[str]
    instance_id: str | None
    client_id: str | None
    client_host: str | None
    rack_id: str | None
    epoch: int | None
    subscribed_topics: list[str] | None
    subscribed_regex: str | None
    assignment: _Partitions
    target_assignment: _Partitions
    standby_tasks: _Partitions
    warmup_tasks: _Partitions


class _Group(TypedDict, total=False):
    group: Required[str]
    type: str | None
    state: str | None
    protocol_type: str | None
    protocol: str | None
    generation: int | None
    assignment_epoch: int | None
    leader: str | None
    members: list[_Member] | None


class _Place(TypedDict):
    group: str
    topic: str
    partition: int


class _Offset(_Place, total=False):
    offset: Required[int]
    leader_epoch: int | None
    metadata: str | None


class _AnswerFile(TypedDict, total=False):
    """One object with a broker's answers, part by part."""

    asked_at_ms: tuple[int, int] | None
    protocol_types: frozenset[str] | None
    groups: list[_Group] | None
    offsets: list[_Offset] | None
    pending: list[_Place] | None
    pending_topics: dict[str, list[str]] | None
    topic_ids: dict[str, str] | None
    not_described: dict[str, str] | None
    hidden_topics: list[str] | None


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a broker, with the parts of the file. None: not asked, or not answered."""

    source: str
    """Where the answers come from, for messages."""
    asked_at_ms: tuple[int, int] | None = None
    """When asking began and ended."""
    protocol_types: frozenset[str] | None = None
    """Groups of other protocol types were not asked about; None: all were."""
    groups: Sequence[Row] | None = None
    """All described groups with type and state in Kafka's words. ``assignment`` of a consumer group includes pending revocations; of a
    streams group it holds active tasks by subtopology (standby_tasks and warmup_tasks hold the others)."""
    offsets: Sequence[Row] | None = None
    """Committed offsets, fetched without require_stable; leader_epoch -1: none."""
    pending: Sequence[Row] | None = None
    """Partitions that a fetch with require_stable answers with UNSTABLE_OFFSET_COMMIT: their offset is in an open transaction."""
    pending_topics: Mapping[str, Sequence[str]] | None = None
    """Group -> topics that were queried; None if every topic was."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Topic -> id, of the topics that exist; partitions of others are left out of assignments."""
    not_described: Mapping[str, str] = field(default_factory=dict)
    """Group -> why no broker described the group; it is not compared."""
    hidden_topics: Sequence[str] = field(default_factory=list)
    """Topics that the client may not describe; offsets of these topics are not compared."""


def write_answers(path: str, answers: Answers) -> None:
    """Write the answers to a file for ``read_answers``. Raises GroupcoordError where the file cannot be written."""
    parts = {part.name: getattr(answers, part.name) for part in fields(answers) if part.name != "source"}
    lines = [f"{json.dumps(name)}: {_lines(value)}" for name, value in parts.items() if value is not None]
    try:
        Path(path).write_text("{" + ",\n ".join(lines) + "}\n", encoding="utf-8")
    except OSError as e:
        raise GroupcoordError(f"The answers cannot be written to {path}: {e.strerror}.") from e


def _lines(value: Any) -> str:
    """Return a value as JSON with one line for each object of a list."""
    if isinstance(value, Sequence) and any(isinstance(row, Mapping) for row in value):
        return "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value) + "]"
    return json.dumps(sorted(value) if isinstance(value, frozenset) else value, ensure_ascii=False)


def read_answers(path: str) -> Answers:
    """Read the answers in a file. Raises UsageError with the place that is malformed."""
    try:
        read = msgspec.json.decode(Path(path).read_bytes(), type=_AnswerFile)
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror}. --against takes kafka://HOST:PORT, or a file that --save wrote.") from e
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise UsageError(f"{path} is not a file of a broker's answers: {e}. Expected is one JSON object that --save wrote.") from e
    if not read.keys() & {"groups", "offsets", "pending"}:
        raise UsageError(f"{path} holds no answers of a broker: expected is one JSON object with 'groups', 'offsets' or 'pending'.")
    parts: dict[str, Any] = {name: part for name, part in read.items() if part is not None}
    return Answers(path, **parts)
