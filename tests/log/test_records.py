"""What batches and messages of every format say, and the faults of malformed ones."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from groupcoord_spark.log import CODES, DamageKind, limits
from groupcoord_spark.log.damage import MAX_RECORD_ROWS
from tests.log.log_writer import (
    GZIP,
    LZ4,
    SNAPPY,
    T0,
    ZSTD,
    Rec,
    batch,
    compress,
    marker,
    message,
    raw_message,
    record,
    records,
    wrapper,
    write_segment,
)
from tests.log.reading import SMALL_CHUNK, Read, read_file

GROUP_TOMBSTONE = bytes.fromhex("0002000167")
COMMIT_KEY = bytes.fromhex("000100016700017400000000")
COMMIT_VALUE = bytes.fromhex("0000000000000000002a00000000018bcfe56800")


def read_entries(tmp_path: Path, *entries: bytes, base_offset: int = 0) -> Read:
    path = write_segment(tmp_path, entries, base_offset=base_offset)
    got = read_file(path)
    assert got.bytes == path.stat().st_size
    in_pieces = read_file(path, chunk_bytes=SMALL_CHUNK)
    assert (in_pieces.rows, in_pieces.codes) == (got.rows, got.codes)
    return got


class TestKafkasExamples:
    """Bytes that Kafka's own classes made."""

    def test_a_batch_of_two_records(self, tmp_path: Path) -> None:
        entry = bytes.fromhex(
            "0000000000000064000000640000000702dfa5e3fe0000000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff00000002"
            "160000000a0002000167010"
            "04c000a0218000100016700017400000000280000000000000000002a00000000018bcfe5680000"
        )
        got = read_entries(tmp_path, entry, base_offset=100)
        assert got.codes == []
        assert got.rows == [
            (100, T0, GROUP_TOMBSTONE, None, -1, -1, False, -1, 0),
            (101, T0 + 5, COMMIT_KEY, COMMIT_VALUE, -1, -1, False, -1, 0),
        ]

    def test_a_record_of_a_transaction_and_its_commit_marker(self, tmp_path: Path) -> None:
        data = bytes.fromhex(
            "00000000000000640000005800000007024795ace00010000000000000018bcfe568050000018bcfe568050000000000000fa0000300000009000000014c"
            "00000018000100016700017400000000280000000000000000002a00000000018bcfe5680000"
        )
        end = bytes.fromhex(
            "00000000000000c80000004200000000021dd250ea0030000000000000018bcfe568000000018bcfe568000000000000000fa00003ffffffff0000000120"
            "00000008000000010c00000000000b00"
        )
        got = read_entries(tmp_path, data, end, base_offset=100)
        assert got.codes == []
        assert got.rows == [
            (100, T0 + 5, COMMIT_KEY, COMMIT_VALUE, 4000, 3, True, -1, 0),
            (200, T0, bytes.fromhex("00000001"), bytes.fromhex("00000000000b"), 4000, 3, True, 1, len(data)),
        ]

    def test_a_batch_emptied_by_compaction_has_no_record_and_no_fault(self, tmp_path: Path) -> None:
        empty = bytes.fromhex(
            "0000000000000064000000310000000702b3a0beb2001000000004ffffffffffffffff0000018bcfe568000000000000000fa000030000000900000000"
        )
        got = read_entries(tmp_path, empty, base_offset=100)
        assert (got.rows, got.codes, got.bytes) == ([], [], 61)

    def test_log_append_time_is_the_time_of_every_record(self, tmp_path: Path) -> None:
        entry = bytes.fromhex(
            "0000000000000064000000640000000702d2ec2a080008000000010000018bcfe568000000018bcfe6ee9fffffffffffffffffffffffffffff00000002"
            "160000000a000200016701004c000a0218000100016700017400000000280000000000000000002a00000000018bcfe5680000"
        )
        assert [row.timestamp_ms for row in read_entries(tmp_path, entry, base_offset=100).rows] == [T0 + 99_999, T0 + 99_999]

    @pytest.mark.parametrize(
        "entry",
        [
            "0000000000000005000000134d2a97c50000000000050002000167ffffffff",
            "00000000000000050000001b446ee6cd01000000018bcfe56800000000050002000167ffffffff",
        ],
    )
    def test_a_message_of_each_old_format(self, tmp_path: Path, entry: str) -> None:
        raw = bytes.fromhex(entry)
        got = read_entries(tmp_path, raw)
        assert got.codes == []
        assert got.rows == [(5, T0 if raw[16] else -1, GROUP_TOMBSTONE, None, -1, -1, False, -1, 0)]

    def test_a_compressed_message_holds_relative_offsets(self, tmp_path: Path) -> None:
        entry = bytes.fromhex(
            "000000000000000600000064034723a001010000018bcfe56805ffffffff0000004e1f8b08000000000000ff636080036997bc676719810cc6eef34f334022"
            "ac0c4c0c8ce9ff8100aa04246ba630d5ea3f5c192b90c10314674c67602c81aa12811ba9c500370e00c2d8f6d369000000"
        )
        got = read_entries(tmp_path, entry)
        assert got.codes == []
        assert [(row.record_offset, row.timestamp_ms, row.key) for row in got.rows] == [(5, T0, GROUP_TOMBSTONE), (6, T0 + 5, COMMIT_KEY)]


