from __future__ import annotations

import struct
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.protocol import primitives
from groupcoord_spark.protocol.errors import LengthBeyondEnd, TextTooLong, VarintTooLong
from groupcoord_spark.protocol.fields import ZERO_UUID, Int8, Int16, Int32, Int64, Integer, Uint16
from groupcoord_spark.protocol.primitives import COMPACT
from tests.examples import examples

from .reader_contract import NullableContract, ReaderContract

INTEGERS = [Int8, Int16, Int32, Int64, Uint16]


class TestInt8(ReaderContract):
    reader = staticmethod(partial(primitives.read_integer, kind=Int8))
    valid, decoded = b"\x80", -128


class TestInt16(ReaderContract):
    reader = staticmethod(partial(primitives.read_integer, kind=Int16))
    valid, decoded = b"\xff\xfe", -2


class TestInt32(ReaderContract):
    reader = staticmethod(partial(primitives.read_integer, kind=Int32))
    valid, decoded = b"\x00\x01\x02\x03", 0x010203


class TestInt64(ReaderContract):
    reader = staticmethod(partial(primitives.read_integer, kind=Int64))
    valid, decoded = b"\x80" + b"\0" * 7, -(2**63)


class TestUint16(ReaderContract):
    reader = staticmethod(partial(primitives.read_integer, kind=Uint16))
    valid, decoded = b"\xff\xfe", 65534


class TestUuid(ReaderContract):
    reader = staticmethod(primitives.read_uuid)
    valid, decoded = bytes.fromhex("0123456789abcdeffedcba9876543210"), "ASNFZ4mrze_-3LqYdlQyEA"

    def test_the_zero_id_keeps_its_text(self) -> None:
        assert primitives.read_uuid(bytes(16), 0) == (ZERO_UUID, 16)


class TestUvarint(ReaderContract):
    reader = staticmethod(primitives.read_uvarint)
    valid, decoded = b"\xc8\x01", 200

    def test_longer_forms_than_needed_are_accepted(self) -> None:
        assert primitives.read_uvarint(b"\x81\x00", 0) == (1, 2)

    def test_a_fifth_byte_that_goes_on_is_too_long(self) -> None:
        with pytest.raises(VarintTooLong):
            primitives.read_uvarint(b"\x80\x80\x80\x80\x80\x01", 0)

    def test_numbers_above_an_int_come_back_negative_as_in_java(self) -> None:
        assert primitives.read_uvarint(b"\xff\xff\xff\xff\x0f", 0) == (-1, 5)
        assert primitives.read_uvarint(b"\x80\x80\x80\x80\x08", 0) == (-(2**31), 5)

    @given(st.integers(0, 2**31 - 1))
    def test_what_is_written_is_read(self, number: int) -> None:
        encoded = primitives.write_uvarint(number)
        assert primitives.read_uvarint(encoded, 0) == (number, len(encoded))


class TestString(NullableContract):
    reader = staticmethod(primitives.read_string)
    valid, decoded = b"\x00\x05hello", b"hello"
    nulls, empty = (b"\xff\xff", b"\xff\xfe", b"\x80\x00"), b"\x00\x00"


class TestCompactString(NullableContract):
    reader = staticmethod(partial(primitives.read_string, size=COMPACT))
    valid, decoded = b"\x06hello", b"hello"
    nulls, empty = (b"\x00", b"\x80\x00"), b"\x01"

    def test_length_is_a_varint_so_200_bytes_are_read_whole(self) -> None:
        text, at = primitives.read_string(b"\xc9\x01" + b"x" * 200, 0, COMPACT)
        assert (text, at) == (b"x" * 200, 202)

    def test_kafka_reads_at_most_32767_bytes(self) -> None:
        text, _ = primitives.read_string(primitives.write_length(32767, COMPACT) + b"x" * 32767, 0, COMPACT)
        assert text is not None and len(text) == 32767
        with pytest.raises(TextTooLong):
            primitives.read_string(primitives.write_length(32768, COMPACT) + b"x" * 32768, 0, COMPACT)


class TestBytes(NullableContract):
    reader = staticmethod(primitives.read_bytes)
    valid, decoded = b"\x00\x00\x00\x02\x01\x02", b"\x01\x02"
    nulls, empty = (b"\xff\xff\xff\xff", b"\x80\x00\x00\x00"), b"\x00\x00\x00\x00"


