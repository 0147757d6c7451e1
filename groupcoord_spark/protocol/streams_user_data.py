"""User data of Kafka Streams: in a member's subscription in addition to its topics, and in its assignment in addition to its partitions.

Facts of the layouts: kafka, streams/.../processor/internals/assignment/SubscriptionInfo.java and AssignmentInfo.java.
"""

import struct
import uuid
from typing import Final, NamedTuple

from .definition import FieldReader
from .errors import FieldFault
from .fields import Int32
from .messages.embedded import STREAMS_USER_DATA
from .primitives import read_integer, uuid_bytes

_FIRST_VERSION_WITH_NEXT_REBALANCE: Final = 7
_NEWEST_VERSION: Final = 11
_INT32: Final = struct.Struct(">i")
_END: Final = struct.Struct(">iq")
"""From version 7 on the last fields are the error code and the time of the next rebalance."""
_ERROR_CODES: Final = range(5)
_NONE_SCHEDULED: Final = 2**63 - 1


class StreamsAssignment(NamedTuple):
    """The end of the user data of an assignment."""

    version: int
    error_code: int
    """0: none."""
    next_rebalance_ms: int | None
    """When the member starts the next rebalance, in epoch milliseconds; 0: at once, to hand on tasks that others gave up; None: never."""


def decode_streams_assignment(user_data: bytes) -> StreamsAssignment | None:
    """Return the version and the scheduled rebalance. None for versions before 7, which schedule none, unknown versions and other bytes.

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


RUNNING: Final = -2
"""The offset sum of a task that the member runs as an active task."""


class StatefulTask(NamedTuple):
    """A task whose state the member has."""

    subtopology: int
    partition: int
    offset_sum: int | None
    """Sum of the member's restored changelog offsets of the task; RUNNING; None if unknown."""

    @property
    def name(self) -> str:
        """As Kafka Streams writes it: ``0_1``."""
        return f"{self.subtopology}_{self.partition}"


class StreamsSubscription(NamedTuple):
    """The user data of a subscription, without the end point and the tags of the client."""

    version: int
    process_id: uuid.UUID
    tasks: tuple[StatefulTask, ...]


def decode_streams_subscription(user_data: bytes) -> StreamsSubscription | None:
    """Return the process and its tasks, or None for unknown versions and other layouts.

    Versions before 7 have no offset sums: a formerly active task counts as RUNNING, and the sum of a standby task is unknown.
    """
    message = STREAMS_USER_DATA
    try:
        version, at = read_integer(user_data, 0, Int32)
        if not message.versions[0] <= version <= message.versions[1]:
            return None
        fields, _ = FieldReader(user_data, message, version).read_struct(message.fields, at)
    except FieldFault:
        return None
    if fields.get("latest_supported_version", version) < version:
        return None
    tasks = [StatefulTask(task["subtopology"], task["partition"], RUNNING) for task in fields.get("active_tasks") or ()]
    tasks += [StatefulTask(task["subtopology"], task["partition"], None) for task in fields.get("standby_tasks") or ()]
    sums = [{**of, **task} for of in fields.get("sums_by_subtopology") or () for task in of["sums"] or ()]
    for task in (*sums, *(fields.get("sums") or ())):
        offset_sum = task["offset_sum"]
        tasks.append(StatefulTask(task["subtopology"], task["partition"], offset_sum if offset_sum >= 0 or offset_sum == RUNNING else None))
    return StreamsSubscription(version, uuid.UUID(bytes=uuid_bytes(fields["process_id"])), tuple(tasks))
