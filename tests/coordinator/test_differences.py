"""Where the Java coordinator and the Scala one make different states of the same records: one row of the table a test."""

from groupcoord_spark.coordinator import JAVA, SCALA, Cleanup, PartitionState, Semantics, semantics_for
from groupcoord_spark.protocol.record_types import KeyType
from tests.coordinator.records import (
    Record,
    aborted,
    classic_group,
    codes_of,
    committed,
    consumer_member,
    group_epoch,
    group_of,
    marker,
    member,
    offset_commit,
    offsets_of,
    orphans_of,
    pending_of,
    replayed,
    stable_classic_group,
    target_metadata,
    tombstone,
    transactional_commit,
)

SIMPLE = ("classic", "Empty")


def both(*records: Record) -> tuple[PartitionState, PartitionState]:
    return replayed(records, JAVA), replayed(records, SCALA)


def test_d1_pending_offset_survives_a_plain_tombstone_in_scala() -> None:
    java, scala = both(transactional_commit(7, "t0", 10), offset_commit("t0", None), committed(7))
    assert (offsets_of(java), offsets_of(scala)) == ({}, {"t0": 10})


def test_d2_tombstone_of_an_aborted_transaction_counts_in_java() -> None:
    java, scala = both(offset_commit("t0", 20), transactional_commit(7, "t0", None), aborted(7))
    assert (offsets_of(java), offsets_of(scala)) == ({}, {"t0": 20})


def test_d3_transactional_tombstone_never_reaches_the_offsets_in_scala() -> None:
    java, scala = both(offset_commit("t0", 20), transactional_commit(7, "t0", None), committed(7))
    assert (offsets_of(java), offsets_of(scala)) == ({}, {"t0": 20})


def test_d4_transactional_tombstone_leaves_other_producers_alone_in_scala() -> None:
    java, scala = both(transactional_commit(7, "t0", 1), transactional_commit(8, "t0", None), committed(7))
    assert (offsets_of(java), offsets_of(scala)) == ({}, {"t0": 1})


def test_d5_aborted_transaction_leaves_a_group_in_java() -> None:
    java, scala = both(transactional_commit(7, "t0", 10), aborted(7))
    assert (group_of(java), group_of(scala)) == (SIMPLE, None)


def test_d6_deleted_offset_leaves_a_group_in_java() -> None:
    java, scala = both(offset_commit("t0", 10), offset_commit("t0", None))
    assert (group_of(java), group_of(scala)) == (SIMPLE, None)


def test_d7_group_tombstone_orphans_offsets_in_java_and_frees_them_in_scala() -> None:
    java, scala = both(offset_commit("t0", 5), classic_group(), tombstone(KeyType.GROUP_METADATA))
    assert (group_of(java), offsets_of(java), orphans_of(java)) == (None, {}, {"t0": 5})
    assert (group_of(scala), offsets_of(scala), orphans_of(scala)) == (SIMPLE, {"t0": 5}, {})


def test_d8_next_commit_makes_both_alike() -> None:
    for state in both(offset_commit("t0", 5), classic_group(), tombstone(KeyType.GROUP_METADATA), offset_commit("t1", 6)):
        assert (group_of(state), offsets_of(state)) == (SIMPLE, {"t0": 5, "t1": 6})


def test_d9_marker_after_the_group_tombstone() -> None:
    java, scala = both(classic_group(), transactional_commit(7, "t0", 5), tombstone(KeyType.GROUP_METADATA), committed(7))
    assert (group_of(java), orphans_of(java)) == (None, {"t0": 5})
    assert (group_of(scala), offsets_of(scala), codes_of(scala)) == (SIMPLE, {"t0": 5}, [])


def test_d10_open_transaction_before_the_group_tombstone() -> None:
    java, scala = both(transactional_commit(7, "t0", 5), tombstone(KeyType.GROUP_METADATA))
    assert (group_of(java), pending_of(java), codes_of(java)) == (None, {("t0", 7): 5}, [(1, "R-1.26")])
    assert (group_of(scala), pending_of(scala), codes_of(scala)) == (SIMPLE, {("t0", 7): 5}, [(1, "R-1.28")])


def test_d10_open_transaction_after_the_group_tombstone() -> None:
    _, scala = both(tombstone(KeyType.GROUP_METADATA), transactional_commit(7, "t0", 5))
    assert (group_of(scala), codes_of(scala)) == (SIMPLE, [(0, "R-1.28")])


def test_d11_legacy_key_with_a_later_value() -> None:
    java, scala = both(offset_commit("t0", 5, key_type=0, version=1))
    assert (offsets_of(java), group_of(java), codes_of(java)) == ({}, None, [(0, "R-1.9")])
    assert (offsets_of(scala), codes_of(scala)) == ({"t0": 5}, [])
    assert offsets_of(replayed([offset_commit("t0", 5, key_type=0, version=1)], semantics_for("java", "4.0"))) == {"t0": 5}


def test_d12_record_of_a_new_kind_of_group() -> None:
    java, scala = both(group_epoch())
    assert (group_of(java), group_of(scala)) == (("consumer", "Empty"), None)
    assert codes_of(scala) == [(0, "R-1.6")]
    assert "could not have loaded" not in scala.warnings()[0].detail
    assert "could not have loaded" in replayed([group_epoch()], semantics_for("scala", "3.2.3")).warnings()[0].detail


def test_d13_stored_rebalance_timeout_of_minus_one() -> None:
    java, scala = both(classic_group(members=[member(rebalance_timeout_ms=-1)], version=1))
    assert java.members()[0].rebalance_timeout_ms == 10_000
    assert scala.members()[0].rebalance_timeout_ms == -1


