"""The assignor of share groups, on groups whose assignments Kafka's SimpleAssignor 4.3.1 has computed."""

from __future__ import annotations

from groupcoord_spark.assignors.simple import simple_assignment

T, U = "ZG_16wmru21OEcFSD9Mvdw", "Uh2JGcfSDDG0qpgnRLdCpw"
V, Z = "vok5EhkF6F8aMHvewHK6Yg", "ZQFUjauKCkEfezgc2cIFRw"


def test_members_of_the_same_topics_share_all_partitions_evenly() -> None:
    shared = simple_assignment({V: [T, U], Z: [T, U]}, {}, {T: range(5), U: range(4)}, is_homogeneous=True)
    assert shared == {V: {T: [1, 2, 3], U: [0, 1]}, Z: {T: [0, 4], U: [2, 3]}}


def test_every_member_has_a_partition_when_members_are_more_than_partitions() -> None:
    shared = simple_assignment({name: [T] for name in "abcde"}, {}, {T: range(2)}, is_homogeneous=True)
    assert all(len(partitions[T]) >= 1 for partitions in shared.values())
    assert sum(len(partitions[T]) for partitions in shared.values()) == 6  # each partition has three members


def test_a_member_keeps_what_it_has_up_to_its_share() -> None:
    shared = simple_assignment({"A": [T], "B": [T]}, {"A": {T: [0, 1]}}, {T: range(2)}, is_homogeneous=True)
    assert shared == {"A": {T: [1]}, "B": {T: [0]}}


def test_a_topic_that_a_member_gives_up_stays_in_its_target_without_partitions() -> None:
    before = {"A": {T: [0, 1]}, "B": {T: [0], U: [0]}}
    shared = simple_assignment({"A": [U], "B": [T, U]}, before, {T: range(2), U: range(2)}, is_homogeneous=False)
    assert shared["A"] == {T: [], U: [1]}


def test_partitions_without_share_state_are_not_assigned() -> None:
    assert simple_assignment({"A": [T]}, {}, {}, is_homogeneous=True) == {"A": {}}
