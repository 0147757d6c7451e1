"""Limits on what a reader spends on one batch, whatever the batch claims about itself. They are far above what brokers write."""

MIB = 1 << 20

BATCH_BYTES = 128 * MIB
"""The most that the length field of an entry may say (brokers: message.max.bytes, 1 MiB by default)."""

DECOMPRESSED_FLOOR, DECOMPRESSED_RATIO, DECOMPRESSED_CAP = 64 * MIB, 64, 256 * MIB
"""The records of a batch may decompress to max(floor, ratio x compressed size), and never to more than the cap."""


def decompressed_bytes(compressed_bytes: int) -> int:
    """Return the maximum decompressed size of ``compressed_bytes``."""
    by_ratio = DECOMPRESSED_RATIO * compressed_bytes
    return DECOMPRESSED_FLOOR if by_ratio <= DECOMPRESSED_FLOOR else min(DECOMPRESSED_CAP, by_ratio)
