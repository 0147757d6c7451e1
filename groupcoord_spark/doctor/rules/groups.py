"""Groups that fill the log, and groups that are made anew for each start of a client."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from groupcoord_spark.doctor.facts import CopyFacts
from groupcoord_spark.doctor.findings import Finding, FindingKind, Severity
from groupcoord_spark.doctor.groups import MOST_NAMES, THROWAWAY_KINDS, GroupInLog, together
from groupcoord_spark.doctor.patient import FEW_BYTES, MOST_OF_THE_LOG, Patient
from groupcoord_spark.doctor.words import age, size
from groupcoord_spark.wording import counted

HOT_GROUP: Final = FindingKind(
    "hot_group", Severity.SICK, "hot_committer", "One group writes most of the partition, and commits the same offset over and over."
)
LARGE_METADATA: Final = FindingKind(
    "large_metadata", Severity.WATCH, "large_metadata", "One group writes most of the partition: long metadata in each commit."
)
WIDE: Final = FindingKind(
    "wide_commit", Severity.WATCH, "wide_commit", "One group writes most of the partition: very many partitions in each commit."
)
THROWAWAY: Final = FindingKind(
    "throwaway_groups", Severity.WATCH, "throwaway_groups", "Groups whose names are made anew for each start of a client."
)

MANY_REPEATED_COMMITS: Final = 100
FREQUENT_COMMITS_MS: Final = 1_000
"""Clients commit every 5 seconds by default, also where nothing moves: only much faster repetition is an error of the client."""
LONG_METADATA: Final = 1_024
WIDE_COMMIT: Final = 100
MANY_THROWAWAY_GROUPS: Final = 10


def of_groups(patient: Patient) -> Iterator[Finding]:
    facts = patient.facts
    for group in facts.group_sums.largest:
        if group.batch_bytes < MOST_OF_THE_LOG * facts.log_bytes or not group.commits:
            continue
        share = f"{round(100 * group.batch_bytes / facts.log_bytes)} % of {size(facts.log_bytes)}"
        evidence = {
            **_figures_of_group(group),
            "log_bytes": facts.log_bytes,
            "share_of_log_bytes": round(group.batch_bytes / facts.log_bytes, 4),
        }
        name = group.group_id
        span_ms = max(group.last_timestamp_ms - group.first_timestamp_ms, 1)
        is_repeating = group.repeated_commits >= max(MANY_REPEATED_COMMITS, MOST_OF_THE_LOG * group.commits)
        if is_repeating and span_ms * max(group.keys, 1) < FREQUENT_COMMITS_MS * group.commits:
            summary = (
                f"Group {name!r} wrote {share}: {group.commits:,} commits to {counted(group.keys, 'partition')} in {age(span_ms)},"
                f" {group.repeated_commits:,} of them with the offset that was already committed."
            )
            remedy = f"Mend the client of group {name!r}: commit after records were read, and at most about once a second."
            yield patient.finding(HOT_GROUP, summary, remedy, subject=name, evidence=evidence)
        is_most = group.large_commit_bytes >= max(FEW_BYTES, MOST_OF_THE_LOG * facts.batches.record_bytes)
        if group.metadata_bytes >= LONG_METADATA and is_most:
            summary = f"Group {name!r} wrote {share}: its commits carry up to {group.metadata_bytes:,} bytes of metadata."
            remedy = f"Keep that state of group {name!r} elsewhere, or lower offset.metadata.max.bytes (default 4096)."
            yield patient.finding(LARGE_METADATA, summary, remedy, subject=name, evidence=evidence)
        if group.most_records_in_batch >= WIDE_COMMIT and group.records >= WIDE_COMMIT * group.batches / 2:
            summary = f"Group {name!r} wrote {share}: up to {group.most_records_in_batch:,} partitions in one commit."
            remedy = f"Commit less often in group {name!r} (auto.commit.interval.ms), or only the partitions whose offset has moved."
            yield patient.finding(WIDE, summary, remedy, subject=name, evidence=evidence)


def throwaway_groups(copy: CopyFacts) -> Iterator[Finding]:
    """The groups of a copy whose names are made anew for each start of a client."""
    sums = [partition.group_sums for partition in copy.partitions]
    kinds: dict[str, Any] = {}
    names: list[str] = []
    number = 0
    for kind in THROWAWAY_KINDS:
        of_kind = together(of_partition.throwaway[kind] for of_partition in sums if kind in of_partition.throwaway)
        if of_kind is not None:
            kinds[kind] = {"groups": of_kind.groups, "deleted": of_kind.deleted, "record_bytes": of_kind.record_bytes}
            names += of_kind.names
            number += of_kind.groups
    if number < MANY_THROWAWAY_GROUPS:
        return
    all_groups = sum(of_partition.groups for of_partition in sums)
    evidence = {"kinds": kinds, "groups": names[:MOST_NAMES], "number_of_groups": number, "all_groups": all_groups}
    parts = ", ".join(f"{figures['groups']:,} named by {kind}" for kind, figures in kinds.items())
    summary = f"{number:,} of {all_groups:,} groups are made anew for each start of a client ({parts}), such as {names[0]!r}."
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
