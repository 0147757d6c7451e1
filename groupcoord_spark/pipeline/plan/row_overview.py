"""Where rows of files, tables or a topic begin and end, before they are read for the run.

The overview has for each cluster and offsets partition the first and the end offset, a few records by which dumps are compared, and some
groups; and what the rows do not contain. Only rows that the last night cannot have read are looked at, with those that show that the log is
still the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.log import RecordMark, record_crc
from groupcoord_spark.pipeline.plan.evidence import Evidence, group_hashes
from groupcoord_spark.pipeline.read.rows import RowSource, position_text
from groupcoord_spark.sources.rows import RowBatch, Wanted

NOTHING_REMEMBERED: Final[Mapping[int, Collection[int]]] = {}

_HASHES: Final = 32


@dataclass(slots=True)
class PartitionOverview:
    """The rows of one offsets partition: number, first and last record offset.

    evidence: the first and the newest data record, those at the offsets that the overview was asked about, and some groups.
    """

    rows: int = 0
    first_offset: int | None = None
    end_offset: int = 0
    evidence: Evidence = field(default_factory=Evidence)

    def add(self, other: PartitionOverview) -> None:
        """Add the overview that another task made of the same partition."""
        self.rows += other.rows
        if other.first_offset is not None and (self.first_offset is None or other.first_offset < self.first_offset):
            self.first_offset = other.first_offset
        self.end_offset = max(self.end_offset, other.end_offset)
        self.evidence = self.evidence.merged(other.evidence)


@dataclass(slots=True)
class RowOverview:
    """What is known about rows before they are read. Its size depends on the number of clusters and partitions, not on rows.

    partitions: by cluster (None: the rows name none) and offsets partition. faults: number of rows that are no records. first_fault: the
    sentence about the first of these rows, with its position.
    """

    partitions: dict[tuple[str | None, int], PartitionOverview] = field(default_factory=dict)
    faults: int = 0
    first_fault: str | None = None
    other_topics: int = 0
    lacks: frozenset[str] = frozenset()

    def add_rows(self, batch: RowBatch, offsets: Mapping[int, Collection[int]] = NOTHING_REMEMBERED) -> None:
        """Add a batch of rows. offsets: by offsets partition the record offsets whose records are kept as marks."""
        self.other_topics += batch.other_topics
        self.lacks |= batch.lacks
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
        places = pa.Table.from_batches([rows]).group_by(["cluster", "offsets_partition"]).aggregate([])
        for cluster, number in zip(places["cluster"].to_pylist(), places["offsets_partition"].to_pylist(), strict=True):
            is_of_cluster = pc.field("cluster").is_null() if cluster is None else pc.field("cluster") == cluster
            part = rows if len(places) == 1 else rows.filter(is_of_cluster & (pc.field("offsets_partition") == number))
            data = part.filter(pc.field("control_type").is_null())
            partition = self.partitions.setdefault((cluster, number), PartitionOverview())
            has_enough = len(partition.evidence.group_hashes) >= _HASHES
            ends = pc.min_max(part["record_offset"]).as_py()
            evidence = _evidence(data, offsets.get(number, ()), 0 if has_enough else _HASHES)
            partition.add(PartitionOverview(part.num_rows, ends["min"], ends["max"] + 1, evidence))

    def add(self, other: RowOverview) -> None:
        """Add the overview that another task made."""
        for name, partition in other.partitions.items():
            self.partitions.setdefault(name, PartitionOverview()).add(partition)
        self.faults += other.faults
        self.first_fault = self.first_fault or other.first_fault
        self.other_topics += other.other_topics
        self.lacks |= other.lacks

    def of_clusters(self, cluster: str | None = None) -> dict[int, PartitionOverview]:
        """By offsets partition the overview of the rows of a cluster; None: of all clusters."""
        partitions: dict[int, PartitionOverview] = {}
        for (name, number), partition in self.partitions.items():
            if cluster is None or name == cluster:
                partitions.setdefault(number, PartitionOverview()).add(partition)
        return partitions

    def clusters(self) -> list[str]:
        """The cluster names in the rows, sorted."""
        return sorted({cluster for cluster, _ in self.partitions if cluster is not None})


def _evidence(data: pa.RecordBatch, offsets: Collection[int], hashes: int) -> Evidence:
    """The first and the newest of the data records, those at ``offsets``, and the groups of so many records."""
    if not data.num_rows:
        return Evidence()
    ends = pc.min_max(data.column("record_offset")).as_py()
    wanted = pa.array({ends["min"], ends["max"], *offsets}, pa.int64())
    evidence = Evidence(group_hashes=group_hashes(data["key"].slice(0, hashes).to_pylist()))
    for row in data.filter(pc.is_in(data.column("record_offset"), wanted)).to_pylist():
        mark = RecordMark(row["record_offset"], row["record_timestamp_ms"], record_crc(row["key"], row["value"]))
        evidence = evidence.merged(Evidence(mark, mark, {mark.record_offset: mark} if mark.record_offset in offsets else {}))
    return evidence


def overview_of(source: RowSource, wanted: Wanted, offsets: Mapping[int, Collection[int]] = NOTHING_REMEMBERED) -> RowOverview:
    """The overview of the wanted rows. offsets: by offsets partition the record offsets whose records are kept as marks."""

    def summarize(batches: Iterable[RowBatch]) -> Iterator[pa.RecordBatch]:
        overview = RowOverview()
        for batch in batches:
            overview.add_rows(batch, offsets)
        yield pa.RecordBatch.from_pydict({"overview": pa.array([pickle.dumps(overview)], pa.binary())})

    overview = RowOverview()
    for row in source.mapped(wanted, summarize, "overview BINARY").collect():
        overview.add(pickle.loads(row.overview))
    return overview
