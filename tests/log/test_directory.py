"""From the paths that somebody names to the files that are the log."""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import LogPlan, directory, plan_logs
from groupcoord_spark.log.broker_dir.log_directories import find_log_directories
from groupcoord_spark.storage.location import Location
from groupcoord_spark.storage.object_store import FILES_AT_ONCE
from tests.log.log_writer import Rec, batch, message, records, wrapper, write_segment
from tests.log.reading import read_logs

HEX = "0123456789abcdef" * 2


def plan(*inputs: Path | str) -> LogPlan:
    return plan_logs([str(each) for each in inputs])


def files(found: LogPlan) -> list[list[str]]:
    return [[Path(segment.uri).name.removesuffix(".log")[-4:] for segment in partition.segments] for partition in found.partitions]


def run(first: int, last: int, *, leader_epoch: int = 0) -> list[bytes]:
    """Batches of one record each."""
    return [batch(offset, [Rec(b"k%d" % offset)], leader_epoch=leader_epoch) for offset in range(first, last)]


def skip_if_open(path: Path) -> None:
    if os.access(path, os.R_OK):
        pytest.skip("nothing is closed to this user")


class TestRecognition:
    def test_a_log_directory_gives_its_partitions_in_order(self, tmp_path: Path) -> None:
        for number in (10, 2, 0):
            write_segment(tmp_path, run(0, 2), offsets_partition=number)
        (tmp_path / "orders-0").mkdir()
        (tmp_path / "__consumer_offsets-x").mkdir()
        (tmp_path / "__consumer_offsets-01").mkdir()
        found = plan(tmp_path)
        assert [partition.offsets_partition for partition in found.partitions] == [0, 2, 10]
        assert found.doubts == ()

    def test_a_partition_a_segment_or_a_parent_of_log_directories_will_do(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path / "logs", run(0, 2), offsets_partition=3)
        other = write_segment(tmp_path / "more", run(0, 2), offsets_partition=4)
        for given in ([path], [path.parent], [path.parent.parent], [path, path.parent], [path.parent.as_uri()]):
            found = plan(*given)
            assert [partition.offsets_partition for partition in found.partitions] == [3]
            assert [segment.offsets_partition for segment in found.partitions[0].segments] == [3]
        assert [partition.offsets_partition for partition in plan(tmp_path).partitions] == [3, 4]
        assert [partition.offsets_partition for partition in plan(path, other).partitions] == [3, 4]

    def test_relative_paths_and_links_have_the_name_that_counts(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        real = write_segment(tmp_path / "real", run(0, 2), offsets_partition=7).parent
        monkeypatch.chdir(real)
        assert [partition.offsets_partition for partition in plan(".").partitions] == [7]
        (tmp_path / "__consumer_offsets-8").symlink_to(real)
        assert [partition.offsets_partition for partition in plan(tmp_path / "__consumer_offsets-8").partitions] == [8]

    def test_named_segments_alone_are_read(self, tmp_path: Path) -> None:
        paths = [write_segment(tmp_path, run(first, first + 5), base_offset=first) for first in (0, 5, 10)]
        assert files(plan(paths[0], paths[2])) == [["0000", "0010"]]
        assert files(plan(paths[0], tmp_path)) == [["0000", "0005", "0010"]]

    @pytest.mark.parametrize("suffix", ["delete", "future", "stray"])
    def test_directories_on_their_way_in_or_out_are_read_only_when_named(self, tmp_path: Path, suffix: str) -> None:
        path = write_segment(tmp_path, run(0, 2), offsets_partition=3)
        special = path.parent.rename(tmp_path / f"__consumer_offsets-3.{HEX}-{suffix}")
        with pytest.raises(InputError, match=rf"no partition of __consumer_offsets is in it\. '{special.name}' is not read: "):
            plan(tmp_path)
        write_segment(tmp_path, run(0, 2), offsets_partition=4)
        found = plan(tmp_path)
        assert [partition.offsets_partition for partition in found.partitions] == [4]
        assert [(doubt.code, doubt.source) for doubt in found.doubts] == [("partition_set_aside", str(special))]
        assert [partition.offsets_partition for partition in plan(special).partitions] == [3]
        write_segment(tmp_path, run(0, 2), offsets_partition=3)
        assert plan(tmp_path).doubts == ()

    def test_a_partition_without_segments_is_an_empty_log(self, tmp_path: Path) -> None:
        (tmp_path / "__consumer_offsets-0").mkdir()
        write_segment(tmp_path, [], offsets_partition=1, base_offset=70)
        found = plan(tmp_path)
        assert [(partition.segments, partition.first_offset, partition.end_offset) for partition in found.partitions] == [
            ((), None, 0),
            ((), None, 70),
        ]
        assert plan(tmp_path / "__consumer_offsets-0").partitions == found.partitions[:1]

    def test_a_directory_beside_that_cannot_be_listed_matters_only_if_there_is_no_other(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "logs", run(0, 2))
        closed = tmp_path / "lost+found"
        closed.mkdir(mode=0)
        skip_if_open(closed)
        assert len(plan(tmp_path).partitions) == 1
        shutil.rmtree(tmp_path / "logs")
        with pytest.raises(InputError, match="cannot be read"):
            plan(tmp_path)


def volume(place: Path, *numbers: int, cluster: str = "c", node: int = 1, text: str = "version=1\nnode.id={}\ncluster.id={}\n") -> Path:
    """Write a log directory with these partitions and its meta.properties."""
    for number in numbers:
        write_segment(place, run(0, 2), offsets_partition=number)
    place.mkdir(parents=True, exist_ok=True)
    (place / "meta.properties").write_text(text.format(node, cluster))
    return place


class TestVolumes:
    """Log directories two or more levels below an input are read together where they are the volumes of one broker."""

    @pytest.mark.parametrize(
        "volumes",
        [
            {"data-0/kafka-log0": (4, 5), "data-1/kafka-log0": (6,)},
            {"data-0/kafka-log0": (4,), "data-1/kafka-log0": (5,), "data-2/kafka-log0": (6,), "data-3/kafka-log0": ()},
            {"var/lib/kafka/data-0/kafka-log0": (4, 5), "mnt/disk1": (6,), "logs": ()},
            {"data-0/kafka-log0": (4, 5, 6)},
        ],
    )
    def test_of_one_broker_are_read_together(self, tmp_path: Path, volumes: dict[str, tuple[int, ...]]) -> None:
        for path, numbers in volumes.items():
            volume(tmp_path / path, *numbers)
            (tmp_path / path / "orders-0").mkdir()
        found = plan(tmp_path)
        assert ([partition.offsets_partition for partition in found.partitions], found.cluster_id, found.doubts) == ([4, 5, 6], "c", ())
        assert {directory.location.path for directory in find_log_directories([str(tmp_path)]).directories} == {
            str(tmp_path / path) for path in volumes
        }

    def test_of_a_broker_before_kip_631_have_a_broker_id(self, tmp_path: Path) -> None:
        for number in (0, 1):
            volume(tmp_path / f"data-{number}" / "logs", number, text="#Fri Nov 21\nversion=0\nbroker.id={}\ncluster.id={}\n")
        assert [partition.offsets_partition for partition in plan(tmp_path).partitions] == [0, 1]

    @pytest.mark.parametrize("suffix", ["future", "delete"])
    def test_may_have_a_partition_that_is_moved_between_them(self, tmp_path: Path, suffix: str) -> None:
        volume(tmp_path / "data-0" / "logs", 4, 5)
        volume(tmp_path / "data-1" / "logs", 6)
        moved = tmp_path / "data-1" / "logs" / f"__consumer_offsets-4.{HEX}-{suffix}"
        shutil.copytree(tmp_path / "data-0" / "logs" / "__consumer_offsets-4", moved)
        found = plan(tmp_path)
        assert ([partition.offsets_partition for partition in found.partitions], found.doubts) == ([4, 5, 6], ())

    @pytest.mark.parametrize(
        ("second", "sentence"),
        [
            ({"numbers": (5,)}, "this is a folder of many dumps: data-0/logs, data-1/logs. Name one dump, or give each of these"),
            ({"numbers": (6,), "node": 2}, "this is a folder of many dumps"),
            ({"numbers": (6,), "cluster": "d"}, "this is a folder of many dumps"),
            ({"numbers": (6,), "text": "version=1\n"}, "this is a folder of many dumps"),
        ],
    )
    def test_that_may_be_of_several_brokers_or_moments_are_refused(self, tmp_path: Path, second: dict[str, Any], sentence: str) -> None:
        first = volume(tmp_path / "data-0" / "logs", 4, 5)
        other = volume(tmp_path / "data-1" / "logs", *second.pop("numbers"), **second)
        with pytest.raises(InputError, match=sentence):
            plan(tmp_path)
        assert find_log_directories([str(tmp_path)]).directories == ()
        if second.get("cluster") is None:  # the way out that the sentence names
            assert {partition.offsets_partition for partition in plan(first, other).partitions} in ({4, 5}, {4, 5, 6})

    def test_that_were_not_all_searched_are_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        volume(tmp_path / "data-0" / "logs", 4)
        volume(tmp_path / "data-1" / "logs", 5)
        monkeypatch.setattr(directory, "_DIRECTORIES_LOOKED_AT", 4)
        with pytest.raises(InputError, match="this is a folder of many dumps: data-0/logs"):
            plan(tmp_path)


class TestRefusals:
    def refused(self, *inputs: Path | str) -> str:
        with pytest.raises(InputError) as caught:
            plan(*inputs)
        text = str(caught.value)
        assert "\n" not in text
        assert text.endswith(".")
        return text

    def test_no_input(self) -> None:
        assert "No input" in self.refused()

    def test_no_such_path(self, tmp_path: Path) -> None:
        assert "no such file or directory" in self.refused(tmp_path / "nowhere")

    def test_an_empty_directory(self, tmp_path: Path) -> None:
        assert "is empty" in self.refused(tmp_path)

    def test_a_directory_without_partitions_of_the_topic(self, tmp_path: Path) -> None:
        (tmp_path / "orders-0").mkdir()
        assert "no partition of __consumer_offsets" in self.refused(tmp_path)

    def test_a_file_that_is_no_segment(self, tmp_path: Path) -> None:
        for name in ("notes.txt", "server.log", "00000000000000000000.index", "00000000000000000000.log.deleted"):
            (tmp_path / name).write_text("hello")
            assert "not a segment of a log" in self.refused(tmp_path / name)

    def test_partitions_without_a_segment_among_their_files(self, tmp_path: Path) -> None:
        for number, name in enumerate(("partition.metadata", "00000000000000000000.log.deleted", "00000000000000000000.LOG")):
            (tmp_path / f"__consumer_offsets-{number}").mkdir()
            (tmp_path / f"__consumer_offsets-{number}" / name).write_text("hello")
        assert "copy the segments too" in self.refused(tmp_path)
        write_segment(tmp_path, [], offsets_partition=3)
        assert plan(tmp_path).partitions[0].end_offset == 0

    def test_segments_whose_directory_has_lost_its_name(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path, run(0, 2))
        folder = path.parent.rename(tmp_path / "partition-three")
        assert "Keep the name" in self.refused(folder / path.name)
        assert "Keep the name" in self.refused(folder)

    def test_an_unknown_scheme(self) -> None:
        assert "foo://bucket/x" in self.refused("foo://bucket/x")

    def test_a_secret_in_a_uri_is_not_shown(self) -> None:
        assert "hunter2" not in self.refused("foo://user:hunter2@bucket/x?token=hunter2")

    def test_a_folder_of_many_dumps(self, tmp_path: Path) -> None:
        for night in ("mon", "tue", "wed"):
            write_segment(tmp_path / "dumps" / night / "broker-1", run(0, 2))
        (tmp_path / "dumps" / "notes.json").write_text("[]")
        assert "many dumps: mon/broker-1, tue/broker-1, wed/broker-1. Name one dump" in self.refused(tmp_path / "dumps")
        write_segment(tmp_path / "dumps" / "thu", run(0, 2))
        assert "many dumps: thu, mon/broker-1, tue/broker-1, wed/broker-1." in self.refused(tmp_path / "dumps")
        assert "many dumps: dumps/mon/broker-1, dumps/thu, dumps/tue/broker-1" in self.refused(tmp_path)
        assert len(plan(tmp_path / "dumps" / "mon").partitions) == 1

    def test_a_log_directory_without_the_topic_names_the_topics_in_it(self, tmp_path: Path) -> None:
        for name in ("orders-0", "orders-1", "__transaction_state-3", "payments-0", "x-y"):
            (tmp_path / name).mkdir()
        sentence = self.refused(tmp_path)
        assert "is in it. It has partitions of other topics (__transaction_state, orders, payments). Name a log directory" in sentence

    def test_copies_of_different_logs(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "a", run(0, 5))
        write_segment(tmp_path / "b", [batch(0, [Rec(b"other")]), *run(1, 9)])
        sentence = self.refused(tmp_path)
        assert f"{tmp_path}/a/__consumer_offsets-0" in sentence and "at offset 0 they have different records" in sentence

    def test_two_clusters(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            write_segment(tmp_path / name, run(0, 2))
            (tmp_path / name / "meta.properties").write_text(f"version=1\ncluster.id={name}\n")
        assert "one cluster at a time" in self.refused(tmp_path)

    def test_what_cannot_be_read(self, tmp_path: Path) -> None:
        path = write_segment(tmp_path, run(0, 2))
        path.chmod(0)
        skip_if_open(path)
        assert "cannot be opened" in self.refused(tmp_path)
        path.parent.chmod(0)
        try:
            assert "cannot be read" in self.refused(tmp_path)
        finally:
            path.parent.chmod(0o700)


class TestFacts:
    def test_what_lies_beside_the_log_is_told(self, tmp_path: Path) -> None:
        folder = write_segment(tmp_path, run(0, 2)).parent
        (tmp_path / "meta.properties").write_text("#\n#Fri Nov 21\ncluster.id=4L6g3nShT-eMCtK--X86sw\nversion=1\nnode.id=1\n")
        (folder / "partition.metadata").write_text("version: 0\ntopic_id: ZGVhZGJlZWZkZWFkYmVlZg\n")
        found = plan(tmp_path)
        assert (found.cluster_id, found.topic_id) == ("4L6g3nShT-eMCtK--X86sw", "ZGVhZGJlZWZkZWFkYmVlZg")
        assert plan(folder).cluster_id == "4L6g3nShT-eMCtK--X86sw"

    def test_neighbours_know_each_other(self, tmp_path: Path) -> None:
        for first in (0, 5, 10):
            write_segment(tmp_path, run(first, first + 5), base_offset=first)
        (partition,) = plan(tmp_path).partitions
        assert [(segment.base_offset, segment.next_base_offset, segment.skip_below) for segment in partition.segments] == [
            (0, 5, 0),
            (5, 10, 0),
            (10, None, 0),
        ]
        assert (partition.first_offset, partition.end_offset) == (0, 15)
        assert partition.bytes == sum(segment.size for segment in partition.segments)

    @pytest.mark.parametrize(
        ("entries", "told"),
        [
            ([batch(3, [], last_offset_delta=4), batch(8, [Rec(timestamp_delta=5)])], (3, 9)),
            ([message(4, b"k", b"v", timestamp=77)], (4, 5)),
            ([message(4, b"k", b"v", magic=0)], (4, 5)),
            ([wrapper([message(0, b"k", b"", timestamp=5), message(1, b"k", b"", timestamp=6)], offset=4, timestamp=6)], (3, 5)),
            ([batch(3, [], last_offset_delta=4)], (3, 8)),
            ([b"junk" * 20], (None, 0)),
        ],
    )
    def test_first_entry_and_end(self, tmp_path: Path, entries: list[bytes], told: tuple[int | None, int]) -> None:
        write_segment(tmp_path, entries)
        (partition,) = plan(tmp_path).partitions
        assert (partition.first_offset, partition.end_offset) == told

    def test_the_end_of_a_long_file_is_found_from_its_last_bytes_alone(self, tmp_path: Path) -> None:
        entries = [batch(i, [Rec(value=bytes(1000))]) for i in range(300)]
        path = write_segment(tmp_path, entries)
        data = bytearray(path.read_bytes())
        data[50_000:51_000] = b"!" * 1000
        path.write_bytes(bytes(data))
        assert plan(tmp_path).partitions[0].end_offset == 300

    @pytest.mark.parametrize("tail", [b"\0" * 200_000, b"!" * 40, batch(300)[:50]])
    def test_the_end_of_a_file_whose_tail_is_bad_is_found_too(self, tmp_path: Path, tail: bytes) -> None:
        write_segment(tmp_path, [*(batch(i, [Rec(value=bytes(1000))]) for i in range(300)), tail])
        assert plan(tmp_path).partitions[0].end_offset == 300

    def test_a_log_start_offset_deletes_what_lies_below(self, tmp_path: Path) -> None:
        write_segment(tmp_path, run(0, 10))
        write_segment(tmp_path, run(0, 10), offsets_partition=1)
        (tmp_path / "log-start-offset-checkpoint").write_text("0\n2\norders 0 9\n__consumer_offsets 0 4\n")
        assert read_logs(tmp_path).offsets == [*range(4, 10), *range(10)]

    def test_a_log_begins_where_its_checkpoint_says_else_with_its_first_file(self, tmp_path: Path) -> None:
        write_segment(tmp_path, [], base_offset=3)
        write_segment(tmp_path, run(9, 12), base_offset=7)
        assert plan(tmp_path).partitions[0].log_start_offset == 3
        assert plan(tmp_path / "__consumer_offsets-0" / "00000000000000000007.log").partitions[0].log_start_offset == 7
        (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\n__consumer_offsets 0 5\n")
        assert plan(tmp_path).partitions[0].log_start_offset == 5
        assert plan(tmp_path / "__consumer_offsets-0" / "00000000000000000007.log").partitions[0].log_start_offset == 7

    def test_an_unreadable_checkpoint_is_no_reason_to_stop(self, tmp_path: Path) -> None:
        write_segment(tmp_path, run(0, 3))
        (tmp_path / "log-start-offset-checkpoint").write_bytes(b"\xff\xfe__consumer_offsets x y\n__consumer_offsets 0\n")
        assert read_logs(tmp_path).offsets == [0, 1, 2]

    @pytest.mark.parametrize(
        "checkpoint", ["0\n1\n__consumer_offsets 0 4", "0\n2\n__consumer_offsets 0 2\n", "0\n1\n__consumer_offsets 0 4\n"]
    )
    def test_a_log_start_that_is_damaged_or_beyond_the_end_deletes_nothing(self, tmp_path: Path, checkpoint: str) -> None:
        write_segment(tmp_path, run(0, 3))
        (tmp_path / "log-start-offset-checkpoint").write_text(checkpoint)
        assert read_logs(tmp_path).offsets == [0, 1, 2]
        found = plan(tmp_path)
        assert (found.partitions[0].log_start_offset, [doubt.code for doubt in found.doubts]) == (0, ["log_start_not_used"])

    def test_of_a_part_of_the_partitions_no_other_is_listed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for number in range(3):
            write_segment(tmp_path, run(0, 3), offsets_partition=number)
        listed, whole = [], Location.list

        def list_and_note(location: Location) -> list[Any]:
            listed.append(location.name)
            return whole(location)

        monkeypatch.setattr(Location, "list", list_and_note)
        assert [log.offsets_partition for log in plan_logs([str(tmp_path)], wanted={1}).partitions] == [1]
        assert [name for name in listed if name.startswith("__consumer_offsets-")] == ["__consumer_offsets-1"]

    def test_the_plan_tells_up_to_where_the_cleaner_has_been(self, tmp_path: Path) -> None:
        segment = write_segment(tmp_path, run(0, 3))
        assert plan(tmp_path).cleaned_ends == {}
        checkpoint = tmp_path / "cleaner-offset-checkpoint"
        checkpoint.write_text("0\n3\norders 0 9\n__consumer_offsets 0 7\n__consumer_offsets 1 8\n")
        assert plan(tmp_path).cleaned_ends == {0: 7}
        assert plan(segment).cleaned_ends == {}, "a single file need not have what the cleaner has seen"
        checkpoint.write_bytes(b"\xff\n__consumer_offsets 0\n")
        assert plan(tmp_path).cleaned_ends == {}

    def test_an_empty_checkpoint_is_ordinary(self, tmp_path: Path) -> None:
        write_segment(tmp_path, run(0, 3))
        (tmp_path / "log-start-offset-checkpoint").write_text("")
        assert plan(tmp_path).doubts == ()


class TestFilesOfAPartition:
    def test_what_kafka_puts_beside_segments_is_passed_over(self, tmp_path: Path) -> None:
        folder = write_segment(tmp_path, run(0, 3)).parent
        stem = f"{0:020d}"
        for name in (
            f"{stem}.index", f"{stem}.timeindex", f"{stem}.txnindex", f"{stem}.snapshot", "leader-epoch-checkpoint", "partition.metadata",
            f"{5:020d}.log.deleted", f"{5:020d}.index.deleted", f"{0:020d}.log.cleaned", f"{0:020d}.index.cleaned",
        ):  # fmt: skip
            (folder / name).write_bytes(b"x" * 30)
        found = plan(tmp_path)
        assert (files(found), found.doubts) == ([["0000"]], ())

    def test_unknown_file(self, tmp_path: Path) -> None:
        folder = write_segment(tmp_path, run(0, 3)).parent
        (folder / "00000000000000000000.log.bak").write_bytes(b"x")
        (folder / "backup").mkdir()
        (folder / f"{9:020d}.log").mkdir()
        found = plan(tmp_path)
        assert [doubt.code for doubt in found.doubts] == ["unknown_file"] * 3
        assert files(found) == [["0000"]]

    def test_a_swap_file_replaces_what_it_covers(self, tmp_path: Path) -> None:
        folder = write_segment(tmp_path, run(0, 10)).parent
        write_segment(tmp_path, run(10, 20), base_offset=10)
        write_segment(tmp_path, run(20, 30), base_offset=20)
        merged = [batch(0, records(b"new"), last_offset_delta=14), batch(18, records(b"newer"), last_offset_delta=1)]
        (folder / f"{0:020d}.log.swap").write_bytes(b"".join(merged))
        found = plan(tmp_path)
        assert [Path(segment.uri).name for segment in found.partitions[0].segments] == [f"{0:020d}.log.swap", f"{20:020d}.log"]
        assert read_logs(tmp_path).keys[:3] == [b"new", b"newer", b"k20"]

    def test_a_swap_file_at_or_above_a_cleaned_one_is_of_a_split_that_was_not_finished(self, tmp_path: Path) -> None:
        folder = write_segment(tmp_path, run(0, 10)).parent
        (folder / f"{0:020d}.log.swap").write_bytes(b"".join(run(0, 3)))
        (folder / f"{0:020d}.log.cleaned").write_bytes(b"")
        assert read_logs(tmp_path).offsets == list(range(10))

    def test_a_merged_file_copied_beside_those_it_replaced_comes_first(self, tmp_path: Path) -> None:
        merged = [batch(0, [Rec(b"k3", offset_delta=3)], last_offset_delta=4), batch(12, [Rec(b"k12")]), batch(17, [], last_offset_delta=2)]
        write_segment(tmp_path, merged)
        old = [*run(10, 17), batch(17, [Rec(b"k17"), Rec(b"k19", offset_delta=2)])]
        write_segment(tmp_path, old, base_offset=10)
        write_segment(tmp_path, run(20, 25), base_offset=20)
        (partition,) = plan(tmp_path).partitions
        assert [(segment.skip_below, len(segment.covers)) for segment in partition.segments] == [(0, 1), (20, 0), (0, 0)]
        got = read_logs(tmp_path)
        assert got.offsets == [3, 12, *range(20, 25)]
        assert (got.codes, got.doubts[0].records, got.lost) == (["segment_overlap"], 9, [])

    def test_a_damaged_offset_at_the_end_of_a_file_does_not_hide_the_next_file(self, tmp_path: Path) -> None:
        entries = run(0, 10)
        entries[9] = (30).to_bytes(8, "big") + entries[9][8:]
        write_segment(tmp_path, entries)
        write_segment(tmp_path, run(10, 40), base_offset=10)
        got = read_logs(tmp_path)
        assert (got.codes, got.offsets) == (["base_offset_repaired"], list(range(40)))
        assert plan(tmp_path).partitions[0].segments[1].skip_below == 0


class TestReplicas:
    def test_the_replica_with_the_last_epoch_then_the_greatest_end_is_read(self, tmp_path: Path) -> None:
        write_segment(tmp_path / "one", run(0, 9, leader_epoch=3))
        write_segment(tmp_path / "two", [*run(0, 3, leader_epoch=3), *run(3, 5, leader_epoch=4)])
        write_segment(tmp_path / "three", [*run(0, 3, leader_epoch=3), *run(3, 6, leader_epoch=4)])
        write_segment(tmp_path / "one", run(0, 1), offsets_partition=1)
        for given in ([tmp_path], [tmp_path / "one", tmp_path / "two", tmp_path / "three"]):
            found = plan(*given)
            assert [Path(partition.directory).parent.name for partition in found.partitions] == ["three", "one"]
            (doubt,) = found.doubts
            assert doubt.code == "replica_chosen"
            assert re.search(r"epoch is 4 and whose end offset is 6; not read: .*one.*epoch 3, end 9", doubt.detail)

    def test_one_directory_named_twice_is_no_replica(self, tmp_path: Path) -> None:
        folder = write_segment(tmp_path / "logs", run(0, 3)).parent
        assert plan(tmp_path, folder, folder.parent, f"{folder}/").doubts == ()


def test_the_ends_of_many_files_are_read_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(1 + FILES_AT_ONCE):
        write_segment(tmp_path, run(0, 1), offsets_partition=number)
    all_wait, read_end, of_first = threading.Barrier(FILES_AT_ONCE), directory.tail_from_last_bytes, [True]

    def wait_and_read(*given: Any) -> Any:
        if of_first:
            of_first.pop()
            time.sleep(0.1)  # as long as a slow mount waits; from then on all others are read
        else:
            all_wait.wait(30)  # BrokenBarrierError where one is read after another
        return read_end(*given)

    monkeypatch.setattr(directory, "tail_from_last_bytes", wait_and_read)
    assert [log.end_offset for log in plan_logs([str(tmp_path)]).partitions] == [1] * (1 + FILES_AT_ONCE)
