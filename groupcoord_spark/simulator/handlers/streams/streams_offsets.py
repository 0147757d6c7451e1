"""Commits and fetches of the members of streams groups (docs/reference/coordinator.md, chapter 13.7)."""

from __future__ import annotations

from typing import Final

from groupcoord_spark.assignors.sticky_tasks import Task
from groupcoord_spark.simulator.broker.broker import Broker
from groupcoord_spark.simulator.groups.streams_group import StreamsGroup
from groupcoord_spark.simulator.groups.streams_tasks import ACTIVE
from groupcoord_spark.simulator.groups.streams_topology import source_subtopologies
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.requests import GroupToFetch, OffsetCommit, TxnOffsetCommit

FIRST_VERSION_WITH_EPOCHS: Final = 9
"""First version of OffsetCommit whose generation may be a member epoch."""


def check_streams_commit(broker: Broker, group: StreamsGroup, request: OffsetCommit | TxnOffsetCommit) -> Error:
    """The error of a commit in a streams group.

    A member with an older epoch may commit for the active tasks that it has had since that epoch, tasks that it is giving up included.
    """
    is_transactional = isinstance(request, TxnOffsetCommit)
    if request.generation < 0 and not group.members:
        return Error.NONE
    if is_transactional and request.generation < 0 and not request.member_id:
        return Error.NONE
    if request.member_id not in group.members:
        return Error.UNKNOWN_MEMBER_ID
    if isinstance(request, OffsetCommit) and broker.release.version_of(request) < FIRST_VERSION_WITH_EPOCHS:
        return Error.UNSUPPORTED_VERSION
    current = group.current_of(request.member_id)
    if request.generation == current.epoch:
        return Error.NONE
    stale = Error.ILLEGAL_GENERATION if is_transactional else Error.STALE_MEMBER_EPOCH
    if request.generation > current.epoch:
        return stale
    subtopologies = source_subtopologies(group.replayed.topology or {"subtopologies": ()})
    since = {**current.pending_revocation[ACTIVE], **current.assigned[ACTIVE]}
    epochs = [since.get(Task(subtopologies.get(offset.topic, ""), offset.partition)) for offset in request.offsets]
    return Error.NONE if all(epoch is not None and request.generation >= epoch for epoch in epochs) else stale


def check_streams_fetch(group: StreamsGroup, requested: GroupToFetch) -> Error:
    """The error of a fetch in a streams group: a request without a member id is an administrator's."""
    if requested.member_id is None and requested.member_epoch < 0:
        return Error.NONE
    if requested.member_id is None or requested.member_id not in group.members:
        return Error.UNKNOWN_MEMBER_ID
    return Error.NONE if requested.member_epoch == group.current_of(requested.member_id).epoch else Error.STALE_MEMBER_EPOCH
