"""Entries of a segment: where they lie, what their headers say, whether their checksums fit.

An entry is a record batch (magic 2) or a message of an old format (magic 0 and 1). All begin with offset and length, all carry their
magic in byte 16. A file is a chain of them, so only the way from one to the next is a loop in Python; the rest is columns.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from groupcoord_spark.log.limits import Limits
from groupcoord_spark.protocol import fast_path
from groupcoord_spark.protocol.slices import Bytes, Mask, Positions

LOG_OVERHEAD = 12
"""Bytes of offset and length, which the length does not count."""

MIN_ENTRY = 26
"""The smallest entry of all: a message of magic 0 without key and value."""

MIN_LENGTH = (14, 22, 49)
"""The smallest length field of each magic."""

MAX_OFFSETS_IN_FILE = 2**31 - 1
"""How far an offset may lie above the base of its file: the index holds the difference as an int32."""

OUT_OF_RANGE = -(2**62)
"""Added to offsets, it leads out of every file."""

HEADER_SIZE = 61
CRC_START = (16, 16, 21)
"""Where the bytes under the checksum begin, for each magic."""

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
"""The header of a record batch as it lies in the file. Of old messages offset, length and magic mean the same; their crc is LEGACY_CRC."""

LEGACY_CRC = "leader_epoch"
LEGACY_ATTRIBUTES = 17

Headers = npt.NDArray[Any]

_length_at = struct.Struct(">I").unpack_from
_VIEW = np.dtype(f"V{HEADER_SIZE}")


@dataclass(slots=True)
class Entries:
    """Sound entries of one file, as columns of one length.

    position, size: where they lie. magic: as proven by the checksum. first_offset, last_offset: what they cover; of compressed old
    messages that of the messages inside. moved_by: what is added to every offset in them, 0 but where a wrong base offset was put right;
    OUT_OF_RANGE for a wrapper whose offset cannot be, until it finds a place.
    """

    position: Positions
    size: Positions
    magic: npt.NDArray[np.int8]
    first_offset: Positions
    last_offset: Positions
    moved_by: Positions

    def __len__(self) -> int:
        return len(self.position)

    def take(self, rows: npt.NDArray[Any] | slice) -> Entries:
        """The entries named by a mask, by indices or by a slice."""
        return Entries(
            self.position[rows], self.size[rows], self.magic[rows], self.first_offset[rows], self.last_offset[rows], self.moved_by[rows]
        )

    @staticmethod
    def concat(parts: list[Entries]) -> Entries:
        """All of ``parts``, one after another."""
        if not parts:
            nothing = np.zeros(0, np.int64)
            return Entries(nothing, nothing, nothing.astype(np.int8), nothing, nothing, nothing)
        if len(parts) == 1:
            return parts[0]
        return Entries(
            np.concatenate([part.position for part in parts]),
            np.concatenate([part.size for part in parts]),
            np.concatenate([part.magic for part in parts]),
            np.concatenate([part.first_offset for part in parts]),
            np.concatenate([part.last_offset for part in parts]),
            np.concatenate([part.moved_by for part in parts]),
        )


def legacy_timestamp(header: Any) -> int:
    """The timestamp of a message of magic 1, whose eight bytes lie across three fields of a batch's header."""
    return as_int64(
        (int(header["crc"]) & 0xFFFFFF) << 40 | int(header["attributes"]) << 24 | (int(header["last_offset_delta"]) >> 8 & 0xFFFFFF)
    )


def as_int64(number: int) -> int:
    """The number as Java and numpy would hold it: sums of offsets that mean nothing may overflow."""
    return (number + 2**63) % 2**64 - 2**63


