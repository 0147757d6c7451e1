"""One offsets partition of one copy, as the rules look at it."""

from collections.abc import Sequence
from typing import Any, Final

from groupcoord_spark.doctor.facts import CopyFacts, PartitionFacts
from groupcoord_spark.doctor.findings import Finding, FindingKind, Severity, bytes_of
from groupcoord_spark.doctor.settings import HealthSettings
from groupcoord_spark.log.broker_dir.transaction_states import KnownTransactions

MOST_OF_THE_LOG: Final = 0.5
FEW_BYTES: Final = 4_096
"""A page of memory: whatever share of a tiny log this many bytes are, nobody needs to mend them."""
LARGE_LOG_BYTES: Final = 100 << 20
"""The default of offsets.topic.segment.bytes: below it all records are usually in the active segment, which is never cleaned."""


class Patient:
    """A partition of a copy, with the figures on which several rules rest.

    clean, dirty, blocked: the closed segments that the cleaner has cleaned, can clean next, and cannot reach. figures: by name.
    """

    def __init__(
        self,
        copy: CopyFacts,
        facts: PartitionFacts,
        copies: Sequence[CopyFacts],
        settings: HealthSettings,
        transaction_states: KnownTransactions,
        dump_ms: int,
    ) -> None:
        self.copy = copy
        self.facts = facts
        self.copies = copies
        self.settings = settings
        self.transaction_states = transaction_states
        self.dump_ms = dump_ms
        active = facts.active_segment_base
        limit = min(facts.last_stable_offset, active)
        self.first_uncleanable = max(
            (segment.base_offset for segment in facts.segments if segment.base_offset <= limit), default=facts.log_start_offset
        )
        checkpoint = facts.checkpoint if facts.checkpoint is not None else 0
        self.clean = [segment for segment in facts.segments if segment.base_offset < checkpoint]
        self.dirty = [segment for segment in facts.segments if checkpoint <= segment.base_offset < self.first_uncleanable]
        self.blocked = [segment for segment in facts.segments if self.first_uncleanable <= segment.base_offset < active]
        clean_bytes, dirty_bytes = bytes_of(self.clean), bytes_of(self.dirty)
        # where cleaning is blocked, how much of the rest would go is known only as a bound: all that any later record supersedes
        removable = sum(segment.superseded_bytes for segment in self.dirty) if self.blocked else facts.closed_removable_bytes
        ratio: float | None = round(dirty_bytes / (clean_bytes + dirty_bytes), 4) if dirty_bytes else 0.0
        if facts.checkpoint is None and facts.missing_offsets and dirty_bytes:
            ratio = None  # the cleaner was here, and only the checkpoint says how far it came
        self.figures: dict[str, Any] = {
            "log_bytes": facts.log_bytes,
            "segments": len(facts.segments),
            "closed_segments": max(len(facts.segments) - 1, 0),
            "active_segment_base": active,
            "log_end_offset": facts.log_end_offset,
            "last_stable_offset": facts.last_stable_offset,
            "high_watermark": facts.high_watermark,
            "cleaner_checkpoint": facts.checkpoint,
            "checkpoint_file": facts.has_checkpoint_file,
            "first_uncleanable_offset": self.first_uncleanable,
            "clean_bytes": clean_bytes,
            "cleanable_dirty_bytes": dirty_bytes,
            "cleanable_ratio": ratio,
            "blocked_segments": len(self.blocked),
            "blocked_bytes": bytes_of(self.blocked),
            "removable_record_bytes": removable,
            "held_back_record_bytes": max(facts.closed_removable_bytes - removable, 0),
            "offset_holes": facts.holes,
            "missing_offsets": facts.missing_offsets,
            "records": facts.records,
            "keys": facts.keys,
            "dirty_keys": facts.dirty_keys,
            "bytes_by_fate": {fate: size for fate, (_, size) in facts.group_sums.fates.items()},
        }

    def healthy_verdict(self) -> str:
        """Return the verdict for a partition without findings worse than normal."""
        is_small = self.facts.log_bytes < LARGE_LOG_BYTES and len(self.facts.segments) <= 1
        return "not_due" if is_small else "healthy"

    def finding(
        self,
        kind: FindingKind,
        summary: str,
        remedy: str,
        *,
        subject: str | int | None = None,
        evidence: dict[str, Any] | None = None,
        certainty: str | None = None,
        ask: str | None = None,
        severity: Severity | None = None,
    ) -> Finding:
        """Build a finding about this partition. With None, ``severity`` is the default of the kind."""
        grade = kind.severity if severity is None else severity
        number = self.facts.offsets_partition
        return Finding(kind.name, number, self.copy.log_dir, grade, subject, summary, remedy, evidence or {}, certainty, ask)
