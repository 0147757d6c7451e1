"""The whole: events in, timeline out."""

import pytest

from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator import Error, FailAppends, Settings, Simulator, TimelineEntry, release_for
from groupcoord_spark.simulator.groups.clock import TimerKind
from groupcoord_spark.simulator.messages.requests import (
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    OffsetCommit,
    OffsetToCommit,
    Request,
    SyncGroup,
)
from tests.simulator.decision_table import table
from tests.simulator.rules import plays
from tests.simulator.scene import READS_T

GROUP = "g"
SETTINGS = Settings(group_initial_rebalance_delay_ms=3_000)


def simulate(events, *, settings=None, until_ms=None):
    """Return the timeline of the events, each with its time."""
    entries: list[TimelineEntry] = []
    simulator = Simulator(settings=settings, on_entry=entries.append)
    for at_ms, what in events:
        (simulator.send if isinstance(what, Request) else simulator.act)(what, at_ms)
    if until_ms is not None:
        simulator.advance_to(until_ms)
    return entries


def join(client, member_id=""):
    return JoinGroup(GROUP, 10_000, 60_000, member_id, protocols=(("range", READS_T),), client_id=client)


def example_run():
    """Two members come, one falls silent, the other goes on alone and leaves."""
    a, b = (f"{name}-00000000-0000-0000-0000-00000000000{number}" for number, name in ((1, "a"), (2, "b")))
    yield (0, join("a"))
    yield (5, join("a", a))
    yield (1_000, join("b"))
    yield (1_001, join("b", b))
    yield (6_010, SyncGroup(GROUP, 1, b))
    yield (6_011, Heartbeat(GROUP, 1, b))
    yield (6_020, SyncGroup(GROUP, 1, a, assignments=((a, b"0"), (b, b"1"))))
    yield (9_000, Heartbeat(GROUP, 1, a))
    yield (9_001, OffsetCommit(GROUP, (OffsetToCommit("t", 0, 1),), 0, b))
    yield (15_000, Heartbeat(GROUP, 1, a))
    yield (16_500, Heartbeat(GROUP, 1, a))
    yield (16_600, join("a", a))
    yield (16_700, SyncGroup(GROUP, 2, a, assignments=((a, b"01"),)))
    yield (24_000, Heartbeat(GROUP, 2, a))
    yield (30_000, LeaveGroup(GROUP, (Leaving(a),)))


TIMELINE = table("""
    at    | cause                                  | answered                  | state               | generation | records
    0     | JoinGroup                              | 1 MEMBER_ID_REQUIRED      | Empty               | 0          | 1
    5     | JoinGroup                              |                           | PreparingRebalance  | 0          | 0
    1000  | JoinGroup                              | 3 MEMBER_ID_REQUIRED      | PreparingRebalance  | 0          | 0
    1001  | JoinGroup                              |                           | PreparingRebalance  | 0          | 0
    3005  | initial rebalance delay                |                           | PreparingRebalance  | 0          | 0
    6005  | initial rebalance delay                | 2 NONE 4 NONE             | CompletingRebalance | 1          | 0
    6010  | SyncGroup                              |                           | CompletingRebalance | 1          | 0
    6011  | Heartbeat                              | 6 NONE                    | CompletingRebalance | 1          | 0
    6020  | SyncGroup                              | 5 NONE 7 NONE             | Stable              | 1          | 1
    9000  | Heartbeat                              | 8 NONE                    | Stable              | 1          | 0
    9001  | OffsetCommit                           | 9 ILLEGAL_GENERATION      | Stable              | 1          | 0
    15000 | Heartbeat                              | 10 NONE                   | Stable              | 1          | 0
    16020 | session timeout                        |                           | PreparingRebalance  | 1          | 0
    16500 | Heartbeat                              | 11 REBALANCE_IN_PROGRESS  | PreparingRebalance  | 1          | 0
    16600 | JoinGroup                              | 12 NONE                   | CompletingRebalance | 2          | 0
    16700 | SyncGroup                              | 13 NONE                   | Stable              | 2          | 1
    24000 | Heartbeat                              | 14 NONE                   | Stable              | 2          | 0
    30000 | LeaveGroup                             | 15 NONE                   | Empty               | 3          | 1
""")


