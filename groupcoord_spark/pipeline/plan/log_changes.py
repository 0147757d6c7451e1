"""What happened to the log of an offsets partition since the last run read it, from few records and batches that both saw.

Compaction rewrites files and batches and removes records, so file sizes and checksums of batches prove nothing. Two things do:

* A record that is left keeps its offset, timestamp, key and value. Another record at a remembered offset means another log.
* A leader writes each offset once in its epoch, and a follower cuts its log back to the epochs of its leader before it appends. So two logs
  with a batch of one leader epoch at one offset are equal up to that offset, and an epoch that the last run did not see can only have begun
  at or above its end. If one began below, a new leader had fewer records: the log was truncated there (an unclean election).

``change_of`` is the only place that decides. A run goes on from the last one only if CONTINUED is proven; if nothing is proven, the run
reads the log from its beginning, which costs time but no row.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, NamedTuple

from groupcoord_spark.log import LogPlan, PartitionLog, RecordMark
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory
from groupcoord_spark.pipeline.plan.evidence import Evidence
from groupcoord_spark.protocol.record_types import CLOCKS_DIFFER_MS, NO_TIMESTAMP


class LogChange(StrEnum):
    """What happened to a log. The value says why the run reads the log from its beginning."""

    EMPTIED = "the log has no record any more"
    RECREATED = "the log was created again"
    TRUNCATED = "the log was truncated since the last run: a new leader had fewer records"
    OLDER = "the log ends before the one of the last run"
    END_REPLACED = "the log has other records at the end of the last run"
    ODD = "the order of offsets and times is not that of the last run"
    """Replicas that were cleaned at different times can show that, too: it counts only if no partition proves the topic to be the same."""
    BEGINS_EARLIER = "the log has records before those that the runs have read"
    BEGINS_LATER = "the log begins later than in the last run"
    """The cleaner never moves the beginning: are segments missing?"""
    CONTINUED = "the log goes on"
    UNPROVEN = "nothing shows that the log still has what the last run read"


OF_ANOTHER_LOG: Final = (LogChange.RECREATED, LogChange.ODD)
OF_THE_SAME_LOG: Final = (LogChange.CONTINUED, LogChange.UNPROVEN, LogChange.TRUNCATED, LogChange.BEGINS_EARLIER, LogChange.BEGINS_LATER)
"""The log is a later state of the last run's log: records that it lacks are lost."""


class Truncation(NamedTuple):
    """A truncation of the log.

    epoch: leader epoch of a leader that lacked records of ``last_epoch`` which the last run read below ``end``. offset: the first record
    that is known to be lost; records below may be lost as well.
    """

    epoch: int
    offset: int
    last_epoch: int
    end: int


@dataclass(frozen=True, slots=True)
class ComparedLog:
    """The log of an offsets partition, and what the last run remembers of it.

    Attributes:
        last: what the last run remembers.
        is_same_topic: whether the topic is the one of the last run, by its id or by records of any partition; None if nothing shows that.
        end_is_known: False for rows without the last record of the last run: markers may be missing from the rows.
    """

    log: PartitionLog
    last: PartitionHistory
    evidence: Evidence
    is_same_topic: bool | None = None
    end_is_known: bool = True

    def _is_left(self, mark: RecordMark | None) -> bool | None:
        """Return whether a sample record is in the log, or None if its offset has no record."""
        found = None if mark is None else self.evidence.record_at(mark.record_offset)
        return None if found is None or mark is None else found.is_same(mark)

    @property
    def has_newest(self) -> bool | None:
        """Return whether the newest record of the last run is left, or None if its offset has no record."""
        return self._is_left(self.last.newest_record)

    @property
    def shows_same_topic(self) -> bool:
        """The log has a record that the last run remembers."""
        return bool(self.has_newest or self._is_left(self.last.first_record))

    @property
    def is_contradicted(self) -> bool:
        """The log has other records at the remembered offsets, or a record below the last end that the last run would have seen."""
        if self.shows_same_topic:
            return False
        if False in (self.has_newest, self._is_left(self.last.first_record)):
            return True
        first = self.evidence.first_record
        is_below = first is not None and first.record_offset < self.last.end_offset
        return first is not None and is_below and first.timestamp_ms > self.last.newest_timestamp_ms > NO_TIMESTAMP

    @property
    def truncation(self) -> Truncation | None:
        """The truncation that the leader epochs prove."""
        known, end = self.last.leader_epoch, self.last.end_offset
        if known is None:
            return None
        newer = sorted(at for at in (*self.evidence.epoch_starts, *self.evidence.epochs) if at[0] > known)
        # A deposed leader that was elected again may end above the last end, with records of an older epoch below it.
        began = [at for at in newer if at[1] < end] or [(epoch, end - 1) for epoch, _ in newer if self.is_of_older_leader]
        return next((Truncation(epoch, offset, known, end) for epoch, offset in began), None)

    @property
    def is_of_older_leader(self) -> bool:
        """A batch at or above the end of the last run has an older leader epoch than that run's: a deposed leader wrote it."""
        known = self.last.leader_epoch
        return known is not None and any(at.epoch < known and at.offset >= self.last.end_offset - 1 for at in self.evidence.epochs)

    @property
    def is_odd(self) -> bool:
        """The first record lies below the last run's, or the first or the newest is much older than the last run's at a lower offset.

        A cleaning never adds records, and the coordinator writes records in the order of time, as far as the clocks of the brokers agree.
        """
        first, newest = (self.last.first_record, self.evidence.first_record), (self.last.newest_record, self.evidence.newest_record)
        if first[0] is not None and first[1] is not None and first[1].record_offset < first[0].record_offset:
            return True
        return any(
            remembered is not None
            and record is not None
            and record.record_offset > remembered.record_offset
            and remembered.timestamp_ms - CLOCKS_DIFFER_MS > record.timestamp_ms > NO_TIMESTAMP
            for remembered, record in (first, newest)
        )

    @property
    def begins_earlier(self) -> bool:
        """The log has offsets below those that the last run read."""
        return self.log.begin is not None and self.last.first_offset is not None and self.log.begin < self.last.first_offset

    @property
    def begins_later(self) -> bool:
        """The log begins between the beginning and the end of the last run's log."""
        begin, first = self.log.log_start_offset, self.last.first_offset
        return begin is not None and first is not None and first < begin < self.last.end_offset

    @property
    def is_proven(self) -> bool:
        """The log has, below the end of the last run, what that run read, but for compaction; or nothing at all, which cannot differ."""
        end, known = self.last.end_offset, self.last.leader_epoch
        if end == 0 or (self.log.begin is not None and self.log.begin >= end):
            return True
        epochs = self.evidence.epochs if known is not None else ()
        if self.has_newest and self.last.newest_record is not None:
            return not epochs or self.last.newest_record.record_offset == end - 1 or self._has_epoch_at_end
        first = self.evidence.first_record
        is_old = first is not None and first.record_offset < end and NO_TIMESTAMP < first.timestamp_ms <= self.last.newest_timestamp_ms
        return self._has_epoch_at_end and (self.is_same_topic is True or is_old)

    @property
    def _has_epoch_at_end(self) -> bool:
        """The same leader wrote the last record of the last run and the present record at that offset."""
        known, last = self.last.leader_epoch, self.last.end_offset - 1
        if any(at.epoch == known and at.offset >= last for at in self.evidence.epochs):
            return True
        starts = self.evidence.epoch_starts
        # A checkpoint that lacks an epoch of the log was copied before the log.
        is_current = bool(starts) and all(at.epoch <= starts[-1][0] for at in self.evidence.epochs)
        return is_current and known == max((epoch for epoch, first_offset in starts if first_offset <= last), default=None)


