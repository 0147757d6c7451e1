"""Consumer groups: members, epochs, assignments, ownership of partitions, and every record that is refused."""

import pytest

from groupcoord_spark.coordinator import JAVA, DefaultAssignors, GroupRow, PartitionReplay, PartitionState, semantics_for
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
    own,
    replayed,
    resolved_regex,
    share_group_epoch,
    stable_classic_group,
    streams_group_epoch,
    target,
    target_metadata,
    tombstone,
)

MEMBER_GONE = [
    tombstone(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
    tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, member_id="m"),
    tombstone(KeyType.CONSUMER_GROUP_MEMBER_METADATA, member_id="m"),
]
WHOLE = [
    consumer_member("m", "t"),
    group_epoch(2),
    target("m", 0, 1),
    target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, 2),
    current_assignment("m", 2, 0, 1),
]


def group(state: PartitionState) -> GroupRow:
    (row,) = state.groups()
    return row


def held(state: PartitionState) -> list[tuple[str, str, int | None]]:
    return [(row.member_id, row.kind, row.partition) for row in state.assignments()]


def test_new_group_begins_at_epoch_1() -> None:
    row = group(replayed([target("m", 0)]))
    assert (row.generation, row.assignment_epoch, row.state, row.protocol_type) == (1, 1, "Empty", "consumer")


def test_new_group_of_4_1_begins_at_epoch_0() -> None:
    row = group(replayed([target("m", 0)], semantics_for(broker_version="4.1.1")))
    assert (row.generation, row.assignment_epoch) == (0, 0)


def test_new_member_has_kafkas_defaults() -> None:
    (row,) = replayed([current_assignment("m", 1)]).members()
    assert (row.client_id, row.client_host, row.rebalance_timeout_ms, row.subscribed_topics) == ("", "", -1, ())
    (row,) = replayed([consumer_member("m", "t")]).members()
    assert (row.member_epoch, row.previous_member_epoch, row.member_state, row.instance_id) == (0, -1, "STABLE", None)


def test_member_metadata_leaves_epoch_and_partitions_alone() -> None:
    told = {"instance_id": "i", "rack_id": "r", "server_assignor": "range", "subscribed_topic_regex": "x.*"}
    state = replayed([*WHOLE, consumer_member("m", "u", **told)])
    (row,) = state.members()
    assert {name: getattr(row, name) for name in told} == told
    assert (row.member_epoch, row.subscribed_topics) == (2, ("u",))
    assert held(state) == [("m", "current", 0), ("m", "current", 1), ("m", "target", 0), ("m", "target", 1)]
    assert group(state).protocol == "range"


def test_member_without_the_tag_speaks_the_classic_protocol() -> None:
    classic = {"session_timeout_ms": 45_000, "supported_protocols": []}
    state = replayed([consumer_member("a"), consumer_member("b", classic_member_metadata=classic)])
    rows = [(row.member_id, row.uses_classic_protocol, row.session_timeout_ms) for row in state.members()]
    assert rows == [("a", False, None), ("b", True, 45_000)]


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([group_epoch(1)], "Empty"),
        ([consumer_member("m"), group_epoch(2)], "Assigning"),
        ([consumer_member("m"), group_epoch(2), target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, 2)], "Reconciling"),
        (WHOLE, "Stable"),
        ([*WHOLE, current_assignment("m", 2, 0, state=1, revoking=[1])], "Reconciling"),
        ([*WHOLE, current_assignment("m", 2, 0, state=9)], "Reconciling"),
        ([*WHOLE, consumer_member("n")], "Reconciling"),
        ([*WHOLE, *MEMBER_GONE], "Empty"),
    ],
)
def test_state_of_the_group_follows_from_epochs_and_members(records: list[Record], state: str) -> None:
    assert group(replayed(records)).state == state


@pytest.mark.parametrize(("byte", "word"), [(0, "STABLE"), (1, "UNREVOKED_PARTITIONS"), (2, "UNRELEASED_PARTITIONS"), (7, "UNKNOWN")])
def test_member_state_byte(byte: int, word: str) -> None:
    assert replayed([current_assignment("m", 1, state=byte)]).members()[0].member_state == word


