"""Records of ``__transaction_state``."""

from __future__ import annotations

import struct

import pytest

from groupcoord_spark.protocol import DecodeError
from groupcoord_spark.protocol.transaction_state import decode_transaction_state

KEY = struct.pack(">hh", 0, 3) + b"app"
VERSION_0 = (
    struct.pack(">hqhib", 0, 9, 2, 60_000, 1)
    + struct.pack(">i", 1) + struct.pack(">h", 1) + b"t" + struct.pack(">iii", 2, 0, 5)
    + struct.pack(">qq", 200, 100)
)  # fmt: skip
VERSION_1 = (
    struct.pack(">hqhib", 1, 9, 2, 60_000, 4)
    + b"\x00"  # no partitions
    + struct.pack(">qq", 200, 100)
    + b"\x02" + b"\x00\x08" + struct.pack(">q", 8) + b"\x02\x02" + struct.pack(">h", 2)
)  # fmt: skip


def test_version_0_has_the_partitions_of_the_transaction() -> None:
    transactional_id, state = decode_transaction_state(KEY, VERSION_0)
    assert transactional_id == "app"
    assert state is not None
    assert state == ("app", 9, 2, "Ongoing", 60_000, (("t", 0), ("t", 5)), 200, 100)


def test_version_1_may_have_no_partitions_and_has_tags() -> None:
    _, state = decode_transaction_state(KEY, VERSION_1)
    assert state == ("app", 9, 2, "CompleteCommit", 60_000, (), 200, 100)


def test_tombstone_is_a_forgotten_id() -> None:
    assert decode_transaction_state(KEY, None) == ("app", None)


@pytest.mark.parametrize("value", [VERSION_0, VERSION_1], ids=["0", "1"])
def test_each_cut_value_is_refused(value: bytes) -> None:
    for size in range(len(value)):
        with pytest.raises(DecodeError):
            decode_transaction_state(KEY, value[:size])


@pytest.mark.parametrize(("key", "value"), [(b"\0\1\0\1a", VERSION_0), (KEY, b"\0\2" + VERSION_0[2:])])
def test_unknown_versions_are_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(DecodeError, match="is not known to this release"):
        decode_transaction_state(key, value)
