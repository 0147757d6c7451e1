"""Bad copies through the command: what each is refused with, what --accept makes of it, and that good runs go on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from deltalake import write_deltalake

from groupcoord_spark.warehouse import TABLES
from tests.cli.warehouse import groupcoord
from tests.conftest import GOLDEN
from tests.examples import TIMES_AS_MANY
from tests.running import commits_of, rows_of, tables_of
from tests.sources.exports import lines, of_sparks_kafka_source, raw_rows, text64, write_parquet

NIGHTS = GOLDEN / "nights"
STATE = {"groups", "members", "assignments", "committed_offsets", "pending_offsets", "group_expirations"}
OTHER = GOLDEN / "transactions" / "logs"

pytestmark = pytest.mark.usefixtures("tables_of_a_log", "commands_run_nights_here")


def logs(night: int) -> Path:
    return NIGHTS / str(night) / "logs"


def nightly(warehouse: Path, dump: Path, *args: str, cluster: str | None = "nights") -> Result:
    of_cluster = [] if cluster is None else ["--cluster", cluster]
    return groupcoord("nightly", str(dump), "--warehouse", str(warehouse), "--as-of", "2026-11-25T08:00:00Z", *of_cluster, *args)


def good(warehouse: Path, dump: Path, *args: str, cluster: str | None = "nights") -> str:
    result = nightly(warehouse, dump, *args, cluster=cluster)
    assert result.exit_code == 0, result.stderr
    return result.stderr


def refused(warehouse: Path, dump: Path, *args: str, cluster: str | None = "nights") -> str:
    """Return the one sentence; no thing that readers see has changed."""
    before = commits_of(warehouse)
    result = nightly(warehouse, dump, *args, cluster=cluster)
    assert (result.exit_code, result.stdout) == (2, ""), result.stderr
    assert "Traceback" not in result.stderr
    assert commits_of(warehouse) == before
    return result.stderr.splitlines()[-1].removeprefix("Error: ")


def history_of(warehouse: Path) -> list[tuple[int, int, int]]:
    """(incarnation, offsets partition, record offset) of every row of offset_commits."""
    return sorted((row["incarnation"], row["offsets_partition"], row["record_offset"]) for row in rows_of(warehouse, "offset_commits"))


def state_of(warehouse: Path, *more: str) -> Mapping[str, list[str]]:
    """Return the tables of the state and of the rules, and those named in ``more``."""
    return tables_of(warehouse, but=tuple(set(TABLES) - STATE - {*more}))


def settings_of_last_run(warehouse: Path) -> dict[str, Any]:
    return dict(rows_of(warehouse, "runs")[-1]["settings"])


def go_on(warehouse: Path, dump: Path) -> None:
    """Run, and check that nothing had to be accepted."""
    assert "accepted" not in good(warehouse, dump)
    assert settings_of_last_run(warehouse).keys().isdisjoint({"accepted", "history.beyond.end"})


@pytest.fixture(scope="module")
def after(tmp_path_factory: pytest.TempPathFactory, tables_of_a_log: None, commands_run_nights_here: None) -> list[Path]:
    """Warehouses after none, one, two, three and four of the runs; not to be written to."""
    warehouses = [tmp_path_factory.mktemp("after")]
    for night in (1, 2, 3, 4):
        warehouses.append(Path(shutil.copytree(warehouses[-1], tmp_path_factory.mktemp("after") / "w")))
        go_on(warehouses[-1], logs(night))
    return warehouses


@pytest.fixture
def warehouse(after: list[Path], tmp_path: Path) -> Path:
    """Provide a warehouse after the runs 1 to 3."""
    return Path(shutil.copytree(after[3], tmp_path / "w"))


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Provide a copy of run 4, to be spoiled."""
    return Path(shutil.copytree(logs(4), tmp_path / "dump"))


