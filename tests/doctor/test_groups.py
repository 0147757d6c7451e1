"""Sums over the groups of a partition: all that travels to the driver of a run."""

from __future__ import annotations

import pickle

from groupcoord_spark.doctor.gather.group_table import LIVE, SUPERSEDED, SUPERSEDED_TOMBSTONE, TOMBSTONE, GroupInLog, sums_of_groups


def live(name: str, **fields: int) -> GroupInLog:
    return GroupInLog(name, {LIVE: [2, 100]}, {LIVE: [1, 50], SUPERSEDED: [3, 150]}, **fields)


def deleted(name: str) -> GroupInLog:
    return GroupInLog(name, {TOMBSTONE: [2, 40]}, {TOMBSTONE: [1, 20], SUPERSEDED_TOMBSTONE: [1, 20]})


def test_sums_are_those_of_all_groups() -> None:
    living = live("etl", batch_bytes=900), live("app", transactional_records=7, batch_bytes=10)
    sums = sums_of_groups([*living, deleted("app-old-1"), deleted("app-old-2")])
    assert sums.groups == 4
    assert sums.fates == {LIVE: [6, 300], SUPERSEDED: [6, 300], TOMBSTONE: [6, 120], SUPERSEDED_TOMBSTONE: [2, 40]}
    assert sums.habits == {}
    assert sums.most_transactional == "app"
    assert (sums.with_tombstones, sums.tombstone_prefix, sums.offset_tombstones, sums.group_tombstones) == (2, "app-old-", 4, 4)
    assert sums.throwaway == {}


def test_no_groups_have_sums() -> None:
    sums = sums_of_groups([])
    assert (sums.groups, sums.fates, sums.most_transactional, sums.tombstone_prefix) == (0, {}, None, "")


def test_size_of_the_sums_does_not_grow_with_the_groups() -> None:
    few, many = (sums_of_groups([live(f"console-consumer-{number:06}") for number in range(count)]) for count in (100, 10_000))
    assert many.groups == 10_000
    assert len(pickle.dumps(many)) < 1.1 * len(pickle.dumps(few)) < 4_000
