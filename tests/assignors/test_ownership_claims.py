"""Who owns what before a sticky rebalance."""

from __future__ import annotations

from groupcoord_spark.assignors.membership import Member
from groupcoord_spark.assignors.ownership_claims import previous_owners, resolve_claims

from .groups import partitions_of


def claiming(member_id: str, generation: int, *partitions: int) -> Member:
    return Member(member_id, ("t",), owned=partitions_of("t", *partitions), generation=generation)


def test_the_higher_generation_wins_whichever_is_read_first() -> None:
    old, new = claiming("old", 4, 0, 1), claiming("new", 5, 1)
    for members in ([old, new], [new, old]):
        claims = resolve_claims(members, {"t"})
        assert claims.owned == {"old": partitions_of("t", 0), "new": partitions_of("t", 1)}
        assert claims.contested == frozenset()


def test_two_claims_of_one_generation_cancel_each_other() -> None:
    claims = resolve_claims([claiming("a", 5, 0), claiming("b", 5, 0), claiming("c", 5, 0)], {"t"})
    assert claims.owned == {"a": (), "b": (), "c": ()}
    assert claims.contested == frozenset(partitions_of("t", 0))


def test_a_later_generation_owns_what_earlier_ones_contested() -> None:
    claims = resolve_claims([claiming("a", 4, 0), claiming("b", 4, 0), claiming("c", 5, 0)], {"t"})
    assert claims.owned == {"a": (), "b": (), "c": partitions_of("t", 0)}
    assert claims.contested == frozenset(partitions_of("t", 0))


def test_a_partition_named_twice_by_one_member_is_contested() -> None:
    claims = resolve_claims([claiming("a", 5, 0, 1, 0)], {"t"})
    assert claims.owned == {"a": partitions_of("t", 1)}
    assert claims.contested == frozenset(partitions_of("t", 0))


def test_claims_of_topics_nobody_names_do_not_count() -> None:
    assert resolve_claims([claiming("a", 5, 0)], {"other"}).owned == {"a": ()}


def test_previous_claimants_are_those_behind_the_newest_generation() -> None:
    members = [claiming("a", 3, 0, 1), claiming("b", 4, 1), claiming("c", 4, 1), claiming("d", 5, 2)]
    assert previous_owners(members) == dict(zip(partitions_of("t", 0, 1), ["a", "b"], strict=True))
