"""Which release of Kafka a version means, and what differs between patch releases of one line."""

import pytest

from groupcoord_spark.coordinator import Cleanup, GroupCleanup, Semantics, semantics_for
from groupcoord_spark.coordinator.releases import LAST_PATCHES, release_named, version_text
from groupcoord_spark.coordinator.semantics import TOPOLOGY_DESCRIPTION_PLUGIN
from groupcoord_spark.errors import UsageError
from groupcoord_spark.protocol import UNKNOWN_TAGS
from groupcoord_spark.protocol.record_types import KeyType
from tests.coordinator.records import (
    Record,
    aborted,
    classic_group,
    codes_of,
    committed,
    consumer_member,
    current_assignment,
    group_epoch,
    member,
    offset_commit,
    offsets_of,
    own,
    pending_of,
    replayed,
    streams_assignment,
    streams_member,
    target_metadata,
    topology,
    transactional_commit,
)

NOW_MS = 1_000_000
RETENTION_MS = 60_000


def cleaned(records: list[Record], semantics: Semantics) -> GroupCleanup:
    """Return what a cleanup makes of the only group."""
    (cleanup,) = Cleanup(NOW_MS, RETENTION_MS, semantics).of_partition(replayed(records, semantics))
    return cleanup


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("4.2", (4, 2, 2)),
        ("4.2.0", (4, 2, 0)),
        (" 4.2.1 ", (4, 2, 1)),
        ("4.4.0", (4, 4, 0)),
        ("2.6", (2, 6, 3)),
        ("0.10.2", (0, 10, 2, 2)),
        ("0.10.2.1", (0, 10, 2, 1)),
        ("0.10.0", (0, 10, 0, 1)),
        ("0.8.2", (0, 8, 2, 2)),
        ("0.11", (0, 11, 0, 3)),
        ("0.10", (0, 10, 2, 2)),
    ],
)
def test_version_without_a_patch_means_the_newest_patch_release(text: str, release: tuple[int, ...]) -> None:
    assert release_named(text) == release
    assert semantics_for(broker_version=text).release == release
    assert semantics_for(broker_version=text).broker_version == text.strip()


