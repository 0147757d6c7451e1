"""Loads modules with loops from files, also where the package lies in a zip, as ``spark-submit --py-files`` sends it.

numba keeps compiled code in a directory that it names after the path of the module. Each executor of each application has the zip at
another path, so each would compile the loops again, which takes some twenty seconds of CPU. A copy of the module in a file of the user,
in a directory that is named after its text, is the same for all of them, so that a host compiles the loops once.
"""

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any


def module_in_a_file(name: str) -> ModuleType:
    """Import the module from its own file, or from a copy if the package is in a zip.

    One process of a host loads a copy at a time: the first process compiles the loops, the others then find them compiled. The module is
    loaded from the zip where no copy can be written.
    """
    spec: Any = importlib.util.find_spec(name)
    directory = None if Path(spec.origin).exists() else writable_directory()
    if directory is None:
        return importlib.import_module(name)
    source = spec.loader.get_data(spec.origin)
    copy = directory / hashlib.sha256(source).hexdigest()[:16] / Path(spec.origin).name
    with _locked(directory / "lock"):
        if not copy.exists():
            copy.parent.mkdir(mode=0o700, exist_ok=True)
            unfinished = copy.with_suffix(".part")
            unfinished.write_bytes(source)
            unfinished.replace(copy)
        spec = importlib.util.spec_from_file_location(name, copy)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def users_cache() -> Path:
    """Return the user's cache directory."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())


def writable_directory() -> Path | None:
    """Return the directory of all copies if this process can write to it, else None.

    In NUMBA_CACHE_DIR, else in the user's cache, else in the directory for temporary files: containers of a cluster often have no home.
    """
    named = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(named)] if named else [users_cache(), Path(tempfile.gettempdir())]
    for place in places:
        # The directory contains the user's name: a process that can write another user's compiled code can run anything as that user.
        directory = place / f"groupcoord_spark-loops-{_user()}"
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            if _is_ours(directory):
                return directory
        except OSError:
            continue
    return None


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    import fcntl  # not available on Windows, which has no executors sharing a host

    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _user() -> int:
    return os.getuid() if hasattr(os, "getuid") else 0


def _is_ours(directory: Path) -> bool:
    status = directory.stat()
    return status.st_uid == _user() and not status.st_mode & 0o022 and os.access(directory, os.W_OK | os.X_OK)
