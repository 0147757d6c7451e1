"""A small part of full_disk.py, without Spark: nights made by hand, on a disk that is full at some tenths of what they write."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from groupcoord_spark.errors import GroupcoordError, WarehouseError
from groupcoord_spark.spark import session as session_module
from groupcoord_spark.warehouse import open_warehouse
from groupcoord_spark.warehouse.maintenance import maintain
from tests.tools.faults.full_disk import ROOM, resize, small_disk, used_bytes
from tests.tools.faults.running import left_in_warehouse, made_older
from tests.warehouse.nights import few_tables, night, night_that_makes_tables
from tests.warehouse.test_two_runs import rows_of_night, rows_of_readers

pytestmark = pytest.mark.process


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    try:
        with small_disk(tmp_path / "disk", ROOM) as place:
            yield place
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("small file systems cannot be mounted here")


@pytest.mark.parametrize("number", [1, 2])
@few_tables()
def test_a_night_on_a_full_disk_is_one_sentence_and_the_next_one_is_whole(tmp_path: Path, disk: Path, number: int) -> None:
    expected = []
    if number > 1:
        night(tmp_path / "expected", "prod", rows_of_night(1))
        expected.append(rows_of_readers(tmp_path / "expected"))
        shutil.copytree(tmp_path / "expected", tmp_path / "before")
    night(tmp_path / "expected", "prod", rows_of_night(number))
    expected.append(rows_of_readers(tmp_path / "expected"))
    warehouse = disk / "w"
    if number > 1:
        shutil.copytree(tmp_path / "before", warehouse)
    empty = used_bytes(disk)
    shutil.copytree(tmp_path / "expected", disk / "measured")
    needed = used_bytes(disk) - 2 * empty
    shutil.rmtree(disk / "measured")
    for tenth in (0, 3, 6, 9):
        shutil.rmtree(warehouse, ignore_errors=True)
        if number > 1:
            shutil.copytree(tmp_path / "before", warehouse)
        warehouse.mkdir(exist_ok=True)
        resize(disk, used_bytes(disk) + needed * tenth // 10)
        with pytest.raises(WarehouseError) as raised:
            night_that_makes_tables(warehouse, "prod", rows_of_night(number))
        assert "\n" not in str(raised.value)
        if number > 1:
            assert rows_of_readers(warehouse) == expected[0]
        resize(disk, ROOM)
        night_that_makes_tables(warehouse, "prod", rows_of_night(number))
        assert rows_of_readers(warehouse) == expected[-1], tenth
        made_older(warehouse)
        maintain(str(warehouse), "prod")
        assert left_in_warehouse(warehouse) == []
    assert open_warehouse(str(warehouse)).runs().num_rows == number


def test_a_full_disk_for_temporary_files_is_said_before_java_would_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 1 << 40, 4096))
    with pytest.raises(GroupcoordError, match=r"The disk of \S+ is full: 4,096 bytes are left"):
        session_module._refuse_full_disk(str(tmp_path))
