"""How each release answers requests: one table of changes, each with the first release that has it.

Brokers 2.8.2, 3.9.1 and 4.3.1 were compared request by request, 0.10.2.2, 2.0.1, 2.4.1 and 2.7.2 rule by rule. A change between two of
these releases stands at the release of the improvement (KIP) or ticket (KAFKA) that made the change.
Rules: docs/reference/coordinator.md and docs/reference/semantics-by-release.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from groupcoord_spark.coordinator.semantics import Semantics, semantics_for
from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator.groups import classic_checks as checks
from groupcoord_spark.simulator.groups.classic_checks import GroupChecks, HeartbeatRules
from groupcoord_spark.simulator.groups.consumer_group import ReconciliationRules
from groupcoord_spark.simulator.messages import Error, requests
from groupcoord_spark.simulator.messages.request_versions import Versions, first_release_of, known_versions


class CoordinatorCheck(Enum):
    """A check that comes before the group is looked up."""

    ACTIVE = "coordinator is not active: COORDINATOR_NOT_AVAILABLE"
    GROUP_ID = "group id is not valid: INVALID_GROUP_ID"
    SESSION_TIMEOUT = "JoinGroup: session timeout outside the broker's limits: INVALID_SESSION_TIMEOUT"
    LOADING = "offsets partition is being loaded: COORDINATOR_LOAD_IN_PROGRESS"
    OWNED = "offsets partition is led by another broker: NOT_COORDINATOR"


class SizeRule(Enum):
    """Which JoinGroup exceeds group.max.size (docs/reference/coordinator.md, chapter 4.4)."""

    NONE = "no limit"
    BY_MEMBERS = "by the number of members: a new member beyond the limit, or a member that does not wait while the group exceeds it"
    BY_WAITING = "in PreparingRebalance by the number of waiting members, else by the number of members (KAFKA-9885)"


AppendErrors = Mapping[Error, Error]

_APPEND_FAILURE: AppendErrors = {
    Error.UNKNOWN_TOPIC_OR_PARTITION: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_ENOUGH_REPLICAS: Error.COORDINATOR_NOT_AVAILABLE,
    Error.NOT_LEADER_OR_FOLLOWER: Error.NOT_COORDINATOR,
    Error.KAFKA_STORAGE_ERROR: Error.NOT_COORDINATOR,
}
_GROUP_TOO_LARGE: AppendErrors = dict.fromkeys(
    (Error.MESSAGE_TOO_LARGE, Error.RECORD_LIST_TOO_LARGE, Error.INVALID_FETCH_SIZE), Error.UNKNOWN_SERVER_ERROR
)
_COMMIT_TOO_LARGE: AppendErrors = dict.fromkeys(_GROUP_TOO_LARGE, Error.INVALID_COMMIT_OFFSET_SIZE)
_AFTER_APPEND: AppendErrors = {Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Error.COORDINATOR_NOT_AVAILABLE}
_GROUP_APPEND_ERRORS: AppendErrors = {
    **_APPEND_FAILURE,
    **_GROUP_TOO_LARGE,
    **_AFTER_APPEND,
    Error.REQUEST_TIMED_OUT: Error.REBALANCE_IN_PROGRESS,
}
_COMMIT_APPEND_ERRORS: AppendErrors = {**_APPEND_FAILURE, **_COMMIT_TOO_LARGE, **_AFTER_APPEND}
_APPEND_ERRORS_4_0: AppendErrors = {**_APPEND_FAILURE, **_GROUP_TOO_LARGE, Error.REQUEST_TIMED_OUT: Error.COORDINATOR_NOT_AVAILABLE}
"""4.x has one table for all requests (CoordinatorOperationExceptionHelper)."""

NEVER_EMPTY_IDS = frozenset({requests.JoinGroup, requests.SyncGroup, requests.Heartbeat, requests.LeaveGroup, requests.OffsetDelete})
"""Requests that refuse the group id "". The others accept it, because old clients send it."""


@dataclass(frozen=True, slots=True)
class Release:
    """How one release answers requests. ``release_for`` makes it; the defaults of the fields are the rules of 0.10.

    What differs between releases in loading and in expiration is in ``semantics``.
    """

    semantics: Semantics
    reconciliation: ReconciliationRules
    like_java_maps: bool = False

    # Before the group is looked up
    coordinator_checks: tuple[CoordinatorCheck, ...] = (
        CoordinatorCheck.ACTIVE,
        CoordinatorCheck.GROUP_ID,
        CoordinatorCheck.OWNED,
        CoordinatorCheck.LOADING,
        CoordinatorCheck.SESSION_TIMEOUT,
    )
    empty_group_id_refused: frozenset[type] = frozenset({requests.JoinGroup})
    null_group_id_refused: bool = False
    sync_while_loading: Error | None = None
    """The answer to SyncGroup while its offsets partition is being loaded; None: SyncGroup does not check that."""

    # Checks against the group
    join_checks: GroupChecks = checks.JOIN_CHECKS_0_10
    sync_checks: GroupChecks = checks.SYNC_CHECKS_0_10
    heartbeat_rules: HeartbeatRules = field(default_factory=lambda: checks.HEARTBEAT_RULES_0_10)
    member_checks: GroupChecks = checks.MEMBER_CHECKS_0_10
    commit_checks: GroupChecks = checks.COMMIT_CHECKS_0_10
    txn_commit_checks: GroupChecks = checks.TXN_COMMIT_CHECKS_0_11

    # Joining
    has_member_ids_on_request: bool = False
    """A new member without an instance id is answered MEMBER_ID_REQUIRED, and joins again with its member id (JoinGroup 4, KIP-394)."""
    new_member_deadline_ms: int | None = None
    """How long a new member may wait for the end of its first join phase; None: without limit."""
    removal_answers_waiting_join: bool = False
    size_rule: SizeRule = SizeRule.NONE
    size_refusal_tests_join_phase: bool = True
    has_static_members: bool = False
    static_restart_rebalances_sync_phase: bool = False
    """In CompletingRebalance the restart of a static member starts a new rebalance (KAFKA-9801). Before, it is answered with the current
    generation."""
    static_restart_is_written: bool = False
    """In Stable the restart of a static member is written to the log, or starts a rebalance if it changes the elected protocol
    (KAFKA-10284). Before, it is only answered."""
    skips_assignment: bool = False
    """The answer to a restarted static leader has ``skip_assignment``: it leads, and computes no assignment (JoinGroup 9, KIP-814)."""
    replaced_member_stays_new: bool = True
    rejoin_updates_timeouts: bool = False
    writes_new_group: bool = False
    """A JoinGroup that created the group and wrote no other record writes an empty group record."""

    # Rebalance
    has_initial_delay: bool = False
    delays_again_after_every_empty: bool = False
    """True: a new member extends the initial delay whenever the group was Empty before. False: only in generation 0."""
    expiry_ends_initial_delay: bool = False
    has_sync_timer: bool = False
    repeated_sync_restarts_session: bool = True
    """A SyncGroup in Stable restarts the session timeout of its member."""

    # Leaving
    rebalances_after_each_leave: bool = True
    """The rebalance for one member of a LeaveGroup request starts before the next member is removed."""
    pending_leave_rebalances: bool = False

    # Consumer groups (KIP-848)
    stale_targets_rebalance: bool = False
    """A downgrade by a joining member begins with a rebalance if the group epoch is newer than the targets. Before: if the member has
    other topics."""
    classic_members_follow_targets: bool = False
    """Classic members of a consumer group join again when a target assignment is newer than they are. Before: when the group epoch is."""
    known_member_may_join_again: bool = False
    """A member of a consumer group that is not static may send epoch 0 at any time. Before, only after its first answer was lost."""
    assignment_interval_ms: int = 0
    """Default of the shortest time between two target assignments of consumer, share and streams groups (KIP-1263)."""
    group_settings_hide_streams_delay: bool = True
    """A streams group with its own settings uses the default initial delay, not the broker's, unless it sets one."""
    stores_assignment_timestamp: bool = False
    last_leave_writes_target_epoch: bool = False
    """The last member that goes leaves a target assignment of the new group epoch, with timestamp 0 (KAFKA-20442)."""
    changed_assignor_bumps_epoch: bool = False
    """A new group epoch follows when the members elect another server assignor (KAFKA-20434)."""
    writes_target_of_returning_member: bool = True
    """A static member that comes back gets its target again where the heartbeat also computes a new target assignment."""
    size_limit_spares_known_members: bool = False
    """The limit of the size refuses no static member that comes back, and no member of a streams group that joins again."""
    refuses_malformed_subscription: bool = False
    """A JoinGroup to a consumer group whose subscription cannot be read: INCONSISTENT_GROUP_PROTOCOL. Before: UNKNOWN_SERVER_ERROR."""
    sticky_passes_over_holders: bool = False
    """The assignor of streams groups passes over processes that have a task when it looks for a member for the task's standby."""
    has_streams_of_4_4: bool = False
    """Streams groups have static members, settings for the offsets of tasks and the tags of standbys, and an epoch of endpoints that a
    changed endpoint raises. Before, every answer to a member that joins raises the epoch."""
    commits_by_older_epoch: bool = False
    """A commit with an older member epoch is accepted for partitions that the member has had since that epoch."""

    # Offsets
    group_not_found_since: int | None = None
    """First version of OffsetCommit whose error for a generation in an unknown group is GROUP_ID_NOT_FOUND. Before: ILLEGAL_GENERATION."""
    txn_commit_tells_since: int | None = None
    """First version of TxnOffsetCommit that is answered GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH. Before: ILLEGAL_GENERATION."""
    txn_commit_creates_group: bool = True
    """A TxnOffsetCommit with a generation for an unknown group first creates the group, and is then refused."""
    offset_value_version: int = 1
    commits_carry_topic_id: bool = False
    transactional_commits_carry_topic_id: bool = False
    always_expires_explicitly: bool = True
    """Every commit is written with an expire timestamp (docs/reference/expiration-rules.md, X-A2)."""
    takes_commit_timestamps: bool = False
    """True: the timestamp in OffsetCommit version 1 is stored as the commit timestamp. False: the expire timestamp counts from it."""
    expires_while_rebalancing: bool = False
    """The cleanup removes offsets of topics without a subscriber also during a rebalance (2.4 to 2.7)."""
    fetch_shows_empty_topics: bool = False
    applies_before_append: bool = False
    """A change is made before its append has a result, and is taken back if the append fails; every request that may write waits for the
    appends before it. False: only what a request itself writes is waited for."""
    stores_after_timeout: bool = False
    """A commit whose append outlasts offsets.commit.timeout.ms is stored when the append succeeds. False: it stays in the log alone."""
    stable_fetch_waits: bool = False
    """An OffsetFetch with require_stable waits until no append is in flight. False: it is answered UNSTABLE_OFFSET_COMMIT for the
    partitions with a commit in flight."""
    offset_delete_may_remove_group: bool = True

    # Groups
    group_value_version: int = 0
    deletion_always_writes_group: bool = False
    """A removed group gets a tombstone for every generation. False: only for generations above 0."""
    deletion_writes_pending: bool = False
    shows_last_assignment: bool = False
    unknown_group_is_error_since: int | None = None
    """First version of DescribeGroups that is answered GROUP_ID_NOT_FOUND for an unknown group; None: no version."""
    state_filter_ignores_case: bool = False
    completing_rebalance_name: str = "AwaitingSync"

    group_append_errors: AppendErrors = field(default_factory=lambda: _GROUP_APPEND_ERRORS)
    """Error of a failed append of a group record -> error in the answer. An error that is not listed is answered unchanged."""
    commit_append_errors: AppendErrors = field(default_factory=lambda: _COMMIT_APPEND_ERRORS)
    """The same for a failed append of offset records."""
    max_session_timeout_ms: int = 300_000
    """Default of group.max.session.timeout.ms."""
    request_versions: Mapping[type, Versions] = field(default_factory=dict)
    """Request -> its versions, for the requests that this release knows."""

    def version_of(self, request: requests.Request) -> int:
        """Return the version of a request, or the newest version of this release if the request names none."""
        return request.version if request.version is not None else self.request_versions[type(request)].newest


