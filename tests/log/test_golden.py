"""Every record of real logs of every era, as Kafka's own classes read it."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pytest

from tests.log.reading import SMALL_CHUNK, Row, read_logs

GOLDEN = Path(__file__).parent.parent / "golden"
CORPORA = sorted(path.parent.parent.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("oracle/records.jsonl.gz"))
CONTROL = {None: -1, "ABORT": 0, "COMMIT": 1}


@cache
def expected_rows(corpus: Path) -> list[Row]:
    rows = []
    with gzip.open(corpus / "oracle/records.jsonl.gz", "rt") as lines:
        for line in lines:
            told = json.loads(line)
            key, value = (None if told[name] is None else bytes.fromhex(told[name]) for name in ("key_hex", "value_hex"))
            producer = (told["producer_id"], told["producer_epoch"], told["transactional"], CONTROL[told["control"]])
            rows.append(Row(told["offset"], told["timestamp"], key, value, *producer, position=0))
    return rows


@pytest.mark.usefixtures("each_decoder")
@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("chunk_bytes", [1 << 25, SMALL_CHUNK])
def test_every_record_is_what_kafka_reads(corpus: str, chunk_bytes: int) -> None:
    got = read_logs(GOLDEN / corpus / "logs", chunk_bytes=chunk_bytes)
    assert got.lost == []
    assert {doubt.code for doubt in got.doubts} <= {"tail_truncated"}
    # the place in the file is ours alone
    assert [row._replace(position=0) for row in got.rows] == expected_rows(GOLDEN / corpus)


def test_the_torn_tails_of_a_copy_made_while_the_broker_wrote_are_told_and_not_lost() -> None:
    got = read_logs(GOLDEN / "midflight-torn")
    assert got.lost == []
    assert [doubt.code for doubt in got.doubts] == ["tail_truncated", "tail_truncated"]
