"""The temporary directory of a session that this package starts, and the processes that work in it.

Java, Spark and the Python workers put every temporary file below it, so that ending those processes and removing it leaves nothing behind,
however they end.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "groupcoord-run-"
VARIABLE = "GROUPCOORD_RUN_DIRECTORY"
"""The environment variable with the path of the directory. Java and all processes that Java starts have it, and are found by it."""

ABANDONED_AFTER_SECONDS = 86_400
SECONDS_TO_STOP = 10.0

_PROCESSES = Path("/proc")
_open: "list[RunDirectory]" = []


class RunDirectory:
    """A new temporary directory, with a lock that ends with this process.

    java_output: the file that Java's stdout and stderr go to.
    java: its process, once Spark is up.
    has_to_stop: Java has something to finish, or to remove elsewhere, and is asked to end before it is killed.
    is_to_keep_output: what Java printed stays when the directory is removed, for the user to look at.
    is_interrupted: the user wants the whole process to end, with its children; what failed since then is not to be looked at.
    """

    def __init__(self) -> None:
        remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=PREFIX))
        self.java_output = self.path / "java.log"
        self.has_to_stop = False
        self.is_to_keep_output = False
        self.is_interrupted = False
        self.java: subprocess.Popen[bytes] | None = None
        self._lock = os.open(self.path / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        _try_to_lock(self._lock)
        _open.append(self)

    @contextmanager
    def used_for_temporary_files(self) -> Iterator[None]:
        """Put temporary files of this process and its children into the directory inside the block."""
        was = tempfile.tempdir
        tempfile.tempdir = str(self.path)
        try:
            with changed_environment(**{VARIABLE: str(self.path), "TMPDIR": str(self.path)}):
                yield
        finally:
            tempfile.tempdir = was

    def processes(self) -> list[int]:
        """Ids of the processes with this directory in their environment, if the system shows the environment (Linux); else only of Java."""
        if not (_PROCESSES / "self" / "environ").exists():
            return [self.java.pid] if self.java is not None and self.java.poll() is None else []
        entry = f"{VARIABLE}={self.path}".encode()
        process_ids = []
        for directory in _PROCESSES.iterdir():
            if directory.name.isdigit():
                with suppress(OSError):  # belongs to another user, or the process has ended
                    # Between fork and exec a new process still shows the environment of this one.
                    is_new = self.is_interrupted and _is_child_of_this_process(directory)
                    if is_new or entry in (directory / "environ").read_bytes().split(b"\0"):
                        process_ids.append(int(directory.name))
        return process_ids

    def end_processes(self) -> None:
        """Kill Java, the workers and all processes that they started, and wait until they have ended."""
        if self.has_to_stop and self.java is not None:
            self.java.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.java.wait(SECONDS_TO_STOP)
        end = time.monotonic() + SECONDS_TO_STOP
        killed: set[int] = set()
        # Repeated, because Java may have started a process while the processes were listed.
        while ((processes := self.processes()) or any(map(_is_running, killed))) and time.monotonic() < end:
            for process_id in processes:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(process_id, signal.SIGKILL)
            killed.update(processes)
            time.sleep(0.005)
        for process_id in killed:  # children of this process would be zombies until somebody asks how they ended
            with suppress(ChildProcessError):
                os.waitpid(process_id, os.WNOHANG)

    def remove(self) -> None:
        """Remove the directory, or all of it except the output of Java, which a session removes that starts a day later."""
        if self.is_to_keep_output and not self.is_interrupted:
            for path in self.path.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                elif path != self.java_output:
                    path.unlink(missing_ok=True)
        else:
            shutil.rmtree(self.path, ignore_errors=True)
        if self in _open:
            _open.remove(self)
            os.close(self._lock)


def remove_abandoned() -> None:
    """Remove the directories that dead runs of this user left: older than a day, and locked by no process."""
    now = time.time()
    with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            if not entry.name.startswith(PREFIX):
                continue
            with suppress(OSError):  # another run is removing it
                status = entry.stat(follow_symlinks=False)
                is_own = entry.is_dir(follow_symlinks=False) and status.st_uid == os.getuid()
                if is_own and now - status.st_mtime > ABANDONED_AFTER_SECONDS and not _is_locked(Path(entry.path, "lock")):
                    shutil.rmtree(entry.path, ignore_errors=True)


@contextmanager
def changed_environment(**variables: str) -> Iterator[None]:
    """Set these variables in ``os.environ`` inside the block and restore them afterwards."""
    earlier_values = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in earlier_values.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _is_running(process: int) -> bool:
    """False once the process has ended, also where its parent has not asked for its exit code yet.

    A process that is ending has lost its environment and still holds its memory, ports and files for some hundredths of a second.
    """
    try:
        state = (_PROCESSES / str(process) / "stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return False
    return state not in (b"Z", b"X")


def _is_child_of_this_process(process: Path) -> bool:
    """Return whether the process is a running child of this process."""
    state, parent = (process / "stat").read_text().rsplit(") ", 1)[1].split()[:2]
    return int(parent) == os.getpid() and state != "Z"


def _is_locked(path: Path) -> bool:
    if not path.exists():
        return False
    file = os.open(path, os.O_RDWR)
    try:
        return not _try_to_lock(file)
    finally:
        os.close(file)


def _try_to_lock(file: int) -> bool:
    """Return whether this process holds the lock. The system releases it when the process ends for any reason."""
    import fcntl  # not on Windows, where the commands without Spark work

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def own_directory() -> RunDirectory | None:
    """Return the directory of the running session that this process started, or None."""
    return _open[-1] if _open else None


def interrupt_all() -> None:
    """End the processes of every directory that this process has made and not removed, after an interrupt by the user."""
    for directory in list(_open):
        directory.is_interrupted = True
        directory.end_processes()


def remove_all() -> None:
    """Remove every directory that this process has made and not removed."""
    for directory in list(_open):
        directory.remove()
