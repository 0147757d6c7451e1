"""What holds for any sequence of records, however odd."""

import dataclasses
import pickle
from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from groupcoord_spark.coordinator import JAVA, SCALA, Cleanup, PartitionReplay, PartitionState, Semantics, semantics_for
from groupcoord_spark.protocol import decode_key, encode_key
from tests.coordinator.records import (
    Record,
    classic_group,
    consumer_member,
    current_assignment,
    everything,
    group_epoch,
    marker,
    member,
    offset_commit,
    replay_of,
    resolved_regex,
    share_assignment,
    share_group_epoch,
    share_member,
    share_target,
    streams_assignment,
    streams_group_epoch,
    streams_member,
    streams_target,
    subscription,
    target,
    target_metadata,
    tombstone,
    topology,
    transactional_commit,
)
from tests.examples import examples

RETENTION = 60_000
RELEASES = ("4.1.1", "2.8.2", "2.2.0", "2.0.1", "0.9.0.1")
BROKERS = st.sampled_from([JAVA, SCALA, *(semantics_for(broker_version=release) for release in RELEASES)])
PLACES = st.sampled_from(["t0", "t1", "u0"])
MEMBERS = st.sampled_from(["m", "n"])
EPOCHS = st.integers(-2, 4)
PARTITIONS = st.sets(st.integers(0, 2), max_size=2)
TIMES = st.integers(800_000, 1_100_000)
COMMITTED = st.none() | st.integers(0, 9)
EXPIRES = st.none() | st.sampled_from([0, 999_999, 1_000_001])

commits = st.builds(
    lambda place, value, commit_ms, expire_ms, key_type: offset_commit(
        place, value, commit_ms=commit_ms, expire_ms=expire_ms, key_type=key_type
    ),
    PLACES,
    COMMITTED,
    TIMES,
    EXPIRES,
    st.sampled_from([1, 1, 1, 0]),
)
staged = st.builds(
    lambda producer, place, value, epoch, commit_ms: transactional_commit(producer, place, value, epoch=epoch, commit_ms=commit_ms),
    st.sampled_from([7, 8]),
    PLACES,
    COMMITTED,
    st.integers(0, 2),
    TIMES,
)
markers = st.builds(marker, st.sampled_from([7, 8]), st.sampled_from([0, 1, 1, 3]))
odd_batches = st.builds(
    lambda record, producer, bit: dataclasses.replace(record, producer_id=producer, is_transactional=bit),
    commits,
    st.sampled_from([-1, 7]),
    st.booleans(),
)
subscriptions = st.sampled_from([b"", subscription("t"), subscription("t", "u"), b"\0\0\xff\xff\xff\xff"])
members = st.lists(st.builds(member, MEMBERS, subscriptions), max_size=2)
classic = st.builds(
    lambda kind, generation, state_ms, entries, version: classic_group(
        kind, generation, state_ms=state_ms, members=entries, protocol="range" if entries else None, version=version
    ),
    st.sampled_from(["", "consumer", "consumer", "connect"]),
    st.integers(0, 3),
    st.just(-1) | TIMES,
    members,
    st.sampled_from([0, 1, 2, 3]),
)
classic_tombstones = st.builds(tombstone, st.just(2))
modern = st.one_of(
    st.builds(group_epoch, EPOCHS),
    st.builds(lambda name, topics: consumer_member(name, *topics), MEMBERS, st.lists(st.sampled_from("tu"), max_size=2)),
    st.builds(target_metadata, st.sampled_from([6, 12, 20]), EPOCHS),
    st.builds(lambda name, numbers: target(name, *numbers), MEMBERS, PARTITIONS),
    st.builds(
        lambda name, epoch, numbers, revoking, state: current_assignment(name, epoch, *numbers, revoking=revoking, state=state),
        MEMBERS,
        EPOCHS,
        PARTITIONS,
        PARTITIONS,
        st.integers(0, 3),
    ),
    st.builds(resolved_regex, st.sampled_from(["t.*", "u.*"]), st.sampled_from("tu")),
    st.builds(lambda name, topic: share_member(name, topic), MEMBERS, st.sampled_from("tu")),
    st.builds(share_group_epoch, EPOCHS),
    st.builds(lambda name, numbers: share_target(name, *numbers), MEMBERS, PARTITIONS),
    st.builds(lambda name, epoch, numbers: share_assignment(name, epoch, *numbers), MEMBERS, EPOCHS, PARTITIONS),
    st.builds(streams_group_epoch, EPOCHS, st.integers(-1, 1)),
    st.builds(streams_member, MEMBERS),
    st.builds(lambda name, numbers: streams_target(name, *numbers), MEMBERS, PARTITIONS),
    st.builds(
        lambda name, epoch, numbers, state: streams_assignment(name, epoch, *numbers, state=state),
        MEMBERS,
        EPOCHS,
        PARTITIONS,
        st.integers(0, 3),
    ),
    st.builds(lambda topic, epoch: topology(topic, epoch=epoch), st.sampled_from("tu"), st.integers(0, 1)),
)
group_tombstones = st.builds(tombstone, st.sampled_from([3, 4, 6, 11, 12, 15, 17, 20, 23]))
member_tombstones = st.builds(
    lambda key_type, name: tombstone(key_type, member_id=name), st.sampled_from([5, 7, 8, 10, 13, 14, 19, 21, 22]), MEMBERS
)
broken = st.sampled_from(
    [Record(key=b"\0"), Record(key=None), Record(key=b"\0\x18\0\1g"), Record(key=offset_commit("t0", 1).key, value=b"\0\3")]
)
tombstones = group_tombstones | member_tombstones
# Kinds of groups mixed, and one kind at a time: only then groups get far enough to be whole.
any_record = st.one_of(commits, commits, staged, markers, odd_batches, classic, classic_tombstones, modern, modern, tombstones, broken)


