"""``groupcoord morning``."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.answers.findings import LEVELS, NEWS
from groupcoord_spark.warehouse import begin_run, commit_run, open_warehouse
from tests.cli.warehouse import groupcoord
from tests.warehouse.nights import AS_OF_MS, DAY_MS, commit, group, night, offset, run_fields, written

pytestmark = pytest.mark.usefixtures("news_are_gathered_once")

LOG = {"last_stable_offset": 0, "records": 0, "decoded": 0, "quarantined": 0, "control_records": 0, "live_keys": 0, "bytes": 0}
NO_TRAPS = dict.fromkeys(("inherits_empty_time", "is_simple_group", "has_explicit_expiry", "may_come_back", "retention_changed"), False)


def log(end_offset: int) -> list[dict[str, Any]]:
    return [{"offsets_partition": 0, "incarnation": 0, "end_offset": end_offset, "history_end_offset": end_offset, **LOG}]


def expiry(group_id: str, in_days: float, *, is_live: bool = False, as_of_ms: int = AS_OF_MS) -> dict[str, Any]:
    times = {"as_of_ms": as_of_ms, "retention_ms": DAY_MS, "expires_at_ms": AS_OF_MS + int(in_days * DAY_MS)}
    place = {"group_id": group_id, "topic": "t", "partition": 0}
    return {**place, **times, "expired": False, "rule": "X-B1", "topic_is_unsubscribed": is_live, **NO_TRAPS}


def finding(name: str, severity: str, partition: int = 0) -> dict[str, Any]:
    texts = {"copy": "/dump", "finding": name, "severity": severity, "summary": ".", "evidence": "{}"}
    return {"offsets_partition": partition, **texts, "since_ms": AS_OF_MS, "read_at_ms": AS_OF_MS}


def run_with_doubts(place: Path, rows: dict[str, Any], codes: list[str], as_of_ms: int) -> None:
    start = begin_run(str(place), "prod")
    doubts = [{"run_id": start.run_id, "offsets_partition": 0, "code": code, "detail": code} for code in codes]
    commit_run(start, run_fields(as_of_ms=as_of_ms), written(start, {**rows, "warnings": doubts}))


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Provide a run with an incident, which a second run over the same copy follows. What both runs have is not news."""
    place = tmp_path_factory.mktemp("morning")
    names = ["a", "b", "lost <!channel>", "deleted"]
    first = {
        "groups": [group(name) for name in names],
        "committed_offsets": [offset(name, "t", 0, 50, record_offset=7) for name in names],
        "offset_commits": [commit(7, group_id="a", committed_offset=50), commit(8, committed_offset=9), commit(9, committed_offset=3)],
        "offsets_partitions": log(100),
        "offset_expirations": [expiry("b", 1.5), expiry("a", 2.5), expiry("c", 2.5, is_live=True)],
        "topic_health": [finding("cleaner_stopped", "sick"), finding("large_metadata", "watch")],
    }
    run_with_doubts(place, first, ["zero_tail"], AS_OF_MS)
    second = {
        "groups": [group("a"), group("b")],
        "committed_offsets": [offset("a", "t", 0, 20, record_offset=110), offset("b", "t", 0, 50, record_offset=7)],
        "offset_commits": [commit(110, group_id="a", committed_offset=20)],
        "offsets_partitions": log(200),
        "offset_expirations": [
            *(expiry(name, days, is_live=name == "c", as_of_ms=AS_OF_MS + DAY_MS) for name, days in [("b", 1.5), ("a", 2.5), ("c", 2.5)])
        ],
        "topic_health": [finding("cleaner_stopped", "sick"), finding("cleaner_stopped", "sick", 1), finding("hot_committer", "watch")],
    }
    for codes in (["zero_tail", "batch_duplicate", "batch_duplicate"], []):
        run_with_doubts(place, second, codes, AS_OF_MS + DAY_MS)
        second["offset_commits"] = []  # read already
    return str(place)


def rows(place: str, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in groupcoord("morning", "--output", "json", *options, "--warehouse", place).stdout.splitlines()]