class TestCompactBytes(NullableContract):
    reader = staticmethod(partial(primitives.read_bytes, size=COMPACT))
    valid, decoded = b"\x03\x01\x02", b"\x01\x02"
    nulls, empty = (b"\x00", b"\xff\xff\xff\xff\x0f"), b"\x01"

    def test_a_length_that_java_wraps_around_lies_beyond_the_end(self) -> None:
        with pytest.raises(LengthBeyondEnd):
            primitives.read_bytes(b"\x80\x80\x80\x80\x08" + bytes(100), 0, COMPACT)


class TestCounts:
    def test_null_is_told_from_none(self) -> None:
        assert primitives.read_count(b"\xff\xff\xff\xff", 0) == (None, 4)
        assert primitives.read_count(b"\x00\x00\x00\x00", 0) == (0, 4)
        assert primitives.read_count(b"\x00", 0, COMPACT) == (None, 1)
        assert primitives.read_count(b"\x01", 0, COMPACT) == (0, 1)

    def test_a_count_above_the_bytes_left_is_refused_before_anything_is_made(self) -> None:
        with pytest.raises(LengthBeyondEnd, match="declares 2147483647 elements at position 4, 3 bytes remain"):
            primitives.read_count(b"\x7f\xff\xff\xff" + bytes(3), 0)
        with pytest.raises(LengthBeyondEnd):
            primitives.read_count(b"\x05" + bytes(3), 0, COMPACT)
        assert primitives.read_count(b"\x04" + bytes(3), 0, COMPACT) == (3, 1)


@pytest.mark.parametrize("kind", INTEGERS, ids=lambda kind: kind.name)
def test_integers_are_written_as_they_are_read_and_refused_where_they_do_not_fit(kind: Integer) -> None:
    for number in (kind.least, 0, kind.greatest):
        assert primitives.read_integer(primitives.write_integer(number, kind), 0, kind) == (number, kind.size)
    for number in (kind.least - 1, kind.greatest + 1):
        with pytest.raises(ValueError, match=kind.name):
            primitives.write_integer(number, kind)


@pytest.mark.parametrize("text", ["", "A" * 21, "A" * 23, "!" * 22, "A" * 21 + "="])
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        primitives.uuid_bytes(text)


def replaced_as_java_does(raw: bytes) -> str:
    """Return the rule of sun.nio.cs.UTF_8 written out, one malformed part a time."""

    def follows(at: int, low: int = 0x80, high: int = 0xBF) -> bool:
        return at < len(raw) and low <= raw[at] <= high

    out, at = [], 0
    while at < len(raw):
        lead = raw[at]
        bad = 0
        if lead < 0x80:
            size = 1
        elif 0xC2 <= lead <= 0xDF:
            size = 2
            bad = 0 if follows(at + 1) else 1
        elif 0xE0 <= lead <= 0xEF:
            size = 3
            if not follows(at + 1, 0xA0 if lead == 0xE0 else 0x80):
                bad = 1
            elif not follows(at + 2):
                bad = 2
            elif lead == 0xED and raw[at + 1] >= 0xA0:
                bad = 3
        elif 0xF0 <= lead <= 0xF4:
            size = 4
            if not follows(at + 1, 0x90 if lead == 0xF0 else 0x80, 0x8F if lead == 0xF4 else 0xBF):
                bad = 1
            elif not follows(at + 2):
                bad = 2
            elif not follows(at + 3):
                bad = 3
        else:
            size, bad = 1, 1
        out.append("\ufffd" if bad else raw[at : at + size].decode("utf-8"))
        at += bad or size
    return "".join(out)


class TestJavaText:
    @examples(500)
    @given(st.lists(st.sampled_from([*b"aZ\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xed\xee\xf0\xf1\xf4\xf5\xff"]), max_size=12))
    def test_what_is_not_utf8_is_replaced_part_by_part_as_java_does(self, raw: list[int]) -> None:
        text, is_utf8 = primitives.java_text(bytes(raw))
        assert text == replaced_as_java_does(bytes(raw))
        assert is_utf8 == ("\ufffd" not in text)

    @given(st.text())
    def test_utf8_is_left_alone(self, text: str) -> None:
        assert primitives.java_text(text.encode()) == (text, True)

    def test_an_encoded_surrogate_is_one_part(self) -> None:
        assert primitives.java_text(b"\xed\xa0\x80")[0] == "\ufffd"
        assert primitives.java_text(b"\xed\xa0")[0] == "\ufffd"
        assert primitives.java_text(b"\xed\xa0x")[0] == "\ufffdx"


def test_an_underflow_names_the_place_and_what_is_there() -> None:
    with pytest.raises(LengthBeyondEnd, match="declares 18 bytes at position 16, 6 remain"):
        primitives.read_string(bytes(14) + struct.pack(">h", 18) + bytes(6), 14)
