"""Findings about real brokers with known illnesses, and none about healthy ones."""

from __future__ import annotations

import re
import shutil
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.doctor import (
    FINDINGS,
    Diagnosis,
    FilesBeside,
    HealthSettings,
    KnownTransactions,
    Severity,
    diagnose,
    read_copies,
    read_transaction_states,
)
from groupcoord_spark.doctor.findings import FindingKind
from groupcoord_spark.doctor.gather.producer_table import ProducerTable
from groupcoord_spark.doctor.rules import cleaner, groups, sizes, transactions
from groupcoord_spark.doctor.side_files import checked_files
from groupcoord_spark.log import Segment, read_segment
from groupcoord_spark.log.broker_dir.broker_files import LogDirectoryFiles, PartitionFiles, ProducerState
from groupcoord_spark.log.partition_count import KAFKAS_DEFAULT
from groupcoord_spark.protocol.partitioner import partitioning_hash
from tests.doctor.copies import CORPORA, GOLDEN, SICK, logs, oracle
from tests.examples import examples
from tests.log.log_writer import T0, Rec, batch, write_segment

NOT_IN_THE_LOG = {
    ("hanging", 1, 6): "open_transaction",  # a commit that came late after its marker, with the same epoch
    ("hanging", 4, 8): "open_transaction",  # the timeout that its client asked for is over
}
"""Corpus, partition, producer -> what the log alone says where only the coordinator knows more."""

WITH_OPEN_TRANSACTIONS = ("fuzz-", "preview-", "refused-then-superseded", "nights", "log-directory")
"""Logs written by a generator, with transactions left open for days of their own time."""


def diagnosis_of(*inputs: str) -> Diagnosis:
    return diagnose(read_copies(inputs), HealthSettings(), KnownTransactions())


@cache
def diagnosis_of_broker(corpus: str) -> Diagnosis:
    return diagnosis_of(logs(corpus))


@pytest.mark.parametrize("corpus", CORPORA)
def test_findings_are_those_of_the_broker(corpus: str) -> None:
    expected = set()
    for finding in oracle(corpus, "diagnosis"):
        name, severity, place = finding["finding"], finding["severity"], (corpus, finding["partition"], finding["subject"])
        if place in NOT_IN_THE_LOG and not name.startswith("cleaning"):
            name, severity = NOT_IN_THE_LOG[place], "watch"
        expected.add((finding["partition"], name, severity, finding["subject"]))
    findings = diagnosis_of_broker(corpus).findings
    assert {(each.offsets_partition, each.finding, each.severity.word, each.subject) for each in findings} == expected


@pytest.mark.parametrize("corpus", CORPORA)
def test_evidence_has_the_figures_of_the_broker(corpus: str) -> None:
    expected = {
        (finding["partition"], finding["finding"], finding["subject"]): finding["evidence"] for finding in oracle(corpus, "diagnosis")
    }
    not_in_the_log = {"age_ms", "coordinator_epoch", "kinds", "groups"}
    for finding in diagnosis_of_broker(corpus).findings:
        figures = expected.get((finding.offsets_partition, finding.finding, finding.subject), {})
        names = (figures.keys() & finding.evidence.keys()) - not_in_the_log
        assert {name: finding.evidence[name] for name in names} == {name: figures[name] for name in names}


@pytest.mark.parametrize("corpus", CORPORA)
def test_figures_of_every_partition_are_those_of_the_cleaner(corpus: str) -> None:
    cleaning = oracle(corpus, "cleaning")
    for verdict in diagnosis_of_broker(corpus).verdicts:
        expected = cleaning[str(verdict.offsets_partition)]
        assert {name: verdict.figures[name] for name in expected} == expected


def test_certainties_are_what_the_log_proves() -> None:
    transactions = [finding for finding in oracle("hanging", "diagnosis") if not finding["finding"].startswith("cleaning")]
    proved = {finding["subject"]: finding["evidence"]["dump_alone_proves_hanging"] for finding in transactions}
    certainties = {each.subject: each.certainty for each in diagnosis_of_broker("hanging").findings if each.certainty}
    assert {subject: certainty == "certain" for subject, certainty in certainties.items()} == proved


