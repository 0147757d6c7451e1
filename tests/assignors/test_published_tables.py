"""Small groups whose assignments are known from runs of Kafka's classes."""

from __future__ import annotations

import pytest

from groupcoord_spark.assignors import (
    Assignor,
    Member,
    Topic,
    TopicPartition,
    cooperative_sticky_assignment,
    range_assignment,
    rebalances_until_stable,
    roundrobin_assignment,
    server_range_assignment,
    sticky_assignment,
    uniform_assignment,
)

from .groups import by_topic, partitions_of, topics_of


def members_of(**topics: str) -> list[Member]:
    """Members by id, each with its topics as words of one text."""
    return [Member(member_id, tuple(names.split())) for member_id, names in topics.items()]


class TestRange:
    def test_the_first_members_get_one_partition_more(self) -> None:
        members = members_of(c0="t", c1="t", c2="t", c3="t", c4="t")
        assert by_topic(range_assignment(members, topics_of(t=7))) == {
            "c0": {"t": [0, 1]},
            "c1": {"t": [2, 3]},
            "c2": {"t": [4]},
            "c3": {"t": [5]},
            "c4": {"t": [6]},
        }

    def test_each_topic_is_shared_out_for_itself(self) -> None:
        members = members_of(c0="t1 t2", c1="t1 t2", c2="t1 t2", c3="t2", c4="t2")
        assert by_topic(range_assignment(members, topics_of(t1=5, t2=7))) == {
            "c0": {"t1": [0, 1], "t2": [0, 1]},
            "c1": {"t1": [2, 3], "t2": [2, 3]},
            "c2": {"t1": [4], "t2": [4]},
            "c3": {"t2": [5]},
            "c4": {"t2": [6]},
        }

    @pytest.mark.parametrize("assignor", [range_assignment, server_range_assignment])
    def test_static_members_come_first_by_instance_id(self, assignor: Assignor) -> None:
        members = [Member("b", ("t",)), Member("zzz", ("t",), instance_id="z")]
        assert by_topic(assignor(members, topics_of(t=3))) == {"zzz": {"t": [0, 1]}, "b": {"t": [2]}}

    def test_a_partition_goes_to_a_member_in_its_rack(self) -> None:
        topics = {"t": Topic(2, racks=(frozenset("b"), frozenset("a")))}
        members = [Member("c0", ("t",), rack="a"), Member("c1", ("t",), rack="b")]
        assert by_topic(range_assignment(members, topics)) == {"c0": {"t": [1]}, "c1": {"t": [0]}}

    def test_topics_partitioned_alike_stay_together_before_racks_count(self) -> None:
        racks = (frozenset("b"), frozenset("a"))
        topics = {"t1": Topic(2, racks=racks), "t2": Topic(2, racks=racks[::-1])}
        members = [Member("c0", ("t1", "t2"), rack="a"), Member("c1", ("t1", "t2"), rack="b")]
        assert by_topic(range_assignment(members, topics)) == {"c0": {"t1": [0], "t2": [0]}, "c1": {"t1": [1], "t2": [1]}}


class TestRoundRobin:
    def test_partitions_go_round(self) -> None:
        members = members_of(c0="t", c1="t", c2="t")
        assert by_topic(roundrobin_assignment(members, topics_of(t=7))) == {
            "c0": {"t": [0, 3, 6]},
            "c1": {"t": [1, 4]},
            "c2": {"t": [2, 5]},
        }

    def test_a_topic_goes_on_where_the_one_before_it_stopped(self) -> None:
        members = members_of(c0="t1 t2", c1="t1 t2", c2="t1 t2", c3="t2", c4="t2")
        assert by_topic(roundrobin_assignment(members, topics_of(t1=5, t2=7))) == {
            "c0": {"t1": [0, 3], "t2": [3]},
            "c1": {"t1": [1, 4], "t2": [4]},
            "c2": {"t1": [2], "t2": [0, 5]},
            "c3": {"t2": [1, 6]},
            "c4": {"t2": [2]},
        }


