"""Where rows of files, tables or a topic begin and end, before they are read for the run.

The overview contains for each cluster and offsets partition the first and the end offset, sample records for comparing copies, and some
groups, and also lists what the rows lack. It reads only rows that are new since the last run, and those that prove that the log is the
same.
"""

import pickle
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.log import RecordMark, record_crc
from groupcoord_spark.pipeline.plan.evidence import Evidence, group_hashes
from groupcoord_spark.pipeline.plan.incarnations import OffsetsByTime
from groupcoord_spark.pipeline.read.rows import RowSource, position_text
from groupcoord_spark.sources.byte_texts import has_key
from groupcoord_spark.sources.rows import EVERY_INCARNATION, RowBatch, Wanted, of_incarnation

NOTHING_REMEMBERED: Final[Mapping[int, Collection[int]]] = {}

_HASHES: Final = 32


@dataclass(slots=True)
class PartitionOverview:
    """The rows of one offsets partition: number, first and last record offset.

    evidence: the first and the newest data record, those at the offsets that the overview was asked about, and some groups. times: record
    offsets by time, which show where the topic was created again.
    """

    rows: int = 0
    first_offset: int | None = None
    end_offset: int = 0
    evidence: Evidence = field(default_factory=Evidence)
    times: OffsetsByTime = field(default_factory=OffsetsByTime)

    def add(self, other: "PartitionOverview") -> None:
        """Add the overview that another task made of the same partition."""
        self.rows += other.rows
        if other.first_offset is not None and (self.first_offset is None or other.first_offset < self.first_offset):
            self.first_offset = other.first_offset
        self.end_offset = max(self.end_offset, other.end_offset)
        self.evidence = self.evidence.merged(other.evidence)
        self.times.add(other.times)


KEYS_KEPT: Final = 5
TOPICS_NAMED: Final = 3
"""Names of other topics that an overview keeps at most."""


