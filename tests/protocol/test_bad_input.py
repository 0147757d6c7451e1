"""Every kind of bad input by its stable code: refused, or accepted with a doubt."""

from __future__ import annotations

import re

import pytest

from groupcoord_spark.protocol import DecodeError, columnar, definition
from groupcoord_spark.protocol.definition import DecodedValue
from groupcoord_spark.protocol.slices import Slices

OFFSET_V1 = bytes.fromhex("0001 000000000000002a 0000 0000018bcfe56800 0000018bd50bc400")
OFFSET_V3 = bytes.fromhex("0003 000000000000002a 00000005 0000 0000018bcfe56800")
OFFSET_V4 = bytes.fromhex("0004 000000000000002a 00000005 01 0000018bcfe56800")
TOPIC_ID = bytes.fromhex("0123456789abcdeffedcba9876543210")


def key_refusal(key: bytes | None) -> DecodeError:
    """Return the refusal of a key: the same from both decoders."""
    with pytest.raises(DecodeError) as by_definition:
        definition.decode_key(key)
    columns = columnar.decode_key_columns(Slices.of([key]))
    assert columns.status.to_pylist() == [by_definition.value.code] and not columns.ok[0]
    return by_definition.value


def value_refusal(key_type: int, value: bytes | None) -> DecodeError:
    """Return the refusal of a value, the same with elements of earlier values."""
    shared = definition.SharedElements()
    with pytest.raises(DecodeError) as refusal:
        definition.decode_value(key_type, value)
    with pytest.raises(type(refusal.value), match=re.escape(str(refusal.value))):
        definition.decode_value(key_type, value, shared=shared)
    return refusal.value


def decode(key_type: int, value: bytes) -> DecodedValue:
    decoded = definition.decode_value(key_type, value)
    assert decoded is not None and decoded == definition.decode_value(key_type, value, shared=definition.SharedElements())
    return decoded


def codes(decoded: definition.DecodedKey | DecodedValue) -> list[str]:
    return [doubt.code for doubt in decoded.doubts]


class TestKeys:
    def test_a_record_without_key_is_refused(self) -> None:
        assert key_refusal(None).code == "null_key"

    @pytest.mark.parametrize("key", [b"", b"\0"])
    def test_a_key_of_less_than_two_bytes_has_no_type(self, key: bytes) -> None:
        assert key_refusal(key).code == "key_too_short"

    @pytest.mark.parametrize("key", ["0018 0001 67", "0009 0001 67", "0012 0001 67", "ffff", "7fff", "8000 0001 67"])
    def test_types_that_no_release_of_today_knows_are_told_apart_from_bad_keys(self, key: str) -> None:
        assert key_refusal(bytes.fromhex(key)).code == "unknown_key_type"

    def test_a_key_that_ends_early_is_truncated(self) -> None:
        refusal = key_refusal(bytes.fromhex("0001 0001 67"))
        assert refusal.code == "key_truncated"
        assert refusal.detail == "OffsetCommitKey: 'topic' takes a length of 2 bytes at position 5, 0 remain."

    def test_a_key_that_ends_inside_a_text_is_truncated(self) -> None:
        refusal = key_refusal(bytes.fromhex("0002 0005 6768"))
        assert refusal.code == "key_truncated"
        assert refusal.detail == "GroupMetadataKey: 'group_id' declares 5 bytes at position 4, 2 remain."

    def test_a_null_text_in_a_key_is_malformed(self) -> None:
        assert key_refusal(bytes.fromhex("0002 ffff")).code == "key_malformed"

    def test_bytes_after_the_key_are_noted(self) -> None:
        assert codes(definition.decode_key(bytes.fromhex("0002 0001 67 ff"))) == ["key_trailing_bytes"]

    @pytest.mark.parametrize(("key", "marker"), [("0000 0000", "ABORT"), ("0000 0001", "COMMIT")])
    def test_a_transaction_marker_that_leaked_as_a_plain_record_is_named(self, key: str, marker: str) -> None:
        refusal = key_refusal(bytes.fromhex(key))
        assert refusal.code == "leaked_control_record"
        assert marker in refusal.detail and "Export segments instead" in refusal.detail

    @pytest.mark.parametrize("key", ["0000 0002", "0000 0000 00", "0000 00", "0001 0001"])
    def test_other_short_keys_are_no_markers(self, key: str) -> None:
        assert key_refusal(bytes.fromhex(key)).code == "key_truncated"

    def test_invalid_utf8_in_a_key_is_replaced_and_its_bytes_noted(self) -> None:
        decoded = definition.decode_key(bytes.fromhex("0002 0002 c328"))
        assert decoded.fields == {"group_id": "\ufffd("}
        assert codes(decoded) == ["invalid_utf8"] and "c328" in decoded.doubts[0].detail

    def test_a_negative_partition_is_noted(self) -> None:
        assert codes(definition.decode_key(bytes.fromhex("0001 0001 67 0001 74 ffffffff"))) == ["negative_partition"]

    def test_empty_group_and_topic_are_accepted(self) -> None:
        decoded = definition.decode_key(bytes.fromhex("0001 0000 0000 00000000"))
        assert decoded.fields == {"group_id": "", "topic": "", "partition": 0} and decoded.doubts == ()


