"""What another number of offsets partitions would do to the groups."""

from __future__ import annotations

import pytest

from groupcoord_spark.doctor import read_copies
from groupcoord_spark.doctor.partition_change import moved_groups
from groupcoord_spark.errors import UsageError
from groupcoord_spark.protocol import offsets_partition_for
from tests.doctor.copies import logs


def test_groups_move_to_the_partition_of_their_hash() -> None:
    moved, live_groups = moved_groups(read_copies([logs("hot")]), 5, 10)
    assert live_groups == 38
    assert len(moved) == 18
    for group in moved:
        assert group.offsets_partition == offsets_partition_for(group.group_id, 5)
        assert group.new_offsets_partition == offsets_partition_for(group.group_id, 10) != group.offsets_partition
    assert sum(group.offsets for group in moved if group.is_lost) == 211


def test_same_number_moves_no_group() -> None:
    assert moved_groups(read_copies([logs("hot")]), 5, 5)[0] == []


def test_two_copies_count_a_group_once() -> None:
    one, both = (moved_groups(read_copies(inputs), 5, 7) for inputs in ([logs("uncleaned")], [logs("uncleaned"), logs("uncleaned/second")]))
    assert one == both


def test_fewer_partitions_are_refused() -> None:
    with pytest.raises(UsageError, match="Kafka takes none away"):
        moved_groups(read_copies([logs("hot")]), 5, 4)