class TestBatches:
    @pytest.mark.parametrize("codec", [0, GZIP, SNAPPY, LZ4, ZSTD])
    def test_every_codec_gives_the_same_records(self, tmp_path: Path, codec: int) -> None:
        entries = [batch(i * 3, records(b"a", b"b" * 70, b"c"), codec=codec, producer_id=i) for i in range(40)]
        got = read_entries(tmp_path, *entries)
        assert got.codes == []
        assert got.offsets == list(range(120))
        assert got.keys == [b"a", b"b" * 70, b"c"] * 40
        assert [row.producer_id for row in got.rows] == [i for i in range(40) for _ in range(3)]

    def test_codecs_may_change_from_batch_to_batch(self, tmp_path: Path) -> None:
        entries = [batch(i, codec=i % 5) for i in range(50)]
        assert read_entries(tmp_path, *entries).offsets == list(range(50))

    def test_holes_left_by_compaction_are_normal(self, tmp_path: Path) -> None:
        entries = [batch(7, [Rec(offset_delta=2), Rec(offset_delta=9)], last_offset_delta=12), batch(500, [])]
        got = read_entries(tmp_path, *entries)
        assert (got.offsets, got.codes) == ([9, 16], [])

    def test_a_delete_horizon_changes_nothing_in_the_times(self, tmp_path: Path) -> None:
        horizon = T0 + 86_400_000
        got = read_entries(tmp_path, batch(0, [Rec(timestamp_delta=-86_400_000)], attributes=0x40, base_timestamp=horizon))
        assert [row.timestamp_ms for row in got.rows] == [T0]

    def test_times_wrap_as_in_java(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, batch(0, [Rec(timestamp_delta=2**63 - 1)], base_timestamp=2, max_timestamp=0))
        assert [row.timestamp_ms for row in got.rows] == [-(2**63) + 1]

    def test_high_bits_of_the_attributes_mean_nothing(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, batch(0, attributes=0xFF80))
        assert (got.offsets, got.codes) == ([0], [])

    def test_headers_are_skipped(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, batch(0, [Rec(b"k", b"v", headers=((b"h", b"x"), (b"i", None)))]))
        assert [(row.key, row.value) for row in got.rows] == [(b"k", b"v")]

    def test_an_empty_batch_may_claim_any_codec(self, tmp_path: Path) -> None:
        assert read_entries(tmp_path, *[batch(i, [], attributes=i) for i in range(8)]).codes == []

    @pytest.mark.parametrize("codec", [5, 6, 7])
    def test_unknown_codec(self, tmp_path: Path, codec: int) -> None:
        got = read_entries(tmp_path, batch(0, records(b"a", b"b"), attributes=codec), batch(2))
        assert (got.codes, got.offsets) == (["unknown_codec"], [2])
        assert (got.lost[0].records, got.lost[0].position, got.lost[0].record_offset) == (2, 0, 0)

    def test_decompress_failed(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, batch(0), batch(1, codec=GZIP, body=b"no gzip"), batch(2))
        assert (got.codes, got.offsets, got.lost[0].record_offset) == (["decompress_failed"], [0, 2], 1)
        assert "gzip" in got.lost[0].detail

    def test_decompressed_too_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "DECOMPRESSED_FLOOR", 1000)
        monkeypatch.setattr(limits, "DECOMPRESSED_RATIO", 1)
        entries = [batch(0, [Rec(value=bytes(2000))], codec=ZSTD), batch(1)]
        got = read_entries(tmp_path, *entries)
        assert (got.codes, got.offsets) == (["decompressed_too_large"], [1])

    @pytest.mark.parametrize("codec", [0, LZ4])
    @pytest.mark.parametrize("count", [7, 2**31 - 1])
    def test_record_count_impossible(self, tmp_path: Path, codec: int, count: int) -> None:
        got = read_entries(tmp_path, batch(0, [Rec(b"", b"")], codec=codec, count=count, last_offset_delta=2**31 - 2), base_offset=0)
        assert got.codes == ["record_count_impossible"]
        assert got.lost[0].records is None, "the count is a lie"

    def test_record_count_invalid(self, tmp_path: Path) -> None:
        assert read_entries(tmp_path, batch(0, count=-1)).codes == ["record_count_invalid"]

    @pytest.mark.parametrize("codec", [0, SNAPPY])
    @pytest.mark.parametrize(
        "bad",
        [
            b"\x0c" + bytes(5),
            b"\x80\x80\x80\x80\x80\x01" + bytes(8),
            b"\x01" + bytes(8),
            b"\x0e\x00\x00\x02\x20abcd"[:8],
            record(Rec(b"k", b"v"))[:-1] + b"\x02",
            record(Rec(b"k", b"v"))[:-1] + b"\x01",
        ],
    )
    def test_one_malformed_record_costs_its_batch_and_no_other(self, tmp_path: Path, codec: int, bad: bytes) -> None:
        body = record(Rec()) + bad + record(Rec(offset_delta=2))
        entries = [batch(0), batch(1, codec=codec, body=compress(codec, body), count=3, last_offset_delta=2), batch(4)]
        got = read_entries(tmp_path, *entries)
        assert (got.codes, got.offsets) == (["record_malformed"], [0, 4])
        assert (got.lost[0].records, got.lost[0].record_offset, got.lost[0].size) == (3, 1, len(entries[1]))

    @pytest.mark.parametrize("codec", [0, ZSTD])
    def test_batch_trailing_bytes(self, tmp_path: Path, codec: int) -> None:
        body = compress(codec, record(Rec()) + b"more")
        got = read_entries(tmp_path, batch(0, codec=codec, body=body, count=1), batch(1, body=b"junk", count=0), batch(2))
        assert (got.codes, got.offsets) == (["batch_trailing_bytes"] * 2, [2])

    def test_record_offset_disorder(self, tmp_path: Path) -> None:
        recs = [Rec(b"a", b"old", 0), Rec(b"b", b"", 2), Rec(b"c", b"", 1), Rec(b"a", b"new", 0)]
        got = read_entries(tmp_path, batch(0, recs, last_offset_delta=3))
        assert got.codes == ["record_offset_disorder"]
        assert [(row.record_offset, row.key, row.value) for row in got.rows] == [(0, b"a", b"new"), (1, b"c", b""), (2, b"b", b"")]
        assert got.doubts[0].records == 1, "one record gives way to a later one"

    def test_record_offset_out_of_batch(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, batch(10, [Rec(offset_delta=-2), Rec(offset_delta=0), Rec(offset_delta=5)], last_offset_delta=2))
        assert (got.codes, got.offsets, got.doubts[0].records) == (["record_offset_out_of_batch"], [8, 10, 15], 2)

    def test_record_that_claims_a_place_in_another_chunk_or_file_is_lost(self, tmp_path: Path) -> None:
        # Chunks and files are put together in the order of their offsets; the replay of a run ended with a traceback here.
        long = bytes(SMALL_CHUNK)
        entries = [
            batch(0, [Rec(value=long), Rec(b"up", long, offset_delta=4)], last_offset_delta=1),
            batch(2, [Rec(b"down", long, offset_delta=-2), Rec(b"k", long, offset_delta=1)], last_offset_delta=1),
            batch(4, [Rec(value=long), Rec(b"far", b"v", offset_delta=9)], last_offset_delta=1),
        ]
        path = write_segment(tmp_path, entries)
        got = read_file(path, next_base=6, chunk_bytes=SMALL_CHUNK)
        assert got.offsets == [0, 3, 4]
        assert [(lost.code, lost.key, lost.records) for lost in got.lost] == [
            ("base_offset_invalid", key, 1) for key in (b"up", b"down", b"far")
        ]
        # read together, or with nothing after them, they have their place
        assert read_file(path).offsets == [0, 3, 4, 13]

    @pytest.mark.parametrize("last_offset_delta", [-1, 1])
    def test_last_offset_delta_invalid(self, tmp_path: Path, last_offset_delta: int) -> None:
        got = read_entries(tmp_path, batch(0, records(b"a", b"b", b"c"), last_offset_delta=last_offset_delta), batch(3))
        assert (got.codes, got.offsets) == (["last_offset_delta_invalid"], [0, 1, 2, 3])

    def test_a_lost_batch_that_may_have_ended_a_transaction_says_so(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, batch(0, attributes=0x30, body=b"junk", count=0))
        assert "stays open" in got.lost[0].detail


