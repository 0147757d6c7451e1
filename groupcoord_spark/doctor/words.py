"""Sizes and ages in sentences."""

from collections.abc import Sequence

from groupcoord_spark.doctor.facts import SegmentFacts


def bytes_of(segments: Sequence[SegmentFacts]) -> int:
    """Return the total bytes of these segment files."""
    return sum(segment.bytes for segment in segments)


def power_of_two(number: float) -> int:
    """Return the smallest power of two that is at least this number."""
    return 1 << max(int(number) - 1, 1).bit_length()


def size(number: int) -> str:
    """Format bytes: ``950 B``, ``63.2 kB``, ``4.1 GB``."""
    amount, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if amount < 1000:
            break
        amount, unit = amount / 1000, larger
    return f"{number} B" if unit == "B" else f"{amount:.1f} {unit}"


def age(milliseconds: int) -> str:
    """Format a duration: ``11 s``, ``42 min``, ``3.5 h``, ``12.0 days``."""
    seconds = milliseconds / 1000
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"
