"""A warehouse that lost something: one sentence, and how to go on, for readers and for the next run."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from groupcoord_spark.errors import WarehouseError
from groupcoord_spark.storage.warehouse_location import cause_of
from groupcoord_spark.warehouse import begin_run, open_warehouse
from groupcoord_spark.warehouse.maintenance import maintain
from groupcoord_spark.warehouse.open_table import OpenTable
from groupcoord_spark.warehouse.sql import Snapshot
from groupcoord_spark.warehouse.write import open_to_write
from tests.warehouse.nights import AS_OF_MS, DAY_MS, FEW_TABLES, night
from tests.warehouse.test_two_runs import rows_of_night

pytestmark = pytest.mark.usefixtures("few_tables")

Damage = Callable[[Path], None]


def entry(number: int) -> Callable[[Path], Path]:
    return lambda table: sorted((table / "_delta_log").glob("*.json"))[number]


def without(file: Callable[[Path], Path]) -> Damage:
    return lambda table: file(table).unlink()


def truncated(file: Callable[[Path], Path]) -> Damage:
    return lambda table: file(table).write_bytes(file(table).read_bytes()[:60])


def empty(file: Callable[[Path], Path]) -> Damage:
    """As a power cut leaves a file that was never written to the disk."""
    return lambda table: file(table).write_bytes(b"")


def cut_before(mark: bytes) -> Damage:
    """Return the newest entry ends before the line of that action, as a copy that broke off leaves it."""

    def cut(table: Path) -> None:
        lines = entry(-1)(table).read_bytes().splitlines(keepends=True)
        entry(-1)(table).write_bytes(b"".join(lines[: next(at for at, line in enumerate(lines) if mark in line)]))

    return cut


def fifo(file: Callable[[Path], Path]) -> Damage:
    def put(table: Path) -> None:
        path = file(table)
        path.unlink(missing_ok=True)
        os.mkfifo(path)

    return put


def transaction_of_65_bits(table: Path) -> None:
    content, mark = entry(-1)(table).read_text(), '"appId":"groupcoord:prod","version":'
    entry(-1)(table).write_text(content.replace(mark, f"{mark}1844674407370955161"))


def flip_a_bit(path: Path) -> None:
    """Flip one bit of the last value of the first column."""
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(0)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    content = bytearray(path.read_bytes())
    content[begin + chunk.total_compressed_size - 1] ^= 4
    path.write_bytes(content)


def newest_data_file(table: Path) -> Path:
    return max((table / "cluster=prod").glob("*.parquet"), key=lambda path: path.stat().st_mtime)


def flip_in_the_name_of_a_column(path: Path, bit: int) -> None:
    """Flip one bit of the name of the last column, wherever the file's footer has the name."""
    content = bytearray(path.read_bytes())
    name = pq.read_schema(path).names[-1].encode()
    begin = len(content) - int.from_bytes(content[-8:-4], "little") - 8
    while (at := content.find(name, begin)) >= 0:
        content[at] ^= bit
    path.write_bytes(content)


def flip_in_a_checkpoint(table: Path) -> None:
    """Flip one bit of the size of the last column in the footer of a checkpoint. The size is then negative, and delta-rs panics."""
    DeltaTable(str(table)).create_checkpoint()
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    size = pq.ParquetFile(checkpoint).metadata.row_group(0).to_dict()["columns"][-1]["total_compressed_size"]
    assert size < 64, "one byte as Thrift writes it, whose lowest bit is the sign"
    content = bytearray(checkpoint.read_bytes())
    content[content.rindex(bytes([0x16, 2 * size, 0x26])) + 1] ^= 1
    checkpoint.write_bytes(content)


def with_checkpoint(change: Callable[[Path], object]) -> Damage:
    """Return a checkpoint of the newest version as a power cut leaves it: Delta wrote it a moment before."""

    def damage(table: Path) -> None:
        DeltaTable(str(table)).create_checkpoint()
        change(next((table / "_delta_log").glob("*.checkpoint.parquet")))

    return damage


