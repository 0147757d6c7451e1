"""A group with members changes its protocol (KIP-848; Kafka: ``convertToConsumerGroup``, ``convertToClassicGroup``).

A classic group becomes a consumer group when a member of the new protocol joins it. A consumer group becomes a classic group when its last
member of the new protocol goes. Rules: docs/reference/coordinator.md, chapter 13.5.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from groupcoord_spark.coordinator.groups.consumer import ConsumerMember
from groupcoord_spark.protocol.consumer_protocol import Assignment, Subscription, decode_assignment, decode_subscription, encode_assignment
from groupcoord_spark.protocol.errors import DecodeError
from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.broker.coordinator_records import group_record
from groupcoord_spark.simulator.broker.rebalance import prepare_rebalance, restart_session
from groupcoord_spark.simulator.groups import CONSUMER, ClassicGroup, ClassicGroupMember, ConsumerGroup, GroupState, Protocols
from groupcoord_spark.simulator.groups.consumer_group import CLASSIC_MEMBER, uses_classic_protocol
from groupcoord_spark.simulator.messages import RecordToWrite
from groupcoord_spark.simulator.messages.partition_lists import by_topic


def classic_metadata(session_timeout_ms: int, protocols: Protocols) -> dict[str, Any]:
    """Return the record fields that only classic members have."""
    supported = [{"name": name, "metadata": metadata} for name, metadata in protocols]
    return {"session_timeout_ms": session_timeout_ms, "supported_protocols": supported}


def classic_protocols(member: ConsumerMember) -> Protocols:
    """Return the protocols of a classic member in its order."""
    listed = (member.metadata or {})[CLASSIC_MEMBER]["supported_protocols"]
    return tuple((protocol["name"], protocol["metadata"]) for protocol in listed)


def read_subscription(protocols: Protocols) -> Subscription | None:
    """Return the subscription in a member's first protocol, or None if it cannot be read."""
    try:
        return decode_subscription(protocols[0][1]) if protocols else None
    except DecodeError:
        return None


def classic_assignment(member: ConsumerMember, partitions: Iterable[tuple[str, int]]) -> bytes:
    """Return an assignment in the version of the member's subscription. ``partitions`` holds (topic, partition) pairs."""
    subscription = read_subscription(classic_protocols(member))
    return encode_assignment(Assignment(0 if subscription is None else subscription.version, by_topic(partitions), None))


# From the classic protocol


def upgrade_records(classic: ClassicGroup, group: ConsumerGroup, topic_ids: Mapping[str, str]) -> list[RecordToWrite] | None:
    """Return the records that convert a classic group with members to a consumer group, or None if a subscription or an assignment cannot
    be read.

    Every member keeps its partitions, with the generation as its member epoch.
    """
    epoch = classic.generation
    members = []
    for member in classic.members:
        subscription, assigned = read_subscription(member.protocols), _assigned(member, topic_ids)
        if subscription is None or assigned is None:
            return None
        metadata = {
            "instance_id": member.group_instance_id,
            "rack_id": subscription.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": sorted(set(subscription.topics)),
            "subscribed_topic_regex": "",
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "server_assignor": None,
            CLASSIC_MEMBER: classic_metadata(member.session_timeout_ms, member.protocols),
        }
        members.append((member.member_id, metadata, assigned))
    return [
        *classic.tombstones(),
        *(group.member_record(member_id, metadata) for member_id, metadata, _ in members),
        group.epoch_record(epoch, group.metadata_hash),
        *(group.converted_target_record(member_id, assigned) for member_id, _, assigned in members),
        group.target_epoch_record(epoch, 0),
        *(group.converted_assignment_record(member_id, epoch, assigned) for member_id, _, assigned in members),
    ]


def subscribed_topics_of(group: ClassicGroup) -> set[str]:
    """Return the topics in the subscriptions of a classic group's members."""
    subscriptions = (read_subscription(member.protocols) for member in group.members)
    return {topic for subscription in subscriptions if subscription is not None for topic in subscription.topics}


def _assigned(member: ClassicGroupMember, topic_ids: Mapping[str, str]) -> dict[str, tuple[int, ...]] | None:
    """Return topic id -> assigned partitions for topics that exist, or None if the assignment cannot be read."""
    if not member.assignment:
        return {}
    try:
        assignment = decode_assignment(member.assignment)
    except DecodeError:
        return None
    if assignment is None:
        return None
    return {topic_ids[topic]: numbers for topic, numbers in assignment.partitions.items() if topic in topic_ids}


# To the classic protocol


def may_be_downgraded(broker: Broker, group: ConsumerGroup, leaving: Iterable[str]) -> bool:
    """Return whether the group becomes a classic group once these members have left: members remain and all of them use the classic
    protocol."""
    gone = set(leaving)
    staying = [member for member_id, member in group.members.items() if member_id not in gone]
    is_small = len(staying) <= broker.settings.group_max_size
    return broker.settings.allows_downgrades and bool(staying) and is_small and all(map(uses_classic_protocol, staying))


def downgraded(
    broker: Broker, group: ConsumerGroup, leaving: Iterable[str], topic_names: Mapping[str, str], generation: int
) -> tuple[ClassicGroup, list[RecordToWrite]]:
    """Return the classic group that replaces a consumer group, and the records of the conversion.

    Its generation is the group epoch before the request, and the targets of the members are their assignments.
    """
    classic = ClassicGroup(group.group_id, broker.now_ms, like_java=broker.release.like_java_maps)
    classic.generation = generation
    classic.state = GroupState.STABLE
    gone = set(leaving)
    for member_id, member in group.members.items():
        if member_id not in gone:
            target = ((topic_names[topic_id], number) for topic_id, number in group.target_of(member_id) if topic_id in topic_names)
            classic.add(_classic_member(member_id, member, classic_assignment(member, target)))
    classic.protocol = classic.elected_protocol()
    return classic, [*group.tombstones(), group_record(classic, broker.release)]


def _classic_member(member_id: str, member: ConsumerMember, assignment: bytes) -> ClassicGroupMember:
    metadata = member.metadata or {}
    return ClassicGroupMember(
        member_id=member_id,
        group_instance_id=metadata["instance_id"],
        client_id=metadata["client_id"],
        client_host=metadata["client_host"],
        rebalance_timeout_ms=metadata["rebalance_timeout_ms"],
        session_timeout_ms=metadata[CLASSIC_MEMBER]["session_timeout_ms"],
        protocol_type=CONSUMER,
        protocols=classic_protocols(member),
        assignment=assignment,
    )


def begin_classic_group(broker: Broker, group: ClassicGroup, *, rebalances: bool) -> None:
    """Put a downgraded group in its place, Stable or with the beginning of a rebalance. All sessions start."""
    broker.partition_of(group.group_id).groups[group.group_id] = group
    for member in group.members:
        restart_session(broker, group, member)
    if rebalances:
        prepare_rebalance(broker, group)


def classic_members(group: ConsumerGroup) -> Iterator[tuple[str, ConsumerMember]]:
    """(member id, member) of the members that speak the classic protocol."""
    return ((member_id, member) for member_id, member in group.members.items() if uses_classic_protocol(member))
