"""``groupcoord dump`` of share groups' states, transactions and the cluster's metadata, compared with Kafka's own classes."""

from __future__ import annotations

import gzip
import json
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli import warehouse

CORPUS = Path(__file__).parent.parent / "golden" / "log-directory"
LOGS = CORPUS / "logs"


def groupcoord(*arguments: object) -> Result:
    return warehouse.groupcoord(*map(str, arguments))


def dump(*arguments: object) -> list[dict[str, Any]]:
    result = groupcoord("dump", *arguments)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def told(name: str) -> list[dict[str, Any]]:
    with gzip.open(CORPUS / "oracle" / f"{name}.jsonl.gz") as lines:
        return [json.loads(line) for line in lines]


@pytest.mark.parametrize(("topic", "oracle"), [("__share_group_state", "share_records"), ("__transaction_state", "transaction_records")])
def test_keys_and_values_are_those_of_kafkas_formatters(topic: str, oracle: str) -> None:
    lines = dump(*sorted(LOGS.glob(f"{topic}-*")))
    expected = [record for record in told(oracle) if not record.get("before_log_start")]
    assert [(line["partition"], line["record_offset"], line["timestamp"]) for line in lines] == [
        (record["partition"], record["offset"], record["timestamp"]) for record in expected
    ]
    for line, record in zip(lines, expected, strict=True):
        assert line["key"] == {"type": record["key"]["type"], "data": record["key"]["data"]}
        assert line["value"] == (record.get("value") and {"version": record["value"]["version"], "data": record["value"]["data"]})


@pytest.mark.parametrize("release", ["4.3.1", "4.4.0"])
def test_state_of_a_transaction_is_printed_as_the_formatter_of_the_release_does(release: str, tmp_path: Path) -> None:
    from tests.log.log_writer import Rec, batch, write_segment

    # What TransactionLogMessageFormatter of 4.4.0 prints; 8 is of no release yet.
    names = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence", "8"]
    value = "000000000000000000050000000000000{}ffffffff00000000000000000000000000000000"
    records = [Rec(b"\0\0\0\1t", bytes.fromhex(value.format(n)), offset_delta=n) for n in range(9)]
    directory = tmp_path / "logs" / "__transaction_state-0"
    directory.mkdir(parents=True)
    shutil.copy(write_segment(tmp_path, [batch(0, [*records, Rec(b"\0\0\0\1t", None, offset_delta=9)])]), directory / f"{0:020}.log")
    *lines, tombstone = dump(directory, "--broker-version", release)
    assert [line["value"]["data"]["transactionStatus"] for line in lines] == (names if release == "4.4.0" else list(range(9)))
    assert tombstone["value"] is None


@pytest.mark.parametrize("given", [LOGS / "__cluster_metadata-0", LOGS])
def test_broker_version_is_for_states_of_transactions_only(given: Path) -> None:
    result = groupcoord("dump", given, "--broker-version", "4.4")
    assert result.exit_code == 2
    assert "--broker-version is for records of __transaction_state" in result.stderr


def test_metadata_of_log_and_snapshots_is_that_of_kafkas_classes() -> None:
    by_file: dict[str, list[dict[str, Any]]] = {}
    for record in told("metadata_records"):
        by_file.setdefault(record["file"], []).append(record)
    del by_file["bootstrap.checkpoint"]
    assert len(by_file) == 4
    for name, records in by_file.items():
        lines = dump(LOGS / "__cluster_metadata-0" / name)
        for line, record in zip(lines, records, strict=True):
            assert (line["record_offset"], line["timestamp"]) == (record["offset"], record["timestamp"])
            assert line["control"] == record.get("control")
            is_control = "control" in record
            head = {} if is_control else {"type": record["name"], "version": record["version"]}
            assert line["value"] == {**head, "data": record["data"]}
    result = groupcoord("dump", LOGS / "__cluster_metadata-0")
    assert result.stderr.strip() == f"{len(result.stdout.splitlines())} records."


def test_record_that_does_not_decode_keeps_its_bytes_and_has_a_reason(tmp_path: Path) -> None:
    from tests.log.log_writer import Rec, batch, write_segment

    path = write_segment(tmp_path, [batch(0, [Rec(b"\0\0\0\1", b"\0\0"), Rec(b"\0\7", None, offset_delta=1)])])
    directory = tmp_path / "logs" / "__share_group_state-3"
    directory.mkdir(parents=True)
    shutil.copy(path, directory / "00000000000000000000.log")
    lines = dump(directory)
    assert [line["reason"] for line in lines] == ["key_truncated", "unknown_key_type"]
    assert b64decode(lines[0]["key_base64"]) == b"\0\0\0\1"


def test_options_and_inputs_that_do_not_fit_are_refused() -> None:
    assert groupcoord("dump", LOGS / "__share_group_state-0", "--group", "g").exit_code == 2
    assert groupcoord("dump", LOGS / "__share_group_state-0", LOGS).exit_code == 2
