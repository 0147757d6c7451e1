"""Small warehouses made by hand, through the same functions as a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from shutil import copytree
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from groupcoord_spark.coordinator.offset_events import Surroundings, TopicLife
from groupcoord_spark.coordinator.semantics import semantics_for
from groupcoord_spark.warehouse import TABLES, AddedFile, Run, RunStart, begin_run, commit_run, write_part
from groupcoord_spark.warehouse.view_texts import VIEWS

AS_OF_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z
DAY_MS = 86_400_000

Rows = Mapping[str, Sequence[Mapping[str, Any]]]

FEW_TABLES = (
    *("committed_offsets", "groups", "offset_commits", "group_records", "transactions", "rebalances", "offset_events", "surviving_records"),
    *("quarantined_records", "warnings", "offsets_partitions", "runs", "log_ends"),
)
"""Tables of each kind, in their order: of the state, of history and of each run, with rows of the tests and without."""

EVERY_TABLE = dict(TABLES)

TABLES_OF_A_LOG = EVERY_TABLE.keys() - {
    *("topics", "topic_configs", "group_configs", "transactional_ids", "acls", "share_offsets", "share_batches", "log_ends"),
    "mirror_checkpoints",
}
"""All tables but those that get rows only from a log directory or from a broker's answers."""


@contextmanager
def few_tables(names: Collection[str] = FEW_TABLES) -> Iterator[None]:
    """Warehouses have these tables and no more: what a run and a reader do takes as much CPU as there are tables."""
    with patch.dict(TABLES, {name: table for name, table in TABLES.items() if name in names}, clear=True):
        yield


def all_tables() -> AbstractContextManager[object]:
    """Warehouses have every table, also within ``few_tables``."""
    return patch.dict(TABLES, EVERY_TABLE, clear=True)


@contextmanager
def few_views(names: Collection[str]) -> Iterator[None]:
    """There are these views and no more: Spark takes half a second to read the text of one over Delta tables."""
    with patch.dict(VIEWS, {name: query for name, query in VIEWS.items() if name in names}, clear=True):  # type: ignore[arg-type]
        yield


def run_fields(**fields: Any) -> dict[str, Any]:
    return {
        "as_of_ms": AS_OF_MS,
        "semantics": "java",
        "broker_version": "4.3.1",
        "input_kind": "segments",
        "inputs": ["/dump"],
        "settings": {"offsets.retention.minutes": "10080"},
        "records_read": 0,
        "records_decoded": 0,
        "records_quarantined": 0,
        "bytes_read": 0,
        **fields,
    }


def written(start: RunStart, rows: Rows, fields: Mapping[str, Any] | None = None) -> dict[str, list[AddedFile]]:
    """Return the files of a run, as its workers would have made them. fields: of the run, where its rules matter."""
    rows = _with_offset_events(start, rows, fields or run_fields())
    place, cluster, run_id = start.location.uri, start.cluster, start.run_id
    return {name: write_part(place, TABLES[name], TABLES[name].from_rows(of), cluster, run_id) for name, of in rows.items()}


@cache
def _tables_without_rows(*names: str) -> TemporaryDirectory[str]:
    """Return a warehouse whose tables, which have these names, a first run has made, and no more; it goes with the process."""
    directory = TemporaryDirectory(prefix="groupcoord-tests-")
    begin_run(directory.name, "template")
    return directory


def make_tables(warehouse: Path | str) -> None:
    """Copy the tables of a new warehouse: to make them takes a third of the CPU of a small first run.

    A directory that has something in it, or is on a store, is left as it is.
    """
    if "://" not in str(warehouse) and not any(Path(warehouse).glob("*")):
        copytree(_tables_without_rows(*TABLES).name, warehouse, dirs_exist_ok=True)


def night(warehouse: Path | str, cluster: str, rows: Rows, **fields: Any) -> Run:
    """Return one whole run."""
    make_tables(warehouse)
    return night_that_makes_tables(warehouse, cluster, rows, **fields)


