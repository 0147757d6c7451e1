"""``rebalances``: how the groups rebalanced, as the frame of the nightly's table of that name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from groupcoord_spark.coordinator.semantics import JAVA, Semantics
from groupcoord_spark.dataframes.partitions import by_offsets_partition
from groupcoord_spark.dataframes.rows_of_tables import PACKED, frame_of, packed
from groupcoord_spark.dataframes.state import named_semantics
from groupcoord_spark.log import Chunk
from groupcoord_spark.pipeline.exchange.kept_records import kept_records
from groupcoord_spark.pipeline.extents import NO_HISTORY
from groupcoord_spark.pipeline.read.decode import decode_chunk
from groupcoord_spark.pipeline.read.history_files import new_group_records
from groupcoord_spark.pipeline.rebalances import LEADER_EPOCH, REBALANCES, PartitionRebalances, RebalanceJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def rebalances(records: DataFrame, *, semantics: Semantics | str = JAVA) -> DataFrame:
    """One row for each new generation of a classic group, and for each new group epoch and target assignment of the others.

    In:  raw records, or what ``decode`` gave of them: all, or those of some groups.
    Out: the columns of the table ``rebalances``; incarnation is 0.
    Raises UsageError for a frame without the columns that are needed, and for unknown ``semantics``.
    """
    rules = named_semantics(semantics)

    def work(cluster: str, offsets_partition: int, chunks: Iterator[Chunk]) -> Iterator[pa.RecordBatch]:
        of_partition = PartitionRebalances(RebalanceJob("", cluster, {}, None), offsets_partition)

        def rows() -> Iterator[pa.Table]:
            for chunk in chunks:
                decoded = decode_chunk(chunk.records, rules)
                wanted = new_group_records(chunk, decoded, NO_HISTORY)
                if len(wanted):
                    group_records = kept_records(chunk.records, wanted, decoded.decodes)
                    yield from of_partition.apply(group_records.append_column(LEADER_EPOCH, pa.array(chunk.leader_epochs(wanted))))
            yield from of_partition.finish()

        for table in rows():
            yield from packed(cluster, offsets_partition, REBALANCES, table)

    return frame_of(by_offsets_partition(records, work, PACKED), REBALANCES)
