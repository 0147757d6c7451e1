"""What an input is."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from groupcoord_spark.errors import InputError
from groupcoord_spark.sources.inputs import kind_of
from groupcoord_spark.sources.rows import InputKind
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
    assert kind_of([made(tmp_path / "c", gzip.compress(b'{"partition":0}\n'))]) is InputKind.JSON


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


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"pipe: this is neither a file nor a directory .* Give a file\.$"):
        kind_of([str(tmp_path / "pipe")])


def test_an_array_of_json_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"one JSON array\. Give lines of JSON"):
        kind_of([made(tmp_path / "a.json", '[{"partition":0}]')])
