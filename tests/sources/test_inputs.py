"""What an input is."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from groupcoord_spark.errors import InputError
from groupcoord_spark.log.files.storage import Location
from groupcoord_spark.sources.inputs import InputKind, data_files, kind_of
from tests.conftest import SAMPLE_LOGS

DUMP_LOG = """Dumping logs/__consumer_offsets-0/00000000000000000000.log
Log starting offset: 0
baseOffset: 0 lastOffset: 0 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1
| offset: 0 CreateTime: 1700000000000 keySize: 12 valueSize: 24 sequence: -1 headerKeys: [] key: {"type":"1"} payload: {"version":"3"}
"""


def made(place: Path, content: bytes | str) -> str:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(place)


def test_log_directories_partitions_and_segments_are_segments():
    partition = next(SAMPLE_LOGS.iterdir())
    for path in (SAMPLE_LOGS, SAMPLE_LOGS.parent, partition, next(partition.glob("*.log"))):
        assert kind_of([str(path)]) is InputKind.SEGMENTS


def test_a_file_is_known_by_how_it_begins_not_by_its_name(tmp_path):
    assert kind_of([made(tmp_path / "a", b"PAR1....")]) is InputKind.PARQUET
    assert kind_of([made(tmp_path / "b", ' \n{"partition":0}\n')]) is InputKind.JSON
    assert kind_of([made(tmp_path / "c", gzip.compress(b'{"partition":0}\n', mtime=0))]) is InputKind.JSON


def test_a_folder_is_what_its_first_file_is_and_what_writers_keep_for_themselves_does_not_count(tmp_path):
    made(tmp_path / "t" / "_SUCCESS", b"{")
    made(tmp_path / "t" / ".part-0.parquet.crc", b"{")
    made(tmp_path / "t" / "date=2026-11-21" / "part-0.parquet", b"PAR1")
    assert kind_of([str(tmp_path / "t")]) is InputKind.PARQUET
    (tmp_path / "t" / "_delta_log").mkdir()
    assert kind_of([str(tmp_path / "t")]) is InputKind.DELTA


def test_a_topic_is_known_by_its_scheme():
    assert kind_of(["kafka://host:9092"]) is InputKind.KAFKA


def test_what_is_nothing_known_is_left_to_the_reader_of_segments(tmp_path):
    assert kind_of([str(tmp_path / "nothing")]) is InputKind.SEGMENTS
    assert kind_of([str(tmp_path)]) is InputKind.SEGMENTS
    assert kind_of([made(tmp_path / "notes.txt", "not a log")]) is InputKind.SEGMENTS


def test_several_kinds_at_once_are_refused_in_one_sentence(tmp_path):
    table, text = made(tmp_path / "a", b"PAR1"), made(tmp_path / "b", "{}")
    with pytest.raises(InputError, match=r"a is Parquet and \S+b is lines of JSON: one run reads one kind of input"):
        kind_of([table, text])


@pytest.mark.parametrize("text", [DUMP_LOG, DUMP_LOG.partition("\n")[2], DUMP_LOG.partition("\n")[2].partition("\n")[2]])
def test_the_text_of_kafka_dump_log_is_refused_with_what_to_give_instead(tmp_path, text):
    path = made(tmp_path / "00000000000000000000.log", text)
    with pytest.raises(InputError, match=r"this is the text of kafka-dump-log, .* Give the segments that it was made of, or what") as told:
        kind_of([path])
    assert str(told.value).startswith(path)


def test_what_only_begins_like_gzip_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"begins like gzip and cannot be unpacked: .* Copy it again\.$"):
        kind_of([made(tmp_path / "a.gz", b"\x1f\x8b\x08garbage garbage")])


def archives() -> dict[str, bytes]:
    """Archives by name: of each kind with the sample's log directory in it, and without a name that says so."""
    packed = {}
    for name, mode in (
        ("logs.tar", "w"),
        ("logs.tar.gz", "w:gz"),
        ("logs.tgz", "w:gz"),
        ("logs.tar.bz2", "w:bz2"),
        ("logs.tar.xz", "w:xz"),
    ):
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode=mode) as archive:
            archive.add(SAMPLE_LOGS, "logs")
        packed[name] = buffer.getvalue()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("logs/meta.properties", "version=1")
    packed |= {
        "logs.zip": buffer.getvalue(),
        "empty.zip": b"PK\x05\x06" + bytes(18),
        "logs.7z": b"7z\xbc\xaf\x27\x1c",
        "cut.tar.gz": b"\x1f\x8b",
    }
    packed["logs.tar.zst"] = pa.compress(packed["logs.tar"], "zstd", asbytes=True)
    return packed | {
        f"copy {number}": content for number, content in enumerate(packed.values()) if content[:2] != b"\x1f\x8b" or len(content) > 2
    }


