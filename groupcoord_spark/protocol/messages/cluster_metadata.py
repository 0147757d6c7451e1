"""Records of ``__cluster_metadata``, the log of a KRaft controller: topics, configs, ACLs and brokers.

The value of a record begins with the frame version, the record type and the version of the message, each an unsigned varint. All messages
are flexible from version 0.

Source: kafka, metadata/src/main/resources/common/metadata/ and, of control records, clients/src/main/resources/common/message/.
"""

from ..fields import Array, Boolean, Bytes, Field, Float64, Int8, Int16, Int32, Int64, Message, NullableString, String, Struct, Uint16, Uuid

FRAME_VERSION = 1

_END_POINT = Struct((
    Field("name", String, "The name."),
    Field("host", String, "The host."),
    Field("port", Uint16, "The port."),
    Field("security_protocol", Int16, "Number of the security protocol."),
))
_FEATURE = Struct((
    Field("name", String, "The name."),
    Field("min_supported_version", Int16, "The lowest version."),
    Field("max_supported_version", Int16, "The highest version."),
))
_ENTITY = Struct((
    Field("entity_type", String, "Kind of entity."),
    Field("entity_name", NullableString, "Its name; null: the default."),
))


def _record(number: int, name: str, newest_version: int, *fields: Field) -> tuple[int, Message]:
    since = dict.fromkeys(range(newest_version + 1), "KIP-500 and later")
    return number, Message(name, versions=(0, newest_version), flexible_from=0, since=since, fields=fields)


