from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.protocol import (
    DecodeError,
    SubscriptionMalformed,
    SubscriptionUnknown,
    decode_assignment,
    decode_connect_assignment,
    decode_connect_metadata,
    decode_subscription,
    subscribed_topics,
)
from groupcoord_spark.protocol import consumer_protocol as cp
from groupcoord_spark.protocol.consumer_protocol import decode_cooperative_sticky_generation, decode_sticky_user_data
from groupcoord_spark.protocol.errors import AssignmentMalformed, ConnectMalformed
from tests.examples import examples

V0 = "0000 00000001 0001 74 00000001 aa"
V1 = "0001 00000001 0001 74 00000001 aa 00000001 0001 74 00000001 00000001"
V2 = V1.replace("0001", "0002", 1) + "00000005"
V3 = V2.replace("0002", "0003", 1) + "0001 72"


def subscription(hexadecimal: str) -> Any:
    return decode_subscription(bytes.fromhex(hexadecimal))


class TestSubscription:
    @pytest.mark.parametrize(
        ("data", "version", "owned", "generation_id", "rack_id"),
        [(V0, 0, {}, -1, None), (V1, 1, {"t": (1,)}, -1, None), (V2, 2, {"t": (1,)}, 5, None), (V3, 3, {"t": (1,)}, 5, "r")],
    )
    def test_each_version_adds_its_fields(self, data: str, version: int, owned: Any, generation_id: int, rack_id: str | None) -> None:
        read = subscription(data)
        assert (read.version, read.topics, read.user_data, read.doubts) == (version, ("t",), b"\xaa", ())
        assert (read.owned_partitions, read.generation_id, read.rack_id) == (owned, generation_id, rack_id)

    def test_no_bytes_are_no_subscription_and_no_error(self) -> None:
        assert decode_subscription(b"") is None

    def test_later_versions_are_read_as_the_last_known_one(self) -> None:
        read = subscription(V3.replace("0003", "0009", 1) + "ffff")
        assert (read.version, read.rack_id, read.doubts) == (9, "r", ())

    def test_a_negative_version_has_the_fields_of_version_0(self) -> None:
        read = subscription(V3.replace("0003", "ffff", 1))
        assert (read.version, read.topics, read.owned_partitions) == (-1, ("t",), {})

    def test_bytes_that_end_where_a_field_would_start_mean_its_default(self) -> None:
        read = subscription(V0.replace("0000", "0003", 1))
        assert (read.version, read.owned_partitions, read.generation_id, read.rack_id, read.doubts) == (3, {}, -1, None, ())

    def test_bytes_that_end_inside_a_later_field_leave_the_topics(self) -> None:
        read = subscription(V2.replace("0002", "0003", 1) + "0005 72")
        assert (read.topics, read.owned_partitions, read.generation_id, read.rack_id) == (("t",), {}, -1, None)
        assert [doubt.code for doubt in read.doubts] == ["subscription_truncated"]

    def test_an_empty_rack_is_none(self) -> None:
        assert subscription(V2.replace("0002", "0003", 1) + "0000").rack_id is None

    def test_a_topic_that_comes_twice_has_both_lists(self) -> None:
        owned = "00000002 0001 74 00000001 00000001 0001 74 00000002 00000000 00000001"
        assert subscription("0001 00000000 ffffffff" + owned).owned_partitions == {"t": (1, 0, 1)}

    @pytest.mark.parametrize(
        "data", ["00", "0000 0000", "0000 00000001 00", "0000 00000000", "0000 ffffffff 00000001", "0000 00000000 00000009"]
    )
    def test_topics_and_user_data_must_be_there(self, data: str) -> None:
        with pytest.raises(SubscriptionMalformed):
            subscription(data)

    def test_text_that_is_not_utf8_is_replaced_and_noted(self) -> None:
        read = subscription("0000 00000001 0001 ff ffffffff")
        assert read.topics == ("\ufffd",) and [doubt.code for doubt in read.doubts] == ["invalid_utf8"]


