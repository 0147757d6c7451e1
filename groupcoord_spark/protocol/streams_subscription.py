"""What a member of a Kafka Streams application tells its leader beside its topics: the user data of the subscription.

Facts of the layout: kafka, streams/src/main/resources/common/message/SubscriptionInfoData.json.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Final, NamedTuple

_NEWEST_VERSION: Final = 11
_FIRST_WITH_SUPPORTED_VERSION: Final = 3
_FIRST_WITH_OFFSET_SUMS: Final = 7
_FIRST_WITH_FLAT_SUMS: Final = 10

RUNNING: Final = -2
"""In place of an offset sum: the member runs the task as an active one."""


class Task(NamedTuple):
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
    tasks: tuple[Task, ...]


def decode_streams_subscription(user_data: bytes) -> StreamsSubscription | None:
    """The process and its tasks; None for unknown versions and bytes of another layout.

    Before version 7 there are no offset sums: a task that was active counts as RUNNING, and of a standby task the sum is not known.
    """
    try:
        reader = _Reader(user_data)
        version = reader.int32()
        if not 1 <= version <= _NEWEST_VERSION:
            return None
        if version >= _FIRST_WITH_SUPPORTED_VERSION and reader.int32() < version:
            return None
        process_id = uuid.UUID(bytes=reader.bytes(16))
        if version < _FIRST_WITH_OFFSET_SUMS:
            active, standby = ([(reader.int32(), reader.int32()) for _ in range(reader.count(8))] for _ in range(2))
            tasks = [*(Task(*task, RUNNING) for task in active), *(Task(*task, None) for task in standby)]
            return StreamsSubscription(version, process_id, tuple(tasks))
        reader.bytes(reader.count(1))  # the end point
        read = _flat_sums if version >= _FIRST_WITH_FLAT_SUMS else _nested_sums
        return StreamsSubscription(version, process_id, tuple(read(reader)))
    except ValueError:
        return None


def _flat_sums(reader: _Reader) -> Iterator[Task]:
    for _ in range(reader.count(18)):
        subtopology, partition, offset_sum = reader.int32(), reader.int32(), reader.int64()
        reader.bytes(max(reader.int16(), 0))  # the named topology
        yield _task(subtopology, partition, offset_sum)


def _nested_sums(reader: _Reader) -> Iterator[Task]:
    for _ in range(reader.count(8)):
        subtopology = reader.int32()
        for _ in range(reader.count(12)):
            yield _task(subtopology, reader.int32(), reader.int64())


def _task(subtopology: int, partition: int, offset_sum: int) -> Task:
    return Task(subtopology, partition, offset_sum if offset_sum >= 0 or offset_sum == RUNNING else None)


class _Reader:
    """Reads fields from the front. Raises ValueError where the bytes end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def bytes(self, size: int) -> bytes:
        """So many bytes."""
        if size > len(self._data) - self._at:
            raise ValueError(f"{size} bytes from {self._at} on are beyond the end.")
        self._at += size
        return self._data[self._at - size : self._at]

    def int16(self) -> int:
        """An INT16."""
        return int.from_bytes(self.bytes(2), signed=True)

    def int32(self) -> int:
        """An INT32."""
        return int.from_bytes(self.bytes(4), signed=True)

    def int64(self) -> int:
        """An INT64."""
        return int.from_bytes(self.bytes(8), signed=True)

    def count(self, least_size: int) -> int:
        """The length of an array or of bytes whose elements have at least so many bytes each; -1 (null) is 0."""
        number = max(self.int32(), 0)
        if number * least_size > len(self._data) - self._at:
            raise ValueError(f"{number} elements from {self._at} on are beyond the end.")
        return number
