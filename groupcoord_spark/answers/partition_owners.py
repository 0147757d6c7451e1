"""The member of a group that a partition belonged to, from the records of the group in order."""

import base64
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from groupcoord_spark.protocol.consumer_protocol import assigned_partitions
from groupcoord_spark.protocol.record_types import KeyType

KEY_TYPES: Final = (KeyType.GROUP_METADATA, KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT)
"""Key types of the records that ``PartitionOwners`` reads."""


class Holding(NamedTuple):
    """One partition that one member has. The records of classic groups name the topic, those of consumer groups its id."""

    topic: str | None
    topic_id: str | None
    partition: int
    member_id: str


class PartitionOwners:
    """The owners of the partitions of one classic or consumer group. Apply the group's records in order, then ask who has what."""

    def __init__(self) -> None:
        self._classic_owners: dict[tuple[str, int], str] = {}
        """(topic, partition) -> member id."""
        self._consumer_partitions: dict[str, set[tuple[str, int]]] = {}
        """Member id -> set of (topic id, partition)."""

    def apply(self, key_type: int, member_id: str | None, value: Mapping[str, Any] | None) -> None:
        """Apply a record of one of the ``KEY_TYPES``.

        member_id: None for a classic group. value: as in Kafka's JSON (column ``value_json``); None: a tombstone.
        """
        if key_type == KeyType.GROUP_METADATA:
            self._classic_owners = {}
            if value is not None:
                self._consumer_partitions = {}  # a group has one protocol at a time
            # Assignments of other protocol types, such as Kafka Connect's, have another layout.
            members = value["members"] if value is not None and value["protocolType"] == "consumer" else ()
            for member in members:
                self._classic_owners.update(dict.fromkeys(_assigned(member["assignment"]), member["memberId"]))
        elif member_id is not None:
            self._consumer_partitions.pop(member_id, None)
            if value is not None:
                self._classic_owners = {}
                # A member may still commit offsets of partitions that it must give up.
                topics = [*value["assignedPartitions"], *value["partitionsPendingRevocation"]]
                self._consumer_partitions[member_id] = {(topic["topicId"], number) for topic in topics for number in topic["partitions"]}

    def owner_of(self, topic: str, topic_id: str | None, partition: int) -> str | None:
        """Id of the member that has the partition; None: no member or several members have it. ``topic_id``: None if not known."""
        owners = [member for member, partitions in self._consumer_partitions.items() if (topic_id, partition) in partitions]
        if (topic, partition) in self._classic_owners:
            owners.append(self._classic_owners[topic, partition])
        return owners[0] if len(owners) == 1 else None

    def holdings(self) -> frozenset[Holding]:
        """Return every partition of a member, also the ones to give up: until then two members may have the same partition."""
        classic = (Holding(topic, None, partition, member) for (topic, partition), member in self._classic_owners.items())
        modern = (
            Holding(None, topic_id, partition, member)
            for member, partitions in self._consumer_partitions.items()
            for topic_id, partition in partitions
        )
        return frozenset((*classic, *modern))


def _assigned(assignment: str) -> frozenset[tuple[str, int]]:
    """Set of (topic, partition) of an assignment in base64; empty where the bytes cannot be decoded."""
    try:
        return assigned_partitions(base64.b64decode(assignment))
    except ValueError:
        return frozenset()
