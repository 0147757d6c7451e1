"""Lines of JSON as raw rows."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.pipeline.read.rows import row_files
from groupcoord_spark.protocol import encode_key, encode_value
from groupcoord_spark.sources import json_lines
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.sources.json_lines import read_lines
from groupcoord_spark.sources.rows import EVERY_ROW, ROW_SCHEMA, VALUE_THERE, FilePiece, RowBatch
from tests.conftest import GOLDEN
from tests.examples import examples
from tests.sources.exports import kcat_lines, lines, raw_rows, text64

KEY = encode_key(1, {"group_id": "gr\u00fcppe", "topic": "t", "partition": 0})
VALUE = encode_value(1, 3, {"committed_offset": 200, "leader_epoch": -1, "metadata": "", "commit_timestamp_ms": 7})
COMMIT_3_9 = {"offset": 200, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 7}
PLACE = {"topic": "__consumer_offsets", "partition": 4, "offset": 12}


def pieces_of(*paths: Path) -> list[FilePiece]:
    return row_files(InputKind.JSON, list(map(str, paths))).pieces(EVERY_ROW)


def batches_of(*paths: Path) -> list[RowBatch]:
    files = row_files(InputKind.JSON, list(map(str, paths)))
    return [batch for piece in files.pieces(EVERY_ROW) for batch in read_lines(piece, files.forms)]


def rows_of(*paths: Path) -> pa.Table:
    return pa.Table.from_batches([batch.rows for batch in batches_of(*paths)], ROW_SCHEMA)


def row_of(tmp_path: Path, line: dict[str, Any] | bytes) -> dict[str, Any]:
    (tmp_path / "in.jsonl").write_bytes(line + b"\n" if isinstance(line, bytes) else lines([line]))
    (row,) = rows_of(tmp_path / "in.jsonl").to_pylist()
    return row


def test_what_only_the_path_has_is_a_field_of_every_line(tmp_path):
    folder = tmp_path / "topic=__consumer_offsets" / "partition=4" / "day=28"
    folder.mkdir(parents=True)
    line = {"offset": 12, "key": text64(KEY), "value": None}
    (folder / "a.jsonl").write_bytes(lines([line, {**line, "partition": 7}, {**line, "topic": "orders"}]))
    assert rows_of(tmp_path)["offsets_partition"].to_pylist() == [4, 7]
    (batch,) = [batch for piece in pieces_of(tmp_path) for batch in read_lines(piece)]
    assert (batch.other_topics, batch.topics) == (1, {"orders"})


class TestALine:
    @pytest.mark.parametrize(
        "line",
        [
            {"ts": 5, "key": text64(KEY), "payload": text64(VALUE)},
            {"timestamp": "1970-01-01T00:00:00.005Z", "key": text64(KEY), "value": text64(VALUE), "headers": []},
            {"timestamp": 5, "key": {"schema": {"type": "bytes"}, "payload": text64(KEY)}, "value": {"payload": text64(VALUE)}},
            {"timestamp": 5, "key_base64": text64(KEY), "value_base64": text64(VALUE), "key": {"type": 0}, "value": None},
            {"timestamp": 5, "key": KEY.decode("latin-1"), "value": None, "value_base64": text64(VALUE)},
        ],
    )  # fmt: skip
    def test_has_its_fields_under_any_of_their_names(self, tmp_path, line):
        text = json.dumps({**PLACE, **line}, ensure_ascii=False).encode("latin-1")
        row = row_of(tmp_path, text)
        assert (row["offsets_partition"], row["record_offset"], row["record_timestamp_ms"]) == (4, 12, 5)
        assert (row["key"], row["value"], row["fault"]) == (KEY, VALUE, None)
        assert (row["producer_id"], row["is_transactional"], row["control_type"]) == (-1, False, None)

    def test_may_be_in_connects_envelope(self, tmp_path):
        inner = {**PLACE, "key": text64(KEY), "value": None}
        row = row_of(tmp_path, {"schema": {"type": "struct"}, "payload": inner})
        assert (row["key"], row["value"], row["record_timestamp_ms"], row["fault"]) == (KEY, None, -1, None)

    def test_of_kafkas_formatters_is_encoded_again(self, tmp_path):
        key = {"type": 1, "data": {"group": "gr\u00fcppe", "topic": "t", "partition": 0}}
        value = {"version": 3, "data": {"offset": 200, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 7}}
        row = row_of(tmp_path, {**PLACE, "key": key, "value": value})
        assert (row["key"], row["value"], row["fault"]) == (KEY, VALUE, None)

    @pytest.mark.parametrize(
        ("line", "code", "told"),
        [
            (b"{", "row_malformed", "not JSON"),
            (b'"text"', "row_malformed", "not a JSON object"),
            (b"[" * 100_000, "row_malformed", "not JSON"),
            ({"key": "AAA=", "value": None}, "row_without_place", "partition None, offset None"),
            ({**PLACE, "offset": -1, "key": "AAA=", "value": None}, "row_without_place", "offset -1"),
            ({**PLACE, "partition": True, "key": "AAA=", "value": None}, "row_without_place", "partition True"),
            ({**PLACE, "partition": 2**31, "key": "AAA=", "value": None}, "row_without_place", "partition 2147483648"),
            ({**PLACE, "key": text64(KEY), "value": "a*b"}, "row_malformed", "The value cannot be read: it is not base64"),
            ({**PLACE, "key": "AAA=", "value": 3}, "row_malformed", "The value is a int, not base64"),
            ({**PLACE, "value": "AAA="}, "row_malformed", "The line has no key: it has none of the fields key_base64, key."),
            ({**PLACE, "key": {"type": 1, "data": {}}, "value": None}, "row_malformed", "cannot be encoded"),
            ({**PLACE, "key": {"type": 99, "data": {}}, "value": None}, "row_malformed", "Key type 99 is not known"),
            ({**PLACE, "key": "\0\1\0\3\u4e00\0\1t\0\0\0\0", "value": None}, None, None),
            ({**PLACE, "timestamp": "noon", "key": "AAA=", "value": None}, "row_malformed", "'noon'"),
            ({**PLACE, "timestamp": True, "key": "AAA=", "value": None}, "row_malformed", "True"),
            ({**PLACE, "producer_id": "x", "key": "AAA=", "value": None}, "row_malformed", "producer_id is 'x'"),
            ({**PLACE, "is_transactional": 1, "key": "AAA=", "value": None}, "row_malformed", "is_transactional is 1"),
        ],
    )  # fmt: skip
    def test_that_is_no_record_keeps_its_bytes_and_says_why(self, tmp_path, line, code, told):
        row = row_of(tmp_path, line)
        assert row["fault"] == code
        if code:
            assert told in row["detail"]
            assert row["value"] == (line if isinstance(line, bytes) else lines([line])[:-1])


def numbers(raw: bytes) -> list[int]:
    return [*raw]


WHERE_3_9 = {"version": 1, "data": {"group": "gr\u00fcppe", "topic": "t", "partition": 0}}
ACCEPTED: dict[str, tuple[dict[str, Any], bytes | None, dict[str, int]]] = {
    "numbers as text": ({"partition": "4", "offset": "12", "timestamp": "1795000000000"}, VALUE, {}),
    "numbers of a Buffer": (
        {"key": {"type": "Buffer", "data": numbers(KEY)}, "value": {"type": "Buffer", "data": numbers(VALUE)}},
        VALUE,
        {},
    ),
    "numbers of a Uint8Array": ({"value": {str(at): byte for at, byte in enumerate(VALUE)}}, VALUE, {}),
    "a list of numbers": ({"key": numbers(KEY), "value": numbers(VALUE)}, VALUE, {}),
    "a list of signed numbers": ({"value": [byte - 256 if byte > 127 else byte for byte in VALUE]}, VALUE, {}),
    "a message of KafkaJS": (
        {"message": {"offset": "12", "key": numbers(KEY), "value": numbers(VALUE)}, "-": "key offset value"},
        VALUE,
        {},
    ),
    "names of ClickHouse's engine": ({"_key": text64(KEY), "_partition": "4", "_offset": "12", "-": "key partition offset"}, VALUE, {}),
    "names of Benthos": (
        {"kafka_key": text64(KEY), "kafka_partition": 4, "kafka_offset": 12, "content": text64(VALUE), "-": "key partition offset value"},
        VALUE,
        {},
    ),
    "names of Trino": (
        {"_key": text64(KEY), "_partition_id": 4, "_partition_offset": 12, "_message": text64(VALUE), "-": "key partition offset value"},
        VALUE,
        {},
    ),
    "floats of pandas": ({"partition": 4.0, "offset": 12.0, "timestamp": 1795000000000.0}, VALUE, {}),
    "no value": ({"value": None, "-": "value"}, None, {"value_absent": 1}),
    "an empty value": ({"value": ""}, None, {"value_empty": 1}),
    "blanks for a value": ({"value": " \n"}, None, {"value_empty": 1}),
    "no topic": ({"topic": None}, VALUE, {}),
    "a key of Kafka 3.9's formatter": ({"key": WHERE_3_9, "value": {"version": 3, "data": COMMIT_3_9}}, VALUE, {}),
    "a tombstone of Kafka 3.9's formatter": ({"key": WHERE_3_9, "value": None}, None, {}),
    "seconds": ({"timestamp": 1795000000}, VALUE, {"seconds": 1}),
    "seconds with a fraction": ({"timestamp": 1795000000.0004}, VALUE, {"seconds": 1}),
    "microseconds as text": ({"timestamp": "1795000000000999"}, VALUE, {"microseconds": 1}),
    "nanoseconds": ({"timestamp": 1795000000000999999}, VALUE, {"nanoseconds": 1}),
    "a time as Trino prints it": ({"timestamp": "2026-11-18 11:06:40.000 UTC"}, VALUE, {}),
    "a time as Postgres prints it": ({"timestamp": "2026-11-18 11:06:40+00"}, VALUE, {}),
}


@pytest.mark.parametrize("form", ACCEPTED)
def test_a_line_may_be_written_so(tmp_path: Path, form: str) -> None:
    changed, value, counts = ACCEPTED[form]
    line = {**PLACE, "timestamp": 1795000000000, "key": text64(KEY), "value": text64(VALUE), **changed}
    for name in line.pop("-", "").split():
        del line[name]
    (tmp_path / "in.jsonl").write_bytes(lines([line]))
    (batch,) = batches_of(tmp_path / "in.jsonl")
    (row,) = batch.rows.to_pylist()
    assert (row["fault"], row["offsets_partition"], row["record_offset"], row["record_timestamp_ms"]) == (None, 4, 12, 1795000000000)
    assert (row["key"], row["value"]) == (KEY, value)
    assert {code: count for code, count in batch.counts.items() if code != VALUE_THERE} == counts


def test_a_text_in_another_form_than_the_first_rows_is_a_fault(tmp_path: Path) -> None:
    good = [{**PLACE, "offset": offset, "key": text64(KEY), "value": text64(VALUE)} for offset in range(9)]
    (tmp_path / "in.jsonl").write_bytes(lines([*good, {**PLACE, "key": text64(KEY), "value": repr(VALUE)}]))
    rows = rows_of(tmp_path / "in.jsonl").to_pylist()
    assert [row["fault"] for row in rows] == [None] * 9 + ["row_malformed"]
    assert "The value cannot be read: it is not base64, the form of the first rows: " in rows[9]["detail"]


def test_what_kcat_prints_is_read_back_byte_for_byte(tmp_path):
    raw = raw_rows(GOLDEN / "classic-modern" / "logs")
    (tmp_path / "kcat").write_bytes(b"".join(kcat_lines(raw)))
    found = rows_of(tmp_path / "kcat")
    data = raw.filter(raw["control_type"].is_null())
    assert found["fault"].null_count == data.num_rows
    for name in ("offsets_partition", "record_offset", "record_timestamp_ms", "key", "value"):
        assert found[name].to_pylist() == data[name].to_pylist()


def test_rows_of_other_topics_are_counted_and_left_out(tmp_path):
    (tmp_path / "in").write_bytes(
        lines([{**PLACE, "topic": "orders", "key": None, "value": "no base64"}, {**PLACE, "key": "AAA=", "value": None}])
    )
    (piece,) = pieces_of(tmp_path / "in")
    (batch,) = read_lines(piece)
    assert (batch.rows.num_rows, batch.other_topics, batch.lacks) == (1, 1, {"transactions", "timestamps", "leader_epochs"})


@pytest.mark.parametrize("packed", [gzip.compress, lambda data: pa.Codec("zstd").compress(data, asbytes=True)])
def test_packed_files_are_read_with_the_positions_of_their_text(tmp_path, packed):
    text = lines({**PLACE, "offset": offset, "key": "AAA=", "value": None} for offset in range(3))
    if packed is not gzip.compress:
        with pa.CompressedOutputStream(str(tmp_path / "in"), "zstd") as stream:
            stream.write(text)
    else:
        (tmp_path / "in").write_bytes(packed(text))
    found = rows_of(tmp_path / "in")
    assert found["record_offset"].to_pylist() == [0, 1, 2]
    assert found["position"].to_pylist() == [0, len(text) // 3, 2 * len(text) // 3]


def test_a_packed_file_that_is_cut_is_told(tmp_path):
    from groupcoord_spark.errors import InputError

    (tmp_path / "in.gz").write_bytes(gzip.compress(lines({**PLACE, "key": "AAA=", "value": None} for _ in range(100)))[:-20])
    with pytest.raises(InputError, match=r"in.gz: the file cannot be read"):
        rows_of(tmp_path / "in.gz")


TEXTS = st.lists(st.sampled_from([b"", b"{}", b"[1]", b'{"partition":0}', b"x" * 20, b"\r"]), max_size=12)


@examples(60)
@given(TEXTS, st.booleans(), st.integers(1, 30), st.integers(1, 9))
def test_every_line_is_in_one_piece_wherever_pieces_begin(tmp_path_factory, texts, ends_in_newline, step, block):
    path = tmp_path_factory.mktemp("lines") / "in"
    data = b"\n".join(texts) + (b"\n" if ends_in_newline else b"")
    path.write_bytes(data)
    pieces = [FilePiece(str(path), at, min(at + step, len(data)), len(data)) for at in range(0, len(data), step)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(json_lines, "_READ_BYTES", block)
        found = [line for piece in pieces for line in json_lines._lines_of(piece)]
    expected, at = [], 0
    for line in data.split(b"\n"):
        if line.strip():
            expected.append((at, line))
        at += len(line) + 1
    assert found == expected


def test_a_line_that_is_too_long_costs_itself_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(json_lines, "LONGEST_LINE", 100)
    monkeypatch.setattr(json_lines, "_READ_BYTES", 64)
    (tmp_path / "in").write_bytes(b'{"a":1}\n' + b"x" * 1000 + b'\n{"b":1}\n' + b"y" * 101)
    assert [(row["position"], row["fault"]) for row in rows_of(tmp_path / "in").to_pylist()] == [
        (0, "row_without_place"),
        (8, "line_too_long"),
        (1009, "row_without_place"),
        (1017, "line_too_long"),
    ]
