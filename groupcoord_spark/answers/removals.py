"""The removals of groups and their offsets with their probable causes, from the history tables."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.answers.offset_history import COMMIT_COLUMNS, column_in_milliseconds, duckdb_over, read_markers
from groupcoord_spark.answers.removal_causes import Cause, GroupRemoval, OffsetRemoval, Place
from groupcoord_spark.answers.subscribers import KEY_TYPES, Subscribers
from groupcoord_spark.answers.timeline import iso
from groupcoord_spark.protocol.record_types import GROUP_KEY_TYPES
from groupcoord_spark.warehouse.declaration import no_rows
from groupcoord_spark.warehouse.read import Run, Warehouse
from groupcoord_spark.warehouse.tables import OFFSET_COMMITS
from groupcoord_spark.warehouse.views import VIEWS

_OWN_COLUMNS: Final = (
    *("cluster", "incarnation", "offsets_partition", "record_offset", "record_timestamp", "group_id", "key_type", "is_tombstone"),
    *("value_version", "value_json"),
)

_CAUSES: Final = """
SELECT incarnation, offsets_partition, group_id, topic, partition, key_type, record_offset, epoch_ms(record_timestamp) AS gone_ms, cause,
  value_offset, epoch_ms(commit_timestamp) AS commit_ms, epoch_ms(expire_timestamp) AS expire_ms, epoch_ms(base_timestamp) AS base_ms,
  epoch_ms(record_timestamp) - epoch_ms(due_at) AS late_ms, COALESCE(record_timestamp >= due_at, FALSE) AS had_expired, group_removed,
  groups_at_once, offsets_spared AS offsets_kept
