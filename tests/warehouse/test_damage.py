"""A warehouse that lost something: one sentence, and how to go on, for readers and for the next night."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.warehouse import open_warehouse
from groupcoord_spark.warehouse.location import cause_of
from groupcoord_spark.warehouse.open_table import OpenTable
from groupcoord_spark.warehouse.sql import Night
from tests.warehouse.nights import AS_OF_MS, DAY_MS, night
from tests.warehouse.test_two_runs import rows_of_night

pytestmark = pytest.mark.usefixtures("few_tables")

Damage = Callable[[Path], None]


def entry(number: int) -> Callable[[Path], Path]:
    return lambda table: sorted((table / "_delta_log").glob("*.json"))[number]


def without(file: Callable[[Path], Path]) -> Damage:
    return lambda table: file(table).unlink()


def truncated(file: Callable[[Path], Path]) -> Damage:
    return lambda table: file(table).write_bytes(file(table).read_bytes()[:60])


def flip_a_bit(path: Path) -> None:
    """One bit of the last value of the first column."""
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(path.read_bytes())
    content[begin + chunk.total_compressed_size - 1] ^= 4
    path.write_bytes(content)


def newest_data_file(table: Path) -> Path:
    return max((table / "cluster=prod").glob("*.parquet"), key=lambda path: path.stat().st_mtime)


def flip_in_the_name_of_a_column(path: Path, bit: int) -> None:
    """One bit of the name of the last column, wherever the file's footer has the name."""
    content = bytearray(path.read_bytes())
    name = pq.read_schema(path).names[-1].encode()
    begin = len(content) - int.from_bytes(content[-8:-4], "little") - 8
    while (at := content.find(name, begin)) >= 0:
        content[at] ^= bit
    path.write_bytes(content)


def flip_in_a_checkpoint(table: Path) -> None:
    """One bit of the size of the last column in the footer of a checkpoint. The size is then negative, and delta-rs panics."""
    DeltaTable(str(table)).create_checkpoint()
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    size = pq.ParquetFile(checkpoint).metadata.row_group(0).to_dict()["columns"][-1]["total_compressed_size"]
    assert size < 64, "one byte as Thrift writes it, whose lowest bit is the sign"
    content = bytearray(checkpoint.read_bytes())
    content[content.rindex(bytes([0x16, 2 * size, 0x26])) + 1] ^= 1
    checkpoint.write_bytes(content)


DAMAGES: dict[str, Damage] = {
    "newest entry": without(entry(-1)),
    "entry between": without(entry(1)),
    "truncated entry": truncated(entry(-1)),
    "data file": without(newest_data_file),
    "truncated data file": truncated(newest_data_file),
    "flipped bit": lambda table: flip_a_bit(newest_data_file(table)),
    "renamed column": lambda table: flip_in_the_name_of_a_column(newest_data_file(table), 1),
    "column that is no text": lambda table: flip_in_the_name_of_a_column(newest_data_file(table), 128),
    "checkpoint": flip_in_a_checkpoint,
    "log": lambda table: shutil.rmtree(table / "_delta_log"),
    "table": shutil.rmtree,
}


