"""A member of a classic group (Kafka: ``MemberMetadata``, ``ClassicGroupMember``)."""

from dataclasses import dataclass, field

from groupcoord_spark.simulator.groups.clock import Timer
from groupcoord_spark.simulator.messages import Call

Protocols = tuple[tuple[str, bytes], ...]
"""(name, metadata) of each protocol that a member lists, in the order of its preference."""


@dataclass(slots=True, eq=False)
class ClassicGroupMember:
    """One member: the fields of its JoinGroup, its assignment, its waiting requests and the end of its session.

    awaiting_join, awaiting_sync: the request that waits for the end of the join or sync phase; None: no request waits.
    deadline_ms: when the session ends if no request of the member restarts it.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    assignment: bytes = b""
    awaiting_join: Call | None = None
    awaiting_sync: Call | None = None
    is_new: bool = False  # no JoinGroup of the member was answered yet
    deadline_ms: int = 0
    session_timer: Timer | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        """Whether the member has a group instance id and may restart without a rebalance (KIP-345)."""
        return self.group_instance_id is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        """The member's metadata for one protocol; empty bytes if the member does not list the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def vote(self, candidates: frozenset[str]) -> str | None:
        """The first protocol of the member's list that is a candidate; None if no candidate is in the list."""
        return next((name for name, _ in self.protocols if name in candidates), None)
