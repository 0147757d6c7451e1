"""The worked examples of expiration, one row a test: what each era of brokers removes at 1000000 with a retention of one minute.

An offset is kept or expired; a group is removed or not; and these records are written. Types of tombstones in their order: "1 2" is one of
an offset, then one of a classic group.
"""

from dataclasses import dataclass, field, replace

import pytest

from groupcoord_spark.coordinator import JAVA, SCALA, Cleanup, GroupCleanup, GroupFacts, PartitionState, Semantics, semantics_for
from groupcoord_spark.protocol.record_types import KeyType
from tests.coordinator.records import (
    Record,
    aborted,
    classic_group,
    codes_of,
    consumer_member,
    current_assignment,
    group_epoch,
    group_of,
    member,
    offset_commit,
    orphans_of,
    pending_of,
    replayed,
    resolved_regex,
    share_group_epoch,
    stable_classic_group,
    streams_assignment,
    streams_group_epoch,
    streams_member,
    target_metadata,
    tombstone,
    topology,
    transactional_commit,
)

NOW, RETENTION = 1_000_000, 60_000
KAFKA_2_0 = semantics_for(broker_version="2.0.1")


def empty(protocol_type: str, generation: int, state_ms: int | None) -> Record:
    """Return an Empty classic group; without a state timestamp its value is one of version 1."""
    return classic_group(protocol_type, generation, state_ms=-1 if state_ms is None else state_ms, version=1 if state_ms is None else 3)


def old(place: str, commit_ms: int, expire_ms: int | None = None) -> Record:
    return offset_commit(place, 1, commit_ms=commit_ms, expire_ms=expire_ms)


STREAMS_MEMBER = [streams_member("m"), streams_assignment("m", 1)]


@dataclass(frozen=True)
class Row:
    """One example: expired places and rules by Java, whether the group goes, what is written, and where others differ."""

    number: int
    records: list[Record]
    rules: dict[str, str]
    expired: set[str] = field(default_factory=set)
    removed: bool = False
    writes: str = ""
    scala_expired: set[str] | None = None
    scala_removed: bool | None = None
    scala_writes: str | None = None
    is_known_to_scala: bool = True
    era_a_expired: set[str] | None = None


