"""Keeps the files of a log in use open from the moment when they were listed, so that all processes of this machine read those files.

The log cleaner of a running broker never changes a file that has another one after it: it puts a new file in its place. A process
that has the old file open still reads the old bytes, also after the file was renamed or deleted (docs/decisions/0014-files-held-open.md).
"""

import errno
import os
import stat
import sys
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Final

LEAST_DESCRIPTOR: Final = 1024
"""Lowest number of a long-lived descriptor: Spark's driver listens to Java with ``select``, which accepts none from 1,024 on."""

_DESCRIPTORS: Final = "/proc/{}/fd"


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A file that another process of this machine, or this one, keeps open.

    Attributes:
        path: opens it in every process of the same user. On another machine it leads nowhere, or to another file.
        device, inode: which file it is.
    """

    path: str
    device: int
    inode: int

    def is_there(self) -> bool:
        """Return whether the path leads to this file. It does not on another machine or after the file was released."""
        try:
            status = os.stat(self.path)  # noqa: PTH116
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self.device, self.inode)


class HeldFiles(AbstractContextManager["HeldFiles"]):
    """Files that stay open until the block ends. Where the system does not allow it, nothing is held, and files are read by their paths."""

    def __init__(self) -> None:
        self._descriptors: list[int] = []
        self._limits: tuple[int, int] | None = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def hold(self, path: str) -> HeldFile | None:
        """Open and hold the file at ``path``. Return None if it is gone, the system has no /proc, or too many files are open.

        Several threads may call it at the same time.
        """
        if not sys.platform.startswith("linux"):
            return None
        try:
            descriptor, status = self._opened(path)
        except OSError:
            return None
        held = HeldFile(f"{_DESCRIPTORS.format(os.getpid())}/{descriptor}", status.st_dev, status.st_ino)
        if not held.is_there():
            os.close(descriptor)
            return None
        self._descriptors.append(descriptor)
        return held

    def let_go(self, file: HeldFile) -> None:
        """Close one of the files."""
        descriptor = int(file.path.rpartition("/")[2])
        self._descriptors.remove(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        """Close all files."""
        while self._descriptors:
            os.close(self._descriptors.pop())
        if self._limits is not None:
            import resource

            resource.setrlimit(resource.RLIMIT_NOFILE, self._limits)
            self._limits = None

    def _opened(self, path: str) -> tuple[int, os.stat_result]:
        """Return a descriptor of the file, from LEAST_DESCRIPTOR on, and its status.

        Raises OSError where there can be none, and for a pipe, socket or device.
        """
        import fcntl

        low = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            status = os.fstat(low)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "no regular file", path)
            try:
                return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR), status
            except OSError:
                if not self._limit_is_raised():
                    raise
                return fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR), status
        finally:
            os.close(low)

    def _limit_is_raised(self) -> bool:
        """Raise the number of files that this process may have open. Returns whether it could be raised."""
        import resource

        if self._limits is None:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            if soft == hard:
                return False
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            except (OSError, ValueError):  # the limit of the whole system is lower
                return False
            self._limits = soft, hard
        return True
