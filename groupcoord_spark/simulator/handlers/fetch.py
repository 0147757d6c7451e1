"""OffsetFetch: the committed offsets of groups in any state (docs/reference/coordinator.md, chapter 9.2; Kafka: ``fetchOffsets``)."""

from groupcoord_spark.simulator.broker import Broker, coordinator_error
from groupcoord_spark.simulator.messages import Call, Error
from groupcoord_spark.simulator.messages.answers import FetchedGroup, FetchedOffset, OffsetFetchAnswer
from groupcoord_spark.simulator.messages.requests import GroupToFetch, OffsetFetch

_NO_OFFSET = FetchedOffset()
_DENIED = FetchedOffset(error=Error.TOPIC_AUTHORIZATION_FAILED)
_UNSTABLE = FetchedOffset(error=Error.UNSTABLE_OFFSET_COMMIT)


def offset_fetch(broker: Broker, call: Call, request: OffsetFetch) -> None:
    """Answer with the committed offsets of each group. With ``require_stable`` a partition with a pending offset gets an error instead."""

    def answer(error: Error = Error.NONE, failed: frozenset[str] = frozenset()) -> None:
        groups = (
            FetchedGroup(group.group_id, error, {}) if group.group_id in failed else _fetch(broker, request, group)
            for group in request.groups
        )
        broker.answer(call, OffsetFetchAnswer(tuple(groups)))

    if request.require_stable and broker.release.stable_fetch_waits and broker.log.in_flight:
        broker.wait_for_appends(frozenset(group.group_id for group in request.groups), answer)
    else:
        answer()


def _fetch(broker: Broker, request: OffsetFetch, requested: GroupToFetch) -> FetchedGroup:
    group_id = requested.group_id
    error = coordinator_error(broker, request, group_id)
    if error is not Error.NONE:
        return FetchedGroup(group_id, error, {})
    group = broker.shown(group_id)
    if group is not None and (error := group.validate_fetch(requested)) is not Error.NONE:
        return FetchedGroup(group_id, error, {})
    partition = broker.partition_of(group_id)
    offsets, in_flight = partition.offsets, partition.in_flight
    has_offsets = group is not None and group.keeps_offsets and not group.is_dead
    committed = offsets.committed.get(group_id, {}) if has_offsets else {}
    for append in partition.appends_in_flight:
        committed = {**committed, **{key[1:]: stored for key, stored in append.deleted.items() if key[0] == group_id}}

    def fetched(topic: str, number: int) -> FetchedOffset:
        if topic in broker.denied.topics:
            return _DENIED
        key = (group_id, topic, number)
        if request.require_stable and (key in offsets.pending or (key in in_flight and not broker.release.stable_fetch_waits)):
            return _UNSTABLE
        stored = committed.get((topic, number))
        return _NO_OFFSET if stored is None else FetchedOffset(stored.committed_offset, stored.leader_epoch, stored.metadata)

    topics: dict[str, dict[int, FetchedOffset]] = {}
    if requested.partitions is None:
        for topic, number in committed:
            if topic in broker.denied.topics:
                continue
            topics.setdefault(topic, {})[number] = fetched(topic, number)
    else:
        for topic, partitions in requested.partitions.items():
            if partitions or broker.release.fetch_shows_empty_topics:
                topics[topic] = {number: fetched(topic, number) for number in partitions}
    return FetchedGroup(group_id, Error.NONE, topics)