T0, UNKNOWN = {"t0"}, [member(subscription=b"")]
ROWS = [
    Row(1, [old("t0", 940_000)], {"t0": "X-B2"}, T0, True, "1 2", scala_writes="1", era_a_expired=set()),
    Row(2, [old("t0", 940_001)], {"t0": "X-B2"}, era_a_expired=set()),
    Row(3, [empty("consumer", 4, 940_000), old("t0", 999_999)], {"t0": "X-B1"}, T0, True, "1 2", era_a_expired=set()),
    Row(4, [empty("consumer", 4, 940_001), old("t0", 400_000)], {"t0": "X-B1"}, era_a_expired=T0),
    Row(
        5,
        [empty("consumer", 4, None), old("t0", 940_000), old("t1", 940_001)],
        {"t0": "X-B1", "t1": "X-B1"},
        T0,
        False,
        "1",
        era_a_expired=set(),
    ),
    Row(
        6,
        [stable_classic_group("t"), old("t0", 400_000), old("u0", 940_000), old("u1", 940_001)],
        {"t0": "X-B3", "u0": "X-B3", "u1": "X-B3"},
        {"u0"},
        False,
        "1",
        era_a_expired=T0,
    ),
    Row(7, [stable_classic_group(protocol_type="connect"), old("t0", 400_000)], {"t0": "X-B4"}, era_a_expired=T0),
    Row(8, [old("t0", 999_999, 1_000_000)], {"t0": "X-B0"}, T0, True, "1 2", scala_writes="1", era_a_expired=set()),
    Row(9, [old("t0", -5_000_000, 1_000_001)], {"t0": "X-B0"}, era_a_expired=set()),
    Row(10, [empty("consumer", 4, 999_999), old("t0", 999_999, 999_999)], {"t0": "X-B0"}, T0, True, "1 2", era_a_expired=T0),
    Row(11, [stable_classic_group("t"), old("t0", 999_991, 999_999)], {"t0": "X-B3"}, era_a_expired=T0),
    Row(
        12, [old("t0", 940_000), transactional_commit(7, "t0", 2)], {"t0": "X-J1"}, scala_expired=T0, scala_writes="1", era_a_expired=set()
    ),
    Row(13, [old("t0", 940_000), transactional_commit(7, "t1", 2)], {"t0": "X-B2"}, T0, False, "1"),
    Row(14, [transactional_commit(7, "t0", 2)], {}),
    Row(15, [transactional_commit(7, "t0", 2), aborted(7)], {}, set(), True, "2", is_known_to_scala=False),
    Row(16, [old("t0", 1), offset_commit("t0", None)], {}, set(), True, "2", is_known_to_scala=False),
    Row(17, [empty("consumer", 3, 1_000_000)], {}, set(), True, "2"),
    Row(18, [stable_classic_group("t")], {}),
    Row(19, [group_epoch(), old("t0", 940_000)], {"t0": "X-C1"}, T0, True, "1 6 4 3"),
    Row(20, [group_epoch(), old("t0", 940_001), old("t1", 940_000)], {"t0": "X-C1", "t1": "X-C1"}, {"t1"}, False, "1"),
    Row(
        21,
        [
            consumer_member("m", "t"),
            group_epoch(),
            target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA),
            current_assignment("m", 1),
            old("t0", 460_000),
            old("u0", 940_000),
        ],
        {"t0": "X-C1", "u0": "X-C1"},
        {"u0"},
        False,
        "1",
    ),
    Row(22, [group_epoch()], {}, set(), True, "6 4 3"),
    Row(23, [share_group_epoch()], {}),
    Row(24, [streams_group_epoch(), topology("t"), old("t0", 940_000)], {"t0": "X-C2"}, T0, True, "1 20 17 23"),
    Row(
        25,
        [streams_group_epoch(), topology("t"), *STREAMS_MEMBER, old("t0", 460_000), old("u0", 940_000)],
        {"t0": "X-C2", "u0": "X-C2"},
        {"u0"},
        False,
        "1",
    ),
    Row(26, [classic_group("", 0), old("t0", 940_000)], {"t0": "X-B2"}, T0, True, "1 2", scala_writes="1", era_a_expired=set()),
    Row(27, [old("t0", 1_300_000)], {"t0": "X-B2"}, era_a_expired=set()),
    Row(28, [old("t0", -1)], {"t0": "X-B2"}, T0, True, "1 2", scala_writes="1", era_a_expired=T0),
    Row(
        29,
        [old("t0", 460_000), classic_group(), tombstone(KeyType.GROUP_METADATA)],
        {},
        scala_expired=T0,
        scala_removed=True,
        scala_writes="1",
        era_a_expired=T0,
    ),
    Row(30, [classic_group(members=UNKNOWN, protocol="range"), old("t0", 460_000)], {"t0": "X-B4"}, era_a_expired=T0),
    Row(
        31,
        [empty("consumer", 4, None), old("a0", 940_000), old("b0", 1_000_000)],
        {"a0": "X-B1", "b0": "X-B1"},
        {"a0"},
        False,
        "1",
        era_a_expired=set(),
    ),
    Row(
        32,
        [offset_commit("t0", 1, commit_ms=940_000, key_type=0)],
        {"t0": "X-B2"},
        T0,
        True,
        "1 2",
        scala_writes="1",
        era_a_expired=set(),
    ),
    Row(33, [old("t0", 1_000_000, 0)], {"t0": "X-B0"}, T0, True, "1 2", scala_writes="1", era_a_expired=T0),
    Row(
        34,
        [classic_group("consumer", 9, state_ms=940_000, version=2), old("t0", 1_000_000), old("u0", 1_000_000)],
        {"t0": "X-B1", "u0": "X-B1"},
        {"t0", "u0"},
        True,
        "1 1 2",
        era_a_expired=set(),
    ),
    Row(35, [old("t0", 1, -2)], {"t0": "X-B0"}, T0, True, "1 2", scala_writes="1", era_a_expired=T0),
    Row(36, [group_epoch(), resolved_regex("t.*", "t"), old("t0", 460_000)], {"t0": "X-C1"}),
    Row(37, [streams_group_epoch(), old("t0", 940_000)], {"t0": "X-C2"}, T0, True, "1 20 17 23"),
    Row(38, [classic_group("", 7, state_ms=460_000), old("t0", 999_999)], {"t0": "X-B2"}, era_a_expired=set()),
    Row(39, [empty("connect", 7, 940_000), old("t0", 999_999)], {"t0": "X-B1"}, T0, True, "1 2", era_a_expired=set()),
]
# Groups of the new protocols are not known to Scala brokers.
CLASSIC_ROWS = [row for row in ROWS if row.number not in (19, 20, 21, 22, 23, 24, 25, 36, 37)]


