"""What every type of group has, the rows of its members and assignments, and the refusal of a record.

In a row None means that this type of group has no such field, or that no record has set the field.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from groupcoord_spark.coordinator.broker_settings import DefaultAssignors

Value = Mapping[str, Any]
"""A decoded value of a record, or one element of a list in it."""


class MemberRow(NamedTuple):
    """A member of a group. Fields that this type of group does not have are None."""

    group_id: str
    member_id: str
    instance_id: str | None = None
    client_id: str | None = None
    client_host: str | None = None
    rack_id: str | None = None
    is_leader: bool | None = None
    uses_classic_protocol: bool | None = None
    member_state: str | None = None
    member_epoch: int | None = None
    previous_member_epoch: int | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    subscribed_topics: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    subscription: bytes | None = None
    assignment: bytes | None = None
    user_data: bytes | None = None
    process_id: str | None = None
    topology_epoch: int | None = None
    record_offset: int | None = None


class AssignmentRow(NamedTuple):
    """One partition or task of a member. kind is current, target, pending_revocation or owned."""

    group_id: str
    member_id: str
    kind: str
    topic: str | None
    topic_id: str | None
    subtopology: str | None
    task_type: str | None
    partition: int | None


LOAD_FAILS = "A broker could not have loaded the partition."


class Refusal(NamedTuple):
    """The reason why a broker's loader rejects or skips a record, or would reject a record that the replay accepts.

    code: the rule of docs/reference/replay-rules.md. detail: the sentence of the warning.
    """

    code: str
    detail: str


@dataclass(slots=True, eq=False)
class ReplayedGroup(ABC):
    """The state of a group of any type. The replay keeps it by group id."""

    group_type: ClassVar[str]

    record_offset: int | None = field(default=None, init=False)
    record_timestamp_ms: int | None = field(default=None, init=False)

    @property
    def is_simple(self) -> bool:
        """Whether it is a classic group without a protocol type: offsets only."""
        return False

    @property
    @abstractmethod
    def state(self) -> str:
        """Kafka's spelling: Empty, Stable, Assigning, Reconciling, NotReady."""

    @property
    @abstractmethod
    def protocol_type(self) -> str | None: ...

    @property
    @abstractmethod
    def generation(self) -> int:
        """Generation of a classic group, group epoch of a modern group."""

    @property
    @abstractmethod
    def member_count(self) -> int: ...

    @property
    @abstractmethod
    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics that members subscribe to: their offsets do not expire while the group has members. None: not known."""

    @abstractmethod
    def protocol(self, default_assignors: DefaultAssignors) -> str | None:
        """Return the name of the assignor. ``default_assignors`` are the broker's, for a group whose members name none."""

    @abstractmethod
    def member_rows(self, group_id: str) -> Iterator[MemberRow]: ...

    @abstractmethod
    def assignment_rows(self, group_id: str, topic_names: Mapping[str, str]) -> Iterator[AssignmentRow]:
        """Yield rows in no particular order. A partition that a stored assignment names twice has two rows."""

    @property
    def regular_expressions(self) -> tuple[str, ...]:
        return ()

    def internal_state(self) -> tuple[object, ...]:
        """Return everything that a later record can depend on. Groups with equal internal states behave the same from here on."""
        return internal_fields(self)


def internal_fields(state: object, *, without: frozenset[str] = frozenset({"_semantics"})) -> tuple[object, ...]:
    """Return the object's class and its fields except ``without``, including the fields of objects in its dicts."""
    names = [name for kind in type(state).__mro__ for name in getattr(kind, "__slots__", ()) if name not in without]
    return type(state).__name__, {name: _internal_value(getattr(state, name)) for name in names}


def _internal_value(value: object) -> object:
    if isinstance(value, dict):
        return {key: _internal_value(inner) for key, inner in value.items()}
    return internal_fields(value) if type(value).__module__.startswith(__package__) and not isinstance(value, tuple) else value
