"""Tables from the logs next to the offsets topic.

``__cluster_metadata``: topics, settings and rules of access; only what counts is decoded. MirrorMaker's checkpoints: translated offsets of
other clusters' groups. ``__share_group_state``: positions of share groups, from the newest snapshots and the records after them.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from groupcoord_spark.coordinator.share_state import NOT_KNOWN, ShareStatePartition
from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Records, Segment, read_segment
from groupcoord_spark.log.broker_dir.cluster import GROUP_CONFIG, IGNORED_TYPES, TOPIC_CONFIG, Cluster, TopicLifetime
from groupcoord_spark.log.broker_dir.internal_logs import read_logs, rows_and_gaps
from groupcoord_spark.log.broker_dir.log_directories import LogDirectories
from groupcoord_spark.protocol import DecodeError
from groupcoord_spark.protocol.mirror_maker import CHECKPOINTS_TOPIC, decode_mirror_key, decode_mirror_value
from groupcoord_spark.protocol.slices import Mask
from groupcoord_spark.storage.location import Location
from groupcoord_spark.warehouse.tables import ACLS, GROUP_CONFIGS, MIRROR_CHECKPOINTS, SHARE_BATCHES, SHARE_OFFSETS, TOPIC_CONFIGS, TOPICS
from groupcoord_spark.wording import counted

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


_CHECKPOINT_COLUMNS = (
    "source_alias group_id topic partition upstream_offset downstream_offset metadata record_timestamp_ms checkpoints_topic record_offset"
)


def mirror_checkpoints(directories: LogDirectories) -> pa.Table:
    """Return mirror_checkpoints. MirrorMaker's client reads partition 0 alone, and skips records that cannot be decoded."""
    topics = {topic for directory in directories.directories for topic, number in directory.partitions if number == 0}
    rows = [row for topic in sorted(topics) if CHECKPOINTS_TOPIC.fullmatch(topic) for row in _checkpoints_of(topic, directories)]
    return MIRROR_CHECKPOINTS.columns_of(_CHECKPOINT_COLUMNS.split(), rows)


def _checkpoints_of(topic: str, directories: LogDirectories) -> list[tuple[Any, ...]]:
    match = CHECKPOINTS_TOPIC.fullmatch(topic)
    assert match is not None
    last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    names: tuple[Any, ...]
    values: tuple[Any, ...]
    undecoded = 0
    for log, records in read_logs(directories, topic, _may_be_last):
        for record in records if log.offsets_partition == 0 else ():
            if isinstance(record, int):
                continue
            place = record.timestamp_ms, topic, record.record_offset
            try:
                # Java's client fails at a null value, and at a null key once it has decoded the value.
                value = None if record.value is None else decode_mirror_value(topic, record.value)
                key = None if value is None or record.key is None else decode_mirror_key(topic, record.key)
            except DecodeError:
                undecoded += 1
                continue
            if key is None or value is None:
                names, values = (), (None,) * 6
            elif value["downstream_offset"] < 0:  # no OffsetAndMetadata has a negative offset
                names, values = (key["group_id"],), (key["group_id"], *(None,) * 5)
            else:
                names = key["group_id"], key["topic"], key["partition"]
                values = (*names, *value.values())
            last[names] = (match["alias"], *values, *place)
        if undecoded:
            sentence = f"{log.directory}: {counted(undecoded, 'record')} cannot be decoded. MirrorMaker's client skips such records."
            directories.damage(log.directory, sentence)
    return list(last.values())


def _may_be_last(records: Records) -> Mask:
    """Return the mask of the records that may be the last of their key, and of those that are not ordinary checkpoints."""
    key_code, _ = records.distinct_keys()
    value = records.value
    has_head = ~value.is_null & (value.lengths() >= 20)
    at = np.where(has_head, value.start + 18, 0)
    # the length of the metadata, an int16 behind the version and both offsets
    length = (value.data[at].astype(np.int64) << 8 | value.data[at + 1]) if len(value.data) > 1 else np.zeros(len(records), np.int64)
    # a negative downstream offset counts too, also when a later record has its key
    is_whole = (
        has_head
        & (value.data[np.where(has_head, value.start + 10, 0)] < 128 if len(value.data) else has_head)
        & (length < 2**15)
        & (value.lengths() >= 20 + length)
        & (key_code >= 0)
    )
    newest = np.zeros(len(records), np.bool_)
    rows = np.flatnonzero(is_whole)[::-1]
    newest[rows[np.unique(key_code[rows], return_index=True)[1]]] = True
    return newest | ~is_whole


SHARE_STATE_TOPIC: Final = "__share_group_state"


def share_tables(directories: LogDirectories, topic_names: Mapping[str, str]) -> dict[str, pa.Table]:
    """share_offsets and share_batches, from ``__share_group_state``."""
    offsets, batches = [], []
    for log, rows in read_logs(directories, SHARE_STATE_TOPIC):
        replay = ShareStatePartition()
        for row in rows:
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
            directories.damage(log.directory, sentence)
    key = "group_id topic_id partition topic "
    columns = "start_offset delivery_complete_count state_epoch leader_epoch snapshot_epoch created_at_ms written_at_ms record_timestamp_ms"
    return {
        SHARE_OFFSETS.name: SHARE_OFFSETS.columns_of((key + columns + " state_partition record_offset").split(), offsets),
        SHARE_BATCHES.name: SHARE_BATCHES.columns_of((key + "first_offset last_offset delivery_state delivery_count").split(), batches),
    }
