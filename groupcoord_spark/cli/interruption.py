"""How Ctrl-C (SIGINT), SIGTERM and SIGHUP end a command: ``Interrupted.``, exit code 130, no process and no temporary file left.

The main thread is stopped by an exception, so that open files are closed and half-written ones removed. A second thread ends Java and the
workers at once, since the main thread may be waiting for them, and ends the process itself where the main thread does not come to an end,
as in a library that waits for the network.
"""

import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final, NoReturn

EXIT_CODE: Final = 130
SECONDS_TO_END: Final = 5.0

_SIGNALS: Final = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Interrupted(BaseException):
    """Raised in the main thread, once, wherever it is when the first signal comes. Only ``run_in_own_process`` catches it."""


class _Interruption:
    def __init__(self) -> None:
        self.has_come = False
        self._is_too_late = False
        self._decision = threading.Lock()
        self._end_of_process = threading.Lock()
        self._is_raised = False
        self._processes_have_ended = threading.Event()
        # A signal that is ignored stays so: `nohup`, and `&` in a script.
        self._signals = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        received, sent = os.pipe()
        os.set_blocking(sent, False)
        signal.set_wakeup_fd(sent, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, args=(received,), daemon=True, name="interruption").start()
        sys.unraisablehook = self._on_unraisable
        self.take_signals()

    def take_signals(self) -> None:
        for number in _SIGNALS:
            signal.signal(number, self._raise if number in self._signals else signal.SIG_IGN)

    def leave(self, code: int) -> NoReturn:
        """Ends the process; a signal that has come until now decides the exit code."""
        is_interrupted, self._is_raised = self._is_raised, True  # from here on no exception comes in between
        with self._decision:
            self._is_too_late = not (is_interrupted or self.has_come)
        if self._is_too_late:
            os._exit(code)
        self._processes_have_ended.wait(SECONDS_TO_END)
        self._end()

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if not self._is_raised:
            self._is_raised = True
            self._processes_have_ended.wait(SECONDS_TO_END)
            raise Interrupted

    def _watch(self, received: int) -> None:
        while os.read(received, 1)[0] not in self._signals:
            pass
        with self._decision:
            if self._is_too_late:
                return
            self.has_come = True
        warnings.simplefilter("ignore")  # libraries warn of work that ends unfinished
        _end_processes()
        self._processes_have_ended.set()
        time.sleep(SECONDS_TO_END)
        self._end()

    def _end(self) -> NoReturn:
        self._end_of_process.acquire()  # only the first thread that gets here goes on
        _end_processes(and_remove_files=True)
        with suppress(OSError):  # stderr is closed, or its reader has gone
            # Overwrites the ^C that a terminal shows, and shows the cursor again, which a live line hides.
            os.write(2, b"\r\x1b[K\x1b[?25hInterrupted.\n" if os.isatty(2) else b"Interrupted.\n")
        os._exit(EXIT_CODE)

    def _on_unraisable(self, unraisable: Any) -> None:
        # Where Python drops an exception, as in a destructor, the thread that watches ends the process.
        if not self.has_come:
            sys.__unraisablehook__(unraisable)


def _end_processes(*, and_remove_files: bool = False) -> None:
    """End Java and the workers. Only ``run_directory`` starts such processes; unless it was imported, none exist."""
    run_directory = sys.modules.get("groupcoord_spark.spark.run_directory")
    if run_directory is not None and hasattr(run_directory, "remove_all"):  # wholly imported
        run_directory.interrupt_all()
        if and_remove_files:
            run_directory.remove_all()


_of_this_process: _Interruption | None = None


def run_in_own_process(command: Callable[[], NoReturn]) -> NoReturn:
    """Runs a command that leaves by SystemExit, and ends this process with its exit code, or as interrupted."""
    global _of_this_process
    _of_this_process = interruption = _Interruption()
    code = 1
    try:
        try:
            command()
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except Interrupted:
            code = EXIT_CODE
        except BaseException:
            if not interruption.has_come:
                sys.excepthook(*sys.exc_info())
        _flush()
        interruption.leave(code)
    except Interrupted:
        interruption.leave(EXIT_CODE)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


def has_come() -> bool:
    """Return whether this is the command's own process and a signal has asked it to end, so that exceptions are not shown as errors."""
    return _of_this_process is not None and _of_this_process.has_come
