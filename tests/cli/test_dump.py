"""``groupcoord dump``."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from base64 import b64decode
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from groupcoord_spark.dump import json_lines
from groupcoord_spark.protocol import encode_key, encode_value
from tests.cli import warehouse
from tests.conftest import decoder
from tests.log.log_writer import Rec, batch, marker, message, write_segment

GOLDEN = Path(__file__).parent.parent / "golden"
CORPORA = sorted(path.parent.parent.relative_to(GOLDEN).as_posix() for path in GOLDEN.rglob("oracle/records.jsonl.gz"))
CONNECT = GOLDEN / "connect"
NO_PRODUCER = ',"producer_id":-1,"producer_epoch":-1,"is_transactional":false,"control":null}'
OFFSET_KEY = encode_key(1, {"group_id": "g", "topic": "t", "partition": 0})
OFFSET_KEY_JSON = {"type": 1, "data": {"group": "g", "topic": "t", "partition": 0}}
GROUP_KEY_JSON = {"type": 2, "data": {"group": "g"}}


def groupcoord(*arguments: object) -> Result:
    return warehouse.groupcoord(*map(str, arguments))


def dump(*arguments: object) -> list[dict[str, Any]]:
    result = groupcoord("dump", *arguments)
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.split("\n")[:-1]]


@cache
def expected(corpus: Path) -> list[dict[str, Any]]:
    """Kafka's own reading of the corpus, in the columns of a dump."""
    lines = []
    with gzip.open(corpus / "oracle/records.jsonl.gz", "rt") as told:
        for each in map(json.loads, told):
            is_marker = each["control"] is not None
            key, value = (None if is_marker else each[name] for name in ("key", "value"))
            lines.append(
                {
                    "offsets_partition": each["partition"],
                    "record_offset": each["offset"],
                    "timestamp": each["timestamp"],
                    "key": key and {"type": key["type"], "data": key.get("data")},
                    "value": value and {"version": value.get("version"), "data": value.get("data")},
                    "producer_id": each["producer_id"],
                    "producer_epoch": each["producer_epoch"],
                    "is_transactional": each["transactional"],
                    "control": each["control"],
                }
            )
    return lines


def commit(group: str, partition: int = 0, **changed: Any) -> Rec:
    """Return a commit of version 3."""
    fields = {"committed_offset": 5, "leader_epoch": -1, "metadata": "", "commit_timestamp_ms": 7}
    key = encode_key(1, {"group_id": group, "topic": "t", "partition": partition})
    return Rec(key, encode_value(1, 3, {**fields, **changed}), offset_delta=partition, timestamp_delta=partition)


@pytest.fixture(params=[("scalar", json_lines.BLOCK_BYTES), ("loops", json_lines.BLOCK_BYTES), ("loops", 3)])
def each_writer(request, monkeypatch) -> Iterator[None]:
    """Write each line by itself, then all by the compiled loop, then each into a block that is too small."""
    writer, block_bytes = request.param
    monkeypatch.setattr(json_lines, "BLOCK_BYTES", block_bytes)
    with decoder(writer):
        yield


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.usefixtures("each_writer")
def test_every_record_is_a_line_and_reads_as_kafka_reads_it(corpus):
    lines = dump(GOLDEN / corpus / "logs")
    extra = {"reason", "detail", "key_base64", "value_base64"}
    assert [{name: value for name, value in line.items() if name not in extra} for line in lines] == expected(GOLDEN / corpus)
    assert {line["reason"] for line in lines if "reason" in line} <= {"unknown_key_type"}


@pytest.mark.usefixtures("each_writer")
@pytest.mark.parametrize(
    ("log_start", "sentence"),
    [
        (0, "4 records."),
        (1, "3 records; 1 record below the log start is left out."),
        (3, "1 record; 3 records below the log start are left out."),
    ],
)
def test_records_below_the_log_start_are_counted(tmp_path, log_start, sentence):
    write_segment(tmp_path, [batch(0, [commit("g", 0), commit("g", 1)]), batch(2, [commit("h")])])
    write_segment(tmp_path, [batch(3, [commit("i")])], base_offset=3)
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\n__consumer_offsets 0 {log_start}\n")
    result = groupcoord("dump", tmp_path)
    assert (result.exit_code, result.stderr.strip()) == (0, sentence)
    assert len(result.stdout.splitlines()) == 4 - log_start


