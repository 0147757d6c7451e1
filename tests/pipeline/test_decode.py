"""The decoded columns of a chunk: kinds, groups, versions, and the notes about records that do not decode or are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from groupcoord_spark.coordinator.semantics import JAVA, SCALA, semantics_for
from groupcoord_spark.pipeline.read import decode
from groupcoord_spark.pipeline.read.decode import DecodedChunk, RowNotes, decode_chunk, decode_kept_records
from groupcoord_spark.protocol import encode_key, encode_value
from groupcoord_spark.protocol.primitives import uuid_bytes, write_uvarint
from groupcoord_spark.protocol.record_types import KeyType, MarkerType
from tests.coordinator.records import TOPIC_ID, consumer_member
from tests.pipeline.logs import LogRecord, classic_value, commit_value, records_of

COMMIT_KEY = encode_key(KeyType.OFFSET_COMMIT, {"group_id": "g", "topic": "t", "partition": 0})
GROUP_KEY = encode_key(KeyType.GROUP_METADATA, {"group_id": "g"})
EPOCH_KEY = encode_key(KeyType.CONSUMER_GROUP_METADATA, {"group_id": "h"})
EPOCH_VALUE = encode_value(KeyType.CONSUMER_GROUP_METADATA, 0, {"epoch": 1})
UNKNOWN_KEY = b"\0\x63rest"

pytestmark = pytest.mark.usefixtures("each_decoder")


def decoded(*records: tuple[Any, ...], semantics: Any = JAVA) -> DecodedChunk:
    """Return records (key, value, producer id, transactional bit, control type), decoded."""
    return decode_chunk(records_of([LogRecord(row, *record) for row, record in enumerate(records)]), semantics)


def codes(notes: RowNotes) -> list[tuple[int, str]]:
    return [(row, notes.codes[note]) for row, note in zip(notes.row.tolist(), notes.note.tolist(), strict=True)]


def test_columns_say_key_type_group_version_and_tombstone() -> None:
    chunk = decoded((COMMIT_KEY, commit_value(5)), (GROUP_KEY, None), (EPOCH_KEY, EPOCH_VALUE), (COMMIT_KEY, None))
    group_ids = chunk.names.group_ids.to_pylist()
    assert chunk.kinds.key_type.tolist() == [1, 2, 3, 1]
    assert [group_ids[code] for code in chunk.kinds.group_code.tolist()] == ["g", "g", "h", "g"]
    assert chunk.value_version.tolist() == [3, -1, 0, -1]
    assert chunk.kinds.is_tombstone.tolist() == [False, True, False, True]
    assert chunk.key_code[0] == chunk.key_code[3] != chunk.key_code[1]
    assert chunk.decodes.all() and not len(chunk.faults) and not len(chunk.refusals)


def test_a_value_that_ends_too_early_is_a_fault_of_each_of_its_records() -> None:
    cut = commit_value(5)[:7]
    chunk = decoded((COMMIT_KEY, cut), (COMMIT_KEY, commit_value(5)), (COMMIT_KEY, cut))
    assert chunk.decodes.tolist() == [False, True, False]
    assert [row for row, _ in codes(chunk.faults)] == [0, 2] and len(chunk.faults.codes) == 1
    assert not chunk.kinds.coordinator_accepts[[0, 2]].any()


def epoch_value_with_tags(count: bytes, tags: bytes = b"") -> bytes:
    """Return a value of a consumer group's epoch whose section of tagged fields declares this number."""
    assert EPOCH_VALUE.endswith(b"\0")
    return EPOCH_VALUE[:-1] + count + tags


def empty_tags(number: int) -> bytes:
    """So many unknown tagged fields without content."""
    return b"".join(write_uvarint(tag) + b"\0" for tag in range(100, 100 + number))


@cache
def member_of_too_many_topics() -> tuple[bytes, bytes | None]:
    return consumer_member("m").key, consumer_member("m", *[""] * 1_000_001).value


OF_LIMITS: dict[str, Callable[[], tuple[bytes, bytes | None]]] = {
    "a negative number of tags": lambda: (EPOCH_KEY, epoch_value_with_tags(b"\xff\xff\xff\xff\x0f")),
    "10,001 tags": lambda: (EPOCH_KEY, epoch_value_with_tags(write_uvarint(10_001), empty_tags(10_001))),
    "1,000,001 topics": member_of_too_many_topics,
}


