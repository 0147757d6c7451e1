"""The probable causes of the removals of groups and their offsets, from the history tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.answers.offset_history import COMMIT_COLUMNS, lifetimes_of, milliseconds, read_markers
from groupcoord_spark.answers.removal_causes import (
    GroupRemoval,
    OffsetRemoval,
    OwnRecord,
    Place,
    is_empty_group,
    removals_of_groups,
    removals_of_offsets,
    topics_to_look_at,
)
from groupcoord_spark.answers.subscribers import KEY_TYPES, Subscribers
from groupcoord_spark.answers.timeline import iso
from groupcoord_spark.protocol.record_types import GROUP_KEY_TYPES
from groupcoord_spark.warehouse.read import Warehouse

_OWN_COLUMNS: Final = (
    *("incarnation", "offsets_partition", "record_offset", "record_timestamp", "group_id", "key_type", "is_tombstone"),
    *("value_version", "value_json"),
)


_CLOCKS_DIFFER_MS: Final = 1_000
"""By so much the controller's clock may be ahead of the group coordinator's."""


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
    run = warehouse.run(cluster)
    retention_ms, at_once = run.retention_ms, run.semantics == "scala"
    own = _own_records(warehouse, cluster, group_ids)
    lifetimes = lifetimes_of(commits, markers)
    topics = sorted(topics_to_look_at(lifetimes, own, retention_ms, groups_go_with_offsets=at_once))
    if topics:
        topic_commits = warehouse.read("offset_commits", cluster=cluster, columns=COMMIT_COLUMNS, where=[("topic", "in", topics)])
        topic_lifetimes = lifetimes_of(topic_commits, read_markers(warehouse, cluster, topic_commits))
        groups = {*group_ids, *(lifetime.group_id for lifetime in topic_lifetimes if lifetime.tombstone_offset is not None)}
        of_groups = _own_records(warehouse, cluster, sorted(groups))
        offset_removals = removals_of_offsets(lifetimes, of_groups, retention_ms, topic_lifetimes, groups_go_with_offsets=at_once)
    else:
        offset_removals = removals_of_offsets(lifetimes, own, retention_ms, groups_go_with_offsets=at_once)
    offset_removals = _with_deleted_topics(warehouse, cluster, _with_subscribers(warehouse, cluster, offset_removals))
    group_removals = removals_of_groups(own, offset_removals.values())
    tombstones = {(record.place, record.record_offset): record for record in own}
    return Removals(offset_removals, [(tombstones[key], removal) for key, removal in group_removals.items()])


def _with_subscribers(
    warehouse: Warehouse, cluster: str, removals: Mapping[tuple[Place, int], OffsetRemoval]
) -> dict[tuple[Place, int], OffsetRemoval]:
    """The removals; an offset of a topic that a member subscribed to was removed with the topic.

    By its age a cleanup could have taken such an offset, but cleanups spare the topics of members (X-B3, X-C1), and DeleteGroups and
    OffsetDelete are refused (NON_EMPTY_GROUP, GROUP_SUBSCRIBED_TO_TOPIC). SQL cannot read subscriptions, so the view ``tombstone_causes``
    says expiry there.
    """
    by_age = {key: removal for key, removal in removals.items() if removal.cause == "expiry" and removal.lifetime.expire_ms is None}
    if not by_age:
        return dict(removals)
    rows = warehouse.read(
        "group_records",
        cluster=cluster,
        columns=("incarnation", "offsets_partition", "record_offset", "group_id", "key_type", "key_json", "value_json"),
        where=[("group_id", "in", sorted({removal.lifetime.group_id for removal in by_age.values()})), ("key_type", "in", list(KEY_TYPES))],
    )
    records: dict[tuple[Place, str], list[Mapping[str, Any]]] = {}
    for row in rows.sort_by("record_offset").to_pylist() if rows.num_rows else ():
        records.setdefault((Place(row["incarnation"], row["offsets_partition"]), row["group_id"]), []).append(row)
    expired: dict[tuple[Place, str], list[int]] = {}
    for (place, tombstone_offset), removal in by_age.items():
        expired.setdefault((place, removal.lifetime.group_id), []).append(tombstone_offset)
    checked = dict(removals)
    for (place, group_id), tombstone_offsets in expired.items():
        for tombstone_offset in _of_subscribed_topics(place, sorted(tombstone_offsets), records.get((place, group_id), ()), by_age):
            key = place, tombstone_offset
            checked[key] = checked[key]._replace(cause="topic_deletion", had_subscriber=True)
    return checked


def _with_deleted_topics(
    warehouse: Warehouse, cluster: str, removals: Mapping[tuple[Place, int], OffsetRemoval]
) -> dict[tuple[Place, int], OffsetRemoval]:
    """The removals; where the cluster's metadata shows that the topic was deleted while the offset was there, that was the cause.

    The coordinator removes all offsets of a topic when it learns of the deletion. Where the metadata tells no time, but that the topic with
    these offsets is no more, it confirms what the records of the offsets topic suggest.
    """
    topics = warehouse.read("topics", cluster=cluster, columns=("topic", "is_deleted", "created_at", "deleted_at", "all_topics_known"))
    if not removals or not topics.num_rows:
        return dict(removals)
    deleted: dict[str, list[int]] = {}
    created: dict[str, int | None] = {}
    times = [pc.fill_null(milliseconds(topics[name]), -1).to_pylist() for name in ("created_at", "deleted_at")]
    for row, created_ms, deleted_ms in zip(topics.to_pylist(), *times, strict=True):
        if row["is_deleted"]:
            deleted.setdefault(row["topic"], []).append(deleted_ms)
        else:
            created[row["topic"]] = None if created_ms < 0 else created_ms
    all_known = bool(pc.all(topics["all_topics_known"]).as_py())

    def clause(removal: OffsetRemoval) -> str | None:
        topic, gone_ms, commit_ms = removal.lifetime.topic, removal.lifetime.gone_ms, removal.lifetime.commit_ms
        if gone_ms is not None and commit_ms is not None:
            for deleted_ms in deleted.get(topic, ()):
                if commit_ms <= deleted_ms <= gone_ms + _CLOCKS_DIFFER_MS:
                    return f"the cluster's metadata has its deletion at {iso(deleted_ms)}"
        if removal.cause != "topic_deletion":
            return None
        if all_known and topic not in created:
            return "by the cluster's metadata it does not exist any more"
        created_ms = created.get(topic)
        if created_ms is not None and commit_ms is not None and commit_ms < created_ms:
            return f"the cluster's metadata has a topic of this name that was made later, at {iso(created_ms)}"
        return None

    checked = dict(removals)
    for key, removal in removals.items():
        if (shows := clause(removal)) is not None:
            checked[key] = removal._replace(cause="topic_deletion", metadata_shows=shows)
    return checked


def _of_subscribed_topics(
    place: Place,
    tombstone_offsets: Iterable[int],
    records: Iterable[Mapping[str, Any]],
    removals: Mapping[tuple[Place, int], OffsetRemoval],
) -> Iterator[int]:
    """Of these tombstones those of topics that a member subscribed to. Records: of the group, in order."""
    subscribers, rows = Subscribers(), iter(records)
    row = next(rows, None)
    for tombstone_offset in tombstone_offsets:
        while row is not None and row["record_offset"] < tombstone_offset:
            subscribers.apply(
                row["key_type"], json.loads(row["key_json"]), None if row["value_json"] is None else json.loads(row["value_json"])
            )
            row = next(rows, None)
        if subscribers.has_subscriber(removals[place, tombstone_offset].lifetime.topic):
            yield tombstone_offset


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
