"""What a dump shows of each offsets partition before it is read: a few records, and where some of the groups are."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from groupcoord_spark.log import LogPlan, PartitionLog, RecordMark, first_record, newest_record, record_at
from groupcoord_spark.log.files.storage import side_by_side


@dataclass(frozen=True, slots=True)
class Evidence:
    """Some data records of one offsets partition. None where the dump has no record.

    first_record, newest_record: those with the lowest and the highest record offset. remembered: record offset -> the record, for those of
    the offsets asked about at which the dump has a record.
    """

    first_record: RecordMark | None = None
    newest_record: RecordMark | None = None
    remembered: Mapping[int, RecordMark] = field(default_factory=dict)

    def record_at(self, record_offset: int) -> RecordMark | None:
        """The record at an offset, as far as it is among the evidence."""
        ends = (mark for mark in (self.first_record, self.newest_record) if mark is not None and mark.record_offset == record_offset)
        return self.remembered.get(record_offset) or next(ends, None)

    def merged(self, other: Evidence) -> Evidence:
        """The evidence of the records of both. Of two records with one offset the newer one counts, as it does for the reader of rows."""
        remembered = dict(self.remembered)
        for mark in other.remembered.values():
            remembered[mark.record_offset] = _newer(remembered.get(mark.record_offset), mark)
        first = (mark for mark in (self.first_record, other.first_record) if mark is not None)
        newest = (mark for mark in (self.newest_record, other.newest_record) if mark is not None)
        return Evidence(
            min(first, key=lambda mark: (mark.record_offset, -mark.timestamp_ms), default=None),
            max(newest, key=lambda mark: (mark.record_offset, mark.timestamp_ms), default=None),
            remembered,
        )


def _newer(one: RecordMark | None, other: RecordMark) -> RecordMark:
    return other if one is None or other.timestamp_ms > one.timestamp_ms else one


def evidence_of_segments(plan: LogPlan, offsets: Mapping[int, Collection[int]]) -> dict[int, Evidence]:
    """Offsets partition -> evidence. One batch is read for each record. offsets: by offsets partition the record offsets to look up."""

    def of_partition(log: PartitionLog) -> Evidence:
        found = {offset: record_at(log.segments, offset) for offset in offsets.get(log.offsets_partition, ())}
        remembered = {offset: mark for offset, mark in found.items() if mark is not None}
        return Evidence(first_record(log.segments), newest_record(log.segments), remembered)

    evidence = side_by_side(of_partition, plan.partitions, plan.files_at_once)
    return dict(zip((log.offsets_partition for log in plan.partitions), evidence, strict=True))
