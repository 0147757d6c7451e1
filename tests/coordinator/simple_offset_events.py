"""Offset events of rows of the history tables, found one record at a time: slow, and without the compiled loop."""

from __future__ import annotations

import base64
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from groupcoord_spark.coordinator.offset_events import (
    ONE_MOMENT_MS,
    TOGETHER_MS,
    Before,
    Change,
    OffsetEvent,
    OffsetEvents,
    OpenRemoval,
    Surroundings,
    judge_removal,
)
from groupcoord_spark.coordinator.rebalances import GroupHistories, GroupRecord
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.pipeline.read.offset_table import hash_of_topic

Row = Mapping[str, Any]


def offset_events_of(
    tables: Mapping[str, Sequence[Row]], semantics: Semantics, retention_ms: int, surroundings: Surroundings | None = None
) -> list[dict[str, Any]]:
    """Return rows of offset_events for rows of offset_commits, group_records and transactions."""
    known = surroundings or Surroundings()
    places: dict[tuple[int, int], list[tuple[int, str, Row]]] = defaultdict(list)
    for table in ("offset_commits", "group_records", "transactions"):
        for row in tables.get(table, ()):
            places[row["incarnation"], row["offsets_partition"]].append((row["record_offset"], table, row))
    events: list[dict[str, Any]] = []
    of_places: dict[tuple[int, int], _Judge] = {}
    for place, steps in places.items():
        judge = of_places[place] = _Judge(semantics, retention_ms, known)
        for _, table, row in sorted(steps, key=lambda step: step[0]):
            judge.take(table, row)
        judge.finish()
        events += [_row(event, place) for event in (*judge.events.events, *(removal.event() for removal in judge.events.removals))]
    removals = [removal.change for judge in of_places.values() for removal in judge.events.open_removals]
    for place, judge in of_places.items():
        for removal in judge.events.open_removals:
            topic, gone_ms, before = removal.change.topic, removal.change.at_ms, removal.change.before
            near = [change for change in removals if change.topic == topic]
            groups = {change.group_id for change in near if abs(change.at_ms - gone_ms) <= TOGETHER_MS}
            at_once = {change.group_id for change in near if abs(change.at_ms - gone_ms) <= ONE_MOMENT_MS}
            kept = sum(other.events.questions.kept(topic, gone_ms) for other in of_places.values())
            sure = {"kept_is_sure": kept > 0, "is_one_moment": len(at_once) > 1}
            assert before is not None, "an open removal has a value before"
            of_removal = topic, before.commit_timestamp_ms, *(getattr(removal, name) for name in OpenRemoval._fields[2:])
            verdict = judge_removal(OpenRemoval(*of_removal), kept, len(groups), known, **sure)
            rule = removal.rule if verdict.cause == "expired" else None
            events.append(_row(removal.event()._replace(**verdict._asdict(), rule=rule, groups_at_once=len(groups)), place))
    return events


def _row(event: OffsetEvent, place: tuple[int, int]) -> dict[str, Any]:
    return {**event._asdict(), "incarnation": place[0], "offsets_partition": place[1], "run_id": "r"}


_DEFAULTS = {
    "generation": 1,
    "protocol_type": "consumer",
    "leader": None,
    "protocol": None,
    "members": (),
    "epoch": 1,
    "assignment_epoch": 1,
    "topics": (),
    "subtopologies": (),
    "topic_partitions": (),
}
"""Fields of values that hand-made rows leave out."""


class _Judge:
    """One offsets partition."""

    def __init__(self, semantics: Semantics, retention_ms: int, surroundings: Surroundings) -> None:
        self._groups = GroupHistories()
        self.events = OffsetEvents(semantics, retention_ms, surroundings, self._groups)
        self._semantics = semantics
        self._values: dict[tuple[str, str, int], tuple[Before | None, bool]] = {}
        self._staged: dict[int, dict[tuple[str, str, int], Row]] = {}

    def take(self, table: str, row: Row) -> None:
        at_ms = -1 if row.get("record_timestamp_ms") is None else row["record_timestamp_ms"]
        if table == "group_records":
            value = None if row["is_tombstone"] else {**_DEFAULTS, **_snake(json.loads(row.get("value_json") or "{}"))}
            names = {"member_id": "m", "regular_expression": "", **_snake(json.loads(row.get("key_json") or "{}"))}
            key = {**names, "group_id": row["group_id"]}
            record = GroupRecord(row["record_offset"], at_ms, row["key_type"], key, value)
            self.events.group_record(record)
            self._groups.apply(record)
        elif table == "transactions":
            for staged in self._staged.pop(row["producer_id"], {}).values():
                self._count(staged, row["record_offset"], at_ms, "commit" if row["result"] == "committed" else "abort")
        elif row["is_tombstone"]:
            for of_producer in self._staged.values():
                of_producer.pop(_key(row), None)
            self._remove(row, at_ms)
        elif row.get("producer_id") is not None:
            self._staged.setdefault(row["producer_id"], {})[_key(row)] = row
        else:
            self._count(row, row["record_offset"], at_ms, "commit")

    def finish(self) -> None:
        self.events.end_write()
        births: dict[str, int] = {}
        for (_, topic, _), (before, is_gone) in self._values.items():
            if before is not None and not is_gone:
                births[topic] = min(before.born_ms, births.get(topic, before.born_ms))
        self.events.questions.births = births

    def _remove(self, row: Row, at_ms: int) -> None:
        before, is_gone = self._values.get(_key(row), (None, False))
        if not is_gone:
            of_key = *_key(row), row["record_offset"], row["record_offset"], at_ms
            self.events.change(Change("tombstone", *of_key, row.get("key_version", 1), before, is_gone))
        self._values[_key(row)] = before, True

    def _count(self, row: Row, at: int, at_ms: int, op: Any) -> None:
        before, is_gone = self._values.get(_key(row), (None, False))
        if before is not None and op == "commit" and not is_gone and row["record_offset"] < before.record_offset:
            return
        topic_id, epoch = row.get("topic_id"), row.get("leader_epoch")
        topic_hash = 0 if topic_id is None else hash_of_topic(topic_id)
        of_key = *_key(row), row["record_offset"], at, at_ms, row.get("key_version", 1), before, is_gone
        values = row["committed_offset"], -1 if epoch is None else epoch, topic_hash, topic_id, row.get("producer_id")
        self.events.change(Change(op, *of_key, *values))
        if op == "commit":
            born_ms = at_ms if before is None or is_gone else before.born_ms
            times = (-1 if row.get(name) is None else row[name] for name in ("commit_timestamp_ms", "expire_timestamp_ms"))
            self._values[_key(row)] = Before(*values[:1], row["record_offset"], values[1], *times, topic_hash, born_ms), False


def _key(row: Row) -> tuple[str, str, int]:
    return row["group_id"], row["topic"], row["partition"]


def _snake(value: Any) -> Any:
    """Return a value in Kafka's JSON with the names and types of the decoders."""
    if isinstance(value, list):
        return [_snake(each) for each in value]
    if not isinstance(value, dict):
        return value
    fields = {re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name): _snake(each) for name, each in value.items()}
    for name in ("subscription", "assignment"):
        if isinstance(fields.get(name), str):
            fields[name] = base64.b64decode(fields[name])
    return fields
