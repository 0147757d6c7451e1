"""The order of Java's hash maps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.assignors.java_maps import hash_of_text, in_hash_order, slots_after_puts, slots_of_copy
from groupcoord_spark.assignors.membership import Topic, TopicPartition, java_order
from groupcoord_spark.assignors.sticky_general import PartitionHashSet, hash_of_partition
from groupcoord_spark.assignors.topic_ids import topic_id_of
from tests.examples import examples


def test_a_table_of_16_slots_holds_12_keys_and_13_need_32() -> None:
    assert [slots_after_puts(keys) for keys in (0, 1, 12, 13, 24, 25, 1000)] == [16, 16, 16, 32, 32, 64, 2048]


def test_a_copied_set_is_larger_than_a_grown_one_at_12_keys() -> None:
    assert [slots_of_copy(keys) for keys in (0, 11, 12, 13, 24)] == [16, 16, 32, 32, 64]


def test_keys_of_one_slot_keep_the_order_in_which_they_were_put() -> None:
    # one letter's hash is its code; 'q' is 16 above 'a', so both fall into slot 1
    assert in_hash_order(["q", "b", "a"], hash_of_text) == ["q", "a", "b"]
    assert in_hash_order(["a", "b", "q"], hash_of_text) == ["a", "q", "b"]


def test_the_upper_half_of_a_hash_counts() -> None:
    # 65537 is 0x10001: folded onto itself it falls into slot 0, before 1
    assert in_hash_order([1, 65537], lambda number: number) == [65537, 1]


def test_a_partition_hashes_as_kafkas_class_does() -> None:
    assert hash_of_partition(TopicPartition("", 2)) == 31 * (31 + 2)
    assert hash_of_partition(TopicPartition("a", 0)) == 31 * 31 + ord("a")


def test_strings_sort_by_utf16_code_unit() -> None:
    # U+1F600 begins with the unit D83D, below U+FFFD; by code point it would come last
    assert sorted(["\ufffd", "\U0001f600", "a"], key=java_order) == ["a", "\U0001f600", "\ufffd"]


def test_topic_ids_sort_as_signed_numbers() -> None:
    topics = {"minus one": Topic(1, topic_id="_____________________w"), "one": Topic(1, topic_id="AAAAAAAAAAEAAAAAAAAAAg")}
    assert topic_id_of("minus one", topics) == (-1, -1)
    assert topic_id_of("one", topics) == (1, 2)
    assert topic_id_of("one", topics).java_hash() == 3


@examples(60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=80))
def test_a_set_gives_first_what_its_order_gives_first(steps: list[tuple[bool, int]]) -> None:
    partitions = PartitionHashSet()
    model: dict[TopicPartition, None] = {}
    largest = 0
    for is_added, number in steps:
        partition = TopicPartition("topic", number)
        if is_added:
            partitions.add(partition)
            model[partition] = None
            largest = max(largest, len(model))
        elif partition in model:
            partitions.remove(partition)
            del model[partition]
        assert len(partitions) == len(model)
        if model:
            assert partitions.first() == in_hash_order(model, hash_of_partition, slots_after_puts(largest))[0]
