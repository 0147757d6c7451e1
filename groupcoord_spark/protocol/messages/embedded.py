"""What members of protocol type ``consumer`` put into ``subscription`` and ``assignment``. The broker does not own these bytes.

Source: kafka, ConsumerProtocolSubscription.json and ConsumerProtocolAssignment.json of clients/src/main/resources/common/message/,
StickyAssignor and CooperativeStickyAssignor of org.apache.kafka.clients.consumer, and SubscriptionInfoData.json of streams.
"""

from ..fields import Array, Field, Int32, Int64, Message, NullableBytes, NullableString, String, Struct, Uuid

_TOPIC_PARTITIONS = Array(Struct((
    Field("topic", String, "The topic."),
    Field("partitions", Array(Int32), "Partitions of the topic."),
)))

CONSUMER_PROTOCOL_SUBSCRIPTION = Message(
    "ConsumerProtocolSubscription", versions=(0, 3),
    since={0: "0.9", 1: "2.4, KIP-429: owned partitions", 2: "KIP-792: generation; written by no release", 3: "3.4, KIP-881: rack"},
    fields=(
        Field("topics", Array(String), "Topics the member subscribes to."),
        Field("user_data", NullableBytes, "The assignor's own note; null: none."),
        Field("owned_partitions", _TOPIC_PARTITIONS, "Partitions it held when it joined.", versions="1+", default=[]),
        Field("generation_id", Int32, "Generation of that ownership; -1: none.", versions="2+", default=-1),
        Field("rack_id", NullableString, "Its rack; null: it sent none.", versions="3+", default=None),
    ),
)

CONSUMER_PROTOCOL_ASSIGNMENT = Message(
    "ConsumerProtocolAssignment", versions=(0, 3),
    since={0: "0.9", 1: "2.4", 2: "written by no release", 3: "3.4; all versions have the same layout"},
    fields=(
        Field("assigned_partitions", _TOPIC_PARTITIONS, "Partitions the leader gave the member."),
        Field("user_data", NullableBytes, "The assignor's own note; null: none."),
    ),
)

STICKY_USER_DATA = Message(
    "StickyAssignorUserData", versions=(0, 1),
    since={0: "0.11, KIP-54", 1: "2.3: generation"},
    fields=(
        Field("previous_assignment", _TOPIC_PARTITIONS, "Partitions the member held."),
        Field("generation", Int32, "Generation of that ownership.", versions="1+"),
    ),
)

COOPERATIVE_STICKY_USER_DATA = Message(
    "CooperativeStickyAssignorUserData", versions=(0, 0),
    since={0: "3.0"},
    fields=(Field("generation", Int32, "Generation of the member's ownership; -1: none yet."),),
)

_TASK = (Field("subtopology", Int32, "Number of the subtopology."), Field("partition", Int32, "Partition of the task."))
_OFFSET_SUM = Field("offset_sum", Int64, "Sum of the changelog offsets that are restored for the task; -2: the member runs the task.")

STREAMS_USER_DATA = Message(
    "SubscriptionInfoData", versions=(1, 11),
    since=dict.fromkeys(range(1, 12), "0.10 and later; fields after the tasks are not read"),
    fields=(
        Field("latest_supported_version", Int32, "The newest version that the member knows.", versions="3+"),
        Field("process_id", Uuid, "The process."),
        Field("active_tasks", Array(Struct(_TASK), nullable=True), "Tasks that were active.", versions="1-6"),
        Field("standby_tasks", Array(Struct(_TASK), nullable=True), "Tasks whose state the member has.", versions="1-6"),
        Field("end_point", NullableBytes, "Where the application answers queries.", versions="7+"),
        Field("sums_by_subtopology", Array(Struct((
            _TASK[0], Field("sums", Array(Struct((_TASK[1], _OFFSET_SUM)), nullable=True), "Its tasks."),
        )), nullable=True), "Tasks whose state the member has.", versions="7-9"),
        Field("sums", Array(Struct((
            *_TASK, _OFFSET_SUM, Field("named_topology", NullableString, "The named topology of the task."),
        )), nullable=True), "Tasks whose state the member has.", versions="10+"),
    ),
)
