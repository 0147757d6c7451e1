"""Offsets are under no checksum: which entries keep their place, which get it back, which have none."""

from __future__ import annotations

import itertools
import random
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.log.salvage.order import _longest_chain
from tests.examples import examples
from tests.log.log_writer import GZIP, batch, marker, message, records, wrapper, write_segment
from tests.log.reading import SMALL_CHUNK, Read, read_file

FOUR = [batch(100 + i * 2, records(b"k%d" % i, b"l%d" % i)) for i in range(4)]
ALL = list(range(100, 108))


def read_entries(tmp_path: Path, *entries: bytes, next_base: int | None = None, base_offset: int = 100) -> Read:
    path = write_segment(tmp_path, entries, base_offset=base_offset)
    got = read_file(path, next_base=next_base)
    in_pieces = read_file(path, next_base=next_base, chunk_bytes=SMALL_CHUNK)
    assert (in_pieces.rows, in_pieces.lost, in_pieces.doubts) == (got.rows, got.lost, got.doubts)
    assert got.offsets == sorted(set(got.offsets))
    return got


def at_offset(entry: bytes, offset: int) -> bytes:
    return struct.pack(">q", offset) + entry[8:]


@pytest.mark.parametrize("offset", [0, 99, 101, 103, 105, 150, 10**6, 2**40, 2**63 - 1, -1, -(2**63)])
@pytest.mark.parametrize("which", [1, 2])
def test_base_offset_repaired_between_two_neighbours(tmp_path: Path, offset: int, which: int) -> None:
    entries = [*FOUR[:which], at_offset(FOUR[which], offset), *FOUR[which + 1 :], batch(108), batch(109)]
    got = read_entries(tmp_path, *entries)
    assert (got.codes, got.offsets) == (["base_offset_repaired"], [*ALL, 108, 109])
    assert got.keys[:8] == [b"k0", b"l0", b"k1", b"l1", b"k2", b"l2", b"k3", b"l3"]


def test_of_two_last_entries_that_contradict_each_other_one_is_lost(tmp_path: Path) -> None:
    got = read_entries(tmp_path, *FOUR[:2], at_offset(FOUR[2], 105), FOUR[3])
    assert (got.codes, got.offsets) == (["base_offset_invalid"] * 2, [100, 101, 102, 103, 105, 106])


def test_base_offset_repaired_at_the_borders_of_the_file(tmp_path: Path) -> None:
    got = read_entries(tmp_path, at_offset(FOUR[0], 5000), *FOUR[1:])
    assert (got.codes, got.offsets) == (["base_offset_repaired"], ALL)
    got = read_entries(tmp_path, *FOUR[:3], at_offset(FOUR[3], 5000), next_base=108)
    assert (got.codes, got.offsets) == (["base_offset_repaired"], ALL)


def test_a_wrong_offset_in_the_last_entry_of_the_last_file_cannot_be_seen(tmp_path: Path) -> None:
    got = read_entries(tmp_path, *FOUR[:3], at_offset(FOUR[3], 5000))
    assert (got.codes, got.offsets) == ([], [*ALL[:6], 5000, 5001])


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_get_their_place_back(tmp_path: Path, codec: int, magic: int) -> None:
    def entry(i: int) -> bytes:
        if not codec:
            return message(i, b"k%d" % i, b"", magic=magic)
        return wrapper([message(0 if magic else i, b"k%d" % i, b"", magic=magic)], offset=i, magic=magic)

    entries = [entry(i) for i in range(100, 105)]
    got = read_entries(tmp_path, *entries[:2], at_offset(entries[2], 7), *entries[3:])
    assert got.offsets == list(range(100, 105))
    assert got.keys[2] == b"k102"
    # the offset of a compressed message of format 0 decides nothing in the first place
    assert got.codes == ([] if codec and magic == 0 else ["base_offset_repaired"])


def test_a_wrapper_whose_offset_is_below_that_of_its_last_message(tmp_path: Path) -> None:
    packed = wrapper([message(i, b"k%d" % i, b"") for i in range(3)], offset=1)
    got = read_entries(tmp_path, FOUR[0], packed, batch(105), next_base=None)
    assert (got.codes, got.offsets) == (["base_offset_repaired"], [100, 101, 102, 103, 104, 105])
    got = read_entries(tmp_path, FOUR[0], packed, batch(200))
    assert (got.codes, got.offsets) == (["wrapper_malformed"], [100, 101, 200])


def test_batch_duplicate(tmp_path: Path) -> None:
    got = read_entries(tmp_path, *FOUR[:2], FOUR[1], *FOUR[2:])
    assert (got.codes, got.offsets, got.lost) == (["batch_duplicate"], ALL, [])
    got = read_entries(tmp_path, *FOUR, FOUR[0])
    assert (got.codes, got.offsets) == (["batch_duplicate"], ALL)


def test_batch_offset_disorder(tmp_path: Path) -> None:
    one, two, three = batch(100, records(b"a", b"b", b"c")), batch(103, records(b"d")), batch(104, records(b"e", b"f"))
    got = read_entries(tmp_path, one, three, two, batch(106))
    assert (got.codes, got.offsets) == (["batch_offset_disorder"], list(range(100, 107)))
    assert got.keys[:6] == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_base_offset_invalid_keeps_the_bytes_of_every_record(tmp_path: Path) -> None:
    lost = batch(103, records(b"x", b"y"))
    got = read_entries(tmp_path, *FOUR[:2], lost, batch(300), batch(400))
    assert (got.codes, got.offsets) == (["base_offset_invalid"] * 2, [100, 101, 102, 103, 300, 400])
    assert [(each.key, each.value, each.records, each.record_offset) for each in got.lost] == [
        (b"x", b"value", 1, None),
        (b"y", b"value", 1, None),
    ]
    assert {each.position for each in got.lost} == {len(FOUR[0]) + len(FOUR[1])}


