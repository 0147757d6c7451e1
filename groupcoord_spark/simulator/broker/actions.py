"""Events of a broker that are not requests."""

from dataclasses import dataclass

from groupcoord_spark.simulator.broker.permissions import Denied
from groupcoord_spark.simulator.messages import Error, WrittenRecord


class BrokerAction:
    """An event of a broker that is no request."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class BeginLoad(BrokerAction):
    """The broker becomes leader of an offsets partition, and loads the partition until LoadPartition."""

    offsets_partition: int


@dataclass(frozen=True, slots=True)
class LoadPartition(BrokerAction):
    """The broker has loaded an offsets partition, whose log has these records."""

    offsets_partition: int
    records: tuple[WrittenRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class LosePartition(BrokerAction):
    """Another broker becomes leader of an offsets partition."""

    offsets_partition: int


@dataclass(frozen=True, slots=True)
class SetActive(BrokerAction):
    """The coordinator becomes active, or stops: then all requests are answered COORDINATOR_NOT_AVAILABLE."""

    is_active: bool


@dataclass(frozen=True, slots=True)
class FailAppends(BrokerAction):
    """From now on every append to the log fails with this error; with NONE appends succeed again.

    takes_ms: how long the appends of commits and of assignments take until they succeed or fail. Other appends take no time.
    """

    error: Error
    takes_ms: int = 0


@dataclass(frozen=True, slots=True)
class CreateTopic(BrokerAction):
    """A topic is created."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class AddPartitions(BrokerAction):
    """A topic gets more partitions. partitions: their number afterwards."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class DeleteTopic(BrokerAction):
    """A topic is deleted."""

    topic: str


@dataclass(frozen=True, slots=True)
class Deny(BrokerAction):
    """From now on the authorizer refuses this to every client. Before, it refused something else, or nothing."""

    denied: Denied


@dataclass(frozen=True, slots=True)
class ConfigureGroup(BrokerAction):
    """An administrator gives a group a setting of its own, which takes the place of the broker's.

    name: one of ``SETTINGS_OF_GROUPS`` of streams_settings.py.
    """

    group_id: str
    name: str
    value: int | str


@dataclass(frozen=True, slots=True)
class CleanUp(BrokerAction):
    """The offsets retention check runs now, in addition to its regular interval."""
