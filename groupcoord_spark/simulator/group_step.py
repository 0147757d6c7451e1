"""One step of a group whose state is what a replay of its records gives: consumer groups and share groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from groupcoord_spark.simulator.broker import Broker
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.records import RecordToWrite
from groupcoord_spark.simulator.settings import NO_TOPIC_ID

REFRESH_MS: Final = 300_000
"""How long a group trusts what it knows of its topics."""


class GroupOfRecords(Protocol):
    """A group of the simulator. replayed: what a replay of the group's records gives."""

    @property
    def replayed(self) -> Any: ...


class GroupStep:
    """The records of one request or timer, and the group to which they are applied; None: there is no group yet."""

    group: GroupOfRecords | None

    def __init__(self, broker: Broker, group_id: str) -> None:
        self.broker = broker
        self.group_id = group_id
        self.partition = broker.partition_of(group_id)
        self.records: list[RecordToWrite] = []

    def add(self, record: RecordToWrite) -> None:
        """Apply a record to the group, and keep it for the append."""
        assert self.group is not None
        record_offset = self.partition.next_record_offset + len(self.records)
        self.records.append(record)
        self.group.replayed.apply(record_offset, record.key_type, record.key, record.value)

    def write(self) -> Error:
        """Append the records. If the append fails, the group goes back to what it was."""
        error, _ = self.broker.append(self.group_id, self.records) if self.records else (Error.NONE, [])
        if error is not Error.NONE:
            self.undo()
            return self.broker.release.group_append_errors.get(error, error)
        self.finish()
        return Error.NONE

    def undo(self) -> None:
        """Forget the records."""
        raise NotImplementedError

    def finish(self) -> None:
        """Do what follows from the records once they are written."""
        raise NotImplementedError


def topic_ids(broker: Broker) -> dict[str, str]:
    """Name -> topic id, for the topics that exist."""
    return {name: topic.topic_id for name, topic in (broker.settings.topics or {}).items() if topic.topic_id != NO_TOPIC_ID}


def topic_names(broker: Broker) -> dict[str, str]:
    """Topic id -> name, for the topics that exist."""
    return {topic_id: name for name, topic_id in topic_ids(broker).items()}


def known_topics(broker: Broker, names: Iterable[str]) -> dict[str, int]:
    """Name -> number of partitions, for those of the topics that exist."""
    topics: Mapping[str, Any] = broker.settings.topics or {}
    return {name: topics[name].partitions for name in names if name in topics}
