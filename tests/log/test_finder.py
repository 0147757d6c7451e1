"""Which bytes of a damaged file are entries: found again after any harm, and nothing else taken for one."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.log import limits
from groupcoord_spark.log.decode.batches import checksums_fit, entry_positions, headers_at
from groupcoord_spark.storage.location import PADDING
from tests.examples import examples
from tests.log.log_writer import GZIP, Rec, batch, message, records, wrapper, write_segment
from tests.log.reading import SMALL_CHUNK, Read, read_file

pytestmark = pytest.mark.usefixtures("each_decoder")

SOUND = [batch(i * 2, records(b"k%d" % i, b"l%d" % i)) for i in range(10)]


def read_bytes(tmp_path: Path, *parts: bytes, next_base: int | None = None, base_offset: int = 0) -> Read:
    path = write_segment(tmp_path, parts, base_offset=base_offset)
    got = read_file(path, next_base=next_base)
    assert got.bytes == path.stat().st_size
    in_pieces = read_file(path, next_base=next_base, chunk_bytes=SMALL_CHUNK)
    assert (in_pieces.rows, in_pieces.codes, in_pieces.lost) == (got.rows, got.codes, got.lost)
    return got


def changed(entry: bytes, at: int, new: bytes) -> bytes:
    return entry[:at] + new + entry[at + len(new) :]


def without(*lost: int) -> list[int]:
    return [offset for offset in range(20) if offset // 2 not in lost]


class TestDamage:
    def test_batch_crc_mismatch(self, tmp_path: Path) -> None:
        got = read_bytes(tmp_path, *SOUND[:3], changed(SOUND[3], 70, b"!"), *SOUND[4:])
        assert (got.codes, got.offsets) == (["batch_crc_mismatch"], without(3))
        lost = got.lost[0]
        assert (lost.position, lost.size, lost.records) == (sum(map(len, SOUND[:3])), len(SOUND[3]), 2)
        assert "offsets 6 to 7 are missing" in lost.detail

    def test_the_records_of_neighbours_lost_together_are_all_counted(self, tmp_path: Path) -> None:
        got = read_bytes(tmp_path, *SOUND[:3], changed(SOUND[3], 70, b"!"), changed(SOUND[4], 70, b"!"), *SOUND[5:])
        assert (got.codes, got.offsets, got.lost[0].records) == (["batch_crc_mismatch"], without(3, 4), 4)

    def test_old_messages_have_checksums_too(self, tmp_path: Path) -> None:
        entries = [message(i, b"k", b"v", magic=i % 2) for i in range(5)]
        got = read_bytes(tmp_path, *entries[:2], changed(entries[2], 22, b"!"), *entries[3:])
        assert (got.codes, got.offsets, got.lost[0].records) == (["batch_crc_mismatch"], [0, 1, 3, 4], 1)
        packed = wrapper([message(0, b"k", b"v")], offset=2)
        got = read_bytes(tmp_path, *entries[:2], changed(packed, 50, b"!"), *entries[3:])
        assert (got.codes, got.offsets, got.lost[0].records) == (["batch_crc_mismatch"], [0, 1, 3, 4], None)

    @pytest.mark.parametrize("length", [13, 0, -1, 48])
    def test_batch_length_invalid(self, tmp_path: Path, length: int) -> None:
        bad = changed(changed(SOUND[3], 70, b"!"), 8, struct.pack(">i", length))
        got = read_bytes(tmp_path, *SOUND[:3], bad, *SOUND[4:])
        assert (got.codes, got.offsets) == (["batch_length_invalid"], without(3))

    def test_batch_too_large(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "BATCH_BYTES", 2000)
        big = batch(6, [Rec(value=bytes(3000))], last_offset_delta=1)
        got = read_bytes(tmp_path, *SOUND[:3], big, *SOUND[4:])
        assert (got.codes, got.offsets) == (["batch_too_large"], without(3))

    def test_unknown_magic(self, tmp_path: Path) -> None:
        bad = changed(changed(SOUND[3], 70, b"!"), 16, b"\x03")
        got = read_bytes(tmp_path, *SOUND[:3], bad, *SOUND[4:])
        assert (got.codes, got.offsets) == (["unknown_magic"], without(3))

    def test_zero_gap(self, tmp_path: Path) -> None:
        got = read_bytes(tmp_path, *SOUND[:3], bytes(len(SOUND[3])), *SOUND[4:])
        assert (got.codes, got.offsets) == (["zero_gap"], without(3))

    @pytest.mark.parametrize("zeros", [1, 11, 12, 100, 5000])
    def test_zero_tail(self, tmp_path: Path, zeros: int) -> None:
        got = read_bytes(tmp_path, *SOUND, bytes(zeros))
        assert (got.codes, got.lost, got.offsets) == (["zero_tail"], [], without())

    @pytest.mark.parametrize("kept", [0, 3, 10])
    def test_zeros_are_no_reserved_space_where_a_newer_segment_follows(self, tmp_path: Path, kept: int) -> None:
        # A broker trims a segment before it begins the next one.
        got = read_bytes(tmp_path, *SOUND[:kept], bytes(5000), next_base=20)
        assert (got.codes, len(got.lost), got.offsets) == (["zero_gap"], 1, without(*range(kept, 10)))

    def test_tail_truncated_is_no_loss_at_every_cut(self, tmp_path: Path) -> None:
        for n in range(1, len(SOUND[9])):
            got = read_bytes(tmp_path, *SOUND[:9], SOUND[9][:n])
            assert got.offsets == without(9)
            # an offset begins with zero bytes
            assert (got.lost, got.codes) == ([], ["zero_tail" if n < 8 else "tail_truncated"])

    def test_segment_truncated_where_no_write_can_have_been_in_progress(self, tmp_path: Path) -> None:
        cut = SOUND[9][:70]
        got = read_bytes(tmp_path, *SOUND[:9], cut, next_base=20)
        assert (got.codes, got.offsets, got.lost[0].records) == (["segment_truncated"], without(9), 2)
        got = read_bytes(tmp_path, *SOUND[:3], changed(SOUND[3], 8, b"\x00\x00\x7f\xff")[:80], *SOUND[4:])
        assert (got.codes, got.offsets) == (["segment_truncated"], without(3)), "a sound entry follows"
        got = read_bytes(tmp_path, *SOUND[:9], changed(cut, 8, b"\x7f\xff\xff\xff"))
        assert (got.codes, got.offsets) == (["segment_truncated"], without(9)), "no batch is that large"

    def test_a_length_that_happens_to_end_at_an_entry_takes_none_with_it(self, tmp_path: Path) -> None:
        for more in range(1, 6):
            length = sum(map(len, SOUND[3 : 4 + more])) - 12
            bad = changed(changed(SOUND[3], 70, b"!"), 8, struct.pack(">i", length))
            assert read_bytes(tmp_path, *SOUND[:3], bad, *SOUND[4:]).offsets == without(3)

    def test_a_lost_control_batch_is_told(self, tmp_path: Path) -> None:
        bad = changed(batch(6, records(b"a", b"b"), attributes=0x30), 70, b"!")
        assert "stays open" in read_bytes(tmp_path, *SOUND[:3], bad, *SOUND[4:]).lost[0].detail

    def test_damage_before_the_first_entry_and_nothing_but_damage(self, tmp_path: Path) -> None:
        assert read_bytes(tmp_path, b"junk" * 30, *SOUND).offsets == without()
        got = read_bytes(tmp_path, b"junk" * 30)
        assert (got.offsets, got.codes) == ([], ["segment_truncated"])

    def test_resync_abandoned_so_that_no_input_makes_a_reader_hang(self, tmp_path: Path) -> None:
        # every 30 bytes a header that claims to be a batch of all that follows
        n = 4000
        parts = [struct.pack(">qiibIHi", 1, (n - i) * 30 - 12, 0, 2, 1, 0, 0)[:30].ljust(30, b"\0") for i in range(n)]
        got = read_file(write_segment(tmp_path, parts))
        assert (got.codes, got.offsets) == (["resync_abandoned"], [])

    def test_a_batch_larger_than_a_chunk_is_read_whole(self, tmp_path: Path) -> None:
        big = batch(0, [Rec(value=random.Random(1).randbytes(5000))])
        got = read_bytes(tmp_path, big, batch(1), changed(big, 3000, b"!!!"), batch(3))
        assert (got.offsets, got.codes) == ([0, 1, 3], ["batch_crc_mismatch"])


class TestRepair:
    @pytest.mark.parametrize("length", [0, -1, 14, 61, 500, 2**31 - 1])
    def test_a_wrong_length_is_put_right(self, tmp_path: Path, length: int) -> None:
        got = read_bytes(tmp_path, *SOUND[:3], changed(SOUND[3], 8, struct.pack(">i", length)), *SOUND[4:])
        assert (got.codes, got.offsets) == (["batch_header_repaired"], without())

    @pytest.mark.parametrize("magic", [0, 1, 3, 255])
    def test_a_wrong_magic_is_put_right(self, tmp_path: Path, magic: int) -> None:
        got = read_bytes(tmp_path, *SOUND[:3], changed(SOUND[3], 16, bytes([magic])), *SOUND[4:])
        assert (got.codes, got.offsets) == (["batch_header_repaired"], without())

    def test_old_messages_too(self, tmp_path: Path) -> None:
        for magic in (0, 1):
            entries = [message(i, b"k", b"v", magic=magic) for i in range(3)]
            got = read_bytes(tmp_path, entries[0], changed(entries[1], 8, b"\x00\x00\x01\x00"), entries[2])
            assert (got.codes, got.offsets) == (["batch_header_repaired"], [0, 1, 2])

    def test_compressed_ones_too(self, tmp_path: Path) -> None:
        bad = changed(batch(6, records(b"a", b"b"), codec=GZIP), 8, b"\x00\x00\x00\x00")
        assert read_bytes(tmp_path, *SOUND[:3], bad, *SOUND[4:]).offsets == without()
        bad = changed(wrapper([message(0, b"a", b""), message(1, b"b", b"")], offset=7), 8, b"\x00\x00\x00\x00")
        assert read_bytes(tmp_path, *SOUND[:3], bad, *SOUND[4:]).offsets == without()

    def test_the_last_entry_too_also_before_zeros(self, tmp_path: Path) -> None:
        got = read_bytes(tmp_path, *SOUND[:9], changed(SOUND[9], 8, b"\x00\x00\x00\x20"))
        assert (got.codes, got.offsets) == (["batch_header_repaired"], without())
        ends_in_a_letter = changed(message(18, b"k", b"v"), 8, b"\x00\x00\x00\x20")
        got = read_bytes(tmp_path, *SOUND[:9], ends_in_a_letter, bytes(100))
        assert (got.codes, got.offsets) == (["batch_header_repaired", "zero_tail"], [*without(9), 18])


@given(st.lists(st.integers(0, 120), min_size=1, max_size=40), st.data())
@examples(60)
def test_one_checksum_over_many_batches_finds_what_one_for_each_finds(sizes: list[int], data: st.DataObject) -> None:
    entries = [batch(i, [Rec(b"k", bytes(size))]) for i, size in enumerate(sizes)]
    raw = bytearray(b"".join(entries) + bytes(PADDING))
    positions, _ = entry_positions(np.frombuffer(bytes(raw), np.uint8), 0, len(raw) - PADDING, 10**6)
    assert len(positions) == len(entries)
    hit = set(data.draw(st.lists(st.integers(0, len(entries) - 1), max_size=3)))
    for i in hit:
        raw[int(positions[i]) + data.draw(st.integers(17, len(entries[i]) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    for i in data.draw(st.lists(st.integers(0, len(entries) - 1), max_size=3)):
        # what no checksum covers changes nothing
        raw[int(positions[i]) + data.draw(st.sampled_from([*range(8), *range(12, 16)]))] ^= 0x55
    buffer = np.frombuffer(bytes(raw), np.uint8)
    fits = checksums_fit(buffer, positions, positions + [len(entry) for entry in entries], headers_at(buffer, positions))
    alone = [
        bool(checksums_fit(buffer, positions[i : i + 1], positions[i : i + 1] + len(entry), headers_at(buffer, positions[i : i + 1]))[0])
        for i, entry in enumerate(entries)
    ]
    assert fits.tolist() == alone
    assert all(alone[i] for i in range(len(entries)) if i not in hit)
