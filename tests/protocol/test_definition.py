from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given

from groupcoord_spark.protocol import RECORD_TYPES, UNKNOWN_TAGS, DecodeError, EncodeError, definition
from groupcoord_spark.protocol.errors import UnknownKeyType, UnknownValueVersion
from groupcoord_spark.protocol.fields import Message, RecordType
from tests.examples import examples, randoms
from tests.protocol.columns import value_json_texts

from .from_tables import fields_of, layouts

LAYOUTS = layouts()


EVERY_LAYOUT = pytest.mark.parametrize(
    ("record_type", "message", "version"), LAYOUTS, ids=[f"{r.key_type}-v{version}-{m.dialect or 'current'}" for r, m, version in LAYOUTS]
)
EVERY_TYPE = pytest.mark.parametrize("record_type", RECORD_TYPES.values(), ids=lambda record_type: str(record_type.key_type))


@EVERY_TYPE
@examples(12)
@given(rng=randoms)
def test_a_key_that_is_written_is_read_with_no_byte_left_over(record_type: RecordType, rng: Random) -> None:
    fields = fields_of(rng, record_type.key.fields, 0, False)
    key = definition.encode_key(record_type.key_type, fields, dialect=record_type.dialect)
    decoded = definition.decode_key(key, dialect=record_type.dialect)
    assert (decoded.key_type, decoded.name, decoded.fields) == (record_type.key_type, record_type.key.name, fields)
    assert {doubt.code for doubt in decoded.doubts} <= {"negative_partition"}


@EVERY_LAYOUT
@examples(6)
@given(rng=randoms)
def test_a_value_that_is_written_is_read_with_no_byte_left_over(
    record_type: RecordType, message: Message, version: int, rng: Random
) -> None:
    fields = fields_of(rng, message.fields, version, message.is_flexible(version))
    value = definition.encode_value(record_type.key_type, version, fields, dialect=message.dialect)
    decoded = definition.decode_value(record_type.key_type, value, dialect=record_type.dialect)
    shared = definition.SharedElements()
    assert decoded is not None and decoded == definition.decode_value(
        record_type.key_type, value, dialect=record_type.dialect, shared=shared
    )
    if decoded.dialect == message.dialect:
        assert (decoded.version, decoded.name, decoded.fields) == (version, message.name, fields)
        assert {doubt.code for doubt in decoded.doubts} <= {"negative_offset"}
    else:
        # bytes of an older layout that happen to be whole in the one of today are read as Kafka of today reads them
        assert decoded.dialect is None


# where there are older layouts a cut value may be whole in one of them
ONE_LAYOUT = [(record_type, version) for record_type, _, version in LAYOUTS if not record_type.dialects and record_type.dialect is None]


@pytest.mark.parametrize(("record_type", "version"), ONE_LAYOUT, ids=[f"{r.key_type}-v{version}" for r, version in ONE_LAYOUT])
@examples(5)
@given(rng=randoms)
def test_every_cut_prefix_of_a_value_is_refused(record_type: RecordType, version: int, rng: Random) -> None:
    fields = fields_of(rng, record_type.value.fields, version, record_type.value.is_flexible(version))
    value = definition.encode_value(record_type.key_type, version, fields)
    for length in range(min(len(value), 150)):
        with pytest.raises(DecodeError) as refusal:
            definition.decode_value(record_type.key_type, value[:length])
        assert refusal.value.code in ("value_too_short", "value_truncated", "value_malformed")


@EVERY_TYPE
def test_every_cut_prefix_of_a_key_is_truncated(record_type: RecordType) -> None:
    fields = {field.name: 7 if field.name == "partition" else "name" for field in record_type.key.fields}
    key = definition.encode_key(record_type.key_type, fields, dialect=record_type.dialect)
    for length in range(2, len(key)):
        with pytest.raises(DecodeError) as refusal:
            definition.decode_key(key[:length], dialect=record_type.dialect)
        assert refusal.value.code == "key_truncated"


class TestFields:
    def test_a_field_the_version_lacks_is_absent_and_a_tag_not_written_is_there(self) -> None:
        v2 = definition.decode_value(1, bytes.fromhex("0002 000000000000002a 0000 0000018bcfe56800"))
        v4 = definition.decode_value(1, bytes.fromhex("0004 000000000000002a ffffffff 01 0000018bcfe56800 00"))
        assert v2 is not None and v4 is not None
        assert v2.fields == {"committed_offset": 42, "metadata": "", "commit_timestamp_ms": 1700000000000}
        assert v4.fields == {**v2.fields, "leader_epoch": -1, "topic_id": "A" * 22}

    def test_a_member_without_the_tag_is_one_of_the_classic_protocol(self) -> None:
        decoded = definition.decode_value(5, bytes.fromhex("0000 00 00 02 63 02 68 01 00 ffffffff 00 00"))
        assert decoded is not None
        assert decoded.fields["classic_member_metadata"] == {"session_timeout_ms": 0, "supported_protocols": []}
        assert "classicMemberMetadata" not in definition.value_json(decoded)

    def test_a_default_is_nobodys_to_change(self) -> None:
        value = bytes.fromhex("0000 00 00 02 63 02 68 01 00 ffffffff 00 00")
        first, second = definition.decode_value(5, value), definition.decode_value(5, value)
        assert first is not None and second is not None
        first.fields["classic_member_metadata"]["supported_protocols"].append("mine")
        assert definition.decode_value(5, value) == second


