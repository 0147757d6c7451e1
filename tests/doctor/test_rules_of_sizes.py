"""Rules about sizes, on logs that are written here."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupcoord_spark.doctor import Diagnosis, Finding, HealthSettings, KnownTransactions, Severity, diagnose, read_copies
from groupcoord_spark.doctor import verdicts as rules
from tests.doctor.copies import logs
from tests.log.log_writer import Rec, batch, write_segment


def diagnosis_of(path: str, settings: HealthSettings | None = None) -> Diagnosis:
    return diagnose(read_copies([path]), settings or HealthSettings(), KnownTransactions())


def of_kind(diagnosis: Diagnosis, name: str) -> list[Finding]:
    return [finding for finding in diagnosis.findings if finding.finding == name]


def test_batch_above_the_limit_of_the_topic_is_watched_and_above_the_loaders_it_is_sick(tmp_path: Path) -> None:
    for size, severity in ((1 << 20, Severity.WATCH), (5 << 20, Severity.SICK)):
        write_segment(tmp_path, [batch(0), batch(1, [Rec(value=bytes(size))])])
        (finding,) = of_kind(diagnosis_of(str(tmp_path)), "oversized_record")
        assert (finding.severity, finding.evidence["largest_batch_offset"]) == (severity, 1)


def test_batch_within_the_limit_is_ordinary(tmp_path: Path) -> None:
    write_segment(tmp_path, [batch(0, [Rec(value=bytes(1_000_000))])])
    assert of_kind(diagnosis_of(str(tmp_path)), "oversized_record") == []


def test_more_dirty_keys_than_the_buffer_holds_are_watched() -> None:
    small = HealthSettings(dedupe_buffer_bytes=2_000)
    assert small.keys_in_one_pass == 75
    found = of_kind(diagnosis_of(logs("hot"), small), "too_many_keys")
    assert {finding.offsets_partition for finding in found} == {4}
    assert found[0].evidence["dirty_keys"] > 75


def test_default_buffer_holds_five_million_keys() -> None:
    assert HealthSettings().keys_in_one_pass == 5_033_164


def test_segment_with_more_offsets_than_its_index_can_name_is_sick(tmp_path: Path) -> None:
    write_segment(tmp_path, [batch(0), batch(2**31 - 1), batch(2**31 + 5), batch(2**31 + 9)])
    (finding,) = of_kind(diagnosis_of(str(tmp_path)), "offset_span")
    assert finding.evidence["offsets"] == 2**31 + 10


def test_latest_values_that_fill_a_large_log_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "LARGE_LOG_BYTES", 1_000)
    diagnosis = diagnosis_of(logs("healthy"))
    assert {finding.severity for finding in of_kind(diagnosis, "live_set")} == {Severity.NORMAL}
    assert {verdict.verdict for verdict in diagnosis.verdicts} == {"healthy"}
