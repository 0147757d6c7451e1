from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.protocol import java_string_hash, offsets_partition_for


@pytest.mark.parametrize(
    ("group_id", "java_hash", "partition"),
    [
        ("testgroup", -1172783827, 27),
        ("", 0, 0),
        ("g", 103, 3),
        ("connect-cluster", 1440343063, 13),
        ("grüppe-日本", -1040886016, 16),
        ("über-😀", -1078194339, 39),
        ("polygenelubricants", -2147483648, 0),
    ],
)
def test_groups_lie_where_kafka_puts_them(group_id: str, java_hash: int, partition: int) -> None:
    assert java_string_hash(group_id) == java_hash
    assert offsets_partition_for(group_id, 50) == partition


@given(st.text(), st.integers(1, 1000))
def test_every_group_has_a_partition(group_id: str, partitions: int) -> None:
    assert 0 <= offsets_partition_for(group_id, partitions) < partitions
