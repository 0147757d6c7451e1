"""The coordinator that wrote the records, by their traits."""

from __future__ import annotations

import pytest

from groupcoord_spark.answers.authors import other_coordinator
from groupcoord_spark.coordinator import JAVA, SCALA, semantics_for

COMMITS_OF_2_1, COMMITS_OF_4_1, COMMITS_WITH_EXPIRY = {(1, 3): 5}, {(1, 4): 5}, {(1, 1): 5}


def test_records_of_the_new_protocols_contradict_scala() -> None:
    for key_type in (3, 8, 10, 17, 23):
        assert "consumer, share or streams groups (2)" in str(other_coordinator(SCALA, {(key_type, 0): 1, (key_type, -1): 1}))
        assert other_coordinator(JAVA, {(key_type, 0): 1}) is None


def test_offsets_of_version_4_contradict_scala() -> None:
    assert "offsets of value version 4 (5)" in str(other_coordinator(SCALA, COMMITS_OF_4_1))
    assert other_coordinator(JAVA, COMMITS_OF_4_1) is None


@pytest.mark.parametrize("kind", [(0, 0), (0, -1), (1, 2), (1, 3), (2, 0), (2, 1), (2, 2)])
def test_records_of_older_brokers_alone_contradict_4_3(kind: tuple[int, int]) -> None:
    assert "choose --semantics scala" in str(other_coordinator(JAVA, {kind: 1, (2, 3): 1}))
    assert other_coordinator(SCALA, {kind: 1, (2, 3): 1}) is None


def test_a_topic_that_outlived_an_upgrade_contradicts_only_the_older_broker() -> None:
    kept = COMMITS_OF_2_1 | COMMITS_OF_4_1 | {(2, 1): 3}
    assert other_coordinator(JAVA, kept) is None
    assert other_coordinator(SCALA, kept) is not None


def test_what_4_0_writes_is_no_sign_of_an_older_broker() -> None:
    assert other_coordinator(semantics_for(broker_version="4.0.1"), COMMITS_OF_2_1) is None
    assert other_coordinator(semantics_for(broker_version="4.1"), COMMITS_OF_2_1) is not None


UNKNOWN_TYPES = {(9, -1): 1, (18, -1): 1, (99, -1): 1}


@pytest.mark.parametrize("records", [{}, COMMITS_WITH_EXPIRY, {(1, -1): 4, (2, -1): 1}, {(2, 3): 9}, UNKNOWN_TYPES])
def test_what_every_release_writes_and_what_none_does_tell_nothing(records: dict[tuple[int, int], int]) -> None:
    assert other_coordinator(JAVA, records) is None
    assert other_coordinator(SCALA, records) is None
