"""Logs of real brokers: each record as Kafka's own classes show it."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.protocol import RECORD_TYPES, DecodeError, columnar, definition
from groupcoord_spark.protocol.slices import Slices
from tests.conftest import by_each_decoder
from tests.protocol.columns import key_json_texts, value_json_texts

from .columns import check_key_columns, check_offset_value_columns

GOLDEN = Path(__file__).parent.parent / "golden"
CORPORA = sorted(GOLDEN.glob("**/oracle/records.jsonl.gz"))


@cache
def records_of(corpus: Path) -> list[dict[str, Any]]:
    with gzip.open(corpus, "rt", encoding="utf-8") as lines:
        return [record for record in map(json.loads, lines) if record["control"] is None]


def raw(hexadecimal: str | None) -> bytes | None:
    return None if hexadecimal is None else bytes.fromhex(hexadecimal)


@pytest.mark.parametrize("corpus", CORPORA, ids=lambda path: str(path.relative_to(GOLDEN).parent.parent))
class TestCorpus:
    def test_every_record_is_decoded_to_kafkas_json(self, corpus: Path) -> None:
        for record in records_of(corpus):
            if record["key"].get("unknown"):
                with pytest.raises(DecodeError) as refusal:
                    definition.decode_key(raw(record["key_hex"]))
                assert refusal.value.code == "unknown_key_type"
                continue
            key = definition.decode_key(raw(record["key_hex"]))
            assert (key.key_type, definition.key_json(key)) == (record["key"]["type"], record["key"]["data"])
            value = definition.decode_value(key.key_type, raw(record["value_hex"]))
            assert (value is None) == (record["value"] is None)
            if value is not None:
                assert value.version == record["value"]["version"]
                assert json.dumps(definition.value_json(value)) == json.dumps(record["value"]["data"])

    def test_columns_and_json_texts_say_the_same(self, corpus: Path) -> None:
        records = records_of(corpus)
        keys, values = [raw(record["key_hex"]) for record in records], [raw(record["value_hex"]) for record in records]
        check_key_columns(keys)
        key_types = columnar.decode_key_columns(Slices.of(keys)).key_type.tolist()
        check_offset_value_columns(key_types, values)
        told = [None if record["value"] is None else record["value"].get("data") for record in records]
        texts = [None if data is None else json.dumps(data, separators=(",", ":"), ensure_ascii=False) for data in told]
        for of_keys, of_values in by_each_decoder(lambda: (key_json_texts(keys), value_json_texts(key_types, values))):
            assert [None if text is None else json.loads(text) for text in of_keys] == [record["key"].get("data") for record in records]
            for text, key_type, expected in zip(of_values, key_types, texts, strict=True):
                assert text == expected or key_type not in RECORD_TYPES


def test_there_are_corpora() -> None:
    assert len(CORPORA) >= 4
