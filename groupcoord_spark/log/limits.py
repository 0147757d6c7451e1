"""Limits on what a reader spends on one batch, whatever the batch claims about itself."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """The most bytes of one batch. The defaults are far above what brokers write.

    Attributes:
        batch_bytes: the most that the length field of an entry may say (brokers: message.max.bytes, 1 MiB by default).
        decompressed_floor, decompressed_ratio, decompressed_cap: the records of a batch may decompress to max(floor, ratio x compressed
            size), and never to more than the cap.
    """

    batch_bytes: int = 128 * MIB
    decompressed_floor: int = 64 * MIB
    decompressed_ratio: int = 64
    decompressed_cap: int = 256 * MIB

    def decompressed_bytes(self, compressed_bytes: int) -> int:
        """The most bytes that ``compressed_bytes`` may decompress to."""
        by_ratio = self.decompressed_ratio * compressed_bytes
        return self.decompressed_floor if by_ratio <= self.decompressed_floor else min(self.decompressed_cap, by_ratio)
