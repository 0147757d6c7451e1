"""Many batches at once are read exactly as each alone, sound ones and malformed ones."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from groupcoord_spark.log.decode.columnar import Rows, read_messages, read_rows
from groupcoord_spark.log.decode.definition import (
    MIN_RECORD,
    ByteRange,
    LegacyMessage,
    Record,
    RecordError,
    read_bytes,
    read_message,
    read_record,
    read_records,
    read_varint,
    read_varlong,
)
from tests.conftest import by_each_decoder
from tests.examples import examples, randoms
from tests.log.log_writer import Rec, message, record, varint

Outcome = list[Record] | RecordError


def short_or_long(rng: Random) -> bytes | None:
    """Return a key or a value, often with a length where its varint grows."""
    longer = rng.choice([62, 63, 64, 65, 8190, 8191, 8192, 8193, 20_000])
    return rng.choice([None, rng.randbytes(rng.randint(0, 8)), rng.randbytes(rng.randint(0, 8)), b"x" * longer])


def random_record(rng: Random) -> bytes:
    header = [(rng.randbytes(rng.randint(0, 5)), rng.choice([None, rng.randbytes(rng.randint(0, 5))])) for _ in range(rng.randint(0, 3))]
    return record(
        Rec(
            key=short_or_long(rng),
            value=short_or_long(rng),
            offset_delta=rng.choice([rng.randint(0, 63), rng.randint(-(2**31), 2**31 - 1)]),
            timestamp_delta=rng.choice([rng.randint(0, 63), rng.randint(-(2**40), 2**40), rng.randint(-(2**63), 2**63 - 1)]),
            headers=rng.choice([(), tuple(header)]),
        )
    )


def random_batch(rng: Random) -> tuple[bytes, int]:
    """Return records and the count in the header: right, with some bytes changed, cut, or with another count."""
    count = rng.randint(0, 6)
    body = b"".join(random_record(rng) for _ in range(count))
    match rng.choice(["none", "none", "bytes", "cut", "more", "count", "noise"]):
        case "bytes" if body:
            changed = bytearray(body)
            for _ in range(rng.randint(1, 3)):
                changed[rng.randint(0, min(len(body) - 1, 80))] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)])
            return bytes(changed), count
        case "cut":
            return body[: rng.randint(0, len(body))], count
        case "more":
            return body + rng.randbytes(rng.randint(1, 20)), count
        case "count":
            return body, rng.choice([rng.randint(-2, 8), 2**31 - 1, -(2**31), len(body) // MIN_RECORD])
        case "noise":
            return rng.randbytes(rng.randint(0, 60)), rng.randint(0, 8)
    return body, count


any_batch = randoms.map(random_batch)


def one_by_one(batches: list[tuple[bytes, int]]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    at = 0
    data = b"".join(body for body, _ in batches)
    for body, count in batches:
        try:
            outcomes.append(read_records(data, at, at + len(body), count))
        except RecordError as error:
            outcomes.append(error)
        at += len(body)
    return outcomes


def place(start: int, end: int, is_null: bool) -> ByteRange | None:
    assert 0 <= start <= end
    return None if is_null else ByteRange(start, end)


def listed(rows: Rows) -> list[tuple[int, Record]]:
    columns = [getattr(rows, name).tolist() for name in Rows.__slots__]
    return [
        (batch, Record(offset, timestamp, place(ks, ke, kn), place(vs, ve, vn), size))
        for batch, offset, timestamp, ks, ke, kn, vs, ve, vn, size in zip(*columns, strict=True)
    ]


def at_once(batches: list[tuple[bytes, int]]) -> tuple[list[tuple[int, Record]], dict[int, RecordError]]:
    data = np.frombuffer(b"".join(body for body, _ in batches), np.uint8)
    end = np.cumsum([len(body) for body, _ in batches], dtype=np.int64)
    start = end - np.array([len(body) for body, _ in batches], np.int64)
    rows, errors = read_rows(data, start, end, np.array([count for _, count in batches], np.int64))
    return listed(rows), errors


def assert_equal(batches: list[tuple[bytes, int]]) -> None:
    expected = one_by_one(batches)
    for rows, errors in by_each_decoder(lambda: at_once(batches)):
        assert rows == [(i, record) for i, outcome in enumerate(expected) if isinstance(outcome, list) for record in outcome]
        assert {i: (error.code, error.detail) for i, error in errors.items()} == {
            i: (outcome.code, outcome.detail) for i, outcome in enumerate(expected) if isinstance(outcome, RecordError)
        }


@given(st.lists(any_batch, max_size=12))
@examples(300)
@example([(varint(-6) + bytes(10), 1)])
@example([(b"\x80\x80\x80\x80\x80\x01" + bytes(10), 1)])
@example([(record(Rec()), 1), (b"", 5), (record(Rec()), 1)])
def test_many_batches_are_read_as_each_alone(batches: list[tuple[bytes, int]]) -> None:
    assert_equal(batches)


@given(st.lists(any_batch, min_size=1, max_size=3), st.integers(20, 60))
@examples(25)
def test_enough_batches_for_steps_and_a_few_left_for_loops(batches: list[tuple[bytes, int]], times: int) -> None:
    assert_equal([*batches * times, (b"".join(record(Rec(offset_delta=i)) for i in range(40)), 40)])


def test_more_rows_than_one_block_holds() -> None:
    batches = [(b"".join(record(Rec(offset_delta=i)) for i in range(1 + n % 7)), 1 + n % 7) for n in range(6000)]
    assert_equal(batches)


def test_a_single_batch_of_very_many_records() -> None:
    body = b"".join(record(Rec(None, None, i)) for i in range(20_000))
    for rows, errors in by_each_decoder(lambda: at_once([(body, 20_000)])):
        assert errors == {}
        assert [row.offset_delta for _, row in rows] == list(range(20_000))


messages = st.builds(
    message,
    offset=st.integers(-(2**63), 2**63 - 1),
    key=st.one_of(st.none(), st.binary(max_size=20)),
    value=st.one_of(st.none(), st.binary(max_size=20)),
    magic=st.integers(0, 1),
    timestamp=st.integers(-1, 2**63 - 1),
)


@given(st.lists(st.tuples(messages, st.integers(-1, 40), st.integers(0, 255), st.integers(0, 3)), max_size=8))
@examples(150)
def test_many_old_messages_are_read_as_each_alone(drawn: list[tuple[bytes, int, int, int]]) -> None:
    entries = []
    for entry, at, byte, cut in drawn:
        changed = bytearray(entry[: len(entry) - cut] if len(entry) - cut >= 26 else entry)
        if at >= 18:
            changed[min(at, len(changed) - 1)] = byte
        entries.append(bytes(changed))
    data = b"".join(entries)
    end = np.cumsum([len(entry) for entry in entries], dtype=np.int64)
    start = end - np.array([len(entry) for entry in entries], np.int64)
    expected: list[tuple[int, LegacyMessage]] = []
    refusals: dict[int, tuple[str, str]] = {}
    for i in range(len(entries)):
        try:
            expected.append((i, read_message(data, int(start[i]), int(end[i]))))
        except RecordError as error:
            refusals[i] = (error.code, error.detail)
    for rows, errors in by_each_decoder(lambda: read_messages(np.frombuffer(data, np.uint8), start, end)):
        assert {i: (error.code, error.detail) for i, error in errors.items()} == refusals
        assert [(i, tuple(row)) for i, row in listed(rows)] == [(i, tuple(each)) for i, each in expected]


class TestVarint:
    """The readers that everything else stands on."""

    @given(st.integers(-(2**31), 2**31 - 1))
    def test_reading_undoes_writing(self, number: int) -> None:
        raw = varint(number)
        assert read_varint(raw, 0, len(raw)) == (number, len(raw))

    @given(st.integers(-(2**63), 2**63 - 1))
    def test_reading_undoes_writing_of_longs(self, number: int) -> None:
        raw = varint(number)
        assert read_varlong(raw, 0, len(raw)) == (number, len(raw))

    @given(st.integers(-(2**31), 2**31 - 1))
    def test_each_cut_prefix_is_malformed(self, number: int) -> None:
        raw = varint(number)
        for n in range(len(raw)):
            with pytest.raises(RecordError):
                read_varint(raw, 0, n)

    def test_longer_than_needed_is_accepted(self) -> None:
        assert read_varint(b"\x80\x00", 0, 2) == (0, 2)

    def test_bits_above_the_number_are_dropped(self) -> None:
        assert read_varint(b"\xff\xff\xff\xff\x7f", 0, 5) == (-(2**31), 5)
        assert read_varlong(b"\xff" * 9 + b"\x7f", 0, 10) == (-(2**63), 10)

    def test_a_varint_of_six_bytes_and_a_varlong_of_eleven_are_malformed(self) -> None:
        with pytest.raises(RecordError, match="longer than 5"):
            read_varint(b"\x80" * 5 + b"\x01", 0, 6)
        with pytest.raises(RecordError, match="longer than 10"):
            read_varlong(b"\x80" * 10 + b"\x01", 0, 11)


class TestRecord:
    """What a record may look like."""

    @pytest.mark.parametrize("length", [-1, -2, -100])
    def test_any_negative_length_is_null(self, length: int) -> None:
        assert read_bytes(varint(length), 0, 2)[0] is None

    def test_each_cut_prefix_is_malformed(self) -> None:
        raw = record(Rec(headers=((b"h", b"v"), (b"i", None))))
        for n in range(len(raw)):
            with pytest.raises(RecordError, match="byte"):
                read_record(raw, 0, n)

    def test_headers_are_left_out_and_checked(self) -> None:
        raw = record(Rec(b"k", b"v", headers=((b"name", b"value"), (b"", None))))
        assert read_record(raw, 0, len(raw)) == (Record(0, 0, ByteRange(5, 6), ByteRange(7, 8), len(raw)), len(raw))

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            (b"\x00\x00\x00\x01\x01" + varint(-1), "headers"),
            (b"\x00\x00\x00\x01\x01" + varint(9), "headers"),
            (b"\x00\x00\x00\x01\x01" + varint(1) + varint(-1) + varint(0), "no key"),
            (b"\x00\x00\x00\x01\x01" + varint(0) + b"x", "unused"),
            (b"\x00\x00\x00" + varint(4) + b"abc", "declares 4"),
            (b"", "no body"),
        ],
    )
    def test_what_does_not_fill_its_body_is_malformed(self, body: bytes, why: str) -> None:
        with pytest.raises(RecordError, match=why) as caught:
            read_record(varint(len(body)) + body, 0, len(body) + 1)
        assert caught.value.code == "record_malformed"
