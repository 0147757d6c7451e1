"""Load all sequences of three records over a small alphabet in the coordinator of a release and here, and compare the states.

``python -m tests.tools.conformance.small_scopes --release 4.4.0 --protocol streams``

Each alphabet has the record types of one protocol with few keys and values, their tombstones, and a commit. One JVM loads all sequences of
a protocol, about 10,000. What ``released_jars`` compares is compared: refusals, groups with state, epoch and members, offsets, and the
tombstones of a cleanup. Prints a row for each protocol and the first sequences that differ; exits 1 if any does. Needs a JDK 17 or newer,
and the jars of the release as ``conformance.all`` does. ``--length 2`` takes half a minute.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from itertools import islice, product

from groupcoord_spark.coordinator.releases import release_named
from groupcoord_spark.protocol.record_types import KeyType, MarkerType
from tests.coordinator.records import (
    GOLDEN,
    NOW_MS,
    RETENTION_MS,
    Record,
    aborted,
    classic_group,
    committed,
    consumer_member,
    current_assignment,
    group_epoch,
    member,
    offset_commit,
    own,
    resolved_regex,
    share_assignment,
    share_group_epoch,
    share_member,
    share_target,
    stable_classic_group,
    streams_assignment,
    streams_group_epoch,
    streams_member,
    streams_target,
    subscription,
    target,
    target_metadata,
    tombstone,
    topology,
    transactional_commit,
)
from tests.tools.conformance.all import loaded
from tests.tools.conformance.released_jars import is_compared, outcomes_of

_LATE_MS = NOW_MS - RETENTION_MS // 2
"""A moment that the cleanup of the comparison keeps."""
_TWO_MEMBERS = [member("m", subscription("t")), member("n", subscription("u"), group_instance_id="i")]
_DELETED = tombstone(KeyType.GROUP_METADATA)
SAMPLE_STEP = 43
"""The suite replays every 43rd sequence."""
_LEGACY = KeyType.LEGACY_OFFSET_COMMIT


ALPHABETS: dict[str, dict[str, Record]] = {
    "classic": {
        "off(t0=5)": offset_commit("t0", 5),
        "off(t0=6) lately": offset_commit("t0", 6, commit_ms=_LATE_MS),
        "off(u0=5) expires": offset_commit("u0", 5, expire_ms=NOW_MS - 1),
        "off(u0=6) expires later": offset_commit("u0", 6, expire_ms=NOW_MS + 1),
        "off(t0=7) with a topic id": offset_commit("t0", 7, topic_id="AAAAAAAAAAEAAAAAAAAAAg"),
        "off(t0)T": offset_commit("t0", None),
        "off(u0)T": offset_commit("u0", None),
        "k0(t0=8)": offset_commit("t0", 8, key_type=_LEGACY),
        "k0(t0)T": offset_commit("t0", None, key_type=_LEGACY),
        "k2(Empty)": classic_group(),
        "k2(Empty) lately": classic_group(state_ms=_LATE_MS),
        "k2(Empty) long ago": classic_group(state_ms=1),
        "k2(Empty) version 1": classic_group(version=1),
        "k2(Empty, generation 0)": classic_group(generation=0),
        "k2(Empty, no protocol type)": classic_group(""),
        "k2(Stable, t)": stable_classic_group("t"),
        "k2(Stable, connect)": stable_classic_group(protocol_type="connect"),
        "k2(Stable, m n)": classic_group(members=_TWO_MEMBERS, protocol="range", leader="m"),
        "k2T": _DELETED,
        "h: off(t0=5)": offset_commit("t0", 5, group="h"),
        "h: k2T": tombstone(KeyType.GROUP_METADATA, group="h"),
    },
    "transactions": {
        "off(t0=5)": offset_commit("t0", 5),
        "off(t0=6) lately": offset_commit("t0", 6, commit_ms=_LATE_MS),
        "off(t0)T": offset_commit("t0", None),
        "toff7(t0=7)": transactional_commit(7, "t0", 7),
        "toff7(t0=8) lately": transactional_commit(7, "t0", 8, commit_ms=_LATE_MS),
        "toff7(u0=7)": transactional_commit(7, "u0", 7),
        "toff7(t0)T": transactional_commit(7, "t0", None),
        "toff8(t0=9)": transactional_commit(8, "t0", 9),
        "toff8(t0)T": transactional_commit(8, "t0", None),
        "h: toff7(t0=7)": transactional_commit(7, "t0", 7, group="h"),
        "C7": committed(7),
        "A7": aborted(7),
        "C8": committed(8),
        "A8": aborted(8),
        "k2(Empty)": classic_group(),
        "k2(Stable, t)": stable_classic_group("t"),
        "k2T": _DELETED,
        "k3": group_epoch(),
        "k3T": tombstone(KeyType.CONSUMER_GROUP_METADATA),
        "k17": streams_group_epoch(),
        "off7(t0=5), no transaction": offset_commit("t0", 5, producer=7, transactional=False),
    },
    "consumer": {
        "k3": group_epoch(),
        "k3(epoch 2)": group_epoch(2),
        "k3T": tombstone(KeyType.CONSUMER_GROUP_METADATA),
        "k4T": tombstone(KeyType.CONSUMER_GROUP_PARTITION_METADATA),
        "k5(m)": consumer_member("m", "t"),
        "k5(m, i)": consumer_member("m", "t", instance_id="i"),
        "k5(n, i)": consumer_member("n", "u", instance_id="i"),
        "k5T(m)": tombstone(KeyType.CONSUMER_GROUP_MEMBER_METADATA, member_id="m"),
        "k6(epoch 2)": target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, 2),
        "k6T": tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA),
        "k7(m)": target("m", 0),
        "k7T(m)": tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, member_id="m"),
        "k8(m, epoch 1, 0)": current_assignment("m", 1, 0),
        "k8(m, epoch 2, gives up 0)": current_assignment("m", 2, 1, state=1, revoking=(0,)),
        "k8(n, epoch 2, 0)": current_assignment("n", 2, 0),
        "k8T(m)": tombstone(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
        "k16": resolved_regex("t.*", "t"),
        "k16T": tombstone(KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION, regular_expression="t.*"),
        "off(t0=5)": offset_commit("t0", 5),
        "k2(Empty)": classic_group(),
        "k2(Stable, m n)": classic_group(members=_TWO_MEMBERS, protocol="range", leader="m"),
        "k2T": _DELETED,
    },
    "share": {
        "k10(m)": share_member("m", "t"),
        "k10(n)": share_member("n", "u"),
        "k10T(m)": tombstone(KeyType.SHARE_GROUP_MEMBER_METADATA, member_id="m"),
        "k11": share_group_epoch(),
        "k11(epoch 2)": share_group_epoch(2),
        "k11T": tombstone(KeyType.SHARE_GROUP_METADATA),
        "k12(epoch 2)": target_metadata(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, 2),
        "k12T": tombstone(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA),
        "k13(m)": share_target("m", 0),
        "k13T(m)": tombstone(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, member_id="m"),
        "k14(m, epoch 1)": share_assignment("m", 1, 0),
        "k14(m, epoch 2)": share_assignment("m", 2, 0),
        "k14(n, epoch 2)": share_assignment("n", 2, 0),
        "k14T(m)": tombstone(KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
        "k15": own(
            KeyType.SHARE_GROUP_STATE_PARTITION_METADATA,
            {"initializing_topics": [], "initialized_topics": [], "deleting_topics": []},
        ),
        "k15T": tombstone(KeyType.SHARE_GROUP_STATE_PARTITION_METADATA),
        "off(t0=5)": offset_commit("t0", 5),
        "k2(Empty)": classic_group(),
        "k2(Stable, t)": stable_classic_group("t"),
        "k2T": _DELETED,
        "k3": group_epoch(),
    },
    "streams": {
        "k17": streams_group_epoch(),
        "k17(epoch 2, checked)": streams_group_epoch(2, 0),
        "k17T": tombstone(KeyType.STREAMS_GROUP_METADATA),
        "k19(m)": streams_member("m"),
        "k19(n)": streams_member("n"),
        "k19T(m)": tombstone(KeyType.STREAMS_GROUP_MEMBER_METADATA, member_id="m"),
        "k20(epoch 2)": target_metadata(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, 2),
        "k20T": tombstone(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA),
        "k21(m)": streams_target("m", 0),
        "k21T(m)": tombstone(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, member_id="m"),
        "k22(m, epoch 1, 0)": streams_assignment("m", 1, 0),
        "k22(m, epoch 2, gives up 0)": streams_assignment("m", 2, 1, state=2, revoking=(0,)),
        "k22(n, epoch 2, 0)": streams_assignment("n", 2, 0),
        "k22T(m)": tombstone(KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
        "k23(t)": topology("t"),
        "k23(epoch -1)": topology("t", epoch=-1),
        "k23T": tombstone(KeyType.STREAMS_GROUP_TOPOLOGY),
        "off(t0=5)": offset_commit("t0", 5),
        "k2(Empty)": classic_group(),
        "k2(Stable, t)": stable_classic_group("t"),
        "k2T": _DELETED,
    },
}
"""Protocol -> records by the names that docs/reference/replay-rules.md gives them."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", default="4.4.0", help="a release since 4.0.0")
    parser.add_argument("--protocol", action="append", choices=ALPHABETS, help="may be repeated; default: all")
    parser.add_argument("--length", type=int, default=3, help="records of a sequence")
    parser.add_argument("--show", type=int, default=5, help="differences of each protocol that are printed")
    parser.add_argument("--record", action="store_true", help="write a sample with the answers to tests/golden, and compare nothing")
    options = parser.parse_args()
    line = release_named(options.release)[:2]
    chosen = options.protocol or list(ALPHABETS)
    scopes = {
        protocol: [
            sequence
            for sequence in product(ALPHABETS[protocol].items(), repeat=options.length)
            if is_compared(line, (record for _, record in sequence))
        ]
        for protocol in chosen
    }
    if options.record:
        record_sample(options.release, [sequence for sequences in scopes.values() for sequence in sequences][::SAMPLE_STEP])
        return
    differing = 0
    for protocol, sequences in scopes.items():
        part = loaded(protocol, options.release, [[record for _, record in sequence] for sequence in sequences])
        differing += len(part.differences)
        print(f"{part.name:<14}{part.cases:>8} sequences, {len(part.differences)} differ on {options.release}", flush=True)
        for difference in islice(part.differences, options.show):
            number, _, text = difference.removeprefix("case ").partition(" ")
            print(f"  {_name_of(sequences[int(number)])}: {text}")
    raise SystemExit(bool(differing))


def _name_of(sequence: Sequence[tuple[str, Record]]) -> str:
    return ", ".join(name for name, _ in sequence)


def record_sample(release: str, sequences: Sequence[Sequence[tuple[str, Record]]]) -> None:
    """Write the sequences with the answers of the release to the file that ``tests/coordinator/test_loader_cases.py`` reads."""
    outcomes = outcomes_of(release, [[record for _, record in sequence] for sequence in sequences])
    cases = [
        {
            "case": _name_of(sequence),
            "records": [
                {
                    "producer_id": None if record.producer_id < 0 else record.producer_id,
                    "control": None if record.control_type is None else MarkerType(record.control_type).name,
                    "key_hex": None if record.key is None else record.key.hex(),
                    "value_hex": None if record.value is None else record.value.hex(),
                }
                for _, record in sequence
            ],
            "outcome": outcome.as_json(),
        }
        for sequence, outcome in zip(sequences, outcomes, strict=True)
    ]
    text = json.dumps({"release": release, "cases": cases}, separators=(",", ":"))
    (GOLDEN / "small-scopes.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
