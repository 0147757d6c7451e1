"""What happens to a broker besides requests."""

from dataclasses import dataclass

from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.records import WrittenRecord


@dataclass(frozen=True, slots=True)
class BeginLoad:
    """The broker becomes leader of an offsets partition; until LoadPartition it is still reading it."""

    offsets_partition: int


@dataclass(frozen=True, slots=True)
class LoadPartition:
    """The broker has read an offsets partition: its groups are what these records say."""

    offsets_partition: int
    records: tuple[WrittenRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class LosePartition:
    """Another broker becomes leader of an offsets partition."""

    offsets_partition: int


@dataclass(frozen=True, slots=True)
class SetActive:
    """The coordinator starts or stops working altogether."""

    is_active: bool


@dataclass(frozen=True, slots=True)
class FailAppends:
    """Every append to the log fails with this error from now on; NONE: they work again."""

    error: Error


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """A topic is deleted."""

    topic: str


@dataclass(frozen=True, slots=True)
class CleanUp:
    """The offsets retention check runs now, besides its own interval."""


Action = BeginLoad | LoadPartition | LosePartition | SetActive | FailAppends | DeleteTopic | CleanUp
