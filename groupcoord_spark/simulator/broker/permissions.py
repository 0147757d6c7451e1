"""Permissions: a request that the broker's authorizer refuses never reaches the coordinator.

Operations on groups as in Kafka's documentation of its ACLs: READ for members and commits, DESCRIBE for questions, DELETE for deletions.
"""

from dataclasses import dataclass
from typing import Final

from groupcoord_spark.simulator.messages import answers, requests
from groupcoord_spark.simulator.messages.errors import Error
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


def refusal(request: requests.Request, denied: Denied) -> answers.Answer | None:
    """The answer of the authorizer to a request, or None if the request may reach the coordinator."""
    refused = Error.GROUP_AUTHORIZATION_FAILED
    match request:
        case requests.OffsetDelete() if DELETE in denied.group_operations:
            return answers.OffsetDeleteAnswer(refused)
        case requests.DeleteGroups(group_ids=group_ids) if DELETE in denied.group_operations:
            return answers.DeleteGroupsAnswer(dict.fromkeys(group_ids, refused))
        case requests.DescribeGroups(group_ids=group_ids) if DESCRIBE in denied.group_operations:
            return answers.DescribeGroupsAnswer(tuple(answers.DescribedGroup(group_id, refused) for group_id in group_ids))
        case requests.ConsumerGroupDescribe(group_ids=group_ids) if DESCRIBE in denied.group_operations:
            return answers.ConsumerGroupDescribeAnswer(tuple(answers.DescribedConsumerGroup(group_id, refused) for group_id in group_ids))
        case requests.ShareGroupDescribe(group_ids=group_ids) if DESCRIBE in denied.group_operations:
            return answers.ShareGroupDescribeAnswer(tuple(answers.DescribedShareGroup(group_id, refused) for group_id in group_ids))
        case StreamsGroupDescribe(group_ids=group_ids) if DESCRIBE in denied.group_operations:
            return StreamsGroupDescribeAnswer(tuple(DescribedStreamsGroup(group_id, refused) for group_id in group_ids))
        case requests.FindCoordinator(keys=keys) if DESCRIBE in denied.group_operations:
            return answers.FindCoordinatorAnswer(tuple(answers.FoundCoordinator(key, refused, -1) for key in keys))
        case requests.OffsetFetch(groups=groups) if DESCRIBE in denied.group_operations:
            return answers.OffsetFetchAnswer(tuple(answers.FetchedGroup(group.group_id, refused, {}) for group in groups))
    return _refusal_to_read(request) if READ in denied.group_operations else None


def _refusal_to_read(request: requests.Request) -> answers.Answer | None:
    refused = Error.GROUP_AUTHORIZATION_FAILED
    match request:
        case requests.JoinGroup(member_id=member_id):
            return answers.JoinGroupAnswer(refused, member_id)
        case requests.SyncGroup():
            return answers.SyncGroupAnswer(refused)
        case requests.Heartbeat():
            return answers.HeartbeatAnswer(refused)
        case requests.ConsumerGroupHeartbeat():
            return answers.ConsumerGroupHeartbeatAnswer(refused)
        case requests.ShareGroupHeartbeat():
            return answers.ShareGroupHeartbeatAnswer(refused)
        case StreamsGroupHeartbeat():
            return StreamsGroupHeartbeatAnswer(refused)
        case requests.LeaveGroup():
            return answers.LeaveGroupAnswer(refused)
        case requests.OffsetCommit(offsets=offsets) | requests.TxnOffsetCommit(offsets=offsets):
            return answers.OffsetCommitAnswer({(offset.topic, offset.partition): refused for offset in offsets})
        case requests.AddOffsetsToTxn():
            return answers.TransactionAnswer(refused)
        case _:
            return None