class TestSticky:
    def test_a_new_group_is_served_in_turn(self) -> None:
        members = members_of(a="t", b="t", c="t")
        assert by_topic(sticky_assignment(members, topics_of(t=7))) == {
            "a": {"t": [0, 3, 6]},
            "b": {"t": [1, 4]},
            "c": {"t": [2, 5]},
        }

    def test_a_new_group_is_served_topic_after_topic(self) -> None:
        members = members_of(a="t0 t1", b="t0 t1", c="t0 t1")
        expected = {"a": {"t0": [0], "t1": [0]}, "b": {"t0": [1], "t1": [1]}, "c": {"t0": [2], "t1": [2]}}
        assert by_topic(sticky_assignment(members, topics_of(t0=3, t1=3))) == expected

    def test_members_first_in_map_order_without_topics_get_partitions_of_topics_they_never_named(self) -> None:
        assert by_topic(sticky_assignment(members_of(a="", b="t"), topics_of(t=2))) == {"a": {"t": [0]}, "b": {"t": [1]}}

    def test_members_later_in_map_order_without_topics_get_none(self) -> None:
        assert by_topic(sticky_assignment(members_of(a="t", b=""), topics_of(t=2))) == {"a": {"t": [0, 1]}, "b": {}}


class TestCooperativeSticky:
    def test_a_new_member_waits_until_its_partitions_are_revoked(self) -> None:
        members = [
            Member("a", ("t",), owned=partitions_of("t", 0, 1, 2), generation=5),
            Member("b", ("t",), owned=partitions_of("t", 3, 4, 5), generation=5),
            Member("c", ("t",)),
        ]
        first, second = rebalances_until_stable(cooperative_sticky_assignment, members, topics_of(t=6)).assignments
        assert by_topic(first) == {"a": {"t": [0, 1]}, "b": {"t": [3, 4]}, "c": {}}
        assert by_topic(second) == {"a": {"t": [0, 1]}, "b": {"t": [3, 4]}, "c": {"t": [2, 5]}}

    def test_half_of_what_one_member_had_moves_to_the_second(self) -> None:
        members = [Member("a", ("t",), owned=partitions_of("t", 0, 1, 2, 3, 4), generation=5), Member("b", ("t",))]
        first, second = rebalances_until_stable(cooperative_sticky_assignment, members, topics_of(t=5)).assignments
        assert by_topic(first) == {"a": {"t": [0, 1, 2]}, "b": {}}
        assert by_topic(second) == {"a": {"t": [0, 1, 2]}, "b": {"t": [3, 4]}}

    def test_a_claim_of_an_older_generation_gives_way(self) -> None:
        members = [
            Member("a", ("t",), owned=partitions_of("t", 0, 1), generation=5),
            Member("b", ("t",), owned=partitions_of("t", 1, 2), generation=4),
        ]
        assert by_topic(cooperative_sticky_assignment(members, topics_of(t=4))) == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}

    def test_a_partition_claimed_twice_in_one_generation_waits(self) -> None:
        members = [
            Member("a", ("t",), owned=partitions_of("t", 0, 1), generation=5),
            Member("b", ("t",), owned=partitions_of("t", 1, 2), generation=5),
        ]
        assert by_topic(cooperative_sticky_assignment(members, topics_of(t=4))) == {"a": {"t": [0]}, "b": {"t": [2, 3]}}

    def test_partitions_wait_too_where_members_name_different_topics(self) -> None:
        members = [
            Member("a", ("t1",), owned=partitions_of("t1", 0), generation=5),
            Member("b", ("t1", "t2"), owned=partitions_of("t1", 1, 2) + partitions_of("t2", 0, 1, 2), generation=5),
        ]
        first, second = rebalances_until_stable(cooperative_sticky_assignment, members, topics_of(t1=3, t2=3)).assignments
        assert by_topic(first) == {"a": {"t1": [0]}, "b": {"t2": [0, 1, 2]}}
        assert by_topic(second) == {"a": {"t1": [0, 1, 2]}, "b": {"t2": [0, 1, 2]}}


