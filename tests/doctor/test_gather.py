"""Facts of partitions equal the figures of Kafka's own classes."""

from __future__ import annotations

import pickle
import random
from functools import cache
from typing import Any

import pytest

from groupcoord_spark.doctor import ChunkKeys, PartitionFacts, PartitionGatherer, gather_partition
from groupcoord_spark.doctor.facts import FilesBeside, ProducerFacts
from groupcoord_spark.log import read_segment
from groupcoord_spark.log.broker_dir.broker_files import read_log_directory_files, read_partition_files
from groupcoord_spark.log.directory import plan_copies
from groupcoord_spark.storage.location import Location
from tests.doctor.copies import CORPORA, logs, oracle


@cache
def facts_of(corpus: str, chunk_bytes: int) -> list[PartitionFacts]:
    ((log_dir, plan),) = plan_copies([logs(corpus)])
    checkpoints = read_log_directory_files(log_dir)
    return [
        gather_partition(
            partition, FilesBeside(read_partition_files(Location.of(partition.directory)), checkpoints), chunk_bytes=chunk_bytes
        )
        for partition in plan.partitions
    ]


@pytest.mark.parametrize("corpus", CORPORA)
def test_gatherers_of_parts_give_the_facts_of_the_whole(corpus: str) -> None:
    """As the workers of a run do it: each gathers a part of the log, also of a transaction, and the parts are joined."""
    rng = random.Random(7)
    ((log_dir, plan),) = plan_copies([logs(corpus)])
    for partition, whole in zip(plan.partitions, facts_of(corpus, 12 << 20), strict=True):
        files = FilesBeside(read_partition_files(Location.of(partition.directory)), read_log_directory_files(log_dir))
        parts = [PartitionGatherer(partition, files)]
        for segment in partition.segments:
            for chunk in read_segment(segment, chunk_bytes=2_000):
                if rng.random() < 0.5:
                    parts.append(PartitionGatherer(partition, files))
                parts[-1].add(chunk, segment, ChunkKeys.of(chunk.records))
        joined = pickle.loads(pickle.dumps(parts[0]))
        for part in parts[1:]:
            joined.absorb(pickle.loads(pickle.dumps(part)))
        assert_same(joined.facts(), whole)


def assert_same(facts: PartitionFacts, expected: PartitionFacts) -> None:
    for name in PartitionFacts.__slots__:
        if name == "producers":
            for column in ProducerFacts.__slots__:
                assert getattr(facts.producers, column).tolist() == getattr(expected.producers, column).tolist()
        else:
            assert getattr(facts, name) == getattr(expected, name), name


@pytest.mark.parametrize("chunk_bytes", [12 << 20, 2_000])
@pytest.mark.parametrize("corpus", CORPORA)
def test_bytes_of_every_group_by_fate_are_kafkas(corpus: str, chunk_bytes: int) -> None:
    storage = oracle(corpus, "storage")
    for facts in facts_of(corpus, chunk_bytes):
        expected: dict[str, Any] = storage[str(facts.offsets_partition)]["groups"]
        found = {
            name: {
                **{f"offset_{fate}": count for fate, count in group.offset_fates.items()},
                **{f"group_{fate}": count for fate, count in group.group_fates.items()},
            }
            for name, group in facts.groups.items()
        }
        assert found == expected


@pytest.mark.parametrize("chunk_bytes", [12 << 20, 2_000])
@pytest.mark.parametrize("corpus", CORPORA)
def test_batches_are_kafkas(corpus: str, chunk_bytes: int) -> None:
    storage = oracle(corpus, "storage")
    for facts in facts_of(corpus, chunk_bytes):
        batches = facts.batches
        expected = storage[str(facts.offsets_partition)]
        found = {
            "bytes": batches.bytes,
            "batches": batches.batches,
            "record_bytes": batches.record_bytes,
            "control_batches": batches.control_batches,
            "control_batch_bytes": batches.control_bytes,
            "empty_data_batches": batches.empty_data_batches,
            "empty_data_batch_bytes": batches.empty_data_bytes,
            "delete_horizon_batches": len(batches.data_horizons_ms) + len(batches.marker_horizons_ms),
            "transactional_data_batches": batches.transactional_batches_with_records,
            "producer_ids": len(facts.producers.producer_id),
        }
        assert found == {name: expected[name] for name in found}
        segments = [segment for segment in facts.segments if segment.records]
        assert [segment.base_offset for segment in segments] == [int(each["file"][:20]) for each in expected["segments"] if each["records"]]
        assert [segment.records for segment in segments] == [each["records"] for each in expected["segments"] if each["records"]]


def test_columns_of_open_transactions_do_not_depend_on_chunks() -> None:
    whole, pieces = (facts_of("hanging", chunk_bytes) for chunk_bytes in (12 << 20, 2_000))
    assert [facts.open_transactions for facts in whole] == [facts.open_transactions for facts in pieces]
    assert sum(len(facts.open_transactions) for facts in whole) == 6


@pytest.mark.parametrize("corpus", ["hot", "many-producers", "hanging"])
def test_groups_do_not_depend_on_chunks(corpus: str) -> None:
    whole, pieces = (facts_of(corpus, chunk_bytes) for chunk_bytes in (12 << 20, 2_000))
    assert [facts.groups for facts in whole] == [facts.groups for facts in pieces]
    assert [(facts.keys, facts.dirty_keys, facts.holes) for facts in whole] == [(each.keys, each.dirty_keys, each.holes) for each in pieces]
