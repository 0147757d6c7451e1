"""The records of an offsets partition that a run reads: from its log, from the history tables, and up to which record offset."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from groupcoord_spark.warehouse.read import TablesOfRun


class HistoryRange(NamedTuple):
    """The record offsets of one offsets partition that the history tables have, from ``first_offset`` up to, not including, ``end_offset``.

    ``incarnation`` is the incarnation of the offsets topic that the record offsets belong to (docs/glossary.md#incarnation).
    """

    incarnation: int
    first_offset: int
    end_offset: int

    @property
    def is_empty(self) -> bool:
        """The range has no record offset."""
        return self.end_offset <= self.first_offset


NO_HISTORY = HistoryRange(0, 0, 0)
"""The history tables have no record of the partition."""


@dataclass(frozen=True, slots=True)
class HistoryPiece:
    """Records of one offsets partition that are read from the history tables.

    tables: as the run left them whose history is read. run_id: the run that read the whole log when the log ended at
    ``run_end_offset``; None where no run did.
    """

    offsets_partition: int
    history_range: HistoryRange
    tables: TablesOfRun
    run_id: str | None = None
    run_end_offset: int = 0


@dataclass(frozen=True, slots=True)
class CarriedState:
    """The latest records of an earlier run, which this run continues from.

    end_offsets: offsets partition -> record offset of the first record that is not in the state of these records. rows: offsets partition
    -> number of latest records. tables: as that run left them.
    """

    tables: TablesOfRun
    end_offsets: Mapping[int, int]
    rows: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Until:
    """The moment that --until names: before the first record later than ``time_ms``, or an end offset for each offsets partition.

    text: the moment as the user typed it. end_offsets: offsets partition -> record offset of the first record that is not replayed. An
    offsets partition that is missing here is replayed to the end of its log.
    """

    text: str
    time_ms: int | None = None
    end_offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PointInTime:
    """One offsets partition at an earlier moment.

    end_offset: record offset of the first record that is not replayed.
    history_range: the records that are read from the history tables instead of the log.
    complete_until: below this record offset a missing record was superseded before an earlier run read the log; from it on, a missing
    record may be lost state.
    run_id: the newest run by then that read the log from its beginning, up to ``run_end_offset``; the runs from there to ``complete_until``
    read each record. None where this run reads the whole log, or where no earlier run did.
    """

    end_offset: int
    history_range: HistoryRange
    complete_until: int
    run_id: str | None = None
    run_end_offset: int = 0