def cleanup_of(state: PartitionState, semantics: Semantics = JAVA) -> GroupCleanup | None:
    """Return the steps of the only group; None where it has none."""
    found = list(Cleanup(NOW, RETENTION, semantics).of_partition(state))
    assert len(found) < 2
    return found[0] if found else None


def expired_of(cleanup: GroupCleanup | None) -> set[str]:
    return set() if cleanup is None else {f"{row.topic}{row.partition}" for row in cleanup.offsets if row.expired}


def writes_of(cleanup: GroupCleanup | None) -> str:
    return "" if cleanup is None else " ".join(str(tombstone.key_type) for tombstone in cleanup.tombstones)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: str(row.number))
def test_java(row: Row) -> None:
    cleanup = cleanup_of(replayed(row.records))
    assert expired_of(cleanup) == row.expired
    assert writes_of(cleanup) == row.writes
    if cleanup is None:
        assert row.number == 29
        return
    assert {f"{offset.topic}{offset.partition}": offset.rule for offset in cleanup.offsets} == row.rules
    assert cleanup.group.removed == row.removed
    assert cleanup.group.tombstone_count == len(cleanup.tombstones)


@pytest.mark.parametrize("row", CLASSIC_ROWS, ids=lambda row: str(row.number))
def test_scala_3_9(row: Row) -> None:
    cleanup = cleanup_of(replayed(row.records, SCALA), SCALA)
    if not row.is_known_to_scala:
        assert cleanup is None
        return
    assert cleanup is not None
    assert expired_of(cleanup) == (row.expired if row.scala_expired is None else row.scala_expired)
    assert cleanup.group.removed == (row.removed if row.scala_removed is None else row.scala_removed)
    assert writes_of(cleanup) == (row.writes if row.scala_writes is None else row.scala_writes)


def _as_2_0_writes(record: Record) -> Record:
    """Return the same record in the versions that a 2.0 broker knows: it writes no state timestamp and no leader epoch."""
    version = (record.value or b"")[:2]
    if version == b"\0\3" and (record.key or b"")[:2] == b"\0\1":
        # offset, leader epoch, metadata, commit timestamp -> offset, metadata, commit timestamp, expire timestamp
        value = record.value or b""
        return Record(record.key, b"\0\1" + value[2:10] + value[14:] + b"\xff" * 8)
    return record


@pytest.mark.parametrize("row", [row for row in CLASSIC_ROWS if row.era_a_expired is not None], ids=lambda row: str(row.number))
def test_kafka_2_0(row: Row) -> None:
    """Neither the state of the group nor its members matter to offsets then."""
    state = replayed([_as_2_0_writes(record) for record in row.records if record.producer_id == -1], KAFKA_2_0)
    cleanup = cleanup_of(state, KAFKA_2_0)
    assert cleanup is not None
    assert expired_of(cleanup) == row.era_a_expired
    assert {offset.rule for offset in cleanup.offsets} == {"X-A1"}


class TestBlockedBy:
    @pytest.mark.parametrize(
        ("number", "words"),
        [
            (2, {None}),
            (6, {"subscribed", None}),
            (7, {"live_group"}),
            (11, {"subscribed"}),
            (12, {"pending_transaction"}),
            (30, {"unknown_subscription"}),
            (36, {"subscribed"}),
        ],
    )
    def test_offsets_say_what_keeps_them(self, number: int, words: set[str | None]) -> None:
        cleanup = cleanup_of(replayed(ROWS[number - 1].records))
        assert cleanup is not None
        assert {offset.blocked_by for offset in cleanup.offsets} == words
        assert all(offset.expires_at_ms is None for offset in cleanup.offsets if offset.blocked_by is not None)

    @pytest.mark.parametrize(
        ("number", "word", "removed_at_ms"),
        [
            (1, None, 1_000_000),
            (2, "offsets", 1_000_001),
            (4, "offsets", 1_000_001),
            (5, "offsets", 1_000_001),
            (6, "members", None),
            (12, "pending_transaction", None),
            (13, "pending_transaction", None),
            (14, "pending_transaction", None),
            (17, None, NOW),
            (18, "members", None),
            (23, "share_group", None),
            (36, "offsets", None),
        ],
    )
    def test_groups_say_what_keeps_them(self, number: int, word: str | None, removed_at_ms: int | None) -> None:
        cleanup = cleanup_of(replayed(ROWS[number - 1].records))
        assert cleanup is not None
        assert (cleanup.group.blocked_by, cleanup.group.removed_at_ms) == (word, removed_at_ms)

    def test_offsets_of_a_share_group_are_never_looked_at(self) -> None:
        cleanup = cleanup_of(replayed([share_group_epoch(), old("t0", 1)]))
        assert cleanup is not None
        assert [(row.rule, row.blocked_by) for row in cleanup.offsets] == [("X-C3", "share_group")]
        assert (cleanup.group.rule, cleanup.group.blocked_by) == ("X-C3", "share_group")

    def test_scala_before_2_4_expires_nothing_of_a_live_group(self) -> None:
        semantics = semantics_for(broker_version="2.3.1")
        cleanup = cleanup_of(replayed([stable_classic_group("t"), old("u0", 1)], semantics), semantics)
        assert cleanup is not None
        assert [(row.rule, row.blocked_by) for row in cleanup.offsets] == [("X-B4", "live_group")]