_CHANGES: tuple[tuple[tuple[int, ...], dict[str, Any]], ...] = (
    ((0, 10, 1), {"group_value_version": 1}),  # KIP-62
    ((0, 11), {"has_initial_delay": True}),  # KIP-134
    ((1, 0), {"join_checks": checks.JOIN_CHECKS_1_0}),
    ((1, 1), {"completing_rebalance_name": "CompletingRebalance"}),
    (
        (2, 0),
        {
            "coordinator_checks": (
                CoordinatorCheck.GROUP_ID,
                CoordinatorCheck.ACTIVE,
                CoordinatorCheck.LOADING,
                CoordinatorCheck.OWNED,
                CoordinatorCheck.SESSION_TIMEOUT,
            ),
            "empty_group_id_refused": NEVER_EMPTY_IDS,
            "null_group_id_refused": True,
            "sync_while_loading": Error.REBALANCE_IN_PROGRESS,
        },
    ),
    (
        (2, 1),  # KIP-211, KIP-320
        {"offset_value_version": 3, "always_expires_explicitly": False, "takes_commit_timestamps": True, "group_value_version": 2},
    ),
    (
        (2, 2),  # KIP-389, KIP-394
        {
            "join_checks": checks.JOIN_CHECKS_2_2,
            "has_member_ids_on_request": True,
            "new_member_deadline_ms": 300_000,
            "removal_answers_waiting_join": True,
            "size_rule": SizeRule.BY_MEMBERS,
        },
    ),
    (
        (2, 3),  # KIP-345
        {
            "has_static_members": True,
            "join_checks": checks.JOIN_CHECKS_2_3,
            "sync_checks": checks.SYNC_CHECKS_2_3,
            "heartbeat_rules": checks.HEARTBEAT_RULES_2_3,
            "member_checks": checks.MEMBER_CHECKS_2_3,
            "commit_checks": checks.COMMIT_CHECKS_2_3,
            "txn_commit_checks": checks.TXN_COMMIT_CHECKS_2_3,
            "group_value_version": 3,
            "max_session_timeout_ms": 1_800_000,
        },
    ),
    ((2, 4), {"expires_while_rebalancing": True}),
    ((2, 5), {"sync_checks": checks.SYNC_CHECKS_2_5, "txn_commit_checks": checks.TXN_COMMIT_CHECKS_2_5}),  # KIP-559, KIP-447
    (
        (2, 6),  # KAFKA-9801, KAFKA-9885
        {"heartbeat_rules": checks.HEARTBEAT_RULES_2_6, "size_rule": SizeRule.BY_WAITING, "static_restart_rebalances_sync_phase": True},
    ),
    ((2, 6, 1), {"static_restart_is_written": True}),  # KAFKA-10284
    ((2, 8), {"has_sync_timer": True, "commit_checks": checks.COMMIT_CHECKS_2_8, "expires_while_rebalancing": False}),  # KAFKA-12362
    (
        (3, 0),
        {
            "sync_checks": checks.SYNC_CHECKS_3_0,
            "heartbeat_rules": checks.HEARTBEAT_RULES_3_0,
            "member_checks": checks.MEMBER_CHECKS_3_0,
            "commit_checks": checks.COMMIT_CHECKS_3_0,
            "txn_commit_checks": checks.TXN_COMMIT_CHECKS_3_0,
            "state_filter_ignores_case": True,
        },
    ),
    ((3, 2), {"skips_assignment": True}),  # KIP-814
    ((3, 3), {"rejoin_updates_timeouts": True}),  # KAFKA-14009
    (
        (4, 0),  # the coordinator in Java
        {
            "like_java_maps": True,
            "coordinator_checks": (
                CoordinatorCheck.ACTIVE,
                CoordinatorCheck.GROUP_ID,
                CoordinatorCheck.SESSION_TIMEOUT,
                CoordinatorCheck.LOADING,
                CoordinatorCheck.OWNED,
            ),
            "size_refusal_tests_join_phase": False,
            "replaced_member_stays_new": False,
            "writes_new_group": True,
            "delays_again_after_every_empty": True,
            "expiry_ends_initial_delay": True,
            "repeated_sync_restarts_session": False,
            "rebalances_after_each_leave": False,
            "pending_leave_rebalances": True,
            "group_not_found_since": 9,
            "txn_commit_creates_group": False,
            "fetch_shows_empty_topics": True,
            "applies_before_append": True,
            "stores_after_timeout": True,
            "stable_fetch_waits": True,
            "offset_delete_may_remove_group": False,
            "deletion_always_writes_group": True,
            "deletion_writes_pending": True,
            "shows_last_assignment": True,
            "unknown_group_is_error_since": 6,
            "group_append_errors": _APPEND_ERRORS_4_0,
            "commit_append_errors": _APPEND_ERRORS_4_0,
        },
    ),
    ((4, 1), {"offset_value_version": 4, "commits_carry_topic_id": True}),
    ((4, 2), {"known_member_may_join_again": True}),
    (
        (4, 3),
        {
            "assignment_interval_ms": 1_000,
            "stale_targets_rebalance": True,
            "classic_members_follow_targets": True,
            "group_settings_hide_streams_delay": False,
            "stores_assignment_timestamp": True,
            "commits_by_older_epoch": True,
        },
    ),
    (
        (4, 4),  # KAFKA-20442, KAFKA-20434, KAFKA-20747
        {
            "last_leave_writes_target_epoch": True,
            "changed_assignor_bumps_epoch": True,
            "writes_target_of_returning_member": False,
            "size_limit_spares_known_members": True,
            "refuses_malformed_subscription": True,
            "has_streams_of_4_4": True,
            "txn_commit_tells_since": 6,
            "transactional_commits_carry_topic_id": True,
        },
    ),
)