def test_d13_value_without_rebalance_timeout_takes_the_session_timeout() -> None:
    for state in both(classic_group(members=[member()], version=0)):
        assert state.members()[0].rebalance_timeout_ms == 10_000


def test_d14_producer_id_without_the_transactional_bit() -> None:
    java, scala = both(transactional_commit(7, "t0", 5, transactional=False))
    assert (offsets_of(java), pending_of(java)) == ({}, {("t0", 7): 5})
    assert (offsets_of(scala), pending_of(scala)) == ({"t0": 5}, {})
    assert scala.committed_offsets()[0].commit.producer_id == -1


def test_d15_transactional_bit_without_a_producer_id() -> None:
    java, scala = both(offset_commit("t0", 5, transactional=True))
    assert (offsets_of(java), pending_of(java)) == ({"t0": 5}, {})
    assert (offsets_of(scala), pending_of(scala)) == ({}, {("t0", -1): 5})


def test_d16_first_control_record_of_a_batch_decides_in_both() -> None:
    for state in both(transactional_commit(7, "t0", 5), aborted(7), committed(7)):
        assert offsets_of(state) == {}


def test_d17_control_record_of_another_type() -> None:
    java, scala = both(transactional_commit(7, "t0", 5), marker(7, 3), committed(7))
    assert (offsets_of(java), offsets_of(scala)) == ({"t0": 5}, {})


def test_d18_classic_record_replaces_a_consumer_group() -> None:
    for state in both(consumer_member("m"), group_epoch(), classic_group()):
        assert group_of(state) == ("classic", "Empty")
        assert state.members() == []


def test_d19_classic_tombstone_removes_a_consumer_group() -> None:
    for state in both(consumer_member("m"), group_epoch(), tombstone(KeyType.GROUP_METADATA)):
        assert group_of(state) is None


def test_d20_consumer_record_over_a_classic_group() -> None:
    java, scala = both(classic_group(generation=2), group_epoch())
    assert (group_of(java), codes_of(java)) == (("classic", "Empty"), [(1, "R-3.4")])
    assert (group_of(scala), codes_of(scala)) == (("classic", "Empty"), [(1, "R-1.6")])


def test_d21_tombstone_alone_leaves_nothing() -> None:
    for records in ([offset_commit("t0", None)], [tombstone(KeyType.GROUP_METADATA)]):
        for state in both(*records):
            assert (group_of(state), codes_of(state)) == (None, [])


def test_d22_topic_id_of_a_commit() -> None:
    java, scala = both(offset_commit("t0", 5, topic_id="AAAAAAAAAAAAAAAAAAAAAQ"))
    assert java.committed_offsets()[0].commit.topic_id == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert (offsets_of(scala), scala.committed_offsets()[0].commit.topic_id) == ({"t0": 5}, None)
    older = replayed([offset_commit("t0", 5, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")], semantics_for("scala", "3.2.3"))
    assert (offsets_of(older), codes_of(older)) == ({}, [(0, "R-1.9")])


def test_d23_failed_load_costs_one_record_here_in_both() -> None:
    for state in both(offset_commit("t0", 5), Record(key=b"\0"), offset_commit("t1", 6)):
        assert (offsets_of(state), codes_of(state)) == ({"t0": 5, "t1": 6}, [(1, "R-1.8")])


def test_d24_group_record_without_a_protocol_type() -> None:
    for state in both(classic_group("", generation=0)):
        row = state.groups()[0]
        assert (row.group_type, row.state, row.protocol_type, row.is_simple) == ("classic", "Empty", None, True)
        assert row.record_offset == 0


def test_d25_broker_of_2_0_fixes_the_expiry_at_load() -> None:
    records = [offset_commit("t0", 5, commit_ms=940_000, version=1)]

    def expires_at(semantics: Semantics) -> int | None:
        return next(Cleanup(1_000_000, 60_000, semantics).of_partition(replayed(records, semantics))).offsets[0].expires_at_ms

    assert expires_at(JAVA) == 1_000_000
    assert expires_at(semantics_for(broker_version="2.0.1")) == 1_000_001


def test_d26_unknown_subscription_is_told_from_an_empty_one() -> None:
    for state in both(stable_classic_group(protocol_type="connect")):
        assert state.groups()[0].subscribed_topics is None
    for state in both(classic_group(members=[member(subscription=b"\0\0")], protocol="range")):
        assert (state.groups()[0].subscribed_topics, codes_of(state)) == (None, [])
    for state in both(classic_group()):
        assert state.groups()[0].subscribed_topics == ()


def test_scala_needs_no_group_record_of_its_own_for_its_target_types() -> None:
    assert codes_of(replayed([target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA)], SCALA)) == [(0, "R-1.6")]


def test_0_8_2_knows_offsets_of_key_type_0_alone() -> None:
    state = replayed([offset_commit("t0", 5, key_type=0), offset_commit("t1", 6), classic_group()], semantics_for(broker_version="0.8.2.2"))
    assert (offsets_of(state), codes_of(state)) == ({"t0": 5}, [(1, "R-1.6"), (2, "R-1.6")])


def test_0_9_calls_a_group_without_members_stable() -> None:
    assert group_of(replayed([classic_group(version=0)], semantics_for(broker_version="0.9.0.1"))) == ("classic", "Stable")


def test_group_value_of_a_later_release_is_refused() -> None:
    state = replayed([classic_group(version=3)], semantics_for(broker_version="2.2.0"))
    assert (group_of(state), codes_of(state)) == (None, [(0, "R-1.9")])
