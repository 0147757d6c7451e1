"""Rows that the driver writes after the workers are done, a few for each offsets partition, and the summary of the run."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from groupcoord_spark.answers.authors import other_coordinator
from groupcoord_spark.coordinator.semantics import DAY_MS
from groupcoord_spark.log import LogPlan, PartitionLog, leader_epochs_of, log_start_was_moved
from groupcoord_spark.pipeline.exchange.counts import NO_KEY_TYPE, NO_VERSION, KindCount, PartitionCounts, add_kinds
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport, VanishedKeys
from groupcoord_spark.pipeline.extents import PointInTime
from groupcoord_spark.pipeline.plan import earlier_runs, guards
from groupcoord_spark.pipeline.plan.carry_over import RULES_SETTING, SEGMENT_BYTES, CarryOver, rules_of
from groupcoord_spark.pipeline.plan.evidence import Evidence
from groupcoord_spark.pipeline.plan.run_plan import RunPlan
from groupcoord_spark.pipeline.run import PointInTimeSummary, ReadingSummary, RunRequest, Summary
from groupcoord_spark.protocol import RECORD_TYPES
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.storage.location import shown
from groupcoord_spark.warehouse import AddedFile
from groupcoord_spark.warehouse.read import RETENTION_SETTING, UNTIL_SETTING
from groupcoord_spark.warehouse.tables import NIGHTLY, POINT_IN_TIME
from groupcoord_spark.wording import counted

_GO_ON = ("records", "decoded", "quarantined", "control_records", "bytes")
"""Counts of offsets_partitions that each incremental run increases by its own records."""


def files_by_table(reports: Sequence[PartitionReport]) -> dict[str, list[AddedFile]]:
    """Return the files that the workers wrote, by table."""
    files: dict[str, list[AddedFile]] = {}
    for report in reports:
        for table, added in report.files.items():
            files.setdefault(table, []).extend(added)
    return files


def driver_rows(planned: RunPlan, reports: Sequence[PartitionReport], run_id: str) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of offsets_partitions, decode_coverage and warnings that the driver writes, by table. Times are in milliseconds."""
    request, plan, histories, points_in_time = planned.request, planned.log, planned.histories, planned.points_in_time
    by_partition = {report.offsets_partition: report for report in reports}
    logs = {partition.offsets_partition: partition for partition in plan.partitions}
    # Partitions that are dropped keep a row: a later run must know what the history tables already have of them.
    partitions = [
        _offsets_partition_row(
            request,
            logs.get(number),
            by_partition.get(number, PartitionReport(number)),
            histories.get(number, earlier_runs.PartitionHistory()),
            points_in_time.get(number),
            planned.carry_over,
            planned.run.evidence_of(number),
            None if planned.rows is None else planned.rows.begins_ms.get(number),
        )
        for number in sorted({*logs, *histories})
    ]
    columns = ("offsets_partition", "record_offset", "source", "position", "code", "detail")
    doubts = [{"run_id": run_id, **{name: getattr(doubt, name) for name in columns}} for doubt in plan.doubts]
    for number, count in _missing_records(reports, points_in_time).items():
        end, complete_until = points_in_time[number].end_offset, points_in_time[number].complete_until
        detail = (
            f"State up to offset {end} may not be exact: neither the log nor the history has a record for {counted(count, 'offset')}"
            f" of the {end - complete_until} from {complete_until} on."
        )
        doubts.append({"run_id": run_id, "offsets_partition": number, "code": "compacted_before_until", "detail": detail})
    doubts += [
        {"run_id": run_id, "offsets_partition": number, "code": "keys_vanished", "detail": sentence}
        for number, sentence in _vanished(planned, reports).items()
    ]
    records: Counter[tuple[int, int]] = Counter()
    for report in reports:
        records.update({kind: count.decoded for kind, count in report.counts.by_kind.items()})
    if sentence := other_coordinator(request.semantics, records):
        doubts.append({"run_id": run_id, "code": "other_coordinator", "detail": sentence})
    if sentence := planned.partition_count.contradiction:
        doubts.append({"run_id": run_id, "code": "settings_contradicted", "detail": sentence})
    return {"offsets_partitions": partitions, "decode_coverage": _coverage_rows(reports, planned.carry_over.coverage), "warnings": doubts}


