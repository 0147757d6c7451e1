"""The log cleaner: where it stopped, never came, or cannot go on; and what a load makes of the log after the cleaner."""

from collections.abc import Iterator
from typing import Final

from groupcoord_spark.doctor.facts import PartitionFacts
from groupcoord_spark.doctor.findings import Finding, FindingKind, Severity, bytes_of, power_of_two, size
from groupcoord_spark.doctor.patient import Patient
from groupcoord_spark.log.broker_dir.broker_files import HIGH_WATERMARKS, RECOVERY_POINTS
from groupcoord_spark.wording import counted

STOPPED: Final = FindingKind(
    "cleaning_stopped", Severity.SICK, "cleaner_stopped", "Nothing holds the cleaner back, and it has left segments that were due long ago."
)
NEVER_CLEANED: Final = FindingKind(
    "never_cleaned", Severity.SICK, "never_cleaned", "No offset is missing in many closed segments: the cleaner has never run here."
)
OFFSET_SPAN: Final = FindingKind(
    "offset_span", Severity.SICK, "offset_span", "A segment spans more offsets than its index can name; cleaning it fails."
)
BEGINS_LATE: Final = FindingKind(
    "begins_late", Severity.SICK, "begins_late", "The first segments are missing: groups whose last record is there are missing as well."
)
TOO_MANY_KEYS: Final = FindingKind(
    "too_many_keys", Severity.WATCH, "too_many_keys", "One cleaning pass cannot hold all keys that are dirty."
)
REFUSED_AFTER_CLEANING: Final = FindingKind(
    "refused_after_cleaning",
    Severity.SICK,
    "refused_after_cleaning",
    "The log loads, and will not once the log cleaner has passed: a record is then refused.",
)
OTHER_STATE_AFTER_CLEANING: Final = FindingKind(
    "other_state_after_cleaning",
    Severity.WATCH,
    "other_state",
    "The log will load to another state after the log cleaner, mostly with offsets that come back.",
)
REFUSED_WHILE_CLEANING: Final = FindingKind(
    "refused_while_cleaning",
    Severity.WATCH,
    "refused_while_cleaning",
    "A load that meets the log cleaner at work refuses a record; the next load succeeds.",
)

SEGMENTS_SINCE_DUE: Final = 4
"""A cleaner that works comes within seconds or minutes: it does not let this many further segments fill after a partition was due."""
SEGMENTS_PASSED_OVER: Final = 2
"""The same where the cleaner has cleaned newer records of other partitions: it takes the dirtiest partition first."""
CLEAN_COPY: Final = 4
"""How many times as large as its copy on another broker a partition is that this broker's cleaner has left; just before it comes, 2."""
OVERDUE_MS: Final = 86_400_000
"""Cleaning that was due a day ago has not come, however slowly segments fill."""
MOST_OFFSETS_IN_SEGMENT: Final = 2**31 - 1


def of_idle_cleaner(patient: Patient) -> Iterator[Finding]:
    """never_cleaned or cleaning_stopped: cleaning was due, and segments have filled since then, or a day has gone by."""
    facts, settings = patient.facts, patient.settings
    is_first_pass = facts.checkpoint is None and not facts.missing_offsets
    # Without a checkpoint the cleaner came at least as far as the last segment with a hole.
    came_to = facts.checkpoint if facts.checkpoint is not None else facts.hole_end
    old_enough = patient.dump_ms - settings.min_compaction_lag_ms
    reachable = [segment for segment in facts.segments if segment.base_offset < patient.first_uncleanable]
    dirty = [segment for segment in reachable if segment.base_offset >= came_to and segment.newest_timestamp_ms <= old_enough]
    clean_bytes, dirty_bytes = bytes_of([segment for segment in reachable if segment.base_offset < came_to]), 0
    due = None
    for place, segment in enumerate(dirty):
        dirty_bytes += segment.bytes
        if due is None and dirty_bytes and dirty_bytes >= settings.min_cleanable_ratio * (clean_bytes + dirty_bytes):
            due = place
    removable = patient.figures["removable_record_bytes"]
    if due is None or not removable:
        return
    since = len(dirty) - 1 - due
    damaged = [name for name in facts.damaged_indexes if any(f"{segment.base_offset:020}." in name for segment in dirty)]
    # the broker closes a segment when it writes the first record of the next one, up to segment.ms after the last record of the segment
    following = next(segment for segment in facts.segments if segment.base_offset > dirty[due].base_offset)
    due_ms = max(following.oldest_timestamp_ms, dirty[due].newest_timestamp_ms + settings.min_compaction_lag_ms)
    files = patient.copy.files
    has_checkpoints = facts.has_checkpoint_file or HIGH_WATERMARKS in files.offsets or RECOVERY_POINTS in files.offsets
    is_off = not facts.has_checkpoint_file and has_checkpoints  # a broker makes the file when it starts its cleaner
    most = SEGMENTS_PASSED_OVER if _cleaner_was_elsewhere(patient, due_ms) else SEGMENTS_SINCE_DUE
    is_overdue = dirty[due].newest_timestamp_ms >= 0 and patient.dump_ms - due_ms > OVERDUE_MS  # records before magic 1 have no timestamp
    clean_copy = _smaller_copy(patient)
    is_convicted = clean_copy is not None and since >= 1 and CLEAN_COPY * clean_copy.log_bytes < facts.log_bytes
    is_idle = is_off or (has_checkpoints and since >= most) or is_overdue
    if facts.checkpoint is None and not is_first_pass:
        is_idle = False  # how far the cleaner came is a bound only: clean segments without a hole count as dirty
    if not (damaged or is_convicted or is_idle):
        return
    evidence = {**patient.figures, "segments_filled_since_due": since, "damaged_transaction_index": list(facts.damaged_indexes)}
    better = ""
    if clean_copy is not None:
        better = f" The copy in {clean_copy.directory} has {size(clean_copy.log_bytes)}."
        evidence["clean_copy"] = {"directory": clean_copy.directory, "log_bytes": clean_copy.log_bytes}
    broker = "ID" if patient.copy.files.broker_id is None else str(patient.copy.files.broker_id)
    settings_command = f"kafka-configs.sh --bootstrap-server HOST:PORT --describe --all --entity-type brokers --entity-name {broker}"
    if is_first_pass:
        summary = f"{size(bytes_of(dirty))} in {counted(len(dirty), 'closed segment')}, and no offset is missing in them.{better}"
        remedy = "Set log.cleaner.enable=true and cleanup.policy=compact, restart the broker, and see its log-cleaner.log."
        yield patient.finding(NEVER_CLEANED, summary, remedy, evidence=evidence, ask=f"{settings_command} | grep log.cleaner")
        return
    at = f"at offset {facts.checkpoint}" if facts.checkpoint is not None else f"at offset {dirty[0].base_offset} or before"
    summary = (
        f"The cleaner stands {at}; {size(bytes_of(dirty))} in"
        f" {counted(len(dirty), 'closed segment')} above it are"
        f" {round(100 * bytes_of(dirty) / (clean_bytes + bytes_of(dirty)))} % of what it can reach; {size(removable)} would go.{better}"
    )
    ask = "grep -e ERROR -e uncleanable log-cleaner.log"
    if damaged:
        stem = damaged[0].removesuffix(".txnindex")
        summary += f" The transaction index {damaged[0]} is damaged, and a cleaner that reads it gives up."
        remedy = f"Stop the broker, remove {stem}.txnindex and {stem}.index (it makes both again from the segment), and start the broker."
    else:
        remedy = "Restart the broker: it forgets which partitions it marked as uncleanable. First save log-cleaner.log, which says why."
    yield patient.finding(STOPPED, summary, remedy, evidence=evidence, ask=ask)


