"""Positions of share groups from ``__share_group_state``: the newest snapshots and the records after them."""

from collections.abc import Mapping
from typing import Final

import pyarrow as pa

from groupcoord_spark.coordinator.share_state import NOT_KNOWN, ShareStatePartition
from groupcoord_spark.log.broker_dir.internal_logs import read_logs
from groupcoord_spark.log.broker_dir.log_directories import LogDirectories
from groupcoord_spark.warehouse.tables import SHARE_BATCHES, SHARE_OFFSETS
from groupcoord_spark.wording import counted

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
