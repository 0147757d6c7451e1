"""Progress of a run: the start and end of its stages."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.spark.job_progress import JobProgress

FEWEST_ROWS_FOR_A_RATE: Final = 100_000
LEAST_SECONDS_FOR_A_RATE: Final = 1.0
"""Below either, a rate says how long Spark takes to start a job, and nothing about rows."""

_log: Final = logging.getLogger(__name__)


class Stage(NamedTuple):
    """A stage that has ended, with rows and bytes where they are known. Its text is one line of 80 characters.

    note: what the stage found out, in a few words.
    """

    name: str
    seconds: float
    rows: int | None = None
    bytes: int | None = None
    note: str = ""

    def __str__(self) -> str:
        columns = [
            f"{self.name:<22}",
            f"{counted(self.rows, 'row') if self.rows is not None else '':>15}",
            f"{f'{self.bytes / 1e6:,.1f} MB' if self.bytes is not None else '':>11}",
            f"{self.seconds:>6.1f} s",
        ]
        if self.rows is not None and self.rows >= FEWEST_ROWS_FOR_A_RATE and self.seconds >= LEAST_SECONDS_FOR_A_RATE:
            columns.append(f"{self.rows / self.seconds:>9,.0f} rows/s")
        return "  ".join([*columns, self.note] if self.note else columns)


class Progress:
    """Measures the stages of a run and calls ``ended`` with each that has ended. A subclass may also show the stage that runs."""

    def __init__(self, ended: Callable[[Stage], object] | None = None) -> None:
        self._ended = ended
        self._stage: str | None = None
        self._began = 0.0

    @property
    def stage(self) -> str | None:
        """The stage that has begun and not ended; None between stages."""
        return self._stage

    def begin(self, stage: str) -> None:
        """Start a stage, ending the previous one."""
        if self._stage is not None:
            self.end()
        self._stage, self._began = stage, time.monotonic()

    def follow(self, job_progress: Callable[[], JobProgress]) -> None:
        """Follow a long stage. ``job_progress`` returns its progress and may be called by any thread at any time."""

    def end(self, *, rows: int | None = None, bytes: int | None = None, note: str = "") -> None:
        """End the stage, with its number of rows and bytes, and a note of a few words."""
        name, self._stage = self._stage, None
        if name is not None and self._ended is not None:
            self._ended(Stage(name, time.monotonic() - self._began, rows, bytes, note))

    def remark(self, sentence: str) -> None:
        """Something that whoever waits should know."""
        _log.warning("%s", sentence)
