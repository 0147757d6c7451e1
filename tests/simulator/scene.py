"""A simulator with one group and named clients, for tests: the clients keep their member ids and bring the group into a state."""

import struct
from typing import Any

from groupcoord_spark.simulator import Call, Error, GroupState, Settings, Simulator, TimelineEntry, WrittenRecord, release_for
from groupcoord_spark.simulator.groups.classic_group import ClassicGroup
from groupcoord_spark.simulator.messages.answers import Answer, JoinGroupAnswer
from groupcoord_spark.simulator.messages.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetToCommit,
    Request,
    SyncGroup,
)

GROUP = "g"


def subscription(*topics: str) -> bytes:
    """Return a subscription of version 0."""
    body = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + body + struct.pack(">i", -1)


READS_T = subscription("t")


class Scene:
    """A simulator of one release with one group and its clients. Time is in milliseconds from 0."""

    def __init__(self, version: str = "4.3.1", **settings: Any) -> None:
        settings = {"group_initial_rebalance_delay_ms": 0, "group_min_session_timeout_ms": 1, **settings}
        self.entries: list[TimelineEntry] = []
        self.simulator = Simulator(release_for(None, version), Settings(**settings), on_entry=self.entries.append)
        self.ids: dict[str, str] = {}
        self.calls: dict[str, Call] = {}

    # The group

    @property
    def group(self) -> ClassicGroup:
        """The group, which has to exist."""
        group = self.simulator.broker.group(GROUP)
        assert group is not None
        return group

    @property
    def state(self) -> GroupState | None:
        """The state of the group; None: the group does not exist."""
        group = self.simulator.broker.group(GROUP)
        return None if group is None else group.state

    @property
    def records(self) -> list[WrittenRecord]:
        """All records written so far."""
        return [record for entry in self.entries for record in entry.records]

    @property
    def members(self) -> list[str]:
        """Names of the members, sorted."""
        return sorted(name for name, member_id in self.ids.items() if member_id in self.group.members)

    @property
    def leader(self) -> str:
        """Name of the leader."""
        return next(name for name, member_id in self.ids.items() if member_id == self.group.leader)

    def pass_time(self, ms: int) -> None:
        """Let time pass."""
        self.simulator.advance_to(self.simulator.broker.now_ms + ms)

    def ask(self, request: Request) -> Any:
        """Return the immediate answer to a request; None: the request waits."""
        return self.simulator.send(request).answer

    def error(self, request: Request) -> Error | None:
        """Return the error of the immediate answer to a request; None: the request waits."""
        return getattr(self.ask(request), "error", None)

    # Clients

    def join(self, name: str, **fields: Any) -> Call:
        """Send the client's JoinGroup with its present member id, and let timers that are due fire."""
        request = {"protocols": (("range", READS_T),), "session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, **fields}
        request.setdefault("member_id", self.ids.get(name, ""))
        call = self.simulator.send(JoinGroup(GROUP, client_id=name, **request))
        self.pass_time(0)
        member_ids = self.simulator.broker.member_ids_by_client_id.get(name, [])
        if member_ids:
            self.ids[name] = member_ids[-1]
        self.calls[name] = call
        return call

    def enter(self, name: str, **fields: Any) -> Call:
        """Join, and join again after the answer MEMBER_ID_REQUIRED."""
        call = self.join(name, **fields)
        if error_of(call) is Error.MEMBER_ID_REQUIRED:
            call = self.join(name, **fields)
        return call

    def form(self, *names: str, **fields: Any) -> None:
        """Let all clients join until they are in one generation. The group is in CompletingRebalance then."""
        for name in names:
            self.enter(name, **fields)
        while self.state is not GroupState.COMPLETING_REBALANCE or not all(self._is_up_to_date(name) for name in names):
            for name in names:
                if self.calls[name].answer is not None and not self._is_up_to_date(name):
                    self.join(name, **fields)

    def _is_up_to_date(self, name: str) -> bool:
        answer = self.calls[name].answer
        if self.state is GroupState.PREPARING_REBALANCE or not isinstance(answer, JoinGroupAnswer):
            return False
        return answer.generation == self.group.generation

    def sync(self, name: str, assignments: dict[str, bytes] | None = None, **fields: Any) -> Call:
        """Send the client's SyncGroup for the current generation."""
        assigned = tuple((self.ids[one], data) for one, data in (assignments or {}).items())
        request = {"generation": self.group.generation, "member_id": self.ids[name], "assignments": assigned, **fields}
        return self.simulator.send(SyncGroup(GROUP, **request))

    def stabilize(self, *names: str, **fields: Any) -> None:
        """Let all clients join and sync. The group is Stable then, and each client's assignment is its name."""
        self.form(*names, **fields)
        self.sync_all(*names)

    def sync_all(self, *names: str) -> None:
        """Let all clients sync, the leader last."""
        leader = self.leader
        for name in sorted(names, key=lambda one: one == leader):
            self.sync(name, {one: one.encode() for one in names} if name == leader else None)

    def heartbeat(self, name: str, **fields: Any) -> Error:
        """Send the client's Heartbeat. Returns the error of the answer."""
        request = {"generation": self.group.generation, "member_id": self.ids[name], **fields}
        answer: Error = self.ask(Heartbeat(GROUP, **request)).error
        return answer

    def leave(self, *names: str) -> Call:
        """Let the clients leave in one request."""
        return self.simulator.send(LeaveGroup(GROUP, tuple(Leaving(self.ids[name]) for name in names)))

    def commit(self, offset: int, topic: str = "t", partition: int = 0, **fields: Any) -> Error:
        """Commit one offset. Returns the error. ``name`` in ``fields``: the committing client; without it the commit names no member."""
        name = fields.pop("name", None)
        request = fields if name is None else {"generation": self.group.generation, "member_id": self.ids[name], **fields}
        return self.ask(OffsetCommit(GROUP, (OffsetToCommit(topic, partition, offset),), **request)).errors[topic, partition]

    # States

    def play(self, state: str) -> None:
        """Bring the group with the members a (leader) and b into a state, by Kafka's name; "absent": the group does not exist.

        In PreparingRebalance a third member c has joined, and a and b have not.
        """
        if state == "absent":
            self.ids |= {"a": "a-1", "b": "b-1"}
            return
        self.form("a", "b")
        if state in ("Stable", "PreparingRebalance", "Empty", "Dead"):
            self.sync_all("a", "b")
        if state == "PreparingRebalance":
            self.enter("c")
        if state == "Empty":
            for name in ("a", "b"):
                self.leave(name)
        if state == "Dead":
            # A request meets a Dead group only if the group is removed between the look-up of the group and the checks.
            self.group.transition_to(GroupState.DEAD, self.simulator.broker.now_ms)
        assert self.group.state.value == state


def error_of(call: Call) -> Error | None:
    """Return the error of a call's answer; None: the call waits."""
    return getattr(call.answer, "error", None)


def answer_of(call: Call) -> Answer:
    """Return the answer of a call, which has to exist."""
    assert call.answer is not None
    return call.answer
