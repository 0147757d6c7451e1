"""Streams as Kafka reads them: what it accepts, what it refuses, and where reading stops."""

from __future__ import annotations

import gzip
import struct
import zlib

import lz4.block
import lz4.frame
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.log import limits
from groupcoord_spark.log.decode.compression import GZIP, LZ4, SNAPPY, ZSTD, CompressionError, Decompressor
from tests.examples import examples
from tests.log.log_writer import compress

CODECS = [GZIP, SNAPPY, LZ4, ZSTD]
PLAIN = b"fifteen bytes!! " * 40
# one record as offset 100, compressed by Kafka's own codecs (its worked example of each)
BY_KAFKA = {
    GZIP: "1f8b08000000000000fff361606090606064604c67602c01b219341860400b4430769f7f9ac1c00000d07107ba27000000",
    SNAPPY: "82534e415050590000000001000000010000002427484c00000018000100016700017400000000280011012c2a00000000018bcfe5680000",
    LZ4: "04224d18604082" + "26000000f0034c00000018000100016700017400000000280500010200c02a00000000018bcfe568000000000000",
    ZSTD: "28b52ffd00583801004c00000018000100016700017400000000280000000000000000002a00000000018bcfe5680000010000",
}
BY_KAFKA_PLAIN = bytes.fromhex("4c00000018000100016700017400000000280000000000000000002a00000000018bcfe5680000")


def decompress(codec: int, stream: bytes, *, magic: int = 2) -> bytes:
    return Decompressor().decompress(codec, stream, magic=magic)


def refused(codec: int, stream: bytes, *, magic: int = 2) -> CompressionError:
    with pytest.raises(CompressionError) as caught:
        decompress(codec, stream, magic=magic)
    return caught.value


def xerial(*blocks: bytes, header: bytes = b"\x82SNAPPY\x00" + bytes(8)) -> bytes:
    return header + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def snappy_block(plain: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(plain, asbytes=True))


def lz4_frame(plain: bytes = PLAIN, **options: bool) -> bytes:
    return bytes(lz4.frame.compress(plain, **{"store_size": False, "block_linked": False, **options}))


@pytest.mark.parametrize("codec", CODECS)
def test_what_kafka_compressed_is_read(codec: int) -> None:
    assert decompress(codec, bytes.fromhex(BY_KAFKA[codec])) == BY_KAFKA_PLAIN


@pytest.mark.parametrize("codec", CODECS)
@given(plain=st.binary(max_size=5000))
@examples(25)
def test_reading_undoes_writing(codec: int, plain: bytes) -> None:
    assert decompress(codec, compress(codec, plain)) == plain