def test_a_line_has_key_and_value_as_kafkas_formatters_write_them(tmp_path):
    write_segment(tmp_path, [batch(12, [commit('a"b\n', metadata="\u00e9\\")])], base_offset=12, offsets_partition=4)
    assert groupcoord("dump", tmp_path, "--quiet").stdout == (
        '{"offsets_partition":4,"record_offset":12,"timestamp":1700000000000,'
        '"key":{"type":1,"data":{"group":"a\\"b\\n","topic":"t","partition":0}},'
        '"value":{"version":3,"data":{"offset":5,"leaderEpoch":-1,"metadata":"\u00e9\\\\","commitTimestamp":7}}' + NO_PRODUCER + "\n"
    )


@pytest.mark.usefixtures("each_writer")
class TestWhatDoesNotDecode:
    @pytest.mark.parametrize(
        ("key", "value", "shown_key", "shown_value", "reason"),
        [
            (b"\0\x18new", b"\0\x02?", {"type": 24, "data": None}, {"version": 2, "data": None}, "unknown_key_type"),
            (b"\xff\xffx", None, {"type": -1, "data": None}, None, "unknown_key_type"),
            (b"\0", b"", {"type": None, "data": None}, {"version": None, "data": None}, "key_too_short"),
            (None, b"x", None, {"version": None, "data": None}, "null_key"),
            (OFFSET_KEY, b"\0\x09", OFFSET_KEY_JSON, {"version": 9, "data": None}, "unknown_value_version"),
            (encode_key(2, {"group_id": "g"}), b"\0\x03\0", GROUP_KEY_JSON, {"version": 3, "data": None}, "value_truncated"),
        ],
    )  # fmt: skip
    def test_has_a_reason_and_its_bytes(self, tmp_path, key, value, shown_key, shown_value, reason):
        write_segment(tmp_path, [batch(0, [Rec(key, value)]), batch(1, [commit("after")])])
        result = groupcoord("dump", tmp_path)
        line, after = map(json.loads, result.stdout.splitlines())
        assert (line["key"], line["value"], line["reason"]) == (shown_key, shown_value, reason)
        kept = (line["key_base64"], line["value_base64"])
        assert tuple(each if each is None else b64decode(each) for each in kept) == (key, value)
        assert line["detail"].endswith(".")
        assert "reason" not in after
        assert f"2 records; 1 of them do not decode ({reason} 1)." in result.stderr

    def test_damage_is_told_on_stderr_and_the_records_around_it_are_shown(self, tmp_path):
        broken = bytearray(batch(1, [commit("broken")]))
        broken[-1] ^= 1
        write_segment(tmp_path, [batch(0, [commit("before")]), bytes(broken), batch(2, [commit("after")])])
        result = groupcoord("dump", tmp_path)
        assert result.exit_code == 0
        assert [json.loads(line)["record_offset"] for line in result.stdout.splitlines()] == [0, 2]
        assert "at byte" in result.stderr
        assert "1 place of the log is lost" in result.stderr
        assert groupcoord("dump", tmp_path, "--quiet").stderr == ""


