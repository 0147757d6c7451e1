"""Runs from the Admin API, with the recorded answers of real brokers in place of a client. A real one is asked in tests/integration."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import groupcoord_spark as gc
from groupcoord_spark.errors import BadCopyError, InputError, UsageError
from groupcoord_spark.pipeline import admin_run
from groupcoord_spark.sources.rows import LOG
from groupcoord_spark.verification import Answers, compare, read_answers, state_of
from groupcoord_spark.warehouse import open_warehouse
from tests.cli.warehouse import groupcoord
from tests.conftest import GOLDEN
from tests.running import rows_of
from tests.running import run as run_segments
from tests.verification.golden import answers_of
from tests.warehouse.nights import group, make_tables, night

if TYPE_CHECKING:
    from tests.local_session import LocalSession

URI = "admin://broker:9092"
CORPORA = ["classic-modern", "transactions", "compacted", "connect", "kip848", "convert", "era-3.9", "share", "streams"]


@dataclass
class OneCluster:
    """A cluster as the client sees it."""

    given: Answers
    cluster_id: str | None = "an-id"
    partitions: dict[str, int] = field(default_factory=lambda: {"__consumer_offsets": 7})
    extents: dict[tuple[str, int], tuple[int, int]] = field(default_factory=dict)

    def answers(self) -> Answers:
        return self.given

    def log_extents(self) -> dict[tuple[str, int], tuple[int, int]]:
        return self.extents


Ask = Callable[..., gc.Summary]


def asking(place: Path, patch: pytest.MonkeyPatch) -> Ask:
    """Return a run of the answers that it is given, in the warehouse at ``place``."""

    def run(answers: Answers, *, extents: dict[tuple[str, int], tuple[int, int]] | None = None, **arguments: Any) -> gc.Summary:
        cluster = OneCluster(answers, extents=extents or {})
        patch.setattr(admin_run, "connected", lambda uri, properties, source: nullcontext(cluster))
        return gc.run_nightly(URI, place, **{"cluster": "hidden", **arguments})

    return run


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ask:
    make_tables(tmp_path / "warehouse")
    return asking(tmp_path / "warehouse", monkeypatch)


def answers(corpus: str, tmp_path: Path, **parts: Any) -> Answers:
    """Return the answers of a corpus."""
    (tmp_path / "answers.json").write_text(json.dumps(answers_of(corpus)), encoding="utf-8")
    return replace(read_answers(str(tmp_path / "answers.json")), **{"source": URI, "asked_at_ms": (1795244009000, 1795244009400), **parts})


OFFSETS = [{"group": "a", "topic": "t", "partition": n, "offset": 5 + n, "leader_epoch": -1, "metadata": ""} for n in (0, 1)]
LIVE = [{"member_id": "m-1", "client_id": "c", "client_host": "/h", "assignment": [["t", [0, 1]]], "subscribed_topics": ["t"]}]


def simple_answers(names: str = "ab", *, asked_at_ms: int = 1795244009000, **parts: Any) -> Answers:
    """Groups of one letter; a has a member and two offsets."""
    facts = {"type": "classic", "state": "Stable", "protocol_type": "consumer", "protocol": "range"}
    groups = [{"group": name, **facts, "members": LIVE if name == "a" else []} for name in names]
    offsets = [row for row in OFFSETS if row["group"] in names]
    return Answers(URI, (asked_at_ms, asked_at_ms), groups=groups, offsets=offsets, pending=[], **parts)


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_state_is_what_the_brokers_answered(corpus: str, ask: Ask, tmp_path: Path) -> None:
    given = answers(corpus, tmp_path)
    ask(given)
    groups = [{**row, "leader": None} for row in given.groups or ()]  # no broker reports the leader
    found = compare(state_of(open_warehouse(tmp_path / "warehouse"), "hidden"), replace(given, groups=groups))
    assert found.differences == []
    assert found.groups == len(groups) > 0 and found.offsets == len(given.offsets or ())


def test_what_only_the_log_has_is_null_and_said_once(ask: Ask, tmp_path: Path) -> None:
    summary = ask(simple_answers(not_described={"secret": "not authorized"}))
    assert (summary.lacks, summary.groups, summary.committed_offsets, summary.warnings) == ((LOG,), 2, 2, 2)
    place = tmp_path / "warehouse"
    columns = ("record_offset", "value_version", "commit_timestamp", "expire_timestamp", "record_timestamp", "leader_epoch", "producer_id")
    assert {row[name] for row in rows_of(place, "committed_offsets") for name in columns} == {None}
    for table in ("offset_commits", "group_records", "rebalances", "offset_expirations", "pending_offsets", "offsets_partitions"):
        assert rows_of(place, table) == []
    warnings = {(row["code"], row["group_id"]): row["detail"] for row in rows_of(place, "warnings")}
    assert set(warnings) == {("log_not_read", None), ("group_not_described", "secret")}
    assert "'secret' to this client: not authorized" in warnings["group_not_described", "secret"]
    (run,) = rows_of(place, "runs")
    assert (run["input_kind"], dict(run["settings"])["input.lacks"], run["records_read"]) == ("admin", "log", 0)


def test_groups_lie_in_the_partition_that_the_number_of_partitions_gives_them(ask: Ask, tmp_path: Path) -> None:
    ask(simple_answers())
    # "a" hashes to 97
    assert {row["offsets_partition"] for row in rows_of(tmp_path / "warehouse", "committed_offsets")} == {97 % 7}


@pytest.fixture(scope="module")
def two_nights(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Group b goes, an offset of group a goes back, and group c comes. The tests only read."""
    place, ends = tmp_path_factory.mktemp("admin") / "warehouse", {("t", 0): (0, 10), ("t", 1): (8, 20)}
    later = simple_answers("ac", asked_at_ms=1795330409000)
    with pytest.MonkeyPatch.context() as patch:
        ask = asking(place, patch)
        ask(simple_answers(), extents=ends)
        ask(replace(later, offsets=[{**OFFSETS[0], "offset": 3}, OFFSETS[1]]), extents=ends)
    return str(place)