_OLDEST = (0, 10, 1)


def release_for(semantics: str | None = None, broker_version: str | None = None) -> Release:
    """Return the rules of one release.

    Args:
        semantics: ``java`` (4.3) or ``scala`` (3.9).
        broker_version: a release such as ``2.8.2``. Without either argument the release is 4.3.

    Raises:
        UsageError: the version is not a release, is older than 0.10.1, whose groups had no state Empty, or is the preview of the Java
            coordinator in 3.7 to 3.9.
    """
    loader_rules = semantics_for(semantics, broker_version)
    version = loader_rules.release
    if version < _OLDEST:
        raise UsageError(
            f"broker version {loader_rules.broker_version!r} cannot be simulated: the simulated states of groups came with 0.10.1."
        )
    if loader_rules.name == "java" and version < (4, 0):
        raise UsageError("the preview of the Java coordinator in 3.7 to 3.9 cannot be simulated. Take a release since 4.0, or no java.")
    rules: dict[str, Any] = {}
    for since, change in _CHANGES:
        if version >= since:
            rules |= change
    rules["reconciliation"] = ReconciliationRules(
        takes_back_own_partitions=version >= (4, 2) or (4, 0, 2) <= version < (4, 1) or version >= (4, 1, 2),
        revocation_raises_epoch=version < (4, 2),
        narrows_at_once=version >= (4, 2),
        narrowing_sets_previous_epoch=version >= (4, 3),
    )
    rules["sticky_passes_over_holders"] = version == (4, 2, 2) or version >= (4, 4)
    return Release(semantics=loader_rules, request_versions=known_versions(version), **rules)


def refuse_unknown_request(release: Release, request: requests.Request) -> None:
    """Raise UsageError if the release does not know the request, or does not know static members and the request has an instance id."""
    version = release.semantics.broker_version
    if type(request) not in release.request_versions:
        since = ".".join(map(str, first_release_of(type(request))))
        raise UsageError(f"Kafka {version} does not know {type(request).__name__}: it came with {since}.")
    if not release.has_static_members and getattr(request, "group_instance_id", None) is not None:
        raise UsageError(f"Kafka {version} does not know static members: leave group_instance_id out, or simulate 2.3 or later.")
