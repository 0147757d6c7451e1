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
from groupcoord_spark.sources.inputs import InputKind, data_files, kind_of
from groupcoord_spark.storage.location import Location
from groupcoord_spark.wording import first_of
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


RECORD = '{"partition": 0, "offset": 0, "key": "AAE=", "value": null}\n'
MANIFEST = '{\n  "files": ["a"],\n  "rows": 28\n}\n'
KEPT = "kept by a writer for itself (the name begins with '%s')"
LINES, PARQUET = InputKind.JSON, InputKind.PARQUET


@pytest.mark.parametrize(
    ("files", "kind", "data", "reasons"),
    [
        ({"part-0.parquet": "PAR1", "_SUCCESS": "", ".part-0.parquet.crc": "crc", "_metadata": "PAR1"}, PARQUET, ["part-0.parquet"], {}),
        ({"000000_0": "PAR1", "part-0.parquet": "PAR1"}, PARQUET, ["000000_0", "part-0.parquet"], {}),
        ({"a.parquet": "PAR1", "manifest.json": MANIFEST}, PARQUET, ["a.parquet"], {"manifest.json": "JSON without records"}),
        ({"manifest.json": MANIFEST, "sub/a.parq": "PAR1"}, PARQUET, ["sub/a.parq"], {"manifest.json": "JSON without records"}),
        ({"a.parquet": "PAR1", "events.jsonl": '{"a": 1}\n{"a": 2}\n'}, PARQUET, ["a.parquet"], {"events.jsonl": "JSON without records"}),
        ({"a.parquet": "PAR1", "list.json": '["a.parquet"]'}, PARQUET, ["a.parquet"], {"list.json": "neither Parquet nor lines of JSON"}),
        ({"a.parquet": "PAR1", "_b.parquet": "PAR1"}, PARQUET, ["a.parquet"], {"_b.parquet": KEPT % "_"}),
        ({"a.parquet": "PAR1", "_temporary/0/b.parquet": "PAR1"}, PARQUET, ["a.parquet"], {"_temporary/0/b.parquet": KEPT % "_"}),
        ({"+tmp/x/b.parquet": "PAR1", "x/a.parquet": "PAR1"}, PARQUET, ["x/a.parquet"], {"+tmp/x/b.parquet": KEPT % "+"}),
        ({"_partition=4/a.parquet": "PAR1"}, PARQUET, ["_partition=4/a.parquet"], {}),
        ({"a.parquet": "PAR1", "b.parquet": ""}, PARQUET, ["a.parquet"], {"b.parquet": "empty"}),
        ({"a.parquet": "PAR1", "b.parquet.tmp": "PAR1"}, PARQUET, ["a.parquet"], {"b.parquet.tmp": "not finished by its writer"}),
        ({"__consumer_offsets.parquet": "PAR1"}, PARQUET, ["__consumer_offsets.parquet"], {}),
        ({"__consumer_offsets-4": RECORD, "__consumer_offsets-5": RECORD}, LINES, ["__consumer_offsets-4", "__consumer_offsets-5"], {}),
        ({"__consumer_offsets-4/a.json": RECORD}, LINES, ["__consumer_offsets-4/a.json"], {}),
        ({"x/__consumer_offsets-4/b.parquet": "PAR1"}, PARQUET, ["x/__consumer_offsets-4/b.parquet"], {}),
        (
            {**{f"notes-{number:02}": "text" for number in range(30)}, "z.parquet": "PAR1"},
            PARQUET,
            ["z.parquet"],
            {f"notes-{number:02}": "neither Parquet nor lines of JSON" for number in range(30)},
        ),
        ({"a.jsonl": RECORD, "__consumer_offsets-b.jsonl": RECORD}, LINES, ["__consumer_offsets-b.jsonl", "a.jsonl"], {}),
        (
            {"topics/__consumer_offsets/partition=0/a.json": RECORD, "topics/orders/partition=0/a.json": RECORD},
            LINES,
            ["topics/__consumer_offsets/partition=0/a.json"],
            {"topics/orders/partition=0/a.json": "not below __consumer_offsets, but in orders"},
        ),
        ({"topics/__consumer_offsets/y=2026/m=11/d=28/h=08/a.json": RECORD, "topics/orders/a.avro": "Obj\x01"}, LINES, None, None),
        (
            {"dump.json": RECORD, "dump.json.sha256": "0a1b  dump.json", "README.md": "# Dump"},
            LINES,
            ["dump.json"],
            {"README.md": "neither Parquet nor lines of JSON", "dump.json.sha256": "neither Parquet nor lines of JSON"},
        ),
        ({"a.jsonl": RECORD, "manifest.json": MANIFEST}, LINES, ["a.jsonl"], {"manifest.json": "JSON without records"}),
        ({"a.jsonl": RECORD, "b.jsonl": "broken at its beginning\n" + RECORD}, LINES, ["a.jsonl", "b.jsonl"], {}),
        ({"a.jsonl": RECORD, "b.jsonl": '{"other": 1}\n{"other": 2}\n'}, LINES, ["a.jsonl", "b.jsonl"], {}),
        ({"manifest.json": '{"rows": 28}\n'}, LINES, ["manifest.json"], {}),
        (
            {"a.parquet": "PAR1", "schema.sql": "CREATE TABLE a(key BLOB, partition INTEGER, offset BIGINT);\n"},
            PARQUET,
            ["a.parquet"],
            {"schema.sql": "neither Parquet nor lines of JSON"},
        ),
        (
            {"logs/__consumer_offsets/4/log": "SEQ\x06", "topics/__consumer_offsets/partition=4/a.json": RECORD},
            LINES,
            ["topics/__consumer_offsets/partition=4/a.json"],
            {"logs/__consumer_offsets/4/log": "a write-ahead log of Connect's sink for HDFS"},
        ),
    ],
)  # fmt: skip
def test_a_folder_is_of_the_format_of_its_data_files_and_names_what_is_not_read(tmp_path, files, kind, data, reasons):
    for name, content in files.items():
        made(tmp_path / name, content)
    assert kind_of([str(tmp_path)]) is kind
    found = data_files(Location.of(str(tmp_path)), kind)
    if data is not None:
        assert list(found.sizes) == data
        by_reason = {reason: [name for name in sorted(reasons) if reasons[name] == reason] for reason in reasons.values()}
        told = [f"{first_of(names)} ({reason})" for reason, names in by_reason.items()]
        assert (str(found.remark).rpartition(": ")[2] if reasons else found.remark) == ("; ".join(told) + "." if reasons else None)


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"a.parquet": "PAR1", "b.jsonl": RECORD}, "the folder has files of two formats: a.parquet is Parquet and b.jsonl is lines of"),
        ({"a.jsonl": RECORD, "b/c": "PAR1"}, "the folder has files of two formats: b/c is Parquet and a.jsonl is lines of JSON"),
        ({"a.avro": "Obj\x01"}, "a.avro: this is Avro, which is not read. Write it to Parquet first"),
        ({"a.jsonl": RECORD, "b.avro": "Obj\x01"}, "b.avro: this is Avro"),
        ({"a.orc": "ORC"}, "a.orc: this is ORC"),
        ({"a.arrow": "ARROW1"}, "a.arrow: this is an Arrow file"),
        ({"a.jsonl": RECORD, "b.json.bz2": "BZh"}, "b.json.bz2: this file is not packed by gzip or zstd"),
        ({"a.jsonl": RECORD, "b.json": f"[{RECORD}]"}, "b.json: this is one JSON array"),
        ({"a.jsonl": RECORD, "b.json": '{\n"partition": 0,\n"offset": 0}'}, "b.json: line 1 is not JSON"),
        ({"a.csv": "topic,partition,offset,key,value\n"}, "a.csv: this is CSV, which is not read"),
        ({"dump.txt": DUMP_LOG}, "dump.txt: this is the text of kafka-dump-log"),
        ({"t/_delta_log/0.json": "{}", "t/a.parquet": "PAR1"}, "t: this is a Delta table in a folder. Give the table itself as the INPUT"),
        (
            {"topics/__consumer_offsets/partition=4/__consumer_offsets+4+0.bin": "\0\1", "topics/README": "text"},
            "its files are neither segments of a log, Parquet nor lines of JSON, for example topics/__consumer_offsets/partition=4/",
        ),
        ({"metadata/v1.metadata.json": "{}", "data/a.parquet": "PAR1"}, "this is a table of Iceberg"),
        ({"x/.hoodie/hoodie.properties": "", "x/a.parquet": "PAR1"}, "x: this is a table of Hudi"),
    ],
)  # fmt: skip
def test_a_folder_that_would_be_read_in_part_is_refused(tmp_path, files, sentence):
    for name, content in files.items():
        made(tmp_path / name, content)
    with pytest.raises(InputError) as told:
        data_files(Location.of(str(tmp_path)), kind_of([str(tmp_path)]))
    assert str(told.value).startswith(str(tmp_path)) and sentence in str(told.value)


