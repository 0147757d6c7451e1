"""Finds the sound entries of a file, and the damaged ranges between them.

Sound entries follow one another. Behind an entry that is not sound the search goes on byte by byte until the next sound one. The length of
a bad entry is never trusted: the checksum does not cover it, and a length that is too large would take good entries with it.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from crc32c import crc32c

from groupcoord_spark.log import limits
from groupcoord_spark.log.decode import batches
from groupcoord_spark.log.decode.records import correct_offset_ranges
from groupcoord_spark.log.limits import MIB
from groupcoord_spark.protocol.slices import Bytes, Mask, Positions
from groupcoord_spark.storage.location import PADDING, SegmentFile

_ENTRIES_AT_ONCE = 4096
"""The most entries that are followed before they are checked, so that their bytes are still in the processor's cache."""

_ENTRIES_AFTER_DAMAGE = 64
"""As _ENTRIES_AT_ONCE, right after damage: more damage is likely there, and following entries beyond it would be in vain."""

_LENGTH_END = 12
"""An entry begins with its base offset (8 bytes) and its length (4 bytes)."""

_SEARCHED_FIRST = 1 << 12
_SEARCHED_AT_ONCE = 1 << 16
_READ_AT_ONCE = 8 * MIB

_USUAL_LARGEST = 2 * MIB
"""Above the default limit of brokers for a batch. The search accepts a larger entry only in a file where it has met one."""

_SEARCH_EFFORT = 64
"""How many times the size of the file all searches in it may spend on checksums, so that no input makes a reader hang."""


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """The bytes from ``position`` to ``end``, which hold no sound entry.

    Attributes:
        code: a name of CODES.
        sentence: the fault at the beginning of the range.
        records: how many records the headers in it claim; None where the headers cannot be believed.
        has_control_batch: one of these headers belongs to a control batch.
    """

    code: str
    position: int
    end: int
    sentence: str
    records: int | None = None
    has_control_batch: bool = False


@dataclass(slots=True)
class FileSection:
    """A part of a file: sound entries with their headers as stored; or one damaged range; or one entry whose header was repaired.

    repair: a sentence about the repair, else None.
    """

    entries: batches.Entries
    headers: batches.Headers
    damaged: DamagedRange | None = None
    repair: str | None = None


