"""``tests/golden/examples.jsonl``: bytes written, read back and converted by Kafka's own classes (4.3.1; dialects: 3.7.2 and 4.0.1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.protocol import definition
from tests.protocol.columns import key_json_texts, value_json_texts

GOLDEN = Path(__file__).parent.parent / "golden"
EXAMPLES = [json.loads(line) for line in (GOLDEN / "examples.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("example", EXAMPLES, ids=[example["note"] for example in EXAMPLES])
class TestExample:
    def test_bytes_become_the_json_kafka_shows_and_json_the_same_bytes(self, example: dict[str, Any]) -> None:
        dialect = example.get("dialect")
        raw_key = bytes.fromhex(example["key_hex"])
        key = definition.decode_key(raw_key, dialect=dialect)
        shown = (key.key_type, key.name, definition.key_json(key))
        assert shown == (example["key"]["type"], example["key"]["name"], example["key"]["data"])
        assert key.doubts == () or {doubt.code for doubt in key.doubts} == {"negative_partition"}
        assert definition.encode_key(key.key_type, key.fields, dialect=dialect) == raw_key

        if example["value_hex"] is None:
            assert definition.decode_value(key.key_type, None) is None and example["value"] is None
            return
        raw_value = bytes.fromhex(example["value_hex"])
        value = definition.decode_value(key.key_type, raw_value, dialect=dialect)
        assert value is not None
        assert (value.version, value.dialect) == (example["value"]["version"], dialect)
        assert json.dumps(definition.value_json(value)) == json.dumps(example["value"]["data"])
        assert value.doubts == () or {doubt.code for doubt in value.doubts} == {"negative_offset"}
        assert definition.encode_value(key.key_type, value.version, value.fields, dialect=dialect) == raw_value

    def test_the_fast_decoders_say_the_same(self, example: dict[str, Any]) -> None:
        raw_key = bytes.fromhex(example["key_hex"])
        raw_value = None if example["value_hex"] is None else bytes.fromhex(example["value_hex"])
        key_type = example["key"]["type"]
        if key_type != 9:
            shown = None if example["value"] is None else json.dumps(example["value"]["data"], separators=(",", ":"), ensure_ascii=False)
            assert value_json_texts([key_type], [raw_value]) == [shown]
            assert key_json_texts([raw_key]) == [json.dumps(example["key"]["data"], separators=(",", ":"), ensure_ascii=False)]
