"""Logs that claim or hold too much: a run over each of them, with the most memory that all of its processes had at one time.

Each log begins and ends with a commit, which must be in the tables. What cannot be decoded must be in quarantined_records, and the command
must end with exit code 0, or with 1 and one sentence. ``python -m tests.tools.faults.hostile_sizes``
"""

from __future__ import annotations

import argparse
import os
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from groupcoord_spark.protocol.definition import encode_key, encode_value
from groupcoord_spark.protocol.record_types import KeyType
from groupcoord_spark.warehouse import open_warehouse
from tests.log.log_writer import GZIP, LZ4, SNAPPY, ZSTD, Rec, batch, compress, message, varint
from tests.tools.faults.damage import is_one_sentence
from tests.tools.faults.running import PROCESSES, Command, nightly

MIB = 1 << 20
SECONDS_BETWEEN_LOOKS = 0.1
PATIENCE_SECONDS = 1200
CODECS = {"gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
TINY_RECORD = b"\x0c\x00\x00\x00\x01\x01\x00"
"""A record without key and value, of seven bytes."""


def commit(base_offset: int, group_id: str) -> bytes:
    """Return a batch with one commit of the group."""
    key = encode_key(KeyType.OFFSET_COMMIT, {"group_id": group_id, "topic": "t", "partition": 0})
    fields = {"committed_offset": 1, "leader_epoch": -1, "metadata": "", "commit_timestamp_ms": 1_795_248_000_000}
    return batch(base_offset, [Rec(key, encode_value(KeyType.OFFSET_COMMIT, 3, fields))])


def _classic_group(group_id: str, members: int, subscription: bytes) -> Rec:
    of_client = {"group_instance_id": None, "client_id": "app", "client_host": "/10.0.0.1"}
    of_session = {"rebalance_timeout_ms": 1, "session_timeout_ms": 1, "subscription": subscription, "assignment": b""}
    of_group = {"protocol_type": "consumer", "generation": 1, "protocol": "range", "leader": "member-0"}
    each = [{**of_client, **of_session, "member_id": f"member-{n}"} for n in range(members)]
    fields = {**of_group, "current_state_timestamp_ms": 1_795_248_000_000, "members": each}
    key = encode_key(KeyType.GROUP_METADATA, {"group_id": group_id})
    return Rec(key, encode_value(KeyType.GROUP_METADATA, 3, fields))


def _modern_members(group_id: str, members: int) -> Iterator[bytes]:
    key = encode_key(KeyType.CONSUMER_GROUP_METADATA, {"group_id": group_id})
    yield batch(1, [Rec(key, encode_value(KeyType.CONSUMER_GROUP_METADATA, 0, {"epoch": 1}))])
    of_client = {"instance_id": None, "rack_id": None, "client_id": "app", "client_host": "/10.0.0.1", "classic_member_metadata": None}
    of_group = {"subscribed_topic_names": ["t"], "subscribed_topic_regex": None, "rebalance_timeout_ms": 1, "server_assignor": None}
    fields = {**of_client, **of_group}
    value = encode_value(KeyType.CONSUMER_GROUP_MEMBER_METADATA, 0, fields)
    for first in range(0, members, 500):
        keys = (
            encode_key(KeyType.CONSUMER_GROUP_MEMBER_METADATA, {"group_id": group_id, "member_id": f"member-{n}"})
            for n in range(first, min(first + 500, members))
        )
        yield batch(2 + first, [Rec(each, value, offset_delta=n) for n, each in enumerate(keys)])


def _modern_epochs(group_id: str, members: int, epochs: int) -> Iterator[bytes]:
    """Yield the records of a group: its members, and epochs where one member changes its subscription."""
    yield from _modern_members(group_id, members)
    member_type, epoch_type, target_type = (
        KeyType.CONSUMER_GROUP_MEMBER_METADATA,
        KeyType.CONSUMER_GROUP_METADATA,
        KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA,
    )
    of_client = {"instance_id": None, "rack_id": None, "client_id": "app", "client_host": "/10.0.0.1", "classic_member_metadata": None}
    of_group = {"subscribed_topic_regex": None, "rebalance_timeout_ms": 1, "server_assignor": None}
    group = {"group_id": group_id}
    for epoch in range(epochs):
        member = {**of_client, **of_group, "subscribed_topic_names": [f"t{epoch}"]}
        recs = [
            Rec(encode_key(member_type, {**group, "member_id": f"member-{epoch % members}"}), encode_value(member_type, 0, member)),
            Rec(encode_key(epoch_type, group), encode_value(epoch_type, 0, {"epoch": epoch + 2}), offset_delta=1),
            Rec(encode_key(target_type, group), encode_value(target_type, 0, {"assignment_epoch": epoch + 2}), offset_delta=2),
        ]
        yield batch(2 + members + 3 * epoch, recs, base_timestamp=1_795_248_000_000 + epoch)


def _bombs(codec: int, size: int) -> list[bytes]:
    """Ten batches whose records are this number of zeros each, compressed."""
    body = compress(codec, bytes(size))
    return [batch(offset, codec=codec, body=body, count=1) for offset in range(1, 11)]


def _wrapper_bomb(codec: int, size: int) -> bytes:
    return message(1, None, compress(codec, bytes(size)), attributes=codec)


def _log(path: Path, between: Iterator[bytes] | list[bytes], zeros: int = 0) -> None:
    """Write a log with a commit, hostile records, a commit, and zeros that take no space on the disk."""
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.write(commit(0, "first"))
        for entry in between:
            file.write(entry)
        file.write(commit(1_000_000, "last"))
        if zeros:
            file.truncate(file.tell() + zeros)


Write = Callable[[Path, int], None]
"""Writes a log, of the size of the campaign divided by a number."""

CASES: Mapping[str, Write] = {
    "two commits": lambda path, less: _log(path, []),
    **{
        f"{name} bombs of 1 GiB, ten": lambda path, less, codec=codec: _log(path, _bombs(codec, 1024 * MIB // less))  # type: ignore[misc]
        for name, codec in CODECS.items()
    },
    "gzip bomb in an old message": lambda path, less: _log(path, [_wrapper_bomb(GZIP, 1024 * MIB // less)]),
    "9 million records in 90 KB": lambda path, less: _log(
        path, [batch(1, codec=GZIP, body=compress(GZIP, TINY_RECORD * (9_000_000 // less)), count=9_000_000 // less)]
    ),
    "2 GB of zeros at the end": lambda path, less: _log(path, [], 2048 * MIB // less),
    "2 GB of zeros between": lambda path, less: _between_zeros(path, 2048 * MIB // less),
    "2 GB of zeros alone": lambda path, less: _only_zeros(path, 2048 * MIB // less),
    "a record of 100 MB that decodes": lambda path, less: _log(path, [batch(1, [_classic_group("large", 1, bytes(100_000_000 // less))])]),
    "a record of 100 MB that does not": lambda path, less: _log(path, [batch(1, [Rec(value=bytes(100_000_000 // less))])]),
    "a record of 100 MB, compressed": lambda path, less: _log(
        path, [batch(1, [_classic_group("large", 1, os.urandom(50_000) * (2000 // less))], codec=ZSTD)]
    ),
    "a classic group of 65,000 members": lambda path, less: _log(path, [batch(1, [_classic_group("large", 65_000 // less, bytes(100))])]),
    "a consumer group of 65,000 members": lambda path, less: _log(path, _modern_members("large", 65_000 // less)),
    "a consumer group of 2,000 members and 10,000 epochs": lambda path, less: _log(path, _modern_epochs("large", 2_000, 10_000 // less)),
    "a consumer group of 10,000 members and 10,000 epochs": lambda path, less: _log(path, _modern_epochs("large", 10_000, 10_000 // less)),
    "a batch that claims 2,147,483,647 records": lambda path, less: _log(path, [batch(1, count=2**31 - 1)]),
    "a batch that claims 2,147,483,647 bytes": lambda path, less: _log(path, [_with_length(commit(1, "long"), 2**31 - 1)]),
    "a record that claims 2,147,483,647 bytes": lambda path, less: _log(path, [batch(1, body=varint(2**31 - 1) + bytes(40))]),
    "a key that claims 2,147,483,647 bytes": lambda path, less: _log(
        path, [batch(1, body=varint(45) + b"\0\0\0" + varint(2**31 - 1) + bytes(37))]
    ),
    "2,147,483,647 headers of a record": lambda path, less: _log(path, [batch(1, body=varint(10) + b"\0\0\0\1\1" + varint(2**31 - 1))]),
    "2,147,483,647 members of a group": lambda path, less: _log(path, [batch(1, [_claimed_members()])]),
    "a varint that does not end": lambda path, less: _log(path, [batch(1, body=b"\xff" * (100_000_000 // less))]),
}


def _between_zeros(path: Path, zeros: int) -> None:
    _log(path, [], zeros)
    with path.open("ab") as file:
        file.write(commit(1_000_001, "after the zeros"))


def _only_zeros(path: Path, zeros: int) -> None:
    """Write a finished segment of zeros, then one with the commits."""
    path.parent.mkdir(parents=True)
    with path.open("wb") as file:
        file.truncate(zeros)
    (path.parent / f"{7:020}.log").write_bytes(commit(7, "first") + commit(8, "last"))


def _with_length(entry: bytes, length: int) -> bytes:
    return entry[:8] + struct.pack(">i", length) + entry[12:]


def _claimed_members() -> Rec:
    whole = _classic_group("large", 0, b"")
    assert whole.value is not None
    return Rec(whole.key, whole.value[:-4] + struct.pack(">i", 2**31 - 1))


class Memory:
    """The most bytes that a command and all processes it started had at one time; shared pages count once."""

    def __init__(self, command: Command) -> None:
        self.most_bytes = 0
        self._command = command
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while self._command.process.poll() is None:
            self.most_bytes = max(self.most_bytes, sum(map(_bytes_of, [self._command.process.pid, *self._command.processes()])))
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def wait(self) -> int:
        """Return the peak in bytes, after the command has ended."""
        self._thread.join()
        return self.most_bytes


def _bytes_of(process: int) -> int:
    with suppress(OSError):
        for line in (PROCESSES / str(process) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def faults_of(warehouse: Path, code: int, stderr: str) -> Iterator[str]:
    """Yield the faults of a run over a hostile log."""
    if not is_one_sentence(code, stderr):
        yield f"ended with {code}: {stderr.strip()[-300:]}"
    if code == 0:
        groups = set(open_warehouse(str(warehouse)).read("groups", columns=["group_id"])["group_id"].to_pylist())
        if lost := {"first", "last"} - groups:
            yield f"the commits of {sorted(lost)} are lost"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    failed = 0
    print(f"{'log':42} {'file':>9} {'exit':>4} {'seconds':>8} {'memory':>9} {'groups':>7} {'members':>8} quarantined")
    for name in options.cases:
        with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
            place = Path(directory)
            path = place / "dump" / "__consumer_offsets-0" / f"{0:020}.log"
            CASES[name](path, 1)
            began = time.monotonic()
            command = nightly(place, place / "w", dump=place / "dump")
            most_bytes = Memory(command).wait()
            code, seconds = command.process.wait(PATIENCE_SECONDS), time.monotonic() - began
            faults = list(faults_of(place / "w", code, "\n".join(command.errors)))
            failed += bool(faults)
            found = ""
            if code == 0:
                opened = open_warehouse(str(place / "w"))
                reasons = opened.read("quarantined_records", columns=["reason"])["reason"].value_counts().to_pylist()
                numbers = [opened.read(table, columns=["group_id"]).num_rows for table in ("groups", "members")]
                quarantined = ", ".join(f"{reason['counts']} {reason['values']}" for reason in reasons)
                found = f"{numbers[0]:7} {numbers[1]:8} {quarantined or '-'}"
            size = f"{path.stat().st_size / MIB:,.1f} MB"
            memory = f"{most_bytes / MIB:,.0f} MB"
            print(f"{name:42} {size:>9} {code:4} {seconds:8.1f} {memory:>9} {found} {'; '.join(faults)}", flush=True)
    print(f"{failed} of {len(options.cases)} logs with a fault")


if __name__ == "__main__":
    main()
