"""What a long command tells while it works: one line a stage on stderr, live on a terminal."""

from __future__ import annotations

import sys
import time
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

if TYPE_CHECKING:
    from rich.status import Status


class StageLines:
    """Stages of a run: name, rows, MB, seconds and rate. A context manager, so that an error does not leave a spinner turning."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._quiet = quiet
        self._stream = stream if stream is not None else sys.stderr
        self._stage: str | None = None
        self._began = 0.0
        self._live: Status | None = None

    @property
    def stage(self) -> str | None:
        """The stage that has begun and not ended."""
        return self._stage

    def begin(self, stage: str) -> None:
        """A stage has begun; a stage still open ends."""
        if self._stage is not None:
            self.end()
        self._stage, self._began = stage, time.monotonic()
        if not self._quiet and self._stream.isatty():
            from rich.console import Console

            self._live = Console(file=self._stream).status(stage)
            self._live.start()

    def end(self, *, rows: int | None = None, bytes: int | None = None) -> None:
        """The stage is done: its line is printed, with what it went through as far as that is known."""
        stage, self._stage = self._stage, None
        self._stop()
        if stage is not None and not self._quiet:
            with suppress(OSError):  # nobody reads the lines any more (| head), or their disk is full: the run goes on
                print(stage_line(stage, time.monotonic() - self._began, rows, bytes), file=self._stream, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def stage_line(stage: str, seconds: float, rows: int | None, bytes: int | None) -> str:
    """``read   10,000,000 rows   1,650.0 MB   12.3 s   813,008 rows/s``, without what is not known."""
    parts = [f"{stage:<24}"]
    if rows is not None:
        parts.append(f"{rows:>13,} rows")
    if bytes is not None:
        parts.append(f"{bytes / 1e6:>11,.1f} MB")
    parts.append(f"{seconds:>7.1f} s")
    if rows and seconds > 0:
        parts.append(f"{rows / seconds:>11,.0f} rows/s")
    return "  ".join(parts)
