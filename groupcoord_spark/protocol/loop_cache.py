"""Where numba keeps the compiled loops of a package that lies in a zip, as ``spark-submit --py-files`` sends it.

numba names its own directory after the path of the zip. Each executor of each application has the zip at another path, so each would
compile the loops again, which takes some twenty seconds of CPU. The directory here is named after the text of the loops, so that a host
compiles them once.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

LOCATOR = f"{__name__}.LoopCache"


class LoopCache:
    """The place of one compiled function, with the methods by which numba asks for it."""

    def __init__(self, function: Callable[..., Any], source: bytes, directory: Path) -> None:
        self._line = function.__code__.co_firstlineno
        self._stamp = hashlib.sha256(source).digest()
        self._directory = directory / self._stamp.hex()[:16]

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> LoopCache | None:
        """The place for a function of a file in a zip; None where there is none, or no directory can be written."""
        loader: Any = getattr(sys.modules.get(function.__module__), "__loader__", None)
        directory = writable_directory()
        if directory is None or not hasattr(loader, "get_data"):
            return None
        found = cls(function, loader.get_data(file), directory)
        found.ensure_cache_path()
        return found

    def ensure_cache_path(self) -> None:
        """Make the directory."""
        self._directory.mkdir(mode=0o700, exist_ok=True)

    def get_cache_path(self) -> str:
        """The directory."""
        return str(self._directory)

    def get_source_stamp(self) -> bytes:
        """What changes with the file of the function."""
        return self._stamp

    def get_disambiguator(self) -> str:
        """What tells functions of one name apart."""
        return str(self._line)


def writable_directory() -> Path | None:
    """The directory of all such places, which this process can write; None: there is none.

    In NUMBA_CACHE_DIR, else in the user's cache, else in the directory for temporary files: containers of a cluster often have no home.
    """
    named = os.environ.get("NUMBA_CACHE_DIR")
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    places = [Path(named)] if named else [users, Path(tempfile.gettempdir())]
    for place in places:
        # The user's name: whoever can write the compiled code of others can have them run anything.
        directory = place / f"groupcoord_spark-loops-{_user()}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(directory):
                return directory
        except OSError:
            continue
    return None


@contextmanager
def used_for_zips() -> Iterator[None]:
    """A block in which modules with loops are loaded. Where they are in a zip, one process of a host loads them at a time.

    The first process compiles them; the others then find them. A list of places that the user gives to numba is left as it is.
    """
    import numba

    config: Any = numba.config
    directory = None if Path(__file__).exists() or getattr(config, "CACHE_LOCATOR_CLASSES", None) != "" else writable_directory()
    if directory is None:
        yield
        return
    config.CACHE_LOCATOR_CLASSES = LOCATOR
    try:
        with _locked(directory / "lock"):
            yield
    finally:
        config.CACHE_LOCATOR_CLASSES = ""


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    import fcntl  # not on Windows, where there are no executors that share a host

    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _is_ours(directory: Path) -> bool:
    status = directory.stat()
    return status.st_uid == _user() and not status.st_mode & 0o022 and os.access(directory, os.W_OK | os.X_OK)