def under(group_id: str, record: Record) -> Record:
    """Return the same record of another group; markers and broken keys have none."""
    if record.key is None or len(record.key) < 4 or record.key[:2] == b"\0\x18":
        return record
    key = decode_key(record.key)
    return dataclasses.replace(record, key=encode_key(key.key_type, {**key.fields, "group_id": group_id}))


logs = st.lists(any_record, max_size=40)
logs_of_two_groups = st.lists(st.builds(under, st.sampled_from("gh"), any_record), max_size=40)
many = examples(60)


@many
@given(logs_of_two_groups, BROKERS, st.integers(0, 40))
def test_stopping_and_resuming_at_any_record_changes_nothing(log: Sequence[Record], broker: Semantics, stop: int) -> None:
    expected = everything(replay_of(log, broker).finish())
    replay = replay_of(log[:stop], broker)
    everything(replay.finish())
    resumed: PartitionReplay = pickle.loads(pickle.dumps(replay))
    for record_offset, record in enumerate(log[stop:], stop):
        record.apply_to(resumed, record_offset)
    assert everything(resumed.finish()) == expected


@many
@given(logs_of_two_groups, BROKERS)
def test_records_of_one_group_never_change_another(log: Sequence[Record], broker: Semantics) -> None:
    whole = everything(replay_of(log, broker).finish())
    own = PartitionReplay(broker)
    for record_offset, record in enumerate(log):
        if record.control_type is not None or under("g", record) == record:
            record.apply_to(own, record_offset)
    # A producer that goes on with another group tells that its older transaction was overtaken: a remark, no state.
    names = ("committed", "pending", "orphans", "groups", "members", "assignments")
    alone = everything(own.finish())
    assert {name: [row for row in whole[name] if row.group_id == "g"] for name in names} == {name: alone[name] for name in names}


@many
@given(logs, BROKERS, st.booleans())
def test_nothing_leaves_before_its_retention_unless_it_asked_for_that(log: Sequence[Record], broker: Semantics, members_gone: bool) -> None:
    state = replay_of(log, broker).finish()
    for group in Cleanup(1_000_000, RETENTION, broker, members_gone).of_partition(state):
        stored = state.offsets_of(group.group.group_id)
        state_ms = next(row.state_timestamp_ms for row in state.groups() if row.group_id == group.group.group_id)
        for offset in group.offsets:
            entry = stored[offset.topic, offset.partition]
            if offset.expired and entry.expire_timestamp_ms == -1:
                assert offset.base_timestamp_ms in (entry.commit_timestamp_ms, state_ms)
                assert 1_000_000 - offset.base_timestamp_ms >= RETENTION