def _smaller_copy(patient: Patient) -> PartitionFacts | None:
    """Return the smallest copy of the partition in another log directory if it is less than half as large."""
    smaller = (
        partition
        for copy in patient.copies
        if copy is not patient.copy
        for partition in copy.partitions
        if partition.offsets_partition == patient.facts.offsets_partition and 2 * partition.log_bytes < patient.facts.log_bytes
    )
    return min(smaller, key=lambda partition: partition.log_bytes, default=None)


def _cleaner_was_elsewhere(patient: Patient, due_ms: int) -> bool:
    """True where the cleaner of this log directory has cleaned records of another partition that are newer than ``due_ms``."""
    return any(
        segment.newest_timestamp_ms > due_ms
        for partition in patient.copy.partitions
        if partition is not patient.facts and partition.checkpoint is not None
        for segment in partition.segments
        if segment.base_offset < partition.checkpoint
    )


def of_limits(patient: Patient) -> Iterator[Finding]:
    """Findings about what one pass of the cleaner, or one segment, cannot hold."""
    facts, settings = patient.facts, patient.settings
    if facts.dirty_keys > settings.keys_in_one_pass:
        summary = f"{facts.dirty_keys:,} distinct keys are dirty, and one pass of the cleaner holds {settings.keys_in_one_pass:,}."
        remedy = f"Raise log.cleaner.dedupe.buffer.size to {power_of_two(facts.dirty_keys * 24 / settings.dedupe_load_factor):,} bytes."
        yield patient.finding(TOO_MANY_KEYS, summary, remedy, evidence={**patient.figures, "keys_in_one_pass": settings.keys_in_one_pass})
    for segment in facts.segments:
        if segment.next_offset is not None and segment.next_offset - segment.base_offset > MOST_OFFSETS_IN_SEGMENT:
            span = segment.next_offset - segment.base_offset
            summary = f"The segment at {segment.base_offset} spans {span:,} offsets; an index names at most {MOST_OFFSETS_IN_SEGMENT:,}."
            remedy = "Upgrade the broker to a release that splits such segments while cleaning (1.1 or later)."
            yield patient.finding(
                OFFSET_SPAN, summary, remedy, evidence={**patient.figures, "segment": segment.base_offset, "offsets": span}
            )


def of_first_segment(patient: Patient) -> Iterator[Finding]:
    """begins_late: the cleaner keeps the base offset of the first segment, so a later one means that segments are missing."""
    if patient.facts.begins_late:
        first = patient.facts.segments[0].base_offset
        summary = f"The first segment begins at offset {first:,}, and no checkpoint shows that the broker moved the log start offset there."
        remedy = "Copy the partition again with all its segments; if the broker itself lacks them, copy another replica."
        yield patient.finding(BEGINS_LATE, summary, remedy, evidence={**patient.figures, "first_segment": first})


RULES: Final = (of_first_segment, of_idle_cleaner, of_limits)
