"""The summary of a run: some lines for people, or one object for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from groupcoord_spark.cli.maintain import upkeep_text
from groupcoord_spark.cli.options import duration_text, minute_and_age, newest_record_text
from groupcoord_spark.cli.render import moment, second
from groupcoord_spark.moments import now_ms
from groupcoord_spark.wording import command_line, counted, first_of

if TYPE_CHECKING:
    from groupcoord_spark.pipeline.run import PointInTimeSummary, Summary

_PARTITIONS_NAMED = 5


def command_of(summary: Summary, *words: str) -> str:
    """Return a command that shows a run. words: its name and its options."""
    return command_line(*words, "--run", summary.run_id, warehouse=summary.warehouse, cluster=summary.cluster)


def summary_object(summary: Summary) -> tuple[list[str], list[list[Any]]]:
    """Return the result of a run for programs: the field names of ``Summary`` and the one row of values."""
    fields = asdict(summary)
    fields["as_of"] = moment(fields.pop("as_of_ms"))
    for name in ("newest_record", "unchanged_since"):
        milliseconds = fields.pop(f"{name}_ms")
        fields[name] = None if milliseconds is None else moment(milliseconds)
    reading = fields["reading"]
    reading["since"] = None if (since_ms := reading.pop("since_ms")) is None else moment(since_ms)
    reading["stale_since"] = {number: moment(since_ms) for number, since_ms in reading.pop("stale_since_ms").items()}
    return list(fields), [list(fields.values())]


def summary_text(summary: Summary) -> str:
    """Return the result of a run in a few lines of text."""
    title = f"Cluster {summary.cluster!r} in {summary.warehouse}, run {summary.run_id}"
    state = (
        f"  state     {counted(summary.groups, 'group')}, {counted(summary.committed_offsets, 'committed offset')}:"
        f" see `{command_of(summary, 'list')}`"
    )
    lines = [
        "",
        title,
        f"  records   {summary.records_read:,} read = {summary.records_decoded:,} decoded + {summary.records_quarantined:,} quarantined"
        f" ({counted(summary.offsets_partitions, 'offsets partition')}, {summary.bytes_read / 1e6:,.1f} MB)",
        state,
        f"  expiry    a cleanup at {second(summary.as_of_ms)} with retention {duration_text(summary.retention_ms)}"
        f" ({summary.semantics} {summary.broker_version}) would remove {counted(summary.expired_offsets, 'committed offset')} and"
        f" {counted(summary.removed_groups, 'group')}: see `{command_of(summary, 'expire')}`",
    ]
    if "log" in summary.lacks:
        lines = ["", title, state, "  unknown   what only the log has: record offsets, times, expiry, open transactions, history"]
    if summary.surviving_share is not None:
        compacted = "nothing: every offset that this run read has its record"
        if summary.surviving_share < 1:
            compacted = (
                f"{_share(1 - summary.surviving_share)} of the offsets that this run read have no record any more, so counts of the past"
                f" are lower bounds: see `{command_of(summary, 'coverage', '--partitions')}`"
            )
        lines.insert(3, f"  compacted {compacted}")
    lines += _lines_about_reading(summary)
    if summary.newest_record_ms is not None and summary.point_in_time is None:
        since_ms = summary.unchanged_since_ms
        same = "" if since_ms is None else f"; the log is the same as in the run as of {second(since_ms)}"
        lines.append(f"  newest    record of {newest_record_text(summary.newest_record_ms, summary.as_of_ms)}{same}")
    if summary.point_in_time is None and summary.as_of_ms > now_ms():
        blocks = "a run as of an earlier moment is refused, but for --accept earlier"
        lines.append(f"  future    this run is as of {minute_and_age(summary.as_of_ms)}: until then {blocks}")
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
        lines += _lines_about(summary.point_in_time, summary)
    see = f"see `{command_of(summary, 'warnings')}`"
    lines += [f"  accepted  {sentence}" for sentence in summary.accepted]
    if summary.quarantined_by_reason:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in summary.quarantined_by_reason.items())
        lines.append(f"  lost      {reasons}: {see}")
    if summary.short:
        lines.append(f"  short     segments are missing: offsets partition {_places(summary.short, 'begins')}: {see}")
    if summary.truncated:
        lines.append(f"  truncated since the last run: offsets partition {_places(summary.truncated)}; commits are lost: {see}")
    if summary.vanished_keys:
        keys, partitions = sum(summary.vanished_keys.values()), counted(len(summary.vanished_keys), "offsets partition")
        lines.append(f"  vanished  {counted(keys, 'live key')} of the last run without a trace, in {partitions}: {see}")
    if summary.unreachable_groups:
        has = "has its records" if summary.unreachable_groups == 1 else "have their records"
        groups = f"{counted(summary.unreachable_groups, 'group')} {has} where no client looks for them: left out"
        lines.append(f"  moved     {groups}: see `{command_of(summary, 'warnings', '--code', 'group_wrong_partition')}`")
    if summary.warnings:
        lines.append(f"  doubts    {summary.warnings:,}: {see}")
    if summary.contradiction:
        lines.append(f"  settings  {summary.contradiction}")
    if summary.other_coordinator:
        lines.append(f"  hint      {summary.other_coordinator}")
    if summary.upkeep is not None and not isinstance(summary.upkeep, str):
        lines.append(f"  upkeep    {upkeep_text(summary.upkeep, dry_run=False)}")
    return "\n".join(lines)


def _places(offsets: Mapping[int, int], verb: str = "") -> str:
    """Format some offsets partitions, each with its record offset."""
    words = (f"{number} {verb} at offset {offset}".replace("  ", " ") for number, offset in sorted(offsets.items()))
    return first_of(list(words), _PARTITIONS_NAMED)


def _lines_about_reading(summary: Summary) -> list[str]:
    """Yield a line for each part that was read, and for the part that was carried over from the last run."""
    reading, lines = summary.reading, []
    reasons = "; ".join(f"{counted(count, 'offsets partition')}: {reason}" for reason, count in reading.whole.items())
    if reading.since_ms is not None:
        new, since = counted(reading.new_records, "new record"), second(reading.since_ms)
        lines.append(f"  read      incremental: {new} since the run of {since}{f'; read whole: {reasons}' if reasons else ''}")
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
        is_it = f"differs in {counted(reading.differences, 'group')}: see doubts" if reading.differences else "is the same"
        lines.append(f"  compared  with the state that the earlier runs carried on: it {is_it}")
    return lines


def _lines_about(past: PointInTimeSummary, summary: Summary) -> list[str]:
    lines = [
        f"  until     {past.text}: {counted(past.ended_early, 'offsets partition')} cut off before the end of the log;"
        f" {counted(past.records_from_history, 'record')} taken from the history"
    ]
    if past.missing:
        numbers, records = ", ".join(map(str, past.missing)), sum(past.missing.values())
        lines.append(
            f"  unknown   offsets partition{'' if len(past.missing) == 1 else 's'} {numbers} may not be exact: {counted(records, 'offset')}"
            f" before that moment without a record any more, neither in the log nor in the history: see `{command_of(summary, 'warnings')}`"
        )
    return lines


def _share(part: float) -> str:
    """Format a share above 0 in per cent, as 100 % only if nothing is missing."""
    return "100 %" if part >= 1 else f"{min(max(part * 100, 0.1), 99.9):.1f} %"