class TestSelection:
    @pytest.mark.parametrize(
        ("options", "wanted"),
        [
            (["--from", "offset:3"], lambda line: line["record_offset"] >= 3),
            (["--to", "offset:3"], lambda line: line["record_offset"] < 3),
            (["--from", "{ms}"], lambda line: line["timestamp"] >= 1795225454244),
            (["--to", "{ms}"], lambda line: line["timestamp"] < 1795225454244),
            (["--type", "2"], lambda line: (line["key"] or {}).get("type") == 2),
            (["--type", "offset_commit", "--type", "GroupMetadataValue"], lambda line: (line["key"] or {}).get("type") in (1, 2)),
        ],
    )
    @pytest.mark.usefixtures("each_writer")
    def test_shows_the_asked_records_and_no_others(self, options, wanted):
        corpus = GOLDEN / "transactions"
        options = [option.format(ms=1795225454244) for option in options]
        whole = expected(corpus)
        assert [line["record_offset"] for line in dump(corpus, *options)] == [line["record_offset"] for line in whole if wanted(line)]

    def test_offset_and_time_may_be_mixed(self, tmp_path):
        write_segment(tmp_path, [batch(0, [commit("g", partition) for partition in range(6)])])
        assert [line["record_offset"] for line in dump(tmp_path, "--from", "offset:2", "--to", "1700000000004")] == [2, 3]

    def test_a_group_comes_with_the_markers_of_its_transactions(self, tmp_path):
        staged = {"attributes": 0x10, "producer_epoch": 3}
        write_segment(
            tmp_path,
            [
                batch(0, [commit("a")], producer_id=1, **staged),
                batch(1, [commit("b")], producer_id=2, **staged),
                marker(2, producer_id=2),
                marker(3, 0, producer_id=1),
                batch(4, [commit("a")]),
                marker(5, producer_id=1),
            ],
        )
        assert [(line["record_offset"], line["control"]) for line in dump(tmp_path, "--group", "a")] == [(0, None), (3, "ABORT"), (4, None)]
        assert [line["record_offset"] for line in dump(tmp_path, "--group", "a", "--type", "1")] == [0, 4]
        assert [line["record_offset"] for line in dump(tmp_path, "--group", "a", "--group", "b")] == [0, 1, 2, 3, 4]
        assert dump(tmp_path, "--group", "nobody") == []

    def test_a_record_without_a_timestamp_is_in_no_range_of_time(self, tmp_path):
        rec = commit("g")
        write_segment(tmp_path, [message(0, rec.key, rec.value, magic=0), message(1, rec.key, rec.value, magic=1)])
        result = groupcoord("dump", tmp_path, "--from", "2000-01-01")
        assert [json.loads(line)["record_offset"] for line in result.stdout.splitlines()] == [1]
        assert "1 record has no timestamp and is in no range of time" in result.stderr

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            (["--from", "1500"], "Write offset:1500 for a record offset."),
            (["--to", "offset:-1"], "is not a record offset"),
            (["--to", "yesterday"], "is not a time"),
            (["--type", "Commit"], "1 OffsetCommit"),
            (["--output", "csv"], "'csv' is not one of 'json', 'text'"),
            (["--warehouse", "w"], "No such option '--warehouse'"),
            (["--from", "offset:10", "--to", "offset:10"], "--to is not after --from"),
        ],
    )
    def test_what_cannot_be_meant_is_refused_with_one_sentence(self, options, sentence):
        result = groupcoord("dump", CONNECT, *options)
        assert result.exit_code == 2
        assert sentence in result.stderr
        assert result.stdout == ""


@pytest.mark.usefixtures("each_writer")
class TestRedaction:
    @pytest.mark.parametrize("corpus", ["connect", "kip848", "streams", "share", "classic-modern", "convert"])
    def test_no_host_no_client_and_no_member_is_left(self, corpus):
        hidden: set[str] = set()
        plain = dump(GOLDEN / corpus)
        _texts_of(plain, {"clientId", "clientHost", "memberId", "leader", "groupInstanceId", "instanceId"}, hidden)
        shown = groupcoord("dump", GOLDEN / corpus, "--redact").stdout
        told = {text for text in hidden if f'"{text}"' in shown or (len(text) > 8 and text in shown)}
        assert hidden
        # what is also the name of a group, of a topic or of a rack is no secret
        groups = {line["key"]["data"].get("group") or line["key"]["data"].get("groupId") for line in plain if line["key"]}
        assert {text for text in told if not any(text in group for group in groups)} == set()

    def test_lines_still_join_and_everything_else_is_as_it_was(self):
        plain, redacted = dump(GOLDEN / "kip848"), dump(GOLDEN / "kip848", "--redact")
        members: dict[str, set[str]] = {}
        for before, after in zip(plain, redacted, strict=True):
            if "memberId" in ((before["key"] or {}).get("data") or {}):
                members.setdefault(before["key"]["data"]["memberId"], set()).add(after["key"]["data"]["memberId"])
            assert before["record_offset"] == after["record_offset"]
            if before["key"] and before["key"]["type"] not in (1, 2, 5):
                assert before["value"] == after["value"]
        assert members
        assert all(len(names) == 1 for names in members.values())
        assert len(set.union(*members.values())) == len(members)

    def test_metadata_gets_a_name_unless_it_is_empty_and_undecoded_bytes_are_left_out(self, tmp_path):
        commits = [commit("g", 0, metadata="secret"), commit("g", 1), commit("g", 2, metadata="secret")]
        write_segment(tmp_path, [batch(0, [*commits, Rec(b"\0\x63secret", b"secret", 3, 3)])])
        first, empty, again, unknown = dump(tmp_path, "--redact")
        assert first["value"]["data"]["metadata"] == again["value"]["data"]["metadata"]
        assert first["value"]["data"]["metadata"].startswith("metadata-")
        assert empty["value"]["data"]["metadata"] == ""
        assert unknown["reason"] == "unknown_key_type"
        assert not {"key_base64", "value_base64", "detail"} & unknown.keys()

    def test_another_dump_gives_other_names(self, tmp_path):
        write_segment(tmp_path, [batch(0, [commit("g", metadata="secret")])])
        assert dump(tmp_path, "--redact") != dump(tmp_path, "--redact")


