"""What a long command prints while it works: one line for each stage on stderr, updated in place on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TextIO

from groupcoord_spark.pipeline.progress import Progress, Stage

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from groupcoord_spark.spark.job_progress import JobProgress

SECONDS_BETWEEN_LOOKS: Final = 1.0
"""A look at the progress of a Spark job takes Java some milliseconds."""

LEAST_SHARE_FOR_AN_ESTIMATE: Final = 0.05

_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII_FRAMES: Final = "|/-\\"


class StageLines(Progress):
    """Prints the stages of a run: name, rows, MB, seconds and rate. A context manager, so that an error leaves no unfinished line."""

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        super().__init__(self._print)
        self._quiet = quiet
        self._stream = stream if stream is not None else sys.stderr
        self._live: Live | None = None
        self._job_progress: JobProgress | None = None
        self._first_look: tuple[float, float] | None = None
        self._has_ended = threading.Event()

    def begin(self, stage: str) -> None:
        """Begins a stage, and ends the stage before."""
        super().begin(stage)
        self._job_progress = self._first_look = None
        self._has_ended = threading.Event()
        if not self._quiet and self._stream.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(file=self._stream)
            self._live = Live(console=console, get_renderable=lambda: self._live_line(console), transient=True, refresh_per_second=8)
            self._live.start()

    def follow(self, job_progress: Callable[[], JobProgress]) -> None:
        """Shows on a terminal how far the current stage is: ``job_progress`` is called every second, in a thread of its own."""
        if self._live is None:
            return
        has_ended = self._has_ended

        def look() -> None:
            while not has_ended.wait(SECONDS_BETWEEN_LOOKS):
                with suppress(Exception):  # the job itself reports Spark's error
                    self._job_progress = job_progress()
                    # Before that the workers were being started: this says nothing of how fast they are.
                    if self._first_look is None and self._job_progress.share > 0:
                        self._first_look = time.monotonic() - self._began, self._job_progress.share

        threading.Thread(target=look, daemon=True, name="job_progress").start()

    def end(self, *, rows: int | None = None, bytes: int | None = None, note: str = "") -> None:
        """End the stage and print its line, with rows, bytes and a note where they are known."""
        self._stop()
        super().end(rows=rows, bytes=bytes, note=note)

    def remark(self, sentence: str) -> None:
        """Prints the sentence."""
        self._print(sentence)

    def _print(self, line: Stage | str) -> None:
        if not self._quiet:
            with suppress(OSError):  # nobody reads the lines any more (| head), or their disk is full: the run goes on
                print(line, file=self._stream, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop()

    def _stop(self) -> None:
        self._has_ended.set()
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _seconds_left(self, seconds: float) -> float | None:
        if self._job_progress is None or self._first_look is None:
            return None
        began, share = self._first_look
        done = self._job_progress.share - share
        return (seconds - began) * (1 - self._job_progress.share) / done if done >= LEAST_SHARE_FOR_AN_ESTIMATE else None

    def _live_line(self, console: Console) -> Text:
        from rich.text import Text

        seconds = time.monotonic() - self._began
        frames = _ASCII_FRAMES if console.options.ascii_only else _FRAMES
        frame = frames[int(seconds * 8) % len(frames)]
        line = f"{frame} {live_line(self._stage or '', seconds, self._job_progress, self._seconds_left(seconds), console.width - 2)}"
        return Text(line, no_wrap=True, overflow="ellipsis")


def live_line(stage: str, seconds: float, job_progress: JobProgress | None, seconds_left: float | None, width: int) -> str:
    """``read, replay and write  0:12  143 of 358 MB  about 0:17 left  2 of 11 tasks``, without what does not fit the width."""
    line = f"{stage}  {_clock(seconds)}"
    for part in _parts(job_progress, seconds_left) if job_progress is not None else []:
        if len(line) + 2 + len(part) > width:
            break
        line += f"  {part}"
    return line


def _parts(job_progress: JobProgress, seconds_left: float | None) -> list[str]:
    """Return the progress of the stage, the most useful parts first."""
    megabytes = f"{job_progress.bytes_read / 1e6:,.0f}"
    if job_progress.expected is not None:
        megabytes += f" of {job_progress.expected.bytes / 1e6:,.0f}"
    parts = [f"{megabytes} MB"] if job_progress.bytes_read else []
    if seconds_left is not None:
        parts.append(f"about {_clock(seconds_left)} left")
    return [*parts, f"{job_progress.tasks_done} of {job_progress.tasks} tasks"]


def _clock(seconds: float) -> str:
    """``0:07``, ``12:30``, ``1:02:03``."""
    minutes, seconds_left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds_left:02}" if hours else f"{minutes}:{seconds_left:02}"
