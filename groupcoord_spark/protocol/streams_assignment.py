"""What the leader of a Kafka Streams application tells a member beside its partitions: the user data of the assignment.

Facts of the layout: kafka, streams/.../processor/internals/assignment/AssignmentInfo.java.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

_FIRST_VERSION_WITH_NEXT_REBALANCE: Final = 7
_NEWEST_VERSION: Final = 11
_INT32: Final = struct.Struct(">i")
_END: Final = struct.Struct(">iq")
"""From version 7 on the last fields are the error code and the time of the next rebalance."""
_ERROR_CODES: Final = range(5)
_NONE_SCHEDULED: Final = 2**63 - 1


class StreamsAssignment(NamedTuple):
    """What the end of the user data says."""

    version: int
    error_code: int
    """0: none."""
    next_rebalance_ms: int | None
    """When the member starts the next rebalance, in epoch milliseconds; 0: at once, to hand on tasks that others gave up; None: never."""


def decode_streams_assignment(user_data: bytes) -> StreamsAssignment | None:
    """The version and the scheduled rebalance; None for versions before 7, which schedule none, unknown versions and other bytes.

    Tasks and hosts are skipped: from version 7 on, the last 12 bytes are the error code (INT32) and the time of the next rebalance (INT64).
    """
    if len(user_data) < 2 * _INT32.size + _END.size:
        return None
    version, supported = _INT32.unpack_from(user_data, 0)[0], _INT32.unpack_from(user_data, _INT32.size)[0]
    if not _FIRST_VERSION_WITH_NEXT_REBALANCE <= version <= min(_NEWEST_VERSION, supported):
        return None
    error_code, next_ms = _END.unpack_from(user_data, len(user_data) - _END.size)
    if error_code not in _ERROR_CODES or next_ms < 0:
        return None
    return StreamsAssignment(version, error_code, None if next_ms == _NONE_SCHEDULED else next_ms)
