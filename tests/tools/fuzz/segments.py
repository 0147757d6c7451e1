"""Mutations of real segments, through everything that reads them: ``python -m tests.tools.fuzz.segments --mutations 100000 --seed 7``.

Each mutated file is read, decoded and counted; where keys and values were changed, and now and then elsewhere, its records become rows of
history and lines of JSON, and are replayed. None of it may raise, hang, or take memory because of a size in the file; what the damage
did not touch is still read; and records read are records decoded and records quarantined. Mutation K of seed N is always the same one:
``--seed N --first K --mutations 1`` makes it again.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import secrets
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from groupcoord_spark.coordinator import JAVA
from groupcoord_spark.dump.json_lines import Counts, JsonLines, Selection
from groupcoord_spark.log import Chunk, Records, Segment, limits, read_segment
from groupcoord_spark.pipeline.exchange.kept_records import kept_records
from groupcoord_spark.pipeline.extents import NO_HISTORY
from groupcoord_spark.pipeline.read import superseded
from groupcoord_spark.pipeline.read.decode import UNKNOWN_KEY_TYPE, UNKNOWN_VALUE_VERSION, DecodedChunk, decode_chunk
from groupcoord_spark.pipeline.read.history_files import write_chunk
from groupcoord_spark.pipeline.replay.kept_records_replay import KeptRecordsReplay
from groupcoord_spark.warehouse import TABLES
from tests.log.reading import SMALL_CHUNK
from tests.log.test_salvage import end_offset, split
from tests.tools.fuzz.mutations import HARMS, LIMITS, Mutation, mutate

GOLDEN = Path(__file__).parents[2] / "golden"
ENTRIES = 14
"""Of one file at a time: enough to have neighbours on both sides, few enough to be quick."""

HANGS_AFTER_SECONDS = 30
SPARE_BYTES = 512 << 20
"""What all mutations together may take beside what is there after the first few; a size in a file may be up to 2 GB."""

OFFSET_TYPES = (0, 1)
COMMIT_OR_ABORT = (0, 1)

Row = tuple[int, bytes | None, bytes | None, int, int, int, bool, int]
"""Offset, key, value, time, producer id and epoch, transactional, control type."""


@dataclass(frozen=True)
class Stretch:
    """Some entries of a golden segment. base: of its file. rows: what each entry holds."""

    name: str
    base: int
    entries: list[bytes]
    rows: Mapping[int, list[Row]]


@dataclass
class Tally:
    """What happened to all mutations."""

    kinds: Counter[str] = field(default_factory=Counter)
    records: int = 0
    decoded: int = 0
    quarantined: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    bereft: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    slowest_index: int = -1


class Rows:
    """Takes rows of history as the task's files do, and makes the tables' columns of them."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def write(self, table: str, columns: Any, **constants: Any) -> None:
        rows = columns if isinstance(columns, pa.Table) else pa.table(dict(columns))
        for name, value in constants.items():
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, TABLES[table].by_name[name].arrow_type), rows.num_rows))
        if "run_id" in TABLES[table].by_name:
            rows = rows.append_column("run_id", pa.repeat(pa.scalar("run"), rows.num_rows))
        TABLES[table].from_milliseconds(rows).validate(full=True)
        self.count[table] += rows.num_rows


@cache
def files() -> list[tuple[str, int, list[bytes]]]:
    """Return the name, base offset and entries of every golden segment with records."""
    found = []
    for path in sorted(GOLDEN.glob("**/logs/**/*.log")):
        entries = split(path.read_bytes())
        if entries and len(entries[0]) < LIMITS["BATCH_BYTES"]:
            found.append((str(path.relative_to(GOLDEN)), int(path.stem), entries))
    return found


@cache
def corpora() -> list[list[int]]:
    """Indices of ``files`` by corpus: large ones are not chosen more often than small ones."""
    by_corpus: dict[str, list[int]] = defaultdict(list)
    for i, (name, _, _) in enumerate(files()):
        by_corpus[name.split("/logs/")[0]].append(i)
    return list(by_corpus.values())


