"""The kinds of findings: names, severities, and what each of them says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple


class Severity(IntEnum):
    """How much a finding matters; the larger, the worse."""

    NORMAL = 0
    """Ordinary. It is named because it could be taken for an illness."""
    WATCH = 1
    """Harmless by itself; worth knowing."""
    SICK = 2
    """Someone must act."""

    @property
    def word(self) -> str:
        """``normal``, ``watch`` or ``sick``."""
        return self.name.lower()


class Kind(NamedTuple):
    """A kind of findings. short_name: what --fail-on also takes. meaning: what such a finding says."""

    severity: Severity
    short_name: str
    meaning: str


FINDINGS: Mapping[str, Kind] = {
    "hanging_transaction": Kind(
        Severity.SICK, "hanging", "A transaction for which no marker will come; its offsets stay pending for ever."
    ),
    "open_transaction_overdue": Kind(
        Severity.SICK, "overdue", "The coordinator still knows the transaction, but its timeout is over: it should have been aborted."
    ),
    "cleaning_blocked_by_open_transaction": Kind(
        Severity.SICK,
        "blocked",
        "The cleaner cannot pass the segment where the oldest open transaction begins. No metric of the broker shows it.",
    ),
    "cleaning_stopped": Kind(
        Severity.SICK, "cleaner_stopped", "Nothing holds the cleaner back, and it has left segments that were due long ago."
    ),
    "never_cleaned": Kind(Severity.SICK, "never_cleaned", "No offset is missing in many closed segments: the cleaner has never run here."),
    "offset_span": Kind(Severity.SICK, "offset_span", "A segment spans more offsets than its index can name; cleaning it fails."),
    "hot_group": Kind(Severity.SICK, "hot_committer", "One group writes most of the partition, and commits the same offset over and over."),
    "refused_after_cleaning": Kind(
        Severity.SICK, "refused_after_cleaning", "The log loads, and will not once the log cleaner has passed: a record is then refused."
    ),
    "oversized_record": Kind(Severity.WATCH, "oversized", "A batch is larger than the topic takes, or than an old loader can read."),
    "too_many_keys": Kind(Severity.WATCH, "too_many_keys", "One cleaning pass cannot hold all keys that are dirty."),
    "open_transaction": Kind(Severity.WATCH, "open", "A transaction without a marker; only the coordinator knows whether it hangs."),
    "many_producers": Kind(
        Severity.WATCH,
        "producer_residue",
        "Markers and empty batches of one-shot producers, kept while the broker remembers the producers.",
    ),
    "tombstones": Kind(Severity.WATCH, "tombstones", "Tombstones that wait for the cleaner."),
    "large_metadata": Kind(Severity.WATCH, "large_metadata", "One group writes most of the partition: long metadata in each commit."),
    "wide_commit": Kind(Severity.WATCH, "wide_commit", "One group writes most of the partition: very many partitions in each commit."),
    "throwaway_groups": Kind(Severity.WATCH, "throwaway_groups", "Groups whose names are made anew for each start of a client."),
    "other_state_after_cleaning": Kind(
        Severity.WATCH, "other_state", "The log will load to another state after the log cleaner, mostly with offsets that come back."
    ),
    "refused_while_cleaning": Kind(
        Severity.WATCH, "refused_while_cleaning", "A load that meets the log cleaner at work refuses a record; the next load succeeds."
    ),
    "live_set": Kind(Severity.NORMAL, "live_set", "The latest values alone are most of the bytes: cleaning cannot make the log smaller."),
    "open_transaction_young": Kind(Severity.NORMAL, "young", "A transaction that began a short time ago."),
}
"""Name -> kind, the worst first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about one offsets partition of one copy.

    Attributes:
        finding: a name in FINDINGS.
        offsets_partition: None for a finding about the whole topic.
        copy: the log directory.
        subject: a producer id or a group id; None for the partition itself.
        certainty: of a transaction, as ``hanging_transactions.Certainty``; None for all others.
        summary: one sentence with the figures that decide.
        evidence: figures by name; bytes, offsets and milliseconds as numbers.
        remedy: the command or the change that mends it.
        ask: the question that only the broker can answer, as a command; None where the log decides.
    """

    finding: str
    offsets_partition: int | None
    copy: str
    severity: Severity
    subject: str | int | None
    summary: str
    remedy: str
    evidence: dict[str, Any] = field(default_factory=dict)
    certainty: str | None = None
    ask: str | None = None