class TestSubscribedTopicsAsTheBrokerReadsThem:
    @pytest.mark.parametrize("data", [V0, V1, V2, V3, V0.replace("0000", "ffff", 1), V0 + "0badc0de"])
    def test_only_the_layout_of_version_0_counts(self, data: str) -> None:
        assert subscribed_topics(bytes.fromhex(data)) == {"t"}

    @pytest.mark.parametrize("data", ["", "00", "0000", "0000 000000", "0000 00000001 00", "0000 00000001 0001 74", "0000 00000000 000000"])
    def test_an_end_inside_a_fixed_size_field_makes_them_unknown(self, data: str) -> None:
        with pytest.raises(SubscriptionUnknown):
            subscribed_topics(bytes.fromhex(data))

    @pytest.mark.parametrize(
        "data",
        [
            "0000 ffffffff 00000000",  # null topics
            "0000 7fffffff 00000000",  # more topics than bytes
            "0000 00000001",  # one topic and no byte left
            "0000 00000001 ffff ffffffff",  # null topic
            "0000 00000001 0009 74 ffffffff",  # topic beyond the end
            "0000 00000000 00000002 aa",  # user data beyond the end
        ],
    )
    def test_other_faults_are_the_ones_a_load_does_not_survive(self, data: str) -> None:
        with pytest.raises(SubscriptionMalformed) as refusal:
            subscribed_topics(bytes.fromhex(data))
        assert refusal.value.code == "subscription_malformed"

    @examples(150)
    @given(st.binary(max_size=24) | st.integers(0, 40).map(lambda n: bytes.fromhex(V3)[:n]))
    def test_what_the_broker_reads_the_lenient_reader_reads_too(self, data: bytes) -> None:
        try:
            topics = subscribed_topics(data)
        except DecodeError:
            if data:
                with pytest.raises(SubscriptionMalformed):
                    decode_subscription(data)
        else:
            read = decode_subscription(data)
            assert read is not None and frozenset(read.topics) == topics


class TestAssignment:
    @pytest.mark.parametrize("version", ["0000", "0001", "0002", "0003", "0007"])
    def test_all_versions_have_one_layout(self, version: str) -> None:
        read = decode_assignment(bytes.fromhex(version + "00000001 0001 74 00000001 00000001 ffffffff"))
        assert read is not None and (read.partitions, read.user_data) == ({"t": (1,)}, None)

    def test_no_bytes_are_no_assignment(self) -> None:
        assert decode_assignment(b"") is None

    @pytest.mark.parametrize("data", ["00", "ffff 00000000 ffffffff", "0000 00000001 0001 74", "0000 00000000", "0000 ffffffff ffffffff"])
    def test_what_cannot_be_read_is_malformed(self, data: str) -> None:
        with pytest.raises(AssignmentMalformed):
            decode_assignment(bytes.fromhex(data))


class TestUserData:
    held = "00000001 0001 74 00000002 00000000 00000001"

    def test_sticky_tells_partitions_and_generation(self) -> None:
        read = decode_sticky_user_data(bytes.fromhex(self.held + "00000004"))
        assert (read.previous_assignment, read.generation) == ({"t": (0, 1)}, 4)

    def test_the_first_layout_of_sticky_has_no_generation(self) -> None:
        read = decode_sticky_user_data(bytes.fromhex(self.held))
        assert (read.previous_assignment, read.generation) == ({"t": (0, 1)}, None)

    def test_nothing_told_is_nothing_held(self) -> None:
        assert decode_sticky_user_data(None).generation is None
        assert decode_cooperative_sticky_generation(None) is None

    def test_what_cannot_be_read_is_nothing_held_in_generation_minus_one(self) -> None:
        read = decode_sticky_user_data(b"\xff\xff\xff\xff\x01")
        assert (read.previous_assignment, read.generation) == ({}, -1)
        assert decode_cooperative_sticky_generation(b"\0\0") == -1

    def test_cooperative_sticky_tells_its_generation(self) -> None:
        assert decode_cooperative_sticky_generation(bytes.fromhex("00000007")) == 7


