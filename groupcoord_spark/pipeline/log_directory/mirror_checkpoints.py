"""Translated offsets of other clusters' groups, from the checkpoints that MirrorMaker keeps in the log directory."""

from typing import Any

import numpy as np
import pyarrow as pa

from groupcoord_spark.log import Records
from groupcoord_spark.log.broker_dir.internal_logs import read_logs
from groupcoord_spark.log.broker_dir.log_directories import LogDirectories
from groupcoord_spark.protocol import DecodeError
from groupcoord_spark.protocol.mirror_maker import CHECKPOINTS_TOPIC, decode_mirror_key, decode_mirror_value
from groupcoord_spark.protocol.slices import Mask
from groupcoord_spark.warehouse.tables import MIRROR_CHECKPOINTS
from groupcoord_spark.wording import counted

_COLUMNS = (
    "source_alias group_id topic partition upstream_offset downstream_offset metadata record_timestamp_ms checkpoints_topic record_offset"
)


def mirror_checkpoints(directories: LogDirectories) -> pa.Table:
    """Return mirror_checkpoints. MirrorMaker's client reads partition 0 alone, and skips records that cannot be decoded."""
    topics = {topic for directory in directories.directories for topic, number in directory.partitions if number == 0}
    rows = [row for topic in sorted(topics) if CHECKPOINTS_TOPIC.fullmatch(topic) for row in _rows(topic, directories)]
    return MIRROR_CHECKPOINTS.columns_of(_COLUMNS.split(), rows)


def _rows(topic: str, directories: LogDirectories) -> list[tuple[Any, ...]]:
    match = CHECKPOINTS_TOPIC.fullmatch(topic)
    assert match is not None
    last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    names: tuple[Any, ...]
    values: tuple[Any, ...]
    undecoded = 0
    for log, records in read_logs(directories, topic, _may_count):
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


def _may_count(records: Records) -> Mask:
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
