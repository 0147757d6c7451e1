"""Reads for a night what lies in the log directories beside ``__consumer_offsets``, on the driver.

The high watermarks are a small file. Of the share groups' log and of the metadata log only what counts is decoded: the newest snapshots and
what follows them. Each part is optional: what is missing leaves its tables without rows, what is damaged is not used and a warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.broker_settings import DeleteRetention
from groupcoord_spark.coordinator.cluster import TOPIC_CONFIG
from groupcoord_spark.doctor import read_transaction_states
from groupcoord_spark.errors import InputError
from groupcoord_spark.log.damage import PlacedDoubt
from groupcoord_spark.log.files.broker_files import OFFSETS_TOPIC
from groupcoord_spark.pipeline.log_directory.cluster_metadata import cluster_tables, read_cluster
from groupcoord_spark.pipeline.log_directory.share_groups import share_tables
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.protocol.transaction_state import TransactionState
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.sources.log_directory import LOG_END_COLUMNS, find_log_directories
from groupcoord_spark.warehouse.tables import LOG_ENDS, TRANSACTIONAL_IDS

TRANSACTION_TOPIC: Final = "__transaction_state"


@dataclass(frozen=True, slots=True)
class BesideTheOffsets:
    """What a night found beside the offsets topic.

    tables: table -> rows, in columns as ``Table.from_milliseconds`` takes them. topic_names: topic id -> name.
    transactional_ids: producer id -> transactional id. delete_retention: of the offsets topic; None: the topic has no such setting.
    doubts: a warning for each file that is not used.
    """

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    topic_names: Mapping[str, str] = field(default_factory=dict)
    transactional_ids: Mapping[int, str] = field(default_factory=dict)
    delete_retention: DeleteRetention | None = None
    doubts: tuple[PlacedDoubt, ...] = ()


def read_beside_the_offsets(request: RunRequest, kind: InputKind, run_id: str) -> BesideTheOffsets:
    """The rows and warnings of a run. Only a night over segments has log directories; a look-back is about another moment."""
    is_night_over_segments = kind is InputKind.SEGMENTS and request.until is None
    directories = find_log_directories(request.inputs if is_night_over_segments else ())
    log_ends = _log_ends_of_user(request) if request.log_ends else directories.log_ends()
    cluster = read_cluster(directories)
    topics = list(cluster.topics())
    try:
        producers = read_transaction_states(directory.location for directory in directories.directories).by_producer
    except InputError as error:
        directories.damage(TRANSACTION_TOPIC, str(error))
        producers = {}
    topic_names = {topic.topic_id: topic.name for topic in topics} or directories.topic_names()
    topic_names |= request.topic_names
    tables = {
        LOG_ENDS.name: _sampled(log_ends, request, run_id),
        **cluster_tables(cluster, topics),
        **share_tables(directories, topic_names),
        TRANSACTIONAL_IDS.name: TRANSACTIONAL_IDS.columns_of(_TRANSACTION_COLUMNS.split(), map(_transaction_row, producers.values())),
    }
    transactional_ids = {producer_id: state.transactional_id for producer_id, state in producers.items()}
    doubts = tuple(
        PlacedDoubt("log_directory_file_not_used", damage.sentence, damage.source, None, 0, 0, None) for damage in directories.damages
    )
    set_for_topic = cluster.configs.get((TOPIC_CONFIG, OFFSETS_TOPIC), {}).get("delete.retention.ms", "")
    delete_retention = DeleteRetention(int(set_for_topic), "by the cluster's metadata") if set_for_topic.isdecimal() else None
    return BesideTheOffsets(tables, topic_names, transactional_ids, delete_retention, doubts)


def _log_ends_of_user(request: RunRequest) -> pa.Table:
    """The sample that the user gave, or let the run ask the brokers for: it wins over checkpoints."""
    rows = [
        (topic, partition, request.log_starts.get((topic, partition)), end_offset, request.log_ends_sampled_at_ms)
        for (topic, partition), end_offset in sorted(request.log_ends.items())
    ]
    columns = [pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), LOG_END_COLUMNS, strict=True)]
    return pa.table(columns, schema=LOG_END_COLUMNS)


def _sampled(ends: pa.Table, request: RunRequest, run_id: str) -> pa.Table:
    """One sample: the moment of its newest part stands in all of its rows, so that a view finds the rows of the newest sample."""
    # Only brokers that are asked tell where logs begin.
    source = "checkpoint" if not request.log_ends else "broker" if request.log_starts else "sample"
    sampled_at = pc.max(ends["written_at_ms"])
    rows = ends.append_column("sampled_at_ms", pa.chunked_array([pa.repeat(sampled_at, ends.num_rows)], pa.int64()))
    return rows.append_column("source", pa.repeat(source, ends.num_rows)).append_column("run_id", pa.repeat(run_id, ends.num_rows))


_TRANSACTION_COLUMNS: Final = "transactional_id producer_id producer_epoch state transaction_timeout_ms last_update_ms started_at_ms"


def _transaction_row(state: TransactionState) -> tuple[Any, ...]:
    times = state.last_update_timestamp_ms, state.start_timestamp_ms
    return state.transactional_id, state.producer_id, state.producer_epoch, state.state, state.timeout_ms, *times