class TestEraA:
    """Offsets carry their own end: the commit's, or what the broker worked out when it loaded them."""

    @pytest.mark.parametrize(
        ("name", "records", "expires_at_ms", "expired"),
        [
            ("A1", [offset_commit("t0", 1, version=0, commit_ms=940_000)], 1_000_001, False),
            ("A2", [offset_commit("t0", 1, version=0, commit_ms=939_999)], 1_000_000, True),
            ("A3", [stable_classic_group("t", version=1), old("t0", 999_000, 999_999)], 1_000_000, True),
            ("A4", [offset_commit("t0", 1, version=1, commit_ms=999_000)], 1_059_001, False),
            ("A5", [old("t0", 0, 1_000_000)], 1_000_001, False),
        ],
    )
    def test_examples(self, name: str, records: list[Record], expires_at_ms: int, expired: bool) -> None:
        cleanup = cleanup_of(replayed(records, KAFKA_2_0), KAFKA_2_0)
        assert cleanup is not None
        assert [(row.expires_at_ms, row.expired, row.rule) for row in cleanup.offsets] == [(expires_at_ms, expired, "X-A1")], name

    def test_a6_retention_is_the_one_of_the_load(self) -> None:
        state = replayed([offset_commit("t0", 1, version=0, commit_ms=939_999)], KAFKA_2_0)
        (cleanup,) = Cleanup(NOW, 120_000, KAFKA_2_0).of_partition(state)
        assert (cleanup.offsets[0].expires_at_ms, cleanup.offsets[0].expired) == (1_060_000, False)

    @pytest.mark.parametrize(("commit_ms", "expired"), [(940_000, False), (939_999, True)])
    def test_a7_kafka_0_8_2_wants_more_than_the_retention(self, commit_ms: int, expired: bool) -> None:
        semantics = semantics_for(broker_version="0.8.2.2")
        cleanup = cleanup_of(replayed([offset_commit("t0", 1, key_type=0, commit_ms=commit_ms)], semantics), semantics)
        assert cleanup is not None
        assert [(row.rule, row.expired) for row in cleanup.offsets] == [("X-A0", expired)]
        assert writes_of(cleanup) == ("0" if expired else "")
        assert (cleanup.group.removed, cleanup.group.rule) == (False, None)

    def test_group_of_a_completed_generation_gets_a_tombstone(self) -> None:
        commit = offset_commit("t0", 1, version=0, commit_ms=939_999)
        assert writes_of(cleanup_of(replayed([classic_group(generation=3, version=1), commit], KAFKA_2_0), KAFKA_2_0)) == "1 2"
        simple = cleanup_of(replayed([commit], KAFKA_2_0), KAFKA_2_0)
        assert simple is not None
        assert (writes_of(simple), simple.group.removed) == ("1", True)

    def test_cleanup_of_0_9_removes_no_group(self) -> None:
        semantics = semantics_for(broker_version="0.9.0.1")
        cleanup = cleanup_of(replayed([offset_commit("t0", 1, version=0, commit_ms=1)], semantics), semantics)
        assert cleanup is not None
        assert (writes_of(cleanup), cleanup.group.removed, cleanup.group.rule) == ("1", False, "X-G0")


    @pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0.1"])
    def test_a_group_with_members_says_so_where_no_group_is_removed(self, release: str) -> None:
        cleanup = Cleanup(NOW, RETENTION, semantics_for(broker_version=release))
        facts = GroupFacts("g", "classic", "Stable", "consumer", 1, 1, None, frozenset({"t"}))
        assert cleanup.of_group(facts, {}, ()).group.blocked_by == "members"
        assert cleanup.of_group(facts._replace(state="Empty", member_count=0), {}, ()).group.blocked_by is None


