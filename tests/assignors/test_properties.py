"""What holds of every assignment, whatever the group."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.assignors import (
    CLIENT_ASSIGNORS,
    SERVER_ASSIGNORS,
    Assignment,
    Assignor,
    Member,
    Topic,
    TopicPartition,
    balance_of,
    compare_assignments,
    cooperative_sticky_assignment,
    quality_of,
    range_assignment,
    rebalances_until_stable,
    roundrobin_assignment,
    server_range_assignment,
    sticky_assignment,
    uniform_assignment,
)
from tests.examples import examples

from .groups import groups, subscribed_partitions

Group = tuple[list[Member], dict[str, Topic]]

COMPLETE = [
    range_assignment,
    roundrobin_assignment,
    sticky_assignment,
    uniform_assignment,
    server_range_assignment,
]
EVENLY_OVER_ALL = [roundrobin_assignment, sticky_assignment, uniform_assignment]

quick = examples(40)


def held_times(assignment: Assignment) -> Counter[TopicPartition]:
    return Counter(partition for partitions in assignment.values() for partition in partitions)


def next_round(members: list[Member], assignment: Assignment, generation: int) -> list[Member]:
    return [replace(member, owned=assignment[member.member_id], generation=generation) for member in members]


def with_valid_targets(members: list[Member]) -> list[Member]:
    """Return the members without claims that another one made first: a broker's target has each partition once."""
    taken: set[TopicPartition] = set()
    kept = []
    for member in members:
        kept.append(replace(member, owned=tuple(partition for partition in member.owned if partition not in taken)))
        taken.update(member.owned)
    return kept


@pytest.mark.parametrize("assignor", COMPLETE)
@quick
@given(data=st.data())
def test_every_partition_of_a_named_topic_is_with_exactly_one_member(assignor: Assignor, data: st.DataObject) -> None:
    members, topics = data.draw(groups(same_topics=data.draw(st.booleans()), with_racks=True, with_claims=True))
    assignment = assignor(with_valid_targets(members), topics)
    assert held_times(assignment) == Counter(subscribed_partitions(members, topics))
    assert list(assignment) and set(assignment) == {member.member_id for member in members}


@pytest.mark.parametrize("assignor", [*CLIENT_ASSIGNORS.values(), *SERVER_ASSIGNORS.values()])
@quick
@given(data=st.data())
def test_members_hold_only_topics_they_name(assignor: Assignor, data: st.DataObject) -> None:
    members, topics = data.draw(groups(same_topics=data.draw(st.booleans()), with_racks=True))
    # claims of one generation: an older one can bring back a topic that its member no longer names
    assignment = assignor(next_round(members, assignor(members, topics), 7), topics)
    assert quality_of(members, topics, assignment).not_subscribed == 0


@pytest.mark.parametrize("assignor", EVENLY_OVER_ALL)
@quick
@given(group=groups(same_topics=True, with_racks=True, with_claims=True))
def test_members_of_the_same_topics_differ_by_at_most_one_partition(assignor: Assignor, group: Group) -> None:
    members, topics = group
    assert balance_of(assignor(with_valid_targets(members), topics)).spread <= 1


@pytest.mark.parametrize("assignor", [range_assignment, server_range_assignment])
@quick
@given(group=groups(with_racks=True))
def test_range_shares_each_topic_evenly_among_its_subscribers(assignor: Assignor, group: Group) -> None:
    members, topics = group
    assignment = assignor(members, topics)
    for name in topics:
        shares = [sum(partition.topic == name for partition in assignment[member.member_id]) for member in members if name in member.topics]
        assert max(shares, default=0) - min(shares, default=0) <= 1


@pytest.mark.parametrize("assignor", [sticky_assignment, uniform_assignment])
@quick
@given(group=groups())
def test_no_single_move_betters_the_balance_of_a_new_group(assignor: Assignor, group: Group) -> None:
    members, topics = group
    assignment = assignor(members, topics)
    loads = balance_of(assignment).partitions_by_member
    for member_id, partitions in assignment.items():
        for name in {partition.topic for partition in partitions}:
            least = min(loads[member.member_id] for member in members if name in member.topics)
            assert loads[member_id] <= least + 1


@pytest.mark.parametrize("assignor", [range_assignment, roundrobin_assignment, server_range_assignment])
@quick
@given(data=st.data())
def test_without_memory_the_order_of_the_members_does_not_matter(assignor: Assignor, data: st.DataObject) -> None:
    members, topics = data.draw(groups(with_racks=True))
    assert assignor(data.draw(st.permutations(members)), topics) == assignor(members, topics)


