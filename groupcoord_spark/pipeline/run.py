"""What a run is asked to do, and what it found, for the person who started it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS, DefaultAssignors
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.pipeline.extents import Until
from groupcoord_spark.sources.rows import InputKind


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a run is asked to do. Times and durations in milliseconds."""

    inputs: tuple[str, ...]
    warehouse: str
    cluster: str
    as_of_ms: int
    retention_ms: int
    semantics: Semantics
    with_history: bool = True
    topic_names: Mapping[str, str] = field(default_factory=dict)
    """Topic id -> name, as the user knows them."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the broker's file, by Kafka's names, that decided something; they are kept in ``runs``."""
    default_assignors: DefaultAssignors = KAFKAS_ASSIGNORS
    offsets_partitions: int | None = None
    """offsets.topic.num.partitions of the broker's file."""
    until: Until | None = None
    """The moment to replay to; None: the end of the log."""


@dataclass(frozen=True, slots=True)
class PointInTimeSummary:
    """What a run with --until replayed. text: the moment as it was typed.

    ended_early: partitions that end before their log does. from_history: records that came from the history tables. missing: offsets
    partition -> how many records that nobody has any more may have mattered then; its state may not be exact.
    """

    text: str
    ended_early: int
    from_history: int
    missing: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a run found, for the person who started it."""

    run_id: str
    cluster: str
    warehouse: str
    as_of_ms: int
    offsets_partitions: int
    records_read: int
    records_decoded: int
    records_quarantined: int
    bytes_read: int
    quarantined_by_reason: Mapping[str, int]
    groups: int
    committed_offsets: int
    expired_offsets: int
    removed_groups: int
    warnings: int
    refusals: int
    """Warnings about records that a broker's loader would refuse or skip."""
    other_coordinator: str | None
    """A sentence where the records say that the other coordinator wrote them."""
    semantics: str
    broker_version: str
    contradiction: str | None = None
    """A sentence where the log shows that a setting of the broker's file is not this cluster's."""
    completeness: float | None = None
    """Records read against the span of offsets that they lie in; None where there is no record."""
    input_kind: InputKind = InputKind.SEGMENTS
    lacks: tuple[str, ...] = ()
    """What the input cannot tell, in the words of ``runs``."""
    past: PointInTimeSummary | None = None
