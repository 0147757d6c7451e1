"""Kafka's JSON back to bytes."""

from __future__ import annotations

import gzip
import json

import pytest

from groupcoord_spark.protocol import EncodeError, decode_key, decode_value, encode_key_json, encode_value_json
from tests.conftest import GOLDEN

CORPORA = sorted(path.parent.parent.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("oracle/records.jsonl.gz"))


@pytest.mark.parametrize("corpus", CORPORA)
def test_what_kafka_shows_of_a_record_gives_its_bytes(corpus):
    with gzip.open(GOLDEN / corpus / "oracle/records.jsonl.gz", "rt") as told:
        for record in map(json.loads, told):
            key, value = record["key"], record["value"]
            if record["control"] or not key or "data" not in key:
                continue
            key_bytes = bytes.fromhex(record["key_hex"])
            assert decode_key(key_bytes).doubts or encode_key_json(key["type"], key["data"]) == key_bytes
            if value and "data" in value:
                value_bytes = bytes.fromhex(record["value_hex"])
                decoded = decode_value(key["type"], value_bytes)
                assert decoded is not None
                again = encode_value_json(key["type"], value["version"], value["data"])
                assert again == value_bytes or decode_value(key["type"], again).fields == _known(decoded.fields)


def test_layouts_that_one_release_wrote_are_found_by_their_names():
    """As ``dump`` shows them: under the names of that release."""
    from groupcoord_spark.protocol import value_json

    lines = [json.loads(line) for line in (GOLDEN / "examples.jsonl").read_text().splitlines()]
    dialects = [line for line in lines if line.get("dialect") and line["value_hex"] and line["key"]["type"] != 9]
    assert dialects
    for line in dialects:
        key_type, value = line["key"]["type"], bytes.fromhex(line["value_hex"])
        decoded = decode_value(key_type, value)
        assert encode_value_json(key_type, decoded.version, value_json(decoded)) == value


@pytest.mark.parametrize(
    "data", [{}, {"group": "g", "topic": "t"}, {"group": "g", "topic": "t", "partition": "0"}, {"group": "g", "oops": 1}]
)
def test_what_does_not_fit_the_table_is_refused(data):
    with pytest.raises(EncodeError):
        encode_key_json(1, data)


def _known(fields):
    if isinstance(fields, dict):
        return {name: _known(value) for name, value in fields.items() if name != "_unknown_tags"}
    return [_known(each) for each in fields] if isinstance(fields, list) else fields
