"""Ranges of a file, read side by side, give what the file gives that is read as a whole."""

from __future__ import annotations

import os
import random
import struct
from pathlib import Path

import pytest

from groupcoord_spark.errors import InputError
from groupcoord_spark.log import Segment, check_range, plan_logs, possible_ranges, ranges_to_read
from groupcoord_spark.log.salvage.finder import EntryFinder
from tests.conftest import GOLDEN
from tests.log.damages import KINDS, harm
from tests.log.log_writer import batch, marker, records, write_segment
from tests.log.reading import SMALL_CHUNK, Read, read
from tests.log.test_salvage import split

RUNS = int(os.environ.get("GROUPCOORD_SALVAGE_RUNS", "1500")) // 3
SEED = int(os.environ.get("GROUPCOORD_SALVAGE_SEED", "20251121"))
CORPORA = sorted({str(logs.parent.relative_to(GOLDEN)) for logs in GOLDEN.rglob("logs") if logs.is_dir()})


def ranges_of(segment: Segment, range_bytes: int) -> list[Segment]:
    parts = possible_ranges(segment, range_bytes)
    if len(parts) == 1:
        return parts
    return ranges_to_read(segment, parts, [check_range(part, ends_file=part is parts[-1]) for part in parts])


def same(one: Read, other: Read) -> bool:
    return (one.rows, one.lost, one.doubts, one.bytes) == (other.rows, other.lost, other.doubts, other.bytes)


def test_ranges_of_real_logs_give_what_the_files_give() -> None:
    files_cut = set()
    for corpus in CORPORA:
        for partition in plan_logs([str(GOLDEN / corpus / "logs")]).partitions:
            for number, segment in enumerate(partition.segments):
                parts = ranges_of(segment, max(600, segment.size // 25))
                assert [part.start for part in parts] == [0, *(part.size for part in parts[:-1])]
                assert parts[-1].size == segment.size
                if len(parts) > 1:
                    files_cut.add(corpus)
                    chunk_bytes = SMALL_CHUNK if number % 2 else 1 << 25
                    assert same(read(parts, chunk_bytes=chunk_bytes), read([segment])), (corpus, segment)
    assert {"classic-modern", "codec-zstd", "compacted", "fuzz-1", "kip848", "midflight-torn", "transactions"} <= files_cut


def log_of(rng: random.Random, count: int) -> list[bytes]:
    entries, offset = [], rng.choice([0, 1000])
    for _ in range(count):
        offset += rng.choice([0, 0, 0, 1, 7])
        keys = [b"k%d.%d" % (offset, i) for i in range(rng.randint(1, 5))]
        if rng.random() < 0.1:
            keys = keys[:1]
            entries.append(marker(offset, rng.randint(0, 1)))
        else:
            entries.append(batch(offset, records(*keys), codec=rng.choice([0, 0, 0, 1, 2, 3, 4]), producer_id=rng.choice([-1, 7])))
        offset += len(keys)
    return entries


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_damaged_file_gives_the_same_rows_in_ranges_as_whole(tmp_path: Path, kind: str) -> None:
    for run in range(RUNS // len(KINDS) + 1):
        rng = random.Random(f"{SEED}:{kind}:{run}")
        entries = log_of(rng, rng.randint(6, 40))
        base = int(struct.unpack_from(">q", entries[0])[0])
        path = write_segment(tmp_path, entries, base_offset=base)
        path.write_bytes(harm(rng, kind, entries).data)
        segment = Segment(str(path), path.stat().st_size, 0, base, next_base_offset=rng.choice([None, base + 10_000]))
        parts = ranges_of(segment, rng.randint(60, 700))
        assert same(read(parts), read([segment])), f"seed {SEED}:{kind}:{run}"


def test_sound_files_are_cut(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    cut = 0
    for _ in range(40):
        entries = log_of(rng, 30)
        base = int(struct.unpack_from(">q", entries[0])[0])
        path = write_segment(tmp_path, entries, base_offset=base)
        segment = Segment(str(path), path.stat().st_size, 0, base)
        parts = ranges_of(segment, rng.randint(60, segment.size // 2))
        assert same(read(parts), read([segment]))
        assert all(part.base_offset < (part.next_base_offset or 2**63) for part in parts)
        cut += len(parts) > 1
    assert cut == 40


def test_a_border_inside_of_a_record_that_looks_like_a_batch_leaves_the_file_whole(tmp_path: Path) -> None:
    inner = batch(40, records(b"inner"))
    entries = [batch(0, records(b"a" * 200, b"x" * 100 + inner + b"y" * 600)), batch(2, records(b"b" * 100))]
    path = write_segment(tmp_path, entries, base_offset=0)
    segment = Segment(str(path), path.stat().st_size, 0, 0)
    at = b"".join(entries).index(inner)
    parts = possible_ranges(segment, at)
    assert parts[1].start == at
    assert ranges_of(segment, at) == [segment]


def test_small_files_and_files_that_others_cover_are_not_cut(tmp_path: Path) -> None:
    path = write_segment(tmp_path, split(b"".join(batch(i, records(b"k")) for i in range(20))), base_offset=0)
    size = path.stat().st_size
    assert len(possible_ranges(Segment(str(path), size, 0, 0), size // 2)) == 2
    assert len(possible_ranges(Segment(str(path), size, 0, 0), size // 2 + 1)) == 1
    assert len(possible_ranges(Segment(str(path), size, 0, 0, skip_below=5), 100)) == 1
    assert len(possible_ranges(Segment(str(path), size, 0, 0, covers=(Segment("x", 1, 0, 5),)), 100)) == 1


def test_a_file_that_has_shrunk_since_it_was_planned_is_one_sentence(tmp_path: Path) -> None:
    path = write_segment(tmp_path, [batch(i, records(b"k")) for i in range(20)], base_offset=0)
    segment = Segment(str(path), path.stat().st_size, 0, 0)
    parts = possible_ranges(segment, 300)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="it was cut or replaced"):
        check_range(parts[-1], ends_file=True)


def test_zeros_at_the_end_of_a_large_file_are_searched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_segment(tmp_path, [batch(0)])
    with path.open("ab") as file:
        file.truncate(1 << 20)
    searches = []
    whole = EntryFinder.next_sound
    monkeypatch.setattr(EntryFinder, "next_sound", lambda finder, at: searches.append(at) or whole(finder, at))
    segment = Segment(str(path), 1 << 20, 0, 0)
    assert possible_ranges(segment, 1 << 14) == [segment]
    assert searches == [1 << 14]
