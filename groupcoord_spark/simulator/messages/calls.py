"""A request together with its answer, which may come at once, later or never."""

from typing import Any

from msgspec import Struct

from groupcoord_spark.simulator.messages import answers, requests
from groupcoord_spark.simulator.messages.answers import Answer
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.requests import Request


class Call(Struct, eq=False):
    """A request with its number, and its answer with the time of both.

    answer and answered_at_ms: None while the request waits; some requests are never answered.
    """

    number: int
    request: Request
    sent_at_ms: int
    answer: Answer | None = None
    answered_at_ms: int | None = None


WITH_ONE_ERROR: dict[type[Request], type[Any]] = {
    requests.SyncGroup: answers.SyncGroupAnswer,
    requests.Heartbeat: answers.ErrorAnswer,
    requests.LeaveGroup: answers.LeaveGroupAnswer,
    requests.ConsumerGroupHeartbeat: answers.ConsumerGroupHeartbeatAnswer,
    requests.ShareGroupHeartbeat: answers.ShareGroupHeartbeatAnswer,
    requests.StreamsGroupHeartbeat: answers.StreamsGroupHeartbeatAnswer,
    requests.OffsetDelete: answers.OffsetDeleteAnswer,
}
"""Request that may write to one group -> its answer, which has one error for the whole request as its first field."""
DESCRIPTIONS: dict[type[Request], type[Any]] = {
    requests.DescribeGroups: answers.DescribedGroup,
    requests.ConsumerGroupDescribe: answers.DescribedConsumerGroup,
    requests.ShareGroupDescribe: answers.DescribedShareGroup,
    requests.StreamsGroupDescribe: answers.DescribedStreamsGroup,
}
"""Request for the description of groups -> one group in its answer."""


def refused(request: Request, error: Error) -> Answer:
    """Return the answer to a request that is rejected as a whole (Kafka: ``AbstractRequest.getErrorResponse``)."""
    match request:
        case requests.JoinGroup(member_id=member_id):
            return answers.JoinGroupAnswer(error, member_id)
        case requests.OffsetCommit(offsets=offsets) | requests.TxnOffsetCommit(offsets=offsets):
            return answers.OffsetCommitAnswer({(offset.topic, offset.partition): error for offset in offsets})
        case requests.OffsetFetch(groups=groups):
            return answers.OffsetFetchAnswer(tuple(answers.FetchedGroup(group.group_id, error, {}) for group in groups))
        case requests.FindCoordinator(keys=keys):
            return answers.FindCoordinatorAnswer(tuple(answers.FoundCoordinator(key, error, -1) for key in keys))
        case requests.DeleteGroups(group_ids=group_ids):
            return answers.DeleteGroupsAnswer(dict.fromkeys(group_ids, error))
        case requests.ListGroups():
            return answers.ListGroupsAnswer(error)
        case requests.AddOffsetsToTxn() | requests.EndTxn() | requests.WriteTxnMarkers():
            return answers.ErrorAnswer(error)
    if type(request) in DESCRIPTIONS:
        described = DESCRIPTIONS[type(request)]
        return answers.Descriptions(tuple(described(group_id, error) for group_id in request.group_ids))  # type: ignore[attr-defined]
    answer: Answer = WITH_ONE_ERROR[type(request)](error)
    return answer
