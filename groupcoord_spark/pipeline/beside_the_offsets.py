"""Read the other contents of the log directories for a run, on the driver.

The high watermarks are a small file. Of the share groups' log and the metadata log, only the newest snapshots and the records after them
are decoded. Each part is optional: a missing part leaves its tables without rows; a damaged part is not used, and a warning reports it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.broker_settings import DeleteRetention
from groupcoord_spark.log.broker_dir.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.broker_dir.cluster import TOPIC_CONFIG
from groupcoord_spark.log.broker_dir.log_directories import LOG_END_COLUMNS, find_log_directories
from groupcoord_spark.log.broker_dir.transaction_states import transaction_states_in
from groupcoord_spark.log.damage import PlacedDoubt
from groupcoord_spark.pipeline.log_directory import cluster_tables, mirror_checkpoints, read_cluster, share_tables
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.protocol.transaction_state import TransactionState
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.warehouse.tables import LOG_ENDS, MIRROR_CHECKPOINTS, TRANSACTIONAL_IDS


@dataclass(frozen=True, slots=True)
class BesideTheOffsets:
    """Contents of the log directories other than the offsets topic.

    tables: table -> rows, in columns as ``Table.from_milliseconds`` takes them. topic_names: topic id -> name.
    transactional_ids: producer id -> transactional id. delete_retention: of the offsets topic; None: the topic has no such setting.
    offsets_partitions: number of partitions of the offsets topic; None: not known. doubts: a warning for each file that is not used.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    topic_names: Mapping[str, str] = field(default_factory=dict)
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    delete_retention: DeleteRetention | None = None
    offsets_partitions: int | None = None
    doubts: tuple[PlacedDoubt, ...] = ()


def read_beside_the_offsets(request: RunRequest, kind: InputKind, run_id: str) -> BesideTheOffsets:
    """Return the rows and warnings of a run. Only a run over segments has log directories; a point-in-time run describes another moment."""
    is_nightly_over_segments = kind is InputKind.SEGMENTS and request.until is None
    directories = find_log_directories(request.inputs if is_nightly_over_segments else ())
    log_ends = _log_ends_of_user(request) if request.log_ends else directories.log_ends()
    cluster = read_cluster(directories)
    topics = list(cluster.topics())
    producers = transaction_states_in(directories).by_producer
    topic_names = {topic.topic_id: topic.name for topic in topics} or directories.topic_names()
    topic_names |= request.topic_names
    tables = {
        LOG_ENDS.name: _sampled(log_ends, request, run_id),
        **cluster_tables(cluster, topics),
        **share_tables(directories, topic_names),
        MIRROR_CHECKPOINTS.name: mirror_checkpoints(directories),
        TRANSACTIONAL_IDS.name: TRANSACTIONAL_IDS.columns_of(_TRANSACTION_COLUMNS.split(), map(_transaction_row, producers.values())),
    }
    transactional_ids = {producer_id: state.transactional_id for producer_id, state in producers.items()}
    doubts = tuple(
        PlacedDoubt("log_directory_file_not_used", damage.sentence, damage.source, None, 0, 0, None) for damage in directories.damages
    )
    if request.log_ends_remark is not None:
        doubts += (PlacedDoubt("end_offsets_not_understood", request.log_ends_remark, "--end-offsets", None, 0, 0, None),)
    set_for_topic = cluster.configs.get((TOPIC_CONFIG, OFFSETS_TOPIC), {}).get("delete.retention.ms", "")
    is_number = re.fullmatch("[0-9]{1,19}", set_for_topic) is not None
    delete_retention = DeleteRetention(int(set_for_topic), "by the cluster's metadata") if is_number else None
    counts = (topic.partition_count for topic in topics if topic.name == OFFSETS_TOPIC and topic.deleted_at_ms is None)
    return BesideTheOffsets(tables, topic_names, transactional_ids, delete_retention, next(counts, None) or None, doubts)


def _log_ends_of_user(request: RunRequest) -> pa.Table:
    """Return the log ends that the user gave or that the brokers returned; they take precedence over checkpoints."""
    rows = [
        (topic, partition, request.log_starts.get((topic, partition)), end_offset, request.log_ends_sampled_at_ms)
        for (topic, partition), end_offset in sorted(request.log_ends.items())
    ]
    columns = [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), LOG_END_COLUMNS, strict=True)]
    return pa.table(columns, schema=LOG_END_COLUMNS)


def _sampled(ends: pa.Table, request: RunRequest, run_id: str) -> pa.Table:
    """Return one sample: all rows carry the time of its newest part, so that a view finds the rows of the newest sample."""
    # Only queried brokers report log start offsets.
    source = "checkpoint" if not request.log_ends else "broker" if request.log_starts else "sample"
    ends = ends.filter(pc.greater_equal(ends["end_offset"], 0))  # clients answer -1 or -1001 for an unknown end
    sampled_at = pc.max(ends["written_at_ms"])
    rows = ends.append_column("sampled_at_ms", pa.chunked_array([pa.repeat(sampled_at, ends.num_rows)], pa.int64()))
    return rows.append_column("source", pa.repeat(source, ends.num_rows)).append_column("run_id", pa.repeat(run_id, ends.num_rows))


_TRANSACTION_COLUMNS: Final = "transactional_id producer_id producer_epoch state transaction_timeout_ms last_update_ms started_at_ms"


def _transaction_row(state: TransactionState) -> tuple[Any, ...]:
    times = state.last_update_timestamp_ms, state.start_timestamp_ms
    return state.transactional_id, state.producer_id, state.producer_epoch, state.state, state.timeout_ms, *times
