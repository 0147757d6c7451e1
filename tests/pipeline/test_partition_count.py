"""The number of partitions of the offsets topic, from the partitions in which groups are."""

from __future__ import annotations

from groupcoord_spark.log.partition_count import KAFKAS_DEFAULT, best_partition_count
from groupcoord_spark.pipeline.plan.evidence import group_hashes
from groupcoord_spark.protocol import encode_key, java_string_hash, offsets_partition_for
from groupcoord_spark.protocol.record_types import KeyType

GROUPS = [f"group-{number}" for number in range(40)]


def placed(partition_count: int) -> list[tuple[int, int]]:
    """(hash, offsets partition) of GROUPS in a topic with so many partitions."""
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
