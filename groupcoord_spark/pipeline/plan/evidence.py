"""What a dump shows of each offsets partition before it is read: a few records, and where some of the groups are."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from groupcoord_spark.log import (
    EpochAt,
    LogPlan,
    PartitionLog,
    RecordMark,
    Segment,
    epoch_below,
    first_record,
    leader_epochs_of,
    newest_record,
    read_segment,
    record_at,
)
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory
from groupcoord_spark.protocol import DecodeError, decode_key
from groupcoord_spark.protocol.partitioner import partitioning_hash
from groupcoord_spark.protocol.record_types import NOT_A_CONTROL_RECORD
from groupcoord_spark.storage.location import side_by_side

SAMPLE_BYTES: Final = 32 << 10
SAMPLED_PARTITIONS: Final = 64
NOTHING_READ: Final[Mapping[int, PartitionHistory]] = {}


@dataclass(frozen=True, slots=True)
class Evidence:
    """Some data records of one offsets partition. None where the dump has no record.

    ``first_record`` and ``newest_record`` have the lowest and highest record offset. ``remembered`` maps the requested offsets where the
    copy has a record to that record. ``group_hashes`` holds the partitioning_hash of some group ids. ``epochs`` are leader epochs of the
    newest batch, and of the last one below the end of the last run. ``epoch_starts`` holds (epoch, first offset) of the broker's
    checkpoint.
    """

    first_record: RecordMark | None = None
    newest_record: RecordMark | None = None
    remembered: Mapping[int, RecordMark] = field(default_factory=dict)
    group_hashes: frozenset[int] = frozenset()
    epochs: tuple[EpochAt, ...] = ()
    epoch_starts: tuple[tuple[int, int], ...] = ()

    def epoch_of(self, record_offset: int) -> int | None:
        """Return the leader epoch that wrote the record offset, or None if no batch and no checkpoint shows it."""
        of_batch = next((at.epoch for at in self.epochs if at.offset == record_offset), None)
        if of_batch is not None or not self.epoch_starts:
            return of_batch
        return max((epoch for epoch, offset in (*self.epoch_starts, *self.epochs) if offset <= record_offset), default=None)

    def record_at(self, record_offset: int) -> RecordMark | None:
        """Return the record at an offset if it is part of the evidence."""
        ends = (mark for mark in (self.first_record, self.newest_record) if mark is not None and mark.record_offset == record_offset)
        return self.remembered.get(record_offset) or next(ends, None)

    def merged(self, other: "Evidence") -> "Evidence":
        """Return the evidence of both inputs. Of two records with one offset the newer one counts, as in the reader of rows."""
        remembered = dict(self.remembered)
        for mark in other.remembered.values():
            known = remembered.setdefault(mark.record_offset, mark)
            if mark.timestamp_ms > known.timestamp_ms:
                remembered[mark.record_offset] = mark
        first = (mark for mark in (self.first_record, other.first_record) if mark is not None)
        newest = (mark for mark in (self.newest_record, other.newest_record) if mark is not None)
        return Evidence(
            min(first, key=lambda mark: (mark.record_offset, -mark.timestamp_ms), default=None),
            max(newest, key=lambda mark: (mark.record_offset, mark.timestamp_ms), default=None),
            remembered,
            self.group_hashes | other.group_hashes,
        )


def evidence_of_segments(
    plan: LogPlan, offsets: Mapping[int, Collection[int]], last_run: Mapping[int, PartitionHistory] = NOTHING_READ
) -> dict[int, Evidence]:
    """Offsets partition -> evidence. One batch is read for each record, and the first records of up to SAMPLED_PARTITIONS for the groups.

    Leader epochs are looked up only if the newest batch has another epoch than the last run's.

    Args:
        offsets: by offsets partition the record offsets to look up.
        last_run: what the last run remembers of each offsets partition.
    """
    sampled = {log.offsets_partition for log in [log for log in plan.partitions if log.segments][:SAMPLED_PARTITIONS]}

    def of_partition(log: PartitionLog) -> Evidence:
        found = {offset: record_at(log.segments, offset) for offset in offsets.get(log.offsets_partition, ())}
        remembered = {offset: mark for offset, mark in found.items() if mark is not None}
        keys = _first_keys(log.segments[0]) if log.offsets_partition in sampled else ()
        epochs, starts = _leader_epochs(log, last_run.get(log.offsets_partition, PartitionHistory()))
        return Evidence(first_record(log.segments), newest_record(log.segments), remembered, group_hashes(keys), epochs, starts)

    evidence = side_by_side(of_partition, plan.partitions, plan.filesystem)
    return dict(zip((log.offsets_partition for log in plan.partitions), evidence, strict=True))


def _leader_epochs(log: PartitionLog, last: PartitionHistory) -> tuple[tuple[EpochAt, ...], tuple[tuple[int, int], ...]]:
    """Return ``epochs`` and ``epoch_starts`` of Evidence. The epochs of a log never fall, so one epoch of the last run is proof enough."""
    newest = log.newest_epoch
    if newest is not None and newest.offset == log.end_offset - 1 and (not last.end_offset or newest.epoch == last.leader_epoch):
        return (newest,), ()
    found = (newest or epoch_below(log.segments, log.end_offset), epoch_below(log.segments, last.end_offset))
    return tuple(at for at in found if at is not None), leader_epochs_of(log)


def _first_keys(segment: Segment) -> set[bytes | None]:
    keys: set[bytes | None] = set()
    for chunk in read_segment(replace(segment, size=min(segment.size, SAMPLE_BYTES))):
        keys |= set(chunk.records.key.take(chunk.records.control_type == NOT_A_CONTROL_RECORD).to_arrow().to_pylist())
    return keys


def group_hashes(keys: Iterable[bytes | None]) -> frozenset[int]:
    """Hash of each group id in the keys: Kafka divides the hash by the partition count, and the remainder is the partition of the group.

    Keys without a group id are left out.
    """
    hashes = set()
    for key in keys:
        try:
            group_id = decode_key(key).fields["group_id"]
        except (DecodeError, KeyError):
            continue
        hashes.add(partitioning_hash(group_id))
    return frozenset(hashes)


def placed_groups(evidence: Mapping[int, Evidence]) -> list[tuple[int, int]]:
    """(hash of the group id, offsets partition of the group) of the groups in the evidence of each offsets partition."""
    return [(group_hash, number) for number, of_partition in evidence.items() for group_hash in of_partition.group_hashes]
