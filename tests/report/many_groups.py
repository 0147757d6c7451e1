"""A warehouse of very many groups, made without Spark: `python -m tests.report.many_groups DIRECTORY [GROUPS]`.

The ids are as various as a large cluster has them: names of services, numbered consoles, UUIDs. A tenth of the groups has something wrong.
"""

from __future__ import annotations

import random
import sys
import uuid
from pathlib import Path
from typing import Any

from tests.warehouse.nights import AS_OF_MS, DAY_MS, commit, group, member, night, offset

HOUR_MS = 3_600_000
TOPICS = [
    f"{area}.{kind}.v{version}" for area in ("orders", "billing", "stock", "search") for kind in ("events", "changes") for version in (1, 2)
]


def build(place: Path | str, groups: int = 10_000, seed: int = 7) -> None:
    """Write one run with this number of groups: three committed offsets each, ten days of history, a sample of log ends."""
    chance = random.Random(seed)
    rows: dict[str, list[dict[str, Any]]] = {
        name: []
        for name in (
            *("groups", "members", "committed_offsets", "offset_expirations", "group_expirations", "offset_commits", "rebalances"),
            *("log_ends", "offsets_partitions"),
        )
    }
    record = 0
    for number in range(groups):
        kind = number % 4
        ids = (f"service-{number}-{chance.choice(('eu', 'us', 'in'))}", f"console-consumer-{chance.randrange(10**5)}-{number}")
        group_id = ids[kind] if kind < 2 else f"job-{uuid.UUID(int=chance.getrandbits(128))}"
        is_live = chance.random() < 0.6
        state = {"state": "Stable", "member_count": 1} if is_live else {}
        rows["groups"].append(group(group_id, offset_count=3, topic_count=1, generation=5, **state))
        if is_live:
            rows["members"].append(member(group_id, f"app-{uuid.UUID(int=chance.getrandbits(128))}"))
        goes_at_ms = None if is_live else AS_OF_MS + chance.randrange(30 * DAY_MS)
        removed = {"group_id": group_id, "as_of_ms": AS_OF_MS, "removed": False, "removed_at_ms": goes_at_ms, "tombstone_count": 0}
        rows["group_expirations"].append({**removed, "blocked_by": "members" if is_live else None})
        topic = chance.choice(TOPICS)
        for partition in range(3):
            committed = chance.randrange(10**7)
            rows["committed_offsets"].append(offset(group_id, topic, partition, committed, record_offset=record))
            rows["offset_expirations"].append(_expiration(group_id, topic, partition, goes_at_ms))
            for day in range(3):
                at_ms = AS_OF_MS - (2 - day) * DAY_MS * 3 - chance.randrange(20 * HOUR_MS)
                back = chance.random() < 0.01
                moment = {"record_timestamp_ms": at_ms, "commit_timestamp_ms": at_ms}
                rows["offset_commits"].append(
                    commit(
                        record,
                        group_id=group_id,
                        topic=topic,
                        partition=partition,
                        committed_offset=committed - 100 * (2 - day) * (-1 if back else 1),
                        **moment,
                    )
                )
                record += 1
        rows["rebalances"].append(
            {
                "group_id": group_id,
                "offsets_partition": 0,
                "incarnation": 0,
                "record_offset": record,
                "group_type": "classic",
                "record_timestamp_ms": AS_OF_MS - chance.randrange(9 * DAY_MS),
                "kind": "generation",
                "to_generation": 5,
                "member_count": int(is_live),
                "cause": "member_joined",
                "evidence": "",
                "confidence": "likely",
            }
        )
        record += 1
    for topic in TOPICS:
        for partition in range(3):
            ends = {"start_offset": 0, "end_offset": 10**7 + 1000, "sampled_at_ms": AS_OF_MS, "run_id": "sampled"}
            rows["log_ends"].append({"topic": topic, "partition": partition, **ends})
    counts = dict.fromkeys(("quarantined", "control_records", "live_keys", "bytes"), 0)
    part = {"offsets_partition": 0, "incarnation": 0, "first_offset": 0, "history_first_offset": 0, "history_end_offset": record}
    rows["offsets_partitions"].append(
        {**part, **counts, "end_offset": record, "last_stable_offset": record, "records": record, "decoded": record}
    )
    night(place, "large", rows, as_of_ms=AS_OF_MS, records_read=record, records_decoded=record)


def _expiration(group_id: str, topic: str, partition: int, expires_at_ms: int | None) -> dict[str, Any]:
    traps = ("inherits_empty_time", "topic_is_unsubscribed", "is_simple_group", "has_explicit_expiry", "may_come_back", "retention_changed")
    facts = {"as_of_ms": AS_OF_MS, "retention_ms": 7 * DAY_MS, "expires_at_ms": expires_at_ms, "expired": False, "rule": "X-B1"}
    place = {"group_id": group_id, "topic": topic, "partition": partition}
    return {**place, **facts, "blocked_by": "subscribed" if expires_at_ms is None else None, **dict.fromkeys(traps, False)}


if __name__ == "__main__":
    build(sys.argv[1], *map(int, sys.argv[2:]))
