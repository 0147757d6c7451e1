"""A small model of the replicated log of one offsets partition: leaders and epochs, truncation, compaction, copies of replicas."""

from __future__ import annotations

import random
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from pathlib import Path
from typing import NamedTuple

from tests.log.log_writer import T0, Rec, batch, write_segment
from tests.pipeline.logs import commit_value, offset_key

TOPIC_IDS = ("AAAAAAAAAAAAAAAAAAAAAA", "BBBBBBBBBBBBBBBBBBBBBB", "CCCCCCCCCCCCCCCCCCCCCC", "DDDDDDDDDDDDDDDDDDDDDD")


class Commit(NamedTuple):
    """A record: a commit of a group, or a tombstone (committed_offset None)."""

    offset: int
    epoch: int
    group: str
    committed_offset: int | None
    timestamp_ms: int


@dataclass(frozen=True)
class Replica:
    """The log of one replica. epochs: (epoch, first offset), as in leader-epoch-checkpoint. files: base offsets of the segments."""

    records: tuple[Commit, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ((0, 0),)
    files: tuple[int, ...] = (0,)
    end: int = 0
    topic: int = 0
    cleaned_to: int = 0

    @property
    def state(self) -> dict[str, tuple[int, int]]:
        """Group -> (committed offset, record offset), as a coordinator has it that loads the log."""
        state: dict[str, tuple[int, int]] = {}
        for record in self.records:
            state.pop(record.group, None)
            if record.committed_offset is not None:
                state[record.group] = (record.committed_offset, record.offset)
        return state

    def appended(self, record: Commit) -> Replica:
        return replace(self, records=(*self.records, record), end=record.offset + 1)

    def led_in(self, epoch: int) -> Replica:
        """Return the replica as leader in a new epoch."""
        kept = tuple(begun for begun in self.epochs if begun[1] < self.end)
        return replace(self, epochs=(*kept, (epoch, self.end)))

    def truncated(self, end: int) -> Replica:
        records = tuple(record for record in self.records if record.offset < end)
        files = tuple(base for base in self.files if base <= end)
        if end and (not records or records[-1].offset != end - 1):
            files = (*(base for base in files if base < end), end)  # the name of the last file has the end where no record has it
        return replace(self, records=records, epochs=tuple(begun for begun in self.epochs if begun[1] < end), files=files, end=end)

    def rolled(self) -> Replica:
        return self if self.files[-1] == self.end else replace(self, files=(*self.files, self.end))

    def cleaned(self, rng: random.Random) -> Replica:
        """After a pass of the cleaner over the closed segments: it takes any of the superseded records there, or all."""
        last = {record.group: record.offset for record in self.records if record.offset < self.files[-1]}
        takes_all = rng.random() < 0.5
        is_gone = [
            record.offset < self.files[-1] and last[record.group] != record.offset and (takes_all or rng.random() < 0.7)
            for record in self.records
        ]
        left = tuple(record for record, gone in zip(self.records, is_gone, strict=True) if not gone)
        # A tombstone that is old enough goes where nothing lies before it.
        seen: set[str] = set()
        kept = []
        for record in left:
            if not (record.committed_offset is None and record.group not in seen and record.offset < self.files[-1] and takes_all):
                kept.append(record)
            seen.add(record.group)
        joined = (0, *(base for base in self.files[1:-1] if rng.random() < 0.5), *self.files[-1:]) if len(self.files) > 1 else self.files
        return replace(self, records=tuple(kept), files=joined, cleaned_to=max(self.cleaned_to, self.files[-1]))

    def write(self, log_dir: Path, *, with_checkpoint: bool, with_topic_id: bool, rng: random.Random) -> None:
        """Copy the replica as a broker's log directory."""
        folder = log_dir / "__consumer_offsets-0"
        for begin, end in pairwise((*self.files, self.end + 1)):
            entries: list[bytes] = []
            part = [record for record in self.records if begin <= record.offset < end]
            for _, run in groupby(enumerate(part), key=lambda place: (place[1].epoch, place[1].offset - place[0])):
                batches = _parts([record for _, record in run], rng)
                entries += [_batch(records) for records in batches]
            write_segment(log_dir, entries, base_offset=begin)
        if with_checkpoint:
            lines = [f"{epoch} {first_offset}" for epoch, first_offset in self.epochs]
            (folder / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
        if with_topic_id:
            (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_IDS[self.topic % len(TOPIC_IDS)]}\n")


def _parts(records: Sequence[Commit], rng: random.Random) -> list[Sequence[Commit]]:
    borders = sorted({0, len(records), *(rng.randint(0, len(records)) for _ in range(len(records) // 2))})
    return [records[begin:end] for begin, end in pairwise(borders)]


def _batch(records: Sequence[Commit]) -> bytes:
    first = records[0]
    recs = [
        Rec(
            offset_key(record.group),
            None if record.committed_offset is None else commit_value(record.committed_offset),
            record.offset - first.offset,
            record.timestamp_ms - first.timestamp_ms,
        )
        for record in records
    ]
    return batch(first.offset, recs, base_timestamp=first.timestamp_ms, leader_epoch=first.epoch)


@dataclass
class Cluster:
    """A leader and what its lagging and deposed replicas still have. happened: the steps since the last copy, in words."""

    rng: random.Random
    leader: Replica = field(default_factory=Replica)
    others: list[Replica] = field(default_factory=list)
    happened: list[str] = field(default_factory=list)
    epoch: int = 0
    now_ms: int = T0

    def append(self) -> None:
        for _ in range(self.rng.randint(1, 12)):
            self.now_ms += self.rng.choice((1, 1_000, 60_000))
            committed = None if self.rng.random() < 0.15 else self.now_ms % 1_000_000_007
            record = Commit(self.leader.end, self.epoch, f"g{self.rng.randrange(6)}", committed, self.now_ms)
            self.leader = self.leader.appended(record)

    def change_leader(self) -> None:
        self.others = [*self.others[-3:], self.leader]
        self.epoch += 1
        self.leader = self.leader.led_in(self.epoch)

    def elect_unclean(self) -> None:
        """Elect a replica that lacks the last records. The deposed leader may have written more in the meantime."""
        deposed = self.leader
        if self.rng.random() < 0.5:
            deposed = deposed.appended(Commit(deposed.end, self.epoch, "deposed", 1, self.now_ms))
        # A replica cleans only what it has: none lacks a record because of a later one that it lacks as well.
        least = min(max(self.leader.cleaned_to, self.leader.end - 8), self.leader.end)
        elected = self.leader.truncated(self.rng.randint(least, self.leader.end))
        if self.others and self.rng.random() < 0.2:
            elected = self.rng.choice(self.others)
        self.others = [*self.others[-3:], deposed]
        self.epoch += 1
        self.leader = elected.led_in(self.epoch)

    def roll(self) -> None:
        self.leader = self.leader.rolled()

    def clean(self) -> None:
        self.leader = self.leader.rolled() if self.rng.random() < 0.5 else self.leader
        self.leader = self.leader.cleaned(self.rng)

    def lag(self) -> None:
        self.others = [*self.others[-3:], self.leader]

    def recreate(self) -> None:
        self.now_ms += 1_000 * self.rng.choice((1, 3_600, 86_400))
        self.others, self.epoch = [], 0
        self.leader = Replica(topic=self.leader.topic + 1)

    def step(self) -> None:
        names = ("append",) * 5 + ("change_leader", "elect_unclean", "elect_unclean", "roll", "clean", "clean", "clean", "lag")
        name = self.rng.choice(names) if self.rng.random() < 0.96 else "recreate"
        self.happened.append(name)
        getattr(self, name)()

    def copy(self, directory: Path, **side_files: bool) -> Replica:
        """Copy a replica, now and then one that lags behind, or those of two brokers; return the one that a run has to show."""
        shutil.rmtree(directory, ignore_errors=True)
        lagging = self.rng.choice(self.others) if self.others else None
        odd = self.rng.random()
        if lagging is not None and odd < 0.12:
            self.happened.append("a replica that lags behind is copied")
            lagging.write(directory, rng=self.rng, **side_files)
            return lagging
        # Without a checkpoint only a record shows which of two replicas is the leader.
        is_known = side_files["with_checkpoint"] or (self.leader.records and self.leader.records[-1].epoch == self.epoch)
        if lagging is not None and odd < 0.24 and is_known:
            self.happened.append("copy of two brokers")
            lagging.write(directory / "broker-1", rng=self.rng, **side_files)
            self.leader.write(directory / "broker-2", rng=self.rng, **side_files)
            return self.leader
        self.leader.write(directory, rng=self.rng, **side_files)
        return self.leader