@pytest.mark.parametrize(("name", "content"), archives().items(), ids=archives())
def test_an_archive_is_to_be_unpacked_first(tmp_path, name, content):
    with pytest.raises(
        InputError, match=r"this is an archive: unpack it first, and give the directory or the file that comes out\.$"
    ) as told:
        kind_of([made(tmp_path / name, content)])
    assert str(told.value).startswith(str(tmp_path / name))


def test_a_packed_segment_is_to_be_unpacked_first(tmp_path):
    segment = next(SAMPLE_LOGS.glob("*/*.log")).read_bytes()
    with pytest.raises(InputError, match=r"a packed file without lines of JSON in it: unpack it first"):
        kind_of([made(tmp_path / "00000000000000000000.log.gz", gzip.compress(segment, mtime=0))])


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.jsonl", b"", "line 1 is not JSON: the file is empty"),
        ("a.jsonl", b"\n\n", "line 1 is not JSON: the file is empty"),
        ("a.jsonl.gz", gzip.compress(b"", mtime=0), "line 1 is not JSON: the file is empty"),
        ("a.jsonl", b"hello\n{}\n", "line 1 is not JSON: Expecting value"),
        ("a.jsonl.gz", gzip.compress(b"hello\n", mtime=0), "line 1 is not JSON: Expecting value"),
        ("a.jsonl.zst", pa.compress(b"hello\n", "zstd", asbytes=True), "line 1 is not JSON: Expecting value"),
        ("a.ndjson", b"\n42\n", "line 2 is not JSON: it is no object"),
        ("a", b"{broken\n", "line 1 is not JSON: Expecting property name"),
        ("a.jsonl", b"\x00\x01\x02", "line 1 is not JSON: Expecting value"),
    ],
)  # fmt: skip
def test_lines_of_json_that_begin_with_something_else_are_refused(tmp_path, name, content, fault):
    with pytest.raises(InputError) as told:
        kind_of([made(tmp_path / name, content)])
    assert str(told.value).startswith(f"{tmp_path / name}: {fault}")
    assert str(told.value).endswith("Give lines of JSON, one record a line.")


@pytest.mark.parametrize("line", [b'{"partition": 0}', b'\xef\xbb\xbf{"a": 1}\n', b'{"a": "\xff\x00"}'.replace(b"\x00", b"")])
def test_a_first_line_of_json_is_taken_whatever_its_letters(tmp_path, line):
    assert kind_of([made(tmp_path / "a.jsonl", line)]) is InputKind.JSON


def test_a_first_line_longer_than_what_is_looked_at_is_not_judged(tmp_path):
    assert kind_of([made(tmp_path / "a.jsonl", b'{"a": "' + b"x" * (1 << 17) + b'"}\n')]) is InputKind.JSON


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe: this is neither a file nor a directory .* Give a file\.$"):
        kind_of([str(tmp_path / "pipe")])


def test_a_name_that_is_not_utf_8_hinders_no_file_beside_it(tmp_path):
    made(tmp_path / "a.parquet", b"PAR1")
    made(tmp_path / os.fsdecode(b"\xe9.txt"), b"x")
    assert kind_of([str(tmp_path)]) is InputKind.PARQUET
    assert data_files(Location.of(str(tmp_path))) == [("a.parquet", 4)]


def test_an_array_of_json_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"one JSON array\. Give lines of JSON"):
        kind_of([made(tmp_path / "a.json", '[{"partition":0}]')])