def history_ends(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int], int]:
    """(offsets partition, incarnation) -> the record offset below which the history tables have the records after the run.

    rows: of offsets_partitions, as ``driver_rows`` returns them.
    """
    return {
        (row["offsets_partition"], row["incarnation"]): row["history_end_offset"] for row in rows if row["history_end_offset"] is not None
    }


def _vanished(planned: RunPlan, reports: Sequence[PartitionReport]) -> dict[int, str]:
    """Offsets partition -> a sentence about the live keys of the last run whose record is gone without a later one."""
    logs = {log.offsets_partition: log for log in planned.log.partitions}
    return {
        report.offsets_partition: f"{vanished.keys:,} of {vanished.live_keys:,} live keys of the last run, at the offsets"
        f" {vanished.first_offset} to {vanished.last_offset}, lost their record, with neither a later one nor a tombstone"
        f" (of {vanished.groups}). {_cause_of(vanished, logs.get(report.offsets_partition), planned)}"
        for report in sorted(reports, key=lambda report: report.offsets_partition)
        if (vanished := report.vanished) is not None
    }


def _cause_of(vanished: VanishedKeys, log: PartitionLog | None, planned: RunPlan) -> str:
    """Return a clause about why the keys lost their record."""
    if vanished.is_kept:
        return (
            "Files that the last run saw are gone or have other sizes, and no new record is missing that could be a tombstone: this copy,"
            " or the broker's log itself, lacks records. The state keeps these keys; a run with --full would lose them."
        )
    start = None if log is None else log.log_start_offset
    if log is not None and start is not None and vanished.last_offset < start and log_start_was_moved(log, leader_epochs_of(log)):
        return (
            f"The broker moved the log start offset to {log.log_start_offset}, by retention or DeleteRecords: a coordinator that loads the"
            " log has lost these keys too. cleanup.policy of __consumer_offsets must be compact alone."
        )
    if log is not None and log.offsets_partition in planned.run.truncated:
        return "The log was truncated: the warning log_truncated says where."
    request, last_ms = planned.request, planned.run.last_as_of_ms
    age_ms = 0 if last_ms is None else request.as_of_ms - last_ms
    stays = f"delete.retention.ms ({request.delete_retention})"
    if age_ms <= request.delete_retention.ms:
        return f"A tombstone stays for {stays}, and the last run is younger: this copy lacks records, or that setting was smaller."
    return (
        f"The last run is {age_ms / DAY_MS:,.1f} days old, and a tombstone may be cleaned {stays} after it is written: it was written and"
        " cleaned in between, or this copy lacks records."
    )


def _missing_records(reports: Sequence[PartitionReport], points_in_time: Mapping[int, PointInTime]) -> dict[int, int]:
    """Offsets partition -> number of record offsets whose record is in neither log nor history and may have had an effect at the moment."""
    records = {report.offsets_partition: report.records_after_complete for report in reports}
    gaps = {
        number: point_in_time.end_offset - point_in_time.complete_until - records.get(number, 0)
        for number, point_in_time in sorted(points_in_time.items())
    }
    return {number: count for number, count in gaps.items() if count > 0}


