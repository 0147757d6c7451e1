"""A member of a classic group (Kafka: ``MemberMetadata``, ``ClassicGroupMember``)."""

from dataclasses import dataclass, field

from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.clock import Timer

Protocols = tuple[tuple[str, bytes], ...]
"""What a member can do, the one it likes best first: (name, metadata)."""


@dataclass(slots=True, eq=False)
class Member:
    """One member: what it said in JoinGroup, what it was assigned, what it waits for, and when it will be thought dead."""

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
    is_new: bool = False  # has not had an answer to a JoinGroup yet
    deadline_ms: int = 0
    session_timer: Timer | None = field(default=None, repr=False)

    @property
    def is_static(self) -> bool:
        """It has a group instance id (KIP-345): it may restart without a rebalance."""
        return self.group_instance_id is not None

    def metadata_for(self, protocol: str | None) -> bytes:
        """The member's metadata for one protocol; empty bytes if it does not list it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: frozenset[str]) -> str | None:
        """The first protocol of the member's own list that all members support; None: it supports none of them."""
        for name, _ in self.protocols:
            if name in candidates:
                return name
        return None