def export(kind: str, raw: pa.Table, directory: Path) -> Path:
    if kind == "json":
        directory.mkdir()
        places = ("offsets_partition", "record_offset", "record_timestamp_ms")
        data = raw.filter(raw["control_type"].is_null()).to_pylist()
        records = [{name: row[name] for name in places} | {name: text64(row[name]) for name in ("key", "value")} for row in data]
        (directory / "dump.jsonl").write_bytes(lines(records))
        return directory
    if kind == "delta":
        write_deltalake(str(directory), raw, partition_by=["offsets_partition"])
        return directory
    return write_parquet(directory, of_sparks_kafka_source(raw), files=2)


class TestGoodNights:
    @pytest.mark.parametrize("nights", [(1, 1), (4, 4, 5)])
    def test_one_after_another_with_cleanings_between_go_on_without_a_word(
        self, after: list[Path], tmp_path: Path, nights: tuple[int, ...]
    ) -> None:
        warehouse = Path(shutil.copytree(after[nights[0]], tmp_path / "w"))
        for night in nights[1:]:
            go_on(warehouse, logs(night))
        assert {row["incarnation"] for row in rows_of(warehouse, "offsets_partitions")} == {0}
        places = history_of(warehouse)
        assert len(places) == len(set(places))

    def test_in_other_kinds_of_input_go_on(self, warehouse: Path, tmp_path: Path) -> None:
        for number, (night, kind) in enumerate(((3, "parquet"), (4, "json"), (5, "parquet"), (5, "segments"))):
            dump = logs(night) if kind == "segments" else export(kind, raw_rows(logs(night), "nights"), tmp_path / str(number))
            assert "accepted" not in good(warehouse, dump)

    def test_of_several_brokers_copies_go_on(self, warehouse: Path, tmp_path: Path) -> None:
        for broker, night in (("a", 3), ("b", 4)):
            shutil.copytree(logs(night), tmp_path / "brokers" / broker)
        good(warehouse, tmp_path / "brokers")
        assert "replica_chosen" in {row["code"] for row in rows_of(warehouse, "warnings")}


