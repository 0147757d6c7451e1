"""Random requests while appends take time and fail: in the end memory and log agree, and everybody has an answer."""

import random
from typing import Any

import pytest

from groupcoord_spark.coordinator.groups.modern import ModernMember
from groupcoord_spark.simulator import (
    ClusterTopic,
    Error,
    FailAppends,
    LoadPartition,
    LosePartition,
    Settings,
    Simulator,
    WrittenRecord,
    release_for,
)
from groupcoord_spark.simulator.broker.settings import stand_in_topic_id
from groupcoord_spark.simulator.groups.consumer_group import ConsumerGroup
from groupcoord_spark.simulator.groups.share_group import ShareGroup
from groupcoord_spark.simulator.messages.requests import (
    ConsumerGroupHeartbeat,
    DeleteGroups,
    EndTxn,
    GroupToFetch,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Request,
    ShareGroupHeartbeat,
    TxnOffsetCommit,
)

GROUPS = ("g1", "g2", "g3")
ERRORS = (*[Error.NONE] * 3, Error.KAFKA_STORAGE_ERROR, Error.NOT_LEADER_OR_FOLLOWER, Error.MESSAGE_TOO_LARGE)
SETTINGS = Settings(
    topics={"t": ClusterTopic(4, stand_in_topic_id("t"))},
    offsets_topic_num_partitions=1,
    group_consumer_assignment_interval_ms=0,
    group_share_assignment_interval_ms=0,
)


def random_request(source: random.Random, simulator: Simulator) -> Request:
    group, member = source.choice(GROUPS), source.choice("abc")
    offsets = (OffsetToCommit("t", source.randrange(4), source.randrange(100)),)
    consumers, sharers = simulator.broker.group_of(group, ConsumerGroup), simulator.broker.group_of(f"{group}-share", ShareGroup)
    epoch = 0 if consumers is None or member not in consumers.members else consumers.members[member].member_epoch
    share_epoch = 0 if sharers is None or member not in sharers.members else sharers.members[member].member_epoch or 0
    first: dict[str, Any] = {"rebalance_timeout_ms": 8_000, "topics": ("t",), "partitions": {}}
    leaves = source.random() < 0.2
    return source.choice(
        [
            OffsetCommit(group, offsets),
            TxnOffsetCommit(group, source.randrange(3), offsets),
            EndTxn(source.randrange(3), source.random() < 0.7),
            OffsetFetch((GroupToFetch(group, None),), require_stable=True),
            DeleteGroups((group, source.choice(GROUPS))),
            OffsetDelete(group, {"t": (0, 1)}),
            ConsumerGroupHeartbeat(group, member, -1) if leaves else ConsumerGroupHeartbeat(group, member, epoch, **first),
            ShareGroupHeartbeat(f"{group}-share", member, -1 if leaves else share_epoch, topics=None if leaves else ("t",)),
        ]
    )


def held_by(member: ModernMember) -> Any:
    return member.current.get("assigned_partitions", ())


def state_of(simulator: Simulator) -> dict[str, Any]:
    (partition,) = simulator.broker.partitions.values()
    consumers = {
        group_id: (
            group.epoch,
            group.replayed.targets,
            {name: (member.metadata, member.member_epoch, member.state, held_by(member)) for name, member in group.members.items()},
        )
        for group_id, group in partition.groups.items()
        if isinstance(group, ConsumerGroup)
    }
    sharers = {
        group_id: (group.epoch, group.replayed.targets, group.initialized, {name: held_by(one) for name, one in group.members.items()})
        for group_id, group in partition.groups.items()
        if isinstance(group, ShareGroup)
    }
    return {"offsets": partition.offsets.committed, "pending": partition.offsets.pending, "consumers": consumers, "sharers": sharers}


@pytest.mark.parametrize("seed", range(40))
def test_what_the_memory_has_is_what_the_log_says(seed: int) -> None:
    source = random.Random(seed)
    log: list[WrittenRecord] = []
    simulator = Simulator(release_for(), SETTINGS, on_entry=lambda entry: log.extend(entry.records))
    calls = []
    for _ in range(60):
        simulator.advance_to(simulator.broker.now_ms + source.choice([0, 1, 50, 400, 3_000, 20_000]))
        if source.random() < 0.15:
            simulator.act(FailAppends(source.choice(ERRORS), source.choice([0, 300, 2_000, 8_000])))
        calls.append(simulator.send(random_request(source, simulator)))
    simulator.act(FailAppends(Error.NONE))
    simulator.advance_to(simulator.broker.now_ms + 30_000)
    assert [call for call in calls if call.answer is None] == []
    loaded = Simulator(release_for(), SETTINGS)
    loaded.act(LosePartition(0))
    loaded.act(LoadPartition(0, tuple(log)))
    assert state_of(simulator) == state_of(loaded)
