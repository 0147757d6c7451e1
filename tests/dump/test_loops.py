"""The compiled loop writes the lines that ``JsonLines.line`` defines, and leaves to it only what brokers do not usually write."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from groupcoord_spark.dump import json_lines
from groupcoord_spark.dump.json_lines import Counts, JsonLines, Selection
from groupcoord_spark.dump.redaction import Redaction
from groupcoord_spark.log import Chunk, Records
from groupcoord_spark.protocol import RECORD_TYPES, encode_key, encode_value
from groupcoord_spark.protocol.primitives import java_text
from groupcoord_spark.protocol.slices import Slices
from tests.conftest import by_each_decoder
from tests.examples import examples, randoms
from tests.protocol.from_tables import KNOWN_TYPES, damaged, damaged_keys, key, typed_value

LEAST, GREATEST = -(2**63), 2**63 - 1
MEMBER = {
    "member_id": "m-1", "group_instance_id": None, "client_id": "client", "client_host": "/10.0.0.1", "rebalance_timeout_ms": 300_000,
    "session_timeout_ms": 45_000, "subscription": b"subscription", "assignment": b"",
}  # fmt: skip


HEX = "61 7f 80 bf c1 c2 c3a9 e0 9f e0a0 e697a5 ed9fbf ed a0 eda080 edbf f0 90 8f f09f9880 f09f98 f4 f48fbfbf f5 ff"
UTF8_PARTS = [bytes.fromhex(part) for part in HEX.split()]
"""Characters, parts of characters, encoded surrogates and bytes that are never in UTF-8."""


class Row(NamedTuple):
    """A record, and the leader epoch of its batch."""

    key: bytes | None
    value: bytes | None
    record_offset: int = 0
    timestamp_ms: int = 1_700_000_000_000
    producer_id: int = -1
    producer_epoch: int = -1
    is_transactional: bool = False
    control_type: int = -1
    leader_epoch: int = 0


def chunk(rows: Sequence[Row]) -> Chunk:
    """Return the rows as a chunk; their record offsets are made different."""
    number = np.arange(len(rows))
    columns = Row(*([row[field] for row in rows] for field in range(len(Row._fields))))  # type: ignore[arg-type]
    records = Records(
        record_offset=number + min([row.record_offset for row in rows], default=0),
        timestamp_ms=np.array(columns.timestamp_ms, np.int64),
        key=Slices.of(columns.key),  # type: ignore[arg-type]
        value=Slices.of(columns.value),  # type: ignore[arg-type]
        producer_id=np.array(columns.producer_id, np.int64),
        producer_epoch=np.array(columns.producer_epoch, np.int16),
        is_transactional=np.array(columns.is_transactional, np.bool_),
        control_type=np.array(columns.control_type, np.int8),
        position=number,
    )
    return Chunk(records, [], [], 0, record_leader_epoch=np.array(columns.leader_epoch, np.int32))


def dumped(rows: Sequence[Row], redaction: Redaction | None = None, *, with_bytes: bool = False) -> tuple[bytes, Counts]:
    """Return the lines of the rows, and the counts."""
    counts = Counts()
    lines = JsonLines(7, Selection(), counts, redaction, with_bytes=with_bytes)
    return b"".join(lines.blocks(chunk(rows))), counts


numbers = st.sampled_from([LEAST, -1, 0, 9, 10, 99, 100, 10**12, 10**18, GREATEST]) | st.integers(LEAST, GREATEST)


def keyed_value(rng: Random) -> tuple[bytes, bytes]:
    """Return the key of a record and its value, which may be damaged."""
    key_type, value = typed_value(rng)
    return key(rng, [key_type]), rng.choice([value, damaged(rng, value)])


rows = st.builds(
    lambda key_and_value, *rest: Row(*key_and_value, *rest),
    randoms.map(keyed_value) | st.tuples(st.none() | damaged_keys, st.none() | st.binary(max_size=8)),
    st.integers(0, GREATEST - 100),
    numbers,
    numbers,
    st.integers(-(2**15), 2**15 - 1),
    st.booleans(),
    st.sampled_from([-1] * 8 + [0, 1, 2, 127, -128]),
    st.integers(-(2**31), 2**31 - 1),
)


@examples(120)
@given(st.lists(rows, max_size=8), st.booleans(), st.booleans(), st.sampled_from([1, 1500, 1 << 20]))
def test_the_loop_writes_the_lines_of_the_definition(rows: list[Row], is_redacted: bool, with_bytes: bool, block_bytes: int) -> None:
    redaction = Redaction() if is_redacted else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_lines, "BLOCK_BYTES", block_bytes)
        of_loops, expected = by_each_decoder(lambda: dumped(rows, redaction, with_bytes=with_bytes))
    assert of_loops == expected


@pytest.mark.usefixtures("with_loops")
class TestWithoutTheDefinition:
    """What brokers write is never handed to ``JsonLines.line``."""

    @pytest.fixture(autouse=True)
    def _no_single_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object) -> None:
            raise AssertionError("a line was written by itself")

        monkeypatch.setattr(JsonLines, "line", refuse)

    @pytest.mark.parametrize("key_type", KNOWN_TYPES)
    @pytest.mark.parametrize("redaction", [None, Redaction()], ids=["plain", "redacted"])
    def test_keys_and_values_of_every_type_and_version(self, key_type: int, redaction: Redaction | None) -> None:
        record_type = RECORD_TYPES[key_type]
        key = encode_key(key_type, {field.name: field.absent_value() for field in record_type.key.fields})
        first, last = record_type.value.versions
        values = [
            encode_value(key_type, version, {field.name: field.absent_value() for field in record_type.value.fields_of(version)})
            for version in range(first, last + 1)
        ]
        lines, _ = dumped([Row(key, value) for value in [*values, None]], redaction)
        versions = [(line["value"] or {}).get("version") for line in map(json.loads, lines.splitlines())]
        assert versions == [*range(first, last + 1), None]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "plain",
            "a text of more than eight bytes",
            'quote"',
            "back\\slash and more",
            "\x00\x08\t\n\x0b\x0c\r\x1f\x7f",
            "é日😀",
            "x" * 40 + "é",
        ],
    )
    def test_texts_with_and_without_escapes(self, text: str) -> None:
        key = encode_key(1, {"group_id": text, "topic": text, "partition": -5})
        value = encode_value(1, 3, {"committed_offset": 5, "leader_epoch": -1, "metadata": text, "commit_timestamp_ms": 7})
        lines, _ = dumped([Row(key, value)])
        line = json.loads(lines)
        assert line["key"]["data"] == {"group": text, "topic": text, "partition": -5}
        assert line["value"]["data"]["metadata"] == text

    @settings(examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(st.lists(st.sampled_from(UTF8_PARTS), max_size=12).map(b"".join))
    @example(b"".join(UTF8_PARTS))
    def test_texts_that_are_not_utf8_are_replaced_as_java_does(self, raw: bytes) -> None:
        lines, _ = dumped([Row(b"\0\2" + len(raw).to_bytes(2, "big") + raw, None)])
        assert json.loads(lines)["key"]["data"]["group"] == java_text(raw)[0]

    def test_markers_and_commits_of_transactions(self) -> None:
        rows = [Row(b"\0\0\0\1", b"marker", producer_id=GREATEST, producer_epoch=3, is_transactional=True, control_type=c) for c in (0, 1)]
        lines, _ = dumped(rows, with_bytes=True)
        assert [json.loads(line)["control"] for line in lines.splitlines()] == ["ABORT", "COMMIT"]

    def test_a_line_that_is_longer_than_a_block(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(json_lines, "BLOCK_BYTES", 64)
        members = [{**MEMBER, "member_id": f"m-{number}", "assignment": bytes(1000)} for number in range(50)]
        fields = {"protocol_type": "consumer", "generation": 1, "protocol": "range", "leader": "m-0", "current_state_timestamp_ms": -1}
        value = encode_value(2, 3, {**fields, "members": members})
        lines, _ = dumped([Row(encode_key(2, {"group_id": "g"}), value)] * 3)
        for line in lines.splitlines():
            assert [member["memberId"] for member in json.loads(line)["value"]["data"]["members"]] == [f"m-{n}" for n in range(50)]


@pytest.mark.usefixtures("with_loops")
def test_more_hidden_texts_than_names_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("groupcoord_spark.dump.redaction._MOST_CACHED_NAMES", 4)
    rows = [Row(encode_key(5, {"group_id": "g", "member_id": f"m{n}" * 20}), None) for n in [*range(9), *range(9)]]
    lines, _ = dumped(rows, Redaction())
    names = [json.loads(line)["key"]["data"]["memberId"] for line in lines.splitlines()]
    assert len(set(names)) == 9
    assert names[:9] == names[9:]