HEALTHY = [
    path
    for path in sorted({directory.parent for directory in GOLDEN.rglob("__consumer_offsets-*")})
    if not path.is_relative_to(SICK) and not path.relative_to(GOLDEN).as_posix().startswith(WITH_OPEN_TRANSACTIONS)
]


@pytest.mark.parametrize("path", HEALTHY, ids=lambda path: path.relative_to(GOLDEN).as_posix())
def test_healthy_brokers_get_no_alarm(path: Path) -> None:
    alarms = [finding for finding in diagnosis_of(str(path)).findings if finding.severity > Severity.NORMAL]
    if path.parent.name == "classic-modern":  # eight commits of 4,096 bytes of metadata are nearly all of partition 0
        (long_metadata,) = alarms
        assert (long_metadata.finding, long_metadata.severity, long_metadata.subject) == ("large_metadata", Severity.WATCH, "app-simple")
    else:
        assert alarms == []


def test_another_copy_convicts_a_cleaner() -> None:
    diagnosis = diagnosis_of(logs("uncleaned"), logs("uncleaned/second"))
    never_cleaned = [finding for finding in diagnosis.findings if finding.finding == "never_cleaned"]
    assert len(never_cleaned) == 5
    clean = {finding.evidence["clean_copy"]["directory"] for finding in never_cleaned if "clean_copy" in finding.evidence}
    # the other broker has not cleaned partition 3 either
    assert clean == {f"{logs('uncleaned/second')}/__consumer_offsets-{number}" for number in (0, 1, 2, 4)}


def test_another_copy_convicts_a_cleaner_also_where_only_segments_were_copied(tmp_path: Path) -> None:
    alone = copied("uncleaned", tmp_path)
    for path in [*alone.glob("*-checkpoint"), *alone.glob("*/*.snapshot"), *alone.glob("*/*.txnindex")]:
        path.unlink()
    assert names(diagnosis_of(str(alone))) == []
    both = diagnosis_of(str(alone), logs("uncleaned/second"))
    assert [each[0] for each in names(both) if each[1] == "never_cleaned"] == [0, 1, 2, 4]


@pytest.mark.parametrize("corpus", CORPORA)
def test_sound_files_give_no_remark(corpus: str) -> None:
    remarks = diagnosis_of_broker(corpus).remarks
    assert len(remarks) == (1 if corpus == "uncleaned/second" else 0)


def test_old_transaction_likely_hangs_and_a_longer_timeout_makes_it_a_candidate() -> None:
    copies = read_copies([logs("hanging")])
    later = max(partition.newest_timestamp_ms for copy in copies for partition in copy.partitions) + 3_600_000
    for timeout_ms, certainty in ((900_000, "likely"), (86_400_000, "candidate")):
        findings = diagnose(copies, HealthSettings(transaction_max_timeout_ms=timeout_ms), KnownTransactions(), as_of_ms=later).findings
        assert {each.certainty for each in findings if each.certainty} == {certainty, "certain"}


def copied(corpus: str, tmp_path: Path) -> Path:
    target = tmp_path / "logs"
    shutil.copytree(SICK / corpus / "logs", target)
    return target


def names(diagnosis: Diagnosis) -> list[tuple[int | None, str, str | int | None]]:
    return [(each.offsets_partition, each.finding, each.subject) for each in diagnosis.findings]


def test_segments_alone_give_the_findings_that_need_nothing_else(tmp_path: Path) -> None:
    target = copied("hanging", tmp_path)
    for path in [*target.glob("*-checkpoint"), *target.glob("*/*.snapshot"), *target.glob("*/*.txnindex"), *target.glob("*/leader-*")]:
        path.unlink()
    diagnosis = diagnosis_of(str(target))
    assert diagnosis.remarks == ()
    hanging = [each for each in names(diagnosis) if each[1] == "hanging_transaction"]
    assert hanging == [(3, "hanging_transaction", 7), (4, "hanging_transaction", 9)]


def test_snapshot_without_the_open_transaction_makes_it_likely_that_it_hangs(tmp_path: Path) -> None:
    target = copied("hanging", tmp_path)
    partition = target / "__consumer_offsets-0"
    shutil.copy(partition / "00000000000000000247.snapshot", partition / "00000000000000000887.snapshot")
    findings = {each.subject: each for each in diagnosis_of(str(target)).findings if each.certainty}
    assert findings[5].certainty == "likely"
    assert "snapshot at offset 887" in findings[5].summary