def test_news_are_what_the_last_night_that_differs_lacked_the_worst_first(incident: str) -> None:
    run_id = open_warehouse(incident).run("prod").run_id
    where = f"--warehouse {incident} --cluster prod"
    of_run = f"--run {run_id} {where}"
    between = "--from 2026-01-01T00:00:00.000Z --to 2026-01-02T00:00:00.000Z"
    gone = f"--group deleted --group 'lost <!channel>' {where}"
    at = "between '2026-01-01T00:00:00.000Z' and '2026-01-01T00:00:00.000Z'"
    rewound = f"sql \"from rewinds where kind = 'reset' and rewound_at {at} and group_id in ('a') order by rewound_at\""
    at = "between '2026-01-03T12:00:00.000Z' and '2026-01-03T12:00:00.000Z'"
    expiring = f"sql \"from offset_expirations where {{}}topic_is_unsubscribed and expires_at {at} and group_id in ('{{}}')"
    expiring += ' order by expires_at"'
    doubts = "from warnings where code = 'batch_duplicate'"
    assert [(row["level"], row["what"], row["reason"], row["number"], row["groups"], row["command"]) for row in rows(incident)] == [
        *[("danger", "group_vanished", "not_known", 2, ["deleted", "lost <!channel>"], f"groupcoord diff --only gone {between} {gone}")],
        ("danger", "sick", "cleaner_stopped", 1, [], f"groupcoord doctor {of_run}"),
        ("warning", "rewound", "reset", 1, ["a"], f"groupcoord {rewound} {of_run}"),
        ("warning", "expiring_live", None, 1, ["c"], f"groupcoord {expiring.format('', 'c')} {of_run}"),
        ("warning", "doubt", "batch_duplicate", 2, [], f'groupcoord sql "{doubts}" {of_run}'),
        ("note", "watch", "hot_committer", 1, [], f"groupcoord doctor {of_run}"),
        ("note", "expiring", None, 1, ["a"], f"groupcoord {expiring.format('not ', 'a')} {of_run}"),
    ]


def test_every_command_that_it_names_shows_what_it_announces(incident: str) -> None:
    for row in rows(incident):
        result = groupcoord(*shlex.split(row["command"])[1:])
        assert result.exit_code == 0, result.stderr
        assert all(name in result.stdout for name in [*row["groups"], row["reason"] or "EXPIRES_AT"]), row


def test_people_get_ten_lines_and_the_nights_that_are_compared(incident: str) -> None:
    result = groupcoord("morning", "--lines", "2", "--warehouse", incident)
    lines = result.stdout.splitlines()
    assert lines[0].split()[:2] == ["LEVEL", "NEWS,"] and len(lines) == 5
    assert lines[2].split()[:4] == ["groupcoord", "diff", "--only", "gone"]
    assert "2 groups gone, and no run read a record of the removal (not_known): deleted, lost <!channel>." in lines[1]
    assert result.stderr == (
        "Run of 2026-01-02T00:00:00.000Z: 7 kinds of news since that of 2026-01-01T00:00:00.000Z."
        " Nothing has changed since the run of 2026-01-02T00:00:00.000Z, so the run before that one is compared."
        " --lines 7 shows 5 more kinds.\n"
    )


def test_a_copy_that_stopped_is_one_warning_and_repeats_no_danger(tmp_path: Path) -> None:
    # A copy job that broke leaves the same files for the next runs.
    before = {"groups": [group("a"), group("b")], "offsets_partitions": log(100)}
    after = {"groups": [group("a")], "offsets_partitions": [{**log(200)[0], "newest_timestamp_ms": AS_OF_MS + DAY_MS - 7_200_000}]}
    for day, tables in enumerate((before, after, after, after)):
        night(tmp_path, "prod", tables, as_of_ms=AS_OF_MS + day * DAY_MS)
        found = [(row["level"], row["what"], row["reason"]) for row in rows(str(tmp_path))]
        result = groupcoord("morning", "--warehouse", str(tmp_path), "--fail-on", "danger")
        if day == 1:
            assert ("danger", "group_vanished", "not_known") in found and result.exit_code == 3
    assert found == [("warning", "copy_unchanged", "since the run of 2026-01-02T00:00:00.000Z")] and result.exit_code == 0
    assert "The newest record of the copy is of 2026-01-01T22:00:00Z, 2 days before the as-of." in result.stderr
    assert (
        'groupcoord_newest_record_timestamp_seconds{cluster="prod"} 1.7673048e+09'
        in groupcoord("metrics", "--warehouse", str(tmp_path)).stdout
    )
    assert "1 copy without a new record (since the run of 2026-01-02T00:00:00.000Z)." in result.stdout


def test_the_horizon_decides_what_is_about_to_expire(incident: str) -> None:
    assert [row["groups"] for row in rows(incident, "--horizon", "12h") if row["what"].startswith("expiring")] == [["b"]]


@pytest.mark.parametrize(
    ("words", "code"), [("danger", 3), ("sick", 3), ("lost", 0), ("stalled,group_vanished", 3), ("note", 3), ("nonsense", 2), ("", 0)]
)
def test_fail_on_takes_levels_and_kinds(incident: str, words: str, code: int) -> None:
    result = groupcoord("morning", "--fail-on", words, "--warehouse", incident)
    assert result.exit_code == code
    assert (code == 3) == result.stderr.splitlines()[-1].startswith("Alert: ")


