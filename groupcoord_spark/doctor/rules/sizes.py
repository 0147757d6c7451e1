"""What makes the log large: large records, leftovers of transactions, tombstones, the latest values."""

from collections.abc import Iterator
from typing import Final

from groupcoord_spark.doctor.findings import Finding, FindingKind, Severity, size
from groupcoord_spark.doctor.gather.group_table import LIVE, SUPERSEDED_TOMBSTONE, TOMBSTONE
from groupcoord_spark.doctor.patient import FEW_BYTES, LARGE_LOG_BYTES, MOST_OF_THE_LOG, Patient
from groupcoord_spark.wording import counted

OVERSIZED: Final = FindingKind(
    "oversized_record", Severity.WATCH, "oversized", "A batch is larger than the topic takes, or than an old loader can read."
)
MANY_PRODUCERS: Final = FindingKind(
    "many_producers",
    Severity.WATCH,
    "producer_residue",
    "Markers and empty batches of one-shot producers, kept while the broker remembers the producers.",
)
TOMBSTONES: Final = FindingKind("tombstones", Severity.WATCH, "tombstones", "Tombstones that wait for the cleaner.")
LIVE_SET: Final = FindingKind(
    "live_set", Severity.NORMAL, "live_set", "The latest values alone are most of the bytes: cleaning cannot make the log smaller."
)

SHARE_OF_TOMBSTONES: Final = 0.2
MOST_MARKERS_OF_ONE_SHOT: Final = 4
"""Producers that are created for each client start have few markers each; a long-lived producer has thousands."""


def of_records(patient: Patient) -> Iterator[Finding]:
    """Findings about the largest batch and the latest values."""
    facts, settings = patient.facts, patient.settings
    largest = facts.batches.largest_batch_bytes
    if largest > settings.max_message_bytes:
        is_unloadable = largest > settings.load_buffer_bytes
        limit = "offsets.load.buffer.size" if is_unloadable else "max.message.bytes"
        summary = f"The batch at offset {facts.batches.largest_batch_offset} has {size(largest)}, more than {limit}."
        remedy = "Find the group with `groupcoord dump`, and make it smaller: fewer members, shorter subscriptions."
        evidence = {**patient.figures, "largest_batch_bytes": largest, "largest_batch_offset": facts.batches.largest_batch_offset}
        severity = Severity.SICK if is_unloadable else None
        yield patient.finding(OVERSIZED, summary, remedy, evidence=evidence, severity=severity)
    live = patient.figures["bytes_by_fate"].get(LIVE, 0)
    if facts.log_bytes > LARGE_LOG_BYTES and live > MOST_OF_THE_LOG * facts.log_bytes:
        summary = f"The latest values of {facts.keys:,} keys are {size(live)} of {size(facts.log_bytes)}."
        remedy = "Fewer groups or partitions, or a shorter offsets.retention.minutes; the cleaner cannot help."
        yield patient.finding(LIVE_SET, summary, remedy, evidence={**patient.figures, "live_bytes": live})


def of_producers(patient: Patient) -> Iterator[Finding]:
    facts, batches = patient.facts, patient.facts.batches
    residue = batches.control_bytes + batches.empty_data_bytes
    producers = len(facts.producers.producer_id)
    is_one_shot = batches.control_batches <= MOST_MARKERS_OF_ONE_SHOT * producers
    if is_one_shot and residue >= max(FEW_BYTES, MOST_OF_THE_LOG * facts.log_bytes):
        subject = facts.group_sums.most_transactional
        horizons = batches.marker_horizons_ms
        evidence = {
            **patient.figures,
            "producer_ids_in_log": producers,
            "markers": batches.control_batches,
            "marker_bytes": batches.control_bytes,
            "empty_batches": batches.empty_data_batches,
            "empty_batch_bytes": batches.empty_data_bytes,
            "share_of_log_bytes": round(residue / facts.log_bytes, 4),
            "markers_with_delete_horizon": len(horizons),
            "markers_with_passed_horizon": sum(horizon < patient.dump_ms for horizon in horizons),
            "transactional_batches_with_records": batches.transactional_batches_with_records,
            "producers_with_more_than_one_marker": int((facts.producers.markers > 1).sum()),
        }
        summary = (
            f"{counted(producers, 'producer')} left {counted(batches.control_batches, 'marker')} and"
            f" {counted(batches.empty_data_batches, 'empty batch')}:"
            f" {round(100 * residue / facts.log_bytes)} % of {size(facts.log_bytes)}."
        )
        remedy = "Keep one transactional.id for each instance of the client, not one for each start. What is left goes a day later."
        yield patient.finding(MANY_PRODUCERS, summary, remedy, subject=subject, evidence=evidence)


def of_tombstones(patient: Patient) -> Iterator[Finding]:
    facts, batches = patient.facts, patient.facts.batches
    fates = facts.group_sums.fates
    waiting = [fates.get(fate, [0, 0]) for fate in (TOMBSTONE, SUPERSEDED_TOMBSTONE)]
    tombstones, size = sum(count for count, _ in waiting), sum(size for _, size in waiting)
    if size >= max(FEW_BYTES, SHARE_OF_TOMBSTONES * batches.record_bytes):
        of_groups = facts.group_sums
        horizons = batches.data_horizons_ms
        evidence = {
            **patient.figures,
            "tombstones": tombstones,
            "offset_tombstones": of_groups.offset_tombstones,
            "group_tombstones": of_groups.group_tombstones,
            "tombstone_record_bytes": size,
            "groups": of_groups.with_tombstones,
            "name_prefix": of_groups.tombstone_prefix,
            "share_of_record_bytes": round(size / batches.record_bytes, 4),
            "with_delete_horizon": len(horizons),
            "delete_horizon_min_ms": min(horizons, default=None),
            "delete_horizon_max_ms": max(horizons, default=None),
            "horizon_passed": sum(horizon < patient.dump_ms for horizon in horizons),
        }
        summary = (
            f"{counted(tombstones, 'tombstone')} of {counted(of_groups.with_tombstones, 'group')}:"
            f" {round(100 * size / batches.record_bytes)} % of the bytes of all records;"
            f" {counted(len(horizons), 'batch')} with a delete horizon."
        )
        remedy = (
            "None: the cleaner removes them delete.retention.ms after its first pass, and it comes when the active segment is rolled"
            " (segment.ms, segment.bytes)."
        )
        yield patient.finding(TOMBSTONES, summary, remedy, evidence=evidence)


RULES: Final = (of_records, of_producers, of_tombstones)
