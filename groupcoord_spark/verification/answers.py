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

Every part may be left out and is then not compared, and so may every field but names and numbers of partitions. A field that is absent or
null is not compared either, except ``instance_id``, ``rack_id`` and ``subscribed_regex``: null says there that the member has none (of
``rack_id`` only beside subscribed topics: a classic member's rack is inside of its subscription).
``FORM`` says what each part is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from groupcoord_spark.errors import GroupcoordError, UsageError

Row = Mapping[str, Any]

FORM: Final[Mapping[str, str]] = {
    "asked_at_ms": "when asking began and ended, epoch milliseconds",
    "protocol_types": "groups of other protocol types were not asked about; absent: all were",
    "groups": "every group that was listed; type and state in Kafka's words, assignment of a consumer group with what is yet to be revoked,"
    " of a streams group its active tasks (standby_tasks, warmup_tasks: the others) by subtopology",
    "offsets": "committed offsets, fetched without require_stable; leader_epoch -1: none",
    "pending": "partitions that a fetch with require_stable answers with UNSTABLE_OFFSET_COMMIT: their offset is in an open transaction",
    "pending_topics": "group -> topics of which that was asked; absent: of every one",
    "topic_ids": "topic -> id of the topics that exist; partitions of others are left out of assignments",
    "not_described": "group -> why no broker described the group; it is not compared",
}
"""Part of the object -> description of the part."""

_TEXT, _NUMBER, _TEXTS, _PARTITIONS = "a text", "a whole number", "a list of texts", "a list of [name, [numbers]]"

_MEMBER: Final = {
    "member_id": _TEXT,
    "instance_id": _TEXT,
    "client_id": _TEXT,
    "client_host": _TEXT,
    "rack_id": _TEXT,
    "epoch": _NUMBER,
    "subscribed_topics": _TEXTS,
    "subscribed_regex": _TEXT,
    "assignment": _PARTITIONS,
    "target_assignment": _PARTITIONS,
    "standby_tasks": _PARTITIONS,
    "warmup_tasks": _PARTITIONS,
}
_GROUP: Final = {
    "group": _TEXT,
    "type": _TEXT,
    "state": _TEXT,
    "protocol_type": _TEXT,
    "protocol": _TEXT,
    "generation": _NUMBER,
    "assignment_epoch": _NUMBER,
    "leader": _TEXT,
}
_PLACE: Final = {"group": _TEXT, "topic": _TEXT, "partition": _NUMBER}
_OFFSET: Final = {**_PLACE, "offset": _NUMBER, "leader_epoch": _NUMBER, "metadata": _TEXT}


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a broker, with the parts of the file. None: not asked, or not answered. source: Their origin, for messages."""

    source: str
    asked_at_ms: tuple[int, int] | None = None
    protocol_types: frozenset[str] | None = None
    groups: Sequence[Row] | None = None
    offsets: Sequence[Row] | None = None
    pending: Sequence[Row] | None = None
    pending_topics: Mapping[str, Sequence[str]] | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    not_described: Mapping[str, str] = field(default_factory=dict)


def write_answers(path: str, answers: Answers) -> None:
    """Write the answers to a file for ``read_answers``. Raises GroupcoordError where the file cannot be written."""
    parts: dict[str, Any] = {
        "asked_at_ms": answers.asked_at_ms,
        "protocol_types": None if answers.protocol_types is None else sorted(answers.protocol_types),
        "groups": answers.groups,
        "offsets": answers.offsets,
        "pending": answers.pending,
        "pending_topics": answers.pending_topics,
        "topic_ids": answers.topic_ids or None,
        "not_described": answers.not_described or None,
    }
    lines = [f"{json.dumps(name)}: {_lines(value)}" for name, value in parts.items() if value is not None]
    try:
        Path(path).write_text("{" + ",\n ".join(lines) + "}\n", encoding="utf-8")
    except OSError as e:
        raise GroupcoordError(f"The answers cannot be written to {path}: {e.strerror}.") from e


def _lines(value: Any) -> str:
    """A value as JSON. Each object of a list has a line of its own."""
    if isinstance(value, Sequence) and any(isinstance(row, Mapping) for row in value):
        return "[\n  " + ",\n  ".join(json.dumps(row, ensure_ascii=False) for row in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def read_answers(path: str) -> Answers:
    """The answers in a file. Raises UsageError with the place in the file that does not follow ``FORM``."""
    try:
        read = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as e:
        raise UsageError(f"{path} cannot be read: {e.strerror}. --against takes kafka://HOST:PORT, or a file that --save wrote.") from e
    except UnicodeDecodeError as e:
        raise UsageError(f"{path} is not UTF-8 text, and so no file of a broker's answers.") from e
    except json.JSONDecodeError as e:
        raise UsageError(f"{path}, line {e.lineno}: not JSON: {e.msg}. Expected is one object with a broker's answers.") from e
    if not isinstance(read, dict) or not read.keys() & {"groups", "offsets", "pending"}:
        raise UsageError(f"{path} holds no answers of a broker: expected is one JSON object with 'groups', 'offsets' or 'pending'.")
    check = _Check(path)
    groups = check.rows(read, "groups", _GROUP, ("group",))
    for at, group in enumerate(groups or ()):
        check.rows(group, "members", _MEMBER, ("member_id",), f"groups[{at}].")
    offsets = check.rows(read, "offsets", _OFFSET, ("group", "topic", "partition", "offset"))
    pending = check.rows(read, "pending", _PLACE, ("group", "topic", "partition"))
    asked_at_ms = read.get("asked_at_ms")
    is_range = isinstance(asked_at_ms, list) and len(asked_at_ms) == 2 and all(map(_is_number, asked_at_ms))
    check.that(asked_at_ms is None or is_range, "asked_at_ms", "two whole numbers")
    protocol_types = read.get("protocol_types")
    check.that(protocol_types is None or _are_texts(protocol_types), "protocol_types", _TEXTS)
    pending_topics = read.get("pending_topics")
    is_topics = isinstance(pending_topics, dict) and all(map(_are_texts, pending_topics.values()))
    check.that(pending_topics is None or is_topics, "pending_topics", "an object of lists of topics by group")
    texts = {name: read.get(name) or {} for name in ("topic_ids", "not_described")}
    for name, by_name in texts.items():
        check.that(isinstance(by_name, dict) and _are_texts(list(by_name.values())), name, "an object of texts")
    return Answers(
        path,
        (asked_at_ms[0], asked_at_ms[1]) if asked_at_ms else None,
        None if protocol_types is None else frozenset(protocol_types),
        groups,
        offsets,
        pending,
        pending_topics,
        **texts,
    )


@dataclass(frozen=True, slots=True)
class _Check:
    """Checks of one file. Each raises UsageError with the place in the file."""

    path: str

    def that(self, is_right: bool, place: str, expected: str) -> None:
        if not is_right:
            raise UsageError(f"{self.path}: {place} is not {expected}.")

    def rows(self, parent: Row, name: str, fields: Mapping[str, str], needed: Iterable[str], prefix: str = "") -> list[Row] | None:
        """The list of objects ``parent[name]``, whose known fields have the right type or null; None: there is no such list."""
        rows = parent.get(name)
        if rows is None:
            return None
        place = f"{prefix}{name}"
        self.that(isinstance(rows, list) and all(isinstance(row, dict) for row in rows), place, "a list of objects")
        for at, row in enumerate(rows):
            for field_name, kind in fields.items():
                value = row.get(field_name)
                self.that(value is None or _IS[kind](value), f"{place}[{at}].{field_name}", kind)
            for field_name in needed:
                self.that(row.get(field_name) is not None, f"{place}[{at}].{field_name}", "there; it is needed")
        return list(rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _are_partitions(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, list) and len(entry) == 2 and _is_text(entry[0]) and isinstance(entry[1], list) and all(map(_is_number, entry[1]))
        for entry in value
    )


_IS: Final = {_TEXT: _is_text, _NUMBER: _is_number, _TEXTS: _are_texts, _PARTITIONS: _are_partitions}