@dataclass(slots=True)
class RowOverview:
    """Facts about rows before they are read. Their size depends on the number of clusters and partitions, not on rows.

    partitions: by cluster (None: the rows name none) and offsets partition. faults: number of rows that are not records. first_fault: the
    sentence about the first of these rows, with its position. topics: the first names, in order, of other topics with rows. counts: as in
    ``RowBatch``. has_key: a data record has a key of the offsets topic. other_keys: some keys, where none is.
    """

    partitions: dict[tuple[str | None, int], PartitionOverview] = field(default_factory=dict)
    faults: int = 0
    first_fault: str | None = None
    other_topics: int = 0
    lacks: frozenset[str] = frozenset()
    topics: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)
    has_key: bool = False
    other_keys: tuple[bytes | None, ...] = ()

    def add_rows(self, batch: RowBatch, offsets: Mapping[int, Collection[int]] = NOTHING_REMEMBERED) -> None:
        """Add a batch of rows. offsets: by offsets partition the record offsets whose records are kept as marks."""
        self.other_topics += batch.other_topics
        self.lacks |= batch.lacks
        self.counts.update(batch.counts)
        self._add_topics(batch.topics)
        rows = batch.rows
        is_fault = rows.column("fault").is_valid()
        faults = int(pc.sum(is_fault).as_py() or 0)
        if faults:
            self.faults += faults
            if self.first_fault is None:
                first = rows.filter(is_fault).slice(0, 1).to_pylist()[0]
                self.first_fault = f"{first['source']}, {position_text(first['source'], first['position'])}: {first['detail']}"
            rows = rows.filter(pc.invert(is_fault))
        if not rows.num_rows:
            return
        if not self.has_key:  # the first key that decodes ends the search
            keys = rows.filter(rows["control_type"].is_null())["key"]
            self.has_key = has_key(key.as_py() for key in keys)
            self.other_keys = (*self.other_keys, *keys.slice(0, KEYS_KEPT).to_pylist())[:KEYS_KEPT]
        places = pa.Table.from_batches([rows]).group_by(["cluster", "offsets_partition"]).aggregate([])
        for cluster, number in zip(places["cluster"].to_pylist(), places["offsets_partition"].to_pylist(), strict=True):
            is_of_cluster = rows["cluster"].is_null() if cluster is None else pc.equal(rows["cluster"], cluster)
            part = rows if len(places) == 1 else rows.filter(pc.and_(is_of_cluster, pc.equal(rows["offsets_partition"], number)))
            data = part.filter(part["control_type"].is_null())
            partition = self.partitions.setdefault((cluster, number), PartitionOverview())
            has_enough = len(partition.evidence.group_hashes) >= _HASHES
            ends = pc.min_max(part["record_offset"]).as_py()
            evidence = _evidence(data, offsets.get(number, ()), 0 if has_enough else _HASHES)
            partition.add(PartitionOverview(part.num_rows, ends["min"], ends["max"] + 1, evidence))
            partition.times.add_rows(part["record_offset"].to_numpy(), part["record_timestamp_ms"].to_numpy(zero_copy_only=False))

    def add(self, other: "RowOverview") -> None:
        """Add the overview that another task made."""
        for name, partition in other.partitions.items():
            self.partitions.setdefault(name, PartitionOverview()).add(partition)
        self.faults += other.faults
        self.first_fault = self.first_fault or other.first_fault
        self.other_topics += other.other_topics
        self.lacks |= other.lacks
        self.counts.update(other.counts)
        self.has_key |= other.has_key
        self.other_keys = (*self.other_keys, *other.other_keys)[:KEYS_KEPT]
        self._add_topics(other.topics)

    def _add_topics(self, names: Collection[str]) -> None:
        if names:
            self.topics = tuple(sorted({*self.topics, *names})[:TOPICS_NAMED])

    def of_clusters(self, cluster: str | None = None) -> dict[int, PartitionOverview]:
        """By offsets partition the overview of the rows of a cluster; None: of all clusters."""
        partitions: dict[int, PartitionOverview] = {}
        for (name, number), partition in self.partitions.items():
            if cluster is None or name == cluster:
                partitions.setdefault(number, PartitionOverview()).add(partition)
        return partitions

    def clusters(self) -> list[str]:
        """Return the cluster names in the rows, sorted."""
        return sorted({cluster for cluster, _ in self.partitions if cluster is not None})


def _evidence(data: pa.RecordBatch, offsets: Collection[int], hashes: int) -> Evidence:
    """Return the first and newest data records, those at ``offsets``, and the groups of ``hashes`` records."""
    if not data.num_rows:
        return Evidence()
    ends = pc.min_max(data.column("record_offset")).as_py()
    wanted = pa.array({ends["min"], ends["max"], *offsets}, pa.int64())
    evidence = Evidence(group_hashes=group_hashes(data["key"].slice(0, hashes).to_pylist()))
    for row in data.filter(pc.is_in(data.column("record_offset"), wanted)).to_pylist():
        mark = RecordMark(row["record_offset"], row["record_timestamp_ms"], record_crc(row["key"], row["value"]))
        evidence = evidence.merged(Evidence(mark, mark, {mark.record_offset: mark} if mark.record_offset in offsets else {}))
    return evidence


def overview_of(
    source: RowSource,
    wanted: Wanted,
    offsets: Mapping[int, Collection[int]] = NOTHING_REMEMBERED,
    begins_ms: Mapping[int, int] = EVERY_INCARNATION,
) -> RowOverview:
    """Return the overview of the wanted rows.

    Args:
        offsets: by offsets partition the record offsets whose records are kept as marks.
        begins_ms: as ``of_incarnation`` takes it.
    """

    def summarize(batches: Iterable[RowBatch]) -> Iterator[pa.RecordBatch]:
        overview = RowOverview()
        for batch in batches:
            overview.add_rows(of_incarnation(batch, begins_ms), offsets)
        yield pa.RecordBatch.from_pydict({"overview": pa.array([pickle.dumps(overview)], pa.binary())})

    overview = RowOverview()
    for row in source.mapped(wanted, summarize, "overview BINARY").collect():
        overview.add(pickle.loads(row.overview))
    return overview