def test_member_state_of_3_7_shows_in_what_it_holds() -> None:
    def state_of(revoking: list[int], awaiting: list[int]) -> str | None:
        lists = {"assigned_partitions": [], "partitions_pending_revocation": revoking, "partitions_pending_assignment": awaiting}
        replay = PartitionReplay(JAVA)
        value = {"member_epoch": 1, "previous_member_epoch": 0, **{name: _partitions(numbers) for name, numbers in lists.items()}}
        replay.apply_group_record(0, 0, 8, {"group_id": "g", "member_id": "m"}, 0, value)
        return replay.finish().members()[0].member_state

    assert (state_of([], []), state_of([1], []), state_of([], [1])) == ("STABLE", "UNREVOKED_PARTITIONS", "UNRELEASED_PARTITIONS")


def _partitions(numbers: list[int]) -> list[dict[str, object]]:
    return [{"topic_id": TOPIC_ID, "partitions": numbers}] if numbers else []


def test_tombstone_of_the_current_assignment_empties_the_member_and_keeps_it() -> None:
    (row,) = (state := replayed([*WHOLE, tombstone(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m")])).members()
    assert (row.member_epoch, row.previous_member_epoch, row.member_state) == (-1, -1, "STABLE")
    assert held(state) == [("m", "target", 0), ("m", "target", 1)]


def test_pending_revocation_is_told_apart_and_still_held() -> None:
    state = replayed([consumer_member("m", "t"), current_assignment("m", 1, 0, state=1, revoking=[1])])
    assert held(state) == [("m", "current", 0), ("m", "pending_revocation", 1)]
    assert group(state).assigned_partition_count == 2


def test_topics_are_those_of_members_and_of_every_stored_expression() -> None:
    state = replayed(
        [
            consumer_member("m", "t"),
            resolved_regex("x.*", "x1", "x2"),
            resolved_regex("y.*", "y1"),
            tombstone(KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION, regular_expression="x.*"),
        ]
    )
    assert group(state).subscribed_topics == ("t", "y1")
    assert group(state).regular_expressions == ("y.*",)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ([None, None], "uniform"),
        (["range", None], "range"),
        (["range", "uniform"], "uniform"),
        (["range", "range", "uniform"], "range"),
        (["mine", "other"], "mine"),
    ],
)
def test_assignor_is_the_one_most_members_name(named: list[str | None], expected: str) -> None:
    state = replayed([consumer_member(f"m{number}", server_assignor=name) for number, name in enumerate(named)])
    assert group(state).protocol == expected


def test_brokers_first_assignor_where_no_member_names_one() -> None:
    assert replayed([consumer_member("m")]).groups(default_assignors=DefaultAssignors(consumer="range"))[0].protocol == "range"


def test_tombstones_of_an_unknown_group_are_ignored() -> None:
    records = [
        *MEMBER_GONE,
        tombstone(KeyType.CONSUMER_GROUP_METADATA),
        tombstone(KeyType.CONSUMER_GROUP_PARTITION_METADATA),
        tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA),
        tombstone(KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION, regular_expression="x"),
    ]
    state = replayed(records)
    assert (group_of(state), codes_of(state)) == (None, [])


def test_tombstones_of_an_unknown_member_are_ignored() -> None:
    state = replayed(
        [
            group_epoch(),
            tombstone(KeyType.CONSUMER_GROUP_MEMBER_METADATA, member_id="x"),
            tombstone(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="x"),
            tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER, member_id="x"),
        ]
    )
    assert (state.members(), codes_of(state)) == ([], [])


def test_group_is_deleted_in_the_order_brokers_write() -> None:
    deleted = [
        *MEMBER_GONE,
        resolved_regex("x", "t"),
        tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA),
        tombstone(KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION, regular_expression="x"),
        tombstone(KeyType.CONSUMER_GROUP_PARTITION_METADATA),
        tombstone(KeyType.CONSUMER_GROUP_METADATA),
    ]
    state = replayed([offset_commit("t0", 5), *WHOLE, *deleted, offset_commit("t0", None)])
    assert (group_of(state), codes_of(state)) == (None, [])


