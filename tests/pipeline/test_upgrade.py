"""A warehouse of the first release: read as it is, upgraded by the first run of this release, and continued."""

from __future__ import annotations

import hashlib
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable
from deltalake.transaction import AddAction

from groupcoord_spark.storage.warehouse_location import locate
from groupcoord_spark.warehouse import TABLES, begin_run, open_warehouse
from groupcoord_spark.warehouse.declaration import WriteMode
from groupcoord_spark.warehouse.open_table import open_table
from groupcoord_spark.warehouse.tables import SCHEMA_VERSION
from tests.cli.warehouse import groupcoord
from tests.conftest import FIVE_NIGHTS, GOLDEN
from tests.running import rows_of, run, tables_of

if TYPE_CHECKING:
    from tests.local_session import LocalSession

# The first run after the upgrade reads the log from its beginning, so decode_coverage counts from there. The first release had no
# topic_health: a finding is there since the upgrade at the earliest, and its figures are of the run that read the records.
STATE = [
    name for name, table in TABLES.items() if table.write is not WriteMode.APPENDED and name not in ("decode_coverage", "topic_health")
]
RECORDS = ("offset_commits", "group_records", "transactions")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    with tarfile.open(GOLDEN / "warehouses" / "schema-1.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python has it since 3.11.4; Debian 12 has 3.11.2
        archive.extractall(tmp_path)
    return tmp_path / "schema-1"


def contents(directory: Path) -> dict[str, str]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def findings_of(warehouse: Path) -> list[str]:
    columns = ("offsets_partition", "finding", "severity", "subject", "certainty", "summary", "log_bytes")
    return sorted(repr([row[name] for name in columns]) for row in rows_of(warehouse, "topic_health", "nights"))


def test_reading_commands_read_it_as_it_is(old: Path) -> None:
    before = contents(old)
    groups = groupcoord("list", "--warehouse", str(old)).stdout.split()
    assert len(groups) > 10
    first_night = groupcoord("list", "--warehouse", str(old), "--at", str(FIVE_NIGHTS[1])).stdout.split()
    assert first_night and first_night != groups
    for command in (
        ["describe", "--all-groups"],
        ["describe", "--all-groups", "--members"],
        ["expire"],
        ["coverage", "--partitions"],
        ["timeline", "--group", groups[0]],
        ["export-offsets", "--group", groups[0]],
    ):
        assert groupcoord(*command, "--warehouse", str(old)).exit_code == 0, command
    assert [row["kind"] for row in rows_of(old, "runs")] == ["nightly"] * 3
    assert all(open_warehouse(str(old)).read(name).schema == table.arrow_schema for name, table in TABLES.items())
    assert contents(old) == before


def test_nights_go_on_after_the_upgrade_as_if_this_release_had_written_them_all(local: LocalSession, five_nights: Path, old: Path) -> None:
    of_night_3 = tables_of(old)
    begin_run(str(old), "nights")
    for name, table in TABLES.items():
        opened = DeltaTable(str(old / name))
        assert opened.metadata().configuration["groupcoord.schemaVersion"] == str(SCHEMA_VERSION)
        assert [field.name for field in opened.schema().fields] == list(table.by_name)
    assert tables_of(old) == of_night_3
    for night in (4, 5):
        run(local, old, GOLDEN / "nights" / str(night) / "logs", cluster="nights", as_of_ms=FIVE_NIGHTS[night])
    upgraded, expected = tables_of(old), tables_of(five_nights)
    assert {name: upgraded[name] for name in STATE} == {name: expected[name] for name in STATE}
    assert findings_of(old) == findings_of(five_nights)
    assert {name: upgraded[name] for name in RECORDS} == {name: expected[name] for name in RECORDS}
    for night in (1, 2, 3):
        run_ids = {place: open_warehouse(str(place)).run("nights", at_ms=FIVE_NIGHTS[night]).run_id for place in (old, five_nights)}
        offsets = [rows_of(place, "committed_offsets", "nights", run_id=run_id) for place, run_id in run_ids.items()]
        assert sorted(map(repr, offsets[0])) == sorted(map(repr, offsets[1]))


def test_an_upgrade_that_died_half_way_is_finished_by_the_next_run(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from groupcoord_spark.warehouse import write

    whole, done = write._with_schema_version, []

    def die(location: object, table: object) -> DeltaTable:
        if len(done) == 7:
            raise OSError("no space left on device")
        done.append(table)
        return whole(location, table)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(write, "_with_schema_version", die)
        with pytest.raises(write.WarehouseError, match="no space left on device"):
            begin_run(str(old), "nights")
    assert DeltaTable(str(old / "runs")).metadata().configuration["groupcoord.schemaVersion"] == "1"
    begin_run(str(old), "nights")
    assert {DeltaTable(str(old / name)).metadata().configuration["groupcoord.schemaVersion"] for name in TABLES} == {str(SCHEMA_VERSION)}


def test_what_a_refused_run_of_the_first_release_left_in_the_history_is_removed(old: Path) -> None:
    # The first release guarded runs alone: another run's rows stayed in the tables below the versions that runs names.
    import shutil

    commits = open_table(locate(str(old)), TABLES["offset_commits"])
    path, file = min(commits.files("nights").items())
    copy = f"{path.rsplit('/', 1)[0]}/20261122T061800Z-00000000-{'0' * 32}.parquet"
    shutil.copy(old / "offset_commits" / path, old / "offset_commits" / copy)
    rows = len(rows_of(old, "offset_commits"))
    commits.commit("nights", [AddAction(copy, file.size, {"cluster": "nights"}, 1, True, '{"numRecords":1}')], {}, run=None)
    begin_run(str(old), "nights")
    commits.refresh()
    names = [name for name in commits.files("nights") if "-00000000-" in name]
    assert names == [] and len(rows_of(old, "offset_commits")) == rows
