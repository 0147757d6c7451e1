"""User data of subscriptions of Kafka Streams, made by hand after the layout of every version."""

from __future__ import annotations

import struct
import uuid

import pytest

from groupcoord_spark.protocol.streams_user_data import RUNNING, StatefulTask, StreamsSubscription, decode_streams_subscription

PROCESS = uuid.UUID(int=7)
END_POINT = struct.pack(">i", 4) + b"h:80"


def user_data(version: int) -> bytes:
    """Return the tasks 0_1 (active) and 1_2 (standby, restored up to 40 where the version shows it)."""
    head = struct.pack(">i", version) + (struct.pack(">i", 11) if version > 2 else b"") + PROCESS.bytes
    if version < 7:
        return head + struct.pack(">iii", 1, 0, 1) + struct.pack(">iii", 1, 1, 2) + (END_POINT if version > 1 else b"")
    if version < 10:
        sums = struct.pack(">iiiiq", 2, 0, 1, 1, RUNNING) + struct.pack(">iiiq", 1, 1, 2, 40)
    else:
        sums = struct.pack(">iiiqh", 2, 0, 1, RUNNING, -1) + struct.pack(">iiqh", 1, 2, 40, 3) + b"top"
    end = (b"\x05" if version > 7 else b"") + (struct.pack(">i", 0) if version > 8 else b"")
    return head + END_POINT + sums + end + (struct.pack(">i", 0) if version > 10 else b"")


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_tells_process_and_tasks(version: int) -> None:
    standby = StatefulTask(1, 2, 40 if version >= 7 else None)
    assert decode_streams_subscription(user_data(version)) == StreamsSubscription(version, PROCESS, (StatefulTask(0, 1, RUNNING), standby))
    assert standby.name == "1_2"


@pytest.mark.parametrize("version", range(1, 12))
def test_other_bytes_are_none_and_no_length_is_believed(version: int) -> None:
    whole = user_data(version)
    tasks_end = len(whole) - {1: 0}.get(version, 8 if version < 7 else 0) - {8: 1, 9: 5, 10: 5, 11: 9}.get(version, 0)
    assert all(decode_streams_subscription(whole[:size]) is None for size in range(tasks_end))
    assert decode_streams_subscription(struct.pack(">i", 12) + whole[4:]) is None
    assert decode_streams_subscription(whole[: 20 if version < 3 else 24] + b"\x7f" * 12) is None