RECORD_TYPES = dict((
    _record(0, "RegisterBrokerRecord", 4,
        Field("broker_id", Int32, "The broker."),
        Field("is_migrating_zk_broker", Boolean, "The broker migrates from ZooKeeper.", versions="2+", default=False),
        Field("incarnation_id", Uuid, "Id of this start of the process."), Field("broker_epoch", Int64, "The epoch of the registration."),
        Field("end_points", Array(_END_POINT), "Where it listens."),
        Field("features", Array(_FEATURE), "Versions of features that it supports."),
        Field("rack", NullableString, "The rack; null: none."), Field("fenced", Boolean, "The broker is fenced.", default=True),
        Field("in_controlled_shutdown", Boolean, "The broker is shutting down in an orderly way.", versions="1+", default=False),
        Field("log_dirs", Array(Uuid), "Ids of its log directories.", versions="3+", default=[], tag=0),
        Field("cordoned_log_dirs", Array(Uuid, nullable=True), "Directories without new partitions.", versions="4+", default=None, tag=1),
    ),
    _record(1, "UnregisterBrokerRecord", 0,
        Field("broker_id", Int32, "The broker."), Field("broker_epoch", Int64, "The epoch of the registration."),
    ),
    _record(2, "TopicRecord", 0, Field("name", String, "The name."), Field("topic_id", Uuid, "The topic's id.")),
    _record(3, "PartitionRecord", 2,
        Field("partition_id", Int32, "The partition.", default=-1), Field("topic_id", Uuid, "The topic's id."),
        Field("replicas", Array(Int32), "Brokers that have it."), Field("isr", Array(Int32), "Replicas in sync."),
        Field("removing_replicas", Array(Int32), "Replicas that are to go."),
        Field("adding_replicas", Array(Int32), "Replicas that are to come."),
        Field("leader", Int32, "The leader; -1: none, -2 in a change: as before.", default=-1),
        Field("leader_recovery_state", Int8, "1 while an unclean leader recovers.", default=0, tag=0),
        Field("leader_epoch", Int32, "The epoch of the leader.", default=-1),
        Field("partition_epoch", Int32, "Raised by each change of the partition.", default=-1),
        Field("directories", Array(Uuid), "The log directory of each replica.", versions="1+"),
        Field("eligible_leader_replicas", Array(Int32, nullable=True), "Replicas that may lead.", versions="2+", default=None, tag=1),
        Field("last_known_elr", Array(Int32, nullable=True), "The eligible replicas known last.", versions="2+", default=None, tag=2),
    ),
    _record(4, "ConfigRecord", 0,
        Field("resource_type", Int8, "Number of the resource type."),
        Field("resource_name", String, "Name of the resource; empty: the default."), Field("name", String, "The name."),
        Field("value", NullableString, "The value; null: the setting is removed."),
    ),
    _record(5, "PartitionChangeRecord", 2,
        Field("partition_id", Int32, "The partition.", default=-1), Field("topic_id", Uuid, "The topic's id."),
        Field("isr", Array(Int32, nullable=True), "Replicas in sync.", default=None, tag=0),
        Field("leader", Int32, "The leader; -1: none, -2 in a change: as before.", default=-2, tag=1),
        Field("replicas", Array(Int32, nullable=True), "Brokers that have it.", default=None, tag=2),
        Field("removing_replicas", Array(Int32, nullable=True), "Replicas that are to go.", default=None, tag=3),
        Field("adding_replicas", Array(Int32, nullable=True), "Replicas that are to come.", default=None, tag=4),
        Field("leader_recovery_state", Int8, "1 while an unclean leader recovers.", default=-1, tag=5),
        Field("directories", Array(Uuid, nullable=True), "The log directory of each replica.", versions="1+", default=None, tag=8),
        Field("eligible_leader_replicas", Array(Int32, nullable=True), "Replicas that may lead.", versions="2+", default=None, tag=6),
        Field("last_known_elr", Array(Int32, nullable=True), "The eligible replicas known last.", versions="2+", default=None, tag=7),
    ),
    _record(7, "FenceBrokerRecord", 0, Field("id", Int32, "The id."), Field("epoch", Int64, "The epoch of the broker.")),
    _record(8, "UnfenceBrokerRecord", 0, Field("id", Int32, "The id."), Field("epoch", Int64, "The epoch of the broker.")),
    _record(9, "RemoveTopicRecord", 0, Field("topic_id", Uuid, "The topic's id.")),
    _record(10, "DelegationTokenRecord", 0,
        Field("owner", String, "Principal that owns the token."), Field("requester", String, "Principal that asked for it."),
        Field("renewers", Array(String), "Principals that may renew it."), Field("issue_timestamp", Int64, "When it was issued."),
        Field("max_timestamp", Int64, "Until when it can be renewed."), Field("expiration_timestamp", Int64, "When it expires."),
        Field("token_id", String, "Id of the token."),
    ),
    _record(11, "UserScramCredentialRecord", 0,
        Field("name", String, "The name."), Field("mechanism", Int8, "Number of the SCRAM mechanism."), Field("salt", Bytes, "The salt."),
        Field("stored_key", Bytes, "The stored key."), Field("server_key", Bytes, "The server key."),
        Field("iterations", Int32, "How often the password was hashed."),
    ),
    _record(12, "FeatureLevelRecord", 0, Field("name", String, "The name."), Field("feature_level", Int16, "The level; 0: off.")),
    _record(14, "ClientQuotaRecord", 0,
        Field("entity", Array(_ENTITY), "Whom the quota is for."), Field("key", String, "The quota."),
        Field("value", Float64, "The value; null: the setting is removed."), Field("remove", Boolean, "The quota is removed."),
    ),
    _record(15, "ProducerIdsRecord", 0,
        Field("broker_id", Int32, "The broker."), Field("broker_epoch", Int64, "The epoch of the registration.", default=-1),
        Field("next_producer_id", Int64, "The first producer id that is not given out."),
    ),
    _record(17, "BrokerRegistrationChangeRecord", 3,
        Field("broker_id", Int32, "The broker."), Field("broker_epoch", Int64, "The epoch of the registration."),
        Field("fenced", Int8, "The broker is fenced.", default=0, tag=0),
        Field("in_controlled_shutdown", Int8, "The broker is shutting down in an orderly way.", versions="1+", default=0, tag=1),
        Field("log_dirs", Array(Uuid), "Ids of its log directories.", versions="2+", default=[], tag=2),
        Field("cordoned_log_dirs", Array(Uuid, nullable=True), "Directories without new partitions.", versions="3+", default=None, tag=3),
    ),
    _record(18, "AccessControlEntryRecord", 0,
        Field("id", Uuid, "The id."), Field("resource_type", Int8, "Number of the resource type."),
        Field("resource_name", String, "Name of the resource; empty: the default."),
        Field("pattern_type", Int8, "Number of the pattern type."), Field("principal", String, "The principal."),
        Field("host", String, "The host."), Field("operation", Int8, "Number of the operation."),
        Field("permission_type", Int8, "2 deny, 3 allow."),
    ),
    _record(19, "RemoveAccessControlEntryRecord", 0, Field("id", Uuid, "The id.")),
    _record(20, "NoOpRecord", 0),
    _record(21, "ZkMigrationStateRecord", 0, Field("zk_migration_state", Int8, "Number of the state.")),
    _record(22, "RemoveUserScramCredentialRecord", 0,
        Field("name", String, "The name."), Field("mechanism", Int8, "Number of the SCRAM mechanism."),
    ),
    _record(23, "BeginTransactionRecord", 0, Field("name", NullableString, "The name.", default=None, tag=0)),
    _record(24, "EndTransactionRecord", 0),
    _record(25, "AbortTransactionRecord", 0, Field("reason", NullableString, "Why; null: not told.", default=None, tag=0)),
    _record(26, "RemoveDelegationTokenRecord", 0, Field("token_id", String, "Id of the token.")),
    _record(27, "RegisterControllerRecord", 0,
        Field("controller_id", Int32, "The controller."), Field("incarnation_id", Uuid, "Id of this start of the process."),
        Field("zk_migration_ready", Boolean, "The controller is ready for a migration."),
        Field("end_points", Array(_END_POINT), "Where it listens."),
        Field("features", Array(_FEATURE), "Versions of features that it supports."),
    ),
    _record(28, "ClearElrRecord", 0, Field("topic_name", String, "The topic; empty: all.")),
    _record(29, "UnregisterControllerRecord", 0, Field("controller_id", Int32, "The controller.")),
))
"""Record type -> its message. Types 6, 13 and 16 were given up before Kafka 3.3."""

