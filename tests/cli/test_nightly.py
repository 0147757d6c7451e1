"""``groupcoord nightly`` as it is typed: what it prints, how it ends, and what bad input gets."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest
from click.testing import Result

from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.sources.live import FALLBACK_VERSION, KAFKA_CONNECTOR
from groupcoord_spark.spark.session import session
from tests.cli.warehouse import groupcoord
from tests.conftest import GOLDEN, SAMPLE_LOGS, SampleWarehouse
from tests.coordinator.records import group_epoch
from tests.log.log_writer import T0
from tests.pipeline.logs import LogRecord, classic_group_key, classic_value, log_of
from tests.pipeline.segment_files import write_log
from tests.pipeline.test_nightly import commit, commits
from tests.running import rows_of, tables_of
from tests.sources.exports import of_sparks_kafka_source, raw_rows, write_parquet
from tests.warehouse.nights import group, night

pytestmark = pytest.mark.usefixtures("tables_of_a_log")

DOCS = Path(__file__).parents[2] / "docs"
AS_OF = "2026-11-21T08:00:00Z"


def nightly(warehouse: Path, *args: str | Path) -> Result:
    return groupcoord("nightly", "--warehouse", str(warehouse), *map(str, args))


def sentence_of(result: Result, exit_code: int) -> str:
    """Return the one sentence that a run which could not be done leaves."""
    assert result.exit_code == exit_code, result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    lines = result.stderr.splitlines()
    assert [line for line in lines if line.startswith("Error: ")] == lines[-1:]
    return lines[-1].removeprefix("Error: ")


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("commands_run_nights_here")
class TestARun:
    def test_prints_stages_and_a_summary_on_stderr_and_nothing_on_stdout(self, tmp_path: Path, sample_warehouse: SampleWarehouse) -> None:
        result = nightly(tmp_path / "w", SAMPLE_LOGS, "--cluster", "sample", "--as-of", AS_OF)
        assert (result.exit_code, result.stdout) == (0, "")
        told, summary = result.stderr.split("\n\n")
        assert [line.split("  ")[0] for line in told.splitlines()] == ["plan", "start Spark", "read, replay and write", "commit"]
        lines = [line.strip() for line in summary.splitlines()]
        expected = sample_warehouse.summary
        assert lines[0].startswith(f"Cluster 'sample' in {tmp_path}/w, run 20")
        read = expected.records_read
        assert lines[1] == f"records   {read} read = {read} decoded + 0 quarantined (5 offsets partitions, 0.1 MB)"
        assert lines[2] == "compacted nothing: every offset that this run read has its record"
        assert lines[3].startswith(
            f"state     {expected.groups} groups, {expected.committed_offsets} committed offsets: see `groupcoord list"
        )
        assert lines[4].startswith(
            f"expiry    a cleanup at {AS_OF} with retention 7d (java 4.3) would remove"
            f" {expected.expired_offsets} committed offset and {expected.removed_groups} groups: see `groupcoord expire --run "
        )
        assert tables_of(tmp_path / "w") == tables_of(sample_warehouse.path)

    def test_of_a_moment_that_has_not_come_yet_says_that_later_nights_are_refused_until_then(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 3))
        done = nightly(tmp_path / "w", tmp_path / "logs", "--as-of", "2099-01-01")
        assert "\n  future    this run is as of 2099-01-01T00:00Z, in " in done.stderr
        assert "until then a run as of an earlier moment is refused, but for --accept earlier" in done.stderr
        assert nightly(tmp_path / "w", tmp_path / "logs", "--as-of", "2099-01-01", "--until", "now").exit_code == 0

    def test_over_the_same_copy_says_how_old_it_is_and_that_nothing_changed(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 3), starts_at_ms=1_767_225_600_000)
        nightly(tmp_path / "w", tmp_path / "logs", "--as-of", "2026-01-02")
        second = nightly(tmp_path / "w", tmp_path / "logs", "--as-of", "2026-01-05")
        same = "the log is the same as in the run as of 2026-01-02T00:00:00Z"
        assert f"\n  newest    record of 2026-01-01T00:00:00Z, 3 days before the as-of; {same}\n" in second.stderr

    def test_with_quiet_prints_nothing(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 3))
        result = nightly(tmp_path / "w", tmp_path / "logs", "--quiet", "--no-history")
        assert (result.exit_code, result.output) == (0, "")

    def test_takes_the_cluster_of_meta_properties_then_the_only_one_there_is_then_default(self, tmp_path: Path) -> None:
        for place in ("told", "untold"):
            write_log(tmp_path / place, commits(0, 3))
        (tmp_path / "told" / "meta.properties").write_text("version=1\ncluster.id=abc123\n")
        assert nightly(tmp_path / "one", tmp_path / "told").exit_code == 0
        assert nightly(tmp_path / "one", tmp_path / "untold").exit_code == 0
        assert {row["cluster"] for row in rows_of(tmp_path / "one", "runs")} == {"abc123"}
        assert nightly(tmp_path / "two", tmp_path / "untold").exit_code == 0
        assert {row["cluster"] for row in rows_of(tmp_path / "two", "runs")} == {"default"}
        assert nightly(tmp_path / "two", tmp_path / "told").exit_code == 0
        assert "Say with --cluster" in sentence_of(nightly(tmp_path / "two", tmp_path / "untold"), 2)

    def test_takes_retention_from_the_option_then_from_the_settings_then_from_the_release(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", [commit(0, version=1)])
        (tmp_path / "server.properties").write_text("# a broker's own\nnode.id=1\noffsets.retention.minutes=120\n")
        for args, milliseconds in (
            ([], 604_800_000),
            (["--broker-version", "1.1"], 86_400_000),
            (["--settings", tmp_path / "server.properties"], 7_200_000),
            (["--settings", tmp_path / "server.properties", "--offsets-retention", "36h"], 129_600_000),
        ):
            assert nightly(tmp_path / "w", tmp_path / "logs", *args).exit_code == 0
            assert {row["retention_ms"] for row in rows_of(tmp_path / "w", "offset_expirations")} == {milliseconds}

    def test_the_default_assignor_of_the_settings_was_thrown_away(self, tmp_path: Path) -> None:
        settings = tmp_path / "server.properties"
        settings.write_text("node.id=1\ngroup.consumer.assignors=range,uniform\noffsets.topic.num.partitions=4\n")
        assert nightly(tmp_path / "w", GOLDEN / "kip848" / "logs", "--settings", settings).exit_code == 0
        protocols = {row["group_id"]: row["protocol"] for row in rows_of(tmp_path / "w", "groups") if row["group_type"] == "consumer"}
        assert "range" in protocols.values()
        assert nightly(tmp_path / "v", GOLDEN / "kip848" / "logs").exit_code == 0
        without = {row["group_id"]: row["protocol"] for row in rows_of(tmp_path / "v", "groups") if row["group_type"] == "consumer"}
        assert {without[group_id] for group_id, protocol in protocols.items() if protocol != without[group_id]} == {"uniform"}
        (run,) = rows_of(tmp_path / "w", "runs")
        kept = dict(run["settings"])
        assert (kept["group.consumer.assignors"], kept["offsets.topic.num.partitions"]) == ("range,uniform", "4")

    def test_the_number_of_offsets_partitions_in_the_settings_was_ignored(self, tmp_path: Path) -> None:
        # group "g" lies in partition 103 % 5 = 3 of 5, and in 103 % 8 = 7 of 8
        write_log(tmp_path / "logs", commits(0, 3), offsets_partition=3)
        settings = tmp_path / "server.properties"
        for partitions, misplaced in ((5, 0), (8, 3)):
            settings.write_text(f"offsets.topic.num.partitions={partitions}\n")
            result = nightly(tmp_path / f"w{partitions}", tmp_path / "logs", "--settings", settings)
            assert result.exit_code == 0 and "settings  " not in result.stderr
            assert sum(row["misplaced"] for row in rows_of(tmp_path / f"w{partitions}", "decode_coverage")) == misplaced

    def test_settings_that_the_log_contradicts_are_said(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 3), offsets_partition=3)
        settings = tmp_path / "server.properties"
        settings.write_text("offsets.topic.num.partitions=3\n")
        result = nightly(tmp_path / "w", tmp_path / "logs", "--settings", settings)
        sentence = "offsets.topic.num.partitions is 3 in the settings file, but the log has __consumer_offsets-3: the number is taken"
        assert result.exit_code == 0 and sentence in result.stderr
        (detail,) = (row["detail"] for row in rows_of(tmp_path / "w", "warnings") if row["code"] == "settings_contradicted")
        assert sentence in detail
        assert sum(row["misplaced"] for row in rows_of(tmp_path / "w", "decode_coverage")) == 0

    def test_reads_several_inputs_as_one_cluster(self, tmp_path: Path) -> None:
        for offsets_partition in range(3):
            write_log(tmp_path / str(offsets_partition), commits(0, 3), offsets_partition=offsets_partition)
        assert nightly(tmp_path / "w", *(tmp_path / str(each) for each in range(3))).exit_code == 0
        assert [row["offsets_partition"] for row in rows_of(tmp_path / "w", "offsets_partitions")] == [0, 1, 2]

    def test_takes_uris(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 3))
        result = groupcoord("nightly", (tmp_path / "logs").as_uri(), "--warehouse", (tmp_path / "w").as_uri(), "--no-history")
        assert result.exit_code == 0
        assert len(rows_of(tmp_path / "w", "committed_offsets")) == 3

    def test_names_topics_by_the_topic_ids_file(self, tmp_path: Path) -> None:
        (tmp_path / "ids.json").write_text(json.dumps({"orders": "AAAAAAAAAAAAAAAAAAAAAg"}))
        result = nightly(tmp_path / "w", SAMPLE_LOGS, "--topic-ids", tmp_path / "ids.json", "--no-history")
        assert result.exit_code == 0

    def test_tells_quarantined_records_and_ends_with_0(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", DAMAGED)
        result = nightly(tmp_path / "w", tmp_path / "logs")
        assert result.exit_code == 0
        assert "3 read = 2 decoded + 1 quarantined" in result.stderr
        assert "lost      value_too_short 1: see `groupcoord warnings --run " in result.stderr

    def test_prints_its_summary_as_one_object_where_that_is_asked_for(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", DAMAGED)
        result = nightly(tmp_path / "w", tmp_path / "logs", "--output", "json", "--strict", "--as-of", AS_OF)
        assert result.exit_code == 1
        summary = json.loads(result.stdout)
        assert (summary["records_read"], summary["quarantined_by_reason"]) == (3, {"value_too_short": 1})
        assert (summary["as_of"], summary["retention_ms"]) == ("2026-11-21T08:00:00.000Z", 604_800_000)
        assert "read, replay and write" in result.stderr and "records   3" not in result.stderr
        page = (DOCS / "reference" / "cli.md").read_text()
        assert [name for name in summary if f"| `{name}` |" not in page] == []

    def test_over_a_table_says_what_that_cannot_tell(self, tmp_path: Path, sample_warehouse: SampleWarehouse) -> None:
        write_parquet(tmp_path / "in", of_sparks_kafka_source(raw_rows(SAMPLE_LOGS)), files=2)
        result = nightly(tmp_path / "w", tmp_path / "in", "--cluster", "sample", "--as-of", AS_OF)
        assert result.exit_code == 0
        told, summary = result.stderr.split("\n\n")
        stages = ["plan", "start Spark", "look at the rows", "read, replay and write", "commit"]
        assert [line.split("  ")[0] for line in told.splitlines()] == stages
        assert "  unknown   transactions: no producers, no markers; commits of open and aborted ones count" in summary.splitlines()
        tables, tables_of_segments = tables_of(tmp_path / "w"), tables_of(sample_warehouse.path)
        for table in ("groups", "members", "assignments", "committed_offsets", "offset_expirations", "tombstones"):
            assert tables[table] == tables_of_segments[table]

    def test_with_strict_and_quarantined_records_ends_with_1_and_is_written(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", DAMAGED)
        told = sentence_of(nightly(tmp_path / "w", tmp_path / "logs", "--strict"), 1)
        assert told.startswith("1 of 3 records were quarantined, the loader of Kafka 4.3 refuses or skips 1, and --strict was given.")
        assert len(rows_of(tmp_path / "w", "committed_offsets")) == 2

    def test_with_strict_and_nothing_quarantined_ends_with_0(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 3))
        assert nightly(tmp_path / "w", tmp_path / "logs", "--strict").exit_code == 0

    def test_with_strict_and_records_that_the_loader_refuses_or_skips_ends_with_1_and_is_written(self, tmp_path: Path) -> None:
        unknown_type = log_of([group_epoch(1, group="k")], first_offset=2)[0]
        write_log(tmp_path / "logs", [commit(0), LogRecord(1, classic_group_key(), classic_value(1, 1)), unknown_type])
        assert nightly(tmp_path / "w", tmp_path / "logs", "--strict").exit_code == 0
        told = sentence_of(nightly(tmp_path / "w", tmp_path / "logs", "--strict", "--semantics", "scala"), 1)
        assert told.startswith("the loader of Kafka 3.9 refuses or skips 1, and --strict was given.")
        assert "see `groupcoord warnings --run" in told
        assert len(rows_of(tmp_path / "w", "committed_offsets")) == 1

    def test_hints_at_the_other_coordinator_where_the_records_tell(self, tmp_path: Path) -> None:
        logs = GOLDEN / "era-3.9" / "logs"
        told = nightly(tmp_path / "w", logs, "--no-history").stderr
        assert "hint      Brokers older than the chosen 4.3 wrote offsets of value version 3 (" in told
        (row,) = [row for row in rows_of(tmp_path / "w", "warnings") if row["code"] == "other_coordinator"]
        assert row["detail"] in told
        assert "hint  " not in nightly(tmp_path / "w", logs, "--no-history", "--semantics", "scala").stderr

    def test_until_a_time_or_end_offsets_tells_the_moment_and_takes_it_as_the_now_of_the_rules(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 9))
        told = nightly(tmp_path / "w", tmp_path / "logs", "--until", str(T0 + 4)).stderr
        assert f"until     {T0 + 4}: 1 offsets partition cut off before the end of the log; 0 records taken from the history" in told
        (run,) = rows_of(tmp_path / "w", "runs")
        looked_back = rows_of(tmp_path / "w", "offset_expirations", run["cluster"], run_id=run["run_id"])
        assert (run["kind"], {row["as_of"] for row in looked_back}) == ("point_in_time", {T0 + 4})
        (tmp_path / "ends.json").write_text('{"0": 3}')
        assert "3 read" not in told
        told = nightly(tmp_path / "w", tmp_path / "logs", "--until", tmp_path / "ends.json", "--as-of", AS_OF).stderr
        assert "3 read = 3 decoded" in told and "0 records taken from the history" in told

    def test_over_a_partition_without_records_is_a_night_without_groups(self, tmp_path: Path) -> None:
        (path,) = write_log(tmp_path / "logs", commits(0, 1))
        path.write_bytes(b"")
        result = nightly(tmp_path / "w", tmp_path / "logs")
        assert result.exit_code == 0
        assert "0 groups, 0 committed offsets" in result.stderr


DAMAGED = [commit(0), LogRecord(1, commit(1).key, b"\0"), commit(2, partition=1)]


class TestBadInput:
    """The warehouse, where there is one, stays as it was; where there is none, none is made."""

    @pytest.fixture
    def untouched(self, tmp_path: Path) -> Path:
        return tmp_path / "none" / "w"

    def refused(self, warehouse: Path, *args: str | Path, exit_code: int = 2) -> str:
        sentence = sentence_of(nightly(warehouse, *args), exit_code)
        assert not warehouse.exists()
        return sentence

    def test_a_path_that_is_not_there(self, tmp_path: Path, untouched: Path) -> None:
        assert self.refused(untouched, tmp_path / "logs") == f"{tmp_path}/logs: there is no such file or directory."

    def test_one_of_several_that_is_not_there(self, tmp_path: Path, untouched: Path) -> None:
        assert str(tmp_path / "logs") in self.refused(untouched, SAMPLE_LOGS, tmp_path / "logs")

    def test_a_moment_that_is_none(self, tmp_path: Path, untouched: Path) -> None:
        assert "is neither a time nor a file" in self.refused(untouched, SAMPLE_LOGS, "--until", "yesterday")
        for text in ("{", "[1]", '{"0": "5"}', '{"0": -1}', '{"a": 1}', '{"0": true}'):
            (tmp_path / "ends.json").write_text(text)
            assert "JSON" in self.refused(untouched, SAMPLE_LOGS, "--until", tmp_path / "ends.json")

    def test_no_input_at_all(self, untouched: Path) -> None:
        assert "INPUT" in self.refused(untouched)

    def test_an_empty_directory(self, tmp_path: Path, untouched: Path) -> None:
        (tmp_path / "logs").mkdir()
        sentence = self.refused(untouched, tmp_path / "logs")
        assert sentence.startswith(f"{tmp_path}/logs: the directory is empty.")
        assert "__consumer_offsets-0" in sentence

    def test_a_directory_without_offsets_partitions(self, tmp_path: Path, untouched: Path) -> None:
        (tmp_path / "logs" / "orders-0").mkdir(parents=True)
        (tmp_path / "logs" / "orders-0" / f"{0:020d}.log").write_bytes(b"x")
        assert self.refused(untouched, tmp_path / "logs").startswith(f"{tmp_path}/logs: no partition of __consumer_offsets is in it.")

    def test_a_file_that_is_no_log(self, tmp_path: Path, untouched: Path) -> None:
        (tmp_path / "notes.txt").write_text("not a log")
        assert self.refused(untouched, tmp_path / "notes.txt").startswith(f"{tmp_path}/notes.txt: this is not a segment of a log.")

    def test_a_scheme_that_no_file_system_has(self, untouched: Path) -> None:
        assert "ftp://host/logs" in self.refused(untouched, "ftp://host/logs")

    def test_a_directory_that_cannot_be_read(self, tmp_path: Path, untouched: Path) -> None:
        # A link to itself: nobody can open it, not even root.
        (tmp_path / "logs").symlink_to(tmp_path / "logs")
        assert str(tmp_path / "logs") in self.refused(untouched, tmp_path / "logs")

    @pytest.mark.parametrize("name", ["__consumer_offsets-1", f"__consumer_offsets-0/{3:020d}.log"])
    def test_a_link_that_leads_nowhere_in_place_of_a_part_of_the_log(self, tmp_path: Path, untouched: Path, name: str) -> None:
        """As ``cp -r`` leaves it: without a word the log would be read as a shorter one, and what it held would leave the tables."""
        write_log(tmp_path / "logs", commits(0, 3))
        (tmp_path / "logs" / name).symlink_to(tmp_path / "gone")
        assert self.refused(untouched, tmp_path / "logs").startswith(f"{tmp_path}/logs/{name}: this link leads nowhere.")

    @pytest.mark.usefixtures("commands_run_nights_here")
    def test_a_link_that_leads_nowhere_beside_the_log_is_no_error(self, tmp_path: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 3))
        (tmp_path / "logs" / "orders-0").symlink_to(tmp_path / "gone")
        assert nightly(tmp_path / "w", tmp_path / "logs").exit_code == 0

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_directory_that_may_not_be_read(self, tmp_path: Path, untouched: Path) -> None:
        write_log(tmp_path / "logs", commits(0, 3))
        (tmp_path / "logs").chmod(0)
        try:
            assert str(tmp_path / "logs") in self.refused(untouched, tmp_path / "logs")
        finally:
            (tmp_path / "logs").chmod(0o755)

    @pytest.mark.parametrize(
        ("args", "told"),
        [
            (["--semantics", "rust"], "'rust'"),
            (["--semantics", "java", "--broker-version", "2.8"], "Kafka 2.8 has the scala coordinator, not java"),
            (["--broker-version", "soon"], "'soon' is not a release of Kafka"),
            (["--broker-version", "4.2.7"], "Of 4.2 there are: 4.2.0, 4.2.1, 4.2.2."),
            (["--as-of", "yesterday"], "'yesterday' is not a time. Write now, "),
            (["--as-of", "2026-13-45"], "'2026-13-45' is not a time."),
            (["--as-of", str(10**18)], "outside of the years 1 to 9999"),
            (["--offsets-retention", "ten days"], "'ten days' is not a duration. Write for example 10d"),
            (["--offsets-retention", "-1d"], "'-1d' is not a duration."),
            (["--offsets-retention", "99999999999d"], "longer than the longest that Kafka takes"),
            (["--output", "csv"], "'csv' is not one of 'table', 'json'"),
            (["--warehouse", ""], "--warehouse is given without a name"),
            ([""], "An INPUT is empty."),
            (["--no-such-option"], "--no-such-option"),
            (["--cluster", ""], "--cluster is given without a name"),
            (["--command-config", "client.properties"], "no INPUT is kafka://HOST:PORT"),
            (["kafka://localhost:9092"], "is log segments and kafka://localhost:9092 is a topic: one run reads one kind"),
        ],
    )
    def test_an_option_that_makes_no_sense(self, untouched: Path, args: list[str], told: str) -> None:
        assert told in self.refused(untouched, SAMPLE_LOGS, *args)

    def test_a_settings_file_that_is_not_there(self, tmp_path: Path, untouched: Path) -> None:
        sentence = self.refused(untouched, SAMPLE_LOGS, "--settings", tmp_path / "server.properties")
        assert sentence == f"The settings file {tmp_path}/server.properties cannot be read: No such file or directory."

    @pytest.mark.parametrize("value", ["soon", "0", "-1", "99999999999"])
    def test_a_settings_file_with_an_impossible_value(self, tmp_path: Path, untouched: Path, value: str) -> None:
        (tmp_path / "server.properties").write_text(f"offsets.retention.minutes={value}\n")
        sentence = self.refused(untouched, SAMPLE_LOGS, "--settings", tmp_path / "server.properties")
        assert sentence.startswith(f"{tmp_path}/server.properties: offsets.retention.minutes {value!r} is not a whole number")

    def test_a_settings_file_with_a_misspelled_name(self, tmp_path: Path, untouched: Path) -> None:
        (tmp_path / "server.properties").write_text("broker.id=1\noffsets.retention.minute=60\n")
        sentence = self.refused(untouched, SAMPLE_LOGS, "--settings", tmp_path / "server.properties")
        told = "'offsets.retention.minute' is not a setting of a Kafka broker. Did you mean offsets.retention.minutes?"
        assert sentence == f"{tmp_path}/server.properties: {told}"

    def test_a_settings_file_of_something_else(self, tmp_path: Path, untouched: Path) -> None:
        (tmp_path / "consumer.properties").write_text("bootstrap.servers=localhost:9092\ngroup.id=g\n")
        sentence = self.refused(untouched, SAMPLE_LOGS, "--settings", tmp_path / "consumer.properties")
        assert sentence.startswith(f"{tmp_path}/consumer.properties: no line is a setting of a Kafka broker.")

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("{", "is not JSON"),
            ('["a"]', "must hold one JSON object"),
            ('{"a": 1}', "must hold one JSON object"),
            ('{"orders": "AZx9"}', "gives 'orders' the id 'AZx9', and ids have 22 letters"),
        ],
    )
    def test_a_topic_ids_file_that_is_none(self, tmp_path: Path, untouched: Path, text: str, told: str) -> None:
        (tmp_path / "ids.json").write_text(text)
        assert told in self.refused(untouched, SAMPLE_LOGS, "--topic-ids", tmp_path / "ids.json")

    def test_a_binary_file_for_settings(self, tmp_path: Path, untouched: Path) -> None:
        (tmp_path / "odd").write_bytes(b"\xff\xfe\x00")
        assert "it is not UTF-8 text" in self.refused(untouched, SAMPLE_LOGS, "--settings", tmp_path / "odd")


@pytest.mark.usefixtures("commands_run_nights_here")
class TestABadWarehouse:
    def refused(self, place: Path) -> str:
        """Before and after are equal, byte for byte; also when the cluster is not named and the warehouse is asked for it."""
        before = contents(place)
        with pytest.MonkeyPatch.context() as without:
            without.setattr("groupcoord_spark.pipeline.run_nightly.session", None)  # Spark has not been started by then
            sentence = sentence_of(nightly(place, SAMPLE_LOGS, "--cluster", "sample"), 1)
            assert sentence_of(nightly(place, SAMPLE_LOGS), 1) == sentence
        assert contents(place) == before
        return sentence

    def test_a_directory_of_something_else(self, tmp_path: Path) -> None:
        (tmp_path / "w").mkdir()
        (tmp_path / "w" / "thesis.tex").write_text("years of work")
        assert self.refused(tmp_path / "w").startswith(f"{tmp_path}/w holds other things and no table 'runs' of ours")

    def test_a_file_in_its_place(self, tmp_path: Path) -> None:
        (tmp_path / "w").write_text("a file")
        assert self.refused(tmp_path / "w") == f"{tmp_path}/w is a file, not a warehouse directory. Name a directory with --warehouse."

    def test_a_file_above_it(self, tmp_path: Path) -> None:
        (tmp_path / "above").write_text("a file")
        assert f"{tmp_path}/above/w cannot be" in self.refused(tmp_path / "above" / "w")

    def test_a_link_to_itself(self, tmp_path: Path) -> None:
        (tmp_path / "w").symlink_to(tmp_path / "w")
        assert f"{tmp_path}/w" in self.refused(tmp_path / "w")

    def test_a_log_of_runs_that_is_no_delta(self, tmp_path: Path) -> None:
        night(tmp_path / "w", "sample", {"groups": [group("g")]})
        for version in (tmp_path / "w" / "runs" / "_delta_log").glob("*.json"):
            version.write_text("{")
        assert "runs" in self.refused(tmp_path / "w")

    def test_a_table_whose_log_is_no_delta(self, tmp_path: Path) -> None:
        night(tmp_path / "w", "sample", {"groups": [group("g")]})
        for version in (tmp_path / "w" / "groups" / "_delta_log").glob("*.json"):
            version.write_text("{")
        assert self.refused(tmp_path / "w").startswith(f"Table groups of {tmp_path}/w cannot be read:")

    def test_a_history_table_that_is_gone_is_not_made_anew(self, tmp_path: Path) -> None:
        night(tmp_path / "w", "sample", {"groups": [group("g")]})
        shutil.rmtree(tmp_path / "w" / "offset_commits")
        assert self.refused(tmp_path / "w").startswith(f"{tmp_path}/w has no table offset_commits: it was removed")

    def test_a_table_that_was_made_anew(self, tmp_path: Path) -> None:
        for _ in range(2):
            night(tmp_path / "w", "sample", {"groups": [group("g")]})
        night(tmp_path / "other", "sample", {})
        shutil.rmtree(tmp_path / "w" / "groups")
        shutil.copytree(tmp_path / "other" / "groups", tmp_path / "w" / "groups")
        assert "was restored or created again" in self.refused(tmp_path / "w")


class TestJava:
    @pytest.fixture(autouse=True)
    def _is_needed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the run start a session of Spark, as if this process had none yet."""
        monkeypatch.setattr("groupcoord_spark.pipeline.run_nightly.session", session)
        monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)

    def refused(self, warehouse: Path) -> str:
        sentence = sentence_of(nightly(warehouse, SAMPLE_LOGS), 1)
        assert not warehouse.exists()
        return sentence

    def test_that_is_missing_is_one_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.delenv("JAVA_HOME", raising=False)
        told = "No `java` on PATH and JAVA_HOME is not set. Spark needs Java 17 or newer: install it"
        assert self.refused(tmp_path / "w").startswith(told)

    def test_home_that_holds_none_is_one_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        told = f"JAVA_HOME is '{tmp_path}', but there is no executable '{tmp_path}/bin/java'."
        assert self.refused(tmp_path / "w").startswith(told)

    def test_that_is_too_old_is_one_sentence(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "bin").mkdir()
        java = tmp_path / "bin" / "java"
        java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
        java.chmod(0o755)
        monkeypatch.setenv("JAVA_HOME", str(tmp_path))
        assert self.refused(tmp_path / "w").startswith(f"{java} is Java 11. Spark needs Java 17 or newer")


def test_connector_of_sparks_own_version_is_tried_before_the_one_that_mirrors_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def without_network(*, show_output: bool, settings: Mapping[str, str]) -> None:
        asked.append(settings["spark.jars.packages"])
        raise GroupcoordError(f"Spark did not start: unresolved dependency {len(asked)}.")

    monkeypatch.setattr("groupcoord_spark.pipeline.run_nightly.session", without_network)
    result = nightly(tmp_path / "w", "kafka://localhost:9092")
    assert asked == [f"{KAFKA_CONNECTOR}:{pyspark.__version__}", f"{KAFKA_CONNECTOR}:{FALLBACK_VERSION}"]
    assert sentence_of(result, 1) == "Spark did not start: unresolved dependency 2."
