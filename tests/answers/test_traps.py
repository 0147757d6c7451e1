"""Each trap is shown for the offsets that are in it, and for no others."""

from __future__ import annotations

import pytest

from groupcoord_spark.answers.expiration import Traps, traps_of
from groupcoord_spark.coordinator import Cleanup, GroupFacts, Semantics, semantics_for
from groupcoord_spark.coordinator.transactions import StoredOffset

NOW_MS, DAY_MS = 1_000_000_000_000, 86_400_000
EMPTY = GroupFacts("g", "classic", "Empty", "consumer", 3, 0, NOW_MS - 6 * DAY_MS, frozenset())
LIVE = EMPTY._replace(state="Stable", member_count=1, state_timestamp_ms=None, subscribed_topics=frozenset({"t"}))
SIMPLE = EMPTY._replace(protocol_type=None, generation=0, state_timestamp_ms=None)
CONSUMER = EMPTY._replace(group_type="consumer", state_timestamp_ms=None)


def traps(group: GroupFacts, topic: str = "t", *, commit_ms: int = NOW_MS, expire_ms: int = -1, **more: object) -> list[str]:
    semantics = more.get("semantics", semantics_for())
    assert isinstance(semantics, Semantics)
    stored = StoredOffset(1, -1, "", commit_ms, expire_ms, None, 3, -1, -1, 0, 0)
    cleanup = Cleanup(NOW_MS, 7 * DAY_MS, semantics, assume_members_gone=bool(more.get("gone")))
    done = cleanup.of_group(group, {(topic, 0): stored}, [(topic, 0)] if more.get("pending") else [])
    return traps_of(cleanup.facts_of(group), stored, done.offsets[0]).names()


def test_offsets_restored_into_an_empty_group_inherit_its_time() -> None:
    assert traps(EMPTY) == ["inherits_empty_time"]
    assert traps(EMPTY, commit_ms=NOW_MS - 7 * DAY_MS) == []
    assert traps(EMPTY._replace(state_timestamp_ms=None)) == []
    assert traps(CONSUMER) == []


def test_offsets_of_topics_no_longer_subscribed_expire_under_a_live_group() -> None:
    assert traps(LIVE, "u") == ["topic_is_unsubscribed"]
    assert traps(LIVE._replace(group_type="consumer"), "u") == ["topic_is_unsubscribed"]
    assert traps(LIVE) == []
    assert traps(LIVE._replace(protocol_type="connect"), "u") == []
    assert traps(LIVE, "u", gone=True) == []


def test_simple_groups_and_explicit_moments() -> None:
    assert traps(SIMPLE) == ["is_simple_group"]
    assert traps(SIMPLE, expire_ms=NOW_MS) == ["is_simple_group", "has_explicit_expiry"]
    assert traps(LIVE, "u", expire_ms=NOW_MS) == ["topic_is_unsubscribed", "has_explicit_expiry"]
    assert traps(LIVE, expire_ms=NOW_MS) == []


def test_an_open_transaction_holds_whatever_else_is_the_matter() -> None:
    assert traps(SIMPLE, expire_ms=0, pending=True) == []


@pytest.mark.parametrize(("expire_ms", "names"), [(-1, []), (NOW_MS, ["has_explicit_expiry"])])
def test_before_2_1_only_the_explicit_moment_is_a_trap(expire_ms: int, names: list[str]) -> None:
    assert traps(LIVE, "u", expire_ms=expire_ms, semantics=semantics_for(None, "1.1")) == names


def test_traps_have_the_names_of_their_columns() -> None:
    assert Traps._fields == ("inherits_empty_time", "topic_is_unsubscribed", "is_simple_group", "has_explicit_expiry")