@dataclass(slots=True)
class EntryFinder:
    """Walks one file from entry to entry.

    Attributes:
        file_base: the base offset in the name of the file.
        is_last: no file of the partition follows.
        window_bytes: how much of the file is read at a time.
    """

    file: SegmentFile
    file_base: int
    is_last: bool
    window_bytes: int
    _window: Bytes = field(init=False, default_factory=lambda: np.zeros(PADDING, np.uint8))
    _window_start: int = field(init=False, default=0)
    _window_end: int = field(init=False, default=0)
    _largest: int = field(init=False, default=0)
    _first_offset: int | None = field(init=False, default=None)
    _any_in_range: bool = field(init=False, default=False)
    _effort: int = field(init=False, default=0)

    def sections(self, at: int = 0) -> Iterator[FileSection]:
        """Yield all sections from position ``at`` to the end of the file, in order and without gaps."""
        size = self.file.size
        at_once = _ENTRIES_AT_ONCE
        while at < size:
            self._fill_window(at, min(at + batches.HEADER_SIZE, size))
            start = self._window_start
            positions, end_of_entries = batches.entry_positions(self._window, at - start, self._window_end - start, at_once)
            headers = batches.headers_at(self._window, positions)
            sound = batches.count_sound(self._window, positions, headers)
            if sound:
                section = _section_of(positions[:sound] + start, headers[:sound])
                yield self._corrected(section)
                at = end_of_entries + start if sound == len(positions) else int(positions[sound]) + start
                if sound == len(positions):
                    at_once = min(2 * at_once, _ENTRIES_AT_ONCE)
                    continue
            elif self._is_sound(at):
                # it is whole, only not in this window
                self._fill_window(at, at + self._size_at(at))
                continue
            section = self._section_without_entry(at)
            at_once = _ENTRIES_AFTER_DAMAGE
            if section.damaged:
                at = section.damaged.end
            else:
                at += int(section.entries.size[0])
                self._corrected(section)
            yield section

    def whole_window(self) -> Bytes | None:
        """Return the whole file if the window is large enough and was read, else None."""
        return self._window if self._window_start == 0 and self._window_end == self.file.size else None

    def next_sound(self, at: int) -> int:
        """Return the first position from ``at`` on where a valid entry of plausible size starts, or the end of the file.

        Raises ResyncAbandonedError when the searches in this file have cost too much.
        """
        size = self.file.size
        at_once = _SEARCHED_FIRST
        while at <= size - batches.MIN_ENTRY:
            # no entry can begin so far before the first byte that is not zero: its length is not zero
            at = max(at, self._first_nonzero(at) - _LENGTH_END + 1)
            if at > size - batches.MIN_ENTRY:
                break
            upto = min(at + at_once, size - batches.MIN_ENTRY + 1)
            at_once = min(2 * at_once, _SEARCHED_AT_ONCE)
            self._fill_window(at, min(upto + batches.HEADER_SIZE, size))
            for candidate in self._candidates(at, upto).tolist():
                self._effort += self._size_at(candidate)
                if self._effort > _SEARCH_EFFORT * size:
                    raise ResyncAbandonedError
                if self._is_sound(candidate):
                    return int(candidate)
            at = upto
        return size

    def _corrected(self, section: FileSection) -> FileSection:
        """Return the section with the offsets of entries whose headers lack them. Its sizes and offsets guide later searches."""
        entries = section.entries
        self._largest = max(self._largest, int(entries.size.max()) - batches.LOG_OVERHEAD)
        if not self._any_in_range:
            first = entries.first_offset
            if self._first_offset is None:
                self._first_offset = int(first[0])
            self._any_in_range = bool(((first >= self.file_base) & (first <= self.file_base + batches.MAX_OFFSETS_IN_FILE)).any())
        correct_offset_ranges(entries, section.headers, self.bytes_between)
        return section

    def _bases(self) -> list[int]:
        """Return the base offset of the file, and the first offset of a file that may have been renamed."""
        if self._any_in_range or self._first_offset is None or self._first_offset < 0:
            return [self.file_base]
        return [self.file_base, self._first_offset]

    def _largest_plausible(self) -> int:
        return min(limits.BATCH_BYTES, max(_USUAL_LARGEST, self._largest))

    def _fill_window(self, start: int, end: int) -> None:
        """Makes the window contain the bytes from ``start`` to ``end``."""
        if start < self._window_start or end > self._window_end:
            # the old window goes before the new one comes: there is never memory for two
            self._window = np.zeros(0, np.uint8)
            self._window_start, self._window_end = start, min(max(end, start + self.window_bytes), self.file.size)
            self._window = self.file.read(self._window_start, self._window_end)

    def bytes_between(self, start: int, end: int) -> bytes:
        """Return the bytes of the file from ``start`` to ``end``."""
        self._fill_window(start, end)
        return self._window[start - self._window_start : end - self._window_start].tobytes()

    def _header(self, at: int) -> batches.Headers:
        """Return the HEADER row at ``at``, with zeros for bytes beyond the end of the file."""
        raw = self.bytes_between(at, min(at + batches.HEADER_SIZE, self.file.size))
        return np.frombuffer(raw.ljust(batches.HEADER_SIZE, b"\0"), batches.HEADER)

    def _size_at(self, at: int) -> int:
        return batches.LOG_OVERHEAD + int(self._header(at)["length"][0])

    def _pieces(self, start: int, end: int) -> Iterator[Bytes]:
        """Yield the bytes from ``start`` to ``end``. Bytes outside of the window are read without moving it."""
        if start >= self._window_start and end <= self._window_end:
            yield self._window[start - self._window_start : end - self._window_start]
            return
        for at in range(start, end, _READ_AT_ONCE):
            upto = min(at + _READ_AT_ONCE, end)
            yield self.file.read(at, upto)[: upto - at]

    def _checksum_fits(self, at: int, end: int, magic: int, header: batches.Headers) -> bool:
        crc = 0
        if magic == 2:
            for piece in self._pieces(at + batches.CRC_START[2], end):
                crc = crc32c(piece.data, crc)
            return crc == int(header["crc"][0])
        for piece in self._pieces(at + batches.CRC_START[0], end):
            crc = zlib.crc32(piece.data, crc)
        return crc == int(header[batches.LEGACY_CRC][0]) & 0xFFFFFFFF

    def _is_sound(self, at: int) -> bool:
        if self.file.size - at < batches.MIN_ENTRY:
            return False
        header = self._header(at)
        magic, length = int(header["magic"][0]), int(header["length"][0])
        if not 0 <= magic <= 2 or not batches.MIN_LENGTH[magic] <= length <= limits.BATCH_BYTES:
            return False
        end = at + batches.LOG_OVERHEAD + length
        return end <= self.file.size and self._checksum_fits(at, end, magic, header)

    def _candidates(self, start: int, end: int) -> Positions:
        """Return the positions from ``start`` to ``end`` where a plausible entry may start. The window must contain their headers."""
        n = end - start
        window = self._window[start - self._window_start :]
        most = self._largest_plausible()
        ranges = [(base, base + batches.MAX_OFFSETS_IN_FILE) for base in self._bases()]
        # one byte each of magic, length and offset leave few places for a closer look
        likely = window[16 : 16 + n] <= 2
        likely &= window[8 : 8 + n] <= most >> 24
        likely &= np.isin(window[:n], [border >> 56 & 0xFF for bounds in ranges for border in bounds])
        at = np.flatnonzero(likely)
        headers = batches.headers_at(window, at)
        magic, length = headers["magic"], headers["length"]
        offset = headers["base_offset"]
        shaped = (length <= most) & (at + start + batches.LOG_OVERHEAD + length <= self.file.size)
        shaped &= np.logical_or.reduce([(offset >= lowest) & (offset <= highest) for lowest, highest in ranges])
        shaped &= (length >= np.array(batches.MIN_LENGTH)[magic]) & ((magic < 2) | _looks_like_batch(headers))
        at, magic, length = at[shaped], magic[shaped], length[shaped]
        for i in np.flatnonzero(magic < 2).tolist():
            here = int(at[i]) + start
            if not self._looks_like_message(here, here + batches.LOG_OVERHEAD + int(length[i]), int(magic[i])):
                at[i] = -1
        return np.asarray(at[at >= 0] + start)

    def _looks_like_message(self, at: int, end: int, magic: int) -> bool:
        """True where the lengths of key and value fill an old message exactly. Nothing else of the message is read."""
        here = at + (26 if magic else 18)
        for _ in range(2):
            if here + 4 > end:
                return False
            length = int.from_bytes(b"".join(piece.tobytes() for piece in self._pieces(here, here + 4)), "big", signed=True)
            if length < -1:
                return False
            here += 4 + max(length, 0)
        return here == end

    def _section_without_entry(self, at: int) -> FileSection:
        """Return the section at ``at``, where no valid entry starts: a damaged range, or an entry with its header repaired."""
        size = self.file.size
        if self._first_nonzero(at) == size:
            code = "zero_tail" if self.is_last else "zero_gap"  # a broker trims a segment before it begins the next one
            return _damaged_section(DamagedRange(code, at, size, f"The last {size - at} bytes of the file are zeros."))
        code, sentence = self._fault_at(at)
        length = int(self._header(at)["length"][0])
        try:
            end = self.next_sound(at + 1)
        except ResyncAbandonedError:
            sentence = f"{sentence} The search for sound entries after it cost too much."
            return _damaged_section(DamagedRange("resync_abandoned", at, size, sentence))
        for possible in (end, self._end_without_zeros(at)) if end == size else (end,):
            repaired = self._repaired(at, possible)
            if repaired:
                return repaired
        if code == "tail_truncated" and (not self.is_last or end < size or length > self._largest_plausible()):
            code = "segment_truncated"
        records, has_control_batch = self._claimed_records(at, end)
        return _damaged_section(DamagedRange(code, at, end, sentence, records, has_control_batch))

    def _fault_at(self, at: int) -> tuple[str, str]:
        """Return the code of the bad entry at ``at``, and a sentence about it."""
        left = self.file.size - at
        if left < 17:
            return "tail_truncated", f"{left} bytes are left at {at}, too few for an entry."
        header = self._header(at)
        length, magic = int(header["length"][0]), int(header["magic"][0])
        if not any(self.bytes_between(at, at + 12)):
            return "zero_gap", f"Zeros lie at {at}, where an entry should begin."
        least = batches.MIN_LENGTH[magic] if 0 <= magic <= 2 else batches.MIN_LENGTH[0]
        if length < least:
            return "batch_length_invalid", f"The entry at {at} declares a length of {length}, the least is {least}."
        if batches.LOG_OVERHEAD + length > left:
            return "tail_truncated", f"The entry at {at} declares {batches.LOG_OVERHEAD + length} bytes, {left} remain."
        if length > limits.BATCH_BYTES:
            return "batch_too_large", f"The entry at {at} declares a length of {length}, the limit is {limits.BATCH_BYTES}."
        if not 0 <= magic <= 2:
            return "unknown_magic", f"The entry at {at} has format {magic}; known are 0, 1 and 2."
        return "batch_crc_mismatch", f"The checksum of the entry at {at} does not fit its {batches.LOG_OVERHEAD + length} bytes."

    def _first_nonzero(self, at: int) -> int:
        """Return the position of the first nonzero byte from ``at`` on, or the end of the file."""
        in_window = self._window[max(at - self._window_start, 0) : self._window_end - self._window_start]
        if self._window_start <= at < self._window_end:
            if in_window.any():
                return at + int((in_window != 0).argmax())
            at = self._window_end
        wanted = 1 << 12  # in a sound file the byte is near, and what looks for one record must read little
        for begin, end in self.file.data_ranges(at, self.file.size):
            while begin < end:
                piece = self.file.read(begin, min(begin + wanted, end))
                if piece.any():
                    return begin + int((piece != 0).argmax())
                begin, wanted = begin + wanted, min(2 * wanted, _READ_AT_ONCE)
        return self.file.size

    def _end_without_zeros(self, at: int) -> int:
        """Return the position after the last nonzero byte of the file."""
        for start, end in reversed(list(self.file.data_ranges(at, self.file.size))):
            for upto in range(end, start, -_READ_AT_ONCE):
                begin = max(start, upto - _READ_AT_ONCE)
                nonzero = np.flatnonzero(self.file.read(begin, upto)[: upto - begin])
                if len(nonzero):
                    return begin + int(nonzero[-1]) + 1
        return at

    def _repaired(self, at: int, end: int) -> FileSection | None:
        """Return the entry that fills the bytes from ``at`` to ``end`` if only its length or magic is wrong (no checksum covers them),
        or None."""
        header = self._header(at)
        if end - at - batches.LOG_OVERHEAD > limits.BATCH_BYTES:
            return None
        magic = 2
        is_entry = end - at >= batches.HEADER_SIZE and bool(_looks_like_batch(header)[0]) and self._checksum_fits(at, end, 2, header)
        if not is_entry:
            magic = int(header["magic"][0])
            is_entry = (
                magic in (0, 1)
                and end - at >= batches.MIN_ENTRY
                and self._checksum_fits(at, end, magic, header)
                and self._looks_like_message(at, end, magic)
            )
        if not is_entry:
            return None
        section = _section_of(np.array([at]), header)
        entries = section.entries
        entries.magic[:], entries.size[:] = magic, end - at
        entries.last_offset[:] = entries.first_offset + (header["last_offset_delta"] if magic == 2 else 0)
        section.repair = (
            f"The entry at {at} says length {header['length'][0]} and format {header['magic'][0]}; "
            f"its checksum proves length {end - at - batches.LOG_OVERHEAD} and format {magic}."
        )
        return section

    def _claimed_records(self, at: int, end: int) -> tuple[int | None, bool]:
        """Return how many records the plausible headers from ``at`` to ``end`` claim, and whether one is a control batch's."""
        records: int | None = None
        has_control_batch = False
        while at + batches.MIN_ENTRY <= end:
            header = self._header(at)
            magic, length = int(header["magic"][0]), int(header["length"][0])
            if not 0 <= magic <= 2 or not batches.MIN_LENGTH[magic] <= length <= self._largest_plausible():
                break
            if magic == 2:
                if not _looks_like_batch(header)[0]:
                    break
                records = (records or 0) + int(header["count"][0])
                has_control_batch |= bool(int(header["attributes"][0]) & batches.CONTROL)
            elif at + batches.LOG_OVERHEAD + length > end or not self._looks_like_message(at, at + batches.LOG_OVERHEAD + length, magic):
                break
            elif (int(header["crc"][0]) >> 24) & batches.CODEC_BITS:
                # nobody knows how many messages are inside
                return None, has_control_batch
            else:
                records = (records or 0) + 1
            at += batches.LOG_OVERHEAD + length
        return records, has_control_batch


class ResyncAbandonedError(Exception):
    """Raised when the searches for sound entries in one file have cost more than is allowed."""


def _looks_like_batch(headers: batches.Headers) -> Mask:
    """True where codec, last offset delta and record count of a record batch are possible."""
    count, last_delta = headers["count"].astype(np.int64), headers["last_offset_delta"].astype(np.int64)
    return np.asarray(((headers["attributes"] & batches.CODEC_BITS) <= 4) & (last_delta >= 0) & (count >= 0) & (count <= last_delta + 1))


def _section_of(positions: Positions, headers: batches.Headers) -> FileSection:
    first_offset = headers["base_offset"].astype(np.int64)
    magic = headers["magic"].copy()
    last_offset = first_offset + np.where(magic == 2, headers["last_offset_delta"], 0)
    size = headers["length"].astype(np.int64) + batches.LOG_OVERHEAD
    return FileSection(batches.Entries(positions, size, magic, first_offset, last_offset, np.zeros(len(positions), np.int64)), headers)


def _damaged_section(damaged: DamagedRange) -> FileSection:
    return FileSection(batches.Entries.none(), np.zeros(0, batches.HEADER), damaged)
