"""``groupcoord expire``: what a cleanup would remove under any retention, from the tables of a run."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from groupcoord_spark.cli import options
from groupcoord_spark.cli.names import named_groups
from groupcoord_spark.cli.render import moment, say
from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.wording import counted

if TYPE_CHECKING:
    from groupcoord_spark.answers.expiration import CleanedGroup, ExpirationJob
    from groupcoord_spark.answers.what_if import StateTables
    from groupcoord_spark.coordinator.semantics import Semantics
    from groupcoord_spark.warehouse.read import Run

GROUP_NAMES: Final = ("group", "state", "offsets", "expired", "next_expiry", "never", "removed", "removed_at", "stays_because", "traps")
OFFSET_NAMES: Final = (
    *("group", "topic", "partition", "base_timestamp", "expires_at", "expired", "rule", "blocked_by", "never_because", "traps"),
)
CHANGE_NAMES: Final = ("day", "group", "offsets_lost", "offsets_gained", "group_lost", "group_gained")
TIMES: Final = frozenset({"next_expiry", "removed_at", "base_timestamp", "expires_at"})

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_DAY_MS: Final = 86_400_000


@options.command(epilog="Example: groupcoord expire --offsets-retention 1d --as-of 2026-11-23T08:00:00Z --compare")
@click.option("--offsets-retention", "retention_ms", type=options.Duration(), help="How long offsets are kept. [default: as in the run]")
@click.option("--as-of", "as_of_ms", type=options.Moment(), help="Time to apply the rules at. [default: as in the run]")
@click.option("--semantics", type=click.Choice(["java", "scala"]), help="Rules of that coordinator. [default: as in the run]")
@click.option("--broker-version", metavar="V", help="Rules of that release, for example 3.6. [default: as in the run]")
@click.option("--assume-members-gone", is_flag=True, help="Judge live groups as if their last member had left at --as-of.")
@options.groups_option("Only that group")
@click.option("--offsets", "by_offset", is_flag=True, help="A row for each offset instead of each group.")
@click.option(
    "--write-tombstones",
    "tombstones_directory",
    type=options.DirectoryToWrite(),
    metavar="DIR",
    help="Write the records that the cleanup appends as log segments: DIR/__consumer_offsets-N/<end offset>.log.",
)
@click.option("--codec", type=click.Choice(list(CODECS)), help="offsets.topic.compression.codec for --write-tombstones. [default: none]")
@click.option("--compare", is_flag=True, help="What changes against the setting of the run, by day and group.")
@options.shown_run_options
@options.common_options
def expire(
    common: options.Common,
    retention_ms: int | None,
    as_of_ms: int | None,
    semantics: str | None,
    broker_version: str | None,
    assume_members_gone: bool,
    groups: tuple[str, ...],
    by_offset: bool,
    tombstones_directory: Path | None,
    codec: str | None,
    compare: bool,
    shown_run: options.ShownRun,
) -> None:
    """Show what a cleanup of offsets would remove, and when. Nothing is rewritten.

    A row for each group: its offsets, how many of them a cleanup at --as-of removes, when the next one goes, how many never go in their
    present state, and when the group itself goes.
    """
    from groupcoord_spark.answers.expiration import ExpirationJob
    from groupcoord_spark.answers.what_if import read_state_tables

    if compare and by_offset:
        raise click.UsageError("--compare counts by day and group: leave --offsets out.")
    if codec is not None and tombstones_directory is None:
        raise click.UsageError("--codec belongs to --write-tombstones.")
    warehouse, run = common.run(shown_run, is_said=False)
    now_ms = run.as_of_ms if as_of_ms is None else as_of_ms
    present = ExpirationJob(now_ms, _retention_of(run, retention_ms), options.semantics_of(run), with_tombstones=False)
    job = replace(
        present,
        retention_ms=present.retention_ms if retention_ms is None else retention_ms,
        semantics=_other_rules(run, semantics, broker_version),
        assume_members_gone=assume_members_gone,
    )
    totals: Counter[str] = Counter()
    state = read_state_tables(warehouse, run.cluster, run=run, groups=named_groups(groups, warehouse, run))
    if compare:
        _write(common, CHANGE_NAMES, _change_rows(state, present, job, totals))
    elif by_offset:
        _write(common, OFFSET_NAMES, _offset_rows(state, job, totals))
    else:
        _write(common, GROUP_NAMES, _group_rows(state, job, totals))
    written = None
    if tombstones_directory is not None:
        ends = warehouse.read("offsets_partitions", columns=["offsets_partition", "end_offset"], run=run)
        end_offsets = dict(zip(*(ends[name].to_pylist() for name in ends.column_names), strict=True))
        written = _write_tombstones(tombstones_directory, state, replace(job, with_tombstones=True), end_offsets, codec or "none")
    if not common.quiet:
        _remark(run, present, job, totals, written, compare=compare)


def _other_rules(run: Run, name: str | None, broker_version: str | None) -> Semantics:
    """Return the rules of the options with the run's settings, or the run's own rules without such options."""
    from groupcoord_spark.coordinator.semantics import semantics_for

    if name is None and broker_version is None:
        return options.semantics_of(run)
    return semantics_for(name, broker_version).with_settings(run.settings)


def _retention_of(run: Run, given_ms: int | None) -> int:
    retention_ms = run.retention_ms if run.retention_ms is not None else given_ms
    if retention_ms is None:
        raise GroupcoordError(f"Run {run.run_id} does not tell its retention. Say it with --offsets-retention.")
    return retention_ms


def _group_rows(state: StateTables, job: ExpirationJob, totals: Counter[str]) -> Iterator[tuple[Any, ...]]:
    from groupcoord_spark.answers.what_if import cleanups, traps_in

    returning = job.returning(state.type_0_offsets)
    for _, cleaned in cleanups(state, job):
        group, offsets = cleaned.cleanup.group, cleaned.cleanup.offsets
        later = [offset.expires_at_ms for offset in offsets if not offset.expired and offset.expires_at_ms is not None]
        expired = sum(offset.expired for offset in offsets)
        totals.update(offsets=len(offsets), expired=expired, groups=1, removed=group.removed)
        yield (
            group.group_id,
            cleaned.cleanup.facts.state,
            len(offsets),
            expired,
            min(later, default=None),
            len(offsets) - expired - len(later),
            group.removed,
            group.removed_at_ms,
            _why_group_stays(cleaned),
            sorted(set(chain.from_iterable(traps_in(cleaned, returning)))),
        )


def _why_group_stays(cleaned: CleanedGroup) -> str | None:
    """Return why the group is never removed in its present state, or None if its removal has a known time."""
    from groupcoord_spark.warehouse.reasons import GROUP_STAYS_BECAUSE, NO_GROUP_IS_REMOVED

    group = cleaned.cleanup.group
    if group.removed_at_ms is not None:
        return None
    return NO_GROUP_IS_REMOVED if group.blocked_by is None else GROUP_STAYS_BECAUSE[group.blocked_by]


def _offset_rows(state: StateTables, job: ExpirationJob, totals: Counter[str]) -> Iterator[tuple[Any, ...]]:
    from groupcoord_spark.answers.what_if import cleanups, traps_in
    from groupcoord_spark.warehouse.reasons import NEVER_OLD_ENOUGH, OFFSET_STAYS_BECAUSE

    returning = job.returning(state.type_0_offsets)
    for _, cleaned in cleanups(state, job):
        offsets = cleaned.cleanup.offsets
        expired = sum(offset.expired for offset in offsets)
        totals.update(offsets=len(offsets), expired=expired, groups=1, removed=cleaned.cleanup.group.removed)
        for offset, traps in zip(offsets, traps_in(cleaned, returning), strict=True):
            never = None
            if offset.expires_at_ms is None:
                never = NEVER_OLD_ENOUGH if offset.blocked_by is None else OFFSET_STAYS_BECAUSE[offset.blocked_by]
            yield (
                *(offset.group_id, offset.topic, offset.partition, offset.base_timestamp_ms, offset.expires_at_ms, offset.expired),
                *(offset.rule, offset.blocked_by, never, traps),
            )


def _change_rows(state: StateTables, present: ExpirationJob, job: ExpirationJob, totals: Counter[str]) -> Iterator[tuple[Any, ...]]:
    from groupcoord_spark.answers.what_if import changes

    for change in changes(state, present, job):
        totals.update(dict(zip(CHANGE_NAMES[2:], change[2:], strict=True)))
        yield ((moment(change.day * _DAY_MS) or "").partition("T")[0], *change[1:])


def _remark(run: Run, present: ExpirationJob, job: ExpirationJob, totals: Counter[str], written: str | None, *, compare: bool) -> None:
    sys.stdout.flush()  # the remark is about the rows above it
    setting, members = _setting(job), ", every member gone" if job.assume_members_gone else ""
    say(f"As of {moment(job.as_of_ms)} with {setting}{members}, state of the run of {moment(run.as_of_ms)}:")
    if compare:
        say(
            f"  against {_setting(present)}: would remove"
            f" {counted(totals['offsets_lost'], 'offset')} and {counted(totals['group_lost'], 'group')} sooner, and keep"
            f" {counted(totals['offsets_gained'], 'offset')} and {counted(totals['group_gained'], 'group')} longer"
        )
    else:
        say(
            f"  a cleanup would remove {totals['expired']:,} of {counted(totals['offsets'], 'offset')}"
            f" and {totals['removed']:,} of {counted(totals['groups'], 'group')}"
        )
    if written is not None:
        say(f"  {written}")
    if job.semantics.release != present.semantics.release:
        say(
            f"  The state is what {present.semantics.name} {present.semantics.broker_version} loads of the log; only the cleanup is that of"
            f" {job.semantics.name} {job.semantics.broker_version}. For all of it run the nightly with these semantics."
        )


def _write_tombstones(directory: Path, state: StateTables, job: ExpirationJob, end_offsets: dict[int, int], codec: str) -> str:
    """Write the segments; return a sentence about them."""
    from groupcoord_spark.answers.what_if import tombstone_batches
    from groupcoord_spark.log.decode import compression
    from groupcoord_spark.log.writing import write_segment

    records = batches = partitions = 0
    for offsets_partition, of_partition in tombstone_batches(state, job, end_offsets, codec=compression.CODECS[codec]):
        try:
            write_segment(directory, offsets_partition, of_partition)
        except FileExistsError as e:
            raise UsageError(f"{e.filename} is there already. Name an empty or new directory with --write-tombstones.") from e
        except OSError as e:
            raise GroupcoordError(f"{directory} cannot be written: {e.strerror}.") from e
        records += sum(len(batch.records) for batch in of_partition)
        batches += len(of_partition)
        partitions += 1
    written = f"{counted(records, 'tombstone')} in {counted(batches, 'batch')} of {counted(partitions, 'offsets partition')}"
    return f"{written} written to {directory}"


def _setting(job: ExpirationJob) -> str:
    return f"retention {options.duration_text(job.retention_ms)} ({job.semantics.name} {job.semantics.broker_version})"


def _write(common: options.Common, names: Sequence[str], rows: Iterable[tuple[Any, ...]]) -> None:
    with_moments = ([moment(cell) if name in TIMES else cell for name, cell in zip(names, row, strict=True)] for row in rows)
    common.show(names, with_moments, cells=([_for_people(cell) for cell in row] for row in with_moments))


def _for_people(cell: object) -> object:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    return (",".join(cell) or None) if isinstance(cell, list) else cell
