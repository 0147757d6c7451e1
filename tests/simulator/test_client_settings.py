"""What the settings of a client do, and what the client shows its application."""

from groupcoord_spark.simulator.broker.release import release_for
from groupcoord_spark.simulator.clients.client_settings import ClientSettings, defaults_of
from groupcoord_spark.simulator.scenario.playing import TimelineRow, play
from groupcoord_spark.simulator.scenario.reading import read_scenario


def rows_of(members: str, steps: str, *, until: str = "60s", version: str = "4.3", client: str = "") -> list[TimelineRow]:
    text = f"""
topics: {{t: 2}}
client: {{topics: [t], partition.assignment.strategy: [range]{client}}}
members: {members}
broker: {{settings: {{group.initial.rebalance.delay.ms: 0}}}}
steps:
{steps}
until: {until}
"""
    return list(play(read_scenario(text, "s"), release_for(None, version)).rows)


def calls_of(rows: list[TimelineRow], who: str) -> list[tuple[int, str]]:
    return [(row.at_ms, row.what) for row in rows if row.who == who and row.kind == "application"]


def test_the_defaults_are_those_of_the_release_of_the_client() -> None:
    newest = ClientSettings()
    assert (newest.session_timeout_ms, newest.connections_max_idle_ms) == (45_000, 540_000)
    assert defaults_of("2.8")["session_timeout_ms"] == 10_000
    assert not defaults_of("3.0")


def test_an_idle_connection_is_closed_and_the_coordinator_looked_for_again() -> None:
    rows = rows_of("{a: {connections.max.idle.ms: 2s}}", "  - {at: 0s, start: a}", until="8s")
    assert [what for _, what in calls_of(rows, "a")].count("the connection to the coordinator is closed: idle for 2 s") == 2
    sent = [row.what.split()[0] for row in rows if row.who == "a" and row.kind == "request" and row.at_ms > 1_000]
    assert sent[:4] == ["FindCoordinator", "Heartbeat", "FindCoordinator", "Heartbeat"]


def test_heartbeats_keep_the_connection() -> None:
    rows = rows_of("{a: {connections.max.idle.ms: 4s}}", "  - {at: 0s, start: a}", until="60s")
    assert not [what for _, what in calls_of(rows, "a") if "closed" in what]


def test_a_join_that_waits_longer_than_a_connection_may_be_idle_loses_its_answer() -> None:
    steps = "  - {at: 0s, start: a}\n  - {at: 5s, busy: a, for: 100s}\n  - {at: 10s, start: b}"
    rows = rows_of("{a: {}, b: {connections.max.idle.ms: 20s}}", steps, until="110s")
    closed = [at_ms for at_ms, what in calls_of(rows, "b") if "closed" in what]
    assert len(closed) >= 2 and 30_000 <= closed[0] < 30_100
    again = [row.at_ms for row in rows if row.who == "b" and row.what.startswith("JoinGroup")]
    assert any(at_ms > closed[0] for at_ms in again)


def test_interceptors_hear_of_the_commit_before_a_close_too() -> None:
    steps = "  - {at: 0s, start: a}\n  - {at: 1s, process: a, records: 3}\n  - {at: 2s, close: a}"
    rows = rows_of("{a: {}}", steps, client=", enable.auto.commit: true, interceptor.classes: [audit]")
    assert "onCommit(t-0=3 t-1=3) of audit" in [what for _, what in calls_of(rows, "a")]


def test_an_auto_commit_that_may_be_repeated_is_repeated_soon() -> None:
    steps = """
  - {at: 0s, start: a}
  - {at: 1s, process: a, records: 3}
  - {at: 4s, fail_appends: NOT_ENOUGH_REPLICAS}
  - {at: 5500ms, fail_appends: NONE}"""
    rows = rows_of("{a: {}}", steps, client=", enable.auto.commit: true", until="9s")
    commits = [(row.at_ms, row.answer) for row in rows if row.what.startswith("OffsetCommit")]
    assert commits[-1][1] == "NONE" and commits[-1][0] < 6_000
    assert sum(answer == "NONE" for _, answer in commits) == 1, "the interval begins again"
