"""OffsetFetch: the committed offsets of groups in any state (docs/reference/coordinator.md, chapter 9.2)."""

from groupcoord_spark.simulator.answers import FetchedGroup, FetchedOffset, OffsetFetchAnswer
from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.coordinator_checks import coordinator_error
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.requests import GroupToFetch, OffsetFetch
from groupcoord_spark.simulator.states import State

_NO_OFFSET = FetchedOffset()
_DENIED = FetchedOffset(error=Error.TOPIC_AUTHORIZATION_FAILED)
_UNSTABLE = FetchedOffset(error=Error.UNSTABLE_OFFSET_COMMIT)


def offset_fetch(broker: Broker, call: Call, request: OffsetFetch) -> None:
    """Answer with the committed offsets of each group. With ``require_stable`` a partition with a pending offset gets an error instead."""
    broker.answer(call, OffsetFetchAnswer(tuple(_fetch(broker, group, request.require_stable) for group in request.groups)))


def _fetch(broker: Broker, requested: GroupToFetch, require_stable: bool) -> FetchedGroup:
    group_id = requested.group_id
    error = coordinator_error(broker, OffsetFetch, group_id)
    if error is not Error.NONE:
        return FetchedGroup(group_id, error, {})
    group = broker.group(group_id)
    offsets = broker.partition_of(group_id).offsets
    is_known = group is not None and group.state is not State.DEAD
    committed = offsets.committed.get(group_id, {}) if is_known else {}

    def fetched(topic: str, partition: int) -> FetchedOffset:
        if topic in broker.denied.topics:
            return _DENIED
        if require_stable and (group_id, topic, partition) in offsets.pending:
            return _UNSTABLE
        stored = committed.get((topic, partition))
        return _NO_OFFSET if stored is None else FetchedOffset(stored.committed_offset, stored.leader_epoch, stored.metadata)

    topics: dict[str, dict[int, FetchedOffset]] = {}
    if requested.partitions is None:
        for topic, partition in committed:
            if topic in broker.denied.topics:
                continue
            topics.setdefault(topic, {})[partition] = fetched(topic, partition)
    else:
        for topic, partitions in requested.partitions.items():
            if partitions or broker.release.fetch_shows_empty_topics:
                topics[topic] = {partition: fetched(topic, partition) for partition in partitions}
    return FetchedGroup(group_id, Error.NONE, topics)
