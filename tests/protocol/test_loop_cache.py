"""Compiled loops of a package in a zip: one place for a host, wherever the zip lies."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from numba import config

from groupcoord_spark.protocol import loop_cache
from groupcoord_spark.protocol.loop_cache import used_for_zips, writable_directory

ONE_LOOP = """
from numba import njit, types

@njit(types.int64(types.int64), cache=True)
def doubled(number):
    return 2 * number
"""


@pytest.fixture
def in_a_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The place of compiled code, for a package that is not in files."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(loop_cache, "__file__", str(tmp_path / "package.zip" / "loop_cache.py"))
    return tmp_path / "cache"


def loop_of_zip(place: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The loop, loaded from a zip in that directory."""
    place.mkdir()
    with zipfile.ZipFile(place / "package.zip", "w") as archive:
        archive.writestr("one_loop.py", ONE_LOOP)
    monkeypatch.setattr(sys, "path", [str(place / "package.zip"), *sys.path])
    monkeypatch.delitem(sys.modules, "one_loop", raising=False)
    with used_for_zips():
        return importlib.import_module("one_loop").doubled


def test_executors_of_one_host_compile_a_loop_once(in_a_zip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = loop_of_zip(tmp_path / "app-1", monkeypatch)
    second = loop_of_zip(tmp_path / "app-2", monkeypatch)
    assert (sum(first.stats.cache_hits.values()), sum(second.stats.cache_hits.values())) == (0, 1)
    assert first(4) == second(4) == 8
    assert len(list(in_a_zip.rglob("*.nbi"))) == 1
    assert config.CACHE_LOCATOR_CLASSES == ""


def test_a_package_in_files_keeps_its_cache_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with used_for_zips():
        assert config.CACHE_LOCATOR_CLASSES == ""


def test_places_that_the_user_names_for_numba_stay(in_a_zip: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "CACHE_LOCATOR_CLASSES", "InTreeCacheLocator")
    with used_for_zips():
        assert config.CACHE_LOCATOR_CLASSES == "InTreeCacheLocator"


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