def test_diff_and_morning_tell_what_changed_and_that_only_the_log_tells_why(two_nights: str) -> None:
    done = groupcoord("diff", "--warehouse", two_nights, "--output", "json")
    changes = {(row["change"], row["group"], row["why"]) for row in map(json.loads, done.stdout.splitlines())}
    assert changes == {("group_gone", "b", "no_log"), ("group_born", "c", None), ("offset_rewound", "a", None)}
    done = groupcoord("morning", "--warehouse", two_nights, "--output", "json", "--fail-on", "danger")
    news = {(row["level"], row["what"], row["reason"]) for row in map(json.loads, done.stdout.splitlines())}
    assert (news, done.exit_code) == ({("warning", "group_gone", "no_log"), ("warning", "rewound", None)}, 0)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["list", "--lag"], ["a", "21"]),
        (["list", "--output", "json"], ['"a"', '"c"']),
        (["describe", "--group", "a"], ["t", "3", "7"]),
        (["describe", "--group", "a", "--members"], ["m-1"]),
        (["why", "--group", "a"], ["a"]),
        (["warnings"], ["log_not_read"]),
        (["metrics"], ['groupcoord_group_lag_records{cluster="hidden",group="a",series="group"} 21.0']),
        (["sql", "SELECT group_id, SUM(lag) AS s FROM lag GROUP BY ALL"], ["21"]),
    ],
)
def test_commands_that_read_show_the_night(command: list[str], words: list[str], two_nights: str) -> None:
    done = groupcoord(*command, "--warehouse", two_nights)
    assert done.exit_code == 0, done.output
    assert [word for word in words if word not in done.output] == [], done.output


@pytest.mark.parametrize(
    ("command", "exit_code", "sentence"),
    [
        (["expire"], 2, "is from the Admin API: only the log has the times"),
        (["timeline", "--group", "a"], 1, "its runs are from the Admin API, and only the log has a history"),
        (["why", "--group", "b"], 1, "is gone in that of 2026-11-22T06:53:29Z. The runs are from the Admin API"),
        (["why", "--group", "nobody"], 1, "Group 'nobody' is in no record"),
    ],
)
def test_commands_about_what_only_the_log_has_say_so(command: list[str], exit_code: int, sentence: str, two_nights: str) -> None:
    done = groupcoord(*command, "--warehouse", two_nights)
    assert (done.exit_code, sentence in done.stderr) == (exit_code, True), done.output


