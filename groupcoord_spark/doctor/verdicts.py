"""The verdicts: what the rules say of all partitions and copies, worst first. Seen on brokers of 4.3.1 with known illnesses."""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

from groupcoord_spark.doctor.facts import CopyFacts
from groupcoord_spark.doctor.findings import Finding, Severity
from groupcoord_spark.doctor.hanging_transactions import Certainty
from groupcoord_spark.doctor.patient import Patient
from groupcoord_spark.doctor.rules import FINDINGS, RULES, transactions
from groupcoord_spark.doctor.rules.groups import throwaway_groups
from groupcoord_spark.doctor.settings import HealthSettings
from groupcoord_spark.log.broker_dir.transaction_states import KnownTransactions


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
    """The findings and the verdict on every partition and copy, worst first.

    ``dump_ms`` is the time that ages are measured from; with several copies, the newest one. ``remarks`` are sentences about files that are
    damaged or do not fit.
    """

    dump_ms: int
    findings: tuple[Finding, ...]
    verdicts: tuple[PartitionVerdict, ...]
    remarks: tuple[str, ...]


def diagnose(
    copies: Sequence[CopyFacts],
    settings: HealthSettings,
    transaction_states: KnownTransactions,
    *,
    as_of_ms: int | None = None,
    read_in_part: Set[int] = frozenset(),
) -> Diagnosis:
    """Return the findings and verdicts.

    transaction_states: transactions in the coordinator's own log; empty if the copies do not have it.
    as_of_ms: the moment of the dump; None: the newest timestamp of each copy.
    read_in_part: offsets partitions with statistics of the newest records alone. They judge only open transactions, since they do not cover
    the whole log.
    """
    # brokers are copied one after the other: a transaction that was seconds old in one copy is not older by the moment of another copy
    newest_ms = [max((partition.newest_timestamp_ms for partition in copy.partitions), default=0) for copy in copies]
    moments_ms = newest_ms if as_of_ms is None else [as_of_ms] * len(copies)
    findings: list[Finding] = []
    verdicts: list[PartitionVerdict] = []
    for copy, moment_ms in zip(copies, moments_ms, strict=True):
        for partition in copy.partitions:
            patient = Patient(copy, partition, copies, settings, transaction_states, moment_ms)
            rules = transactions.RULES if partition.offsets_partition in read_in_part else RULES
            of_partition = [finding for rule in rules for finding in rule(patient)]
            findings += of_partition
            place = partition.offsets_partition, copy.log_dir
            verdicts.append(verdict_of(*place, of_partition, patient.figures, patient.healthy_verdict()))
        findings += throwaway_groups(copy) if not read_in_part else ()
    remarks = [
        damage
        for copy in copies
        for damage in (*copy.files.damages, *(damage for partition in copy.partitions for damage in partition.damages))
    ]
    remarks += transaction_states.damages
    return diagnosis_of(max(moments_ms, default=0), findings, verdicts, remarks)


def diagnosis_of(dump_ms: int, findings: Iterable[Finding], verdicts: Iterable[PartitionVerdict], remarks: Iterable[str]) -> Diagnosis:
    """Return the diagnosis with its findings and verdicts in display order."""
    worst_first = sorted(verdicts, key=lambda verdict: (-verdict.severity, -(verdict.figures["log_bytes"] or 0), verdict.offsets_partition))
    return Diagnosis(dump_ms, tuple(sorted(findings, key=_badness, reverse=True)), tuple(worst_first), tuple(remarks))


def verdict_of(
    offsets_partition: int, copy: str, findings: Iterable[Finding], figures: dict[str, Any], healthy_verdict: str
) -> PartitionVerdict:
    """Return the verdict of a partition's worst finding, or ``healthy_verdict`` if none is worse than normal."""
    worst = max((finding for finding in findings if finding.severity > Severity.NORMAL), key=_badness, default=None)
    verdict, severity = (healthy_verdict, Severity.NORMAL) if worst is None else (worst.finding, worst.severity)
    return PartitionVerdict(offsets_partition, copy, verdict, severity, figures)


_RANK = {name: -place for place, name in enumerate(FINDINGS)}


def _badness(finding: Finding) -> tuple[int, int, int, bool, int, int]:
    size, age_ms = finding.evidence.get("log_bytes", 0), finding.evidence.get("age_ms", 0)
    number = -1 if finding.offsets_partition is None else finding.offsets_partition
    return (finding.severity, _RANK[finding.finding], size, finding.certainty == Certainty.CERTAIN, age_ms, -number)