def test_snapshot_of_another_partition_is_said_and_not_used(tmp_path: Path) -> None:
    target = copied("hanging", tmp_path)
    other = target / "__consumer_offsets-4" / "00000000000000000889.snapshot"
    shutil.copy(other, target / "__consumer_offsets-0" / "00000000000000000887.snapshot")
    diagnosis = diagnosis_of(str(target))
    assert len(diagnosis.remarks) == 1
    assert "__consumer_offsets-0/00000000000000000887.snapshot" in diagnosis.remarks[0]
    assert {each.subject: each.certainty for each in diagnosis.findings if each.certainty}[5] == "not decidable"


def test_files_of_a_later_moment_are_said_and_not_used(tmp_path: Path) -> None:
    target = copied("hanging", tmp_path)
    (target / "cleaner-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 1031\n")
    (target / "replication-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 5000\n")
    partition = target / "__consumer_offsets-0"
    (partition / "00000000000000000887.snapshot").rename(partition / "00000000000000001999.snapshot")
    diagnosis = diagnosis_of(str(target))
    assert len(diagnosis.remarks) == 3
    verdict = next(each for each in diagnosis.verdicts if each.offsets_partition == 0)
    assert (verdict.figures["cleaner_checkpoint"], verdict.figures["high_watermark"]) == (None, None)


@pytest.mark.parametrize("corpus", CORPORA)
def test_empty_side_files_change_no_finding_to_an_error(corpus: str, tmp_path: Path) -> None:
    target = copied(corpus, tmp_path)
    for path in [*target.glob("*/*.snapshot"), *target.glob("*-checkpoint")]:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert diagnosis_of(str(target)).verdicts


def test_worst_findings_come_first() -> None:
    severities = [finding.severity for finding in diagnosis_of_broker("hanging").findings]
    assert severities == sorted(severities, reverse=True)


