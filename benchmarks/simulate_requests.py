"""How many requests a minute the simulator answers on one core: ``python benchmarks/simulate_requests.py [--requests N]``

The load is a busy cluster's: groups of members that heartbeat and commit, and now and then one member that leaves and comes back, so
that its group goes through a whole rebalance. Prints one line for each release.
"""

import argparse
import time
from collections.abc import Iterator

from groupcoord_spark.simulator import Settings, Simulator, release_for
from groupcoord_spark.simulator.messages.answers import JoinGroupAnswer
from groupcoord_spark.simulator.messages.errors import Error
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

SUBSCRIPTION = bytes.fromhex("0001000000010001740000000000000000")
ASSIGNMENT = bytes.fromhex("00010000000100017400000001000000000000000000")
PROTOCOLS = (("range", SUBSCRIPTION), ("cooperative-sticky", SUBSCRIPTION))


class Group:
    """The clients of one group, as far as the load needs them."""

    def __init__(self, number: int, size: int) -> None:
        self.group_id = f"group-{number}"
        self.clients = [f"client-{number}-{member}" for member in range(size)]
        self.ids = [""] * size
        self.generation = 0
        self.leader = ""
        self.offset = 0

    def rebalance(self, simulator: Simulator) -> Iterator[None]:
        """Everybody joins and syncs; one step for each request."""
        calls = []
        for place, client in enumerate(self.clients):
            call = simulator.send(self._join(place, client))
            yield
            if isinstance(call.answer, JoinGroupAnswer) and call.answer.error is Error.MEMBER_ID_REQUIRED:
                self.ids[place] = call.answer.member_id
                call = simulator.send(self._join(place, client))
                yield
            calls.append(call)
        simulator.advance_to(simulator.broker.now_ms + 1)
        answer = calls[0].answer
        assert isinstance(answer, JoinGroupAnswer) and answer.error is Error.NONE, answer
        self.generation, self.leader = answer.generation, answer.leader
        for member_id in sorted(self.ids, key=lambda one: one == self.leader):
            assignments = tuple((one, ASSIGNMENT) for one in self.ids) if member_id == self.leader else ()
            simulator.send(SyncGroup(self.group_id, self.generation, member_id, assignments=assignments))
            yield

    def _join(self, place: int, client: str) -> JoinGroup:
        return JoinGroup(self.group_id, 45_000, 300_000, self.ids[place], protocols=PROTOCOLS, client_id=client)

    def poll(self, simulator: Simulator, step: int) -> Iterator[None]:
        """Let each member poll once: it sends a heartbeat, every fifth time a commit of one partition."""
        for place, member_id in enumerate(self.ids):
            request: Request
            if step % 5 == 4:
                self.offset += 1
                offsets = (OffsetToCommit("t", place, self.offset),)
                request = OffsetCommit(self.group_id, offsets, self.generation, member_id)
            else:
                request = Heartbeat(self.group_id, self.generation, member_id)
            simulator.send(request)
            yield

    def restart_one(self, simulator: Simulator, place: int) -> Iterator[None]:
        """Let one member go and come back as a new one."""
        simulator.send(LeaveGroup(self.group_id, (Leaving(self.ids[place]),)))
        yield
        self.ids[place] = ""


def load(simulator: Simulator, groups: int, size: int, rounds: int) -> Iterator[None]:
    """Yield the requests, one step each, without end."""
    all_groups = [Group(number, size) for number in range(groups)]
    turn = 0
    while True:
        for group in all_groups:
            yield from group.rebalance(simulator)
        for step in range(rounds):
            for group in all_groups:
                yield from group.poll(simulator, step)
            simulator.advance_to(simulator.broker.now_ms + 3_000)
        for group in all_groups:
            yield from group.restart_one(simulator, turn % size)
        turn += 1


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000)
    parser.add_argument("--groups", type=int, default=20)
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=10, help="heartbeats and commits of each member between two rebalances")
    parser.add_argument("--timeline", action="store_true", help="make a timeline entry for each event as well")
    options = parser.parse_args()
    for version in ("4.3.1", "3.9.1", "2.8.2"):
        settings = Settings(group_initial_rebalance_delay_ms=0)
        entries = 0

        def count(_: object) -> None:
            nonlocal entries
            entries += 1

        simulator = Simulator(release_for(None, version), settings, on_entry=count if options.timeline else None)
        requests = load(simulator, options.groups, options.members, options.rounds)
        started = time.process_time()
        for _ in range(options.requests):
            next(requests)
        seconds = time.process_time() - started
        a_minute = options.requests / seconds * 60
        print(f"{version}: {options.requests} requests in {seconds:.2f} CPU s, {a_minute / 1e6:.2f} million a minute (goal: 1)")


if __name__ == "__main__":
    main()