class TestControlRecords:
    @pytest.mark.parametrize(("kind", "stored"), [(0, 0), (1, 1), (2, 2), (126, 126), (127, 127), (32_767, 127), (-1, 127)])
    def test_every_type_is_told(self, tmp_path: Path, kind: int, stored: int) -> None:
        got = read_entries(tmp_path, marker(0, kind))
        assert [row.control_type for row in got.rows] == [stored]
        assert got.codes == ([] if kind in (0, 1) else ["control_type_unknown"])

    def test_a_later_version_of_the_key_is_read_as_the_first(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, marker(0, key=struct.pack(">hh", 1, 1) + b"more"))
        assert ([row.control_type for row in got.rows], got.codes) == ([1], [])

    @pytest.mark.parametrize("key", [b"", b"\x00\x00\x00", struct.pack(">hh", -1, 1)])
    def test_control_record_malformed(self, tmp_path: Path, key: bytes) -> None:
        got = read_entries(tmp_path, marker(0, key=key), marker(1))
        assert (got.codes, got.offsets) == (["control_record_malformed"], [1])
        assert (got.lost[0].records, got.lost[0].record_offset, got.lost[0].key) == (1, 0, key)
        assert "stays open" in got.lost[0].detail

    def test_a_control_record_without_key_is_malformed(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, batch(0, [Rec(None, b"")], attributes=0x30))
        assert (got.codes, got.rows) == (["control_record_malformed"], [])