@pytest.fixture(scope="module")
def equal_values_decoded_once() -> Iterator[None]:
    """Provide what a value decodes to is the same for every release; a million topics take a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "decode_value", cache(decode.decode_value))
        yield


@pytest.mark.usefixtures("equal_values_decoded_once")
@pytest.mark.parametrize("record", OF_LIMITS.values(), ids=OF_LIMITS)
@pytest.mark.parametrize(
    ("release", "is_refused"), [("4.1.0", False), ("4.2.1", False), ("4.2.2", True), ("4.3.1", False), ("4.4.0", True)]
)
def test_limits_of_4_2_2_and_4_4_0(record: Callable[[], tuple[bytes, bytes | None]], release: str, is_refused: bool) -> None:
    chunk = decoded(record(), (COMMIT_KEY, commit_value(5)), semantics=semantics_for(broker_version=release))
    assert chunk.decodes.tolist() == [not is_refused, True]
    assert codes(chunk.faults) == ([(0, "value_beyond_limits")] if is_refused else [])
    assert [code for _, code in codes(chunk.refusals)] == (["R-1.10"] if is_refused else [])


@pytest.mark.parametrize("release", ["4.2.2", "4.4.0"])
def test_what_stands_at_the_limits_is_read(release: str) -> None:
    value = epoch_value_with_tags(write_uvarint(10_000), empty_tags(10_000))
    chunk = decoded((EPOCH_KEY, value), semantics=semantics_for(broker_version=release))
    assert chunk.decodes.all() and not len(chunk.refusals)


def test_null_keys_do_not_decode_and_unknown_key_types_are_kept_whole() -> None:
    chunk = decoded((None, b"x"), (UNKNOWN_KEY, b"x"), (b"\0", b"x"))
    assert chunk.decodes.tolist() == [False, True, False]
    assert chunk.key_code.tolist()[0] == -1 and chunk.stored_key_type.tolist() == [-1, 0x63, -1]
    assert [code for _, code in codes(chunk.faults)][:2] == ["null_key", "unknown_key_type"]
    assert chunk.kinds.key_type.tolist() == [-1, -1, -1]


def test_control_records_are_not_decoded() -> None:
    chunk = decoded((b"\0\0\0\1", b"\0\0\0\0\0\0", 7, True, int(MarkerType.COMMIT)), (None, None, 7, True, 9))
    assert chunk.kinds.is_control.all() and chunk.decodes.all() and not len(chunk.faults)


def test_both_signs_of_a_transaction_must_agree() -> None:
    value = commit_value(1)
    chunk = decoded(
        (COMMIT_KEY, value, 7, True),
        (COMMIT_KEY, value, 7, False),
        (COMMIT_KEY, value, -1, True),
        (COMMIT_KEY, None, 7, True),
        (GROUP_KEY, classic_value(1, 1), 7, True),
    )
    assert codes(chunk.findings) == [
        (1, "transactional_mismatch"),
        (2, "transactional_mismatch"),
        (3, "transactional_tombstone"),
        (4, "transactional_non_offset"),
    ]


def test_a_scala_coordinator_refuses_records_of_consumer_groups() -> None:
    assert decoded((EPOCH_KEY, EPOCH_VALUE)).kinds.coordinator_accepts.all()
    chunk = decoded((EPOCH_KEY, EPOCH_VALUE), semantics=SCALA)
    assert chunk.decodes.all() and not chunk.kinds.coordinator_accepts.any()
    assert [row for row, _ in codes(chunk.refusals)] == [0]


def test_commits_with_a_topic_id_are_listed_with_its_halves() -> None:
    chunk = decoded((COMMIT_KEY, commit_value(1)), (COMMIT_KEY, commit_value(1, version=4)))
    high, low = (int.from_bytes(uuid_bytes(TOPIC_ID)[at : at + 8], "big", signed=True) for at in (0, 8))
    assert [column.tolist() for column in chunk.topic_ids] == [[1], [high], [low]]


def test_checked_records_decode_to_the_same_columns() -> None:
    records = records_of(
        [LogRecord(0, COMMIT_KEY, commit_value(1)), LogRecord(1, GROUP_KEY, classic_value(2, 1)), LogRecord(2, EPOCH_KEY, None)]
    )
    once, again = decode_chunk(records, JAVA), decode_kept_records(records, np.ones(len(records), np.bool_), JAVA, records.distinct_keys())
    for name in ("key_code", "group_code", "member_code", "key_type", "is_tombstone", "coordinator_accepts"):
        assert np.array_equal(getattr(once.kinds, name), getattr(again.kinds, name)), name
    assert np.array_equal(once.value_version, again.value_version) and not len(again.faults)
