"""``groupcoord plan``: failover compared with the answers of MirrorMaker's client, and resets on small warehouses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.warehouse import groupcoord
from tests.local_session import LocalSession
from tests.running import run
from tests.warehouse.nights import AS_OF_MS, commit, group, night, offset
from tests.warehouse.view_rows import end

CORPUS = Path(__file__).parent / "failover"


@pytest.mark.parametrize("name", ["prefixed", "identity"])
def test_failover_is_what_the_client_answers(name: str, local: LocalSession, tmp_path: Path) -> None:
    for logs, cluster in (("logs", "target"), ("source/logs", "source")):
        run(local, tmp_path / "w", CORPUS / name / logs, cluster=cluster, as_of_ms=1_795_900_000_000)
    shown = groupcoord(
        *("plan", "--failover", "--warehouse", str(tmp_path / "w"), "--cluster", "target", "--source", "source", "--output", "json")
    )
    assert shown.exit_code == 0, shown.stderr
    rows = {(row["group"], row["topic"], row["partition"]): row for row in map(json.loads, shown.stdout.splitlines())}
    bounds = 0
    for truth in json.loads((CORPUS / name / "oracle" / "failover.json").read_text()):
        if truth.get("translated") is None and truth.get("target_committed") is None:
            continue
        row = rows[truth["group"], truth["target_topic"], truth["partition"]]
        assert (row["translated"], row["target_committed"]) == (truth.get("translated"), truth["target_committed"])
        for bound in ("read_again", "skipped"):
            if row[f"{bound}_least"] is not None:
                bounds += 1
                assert row[f"{bound}_least"] <= truth[bound] <= row[f"{bound}_most"], (truth, row)
    assert bounds > 50
    assert rows["rewound-too-far", f"{'east.' if name == 'prefixed' else ''}clicks", 0]["state"] == "rewound_after_checkpoint"
    alerted = groupcoord("plan", "--failover", "--warehouse", str(tmp_path / "w"), "--cluster", "target", "--fail-on", "no-offset")
    assert alerted.exit_code == 0


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    warehouse = tmp_path_factory.mktemp("plan") / "w"
    rows = {
        "groups": [group("g"), group("busy", state="Stable", member_count=2)],
        "committed_offsets": [offset("g", "t", 0, 50), offset("g", "t", 1, 50), offset("g", "t", 2, 50), offset("busy", "t", 0, 7)],
        "log_ends": [end("t", partition, 100, start_offset=10, source="checkpoint", written_at_ms=AS_OF_MS) for partition in range(3)],
        "offset_commits": [commit(1, committed_offset=20, record_timestamp_ms=AS_OF_MS - 5_000)],
    }
    night(warehouse, "prod", rows)
    return str(warehouse)


RESETS = [
    (["-", "--group", "g"], "t,0,30\nt,1,5\n", [(30, 20, 0, "ok"), (10, 40, 0, "below_log"), (None, None, None, "forgotten")]),
    (["-"], "g,t,0,60\ng,t,1,200\ng,t,2,50\n", [(60, 0, 10, "ok"), (100, 0, 50, "beyond_log"), (50, 0, 0, "ok")]),
    (["--group", "g", "--to-earliest"], "", [(10, 40, 0, "ok")] * 3),
    (["--group", "g", "--shift-by", "-45"], "", [(10, 40, 0, "below_log")] * 3),
    (["--group", "g", "--to-datetime", "2026-01-01"], "", [(20, 30, 0, "ok"), *[(None, None, None, "no_offset")] * 2]),
]


@pytest.mark.parametrize(("words", "file", "expected"), RESETS)
def test_a_reset(place: str, words: list[str], file: str, expected: list[tuple[object, ...]], tmp_path: Path) -> None:
    (tmp_path / "f").write_text(file)
    words = [str(tmp_path / "f") if word == "-" else word for word in words]
    shown = groupcoord("plan", *words, "--warehouse", place, "--output", "json")
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [(row["set_to"], row["read_again"], row["skipped"], row["status"]) for row in rows] == expected, shown.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (["--group", "busy", "--to-earliest", "--fail-on", "active"], 3, "active 1"),
        (["--group", "g", "--shift-by", "1", "--fail-on", "skipped"], 3, "skipped 3"),
        (["--group", "g", "--shift-by", "1", "--fail-on", "active,read-again"], 0, ""),
        (["--shift-by", "1"], 2, "Name the groups"),
        (["--group", "g", "--to-earliest", "--shift-by", "1"], 2, "Give one of"),
        (["--group", "none", "--to-earliest"], 1, "no committed offset of group 'none'"),
        (["none.csv"], 2, "none.csv cannot be read"),
    ],
)
def test_alerts_and_refusals(place: str, words: list[str], code: int, sentence: str) -> None:
    shown = groupcoord("plan", *words, "--warehouse", place)
    assert (shown.exit_code, sentence in shown.stderr) == (code, True), shown.stderr
