"""What a finding is, how much it matters, what a kind of findings has in common, and sizes and ages in its sentences."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, NamedTuple

from groupcoord_spark.doctor.facts import SegmentFacts


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


def bytes_of(segments: Sequence[SegmentFacts]) -> int:
    """Return the total bytes of these segment files."""
    return sum(segment.bytes for segment in segments)


def power_of_two(number: float) -> int:
    """Return the smallest power of two that is at least this number."""
    return 1 << max(int(number) - 1, 1).bit_length()


def size(number: int) -> str:
    """Format bytes: ``950 B``, ``63.2 kB``, ``4.1 GB``."""
    amount, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{number} B" if unit == "B" else f"{amount:.1f} {unit}"


def age(milliseconds: int) -> str:
    """Format a duration: ``11 s``, ``42 min``, ``3.5 h``, ``12.0 days``."""
    seconds = milliseconds / 1000
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