def test_entries_without_a_place_may_claim_the_same_offsets(tmp_path: Path) -> None:
    got = read_entries(tmp_path, *FOUR[:2], batch(103, records(b"x", b"y")), batch(103, records(b"z", b"w")), batch(300), batch(400))
    assert sorted(each.key or b"" for each in got.lost) == [b"w", b"x", b"y", b"z"]


def test_an_entry_without_records_or_place_is_one_row(tmp_path: Path) -> None:
    got = read_entries(tmp_path, *FOUR[:2], batch(103, [], last_offset_delta=1), batch(300), batch(400))
    assert (got.codes, got.lost[0].records) == (["base_offset_invalid"], 0)


def test_a_marker_without_place_says_that_its_transaction_stays_open(tmp_path: Path) -> None:
    got = read_entries(tmp_path, *FOUR[:2], marker(103), batch(300), batch(400))
    assert got.codes == ["base_offset_invalid"]
    assert "stays open" in got.lost[0].detail


def test_segment_name_mismatch_takes_the_first_entry_as_base(tmp_path: Path) -> None:
    got = read_entries(tmp_path, *FOUR, base_offset=5000)
    assert (got.codes, got.offsets) == (["segment_name_mismatch"], ALL)


def test_damage_in_a_renamed_file_is_still_found(tmp_path: Path) -> None:
    bad = FOUR[1][:70] + b"!" + FOUR[1][71:]
    got = read_entries(tmp_path, FOUR[0], bad, *FOUR[2:], base_offset=5000)
    assert (sorted(got.codes), got.offsets) == (["batch_crc_mismatch", "segment_name_mismatch"], [100, 101, 104, 105, 106, 107])


def test_segment_offset_overflow_is_kept_where_it_is_no_single_entry(tmp_path: Path) -> None:
    far = 100 + 2**31
    got = read_entries(tmp_path, *FOUR, batch(far), batch(far + 1))
    assert (got.codes, got.offsets) == (["segment_offset_overflow"], [*ALL, far, far + 1])
    got = read_entries(tmp_path, *FOUR, batch(far))
    assert (got.codes, got.offsets) == (["base_offset_invalid"], ALL)


def test_an_entry_that_seems_to_reach_into_the_next_file_is_not_believed(tmp_path: Path) -> None:
    got = read_entries(tmp_path, *FOUR[:3], at_offset(FOUR[3], 150), next_base=120)
    assert (got.codes, got.offsets) == (["base_offset_invalid"] * 2, ALL[:6])


def chain_by_trying_all(first: list[int], last: list[int], file_base: int, next_base: int | None) -> tuple[int, int, int]:
    """Length, contacts and end of the best chain."""
    best = (0, 0, 0)
    for n in range(len(first), 0, -1):
        for chosen in itertools.combinations(range(len(first)), n):
            if all(first[b] > last[a] for a, b in itertools.pairwise(chosen)):
                contacts = sum(first[b] == last[a] + 1 for a, b in itertools.pairwise(chosen))
                contacts += (first[chosen[0]] == file_base) + (last[chosen[-1]] + 1 == next_base)
                best = max(best, (n, contacts, -last[chosen[-1]]))
        if best[0]:
            break
    return best


@given(
    st.lists(st.tuples(st.integers(0, 14), st.integers(1, 4)), min_size=1, max_size=9),
    st.one_of(st.none(), st.integers(10, 18)),
)
@examples(150)
def test_the_chain_is_as_good_as_the_best_of_all(drawn: list[tuple[int, int]], next_base: int | None) -> None:
    first = [start for start, _ in drawn]
    last = [start + size - 1 for start, size in drawn]
    kept = _longest_chain(np.array(first), np.array(last), 0, next_base).tolist()
    assert all(first[b] > last[a] for a, b in itertools.pairwise(kept))
    contacts = sum(first[b] == last[a] + 1 for a, b in itertools.pairwise(kept))
    contacts += (first[kept[0]] == 0) + (last[kept[-1]] + 1 == next_base)
    assert (len(kept), contacts, -last[kept[-1]]) == chain_by_trying_all(first, last, 0, next_base)


def test_a_long_file_with_one_entry_far_too_high_keeps_all_others() -> None:
    first = np.arange(20_000) * 3
    first[500] = 2**30
    kept = _longest_chain(first, first + 2, 0, None)
    assert kept.tolist() == [i for i in range(20_000) if i != 500]


def test_any_order_of_entries_gives_each_record_once(tmp_path: Path) -> None:
    rng = random.Random(3)
    for _ in range(30):
        entries = [batch(100 + i, records(b"k%d" % i)) for i in range(8)]
        rng.shuffle(entries)
        got = read_entries(tmp_path, *entries)
        assert sorted([*(key or b"" for key in got.keys), *(each.key or b"" for each in got.lost)]) == [b"k%d" % i for i in range(8)]