def test_page_about_large_topics_explains_every_finding() -> None:
    page = (GOLDEN.parents[1] / "docs" / "how-to" / "a-large-offsets-topic.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == list(FINDINGS)


def test_every_kind_of_finding_has_a_place_among_all() -> None:
    kinds = {kind for file in (cleaner, groups, sizes, transactions) for kind in vars(file).values() if isinstance(kind, FindingKind)}
    assert kinds == set(FINDINGS.values())


SIDE_FILES = sorted(
    path.relative_to(SICK / "hanging" / "logs").as_posix()
    for path in (SICK / "hanging" / "logs").rglob("*")
    if path.suffix in (".snapshot", ".txnindex") or path.name.endswith("-checkpoint")
    if path.stat().st_size
)


@cache
def verdicts_with(name: str, content: bytes | None) -> dict[int, list[tuple[str, str | int | None]]]:
    """(finding, subject) by offsets partition of the hanging copy, where one side file has this content; None: the file is not there."""
    with TemporaryDirectory() as directory:
        target = copied("hanging", Path(directory))
        (target / name).unlink()
        if content is not None:
            (target / name).write_bytes(content)
        diagnosis = diagnosis_of(str(target))
    found = names(diagnosis)
    return {
        verdict.offsets_partition: [each[1:] for each in found if each[0] == verdict.offsets_partition] for verdict in diagnosis.verdicts
    }


@examples(20)
@given(st.data())
def test_damaged_side_file_counts_as_absent_or_changes_nothing(data: st.DataObject) -> None:
    # A flipped or cut file gives every partition the verdict that the sound file gives, or that no file gives.
    name = data.draw(st.sampled_from(SIDE_FILES))
    whole = (SICK / "hanging" / "logs" / name).read_bytes()
    if data.draw(st.booleans()):
        damaged = bytearray(whole)
        damaged[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        damaged = bytearray(whole[: data.draw(st.integers(1, len(whole) - 1))])
    sound = verdicts_with(SIDE_FILES[0], (SICK / "hanging" / "logs" / SIDE_FILES[0]).read_bytes())
    absent, of_damaged = (verdicts_with(name, content) for content in (None, bytes(damaged)))
    assert all(of_damaged[number] in (sound[number], absent[number]) for number in sound)


def test_index_of_another_partition_is_said_and_not_used(tmp_path: Path) -> None:
    target = copied("uncleaned", tmp_path)
    index = target / "__consumer_offsets-3" / "00000000000000000199.txnindex"
    shutil.copy(index, target / "__consumer_offsets-0" / "00000000000000000200.txnindex")
    remarks = diagnosis_of(str(target)).remarks
    assert len(remarks) == 1
    assert "__consumer_offsets-0/00000000000000000200.txnindex does not fit the segments" in remarks[0]


def test_damaged_index_convicts_the_cleaner_also_where_its_checkpoint_is_damaged(tmp_path: Path) -> None:
    target = copied("uncleaned/second", tmp_path)
    (target / "cleaner-offset-checkpoint").write_text("0\n9\n")
    diagnosis = diagnosis_of(str(target))
    assert names(diagnosis) == [(3, "cleaning_stopped", None)]
    assert "stands at offset 100 or before" in diagnosis.findings[0].summary


def test_clean_copy_convicts_a_cleaner_that_worked_before(tmp_path: Path) -> None:
    """Partition 3 of the second broker was cleaned once, and then given up; here without the files that say so."""
    ill, clean = copied("uncleaned/second", tmp_path / "ill"), tmp_path / "clean" / "logs"
    for path in [*ill.glob("*-checkpoint"), *ill.glob("*/*.txnindex"), *ill.glob("*/*.snapshot")]:
        path.unlink()
    shutil.copytree(ill / "__consumer_offsets-0", clean / "__consumer_offsets-3")
    assert names(diagnosis_of(str(ill))) == []
    assert names(diagnosis_of(str(ill), str(clean))) == [(3, "cleaning_stopped", None)]


LATER_FILES = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "__consumer_offsets-0/leader-epoch-checkpoint")


@pytest.mark.parametrize("name", LATER_FILES)
def test_every_checkpoint_of_a_later_moment_is_said(name: str, tmp_path: Path) -> None:
    target = copied("hanging", tmp_path)
    (target / name).write_text("0\n1\n7 999999\n" if "leader" in name else "0\n1\n__consumer_offsets 0 999999\n")
    remarks = diagnosis_of(str(target)).remarks
    assert len(remarks) == 1
    assert name in remarks[0]
    assert "later moment" in remarks[0]


def test_damaged_checkpoint_of_the_cleaner_does_not_mean_that_the_cleaner_is_off(tmp_path: Path) -> None:
    target = copied("tombstones", tmp_path)
    (target / "cleaner-offset-checkpoint").write_text("0\n9\n")
    diagnosis = diagnosis_of(str(target))
    assert {finding.finding for finding in diagnosis.findings} == {"tombstones"}


def test_single_segments_are_judged_without_the_files_of_the_whole_partition() -> None:
    diagnosis = diagnosis_of(f"{logs('hanging')}/__consumer_offsets-0/00000000000000000407.log")
    assert (diagnosis.findings, diagnosis.remarks) == ((), ())
    assert [verdict.figures["segments"] for verdict in diagnosis.verdicts] == [1]


def test_places_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    target = copied("hanging", tmp_path)
    path = target / "__consumer_offsets-0" / "00000000000000000407.log"
    data = bytearray(path.read_bytes())
    data[5000:5030] = bytes(30)
    path.write_bytes(data)
    remarks = diagnosis_of(str(target)).remarks
    assert len(remarks) == 1
    assert remarks[0].startswith("A place of partition 0 cannot be read, and its records are in no figure.")


def test_producer_that_the_whole_log_of_the_coordinator_does_not_know_hangs(tmp_path: Path) -> None:
    # The coordinator's log without the records of one transactional id, whose producer has an open transaction.
    (directory,) = (SICK / "hanging" / "coordinator").iterdir()
    (path,) = directory.glob("*.log")
    entries = []
    for chunk in read_segment(Segment(str(path), path.stat().st_size, 0, 0, None)):
        records = chunk.records
        for row in range(len(records)):
            key, value, timestamp_ms = records.key.row(row), records.value.row(row), int(records.timestamp_ms[row])
            if b"app-killed" not in (key or b""):
                entries.append(batch(len(entries), [Rec(key, value)], base_timestamp=timestamp_ms))
    (tmp_path / directory.name).mkdir()
    (tmp_path / directory.name / path.name).write_bytes(b"".join(entries))
    known = read_transaction_states([], str(tmp_path))
    assert known.is_complete and 5 not in known.by_producer
    findings = {each.subject: each for each in diagnose(read_copies([logs("hanging")]), HealthSettings(), known).findings if each.certainty}
    assert (findings[5].finding, findings[5].certainty) == ("hanging_transaction", "certain")
    assert "does not know the producer" in findings[5].summary


@pytest.mark.parametrize("other", [1, 49])
def test_part_of_the_coordinators_log_is_not_taken_for_all_of_it(other: int, tmp_path: Path) -> None:
    (directory,) = (SICK / "hanging" / "coordinator").iterdir()
    for number in (0, other):
        shutil.copytree(directory, tmp_path / f"__transaction_state-{number}")
    assert not read_transaction_states([], str(tmp_path)).is_complete


@pytest.mark.parametrize(("segment", "is_complete"), [(f"{0:020}.log", True), (f"{7:020}.log", False), (None, False)])
def test_copy_without_a_first_segment_is_not_all_of_the_coordinators_log(segment: str | None, is_complete: bool, tmp_path: Path) -> None:
    # A partition without a transactional id has an empty first segment. The log is compacted: no first segment is ever deleted.
    key = b"\0\0\0\5app-1"
    of_id = partitioning_hash("app-1") % KAFKAS_DEFAULT
    for number in range(KAFKAS_DEFAULT):
        (tmp_path / f"__transaction_state-{number}").mkdir()
        (tmp_path / f"__transaction_state-{number}" / f"{0:020}.log").touch()
    (tmp_path / f"__transaction_state-{of_id}" / f"{0:020}.log").write_bytes(batch(0, [Rec(key, None)]))
    (path,) = (tmp_path / f"__transaction_state-{(of_id + 1) % KAFKAS_DEFAULT}").iterdir()
    path.unlink()
    if segment is not None:
        (path.parent / segment).touch()
    assert read_transaction_states([], str(tmp_path)).is_complete == is_complete


@pytest.mark.parametrize(("hole_end", "fits"), [(20, True), (-1, False), (5, False)])
def test_snapshot_that_names_a_batch_is_sound_where_the_cleaner_may_have_removed_the_batch(hole_end: int, fits: bool) -> None:
    """Under KIP-890 a marker has a newer epoch: the broker then forgets the producer's batch, and the cleaner removes it."""
    state = ProducerState(7, 0, 0, 10, 0, 1_000, -1, -1)
    files = FilesBeside(PartitionFiles(snapshots={15: (state,)}), LogDirectoryFiles())
    of_segment = ProducerTable().by_segment()
    checked = checked_files(files, 0, "__consumer_offsets-0", [0], 30, of_segment, 2_000, (), hole_end=hole_end)
    assert (checked.damages == ()) == fits


@pytest.mark.parametrize(("since_closed_ms", "is_ill"), [(60_000, False), (86_400_001, True)])
def test_segment_that_was_closed_long_after_its_last_record_is_due_since_then(since_closed_ms: int, is_ill: bool, tmp_path: Path) -> None:
    # A slow partition: the next commit came after a week, and only then did the broker roll the segment.
    rolled_ms = T0 + 7 * 86_400_000
    write_segment(tmp_path, [batch(offset, base_timestamp=T0 + offset) for offset in range(100)])
    later = batch(100, base_timestamp=rolled_ms), batch(101, base_timestamp=rolled_ms + since_closed_ms)
    write_segment(tmp_path, [*later], base_offset=100)
    assert [name for _, name, _ in names(diagnosis_of(str(tmp_path)))] == ["never_cleaned"] * is_ill


def test_age_of_a_transaction_is_that_at_the_moment_of_its_own_copy(tmp_path: Path) -> None:
    # The log directory of another broker was copied an hour later.
    for copy, moment_ms in (("first", T0), ("second", T0 + 3_600_000)):
        signs = {"producer_id": 7, "producer_epoch": 0, "attributes": 0x10} if copy == "first" else {}
        write_segment(tmp_path / copy, [batch(0, base_timestamp=moment_ms, **signs)])
    findings = diagnosis_of(str(tmp_path / "first"), str(tmp_path / "second")).findings
    assert [(finding.finding, finding.certainty) for finding in findings] == [("open_transaction_young", "not decidable")]