def night_that_makes_tables(warehouse: Path | str, cluster: str, rows: Rows, **fields: Any) -> Run:
    """Return one whole run, which makes the tables itself in an empty directory."""
    start = begin_run(str(warehouse), cluster)
    return commit_run(start, run_fields(**fields), written(start, rows, run_fields(**fields)))


_JUDGED = ("offset_commits", "group_records", "transactions")


def _with_offset_events(start: RunStart, rows: Rows, fields: Mapping[str, Any]) -> Rows:
    """Return the rows with those of offset_events that a run would write for them, after the rows of the runs before."""
    from tests.coordinator.simple_offset_events import offset_events_of

    if "offset_events" in rows or "offset_events" not in TABLES or not any(rows.get(name) for name in _JUDGED):
        return rows
    tables: dict[str, list[Mapping[str, Any]]] = {}
    for name in _JUDGED:
        earlier = TABLES[name].to_milliseconds(start.previous(name)).to_pylist() if start.finished else []
        tables[name] = [{key: None if value == -1 else value for key, value in row.items()} for row in earlier]
        tables[name] += rows.get(name, ())
    new = {(row["offsets_partition"], row["record_offset"]) for name in _JUDGED for row in rows.get(name, ())}
    retention_ms = int(fields["settings"].get("offsets.retention.ms", 7 * DAY_MS))
    topics: dict[str, tuple[TopicLife, ...]] = {}
    for row in rows.get("topics", ()):
        life = TopicLife(row.get("created_at_ms"), row.get("deleted_at_ms"), row["is_deleted"])
        topics[row["topic"]] = (*topics.get(row["topic"], ()), life)
    known = Surroundings({}, topics, bool(topics) and all(row["all_topics_known"] for row in rows["topics"]))
    semantics = semantics_for(fields["semantics"], None)
    events = offset_events_of(tables, semantics, retention_ms, known)
    events = [event for event in events if (event["offsets_partition"], event["record_offset"]) in new]
    return {**rows, "offset_events": events} if events else rows


def group(group_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "group_type": "classic",
        "is_simple": False,
        "state": "Empty",
        "protocol_type": "consumer",
        "generation": 1,
        "member_count": 0,
        "topic_count": 0,
        "offset_count": 0,
        "pending_offset_count": 0,
        "assigned_partition_count": 0,
        "offsets_partition": 0,
        **fields,
    }


def offset(group_id: str, topic: str, partition: int, committed_offset: int, **fields: Any) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "topic": topic,
        "partition": partition,
        "committed_offset": committed_offset,
        "leader_epoch": -1,
        "metadata": "",
        "commit_timestamp_ms": AS_OF_MS,
        "expire_timestamp_ms": -1,
        "value_version": 4,
        "offsets_partition": 0,
        "record_offset": 7,
        **fields,
    }


def commit(record_offset: int, **fields: Any) -> dict[str, Any]:
    """Return a row of offset_commits."""
    return {
        "offsets_partition": 0,
        "incarnation": 0,
        "record_offset": record_offset,
        "record_timestamp_ms": AS_OF_MS,
        "group_id": "g",
        "topic": "t",
        "partition": 0,
        "committed_offset": record_offset,
        "key_version": 1,
        "value_version": 4,
        "is_tombstone": False,
        "is_transactional": False,
        "key_size": 12,
        "value_size": 24,
        **fields,
    }


def marker(record_offset: int, producer_id: int, result: str, **fields: Any) -> dict[str, Any]:
    """Return a row of transactions."""
    place = {"offsets_partition": 0, "incarnation": 0, "record_offset": record_offset}
    return {**place, "producer_id": producer_id, "result": result, **fields}


def member(group_id: str, member_id: str, **fields: Any) -> dict[str, Any]:
    return {"group_id": group_id, "member_id": member_id, "client_id": "app", "client_host": "/10.0.0.1", "offsets_partition": 0, **fields}


def assignment(group_id: str, member_id: str, topic: str, partition: int, **fields: Any) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "member_id": member_id,
        "kind": "current",
        "topic": topic,
        "partition": partition,
        "offsets_partition": 0,
        **fields,
    }
