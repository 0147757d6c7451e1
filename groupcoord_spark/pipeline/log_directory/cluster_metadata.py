"""What the cluster says of itself: topics, settings and rules of access, from ``__cluster_metadata``. Only what counts is decoded."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Records, Segment, read_segment
from groupcoord_spark.log.broker_dir.cluster import GROUP_CONFIG, IGNORED_TYPES, TOPIC_CONFIG, Cluster, TopicLifetime
from groupcoord_spark.log.broker_dir.internal_logs import read_logs, rows_and_gaps
from groupcoord_spark.log.broker_dir.log_directories import LogDirectories
from groupcoord_spark.protocol.slices import Mask
from groupcoord_spark.storage.location import Location
from groupcoord_spark.warehouse.tables import ACLS, GROUP_CONFIGS, TOPIC_CONFIGS, TOPICS

METADATA_TOPIC: Final = "__cluster_metadata"

_SNAPSHOT_NAME: Final = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_SNAPSHOT_FOOTER: Final = 4
"""The type of the control record at the end of a whole snapshot."""


def read_cluster(directories: LogDirectories) -> Cluster:
    """Return the cluster from the newest complete snapshot of its metadata and the records after it.

    If records between the two are missing, only the log itself counts. A damaged place of the log ends the reading; the state is then the
    one before it. Records before the snapshot provide creation times of topics, and deleted topics.
    """
    snapshots = _snapshots(directories)
    cluster, end_offset = Cluster(is_complete=False), 0
    for snapshot_offset, location in snapshots:
        of_snapshot = _read_snapshot(location, directories)
        if of_snapshot is not None:
            cluster, end_offset = of_snapshot, snapshot_offset
            break
    earlier = Cluster(is_complete=False)
    for log, rows in read_logs(directories, METADATA_TOPIC, _tells_of_cluster):
        first_offset = log.log_start_offset or log.first_offset or 0
        if first_offset > end_offset and end_offset:
            gap = f"the log begins at offset {first_offset}, and the newest whole snapshot ends at {end_offset}"
            directories.damage(log.directory, f"{log.directory}: {gap}: the snapshot is not used.")
        if first_offset > end_offset or not end_offset:
            cluster, end_offset = Cluster(is_complete=first_offset == 0), 0
        for row in rows:
            if not isinstance(row, int):
                (cluster if row.record_offset >= end_offset else earlier).add(row.value, row.timestamp_ms)
            elif row > end_offset:
                cluster.is_complete = False
                break
    if earlier.has_unnamed_removals and (oldest := _read_snapshot(snapshots[-1][1], LogDirectories())) is not None:
        earlier.name_removed(oldest)
    cluster.learn_history(earlier)
    if cluster.skipped:
        kinds = ", ".join(f"{count:,} {what}" for what, count in sorted(cluster.skipped.items()))
        directories.damage(METADATA_TOPIC, f"Records of {METADATA_TOPIC} are skipped: {kinds}.")
    return cluster


def _tells_of_cluster(records: Records) -> Mask:
    """Return which records of the metadata log change a topic, a setting or an ACL, or are unknown. The second byte is the record type."""
    values = records.value
    at = np.minimum(values.start + 1, max(len(values.data) - 1, 0))
    return (values.lengths() < 2) | ~np.isin(values.data[at], IGNORED_TYPES)


def _snapshots(directories: LogDirectories) -> list[tuple[int, Location]]:
    """(the offset that a snapshot ends at, its file) of the snapshots in all copies, the newest first."""
    snapshots = []
    for partition in directories.partitions_of(METADATA_TOPIC):
        for info in partition.list():
            if info.type == pafs.FileType.File and (match := _SNAPSHOT_NAME.fullmatch(str(info.base_name))):
                snapshots.append(((int(match[1]), int(match[2])), partition.child(match[0])))
    return [(offset, location) for (offset, _), location in sorted(snapshots, key=lambda snapshot: snapshot[0], reverse=True)]


def _read_snapshot(location: Location, directories: LogDirectories) -> Cluster | None:
    """Return the contents of a snapshot, or None if it is damaged or incomplete, which is reported in ``directories``."""
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
        directories.damage(location.shown, str(error))
        return None
    if not is_whole:
        directories.damage(location.shown, f"{location.shown} is damaged or its end is missing: an older snapshot is looked for.")
        return None
    return cluster


def cluster_tables(cluster: Cluster, topics: Sequence[TopicLifetime]) -> dict[str, pa.Table]:
    """topics, topic_configs, group_configs and acls. topics: ``cluster.topics()``."""
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
