"""Reads log end offsets from a file, for the columns that the log of ``__consumer_offsets`` cannot fill."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from groupcoord_spark.errors import UsageError

EndOffsets = Mapping[tuple[str, int], int]
"""Topic and partition -> log end offset."""


def read_end_offsets(path: str) -> EndOffsets:
    """Offsets of a file in one of three forms: JSON ``{"orders": {"0": 1500}}``, lines ``orders:0:1500`` as kafka-get-offsets prints them,
    or CSV, lines ``orders,0,1500``. Empty lines, comments (``#``) and a heading (``topic,partition,offset``) are skipped, as are partitions
    whose offset is empty (no leader).

    Raises UsageError naming the file, the line and what was expected.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"{path} cannot be read as text: {e}.") from e
    if text.lstrip().startswith("{"):
        return _from_json(path, text)
    offsets: dict[tuple[str, int], int] = {}
    is_first = True
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        # Neither separator can be part of a topic's name.
        parts = [part.strip().strip('"') for part in line.rsplit("," if "," in line else ":", 2)]
        is_heading = is_first and len(parts) == 3 and "partition" in parts[1].lower()
        is_first = False
        if is_heading:
            continue
        try:
            topic, partition, offset = parts
            if offset:
                offsets[topic, int(partition)] = int(offset)
        except ValueError as e:
            raise UsageError(f"{path}, line {number}: {line.strip()!r} is not topic:partition:offset or topic,partition,offset.") from e
    return offsets


def changed_at_ms(path: str) -> int:
    """When the file was changed last, in epoch milliseconds: the time of the sample."""
    return Path(path).stat().st_mtime_ns // 1_000_000


def _from_json(path: str, text: str) -> EndOffsets:
    expected = 'expected {"topic": {"partition": offset}}'
    try:
        topics = json.loads(text)
        return {(topic, int(partition)): int(offset) for topic, of_topic in topics.items() for partition, offset in of_topic.items()}
    except json.JSONDecodeError as e:
        raise UsageError(f"{path}, line {e.lineno}: not JSON: {e.msg}; {expected}.") from e
    except (AttributeError, TypeError, ValueError) as e:
        raise UsageError(f"{path}: {expected}: {e}.") from e
