"""Decompresses the records of a batch or an old message to the bytes that Kafka would read, and compresses them."""

import gzip
import struct
import zlib
from collections.abc import Mapping
from typing import Final

import lz4.frame
import pyarrow as pa
import zstandard

from groupcoord_spark.log import limits
from groupcoord_spark.log.damage import BatchError

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = 16
_XERIAL_BLOCK = 32 * 1024
_XERIAL_MAGIC_AS_LENGTH = 0x82534E41
_SNAPPY_BEST_RATIO = 64

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_BEST_RATIO = 255

_ZSTD_WINDOW = 1 << 27
_ZSTD_FEED = 1024
"""How many compressed bytes zstd gets at a time. A block of 4 bytes may become 128 KiB, so 1 KiB may become 32 MiB."""


class CompressionError(BatchError):
    """Raised when the records of a batch cannot be decompressed. code: unknown_codec, decompress_failed or decompressed_too_large."""


def _failed(detail: str) -> CompressionError:
    return CompressionError("decompress_failed", detail)


CODECS: Final[Mapping[str, int]] = {"none": 0, "gzip": GZIP, "snappy": SNAPPY, "lz4": LZ4, "zstd": ZSTD}
"""The number of each codec by Kafka's name."""


def compress(codec: int, plain: bytes) -> bytes:
    """Compress ``plain`` as Kafka reads it under ``codec`` in a magic 2 batch; codec 0 returns it unchanged."""
    if codec == GZIP:
        return gzip.compress(plain, mtime=0)
    if codec == SNAPPY:
        blocks = (plain[at : at + _XERIAL_BLOCK] for at in range(0, len(plain), _XERIAL_BLOCK))
        compressed = (pa.Codec("snappy").compress(block, asbytes=True) for block in blocks)
        versions = struct.pack(">ii", 1, 1)
        return _XERIAL_MAGIC + versions + b"".join(struct.pack(">i", len(block)) + block for block in compressed)
    if codec == LZ4:
        # Kafka's reader takes independent blocks only, and no size of the content.
        return bytes(lz4.frame.compress(plain, store_size=False, block_linked=False, block_size=lz4.frame.BLOCKSIZE_MAX64KB))
    return zstandard.ZstdCompressor().compress(plain) if codec == ZSTD else plain


class Decompressor:
    """Decompresses one batch after another with contexts that are expensive to create. Not safe for several threads."""

    def __init__(self) -> None:
        self._zstd = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
        self._snappy = pa.Codec("snappy")

    def decompress(self, codec: int, stream: bytes, *, magic: int) -> bytes:
        """Decompress ``stream``, from a batch of format ``magic`` with codec 1 to 4.

        A declared size takes no memory: the stream is decompressed up to the limit. Raises CompressionError, also for an empty stream.
        """
        if not GZIP <= codec <= ZSTD or (codec == ZSTD and magic < 2):
            raise CompressionError("unknown_codec", f"codec {codec} does not exist in format {magic}")
        if not stream:
            raise _failed("the compressed stream is empty")
        limit = limits.decompressed_bytes(len(stream))
        if codec == GZIP:
            return _gunzip(stream, limit)
        if codec == SNAPPY:
            return self._unsnap(stream, limit)
        if codec == LZ4:
            return _unlz4(stream, limit, header_checksum_counts=magic > 0)
        return self._unzstd(stream, limit)

    def _unsnap(self, stream: bytes, limit: int) -> bytes:
        if not stream.startswith(_XERIAL_MAGIC):
            return self._unsnap_block(stream, limit)
        if len(stream) < _XERIAL_HEADER:
            raise _failed(f"the snappy stream ends inside its header of {_XERIAL_HEADER} bytes")
        blocks: list[bytes] = []
        made, at = 0, _XERIAL_HEADER
        # fewer than four bytes where a chunk could begin are a clean end (snappy-java)
        while at + 4 <= len(stream):
            (length,) = struct.unpack_from(">I", stream, at)
            at += 4
            if length == _XERIAL_MAGIC_AS_LENGTH:
                at += _XERIAL_HEADER - 4
                continue
            if length >= 1 << 31 or at + length > len(stream):
                raise _failed(f"a snappy chunk at byte {at - 4} declares {length} bytes, {len(stream) - at} remain")
            blocks.append(self._unsnap_block(stream[at : at + length], limit - made))
            made += len(blocks[-1])
            at += length
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    def _unsnap_block(self, block: bytes, room: int) -> bytes:
        size = shift = at = 0
        while True:
            if at >= len(block) or at > 4:
                raise _failed("a snappy block does not begin with its size")
            size |= (block[at] & 0x7F) << shift
            shift += 7
            at += 1
            if block[at - 1] < 0x80:
                break
        if size > room:
            raise _too_large(room)
        if size > _SNAPPY_BEST_RATIO * len(block):
            raise _failed(f"a snappy block of {len(block)} bytes claims to become {size} bytes")
        try:
            made: bytes = self._snappy.decompress(block, size, asbytes=True)
        except (OSError, pa.ArrowException) as error:
            raise _failed(f"snappy: {error}") from error
        return made

    def _unzstd(self, stream: bytes, limit: int) -> bytes:
        pieces: list[bytes] = []
        made = at = 0
        while at < len(stream):
            frame = self._zstd.decompressobj()
            while not frame.eof:
                if at >= len(stream):
                    raise _failed("the zstd stream ends inside a frame")
                try:
                    piece = frame.decompress(stream[at : at + _ZSTD_FEED])
                except zstandard.ZstdError as error:
                    raise _failed(f"zstd: {error}") from error
                at = min(at + _ZSTD_FEED, len(stream))
                made += len(piece)
                if made > limit:
                    raise _too_large(limit)
                pieces.append(piece)
            at -= len(frame.unused_data)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _too_large(limit: int) -> CompressionError:
    return CompressionError("decompressed_too_large", f"the records decompress to more than the {limit} bytes that are allowed")