def test_slack_gets_one_message_in_which_names_are_no_markup(incident: str) -> None:
    result = groupcoord("morning", "--output", "slack", "--lines", "3", "--warehouse", incident)
    message = json.loads(result.stdout)
    assert result.stderr == "" and [block["type"] for block in message["blocks"]] == ["section", "rich_text"]
    items = message["blocks"][1]["elements"][0]["elements"]
    assert [[element["type"] for element in item["elements"]] for item in items] == [["emoji", "text", "text"]] * 3 + [["text"]]
    assert "lost <!channel>" in items[0]["elements"][1]["text"] and items[0]["elements"][2]["style"] == {"code": True}
    assert "<!channel>" not in message["text"] + message["blocks"][0]["text"]["text"]


def test_the_first_night_has_news_too_and_a_quiet_one_has_none(tmp_path: Path) -> None:
    night(tmp_path, "prod", {"groups": [group("a")], "topic_health": [finding("cleaner_stopped", "sick")]})
    assert [row["what"] for row in rows(str(tmp_path))] == ["sick"]
    night(tmp_path, "prod", {"groups": [group("a")], "topic_health": [finding("cleaner_stopped", "sick")]}, as_of_ms=AS_OF_MS + DAY_MS)
    result = groupcoord("morning", "--fail-on", "danger,warning,note", "--warehouse", str(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "Run of 2026-01-02T00:00:00.000Z: nothing new since that of 2026-01-01T00:00:00.000Z.\n"


def test_a_night_without_history_has_the_offsets_that_are_lower(tmp_path: Path) -> None:
    for at, committed in enumerate((9, 4)):
        offsets = [offset("a", "t", 0, committed, record_offset=at)]
        night(tmp_path, "prod", {"groups": [group("a")], "committed_offsets": offsets}, as_of_ms=AS_OF_MS + at * DAY_MS)
    assert [(row["what"], row["groups"]) for row in rows(str(tmp_path))] == [("rewound", ["a"])]


def test_a_lag_that_loses_records_soon_and_an_offset_beyond_the_end_are_news(tmp_path: Path) -> None:
    for at, committed in enumerate((20, 40)):
        sample = {"topic": "t", "sampled_at_ms": AS_OF_MS + at * DAY_MS, "run_id": str(at), "source": "broker"}
        # 40 records are deleted in a day, and 50 remain before the committed offset of partition 0.
        ends = [{**sample, "partition": n, "start_offset": start, "end_offset": end} for n, start, end in ((0, 40 * at, 200), (1, 0, 30))]
        offsets = [offset("a", "t", 0, 90), offset("a", "t", 1, committed)]
        night(tmp_path, "prod", {"groups": [group("a")], "committed_offsets": offsets, "log_ends": ends}, as_of_ms=AS_OF_MS + at * DAY_MS)
    told = [[(row["level"], row["what"], row["number"]) for row in rows(str(tmp_path), "--at", f"-{1 - at}")] for at in (0, 1)]
    assert told == [[], [("danger", "loses_soon", 1), ("warning", "beyond_end", 1)]]


def test_a_transaction_is_news_once_it_is_open_for_an_hour_where_no_finding_of_the_doctor_has_it(tmp_path: Path) -> None:
    def pending(producer_id: int, hours: int) -> dict[str, Any]:
        times = {"record_timestamp_ms": AS_OF_MS - hours * 3_600_000, "record_offset": producer_id}
        return offset("a", "t", producer_id, 5, producer_id=producer_id, **times)

    hanging = {**finding("hanging_transaction", "sick"), "subject": "3"}
    expiry_of_a = {"group_id": "a", "as_of_ms": AS_OF_MS, "removed": False, "tombstone_count": 0}
    tables = {
        "groups": [group("a")],
        "pending_offsets": [pending(1, 0), pending(2, 2), pending(3, 3)],
        "topic_health": [hanging],
        "group_expirations": [expiry_of_a],
    }
    night(tmp_path, "prod", tables)
    told = rows(str(tmp_path))
    assert [(row["what"], row["number"], row["groups"]) for row in told] == [("open_transaction", 1, ["a"]), ("sick", 1, [])]
    shown = groupcoord(*shlex.split(told[0]["command"])[1:], "--output", "json").stdout.splitlines()
    assert [json.loads(line)["producer_id"] for line in shown] == [2, 3]


def test_every_kind_of_news_is_explained_in_the_reference() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
    assert all(f"| `{name}` | {kind.level} |" in page for name, kind in NEWS.items())
    assert {kind.level for kind in NEWS.values()} == set(LEVELS)
