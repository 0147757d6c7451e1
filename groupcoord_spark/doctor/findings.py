"""What a finding is, how much it matters, and what a kind of findings has in common."""

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


class FindingKind(NamedTuple):
    """A kind of findings. short_name: what --fail-on also takes. meaning: what such a finding says."""

    name: str
    severity: Severity
    short_name: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding about one offsets partition of one copy.

    Attributes:
        finding: a name in ``rules.FINDINGS``.
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