def _gunzip(stream: bytes, limit: int) -> bytes:
    pieces: list[bytes] = []
    made = 0
    while True:
        member = zlib.decompressobj(31)
        try:
            piece = member.decompress(stream, limit - made + 1)
        except zlib.error as error:
            raise _failed(f"gzip: {error}") from error
        made += len(piece)
        if made > limit:
            raise _too_large(limit)
        if not member.eof:
            raise _failed("the gzip stream ends inside a member")
        stream = member.unused_data
        # java.util.zip.GZIPInputStream ignores whatever follows a member and is not the header of another
        if not stream.startswith(b"\x1f\x8b\x08"):
            return b"".join([*pieces, piece]) if pieces else piece
        pieces.append(piece)


def _unlz4(stream: bytes, limit: int, *, header_checksum_counts: bool) -> bytes:
    """Decompress the first frame of ``stream`` if Kafka's own frame reader (Lz4BlockInputStream) accepts it."""
    if stream[:7] != b"\x04\x22\x4d\x18\x60\x40\x82":
        stream = _plain_lz4_frame(stream, header_checksum_counts)
    try:
        if len(stream) * _LZ4_BEST_RATIO <= limit:
            return bytes(lz4.frame.decompress(stream))
        frame = lz4.frame.LZ4FrameDecompressor()
        made = frame.decompress(stream, max_length=limit + 1)
    except (RuntimeError, ValueError) as error:
        raise _failed(f"lz4: {error}") from error
    if len(made) > limit:
        raise _too_large(limit)
    if not frame.eof:
        raise _failed("the lz4 stream ends without an end mark")
    return bytes(made)


def _plain_lz4_frame(stream: bytes, header_checksum_counts: bool) -> bytes:
    """Return the frame without its declared size and content checksum, which Kafka ignores, and with a correct header."""
    if stream[:4] != _LZ4_MAGIC:
        raise _failed(f"no lz4 frame: it begins with {stream[:4].hex()}")
    if len(stream) < 7:
        raise _failed("the lz4 stream ends inside the header of its frame")
    flags, sizes = stream[4], stream[5]
    if flags >> 6 != 1 or flags & 0x03:
        raise _failed(f"lz4 frame flags {flags:#04x} are of no version that Kafka reads")
    if not flags & 0x20:
        raise _failed("lz4 blocks that depend on each other are not read by Kafka")
    checksum_at = 14 if flags & 0x08 else 6
    if len(stream) <= checksum_at:
        raise _failed("the lz4 stream ends inside the header of its frame")
    descriptor = bytes((flags & 0x70, sizes))
    try:
        # 0.8.2 and 0.9 computed the header's checksum over the wrong bytes (KAFKA-3160), so nobody checks it in format 0
        if header_checksum_counts:
            lz4.frame.get_frame_info(stream)
        plain = lz4.frame.LZ4FrameCompressor(block_size=sizes >> 4, block_linked=False, block_checksum=flags & 0x10 != 0).begin()
    except (RuntimeError, ValueError) as error:
        raise _failed(f"the header of the lz4 frame cannot be read: {error}") from error
    if plain[4:6] != descriptor:
        raise _failed(f"lz4 block sizes {sizes:#04x} are of no version that Kafka reads")
    return bytes(plain) + stream[checksum_at + 1 :]