class TestOldMessages:
    @pytest.mark.parametrize("magic", [0, 1])
    @pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4])
    def test_every_codec_of_each_format(self, tmp_path: Path, magic: int, codec: int) -> None:
        entries = []
        for n in range(30):
            inner = [message(i if magic else n * 3 + i, b"k%d" % i, b"v", magic=magic, timestamp=T0 + i) for i in range(3)]
            entries.append(wrapper(inner, offset=n * 3 + 2, codec=codec, magic=magic))
        got = read_entries(tmp_path, *entries)
        assert (got.codes, got.offsets) == ([], list(range(90)))
        assert [row.timestamp_ms for row in got.rows[:3]] == ([T0, T0 + 1, T0 + 2] if magic else [-1, -1, -1])

    def test_all_formats_in_one_file(self, tmp_path: Path) -> None:
        entries = [
            message(0, b"a", None, magic=0),
            batch(1, records(b"b", b"c")),
            message(3, None, b"d", magic=1),
            wrapper([message(0, b"e", b""), message(1, b"f", b"")], offset=5),
            batch(6, codec=ZSTD),
            message(7, b"", b"", magic=0),
        ]
        got = read_entries(tmp_path, *entries)
        assert (got.codes, got.offsets) == ([], list(range(8)))
        assert [(row.key, row.value) for row in got.rows[:6]] == [
            (b"a", None), (b"b", b"value"), (b"c", b"value"), (None, b"d"), (b"e", b""), (b"f", b""),
        ]  # fmt: skip

    def test_compaction_leaves_holes_in_the_relative_offsets(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, wrapper([message(1, b"a", b""), message(4, b"b", b"")], offset=14))
        assert (got.codes, got.offsets) == ([], [11, 14])

    def test_the_offset_of_a_wrapper_of_format_0_decides_nothing(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, wrapper([message(3, b"a", b"", magic=0), message(9, b"b", b"", magic=0)], offset=77, magic=0))
        assert (got.codes, got.offsets) == ([], [3, 9])

    def test_a_wrapper_at_offset_0_adds_nothing(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, wrapper([message(0, b"a", b""), message(1, b"b", b"")], offset=0))
        assert (got.codes, got.offsets) == ([], [0, 1])

    def test_a_wrapper_with_append_time_gives_it_to_all_inside(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, wrapper([message(0, b"a", b"", timestamp=5)], offset=3, attributes=8, timestamp=T0))
        assert [row.timestamp_ms for row in got.rows] == [T0]

    def test_codec_4_does_not_exist_in_old_formats(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, message(0, None, compress(ZSTD, message(0, b"a", b"")), attributes=4), batch(1))
        assert (got.codes, got.offsets) == (["unknown_codec"], [1])

    @pytest.mark.parametrize(
        "entry",
        [
            message(1, None, None, attributes=GZIP),
            wrapper([], offset=1),
            wrapper([wrapper([message(0, b"a", b"")], offset=0)], offset=1),
            wrapper([message(0, b"a", b"")[:8] + struct.pack(">i", 13) + bytes(40)], offset=1),
            wrapper([batch(0)], offset=1),
            raw_message(1, struct.pack(">ii", -1, 99) + b"x", attributes=GZIP),
        ],
    )
    def test_wrapper_malformed(self, tmp_path: Path, entry: bytes) -> None:
        got = read_entries(tmp_path, batch(0), entry, batch(2))
        assert (got.codes, got.offsets) == (["wrapper_malformed"], [0, 2])
        assert got.lost[0].records is None, "nobody knows how many were inside"

    def test_inner_message_truncated(self, tmp_path: Path) -> None:
        got = read_entries(tmp_path, wrapper([message(0, b"a", b""), message(1, b"b", b"")], offset=1, tail=message(2, b"c", b"")[:-1]))
        assert (got.codes, got.offsets) == (["inner_message_truncated"], [0, 1])

    def test_inner_crc_mismatch(self, tmp_path: Path) -> None:
        bad = bytearray(message(1, b"b", b""))
        bad[12] ^= 1
        got = read_entries(tmp_path, wrapper([message(0, b"a", b""), bytes(bad)], offset=1))
        assert (got.codes, got.offsets, got.doubts[0].record_offset) == (["inner_crc_mismatch"], [0, 1], 1)

    @pytest.mark.parametrize(
        "fields", [struct.pack(">ii", -2, -1), struct.pack(">ii", 5, -1), struct.pack(">ii", -1, -1) + b"x", b"abcd1234"]
    )
    @pytest.mark.parametrize("magic", [0, 1])
    def test_legacy_length_invalid_costs_one_message(self, tmp_path: Path, fields: bytes, magic: int) -> None:
        bad = raw_message(1, fields, magic=magic)
        got = read_entries(tmp_path, message(0, b"a", b""), bad, message(2, b"c", b""))
        assert (got.codes, got.offsets) == (["legacy_length_invalid"], [0, 2])
        assert (got.lost[0].record_offset, got.lost[0].records) == (1, 1)
        inside = [message(0, b"a", b"", magic=magic), bad, message(2, b"c", b"", magic=magic)]
        got = read_entries(tmp_path, wrapper(inside, offset=2, magic=magic))
        assert (got.codes, got.offsets) == (["legacy_length_invalid"], [0, 2])
        assert got.lost[0].record_offset == 1

    def test_a_message_of_format_1_inside_that_is_too_short_for_its_own_timestamp(self, tmp_path: Path) -> None:
        short = struct.pack(">qiIbB", 1, 14, 0, 1, 0) + bytes(8)
        got = read_entries(tmp_path, wrapper([message(0, b"a", b""), short], offset=1))
        assert got.offsets == [0]
        assert set(got.codes) == {"legacy_length_invalid", "inner_crc_mismatch"}


class TestReports:
    def test_rows_about_records_are_bounded_and_the_rest_is_counted(self, tmp_path: Path) -> None:
        bad = raw_message(0, struct.pack(">ii", -2, -1))
        inner = [struct.pack(">q", i) + bad[8:] for i in range(MAX_RECORD_ROWS + 500)]
        got = read_file(write_segment(tmp_path, [wrapper(inner, offset=len(inner) - 1)]))
        assert len(got.lost) == MAX_RECORD_ROWS + 1
        assert got.lost[-1].records == 500
        assert sum(lost.records or 0 for lost in got.lost) == len(inner)

    def test_every_code_has_a_kind_and_a_sentence(self) -> None:
        assert all(code.sentence.endswith(".") and code.kind in DamageKind for code in CODES.values())
        assert all(name == code.name for name, code in CODES.items())
