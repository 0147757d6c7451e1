"""What an assignment is worth, and what a change would do."""

from __future__ import annotations

from dataclasses import replace

from groupcoord_spark.assignors import (
    Member,
    MemberChange,
    OwnerChange,
    Topic,
    TopicPartition,
    balance_of,
    compare_assignments,
    quality_of,
    sticky_assignment,
)

from .groups import partitions_of, topics_of


def test_balance_counts_every_member() -> None:
    balance = balance_of({"a": partitions_of("t", 0, 1, 2), "b": partitions_of("t", 3), "c": ()})
    assert balance.partitions_by_member == {"a": 3, "b": 1, "c": 0}
    assert (balance.least, balance.most, balance.spread) == (0, 3, 3)


def test_balance_of_nobody_is_even() -> None:
    assert balance_of({}).spread == 0


def test_a_partition_has_moved_if_its_rightful_owner_lost_it() -> None:
    members = [
        Member("a", ("t",), owned=partitions_of("t", 0, 1), generation=2),
        Member("b", ("t",), owned=partitions_of("t", 1), generation=3),
        Member("c", ("t",), owned=partitions_of("t", 2), generation=3),
        Member("d", ("t",), owned=partitions_of("t", 2), generation=3),
    ]
    assignment = {"a": partitions_of("t", 1), "b": partitions_of("t", 0), "c": partitions_of("t", 2), "d": ()}
    quality = quality_of(members, topics_of(t=4), assignment)
    assert quality.moved == 2  # 0 and 1; 2 was contested, it had no owner
    assert quality.unassigned == 1


def test_a_rack_miss_needs_a_rack_on_both_sides() -> None:
    topics = {"racked": Topic(2, racks=(frozenset("a"), frozenset())), "bare": Topic(1)}
    members = [Member("m", ("racked", "bare"), rack="b"), Member("n", ("racked",))]
    assignment = {"m": partitions_of("racked", 0, 1) + partitions_of("bare", 0), "n": ()}
    assert quality_of(members, topics, assignment).rack_misses == 2
    assert quality_of(members, topics, {"m": (), "n": partitions_of("racked", 0, 1)}).rack_misses == 0


def test_partitions_of_topics_the_holder_does_not_name_are_counted() -> None:
    assert quality_of([Member("a", ())], topics_of(t=1), {"a": partitions_of("t", 0)}).not_subscribed == 1


def test_a_comparison_tells_moves_from_new_and_lost_partitions() -> None:
    before = {"a": partitions_of("t", 0, 1), "gone": partitions_of("t", 2) + partitions_of("u", 0)}
    after = {"a": partitions_of("t", 0), "new": partitions_of("t", 1, 2, 3)}
    changes = compare_assignments(before, after)
    assert changes.moved == (OwnerChange(TopicPartition("t", 1), "a", "new"), OwnerChange(TopicPartition("t", 2), "gone", "new"))
    assert changes.assigned == (OwnerChange(TopicPartition("t", 3), None, "new"),)
    assert changes.released == (OwnerChange(TopicPartition("u", 0), "gone", None),)
    assert changes.kept == 1
    assert changes.members == (
        MemberChange("a", before=2, after=1, gained=0, lost=1),
        MemberChange("gone", before=2, after=None, gained=0, lost=2),
        MemberChange("new", before=None, after=3, gained=3, lost=0),
    )
    assert (changes.before.spread, changes.after.spread) == (0, 2)


def test_two_more_members_and_more_partitions_as_a_command_would_ask() -> None:
    members = [Member(f"c{i}", ("t",)) for i in range(4)]
    before = sticky_assignment(members, topics_of(t=24))
    owners = [replace(member, owned=before[member.member_id], generation=1) for member in members]
    after = sticky_assignment([*owners, Member("new-0", ("t",)), Member("new-1", ("t",))], topics_of(t=48))
    changes = compare_assignments(before, after)
    assert (changes.after.least, changes.after.most) == (8, 8)
    assert (len(changes.moved), len(changes.assigned), changes.kept) == (0, 24, 24)
