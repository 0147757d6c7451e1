"""Facts of one offsets partition in one copy of the log, as ``gather`` finds them."""

from dataclasses import dataclass, field

from groupcoord_spark.doctor.gather.group_table import GroupInLog, GroupSums
from groupcoord_spark.doctor.hanging_transactions import OpenTransaction
from groupcoord_spark.log.broker_dir.broker_files import LogDirectoryFiles, PartitionFiles
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP
from groupcoord_spark.protocol.slices import Ints


@dataclass(slots=True)
class SegmentFacts:
    """One segment file.

    ``bytes`` is the file size; ``records`` includes control records. ``first_offset`` is the first record's, ``next_offset`` follows the
    last batch; None without a batch. ``oldest_timestamp_ms`` and ``newest_timestamp_ms`` cover its records; -1 without records.
    ``value_bytes`` counts records outside of aborted and open transactions, ``last_value_bytes`` those among them that are the last of
    their key.
    """

    base_offset: int
    bytes: int = 0
    batches: int = 0
    records: int = 0
    first_offset: int | None = None
    next_offset: int | None = None
    oldest_timestamp_ms: int = NO_TIMESTAMP
    newest_timestamp_ms: int = NO_TIMESTAMP
    value_bytes: int = 0
    last_value_bytes: int = 0

    def add(self, part: "SegmentFacts") -> None:
        """Add a part of the same segment, which lies behind the parts that are here already."""
        self.batches += part.batches
        self.records += part.records
        self.first_offset = min((offset for offset in (self.first_offset, part.first_offset) if offset is not None), default=None)
        self.next_offset = max((offset for offset in (self.next_offset, part.next_offset) if offset is not None), default=None)
        oldest = [time for time in (self.oldest_timestamp_ms, part.oldest_timestamp_ms) if time >= 0]
        self.oldest_timestamp_ms = min(oldest, default=NO_TIMESTAMP)
        self.newest_timestamp_ms = max(self.newest_timestamp_ms, part.newest_timestamp_ms)
        self.value_bytes += part.value_bytes

    @property
    def superseded_bytes(self) -> int:
        """Bytes of the records that a later record with the same key supersedes."""
        return self.value_bytes - self.last_value_bytes


@dataclass(frozen=True, slots=True)
class ProducerFacts:
    """The producers of a partition as columns of one length, by producer id.

    Attributes:
        producer_id: int64, distinct.
        marker_offset, marker_timestamp_ms, marker_epoch, marker_type: of the last marker; -1 where the producer has none.
        highest_epoch: of its data batches; -1 where the producer has none.
        markers: how many markers.
        last_data_offset: of the last data batch, including empty ones; -1 for none.
    """

    producer_id: Ints
    marker_offset: Ints
    marker_timestamp_ms: Ints
    marker_epoch: Ints
    marker_type: Ints
    highest_epoch: Ints
    markers: Ints
    last_data_offset: Ints


@dataclass(slots=True)
class BatchFacts:
    """Counts over all batches of a partition. Bytes are bytes of whole batches in the files.

    ``record_bytes`` counts all data records uncompressed. ``data_horizons_ms`` and ``marker_horizons_ms`` are the delete horizons of data
    batches with records and of control batches, in log order. ``largest_batch_offset`` is -1 without batches.
    """

    batches: int = 0
    bytes: int = 0
    record_bytes: int = 0
    control_batches: int = 0
    control_bytes: int = 0
    empty_data_batches: int = 0
    empty_data_bytes: int = 0
    transactional_batches_with_records: int = 0
    data_horizons_ms: list[int] = field(default_factory=list)
    marker_horizons_ms: list[int] = field(default_factory=list)
    largest_batch_bytes: int = 0
    largest_batch_offset: int = -1

    def add(self, later: "BatchFacts") -> None:
        """Add the batches that follow."""
        for name in _SUMS_OF_BATCHES:
            setattr(self, name, getattr(self, name) + getattr(later, name))
        if later.largest_batch_bytes > self.largest_batch_bytes:
            self.largest_batch_bytes, self.largest_batch_offset = later.largest_batch_bytes, later.largest_batch_offset


_SUMS_OF_BATCHES = [name for name in BatchFacts.__slots__ if not name.startswith("largest_")]
"""Numbers, and lists in the order of the log."""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """What the log of one offsets partition says.

    Attributes:
        segments: all files by base offset, also empty ones.
        log_start_offset, log_end_offset: where the log begins and ends.
        last_stable_offset: the first offset of the oldest open transaction, else the log end offset.
        records: all records, also control records. missing_offsets, holes: offsets without a record, and runs of them. hole_end: where the
            last such run ends; -1 for none.
        newest_timestamp_ms: of all records; -1 for none.
        groups: by group id; empty in a run's report, which carries only group_sums.
        closed_removable_bytes: bytes of the records of all closed segments that cleaning all of these would remove.
        dirty_keys: distinct keys at or above the cleaner's checkpoint, or from the log start without a checkpoint.
        keys: distinct keys in the log.
        begins_late: the first segments are missing, and the broker has not moved the log start offset.
        damages: sentences about files that are damaged or do not fit the segments; what they say is not used.
    """

    offsets_partition: int
    directory: str
    segments: tuple[SegmentFacts, ...]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    records: int
    missing_offsets: int
    holes: int
    hole_end: int
    newest_timestamp_ms: int
    batches: BatchFacts
    groups: dict[str, GroupInLog]
    group_sums: GroupSums
    producers: ProducerFacts
    open_transactions: tuple[OpenTransaction, ...]
    closed_removable_bytes: int
    keys: int
    dirty_keys: int
    checkpoint: int | None
    has_checkpoint_file: bool
    high_watermark: int | None
    damaged_indexes: tuple[str, ...]
    begins_late: bool
    damages: tuple[str, ...]

    @property
    def log_bytes(self) -> int:
        """Bytes of all segment files."""
        return sum(segment.bytes for segment in self.segments)

    @property
    def active_segment_base(self) -> int:
        """Base offset of the last segment, which the broker appends to."""
        return self.segments[-1].base_offset if self.segments else self.log_end_offset


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """The facts of the partitions in one log directory of one broker.

    log_dir: as it may be printed. uri: what opens the directory again; it may hold a password.
    """

    log_dir: str
    uri: str
    files: LogDirectoryFiles
    partitions: tuple[PartitionFacts, ...]


@dataclass(frozen=True, slots=True)
class FilesBeside:
    """The files that a gatherer needs for one partition: from its own directory and from the log directory."""

    partition: PartitionFiles
    log_dir: LogDirectoryFiles