class TestOrder:
    def test_offsets_and_their_tombstones_are_sorted_by_topic_and_partition_whenever_they_were_committed(self) -> None:
        cleanup = cleanup_of(replayed([old("u0", 1), old("t1", 2), old("t0", 3)]))
        assert cleanup is not None
        assert [f"{row.topic}{row.partition}" for row in cleanup.offsets] == ["t0", "t1", "u0"]
        assert [(row.topic, row.partition) for row in cleanup.tombstones] == [("t", 0), ("t", 1), ("u", 0), (None, None)]

    def test_a_row_of_the_table_is_judged_by_its_facts(self) -> None:
        (row,) = replayed([stable_classic_group("t")]).groups()
        assert type(Cleanup(NOW, RETENTION).facts_of(row)) is GroupFacts
        assert Cleanup(NOW, RETENTION).facts_of(row) == GroupFacts.of_row(row)


class TestStoredDescription:
    """A broker that has the plugin deletes the description of a streams group first; the group goes in a later cleanup."""

    FACTS = GroupFacts("g", "streams", "Empty", None, 1, 0, None, frozenset())

    @pytest.mark.parametrize("has_plugin", [True, False])
    def test_keeps_the_group_where_the_broker_has_the_plugin(self, has_plugin: bool) -> None:
        semantics = replace(semantics_for(broker_version="4.4.0"), stored_description_keeps_group=has_plugin)
        cleanup = Cleanup(NOW, RETENTION, semantics)
        described = cleanup.of_group(self.FACTS._replace(has_stored_description=True), {}, ()).group
        assert (described.removed, described.blocked_by) == ((False, "topology_description") if has_plugin else (True, None))
        assert cleanup.of_group(self.FACTS, {}, ()).group.removed


class TestDeletions:
    """What a deletion leaves behind, once the records it writes are replayed."""

    def test_d1_deleted_simple_group_is_gone(self) -> None:
        state = replayed([offset_commit("t0", 1), offset_commit("t0", None), tombstone(KeyType.GROUP_METADATA)])
        assert (group_of(state), orphans_of(state), codes_of(state)) == (None, {}, [])

    def test_d2_pending_offsets_die_with_the_tombstones(self) -> None:
        before = [empty("consumer", 3, 1), offset_commit("t0", 1), transactional_commit(7, "t0", 2), transactional_commit(7, "t1", 3)]
        state = replayed([*before, offset_commit("t0", None), offset_commit("t1", None), tombstone(KeyType.GROUP_METADATA)])
        assert (group_of(state), pending_of(state), codes_of(state)) == (None, {}, [])

    @pytest.mark.parametrize(
        ("name", "records"),
        [
            (
                "D4",
                [
                    group_epoch(),
                    offset_commit("t0", 1),
                    offset_commit("t0", None),
                    tombstone(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA),
                    tombstone(KeyType.CONSUMER_GROUP_PARTITION_METADATA),
                    tombstone(KeyType.CONSUMER_GROUP_METADATA),
                ],
            ),
            (
                "D5",
                [
                    share_group_epoch(),
                    tombstone(KeyType.SHARE_GROUP_TARGET_ASSIGNMENT_METADATA),
                    tombstone(KeyType.SHARE_GROUP_STATE_PARTITION_METADATA),
                    tombstone(KeyType.SHARE_GROUP_METADATA),
                ],
            ),
            (
                "D6",
                [
                    streams_group_epoch(),
                    offset_commit("t0", 1),
                    offset_commit("t0", None),
                    tombstone(KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA),
                    tombstone(KeyType.STREAMS_GROUP_METADATA),
                    tombstone(KeyType.STREAMS_GROUP_TOPOLOGY),
                ],
            ),
        ],
    )
    def test_modern_group_is_gone_without_a_warning(self, name: str, records: list[Record]) -> None:
        state = replayed(records)
        assert (group_of(state), orphans_of(state), codes_of(state)) == (None, {}, []), name

    def test_d3_d7_d8_live_group_knows_its_topics(self) -> None:
        row = replayed([stable_classic_group("t"), offset_commit("t0", 1), offset_commit("u0", 1)]).groups()[0]
        assert (row.state, row.subscribed_topics) == ("Stable", ("t",))

    def test_d9_connect_group_does_not(self) -> None:
        assert replayed([stable_classic_group(protocol_type="connect"), offset_commit("u0", 1)]).groups()[0].subscribed_topics is None

    def test_d10_deleted_pending_offset_does_not_come_back(self) -> None:
        assert pending_of(replayed([transactional_commit(7, "t1", 1), offset_commit("t1", None)])) == {}

    def test_d11_offset_that_was_never_there_needs_nothing(self) -> None:
        state = replayed([offset_commit("t0", 1), offset_commit("t3", None)])
        assert (len(state.committed_offsets()), codes_of(state)) == (1, [])


