"""Which records of an offsets partition a run reads, and from where: its log, the history tables, up to which moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class HistoryRange(NamedTuple):
    """Record offsets of one offsets partition that the history tables hold: first up to and without end, of one incarnation."""

    incarnation: int
    first_offset: int
    end_offset: int


NO_HISTORY = HistoryRange(0, 0, 0)
"""The history tables hold nothing of the partition yet."""


@dataclass(frozen=True, slots=True)
class HistoryPiece:
    """Records of one offsets partition in the history tables; table_versions says as of which versions these are read.

    night: a run that read the log to its end when that was ``night_end``; None: no run is known to have.
    """

    offsets_partition: int
    held: HistoryRange
    table_versions: Mapping[str, int]
    night: str | None = None
    night_end: int = 0


@dataclass(frozen=True, slots=True)
class Until:
    """What --until asks for: the state before the first record later than ``time_ms``, or that at the given end offsets.

    text: as it was typed. end_offsets: offsets partition -> offset of the first record that is left out; those not named are read to
    their end.
    """

    text: str
    time_ms: int | None = None
    end_offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PointInTime:
    """One offsets partition at an earlier moment.

    end_offset: of the first record that is left out. from_history: the records that the history tables give instead of the log.
    known_until: up to there gaps between the offsets mean nothing: the log was read when it ended there, and what compaction had taken
    by then had been replaced by what was read. night: the run that did, None where it is this one, or none has.
    """

    end_offset: int
    from_history: HistoryRange
    known_until: int
    night: str | None = None
