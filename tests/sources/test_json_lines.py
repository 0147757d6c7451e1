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
from groupcoord_spark.sources.rows import EVERY_ROW, ROW_SCHEMA, FilePiece
from tests.conftest import GOLDEN
from tests.examples import examples
from tests.sources.exports import kcat_lines, lines, raw_rows, text64

KEY = encode_key(1, {"group_id": "gr\u00fcppe", "topic": "t", "partition": 0})
VALUE = encode_value(1, 3, {"committed_offset": 200, "leader_epoch": -1, "metadata": "", "commit_timestamp_ms": 7})
PLACE = {"topic": "__consumer_offsets", "partition": 4, "offset": 12}


def pieces_of(*paths: Path) -> list[FilePiece]:
    return row_files(InputKind.JSON, list(map(str, paths))).pieces(EVERY_ROW)


def rows_of(*paths: Path) -> pa.Table:
    batches = [batch.rows for piece in pieces_of(*paths) for batch in read_lines(piece)]
    return pa.Table.from_batches(batches, ROW_SCHEMA)


def row_of(tmp_path: Path, line: dict[str, Any] | bytes) -> dict[str, Any]:
    (tmp_path / "in.jsonl").write_bytes(line + b"\n" if isinstance(line, bytes) else lines([line]))
    (row,) = rows_of(tmp_path / "in.jsonl").to_pylist()
    return row


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
            (b"{", "row_malformed", "no JSON"),
            (b'"text"', "row_malformed", "no JSON object"),
            (b"[" * 100_000, "row_malformed", "no JSON"),
            ({"key": "AAA=", "value": None}, "row_without_place", "partition None, offset None"),
            ({**PLACE, "offset": -1, "key": "AAA=", "value": None}, "row_without_place", "offset -1"),
            ({**PLACE, "partition": True, "key": "AAA=", "value": None}, "row_without_place", "partition True"),
            ({**PLACE, "partition": 2**31, "key": "AAA=", "value": None}, "row_without_place", "partition 2147483648"),
            ({**PLACE, "key": "AAA=", "value": "a-b"}, "row_malformed", "The value cannot be read: it is not base64"),
            ({**PLACE, "key": "AAA=", "value": 3}, "row_malformed", "The value is a int, not base64"),
            ({**PLACE, "key": "AAA="}, "row_malformed", "no key or no value"),
            ({**PLACE, "key": {"type": 1, "data": {}}, "value": None}, "row_malformed", "cannot be encoded"),
            ({**PLACE, "key": {"type": 99, "data": {}}, "value": None}, "row_malformed", "Key type 99 is not known"),
            ({**PLACE, "key": "\0\u4e00", "value": None}, None, None),
            ({**PLACE, "timestamp": "noon", "key": "AAA=", "value": None}, "row_malformed", "'noon'"),
            ({**PLACE, "timestamp": 1.5, "key": "AAA=", "value": None}, "row_malformed", "1.5"),
            ({**PLACE, "producer_id": "7", "key": "AAA=", "value": None}, "row_malformed", "producer_id is '7'"),
            ({**PLACE, "is_transactional": 1, "key": "AAA=", "value": None}, "row_malformed", "is_transactional is 1"),
        ],
    )  # fmt: skip
    def test_that_is_no_record_keeps_its_bytes_and_says_why(self, tmp_path, line, code, told):
        row = row_of(tmp_path, line)
        assert row["fault"] == code
        if code:
            assert told in row["detail"]
            assert row["value"] == (line if isinstance(line, bytes) else lines([line])[:-1])


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
