"""The probable causes of the removals of groups and their offsets, from the history tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.answers.offset_history import COMMIT_COLUMNS, lifetimes_of, milliseconds, read_markers
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
from groupcoord_spark.protocol.record_types import GROUP_KEY_TYPES
from groupcoord_spark.warehouse.read import Warehouse

_OWN_COLUMNS: Final = (
    *("incarnation", "offsets_partition", "record_offset", "record_timestamp", "group_id", "key_type", "is_tombstone"),
    *("value_version", "value_json"),
)


class Removals(NamedTuple):
    """All removals of some groups and their offsets in the history tables."""

    offsets: Mapping[tuple[Place, int], OffsetRemoval]
    """(place, record offset) of the tombstone -> cause."""
    groups: Sequence[tuple[OwnRecord, GroupRemoval]]
    """Tombstones of the groups, with their causes."""


def removals_of(warehouse: Warehouse, cluster: str, group_ids: Sequence[str], commits: pa.Table, markers: pa.Table) -> Removals:
    """The causes of all removals of groups and their offsets.

    Records of other groups are read only where a cause depends on their offsets of the same topic.

    Args:
        warehouse: The warehouse.
        cluster: Name of the cluster.
        group_ids: Of the groups.
        commits: The groups' rows of offset_commits (``COMMIT_COLUMNS``).
        markers: From ``read_markers``.
    """
    retention_ms = warehouse.run(cluster).retention_ms
    own = _own_records(warehouse, cluster, group_ids)
    lifetimes = lifetimes_of(commits, markers)
    topics = sorted(topics_to_look_at(lifetimes, own, retention_ms))
    if topics:
        topic_commits = warehouse.read("offset_commits", cluster=cluster, columns=COMMIT_COLUMNS, where=[("topic", "in", topics)])
        topic_lifetimes = lifetimes_of(topic_commits, read_markers(warehouse, cluster, topic_commits))
        groups = {*group_ids, *(lifetime.group_id for lifetime in topic_lifetimes if lifetime.tombstone_offset is not None)}
        offset_removals = removals_of_offsets(lifetimes, _own_records(warehouse, cluster, sorted(groups)), retention_ms, topic_lifetimes)
    else:
        offset_removals = removals_of_offsets(lifetimes, own, retention_ms)
    group_removals = removals_of_groups(own, offset_removals.values())
    tombstones = {(record.place, record.record_offset): record for record in own}
    return Removals(offset_removals, [(tombstones[key], removal) for key, removal in group_removals.items()])


def _own_records(warehouse: Warehouse, cluster: str, group_ids: Sequence[str]) -> list[OwnRecord]:
    """All records of GROUP_KEY_TYPES of these groups."""
    rows = warehouse.read(
        "group_records",
        cluster=cluster,
        columns=_OWN_COLUMNS,
        where=[("group_id", "in", list(group_ids)), ("key_type", "in", sorted(GROUP_KEY_TYPES))],
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
