"""Classic groups: what a value of key type 2 makes of a group and its members."""

import pytest

from groupcoord_spark.coordinator import JAVA, SCALA, Semantics, semantics_for
from groupcoord_spark.protocol.record_types import KeyType
from tests.coordinator.records import (
    classic_group,
    codes_of,
    group_of,
    member,
    offset_commit,
    replayed,
    stable_classic_group,
    subscription,
    tombstone,
)

BOTH = pytest.mark.parametrize("semantics", [JAVA, SCALA], ids=["java", "scala"])


@BOTH
def test_members_make_a_group_stable(semantics: Semantics) -> None:
    row = replayed([stable_classic_group("t", generation=4, state_ms=99)], semantics).groups()[0]
    assert (row.state, row.protocol_type, row.protocol, row.generation, row.leader_id) == ("Stable", "consumer", "range", 4, "m")
    assert (row.state_timestamp_ms, row.subscribed_topics, row.member_count, row.is_simple) == (99, ("t",), 1, False)


@BOTH
def test_state_timestamp_of_minus_one_is_none(semantics: Semantics) -> None:
    assert replayed([classic_group(state_ms=-1)], semantics).groups()[0].state_timestamp_ms is None
    assert replayed([classic_group(version=1)], semantics).groups()[0].state_timestamp_ms is None


@BOTH
def test_leader_is_the_first_member_where_none_is_told(semantics: Semantics) -> None:
    state = replayed([classic_group(members=[member("b"), member("a")])], semantics)
    assert state.groups()[0].leader_id == "b"
    assert [(row.member_id, row.is_leader) for row in state.members()] == [("a", False), ("b", True)]


@BOTH
def test_leader_that_is_no_member_is_kept(semantics: Semantics) -> None:
    assert replayed([classic_group(members=[member("a")], leader="x")], semantics).groups()[0].leader_id == "x"


@BOTH
def test_any_generation_is_accepted(semantics: Semantics) -> None:
    assert replayed([classic_group(generation=-1)], semantics).groups()[0].generation == -1


@BOTH
def test_empty_protocol_type_with_members_is_present_and_not_simple(semantics: Semantics) -> None:
    row = replayed([classic_group("", members=[member()], protocol="p")], semantics).groups()[0]
    assert (row.protocol_type, row.state, row.is_simple, row.subscribed_topics) == ("", "Stable", False, None)


@BOTH
def test_members_without_a_protocol_have_unknown_topics(semantics: Semantics) -> None:
    state = replayed([classic_group(members=[member(subscription=subscription("t"))], protocol=None)], semantics)
    assert (group_of(state), state.groups()[0].subscribed_topics) == (("classic", "Stable"), None)


@BOTH
def test_record_without_protocol_type_and_members_is_simple_whatever_its_generation(semantics: Semantics) -> None:
    row = replayed([classic_group("", generation=7, state_ms=5)], semantics).groups()[0]
    assert (row.is_simple, row.generation, row.protocol_type) == (True, 7, None)


@BOTH
def test_topics_are_those_of_all_members(semantics: Semantics) -> None:
    members = [member("a", subscription("t", "u")), member("b", subscription("v"))]
    assert replayed([classic_group(members=members, protocol="range")], semantics).groups()[0].subscribed_topics == ("t", "u", "v")


@BOTH
@pytest.mark.parametrize("blob", [b"", b"\0", b"\0\0", b"\0\0\0\0\0\1\0"], ids=["none", "half version", "no count", "half length"])
def test_subscription_that_ends_in_a_fixed_size_field_leaves_topics_unknown(blob: bytes, semantics: Semantics) -> None:
    members = [member("a", blob), member("b", subscription("v"))]
    state = replayed([classic_group(members=members, protocol="range")], semantics)
    assert (state.groups()[0].subscribed_topics, codes_of(state)) == (None, [])


MALFORMED = {
    "negative count": b"\0\0\xff\xff\xff\xff",
    "count beyond the end": b"\0\0\x7f\xff\xff\xff",
    "topic beyond the end": b"\0\0\0\0\0\1\0\5t",
    "user data beyond the end": b"\0\0\0\0\0\0\0\0\0\5",
}


