"""corners.py --peers PEERS.SH [--work DIR] [--only REGEX]: what a record costs in the corners of the input, next to Kafka's own readers.

Each cell is a log: many groups or few, a record a batch or a thousand, one type of records, one codec, or the kit's own mix. PEERS.SH is a
script with the commands ``generate DIR --records N --groups G --partitions P --seed S``, ``load DIR`` and ``dump-log DIR``, each printing
one JSON line with cpu_s: it makes a realistic dump, and times Kafka's own coordinator loading a log, and kafka-dump-log printing it.
Printed is a table of Markdown: nanoseconds of CPU a record without the start of each command, which a log of a few records shows; the
state tables divided by ``load``; peak memory. Everything is run in one go, one after the other: compare ratios, not nanoseconds.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c
from measure import measure

from groupcoord_spark.log.decode.batches import HEADER, HEADER_SIZE
from groupcoord_spark.log.decode.compression import CODECS, compress
from groupcoord_spark.log.partition_count import partitioning_hashes
from groupcoord_spark.log.writing import Batch, RecordToLog, batch_bytes, marker
from groupcoord_spark.protocol import encode_key, encode_value
from groupcoord_spark.protocol.record_types import KeyType, MarkerType

PARTITIONS = 8
STARTS = 3
"""How often each command reads a log of a few records: its start is the least."""
SEGMENT_BYTES = 100 << 20
UNITS_AT_A_TIME = 10_000
TIME_MS = 1_780_604_800_000
"""Of all records; the kit's records are of the seven days before. Nothing has expired a few hours later."""
AS_OF = "2026-06-05T00:00:00Z"
NUMBER, COUNTER = "########", 0x71717171
"""What the templates have in place of a group's number, and of a number that grows with each unit: both have a fixed width."""
CRC_AT, COUNTER_BYTES = 17, struct.pack(">i", COUNTER)
TOPIC_ID = "AAAAAAAAAAEAAAAAAAAAAQ"


@dataclass(frozen=True, slots=True)
class Cell:
    """A log of equal units of batches, whose groups take turns. Without ``unit`` it is what the kit generates."""

    name: str
    unit: tuple[Batch, ...] = ()
    groups: int = 30_000
    groups_of_unit: int = 1
    records: int = 2_000_000
    codec: str = "none"
    options: tuple[str, ...] = ()
    """Of the kit's command ``generate``."""


def _commit(partition: int) -> RecordToLog:
    place = {"group_id": f"group-{NUMBER}", "topic": "orders", "partition": partition}
    value = {"committed_offset": COUNTER, "leader_epoch": 1, "metadata": "", "commit_timestamp_ms": TIME_MS, "topic_id": TOPIC_ID}
    return RecordToLog(encode_key(KeyType.OFFSET_COMMIT, place), encode_value(KeyType.OFFSET_COMMIT, 4, value), TIME_MS)


def commits(records: int, partitions: int = 1) -> tuple[Batch, ...]:
    """Return a batch of commits for as many partitions of a topic, in turn."""
    return (Batch(0, tuple(_commit(number % partitions) for number in range(records))),)


