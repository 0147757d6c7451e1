"""Where the groups of a cluster continue in the cluster to which MirrorMaker copies it."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from groupcoord_spark.answers.reset_plan import Extent, Place, committed_offsets, log_extents
from groupcoord_spark.errors import UsageError
from groupcoord_spark.protocol.mirror_maker import CHECKPOINTS_TOPIC
from groupcoord_spark.warehouse.read import Run, Warehouse

STATES: Final = (
    *("current", "committed_after_checkpoint", "rewound_after_checkpoint", "no_commit_at_source", "checkpoint"),
    *("no_checkpoint", "no_checkpoint_of_group", "nothing_mirrored", "topic_not_mirrored", "client_fails"),
)


class Failover(NamedTuple):
    """Where a group continues in a partition of the target cluster.

    Attributes:
        source_alias: MirrorMaker's name of the source; None: the target has no checkpoints.
        topic: Name of the topic in the target.
        translated: What RemoteClusterUtils.translateOffsets answers; None: no offset.
        target_committed: The offset that the group has committed in the target itself.
        starts_from: committed or checkpoint, the offset from which the group starts; None: ``auto.offset.reset`` decides.
        log_position: within, below_log or beyond_log, where that offset lies; None: not known, or no offset.
        checkpoint_upstream: The committed offset that was translated.
        source_committed: The committed offset in the source now; None: the source was not read, or has none.
        state: One of STATES.
        read_again_least, read_again_most: Bounds of the mirrored records at or after ``translated`` that the group has read in the source.
        skipped_least, skipped_most: Bounds of the mirrored records before ``translated`` that it has not read. None: not known.
    """

    group: str
    topic: str
    partition: int
    source_alias: str | None
    translated: int | None
    target_committed: int | None
    starts_from: str | None
    log_position: str | None
    checkpoint_upstream: int | None
    source_committed: int | None
    state: str
    read_again_least: int | None = None
    read_again_most: int | None = None
    skipped_least: int | None = None
    skipped_most: int | None = None


class _Checkpoint(NamedTuple):
    upstream: int
    translated: int
    written_us: int | None


class _Source(NamedTuple):
    """What a run of the source cluster contains. commits: by the name of the topic in the target."""

    commits: Mapping[Place, int]
    topics_created_us: Mapping[str, int]


def plan_failover(warehouse: Warehouse, run: Run, source: tuple[Warehouse, Run] | None, alias: str | None = None) -> list[Failover]:
    """Return a row for each group and partition that has a checkpoint or a committed offset in the target, or a commit in the source.

    Args:
        warehouse, run: The run of the target cluster.
        source: The run of the source cluster; None: it is not read.
        alias: MirrorMaker's name of the source; None: the only one.
    Raises:
        UsageError: There are checkpoints of several sources, or none of the alias.
    """
    rows = warehouse.read("mirror_checkpoints", run=run)
    alias = _chosen_alias(rows["source_alias"].unique().to_pylist(), alias, run)
    rows = rows.filter(pc.equal(rows["source_alias"], alias)) if alias is not None else rows
    written = pc.cast(rows["record_timestamp"], pa.int64()).to_pylist()
    checkpoints: dict[Place, _Checkpoint] = {}
    failing: set[str | None] = set()
    for row, written_us in zip(rows.drop_columns(["record_timestamp", "timestamps_out_of_range"]).to_pylist(), written, strict=True):
        if row["downstream_offset"] is None:
            failing.add(row["group_id"])
        else:
            place = row["group_id"], row["topic"], row["partition"]
            checkpoints[place] = _Checkpoint(row["upstream_offset"], row["downstream_offset"], written_us)
    match = CHECKPOINTS_TOPIC.fullmatch(rows["checkpoints_topic"][0].as_py()) if rows.num_rows else None
    extents, target_commits = log_extents(warehouse, run), committed_offsets(warehouse, run)
    prefix = f"{match['alias']}{match['separator']}" if match else ""
    if any(not topic.startswith(prefix) for _, topic, _ in checkpoints):
        prefix = ""  # IdentityReplicationPolicy
    of_source = None if source is None else _source(*source, prefix)
    created = _topics_created_us(warehouse, run, "")
    with_checkpoints = {group for group, _, _ in checkpoints}
    planned = []
    for place in sorted(checkpoints.keys() | target_commits.keys() | (of_source.commits.keys() if of_source else set())):
        fails = None in failing or place[0] in failing
        checkpoint, committed, extent = checkpoints.get(place), target_commits.get(place), extents.get(place[1:])
        upstream = None if of_source is None else of_source.commits.get(place)
        translated = None if checkpoint is None or fails else checkpoint.translated
        start = translated if committed is None else committed
        row = Failover(
            *place,
            alias,
            translated,
            committed,
            "committed" if committed is not None else "checkpoint" if translated is not None else None,
            _log_position(start, extent),
            checkpoint.upstream if checkpoint else None,
            upstream,
            "",
        )
        if checkpoint is not None:
            state = "client_fails" if fails else _state(checkpoint, upstream, of_source is not None)
            is_recreated = any(
                (checkpoint.written_us or 0) < topics.get(place[1], 0)
                for topics in (created, of_source.topics_created_us if of_source else {})
            )
            if translated is not None and upstream is not None and not is_recreated:
                row = row._replace(**_bounds(checkpoint, upstream, extent))
        elif of_source is not None and upstream is None:
            state = "no_commit_at_source"
        elif extents and extent is None:
            state = "topic_not_mirrored"
        elif extent is not None and extent.end == 0:
            state = "nothing_mirrored"
        else:
            state = "no_checkpoint" if place[0] in with_checkpoints else "no_checkpoint_of_group"
        planned.append(row._replace(state=state))
    return planned


def _chosen_alias(aliases: list[str], alias: str | None, run: Run) -> str | None:
    found = ", ".join(map(repr, sorted(aliases))) or "none"
    if alias is not None and alias not in aliases:
        raise UsageError(f"Cluster {run.cluster!r} has no checkpoints of {alias!r} in the run; sources with checkpoints: {found}.")
    if alias is None and len(aliases) > 1:
        raise UsageError(f"Cluster {run.cluster!r} has checkpoints of the sources {found}. Name one with --alias.")
    return alias or next(iter(aliases), None)


def _source(warehouse: Warehouse, run: Run, prefix: str) -> _Source:
    commits = {
        (group, prefix + topic, partition): offset for (group, topic, partition), offset in committed_offsets(warehouse, run).items()
    }
    return _Source(commits, _topics_created_us(warehouse, run, prefix))


def _topics_created_us(warehouse: Warehouse, run: Run, prefix: str) -> dict[str, int]:
    """Return when each topic that exists was created; without the topics whose time is not known."""
    rows = warehouse.read("topics", columns=["topic", "is_deleted", "created_at"], run=run)
    columns = rows["topic"].to_pylist(), rows["is_deleted"].to_pylist(), pc.cast(rows["created_at"], pa.int64()).to_pylist()
    return {prefix + topic: created for topic, deleted, created in zip(*columns, strict=True) if not deleted and created is not None}


def _log_position(offset: int | None, extent: Extent | None) -> str | None:
    if offset is None or extent is None or (extent.start is None and offset <= extent.end):
        return None
    return "beyond_log" if offset > extent.end else "below_log" if offset < (extent.start or 0) else "within"


def _state(checkpoint: _Checkpoint, upstream: int | None, is_source_read: bool) -> str:
    if not is_source_read:
        return "checkpoint"
    if upstream is None:
        return "no_commit_at_source"
    if upstream == checkpoint.upstream:
        return "current"
    return "committed_after_checkpoint" if upstream > checkpoint.upstream else "rewound_after_checkpoint"


def _bounds(checkpoint: _Checkpoint, upstream: int, extent: Extent | None) -> dict[str, Any]:
    """Return bounds on the records read again and skipped by a group that starts from the checkpoint.

    MirrorMaker translates by a record that it copied at or below the upstream offset: all mirrored records below the translated offset lie
    below the upstream offset in the source. Nothing tells how many records of the source lie between them.
    """
    start, translated = extent.start if extent else None, checkpoint.translated
    in_target = translated - (start or 0)
    after = upstream if extent is None else min(max(extent.end - translated, 0), upstream)
    return {
        "read_again_least": 0,
        "read_again_most": after,
        "skipped_least": 0,
        "skipped_most": 0 if upstream >= checkpoint.upstream else min(max(in_target, 0), checkpoint.upstream - upstream),
    }