def test_every_release_is_named_by_its_own_version() -> None:
    releases = [(*line, patch) for line, last in LAST_PATCHES.items() for patch in range(last + 1)]
    assert [release_named(version_text(release)) for release in releases] == releases == sorted(releases)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("4.2.7", r"'4.2.7' is not a release of Kafka. Of 4.2 there are: 4.2.0, 4.2.1, 4.2.2\.$"),
        ("3.9.9", r"Of 3.9 there are: 3.9.0, 3.9.1, 3.9.2\.$"),
        ("0.10.2.3", r"Of 0.10.2 there are: 0.10.2.0, 0.10.2.1, 0.10.2.2\.$"),
        ("4.2.1.0", r"Of 4.2 there are: 4.2.0, 4.2.1, 4.2.2\.$"),
        ("9.9", r"These are known, with their patch releases: 0.8.2, 0.9.0, .*, 4.3, 4.4\.$"),
        ("2.9.0", r"These are known"),
        ("0.8.1", r"has no __consumer_offsets topic"),
        ("4", r"Write for example 4.3.1"),
        ("4.3.1-cp1", r"Write for example 4.3.1"),
    ],
)
def test_version_that_does_not_exist_is_refused_with_those_that_do(text: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        release_named(text)


@pytest.mark.parametrize("kind", [[], [classic_group()], [group_epoch()]])
def test_4_0_0_removes_a_group_of_pending_offsets_alone_and_4_0_1_keeps_it(kind: list[Record]) -> None:
    records = [*kind, transactional_commit(7, "t0", 5)]
    assert cleaned(records, semantics_for(broker_version="4.0.0")).group.removed
    kept = cleaned(records, semantics_for(broker_version="4.0.1")).group
    assert (kept.removed, kept.blocked_by) == (False, "pending_transaction")


def test_4_0_0_keeps_a_group_with_a_pending_and_a_committed_offset_as_all_releases_do() -> None:
    group = cleaned([offset_commit("t0", 5), transactional_commit(7, "t1", 5)], semantics_for(broker_version="4.0.0")).group
    assert (group.removed, group.blocked_by) == (False, "pending_transaction")


TOMBSTONED = [offset_commit("t1", 4), transactional_commit(7, "t0", 5), offset_commit("t0", None)]


@pytest.mark.parametrize(
    ("records", "keeping"),
    [
        (TOMBSTONED, ["3.8.1", "3.9.2", "4.0.0"]),
        ([*TOMBSTONED, committed(7)], ["3.8.1", "3.9.2", "4.0.0"]),
        ([*TOMBSTONED, transactional_commit(7, "t2", 5), aborted(7)], []),
    ],
    ids=["the transaction is open", "the marker finds no pending offset", "the marker finds another pending offset"],
)
def test_before_4_0_1_a_tombstone_leaves_the_transaction_open_for_the_group(records: list[Record], keeping: list[str]) -> None:
    releases = ["3.7.2", "3.8.1", "3.9.2", "4.0.0", "4.0.1", "4.3.1"]
    groups = {release: cleaned(records, semantics_for("java", release)).group for release in releases}
    assert [release for release, group in groups.items() if group.blocked_by == "pending_transaction"] == keeping
    assert [release for release, group in groups.items() if not group.removed] == keeping


class TestPreviewOf37:
    PREVIEW = semantics_for("java", "3.7")

    def test_tombstone_keeps_pending_offsets_of_every_producer(self) -> None:
        records = [offset_commit("t0", 1), transactional_commit(7, "t0", 5), transactional_commit(8, "t0", None)]
        assert offsets_of(replayed(records, self.PREVIEW)) == {}
        assert pending_of(replayed(records, self.PREVIEW)) == {("t0", 7): 5}
        assert offsets_of(replayed([*records, committed(7)], self.PREVIEW)) == {"t0": 5}

    def test_commit_marker_overwrites_newer_commits(self) -> None:
        records = [transactional_commit(7, "t0", 5), offset_commit("t0", 6), committed(7)]
        assert offsets_of(replayed(records, self.PREVIEW)) == {"t0": 5}
        assert offsets_of(replayed(records, semantics_for("java", "3.8.0"))) == {"t0": 6}

    def test_pending_offset_protects_neither_the_committed_one_nor_the_group(self) -> None:
        records = [offset_commit("t0", 5), transactional_commit(7, "t0", 6)]
        assert cleaned(records, self.PREVIEW).group.removed
        assert not cleaned(records, semantics_for("java", "3.8.0")).offsets[0].expired

    def test_share_groups_are_skipped_records(self) -> None:
        epoch = own(KeyType.SHARE_GROUP_METADATA, {"epoch": 2, "metadata_hash": 0})
        assert codes_of(replayed([epoch], self.PREVIEW)) == [(0, "R-1.6")]

    def test_coordinator_of_3_7_is_scala_unless_java_is_named(self) -> None:
        assert [semantics_for(name, "3.7").name for name in (None, "scala", "java")] == ["scala", "scala", "java"]


@pytest.mark.parametrize(("release", "fails"), [("4.0.2", True), ("4.1.2", False), ("4.3.1", False), ("4.4.0", True)])
def test_cleanup_fails_over_a_share_group_with_an_offset(release: str, fails: bool) -> None:
    semantics = semantics_for(broker_version=release)
    epoch = own(KeyType.SHARE_GROUP_METADATA, {"epoch": 2, "metadata_hash": 0})
    state = replayed([epoch, offset_commit("t0", 1), offset_commit("t0", 5, group="old"), classic_group(group="empty")], semantics)
    cleanups = list(Cleanup(NOW_MS, RETENTION_MS, semantics).of_partition(state))
    blocked = {cleanup.group.group_id: cleanup.group.blocked_by for cleanup in cleanups}
    reason = "failing_cleanup" if fails else None
    assert blocked == {"g": "share_group", "old": reason, "empty": reason}
    offsets = {offset.group_id: (offset.expired, offset.blocked_by) for cleanup in cleanups for offset in cleanup.offsets}
    assert offsets == {"g": (False, "share_group"), "old": (not fails, reason)}
    assert [len(cleanup.tombstones) for cleanup in cleanups] == ([0, 0, 0] if fails else [1, 0, 2])


def described(epoch: int) -> Record:
    """Return a streams group's record whose tag 2, known since 4.4, names the topology whose description is stored."""
    tags = {2: epoch.to_bytes(4, "big", signed=True)}
    return own(
        KeyType.STREAMS_GROUP_METADATA,
        {"epoch": 2, "metadata_hash": 0, "validated_topology_epoch": 0, "last_assignment_configs": [], UNKNOWN_TAGS: tags},
    )


PLUGIN = {TOPOLOGY_DESCRIPTION_PLUGIN: "org.example.Plugin"}


class TestStoredDescription:
    @pytest.mark.parametrize("epoch", [0, 3, -2])
    def test_streams_group_stays_until_its_description_is_deleted(self, epoch: int) -> None:
        semantics = semantics_for(broker_version="4.4.0").with_settings(PLUGIN)
        cleanup = cleaned([described(epoch), topology("t"), offset_commit("t0", 5)], semantics)
        assert [offset.expired for offset in cleanup.offsets] == [True]
        assert (cleanup.group.removed, cleanup.group.removed_at_ms, cleanup.group.blocked_by) == (False, None, "topology_description")
        assert [tombstone.key_type for tombstone in cleanup.tombstones] == [1]

    def test_streams_group_goes_when_the_description_is_gone(self) -> None:
        semantics = semantics_for(broker_version="4.4.0").with_settings(PLUGIN)
        assert cleaned([described(0), described(-1), topology("t"), offset_commit("t0", 5)], semantics).group.removed

    @pytest.mark.parametrize(
        ("release", "settings"), [("4.4.0", {}), ("4.4.0", {TOPOLOGY_DESCRIPTION_PLUGIN: " "}), ("4.3.1", PLUGIN), ("4.2.0", PLUGIN)]
    )
    def test_broker_without_a_plugin_or_of_an_older_release_looks_at_no_description(self, release: str, settings: dict[str, str]) -> None:
        semantics = semantics_for(broker_version=release).with_settings(settings)
        assert cleaned([described(0), topology("t"), offset_commit("t0", 5)], semantics).group.removed

    def test_what_is_asked_about_a_group_without_members_is_asked_about_a_live_one(self) -> None:
        semantics = semantics_for(broker_version="4.4.0").with_settings(PLUGIN)
        assert (
            cleaned([described(0), streams_member(), topology("t"), streams_assignment("m", 1)], semantics).group.blocked_by
            == "topology_description"
        )


MALFORMED = [classic_group(members=[member(subscription=b"\0\0\xff\xff\xff\xff")], protocol="range", leader="m"), offset_commit("t0", 5)]


@pytest.mark.parametrize(("release", "codes"), [("4.2.1", [(0, "R-2.4")]), ("4.2.2", []), ("4.3.1", [(0, "R-2.4")]), ("4.4.0", [])])
def test_4_2_2_and_4_4_go_on_over_a_subscription_that_cannot_be_parsed(release: str, codes: list[tuple[int, str]]) -> None:
    semantics = semantics_for(broker_version=release)
    assert codes_of(replayed(MALFORMED, semantics)) == codes
    assert [offset.blocked_by for offset in cleaned(MALFORMED, semantics).offsets] == ["unknown_subscription"]


@pytest.mark.parametrize("release", ["2.3.0", "2.3.1", "2.4.1", "2.5.1", "2.6.0"])
def test_offsets_of_an_empty_group_aged_from_its_state_where_the_loader_forgets_that_time(release: str) -> None:
    semantics = semantics_for(broker_version=release)
    (offset,) = cleaned([classic_group(state_ms=NOW_MS), offset_commit("t0", 5)], semantics).offsets
    assert (offset.rule, offset.base_timestamp_ms, offset.expired) == ("X-B1", 1_000, True)
    (offset,) = cleaned([classic_group(state_ms=NOW_MS, version=2), offset_commit("t0", 5)], semantics).offsets
    assert (offset.base_timestamp_ms, offset.expired) == (NOW_MS, False)


@pytest.mark.parametrize("release", ["2.2.2", "2.6.1", "2.6", "2.7.0"])
def test_other_releases_take_the_state_timestamp(release: str) -> None:
    semantics = semantics_for(broker_version=release)
    version = 2 if release == "2.2.2" else 3
    (offset,) = cleaned([classic_group(state_ms=NOW_MS, version=version), offset_commit("t0", 5)], semantics).offsets
    assert (offset.base_timestamp_ms, offset.expired) == (NOW_MS, False)


@pytest.mark.parametrize("release", ["0.9.0.1", "0.10.0.0", "0.10.0.1"])
def test_0_10_0_was_judged_like_0_10_1_although_it_has_no_state_empty(release: str) -> None:
    semantics = semantics_for(broker_version=release)
    state = replayed([classic_group(version=0)], semantics)
    assert [row.state for row in state.groups()] == ["Stable"]
    assert cleaned([classic_group(version=0)], semantics).tombstones == []
    assert [row.state for row in replayed([classic_group(version=1)], semantics_for(broker_version="0.10.1")).groups()] == ["Empty"]


@pytest.mark.parametrize(("release", "codes"), [("4.0.2", []), ("4.2.2", []), ("4.3.0", [(1, "R-3.12")])])
def test_target_assignments_are_checked_since_4_3(release: str, codes: list[tuple[int, str]]) -> None:
    assert (
        codes_of(
            replayed(
                [group_epoch(), target_metadata(KeyType.CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA, -2)],
                semantics_for(broker_version=release),
            )
        )
        == codes
    )


@pytest.mark.parametrize(("release", "state"), [("4.2.2", "Stable"), ("4.3.0", "Reconciling")])
def test_groups_of_the_new_protocols_begin_with_epoch_1_since_4_3(release: str, state: str) -> None:
    assert [row.state for row in replayed([consumer_member("m")], semantics_for(broker_version=release)).groups()] == [state]


def test_before_kafka_19862_an_owner_that_is_refused_has_given_up_the_partitions_of_another() -> None:
    records = [current_assignment("m", 5, 0), current_assignment("n", 6, 0), current_assignment("m", 6), current_assignment("n", 7)]
    assert codes_of(replayed(records, semantics_for("java", "4.0.1"))) == [(1, "R-3.14"), (2, "R-3.14"), (3, "R-3.14")]
    assert codes_of(replayed(records, semantics_for("java", "4.0.2"))) == []