def in_place_of_an_entry(put: Callable[[Path], object]) -> Damage:
    def replace_entry(table: Path) -> None:
        path = entry(-1)(table)
        path.unlink()
        put(path)

    return replace_entry


CHECKPOINTS: dict[str, Damage] = {
    "checkpoint of 0 bytes": with_checkpoint(lambda path: path.write_bytes(b"")),
    "half a checkpoint": with_checkpoint(lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])),
    "checkpoint of zeros": with_checkpoint(lambda path: path.write_bytes(bytes(path.stat().st_size))),
    "pointer without a checkpoint": with_checkpoint(Path.unlink),
    "flipped bit in a checkpoint": flip_in_a_checkpoint,
}
"""Damages of a file that a log with all entries does not need."""

DAMAGES: dict[str, Damage] = {
    "newest entry": without(entry(-1)),
    "entry between": without(entry(1)),
    "truncated entry": truncated(entry(-1)),
    "empty entry": empty(entry(-1)),
    "entry of zeros": lambda table: entry(-1)(table).write_bytes(bytes(entry(-1)(table).stat().st_size)),
    "entry of other JSON": lambda table: entry(-1)(table).write_bytes(b'{"commitInfo": {"userMetadata": 3}}'),
    "entry without its actions": cut_before(b'{"add":'),
    "entry without its transactions": cut_before(b'{"txn":'),
    "FIFO for an entry": fifo(entry(-1)),
    "directory for an entry": in_place_of_an_entry(Path.mkdir),
    "link that leads nowhere for an entry": in_place_of_an_entry(lambda path: path.symlink_to("nowhere")),
    "FIFO for a pointer": fifo(lambda table: table / "_delta_log" / "_last_checkpoint"),
    "transaction of 65 bits": transaction_of_65_bits,
    "data file": without(newest_data_file),
    "empty data file": empty(newest_data_file),
    "FIFO for a data file": fifo(newest_data_file),
    "truncated data file": truncated(newest_data_file),
    "flipped bit": lambda table: flip_a_bit(newest_data_file(table)),
    "renamed column": lambda table: flip_in_the_name_of_a_column(newest_data_file(table), 1),
    "column that is not text": lambda table: flip_in_the_name_of_a_column(newest_data_file(table), 128),
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
        (DAMAGES | CHECKPOINTS)[what](tmp_path / "w" / table)
        return tmp_path / "w"

    return damage


def run_of(place: Path) -> Snapshot:
    return open_warehouse(str(place)).snapshot("prod")


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
    assert table in text and str(place) in text and "Restore it from a copy, or " in text


DAMAGES_OF_A_LOG = (
    *("newest entry", "entry between", "truncated entry", "empty entry", "entry without its actions", "entry without its transactions"),
    *("FIFO for an entry", "FIFO for a pointer", "transaction of 65 bits", "entry of zeros", "entry of other JSON"),
    *("directory for an entry", "link that leads nowhere for an entry"),
)


@pytest.mark.parametrize("what", ["data file", "truncated data file", "empty data file", "FIFO for a data file", "log", "table"])
def test_the_next_night_writes_a_state_table_anew(damaged: Callable[[str, str], Path], what: str) -> None:
    place = damaged("groups", what)
    night(place, "prod", rows_of_night(3))
    assert open_warehouse(str(place)).read("groups")["group_id"].to_pylist() == ["g3"]


@pytest.mark.parametrize("what", DAMAGES_OF_A_LOG)
def test_a_state_table_with_a_damaged_log_is_written_anew_after_its_directory_is_deleted(
    damaged: Callable[[str, str], Path], what: str
) -> None:
    place = damaged("groups", what)
    assert f"delete the directory {place}/groups" in sentence_of(lambda: night(place, "prod", rows_of_night(3)))
    shutil.rmtree(place / "groups")
    night(place, "prod", rows_of_night(3))
    assert open_warehouse(str(place)).read("groups")["group_id"].to_pylist() == ["g3"]


@pytest.mark.parametrize("what", [*DAMAGES_OF_A_LOG, "log", "table"])
def test_the_next_night_refuses_a_damaged_history(damaged: Callable[[str, str], Path], what: str) -> None:
    place = damaged("offset_commits", what)
    assert "or run the nightly into another directory." in sentence_of(lambda: night(place, "prod", rows_of_night(3)))


@pytest.mark.parametrize(
    "what",
    [
        *("entry between", "truncated entry", "data file", "truncated data file", "log", "table", "empty data file"),
        *("FIFO for a data file", "FIFO for an entry", "FIFO for a pointer", "transaction of 65 bits"),
        *("directory for an entry", "link that leads nowhere for an entry"),
    ],
)
def test_without_runs_readers_and_nights_say_so(damaged: Callable[[str, str], Path], what: str) -> None:
    place = damaged("runs", what)
    for act in (lambda: open_warehouse(str(place)).run("prod"), lambda: night(place, "prod", rows_of_night(3))):
        assert "table runs" in sentence_of(act).lower()


@pytest.mark.parametrize("what", CHECKPOINTS)
@pytest.mark.parametrize("table", ["groups", "offset_commits", "runs"])
def test_the_next_night_deletes_a_damaged_checkpoint_that_the_log_does_not_need(
    damaged: Callable[[str, str], Path], table: str, what: str
) -> None:
    place = damaged(table, what)
    text = sentence_of(lambda: open_warehouse(str(place)).read(table))
    assert f"Table {table} of {place} cannot be read" in text and "run the nightly, which deletes it." in text
    night(place, "prod", rows_of_night(3))
    assert sorted(open_warehouse(str(place)).read("offset_commits")["record_offset"].to_pylist()) == [1, 2, 3]


def test_a_damaged_checkpoint_stays_where_the_log_needs_it(damaged: Callable[[str, str], Path]) -> None:
    place = damaged("offset_commits", "checkpoint of 0 bytes")
    entry(0)(place / "offset_commits").unlink()
    for act in (lambda: open_warehouse(str(place)).read("offset_commits"), lambda: night(place, "prod", rows_of_night(3))):
        assert "Restore it from a copy, or run the nightly into another directory." in sentence_of(act)
    assert list((place / "offset_commits" / "_delta_log").glob("*.checkpoint.parquet"))


def test_files_that_come_back_by_one_flipped_bit_of_the_log_are_named(tmp_path: Path, whole: Path) -> None:
    place = tmp_path / "w"
    shutil.copytree(whole, place)
    newest = entry(-1)(place / "groups")
    newest.write_bytes(newest.read_bytes().replace(b'{"remove":', b'{"remowe":'))
    for read in (lambda: open_warehouse(str(place)).read("groups"), lambda: run_of(place).sql("FROM groups")):
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
        reads.append(lambda: run_of(place).sql(f"FROM {table}"))
    if table != "groups":  # which a run replaces without a look at it
        reads.append(lambda: night(place, "prod", rows_of_night(3)))
    for read in reads:
        text = sentence_of(read)
        assert f"Table {table} of" in text and f"a file of {place}/{table}/_delta_log is damaged. Restore it from a copy" in text


def test_a_run_that_one_flipped_bit_of_the_log_gives_to_another_cluster_is_named(tmp_path: Path, whole: Path) -> None:
    # The number of rows that the newest commit left says nothing of an older run's: the file lies in its cluster's directory.
    place, flipped = tmp_path / "w", (b'{"cluster":"prod"},"size"', b'{"cluster":"prnd"},"size"')
    shutil.copytree(whole, place)
    first = next(path for path in sorted((place / "runs" / "_delta_log").glob("*.json")) if flipped[0] in path.read_bytes())
    first.write_bytes(first.read_bytes().replace(*flipped))
    for read in (lambda: open_warehouse(str(place)).run("prod"), lambda: night(place, "prod", rows_of_night(3))):
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
    assert open_warehouse(str(place)).read("offset_commits").num_rows == 3, "as the run left it"
    night(place, "prod", rows_of_night(4))
    assert sorted(open_warehouse(str(place)).read("offset_commits")["record_offset"].to_pylist()) == [1, 3, 4]


def test_a_night_of_an_older_release_in_between_says_nothing_of_the_rows(tmp_path: Path, whole: Path) -> None:
    place = tmp_path / "w"
    shutil.copytree(whole, place)
    with patch.object(OpenTable, "_transaction_of_rows", lambda *_: []):
        night(place, "prod", rows_of_night(3))
    night(place, "prod", rows_of_night(4))
    assert open_warehouse(str(place)).read("offset_commits").num_rows == 4


@pytest.mark.parametrize("table", sorted(set(FEW_TABLES) - {"runs"}))
def test_the_commit_of_the_last_night_is_looked_for_in_every_table(damaged: Callable[[str, str], Path], table: str) -> None:
    place = damaged(table, "empty entry")
    for act in (
        lambda: open_warehouse(str(place)).read(table),
        lambda: run_of(place).sql(f"FROM {table}"),
        lambda: night(place, "prod", rows_of_night(3)),
        lambda: maintain(str(place), "prod"),
    ):
        assert f"Table {table} of {place} cannot be read at version" in (text := sentence_of(act))
        assert f"{entry(-1)(place / table)} is empty or cut off. Restore it from a copy, or" in text


def test_upkeep_deletes_nothing_where_an_older_night_has_lost_its_commit(tmp_path: Path, whole: Path) -> None:
    place = Path(shutil.copytree(whole, tmp_path / "w"))
    lost = entry(-1)(place / "groups")
    night(place, "prod", rows_of_night(3))
    lost.write_bytes(b"")
    files = set((place / "groups").rglob("*.parquet"))
    assert f"{lost} is empty or cut off" in sentence_of(lambda: maintain(str(place), "prod"))
    assert set((place / "groups").rglob("*.parquet")) == files


def test_a_log_that_cannot_be_read_while_a_run_begins_is_one_sentence(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Path(shutil.copytree(whole, tmp_path / "w"))
    for question in ("transaction_version", "get_add_actions", "update_incremental"):
        for error in (OSError(5, "Input/output error"), PermissionError(13, "Permission denied"), DeltaError("Kernel error: EIO")):
            warehouse = open_to_write(str(place))

            def fail(*_: object, error: Exception = error, **__: object) -> None:
                raise error

            with monkeypatch.context() as patched:
                patched.setattr(DeltaTable, question, fail)
                text = sentence_of(lambda: begin_run(warehouse, "prod"))  # noqa: B023
            assert text.startswith("Table ") and str(place) in text


DELETION_VECTOR = struct.pack("<IQIIIHHIH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 0)
"""A bitmap with the number 0, as Delta stores it: the first row of a file is deleted."""


def z85(content: bytes) -> str:
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    words = struct.unpack(f">{len(content) // 4}I", content)
    return "".join(digits[word // 85**place % 85] for word in words for place in range(4, -1, -1))


def delete_a_row_by_a_deletion_vector(table: Path) -> None:
    """As Spark's DELETE, after somebody enabled deletion vectors."""
    add = next(json.loads(line)["add"] for line in entry(-1)(table).read_text().splitlines() if '"add"' in line)
    vector = z85(DELETION_VECTOR.ljust(36, b"\0"))
    marked = {"storageType": "i", "pathOrInlineDv": vector, "sizeInBytes": len(DELETION_VECTOR), "cardinality": 1}
    removed = {name: add[name] for name in ("path", "dataChange", "partitionValues", "size")} | {"deletionTimestamp": 0}
    features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors", "invariants", "appendOnly"]}
    actions = [
        {"commitInfo": {"operation": "DELETE"}},
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, **features}},
        {"remove": removed | {"extendedFileMetadata": True}},
        {"add": add | {"deletionVector": marked}},
    ]
    newest = int(entry(-1)(table).name[:20])
    (table / "_delta_log" / f"{newest + 1:020}.json").write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("table", ["groups", "offset_commits", "committed_offsets"])
def test_deletion_vectors_are_refused_with_a_way_out(tmp_path: Path, whole: Path, table: str) -> None:
    place = Path(shutil.copytree(whole, tmp_path / "w"))
    before = open_warehouse(str(place)).read(table)
    delete_a_row_by_a_deletion_vector(place / table)
    assert open_warehouse(str(place)).read(table) == before, "as the run left it"
    for act in (lambda: night(place, "prod", rows_of_night(3)), lambda: maintain(str(place), "prod")):
        text = sentence_of(act)
        assert f"Table {table} of {place} has deletion vectors" in text
        assert f"Run REORG TABLE delta.`{place}/{table}` APPLY (PURGE) in Spark, and then the nightly." in text


@pytest.mark.parametrize(
    ("versions", "features", "properties", "named"),
    [
        ((3, 7), ["deletionVectors"], {}, None),
        ((2, 5), None, {}, None),
        ((3, 7), ["columnMapping"], {}, None),
        ((2, 5), None, {"delta.columnMapping.mode": "name"}, "columnMapping"),
        ((3, 7), ["columnMapping"], {"delta.columnMapping.mode": "id"}, "columnMapping"),
        *(((3, 7), [name], {}, name) for name in ("v2Checkpoint", "timestampNtz", "typeWidening", "variantType", "vacuumProtocolCheck")),
        ((3, 7), ["catalogManaged"], {}, "catalog-managed"),
        ((3, 7), ["aFeatureOfLater"], {}, "aFeatureOfLater"),
        ((4, 8), None, {}, "reader version 4"),
    ],
)
def test_features_of_delta_that_are_not_read_are_refused_by_every_reader(
    tmp_path: Path, whole: Path, versions: tuple[int, int], features: list[str] | None, properties: dict[str, str], named: str | None
) -> None:
    for table in ("offset_commits", "runs"):
        place = Path(shutil.copytree(whole, tmp_path / table))
        protocol = {"minReaderVersion": versions[0], "minWriterVersion": versions[1]}
        if features is not None:
            protocol |= {"readerFeatures": features, "writerFeatures": features}
        metadata = json.loads(next(line for line in entry(0)(place / table).read_text().splitlines() if '"metaData"' in line))
        metadata["metaData"]["configuration"] |= properties
        newest = entry(-1)(place / table)
        newest.write_text("\n".join([newest.read_text(), json.dumps({"protocol": protocol}), json.dumps(metadata)]))
        reads = [lambda: open_warehouse(str(place)).read(table), lambda: run_of(place).sql(f"FROM {table}")]  # noqa: B023
        for read in (*reads, lambda: night(place, "prod", rows_of_night(3))):  # noqa: B023
            if named is None:
                read()
            else:
                text = sentence_of(read)
                assert f"Table {table} of {place} cannot be read" in text and named in text, text


@pytest.mark.parametrize("what", ["newest entry", "empty entry"])
def test_a_run_whose_row_is_lost_is_taken_back_as_if_it_had_not_finished(damaged: Callable[[str, str], Path], what: str) -> None:
    place = damaged("runs", what)
    night(place, "prod", rows_of_night(3))
    assert sorted(open_warehouse(str(place)).read("offset_commits")["record_offset"].to_pylist()) == [1, 3]


def test_the_cause_of_an_error_of_delta_is_in_its_sentence() -> None:
    causes = ("Unable to copy data", "No space left on device (os error 28)")
    text = "\n".join(["Generic LocalFileSystem error", *(f"  \x1b[31m↳\x1b[0m {cause}" for cause in causes)])
    assert cause_of(OSError(text)) == "Generic LocalFileSystem error: No space left on device (os error 28)"
    assert cause_of(OSError("Kernel error: found gap: ParsedLogPath { location: 7 }.")) == "Kernel error: found gap"
    assert cause_of(OSError()) == "OSError"
