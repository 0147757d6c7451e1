"""The compiled loops are loaded where they pay, a run goes on without them, and they read nothing beyond the end of a buffer."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

import groupcoord_spark
from groupcoord_spark.log.decode import batches, definition
from groupcoord_spark.log.decode.columnar import Rows
from groupcoord_spark.pipeline.replay import redundant_assignments
from groupcoord_spark.protocol import fast_path, primitives, programs, record_types
from groupcoord_spark.protocol.classic_group_checks import surely_loadable
from groupcoord_spark.protocol.slices import Slices
from groupcoord_spark.protocol.value_checks import check_values
from tests.pipeline.logs import MALFORMED_SUBSCRIPTIONS, SUBSCRIPTION, classic_value_of


@pytest.fixture
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(fast_path, "_rows_so_far", 0)
    fast_path.load.cache_clear()
    yield
    fast_path.load.cache_clear()


@pytest.mark.usefixtures("nothing_loaded")
def test_few_rows_load_nothing_but_use_what_is_loaded() -> None:
    assert not fast_path.loops_for(fast_path.ROWS_WORTH_LOADING - 1)
    assert fast_path.loops_for(1)
    assert fast_path.loops_for(0)


@pytest.mark.usefixtures("nothing_loaded")
def test_many_small_inputs_load_the_loops_in_the_end() -> None:
    step = fast_path.ROWS_WORTH_LOADING // 10
    loaded = [fast_path.loops_for(step) is not None for _ in range(10)]
    assert loaded == [False] * 9 + [True]


@pytest.mark.usefixtures("nothing_loaded")
def test_a_numba_that_cannot_be_imported_is_logged_once_and_done_without(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr("groupcoord_spark.protocol.loops", raising=False)
    monkeypatch.delitem(sys.modules, "groupcoord_spark.protocol.loops", raising=False)
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.setattr(fast_path, "remark_on_compiling", lambda: None)  # which depends on what ran here before
    with caplog.at_level(logging.WARNING):
        assert fast_path.loops_for(10**9) is None and fast_path.loops_for(10**9) is None
    (warning,) = caplog.messages
    assert "numba cannot be used here" in warning and "NUMBA_CACHE_DIR" in warning


def test_a_driver_warns_that_numba_is_not_installed_without_loading_anything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fast_path.warn_if_missing.cache_clear()
    with caplog.at_level(logging.WARNING):
        fast_path.warn_if_missing()
        assert caplog.messages == []
        fast_path.warn_if_missing.cache_clear()
        monkeypatch.setattr(fast_path, "find_spec", lambda name: None)
        fast_path.warn_if_missing()
        fast_path.warn_if_missing()
    assert len(caplog.messages) == 1 and "it is not installed" in caplog.messages[0]


def test_without_a_place_for_compiled_code_the_scalar_decoder_is_used(tmp_path: Path) -> None:
    """As a package that Spark ships in an archive, for a user whose directory for compiled code cannot be written."""
    package = Path(groupcoord_spark.__file__).parent
    archive = shutil.make_archive(str(tmp_path / "package"), "zip", package.parent, package.name)
    no_directory = tmp_path / "file"
    no_directory.touch()
    environment = {**os.environ, "PYTHONPATH": archive, "HOME": str(no_directory), "NUMBA_CACHE_DIR": str(no_directory / "cache")}
    asked = "from groupcoord_spark.protocol import fast_path; print(fast_path.__file__, fast_path.load())"
    run = subprocess.run([sys.executable, "-c", asked], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout.startswith(archive) and run.stdout.endswith(" None\n"), run.stdout
    assert "set NUMBA_CACHE_DIR to a directory that can be written" in run.stderr


def test_the_numbers_that_loops_repeat_are_those_of_their_definitions() -> None:
    loops = fast_path.load()
    assert loops
    repeated = {name: number for name, number in vars(loops).items() if isinstance(number, int | np.int64)}
    rooms = (batches, definition, redundant_assignments, primitives, programs, record_types)
    defined = {name: number for room in rooms for name, number in vars(room).items()}
    defined |= {key_type.name: int(key_type) for key_type in record_types.KeyType}
    defined |= {"NUMBERS_STEP" if step is programs.Action.NUMBERS else step.name: int(step) for step in programs.Action}
    defined |= {"DEEPEST": loops.DEEPEST}
    assert repeated == {name: defined[name] for name in repeated}


BEYOND = [(-1, 3), (0, 9), (9, 9), (5, 3)]
"""Where rows cannot lie in a buffer of eight bytes: start and end."""


@pytest.mark.usefixtures("with_loops")
@pytest.mark.parametrize(("start", "end"), BEYOND)
class TestRowsBeyondTheirBuffer:
    def test_are_not_copied_and_not_compared(self, start: int, end: int) -> None:
        with pytest.raises(IndexError, match="beyond the buffer"):
            self.rows(start, end).distinct()
        loops = fast_path.load()
        assert loops
        places = np.array([start]), np.array([end])
        assert not loops.gather(np.zeros(8, np.uint8), np.zeros(1, np.int64), *places, np.zeros(64, np.uint8), np.zeros(57, np.int64))

    def test_are_left_to_the_scalar_decoder(self, start: int, end: int) -> None:
        rows, one = self.rows(start, end), np.ones(1, np.bool_)
        values = check_values(np.ones(1, np.int16), one, one, rows)
        assert (values.value_version.tolist(), values.surely_decodes.tolist()) == ([-1], [False])
        loops = fast_path.load()
        assert loops
        for read in (lambda: self.odd(loops.read_rows, rows, np.ones(1, np.int64)), lambda: self.odd(loops.read_messages, rows)):
            assert read().tolist() == [True]

    def rows(self, start: int, end: int) -> Slices:
        return Slices(np.zeros(8, np.uint8), np.array([start]), np.array([end]), np.zeros(1, np.bool_))

    def odd(self, read: Callable[..., None], rows: Slices, *count: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Find the rows that the loop leaves unread."""
        is_odd, into = np.zeros(1, np.bool_), Rows.empty(1)
        read(rows.data, rows.start, rows.end, *count, *([into.batch] if count else []), *into.columns(), is_odd)
        return is_odd


def test_loops_of_the_tests_check_every_index() -> None:
    """Random and damaged bytes in all tests show so that no loop reads beyond its buffers. Here a buffer is too short on purpose."""
    loops = fast_path.load()
    assert loops
    data, no_words = np.zeros(8, np.uint8), np.zeros(0, np.int64)
    with pytest.raises(IndexError, match="out of bounds"):
        loops.gather(data, no_words, np.array([0]), np.array([8]), np.zeros(64, np.uint8), np.zeros(57, np.int64))


@pytest.mark.parametrize("version", range(5))
def test_group_values_that_brokers_write_are_sure_to_be_taken(version: int) -> None:
    assert fast_path.load()
    members = [(f"consumer-{i}", f"instance-{i}" if i % 2 else None, SUBSCRIPTION) for i in range(300)]
    values = [classic_value_of(members[:count], version=version) for count in (0, 1, 2, 300)]
    assert surely_loadable(Slices.of(list(values)), checks_subscriptions=True).all()


def test_a_subscription_is_looked_at_only_where_the_loader_reads_subscriptions() -> None:
    assert fast_path.load()
    malformed = [("a", None, MALFORMED_SUBSCRIPTIONS[0])]
    values = Slices.of([classic_value_of(malformed, protocol_type=kind) for kind in ("consumer", "connect")])
    assert surely_loadable(values, checks_subscriptions=True).tolist() == [False, True]
    assert surely_loadable(values, checks_subscriptions=False).tolist() == [True, True]