@BOTH
@pytest.mark.parametrize("blob", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_subscription_is_warned_of_and_the_group_kept(blob: bytes, semantics: Semantics) -> None:
    state = replayed([classic_group(members=[member("a", blob)], protocol="range")], semantics)
    assert (group_of(state), state.groups()[0].subscribed_topics) == (("classic", "Stable"), None)
    assert codes_of(state) == [(0, "R-2.4")]


def test_brokers_before_2_4_never_read_subscriptions() -> None:
    record = classic_group(members=[member("a", MALFORMED["negative count"])], protocol="range", version=2)
    assert codes_of(replayed([record], semantics_for(broker_version="2.3.1"))) == []


def test_the_same_bytes_do_not_matter_in_a_connect_group() -> None:
    assert codes_of(replayed([classic_group("connect", members=[member("a", MALFORMED["negative count"])], protocol="p")])) == []


def test_instance_id_given_twice_keeps_the_last_member() -> None:
    state = replayed([classic_group(members=[member("a", group_instance_id="i"), member("b", group_instance_id="i")])])
    assert [(row.member_id, row.instance_id) for row in state.members()] == [("b", "i")]
    assert codes_of(state) == [(0, "R-2.1")]


def test_member_id_given_twice_keeps_the_last_entry() -> None:
    state = replayed([classic_group(members=[member("a", client_id="x"), member("a", client_id="y")])])
    assert [(row.member_id, row.client_id) for row in state.members()] == [("a", "y")]
    assert codes_of(state) == [(0, "R-2.2")]
    assert "could not have loaded" not in state.warnings()[0].detail


def test_member_id_given_twice_with_another_member_after_it_fails_a_load() -> None:
    state = replayed([classic_group(members=[member("a"), member("a"), member("b")])])
    assert [row.member_id for row in state.members()] == ["a", "b"]
    assert "could not have loaded" in state.warnings()[0].detail


def test_assignment_and_owned_partitions_are_read_from_the_members_bytes() -> None:
    one_topic = b"\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\3"
    owned = b"\0\1" + subscription("t")[2:] + one_topic
    state = replayed([classic_group(members=[member("a", owned, assignment=b"\0\1" + one_topic + b"\xff\xff\xff\xff")], protocol="range")])
    rows = [(row.kind, row.topic, row.partition, row.topic_id) for row in state.assignments()]
    assert rows == [("current", "t", 0, None), ("current", "t", 3, None), ("owned", "t", 0, None), ("owned", "t", 3, None)]
    assert state.groups()[0].assigned_partition_count == 2


def test_unreadable_assignment_costs_its_own_rows_only() -> None:
    state = replayed([classic_group(members=[member("a", subscription("t"), assignment=b"\0\0\0\0")], protocol="range")])
    assert (state.assignments(), state.members()[0].assignment, codes_of(state)) == ([], b"\0\0\0\0", [])


def test_subscription_gives_the_members_topics_rack_and_user_data() -> None:
    blob = b"\0\3\0\0\0\1\0\1t\0\0\0\2hi\0\0\0\0\0\0\0\5\0\1r"
    row = replayed([classic_group(members=[member("a", blob)], protocol="range")]).members()[0]
    assert (row.subscribed_topics, row.rack_id, row.user_data, row.subscription) == (("t",), "r", b"hi", blob)


def test_last_group_record_wins_and_says_where_it_is() -> None:
    state = replayed([classic_group(generation=1), offset_commit("t0", 5), classic_group(generation=2), offset_commit("t1", 6)])
    row = state.groups()[0]
    assert (row.generation, row.record_offset, row.record_timestamp_ms) == (2, 2, 1_000)
    assert (row.offset_count, row.topic_count) == (2, 1)


def test_group_known_by_commits_alone_has_no_record_of_its_own() -> None:
    row = replayed([offset_commit("t0", 5)]).groups()[0]
    assert (row.is_simple, row.generation, row.protocol_type, row.record_offset, row.state_timestamp_ms) == (True, 0, None, None, None)


@BOTH
def test_tombstone_then_a_new_life(semantics: Semantics) -> None:
    state = replayed([classic_group(generation=5), tombstone(KeyType.GROUP_METADATA), classic_group(generation=1)], semantics)
    assert (state.groups()[0].generation, codes_of(state)) == (1, [])