@pytest.mark.parametrize("assignor", [sticky_assignment, cooperative_sticky_assignment, uniform_assignment])
@quick
@given(data=st.data())
def test_a_group_in_which_nothing_changes_keeps_its_partitions(assignor: Assignor, data: st.DataObject) -> None:
    members, topics = data.draw(groups(same_topics=data.draw(st.booleans())))
    first = assignor(members, topics)
    assert assignor(next_round(members, first, 1), topics) == first


@pytest.mark.parametrize("assignor", [sticky_assignment, uniform_assignment])
@quick
@given(data=st.data())
def test_who_stays_keeps_everything_when_members_leave(assignor: Assignor, data: st.DataObject) -> None:
    members, topics = data.draw(groups(same_topics=True))
    before = assignor(members, topics)
    staying = data.draw(st.lists(st.sampled_from(members), min_size=1, unique_by=lambda member: member.member_id))
    after = assignor(next_round(staying, before, 1), topics)
    assert quality_of(next_round(staying, before, 1), topics, after).moved == 0


@quick
@given(data=st.data())
def test_only_what_new_members_get_moves_when_members_join(data: st.DataObject) -> None:
    members, topics = data.draw(groups(same_topics=True))
    before = sticky_assignment(members, topics)
    joining = [replace(members[0], member_id=f"new-{i}", instance_id=None) for i in range(data.draw(st.integers(1, 4)))]
    after = sticky_assignment([*next_round(members, before, 1), *joining], topics)
    assert len(compare_assignments(before, after).moved) == sum(len(after[member.member_id]) for member in joining)


@quick
@given(data=st.data())
def test_sticky_moves_no_more_than_a_fresh_start_would(data: st.DataObject) -> None:
    members, topics = data.draw(groups(same_topics=True, with_claims=True))
    fresh = sticky_assignment([replace(member, owned=(), generation=-1) for member in members], topics)
    assert quality_of(members, topics, sticky_assignment(members, topics)).moved <= quality_of(members, topics, fresh).moved


@quick
@given(data=st.data())
def test_cooperative_members_get_no_partition_that_another_member_says_it_has(data: st.DataObject) -> None:
    members, topics = data.draw(groups(same_topics=data.draw(st.booleans()), with_racks=True, with_claims=True))
    assignment = cooperative_sticky_assignment(members, topics)
    assert max(held_times(assignment).values(), default=0) <= 1
    claimed_by = {member.member_id: set(member.owned) for member in members}
    for member_id, partitions in assignment.items():
        elsewhere = {partition for other, claims in claimed_by.items() if other != member_id for partition in claims}
        assert not set(partitions).difference(claimed_by[member_id]) & elsewhere


@quick
@given(data=st.data())
def test_a_cooperative_partition_moves_only_after_its_owner_has_revoked_it(data: st.DataObject) -> None:
    members, topics = data.draw(groups(same_topics=data.draw(st.booleans()), with_claims=True))
    done = rebalances_until_stable(cooperative_sticky_assignment, members, topics)
    for before, after in zip(done.assignments, done.assignments[1:], strict=False):
        assert compare_assignments(before, after).moved == ()
    if done.converges:
        assert held_times(done.assignments[-1]) == Counter(subscribed_partitions(members, topics))


@quick
@given(group=groups(same_topics=True, with_claims=True))
def test_a_cooperative_group_of_the_same_topics_settles_in_two_rebalances(group: Group) -> None:
    members, topics = group
    done = rebalances_until_stable(cooperative_sticky_assignment, members, topics)
    assert done.converges
    assert len(done.assignments) <= 2
    assert balance_of(done.assignments[-1]).spread <= 1


@quick
@given(data=st.data())
def test_cooperative_gives_what_sticky_gives_less_what_waits(data: st.DataObject) -> None:
    members, topics = data.draw(groups(same_topics=data.draw(st.booleans()), with_racks=True, with_claims=True))
    final = sticky_assignment(members, topics)
    for member_id, partitions in cooperative_sticky_assignment(members, topics).items():
        assert set(partitions) <= set(final[member_id])


@quick
@given(data=st.data())
def test_racks_everywhere_alike_change_nothing(data: st.DataObject) -> None:
    members, topics = data.draw(groups(same_topics=data.draw(st.booleans())))
    everywhere = {name: replace(topic, racks=(frozenset("ab"),) * topic.partitions) for name, topic in topics.items()}
    racked = [replace(member, rack=data.draw(st.sampled_from("ab"))) for member in members]
    for assignor in CLIENT_ASSIGNORS.values():
        assert assignor(racked, everywhere) == assignor(members, topics)
