"""Groups from rebalance to rebalance."""

from __future__ import annotations

from groupcoord_spark.assignors import (
    Member,
    Topic,
    balance_of,
    cooperative_sticky_assignment,
    quality_of,
    range_assignment,
    rebalances_until_stable,
    sticky_assignment,
)

from .groups import by_topic, partitions_of, topics_of


def racks(*of_partitions: str) -> tuple[frozenset[str], ...]:
    """Racks of one letter each, a word a partition."""
    return tuple(frozenset(letters) for letters in of_partitions)


def test_one_rebalance_is_enough_for_assignors_that_revoke_everything() -> None:
    done = rebalances_until_stable(range_assignment, [Member("a", ("t",)), Member("b", ("t",))], topics_of(t=3))
    assert done.converges
    assert len(done.assignments) == 1


def test_a_cooperative_group_that_goes_round_for_ever_is_told() -> None:
    # a partition out of its owner's rack is taken away in every rebalance, and every one finds another such owner
    topics = {"t": Topic(5, racks=racks("c", "ac", "ac", "bc", "a")), "u": Topic(4, racks=racks("c", "b", "b", "c"))}
    members = [
        Member("c", ("u",), rack="a", owned=partitions_of("u", 3), generation=4),
        Member("a", ("t",), rack="b"),
        Member("d", ("t", "u")),
        Member("b", ("u", "t"), rack="c"),
    ]
    done = rebalances_until_stable(cooperative_sticky_assignment, members, topics)
    assert not done.converges
    assert done.assignments[-1] == done.assignments[0]
    assert [quality_of(members, topics, assignment).unassigned for assignment in done.assignments] == [1, 3, 1]


def test_an_exchange_of_partitions_without_end_is_broken_off() -> None:
    topics = {"t": Topic(2), "u": Topic(7), "v": Topic(7, racks=racks("bc", "bc", "a", "b", "b", "ab", "a"))}
    members = [
        Member("b", ("u",), owned=partitions_of("u", 6), generation=4),
        Member("d", ("v", "u"), rack="a", generation=5),
        Member("c", ("u",), generation=3),
        Member("a", ("v", "t"), owned=partitions_of("v", 1, 2, 0, 5, 3, 4), generation=4),
    ]
    assignment = sticky_assignment(members, topics)
    assert balance_of(assignment).partitions_by_member == {"a": 5, "b": 3, "c": 3, "d": 5}
    assert quality_of(members, topics, assignment).unassigned == 0


def test_a_claim_of_an_older_generation_can_bring_back_a_topic_that_is_no_longer_named() -> None:
    members = [
        Member("c", ("t",), generation=3),
        Member("a", ("u", "t"), owned=partitions_of("u", 0) + partitions_of("t", 0), generation=4),
        Member("b", ("u",), owned=partitions_of("t", 0), generation=3),
    ]
    assignment = sticky_assignment(members, topics_of(t=1, u=1))
    assert by_topic(assignment) == {"a": {"u": [0]}, "b": {"t": [0]}, "c": {}}
    assert quality_of(members, topics_of(t=1, u=1), assignment).not_subscribed == 1


def test_such_a_claim_counts_for_nothing_once_the_subscribers_are_balanced() -> None:
    members = [
        Member("b", ("u",), owned=partitions_of("t", 4), generation=3),
        Member("a", ("t",), generation=4),
        Member("c", ("u", "t"), generation=5),
    ]
    assignment = sticky_assignment(members, topics_of(t=5, u=1))
    assert by_topic(assignment) == {"a": {"t": [0, 2, 4]}, "b": {"u": [0]}, "c": {"t": [1, 3]}}
