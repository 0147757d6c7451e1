"""The verdicts: what the rules say of all partitions and copies, worst first. Seen on brokers of 4.3.1 with known illnesses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from groupcoord_spark.doctor.facts import CopyFacts
from groupcoord_spark.doctor.findings import Finding, Severity
from groupcoord_spark.doctor.patient import Patient
from groupcoord_spark.doctor.rules import FINDINGS, RULES
from groupcoord_spark.doctor.rules.groups import throwaway_groups
from groupcoord_spark.doctor.settings import HealthSettings
from groupcoord_spark.doctor.transaction_state import KnownTransactions


@dataclass(frozen=True, slots=True)
class PartitionVerdict:
    """The verdict on one offsets partition of one copy.

    verdict: the name of its worst finding; ``not_due`` where the log is small and all of it in the active segment, else ``healthy``.
    figures: bytes, segments and offsets of the partition by name.
    """

    offsets_partition: int
    copy: str
    verdict: str
    severity: Severity
    figures: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong, worst first, and the verdict on every partition and copy, worst first.

    dump_ms: the moment at which ages are measured. remarks: sentences about files that are damaged or do not fit.
    """

    dump_ms: int
    findings: tuple[Finding, ...]
    verdicts: tuple[PartitionVerdict, ...]
    remarks: tuple[str, ...]


def diagnose(copies: Sequence[CopyFacts], settings: HealthSettings, known: KnownTransactions, *, as_of_ms: int | None = None) -> Diagnosis:
    """The findings and verdicts.

    known: what the coordinator's own log says of transactions; empty where the copies do not have it.
    as_of_ms: the moment of the dump; None: its newest timestamp.
    """
    partitions = [partition for copy in copies for partition in copy.partitions]
    dump_ms = as_of_ms if as_of_ms is not None else max((partition.newest_timestamp_ms for partition in partitions), default=0)
    findings: list[Finding] = []
    verdicts: list[PartitionVerdict] = []
    for copy in copies:
        for partition in copy.partitions:
            patient = Patient(copy, partition, copies, settings, known, dump_ms)
            of_partition = [finding for rule in RULES for finding in rule(patient)]
            findings += of_partition
            worst = worst_of(of_partition)
            verdict = worst.finding if worst is not None else patient.healthy_verdict()
            severity = worst.severity if worst is not None else Severity.NORMAL
            verdicts.append(PartitionVerdict(partition.offsets_partition, copy.log_dir, verdict, severity, patient.figures))
        findings += throwaway_groups(copy)
    remarks = [
        damage
        for copy in copies
        for damage in (*copy.files.damages, *(damage for partition in copy.partitions for damage in partition.damages))
    ]
    return Diagnosis(
        dump_ms,
        tuple(worst_first(findings)),
        tuple(sorted(verdicts, key=lambda verdict: (-verdict.severity, -verdict.figures["log_bytes"], verdict.offsets_partition))),
        tuple(remarks),
    )


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """The findings in the order in which they are shown."""
    return sorted(findings, key=_badness, reverse=True)


def worst_of(findings: Iterable[Finding]) -> Finding | None:
    """The finding that is the verdict on a partition; None where none of its findings is worse than normal."""
    return max((finding for finding in findings if finding.severity > Severity.NORMAL), key=_badness, default=None)


_RANK = {name: -place for place, name in enumerate(FINDINGS)}


def _badness(finding: Finding) -> tuple[int, int, int, int]:
    size = finding.evidence.get("log_bytes", 0)
    number = -1 if finding.offsets_partition is None else finding.offsets_partition
    return (finding.severity, _RANK[finding.finding], size, -number)
