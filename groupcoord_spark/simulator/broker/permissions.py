"""Permissions: a request that the broker's authorizer refuses never reaches the coordinator.

Operations on groups as in Kafka's documentation of its ACLs: READ for members and commits, DESCRIBE for questions, DELETE for deletions.
"""

from dataclasses import dataclass
from typing import Final

from groupcoord_spark.simulator.messages.answers import (
    Answer,
    ConsumerGroupDescribeAnswer,
    ConsumerGroupHeartbeatAnswer,
    DeleteGroupsAnswer,
    DescribedConsumerGroup,
    DescribedGroup,
    DescribedShareGroup,
    DescribeGroupsAnswer,
    FetchedGroup,
    FindCoordinatorAnswer,
    FoundCoordinator,
    HeartbeatAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    ShareGroupDescribeAnswer,
    ShareGroupHeartbeatAnswer,
    SyncGroupAnswer,
    TransactionAnswer,
)
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.requests import (
    AddOffsetsToTxn,
    ConsumerGroupDescribe,
    ConsumerGroupHeartbeat,
    DeleteGroups,
    DescribeGroups,
    FindCoordinator,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Request,
    ShareGroupDescribe,
    ShareGroupHeartbeat,
    SyncGroup,
    TxnOffsetCommit,
)
from groupcoord_spark.simulator.messages.streams_answers import (
    DescribedStreamsGroup,
    StreamsGroupDescribeAnswer,
    StreamsGroupHeartbeatAnswer,
)
from groupcoord_spark.simulator.messages.streams_requests import StreamsGroupDescribe, StreamsGroupHeartbeat

READ: Final = "READ"
DESCRIBE: Final = "DESCRIBE"
DELETE: Final = "DELETE"
GROUP_OPERATIONS: Final = (READ, DESCRIBE, DELETE)


@dataclass(frozen=True, slots=True)
class Denied:
    """What the authorizer refuses to every client: operations on all groups, and every operation on some topics."""

    group_operations: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.group_operations or self.topics)


def refusal(request: Request, denied: Denied) -> Answer | None:
    """The answer of the authorizer to a request, or None if the request may reach the coordinator."""
    refused = Error.GROUP_AUTHORIZATION_FAILED
    match request:
        case OffsetDelete() if DELETE in denied.group_operations:
            return OffsetDeleteAnswer(refused)
        case DeleteGroups(group_ids=group_ids) if DELETE in denied.group_operations:
            return DeleteGroupsAnswer(dict.fromkeys(group_ids, refused))
        case DescribeGroups(group_ids=group_ids) if DESCRIBE in denied.group_operations:
            return DescribeGroupsAnswer(tuple(DescribedGroup(group_id, refused) for group_id in group_ids))
        case ConsumerGroupDescribe(group_ids=group_ids) if DESCRIBE in denied.group_operations:
            return ConsumerGroupDescribeAnswer(tuple(DescribedConsumerGroup(group_id, refused) for group_id in group_ids))
        case ShareGroupDescribe(group_ids=group_ids) if DESCRIBE in denied.group_operations:
            return ShareGroupDescribeAnswer(tuple(DescribedShareGroup(group_id, refused) for group_id in group_ids))
        case StreamsGroupDescribe(group_ids=group_ids) if DESCRIBE in denied.group_operations:
            return StreamsGroupDescribeAnswer(tuple(DescribedStreamsGroup(group_id, refused) for group_id in group_ids))
        case FindCoordinator(keys=keys) if DESCRIBE in denied.group_operations:
            return FindCoordinatorAnswer(tuple(FoundCoordinator(key, refused, -1) for key in keys))
        case OffsetFetch(groups=groups) if DESCRIBE in denied.group_operations:
            return OffsetFetchAnswer(tuple(FetchedGroup(group.group_id, refused, {}) for group in groups))
    return _refusal_to_read(request) if READ in denied.group_operations else None


def _refusal_to_read(request: Request) -> Answer | None:
    refused = Error.GROUP_AUTHORIZATION_FAILED
    match request:
        case JoinGroup(member_id=member_id):
            return JoinGroupAnswer(refused, member_id)
        case SyncGroup():
            return SyncGroupAnswer(refused)
        case Heartbeat():
            return HeartbeatAnswer(refused)
        case ConsumerGroupHeartbeat():
            return ConsumerGroupHeartbeatAnswer(refused)
        case ShareGroupHeartbeat():
            return ShareGroupHeartbeatAnswer(refused)
        case StreamsGroupHeartbeat():
            return StreamsGroupHeartbeatAnswer(refused)
        case LeaveGroup():
            return LeaveGroupAnswer(refused)
        case OffsetCommit(offsets=offsets) | TxnOffsetCommit(offsets=offsets):
            return OffsetCommitAnswer({(offset.topic, offset.partition): refused for offset in offsets})
        case AddOffsetsToTxn():
            return TransactionAnswer(refused)
        case _:
            return None