class TestUnknownTags:
    value = bytes.fromhex("0000 00000005 0000000000000063 03 00 04 00000000 02 04 00000001 03 04 fffffffe")

    def test_they_are_kept_by_number_and_written_back(self) -> None:
        decoded = definition.decode_value(17, self.value)
        assert decoded is not None
        assert decoded.fields[UNKNOWN_TAGS] == {2: b"\0\0\0\1", 3: b"\xff\xff\xff\xfe"}
        assert definition.encode_value(17, 0, decoded.fields) == self.value

    def test_kafkas_json_does_not_show_them(self) -> None:
        assert value_json_texts([17], [self.value]) == ['{"epoch":5,"metadataHash":99,"validatedTopologyEpoch":0}']


class TestDialects:
    def test_the_layout_of_today_comes_first(self) -> None:
        decoded = definition.decode_value(4, bytes.fromhex("0000 01 00"))
        assert decoded is not None and decoded.dialect is None

    @pytest.mark.parametrize(
        ("key_type", "value", "dialect"),
        [
            (4, "0000 00000000 01 00", "3.7"),
            (5, "0000 00 00 02 63 02 68 02 02 74 01 000493e0 00 01 00", "3.7"),
            (11, "0000 00000003 00", "4.0"),
        ],
    )
    def test_layouts_of_early_releases_are_read_and_named(self, key_type: int, value: str, dialect: str) -> None:
        decoded = definition.decode_value(key_type, bytes.fromhex(value))
        assert decoded is not None and decoded.dialect == dialect and decoded.doubts == ()

    def test_a_cut_value_of_today_is_no_older_layout_with_something_left_over(self) -> None:
        with pytest.raises(DecodeError) as refusal:
            definition.decode_value(11, bytes.fromhex("0000 00000003 00000001"))
        assert refusal.value.code == "value_truncated"

    def test_type_9_is_known_to_those_who_ask_for_4_0_only(self) -> None:
        key, value = bytes.fromhex("0009 0001 73"), bytes.fromhex("0000 01 00")
        with pytest.raises(UnknownKeyType):
            definition.decode_key(key)
        with pytest.raises(UnknownKeyType):
            definition.decode_value(9, value)
        assert definition.decode_key(key, dialect="4.0").name == "ShareGroupPartitionMetadataKey"
        decoded = definition.decode_value(9, value, dialect="4.0")
        assert decoded is not None and definition.value_json(decoded) == {"topics": []}


class TestEncoding:
    def test_a_missing_field_is_named(self) -> None:
        with pytest.raises(EncodeError, match="OffsetCommitKey v0: the field 'topic' is missing"):
            definition.encode_key(1, {"group_id": "g", "partition": 0})

    def test_a_field_that_no_table_has_is_named(self) -> None:
        with pytest.raises(EncodeError, match="no field is called 'group'"):
            definition.encode_key(2, {"group_id": "g", "group": "g"})

    @pytest.mark.parametrize("fields", [{"group_id": None}, {"group_id": "x" * 32768}, {"group_id": 7}])
    def test_what_does_not_fit_is_refused(self, fields: dict[str, Any]) -> None:
        with pytest.raises(EncodeError):
            definition.encode_key(2, fields)

    def test_numbers_out_of_range_are_refused(self) -> None:
        with pytest.raises(EncodeError, match="2147483648 does not fit into int32"):
            definition.encode_key(1, {"group_id": "g", "topic": "t", "partition": 2**31})

    def test_fields_of_other_versions_are_left_out_and_defaults_filled_in(self) -> None:
        fields = {"committed_offset": 42, "metadata": "", "commit_timestamp_ms": 1700000000000, "expire_timestamp_ms": 5}
        assert definition.encode_value(1, 3, fields) == bytes.fromhex("0003 000000000000002a ffffffff 0000 0000018bcfe56800")

    def test_unknown_types_and_versions_are_refused(self) -> None:
        with pytest.raises(UnknownKeyType):
            definition.encode_key(18, {"group_id": "g"})
        with pytest.raises(UnknownValueVersion):
            definition.encode_value(1, 5, {})
