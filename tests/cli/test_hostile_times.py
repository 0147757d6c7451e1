"""A log whose records have the earliest and the latest times that 64 bits hold: no run and no command ends with a traceback."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from groupcoord_spark.warehouse import open_warehouse
from tests.cli.test_hostile_log import calls
from tests.cli.warehouse import groupcoord
from tests.conftest import DAY_MS
from tests.coordinator.records import classic_group, member, offset_commit, subscription, tombstone
from tests.log.log_writer import Rec, batch, write_segment
from tests.running import run

if TYPE_CHECKING:
    from tests.local_session import LocalSession

EARLIEST, LATEST, NEW_MS = -(2**63), 2**63 - 1, 1_795_000_000_000
TIMES = (EARLIEST, LATEST, 0, NEW_MS)


def segment(place: Path, base_offset: int, records: list[tuple[int, Any]], *, producer_id: int = -1) -> int:
    """Write a segment with a batch for each (time, record), and return the offset after it."""
    batches = [
        batch(
            base_offset + number,
            [Rec(each.key, each.value)],
            base_timestamp=at_ms,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            attributes=16 if producer_id >= 0 else 0,
        )
        for number, (at_ms, each) in enumerate(records)
    ]
    write_segment(place, batches, base_offset=base_offset)
    return base_offset + len(batches)


def group(name: str, generation: int, state_ms: int) -> Any:
    members = [member(f"m{generation}", subscription("orders"), client_id="c", client_host="/1.1.1.1")]
    return classic_group(group=name, generation=generation, members=members, protocol="range", leader=f"m{generation}", state_ms=state_ms)


@pytest.fixture(scope="module")
def place(local: LocalSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: each pair of times follows one another in a group's records, in its commits, and between the two runs."""
    where = tmp_path_factory.mktemp("times")
    pairs = list(product(TIMES, TIMES))
    first, second, open_ones = list[tuple[int, Any]](), list[tuple[int, Any]](), list[tuple[int, Any]]()
    for number, (one_ms, other_ms) in enumerate(pairs):
        first += [(one_ms, group(f"g{number}", 1, one_ms)), (other_ms, group(f"g{number}", 2, other_ms))]
        commits = [
            (at_ms, offset_commit("orders0", offset, group=f"g{number}", commit_ms=at_ms, expire_ms=expire_ms))
            for offset, (at_ms, expire_ms) in enumerate([(one_ms, None), (other_ms, None), (one_ms, other_ms)])
        ]
        first += commits
        open_ones.append((one_ms, offset_commit("orders1", 7, group=f"g{number}", commit_ms=other_ms)))
        second += [(other_ms, tombstone(1, group=f"g{number}", topic="orders", partition=0)), (one_ms, group(f"g{number}", 3, one_ms))]
    end = segment(where / "logs", 0, first)
    end = segment(where / "logs", end, open_ones, producer_id=7)
    settings = {"cluster": "prod", "retention_ms": 7 * DAY_MS}
    run(local, where / "warehouse", where / "logs", as_of_ms=NEW_MS + 1000, **settings)
    segment(where / "logs", end, second)
    run(local, where / "warehouse", where / "logs", as_of_ms=NEW_MS + DAY_MS, **settings)
    return where


def test_time_between_two_generations_is_unknown_where_64_bits_do_not_hold_it(place: Path) -> None:
    night = open_warehouse(str(place / "warehouse")).snapshot("prod")
    rows = night.sql("SELECT group_id, to_generation, since_previous_ms FROM rebalances").to_pylist()
    since = {(row["group_id"], row["to_generation"]): row["since_previous_ms"] for row in rows}
    numbers = {pair: number for number, pair in enumerate(product(TIMES, TIMES))}
    assert since[f"g{numbers[EARLIEST, LATEST]}", 2] is None
    assert since[f"g{numbers[EARLIEST, LATEST]}", 3] is None
    assert since[f"g{numbers[0, NEW_MS]}", 2] == NEW_MS
    assert since[f"g{numbers[0, LATEST]}", 2] == LATEST


@pytest.mark.parametrize("words", [words for words in calls() if words[-1] not in ("csv", "slack")], ids=lambda words: " ".join(words)[:40])
def test_every_command_answers(place: Path, words: tuple[str, ...]) -> None:
    values = {"LOGS": str(place / "logs"), "SOME": "g1"}
    typed = ["orders" if words[n - 1] == "--topic" else values.get(word, word) for n, word in enumerate(words)]
    typed = ["--group=g1" if word.startswith("--group=") else word for word in typed]
    warehouse = ["--warehouse", str(place / "warehouse")] if words[:2] != ("doctor", "LOGS") and words[0] != "dump" else []
    done = groupcoord(*typed, *warehouse)
    assert done.exit_code in (0, 1, 3) and "Traceback" not in done.output, (typed, done.output[-500:], done.exception)


def test_report_and_metrics_are_made(place: Path, tmp_path: Path) -> None:
    for words in (["report", "--out", str(tmp_path / "page.html")], ["metrics"]):
        done = groupcoord(*words, "--warehouse", str(place / "warehouse"))
        assert done.exit_code == 0, (words, done.output, done.exception)


def test_every_view_can_be_read(place: Path) -> None:
    from groupcoord_spark.warehouse.view_texts import VIEWS

    night = open_warehouse(str(place / "warehouse")).snapshot("prod")
    for view in VIEWS:
        assert night.sql(f"SELECT * FROM {view}") is not None


@pytest.mark.parametrize("at_ms", [EARLIEST, LATEST])
def test_a_log_of_one_moment_is_read_and_judged(at_ms: int, local: LocalSession, tmp_path: Path) -> None:
    segment(tmp_path / "logs", 0, [(at_ms, group("g", number, at_ms)) for number in (1, 2)])
    segment(tmp_path / "logs", 2, [(at_ms, offset_commit("orders0", 7, group="g", commit_ms=at_ms))], producer_id=7)
    run(local, tmp_path / "warehouse", tmp_path / "logs", as_of_ms=NEW_MS, cluster="prod")
    for words in (["doctor", str(tmp_path / "logs")], ["expire", "--warehouse", str(tmp_path / "warehouse")]):
        done = groupcoord(*words)
        assert done.exit_code in (0, 3) and "Traceback" not in done.output, (words, done.output, done.exception)
