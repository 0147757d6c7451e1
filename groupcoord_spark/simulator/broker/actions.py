"""Events of a broker that are not requests."""

from dataclasses import dataclass

from groupcoord_spark.simulator.broker.permissions import Denied
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.records import WrittenRecord


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """The broker becomes leader of an offsets partition, and loads the partition until LoadPartition."""

    offsets_partition: int


@dataclass(frozen=True, slots=True)
class LoadPartition:
    """The broker has loaded an offsets partition, whose log has these records."""

    offsets_partition: int
    records: tuple[WrittenRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class LosePartition:
    """Another broker becomes leader of an offsets partition."""

    offsets_partition: int


@dataclass(frozen=True, slots=True)
class SetActive:
    """The coordinator becomes active, or stops: then all requests are answered COORDINATOR_NOT_AVAILABLE."""

    is_active: bool


@dataclass(frozen=True, slots=True)
class FailAppends:
    """From now on every append to the log fails with this error; with NONE appends succeed again.

    takes_ms: how long the appends of commits and of assignments take until they succeed or fail. Other appends take no time.
    """

    error: Error
    takes_ms: int = 0


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic is created."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """A topic gets more partitions. partitions: their number afterwards."""

    topic: str
    partitions: int


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """A topic is deleted."""

    topic: str


@dataclass(frozen=True, slots=True)
class Deny:
    """From now on the authorizer refuses this to every client. Before, it refused something else, or nothing."""

    denied: Denied


@dataclass(frozen=True, slots=True)
class ConfigureGroup:
    """An administrator gives a group a setting of its own, which takes the place of the broker's.

    name: one of ``SETTINGS_OF_GROUPS`` of streams_settings.py.
    """

    group_id: str
    name: str
    value: int


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The offsets retention check runs now, in addition to its regular interval."""


Action = (
    BeginLoad
    | LoadPartition
    | LosePartition
    | SetActive
    | FailAppends
    | CreateTopic
    | AddPartitions
    | DeleteTopic
    | Deny
    | ConfigureGroup
    | CleanUp
)
