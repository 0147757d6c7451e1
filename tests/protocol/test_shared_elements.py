"""Values that share equal parts with earlier values are what each value is alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.protocol import definition
from tests.examples import examples

from .columns import outcome

few_texts = st.sampled_from(["", "a", "member-1", "member-2", "\U0001f389", "x" * 300])
few_blobs = st.sampled_from([b"", b"\0\1", bytes(200), bytes(5000)])
members = st.fixed_dictionaries(
    {
        "member_id": few_texts,
        "group_instance_id": st.none() | few_texts,
        "client_id": few_texts,
        "client_host": few_texts,
        "rebalance_timeout_ms": st.integers(0, 2),
        "session_timeout_ms": st.integers(0, 2),
        "subscription": few_blobs,
        "assignment": few_blobs,
    }
)


@st.composite
def generations(draw: st.DrawFn) -> list[bytes]:
    """Values of classic groups with the same few members in the one and the other, some of them cut or with a byte changed."""
    values = []
    few_lists = st.sampled_from(draw(st.lists(st.lists(members, max_size=4), min_size=1, max_size=3)))
    for of_generation in draw(st.lists(few_lists | st.lists(members, max_size=4), min_size=2, max_size=6)):
        fields = {
            "protocol_type": "consumer",
            "generation": 1,
            "protocol": "range",
            "leader": "a",
            "current_state_timestamp_ms": 1,
            "members": of_generation,
        }
        value = bytearray(definition.encode_value(2, draw(st.integers(0, 4)), fields))
        if draw(st.booleans()):
            at = draw(st.integers(2, len(value) - 1))
            if draw(st.booleans()):
                del value[at:]
            else:
                value[at] ^= draw(st.integers(1, 255))
        values.append(bytes(value))
    return values


@examples(150)
@given(generations())
def test_members_that_come_again_are_what_they_are_alone(values: list[bytes]) -> None:
    shared = definition.SharedElements()
    for value in values:
        alone = repr(outcome(lambda value=value: definition.decode_value(2, value)))  # type: ignore[misc]
        assert repr(outcome(lambda value=value: definition.decode_value(2, value, shared=shared))) == alone  # type: ignore[misc]


def test_members_with_a_doubt_give_it_each_time() -> None:
    fields = {"protocol_type": "consumer", "generation": 1, "protocol": "range", "leader": None, "current_state_timestamp_ms": 1}
    member = {
        "client_id": "client",
        "client_host": "HOST",
        "rebalance_timeout_ms": 1,
        "session_timeout_ms": 2,
        "subscription": b"",
        "assignment": b"",
    }
    members = [{"member_id": name, "group_instance_id": None, **member} for name in ("one", "another")]
    value = definition.encode_value(2, 3, {**fields, "members": members}).replace(b"HOST", b"HO\xffT")
    shared = definition.SharedElements()
    for _ in range(2):
        decoded = definition.decode_value(2, value, shared=shared)
        assert decoded is not None and [doubt.code for doubt in decoded.doubts] == ["invalid_utf8"] * 2


def test_members_that_come_again_are_the_same_objects() -> None:
    member = {"client_id": "client", "client_host": "/10.0.0.1", "session_timeout_ms": 2, "subscription": b"s", "assignment": b"a"}
    first = {"protocol_type": "consumer", "generation": 1, "protocol": "range", "leader": None}
    second = {**first, "generation": 2}
    both, one = [{"member_id": "one", **member}, {"member_id": "another", **member}], [{"member_id": "another", **member}]
    values = [definition.encode_value(2, 0, {**fields, "members": each}) for fields, each in ((first, both), (second, both), (second, one))]
    shared = definition.SharedElements()
    before, after, last = (definition.decode_value(2, value, shared=shared) for value in values)
    assert before is not None and after is not None and last is not None
    assert after.fields["generation"] == 2 and after.fields["members"] is before.fields["members"]
    assert last.fields["members"] == one and last.fields["members"][0] is before.fields["members"][1]
