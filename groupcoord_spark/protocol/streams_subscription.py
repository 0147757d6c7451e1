"""What a member of a Kafka Streams application tells its leader beside its topics: the user data of the subscription."""

from __future__ import annotations

import uuid
from typing import Final, NamedTuple

from .definition import FieldReader
from .errors import FieldFault
from .fields import Int32
from .messages.embedded import STREAMS_USER_DATA
from .primitives import read_integer, uuid_bytes

RUNNING: Final = -2
"""The offset sum of a task that the member runs as an active task."""


class StatefulTask(NamedTuple):
    """A task of which the member has state."""

    subtopology: int
    partition: int
    offset_sum: int | None
    """Sum of the offsets up to which the member has restored the task's changelogs; RUNNING; None: not known."""

    @property
    def name(self) -> str:
        """As Kafka Streams writes it: ``0_1``."""
        return f"{self.subtopology}_{self.partition}"


class StreamsSubscription(NamedTuple):
    """What the user data says, without the end point and the tags of the client."""

    version: int
    process_id: uuid.UUID
    tasks: tuple[StatefulTask, ...]


def decode_streams_subscription(user_data: bytes) -> StreamsSubscription | None:
    """The process and its tasks; None for unknown versions and bytes of another layout.

    Before version 7 there are no offset sums: a task that was active counts as RUNNING, and of a standby task the sum is not known.
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
