"""Fates of records on random logs: the columns of ``gather`` against a plain loop over records."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.doctor import PartitionFacts, gather_partition
from groupcoord_spark.doctor.facts import FilesBeside
from groupcoord_spark.doctor.gather.group_table import sums_of_groups
from groupcoord_spark.log import plan_logs
from groupcoord_spark.log.broker_dir.broker_files import LogDirectoryFiles, PartitionFiles
from groupcoord_spark.protocol import encode_key
from tests.examples import examples
from tests.log.log_writer import Rec, batch, marker, write_segment

VALUE = b"\x00\x03" + bytes(14)

COMMITS = st.tuples(st.just("commit"), st.integers(0, 2), st.integers(0, 2), st.booleans(), st.sampled_from([None, 1, 2]))
MARKERS = st.tuples(st.just("marker"), st.sampled_from([1, 2]), st.integers(0, 1))


def expected_fates(steps: list[Any]) -> dict[str, Counter[str]]:
    """Return the number of records by group and fate."""
    fates: dict[int, str] = {}
    last: dict[tuple[int, int], int] = {}
    for offset, step in enumerate(steps):
        if step[0] == "marker":
            continue
        _, group, partition, _, producer = step
        ends = [each for each in steps[offset + 1 :] if each[0] == "marker" and each[1] == producer]
        if producer is not None and not ends:
            fates[offset] = "open"
        elif producer is not None and ends[0][2] == 0:
            fates[offset] = "aborted"
        else:
            fates[offset] = "decided"
            last[group, partition] = offset
    by_group: dict[str, Counter[str]] = {}
    for offset, fate in fates.items():
        _, group, partition, is_tombstone, _ = steps[offset]
        if fate == "decided":
            is_last = last[group, partition] == offset
            fate = ("tombstone" if is_last else "superseded_tombstone") if is_tombstone else ("live" if is_last else "superseded")
        by_group.setdefault(f"g{group}", Counter())[fate] += 1
    return by_group


def facts_of(steps: list[Any], border: int, chunk_bytes: int) -> PartitionFacts:
    entries = []
    for offset, step in enumerate(steps):
        if step[0] == "marker":
            entries.append(marker(offset, step[2], producer_id=step[1]))
            continue
        _, group, partition, is_tombstone, producer = step
        rec = Rec(encode_key(1, {"group_id": f"g{group}", "topic": "t", "partition": partition}), None if is_tombstone else VALUE)
        signs = {} if producer is None else {"producer_id": producer, "producer_epoch": 0, "attributes": 0x10}
        entries.append(batch(offset, [rec], **signs))
    with TemporaryDirectory() as directory:
        write_segment(Path(directory), entries[:border])
        if border < len(entries):
            write_segment(Path(directory), entries[border:], base_offset=border)
        (log,) = plan_logs([directory]).partitions
        return gather_partition(log, FilesBeside(PartitionFiles(), LogDirectoryFiles()), chunk_bytes=chunk_bytes)


@pytest.mark.usefixtures("each_decoder")
@examples(80)
@given(st.lists(st.one_of(COMMITS, COMMITS, MARKERS), min_size=1, max_size=30), st.integers(1, 30), st.sampled_from([100, 400, 1 << 20]))
def test_fates_are_those_of_a_plain_loop(steps: list[Any], border: int, chunk_bytes: int) -> None:
    facts = facts_of(steps, border, chunk_bytes)
    found = {name: {fate: count for fate, (count, _) in group.offset_fates.items()} for name, group in facts.groups.items()}
    assert found == expected_fates(steps)
    open_since: dict[int, int] = {}
    for offset, step in enumerate(steps):
        if step[0] == "marker":
            open_since.pop(step[1], None)
        elif step[4] is not None:
            open_since.setdefault(step[4], offset)
    assert {each.producer_id: each.first_offset for each in facts.open_transactions} == open_since
    assert facts.last_stable_offset == min(open_since.values(), default=len(steps))
    assert (facts.missing_offsets, facts.holes, facts.records) == (0, 0, len(steps))
    assert facts.group_sums == sums_of_groups(list(facts.groups.values()))
    values = {fate: size for fate, (_, size) in facts.group_sums.fates.items()}
    assert sum(segment.value_bytes for segment in facts.segments) == sum(
        size for fate, size in values.items() if fate not in ("open", "aborted")
    )