FROM tombstone_causes WHERE group_id IN (SELECT unnest(?))
ORDER BY incarnation, offsets_partition, record_offset
"""

_HOUR_MS: Final = 3_600_000

_CLOCKS_DIFFER_MS: Final = 1_000
"""How far the controller's clock may be ahead of the group coordinator's."""


class Removals(NamedTuple):
    """All removals of some groups and their offsets in the history tables, in the order of the log."""

    offsets: Sequence[OffsetRemoval]
    groups: Sequence[GroupRemoval]


def removals_of(warehouse: Warehouse, cluster: str, group_ids: Sequence[str], commits: pa.Table, markers: pa.Table) -> Removals:
    """The causes of all removals of groups and their offsets: the rows of the view ``tombstone_causes``, and what SQL cannot know.

    The view is asked about the records of the groups alone, which takes no longer in a large warehouse. Where a cause depends on the
    offsets of other groups, it is asked again, with all commits of those topics.

    Args:
        commits: The groups' rows of offset_commits (``COMMIT_COLUMNS``).
        markers: From ``read_markers``.
    """
    run = warehouse.run(cluster)
    rows = _causes(warehouse, run, group_ids, group_ids, commits, markers)
    if topics := sorted({row["topic"] for row in rows if _depends_on_other_offsets(row, run)}):
        of_topics = warehouse.read("offset_commits", run=run, columns=COMMIT_COLUMNS, where=[("topic", "in", topics)])
        commits_of_others = of_topics.filter(pc.invert(pc.is_in(of_topics["group_id"], commits["group_id"].unique())))
        bereft = commits_of_others.filter(commits_of_others["is_tombstone"])["group_id"].unique().to_pylist()
        commits = pa.concat_tables([commits, commits_of_others])
        rows = _causes(warehouse, run, group_ids, [*group_ids, *bereft], commits, read_markers(warehouse, cluster, commits))
    offsets = [
        OffsetRemoval(Place.of(row), **{name: row[name] for name in OffsetRemoval._fields if name in row})
        for row in rows
        if row["topic"] is not None
    ]
    offsets = _with_deleted_topics(warehouse, cluster, _with_subscribers(warehouse, cluster, offsets))
    causes: dict[tuple[Place, str, int | None], set[Cause]] = defaultdict(set)
    for removal in offsets:
        causes[removal.place, removal.group_id, removal.gone_ms].add(removal.cause)
    groups = []
    for row in rows:
        if row["topic"] is None:
            cause, of_offsets = row["cause"], causes.get((Place.of(row), row["group_id"], row["gone_ms"]), set())
            if cause in ("delete_groups", "unknown") and of_offsets and cause not in of_offsets:
                # The offsets went with their topics after all, so the cleanup took the group.
                cause = "unknown" if "unknown" in of_offsets else "expiry"
            place = Place.of(row), row["group_id"], row["record_offset"]
            groups.append(GroupRemoval(*place, row["gone_ms"], row["key_type"], cause, bool(of_offsets)))
    return Removals(offsets, groups)


def _causes(
    warehouse: Warehouse, run: Run, group_ids: Sequence[str], owners: Sequence[str], commits: pa.Table, markers: pa.Table
) -> list[dict[str, Any]]:
    """The rows of the view for the groups. owners: the groups whose own records are read beside the commits and markers."""
    of_owners = [("group_id", "in", list(owners)), ("key_type", "in", sorted(GROUP_KEY_TYPES))]
    own_records = warehouse.read("group_records", run=run, columns=_OWN_COLUMNS, where=of_owners)
    if not (pc.any(commits["is_tombstone"]).as_py() or pc.any(own_records["is_tombstone"]).as_py()):
        return []  # the view has a row for each tombstone, and planning the view takes a tenth of the time of `why`
    tables = {
        # The view of resolved commits names every column; those that were not read are NULL.
        "offset_commits": pa.concat_tables([no_rows(OFFSET_COMMITS.arrow_schema), commits], promote_options="permissive"),
        "transactions": markers,
        "group_records": own_records,
        "runs": warehouse.read("runs", run=run),
    }
    with duckdb_over(**tables) as connection:
        # Not as views of the connection, nor as a relation: DuckDB plans those when they are made and again when it runs them.
        views = ", ".join(f"{name} AS ({VIEWS[name]})" for name in ("offset_commits_resolved", "tombstone_causes"))
        found = connection.execute(f"WITH {views} {_CAUSES}", [list(group_ids)])
        return [dict(zip((name for name, *_ in found.description), row, strict=True)) for row in found.fetchall()]


def _depends_on_other_offsets(row: Mapping[str, Any], run: Run) -> bool:
    """Whether the cause of a tombstone depends on the other offsets of its topic. Up to 3.9 (Scala) that of a removed group does too."""
    if row["topic"] is None or row["value_offset"] is None or row["late_ms"] is None:
        return False
    is_of_group = row["group_removed"] and row["late_ms"] < 0 and run.semantics != "scala"
    return not is_of_group and not 0 <= row["late_ms"] < _HOUR_MS


def _with_subscribers(warehouse: Warehouse, cluster: str, removals: Sequence[OffsetRemoval]) -> list[OffsetRemoval]:
    """The removals; an offset of a topic that a member subscribed to was removed with the topic.

    By its age a cleanup could have taken such an offset, but cleanups spare the topics of members (X-B3, X-C1), and DeleteGroups and
    OffsetDelete are refused (NON_EMPTY_GROUP, GROUP_SUBSCRIBED_TO_TOPIC). SQL cannot read subscriptions, so the view ``tombstone_causes``
    says expiry there.
    """
    by_age = [removal for removal in removals if removal.cause == "expiry" and removal.expire_ms is None]
    if not by_age:
        return list(removals)
    rows = warehouse.read(
        "group_records",
        cluster=cluster,
        columns=("incarnation", "offsets_partition", "record_offset", "group_id", "key_type", "key_json", "value_json"),
        where=[("group_id", "in", sorted({removal.group_id for removal in by_age})), ("key_type", "in", list(KEY_TYPES))],
    )
    steps: list[tuple[int, OffsetRemoval | Mapping[str, Any]]] = [(removal.record_offset, removal) for removal in by_age]
    steps += [(row["record_offset"], row) for row in rows.to_pylist()]
    subscribers: dict[tuple[Place, str], Subscribers] = defaultdict(Subscribers)
    subscribed: set[OffsetRemoval] = set()
    steps.sort(key=lambda step: step[0])
    while not isinstance(steps[-1][1], OffsetRemoval):
        steps.pop()  # records that come after the last removal say nothing of it
    for _, step in steps:
        if not isinstance(step, OffsetRemoval):
            value = None if step["value_json"] is None else json.loads(step["value_json"])
            subscribers[Place.of(step), step["group_id"]].apply(step["key_type"], json.loads(step["key_json"]), value)
        elif subscribers[step.place, step.group_id].has_subscriber(step.topic):
            subscribed.add(step)
    return [removal._replace(cause="topic_deletion", had_subscriber=True) if removal in subscribed else removal for removal in removals]


def _with_deleted_topics(warehouse: Warehouse, cluster: str, removals: Sequence[OffsetRemoval]) -> list[OffsetRemoval]:
    """The removals; where the cluster's metadata shows that the topic was deleted while the offset was there, that was the cause.

    The coordinator removes all offsets of a topic when it learns of the deletion. Where the metadata tells no time, but that the topic with
    these offsets is no more, it confirms what the records of the offsets topic suggest.
    """
    topics = warehouse.read("topics", cluster=cluster, columns=("topic", "is_deleted", "created_at", "deleted_at", "all_topics_known"))
    if not removals or not topics.num_rows:
        return list(removals)
    deleted: dict[str, list[int]] = {}
    created: dict[str, int | None] = {}
    times = [pc.fill_null(column_in_milliseconds(topics[name]), -1).to_pylist() for name in ("created_at", "deleted_at")]
    for row, created_ms, deleted_ms in zip(topics.to_pylist(), *times, strict=True):
        if row["is_deleted"]:
            deleted.setdefault(row["topic"], []).append(deleted_ms)
        else:
            created[row["topic"]] = None if created_ms < 0 else created_ms
    all_known = bool(pc.all(topics["all_topics_known"]).as_py())

    def clause(removal: OffsetRemoval) -> str | None:
        topic, gone_ms, commit_ms = removal.topic, removal.gone_ms, removal.commit_ms
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

    clauses = [(removal, clause(removal)) for removal in removals]
    return [removal if shows is None else removal._replace(cause="topic_deletion", metadata_shows=shows) for removal, shows in clauses]
