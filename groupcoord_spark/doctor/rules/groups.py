"""Groups that fill the log, and groups with a new name for each client start."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from groupcoord_spark.doctor.facts import CopyFacts
from groupcoord_spark.doctor.findings import Finding, FindingKind, Severity, age, size
from groupcoord_spark.doctor.gather.group_table import BYTES_OF_HABIT, MOST_NAMES, THROWAWAY_KINDS, GroupInLog
from groupcoord_spark.doctor.patient import FEW_BYTES, MOST_OF_THE_LOG, Patient
from groupcoord_spark.wording import counted

HOT_GROUP: Final = FindingKind(
    "hot_group", Severity.SICK, "hot_committer", "Groups write most of the partition: they commit the same offset over and over."
)
LARGE_METADATA: Final = FindingKind(
    "large_metadata", Severity.WATCH, "large_metadata", "Groups write most of the partition: long metadata in each commit."
)
WIDE: Final = FindingKind(
    "wide_commit", Severity.WATCH, "wide_commit", "Groups write most of the partition: very many partitions in each commit."
)
THROWAWAY: Final = FindingKind(
    "throwaway_groups", Severity.WATCH, "throwaway_groups", "Groups that get a new name at each start of a client."
)

SHARE_OF_ONE_GROUP: Final = 0.1
"""Of groups that fill a partition together, those are named that wrote a tenth of it; a partition has at most ten of them."""
SHARE_OF_THROWAWAY: Final = 0.2
SMALL_SHARE_OF_THROWAWAY: Final = 0.01
"""Throwaway groups with fewer of the bytes do not make the topic large, also where they are most of the groups."""
MANY_THROWAWAY_GROUPS: Final = 1_000
"""So many groups fill each list of groups and the coordinator's memory, however few of the bytes they have."""


def of_habits(patient: Patient) -> Iterator[Finding]:
    """Findings about groups with a habit that fills the log, alone or together."""
    facts = patient.facts
    for habit, (kind, sentence, remedy) in _OF_HABIT.items():
        of_habit, bytes_of = facts.group_sums.habits.get(habit), BYTES_OF_HABIT[habit]
        total, of_what = (facts.batches.record_bytes, " of records") if kind is LARGE_METADATA else (facts.log_bytes, "")
        if of_habit is None or of_habit.size < max(FEW_BYTES, MOST_OF_THE_LOG * total):
            continue
        for place, group in enumerate(of_habit.largest):
            if place and bytes_of(group) < SHARE_OF_ONE_GROUP * total:
                break
            share_of_log_bytes = round(group.batch_bytes / facts.log_bytes, 4)
            evidence = {**_figures_of_group(group), "log_bytes": facts.log_bytes, "share_of_log_bytes": share_of_log_bytes}
            percent = round(100 * bytes_of(group) / total)
            summary = f"Group {group.group_id!r} wrote {percent} % of {size(total)}{of_what}: {sentence(group)}."
            if of_habit.groups > 1:
                evidence |= {"groups_alike": of_habit.groups, "share_of_groups_alike": round(of_habit.size / total, 4)}
                summary += f" Together {of_habit.groups:,} such groups wrote {round(100 * of_habit.size / total)} %."
            yield patient.finding(kind, summary, remedy.format(group.group_id), subject=group.group_id, evidence=evidence)


def _repeats(group: GroupInLog) -> str:
    span_ms = max(group.last_timestamp_ms - group.first_timestamp_ms, 1)
    return (
        f"{group.commits:,} commits to {counted(group.keys, 'partition')} in {age(span_ms)},"
        f" {group.repeated_commits:,} of them with the offset that was committed less than a second before"
    )


_OF_HABIT: Final[Mapping[str, tuple[FindingKind, Callable[[GroupInLog], str], str]]] = {
    "repeats": (HOT_GROUP, _repeats, "Mend the client of group {!r}: commit after records were read, and at most about once a second."),
    "metadata": (
        LARGE_METADATA,
        lambda group: f"its commits carry up to {group.metadata_bytes:,} bytes of metadata",
        "Keep that state of group {!r} elsewhere, or lower offset.metadata.max.bytes (default 4096).",
    ),
    "wide": (
        WIDE,
        lambda group: f"up to {group.most_records_in_batch:,} partitions in one commit",
        "Commit less often in group {!r} (auto.commit.interval.ms), or only the partitions whose offset has moved.",
    ),
}
"""Habit -> its finding, what a group does, and the remedy."""


def throwaway_groups(copy: CopyFacts) -> Iterator[Finding]:
    """Find the groups of a copy that get a new name for each client start."""
    sums = [partition.group_sums for partition in copy.partitions]
    by_kind = {kind: [of_sums.throwaway[kind] for of_sums in sums if kind in of_sums.throwaway] for kind in THROWAWAY_KINDS}
    figures_of_kind = ("groups", "deleted", "record_bytes")
    kinds = {
        kind: {name: sum(getattr(part, name) for part in parts) for name in figures_of_kind} for kind, parts in by_kind.items() if parts
    }
    names = [name for parts in by_kind.values() for part in parts for name in part.names]
    number, throwaway_bytes = (sum(figures[name] for figures in kinds.values()) for name in ("groups", "record_bytes"))
    all_groups = sum(of_sums.groups for of_sums in sums)
    record_bytes = sum(partition.batches.record_bytes for partition in copy.partitions)
    is_large = throwaway_bytes >= SHARE_OF_THROWAWAY * record_bytes
    is_many = number >= MANY_THROWAWAY_GROUPS or throwaway_bytes >= SMALL_SHARE_OF_THROWAWAY * record_bytes
    if throwaway_bytes < FEW_BYTES or not (is_large or (is_many and 2 * number >= all_groups)):
        return
    evidence = {
        "kinds": kinds,
        "groups": names[:MOST_NAMES],
        "number_of_groups": number,
        "all_groups": all_groups,
        "share_of_record_bytes": round(throwaway_bytes / record_bytes, 4),
    }
    parts = ", ".join(f"{figures['groups']:,} named by {kind}" for kind, figures in kinds.items())
    summary = (
        f"{number:,} of {counted(all_groups, 'group')} {'is' if number == 1 else 'are'} created for each start of a client ({parts}),"
        f" such as {names[0]!r}:"
        f" {round(100 * throwaway_bytes / record_bytes)} % of the bytes of all records."
    )
    remedy = (
        "Give these clients a fixed group.id; delete old groups with kafka-consumer-groups.sh --delete, or lower offsets.retention.minutes."
    )
    yield Finding(THROWAWAY.name, None, copy.log_dir, THROWAWAY.severity, None, summary, remedy, evidence)


def _figures_of_group(group: GroupInLog) -> dict[str, Any]:
    return {
        "records": group.records,
        "record_bytes": group.record_bytes,
        "batch_bytes": group.batch_bytes,
        "commits": group.commits,
        "repeated_commits": group.repeated_commits,
        "distinct_keys": group.keys,
        "max_metadata_bytes": group.metadata_bytes,
        "max_records_per_batch": group.most_records_in_batch,
        "first_timestamp_ms": group.first_timestamp_ms,
        "last_timestamp_ms": group.last_timestamp_ms,
        "bytes_by_fate": {fate: size for fate, (_, size) in group.fates().items()},
    }


RULES: Final = (of_habits,)
