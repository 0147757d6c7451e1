"""The last stage on the workers: the rows of the state and rule tables are written to Parquet, if small in one file for each table."""

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.log.partition_count import KAFKAS_DEFAULT, PartitionCount
from groupcoord_spark.pipeline.exchange.packing import unpack
from groupcoord_spark.pipeline.exchange.state_rows import PARTITION_REPORT, PLACED_GROUPS, TABLES_OF_GROUPS, TOPIC_NAMES, PartitionReport
from groupcoord_spark.pipeline.exchange.task_files import TaskFiles
from groupcoord_spark.pipeline.replay.reachable_groups import ReachableGroups


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The same for every writer of a run.

    topic_names: topic id -> name, from the user and the cluster's metadata; they take precedence over names from the log.
    transactional_ids: producer id -> transactional id. partition_count: of ``__consumer_offsets``.
    """

    cluster: str
    warehouse_uri: str
    run_id: str
    topic_names: dict[str, str]
    transactional_ids: dict[int, str] = field(default_factory=dict)
    partition_count: PartitionCount = field(default_factory=lambda: PartitionCount(KAFKAS_DEFAULT))


def state_writer(job: WriteJob) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """Return the function for mapInArrow: rows of REPLAYED, sorted by place -> one row of WRITTEN."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        topic_names: dict[str, str] = {}
        reports: dict[int, PartitionReport] = {}
        # Lines that are not records are in partition -1, which has a report of its own.
        report_of_files = PartitionReport(offsets_partition=-1)
        groups = ReachableGroups(job.partition_count)
        with TaskFiles(job.warehouse_uri, job.cluster, job.run_id) as files:
            for batch in batches:
                for place, kind, payload in zip(*(batch.column(name).to_pylist() for name in ("place", "kind", "payload")), strict=True):
                    if kind == PARTITION_REPORT:
                        report = pickle.loads(payload)
                        reports[report.offsets_partition] = report
                    elif kind == TOPIC_NAMES:
                        topic_names |= pickle.loads(payload)
                    elif kind == PLACED_GROUPS:
                        groups.add(pickle.loads(payload))
                    elif kind in TABLES_OF_GROUPS:
                        rows = groups.of_clients(kind, unpack(payload), place, reports)
                        if kind == "assignments":
                            rows = _with_topic_names(rows, topic_names | job.topic_names)
                        elif kind == "pending_offsets":
                            names = [job.transactional_ids.get(producer_id) for producer_id in rows["producer_id"].to_pylist()]
                            rows = rows.append_column("transactional_id", pa.array(names, pa.string()))
                        files.write(kind, rows)
                    else:
                        files.write(kind, unpack(payload))
            if (warnings := groups.warnings(reports)).num_rows:
                files.write("warnings", warnings)
            report_of_files.take_files(files.written())
        report_of_files.partition_counts = groups.counts
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps([report_of_files, *reports.values()])], pa.binary())], names=["payload"])

    return write


def _with_topic_names(rows: pa.Table, topic_names: dict[str, str]) -> pa.Table:
    """Fill in known topic names for rows that have only a topic id."""
    ids = rows["topic_id"]
    if ids.null_count == len(ids):
        return rows
    named = pa.array([topic_names.get(topic_id) for topic_id in ids.to_pylist()], pa.string())
    at = rows.schema.get_field_index("topic")
    return rows.set_column(at, "topic", pc.coalesce(rows["topic"], named))