@pytest.mark.parametrize("codec", CODECS)
def test_one_decompressor_reads_batch_after_batch_even_after_a_bad_one(codec: int) -> None:
    decompressor = Decompressor()
    stream = compress(codec, PLAIN)
    for _ in range(3):
        assert decompressor.decompress(codec, stream, magic=2) == PLAIN
        with pytest.raises(CompressionError):
            decompressor.decompress(codec, stream[: len(stream) // 2], magic=2)


@pytest.mark.parametrize("codec", CODECS)
def test_no_stream_decompresses_from_nothing(codec: int) -> None:
    assert refused(codec, b"").code == "decompress_failed"


@pytest.mark.parametrize("codec", CODECS)
def test_each_cut_prefix_fails_or_gives_less(codec: int) -> None:
    stream = compress(codec, PLAIN)
    for n in range(len(stream)):
        try:
            assert len(decompress(codec, stream[:n])) < len(PLAIN)
        except CompressionError as error:
            assert error.code == "decompress_failed"


@pytest.mark.parametrize("codec", CODECS)
@given(noise=st.binary(min_size=1, max_size=200), at=st.integers(0, 100))
@examples(50)
def test_noise_fails_with_a_code_and_nothing_else(codec: int, noise: bytes, at: int) -> None:
    stream = bytearray(compress(codec, PLAIN))
    stream[at : at + len(noise)] = noise
    try:
        decompress(codec, bytes(stream))
    except CompressionError as error:
        assert error.code in ("decompress_failed", "decompressed_too_large")


@pytest.mark.parametrize(("codec", "magic"), [(5, 2), (6, 2), (7, 2), (ZSTD, 0), (ZSTD, 1), (0, 2)])
def test_codecs_that_a_format_does_not_have_are_unknown(codec: int, magic: int) -> None:
    assert refused(codec, b"x", magic=magic).code == "unknown_codec"


class TestLimits:
    @pytest.fixture(autouse=True)
    def small_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(limits, "DECOMPRESSED_FLOOR", 1000)
        monkeypatch.setattr(limits, "DECOMPRESSED_RATIO", 2)
        monkeypatch.setattr(limits, "DECOMPRESSED_CAP", 4000)

    @pytest.mark.parametrize("codec", CODECS)
    def test_up_to_the_limit_is_read_and_one_byte_more_is_not(self, codec: int) -> None:
        assert decompress(codec, compress(codec, bytes(1000))) == bytes(1000)
        assert refused(codec, compress(codec, bytes(1001))).code == "decompressed_too_large"

    def test_the_limit_grows_with_what_is_compressed_up_to_the_cap(self) -> None:
        assert [limits.decompressed_bytes(n) for n in (1, 500, 501, 2000, 9999)] == [1000, 1000, 1002, 4000, 4000]

    @pytest.mark.parametrize("codec", [GZIP, LZ4, ZSTD])
    def test_a_bomb_is_left_at_the_limit(self, codec: int) -> None:
        assert refused(codec, compress(codec, bytes(64 << 20))).code == "decompressed_too_large"

    def test_all_members_of_a_stream_count_together(self) -> None:
        assert refused(GZIP, gzip.compress(bytes(600)) * 2).code == "decompressed_too_large"
        assert refused(ZSTD, compress(ZSTD, bytes(600)) * 2).code == "decompressed_too_large"
        assert refused(SNAPPY, xerial(*[snappy_block(bytes(600))] * 2)).code == "decompressed_too_large"


class TestGzip:
    def test_all_members_are_read(self) -> None:
        assert decompress(GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"

    @pytest.mark.parametrize("junk", [b"\xff\xff\xff", b"\x1f\x8b", b"\x00" * 30])
    def test_junk_after_the_last_member_is_ignored(self, junk: bytes) -> None:
        assert decompress(GZIP, gzip.compress(b"one") + junk) == b"one"

    def test_checksum_and_size_of_the_trailer_are_checked(self) -> None:
        stream = gzip.compress(PLAIN)
        assert refused(GZIP, stream[:-5] + bytes([stream[-5] ^ 1]) + stream[-4:]).code == "decompress_failed"
        assert refused(GZIP, stream[:-1] + b"\x01").code == "decompress_failed"

    def test_a_zlib_stream_is_no_gzip_stream(self) -> None:
        assert refused(GZIP, zlib.compress(PLAIN)).code == "decompress_failed"


class TestSnappy:
    def test_a_raw_block_needs_no_frame(self) -> None:
        assert decompress(SNAPPY, bytes.fromhex("05100102030405")) == bytes([1, 2, 3, 4, 5])

    def test_all_chunks_are_read(self) -> None:
        assert decompress(SNAPPY, xerial(snappy_block(b"one"), snappy_block(b"two"))) == b"onetwo"

    def test_versions_in_the_header_do_not_matter(self) -> None:
        assert decompress(SNAPPY, xerial(snappy_block(b"one"), header=b"\x82SNAPPY\x00" + b"\xff" * 8)) == b"one"

    def test_a_new_header_may_stand_where_a_chunk_could(self) -> None:
        assert decompress(SNAPPY, xerial(snappy_block(b"one")) + xerial(snappy_block(b"two"))) == b"onetwo"

    def test_less_than_a_length_at_the_end_is_a_clean_end(self) -> None:
        assert decompress(SNAPPY, xerial(snappy_block(b"one")) + b"\x00\x00") == b"one"

    @pytest.mark.parametrize("length", [-1, 5, 2**31 - 1])
    def test_a_chunk_that_is_cut_or_negative_is_refused(self, length: int) -> None:
        assert refused(SNAPPY, xerial(snappy_block(b"one")) + struct.pack(">i", length) + b"abc").code == "decompress_failed"

    def test_no_memory_is_taken_for_a_size_that_a_block_cannot_have(self) -> None:
        huge = bytes.fromhex("ffffffff0f") + b"x"
        assert refused(SNAPPY, huge).code == "decompressed_too_large"
        assert "claims" in refused(SNAPPY, bytes.fromhex("80808002") + b"x").detail
        assert refused(SNAPPY, b"\xff" * 9).code == "decompress_failed"


class TestLz4:
    @pytest.mark.parametrize("option", ["store_size", "content_checksum", "block_checksum"])
    def test_every_option_that_kafka_reads_is_read(self, option: str) -> None:
        assert decompress(LZ4, lz4_frame(**{option: True})) == PLAIN

    def test_declared_size_and_content_checksum_are_not_believed(self) -> None:
        framed = lz4_frame(content_checksum=True)
        assert decompress(LZ4, framed[:-4] + b"\x00\x00\x00\x00") == PLAIN
        sized = bytearray(lz4_frame(store_size=True))
        sized[6:14] = struct.pack("<q", 1 << 60)
        assert decompress(LZ4, bytes(sized), magic=0) == PLAIN

    def test_a_second_frame_is_not_read(self) -> None:
        assert decompress(LZ4, lz4_frame(b"one") + lz4_frame(b"two")) == b"one"

    def test_blocks_that_depend_on_each_other_are_refused(self) -> None:
        assert "depend" in refused(LZ4, lz4_frame(PLAIN * 500, block_linked=True)).detail

    def test_a_missing_end_mark_is_refused(self) -> None:
        assert refused(LZ4, lz4_frame()[:-4]).code == "decompress_failed"

    def test_the_wrong_header_checksum_of_old_brokers_counts_only_in_format_0(self) -> None:
        frame = lz4_frame()
        assert frame[6] == 0x82
        wrong = frame[:6] + b"\x1a" + frame[7:]
        assert decompress(LZ4, wrong, magic=0) == PLAIN
        assert decompress(LZ4, frame, magic=0) == PLAIN
        for magic in (1, 2):
            assert refused(LZ4, wrong, magic=magic).code == "decompress_failed"

    @pytest.mark.parametrize(("flags", "sizes"), [(0xA0, 0x40), (0x61, 0x40), (0x62, 0x40), (0x60, 0x30), (0x60, 0xC0)])
    def test_descriptors_that_kafka_refuses_are_refused(self, flags: int, sizes: int) -> None:
        frame = lz4_frame()
        assert refused(LZ4, frame[:4] + bytes([flags, sizes]) + frame[6:], magic=0).code == "decompress_failed"

    def test_what_does_not_begin_like_a_frame_is_refused(self) -> None:
        assert refused(LZ4, lz4.block.compress(PLAIN)).code == "decompress_failed"
        assert refused(LZ4, b"\x04\x22\x4d\x18\x68\x40").code == "decompress_failed"
        assert refused(LZ4, b"\x04\x22\x4d\x18\x68\x40\x00\x00").code == "decompress_failed"


class TestZstd:
    def test_all_frames_are_read(self) -> None:
        assert decompress(ZSTD, compress(ZSTD, b"one") + compress(ZSTD, b"two")) == b"onetwo"

    @pytest.mark.parametrize("size", [3, 1024, 5000])
    def test_frames_end_anywhere(self, size: int) -> None:
        noise = b"".join(zlib.crc32(bytes([i % 256, i // 256])).to_bytes(4, "big") for i in range(size))
        assert decompress(ZSTD, compress(ZSTD, noise) + compress(ZSTD, b"end")) == noise + b"end"

    def test_junk_after_a_frame_is_refused(self) -> None:
        assert refused(ZSTD, compress(ZSTD, PLAIN) + b"junk").code == "decompress_failed"

    def test_a_window_above_27_bits_is_refused(self) -> None:
        # a frame whose descriptor asks for a window of 2^28 bytes
        frame = bytearray(compress(ZSTD, PLAIN))
        assert frame[4] & 0x20 == 0, "not a frame that is one segment and has no window"
        frame[5] = (28 - 10) << 3
        assert refused(ZSTD, bytes(frame)).code == "decompress_failed"

    def test_a_declared_size_takes_no_memory(self) -> None:
        frame = bytearray(zstandard.ZstdCompressor().compress(bytes(1 << 20)))
        frame[-20:] = b""
        assert refused(ZSTD, bytes(frame)).code == "decompress_failed"
