"""What a run writes and says after its workers are done: rows whose number does not depend on the input's, and the summary."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from groupcoord_spark.coordinator.authors import other_coordinator
from groupcoord_spark.coordinator.broker_settings import OFFSETS_PARTITIONS
from groupcoord_spark.log import LogPlan, PartitionLog
from groupcoord_spark.log.storage import shown
from groupcoord_spark.pipeline.exchange.counts import NO_KEY_TYPE, NO_VERSION, KindCount, PartitionCounts
from groupcoord_spark.pipeline.exchange.state_rows import PartitionReport
from groupcoord_spark.pipeline.extents import PointInTime
from groupcoord_spark.pipeline.plan.earlier_runs import PartitionHistory, range_to_append_to
from groupcoord_spark.pipeline.plan.input_rows import RowPlan
from groupcoord_spark.pipeline.plan.point_in_time import HISTORY_SETTING, UNTIL_SETTING
from groupcoord_spark.pipeline.run import PointInTimeSummary, RunRequest, Summary
from groupcoord_spark.protocol import RECORD_TYPES
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.sources.rows import InputKind
from groupcoord_spark.warehouse import AddedFile
from groupcoord_spark.warehouse.read import RETENTION_SETTING


def files_of(reports: Sequence[PartitionReport]) -> dict[str, list[AddedFile]]:
    files: dict[str, list[AddedFile]] = {}
    for report in reports:
        for table, added in report.files.items():
            files.setdefault(table, []).extend(added)
    return files


def driver_rows(
    night: RunRequest,
    plan: LogPlan,
    reports: Sequence[PartitionReport],
    histories: Mapping[int, PartitionHistory],
    past: Mapping[int, PointInTime],
    run_id: str,
) -> dict[str, list[dict[str, Any]]]:
    """Rows of the tables whose size does not depend on the input's."""
    by_partition = {report.offsets_partition: report for report in reports}
    logs = {partition.offsets_partition: partition for partition in plan.partitions}
    # Partitions that this input does not hold stay known: what the history tables have of them must not be written again.
    partitions = [
        _offsets_partition_row(
            night,
            logs.get(each),
            by_partition.get(each, PartitionReport(each)),
            histories.get(each, PartitionHistory()),
            past.get(each),
        )
        for each in sorted({*logs, *histories})
    ]
    doubts = [
        {
            "run_id": run_id,
            "offsets_partition": doubt.offsets_partition,
            "record_offset": doubt.record_offset,
            "source": doubt.source,
            "position": doubt.position,
            "code": doubt.code,
            "detail": doubt.detail,
        }
        for doubt in plan.doubts
    ]
    for each, count in _missing(reports, past).items():
        detail = (
            f"State up to offset {past[each].end_offset} may not be exact: of the {past[each].end_offset - past[each].known_until} offsets"
            f" from {past[each].known_until} on, {count} have no record any more, neither in the log nor in the history."
        )
        doubts.append({"run_id": run_id, "offsets_partition": each, "code": "compacted_before_until", "detail": detail})
    if sentence := _other_coordinator(night, reports):
        doubts.append({"run_id": run_id, "code": "other_coordinator", "detail": sentence})
    if sentence := contradiction(night, plan):
        doubts.append({"run_id": run_id, "code": "settings_contradicted", "detail": sentence})
    return {"offsets_partitions": partitions, "decode_coverage": _coverage_rows(reports), "warnings": doubts}


def _other_coordinator(night: RunRequest, reports: Sequence[PartitionReport]) -> str | None:
    records: Counter[tuple[int, int]] = Counter()
    for report in reports:
        records.update({kind: count.decoded for kind, count in report.counts.by_kind.items()})
    return other_coordinator(night.semantics, records)


def contradiction(night: RunRequest, plan: LogPlan) -> str | None:
    """A sentence where the log has an offsets partition that the broker's settings rule out."""
    highest = max((partition.offsets_partition for partition in plan.partitions), default=0)
    if night.offsets_partitions is None or highest < night.offsets_partitions:
        return None
    return (
        f"{OFFSETS_PARTITIONS} is {night.offsets_partitions} in the settings file, but the log has __consumer_offsets-{highest}: the number"
        " is taken from where the groups lie instead. Make sure that the settings are those of this cluster."
    )


def _missing(reports: Sequence[PartitionReport], past: Mapping[int, PointInTime]) -> dict[int, int]:
    """Offsets partition -> offsets before the moment that have no record any more, though one may have mattered then."""
    found = {report.offsets_partition: report.found for report in reports}
    gaps = {each: place.end_offset - place.known_until - found.get(each, 0) for each, place in sorted(past.items())}
    return {each: count for each, count in gaps.items() if count > 0}


