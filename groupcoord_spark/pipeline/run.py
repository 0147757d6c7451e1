"""The request for a nightly run, and the summary that the person who started the run gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from groupcoord_spark.coordinator.broker_settings import KAFKAS_ASSIGNORS, KAFKAS_DELETE_RETENTION, DefaultAssignors, DeleteRetention
from groupcoord_spark.coordinator.semantics import Semantics
from groupcoord_spark.pipeline.extents import Until
from groupcoord_spark.sources.inputs import InputKind

if TYPE_CHECKING:
    from groupcoord_spark.warehouse.maintenance import Upkeep

DEFAULT_CLUSTER: Final = "default"
"""The name of a cluster that neither the user nor the input names."""


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What the user asks of a run. Times and durations are in milliseconds."""

    inputs: tuple[str, ...]
    warehouse: str
    cluster: str
    as_of_ms: int
    retention_ms: int
    semantics: Semantics
    with_history: bool = True
    topic_names: Mapping[str, str] = field(default_factory=dict)
    """Topic id -> topic name, from the user and from the cluster's metadata."""
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    """Producer id -> transactional id, where the input has ``__transaction_state``."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings from the broker's file that had an effect, by Kafka's names. The run stores them in ``runs``."""
    default_assignors: DefaultAssignors = KAFKAS_ASSIGNORS
    offsets_partitions: int | None = None
    """offsets.topic.num.partitions of the broker's file; None: not set."""
    known_offsets_partitions: int | None = None
    """Number of partitions of the offsets topic in the cluster's metadata; None: the input has no metadata."""
    delete_retention: DeleteRetention = KAFKAS_DELETE_RETENTION
    """delete.retention.ms of the offsets topic, from the cluster's metadata, else from the broker's file."""
    until: Until | None = None
    """Replay stops at this time, which makes the run a point-in-time run; None for the end of the log."""
    full: bool = False
    """Read every log from its beginning, and compare the result with the state that earlier runs carried on."""
    accepted: frozenset[str] = frozenset()
    """Words of --accept: what the run may do although it looks like a bad copy."""
    log_ends: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Topic and partition -> end offset, of a sample that the user gave."""
    log_starts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Topic and partition -> start offset, where the sample has it."""
    log_ends_sampled_at_ms: int = 0
    log_ends_remark: str | None = None
    """Further contents of the sample's file, for a warning."""

    @property
    def writes_history(self) -> bool:
        """Whether the run appends to the history tables: a point-in-time run never does."""
        return self.with_history and self.until is None


@dataclass(frozen=True, slots=True)
class PointInTimeSummary:
    """What a run with --until replayed.

    text: the moment as the user typed it. ended_early: number of offsets partitions that end before their log does.
    records_from_history: number of records that were read from the history tables. missing: offsets partition -> number of record offsets
    without a record that may have had an effect at that moment; the state of such a partition may not be exact.
    """

    text: str
    ended_early: int
    records_from_history: int
    missing: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ReadingSummary:
    """What a run read, and what it took over from the run before.

    since_ms: as_of of the run that this run goes on from; None: this run goes on from none. new_records: number of records that were read
    of the offsets partitions that go on. whole: reason -> number of offsets partitions that were read whole because of the reason.
    stale_since_ms: offsets partition that the input does not have -> as_of of the last run that read it. differences: number of groups
    whose carried state is another one than the state that was read; None: nothing was compared.
    """

    since_ms: int | None = None
    new_records: int = 0
    whole: Mapping[str, int] = field(default_factory=dict)
    stale_since_ms: Mapping[int, int] = field(default_factory=dict)
    differences: int | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a run, for the person who started it."""

    run_id: str
    cluster: str
    warehouse: str
    as_of_ms: int
    retention_ms: int
    """The retention of offsets that the run applied."""
    semantics: str
    broker_version: str
    groups: int
    committed_offsets: int
    warnings: int
    offsets_partitions: int = 0
    records_read: int = 0
    records_decoded: int = 0
    records_quarantined: int = 0
    bytes_read: int = 0
    quarantined_by_reason: Mapping[str, int] = field(default_factory=dict)
    expired_offsets: int = 0
    removed_groups: int = 0
    refusals: int = 0
    """Number of warnings about records that a broker's loader would refuse or skip."""
    other_coordinator: str | None = None
    """A sentence, if the records show that the coordinator with the other semantics wrote them."""
    contradiction: str | None = None
    """A sentence, if the log shows that the broker's settings file belongs to another cluster."""
    surviving_share: float | None = None
    """Records left after compaction as a share of the record offsets read (0 to 1); None without records.

    ``groupcoord coverage`` shows the same share for the whole log, the view log_completeness for the history."""
    input_kind: InputKind = InputKind.SEGMENTS
    lacks: tuple[str, ...] = ()
    """What the input does not contain, in the words of ``input.lacks`` in ``runs``."""
    point_in_time: PointInTimeSummary | None = None
    beyond_high_watermark: Mapping[int, int] = field(default_factory=dict)
    """Offsets partition -> number of offsets that were left out because they lie beyond the high watermark."""
    accepted: tuple[str, ...] = ()
    """A sentence about each word of --accept without which the run would have been refused."""
    vanished_keys: Mapping[int, int] = field(default_factory=dict)
    """Offsets partition -> number of live keys of the last run whose record is gone without a later one or a tombstone."""
    short: Mapping[int, int] = field(default_factory=dict)
    """Offsets partition -> start offset of its first segment, if earlier segments are missing."""
    truncated: Mapping[int, int] = field(default_factory=dict)
    """Offsets partition -> the offset at or below which its log was truncated since the last run."""
    reading: ReadingSummary = field(default_factory=ReadingSummary)
    newest_record_ms: int | None = None
    """Timestamp of the newest record of the copy; None: no record has one."""
    unchanged_since_ms: int | None = None
    """as_of of the run before, where this run read the same log; None: the log has changed."""
    unreachable_groups: int = 0
    """Groups that no client reaches (``group_wrong_partition`` in warnings): the topic got more partitions. The state leaves them out."""
    upkeep: Upkeep | str | None = None
    """What upkeep did after the run, or a sentence where upkeep failed; None in runs without upkeep."""
