"""``groupcoord export-offsets``: the file that kafka-consumer-groups --reset-offsets --from-file reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, group, night, offset


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Group ``lost`` had offsets in the first run only."""
    warehouse = tmp_path_factory.mktemp("export") / "warehouse"
    odd = 'a "b", ü'
    offsets = [offset("lost", "orders", 10, 7), offset("lost", "orders", 9, 5), offset(odd, "t", 0, 2**62), offset("two\nlines", "t", 0, 1)]
    night(warehouse, "prod", {"groups": [group("lost"), group(odd)], "committed_offsets": offsets}, as_of_ms=AS_OF_MS)
    night(warehouse, "prod", {"groups": [group(odd)], "committed_offsets": offsets[2:3]}, as_of_ms=AS_OF_MS + DAY_MS)
    return str(warehouse)


def test_one_group_is_a_file_of_three_columns_sorted_by_number(place: str) -> None:
    ran = groupcoord("export-offsets", "--warehouse", place, "--group", "lost", "--at", "2026-01-01T12:00:00Z")
    assert ran.exit_code == 0
    assert ran.stdout == '"orders",9,5\n"orders",10,7\n'
    assert "2 offsets of 1 group in the run of 2026-01-01T00:00:00Z" in ran.stderr
    assert "--group lost --reset-offsets --from-file FILE --execute" in ran.stderr


def test_several_groups_are_a_file_of_four_columns(place: str) -> None:
    both = ("--group", "lost", "--group", 'a "b", ü')
    ran = groupcoord("export-offsets", "--warehouse", place, *both, "--at", "2026-01-01", "--format", "reset-csv", "--quiet")
    assert ran.stdout == f'"a ""b"", ü","t",0,{2**62}\n"lost","orders",9,5\n"lost","orders",10,7\n'
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (["--group", "lost"], 1, "no committed offset of group 'lost' in the run of 2026-01-02T00:00:00Z"),
        (["--group", "two\nlines"], 1, "has a line break in its name"),
        ([], 2, "Missing option '--group'"),
    ],
)
def test_what_cannot_be_exported_is_told_and_nothing_is_printed(place: str, options: list[str], code: int, sentence: str) -> None:
    ran = groupcoord("export-offsets", "--warehouse", place, *options)
    assert (ran.exit_code, ran.stdout, sentence in ran.stderr) == (code, "", True)


def test_no_warehouse(tmp_path: Path) -> None:
    assert groupcoord("export-offsets", "--warehouse", str(tmp_path / "none"), "--group", "g").exit_code == 1