class TestServerRange:
    def test_partitions_of_the_same_number_go_to_the_same_member(self) -> None:
        assert by_topic(server_range_assignment(members_of(A="T1 T2", B="T1 T2"), topics_of(T1=3, T2=2))) == {
            "A": {"T1": [0, 1], "T2": [0]},
            "B": {"T1": [2], "T2": [1]},
        }

    def test_only_subscribers_count(self) -> None:
        assert by_topic(server_range_assignment(members_of(A="T1 T2", B="T2", C="T1 T2"), topics_of(T1=5, T2=4))) == {
            "A": {"T1": [0, 1, 2], "T2": [0, 1]},
            "B": {"T2": [2]},
            "C": {"T1": [3, 4], "T2": [3]},
        }


class TestUniform:
    def test_a_new_member_does_without_the_extra_partition_while_others_may_have_to_keep_it(self) -> None:
        assert by_topic(uniform_assignment(members_of(A="T", B="T"), topics_of(T=5))) == {"A": {"T": [0, 1]}, "B": {"T": [2, 3, 4]}}

    @pytest.mark.parametrize(
        ("partitions", "targets", "expected"),
        [
            (5, {"A": [0, 1, 2, 3, 4], "B": []}, {"A": [0, 1, 2], "B": [3, 4]}),
            (6, {"A": [0, 1, 2], "B": [3, 4, 5], "C": []}, {"A": [0, 1], "B": [3, 4], "C": [2, 5]}),
            (5, {"A": [0, 1], "B": [2, 3]}, {"A": [0, 1], "B": [2, 3, 4]}),
        ],
    )
    def test_members_keep_of_their_target_what_their_share_holds(
        self, partitions: int, targets: dict[str, list[int]], expected: dict[str, list[int]]
    ) -> None:
        members = [Member(member_id, ("T",), owned=partitions_of("T", *target)) for member_id, target in targets.items()]
        assignment = uniform_assignment(members, topics_of(T=partitions))
        assert by_topic(assignment) == {member_id: {"T": numbers} for member_id, numbers in expected.items()}

    def test_members_of_different_topics_are_levelled(self) -> None:
        assert by_topic(uniform_assignment(members_of(A="T1", B="T1 T2", C="T2"), topics_of(T1=3, T2=3))) == {
            "A": {"T1": [0, 2]},
            "B": {"T1": [1], "T2": [2]},
            "C": {"T2": [0, 1]},
        }

    def test_a_topic_without_an_id_is_refused_with_its_name(self) -> None:
        with pytest.raises(ValueError, match=r"Topic 't' has no id"):
            uniform_assignment(members_of(a="t"), {"t": Topic(1)})


EVERY_ASSIGNOR: list[Assignor] = [
    range_assignment,
    roundrobin_assignment,
    sticky_assignment,
    cooperative_sticky_assignment,
    uniform_assignment,
    server_range_assignment,
]


@pytest.mark.parametrize("assignor", EVERY_ASSIGNOR)
class TestCorners:
    def test_a_group_without_members_gets_nothing(self, assignor: Assignor) -> None:
        assert assignor([], topics_of(t=3)) == {}

    def test_topics_the_cluster_lacks_are_left_out(self, assignor: Assignor) -> None:
        assert assignor(members_of(a="gone t", b="gone"), topics_of(t=1)) == {"a": partitions_of("t", 0), "b": ()}

    def test_members_that_name_nothing_get_nothing(self, assignor: Assignor) -> None:
        assert assignor(members_of(a="", b=""), topics_of(t=3)) == {"a": (), "b": ()}

    def test_topics_nobody_names_stay_unassigned(self, assignor: Assignor) -> None:
        assert assignor(members_of(a="t"), topics_of(t=1, other=1)) == {"a": (TopicPartition("t", 0),)}
