"""One offsets partition, record by record: the definition of what its coordinator knows after each.

The rules are those of Kafka's OffsetMetadataManager and GroupMetadataManager (java) and of its former Scala GroupMetadataManager. What a
broker's loader would refuse, and so lose the whole partition over, costs one record here: it is skipped, and a warning says so.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from groupcoord_spark.coordinator.groups.classic import ClassicGroup, read_classic_group
from groupcoord_spark.coordinator.groups.consumer import ConsumerGroup
from groupcoord_spark.coordinator.groups.modern import ModernGroup, RefusalError
from groupcoord_spark.coordinator.groups.share import ShareGroup
from groupcoord_spark.coordinator.groups.streams import StreamsGroup
from groupcoord_spark.coordinator.refusals import RULE_OF_REASON, refusal_of_kind
from groupcoord_spark.coordinator.semantics import JAVA, Semantics
from groupcoord_spark.coordinator.state import LOAD_FAILS, Group, LoadWarning, PartitionState
from groupcoord_spark.coordinator.transactions import NO_PRODUCER_ID, OffsetStore, StoredOffset

CLASSIC_GROUP_KEY_TYPE = 2
_PARTITION_METADATA_KEY_TYPE = 4
_SHARE_STATE_KEY_TYPE = 15
# Kafka writes this where it has no name for a topic any more.
_NO_TOPIC_NAME = "<UNKNOWN>"

_MODERN_KINDS: dict[int, type[ModernGroup]] = {
    **dict.fromkeys((3, 4, 5, 6, 7, 8, 16), ConsumerGroup),
    **dict.fromkeys((10, 11, 12, 13, 14, 15), ShareGroup),
    **dict.fromkeys((17, 19, 20, 21, 22, 23), StreamsGroup),
}

class PartitionReplay:
    """State of one offsets partition while its records are applied, in the order of their offsets.

    Gaps in the offsets are normal. Nothing is taken from other partitions, from record timestamps or from the clock.
    """

    def __init__(self, semantics: Semantics = JAVA, *, notes_refused_members: bool = True) -> None:
        """notes_refused_members: False where the caller has noted what a loader refuses in values of classic groups (R-2.1 to R-2.4)."""
        self.semantics = semantics
        self._notes_refused_members = notes_refused_members
        self._offsets = OffsetStore(semantics)
        self._groups: dict[str, Group] = {}
        self._removed_at: dict[str, int] = {}
        """Record offset of the tombstone that removed a group; Scala: of those that no later record brought back."""
        self._warnings: list[LoadWarning] = []
        self._topic_names: dict[str, str] = {}
        self._without_collisions: frozenset[str] = frozenset()
        # Read for every commit: kept at hand.
        self._newest_offset_value = semantics.newest_offset_value
        self._by_producer_id = semantics.producer_id_means_transaction
        self._groups_from_first_commit = semantics.groups_live_from_first_commit

    def apply_offset_commit(
        self, producer_id: int, is_transactional: bool, key_type: int, group_id: str, topic: str, partition: int, value: StoredOffset | None
    ) -> None:
        """Store, stage or delete one offset (key types 0 and 1); ``value`` None is a tombstone.

        producer_id (-1: none) and is_transactional are those of the record's batch.
        """
        transactional = producer_id != NO_PRODUCER_ID if self._by_producer_id else is_transactional
        if value is None:
            if self._newest_offset_value[key_type] < 0:
                return  # 0.8.2 does not know key type 1
            self._offsets.delete(group_id, topic, partition, producer_id, transactional)
            return
        topic_id = value.topic_id
        if topic_id is not None:
            self._topic_names[topic_id] = topic
        if value.value_version > self._newest_offset_value[key_type]:
            self._refuse_kind(value.record_offset, key_type, group_id, value.value_version)
            return
        if self._groups_from_first_commit:
            if group_id not in self._groups:
                self._groups[group_id] = ClassicGroup()
        elif topic_id is not None or (value.producer_id != NO_PRODUCER_ID and not transactional):
            value = self._as_scala_stores(value, transactional)
        if transactional:
            self._offsets.stage(group_id, topic, partition, producer_id, value)
        else:
            self._offsets.put(group_id, topic, partition, value)

    def apply_group_record(
        self,
        record_offset: int,
        record_timestamp_ms: int,
        key_type: int,
        key: Mapping[str, Any],
        value_version: int | None,
        value: Mapping[str, Any] | None,
    ) -> None:
        """Apply a record of key type 2 or higher; ``key`` and ``value`` are its decoded fields, None is a tombstone.

        Such records count at once, also inside a transaction (R-1.24).
        """
        group_id: str = key.get("group_id", "")
        if value is not None and key_type in (_PARTITION_METADATA_KEY_TYPE, _SHARE_STATE_KEY_TYPE):
            self._learn_topic_names(value)
        if self._refuse_kind(record_offset, key_type, group_id, value_version):
            return
        if key_type != CLASSIC_GROUP_KEY_TYPE:
            try:
                self._apply_modern(record_offset, record_timestamp_ms, key_type, key, value)
            except RefusalError as refusal:
                self.refuse(record_offset, refusal.code, f"{refusal.detail} {LOAD_FAILS}", group_id)
        elif value is None:
            # Removes a group of any kind, members or not; its offsets stay.
            if self._groups.pop(group_id, None) is not None or not self._groups_from_first_commit:
                self._removed_at[group_id] = record_offset
        else:
            assert value_version is not None, "a value has a version"
            group, remarks = read_classic_group(value_version, value, self.semantics)
            if self._notes_refused_members:
                for code, detail in remarks:
                    self.refuse(record_offset, code, detail, group_id)
            self._groups[group_id] = group
            self._removed_at.pop(group_id, None)
            group.record_offset, group.record_timestamp_ms = record_offset, record_timestamp_ms

    def group(self, group_id: str) -> Group | None:
        """The group as it is now."""
        return self._groups.get(group_id)

    def rule_out_collisions(self, group_ids: frozenset[str], others: frozenset[str]) -> None:
        """From now on R-3.14 refuses nothing of ``group_ids``: the caller has looked at the records to come; of ``others`` it may again.

        Each of ``group_ids`` is absent, simple or an orderly consumer group; the owners of its partitions are not followed.
        """
        for group_id in others & self._without_collisions:
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.follow_ownership()
        for group_id in group_ids - self._without_collisions:
            group = self._groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                group.leave_ownership()
        self._without_collisions = self._without_collisions - others | group_ids

    def apply_marker(self, producer_id: int, control_type: int) -> None:
        """End the open transaction of a producer: 1 commits, 0 aborts, any other type is left to the semantics (R-1.18)."""
        self._offsets.end_transaction(producer_id, control_type)

    def refuse(self, record_offset: int | None, code: str, detail: str, group_id: str | None = None) -> None:
        """Note a record that was skipped or accepted with a doubt. ``code``: a rule (R-1.8), or a decoder's reason (key_truncated)."""
        self._warnings.append(LoadWarning(record_offset, group_id, RULE_OF_REASON.get(code, code), detail))

    def finish(self) -> PartitionState:
        """What the coordinator knows now. More records may be applied afterwards; the state is a view until then."""
        groups = dict(self._groups)
        if not self._groups_from_first_commit:
            for group_id in (*self._offsets.committed, *(group_id for group_id, _, _ in self._offsets.pending)):
                groups.setdefault(group_id, ClassicGroup())
        warnings = [
            *self._warnings,
            *(self._orphan_warnings() if self._groups_from_first_commit else self._unload_warnings(groups)),
            *self._missing_timeout_warnings(),
            *self._missing_marker_warnings(),
        ]
        return PartitionState(groups, self._offsets, warnings, self._topic_names)

    def _apply_modern(
        self, record_offset: int, record_timestamp_ms: int, key_type: int, key: Mapping[str, Any], value: Mapping[str, Any] | None
    ) -> None:
        group_id: str = key["group_id"]
        kind = _MODERN_KINDS[key_type]
        group = self._groups.get(group_id)
        if not isinstance(group, kind):
            if group is None:
                if value is None:
                    return
            else:
                self._check_kind(group_id, group, kind)
            group = self._groups[group_id] = kind(self.semantics)
            if group_id in self._without_collisions and isinstance(group, ConsumerGroup):
                group.leave_ownership()
        if group.apply(record_offset, key_type, key, value):
            del self._groups[group_id]
            self._removed_at[group_id] = record_offset
        group.record_offset, group.record_timestamp_ms = record_offset, record_timestamp_ms

    def _check_kind(self, group_id: str, group: Group, kind: type[ModernGroup]) -> None:
        """A simple group has no record that says what it is, so consumer and streams records replace it (R-3.1 to R-3.6)."""
        code: str | None = kind.type_conflict
        if group.is_simple:
            code = kind.simple_conflict
            if kind is StreamsGroup and not self.semantics.streams_group_may_replace_simple:
                code = kind.type_conflict
        if code is not None:
            raise RefusalError(code, f"Group {group_id!r} is a {group.group_type} group; a record of a {kind.group_type} group is skipped.")

    def _refuse_kind(self, record_offset: int, key_type: int, group_id: str, value_version: int | None) -> bool:
        """Whether this broker does not load records of this key type and value version; a warning then says so."""
        refusal = refusal_of_kind(self.semantics, key_type, value_version)
        if refusal is None:
            return False
        self.refuse(record_offset, *refusal, group_id)
        return True

    def _as_scala_stores(self, value: StoredOffset, transactional: bool) -> StoredOffset:
        """Scala keeps no topic ids, and a producer id alone makes no transaction (D14, D22)."""
        if not transactional:
            value = value._replace(producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_ID)
        return value if self.semantics.keeps_topic_ids else value._replace(topic_id=None)

    def _learn_topic_names(self, value: Mapping[str, Any]) -> None:
        for topics in ("topics", "initializing_topics", "initialized_topics", "deleting_topics"):
            for topic in value.get(topics, ()):
                if topic["topic_name"] != _NO_TOPIC_NAME:
                    self._topic_names[topic["topic_id"]] = topic["topic_name"]

    def _orphan_warnings(self) -> Iterator[LoadWarning]:
        counts: dict[str, int] = {}
        for group_id, offsets in self._offsets.committed.items():
            if group_id not in self._groups:
                counts[group_id] = len(offsets)
        for group_id, _, _ in self._offsets.pending:
            if group_id not in self._groups:
                counts[group_id] = counts.get(group_id, 0) + 1
        for group_id, count in counts.items():
            detail = f"Deleted without {count} of its offsets: no broker answers or expires them, the group's next commit brings them back."
            yield LoadWarning(self._removed_at.get(group_id), group_id, "R-1.26", detail)

    def _unload_warnings(self, groups: Mapping[str, Group]) -> Iterator[LoadWarning]:
        detail = "Deleted, and since then only pending offsets: the broker logs an error at the end of the load and serves the group."
        for group_id, record_offset in self._removed_at.items():
            if group_id in groups and group_id not in self._offsets.committed:
                yield LoadWarning(record_offset, group_id, "R-1.28", detail)

    def _missing_timeout_warnings(self) -> Iterator[LoadWarning]:
        for group_id, group in self._groups.items():
            if isinstance(group, StreamsGroup):
                for member_id, member in group.members_without_timeout():
                    detail = f"Member {member_id!r} has tasks to give back but no metadata, so no rebalance timeout. {LOAD_FAILS}"
                    yield LoadWarning(member.record_offset, group_id, "R-3.29", detail)

    def _missing_marker_warnings(self) -> Iterator[LoadWarning]:
        for (group_id, topic, partition), producer_id, staged in self._offsets.overtaken():
            detail = (
                f"The transaction of producer {producer_id} (epoch {staged.producer_epoch}) over {topic!r} partition {partition} has no "
                "marker in this log, although the producer went on with a higher epoch: the offset is kept pending."
            )
            yield LoadWarning(staged.record_offset, group_id, "R-4.6", detail)