_VOTER = Struct((
    Field("voter_id", Int32, "The voter."),
    Field("voter_directory_id", Uuid, "Id of its log directory.", versions="1+"),
))
_VOTER_WITH_ADDRESS = Struct((
    Field("voter_id", Int32, "The voter."), Field("voter_directory_id", Uuid, "Id of its log directory."),
    Field("endpoints", Array(Struct((
        Field("name", String, "The name."), Field("host", String, "The host."), Field("port", Uint16, "The port."),
    ))), "Where it listens."),
    Field("kraft_version_feature", Struct((
        Field("min_supported_version", Int16, "The lowest version."), Field("max_supported_version", Int16, "The highest version."),
    )), "Versions of the protocol that it supports.", json="kRaftVersionFeature"),
))


def _control(number: int, name: str, message: str, newest_version: int, *fields: Field) -> tuple[int, tuple[str, Message]]:
    version = Field("version", Int16, "The version of the message.")
    since = dict.fromkeys(range(newest_version + 1), "KIP-595, KIP-853")
    declared = Message(message, versions=(0, newest_version), flexible_from=0, since=since, fields=(version, *fields))
    return number, (name, declared)


CONTROL_RECORDS = dict((
    _control(2, "LEADER_CHANGE", "LeaderChangeMessage", 1,
        Field("leader_id", Int32, "The new leader."), Field("voters", Array(_VOTER), "All voters."),
        Field("granting_voters", Array(_VOTER), "Those that voted for it."),
    ),
    _control(3, "SNAPSHOT_HEADER", "SnapshotHeaderRecord", 0,
        Field("last_contained_log_timestamp", Int64, "Timestamp of the last record that the snapshot covers."),
    ),
    _control(4, "SNAPSHOT_FOOTER", "SnapshotFooterRecord", 0),
    _control(5, "KRAFT_VERSION", "KRaftVersionRecord", 0, Field("kraft_version", Int16, "The version.", json="kRaftVersion")),
    _control(6, "KRAFT_VOTERS", "VotersRecord", 0, Field("voters", Array(_VOTER_WITH_ADDRESS), "All voters.")),
))
"""Type of a control record of the log or of a snapshot -> its name and its message, which begins with its own version."""