@cache
def stretch(file: int, first: int, work: Path) -> Stretch:
    """Entries of a file from ``first`` on, with what is read of them when they are whole."""
    name, base, all_entries = files()[file]
    entries = all_entries[first : first + ENTRIES]
    path = work / f"{base:020d}.log"
    path.write_bytes(b"".join(entries))
    starts = {sum(map(len, entries[:i])): i for i in range(len(entries))}
    rows: dict[int, list[Row]] = defaultdict(list)
    for chunk in read_segment(Segment(str(path), path.stat().st_size, 0, base)):
        for row, position in zip(rows_of(chunk.records), chunk.records.position.tolist(), strict=True):
            rows[starts[position]].append(row)
    return Stretch(name, base, entries, rows)


def rows_of(records: Records) -> list[Row]:
    columns = (records.timestamp_ms, records.producer_id, records.producer_epoch, records.is_transactional, records.control_type)
    return [
        (offset, records.key.row(i), records.value.row(i), *facts)
        for i, (offset, *facts) in enumerate(zip(records.record_offset.tolist(), *(column.tolist() for column in columns), strict=True))
    ]


def made(seed: int, index: int, work: Path) -> tuple[str, Stretch, Mutation, random.Random]:
    """Mutation ``index`` of a seed: its kind, what it was made of, and what it is; and the dice for the other choices."""
    rng = random.Random(f"{seed} {index}")
    file = rng.choice(rng.choice(corpora()))
    count = len(files()[file][2])
    whole = stretch(file, rng.randrange(0, count, ENTRIES // 2), work)
    sources = [files()[rng.randrange(len(files()))][2] for _ in range(2)]
    kind, mutation = mutate(rng, whole.entries, sources)
    return kind, whole, mutation, rng


def survive(seed: int, index: int, work: Path, tally: Tally) -> None:
    """Follow one mutation all the way. Raises AssertionError, or the error of the part that broke."""
    kind, whole, mutation, rng = made(seed, index, work)
    tally.kinds[kind] += 1
    path = work / f"{whole.base:020d}.log"
    path.write_bytes(mutation.data)
    next_base = rng.choice([None, end_offset(whole.entries[-1])])
    segment = Segment(str(path), len(mutation.data), 0, whole.base, next_base)
    began = time.process_time()
    counts = Counts()
    lines, replay = JsonLines(0, Selection(), counts), KeptRecordsReplay(JAVA)
    found: list[Row] = []
    accounted = 0
    is_followed = kind not in HARMS or rng.random() < 0.1
    chunk_bytes = SMALL_CHUNK if rng.random() < 0.15 else 1 << 25
    for chunk in read_segment(segment, chunk_bytes=chunk_bytes):
        decoded = decode_chunk(chunk.records, JAVA)
        refused = set(decoded.faults.row[~decoded.faults.has_code(UNKNOWN_KEY_TYPE)].tolist())
        assert refused == set(np.flatnonzero(~decoded.decodes).tolist()), "what does not decode is not what is quarantined"
        if is_followed:
            check_history(segment, chunk, decoded, len(refused))
            texts = b"".join(lines.blocks(chunk)).splitlines()
            assert len(texts) == len(chunk.records), "a record has no line, or several"
            for text in texts:
                json.loads(text)
            kept = kept_records(chunk.records, np.flatnonzero(superseded.needed_for_replay(decoded.kinds)), decoded.decodes)
            if kept.num_rows:
                replay.apply(kept)
        found += rows_of(chunk.records)
        accounted += chunk.bytes
        tally.records += len(chunk.records)
        tally.decoded += int(decoded.decodes.sum())
        tally.quarantined += int((~decoded.decodes).sum()) + len(chunk.lost)
        tally.lost.update(lost.code for lost in chunk.lost)
        tally.faults.update(decoded.faults.counts())
    state = replay.coordinator.finish()
    for table in (state.committed_offsets, state.pending_offsets, state.orphan_offsets, state.groups, state.members, state.warnings):
        table()
    state.assignments({})
    spent = time.process_time() - began
    if spent > tally.slowest:
        tally.slowest, tally.slowest_index = spent, index
    assert accounted == len(mutation.data), f"{accounted} of {len(mutation.data)} bytes are accounted for"
    check_kept(kind, whole, mutation, found, tally)


def check_history(segment: Segment, chunk: Chunk, decoded: DecodedChunk, refused: int) -> None:
    """Check that each record is a row of history or of quarantine, and that there are no others."""
    rows = Rows()
    write_chunk(rows, segment.offsets_partition, segment.source, chunk, decoded, NO_HISTORY)  # type: ignore[arg-type]
    assert rows.count["quarantined_records"] == refused + len(chunk.lost), "quarantined rows are not what was refused and lost"
    is_other_control = (chunk.records.control_type != -1) & ~np.isin(chunk.records.control_type, COMMIT_OR_ABORT)
    of_unknown_version = decoded.faults.row[decoded.faults.has_code(UNKNOWN_VALUE_VERSION)]
    kept_whole = int(np.count_nonzero(~np.isin(decoded.kinds.key_type[of_unknown_version], OFFSET_TYPES)))
    in_history = sum(rows.count[table] for table in ("offset_commits", "group_records", "transactions"))
    assert in_history == int(decoded.decodes.sum()) - int(is_other_control.sum()) + kept_whole, "history lacks records, or has too many"


def check_kept(kind: str, whole: Stretch, mutation: Mutation, found: list[Row], tally: Tally) -> None:
    """Check that untouched records are there, in the order of offsets."""
    offsets = [row[0] for row in found]
    assert offsets == sorted(set(offsets)), "offsets do not rise"
    there = set(found)
    bereft = [i for i in mutation.untouched if not there.issuperset(whole.rows.get(i, ()))]
    tally.bereft[kind] += bool(bereft)
    assert len(bereft) <= mutation.spared, f"entries {bereft} were not touched, and records of theirs are gone"
    if mutation.touched_records is not None:
        for i in range(len(whole.entries)):
            for n, row in enumerate(whole.rows.get(i, ())):
                assert (i, n) in mutation.touched_records or row in there, f"record {n} of entry {i} was not touched, and is gone"


class HangError(Exception):
    """Raised when one mutation takes longer than HANGS_AFTER_SECONDS."""


@contextmanager
def no_hang() -> Iterator[None]:
    """Ends what takes too long."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise HangError(f"not done after {HANGS_AFTER_SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(HANGS_AFTER_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run(seed: int, first: int, mutations: int, *, limit_memory: bool = False, go_on: bool = False) -> tuple[Tally, list[int]]:
    """A number of mutations of a seed; which of them failed, each printed on stderr. go_on: not only up to the first that fails."""
    tally, failed = Tally(), []
    with tempfile.TemporaryDirectory() as place, patch.multiple(limits, **LIMITS):
        work = Path(place)
        for index in range(first, first + mutations):
            if limit_memory and index == first + min(200, mutations // 2):
                bound_memory()
            try:
                with no_hang():
                    survive(seed, index, work, tally)
            except Exception:
                failed.append(index)
                kind, whole, _, _ = made(seed, index, work)
                again = f"python -m tests.tools.fuzz.segments --seed {seed} --first {index} --mutations 1"
                print(f"{traceback.format_exc()}{kind!r} of {whole.name}; again: {again}", file=sys.stderr)
                if not go_on:
                    break
    return tally, failed


def bound_memory() -> None:
    """No more address space than now and SPARE_BYTES: code that allocates the size in a file is stopped. On Linux only."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + SPARE_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mutations", type=int, default=10_000)
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument("--first", type=int, default=0, help="number of the first mutation")
    parser.add_argument("--go-on", action="store_true", help="do not end at the first failure")
    given = parser.parse_args()
    seed = secrets.randbelow(10**9) if given.seed is None else given.seed
    print(f"seed {seed}, mutations {given.first} to {given.first + given.mutations - 1}", flush=True)
    tally, failed = run(seed, given.first, given.mutations, limit_memory=True, go_on=given.go_on)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "linux" else 1 << 20)
    print(f"{sum(tally.kinds.values()):,} mutations, {len(failed)} failed; {tally.records:,} records read")
    print(f"{tally.decoded:,} decoded, {tally.quarantined:,} rows of quarantine, peak memory {peak} MB", end=", ")
    print(f"slowest {tally.slowest:.2f} s of CPU (mutation {tally.slowest_index})")
    for title, counter in (("kinds", tally.kinds), ("lost", tally.lost), ("not decoded", tally.faults), ("neighbour lost", tally.bereft)):
        print(f"{title}: {', '.join(f'{name} {count:,}' for name, count in counter.most_common() if count)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
