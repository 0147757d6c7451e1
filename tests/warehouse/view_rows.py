"""Small tables made by hand, and the rows of a view over them."""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import duckdb

from groupcoord_spark.coordinator.semantics import JAVA
from groupcoord_spark.warehouse import TABLES
from groupcoord_spark.warehouse.sql import names_in
from groupcoord_spark.warehouse.view_texts import VIEWS
from tests.coordinator.simple_offset_events import offset_events_of
from tests.warehouse.nights import AS_OF_MS, assignment, commit, group, marker, member, offset, run_fields

MINUTE_MS, HOUR_MS = 60_000, 3_600_000

_TIMES = {"started_at_ms": AS_OF_MS, "finished_at_ms": AS_OF_MS}
_NEWEST = {"run_id": "r", **_TIMES, "version": "1", "schema_version": 1, "table_versions": {}}


def needed_by(view: str) -> list[str]:
    """Return the view and the views below it, each after those that it reads."""
    needed: list[str] = []
    for name in names_in(VIEWS[view]):
        needed += [below for below in (needed_by(name) if name in VIEWS and name != view else ()) if below not in needed]
    return [*needed, view]


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def rows(view: str, columns: str, /, **tables: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the sorted rows of a view over these tables; the other tables are empty."""
    connection = _duckdb().cursor()  # the tables and views that it gets end with it
    connection.execute("SET TimeZone = 'UTC'")
    needed = needed_by(view)
    tables = {"offset_events": _events_of(tables), **tables}
    for name in {name for below in needed for name in names_in(VIEWS[below])} & {*TABLES}:
        of_table = [{**run_fields(), **_NEWEST}] if name == "runs" else tables.get(name, ())
        rows_of_table = TABLES[name].from_rows([{"cluster": "prod", **row} for row in of_table])
        connection.register(name, rows_of_table if of_table else TABLES[name].empty())
    for name in needed:
        connection.execute(f"CREATE TEMP VIEW {name} AS {VIEWS[name]}")
    return sorted(connection.execute(f"SELECT {columns} FROM {view}").fetchall(), key=str)


def _events_of(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return the rows of offset_events that runs would have written for rows of the history."""
    history = ("offset_commits", "group_records", "transactions")
    clusters = sorted({row.get("cluster", "prod") for name in history for row in tables.get(name, ())})
    events = []
    for cluster in clusters:
        of_cluster = {name: [row for row in tables.get(name, ()) if row.get("cluster", "prod") == cluster] for name in history}
        events += [{"cluster": cluster, **row} for row in offset_events_of(of_cluster, JAVA, 7 * 24 * HOUR_MS)]
    return events


def at(record_offset: int, committed_offset: int, minute: float = 0, **fields: Any) -> dict[str, Any]:
    """Return a commit that was written a number of minutes after AS_OF_MS."""
    moment = AS_OF_MS + int(minute * MINUTE_MS)
    times = {"record_timestamp_ms": moment, "commit_timestamp_ms": moment}
    return commit(record_offset, committed_offset=committed_offset, **{**times, **fields})


def committed_by(commits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows of committed_offsets after these commits, none of them in a transaction."""
    last = {(row["group_id"], row["topic"], row["partition"]): row for row in sorted(commits, key=lambda row: row["record_offset"])}
    names = ("committed_offset", "commit_timestamp_ms", "record_offset")
    return [offset(*key, **{name: row[name] for name in names}) for key, row in last.items()]


def gone(record_offset: int, **fields: Any) -> dict[str, Any]:
    return commit(record_offset, committed_offset=None, is_tombstone=True, value_version=-1, value_size=-1, **fields)


def change(record_offset: int, members: int, **fields: Any) -> dict[str, Any]:
    """Return a row of rebalances."""
    place = {"offsets_partition": 0, "incarnation": 0, "record_offset": record_offset, "record_timestamp_ms": AS_OF_MS}
    kind = {"group_id": "g", "group_type": "classic", "kind": "generation", "to_generation": record_offset, "member_count": members}
    return {**place, **kind, "cause": "member_joined", "evidence": "", **fields}


def record(record_offset: int, **fields: Any) -> dict[str, Any]:
    """Return a row of group_records."""
    place = {"offsets_partition": 0, "incarnation": 0, "record_offset": record_offset, "record_timestamp_ms": AS_OF_MS}
    facts = {"group_id": "g", "key_type": 2, "key_json": "{}", "is_tombstone": False, "is_transactional": False}
    return {**place, **facts, "key_size": 5, "value_size": 20, **fields}


def log_part(**fields: Any) -> dict[str, Any]:
    """Return a row of offsets_partitions."""
    counts = dict.fromkeys(
        ("end_offset", "last_stable_offset", "records", "decoded", "quarantined", "control_records", "live_keys", "bytes"), 0
    )
    return {"offsets_partition": 0, "incarnation": 0, **counts, **fields}


def end(topic: str, partition: int, end_offset: int, hours: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a row of log_ends that was sampled a number of hours after AS_OF_MS."""
    return {
        "topic": topic,
        "partition": partition,
        "end_offset": end_offset,
        "sampled_at_ms": AS_OF_MS + hours * HOUR_MS,
        "run_id": "r",
        **fields,
    }


SHARE_TOPIC_ID = "Uz_G2kQIRWC33YW4WQUDVQ"


_EVENT = {
    "group_id": "g", "topic": "t", "partition": 0, "offsets_partition": 0, "incarnation": 0, "run_id": "odd",
    "certainty": "likely", "evidence": "Odd.", "to_committed_offset": 3, "event_timestamp_ms": AS_OF_MS,
}


def odd_rows() -> dict[str, list[dict[str, Any]]]:
    """Return a cluster whose rows are odd in many ways: table -> rows. Every view of the folder sql has a row of it."""
    old_id, new_id = "MkTRaXlSRfWvFLT1M3hZWA", "Uz_G2kQIRWC33YW4WQUDVQ"
    bits = base64.b64encode(b"l" + struct.pack(">h", 20) + b"\x06\xff\x0f\x00").decode()
    runs = base64.b64encode(b"e" + struct.pack(">4i", 1, 70_000, 3, 2)).decode()
    times = base64.b64encode(struct.pack(">bq", 2, 1_795_231_840_584)).decode()
    of_s = [at(13 + n, 5 * n * n, n, partition=n % 3, group_id="s", incarnation=1) for n in range(2)]
    of_s += [at(15 + n, 5 * n, 5 + n, partition=n % 3, group_id="s", incarnation=1) for n in range(5)]
    commits = [
        *(at(0, 60, topic_id=old_id), at(1, 3, 1, topic_id=new_id), at(2, -1, 2), at(3, 4, 90, partition=1), at(4, 9, 95, partition=1)),
        *(gone(5, partition=2), at(6, 1, producer_id=1, is_transactional=True), at(8, 2, 3, producer_id=2, is_transactional=True)),
        *(at(9, 7, group_id="job-7#0b5e1f0a-6a8c-4f0e-9a51-0c2d3e4f5a6b"), at(0, 5, incarnation=1), at(1, 2, 60 * 50, incarnation=1)),
        at(12, 9, group_id="van-simple-a", topic="orders"),
        *of_s,
        at(2, 8, record_timestamp_ms=None, commit_timestamp_ms=None, incarnation=1, topic="группа"),
    ]
    pending = offset("g", "t", 5, 2, producer_id=2, record_offset=8, record_timestamp_ms=AS_OF_MS)
    offsets = [offset("g", "t", n, 400 * n - 1, metadata=note) for n, note in enumerate([bits, runs, times, "run 1", None])]
    member_of = {"subscribed_topics": ["t", "x"], "session_timeout_ms": 10_000, "user_data": b"x"}
    rebalances = [change(n, 1, to_generation=n % 3, record_timestamp_ms=AS_OF_MS + n * HOUR_MS, members_joined=["m"]) for n in range(5)]
    return {
        "runs": [{**run_fields(), **_NEWEST, "run_id": "odd"}],
        "offset_commits": commits,
        "transactions": [marker(7, 1, "aborted", record_timestamp_ms=AS_OF_MS)],
        "group_records": [record(10), record(11, is_tombstone=True, value_size=-1)],
        "rebalances": rebalances,
        "offset_events": [
            {**_EVENT, "record_offset": 1, "kind": "rewound", "cause": "topic_recreated", "from_committed_offset": 60},
            {**_EVENT, "record_offset": 5, "kind": "removed", "cause": "unknown", "key_type": 1, "group_removed": False},
            {**_EVENT, "record_offset": 13, "kind": "skipped", "cause": "reset", "records_skipped": 5, "counts_are_exact": True},
        ],
        "committed_offsets": [*offsets, offset("idle", "u", 0, 3), *committed_by(of_s)],
        "pending_offsets": [pending],
        "groups": [group("g", protocol="mine", member_count=2, subscribed_topics=["t", "x", "q"]), group("idle"), group("s")],
        "members": [member("g", "m", **member_of), member("g", "n", subscribed_topics=["q"])],
        "assignments": [assignment("g", "m", "t", partition) for partition in range(7)] + [assignment("s", "m", "t", n) for n in range(3)],
        "offsets_partitions": [log_part(incarnation=1, end_offset=3)],
        "log_ends": [end("t", n, 600 + 300 * hours, hours, start_offset=10 * hours) for n in range(3) for hours in (0, 24, 49)],
        "share_offsets": [share_offset(n, start_offset=n or None, delivery_complete_count=n + 1) for n in range(3)],
        "share_batches": [share_batch(1, 1, 4, 2), share_batch(1, 6, 6, 0)],
        "topics": [topic("t", new_id), topic("u", old_id, is_deleted=True, deleted_at_ms=AS_OF_MS)],
        "acls": [acl("User:a", "g"), acl("User:*", "", pattern_type="PREFIXED"), acl("User:a", "*", permission="DENY", host="h")],
    }


def share_offset(partition: int = 0, topic_id: str = SHARE_TOPIC_ID, **fields: Any) -> dict[str, Any]:
    """Return a row of share_offsets."""
    epochs = dict.fromkeys(("state_epoch", "leader_epoch", "snapshot_epoch", "state_partition", "record_offset"), 1)
    return {"group_id": "share", "topic_id": topic_id, "topic": "t", "partition": partition, **epochs, **fields}


def share_batch(partition: int, first_offset: int, last_offset: int, delivery_state: int, **fields: Any) -> dict[str, Any]:
    """Return a row of share_batches."""
    place = {"group_id": "share", "topic_id": SHARE_TOPIC_ID, "topic": "t", "partition": partition}
    batch = {"first_offset": first_offset, "last_offset": last_offset, "delivery_state": delivery_state, "delivery_count": 1}
    return {**place, **batch, **fields}


def topic(name: str, topic_id: str, **fields: Any) -> dict[str, Any]:
    """Return a row of topics, by metadata that has all topics."""
    return {"topic": name, "topic_id": topic_id, "partition_count": 3, "is_deleted": False, "all_topics_known": True, **fields}


def acl(principal: str, resource_name: str, **fields: Any) -> dict[str, Any]:
    """Return a row of acls: by default a group's literal ALLOW of READ from every host."""
    rule = {"resource_type": "GROUP", "pattern_type": "LITERAL", "host": "*", "operation": "READ", "permission": "ALLOW"}
    return {"principal": principal, "resource_name": resource_name, **rule, **fields}
