"""A small part of damage.py."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.warehouse import groupcoord
from tests.running import tables_of
from tests.tools.faults.damage import DAMAGES, called, night

pytestmark = pytest.mark.usefixtures("commands_run_nights_here")

LOST = ("groups", "members", "assignments", "offsets_partitions", "decode_coverage")
"""Tables of the state that the next night reads."""


def test_tables_of_the_state_that_were_deleted_are_rebuilt_by_the_next_night(tmp_path: Path) -> None:
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    for number in (1, 2):
        assert night(whole, number) == (0, "")
    shutil.copytree(whole, damaged)
    for table in LOST:
        DAMAGES["table deleted"](damaged / table)
    # A log that is read again is known from its beginning, as with --full.
    assert night(whole, 3, "--full") == night(damaged, 3) == (0, "")
    not_compared = ("runs", "surviving_records", "decode_coverage")  # the coverage begins again with what the log still has
    assert tables_of(damaged, but=not_compared) == tables_of(whole, but=not_compared)


def test_a_file_in_place_of_a_table_and_a_damaged_file_are_one_sentence(tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    assert night(warehouse, 1) == (0, "")
    DAMAGES["data file cut"](warehouse / "groups")
    told = groupcoord("sql", "SELECT * FROM groups", "--warehouse", str(warehouse))
    assert told.exit_code == 1
    assert told.stderr.startswith(f"Error: Table groups of {warehouse} cannot be read: ") and "Restore it from a copy" in told.stderr
    DAMAGES["table is a file"](warehouse / "members")
    code, stderr = called("nightly", "tests/golden/nights/2/logs", "--warehouse", str(warehouse), "--cluster", "nights", "--quiet")
    assert code == 1
    assert stderr.startswith(f"Error: Table members of {warehouse} cannot be read: ") and len(stderr.splitlines()) == 1
