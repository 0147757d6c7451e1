"""A group as the handlers of every protocol see it, whatever its kind (Kafka: ``Group``)."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

from groupcoord_spark.coordinator.expiration import GroupFacts
from groupcoord_spark.simulator.groups.clock import Clock
from groupcoord_spark.simulator.messages import Error, RecordToWrite
from groupcoord_spark.simulator.messages.requests import GroupToFetch, OffsetCommit, TxnOffsetCommit


class CommitRules(NamedTuple):
    """What the checks of a commit need to know of the broker.

    first_error: the first error of the release's checks for classic groups. version: of the request. takes_older_epochs: a member of a
    consumer group may commit for partitions that it has had since the epoch it names (KIP-1251). topic_ids: by name. tells_stale_epoch: a
    transactional commit with another member epoch is answered STALE_MEMBER_EPOCH, not ILLEGAL_GENERATION.
    """

    first_error: "Callable[[Group, OffsetCommit | TxnOffsetCommit], Error]"
    version: int
    takes_older_epochs: bool
    topic_ids: Mapping[str, str]
    tells_stale_epoch: bool


class Group(ABC):
    """A group in a running broker, of any kind."""

    __slots__ = ()
    group_id: str
    group_type: ClassVar[str]
    keeps_offsets: ClassVar[bool] = True
    """Whether members commit offsets to the group."""

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state of the group, by the name that the newest release gives it."""

    @property
    @abstractmethod
    def epoch(self) -> int:
        """The group epoch; of a classic group the generation."""

    @property
    @abstractmethod
    def protocol_type(self) -> str | None:
        """The protocol type, such as ``consumer``."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group may be deleted: it has no members."""

    @property
    def is_dead(self) -> bool:
        """Whether the group has been removed while a request had it in hand."""
        return False

    @abstractmethod
    def validate_commit(self, request: OffsetCommit | TxnOffsetCommit, rules: CommitRules) -> Error:
        """Return the error of an offset commit (Kafka: ``validateOffsetCommit``), or NONE."""

    def validate_fetch(self, requested: GroupToFetch) -> Error:
        """Return the error of an offset fetch (Kafka: ``validateOffsetFetch``), or NONE."""
        return Error.NONE

    def validate_offset_delete(self) -> Error:
        """Return the error of an OffsetDelete request. NONE allows the deletion of offsets of topics without subscribers."""
        return Error.NONE

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member may be subscribed to the topic (Kafka: ``isSubscribedToTopic``)."""

    @abstractmethod
    def expiration_facts(self, *, expires_while_rebalancing: bool) -> GroupFacts:
        """Return the fields of the group that decide expiration (Kafka: ``offsetExpirationCondition``)."""

    @abstractmethod
    def tombstones(self) -> list[RecordToWrite]:
        """Return the tombstones of a group that is removed or converted to another protocol (Kafka: ``createGroupTombstoneRecords``)."""

    @abstractmethod
    def end(self, now_ms: int) -> Callable[[Clock], None]:
        """Stop what runs for the group, which is removed from memory. Returns what lets it run again."""

    def note_changed_topics(self) -> None:  # noqa: B027 - a classic group leaves topics to its members
        """Topics of the cluster have changed: look at them with the next heartbeat."""