def _offsets_partition_row(
    night: RunRequest, log: PartitionLog | None, report: PartitionReport, before: PartitionHistory, past: PointInTime | None
) -> dict[str, Any]:
    """log: None where the input does not hold the partition; its row then tells what earlier runs knew, and that nothing was read."""
    counts, held = report.counts, before.held
    end_offset = before.end_offset if log is None else max(log.end_offset, counts.end_offset or 0)
    if past is not None:
        end_offset = past.end_offset
    stable = before.last_stable_offset if log is None else end_offset
    first, end = (held.first_offset, held.end_offset) if held.end_offset > held.first_offset else (None, None)
    if night.with_history and counts.first_offset is not None and range_to_append_to(held, past) == held:
        first = counts.first_offset if first is None else min(first, counts.first_offset)
        end = end_offset if end is None else max(end, end_offset)
    newest = NO_TIMESTAMP if counts.newest_timestamp_ms is None else counts.newest_timestamp_ms
    return {
        "offsets_partition": report.offsets_partition,
        "incarnation": held.incarnation,
        "first_offset": None if log is None else _first_offset(log, counts),
        # what earlier runs read stays read, also where this one ends before
        "end_offset": end_offset if past is None else max(end_offset, before.end_offset),
        "last_stable_offset": stable if report.first_open_offset is None else report.first_open_offset,
        "records": counts.records,
        "decoded": counts.decoded,
        "quarantined": counts.quarantined,
        "control_records": counts.control_records,
        "live_keys": report.live_keys,
        "bytes": counts.bytes,
        "newest_timestamp_ms": max(newest, before.newest_timestamp_ms),
        "history_first_offset": first,
        "history_end_offset": end,
    }


def _coverage_rows(reports: Sequence[PartitionReport]) -> list[dict[str, Any]]:
    total: dict[tuple[int, int], KindCount] = {}
    for report in reports:
        for kind, count in report.counts.by_kind.items():
            sums = total.setdefault(kind, KindCount())
            sums.records += count.records
            sums.bytes += count.bytes
            sums.decoded += count.decoded
            sums.misplaced += count.misplaced
        if report.counts.lost:
            # nobody can say what keys a damaged batch held
            total.setdefault((NO_KEY_TYPE, NO_VERSION), KindCount()).records += report.counts.lost
    return [
        {
            "key_type": key_type,
            "value_version": None if version == NO_VERSION else version,
            "key_name": RECORD_TYPES[key_type].key.name if key_type in RECORD_TYPES else None,
            "records": count.records,
            "bytes": count.bytes,
            "decoded": count.decoded,
            "quarantined": count.records - count.decoded,
            "misplaced": count.misplaced,
        }
        for (key_type, version), count in sorted(total.items())
    ]


def summary_of(
    night: RunRequest, plan: LogPlan, reports: Sequence[PartitionReport], past: Mapping[int, PointInTime], run_id: str, rows: RowPlan | None
) -> Summary:
    reasons: Counter[str] = Counter()
    for report in reports:
        reasons.update(report.counts.reasons)
    hint = _other_coordinator(night, reports)
    contradicted = contradiction(night, plan)
    missing = _missing(reports, past)
    logs = {each.offsets_partition: each for each in plan.partitions}
    return Summary(
        run_id=run_id,
        cluster=night.cluster,
        warehouse=night.warehouse,
        as_of_ms=night.as_of_ms,
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
        warnings=sum(report.warnings + report.counts.doubts for report in reports)
        + len([*plan.doubts, *missing, *filter(None, [hint, contradicted])]),
        refusals=sum(report.refusals for report in reports),
        other_coordinator=hint,
        contradiction=contradicted,
        semantics=night.semantics.name,
        broker_version=night.semantics.broker_version,
        completeness=completeness(plan, reports, past),
        input_kind=InputKind.SEGMENTS if rows is None else rows.kind,
        lacks=() if rows is None else rows.lacks,
        past=None
        if night.until is None
        else PointInTimeSummary(
            text=night.until.text,
            ended_early=sum(place.end_offset < logs[each].end_offset for each, place in past.items()),
            from_history=sum(report.from_history for report in reports),
            missing=missing,
        ),
    )


def completeness(plan: LogPlan, reports: Sequence[PartitionReport], past: Mapping[int, PointInTime]) -> float | None:
    """Records read against the offsets from the start of each log to its end, or to the moment in the past; None without an offset."""
    counts = {report.offsets_partition: report.counts for report in reports}
    span = records = 0
    for log in plan.partitions:
        of_log = counts.get(log.offsets_partition, PartitionCounts())
        first = _first_offset(log, of_log)
        end = past[log.offsets_partition].end_offset if log.offsets_partition in past else max(log.end_offset, of_log.end_offset or 0)
        if first is not None and end > first:
            span += end - first
            records += of_log.records
    return records / span if span else None


def _first_offset(log: PartitionLog, counts: PartitionCounts) -> int | None:
    """Where the partition begins: at the start of its log, although a cleaning may have left no record there.

    Of inputs other than segments only the first record tells. None where there is nothing.
    """
    if log.log_start_offset is None:
        return counts.first_offset
    if counts.first_offset is None:
        return log.log_start_offset if log.end_offset > log.log_start_offset else None
    return min(log.log_start_offset, counts.first_offset)


def run_row(night: RunRequest, summary: Summary, past: Mapping[int, PointInTime]) -> dict[str, Any]:
    settings = {
        **night.settings,
        RETENTION_SETTING: str(night.retention_ms),
        HISTORY_SETTING: str(night.with_history).lower(),
        "input.lacks": ", ".join(summary.lacks) or "nothing",
    }
    if night.until is not None:
        settings[UNTIL_SETTING] = night.until.text
        settings[f"{UNTIL_SETTING}.end.offsets"] = json.dumps({str(each): place.end_offset for each, place in sorted(past.items())})
    return {
        "as_of_ms": night.as_of_ms,
        "semantics": summary.semantics,
        "broker_version": summary.broker_version,
        "input_kind": summary.input_kind.value,
        "inputs": [shown(each) for each in night.inputs],
        "settings": settings,
        "records_read": summary.records_read,
        "records_decoded": summary.records_decoded,
        "records_quarantined": summary.records_quarantined,
        "bytes_read": summary.bytes_read,
    }
