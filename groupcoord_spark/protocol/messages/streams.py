"""Streams groups (KIP-1071): key types 17 and 19 to 23."""

from functools import partial

from ..fields import Array, Field, Int8, Int16, Int32, Int64, NullableString, String, Struct, Uint16
from ..record_types import KeyType
from .modern_groups import GROUP, GROUP_AND_MEMBER, TARGET_ASSIGNMENT_METADATA, record_type

_SINCE = "4.1, KIP-1071 (early access; general since 4.2)"
_record_type = partial(record_type, since=_SINCE, read_since=(4, 1))

_KEY_AND_VALUE = Struct((
    Field("key", String, "Name."),
    Field("value", String, "Value."),
))

_TASKS_OF_SUBTOPOLOGY = (
    Field("subtopology_id", String, "The subtopology."),
    Field("partitions", Array(Int32), "Numbers of its tasks."),
)
_TASKS = Array(Struct(_TASKS_OF_SUBTOPOLOGY))

_HELD_TASKS = Array(Struct((
    *_TASKS_OF_SUBTOPOLOGY,
    Field(
        "assignment_epochs", Array(Int32, nullable=True), "Epoch that gave each task; written for active tasks only.",
        default=[], tag=0,
    ),
)))

_TOPIC_INFOS = Array(Struct((
    Field("name", String, "The topic."),
    Field("partitions", Int32, "Partitions it must have; 0: as many as its sources."),
    Field("replication_factor", Int16, "Replicas it must have; 0 or -1: the broker's default."),
    Field("topic_configs", Array(_KEY_AND_VALUE), "Settings it is made with."),
)))

RECORD_TYPES = (
    _record_type(
        KeyType.STREAMS_GROUP_METADATA, key=GROUP,
        # 4.4 writes tags 2 and 3 (int32: topology epochs whose description a plugin stored or failed to store). They are kept as unknown
        # tags, as every release before 4.4 keeps them. The cleanup of 4.4 looks at tag 2: coordinator/groups/streams.py reads it.
        value=(
            Field("epoch", Int32, "Group epoch."),
            Field("metadata_hash", Int64, "Hash of the source topics' metadata; always written."),
            Field("validated_topology_epoch", Int32, "Topology epoch that was checked against the topics; -1: none.", default=-1, tag=0),
            Field(
                "last_assignment_configs", Array(_KEY_AND_VALUE, nullable=True), "Settings the last assignment was made with.",
                default=[], tag=1,
            ),
        ),
        value_since=_SINCE + "; tags 0 and 1 since 4.2",
    ),
    _record_type(
        KeyType.STREAMS_GROUP_MEMBER_METADATA, key=GROUP_AND_MEMBER,
        value=(
            Field("instance_id", NullableString, "Id of a static member; null: a dynamic one."),
            Field("rack_id", NullableString, "The member's rack; null: it sent none."),
            Field("client_id", String, "The client.id that the member sent."),
            Field("client_host", String, "The address it came from."),
            Field("rebalance_timeout_ms", Int32, "How long it may take to give tasks back; -1: it sent none.", default=-1),
            Field("topology_epoch", Int32, "Epoch of the topology it runs."),
            Field("process_id", String, "The process it runs in."),
            Field("user_endpoint", Struct((
                Field("host", String, "Host for interactive queries."),
                Field("port", Uint16, "Port for interactive queries."),
            ), nullable=True), "Where the application answers queries; null: nowhere.", default=None),
            Field("client_tags", Array(_KEY_AND_VALUE), "Tags for rack-aware placement of standby tasks."),
        ),
    ),
    _record_type(
        KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_METADATA, key=GROUP,
        value=TARGET_ASSIGNMENT_METADATA, value_since=_SINCE + "; tag 0 since 4.3",
    ),
    _record_type(
        KeyType.STREAMS_GROUP_TARGET_ASSIGNMENT_MEMBER, key=GROUP_AND_MEMBER,
        value=(
            Field("active_tasks", _TASKS, "Tasks the member is meant to run."),
            Field("standby_tasks", _TASKS, "Tasks whose state it is meant to keep warm."),
            Field("warmup_tasks", _TASKS, "Tasks whose state it is meant to build up."),
        ),
    ),
    _record_type(
        KeyType.STREAMS_GROUP_CURRENT_MEMBER_ASSIGNMENT, key=GROUP_AND_MEMBER,
        value=(
            Field("member_epoch", Int32, "Epoch the member has reached."),
            Field("previous_member_epoch", Int32, "Epoch it had before."),
            Field("state", Int8, "1 STABLE, 2 UNREVOKED_TASKS, 3 UNRELEASED_TASKS, others UNKNOWN: not the numbers of consumer groups."),
            Field("active_tasks", _HELD_TASKS, "Tasks the member runs."),
            Field("standby_tasks", _HELD_TASKS, "Tasks whose state it keeps warm."),
            Field("warmup_tasks", _HELD_TASKS, "Tasks whose state it builds up."),
            Field("active_tasks_pending_revocation", _HELD_TASKS, "Active tasks it still has to give back."),
            Field("standby_tasks_pending_revocation", _HELD_TASKS, "Standby tasks it still has to give back."),
            Field("warmup_tasks_pending_revocation", _HELD_TASKS, "Warm-up tasks it still has to give back."),
        ),
        value_since=_SINCE + "; assignment epochs since 4.2",
    ),
    _record_type(
        KeyType.STREAMS_GROUP_TOPOLOGY, key=GROUP,
        value=(
            Field("epoch", Int32, "Epoch of the topology."),
            Field("subtopologies", Array(Struct((
                Field("subtopology_id", String, "The subtopology."),
                Field("source_topics", Array(String), "Topics it reads."),
                Field("source_topic_regex", Array(String), "Expressions of topics it reads."),
                Field("state_changelog_topics", _TOPIC_INFOS, "Topics that keep its state."),
                Field("repartition_sink_topics", Array(String), "Topics it repartitions into."),
                Field("repartition_source_topics", _TOPIC_INFOS, "Repartition topics it reads."),
                Field("copartition_groups", Array(Struct((
                    Field("source_topics", Array(Int16), "Places in source_topics."),
                    Field("source_topic_regex", Array(Int16), "Places in source_topic_regex."),
                    Field("repartition_source_topics", Array(Int16), "Places in repartition_source_topics."),
                ))), "Sets of topics that must have the same number of partitions."),
            ))), "The parts of the topology, each with its own tasks."),
        ),
    ),
)
