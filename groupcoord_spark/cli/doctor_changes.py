"""The reports of ``groupcoord doctor`` about changes: the log cleaner, another release, or another number of offsets partitions."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from groupcoord_spark.cli.options import Common
from groupcoord_spark.cli.render import lines, moment, print_lines, printable, say, write_records
from groupcoord_spark.errors import InputError
from groupcoord_spark.wording import counted, shell_word

if TYPE_CHECKING:
    from groupcoord_spark.coordinator.semantics import Semantics
    from groupcoord_spark.coordinator.state import LoadWarning
    from groupcoord_spark.doctor import CopyFacts
    from groupcoord_spark.pipeline.replay.after_cleaning import AfterCleaning
    from groupcoord_spark.pipeline.replay.load_check import LoadOutcome

Outcome = TypeVar("Outcome")

WIDTH: Final = 80
LOAD_COLUMNS: Final = (
    "release", "offsets_partition", "loads", "refused_offset", "rule", "detail", "refused", "skipped", "groups", "offsets",
    "different_groups", "different_offsets",
)  # fmt: skip
CLEANING_COLUMNS: Final = (
    "release", "offsets_partition", "answer", "group_id", "cleaned_to", "tombstones", "read_before", "refused_offset", "rule", "detail",
    "differences", "since", "kafka_issue", "remedy",
)  # fmt: skip
MOVED_COLUMNS: Final = ("group_id", "offsets_partition", "new_offsets_partition", "offsets", "other_records")
MOST_GROUPS_IN_COMMAND: Final = 10


def report_upgrade(common: Common, inputs: tuple[str, ...], in_use: Semantics, target: Semantics) -> bool:
    """Print what the target release makes of the log. Returns whether it refuses a record."""
    outcomes = _outcomes(inputs, [in_use, target])
    if common.output != "table":
        write_records(common.output, LOAD_COLUMNS, _rows((of_target, of_use) for of_use, of_target in outcomes))
    else:
        print_lines(_upgrade_lines(outcomes, in_use, target))
    return any(not of_target.loads for _, of_target in outcomes)


def report_cleaning(common: Common, inputs: tuple[str, ...], releases: Sequence[Semantics]) -> set[str]:
    """Print whether each release still loads the log, to the same state, after the log cleaner.

    Returns the names of the findings, and ``refused`` where a release refuses a record.
    """
    from groupcoord_spark.pipeline.replay.after_cleaning import FINDING_OF_ANSWER, check_after_cleaning

    outcomes = [of_release for of_log in _of_partitions(check_after_cleaning, inputs, releases) for of_release in of_log]
    if common.output != "table":
        write_records(common.output, CLEANING_COLUMNS, [row for outcome in outcomes for row in _cleaning_rows(outcome)])
    else:
        for semantics in releases:
            release = semantics.broker_version
            print_lines(_cleaning_lines(release, [outcome for outcome in outcomes if outcome.now.release == release]))
    exposures = [exposure for outcome in outcomes for exposure in outcome.exposures]
    is_refused = any(not outcome.now.loads for outcome in outcomes) or any(exposure.refusal for exposure in exposures)
    return {FINDING_OF_ANSWER[exposure.answer] for exposure in exposures} | ({"refused"} if is_refused else set())


def _cleaning_rows(outcome: AfterCleaning) -> Iterator[tuple[Any, ...]]:
    place, refusal = (outcome.now.release, outcome.now.offsets_partition), outcome.now.refusal
    if refusal is not None:
        yield (*place, "refused_now", *[None] * 4, *_refused_record(refusal), *[None] * 4)
    elif not outcome.exposures:
        yield (*place, "loads", *[None] * 11)
    for exposure in outcome.exposures:
        cleaning = exposure.cleaning
        yield (
            exposure.release, exposure.offsets_partition, exposure.answer, exposure.group_id, cleaning.cleaned_to,
            "dropped" if cleaning.drops_tombstones else "kept", cleaning.read_before if cleaning.read_before >= 0 else None,
            *_refused_record(exposure.refusal), list(exposure.differences), moment(exposure.since_ms), exposure.issue, exposure.remedy,
        )  # fmt: skip


def _cleaning_lines(release: str, outcomes: Sequence[AfterCleaning]) -> Iterator[str]:
    exposures = [exposure for outcome in outcomes for exposure in outcome.exposures]
    failing_now = [outcome.now for outcome in outcomes if not outcome.now.loads]
    everything = counted(len(outcomes), "offsets partition")
    if failing_now:
        yield f"Kafka {release} does not load {len(failing_now)} of {everything} now:"
    for failing in failing_now:
        assert failing.refusal is not None
        yield from _paragraph(f"partition {failing.offsets_partition} ({failing.refusal.code}): {failing.refusal.reason}")
    if not exposures and not failing_now:
        yield f"Kafka {release} loads all {everything} to the same state wherever the log cleaner stops."
    titles = {
        "refused": "would not load {} after the log cleaner",
        "refused_while_cleaning": "may not load {} while the log cleaner works on the partition; the next load succeeds",
        "other_state": "would load {} to another state after the log cleaner",
    }
    for answer, title in titles.items():
        of_answer = [exposure for exposure in exposures if exposure.answer == answer]
        if of_answer:
            partitions = len({exposure.offsets_partition for exposure in of_answer})
            yield from textwrap.wrap(f"Kafka {release} {title.format(f'{partitions} of {everything}')}:", WIDTH)
        for exposure in of_answer:
            text = f"partition {exposure.offsets_partition}: {exposure.summary} So since {moment(exposure.since_ms)}."
            yield from _paragraph(f"{text} Remedy: {exposure.remedy}")


def _paragraph(text: str) -> list[str]:
    return textwrap.wrap(printable(text), WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def report_matrix(common: Common, inputs: tuple[str, ...], in_use: Semantics) -> None:
    """Print what every release makes of the log."""
    from groupcoord_spark.pipeline.replay.load_check import differences, release_ranges

    ranges = release_ranges()
    outcomes = _outcomes(inputs, [in_use, *(release_range.semantics for release_range in ranges)])
    if common.output != "table":
        write_records(common.output, LOAD_COLUMNS, _rows((outcome, of_use) for of_use, *of_releases in outcomes for outcome in of_releases))
        return
    rows = []
    for place, release_range in enumerate(ranges, 1):
        of_release = [(outcome[place], outcome[0]) for outcome in outcomes]
        changed = [differences(*pair) for pair in of_release]
        rows.append(
            (
                release_range.name,
                sum(not outcome.loads for outcome, _ in of_release),
                sum(outcome.refused for outcome, _ in of_release),
                sum(outcome.skipped.total() for outcome, _ in of_release),
                sum(len(differing.groups) for differing in changed),
                sum(len(differing.offsets) for differing in changed),
            )
        )
    explanation = (
        f"FAILING: offsets partitions, of {len(outcomes)}, whose coordinator does not start. Differences are measured from Kafka"
        f" {in_use.broker_version}, as if refused records were not there."
    )
    titles = ["RELEASES", "FAILING", "REFUSED", "SKIPPED", "GROUPS-DIFFER", "OFFSETS-DIFFER"]
    print_lines([*lines(titles, rows), *textwrap.wrap(explanation, WIDTH)])


def _outcomes(inputs: tuple[str, ...], releases: Sequence[Semantics]) -> list[list[LoadOutcome]]:
    from groupcoord_spark.pipeline.replay.load_check import check_load

    return _of_partitions(check_load, inputs, releases)


def _of_partitions(check: Callable[..., list[Outcome]], inputs: tuple[str, ...], releases: Sequence[Semantics]) -> list[list[Outcome]]:
    """For each offsets partition what ``check`` says of the releases."""
    from groupcoord_spark.doctor.reading import map_partitions
    from groupcoord_spark.log import plan_logs

    plan = plan_logs(inputs)
    if not plan.partitions:
        raise InputError("The input has no partition of __consumer_offsets.")
    return map_partitions(check, [(partition, releases) for partition in plan.partitions])


def _rows(pairs: Iterable[tuple[LoadOutcome, LoadOutcome]]) -> Iterator[tuple[Any, ...]]:
    from groupcoord_spark.pipeline.replay.load_check import differences

    for outcome, in_use in pairs:
        changed = differences(outcome, in_use)
        yield (
            outcome.release, outcome.offsets_partition, outcome.loads, *_refused_record(outcome.refusal), outcome.refused,
            outcome.skipped.total(), len(outcome.groups), len(outcome.offsets), len(changed.groups), len(changed.offsets),
        )  # fmt: skip


def _refused_record(refusal: LoadWarning | None) -> tuple[Any, ...]:
    return (None, None, None) if refusal is None else (refusal.record_offset, refusal.code, refusal.reason)


def _upgrade_lines(outcomes: Sequence[list[LoadOutcome]], in_use: Semantics, target: Semantics) -> Iterator[str]:
    from groupcoord_spark.pipeline.replay.load_check import differences

    failing = [of_target for _, of_target in outcomes if not of_target.loads]
    everything = counted(len(outcomes), "offsets partition")
    if failing:
        yield f"Kafka {target.broker_version} does not load {len(failing)} of {everything}:"
        for outcome in failing:
            assert outcome.refusal is not None
            at = "at the end" if outcome.refusal.record_offset is None else f"at offset {outcome.refusal.record_offset}"
            yield from _paragraph(f"partition {outcome.offsets_partition}, {at} ({outcome.refusal.code}): {outcome.refusal.reason}")
    else:
        yield f"Kafka {target.broker_version} loads all {everything}."
    skipped = sum(of_target.skipped.total() for _, of_target in outcomes)
    if skipped:
        yield f"It skips {counted(skipped, 'record')} of key types that it does not know."
    changed = [differences(of_target, of_use) for of_use, of_target in outcomes]
    groups = [group for differing in changed for group in differing.groups]
    offsets = [offset for differing in changed for offset in differing.offsets]
    begin = f"Compared with Kafka {in_use.broker_version}"
    if not groups and not offsets:
        yield f"{begin}, groups and committed offsets are the same."
        return
    yield f"{begin}, {counted(len(groups), 'group')} and {counted(len(offsets), 'committed offset')} are read differently:"
    in_use_groups, target_groups = ({name: row for pair in outcomes for name, row in pair[place].groups.items()} for place in (0, 1))
    names = sorted({*groups, *(offset[0] for offset in offsets)})
    rows = [(name, _group_text(in_use_groups.get(name)), _group_text(target_groups.get(name))) for name in names]
    yield from lines(["GROUP", "NOW", "THEN"], rows)


def _group_text(group: tuple[str, str, int] | None) -> str:
    return "no group" if group is None else f"{group[0]}, {group[1]}, {counted(group[2], 'member')}"


def report_partitions(common: Common, copies: Sequence[CopyFacts], partitions: int, new_partitions: int, inputs: tuple[str, ...]) -> None:
    """Print which groups a change of the number of offsets partitions moves, and the export that saves their offsets."""
    from groupcoord_spark.doctor.partition_change import moved_groups

    moved, live_groups = moved_groups(copies, partitions, new_partitions)
    rows = [tuple(getattr(group, name) for name in MOVED_COLUMNS) for group in moved]
    lost = [group for group in moved if group.is_lost]
    if rows or common.output != "table":
        common.show(MOVED_COLUMNS, rows, titles=["GROUP", "FROM", "TO", "OFFSETS", "OTHER-RECORDS"])
    if common.quiet:
        return
    say(
        f"With {counted(new_partitions, 'partition')} instead of {partitions}, {len(moved)} of {counted(live_groups, 'group')}"
        f" move, and {len(lost)} of them lose {counted(sum(group.offsets for group in lost), 'committed offset')}: Kafka moves no record."
    )
    if lost:
        named = [f"--group {shell_word(group.group_id)}" for group in lost[:MOST_GROUPS_IN_COMMAND]]
        names = " ".join(named)
        if len(lost) > len(named):
            say(f"The commands name {len(named)} of these groups; --output json has all of them.")
        say(f"Stop the clients, then save the offsets:\n  groupcoord nightly {shlex.join(inputs)} --warehouse ./saved")
        say(f"  groupcoord export-offsets --warehouse ./saved {names} > offsets.csv")
        say("After the change, set them again:")
        say(f"  kafka-consumer-groups.sh --bootstrap-server HOST:PORT --reset-offsets --from-file offsets.csv {names} --execute")
