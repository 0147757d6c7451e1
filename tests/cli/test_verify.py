"""``groupcoord verify`` with saved answers, and what it says where it cannot ask."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.warehouse import groupcoord
from tests.verification.golden import answers_of, write_warehouse


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_warehouse("classic-modern", tmp_path_factory.mktemp("verify") / "warehouse")


def saved(tmp_path: Path, answers: dict[str, Any]) -> str:
    (tmp_path / "answers.json").write_text(json.dumps(answers))
    return str(tmp_path / "answers.json")


def test_equal_sides_end_with_0_and_a_sentence_that_says_what_was_compared(sample: str, tmp_path: Path) -> None:
    done = groupcoord("verify", "--warehouse", sample, "--against", saved(tmp_path, answers_of("classic-modern")))
    assert done.exit_code == 0
    assert done.stdout == ""
    compared = "No difference in 22 groups, 14 members, 74 committed offsets, 0 offsets in open transactions."
    assert done.stderr.startswith(f"{compared} Cluster 'golden' as of 2026-01-01T00:00:00Z, answers of ")


def test_answers_of_a_4_2_broker_were_compared_as_if_a_4_3_broker_gave_them(tmp_path: Path) -> None:
    place, answers = write_warehouse("kip848-4.2", tmp_path / "warehouse"), saved(tmp_path, answers_of("kip848-4.2"))
    done = groupcoord("verify", "--warehouse", place, "--against", answers)
    assert (done.exit_code, done.stdout) == (0, "")


def differing(tmp_path: Path) -> str:
    answers = answers_of("classic-modern")
    answers["offsets"] = [{**row, "offset": row["offset"] + (row["group"] == "app-simple")} for row in answers["offsets"]]
    answers["groups"] = [row for row in answers["groups"] if row["group"] != "app-empty"]
    return saved(tmp_path, answers)


def test_differences_are_rows_and_end_with_1(sample: str, tmp_path: Path) -> None:
    done = groupcoord("verify", "--warehouse", sample, "--against", differing(tmp_path))
    assert done.exit_code == 1
    title, *rows = done.stdout.splitlines()
    assert title.split() == ["GROUP", "WHAT", "OURS", "THEIRS"]
    assert rows[0].split() == ["app-empty", "group", "Empty", "-"]
    assert rows[1].split()[:3] == ["app-simple", "offset", "of"]
    assert done.stderr.startswith(f"{len(rows)} differences in 22 groups")


def test_differences_for_programs_are_objects(sample: str, tmp_path: Path) -> None:
    done = groupcoord("verify", "--warehouse", sample, "--against", differing(tmp_path), "--output", "json", "--quiet")
    assert done.exit_code == 1
    assert json.loads(done.stdout.splitlines()[0]) == {"group": "app-empty", "what": "group", "ours": "Empty", "theirs": None}
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--against", "nowhere.json"], "nowhere.json cannot be read"),
        (["--against", "kafka://"], "is not an address of Kafka"),
        (["--against", "kafka://user:secret@host:9092"], "has no place for user and password"),
        (["--against", "answers.json", "--save", "more.json"], "--save is for a cluster"),
        (["--against", "answers.json", "--command-config", "client.properties"], "--command-config is for a cluster"),
        (["--against", "kafka://host:9092", "--save", "a.json", "--command-config", "nowhere"], "nowhere cannot be read"),
    ],
)
def test_what_makes_no_sense_is_told_in_a_sentence(options: list[str], sentence: str, sample: str) -> None:
    done = groupcoord("verify", "--warehouse", sample, *options)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "secret" not in done.stderr


def test_missing_client_is_told_with_the_line_that_installs_it(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "groupcoord_spark.verification.broker", raising=False)
    monkeypatch.setitem(sys.modules, "kafka.net.manager", None)
    done = groupcoord("verify", "--warehouse", sample, "--against", "kafka://localhost:1")
    assert done.exit_code == 1
    assert "pip install --editable '.[verify]'" in done.stderr


def test_settings_that_the_client_refuses_are_named_without_their_values(sample: str, tmp_path: Path) -> None:
    pytest.importorskip("kafka.net")
    config = tmp_path / "client.properties"
    config.write_text("security.protocol=top-secret\n")
    done = groupcoord("verify", "--warehouse", sample, "--against", "kafka://localhost:1", "--command-config", str(config))
    assert done.exit_code == 2
    assert "security.protocol" in done.stderr
    assert "top-secret" not in done.stderr


def test_cluster_that_does_not_answer_is_one_sentence(sample: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = pytest.importorskip("groupcoord_spark.verification.broker", exc_type=ImportError)
    monkeypatch.setattr(broker, "TIMEOUT_SECONDS", 1.0)
    done = groupcoord("verify", "--warehouse", sample, "--against", "kafka://127.0.0.1:1")
    assert done.exit_code == 1
    assert done.stderr.startswith("Error: kafka://127.0.0.1:1: no broker answers")
