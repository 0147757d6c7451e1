"""Expiration over the tables of a run is what the nightly finds itself, and what real Kafka did."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.answers.expiration import ExpirationJob, expiration_rows, expirations_of
from groupcoord_spark.answers.what_if import DayChanges, StateTables, changes, cleanups, tombstone_batches
from groupcoord_spark.coordinator.expiration import Cleanup
from groupcoord_spark.coordinator.semantics import JAVA, SCALA, Semantics, semantics_for
from groupcoord_spark.coordinator.state import PartitionState
from groupcoord_spark.log.writing import Batch, RecordToLog, batch_bytes
from groupcoord_spark.pipeline.exchange.state_rows import WRITTEN_ROWS, state_rows, to_arrow
from groupcoord_spark.warehouse import TABLES
from tests.coordinator.records import GOLDEN, Record, recorded, replayed
from tests.coordinator.test_golden import CORPORA, answer, semantics_of, states_of
from tests.examples import examples
from tests.warehouse.nights import DAY_MS, group, offset

NOW_MS = 1_795_250_000_000
RETENTIONS_MS = st.sampled_from([1, 60_000, DAY_MS, 7 * DAY_MS, 2**62])
MOMENTS_MS = st.one_of(st.integers(NOW_MS - 20 * DAY_MS, NOW_MS + 20 * DAY_MS), st.sampled_from([0, 2**62, 253_402_300_800_000]))


def tables_of(state: PartitionState) -> StateTables:
    """State as the writers make its tables, and as readers get them back."""
    rows = state_rows(state, expirations_of(state, ExpirationJob(0, 0, JAVA)))

    def table(name: str) -> pa.Table:
        placed = to_arrow(TABLES[name], WRITTEN_ROWS[name], rows[name])
        return TABLES[name].from_milliseconds(placed.append_column("offsets_partition", pa.array([0] * len(rows[name]), pa.int32())))

    return StateTables(table("committed_offsets"), table("pending_offsets"), table("groups"), frozenset())


@pytest.fixture(scope="module")
def tables() -> Any:
    """Provide the tables of a golden corpus, by its name and offsets partition."""
    made: dict[str, dict[int, StateTables]] = {}

    def of(name: str) -> dict[int, StateTables]:
        if name not in made:
            made[name] = {number: tables_of(state) for number, state in states_of(name).items()}
        return made[name]

    return of


@examples(40)
@given(st.sampled_from(CORPORA), MOMENTS_MS, RETENTIONS_MS, st.booleans(), st.sampled_from([None, JAVA, SCALA, semantics_for(None, "1.1")]))
def test_rules_over_tables_are_the_rules_over_the_state(
    tables: Any, name: str, now_ms: int, retention_ms: int, gone: bool, semantics: Semantics | None
) -> None:
    job = ExpirationJob(now_ms, retention_ms, semantics or semantics_of(name), assume_members_gone=gone)
    for number, state in states_of(name).items():
        rows = expiration_rows((cleaned for _, cleaned in cleanups(tables(name)[number], job)), job)
        assert rows == expirations_of(state, job)


@pytest.mark.parametrize("name", ["fuzz-1", "fuzz-1/scala"])
def test_cleanups_over_tables_do_what_kafkas_own_did(tables: Any, name: str) -> None:
    for case in answer(name, "expired_at.json"):
        job = ExpirationJob(case["now"], case["retention_ms"], semantics_of(name))
        cleaned = [each.cleanup for state in tables(name).values() for _, each in cleanups(state, job)]
        expired = {each[:3] for cleanup in cleaned for each in cleanup.offsets if each.expired}
        assert expired == {(row["group"], row["topic"], row["partition"]) for row in case["expired"]}
        assert {cleanup.group.group_id for cleanup in cleaned if cleanup.group.removed} == set(case["removed_groups"])


def by_hand(**fields: Any) -> StateTables:
    """Return one Empty group that became so six days before now, with an offset committed now, and one simple group."""
    rows = {
        "committed_offsets": [
            offset("empty", "orders", 0, 5, commit_timestamp_ms=NOW_MS, **fields),
            offset("simple", "orders", 0, 5, commit_timestamp_ms=NOW_MS - 2 * DAY_MS),
        ],
        "groups": [
            group("empty", state_timestamp_ms=NOW_MS - 6 * DAY_MS, offset_count=1),
            group("simple", is_simple=True, protocol_type=None, generation=0, offset_count=1),
        ],
    }
    made = {name: TABLES[name].from_rows([{"cluster": "c", **row} for row in of]) for name, of in rows.items()}
    return StateTables(made["committed_offsets"], TABLES["pending_offsets"].empty(), made["groups"], frozenset())


WEEK = ExpirationJob(NOW_MS, 7 * DAY_MS, JAVA)


def day(moment_ms: int) -> int:
    return moment_ms // DAY_MS


class TestChanges:
    def test_shorter_retention_loses_on_the_day_of_the_new_moment(self) -> None:
        tomorrow = changes(by_hand(), WEEK, replace(WEEK, retention_ms=3 * DAY_MS))
        assert tomorrow == [
            DayChanges(day(NOW_MS), "empty", 1, 0, True, False),
            DayChanges(day(NOW_MS + DAY_MS), "simple", 1, 0, True, False),
        ]

    def test_longer_retention_gains_on_the_day_the_present_one_would_have_taken_it(self) -> None:
        kept = changes(by_hand(), WEEK, replace(WEEK, retention_ms=14 * DAY_MS))
        assert kept == [
            DayChanges(day(NOW_MS + DAY_MS), "empty", 0, 1, False, True),
            DayChanges(day(NOW_MS + 5 * DAY_MS), "simple", 0, 1, False, True),
        ]

    def test_what_both_have_removed_by_now_is_no_change(self) -> None:
        late = replace(WEEK, as_of_ms=NOW_MS + 30 * DAY_MS)
        assert changes(by_hand(), late, replace(late, retention_ms=DAY_MS)) == []

    def test_an_offset_that_never_went_and_now_goes_is_lost(self) -> None:
        state = by_hand()
        live = [{"cluster": "c", **group("empty", state="Stable", member_count=1, subscribed_topics=["orders"])}]
        state = state._replace(groups=TABLES["groups"].from_rows(live))
        gone = replace(WEEK, assume_members_gone=True)
        assert changes(state, WEEK, gone) == [DayChanges(day(NOW_MS + 7 * DAY_MS), "empty", 1, 0, True, False)]


def test_every_state_of_a_group_is_kept_that_cleanups_ask_for(tables: Any) -> None:
    # An expression that no member uses protects its topics, and its record goes with the group (worked example 36).
    rows = [{"cluster": "c", **group("g", group_type="consumer", subscribed_topics=["t1"], regular_expressions=["t.*", "u"])}]
    state = by_hand()._replace(committed=TABLES["committed_offsets"].empty(), groups=TABLES["groups"].from_rows(rows))
    ((_, cleaned),) = cleanups(state, WEEK)
    assert [tombstone.key_type for tombstone in cleaned.cleanup.tombstones] == [6, 16, 16, 4, 3]
    assert Cleanup(NOW_MS, 1).facts_of(cleaned.cleanup.facts) == cleaned.cleanup.facts



ENDS = answer("expiry", "../corpus.json")["log_end_offsets_before"]


@pytest.fixture(scope="module")
def written(tables: Any) -> dict[int, list[Batch]]:
    """Provide the batches of each partition of a golden log, as of the cleanup of the broker that wrote it."""
    moments = answer("expiry/expired", "../corpus.json")["clean_up_ran_at_ms"].values()
    job = ExpirationJob(max(map(max, moments)), 60_000, JAVA)
    done = [dict(tombstone_batches(state, job, {0: ENDS[str(number)]})) for number, state in tables("expiry").items()]
    return {number: batches.get(0, []) for number, batches in zip(tables("expiry"), done, strict=True)}


class TestTombstoneBatches:
    """What is written is what the cleanup of a broker appended to the same log."""

    def test_one_batch_a_partition_with_the_brokers_own_records(self, written: dict[int, list[Batch]]) -> None:
        real = {
            number: sorted(record.key or b"" for record in records if record.offset is not None and record.offset >= ENDS[str(number)])
            for number, records in recorded(GOLDEN / "expiry" / "expired").items()
        }
        assert {number: len(batches) for number, batches in written.items()} == dict.fromkeys(real, 1)
        assert {number: sorted(one.key or b"" for one in batches[0].records) for number, batches in written.items()} == real

    def test_bytes_are_the_brokers_but_for_the_order_of_the_groups(self, written: dict[int, list[Batch]]) -> None:
        for number, (batch,) in written.items():
            folder = GOLDEN / "expiry" / "expired" / "logs" / f"__consumer_offsets-{number}"
            (segment,) = folder.glob("*.log")
            ours = batch_bytes(batch)
            real = segment.read_bytes()[-len(ours) :]
            attributes_to_count, moments = slice(21, 61), slice(27, 43)
            assert real[:17] == ours[:17]
            assert real[attributes_to_count][:6] == ours[attributes_to_count][:6]
            assert real[moments.stop : 61] == ours[moments.stop : 61]

    def test_log_and_segments_replayed_give_the_brokers_state(self, written: dict[int, list[Batch]]) -> None:
        for number, records in recorded(GOLDEN / "expiry").items():
            appended = [
                appended_record(one, batch.base_offset + at) for batch in written[number] for at, one in enumerate(batch.records)
            ]
            after, real = replayed([*records, *appended]), states_of("expiry/expired")[number]
            assert {(*row[:3], row.commit.committed_offset) for row in after.committed_offsets()} == {
                (*row[:3], row.commit.committed_offset) for row in real.committed_offsets()
            }
            assert [row.group_id for row in after.groups()] == [row.group_id for row in real.groups()]
            assert after.warnings() == real.warnings()

    def test_scala_writes_a_batch_for_each_group(self) -> None:
        job = ExpirationJob(NOW_MS + 9 * DAY_MS, 7 * DAY_MS, SCALA)
        ((number, batches),) = tombstone_batches(by_hand(), job, {0: 100})
        assert number == 0
        # The simple group never had a generation, so nothing says that it is gone (X-G1).
        assert [(batch.base_offset, len(batch.records), batch.base_sequence) for batch in batches] == [(100, 2, -1), (102, 1, -1)]
        assert {one.timestamp_ms for batch in batches for one in batch.records} == {job.as_of_ms}

    def test_a_write_too_large_for_one_batch_goes_into_several(self) -> None:
        topic = "t" * 240
        rows = [{"cluster": "c", **offset("simple", topic, number, 5, commit_timestamp_ms=0)} for number in range(4_500)]
        state = by_hand()._replace(committed=TABLES["committed_offsets"].from_rows(rows))
        ((_, batches),) = tombstone_batches(state, WEEK, {0: 7})
        assert len(batches) == 2
        assert batches[1].base_offset == 7 + len(batches[0].records)
        assert 1_000_000 < len(batch_bytes(batches[0])) <= 1_048_588


def appended_record(one: RecordToLog, record_offset: int) -> Record:
    return Record(key=one.key, value=one.value, timestamp_ms=one.timestamp_ms, offset=record_offset)