class TestBadCopies:
    def test_with_nothing_to_read(self, warehouse: Path, dump: Path) -> None:
        for file in dump.rglob("*.log"):
            file.write_bytes(b"")
        for file in dump.rglob("*.log"):
            file.rename(file.with_name(f"{0:020d}.log"))
        places = history_of(warehouse)
        sentence = refused(warehouse, dump)
        assert "there is no record in 4 offsets partitions" in sentence and "(0, 1, 2, 3)" in sentence and "--accept empty" in sentence
        assert "accepted  empty: the input has no record" in good(warehouse, dump, "--accept", "empty")
        assert rows_of(warehouse, "groups") == [] and history_of(warehouse) == places
        good(warehouse, logs(4))
        assert len(history_of(warehouse)) == len(set(history_of(warehouse))) > len(places)

    def test_without_any_row(self, warehouse: Path, tmp_path: Path) -> None:
        (tmp_path / "in").mkdir()
        pq.write_table(of_sparks_kafka_source(raw_rows(logs(1)).slice(0, 0)), tmp_path / "in" / "part-00000.parquet")
        sentence = refused(warehouse, tmp_path / "in")
        assert sentence.endswith("there are no rows. Give an export of the topic __consumer_offsets, or go on with --accept empty.")
        good(warehouse, tmp_path / "in", "--accept", "empty")
        assert rows_of(warehouse, "groups") == []

    def test_that_are_older(self, warehouse: Path, after: list[Path]) -> None:
        places, ends = (
            history_of(warehouse),
            {row["offsets_partition"]: row["history_end_offset"] for row in rows_of(warehouse, "offsets_partitions")},
        )
        sentence = refused(warehouse, logs(2))
        assert "4 of 4 offsets partitions end before it, 0 at 18 (last run 57), 1 at 141 (last run 234)" in sentence
        assert sentence.endswith("go on with --accept older: the state goes back, the history stays.")
        assert "accepted  older (4 offsets partitions: 0, 1, 2, 3)" in good(warehouse, logs(2), "--accept", "older")
        assert state_of(warehouse) == state_of(after[2])
        assert history_of(warehouse) == places
        assert {row["offsets_partition"]: row["history_end_offset"] for row in rows_of(warehouse, "offsets_partitions")} == ends
        settings = settings_of_last_run(warehouse)
        assert (settings["accepted"], settings["history.beyond.end"]) == ("older", "true")
        good(warehouse, logs(4))
        assert history_of(warehouse) == history_of(after[4])
        assert state_of(warehouse, "rebalances") == state_of(after[4], "rebalances")

    def test_of_another_cluster_by_its_records(self, warehouse: Path, tmp_path: Path) -> None:
        sentence = refused(warehouse, OTHER)
        assert "has other records than the last run of cluster 'nights'" in sentence and "--cluster NAME" in sentence
        good(warehouse, OTHER, cluster="other")
        assert {row["cluster"] for row in rows_of(warehouse, "runs")} == {"nights", "other"}

    def test_of_another_cluster_by_its_id(self, warehouse: Path, dump: Path) -> None:
        (dump / "meta.properties").write_text("version=1\ncluster.id=aaa\n")
        good(warehouse, dump)
        assert settings_of_last_run(warehouse)["input.cluster.id"] == "aaa"
        (dump / "meta.properties").write_text("version=1\ncluster.id=bbb\n")
        assert refused(warehouse, dump) == (
            f"{dump} is of the cluster with cluster.id 'bbb', and earlier runs of cluster 'nights' were of 'aaa'. Name this cluster with"
            " --cluster NAME."
        )

    def test_of_a_topic_begun_anew(self, warehouse: Path) -> None:
        places = history_of(warehouse)
        anew = GOLDEN / "convert" / "logs"
        assert "go on with --accept recreated" in refused(warehouse, anew)
        assert "accepted  recreated" in good(warehouse, anew, "--accept", "recreated")
        incarnations = {row["offsets_partition"]: row["incarnation"] for row in rows_of(warehouse, "offsets_partitions")}
        assert 1 in incarnations.values()
        assert [place for place in history_of(warehouse) if place[0] == 0 and incarnations[place[1]] == 1] == [
            place for place in places if incarnations[place[1]] == 1
        ]
        assert "accepted" not in good(warehouse, anew)

    def test_without_a_name_when_nothing_shows_the_cluster(self, warehouse: Path) -> None:
        sentence = refused(warehouse, OTHER, cluster=None)
        assert "nothing shows that this dump is of that cluster" in sentence and "Say with --cluster" in sentence
        good(warehouse, logs(4), cluster=None)
        assert {row["cluster"] for row in rows_of(warehouse, "runs")} == {"nights"}

    def test_of_rows_without_a_name(self, warehouse: Path, tmp_path: Path) -> None:
        other = export("json", raw_rows(OTHER), tmp_path / "other")
        assert "Say with --cluster" in refused(warehouse, other, cluster=None)
        good(warehouse, export("json", raw_rows(logs(4)), tmp_path / "same"), cluster=None)
        assert {row["cluster"] for row in rows_of(warehouse, "runs")} == {"nights"}

    def test_that_are_a_folder_of_dumps(self, warehouse: Path) -> None:
        assert "this is a folder of many dumps: 1/logs, 2/logs, 3/logs, 4/logs and 1 more." in refused(warehouse, NIGHTS)

    def test_whose_rows_are_mostly_malformed(self, warehouse: Path, tmp_path: Path) -> None:
        dump = export("json", raw_rows(logs(4), "nights"), tmp_path / "in")
        (file,) = dump.iterdir()
        rows = file.read_bytes().splitlines(keepends=True)
        spoiled = [json.dumps({**json.loads(row), "key": "not base64!"}).encode() + b"\n" for row in rows[: len(rows) // 2 + 2]]
        file.write_bytes(rows[-1] + b"".join(spoiled) + b"".join(rows[len(rows) // 2 + 2 : -1]))
        sentence = refused(warehouse, dump)
        assert f"{len(spoiled)} of {len(rows)} rows are malformed, more than half." in sentence
        assert "accepted  malformed" in good(warehouse, dump, "--accept", "malformed")

    def test_with_groups_in_other_partitions(self, warehouse: Path, dump: Path) -> None:
        for number in (0, 1, 2, 3):
            (dump / f"__consumer_offsets-{number}").rename(dump / f"__consumer_offsets-{number + 4}")
        sentence = refused(warehouse, dump)
        assert "groups looked at are not in the offsets partition that the last run's 4 partitions of the topic give them" in sentence
        assert sentence.endswith("or go on with --accept misplaced.")

    def test_with_a_gap(self, warehouse: Path, dump: Path) -> None:
        log = dump / "__consumer_offsets-1"
        for file in log.glob("*.log"):
            if int(file.stem) < 240:
                file.unlink()
        good(warehouse, dump)
        details = [row["detail"] for row in rows_of(warehouse, "warnings") if row["code"] == "gap_since_last_night"]
        assert [detail.split(" lie ")[0] for detail in details] == ["Offsets 234 to 247"]

    def test_without_the_first_segment(self, warehouse: Path, dump: Path, tmp_path: Path) -> None:
        # The new records have no gap: without a look at the beginning of the log the run would go on from the last one.
        (dump / "__consumer_offsets-1" / f"{0:020d}.log").unlink()
        sentence = refused(warehouse, dump)
        assert "of the offsets 0 to 172, which the last run read, no live record is left" in sentence
        assert sentence.endswith("go on with --accept hole.")
        assert "accepted  hole" in good(warehouse, dump, "--accept", "hole")
        good(tmp_path / "alone", dump)
        assert state_of(warehouse) == state_of(tmp_path / "alone")

    def test_without_the_first_segment_in_the_first_run(self, dump: Path, tmp_path: Path) -> None:
        (dump / "__consumer_offsets-1" / f"{0:020d}.log").unlink()
        assert "short     segments are missing: offsets partition 1 begins at offset 173: see" in good(tmp_path / "w", dump)
        assert [row["record_offset"] for row in rows_of(tmp_path / "w", "warnings") if row["code"] == "log_begins_late"] == [173]
        assert "begins_late" in {row["finding"] for row in rows_of(tmp_path / "w", "topic_health")}

    def test_without_the_first_segment_that_the_broker_itself_deleted(self, warehouse: Path, dump: Path) -> None:
        log = dump / "__consumer_offsets-1"
        (log / f"{0:020d}.log").unlink()
        (log / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        assert "no live record is left" in refused(warehouse, dump)
        (log / "leader-epoch-checkpoint").write_text("0\n1\n0 173\n")
        good(warehouse, dump)
        (detail,) = [row["detail"] for row in rows_of(warehouse, "warnings") if row["code"] == "keys_vanished"]
        assert "The broker moved the log start offset to 173, by retention or DeleteRecords" in detail

    def test_whose_old_segments_are_damaged_and_whose_new_records_have_no_gap(
        self, warehouse: Path, dump: Path, after: list[Path]
    ) -> None:
        # The state is known without the old segments, and is kept; each run says so until they are back.
        old = dump / "__consumer_offsets-1" / f"{0:020d}.log"
        data, state = old.read_bytes(), state_of(after[4])
        for left in (data[: 12 + int.from_bytes(data[8:12], "big")], bytes(len(data)), b"", b"", None):
            if left is None:
                # the checkpoint says where the log begins, so the name of the next file does not
                (dump / "log-start-offset-checkpoint").write_text("0\n1\n__consumer_offsets 1 0\n")
                old.unlink()
            else:
                old.write_bytes(left)
            summary = good(warehouse, dump)
            assert "incremental" in summary and " of the last run without a trace, in 1 offsets partition" in summary
            assert state_of(warehouse) == state
        assert "vanished" not in good(warehouse, logs(4))
        assert state_of(warehouse) == state
        details = [row["detail"] for row in rows_of(warehouse, "warnings") if row["code"] == "keys_vanished"]
        assert len(details) == 5 and details[1].endswith("The state keeps these keys; a run with --full would lose them.")

    def test_with_a_hole_that_is_longer_than_any_segment(self, tmp_path: Path) -> None:
        dump = Path(shutil.copytree(logs(1), tmp_path / "dump"))
        segment = dump / "__consumer_offsets-1" / f"{0:020d}.log"
        records = segment.read_bytes()
        with segment.open("r+b") as file:
            file.seek(3 << 30)
            file.write(records)
        good(tmp_path / "w", dump)
        assert [(row["reason"], row["size"]) for row in rows_of(tmp_path / "w", "quarantined_records")] == [("zero_gap", 2**31 - 1)]

    def test_that_are_looked_at_after_an_unknown_word_of_accept(self, warehouse: Path) -> None:
        sentence = refused(warehouse, logs(4), "--accept", "everything")
        assert "'empty', 'missing', 'older', 'recreated', 'misplaced', 'malformed'" in sentence


KINDS_OF_ROWS = ("parquet", "delta", "json")


def with_all_kinds(*usual: str) -> pytest.MarkDecorator:
    """Return the test with inputs of these kinds; of every kind where more examples are asked for."""
    return pytest.mark.parametrize("kind", KINDS_OF_ROWS if TIMES_AS_MANY > 1 else usual)


class TestBadCopiesOfRows:
    """The same guards over inputs: a run opens only new files."""

    @with_all_kinds("parquet", "delta")
    def test_that_are_older(self, warehouse: Path, tmp_path: Path, kind: str) -> None:
        assert "--accept older" in refused(warehouse, export(kind, raw_rows(logs(2), "nights"), tmp_path / "in"))

    @with_all_kinds("delta")
    def test_of_another_cluster(self, warehouse: Path, tmp_path: Path, kind: str) -> None:
        sentence = refused(warehouse, export(kind, raw_rows(OTHER, "nights"), tmp_path / "in"))
        assert "has other records than the last run of cluster 'nights'" in sentence and "--cluster NAME" in sentence

    @with_all_kinds("parquet")
    def test_of_a_topic_begun_anew(self, warehouse: Path, tmp_path: Path, kind: str) -> None:
        anew = export(kind, raw_rows(GOLDEN / "convert" / "logs", "nights"), tmp_path / "in")
        assert "go on with --accept recreated" in refused(warehouse, anew)
        assert "accepted  recreated" in good(warehouse, anew, "--accept", "recreated")
        assert 1 in {row["incarnation"] for row in rows_of(warehouse, "offsets_partitions")}
        assert "accepted" not in good(warehouse, anew)

    @with_all_kinds("delta")
    def test_with_a_gap(self, warehouse: Path, tmp_path: Path, kind: str) -> None:
        raw = raw_rows(logs(4), "nights")
        is_lost = pc.and_(pc.equal(raw["offsets_partition"], 1), pc.less(raw["record_offset"], 240))
        good(warehouse, export(kind, raw.filter(pc.invert(is_lost)), tmp_path / "in"))
        details = [row["detail"] for row in rows_of(warehouse, "warnings") if row["code"] == "gap_since_last_night"]
        assert [detail.split(" to ")[0] for detail in details] == ["Offsets 234"]

    @with_all_kinds("delta")
    def test_with_missing_partitions_keep_their_state(self, warehouse: Path, tmp_path: Path, kind: str) -> None:
        raw = raw_rows(logs(4), "nights")
        summary = good(warehouse, export(kind, raw.filter(pc.not_equal(raw["offsets_partition"], 2)), tmp_path / "in"))
        assert "stale     1 of 4 offsets partitions is not in this dump" in summary

    @with_all_kinds("delta")
    def test_a_look_back_over_the_next_night(self, warehouse: Path, tmp_path: Path, kind: str) -> None:
        before = tables_of(warehouse)
        (tmp_path / "ends.json").write_text(json.dumps({"1": 100}))
        good(warehouse, export(kind, raw_rows(logs(4), "nights"), tmp_path / "in"), "--until", str(tmp_path / "ends.json"))
        assert tables_of(warehouse) == before
        assert rows_of(warehouse, "runs")[-1]["kind"] == "point_in_time"