def _offsets_partition_row(
    request: RunRequest,
    log: PartitionLog | None,
    report: PartitionReport,
    history: earlier_runs.PartitionHistory,
    point_in_time: PointInTime | None,
    carry_over: CarryOver,
    evidence: Evidence,
    begin_ms: int | None,
) -> dict[str, Any]:
    """Return a row of offsets_partitions. If the input lacks the partition, ``log`` is None and the row repeats the earlier runs'
    values."""
    carried = carry_over.rows.get(report.offsets_partition)
    if log is None and carried is not None:
        return {**carried, "stale_since_ms": carry_over.stale_since_ms[report.offsets_partition], "read_from": carried["end_offset"]}
    counts, history_range = report.counts, history.history_range
    end_offset = history.end_offset if log is None else max(log.end_offset, counts.end_offset or 0)
    if point_in_time is not None:
        end_offset = point_in_time.end_offset
    stable = history.last_stable_offset if log is None else end_offset
    first, end = (history_range.first_offset, history_range.end_offset) if not history_range.is_empty else (None, None)
    if request.writes_history and counts.first_offset is not None:
        first = counts.first_offset if first is None else min(first, counts.first_offset)
        end = end_offset if end is None else max(end, end_offset)
    # A run with --until is about an earlier moment: the next run is compared with the run before that run, if there was one.
    marks = [(history.first_record, history.newest_record), (evidence.first_record, evidence.newest_record)]
    preferred, other = marks if point_in_time is not None else reversed(marks)
    remembered = [mark or other_mark for mark, other_mark in zip(preferred, other, strict=True)]
    gap = carry_over.gaps.get(report.offsets_partition)
    newest = NO_TIMESTAMP if counts.newest_timestamp_ms is None else counts.newest_timestamp_ms
    return {
        "offsets_partition": report.offsets_partition,
        "incarnation": history_range.incarnation,
        "first_offset": None if log is None else _first_offset(log, counts, carried),
        "end_offset": end_offset,
        "last_stable_offset": stable if report.first_open_offset is None else report.first_open_offset,
        **{name: getattr(counts, name) + (0 if carried is None else carried[name]) for name in _GO_ON},
        "live_keys": report.live_keys,
        "newest_timestamp_ms": max(newest, history.newest_timestamp_ms),
        "history_first_offset": first,
        "history_end_offset": end,
        **earlier_runs.mark_fields(earlier_runs.FIRST_RECORD, remembered[0]),
        **earlier_runs.mark_fields(earlier_runs.NEWEST_RECORD, remembered[1]),
        "leader_epoch": evidence.epoch_of(end_offset - 1) if log is not None and point_in_time is None else history.leader_epoch,
        # After a gap the run goes on, but the runs before and this one have not read every record.
        "read_from": gap[1] if gap is not None else carry_over.reads_from.get(report.offsets_partition),
        "latest_records": report.latest_records,
        "incarnation_begin_ms": history.begin_ms if begin_ms is None else begin_ms,
        "end_file": None if log is None else log.end_file,
        "end_position": None if log is None else log.end_position,
        SEGMENT_BYTES: _segment_bytes(log, report, carried),
    }


def _segment_bytes(log: PartitionLog | None, report: PartitionReport, carried: Mapping[str, Any] | None) -> Any:
    """Base offset -> bytes of each segment file; where the state keeps keys that have vanished, of the files that had them, so that every
    run warns until these files are back.
    """
    if carried is not None and (report.vanished is not None or log is None or not log.files):
        return carried[SEGMENT_BYTES]
    return {str(base_offset): size for base_offset, size in log.files.items()} if log is not None and log.files else None