CASES: Final[tuple[tuple[LogChange, Callable[[ComparedLog], bool]], ...]] = (
    (LogChange.EMPTIED, lambda it: it.log.first_offset is None and it.log.end_offset < it.last.end_offset),
    (LogChange.RECREATED, lambda it: it.is_same_topic is False),
    (LogChange.TRUNCATED, lambda it: it.truncation is not None and (bool(it.is_same_topic) or not (it.is_contradicted or it.is_odd))),
    (LogChange.RECREATED, lambda it: it.is_contradicted),
    (LogChange.ODD, lambda it: it.is_same_topic is None and it.is_odd),
    (LogChange.OLDER, lambda it: it.is_of_older_leader or (it.end_is_known and it.log.end_offset < it.last.end_offset)),
    (LogChange.END_REPLACED, lambda it: it.has_newest is False),
    (LogChange.BEGINS_EARLIER, lambda it: it.begins_earlier),
    (LogChange.BEGINS_LATER, lambda it: it.begins_later),
    (LogChange.CONTINUED, lambda it: it.is_proven),
    (LogChange.UNPROVEN, lambda it: True),
)
"""All differences between a log and the last run's: the first case that holds is the answer."""


def change_of(compared: ComparedLog) -> LogChange:
    """Return what happened to the log since the last run."""
    return next(change for change, is_so in CASES if is_so(compared))


def compared_logs(
    plan: LogPlan,
    last_run: Mapping[int, PartitionHistory],
    evidence: Mapping[int, Evidence],
    *,
    is_same_topic: bool | None = None,
    has_ends: bool = True,
) -> dict[int, ComparedLog]:
    """Return offsets partition -> its log and the last run's memory of it, for the partitions of both.

    Args:
        last_run: what the last run remembers. evidence: what the input shows.
        is_same_topic: whether the topic has the id of the last run's; None where one of the ids is not known.
        has_ends: the input shows where each log ends. Rows of files show only the last record: they count as older if no partition has a
            record that is newer than the last run.
    """
    newest_ms = max((history.newest_timestamp_ms for history in last_run.values()), default=NO_TIMESTAMP)
    is_newer = any(of.newest_record is not None and of.newest_record.timestamp_ms > newest_ms for of in evidence.values())
    logs = {
        log.offsets_partition: ComparedLog(log, last_run[log.offsets_partition], evidence.get(log.offsets_partition, Evidence()))
        for log in plan.partitions
        if log.offsets_partition in last_run
    }
    if is_same_topic is None and any(log.shows_same_topic for log in logs.values()):
        is_same_topic = True
    return {
        number: replace(log, is_same_topic=is_same_topic, end_is_known=has_ends or (log.has_newest is None and not is_newer))
        for number, log in logs.items()
    }
