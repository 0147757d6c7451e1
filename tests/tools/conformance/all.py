"""Compare loading, cleanup, heartbeats and assignors with the classes of a release.

``python -m tests.tools.conformance.all --release 4.4.0``

The jars of the release (27 MB) come from Maven Central the first time, into the user's cache directory. Needs a JDK 17 or newer. Prints a
row for each part (cases, and how many differ) and the first case that differs; exits 1 if any does. What to do with the result:
docs/how-to/a-new-broker-release.md.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from groupcoord_spark.coordinator import semantics_for
from groupcoord_spark.coordinator.refusals import refusals_of_group_value
from groupcoord_spark.coordinator.releases import Release, release_named, version_text
from groupcoord_spark.protocol import DecodeError, decode_key, decode_value, encode_key, encode_value
from groupcoord_spark.protocol.record_types import KeyType, MarkerType
from groupcoord_spark.simulator import release_for
from tests.coordinator.records import GROUP, MINUTE_MS, NOW_MS, RETENTION_MS, Outcome, Record, outcome_here
from tests.integration.kafka import fetched_jars
from tests.pipeline.logs import random_log
from tests.tools.conformance import heartbeats, server_assignors, task_assignors
from tests.tools.conformance.released_jars import CASES, INSTANCE_TWICE, SHARE_KEY_TYPES, STREAMS_KEY_TYPES, is_compared, outcomes_of

CLOCKS = ((NOW_MS, RETENTION_MS), (NOW_MS, 10 * MINUTE_MS), (100 * NOW_MS, RETENTION_MS))
"""Moments and retentions of the cleanups."""
LOG_RECORDS = 80
MOST_TAGS, MOST_ELEMENTS = 10_000, 1_000_000
FIRST_WITH_REQUESTS, FIRST_WITH_SIMPLE, FIRST_WITH_TASKS = (4, 1), (4, 3), (4, 2)
"""First releases whose classes take requests, share out partitions and give tasks as the scripts ask them."""


class Part(NamedTuple):
    """The result of one part: its cases, and the sentences about those that differ; ``not_run``: why it was not run."""

    name: str
    cases: int
    differences: list[str]
    not_run: str | None = None


def loaded(name: str, version: str, cases: Sequence[list[Record]], clocks: Iterable[tuple[int, int]] = CLOCKS[:1]) -> Part:
    """Return the records of each case, loaded and cleaned up at each clock by the release and here."""
    semantics, count, differences = semantics_for("java", version), 0, []
    for now_ms, retention_ms in clocks:
        released = outcomes_of(version, cases, now_ms=now_ms, retention_ms=retention_ms)
        for number, (records, theirs) in enumerate(zip(cases, released, strict=True)):
            ours = outcome_here(records, semantics, now_ms, retention_ms)
            count += 1
            if ours != theirs:
                differences.append(f"case {number} at {now_ms}, retention {retention_ms}: {_unlike(ours, theirs)}")
    return Part(name, count, differences)


def _unlike(ours: Outcome, theirs: Outcome) -> str:
    """Return the fields that are not equal."""
    names = [name for name in vars(ours) if getattr(ours, name) != getattr(theirs, name)]
    return "; ".join(f"{name}: ours {getattr(ours, name)}, theirs {getattr(theirs, name)}" for name in names)


def sequences(version: str, _: int) -> Part:
    """Short hand-written sequences of records."""
    line = release_named(version)[:2]
    cases = [records for name, records in CASES.items() if name != INSTANCE_TWICE and is_compared(line, records)]
    return loaded("hand-written sequences", version, cases)


def random_logs(version: str, scale: int) -> Part:
    """Random logs of all key types, with transactions, damage and tombstones."""
    return loaded("random logs", version, list(_logs(version, 40 * scale)))


def cleanups(version: str, scale: int) -> Part:
    """Cleanups of random logs at several moments."""
    return loaded("cleanup", version, list(_logs(version, 10 * scale, first_seed=10_000)), CLOCKS)


def compaction(version: str, scale: int) -> Part:
    """Random logs of which the log cleaner has had a part: of each key the last record is left, and tombstones may be gone."""
    cases = []
    for seed, records in enumerate(_logs(version, 40 * scale, first_seed=20_000)):
        pick = random.Random(seed)
        end = pick.randrange(len(records) + 1)
        last = {record.key: number for number, record in enumerate(records[:end]) if record.control_type is None}
        drops_tombstones = pick.random() < 0.5
        cases.append(
            [
                record
                for number, record in enumerate(records)
                if number >= end
                or record.control_type is not None
                or (last[record.key] == number and not (record.value is None and drops_tombstones))
            ]
        )
    return loaded("compaction", version, cases)


def _logs(version: str, count: int, first_seed: int = 0) -> Iterator[list[Record]]:
    """Random logs without known differences: see ``released_jars``."""
    release = release_named(version)
    skipped = SHARE_KEY_TYPES if release < (4, 1) else STREAMS_KEY_TYPES if release < (4, 2) else set()
    for seed in range(first_seed, first_seed + count):
        records = [
            Record(one.key, one.value, one.producer_id, 0, one.is_transactional, one.control_type if one.is_control else None, 1_000, at)
            for at, one in enumerate(random_log(random.Random(seed), LOG_RECORDS))
        ]
        yield [record for record in records if _is_comparable(record, release, skipped)]


def _is_comparable(record: Record, release: Release, skipped: set[int]) -> bool:
    if record.control_type is not None:
        return record.control_type in tuple(MarkerType)
    try:
        key = decode_key(record.key)
        value = decode_value(key.key_type, record.value)
    except DecodeError:
        return True
    # A classic group that a loader refuses for its members is kept here.
    is_classic = key.key_type == KeyType.GROUP_METADATA and value is not None
    semantics = semantics_for("java", version_text(release))
    return key.key_type not in skipped and not (is_classic and refusals_of_group_value(value.version, value.fields, semantics))  # type: ignore[union-attr]


def limits(version: str, _: int) -> Part:
    """Values at and beyond the limits of 4.2.2 and 4.4.0."""
    offset_key = encode_key(KeyType.OFFSET_COMMIT, {"group_id": GROUP, "topic": "t", "partition": 0})
    # version 4, offset 42, no leader epoch, no metadata, time 1
    offset_value = bytes.fromhex("0004000000000000002affffffff010000000000000001")
    tags = [_varint(count) + b"".join(_varint(tag) + b"\0" for tag in range(1, count + 1)) for count in (MOST_TAGS, MOST_TAGS + 1)]
    cases = [[Record(offset_key, offset_value + tag_section, offset=0)] for tag_section in (*tags, b"\xff\xff\xff\xff\x0f")]
    member_key = encode_key(KeyType.CONSUMER_GROUP_MEMBER_METADATA, {"group_id": GROUP, "member_id": "m"})
    member = {"instance_id": None, "rack_id": None, "client_id": "", "client_host": "", "subscribed_topic_regex": ""}
    member |= {"rebalance_timeout_ms": 1, "server_assignor": None, "classic_member_metadata": None}
    for count in (MOST_ELEMENTS, MOST_ELEMENTS + 1):
        value = encode_value(KeyType.CONSUMER_GROUP_MEMBER_METADATA, 0, {**member, "subscribed_topic_names": ["t"] * count})
        cases.append([Record(member_key, value, offset=0)])
    return loaded("limits", version, cases)


def _varint(number: int) -> bytes:
    """Return an unsigned varint."""
    text = b""
    while number >= 0x80:
        text, number = text + bytes([number & 0x7F | 0x80]), number >> 7
    return text + bytes([number])


def requests(version: str, scale: int) -> Part:
    """Random heartbeats and transactional commits, answered by the coordinator and by the simulator."""
    name = "heartbeats and commits"
    if release_named(version) < FIRST_WITH_REQUESTS:
        return Part(name, 0, [], "before 4.1 the coordinator takes requests with another context")
    scripts, length = 10 * scale, 60
    return Part(name, scripts * length, list(heartbeats.differences(version, range(scripts), length)))


def assignors(version: str, scale: int) -> Part:
    """Random groups, assigned by range and uniform of the server, and since 4.3 by simple of share groups."""
    names = (("range", "uniform"), ("simple",)) if release_named(version) >= FIRST_WITH_SIMPLE else (("range", "uniform"),)
    if release_named(version) == (4, 0, 0):
        return Part("assignors", 0, [], "uniform of 4.0.0 is another")
    equal, different = server_assignors.compared(_jars(version), 20 * scale, 1, names)
    return Part("assignors", equal + len(different), different)


def tasks(version: str, scale: int) -> Part:
    """Random streams groups, assigned by sticky. Since 4.4 their members report offsets."""
    if release_named(version) < FIRST_WITH_TASKS:
        return Part("task assignor", 0, [], "the class has another interface before 4.2")
    kafka, release = task_assignors.Kafka(_jars(version)), release_for("java", version)
    cases = list(task_assignors.answered(kafka, 10 * scale, 1, reports_offsets=release.has_streams_of_4_4))
    kafka.stop()
    rules = {"passes_over_holders": release.sticky_passes_over_holders, "computes_processes": release.has_streams_of_4_4}
    differences = [lines for lines, target in cases if task_assignors.target_of(lines, **rules) != target]
    return Part("task assignor", len(cases), ["\n".join(lines) for lines in differences])


def _jars(version: str) -> str:
    return str(fetched_jars(f"kafka-group-coordinator-{version}", "kafka-group-coordinator", version))


PARTS: Sequence[Callable[[str, int], Part]] = (sequences, random_logs, compaction, cleanups, limits, requests, assignors, tasks)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", default="4.4.0", help="a release since 4.0.0")
    parser.add_argument("--scale", type=int, default=10, help="1: a minute, 10: the figures in docs/reference/semantics-by-release.md")
    parser.add_argument("--show", type=int, default=1, help="differences of each part that are printed")
    options = parser.parse_args()
    differing = 0
    print(f"{'part':<26}{'cases':>8}{'differ':>8}   Kafka {options.release}", flush=True)
    for run in PARTS:
        part = run(options.release, options.scale)
        differing += len(part.differences)
        print(f"{part.name:<26}{part.cases:>8}{len(part.differences):>8}   {part.not_run or ''}".rstrip(), flush=True)
        for difference in islice(part.differences, options.show):
            print(f"  {difference}")
    raise SystemExit(bool(differing))


if __name__ == "__main__":
    main()
