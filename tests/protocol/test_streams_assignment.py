"""The user data of an assignment of Kafka Streams, with bytes that Kafka Streams 4.3.1 wrote for an application with four tasks."""

from __future__ import annotations

import base64
import struct

import pytest

from groupcoord_spark.protocol.consumer_protocol import decode_assignment
from groupcoord_spark.protocol.streams_user_data import StreamsAssignment, decode_streams_assignment

ASSIGNMENT = base64.b64decode(
    "AAMAAAABAAZjbGlja3MAAAAEAAAAAAAAAAEAAAACAAAAAwAAAFgAAAALAAAACwAAAAQAAAAAAAAAAAAAAAAAAAAAAAAAAQAAAAAA"
    "AAAAAAAAAgAAAAAAAAAAAAAAAwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAH//////////"
)


def user_data() -> bytes:
    decoded = decode_assignment(ASSIGNMENT)
    assert decoded is not None and decoded.user_data is not None
    return decoded.user_data


def test_an_application_at_rest_schedules_no_rebalance() -> None:
    assert decode_streams_assignment(user_data()) == StreamsAssignment(11, 0, None)


@pytest.mark.parametrize("next_ms", [0, 1_795_367_542_674])
def test_the_time_of_the_next_rebalance_is_the_last_field(next_ms: int) -> None:
    assert decode_streams_assignment(user_data()[:-8] + struct.pack(">q", next_ms)) == StreamsAssignment(11, 0, next_ms)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 40,
        struct.pack(">ii", 6, 11) + bytes(40),  # version 6 has no scheduled rebalance
        struct.pack(">ii", 99, 99) + bytes(40),
        user_data()[:-12] + struct.pack(">iq", 77, 5),  # no error code
        user_data()[:19],
    ],
)
def test_other_bytes_say_nothing(data: bytes) -> None:
    assert decode_streams_assignment(data) is None
