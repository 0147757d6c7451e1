"""Which member a partition belonged to."""

from __future__ import annotations

import base64
from typing import Any

from groupcoord_spark.answers.partition_owners import PartitionOwners
from groupcoord_spark.protocol.consumer_protocol import Assignment, encode_assignment
from groupcoord_spark.protocol.record_types import KeyType


def generation(protocol_type: str = "consumer", **partitions: tuple[int, ...]) -> dict[str, Any]:
    def stored(numbers: tuple[int, ...]) -> str:
        return base64.b64encode(encode_assignment(Assignment(1, {"t": numbers}, None))).decode()

    members = [{"memberId": name, "assignment": stored(numbers)} for name, numbers in partitions.items()]
    return {"protocolType": protocol_type, "members": members}


def current(*partitions: int, revoking: tuple[int, ...] = ()) -> dict[str, Any]:
    def topics(numbers: tuple[int, ...]) -> list[dict[str, Any]]:
        return [{"topicId": "T", "partitions": list(numbers)}] if numbers else []

    return {"assignedPartitions": topics(partitions), "partitionsPendingRevocation": topics(revoking)}


def test_the_newest_generation_of_a_classic_group_says_who_owns_a_partition() -> None:
    owners = PartitionOwners()
    owners.apply(KeyType.GROUP_METADATA, None, generation(a=(0, 1), b=(2,)))
    assert [owners.owner_of("t", None, number) for number in range(4)] == ["a", "a", "b", None]
    owners.apply(KeyType.GROUP_METADATA, None, generation(b=(0, 1, 2)))
    assert owners.owner_of("t", None, 0) == "b"
    owners.apply(KeyType.GROUP_METADATA, None, None)
    assert owners.owner_of("t", None, 0) is None


def test_a_member_of_a_consumer_group_owns_what_it_is_about_to_give_up() -> None:
    owners = PartitionOwners()
    owners.apply(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "a", current(0, revoking=(1,)))
    assert [owners.owner_of("t", "T", number) for number in (0, 1, 2)] == ["a", "a", None]
    assert owners.owner_of("t", "another id", 0) is None
    owners.apply(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "a", None)
    assert owners.owner_of("t", "T", 0) is None


def test_bytes_that_are_no_assignment_and_those_of_connect_name_no_owner() -> None:
    owners = PartitionOwners()
    owners.apply(KeyType.GROUP_METADATA, None, {"protocolType": "consumer", "members": [{"memberId": "a", "assignment": "AAAA"}]})
    assert owners.owner_of("t", None, 0) is None
    owners.apply(KeyType.GROUP_METADATA, None, generation("connect", a=(0,)))
    assert owners.owner_of("t", None, 0) is None


def test_a_group_that_changes_its_protocol_has_one_owner_of_a_partition() -> None:
    # A report listed the classic member and the consumer member as owners of one partition, both until now.
    owners = PartitionOwners()
    owners.apply(KeyType.GROUP_METADATA, None, generation(a=(0, 1)))
    owners.apply(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, "b", current(0))
    assert [(holding.member_id, holding.partition) for holding in owners.holdings()] == [("b", 0)]
    owners.apply(KeyType.GROUP_METADATA, None, generation(c=(0,)))
    assert [(holding.member_id, holding.partition) for holding in owners.holdings()] == [("c", 0)]
