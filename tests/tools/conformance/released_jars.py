"""What releases of Kafka 4.x make of records, held against their classes: ``pytest tests/tools/conformance/released_jars.py``.

Run by hand, as the jars of each release (27 MB) are fetched from Maven Central the first time, into the user's cache directory. It needs a
JDK 17 or newer: ReplayRecords.java next to this file loads the records into each release's own GroupCoordinatorShard and has it run a
cleanup. Compared are the records that are refused, the groups and their states, the offsets, and the tombstones.

Not compared, because a load alone does not show it or brokers never write it: offsets of streams groups with members in 4.1 (a
member's heartbeat gives the coordinator the topology), and share groups of 4.0 (early access, with records of their own).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from groupcoord_spark.coordinator import semantics_for
from groupcoord_spark.coordinator.releases import LAST_PATCHES, Release, version_text
from groupcoord_spark.coordinator.semantics import TOPOLOGY_DESCRIPTION_PLUGIN
from groupcoord_spark.protocol.record_types import KeyType, MarkerType
from tests.coordinator import test_consumer_groups, test_loader_cases, test_share_and_streams_groups
from tests.coordinator.records import (
    GOLDEN,
    MINUTE_MS,
    NOW_MS,
    RETENTION_MS,
    Outcome,
    Record,
    classic_group,
    committed,
    consumer_member,
    current_assignment,
    group_epoch,
    member,
    offset_commit,
    outcome_here,
    recorded,
    resolved_regex,
    stable_classic_group,
    streams_assignment,
    streams_group_epoch,
    streams_member,
    streams_target,
    target,
    target_metadata,
    tombstone,
    topology,
    transactional_commit,
)
from tests.coordinator.test_releases import described
from tests.integration.kafka import fetched_jars, java

RANDOM_LOG = GOLDEN / "fuzz-1"
PLUGIN_INTERFACE = "org.apache.kafka.coordinator.group.api.streams.StreamsGroupTopologyDescriptionPlugin"

RELEASES = [(*line, patch) for line, last in LAST_PATCHES.items() if line >= (4, 0) for patch in range(last + 1)]

OFFSET_KEY_TYPES = {0, 1}
SHARE_KEY_TYPES = set(range(10, 16))
STREAMS_KEY_TYPES = {17, *range(19, 24)}


MEMBER_LEAVES = [
    tombstone(KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
    tombstone(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, member_id="m"),
    tombstone(KeyType.STREAMS_GROUP_MEMBER_METADATA, member_id="m"),
]
CASES: Mapping[str, list[Record]] = {
    "streams group replaces a simple group": [offset_commit("t0", 5), streams_group_epoch()],
    "tombstone of a streams record replaces a simple group": [offset_commit("t0", 5), tombstone(KeyType.STREAMS_GROUP_TOPOLOGY)],
    "member with a newer epoch takes a partition over, whose owner then has less": [
        current_assignment("m", 5, 0),
        current_assignment("n", 6, 0),
        current_assignment("m", 6),
    ],
    "member with a newer epoch takes a partition over, whose owner then leaves": [
        current_assignment("m", 5, 0),
        current_assignment("n", 6, 0),
        tombstone(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
    ],
    "partition taken at the same epoch and then at a newer one": [
        current_assignment("m", 5, 0),
        current_assignment("n", 5, 0),
        current_assignment("o", 6, 0),
        current_assignment("n", 6, 1),
    ],
    "partition taken at an older epoch, then by a third member": [
        current_assignment("m", 5, 0),
        current_assignment("n", 4, 0),
        current_assignment("o", 5, 0),
        current_assignment("m", 7, 0),
    ],
    "simple group of pending offsets alone": [transactional_commit(7, "t0", 5)],
    "classic group of pending offsets alone": [classic_group(), transactional_commit(7, "t0", 5)],
    "consumer group of pending offsets alone": [group_epoch(), transactional_commit(7, "t0", 5)],
    "pending offset beside an expired one": [offset_commit("t0", 5), transactional_commit(7, "t1", 5)],
    "pending offset over an expired one": [offset_commit("t0", 5), transactional_commit(7, "t0", 6)],
    "offset committed by a transaction expires": [transactional_commit(7, "t0", 5), committed(7)],
    "topology with a negative epoch makes the group": [topology("t", epoch=-1)],
    "topology with a negative epoch beside a member": [streams_member(), topology("t", epoch=-1)],
    "topology with a negative epoch over an older topology": [
        topology("t"),
        streams_member(),
        topology("u", epoch=-2),
        streams_assignment("m", 1),
    ],
    "streams group without members": [streams_group_epoch(), topology("t")],
    "description of a streams group's topology is stored": [described(0), topology("t"), offset_commit("t0", 5)],
    "description of a streams group's topology may be stored": [described(-2), topology("t"), offset_commit("t0", 5)],
    "description of a streams group's topology is gone": [described(0), described(-1), topology("t"), offset_commit("t0", 5)],
    "streams group is ready": [
        streams_member("m"),
        topology("t"),
        streams_group_epoch(2, 0),
        streams_target("m", 0),
        target_metadata(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, 2),
        streams_assignment("m", 2, 0),
    ],
    "streams group is left": [
        streams_member("m"),
        topology("t"),
        streams_group_epoch(2, 0),
        target_metadata(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, 2),
        streams_assignment("m", 2, 0),
        *MEMBER_LEAVES,
    ],
    "consumer group of a target alone": [target("m", 0)],
    "consumer group of a member alone": [consumer_member("m")],
    "consumer group of an assignment alone": [current_assignment("m", 1, 0)],
    "consumer group keeps what it is subscribed to": [
        consumer_member("m", "t"),
        group_epoch(1),
        target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA),
        current_assignment("m", 1, 0),
        offset_commit("t0", 5),
        offset_commit("u0", 5),
    ],
    "consumer group keeps what its expressions found": [
        group_epoch(),
        resolved_regex("t.*", "t"),
        offset_commit("t0", 5),
        offset_commit("u0", 5),
    ],
    "target assignment of a consumer group with a bad epoch": [
        group_epoch(),
        target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, -2),
    ],
    "target assignment of a consumer group with a bad timestamp": [
        group_epoch(),
        target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, 1, -1),
    ],
    "classic group without members": [classic_group(state_ms=NOW_MS - RETENTION_MS), offset_commit("t0", 5)],
    "classic group that became Empty lately": [classic_group(state_ms=NOW_MS), offset_commit("t0", 5)],
    "classic group with members": [stable_classic_group("t"), offset_commit("t0", 5), offset_commit("u0", 5)],
    "classic group with a subscription that cannot be read": [
        classic_group(members=[member(subscription=b"\0\0\xff\xff\xff\xff")], protocol="range", leader="m"),
        offset_commit("t0", 5),
    ],
    "streams group without a record of its own": [streams_member(), topology("t"), streams_assignment("m", 1, 0)],
    "offsets of a group that was deleted": [offset_commit("t0", 5), classic_group(), tombstone(KeyType.GROUP_METADATA)],
    **{name: records for name, (records, _) in test_share_and_streams_groups.REFUSED.items()},
    **{name: records for name, (records, _) in test_consumer_groups.REFUSED.items()},
    **{case["case"]: [test_loader_cases._record(record) for record in case["records"]] for case in test_loader_cases._cases()},
}

INSTANCE_TWICE = "classic members with the same instance id"
"""Kafka refuses this record whole, and here the group is kept (R-2.1): only the refusal is compared."""


def run_coordinator(version: str, lines: Iterable[str], *settings: str) -> list[str]:
    """Return the output of ReplayRecords.java for these lines, with a release's classes. settings: of the broker, name=value."""
    jars = fetched_jars(f"kafka-group-coordinator-{version}", "kafka-group-coordinator", version)
    program = Path(__file__).with_name("ReplayRecords.java")
    options = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=off")
    command = [java(), *options, "-cp", f"{jars}/*", str(program), *settings]
    done = subprocess.run(command, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def outcomes_of(
    version: str, cases: Iterable[list[Record]], *settings: str, now_ms: int = NOW_MS, retention_ms: int = RETENTION_MS
) -> list[Outcome]:
    """Return what the coordinator of a release makes of each case."""
    retention = f"offsets.retention.minutes={retention_ms // MINUTE_MS}"
    lines = (line for case in cases for line in script_of(case, now_ms))
    outcomes: list[Outcome] = []
    for line in run_coordinator(version, lines, retention, *settings):
        word, _, rest = line.partition(" ")
        if word == "case":
            outcomes.append(Outcome())
        elif word == "refused":
            outcomes[-1].refused.add(int(rest.split()[0]))
        elif word == "group":
            group_id, group_type, state, epoch, members = rest.split()
            shown = (group_type.lower(), state.replace("_", "").lower(), int(epoch), bytes.fromhex(members[1:]).decode())
            outcomes[-1].groups[bytes.fromhex(group_id[1:]).decode()] = shown
        elif word == "offset":
            producer_id, *names, partition, committed_offset = rest.split()
            place = (bytes.fromhex(name[1:]).decode() for name in names)
            outcomes[-1].offsets[int(producer_id), *place, int(partition)] = int(committed_offset)
        elif word == "tombstone":
            outcomes[-1].tombstones.append(rest)
    for outcome in outcomes:
        outcome.tombstones.sort()
    return outcomes


def script_of(records: Iterable[Record], now_ms: int) -> Iterable[str]:
    """Yield the records in the lines that ReplayRecords.java reads."""

    def hexadecimal(data: bytes | None) -> str:
        return "-" if data is None else f"={data.hex()}"

    yield f"case {now_ms}"
    for position, record in enumerate(records):
        batch = f"{record.producer_id} {max(record.producer_epoch, 0)}"
        if record.control_type is not None:
            yield f"marker {batch} {'COMMIT' if record.control_type == MarkerType.COMMIT else 'ABORT'}"
        else:
            offset = position if record.offset is None else record.offset
            yield f"record {offset} {batch} {hexadecimal(record.key)} {hexadecimal(record.value)}"
    yield "end"


def is_compared(line: Release, records: Iterable[Record]) -> bool:
    """Return whether a load alone shows what releases of this line do with the records: see the top of this file."""
    key_types = {int.from_bytes(record.key[:2], "big") for record in records if record.key}
    if key_types & SHARE_KEY_TYPES:
        return line != (4, 0)
    return not (line == (4, 1) and key_types & STREAMS_KEY_TYPES and key_types & OFFSET_KEY_TYPES)


@pytest.mark.parametrize(
    ("release", "settings"),
    [*((release, {}) for release in RELEASES), ((4, 4, 0), {TOPOLOGY_DESCRIPTION_PLUGIN: PLUGIN_INTERFACE})],
    ids=[*map(version_text, RELEASES), "4.4.0 with a topology description plugin"],
)
def test_a_release_makes_of_records_what_is_made_of_them_here(release: Release, settings: Mapping[str, str]) -> None:
    version = version_text(release)
    semantics = semantics_for(broker_version=version).with_settings(settings)
    cases = {name: records for name, records in CASES.items() if is_compared(release[:2], records)}
    theirs = dict(zip(cases, outcomes_of(version, cases.values(), *(f"{name}={value}" for name, value in settings.items())), strict=True))
    ours = {name: outcome_here(records, semantics) for name, records in cases.items()}
    for outcomes in (ours, theirs):
        outcomes[INSTANCE_TWICE].groups.clear()
        outcomes[INSTANCE_TWICE].offsets.clear()
        outcomes[INSTANCE_TWICE].tombstones.clear()
    assert {name: (outcome, theirs[name]) for name, outcome in ours.items() if outcome != theirs[name]} == {}


@pytest.mark.parametrize("version", [version_text(release) for release in RELEASES if release >= (4, 2)])
def test_a_release_makes_of_a_random_log_what_is_made_of_it_here(version: str) -> None:
    partitions = recorded(RANDOM_LOG).values()
    semantics = semantics_for(broker_version=version)
    asked = json.loads((RANDOM_LOG / "oracle" / "expired_at.json").read_text(encoding="utf-8"))
    clocks = [{"now_ms": each["now"], "retention_ms": each["retention_ms"]} for each in asked if each["retention_ms"] % MINUTE_MS == 0]
    clock = clocks[len(clocks) // 2]
    theirs = outcomes_of(version, partitions, **clock)
    ours = [outcome_here(records, semantics, **clock) for records in partitions]
    assert ours == theirs