def _error(answer):
    return answer.error if hasattr(answer, "error") else next(iter(answer.errors.values()))


def _number(cell):
    return int(cell.split()[0])


@plays("C-9.4.1")
def test_the_example_run_takes_the_course_it_should():
    actual = [
        {
            "at": str(entry.at_ms),
            "cause": type(entry.call.request).__name__ if entry.call is not None else entry.timer.value,
            "answered": " ".join(sorted((f"{call.number} {_error(call.answer).name}" for call in entry.answered), key=_number)),
            "state": entry.state,
            "generation": str(entry.generation),
            "records": str(len(entry.records)),
        }
        for entry in simulate(example_run(), settings=SETTINGS, until_ms=100_000)
    ]
    assert actual == TIMELINE


def test_a_timer_says_whose_it_was():
    ended = [entry for entry in simulate(example_run(), settings=SETTINGS) if entry.timer is TimerKind.SESSION]
    assert [(entry.group_id, entry.member_id) for entry in ended] == [(GROUP, "b-00000000-0000-0000-0000-000000000002")]


def test_the_same_events_give_the_same_timeline():
    def shown():
        return [(entry.at_ms, entry.records, entry.state, [call.answer for call in entry.answered]) for entry in simulate(example_run())]

    assert shown() == shown()


def test_actions_stand_in_the_timeline_too():
    events = [(0, FailAppends(Error.NOT_ENOUGH_REPLICAS)), (1, OffsetCommit(GROUP, (OffsetToCommit("t", 0, 1),)))]
    first, second = simulate(events)
    assert (first.action, first.state) == (FailAppends(Error.NOT_ENOUGH_REPLICAS), None)
    assert _error(second.call.answer) is Error.COORDINATOR_NOT_AVAILABLE


def test_a_request_about_several_groups_has_no_state_of_its_own():
    (entry,) = simulate([(0, DescribeGroups(("g", "h")))])
    assert (entry.group_id, entry.state, entry.generation) == (None, None, None)


def test_a_group_that_cannot_be_made_was_never_there():
    simulator = Simulator(settings=SETTINGS)
    simulator.act(FailAppends(Error.NOT_ENOUGH_REPLICAS))
    static = simulator.send(JoinGroup(GROUP, 10_000, group_instance_id="i", protocols=(("range", READS_T),)))
    assert static.answer.error is Error.COORDINATOR_NOT_AVAILABLE
    assert simulator.send(join("a")).answer.error is Error.MEMBER_ID_REQUIRED
    assert simulator.broker.group(GROUP) is None


def test_time_goes_forward_only():
    simulator = Simulator(start_ms=100)
    with pytest.raises(UsageError, match="at 99 ms comes after one at 100 ms"):
        simulator.send(Heartbeat(GROUP, 0, ""), at_ms=99)


def test_ids_are_remembered_by_client():
    simulator = Simulator(settings=SETTINGS)
    for _ in range(2):
        simulator.send(join("a"))
    assert len(set(simulator.broker.member_ids_by_client_id.get("a", []))) == 2
    assert simulator.broker.member_ids_by_client_id.get("b", []) == []


RELEASES = [("java", None, "4.3"), ("scala", None, "3.9"), (None, None, "4.3"), (None, "2.8.2", "2.8.2"), ("scala", "0.10.2", "0.10.2")]


@pytest.mark.parametrize(("semantics", "version", "expected"), RELEASES)
def test_a_release_is_named_by_semantics_or_version(semantics, version, expected):
    assert release_for(semantics, version).semantics.broker_version == expected


@pytest.mark.parametrize(("semantics", "version"), [("java", "2.8.2"), (None, "0.9.0"), (None, "next")])
def test_what_is_no_release_to_simulate_is_refused(semantics, version):
    with pytest.raises(UsageError):
        release_for(semantics, version)


@plays("C-9.4.4")
def test_a_new_static_member_is_written_about_only_where_it_makes_the_group():
    """4.x writes a record for a new group unless the request wrote one anyway."""
    simulator = Simulator(settings=Settings(group_initial_rebalance_delay_ms=0))
    entries = simulate([(0, OffsetCommit(GROUP, (OffsetToCommit("t", 0, 1),))), (1, join("a"))])
    assert [len(entry.records) for entry in entries] == [1, 0]
    assert simulator.broker.group(GROUP) is None
