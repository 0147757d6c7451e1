"""Rules about sizes, on logs that are written here."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupcoord_spark.doctor import Diagnosis, Finding, HealthSettings, KnownTransactions, Severity, diagnose, patient, read_copies
from groupcoord_spark.doctor.rules import sizes
from groupcoord_spark.protocol import encode_key, encode_value
from tests.doctor.copies import logs
from tests.log.log_writer import Rec, batch, marker, write_segment


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
    for room in (patient, sizes):
        monkeypatch.setattr(room, "LARGE_LOG_BYTES", 1_000)
    diagnosis = diagnosis_of(logs("healthy"))
    assert {finding.severity for finding in of_kind(diagnosis, "live_set")} == {Severity.NORMAL}
    assert {verdict.verdict for verdict in diagnosis.verdicts} == {"healthy"}


def commits(group_id: str, topics: int, *, metadata: str = "", first: int = 0, tombstones: bool = False) -> list[bytes]:
    """Return a batch for each topic with a commit, or a tombstone, of the group."""
    fields = {"committed_offset": 5, "metadata": metadata, "commit_timestamp_ms": 1, "leader_epoch": -1}
    value = None if tombstones else encode_value(1, 3, fields)
    keys = (encode_key(1, {"group_id": group_id, "topic": f"topic-{number}", "partition": 0}) for number in range(topics))
    return [batch(first + place, [Rec(key=key, value=value)]) for place, key in enumerate(keys)]


@pytest.mark.parametrize("long_commits", [2, 6, 9])
def test_few_commits_with_long_metadata_that_are_most_of_a_cleaned_log_are_watched(long_commits: int, tmp_path: Path) -> None:
    write_segment(tmp_path, [*commits("stateful", long_commits, metadata="x" * 4_096), *commits("plain", 20, first=40)])
    (finding,) = of_kind(diagnosis_of(str(tmp_path)), "large_metadata")
    assert (finding.subject, finding.evidence["commits"]) == ("stateful", long_commits)


def test_short_records_of_the_same_group_do_not_hide_its_long_metadata(tmp_path: Path) -> None:
    write_segment(tmp_path, [*commits("stateful", 6, metadata="x" * 4_096), *commits("stateful", 90, first=40, tombstones=True)])
    assert [finding.subject for finding in of_kind(diagnosis_of(str(tmp_path)), "large_metadata")] == ["stateful"]


def test_metadata_that_is_a_small_part_of_the_log_is_ordinary(tmp_path: Path) -> None:
    write_segment(tmp_path, [*commits("stateful", 2, metadata="x" * 4_096), *commits("plain", 200, first=40)])
    assert of_kind(diagnosis_of(str(tmp_path)), "large_metadata") == []


def test_tombstones_are_judged_by_their_bytes_and_not_by_their_number(tmp_path: Path) -> None:
    write_segment(tmp_path, [*commits("g" * 200, 30, tombstones=True), *commits("plain", 20, first=40)])
    (finding,) = of_kind(diagnosis_of(str(tmp_path)), "tombstones")
    assert finding.evidence["tombstones"] == 30
    assert finding.summary.startswith("30 tombstones of 1 group: ")


@pytest.mark.parametrize(("producers", "each"), [(40, 1), (2, 100)])
def test_many_markers_are_of_one_shot_producers_where_each_producer_has_few(producers: int, each: int, tmp_path: Path) -> None:
    markers = [marker(place, producer_id=place % producers) for place in range(producers * each + 20)]
    write_segment(tmp_path, markers)
    found = of_kind(diagnosis_of(str(tmp_path)), "many_producers")
    assert len(found) == (each == 1)


@pytest.mark.parametrize(
    ("checkpoint", "text", "is_short"),
    [
        (None, "", True),
        ("log-start-offset-checkpoint", "0\n1\n__consumer_offsets 0 50\n", False),
        ("log-start-offset-checkpoint", "0\n1\n__consumer_offsets 0 7\n", True),
        ("__consumer_offsets-0/leader-epoch-checkpoint", "0\n1\n3 50\n", False),
        ("__consumer_offsets-0/leader-epoch-checkpoint", "0\n1\n0 0\n", True),
    ],
)
def test_log_without_its_first_segments_is_sick_unless_a_checkpoint_explains_it(
    tmp_path: Path, checkpoint: str | None, text: str, is_short: bool
) -> None:
    write_segment(tmp_path, [batch(50)], base_offset=50)
    if checkpoint is not None:
        (tmp_path / checkpoint).write_text(text)
    found = of_kind(diagnosis_of(str(tmp_path)), "begins_late")
    assert [(finding.severity, finding.evidence["first_segment"]) for finding in found] == [(Severity.SICK, 50)] * is_short
