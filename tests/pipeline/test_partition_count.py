"""The number of partitions of the offsets topic, from the partitions of groups."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.log.partition_count import KAFKAS_DEFAULT, PlacedGroups, best_partition_count, partitioning_hashes, unreachable_groups
from groupcoord_spark.pipeline.plan.evidence import group_hashes
from groupcoord_spark.protocol import encode_key, java_string_hash, offsets_partition_for
from groupcoord_spark.protocol.partitioner import partitioning_hash
from groupcoord_spark.protocol.record_types import KeyType

GROUPS = [f"group-{number}" for number in range(40)]


def placed(partition_count: int) -> list[tuple[int, int]]:
    """(hash, offsets partition) of GROUPS in a topic with this number of partitions."""
    return [(abs(java_string_hash(group)), offsets_partition_for(group, partition_count)) for group in GROUPS]


def test_the_count_under_which_all_groups_are_in_their_partitions_is_found() -> None:
    for partition_count in (5, 50, 73):
        pairs = placed(partition_count)
        assert best_partition_count(pairs, max(partition for _, partition in pairs) + 1) == partition_count


def test_without_groups_it_is_kafkas_default() -> None:
    assert best_partition_count([], 1) == KAFKAS_DEFAULT


def test_it_is_at_least_the_number_of_partitions_that_exist() -> None:
    assert best_partition_count([], 51) == 51
    assert best_partition_count([], 2_000) == 2_000


def test_misplaced_groups_do_not_outvote_the_others() -> None:
    assert best_partition_count([*placed(50), (1, 2), (3, 4)], 50) == 50


def test_keys_without_a_group_have_no_hash() -> None:
    key = encode_key(KeyType.GROUP_METADATA, {"group_id": "g"})
    assert group_hashes([None, b"", b"\0\x63", key, key[:-1], key]) == {java_string_hash("g")}


def test_the_lowest_java_integer_counts_as_0() -> None:
    # "polygenelubricants" has the hash -2^31, of which Java has no absolute value
    assert group_hashes([encode_key(KeyType.GROUP_METADATA, {"group_id": "polygenelubricants"})]) == {0}
    assert offsets_partition_for("polygenelubricants", 50) == 0


@given(st.lists(st.sampled_from(["polygenelubricants", "", "über-😀", "\ud800"]) | st.text()))
def test_many_hashes_are_those_of_each(group_ids: list[str]) -> None:
    assert partitioning_hashes(group_ids).tolist() == [partitioning_hash(group_id) for group_id in group_ids]


def groups(names: Iterable[str], partition_count: int, commit_ms: int, record_ms: int = -1) -> list[tuple[str, int, int, int]]:
    """Make rows for PlacedGroups: groups of a topic with this number of partitions, with their newest commits at one moment."""
    return [(name, offsets_partition_for(name, partition_count), commit_ms, record_ms) for name in names]


NAMES = [f"{number**5}-app" for number in range(40)]
"""Names whose hashes do not follow one another."""
OF_50, OF_60 = groups(NAMES, 50, 1_000), groups(NAMES, 60, 2_000)


@pytest.mark.parametrize(
    ("placed", "lowest", "known", "unreachable", "counts"),
    [
        pytest.param(OF_50, 50, None, [], (), id="one count"),
        pytest.param([], 50, None, [], (), id="no group"),
        pytest.param(OF_50 + OF_60, 50, None, OF_50, (60,), id="every group in two"),
        pytest.param(OF_50 + OF_60[:5], 50, None, OF_50, (60,), id="a few groups moved, and the others are left behind"),
        pytest.param(OF_50 + OF_60, 60, None, OF_50, (60,), id="all directories are there"),
        pytest.param(OF_50 + groups(NAMES, 60, 500), 50, None, groups(NAMES, 60, 500), (50,), id="the newer commits decide"),
        pytest.param(OF_50[:20] + OF_60[20:], 50, None, OF_50[:20], (60,), id="no group in two, the newer ones fit alone"),
        pytest.param(OF_50 + groups(["renamed"], 51, 2_000), 52, None, [], (), id="one group proves no count"),
        pytest.param(OF_50 + groups(NAMES, 60, 1_000), 50, None, groups(NAMES, 60, 1_000), (), id="a directory copied under another name"),
        pytest.param(groups(NAMES, 50, -1, 9) + groups(NAMES, 60, -1, 10), 50, None, groups(NAMES, 50, -1, 9), (), id="no commits"),
        pytest.param(OF_50, 50, 60, OF_50, (60,), id="the cluster's metadata says 60, and no client came back"),
        pytest.param(OF_60, 60, 50, [], (), id="metadata older than the log"),
    ],
)
def test_a_client_reaches_one_of_two_groups(
    placed: list[tuple[str, int, int, int]],
    lowest: int,
    known: int | None,
    unreachable: list[tuple[str, int, int, int]],
    counts: tuple[int, ...],
) -> None:
    # A group whose partition is the same under both counts is in one place.
    both = {row[:2] for row in OF_50} & {row[:2] for row in OF_60}
    placed = [row for row in placed if row[:2] not in both]
    expected = [row for row in unreachable if row[:2] not in both]
    likely = best_partition_count([(partitioning_hash(name), partition) for name, partition, _, _ in placed], lowest)
    is_lost, found = unreachable_groups(PlacedGroups.of(placed), lowest, likely, known)
    assert [row for row, lost in zip(placed, is_lost, strict=True) if lost] == expected
    assert found == counts


def test_names_in_a_row_leave_several_counts_and_one_place() -> None:
    # The hashes of svc-22 to svc-29 follow one another, so one divisor fits all of them.
    names = [f"svc-{number}" for number in range(22, 30)]
    older, newer = groups(names, 50, 1_000), groups(names, 60, 2_000)
    is_lost, counts = unreachable_groups(PlacedGroups.of(older + newer), 50, 50)
    assert is_lost.tolist() == [True] * 8 + [False] * 8
    assert 60 in counts
