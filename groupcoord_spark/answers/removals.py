"""Why one group's offsets and the group itself were removed, read from the history tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.answers.offset_history import COMMIT_COLUMNS, lives_of, milliseconds, read_markers
from groupcoord_spark.coordinator.removal_causes import (
    GroupRemoval,
    OffsetRemoval,
    OwnRecord,
    Place,
    is_empty_group,
    removals_of_groups,
    removals_of_offsets,
    topics_to_look_at,
)
from groupcoord_spark.warehouse.read import Warehouse

GROUP_KEYS: Final = (2, 3, 11, 17)
"""Types of the records that are about a group itself: its tombstone is the end of the group."""

_OWN_COLUMNS: Final = (
    *("incarnation", "offsets_partition", "record_offset", "record_timestamp", "group_id", "key_type", "is_tombstone"),
    *("value_version", "value_json"),
)


class Removals(NamedTuple):
    """Every removal that the history has of one group."""

    offsets: Mapping[tuple[Place, int], OffsetRemoval]
    """By place and record offset of the tombstone."""
    groups: Sequence[tuple[OwnRecord, GroupRemoval]]
    """Tombstones of the group itself."""


def removals_of(warehouse: Warehouse, cluster: str, group_id: str, commits: pa.Table, markers: pa.Table) -> Removals:
    """Why the group's offsets and the group were removed.

    commits: the group's rows of offset_commits (``COMMIT_COLUMNS``), markers: of ``read_markers``. Other groups are read only where the
    cause depends on what happened to their offsets of the same topic.
    """
    retention_ms = warehouse.run(cluster).retention_ms
    own = _own_records(warehouse, cluster, [group_id])
    lives = lives_of(commits, markers)
    topics = sorted(topics_to_look_at(lives, own, retention_ms))
    if topics:
        of_topics = warehouse.read("offset_commits", cluster=cluster, columns=COMMIT_COLUMNS, where=[("topic", "in", topics)])
        topic_lives = lives_of(of_topics, read_markers(warehouse, cluster, of_topics))
        groups = {life.group_id for life in topic_lives if life.tombstone_offset is not None}
        of_offsets = removals_of_offsets(lives, _own_records(warehouse, cluster, sorted(groups)), retention_ms, topic_lives)
    else:
        of_offsets = removals_of_offsets(lives, own, retention_ms)
    of_group = removals_of_groups(own, of_offsets.values())
    tombstones = {(record.place, record.record_offset): record for record in own}
    return Removals(of_offsets, [(tombstones[key], removal) for key, removal in of_group.items()])


def _own_records(warehouse: Warehouse, cluster: str, group_ids: Sequence[str]) -> list[OwnRecord]:
    rows = warehouse.read(
        "group_records",
        cluster=cluster,
        columns=_OWN_COLUMNS,
        where=[("group_id", "in", list(group_ids)), ("key_type", "in", list(GROUP_KEYS))],
    )
    times = pc.fill_null(milliseconds(rows["record_timestamp"]), -1).to_pylist()
    return [
        OwnRecord(
            Place(row["incarnation"], row["offsets_partition"]),
            row["record_offset"],
            None if time_ms == -1 else time_ms,
            row["group_id"],
            row["key_type"],
            row["is_tombstone"],
            is_empty_group(row["key_type"], row["value_version"], row["value_json"]),
        )
        for row, time_ms in zip(rows.to_pylist(), times, strict=True)
    ]