def follow_lengths(data: Bytes, at: int, end: int, most: int) -> tuple[Positions, int]:
    """Positions of up to ``most`` entries from ``at`` on, each where the length of the one before it says, and the end of the last.

    It ends before the first entry that does not lie whole before ``end``. Nothing else is checked.
    """
    if loops := fast_path.loops_for(0):
        places = np.empty(min(most, (end - at) // MIN_ENTRY + 1), np.int64)
        n, at = loops.follow_lengths(data, at, end, places)
        return places[:n], at
    found: list[int] = []
    take = found.append
    length_at, view = _length_at, data.data
    # unsigned: a negative length is far too large instead of a way backwards
    last_start = end - MIN_ENTRY
    for _ in range(most):
        if at > last_start:
            break
        after = at + LOG_OVERHEAD + length_at(view, at + 8)[0]
        if after > end:
            break
        take(at)
        at = after
    return np.array(found, np.int64), at


def headers_at(data: Bytes, positions: Positions) -> Headers:
    """HEADER rows of the entries at ``positions``; ``data`` ends in PADDING."""
    if len(positions) == 0:
        return np.zeros(0, HEADER)
    everywhere = np.ndarray((len(data) - HEADER_SIZE + 1,), _VIEW, data.data, 0, (1,))
    return everywhere[positions].view(HEADER)


def sound_prefix(data: Bytes, positions: Positions, headers: Headers, limits: Limits) -> int:
    """How many of the entries that ``follow_lengths`` found are sound before the first that is not."""
    length = headers["length"].astype(np.int64)
    magic = headers["magic"]
    plausible = (length >= MIN_LENGTH[2]) & (magic == 2)
    if not plausible.all():
        plausible |= ((length >= MIN_LENGTH[0]) & (magic == 0)) | ((length >= MIN_LENGTH[1]) & (magic == 1))
    plausible &= length <= limits.batch_bytes
    end = positions + length + LOG_OVERHEAD
    usable = len(positions) if plausible.all() else int(plausible.argmin())
    fits = checksums_fit(data, positions[:usable], end[:usable], headers[:usable])
    return usable if fits.all() else int(fits.argmin())


def _restart_word() -> int:
    """Four bytes that lead a CRC-32C register from zero to its initial state, as a little-endian number: 32 bits run backwards."""
    register = 0xFFFFFFFF
    for _ in range(32):
        register = ((register ^ 0x82F63B78) << 1 | 1) & 0xFFFFFFFF if register >> 31 else register << 1
    return register


_RESTART = np.uint64(_restart_word() << 32)
_WORDS_BETWEEN = (0, 5, 13)
"""Words of eight bytes that make up the first 21 of a header."""


def _all_checksums_fit(data: Bytes, start: Positions, end: Positions, crc: npt.NDArray[np.uint32]) -> bool:
    """Whether all of these batches, one right after another, have the checksum that their header says: one CRC over all of them.

    A register that holds a right checksum becomes zero when it is fed the checksum's complement, and four constant bytes lead from zero
    to its initial state. Between two batches lie 21 bytes of header that no checksum covers: room to write both, for as long as it takes.
    The CRC of the whole is then that of the last batch. A wrong one changes the register by what only a second wrong one can undo, by a
    chance of 2^-32; a call for each batch costs seven times as much.
    """
    if len(start) < 2 or not data.flags.writeable or (start[1:] != end[:-1]).any():
        return False
    words = np.ndarray((len(data) - 7,), "<u8", data.data, 0, (1,))
    between = start[1:]
    headers = [words[between + at] for at in _WORDS_BETWEEN]
    try:
        for at, put in zip(_WORDS_BETWEEN, (~crc[:-1].astype(np.uint32), 0, _RESTART), strict=True):
            words[between + at] = put
        return bool(crc32c(data.data[int(start[0]) + CRC_START[2] : int(end[-1])]) == crc[-1])
    finally:
        for at, header in zip(_WORDS_BETWEEN, headers, strict=True):
            words[between + at] = header


def checksums_fit(data: Bytes, start: Positions, end: Positions, headers: Headers) -> Mask:
    """Which entries have the checksum that their header says. CRC-32C from magic 2 on, CRC-32 before."""
    view = data.data
    is_modern = headers["magic"] == 2
    if is_modern.all():
        if _all_checksums_fit(data, start, end, headers["crc"]):
            return np.ones(len(start), np.bool_)
        crcs = [crc32c(view[a:b]) for a, b in zip((start + CRC_START[2]).tolist(), end.tolist(), strict=True)]
        return np.asarray(np.array(crcs, np.uint32) == headers["crc"])
    fits = np.zeros(len(start), np.bool_)
    fits[is_modern] = checksums_fit(data, start[is_modern], end[is_modern], headers[is_modern])
    old = np.flatnonzero(~is_modern)
    crcs = [zlib.crc32(view[a:b]) for a, b in zip((start[old] + CRC_START[0]).tolist(), end[old].tolist(), strict=True)]
    fits[old] = np.array(crcs, np.uint32) == headers[LEGACY_CRC][old].astype(np.int32).view(np.uint32)
    return fits
