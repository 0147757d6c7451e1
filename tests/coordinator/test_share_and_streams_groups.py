"""Share groups and streams groups, conversions between kinds, and every record that is refused."""

import pytest

from groupcoord_spark.coordinator import semantics_for
from groupcoord_spark.protocol.record_types import KeyType
from tests.coordinator.records import (
    TOPIC_ID,
    Record,
    classic_group,
    codes_of,
    consumer_member,
    current_assignment,
    group_epoch,
    group_of,
    offset_commit,
    offsets_of,
    orphans_of,
    own,
    replayed,
    share_assignment,
    share_group_epoch,
    share_member,
    share_target,
    stable_classic_group,
    streams_assignment,
    streams_group_epoch,
    streams_member,
    streams_target,
    target,
    target_metadata,
    tombstone,
    topology,
)

K15 = own(
    15,
    {
        "initializing_topics": [{"topic_id": TOPIC_ID, "topic_name": "t", "partitions": [0]}],
        "initialized_topics": [],
        "deleting_topics": [{"topic_id": "AAAAAAAAAAEAAAAAAAAAAw", "topic_name": "<UNKNOWN>"}],
    },
)
LEFT_SHARE = [
    tombstone(KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
    tombstone(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER, member_id="m"),
    tombstone(KeyType.SHARE_GROUP_MEMBER_METADATA, member_id="m"),
]
LEFT_STREAMS = [
    tombstone(KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
    tombstone(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, member_id="m"),
    tombstone(KeyType.STREAMS_GROUP_MEMBER_METADATA, member_id="m"),
]
RUNNING = [
    streams_member("m"),
    topology("t"),
    streams_group_epoch(2, 0),
    streams_target("m", 0),
    target_metadata(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, 2),
    streams_assignment("m", 2, 0),
]

REFUSED = {
    "R-3.3 share record over a simple group": ([offset_commit("t0", 5), share_group_epoch()], "R-3.3"),
    "R-3.3 share tombstone over a simple group": (
        [offset_commit("t0", 5), tombstone(KeyType.SHARE_GROUP_STATE_PARTITION_METADATA)],
        "R-3.3",
    ),
    "R-3.6 share record over a classic group": ([stable_classic_group("t"), share_group_epoch()], "R-3.6"),
    "R-3.6 share record over a consumer group": ([group_epoch(), tombstone(KeyType.SHARE_GROUP_METADATA)], "R-3.6"),
    "R-3.5 streams record over a classic group": ([classic_group(), streams_group_epoch()], "R-3.5"),
    "R-3.5 streams record over a share group": ([share_group_epoch(), tombstone(KeyType.STREAMS_GROUP_TOPOLOGY)], "R-3.5"),
    "R-3.16 share member with a live assignment": (
        [share_member("m"), share_assignment("m", 1, 0), tombstone(KeyType.SHARE_GROUP_MEMBER_METADATA, member_id="m")],
        "R-3.16",
    ),
    "R-3.16 share member that never had one": (
        [share_member("m"), tombstone(KeyType.SHARE_GROUP_MEMBER_METADATA, member_id="m")],
        "R-3.16",
    ),
    "R-3.17 share member whose target remains": (
        [
            share_member("m"),
            share_target("m", 0),
            tombstone(KeyType.SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
            tombstone(KeyType.SHARE_GROUP_MEMBER_METADATA, member_id="m"),
        ],
        "R-3.17",
    ),
    "R-3.18 share group with members": ([share_member("m"), tombstone(KeyType.SHARE_GROUP_METADATA)], "R-3.18"),
    "R-3.19 share group with targets": ([share_target("m", 0), tombstone(KeyType.SHARE_GROUP_METADATA)], "R-3.19"),
    "R-3.20 share group with an assignment epoch": ([share_group_epoch(), tombstone(KeyType.SHARE_GROUP_METADATA)], "R-3.20"),
    "R-3.12 share group with a bad assignment epoch": (
        [share_group_epoch(), target_metadata(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA, -3)],
        "R-3.12",
    ),
    "R-3.21 share target metadata while targets remain": (
        [share_target("m", 0), tombstone(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA)],
        "R-3.21",
    ),
    "R-3.22 streams group with members": ([streams_member("m"), tombstone(KeyType.STREAMS_GROUP_METADATA)], "R-3.22"),
    "R-3.23 streams group with an assignment epoch": ([streams_group_epoch(), tombstone(KeyType.STREAMS_GROUP_METADATA)], "R-3.23"),
    "R-3.23 stray streams tombstone over a simple group": ([offset_commit("t0", 5), tombstone(KeyType.STREAMS_GROUP_METADATA)], "R-3.23"),
    "R-3.24 streams member with a live assignment": (
        [streams_member("m"), streams_assignment("m", 1), tombstone(KeyType.STREAMS_GROUP_MEMBER_METADATA, member_id="m")],
        "R-3.24",
    ),
    "R-3.25 streams member whose target remains": (
        [
            streams_target("m", 0),
            streams_assignment("m", 1),
            tombstone(KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
            tombstone(KeyType.STREAMS_GROUP_MEMBER_METADATA, member_id="m"),
        ],
        "R-3.25",
    ),
    "R-3.26 streams member that never had an assignment": (
        [streams_member("m"), tombstone(KeyType.STREAMS_GROUP_MEMBER_METADATA, member_id="m")],
        "R-3.26",
    ),
    "R-3.12 streams group with a bad assignment epoch": (
        [streams_group_epoch(), target_metadata(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, -2)],
        "R-3.12",
    ),
    "R-3.30 streams topology with a negative epoch": ([topology("t", epoch=-1)], "R-3.30"),
    "R-3.27 streams target metadata while targets remain": (
        [streams_target("m", 0), tombstone(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA)],
        "R-3.27",
    ),
}


@pytest.mark.parametrize(("records", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_record_is_skipped_with_a_warning(records: list[Record], code: str) -> None:
    assert codes_of(replayed(records)) == [(len(records) - 1, code)]


def test_targets_do_not_keep_a_streams_group() -> None:
    state = replayed(
        [
            streams_group_epoch(),
            target_metadata(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, -1),
            streams_target("m", 0),
            tombstone(KeyType.STREAMS_GROUP_METADATA),
        ]
    )
    assert (group_of(state), codes_of(state)) == (None, [])


class TestShareGroup:
    def test_with_members_it_is_stable_whatever_their_epochs(self) -> None:
        state = replayed([share_member("m", "t"), share_group_epoch(7), share_assignment("m", 3, 0)])
        row = state.groups()[0]
        assert (row.group_type, row.state, row.protocol_type, row.protocol, row.generation) == ("share", "Stable", "share", "simple", 7)
        assert row.subscribed_topics == ("t",)
        assert [(row.member_epoch, row.member_state, row.subscribed_topics) for row in state.members()] == [(3, "STABLE", ("t",))]

    def test_without_members_it_is_empty(self) -> None:
        assert group_of(replayed([share_group_epoch(7)])) == ("share", "Empty")

    def test_state_partition_metadata_makes_the_group_and_names_topics(self) -> None:
        state = replayed([K15])
        assert (group_of(state), state.topic_names) == (("share", "Empty"), {TOPIC_ID: "t"})

    def test_partition_may_belong_to_many(self) -> None:
        state = replayed([share_assignment("a", 1, 0), share_assignment("b", 1, 0), share_target("a", 0)])
        assert codes_of(state) == []
        assert [(row.member_id, row.kind) for row in state.assignments()] == [("a", "current"), ("a", "target"), ("b", "current")]

    def test_is_deleted_in_the_order_brokers_write(self) -> None:
        whole = [
            share_member("m", "t"),
            share_group_epoch(),
            share_target("m", 0),
            target_metadata(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA),
            share_assignment("m", 1, 0),
        ]
        state = replayed(
            [
                *whole,
                *LEFT_SHARE,
                tombstone(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA),
                tombstone(KeyType.SHARE_GROUP_STATE_PARTITION_METADATA),
                tombstone(KeyType.SHARE_GROUP_METADATA),
            ]
        )
        assert (group_of(state), codes_of(state)) == (None, [])

    def test_offsets_under_its_id_are_stored_all_the_same(self) -> None:
        state = replayed([share_group_epoch(), offset_commit("t0", 5)])
        assert (group_of(state), offsets_of(state)) == (("share", "Empty"), {"t0": 5})


class TestStreamsGroup:
    @pytest.mark.parametrize(
        ("records", "state"),
        [
            ([streams_group_epoch()], "Empty"),
            ([streams_member("m")], "NotReady"),
            ([streams_member("m"), topology("t")], "Reconciling"),
            ([streams_member("m"), topology("t"), streams_group_epoch(1, -1)], "NotReady"),
            ([streams_member("m"), topology("t", epoch=3), streams_group_epoch(1, 3)], "Reconciling"),
            ([streams_member("m"), topology("t"), streams_group_epoch(2, 0)], "Assigning"),
            (RUNNING, "Stable"),
            ([*RUNNING, streams_assignment("m", 2, 0, state=3)], "Reconciling"),
            ([*RUNNING, tombstone(KeyType.STREAMS_GROUP_TOPOLOGY)], "NotReady"),
            ([*RUNNING, *LEFT_STREAMS], "Empty"),
        ],
    )
    def test_state_follows_from_topology_epochs_and_members(self, records: list[Record], state: str) -> None:
        assert group_of(replayed(records)) == ("streams", state)

    def test_no_group_of_4_1_is_ready_after_a_load(self) -> None:
        assert group_of(replayed(RUNNING, semantics_for(broker_version="4.1.1"))) == ("streams", "NotReady")

    def test_tasks_are_told_by_kind_and_type(self) -> None:
        state = replayed(
            [streams_member("m"), streams_target("m", 0, 1), streams_assignment("m", 1, 0, state=2, revoking=[2], standby=[3])]
        )
        assert [(row.kind, row.task_type, row.subtopology, row.partition) for row in state.assignments()] == [
            ("current", "active", "0", 0),
            ("current", "standby", "0", 3),
            ("pending_revocation", "active", "0", 2),
            ("target", "active", "0", 0),
            ("target", "active", "0", 1),
        ]
        assert state.groups()[0].assigned_partition_count == 2

    @pytest.mark.parametrize(("byte", "word"), [(1, "STABLE"), (2, "UNREVOKED_TASKS"), (3, "UNRELEASED_TASKS"), (0, "UNKNOWN")])
    def test_member_state_byte_has_its_own_numbers(self, byte: int, word: str) -> None:
        assert replayed([streams_member("m"), streams_assignment("m", 1, state=byte)]).members()[0].member_state == word

    def test_topics_are_sources_and_repartition_topics(self) -> None:
        row = replayed([topology("t", "u", epoch=4, repartition=["r"])]).groups()[0]
        assert (row.subscribed_topics, row.topology_epoch, row.protocol_type, row.protocol) == (("r", "t", "u"), 4, "streams", None)

    def test_member_that_must_give_tasks_back_without_metadata_is_kept_with_a_warning(self) -> None:
        state = replayed([streams_assignment("m", 1, 0, state=2)])
        assert (codes_of(state), [row.member_id for row in state.members()]) == ([(0, "R-3.29")], ["m"])
        assert codes_of(replayed([streams_assignment("m", 1, 0, state=1)])) == []

    @pytest.mark.parametrize("release", ["4.2.1", "4.2", "4.3.0", "4.4.0"])
    def test_replaces_a_simple_group_since_4_2_1(self, release: str) -> None:
        state = replayed([offset_commit("t0", 5), streams_group_epoch()], semantics_for(broker_version=release))
        assert (group_of(state), codes_of(state)) == (("streams", "Empty"), [])

    @pytest.mark.parametrize("release", ["4.1.2", "4.2.0"])
    def test_up_to_4_2_0_a_simple_group_refuses_it(self, release: str) -> None:
        state = replayed([offset_commit("t0", 5), streams_group_epoch()], semantics_for(broker_version=release))
        assert (group_of(state), codes_of(state)) == (("classic", "Empty"), [(1, "R-3.5")])

    def test_without_a_record_of_its_own_it_is_not_ready_since_4_4(self) -> None:
        records = [streams_member("m"), topology("t"), streams_assignment("m", 1, 0)]
        assert group_of(replayed(records, semantics_for(broker_version="4.3"))) == ("streams", "Stable")
        assert group_of(replayed(records, semantics_for(broker_version="4.4"))) == ("streams", "NotReady")

    @pytest.mark.parametrize("release", ["4.1.0", "4.2.0", "4.3.1", "4.4.0"])
    def test_topology_with_a_negative_epoch_was_applied_although_every_release_refuses_it(self, release: str) -> None:
        records = [topology("t"), topology("u", epoch=-1)]
        state = replayed(records, semantics_for(broker_version=release))
        assert codes_of(state) == [(1, "R-3.30")]
        assert (state.groups()[0].topology_epoch, state.groups()[0].subscribed_topics) == (0, ("t",))

    def test_4_0_does_not_know_it(self) -> None:
        assert codes_of(replayed([streams_group_epoch()], semantics_for(broker_version="4.0.1"))) == [(0, "R-1.6")]

    def test_topology_tombstone_of_an_unknown_group_is_ignored(self) -> None:
        assert group_of(replayed([tombstone(KeyType.STREAMS_GROUP_TOPOLOGY)])) is None


class TestConversion:
    upgraded = (
        tombstone(KeyType.GROUP_METADATA),
        consumer_member("m", "t"),
        group_epoch(3),
        target("m", 0),
        target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, 3),
        current_assignment("m", 3, 0),
    )
    downgraded = (
        tombstone(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
        tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, member_id="m"),
        tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA),
        tombstone(KeyType.CONSUMER_GROUP_MEMBER_METADATA, member_id="m"),
        tombstone(KeyType.CONSUMER_GROUP_PARTITION_METADATA),
        tombstone(KeyType.CONSUMER_GROUP_METADATA),
        stable_classic_group("t", generation=4),
    )

    def test_classic_with_members_becomes_a_consumer_group(self) -> None:
        state = replayed([stable_classic_group("t"), offset_commit("t0", 5), *self.upgraded])
        assert (group_of(state), offsets_of(state), codes_of(state)) == (("consumer", "Stable"), {"t0": 5}, [])

    def test_consumer_group_becomes_classic_again(self) -> None:
        state = replayed([stable_classic_group("t"), offset_commit("t0", 5), *self.upgraded, *self.downgraded])
        assert (group_of(state), offsets_of(state), codes_of(state)) == (("classic", "Stable"), {"t0": 5}, [])
        assert state.groups()[0].generation == 4

    def test_empty_streams_group_becomes_classic(self) -> None:
        state = replayed(
            [
                offset_commit("t0", 5),
                *RUNNING,
                *LEFT_STREAMS,
                tombstone(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA),
                tombstone(KeyType.STREAMS_GROUP_METADATA),
                tombstone(KeyType.STREAMS_GROUP_TOPOLOGY),
                classic_group(),
            ]
        )
        assert (group_of(state), offsets_of(state), codes_of(state)) == (("classic", "Empty"), {"t0": 5}, [])

    def test_compaction_that_left_the_commit_alone_still_gives_the_consumer_group(self) -> None:
        state = replayed([offset_commit("t0", 5), *self.upgraded[1:]])
        assert (group_of(state), codes_of(state)) == (("consumer", "Stable"), [])

    def test_classic_value_whose_tombstone_was_cleaned_away_refuses_the_rest(self) -> None:
        state = replayed([stable_classic_group("t"), *self.upgraded[1:]])
        assert group_of(state) == ("classic", "Stable")
        assert {code for _, code in codes_of(state)} == {"R-3.4"}

    @pytest.mark.parametrize(
        ("first", "last"),
        [
            ([share_group_epoch()], tombstone(KeyType.SHARE_GROUP_METADATA)),
            ([group_epoch()], tombstone(KeyType.CONSUMER_GROUP_METADATA)),
            ([streams_group_epoch()], tombstone(KeyType.STREAMS_GROUP_METADATA)),
        ],
    )
    def test_offsets_of_a_deleted_modern_group_are_orphans(self, first: list[Record], last: Record) -> None:
        epoch_gone = {11: 12, 3: 6, 17: 20}[int.from_bytes((last.key or b"")[:2], "big")]
        state = replayed([*first, offset_commit("t0", 5), tombstone(epoch_gone), last])
        assert (group_of(state), orphans_of(state), codes_of(state)) == (None, {"t0": 5}, [(3, "R-1.26")])
