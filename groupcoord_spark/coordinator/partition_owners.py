"""Which member of a group a partition belonged to, from successive records of the group."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

from groupcoord_spark.protocol.consumer_protocol import assigned_partitions

CLASSIC_KEY: Final = 2
CURRENT_ASSIGNMENT_KEY: Final = 8
KEY_TYPES: Final = (CLASSIC_KEY, CURRENT_ASSIGNMENT_KEY)
"""Types of the records that ``PartitionOwners`` reads: a classic group's own, and the current assignment of a consumer group's member."""


class PartitionOwners:
    """The assignments of one group, record after record. Groups of other types have no owners here: share groups share partitions."""

    def __init__(self) -> None:
        self._classic: dict[tuple[str, int], str] = {}
        self._of_members: dict[str, set[tuple[str, int]]] = {}
        """Topic id and partition, by member of a consumer group."""

    def apply(self, key_type: int, member_id: str | None, value: Mapping[str, Any] | None) -> None:
        """A record of ``KEY_TYPES``, its value as in Kafka's JSON; None: a tombstone."""
        if key_type == CLASSIC_KEY:
            self._classic = {}
            # Other protocol types, such as Kafka Connect's, have assignments of another form.
            members = value["members"] if value is not None and value["protocolType"] == "consumer" else ()
            for member in members:
                self._classic.update(dict.fromkeys(_assigned(member["assignment"]), member["memberId"]))
        elif member_id is not None:
            self._of_members.pop(member_id, None)
            if value is not None:
                # A member commits for partitions that it is about to give up, too.
                topics = [*value["assignedPartitions"], *value["partitionsPendingRevocation"]]
                self._of_members[member_id] = {(topic["topicId"], number) for topic in topics for number in topic["partitions"]}

    def owner_of(self, topic: str, topic_id: str | None, partition: int) -> str | None:
        """The member id; None: the records name no owner, or several. ``topic_id``: None if not known."""
        owners = [member for member, partitions in self._of_members.items() if (topic_id, partition) in partitions]
        if (topic, partition) in self._classic:
            owners.append(self._classic[topic, partition])
        return owners[0] if len(owners) == 1 else None


def _assigned(assignment: str) -> frozenset[tuple[str, int]]:
    """Partitions of an assignment in base64; none if a client wrote bytes of its own."""
    try:
        return assigned_partitions(base64.b64decode(assignment))
    except ValueError:
        return frozenset()
