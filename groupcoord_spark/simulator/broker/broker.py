"""The state of the simulated broker, which all requests share: clock, settings, log, and offsets partitions."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from groupcoord_spark.coordinator.transactions import OffsetStore
from groupcoord_spark.protocol import offsets_partition_for
from groupcoord_spark.simulator.broker.coordinator_checks import Denied
from groupcoord_spark.simulator.broker.log import Log
from groupcoord_spark.simulator.broker.offsets_partition import OffsetsPartition
from groupcoord_spark.simulator.broker.release import Release
from groupcoord_spark.simulator.broker.settings import (
    INITIAL_DELAY_OF_GROUP,
    RACK_AWARE_TAGS_OF_GROUP,
    SETTINGS_SINCE_4_4,
    MemberIds,
    Settings,
)
from groupcoord_spark.simulator.groups import ClassicGroup, Clock, Group, GroupState, Timer
from groupcoord_spark.simulator.groups.modern_group import cancel_timer
from groupcoord_spark.simulator.messages import Call, Error
from groupcoord_spark.simulator.messages.answers import Answer
from groupcoord_spark.simulator.messages.calls import refused

G = TypeVar("G", bound=Group)


class Broker:
    """The state of one simulated broker: it answers requests, writes records and keeps the time.

    The rules are in the files that are named after the requests.
    """

    def __init__(self, release: Release, settings: Settings, new_member_id: MemberIds, start_ms: int) -> None:
        self.release = release
        self.settings = settings
        self.clock = Clock(start_ms)
        self.is_active = True
        self.denied = Denied()
        """What the authorizer refuses."""
        self.log = Log(release, self.clock, self.partition_of, settings.offsets_commit_timeout_ms)
        self.partitions: dict[int, OffsetsPartition] = {}
        """Number -> offsets partition, for the partitions that the broker leads: at the start all of them."""
        self.offsets_topic_timer: Timer | None = None
        """Runs while ``__consumer_offsets`` is being created."""
        self.offsets_topic_exists = not settings.offsets_topic_is_missing
        if self.offsets_topic_exists:
            self.lead_all_partitions()
        self.group_settings: dict[str, dict[str, int | str]] = {}
        """Group id -> settings that an administrator has given to the group."""
        self.unwritten_markers: list[Callable[[], None]] = []
        """Write the markers of ended transactions whose append has failed: the transaction coordinator repeats them."""
        self.transactions: dict[int, set[int]] = {}
        """Producer id -> numbers of the offsets partitions that take part in its open transaction."""
        self.answered_calls: list[Call] = []
        """Calls that the current event has answered."""
        self.member_ids_by_client_id: dict[str, list[str]] = {}
        """Client id -> member ids that the broker has made for it, oldest first."""
        self._new_member_id = new_member_id

    @property
    def now_ms(self) -> int:
        """The simulated time, in milliseconds since the epoch."""
        return self.clock.now_ms

    @property
    def max_session_timeout_ms(self) -> int:
        """group.max.session.timeout.ms; the default of the release if it is not set."""
        limit = self.settings.group_max_session_timeout_ms
        return limit if limit is not None else self.release.max_session_timeout_ms

    @property
    def retention_ms(self) -> int:
        """offsets.retention.minutes in milliseconds; the default of the release if it is not set."""
        retention_ms = self.settings.offsets_retention_ms
        return retention_ms if retention_ms is not None else self.release.semantics.default_retention_ms

    def lead_all_partitions(self) -> None:
        """Become leader of all offsets partitions, which are empty."""
        self.partitions = {}
        for number in range(self.settings.offsets_topic_num_partitions):
            self.lead_partition(number)

    def lead_partition(self, number: int) -> OffsetsPartition:
        """Become leader of an offsets partition, which is empty."""
        partition = self.partitions[number] = OffsetsPartition(number, OffsetStore(self.release.semantics))
        return partition

    # Groups

    def partition_number(self, group_id: str) -> int:
        """Return the number of the group's offsets partition."""
        return offsets_partition_for(group_id, self.settings.offsets_topic_num_partitions)

    def partition_of(self, group_id: str) -> OffsetsPartition:
        """Return the group's offsets partition. The caller has checked that this broker leads it (coordinator_checks.py)."""
        return self.partitions[self.partition_number(group_id)]

    def group(self, group_id: str) -> Group | None:
        """Return the group, or None if the group does not exist."""
        partition = self.partitions.get(self.partition_number(group_id))
        return None if partition is None else partition.groups.get(group_id)

    def group_of(self, group_id: str, kind: type[G]) -> G | None:
        """Return the group if it exists and has this type, else None."""
        group = self.group(group_id)
        return group if isinstance(group, kind) else None

    def state_name(self, group: Group) -> str:
        """Return the name of the group's state in this release."""
        return self.release.completing_rebalance_name if group.state_name == GroupState.COMPLETING_REBALANCE.value else group.state_name

    def assignment_interval_ms(self, group_type: str) -> int:
        """Return the broker's minimum interval between two target assignments of a group of this type."""
        of_broker: int | None = getattr(self.settings, f"group_{group_type}_assignment_interval_ms")
        return self.release.assignment_interval_ms if of_broker is None else of_broker

    def streams_setting(self, group_id: str, name: str) -> Any:
        """Return a setting of SETTINGS_OF_GROUPS: the streams group's, else the broker's, else 0 or "" if the release lacks it."""
        if name in SETTINGS_SINCE_4_4 and not self.release.has_streams_of_4_4:
            return "" if name == RACK_AWARE_TAGS_OF_GROUP else 0
        of_group = self.group_settings.get(group_id, {})
        if name in of_group:
            return of_group[name]
        if name == INITIAL_DELAY_OF_GROUP and of_group and self.release.group_settings_hide_streams_delay:
            return Settings().group_streams_initial_rebalance_delay_ms
        if name == "streams.assignment.interval.ms":
            return self.assignment_interval_ms("streams")
        return getattr(self.settings, f"group_{name.replace('.', '_')}")

    def topics_have_changed(self) -> None:
        """Let every group that the broker assigns look at its topics with the next heartbeat."""
        for partition in self.partitions.values():
            for group in partition.groups.values():
                group.note_changed_topics()

    def create_group(self, group_id: str) -> ClassicGroup:
        """Create a classic group: Empty, generation 0."""
        group = ClassicGroup(group_id, self.now_ms, like_java=self.release.like_java_maps)
        self.partition_of(group_id).groups[group_id] = group
        return group

    def remove_group(self, group: Group) -> Callable[[], None]:
        """Remove a group from the broker's memory, and stop its timers. Writes no record. Returns what puts the group back as it was."""
        partition = self.partition_of(group.group_id)
        run_again = group.end(self.now_ms)
        partition.groups.pop(group.group_id, None)
        cancel_timer(partition.streams_initial_delays, group.group_id)

        def put_back() -> None:
            partition.groups[group.group_id] = group
            run_again(self.clock)

        return put_back

    def new_member_id(self, name: str, client_id: str) -> str:
        """Make a member id for a client. ``name``: the client id of a dynamic member, the instance id of a static member."""
        member_id = self._new_member_id(name)
        self.member_ids_by_client_id.setdefault(client_id, []).append(member_id)
        return member_id

    # Answers

    def answer(self, call: Call, answer: Answer) -> None:
        """Answer a request at the current time."""
        call.answer = answer
        call.answered_at_ms = self.clock.now_ms
        self.answered_calls.append(call)

    def refuse(self, call: Call, error: Error) -> None:
        """Answer a request that is refused as a whole."""
        self.answer(call, refused(call.request, error))

    def take_back_answer(self, call: Call) -> None:
        """Withdraw the answer of the current event, so that it is sent later."""
        self.answered_calls.remove(call)
        call.answer = call.answered_at_ms = None

    def wait_for_appends(self, group_ids: frozenset[str], end: Callable[[Error, frozenset[str]], None]) -> bool:
        """Wait for everything that was written so far to the partitions of these groups.

        Args:
            end: called once, with (NONE, no groups), or with the error of an append as the client gets it and the groups that it concerns.

        Returns:
            Whether there is anything to wait for; if not, ``end`` is called at once.
        """
        by_partition: dict[int, set[str]] = {}
        for group_id in group_ids:
            by_partition.setdefault(self.partition_number(group_id), set()).add(group_id)
        leading = {number: self.partitions[number] for number in by_partition if number in self.partitions}
        appends = [(append, by_partition[number]) for number, partition in leading.items() if (append := partition.last_append())]
        failed: dict[str, Error] = {}
        remaining = len(appends)

        def count(error: Error, of: set[str]) -> None:
            nonlocal remaining
            remaining -= 1
            if error is not Error.NONE:
                failed.update(dict.fromkeys(of, self.release.group_append_errors.get(error, error)))
            if not remaining:
                end(next(iter(failed.values()), Error.NONE), frozenset(failed))

        for append, of in appends:
            self.log.wait_for(append, partial(count, of=of))
        if not appends:
            end(Error.NONE, frozenset())
        return bool(appends)

    def shown(self, group_id: str) -> Group | None:
        """Return the group as requests that only read see it."""
        partition = self.partitions.get(self.partition_number(group_id))
        return None if partition is None else partition.shown_groups().get(group_id)

    def shown_of(self, group_id: str, kind: type[G]) -> G | None:
        """Return the group as requests that only read see it, if it has this type."""
        group = self.shown(group_id)
        return group if isinstance(group, kind) else None