def test_the_report_says_what_the_night_lacks(two_nights: str, tmp_path: Path) -> None:
    done = groupcoord("report", "--warehouse", two_nights, "--out", str(tmp_path / "report.html"))
    assert done.exit_code == 0, done.output
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "This run is from the Admin API" in page and "--no-history" not in page


def test_nights_from_the_log_and_from_the_admin_api_do_not_mix(ask: Ask, tmp_path: Path, local: LocalSession) -> None:
    night(tmp_path / "warehouse", "main", {"groups": [group("a")]})
    with pytest.raises(BadCopyError, match="Earlier runs of cluster 'main' are from the log, and admin://broker:9092 is from the Admin"):
        ask(simple_answers(), cluster="main")
    ask(simple_answers())
    with pytest.raises(BadCopyError, match=r"Earlier runs of cluster 'hidden' are from the Admin API, and .* is from the log: neither"):
        run_segments(local, tmp_path / "warehouse", GOLDEN / "classic-modern" / "logs", cluster="hidden")
    assert [row["input_kind"] for row in rows_of(tmp_path / "warehouse", "runs")] == ["segments", "admin"]


def test_a_client_that_may_see_no_group_any_more_replaces_no_good_night(ask: Ask) -> None:
    ask(simple_answers())
    with pytest.raises(BadCopyError, match="describes no group, and the last run had 2"):
        ask(simple_answers(""))
    assert ask(simple_answers(""), accept=["empty"]).groups == 0


def test_answers_of_a_machine_whose_clock_went_back_are_refused(ask: Ask) -> None:
    ask(simple_answers())
    with pytest.raises(BadCopyError, match="would run backwards"):
        ask(simple_answers(asked_at_ms=1795244008999))
    assert ask(simple_answers(asked_at_ms=1795244008999), accept=["earlier"]).groups == 2


def test_another_cluster_under_the_same_name_is_refused(ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask(simple_answers())
    monkeypatch.setattr(admin_run, "connected", lambda *_: nullcontext(OneCluster(simple_answers(), cluster_id="another")))
    with pytest.raises(BadCopyError, match=r"cluster\.id 'another'"):
        gc.run_nightly(URI, tmp_path / "warehouse", cluster="hidden")
    assert gc.run_nightly(URI, tmp_path / "warehouse").cluster == "another"


@pytest.mark.parametrize(
    ("inputs", "arguments", "sentence"),
    [
        (URI, {"full": True}, "answers about now"),
        (URI, {"as_of": "2026-01-01T00:00:00Z"}, "answers about now"),
        (URI, {"end_offsets": {}}, "answers about now"),
        ([URI, "admin://other:9092"], {}, "2 clusters are given"),
        ("admin://me:hush@broker:9092", {}, "has no place for user and password"),
        ("admin://broker", {}, "Write admin://host:9092"),
        ([URI, "kafka://broker:9092"], {}, "an Admin API and kafka://broker:9092 is a topic"),
    ],
)
def test_what_makes_no_sense_is_one_sentence(inputs: Any, arguments: dict[str, Any], sentence: str, tmp_path: Path) -> None:
    with pytest.raises((UsageError, InputError)) as raised:
        gc.run_nightly(inputs, tmp_path / "warehouse", cluster="hidden", **arguments)
    assert sentence in str(raised.value) and "hush" not in str(raised.value)


def test_no_broker_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = pytest.importorskip("groupcoord_spark.verification.broker", exc_type=ImportError)
    monkeypatch.setattr(broker, "TIMEOUT_SECONDS", 0.5)
    done = groupcoord("nightly", "admin://127.0.0.1:1", "--warehouse", str(tmp_path / "warehouse"))
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: admin://127.0.0.1:1: no broker answers: ") and done.stderr.count("\n") == 1
    assert not (tmp_path / "warehouse").exists()