@many
@given(logs, BROKERS)
def test_second_cleanup_at_the_same_time_writes_nothing(log: Sequence[Record], broker: Semantics) -> None:
    replay = replay_of(log, broker)
    cleanup = Cleanup(1_000_000, RETENTION, broker)
    written = [tombstone for group in cleanup.of_partition(replay.finish()) for tombstone in group.tombstones]
    for position, written_tombstone in enumerate(written):
        Record(key=written_tombstone.key).apply_to(replay, len(log) + position)
    state = replay.finish()
    # A target assignment of a member that does not exist would keep the group: brokers never leave one behind.
    assume(not {"R-3.13", "R-3.27"} & {warning.code for warning in state.warnings() if (warning.record_offset or 0) >= len(log)})
    again = list(cleanup.of_partition(state))
    assert [tombstone for group in again for tombstone in group.tombstones] == []
    assert not any(offset.expired for group in again for offset in group.offsets)


@many
@given(logs, BROKERS, st.integers(800_000, 1_200_000))
def test_offset_is_expired_exactly_from_the_told_moment_on(log: Sequence[Record], broker: Semantics, now_ms: int) -> None:
    state = replay_of(log, broker).finish()

    def done_at(moment_ms: int) -> dict[tuple[str, int], tuple[int | None, bool]]:
        done = Cleanup(moment_ms, RETENTION, broker).of_partition(state)
        return {(row.topic, row.partition): (row.expires_at_ms, row.expired) for group in done for row in group.offsets}

    for place, (expires_at_ms, expired) in done_at(now_ms).items():
        assert expired == (expires_at_ms is not None and now_ms >= expires_at_ms)
        if expires_at_ms is not None:
            assert done_at(expires_at_ms)[place] == (expires_at_ms, True)
            assert done_at(expires_at_ms - 1)[place] == (expires_at_ms, False)


@many
@given(logs, BROKERS)
def test_group_is_removed_exactly_from_the_told_moment_on(log: Sequence[Record], broker: Semantics) -> None:
    state = replay_of(log, broker).finish()
    for group in Cleanup(1_000_000, RETENTION, broker).of_partition(state):
        removed_at_ms = group.group.removed_at_ms
        assert group.group.removed == (removed_at_ms is not None and removed_at_ms <= 1_000_000)
        assert (group.group.blocked_by is None) <= (group.group.removed or broker.group_rule in (None, "X-G0"))
        if removed_at_ms is not None and group.offsets:
            assert [done.group.removed for done in Cleanup(removed_at_ms, RETENTION, broker).of_partition(state)] == [True]
            assert [done.group.removed for done in Cleanup(removed_at_ms - 1, RETENTION, broker).of_partition(state)] == [False]


# What brokers write: no tombstones inside of transactions, both signs of a transaction.
staged_values = staged.filter(lambda record: record.value is not None)
plain_logs = st.lists(st.one_of(commits, staged_values, markers, classic, classic_tombstones), max_size=40)


def cleaned(log: Sequence[Record]) -> list[Record]:
    """Return what the log cleaner leaves: up to the first open transaction, the last of each key, aborted ones left out; markers stay."""
    placed = [dataclasses.replace(record, offset=position) for position, record in enumerate(log)]
    markers_of = {producer: [r for r in placed if r.producer_id == producer and r.control_type in (0, 1)] for producer in (7, 8)}
    ends = {
        position: next((m.control_type for m in markers_of[record.producer_id] if (m.offset or 0) > position), None)
        for position, record in enumerate(placed)
        if record.is_transactional and record.control_type is None
    }
    limit = min((position for position, end in ends.items() if end is None), default=len(placed))
    kept = [record for position, record in enumerate(placed[:limit]) if ends.get(position) != 0]
    last = {record.key: record.offset for record in kept}
    return [record for record in kept if record.control_type is not None or last[record.key] == record.offset] + placed[limit:]


def stored_in(state: PartitionState) -> tuple[list[object], list[object], list[object]]:
    """Return all but simple groups and orphanhood: those may be there before cleaning and not after."""
    whole = everything(state)
    groups = [row._replace(offset_count=0, topic_count=0, pending_offset_count=0) for row in whole["groups"] if not row.is_simple]
    return sorted([*whole["committed"], *whole["orphans"]]), whole["pending"], groups


@many
@given(plain_logs)
def test_cleaned_log_says_what_the_whole_log_says(log: Sequence[Record]) -> None:
    assert stored_in(replay_of(cleaned(log)).finish()) == stored_in(replay_of(log).finish())