class TestValues:
    @pytest.mark.parametrize("value", [b"", b"\0"])
    def test_a_value_of_less_than_two_bytes_is_no_tombstone(self, value: bytes) -> None:
        assert value_refusal(1, value).code == "value_too_short"

    def test_a_null_value_is_a_tombstone_of_every_known_type(self) -> None:
        for key_type in range(24):
            if key_type not in (9, 18):
                assert definition.decode_value(key_type, None) is None

    def test_a_tombstone_of_an_unknown_type_is_of_unknown_type(self) -> None:
        assert value_refusal(24, None).code == "unknown_key_type"

    @pytest.mark.parametrize(("key_type", "version"), [(0, 5), (1, 5), (2, 5), (3, 1), (23, 1), (1, 0x8000), (1, 0xFFFF)])
    def test_a_version_that_is_not_known_is_never_guessed(self, key_type: int, version: int) -> None:
        refusal = value_refusal(key_type, version.to_bytes(2, "big") + OFFSET_V3[2:])
        assert refusal.code == "unknown_value_version" and "is not known to this release" in refusal.detail

    def test_a_value_without_its_tagged_section_is_truncated(self) -> None:
        assert value_refusal(1, OFFSET_V4).code == "value_truncated"

    def test_a_value_that_ends_inside_a_number_is_truncated(self) -> None:
        refusal = value_refusal(1, OFFSET_V3[:-3])
        assert refusal.code == "value_truncated"
        assert refusal.detail == "OffsetCommitValue v3: 'commit_timestamp_ms' takes 8 bytes at position 16, 5 remain."

    def test_null_metadata_is_malformed(self) -> None:
        assert value_refusal(1, bytes.fromhex("0003 000000000000002a 00000005 ffff 0000018bcfe56800")).code == "value_malformed"
        assert value_refusal(1, bytes.fromhex("0004 000000000000002a 00000005 00 0000018bcfe56800 00")).code == "value_malformed"

    def test_a_length_beyond_the_end_is_malformed(self) -> None:
        refusal = value_refusal(1, bytes.fromhex("0003 000000000000002a 00000005 0012 0000018bcfe5"))
        assert refusal.code == "value_malformed"
        assert refusal.detail == "OffsetCommitValue v3: 'metadata' declares 18 bytes at position 16, 6 remain."

    def test_a_count_beyond_the_end_is_malformed(self) -> None:
        assert value_refusal(2, bytes.fromhex("0003 0000 00000000 ffff ffff ffffffffffffffff 7fffffff")).code == "value_malformed"

    def test_a_fault_deep_inside_says_where_it_is(self) -> None:
        refusal = value_refusal(2, bytes.fromhex("0000 0000 00000000 ffff ffff 00000001 0001 6d ffff 0000 0000 0000 0000"))
        assert refusal.detail == "GroupMetadataValue v0: 'members[0].client_id' is null at position 19 and may not be."

    def test_a_varint_without_end_is_malformed(self) -> None:
        assert value_refusal(1, OFFSET_V4[:14] + bytes.fromhex("808080808001")).code == "value_malformed"
        assert value_refusal(3, bytes.fromhex("0000 00000001 808080808001")).code == "value_malformed"

    def test_a_text_longer_than_kafka_reads_is_malformed(self) -> None:
        value = OFFSET_V4[:14] + bytes.fromhex("818002") + b"x" * 32768 + OFFSET_V4[15:] + b"\0"
        assert value_refusal(1, value).code == "value_malformed"

    def test_bytes_after_the_value_are_noted(self) -> None:
        assert codes(decode(1, OFFSET_V3 + b"\xff\xff")) == ["value_trailing_bytes"]

    @pytest.mark.parametrize("size", [15, 17])
    def test_the_size_of_a_known_tag_is_not_used_and_noted(self, size: int) -> None:
        decoded = decode(1, OFFSET_V4 + bytes([1, 0, size]) + TOPIC_ID)
        assert decoded.fields["topic_id"] == "ASNFZ4mrze_-3LqYdlQyEA"
        assert codes(decoded) == ["tagged_field_size_mismatch"]

    def test_a_tag_that_comes_twice_counts_by_its_last_data(self) -> None:
        decoded = decode(1, OFFSET_V4 + bytes([2, 0, 16]) + bytes(16) + bytes([0, 16]) + TOPIC_ID)
        assert decoded.fields["topic_id"] == "ASNFZ4mrze_-3LqYdlQyEA" and decoded.doubts == ()

    def test_tags_out_of_order_are_accepted(self) -> None:
        decoded = decode(1, OFFSET_V4 + bytes([2, 7, 1, 0xAA, 0, 16]) + TOPIC_ID)
        assert decoded.fields["_unknown_tags"] == {7: b"\xaa"} and decoded.doubts == ()

    def test_an_unknown_tag_larger_than_what_is_there_is_malformed(self) -> None:
        assert value_refusal(1, OFFSET_V4 + bytes([1, 7, 4, 1, 2, 3])).code == "value_malformed"

    def test_invalid_utf8_in_metadata_is_replaced_and_its_bytes_noted(self) -> None:
        decoded = decode(1, bytes.fromhex("0003 000000000000002a 00000005 0003 eda080 0000018bcfe56800"))
        assert decoded.fields["metadata"] == "\ufffd"
        assert codes(decoded) == ["invalid_utf8"] and "eda080" in decoded.doubts[0].detail

    @pytest.mark.parametrize("value", [OFFSET_V1, OFFSET_V3, OFFSET_V4 + b"\0"])
    def test_newer_versions_under_type_0_are_read_as_type_1(self, value: bytes) -> None:
        decoded, plain = decode(0, value), decode(1, value)
        assert (decoded.fields, decoded.name) == (plain.fields, "OffsetCommitValue")
        assert codes(decoded) == ["legacy_value_version"]

    def test_a_negative_offset_is_noted(self) -> None:
        assert codes(decode(1, bytes.fromhex("0003 ffffffffffffffff 00000005 0000 0000018bcfe56800"))) == ["negative_offset"]


class TestMarkers:
    def test_later_versions_only_append(self) -> None:
        assert definition.decode_end_transaction_marker(bytes.fromhex("0007 00000011 aa")) == 17

    @pytest.mark.parametrize("data", [None, "", "00", "0000", "0000 00", "ffff 0001"])
    def test_short_and_negative_ones_are_malformed(self, data: str | None) -> None:
        raw = None if data is None else bytes.fromhex(data)
        with pytest.raises(DecodeError) as refusal:
            definition.decode_end_transaction_marker(raw)
        assert refusal.value.code == "control_record_malformed"
