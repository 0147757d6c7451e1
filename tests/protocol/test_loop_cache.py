"""Compiled loops of a package in a zip: one place for a host, wherever the zip lies. A changed loop is compiled again."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from groupcoord_spark.protocol import loop_cache, loops
from groupcoord_spark.protocol.loop_cache import writable_directory

ONE_LOOP = """
from numba import njit, types

@njit(types.int64(types.int64), cache=True)
def doubled(number):
    return 2 * number
"""

OF_A_FILE = """
from groupcoord_spark.protocol.loop_cache import module_in_a_file
loop = module_in_a_file("one_loop").doubled
print(loop(4), sum(loop.stats.cache_hits.values()), loop.py_func.__code__.co_filename)
"""


def loaded_in_a_process(place: Path, cache: Path) -> list[str]:
    """Load the loop from a zip in that directory in a process; return a result, the number of cache hits, and the file."""
    place.mkdir()
    with zipfile.ZipFile(place / "package.zip", "w") as archive:
        archive.writestr("one_loop.py", ONE_LOOP)
    path = os.pathsep.join([str(place / "package.zip"), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(cache)}
    return subprocess.run([sys.executable, "-c", OF_A_FILE], env=environment, capture_output=True, text=True, check=True).stdout.split()


def test_executors_of_one_host_compile_a_loop_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, second = (loaded_in_a_process(tmp_path / app, cache) for app in ("app-1", "app-2"))
    assert (first[:2], second[:2]) == (["8", "0"], ["8", "1"])
    assert first[2] == second[2] and Path(first[2]).is_relative_to(cache)
    assert len(list(cache.rglob("*.nbi"))) == 1


def test_a_package_in_files_is_loaded_as_it_lies() -> None:
    assert loop_cache.module_in_a_file(loops.__name__) is loops


def test_the_name_of_compiled_code_changes_with_the_file_whose_functions_other_files_use() -> None:
    assert loops.read_flat.py_func.__qualname__ == f"read_flat_{loops._STAMP}"


def test_a_container_without_a_home_uses_the_directory_for_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").write_text("a file, below which no directory can be made")
    (tmp_path / "tmp").mkdir()
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(loop_cache.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))  # type: ignore[attr-defined]
    found = writable_directory()
    assert found is not None
    assert found.parent == tmp_path / "tmp"
    found.chmod(0o777)  # others could put code there
    assert writable_directory() is None
