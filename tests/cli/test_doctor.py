"""``groupcoord doctor``."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from click.testing import Result

from tests.cli import warehouse
from tests.conftest import DAY_MS
from tests.doctor.copies import oracle
from tests.doctor.test_rules_of_groups import commit
from tests.log.log_writer import T0, batch, write_segment

SICK = Path(__file__).parent.parent / "golden" / "sick"
HANGING = SICK / "hanging" / "logs"
HEALTHY = SICK / "healthy" / "logs"


def doctor(*arguments: object) -> Result:
    return warehouse.groupcoord("doctor", *map(str, arguments))


def test_report_is_readable_at_80_columns_and_begins_with_the_worst() -> None:
    result = doctor(HANGING)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert lines[0] == "SICK   hanging_transaction: 2 findings"
    assert lines[1] == "       - Partition 3 (certain): Producer 7, epoch 0, has 3 pending offsets of"
    assert max(map(len, lines)) <= 80
    assert "           --topic __consumer_offsets --partition 3 --start-offset 247" in lines


def test_many_findings_of_a_kind_are_one_paragraph_with_the_worst_five(tmp_path: Path) -> None:
    opened = [
        batch(number, [commit(f"app-{number}")], attributes=0x10, producer_id=number, producer_epoch=3, base_timestamp=T0 + number * 60_000)
        for number in range(90)
    ]
    write_segment(tmp_path, opened)
    result = doctor(tmp_path, "--as-of", T0 + DAY_MS)
    assert "SICK   hanging_transaction: 90 findings, the worst 5 here, all in JSON\n" in result.stdout
    assert [line.split()[5] for line in result.stdout.splitlines() if line.startswith("       - Partition")] == [f"{n}," for n in range(5)]
    assert len(result.stdout.splitlines()) < 40 and max(map(len, result.stdout.splitlines())) <= 80
    assert len(doctor(tmp_path, "--as-of", T0 + DAY_MS, "--output", "json").stdout.splitlines()) == 90


def test_json_has_a_row_for_each_finding_and_for_each_partition_without_one() -> None:
    rows = [json.loads(line) for line in doctor(HEALTHY, "--output", "json").stdout.splitlines()]
    assert [(row["offsets_partition"], row["finding"], row["severity"]) for row in rows] == [
        (3, "open_transaction_young", "normal"),
        (2, "healthy", "normal"),
        (1, "healthy", "normal"),
        (0, "healthy", "normal"),
        (4, "healthy", "normal"),
    ]
    assert rows[0]["evidence"]["group"] == "fine-etl"
    assert [row["figures"]["log_bytes"] for row in rows] == [4124, 11856, 10876, 10860, 10860]
    assert {row["verdict"] for row in rows} == {"healthy"}


def test_csv_has_the_same_rows() -> None:
    rows = list(csv.DictReader(io.StringIO(doctor(HANGING, "--output", "csv").stdout)))
    findings = [json.loads(line) for line in doctor(HANGING, "--output", "json").stdout.splitlines()]
    assert [row["finding"] for row in rows] == [finding["finding"] for finding in findings]
    assert json.loads(rows[0]["evidence"]) == findings[0]["evidence"]


@pytest.mark.parametrize(
    ("words", "code"),
    [("hanging", 3), ("cleaner_stopped", 0), ("hanging,cleaner_stopped", 3), ("sick", 3), ("hot_committer", 0), ("open_transaction", 3)],
)
def test_fail_on_ends_with_3_only_for_findings_that_are_there(words: str, code: int) -> None:
    assert doctor(HANGING, "--fail-on", words, "--quiet").exit_code == code


def test_fail_on_says_what_it_found() -> None:
    assert doctor(HANGING, "--fail-on", "hanging").stderr == "Alert: found hanging_transaction.\n"


def test_unknown_finding_is_refused_with_the_names() -> None:
    result = doctor(HANGING, "--fail-on", "hangin")
    assert result.exit_code == 2
    assert "'hangin' is not a finding. Write sick, watch, refused, or some of hanging," in " ".join(result.stderr.split())


def test_healthy_copy_passes_every_alarm() -> None:
    assert doctor(HEALTHY, "--fail-on", "watch").exit_code == 0


def test_ages_are_measured_from_as_of() -> None:
    result = doctor(HEALTHY, "--as-of", "2026-11-22T09:00:00Z", "--fail-on", "hanging")
    assert result.exit_code == 3
    assert "SICK   hanging_transaction (likely), partition 3" in result.stdout


def test_settings_of_the_brokers_count(tmp_path: Path) -> None:
    settings = tmp_path / "server.properties"
    settings.write_text("transaction.max.timeout.ms=86400000\nlog.dirs=/var/lib/kafka\n")
    result = doctor(HEALTHY, "--as-of", "2026-11-22T09:00:00Z", "--settings", settings, "--fail-on", "hanging")
    assert result.exit_code == 0, result.stderr
    assert "WATCH  open_transaction (candidate), partition 3" in result.stdout


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("min.cleanable.dirty.ratio=2", "min.cleanable.dirty.ratio '2' is not a number from 0 to 1."),
        ("log.cleaner.threads=0", "log.cleaner.threads '0' is not a whole number from 1 on."),
        ("transaction.max.timeout.ms=15m", "transaction.max.timeout.ms '15m' is not a whole number."),
        ("hello=1", "no line is a setting of a Kafka broker"),
    ],
)
def test_wrong_settings_are_refused(line: str, sentence: str, tmp_path: Path) -> None:
    settings = tmp_path / "topic.properties"
    settings.write_text(f"{line}\n")
    result = doctor(HEALTHY, "--settings", settings)
    assert result.exit_code == 2
    assert sentence in result.stderr


def test_copies_of_several_brokers_are_judged_each() -> None:
    result = doctor(SICK / "uncleaned" / "logs", SICK / "uncleaned" / "second" / "logs")
    assert result.stdout.startswith(f"SICK   cleaning_stopped, partition 3\n       in {SICK}/uncleaned/second/logs\n")
    assert "SICK   never_cleaned: 5 findings\n" in result.stdout and result.stdout.count(f" in {SICK}/uncleaned/logs: ") == 5
    assert "00000000000000000199.txnindex is damaged and not used" in result.stderr


def test_damaged_side_file_is_said_once_and_not_with_quiet() -> None:
    assert doctor(SICK / "uncleaned" / "second" / "logs", "--quiet").stderr == ""


def test_inputs_that_are_no_segments_are_refused(tmp_path: Path) -> None:
    lines = tmp_path / "dump.json"
    lines.write_text('{"offsets_partition":0}\n')
    result = doctor(lines)
    assert result.exit_code == 2
    assert "doctor reads a copy of a broker's log directory" in result.stderr


def test_missing_input_is_refused() -> None:
    assert doctor("no-such-directory").exit_code == 2


def test_log_of_the_transaction_coordinator_decides_what_the_offsets_topic_cannot() -> None:
    corpus = SICK / "hanging"
    arguments = ("--transaction-state", corpus / "coordinator", "--as-of", "1795328868235", "--output", "json")
    rows = [json.loads(line) for line in doctor(corpus / "logs", *arguments).stdout.splitlines()]
    expected = oracle("hanging", "diagnosis")
    names = ("finding", "severity", "subject")
    assert {(row["offsets_partition"], *(row[name] for name in names)) for row in rows} == {
        (finding["partition"], *(finding[name] for name in names)) for finding in expected
    }
    coordinators = {finding["subject"]: finding["evidence"].get("coordinator") for finding in expected}
    for row in rows:
        if row["certainty"]:
            assert row["evidence"]["coordinator"] == coordinators[row["subject"]]
            assert row["ask"] is None


def test_directory_without_the_log_of_the_coordinator_is_refused() -> None:
    result = doctor(HANGING, "--transaction-state", HANGING / "__consumer_offsets-0")
    assert result.exit_code == 2
    assert "no partition of __transaction_state is in it" in result.stderr


STREAMS = SICK.parent / "streams" / "logs"
FUZZ = SICK.parent / "fuzz-1" / "logs"


def test_cleaning_that_a_load_does_not_survive_is_said_with_group_record_and_issue() -> None:
    corpus = SICK.parent / "convert" / "logs"
    result = doctor(corpus, "--after-cleaning", "--upgrade-to", "4.4.0", "--output", "json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert {(row["release"], row["answer"]) for row in rows} >= {("4.3", "loads"), ("4.3", "refused_while_cleaning")}
    (found,) = [row for row in rows if row["release"] == "4.3" and row["answer"] != "loads"]
    assert (found["group_id"], found["refused_offset"], found["kafka_issue"]) == ("mig-back-and-forth", 68, "KAFKA-21117")
    for finding, exit_code in (("refused", 3), ("refused_while_cleaning", 3), ("other_state", 0)):
        assert doctor(corpus, "--after-cleaning", "--fail-on", finding).exit_code == exit_code
    assert "loads all 2 offsets partitions to the same state" in doctor(STREAMS, "--after-cleaning", "--fail-on", "refused").stdout


def test_upgrade_says_which_records_are_skipped_and_what_becomes_of_the_groups() -> None:
    result = doctor(STREAMS, "--upgrade-to", "3.9")
    assert result.exit_code == 0
    assert "It skips 97 records of key types that it does not know.\n" in result.stdout
    assert "app-stateful  streams, Stable, 2 members classic, Empty, 0 members\n" in result.stdout


def test_refused_records_end_with_3_only_with_fail_on() -> None:
    assert doctor(FUZZ, "--upgrade-to", "3.4.0").exit_code == 0
    result = doctor(FUZZ, "--upgrade-to", "3.4.0", "--fail-on", "refused")
    assert result.exit_code == 3
    assert result.stdout.startswith("Kafka 3.4.0 does not load 3 of 3 offsets partitions:\n")


def test_matrix_has_a_row_for_each_range_of_releases_and_partition() -> None:
    rows = [json.loads(line) for line in doctor(FUZZ, "--matrix", "--output", "json").stdout.splitlines()]
    assert {row["offsets_partition"] for row in rows} == {0, 1, 2}
    refused = {row["release"] for row in rows if not row["loads"]}
    assert refused == {"0.8.2.2", "0.10.0.1", "2.0.1", "2.2.2", "2.3.1", "2.6.0", "3.4.0", "4.1.1", "4.1.2", "4.2.0"}
    assert doctor(HEALTHY, "--matrix").stdout.splitlines()[0].split() == [
        "RELEASES", "FAILING", "REFUSED", "SKIPPED", "GROUPS-DIFFER", "OFFSETS-DIFFER",
    ]  # fmt: skip


def test_partitions_names_the_groups_that_lose_offsets_and_the_commands_that_save_them() -> None:
    result = doctor(SICK / "hot" / "logs", "--partitions", 10)
    assert result.exit_code == 0
    assert "grp-calm-5" in result.stdout
    assert "With 10 partitions instead of 5, 18 of 38 groups move, and 11 of them lose 211 committed offsets" in result.stderr
    assert "groupcoord export-offsets --warehouse ./saved --group" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--upgrade-to", "4.4", "--matrix"), "are different questions"),
        (("--broker-version", "3.9"), "--broker-version is for --after-cleaning"),
        (("--upgrade-to", "9.9"), "'9.9' is not a release of Kafka"),
        (("--partitions", "4"), "Kafka takes none away"),
    ],
)
def test_questions_that_make_no_sense_are_refused(arguments: tuple[str, ...], sentence: str) -> None:
    result = doctor(SICK / "hot" / "logs", *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
