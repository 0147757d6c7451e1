"""Events of a broker that are not requests."""

from msgspec import Struct

from groupcoord_spark.simulator.broker.coordinator_checks import Denied
from groupcoord_spark.simulator.messages import Error, WrittenRecord


class BrokerAction(Struct, frozen=True):
    """A broker event other than a request."""


class BeginLoad(BrokerAction, frozen=True):
    """The broker becomes leader of an offsets partition, and loads the partition until LoadPartition."""

    offsets_partition: int


class LoadPartition(BrokerAction, frozen=True):
    """The broker has loaded an offsets partition, whose log has these records."""

    offsets_partition: int
    records: tuple[WrittenRecord, ...] = ()


class LosePartition(BrokerAction, frozen=True):
    """Another broker becomes leader of an offsets partition."""

    offsets_partition: int


class SetActive(BrokerAction, frozen=True):
    """The coordinator becomes active, or stops: then all requests are answered COORDINATOR_NOT_AVAILABLE."""

    is_active: bool


class FailAppends(BrokerAction, frozen=True):
    """From now on every append to the log fails with this error; with NONE appends succeed again.

    takes_ms: how long the appends of commits and of assignments take until they succeed or fail. Other appends take no time.
    """

    error: Error
    takes_ms: int = 0


class CreateTopic(BrokerAction, frozen=True):
    """A topic is created."""

    topic: str
    partitions: int


class AddPartitions(BrokerAction, frozen=True):
    """A topic gets more partitions. partitions: their number afterwards."""

    topic: str
    partitions: int


class DeleteTopic(BrokerAction, frozen=True):
    """A topic is deleted."""

    topic: str


class Deny(BrokerAction, frozen=True):
    """From now on the authorizer refuses this to every client. Before, it refused something else, or nothing."""

    denied: Denied


class ConfigureGroup(BrokerAction, frozen=True):
    """An administrator gives a group a setting of its own, which takes the place of the broker's.

    name: one of ``SETTINGS_OF_GROUPS`` of streams_settings.py.
    """

    group_id: str
    name: str
    value: int | str


class CleanUp(BrokerAction, frozen=True):
    """The offsets retention check runs now, in addition to its regular interval."""
