"""Counts of the records of an offsets partition, and how the counts of several readers are added."""

from __future__ import annotations

import numpy as np

from groupcoord_spark.pipeline.exchange.counts import NO_KEY_TYPE, NO_VERSION, KindCount, PartitionCounts, counts_by_kind
from groupcoord_spark.protocol.record_types import KeyType


def counted(*records: tuple[int, int, int, bool, bool]) -> PartitionCounts:
    """Counts of records (key type, value version, bytes, decodes, is misplaced)."""
    types = (np.int16, np.int16, np.int64, np.bool_, np.bool_)
    columns = (np.array(column, kind) for column, kind in zip(zip(*records, strict=True), types, strict=True))
    return PartitionCounts(by_kind=counts_by_kind(*columns))


COMMIT = (KeyType.OFFSET_COMMIT, 3, 100, True, False)


def test_records_are_counted_by_key_type_and_value_version() -> None:
    counts = counted(COMMIT, COMMIT, (KeyType.OFFSET_COMMIT, 1, 90, True, True), (KeyType.GROUP_METADATA, 3, 50, False, False))
    assert counts.by_kind == {
        (1, 3): KindCount(records=2, bytes=200, decoded=2),
        (1, 1): KindCount(records=1, bytes=90, decoded=1, misplaced=1),
        (2, 3): KindCount(records=1, bytes=50, decoded=0),
    }
    assert (counts.records, counts.decoded, counts.quarantined) == (4, 3, 1)


def test_tombstones_and_unreadable_keys_have_kinds_of_their_own() -> None:
    counts = counted((KeyType.OFFSET_COMMIT, NO_VERSION, 20, True, False), (NO_KEY_TYPE, NO_VERSION, 1, False, False))
    assert set(counts.by_kind) == {(1, NO_VERSION), (NO_KEY_TYPE, NO_VERSION)}


def test_a_key_type_or_version_beyond_the_usual_range_is_counted_as_itself() -> None:
    counts = counted((32_767, 0, 4, True, False), (KeyType.OFFSET_COMMIT, 900, 8, False, False), (-5, 0, 2, True, False), COMMIT)
    assert {kind: count.bytes for kind, count in counts.by_kind.items()} == {(32_767, 0): 4, (1, 900): 8, (-5, 0): 2, (1, 3): 100}


def test_records_of_damaged_batches_and_control_records_are_part_of_the_total() -> None:
    counts = counted(COMMIT)
    counts.lost, counts.control_records = 5, 2
    assert (counts.records, counts.decoded, counts.quarantined) == (8, 3, 5)


def test_counts_of_two_readers_add_up() -> None:
    one, two = counted(COMMIT), counted(COMMIT, (KeyType.GROUP_METADATA, 3, 50, True, False))
    one.reach(10, 20, None)
    two.reach(0, 10, 7)
    two.reasons["value_truncated"] = 1
    one.add(two)
    assert (one.first_offset, one.end_offset, one.newest_timestamp_ms, one.records) == (0, 20, 7, 3)
    assert one.by_kind[1, 3].records == 2 and one.reasons == {"value_truncated": 1}


def test_a_reader_without_records_changes_nothing() -> None:
    counts = counted(COMMIT)
    counts.reach(3, 4, None)
    counts.add(PartitionCounts())
    assert (counts.first_offset, counts.end_offset, counts.newest_timestamp_ms, counts.records) == (3, 4, None, 1)
