"""The entries of a segment: where they lie, what their headers say, and whether their checksums are right.

An entry is a record batch (magic 2) or a message of an old format (magic 0 or 1). Every entry begins with its offset and its length, and
has its magic in byte 16. Only the way from one entry to the next is a loop; everything else works on columns.
"""

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from groupcoord_spark.log import limits
from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.slices import Bytes, Columns, Mask, Positions

LOG_OVERHEAD = 12
"""Bytes of offset and length, which the length itself does not count."""

MIN_ENTRY = 26
"""Bytes of the smallest entry: a message of magic 0 without key and value."""

MIN_LENGTH = (14, 22, 49)
"""The smallest length field, by magic."""

MAX_OFFSETS_IN_FILE = 2**31 - 1
"""The most that an offset may lie above the base offset of its file: the index stores the difference as an int32."""

OUT_OF_RANGE = -(2**62)
"""Added to the offsets of an entry whose true offsets are not known yet: no file holds offsets so low."""

HEADER_SIZE = 61
CRC_START = (16, 16, 21)
"""Where the bytes under the checksum begin in an entry, by magic."""

CODEC_BITS = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20

HEADER = np.dtype(
    [
        ("base_offset", ">i8"),
        ("length", ">i4"),
        ("leader_epoch", ">i4"),
        ("magic", "i1"),
        ("crc", ">u4"),
        ("attributes", ">u2"),
        ("last_offset_delta", ">i4"),
        ("base_timestamp", ">i8"),
        ("max_timestamp", ">i8"),
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("base_sequence", ">i4"),
        ("count", ">i4"),
    ]
)
"""The header of a record batch as it lies in the file. Messages of magic 0 and 1 have the same offset, length and magic; see LEGACY_CRC."""

LEGACY_CRC = "leader_epoch"
LEGACY_ATTRIBUTES = 17

Headers = npt.NDArray[Any]

_length_at = struct.Struct(">I").unpack_from
_VIEW = np.dtype(f"V{HEADER_SIZE}")


@dataclass(slots=True)
class Entries(Columns):
    """Sound entries of one file, as columns of one length.

    Attributes:
        position, size: where the entries lie in the file, in bytes.
        magic: as the checksum proves it.
        first_offset, last_offset: the offsets of the entry; for a compressed old message, of the inner messages.
        moved_by: correction added to every offset in the entry: 0, or the difference to a wrong base offset, or OUT_OF_RANGE for a
            compressed old message whose own offset is impossible, until ``salvage.order`` finds its place.
    """

    position: Positions
    size: Positions
    magic: npt.NDArray[np.int8]
    first_offset: Positions
    last_offset: Positions
    moved_by: Positions

    @staticmethod
    def none() -> "Entries":
        """Return empty columns."""
        nothing = np.zeros(0, np.int64)
        return Entries(nothing, nothing, nothing.astype(np.int8), nothing, nothing, nothing)


def legacy_timestamp(header: Any) -> int:
    """Return the timestamp of a magic 1 message: its eight bytes span three fields of HEADER."""
    return as_int64(
        (int(header["crc"]) & 0xFFFFFF) << 40 | int(header["attributes"]) << 24 | (int(header["last_offset_delta"]) >> 8 & 0xFFFFFF)
    )


def as_int64(number: int) -> int:
    """Wrap a number to int64, as Java and numpy do. Sums of damaged offsets may overflow."""
    return (number + 2**63) % 2**64 - 2**63


def entry_positions(data: Bytes, at: int, end: int, most: int) -> tuple[Positions, int]:
    """Positions of up to ``most`` entries from ``at`` on, and the end of the last one.

    The length of an entry gives the position of the next one. The last entry is the last that lies whole before ``end``. Nothing but
    lengths is looked at.
    """
    if loops := fast_path.loops_for(0):
        places = np.empty(min(most, (end - at) // MIN_ENTRY + 1), np.int64)
        n, at = loops.entry_positions(data, at, end, places)
        return places[:n], at
    positions: list[int] = []
    take = positions.append
    length_at, view = _length_at, data.data
    # unsigned: a negative length is far too large instead of a way backwards
    last_start = end - MIN_ENTRY
    for _ in range(most):
        if at > last_start:
            break
        end_of_entry = at + LOG_OVERHEAD + length_at(view, at + 8)[0]
        if end_of_entry > end:
            break
        take(at)
        at = end_of_entry
    return np.array(positions, np.int64), at


def headers_at(data: Bytes, positions: Positions) -> Headers:
    """Return the HEADER rows of the entries at ``positions``; ``data`` must end in PADDING."""
    if len(positions) == 0:
        return np.zeros(0, HEADER)
    everywhere = np.ndarray((len(data) - HEADER_SIZE + 1,), _VIEW, data.data, 0, (1,))
    return everywhere[positions].view(HEADER)


def count_sound(data: Bytes, positions: Positions, headers: Headers) -> int:
    """Return how many entries precede the first invalid one. A valid entry has a possible length and magic and a correct checksum."""
    length = headers["length"].astype(np.int64)
    magic = headers["magic"]
    plausible = (length >= MIN_LENGTH[2]) & (magic == 2)
    if not plausible.all():
        plausible |= ((length >= MIN_LENGTH[0]) & (magic == 0)) | ((length >= MIN_LENGTH[1]) & (magic == 1))
    plausible &= length <= limits.BATCH_BYTES
    end = positions + length + LOG_OVERHEAD
    usable = len(positions) if plausible.all() else int(plausible.argmin())
    fits = checksums_fit(data, positions[:usable], end[:usable], headers[:usable])
    return usable if fits.all() else int(fits.argmin())


def checksums_fit(data: Bytes, start: Positions, end: Positions, headers: Headers) -> Mask:
    """True for each entry that has the checksum in its header: CRC-32C in magic 2, CRC-32 in magic 0 and 1."""
    view = data.data
    is_modern = headers["magic"] == 2
    if is_modern.all():
        crcs = [crc32c(view[a:b]) for a, b in zip((start + CRC_START[2]).tolist(), end.tolist(), strict=True)]
        return np.asarray(np.array(crcs, np.uint32) == headers["crc"])
    fits = np.zeros(len(start), np.bool_)
    fits[is_modern] = checksums_fit(data, start[is_modern], end[is_modern], headers[is_modern])
    old = np.flatnonzero(~is_modern)
    crcs = [zlib.crc32(view[a:b]) for a, b in zip((start[old] + CRC_START[0]).tolist(), end[old].tolist(), strict=True)]
    fits[old] = np.array(crcs, np.uint32) == headers[LEGACY_CRC][old].astype(np.int32).view(np.uint32)
    return fits