def test_a_directory_that_a_sink_calls_like_a_partition_is_known_by_its_files(tmp_path):
    made(tmp_path / "__consumer_offsets-4" / "a.json", RECORD)
    assert kind_of([str(tmp_path / "__consumer_offsets-4")]) is LINES
    made(tmp_path / "__consumer_offsets-4" / "00000000000000000000.log", "")
    assert kind_of([str(tmp_path / "__consumer_offsets-4")]) is kind_of([str(tmp_path)]) is InputKind.SEGMENTS


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
        ("a.ndjson", b"\n42\n", "line 2 is not JSON: it is not an object"),
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
    found = data_files(Location.of(str(tmp_path)), InputKind.PARQUET)
    assert (dict(found.sizes), "1 of 2 files is not read" in str(found.remark)) == ({"a.parquet": 4}, True)


@pytest.mark.parametrize(
    "line",
    [
        "[app,orders,0]::OffsetAndMetadata(offset=100, leaderEpoch=Optional.empty, metadata=)",
        "[app,orders,0]::[OffsetMetadata[100,NO_METADATA],CommitTime 1795000000000,ExpirationTime 1795086400000]",
        "[app,orders,0]::NULL",
        "app::GroupMetadata(groupId=app, generation=1, protocolType=Some(consumer))",
        "CreateTime:1795000000000\t[app,orders,0]::OffsetAndMetadata(offset=100)",
    ],
)  # fmt: skip
def test_the_text_of_kafkas_formatters_is_refused_with_what_to_give_instead(tmp_path, line):
    with pytest.raises(InputError, match=r"this is the text of a formatter of kafka-console-consumer.* Give the segments"):
        kind_of([made(tmp_path / "console.txt", line + "\n")])


def test_an_array_of_json_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"one JSON array\. Give lines of JSON"):
        kind_of([made(tmp_path / "a.json", '[{"partition":0}]')])
