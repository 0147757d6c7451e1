"""A group of 1,000 members and 10,000 partitions is assigned while one waits."""

from __future__ import annotations

import time
from dataclasses import replace
from random import Random

import pytest

from groupcoord_spark.assignors import (
    CLIENT_ASSIGNORS,
    SERVER_ASSIGNORS,
    Assignor,
    Member,
    Topic,
    balance_of,
    quality_of,
    sticky_assignment,
    uniform_assignment,
)

from .groups import topic_id

SECONDS = 10


@pytest.mark.parametrize("assignor", [*CLIENT_ASSIGNORS.values(), *SERVER_ASSIGNORS.values()])
@pytest.mark.parametrize("same_topics", [True, False])
def test_a_thousand_members_share_ten_thousand_partitions_in_seconds(assignor: Assignor, same_topics: bool) -> None:
    random = Random(7)
    racks = [frozenset(random.sample("abcdef", 3)) for _ in range(100)]
    topics = {f"t{i:02}": Topic(100, racks=tuple(random.choices(racks, k=100)), topic_id=topic_id(i + 1)) for i in range(100)}
    names = tuple(topics)
    members = [
        Member(f"consumer-{i}", names if same_topics else tuple(random.sample(names, 50)), rack=random.choice("abcdef"))
        for i in range(1000)
    ]
    started = time.process_time()
    before = assignor(members, topics)
    stayed = [replace(member, owned=before[member.member_id], generation=1) for member in members[100:]]
    after = assignor(stayed, topics)
    assert time.process_time() - started < SECONDS
    assert sum(balance_of(before).partitions_by_member.values()) == 10_000
    if assignor in (sticky_assignment, uniform_assignment):
        assert balance_of(after).spread <= 1
        assert quality_of(stayed, topics, after).unassigned == 0