REFUSED = {
    "R-3.7 group tombstone while members remain": ([*WHOLE, tombstone(KeyType.CONSUMER_GROUP_METADATA)], "R-3.7"),
    "R-3.8 group tombstone while targets remain": ([target("m", 0), tombstone(KeyType.CONSUMER_GROUP_METADATA)], "R-3.8"),
    "R-3.9 group tombstone without one of the target metadata": ([group_epoch(), tombstone(KeyType.CONSUMER_GROUP_METADATA)], "R-3.9"),
    "R-3.10 member tombstone without one of the current assignment": (
        [*WHOLE, tombstone(KeyType.CONSUMER_GROUP_MEMBER_METADATA, member_id="m")],
        "R-3.10",
    ),
    "R-3.10 member that never had a current assignment": (
        [consumer_member("m"), tombstone(KeyType.CONSUMER_GROUP_MEMBER_METADATA, member_id="m")],
        "R-3.10",
    ),
    "R-3.11 member tombstone while its target remains": (
        [
            *WHOLE,
            tombstone(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
            tombstone(KeyType.CONSUMER_GROUP_MEMBER_METADATA, member_id="m"),
        ],
        "R-3.11",
    ),
    "R-3.12 assignment epoch below -1": ([group_epoch(), target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, -2)], "R-3.12"),
    "R-3.12 assignment timestamp below 0": (
        [group_epoch(), target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, 1, timestamp_ms=-1)],
        "R-3.12",
    ),
    "R-3.13 target metadata tombstone while targets remain": (
        [target("m", 0), tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA)],
        "R-3.13",
    ),
    "R-3.14 partition owned at the same epoch": ([current_assignment("m", 5, 0), current_assignment("n", 5, 0)], "R-3.14"),
    "R-3.4 classic group with members": ([stable_classic_group("t"), group_epoch()], "R-3.4"),
    "R-3.4 tombstone over a classic group": (
        [classic_group(), tombstone(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m")],
        "R-3.4",
    ),
    "R-3.4 share group": ([share_group_epoch(), group_epoch()], "R-3.4"),
    "R-3.4 streams group": ([streams_group_epoch(), tombstone(KeyType.CONSUMER_GROUP_METADATA)], "R-3.4"),
    "R-3.9 stray group tombstone over a simple group": ([offset_commit("t0", 5), tombstone(KeyType.CONSUMER_GROUP_METADATA)], "R-3.9"),
}


@pytest.mark.parametrize(("records", "code"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_record_is_skipped_with_a_warning(records: list[Record], code: str) -> None:
    state = replayed(records)
    assert codes_of(state) == [(len(records) - 1, code)]
    assert state.warnings()[0].group_id == "g"


def test_assignment_epoch_of_minus_one_is_no_refusal() -> None:
    state = replayed([group_epoch(), target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, -1)])
    assert (group(state).assignment_epoch, codes_of(state)) == (-1, [])


def test_simple_group_is_replaced_by_a_record_and_by_a_tombstone() -> None:
    for record in (
        group_epoch(),
        tombstone(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
        tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA),
    ):
        state = replayed([offset_commit("t0", 5), record])
        assert (group_of(state), offsets_of(state), codes_of(state)) == (("consumer", "Empty"), {"t0": 5}, [])


def test_simple_group_stays_replaced_where_the_tombstone_itself_is_refused() -> None:
    state = replayed([offset_commit("t0", 5), tombstone(KeyType.CONSUMER_GROUP_METADATA)])
    assert (group_of(state), offsets_of(state)) == (("consumer", "Empty"), {"t0": 5})


class TestOwnership:
    def test_a_higher_epoch_takes_a_partition_over(self) -> None:
        assert codes_of(replayed([current_assignment("m", 5, 0), current_assignment("n", 6, 0)])) == []

    def test_the_old_owner_may_then_give_it_up(self) -> None:
        state = replayed(
            [current_assignment("m", 5, 0), current_assignment("n", 6, 0), current_assignment("m", 6), current_assignment("o", 7, 0)]
        )
        assert codes_of(state) == []
        assert [(row.member_id, row.partition) for row in state.assignments()] == [("n", 0), ("o", 0)]

    @pytest.mark.parametrize("release", ["4.0.0", "4.0.1", "4.1.0", "4.1.1"])
    def test_early_releases_refuse_both_that_a_partition_changes_hands_and_that_the_old_owner_gives_it_up(self, release: str) -> None:
        state = replayed(
            [current_assignment("m", 5, 0), current_assignment("n", 6, 0), current_assignment("m", 6)],
            semantics_for(broker_version=release),
        )
        assert codes_of(state) == [(1, "R-3.14"), (2, "R-3.14")]

    @pytest.mark.parametrize("release", ["4.0.2", "4.1.2", "4.2.0", "4.3.1", "4.4.0"])
    def test_later_patches_of_4_0_and_4_1_accept_both(self, release: str) -> None:
        state = replayed(
            [current_assignment("m", 5, 0), current_assignment("n", 6, 0), current_assignment("m", 6)],
            semantics_for(broker_version=release),
        )
        assert codes_of(state) == []

    def test_old_owners_metadata_collides_too(self) -> None:
        assert codes_of(replayed([current_assignment("m", 5, 0), current_assignment("n", 6, 0), consumer_member("m", "t")])) == [
            (2, "R-3.14")
        ]

    def test_partition_both_held_and_to_be_revoked_collides_with_itself(self) -> None:
        assert codes_of(replayed([current_assignment("m", 5, 0, revoking=[0])])) == [(0, "R-3.14")]

    def test_refused_member_keeps_its_new_fields_and_the_group_its_state(self) -> None:
        before = [
            consumer_member("m"),
            group_epoch(5),
            target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, 5),
            current_assignment("m", 5, 0),
        ]
        assert group(replayed(before)).state == "Stable"
        state = replayed([*before, current_assignment("n", 5, 0, state=2)])
        assert (group(state).state, codes_of(state)) == ("Stable", [(4, "R-3.14")])
        assert [(row.member_id, row.member_state) for row in state.members()] == [("m", "STABLE"), ("n", "UNRELEASED_PARTITIONS")]

    def test_next_change_brings_the_state_up_to_date(self) -> None:
        before = [
            consumer_member("m"),
            group_epoch(5),
            target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, 5),
            current_assignment("m", 5, 0),
            current_assignment("n", 5, 0, state=2),
        ]
        assert group(replayed([*before, current_assignment("m", 5, 1)])).state == "Reconciling"

    def test_removed_member_gives_up_its_partitions(self) -> None:
        assert (
            codes_of(
                replayed(
                    [
                        current_assignment("m", 5, 0),
                        tombstone(KeyType.CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT, member_id="m"),
                        tombstone(KeyType.CONSUMER_GROUP_MEMBER_METADATA, member_id="m"),
                        current_assignment("n", 5, 0),
                    ]
                )
            )
            == []
        )


def test_group_says_where_its_newest_accepted_record_is() -> None:
    row = group(replayed([offset_commit("t0", 1), group_epoch(), offset_commit("t0", 2), tombstone(KeyType.CONSUMER_GROUP_METADATA)]))
    assert row.record_offset == 1


def test_topic_ids_are_named_by_what_the_log_tells() -> None:
    metadata = own(
        KeyType.CONSUMER_GROUP_PARTITION_METADATA,
        {"topics": [{"topic_id": TOPIC_ID, "topic_name": "t", "num_partitions": 1, "partition_metadata": []}]},
    )
    state = replayed([metadata, target("m", 0)])
    assert [(row.topic, row.topic_id) for row in state.assignments()] == [("t", TOPIC_ID)]
    assert [row.topic for row in state.assignments({})] == [None]
    assert [row.topic for row in state.assignments({TOPIC_ID: "other"})] == ["other"]
