"""One step of a group whose state is what a replay of its records gives: consumer groups and share groups."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Protocol

from groupcoord_spark.simulator.broker.broker import Broker
from groupcoord_spark.simulator.broker.settings import NO_TOPIC_ID
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.records import RecordToWrite

RETRY_MS: Final = 500
"""How long a Java coordinator waits before it repeats what a timer began, if the append has failed."""
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
        self._before: Mapping[str, Any] = {}
        """What the records may change in the group, as it was before the step; empty: there was no group."""

    def remember(self, group: Any, names: Iterable[str]) -> None:
        """Keep a copy of these attributes of the group, for the case that the append fails."""
        self._before = {name: copy.deepcopy(getattr(group, name)) for name in names}

    def add(self, record: RecordToWrite) -> None:
        """Apply a record to the group, and keep it for the append."""
        assert self.group is not None
        record_offset = self.partition.next_record_offset + len(self.records)
        self.records.append(record)
        self.group.replayed.apply(record_offset, record.key_type, record.key, record.value)

    def write(self, then_undo: Callable[[], None] | None = None) -> Error:
        """Append the records. If the append fails, now or later, the group goes back to what it was.

        then_undo: called after that.
        """
        if self.records:

            def undo() -> None:
                self.undo_finished()
                if then_undo is not None:
                    then_undo()

            error, _ = self.broker.append(self.group_id, self.records, undo=undo, before=self.before())
            if error is not Error.NONE:
                self.undo()
                if then_undo is not None:
                    then_undo()
                return self.broker.release.group_append_errors.get(error, error)
        self.finish()
        return Error.NONE

    def before(self) -> Any:
        """The group before the step; None: there was none."""
        return None if not self._before else replace(self.group, **self._before)  # type: ignore[type-var]

    def undo(self) -> None:
        """Forget the records. The timers stay as they are, as in Kafka."""
        for name, value in self._before.items():
            setattr(self.group, name, value)

    def undo_finished(self) -> None:
        """Take back the step after ``finish``: the append has failed later."""
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