class TestMembersGone:
    """The log does not distinguish a dead member from a quiet one: judged as if all had been fenced now."""

    def cleanup(self, *records: Record) -> GroupCleanup:
        (cleanup,) = Cleanup(NOW, RETENTION, assume_members_gone=True).of_partition(replayed(records))
        return cleanup

    def test_classic_group_counts_from_now(self) -> None:
        cleanup = self.cleanup(stable_classic_group("t"), old("t0", 1), old("u0", 1))
        assert [(row.rule, row.base_timestamp_ms, row.expires_at_ms) for row in cleanup.offsets] == [("X-B1", NOW, NOW + RETENTION)] * 2
        assert (cleanup.group.removed, cleanup.group.removed_at_ms) == (False, NOW + RETENTION)

    def test_explicit_expiry_counts_at_once(self) -> None:
        cleanup = self.cleanup(stable_classic_group(protocol_type="connect"), old("t0", 1, 5))
        assert (expired_of(cleanup), writes_of(cleanup)) == (T0, "1 2")

    def test_consumer_group_counts_from_the_commit(self) -> None:
        cleanup = self.cleanup(consumer_member("m", "t"), resolved_regex("x", "x"), old("t0", 940_000), old("u0", 940_000))
        assert (expired_of(cleanup), writes_of(cleanup)) == ({"t0", "u0"}, "1 1 6 4 3")

    def test_streams_group_counts_from_the_commit(self) -> None:
        assert expired_of(self.cleanup(streams_group_epoch(), topology("t"), *STREAMS_MEMBER, old("t0", 940_000))) == T0

    @pytest.mark.parametrize(("first", "state_ms"), [(stable_classic_group("t"), NOW), (group_epoch(), None)], ids=["classic", "consumer"])
    def test_the_group_is_one_generation_on_and_without_members(self, first: Record, state_ms: int | None) -> None:
        (row,) = replayed([first, *([consumer_member("m", "t")] if state_ms is None else [])]).groups()
        gone = Cleanup(NOW, RETENTION, assume_members_gone=True).facts_of(row)
        assert row.member_count == 1
        assert (gone.generation, gone.member_count, gone.state) == (row.generation + 1, 0, "Empty")
        assert (gone.state_timestamp_ms, gone.subscribed_topics, gone.regular_expressions) == (state_ms, frozenset(), ())

    def test_group_without_members_is_judged_as_it_is(self) -> None:
        assert expired_of(self.cleanup(empty("consumer", 4, 940_000), old("t0", 1))) == T0


class TestSixtyFourBits:
    LOWEST, HIGHEST = -(2**63), 2**63 - 1

    def at(self, commit_ms: int, semantics: Semantics = JAVA, expire_ms: int | None = None) -> tuple[int | None, bool]:
        version = 1 if semantics.offset_rules == "X-A1" else None
        records = [offset_commit("t0", 1, commit_ms=commit_ms, expire_ms=expire_ms, version=version)]
        (cleanup,) = Cleanup(NOW, RETENTION, semantics).of_partition(replayed(records, semantics))
        return cleanup.offsets[0].expires_at_ms, cleanup.offsets[0].expired

    def test_age_that_wraps_is_no_age(self) -> None:
        assert self.at(self.LOWEST) == (None, False)
        assert self.at(NOW - self.HIGHEST) == (NOW - self.HIGHEST + RETENTION, True)
        assert self.at(NOW - self.HIGHEST - 1) == (None, False)

    def test_moment_beyond_64_bits_never_comes(self) -> None:
        assert self.at(self.HIGHEST) == (None, False)
        assert self.at(self.HIGHEST - RETENTION) == (self.HIGHEST, False)
        assert self.at(5, KAFKA_2_0, self.HIGHEST) == (None, False)

    def test_explicit_moments_are_not_subtracted(self) -> None:
        assert self.at(5, expire_ms=self.LOWEST) == (self.LOWEST, True)