@pytest.fixture(scope="module")
def whole(few_tables: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole") / "w"
    for number in (1, 2):
        night(place, "prod", rows_of_night(number), as_of_ms=AS_OF_MS + number * DAY_MS)
    return place


@pytest.fixture
def damaged(tmp_path: Path, whole: Path) -> Callable[[str, str], Path]:
    def damage(table: str, what: str) -> Path:
        shutil.copytree(whole, tmp_path / "w")
        DAMAGES[what](tmp_path / "w" / table)
        return tmp_path / "w"

    return damage


def night_of(place: Path) -> Night:
    return open_warehouse(str(place)).night("prod")


def sentence_of(act: Callable[[], object]) -> str:
    with pytest.raises(WarehouseError) as raised:
        act()
    text = str(raised.value)
    assert "\n" not in text and "{" not in text and ".." not in text and len(text) < 800
    return text


@pytest.mark.parametrize("what", DAMAGES)
@pytest.mark.parametrize("table", ["groups", "offset_commits"])
def test_readers_name_the_table_and_the_way_out(damaged: Callable[[str, str], Path], table: str, what: str) -> None:
    place = damaged(table, what)
    text = sentence_of(lambda: open_warehouse(str(place)).read(table))
    assert table in text and "Restore it from a copy, or " in text


@pytest.mark.parametrize("what", ["data file", "truncated data file", "log", "table"])
def test_the_next_night_writes_a_state_table_anew(damaged: Callable[[str, str], Path], what: str) -> None:
    place = damaged("groups", what)
    night(place, "prod", rows_of_night(3))
    assert open_warehouse(str(place)).read("groups")["group_id"].to_pylist() == ["g3"]


@pytest.mark.parametrize("what", ["newest entry", "entry between", "truncated entry"])
def test_a_state_table_with_a_damaged_log_is_written_anew_after_its_directory_is_deleted(
    damaged: Callable[[str, str], Path], what: str
) -> None:
    place = damaged("groups", what)
    assert f"delete the directory {place}/groups" in sentence_of(lambda: night(place, "prod", rows_of_night(3)))
    shutil.rmtree(place / "groups")
    night(place, "prod", rows_of_night(3))
    assert open_warehouse(str(place)).read("groups")["group_id"].to_pylist() == ["g3"]


@pytest.mark.parametrize("what", ["newest entry", "entry between", "truncated entry", "log", "table"])
def test_the_next_night_refuses_a_damaged_history(damaged: Callable[[str, str], Path], what: str) -> None:
    place = damaged("offset_commits", what)
    assert "or run the nightly into another directory." in sentence_of(lambda: night(place, "prod", rows_of_night(3)))


@pytest.mark.parametrize("what", ["entry between", "truncated entry", "data file", "truncated data file", "log", "table"])
def test_without_runs_readers_and_nights_say_so(damaged: Callable[[str, str], Path], what: str) -> None:
    place = damaged("runs", what)
    for act in (lambda: open_warehouse(str(place)), lambda: night(place, "prod", rows_of_night(3))):
        assert "table runs" in sentence_of(act).lower()


def test_files_that_come_back_by_one_flipped_bit_of_the_log_are_named(tmp_path: Path, whole: Path) -> None:
    place = tmp_path / "w"
    shutil.copytree(whole, place)
    newest = entry(-1)(place / "groups")
    newest.write_bytes(newest.read_bytes().replace(b'{"remove":', b'{"remowe":'))
    for read in (lambda: open_warehouse(str(place)).read("groups"), lambda: night_of(place).sql("FROM groups")):
        assert "Table groups of" in (text := sentence_of(read)) and "its log names files with 2 rows of cluster 'prod', and 1 were" in text


@pytest.mark.parametrize("flipped", [(b'{"add":', b'{"adf":'), (b'{"cluster":"prod"},"size"', b'{"cluster":"prnd"},"size"')])
@pytest.mark.parametrize("table", ["groups", "offset_commits", "runs"])
def test_files_that_are_lost_by_one_flipped_bit_of_the_log_are_named(
    tmp_path: Path, whole: Path, table: str, flipped: tuple[bytes, bytes]
) -> None:
    place = tmp_path / "w"
    shutil.copytree(whole, place)
    newest = entry(-1)(place / table)
    newest.write_bytes(newest.read_bytes().replace(*flipped))
    reads = [lambda: open_warehouse(str(place)).read(table)]
    if table != "runs":
        reads.append(lambda: night_of(place).sql(f"FROM {table}"))
    if table != "groups":  # which a night replaces without a look at it
        reads.append(lambda: night(place, "prod", rows_of_night(3)))
    for read in reads:
        text = sentence_of(read)
        assert f"Table {table} of" in text and f"a file of {place}/{table}/_delta_log is damaged. Restore it from a copy" in text


def test_a_run_that_one_flipped_bit_of_the_log_gives_to_another_cluster_is_named(tmp_path: Path, whole: Path) -> None:
    """The number of rows that the newest commit left says nothing of an older run's: the file lies in its cluster's directory."""
    place, flipped = tmp_path / "w", (b'{"cluster":"prod"},"size"', b'{"cluster":"prnd"},"size"')
    shutil.copytree(whole, place)
    first = next(path for path in sorted((place / "runs" / "_delta_log").glob("*.json")) if flipped[0] in path.read_bytes())
    first.write_bytes(first.read_bytes().replace(*flipped))
    for read in (lambda: open_warehouse(str(place)), lambda: night(place, "prod", rows_of_night(3))):
        text = sentence_of(read)
        assert "its log names cluster=prod/" in text and "as a file of cluster 'prnd'" in text and f"{place}/runs/_delta_log" in text


def test_damage_of_one_cluster_hinders_no_reader_of_another(tmp_path: Path, whole: Path) -> None:
    place = tmp_path / "w"
    shutil.copytree(whole, place)
    night(place, "other", rows_of_night(7))
    for log in (place / "offset_commits" / "_delta_log").glob("*.json"):
        log.write_bytes(log.read_bytes().replace(b'{"cluster":"prod"},"size"', b'{"cluster":"prnd"},"size"'))
    warehouse = open_warehouse(str(place))
    assert warehouse.read("offset_commits", cluster="other")["record_offset"].to_pylist() == [7]
    assert "as a file of cluster 'prnd'" in sentence_of(lambda: warehouse.read("offset_commits", cluster="prod"))


def test_a_table_whose_rows_somebody_deleted_or_joined_since_the_last_night_can_be_read(tmp_path: Path, whole: Path) -> None:
    place = tmp_path / "w"
    shutil.copytree(whole, place)
    DeltaTable(str(place / "offset_commits")).optimize.compact()
    night(place, "prod", rows_of_night(3))
    assert open_warehouse(str(place)).read("offset_commits").num_rows == 3
    DeltaTable(str(place / "offset_commits")).delete("record_offset = 2")
    assert open_warehouse(str(place)).read("offset_commits").num_rows == 3, "as the night left it"
    night(place, "prod", rows_of_night(4))
    assert sorted(open_warehouse(str(place)).read("offset_commits")["record_offset"].to_pylist()) == [1, 3, 4]


def test_a_night_of_an_older_release_in_between_says_nothing_of_the_rows(tmp_path: Path, whole: Path) -> None:
    place = tmp_path / "w"
    shutil.copytree(whole, place)
    with patch.object(OpenTable, "_transaction_of_rows", lambda *_: []):
        night(place, "prod", rows_of_night(3))
    night(place, "prod", rows_of_night(4))
    assert open_warehouse(str(place)).read("offset_commits").num_rows == 4


def test_a_run_whose_row_is_lost_is_taken_back_as_if_it_had_not_finished(damaged: Callable[[str, str], Path]) -> None:
    place = damaged("runs", "newest entry")
    night(place, "prod", rows_of_night(3))
    assert sorted(open_warehouse(str(place)).read("offset_commits")["record_offset"].to_pylist()) == [1, 3]


def test_the_cause_of_an_error_of_delta_is_in_its_sentence() -> None:
    causes = ("Unable to copy data", "No space left on device (os error 28)")
    text = "\n".join(["Generic LocalFileSystem error", *(f"  \x1b[31m↳\x1b[0m {cause}" for cause in causes)])
    assert cause_of(OSError(text)) == "Generic LocalFileSystem error: No space left on device (os error 28)"
    assert cause_of(OSError("Kernel error: found gap: ParsedLogPath { location: 7 }.")) == "Kernel error: found gap"
    assert cause_of(OSError()) == "OSError"
