"""The summary of a night: some lines for people, or one object for programs."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from groupcoord_spark.cli.maintain import upkeep_text
from groupcoord_spark.cli.options import duration_text, minute_and_age
from groupcoord_spark.cli.render import moment, second
from groupcoord_spark.moments import now_ms
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.pipeline.run import PointInTimeSummary, Summary

_SEE_WARNINGS = "see `groupcoord warnings`"


def summary_object(summary: Summary) -> tuple[list[str], list[list[Any]]]:
    """The result of a run for programs: the names and the one row of values. Every field of ``Summary`` is there."""
    fields = asdict(summary)
    fields["as_of"] = moment(fields.pop("as_of_ms"))
    reading = fields["reading"]
    reading["since"] = None if (since_ms := reading.pop("since_ms")) is None else moment(since_ms)
    reading["stale_since"] = {number: moment(since_ms) for number, since_ms in reading.pop("stale_since_ms").items()}
    return list(fields), [list(fields.values())]


def summary_text(summary: Summary) -> str:
    """The result of a run in a few lines for people."""
    title = f"Cluster {summary.cluster!r} in {summary.warehouse}, run {summary.run_id}"
    state = f"  state     {counted(summary.groups, 'group')}, {counted(summary.committed_offsets, 'committed offset')}"
    lines = [
        "",
        title,
        f"  records   {summary.records_read:,} read = {summary.records_decoded:,} decoded + {summary.records_quarantined:,} quarantined"
        f" ({counted(summary.offsets_partitions, 'offsets partition')}, {summary.bytes_read / 1e6:,.1f} MB)",
        state,
        f"  cleanup   as of {second(summary.as_of_ms)} with retention {duration_text(summary.retention_ms)}: would remove"
        f" {counted(summary.expired_offsets, 'offset')} and {counted(summary.removed_groups, 'group')}"
        f" ({summary.semantics} {summary.broker_version})",
    ]
    if "log" in summary.lacks:
        lines = ["", title, state, "  unknown   what only the log has: record offsets, times, expiry, open transactions, history"]
    if summary.surviving_share is not None:
        share = f"{_share(summary.surviving_share)} of the record offsets that this run read have a record"
        bounds = ": counts of history are lower bounds" if summary.surviving_share < 1 else ""
        lines.insert(3, f"  surviving {share}{bounds}")
    lines += _lines_about_reading(summary)
    if summary.point_in_time is None and summary.as_of_ms > now_ms():
        blocks = "a night as of an earlier moment is refused, but for --accept earlier"
        lines.append(f"  future    this night is as of {minute_and_age(summary.as_of_ms)}: until then {blocks}")
    if summary.beyond_high_watermark:
        parts = ", ".join(f"{count:,} of partition {number}" for number, count in sorted(summary.beyond_high_watermark.items()))
        lines.append(f"  beyond    the high watermark, not read: offsets {parts}")
    if "transactions" in summary.lacks:
        lines.append("  unknown   transactions: no producers, no markers; commits of open and aborted ones count")
    if "timestamps" in summary.lacks:
        lines.append("  unknown   timestamps of records")
    if "leader_epochs" in summary.lacks:
        lines.append("  unknown   leader epochs of batches: no rebalance has the cause coordinator_moved")
    if summary.point_in_time is not None:
        lines += _lines_about(summary.point_in_time)
    lines += [f"  accepted  {sentence}" for sentence in summary.accepted]
    if summary.quarantined_by_reason:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in summary.quarantined_by_reason.items())
        lines.append(f"  lost      {reasons}: {_SEE_WARNINGS}")
    if summary.vanished_keys:
        keys, partitions = sum(summary.vanished_keys.values()), counted(len(summary.vanished_keys), "offsets partition")
        lines.append(f"  vanished  {counted(keys, 'live key')} of the last night without a trace, in {partitions}: {_SEE_WARNINGS}")
    if summary.warnings:
        lines.append(f"  doubts    {summary.warnings:,}: {_SEE_WARNINGS}")
    if summary.contradiction:
        lines.append(f"  settings  {summary.contradiction}")
    if summary.other_coordinator:
        lines.append(f"  hint      {summary.other_coordinator}")
    if summary.upkeep is not None and not isinstance(summary.upkeep, str):
        lines.append(f"  upkeep    {upkeep_text(summary.upkeep, dry_run=False)}")
    return "\n".join(lines)


def _lines_about_reading(summary: Summary) -> list[str]:
    """What was read and what was carried over from the night before, a line for each."""
    reading, lines = summary.reading, []
    reasons = "; ".join(f"{counted(count, 'offsets partition')}: {reason}" for reason, count in reading.whole.items())
    if reading.since_ms is not None:
        new, since = counted(reading.new_records, "new record"), second(reading.since_ms)
        lines.append(f"  read      incremental: {new} since the night of {since}{f'; read whole: {reasons}' if reasons else ''}")
    elif len(reading.whole) == 1:
        lines.append(f"  read      whole: {next(iter(reading.whole))}")
    elif reasons:
        lines.append(f"  read      whole: {reasons}")
    if reading.stale_since_ms:
        missing = len(reading.stale_since_ms)
        partitions = counted(missing + summary.offsets_partitions, "offsets partition")
        since = " and ".join(sorted({second(since_ms) for since_ms in reading.stale_since_ms.values()}))
        verb = "is" if missing == 1 else "are"
        lines.append(f"  stale     {missing} of {partitions} {verb} not in this dump; their groups are shown as of {since}")
    if reading.differences is not None:
        is_it = f"differs in {counted(reading.differences, 'group')}: see warnings" if reading.differences else "is the same"
        lines.append(f"  compared  with the state that the nights before carried on: it {is_it}")
    return lines


def _lines_about(past: PointInTimeSummary) -> list[str]:
    lines = [
        f"  until     {past.text}: {counted(past.ended_early, 'offsets partition')} cut off before the end of the log;"
        f" {counted(past.records_from_history, 'record')} taken from the history"
    ]
    if past.missing:
        numbers, records = ", ".join(map(str, past.missing)), sum(past.missing.values())
        lines.append(
            f"  unknown   offsets partition{'' if len(past.missing) == 1 else 's'} {numbers} may not be exact: {counted(records, 'offset')}"
            f" before that moment without a record any more, neither in the log nor in the history: {_SEE_WARNINGS}"
        )
    return lines


def _share(part: float) -> str:
    """A share in per cent; 100 % only where nothing is missing."""
    return "100 %" if part >= 1 else f"{min(part * 100, 99.9):.1f} %"
