"""The last stage on the workers: the rows of the state and rule tables are written to Parquet, if small in one file for each table."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.pipeline.exchange.packing import unpack
from groupcoord_spark.pipeline.exchange.state_rows import PARTITION_REPORT, TOPIC_NAMES, PartitionReport
from groupcoord_spark.pipeline.exchange.task_files import TaskFiles


@dataclass(frozen=True, slots=True)
class WriteJob:
    """The same for every writer of a run.

    topic_names: topic id -> name, from the user and the cluster's metadata; they take precedence over names from the log.
    transactional_ids: producer id -> transactional id.
    """

    cluster: str
    warehouse_uri: str
    run_id: str
    topic_names: dict[str, str]
    transactional_ids: dict[int, str] = field(default_factory=dict)


def state_writer(job: WriteJob) -> Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]:
    """The function for mapInArrow: rows of REPLAYED, sorted by place -> one row of WRITTEN."""

    def write(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        topic_names: dict[str, str] = {}
        report_of_files = PartitionReport(offsets_partition=-1)
        reports = [report_of_files]
        with TaskFiles(job.warehouse_uri, job.cluster, job.run_id) as files:
            for batch in batches:
                for kind, payload in zip(batch.column("kind").to_pylist(), batch.column("payload").to_pylist(), strict=True):
                    if kind == PARTITION_REPORT:
                        reports.append(pickle.loads(payload))
                    elif kind == TOPIC_NAMES:
                        topic_names |= pickle.loads(payload)
                    elif kind == "assignments":
                        files.write(kind, _with_topic_names(unpack(payload), topic_names | job.topic_names))
                    elif kind == "pending_offsets":
                        rows = unpack(payload)
                        names = [job.transactional_ids.get(producer_id) for producer_id in rows["producer_id"].to_pylist()]
                        files.write(kind, rows.append_column("transactional_id", pa.array(names, pa.string())))
                    else:
                        files.write(kind, unpack(payload))
            report_of_files.take_files(files.written())
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(reports)], pa.binary())], names=["payload"])

    return write


def _with_topic_names(rows: pa.Table, topic_names: dict[str, str]) -> pa.Table:
    """The same rows, with a topic name where a row has only a topic id and the name is known."""
    ids = rows["topic_id"]
    if ids.null_count == len(ids):
        return rows
    named = pa.array([topic_names.get(topic_id) for topic_id in ids.to_pylist()], pa.string())
    at = rows.schema.get_field_index("topic")
    return rows.set_column(at, "topic", pc.coalesce(rows["topic"], named))