METADATA = "0002 000e 687474703a2f2f683a383038332f 0000000000000005"
ASSIGNMENT = (
    "0002 0000 0009 636f6e6e6563742d31 000e 687474703a2f2f683a383038332f 0000000000000005 00000001 0002 6331 00000002 ffffffff 00000000"
)


class TestConnect:
    def test_a_worker_tells_where_it_is_and_how_far_it_has_read(self) -> None:
        read = decode_connect_metadata(bytes.fromhex(METADATA + "ffffffff"), "sessioned")
        assert read is not None
        assert (read.version, read.url, read.config_offset, read.allocation, read.doubts) == (2, "http://h:8083/", 5, None, ())

    def test_a_worker_tells_what_it_runs(self) -> None:
        held = bytes.fromhex(ASSIGNMENT)
        read = decode_connect_metadata(bytes.fromhex(METADATA) + len(held).to_bytes(4, "big") + held)
        assert read is not None and read.allocation is not None
        assert (read.allocation.leader, read.allocation.assignment) == ("connect-1", {"c1": (-1, 0)})

    def test_an_allocation_that_cannot_be_read_costs_only_itself(self) -> None:
        read = decode_connect_metadata(bytes.fromhex(METADATA + "00000003 000200"))
        assert read is not None and (read.url, read.allocation) == ("http://h:8083/", None)
        assert [doubt.code for doubt in read.doubts] == ["connect_malformed"]

    def test_missing_fields_of_later_versions_have_defaults(self) -> None:
        read = decode_connect_assignment(bytes.fromhex(ASSIGNMENT))
        assert read is not None and (read.error, read.revoked, read.delay_ms) == (0, {}, 0)

    def test_later_fields_are_read(self) -> None:
        read = decode_connect_assignment(bytes.fromhex(ASSIGNMENT + "00000001 0002 6332 00000001 00000001 00000bb8"))
        assert read is not None and (read.revoked, read.delay_ms) == ({"c2": (1,)}, 3000)

    def test_the_protocol_decides_the_layout(self) -> None:
        read = decode_connect_assignment(bytes.fromhex(ASSIGNMENT + "00000001 0002 6332 00000001 00000001 00000bb8"), "default")
        assert read is not None and (read.version, read.assignment, read.revoked, read.delay_ms) == (2, {"c1": (-1, 0)}, {}, 0)

    @pytest.mark.parametrize("read", [decode_connect_metadata, decode_connect_assignment])
    def test_no_bytes_are_nothing_and_bad_ones_malformed(self, read: Callable[[bytes], Any]) -> None:
        assert read(b"") is None
        for data in ("00", "ffff 0000", "0000 0003 68", "0001 0000 0005"):
            with pytest.raises(ConnectMalformed):
                read(bytes.fromhex(data))


@pytest.mark.parametrize("version", range(4))
def test_what_a_client_writes_reads_back(version):
    owned = {"t": (1, 0)} if version >= 1 else {}
    generation, rack = 5 if version >= 2 else -1, "r1" if version >= 3 else None
    subscription = cp.Subscription(version, ("t", "u"), b"note", owned, generation, rack)
    assert cp.decode_subscription(cp.encode_subscription(subscription)) == subscription
    assignment = cp.Assignment(version, {"t": (0, 2), "u": (1,)}, None)
    assert cp.decode_assignment(cp.encode_assignment(assignment)) == assignment


@pytest.mark.parametrize("generation", [None, 7])
def test_sticky_user_data_reads_back(generation):
    held = cp.StickyUserData({"t": (0, 2)}, generation)
    assert cp.decode_sticky_user_data(cp.encode_sticky_user_data(held)) == held
    assert cp.decode_cooperative_sticky_generation(cp.encode_cooperative_sticky_generation(7)) == 7