def test_a_reader_that_has_seen_enough_ends_the_dump_quietly(tmp_path):
    write_segment(tmp_path, [batch(i * 500, [commit("g", partition) for partition in range(500)]) for i in range(8)])
    command = [sys.executable, "-m", "groupcoord_spark", "dump", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        json.loads(process.stdout.readline())
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_spark_is_not_needed(tmp_path):
    write_segment(tmp_path, [batch(0, [commit("g")])])
    program = (
        "import sys\nfrom groupcoord_spark.cli import main\n"
        f"try: main(['dump', {str(tmp_path)!r}])\n"
        "finally: assert not {'pyspark', 'deltalake'} & sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "1 record.\n")


def _texts_of(data: Any, names: set[str], out: set[str]) -> None:
    if isinstance(data, list):
        for each in data:
            _texts_of(each, names, out)
    elif isinstance(data, dict):
        for name, each in data.items():
            if name in names and each:
                out.add(each)
            _texts_of(each, names, out)


@pytest.mark.usefixtures("each_writer")
class TestOtherInputs:
    def test_bytes_stand_on_every_line_once(self, tmp_path):
        write_segment(tmp_path, [batch(0, [commit("g")]), batch(1, [Rec(b"\0\x18new", None)]), marker(2)])
        lines = dump(tmp_path, "--bytes")
        assert [line["key_base64"] is None for line in lines] == [False, False, False]
        assert b64decode(lines[0]["key_base64"]) == OFFSET_KEY
        assert (b64decode(lines[1]["key_base64"]), lines[1]["value_base64"], lines[1]["reason"]) == (b"\0\x18new", None, "unknown_key_type")

    def test_bytes_and_redact_contradict_each_other(self):
        result = groupcoord("dump", CONNECT, "--bytes", "--redact")
        assert (result.exit_code, result.stdout) == (2, "")
        assert "Leave one of them out" in result.stderr

    def test_a_topic_is_refused_with_what_reads_it(self):
        result = groupcoord("dump", "kafka://localhost:9092")
        assert result.exit_code == 2
        assert "`groupcoord nightly kafka://localhost:9092` reads it into tables" in result.stderr

    def test_rows_that_do_not_fit_into_memory_are_refused(self, tmp_path, monkeypatch):
        monkeypatch.setattr("groupcoord_spark.cli.dump.MOST_SORTED_BYTES", 10)
        (tmp_path / "in").write_text(groupcoord("dump", CONNECT, "--quiet").stdout)
        result = groupcoord("dump", tmp_path / "in")
        assert result.exit_code == 2
        assert "rows have to be put in order first" in result.stderr

    def test_a_line_that_is_no_record_is_told_on_stderr(self, tmp_path):
        (tmp_path / "in").write_text(groupcoord("dump", CONNECT, "--quiet").stdout + '{"oops":1}\n')
        result = groupcoord("dump", tmp_path / "in")
        assert result.stdout == groupcoord("dump", CONNECT, "--quiet").stdout
        assert "(row_without_place)" in result.stderr
        assert "1 place of the log is lost" in result.stderr
