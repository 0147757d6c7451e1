"""MirrorMaker's records in ``dump`` and in mirror_checkpoints, compared with what Kafka's formatters and its client answered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.log.broker_dir.log_directories import find_log_directories
from groupcoord_spark.pipeline.log_directory import mirror_checkpoints
from tests.cli.warehouse import groupcoord
from tests.log.log_writer import Rec, batch

CORPUS = Path(__file__).parent.parent / "answers" / "failover"
CASES = json.loads((CORPUS / "decoder_cases.json").read_text())
CHECKPOINTS, SYNCS = "a.checkpoints.internal", "mm2-offset-syncs.a.internal"


def translated(logs: Path) -> dict[str, dict[str, dict[str, Any]]] | None:
    """Return what the client answers for each group of which there is a checkpoint; None: it fails."""
    answer: dict[str, dict[str, dict[str, Any]]] = {}
    for row in mirror_checkpoints(find_log_directories([str(logs)])).to_pylist():
        if row["downstream_offset"] is None:
            return None
        of_group = answer.setdefault(row["group_id"], {})
        of_group[f"{row['topic']}-{row['partition']}"] = {"offset": row["downstream_offset"], "metadata": row["metadata"]}
    return answer


def written(directory: Path, topic: str, records: list[dict[str, Any]]) -> Path:
    """Return a log directory with the records, one batch each."""
    partition = directory / f"{topic}-0"
    partition.mkdir(parents=True)
    texts = [[None if record[name] is None else bytes.fromhex(record[name]) for name in ("key_hex", "value_hex")] for record in records]
    batches = (batch(offset, [Rec(key, value)]) for offset, (key, value) in enumerate(texts))
    (partition / f"{0:020}.log").write_bytes(b"".join(batches))
    (directory / "meta.properties").write_text("version=1\n")
    return directory


@pytest.mark.parametrize("name", ["prefixed", "identity"])
def test_checkpoints_are_those_that_the_client_translates_by(name: str) -> None:
    answers = json.loads((CORPUS / name / "oracle" / "translate.json").read_text())
    assert translated(CORPUS / name / "logs") == {group: answer for group, answer in answers.items() if answer}


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/**/*internal-0")), ids=lambda path: f"{path.parents[-1]}{path.name}")
def test_dump_prints_what_kafkas_formatter_prints(path: Path) -> None:
    corpus = path.relative_to(CORPUS).parts[0]
    oracle = "checkpoints.txt" if "checkpoints" in path.name else "offset-syncs.txt"
    assert groupcoord("dump", str(path)).stdout == (CORPUS / corpus / "oracle" / oracle).read_text()


@pytest.mark.parametrize("case", CASES, ids=[f"{case['topic']}: {case['case']}" for case in CASES])
def test_odd_records_are_read_as_kafkas_classes_read_them(case: dict[str, Any], tmp_path: Path) -> None:
    topic = CHECKPOINTS if case["topic"] == "checkpoints" else SYNCS
    logs = written(tmp_path / "logs", topic, case["records"])
    printed = groupcoord("dump", str(logs / f"{topic}-0")).stdout
    for record in case["records"]:
        line = record.get("text") or printed[: printed.index("\n") + 1]
        assert printed.startswith(line)
        assert "text" in record or '"record_offset"' in line
        printed = printed[len(line) :]
    assert printed == ""
    if topic == CHECKPOINTS:
        assert translated(logs) == case.get("translate")


def test_the_lines_of_json_have_kafkas_names_and_the_reason_of_a_refusal(tmp_path: Path) -> None:
    case = next(case for case in CASES if case["case"] == "value too short")
    logs = written(tmp_path / "logs", CHECKPOINTS, case["records"])
    run = groupcoord("dump", str(logs / f"{CHECKPOINTS}-0"), "--output", "json")
    short, whole = map(json.loads, run.stdout.splitlines())
    assert (short["value"], short["reason"]) == ({"data": None}, "value_truncated")
    assert whole["key"] == {"data": {"consumerGroupId": "g36", "topic": "t64", "partition": 0}}
    assert whole["value"] == {"data": {"upstreamOffset": 8045, "downstreamOffset": 9381, "metadata": "next"}}
    assert "1 of them do not decode" in run.stderr


def test_text_is_refused_for_other_topics() -> None:
    run = groupcoord("dump", "--output", "text", str(CORPUS / "prefixed" / "logs" / "__consumer_offsets-0"))
    assert run.exit_code == 2
    assert "Leave it out" in run.stderr


def test_only_partition_0_counts(tmp_path: Path) -> None:
    logs = written(tmp_path / "logs", CHECKPOINTS, CASES[0]["records"])
    (logs / f"{CHECKPOINTS}-0").rename(logs / f"{CHECKPOINTS}-1")
    assert translated(logs) == {}