def _coverage_rows(reports: Sequence[PartitionReport], of_earlier_runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of decode_coverage: new records of all offsets partitions by key type and value version, added to earlier rows."""
    sums = {
        (row["key_type"], NO_VERSION if row["value_version"] is None else row["value_version"]): KindCount(
            row["records"], row["bytes"], row["decoded"], row["misplaced"]
        )
        for row in of_earlier_runs
    }
    for report in reports:
        add_kinds(sums, report.counts.new_by_kind)
        # The keys of a damaged batch are not known.
        add_kinds(sums, {(NO_KEY_TYPE, NO_VERSION): KindCount(records=report.counts.new_lost)})
    return [
        {
            "key_type": key_type,
            "value_version": None if version == NO_VERSION else version,
            "key_name": RECORD_TYPES[key_type].key.name if key_type in RECORD_TYPES else None,
            **asdict(count),
            "quarantined": count.records - count.decoded,
        }
        for (key_type, version), count in sorted(sums.items())
        if count.records
    ]


def summary_of(
    planned: RunPlan, reports: Sequence[PartitionReport], run_id: str, rows_of_driver: Mapping[str, Sequence[Mapping[str, Any]]]
) -> Summary:
    """Return the summary of the run, from the reports of all offsets partitions. rows_of_driver: ``driver_rows``."""
    warnings_of_driver, partitions = rows_of_driver["warnings"], rows_of_driver["offsets_partitions"]
    newest_ms = max((row["newest_timestamp_ms"] for row in partitions), default=NO_TIMESTAMP)
    last = {number: (history.history_range.incarnation, history.end_offset) for number, history in planned.run.last_run.items()}
    is_unchanged = bool(last) and last == {row["offsets_partition"]: (row["incarnation"], row["end_offset"]) for row in partitions}
    request, plan, rows = planned.request, planned.log, planned.rows
    points_in_time, carry_over = planned.points_in_time, planned.carry_over
    reasons: Counter[str] = Counter()
    for report in reports:
        reasons.update(report.counts.reasons)
    logs = {log.offsets_partition: log for log in plan.partitions}
    return Summary(
        run_id=run_id,
        cluster=request.cluster,
        warehouse=request.warehouse,
        as_of_ms=request.as_of_ms,
        retention_ms=request.retention_ms,
        offsets_partitions=len(plan.partitions),
        records_read=sum(report.counts.records for report in reports),
        records_decoded=sum(report.counts.decoded for report in reports),
        records_quarantined=sum(report.counts.quarantined for report in reports),
        bytes_read=sum(report.counts.bytes for report in reports),
        quarantined_by_reason=dict(reasons.most_common()),
        groups=sum(report.groups for report in reports),
        committed_offsets=sum(report.offsets for report in reports),
        expired_offsets=sum(report.expired_offsets for report in reports),
        removed_groups=sum(report.removed_groups for report in reports),
        newest_record_ms=None if newest_ms == NO_TIMESTAMP else newest_ms,
        unchanged_since_ms=planned.run.last_as_of_ms if is_unchanged else None,
        unreachable_groups=sum(report.unreachable_groups for report in reports),
        warnings=len(warnings_of_driver) + sum(report.warnings + report.counts.doubts for report in reports),
        refusals=sum(report.refusals for report in reports),
        other_coordinator=next((row["detail"] for row in warnings_of_driver if row["code"] == "other_coordinator"), None),
        contradiction=planned.partition_count.contradiction,
        semantics=request.semantics.name,
        broker_version=request.semantics.broker_version,
        surviving_share=surviving_share(plan, reports, points_in_time, carry_over),
        reading=_reading(carry_over, reports),
        input_kind=InputKind.SEGMENTS if rows is None else rows.source.kind,
        lacks=() if rows is None else rows.lacks,
        point_in_time=None
        if request.until is None
        else PointInTimeSummary(
            text=request.until.text,
            ended_early=sum(point_in_time.end_offset < logs[number].end_offset for number, point_in_time in points_in_time.items()),
            records_from_history=sum(report.records_from_history for report in reports),
            missing=_missing_records(reports, points_in_time),
        ),
        beyond_high_watermark=plan.beyond,
        accepted=planned.verdict.remarks,
        short={
            doubt.offsets_partition: doubt.record_offset
            for doubt in planned.verdict.plan.doubts
            if doubt.code == "log_begins_late" and doubt.offsets_partition is not None and doubt.record_offset is not None
        },
        truncated={number: found.offset for number, found in planned.run.truncated.items()},
        vanished_keys={report.offsets_partition: report.vanished.keys for report in reports if report.vanished is not None},
    )


def _reading(carry_over: CarryOver, reports: Sequence[PartitionReport]) -> ReadingSummary:
    compared = [report.differences for report in reports if report.differences is not None]
    return ReadingSummary(
        since_ms=None if carry_over.run is None or not carry_over.segments else carry_over.run.as_of_ms,
        new_records=sum(report.counts.records for report in reports if report.offsets_partition in carry_over.reads_from),
        whole=dict(Counter(carry_over.whole.values())),
        stale_since_ms=carry_over.stale_since_ms,
        differences=sum(compared) if compared else None,
    )


def surviving_share(
    plan: LogPlan, reports: Sequence[PartitionReport], points_in_time: Mapping[int, PointInTime], carry_over: CarryOver
) -> float | None:
    """Return the records left after compaction as a share of the record offsets that were read: from the log start, or the start of an
    incremental read, to the end or point in time. None without record offsets.
    """
    counts = {report.offsets_partition: report.counts for report in reports}
    span = records = 0
    for log in plan.partitions:
        log_counts = counts.get(log.offsets_partition, PartitionCounts())
        reads_from = carry_over.reads_from.get(log.offsets_partition)
        first = _first_offset(log, log_counts, None) if reads_from is None else reads_from
        end = (
            points_in_time[log.offsets_partition].end_offset
            if log.offsets_partition in points_in_time
            else max(log.end_offset, log_counts.end_offset or 0)
        )
        if first is not None and end > first:
            span += end - first
            records += log_counts.records
    return records / span if span else None


def _first_offset(log: PartitionLog, counts: PartitionCounts, carried: Mapping[str, Any] | None) -> int | None:
    """Return the first record offset of the partition: the log start offset, even if compaction removed that record; None for an empty log.

    Inputs other than segments have no log start offset; there it is the first record, of this run or of the runs that it goes on from
    (``carried``).
    """
    if log.log_start_offset is None:
        offsets = [first for first in (counts.first_offset, None if carried is None else carried["first_offset"]) if first is not None]
        return min(offsets, default=None)
    if counts.first_offset is None:
        return log.log_start_offset if log.end_offset > log.log_start_offset else None
    return min(log.log_start_offset, counts.first_offset)


def settings_for_next_run(
    planned: RunPlan, partitions: Iterable[Mapping[str, Any]], reports: Sequence[PartitionReport] = ()
) -> dict[str, str]:
    """Return the keys of ``runs.settings`` that later runs compare their input with.

    Args:
        partitions: the rows of offsets_partitions of this run.
        reports: the workers' reports, which cover every group.
    """
    counts = {report.partition_counts for report in reports if report.partition_counts}
    settings = {
        guards.TOPIC_ID_SETTING: planned.log.topic_id,
        guards.CLUSTER_ID_SETTING: guards.cluster_id_of(planned.log, planned.run.kind),
        guards.PARTITION_COUNT_SETTING: planned.partition_count.certain if not counts else _only(counts),
        guards.ACCEPTED_SETTING: ", ".join(planned.verdict.accepted) or None,
        earlier_runs.BEYOND_SETTING: "true" if any((row["history_end_offset"] or 0) > row["end_offset"] for row in partitions) else None,
    }
    return {name: str(value) for name, value in settings.items() if value is not None}


def _only(counts: Iterable[tuple[int, ...]]) -> int | None:
    """Return the partition count that all writers found; None where the groups leave several."""
    found = {count for of_writer in counts for count in of_writer}
    return found.pop() if len(found) == 1 else None


def run_row(
    request: RunRequest, summary: Summary, points_in_time: Mapping[int, PointInTime], for_next_run: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the row of ``runs`` without the columns that the commit adds. ``for_next_run``: see ``settings_for_next_run``."""
    settings = {
        **request.settings,
        **(for_next_run or {}),
        RETENTION_SETTING: str(request.retention_ms),
        earlier_runs.HISTORY_SETTING: str(request.writes_history).lower(),
        RULES_SETTING: rules_of(request.semantics),
        "input.lacks": ", ".join(summary.lacks) or "nothing",
    }
    if request.until is not None:
        settings[UNTIL_SETTING] = request.until.text
        settings[f"{UNTIL_SETTING}.end.offsets"] = json.dumps(
            {str(number): point_in_time.end_offset for number, point_in_time in sorted(points_in_time.items())}
        )
    return {
        "kind": NIGHTLY if request.until is None else POINT_IN_TIME,
        "as_of_ms": request.as_of_ms,
        "semantics": summary.semantics,
        "broker_version": summary.broker_version,
        "input_kind": summary.input_kind.value,
        "inputs": [shown(given) for given in request.inputs],
        "settings": settings,
        "records_read": summary.records_read,
        "records_decoded": summary.records_decoded,
        "records_quarantined": summary.records_quarantined,
        "bytes_read": summary.bytes_read,
    }
