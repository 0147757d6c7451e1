"""Reads for a night what lies in the log directories beside ``__consumer_offsets``, on the driver.

The high watermarks are a small file. Of the share groups' log and of the metadata log only what counts is decoded: the newest snapshots and
what follows them. Each part is optional: what is missing leaves its tables without rows, what is damaged is not used and a warning says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.coordinator.broker_settings import DeleteRetention
from groupcoord_spark.coordinator.cluster import GROUP_CONFIG, IGNORED_TYPES, TOPIC_CONFIG, Cluster, TopicLifetime
from groupcoord_spark.coordinator.share_state import NOT_KNOWN, ShareStatePartition
from groupcoord_spark.doctor import read_transaction_states
from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Records, Segment, read_segment
from groupcoord_spark.log.damage import PlacedDoubt
from groupcoord_spark.log.files.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.files.storage import Location, shown
from groupcoord_spark.pipeline.run import RunRequest
from groupcoord_spark.protocol.slices import Mask
from groupcoord_spark.protocol.transaction_state import TransactionState
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.sources.log_directory import (
    LOG_END_COLUMNS,
    DamagedFile,
    LogDirectory,
    find_log_directories,
    names_beside_partitions,
    read_log_ends,
    read_other_topic,
    rows_and_gaps,
)
from groupcoord_spark.warehouse.tables import (
    ACLS,
    GROUP_CONFIGS,
    LOG_ENDS,
    SHARE_BATCHES,
    SHARE_OFFSETS,
    TOPIC_CONFIGS,
    TOPICS,
    TRANSACTIONAL_IDS,
)
from groupcoord_spark.wording import counted

SHARE_STATE_TOPIC: Final = "__share_group_state"
METADATA_TOPIC: Final = "__cluster_metadata"
TRANSACTION_TOPIC: Final = "__transaction_state"

_SNAPSHOT_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_SNAPSHOT_FOOTER: Final = 4
"""The type of the control record at the end of a whole snapshot."""


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
    damages: list[DamagedFile] = []
    directories = []
    if kind is InputKind.SEGMENTS and request.until is None:
        try:
            directories = find_log_directories(request.inputs)
        except InputError as error:
            damages.append(DamagedFile(", ".join(map(shown, request.inputs)), str(error)))
    log_ends = _log_ends_of_user(request) if request.log_ends else _sampled(read_log_ends(directories, damages), "checkpoint")
    cluster = _read_cluster(directories, damages)
    producers = _read_producers(directories, damages)
    topics = list(cluster.topics())
    named = {topic.topic_id: topic.name for topic in topics} or names_beside_partitions(directories)
    topic_names = named | dict(request.topic_names)
    tables = {
        LOG_ENDS.name: log_ends.append_column("run_id", pa.repeat(run_id, log_ends.num_rows)),
        **_cluster_tables(cluster, topics),
        **_share_tables(directories, topic_names, damages),
        TRANSACTIONAL_IDS.name: TRANSACTIONAL_IDS.columns_of(_TRANSACTION_COLUMNS.split(), map(_transaction_row, producers.values())),
    }
    transactional_ids = {producer_id: state.transactional_id for producer_id, state in producers.items()}
    doubts = tuple(PlacedDoubt("log_directory_file_not_used", damage.sentence, damage.source, None, 0, 0, None) for damage in damages)
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
    # Only brokers that are asked tell where logs begin.
    source = "broker" if request.log_starts else "sample"
    return _sampled(pa.table(columns, schema=LOG_END_COLUMNS), source)


def _sampled(ends: pa.Table, source: str) -> pa.Table:
    """One sample: the moment of its newest part stands in all of its rows, so that a view finds the rows of the newest sample."""
    sampled_at = pc.max(ends["written_at_ms"])
    rows = ends.append_column("sampled_at_ms", pa.chunked_array([pa.repeat(sampled_at, ends.num_rows)], pa.int64()))
    return rows.append_column("source", pa.repeat(source, ends.num_rows))


def _share_tables(directories: Sequence[LogDirectory], topic_names: Mapping[str, str], damages: list[DamagedFile]) -> dict[str, pa.Table]:
    """share_offsets and share_batches, from ``__share_group_state``."""
    offsets, batches = [], []
    for log, chunks in read_other_topic(directories, SHARE_STATE_TOPIC, damages):
        replay = ShareStatePartition()
        for row in rows_and_gaps(chunks):
            if isinstance(row, int):
                replay.lose_records()
            else:
                replay.add(row.record_offset, row.key, row.value, row.timestamp_ms)
        for place, state, record_offset, timestamp_ms in replay.states():
            name = topic_names.get(place.topic_id)
            times = (state.create_timestamp_ms or None, state.write_timestamp_ms or None, timestamp_ms)
            epochs = (state.state_epoch, state.leader_epoch, state.snapshot_epoch)
            numbers = (None if number == NOT_KNOWN else number for number in (state.start_offset, state.delivery_complete_count))
            offsets.append((*place, name, *numbers, *epochs, *times, log.offsets_partition, record_offset))
            batches += [(*place, name, *batch) for batch in state.batches]
        if replay.undecoded:
            undecoded = counted(replay.undecoded, "record")
            sentence = f"{log.directory}: the share partitions of {undecoded} that cannot be decoded are left out."
            damages.append(DamagedFile(log.directory, sentence))
    key = "group_id topic_id partition topic "
    columns = "start_offset delivery_complete_count state_epoch leader_epoch snapshot_epoch created_at_ms written_at_ms record_timestamp_ms"
    return {
        SHARE_OFFSETS.name: SHARE_OFFSETS.columns_of((key + columns + " state_partition record_offset").split(), offsets),
        SHARE_BATCHES.name: SHARE_BATCHES.columns_of((key + "first_offset last_offset delivery_state delivery_count").split(), batches),
    }


_TRANSACTION_COLUMNS: Final = "transactional_id producer_id producer_epoch state transaction_timeout_ms last_update_ms started_at_ms"


def _transaction_row(state: TransactionState) -> tuple[Any, ...]:
    times = state.last_update_timestamp_ms, state.start_timestamp_ms
    return state.transactional_id, state.producer_id, state.producer_epoch, state.state, state.timeout_ms, *times


def _read_producers(directories: Sequence[LogDirectory], damages: list[DamagedFile]) -> Mapping[int, TransactionState]:
    """Producer id -> what the coordinator of transactions knows of it, from ``__transaction_state``."""
    try:
        return read_transaction_states(directory.location for directory in directories).by_producer
    except InputError as error:
        damages.append(DamagedFile(TRANSACTION_TOPIC, str(error)))
        return {}


def _read_cluster(directories: Sequence[LogDirectory], damages: list[DamagedFile]) -> Cluster:
    """The cluster by the newest whole snapshot of its metadata and the records of the log from there on.

    Where records between the two are missing, only what the log itself tells is known. A damaged place of the log ends the reading: what is
    known then is as of the moment before. Records before the snapshot tell when topics were made, and which ones were deleted.
    """
    snapshots = _snapshots(directories)
    cluster, end_offset = Cluster(is_complete=False), 0
    for snapshot_offset, location in snapshots:
        of_snapshot = _read_snapshot(location, damages)
        if of_snapshot is not None:
            cluster, end_offset = of_snapshot, snapshot_offset
            break
    earlier = Cluster(is_complete=False)
    for log, chunks in read_other_topic(directories, METADATA_TOPIC, damages):
        first_offset = log.log_start_offset or log.first_offset or 0
        if first_offset > end_offset and end_offset:
            gap = f"the log begins at offset {first_offset}, and the newest whole snapshot ends at {end_offset}"
            damages.append(DamagedFile(log.directory, f"{log.directory}: {gap}: the snapshot is not used."))
        if first_offset > end_offset or not end_offset:
            cluster, end_offset = Cluster(is_complete=first_offset == 0), 0
        for row in rows_and_gaps(chunks, _tells_of_cluster):
            if not isinstance(row, int):
                (cluster if row.record_offset >= end_offset else earlier).add(row.value, row.timestamp_ms)
            elif row > end_offset:
                cluster.is_complete = False
                break
    if earlier.has_unnamed_removals and (oldest := _read_snapshot(snapshots[-1][1], [])) is not None:
        earlier.name_removed(oldest)
    cluster.learn_history(earlier)
    if cluster.skipped:
        kinds = ", ".join(f"{count:,} {what}" for what, count in sorted(cluster.skipped.items()))
        damages.append(DamagedFile(METADATA_TOPIC, f"Records of {METADATA_TOPIC} are skipped: {kinds}."))
    return cluster


def _tells_of_cluster(records: Records) -> Mask:
    """Which records of the metadata log change a topic, a setting or a rule, or are not known: the second byte is the record type."""
    values = records.value
    at = np.minimum(values.start + 1, max(len(values.data) - 1, 0))
    return (values.lengths() < 2) | ~np.isin(values.data[at], IGNORED_TYPES)


def _snapshots(directories: Iterable[LogDirectory]) -> list[tuple[int, Location]]:
    """(the offset that a snapshot ends at, its file) of the snapshots in all copies, the newest first."""
    snapshots = []
    for directory in directories:
        for _, place in directory.partitions_of(METADATA_TOPIC):
            for info in place.list():
                if match := _SNAPSHOT_NAME.fullmatch(str(info.base_name)):
                    snapshots.append(((int(match[1]), int(match[2])), place.child(match[0])))
    return [(offset, location) for (offset, _), location in sorted(snapshots, key=lambda snapshot: snapshot[0], reverse=True)]


def _read_snapshot(location: Location, damages: list[DamagedFile]) -> Cluster | None:
    """What a snapshot tells; None where it is damaged or its end is missing."""
    cluster, is_whole = Cluster(is_complete=True), False
    try:
        for chunk in read_segment(Segment(location.uri, int(location.info().size), 0, 0)):
            is_whole = not chunk.lost and _SNAPSHOT_FOOTER in chunk.records.control_type
            for row in rows_and_gaps([chunk]):
                if not isinstance(row, int):
                    cluster.add(row.value, None)
            if chunk.lost:
                break
    except InputError as error:
        damages.append(DamagedFile(location.shown, str(error)))
        return None
    if not is_whole:
        damages.append(DamagedFile(location.shown, f"{location.shown} is damaged or its end is missing: an older snapshot is looked for."))
        return None
    return cluster


def _cluster_tables(cluster: Cluster, topics: Sequence[TopicLifetime]) -> dict[str, pa.Table]:
    """topics, topic_configs, group_configs and acls."""
    rows_of_topics = [(*topic, topic.deleted_at_ms is not None, cluster.is_complete) for topic in topics]
    existing = {topic.name for topic in topics if topic.deleted_at_ms is None}
    of_topics, of_groups = (
        [(name, *setting) for (kind, name), settings in cluster.configs.items() if kind == wanted for setting in settings.items()]
        for wanted in (TOPIC_CONFIG, GROUP_CONFIG)
    )
    of_topics = [row for row in of_topics if row[0] in existing]
    acls = "resource_type resource_name pattern_type principal host operation permission"
    of_topic = "topic_id topic partition_count created_at_ms deleted_at_ms is_deleted all_topics_known"
    return {
        TOPICS.name: TOPICS.columns_of(of_topic.split(), rows_of_topics),
        TOPIC_CONFIGS.name: TOPIC_CONFIGS.columns_of(["topic", "name", "value"], of_topics),
        GROUP_CONFIGS.name: GROUP_CONFIGS.columns_of(["group_id", "name", "value"], of_groups),
        ACLS.name: ACLS.columns_of(acls.split(), sorted(set(cluster.acls.values()))),
    }