def transaction(records: int) -> tuple[Batch, ...]:
    """Return a transaction: commits of one group in a batch, and the marker that commits it."""
    (batch,) = commits(records, records)
    batch = replace(batch, producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    return batch, replace(batch, records=(marker(MarkerType.COMMIT, TIME_MS),), base_sequence=-1, is_control=True)


def rebalance(members: int) -> tuple[Batch, ...]:
    """Return what a consumer group of KIP-848 writes when one member subscribes again and the broker assigns all partitions again."""
    group = {"group_id": f"group-{NUMBER}"}
    subscription: dict[str, Any] = {"instance_id": None, "rack_id": None, "client_id": "client", "client_host": "/10.0.0.1"}
    subscription |= {"subscribed_topic_names": ["orders"], "subscribed_topic_regex": None, "rebalance_timeout_ms": 300_000}
    subscription |= {"server_assignor": "uniform", "classic_member_metadata": None}
    records = [
        (KeyType.CONSUMER_GROUP_MEMBER_METADATA, {"member_id": f"member-0-of-{NUMBER}"}, subscription),
        (KeyType.CONSUMER_GROUP_METADATA, {}, {"epoch": COUNTER, "metadata_hash": 1}),
        (KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, {}, {"assignment_epoch": COUNTER, "assignment_timestamp_ms": TIME_MS}),
    ]
    for number in range(members):
        member = {"member_id": f"member-{number}-of-{NUMBER}"}
        held = [{"topic_id": TOPIC_ID, "partitions": [number, number + members], "assignment_epochs": [COUNTER, COUNTER]}]
        epochs = {"member_epoch": COUNTER, "previous_member_epoch": COUNTER, "state": 0}
        target = [{"topic_id": TOPIC_ID, "partitions": [number, number + members]}]
        records += [
            (KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, member, {"topic_partitions": target}),
            (
                KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT,
                member,
                epochs | {"assigned_partitions": held, "partitions_pending_revocation": []},
            ),
        ]
    return (Batch(0, tuple(RecordToLog(encode_key(t, group | key), encode_value(t, 0, value), TIME_MS) for t, key, value in records)),)


def cells() -> list[Cell]:
    """Return all cells. One dimension at a time differs from 30,000 groups with ten commits a batch, uncompressed."""
    usual = Cell("30,000 groups, 10 commits a batch", commits(10), groups_of_unit=10)
    return [
        usual,
        replace(usual, name="1,000 groups", groups=1_000),
        replace(usual, name="300,000 groups", groups=300_000),
        replace(usual, name="3,000,000 groups", groups=3_000_000, records=3_000_000),
        replace(usual, name="1 commit a batch", unit=commits(1), groups_of_unit=1),
        replace(usual, name="1,000 commits a batch", unit=commits(1_000), groups_of_unit=1_000),
        replace(usual, name="300,000 groups, 1 commit a batch", unit=commits(1), groups_of_unit=1, groups=300_000),
        *(replace(usual, name=codec, codec=codec) for codec in CODECS if codec != "none"),
        Cell("3,300 groups of KIP-848, 3 members, no offsets", rebalance(3), groups=3_300),
        Cell("3,000 groups, 10 commits a transaction", transaction(10), groups=3_000),
        # Kafka's benchmark is GroupCoordinatorShardLoadingBenchmark (PR 20547).
        Cell("Kafka's benchmark: 2,048 commits a batch", commits(2_048, 2_048), groups=1, records=8_000_000),
        Cell("Kafka's benchmark: 2,047 commits a transaction", transaction(2_047), groups=1, records=8_000_000),
        Cell("the kit's mix, 500 groups", groups=500, records=10_000_000),
        Cell("the kit's mix, half in one partition", groups=500, records=10_000_000, options=("--hot",)),
    ]


def write_log(place: Path, cell: Cell) -> None:
    """Write the units of a cell, each in the offsets partition of its groups."""
    numbers = np.random.default_rng(1).permutation(cell.groups)
    partitions = partitioning_hashes([f"group-{number:0{len(NUMBER)}}" for number in numbers.tolist()]) % PARTITIONS
    for partition in np.unique(partitions):
        here = numbers[partitions == partition]
        units = max(1, cell.records * len(here) // cell.groups // sum(len(batch.records) for batch in cell.unit))
        folder = place / f"__consumer_offsets-{partition}"
        folder.mkdir(parents=True)
        _write_units(folder, cell, np.resize(here, (units, cell.groups_of_unit)))


def _write_units(folder: Path, cell: Cell, groups: npt.NDArray[np.int64]) -> None:
    records = sum(len(batch.records) for batch in cell.unit)
    segment, size = folder / f"{0:020d}.log", 0
    for first in range(0, len(groups), UNITS_AT_A_TIME):
        if size > SEGMENT_BYTES:
            segment, size = folder / f"{first * records:020d}.log", 0
        of_units = groups[first : first + UNITS_AT_A_TIME]
        counter = np.arange(first, first + len(of_units))
        batches, delta = [], 0
        for template in cell.unit:
            batches.append(_filled(template, of_units, counter, counter * records + delta, CODECS[cell.codec]))
            delta += len(template.records)
        with segment.open("ab") as file:
            file.writelines(chain.from_iterable(zip(*batches, strict=True)))
            size = file.tell()


def _filled(
    template: Batch, groups: npt.NDArray[np.int64], counter: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64], codec: int
) -> Iterator[bytes]:
    """Yield the template once for each row of ``groups``, with its numbers, compressed, with its length and its checksum."""
    data = batch_bytes(template)
    rows = np.tile(np.frombuffer(data, np.uint8), (len(groups), 1))
    header = rows[:, :HEADER_SIZE].view(HEADER)[:, 0]
    header["base_offset"] = offsets
    header["attributes"] |= codec
    if template.is_transactional:
        header["producer_id"] = groups[:, 0]
    places = _places(data, NUMBER.encode())
    for number, at in enumerate(places):
        rows[:, at : at + len(NUMBER)] = _digits(groups[:, number * groups.shape[1] // len(places)])
    for at in _places(data, COUNTER_BYTES):
        rows[:, at : at + len(COUNTER_BYTES)] = counter.astype(">i4").view(np.uint8).reshape(-1, len(COUNTER_BYTES))
    for row in rows:
        filled = row.tobytes()
        under_crc = filled[CRC_AT + 4 : HEADER_SIZE] + compress(codec, filled[HEADER_SIZE:])
        length = struct.pack(">i", CRC_AT + 4 - 12 + len(under_crc))
        yield filled[:8] + length + filled[12:CRC_AT] + struct.pack(">I", crc32c(under_crc)) + under_crc


def _places(data: bytes, placeholder: bytes) -> list[int]:
    places = []
    at = data.find(placeholder)
    while at >= 0:
        places.append(at)
        at = data.find(placeholder, at + len(placeholder))
    return places


def _digits(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the digits of each number as ASCII, one column each."""
    powers = 10 ** np.arange(len(NUMBER) - 1, -1, -1)
    return (numbers[:, None] // powers % 10 + ord("0")).astype(np.uint8)


def log_of(cell: Cell, work: Path, script: Path | None = None) -> Path:
    """Return the directory of the cell's log, which is written where it is not there yet. script: the kit, for cells without ``unit``."""
    place = work / "".join(letter if letter.isalnum() else "-" for letter in cell.name)
    if not place.exists():
        unfinished = work / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        if cell.unit:
            write_log(unfinished, cell)
        elif script is not None:
            counts = ["--records", cell.records, "--groups", cell.groups, "--partitions", PARTITIONS, "--seed", 1]
            peer(script, "generate", str(unfinished), *map(str, counts), *cell.options)
        unfinished.rename(place)
    return place


def peer(script: Path, *arguments: str) -> dict[str, float]:
    """Return the JSON line of one command of the kit."""
    done = subprocess.run(["bash", str(script), *arguments], capture_output=True, text=True, check=True)
    return next(json.loads(line) for line in reversed(done.stdout.splitlines()) if line.startswith("{"))


def in_memory(log: Path) -> Path:
    """Return the log, read once, so that every command that is measured finds it in memory."""
    for segment in log.glob("*/*.log"):
        with segment.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
    return log


def ours(*arguments: str) -> dict[str, float]:
    """Return what one command of the package takes."""
    result = measure([sys.executable, "-m", "groupcoord_spark", *arguments, "--quiet"], quiet=True)
    if result["rc"]:
        sys.exit(f"groupcoord {' '.join(arguments)} failed")
    return result


def measured(log: Path, script: Path, work: Path) -> dict[str, dict[str, float]]:
    """Return what each command takes for one log, by the name of its column: wall_s, cpu_s and peak memory."""
    warehouse = work / "warehouse"

    def nightly(*options: str) -> dict[str, float]:
        shutil.rmtree(warehouse, ignore_errors=True)
        return ours("nightly", str(in_memory(log)), "--warehouse", str(warehouse), "--cluster", "bench", "--as-of", AS_OF, *options)

    return {
        "load": peer(script, "load", str(in_memory(log))),
        "dump-log": peer(script, "dump-log", str(in_memory(log))),
        "dump": ours("dump", str(in_memory(log))),
        "nightly --no-history": nightly("--no-history"),
        "nightly": nightly(),
    }


def line_of(cell: Cell, of: Mapping[str, Mapping[str, float]], starts: Mapping[str, float]) -> str:
    """Return a cell's line of the table. The first ratio is without the start of ``nightly`` alone, the second without both starts."""
    growing = {name: result["cpu_s"] - starts[name] for name, result in of.items()}
    state = growing["nightly --no-history"]
    figures = [f"{seconds / cell.records * 1e9:,.0f}" for seconds in growing.values()]
    figures += [f"{state / of['load']['cpu_s']:.2f}", f"{state / growing['load']:.2f}", f"{of['nightly']['peak_pss_mb']:,}"]
    return f"| {cell.name} | {' | '.join(figures)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("build/bench"))
    parser.add_argument("--only", default="", help="cells whose name contains this regular expression")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    few = log_of(Cell("few", commits(1), groups=100, records=100), given.work, given.peers)
    tries = [measured(few, given.peers, given.work) for _ in range(STARTS)]
    starts = {name: min(of[name]["cpu_s"] for of in tries) for name in tries[0]}
    print("| ns of CPU a record |", *(f"`{name}` |" for name in starts), "state / `load` | without starts | MB |")
    print("|" + "---|" * (len(starts) + 4))
    print("| start, in s |", *(f"{start:.1f} |" for start in starts.values()), "| | |", flush=True)
    for cell in cells():
        if re.search(given.only, cell.name):
            print(line_of(cell, measured(log_of(cell, given.work, given.peers), given.peers, given.work), starts), flush=True)


if __name__ == "__main__":
    main()
