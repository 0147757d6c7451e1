"""State of one offsets partition after each of its records: the definition that every faster path must equal.

The rules follow Kafka's OffsetMetadataManager and GroupMetadataManager (java), and the former Scala GroupMetadataManager. A broker's loader
can fail on a record and lose the whole partition. The replay skips such a record, and a warning names it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from groupcoord_spark.coordinator.groups.classic import ReplayedClassicGroup, read_classic_group
from groupcoord_spark.coordinator.groups.consumer import ReplayedConsumerGroup
from groupcoord_spark.coordinator.groups.group import LOAD_FAILS, Refusal, ReplayedGroup
from groupcoord_spark.coordinator.groups.modern import RefusalError, ReplayedModernGroup
from groupcoord_spark.coordinator.groups.share import ReplayedShareGroup
from groupcoord_spark.coordinator.groups.streams import ReplayedStreamsGroup
from groupcoord_spark.coordinator.refusals import RULE_OF_REASON, refusal_of_type_or_version
from groupcoord_spark.coordinator.semantics import JAVA, Semantics
from groupcoord_spark.coordinator.state import LoadWarning, PartitionState
from groupcoord_spark.coordinator.transactions import OffsetStore, StoredOffset
from groupcoord_spark.protocol.record_types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, KeyType, key_types_of

_TYPES_WITH_TOPIC_NAMES = (KeyType.CONSUMER_GROUP_PARTITION_METADATA, KeyType.SHARE_GROUP_STATE_PARTITION_METADATA)
_UNKNOWN_TOPIC_NAME = "<UNKNOWN>"
"""Kafka writes this text in place of the name of a topic that was deleted."""

_MODERN_GROUP_TYPES: dict[int, type[ReplayedModernGroup]] = {
    key_type: group
    for group in (ReplayedConsumerGroup, ReplayedShareGroup, ReplayedStreamsGroup)
    for key_type in key_types_of(group.group_type)
}


class PartitionReplay:
    """State of one offsets partition. Apply its records in the order of their offsets, then ask ``finish``.

    Gaps in the offsets are normal. The state depends on these records alone, not on other partitions, record timestamps or the clock.
    """

    def __init__(self, semantics: Semantics = JAVA) -> None:
        self.semantics = semantics
        self._offsets = OffsetStore(semantics)
        self._groups: dict[str, ReplayedGroup] = {}
        self._removed_at: dict[str, int] = {}
        """Group id -> record offset of the tombstone that removed the group. Scala: only while no later group record follows."""
        self._warnings: list[LoadWarning] = []
        self._topic_names: dict[str, str] = {}
        # apply_offset_commit reads these for every commit: an attribute of self is faster than one of the semantics.
        self._newest_offset_value = semantics.newest_offset_value
        self._by_producer_id = semantics.producer_id_means_transaction
        self._groups_from_first_commit = semantics.groups_live_from_first_commit

    def apply_offset_commit(
        self, producer_id: int, is_transactional: bool, key_type: int, group_id: str, topic: str, partition: int, value: StoredOffset | None
    ) -> None:
        """Store, stage or delete one committed offset, as OffsetMetadataManager.replay does.

        producer_id, is_transactional: of the record's batch; producer id -1: none. key_type: 0 or 1. value: None: a tombstone.
        """
        transactional = producer_id != NO_PRODUCER_ID if self._by_producer_id else is_transactional
        if value is None:
            if self._newest_offset_value[key_type] < 0:
                return  # Kafka 0.8.2 does not know key type 1.
            self._offsets.delete(group_id, topic, partition, producer_id, transactional)
            return
        topic_id = value.topic_id
        if topic_id is not None:
            self._topic_names[topic_id] = topic
        # Dropped records rely on this: pipeline/read/superseded.py (a record that is not accepted changes nothing)
        if value.value_version > self._newest_offset_value[key_type]:
            self._refuse_type_or_version(value.record_offset, key_type, group_id, value.value_version)
            return
        # Dropped records rely on this: pipeline/read/superseded.py (any commit of a group creates the group, R-1.25)
        if self._groups_from_first_commit:
            if group_id not in self._groups:
                self._groups[group_id] = ReplayedClassicGroup()
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
        """Apply a record of key type 2 or higher, as GroupMetadataManager.replay does. It counts at once, also in transactions (R-1.24).

        key, value: decoded fields. value_version, value: None: a tombstone.
        """
        group_id: str = key.get("group_id", "")
        if value is not None and key_type in _TYPES_WITH_TOPIC_NAMES:
            self._learn_topic_names(value)
        if self._refuse_type_or_version(record_offset, key_type, group_id, value_version):
            return
        if key_type != KeyType.GROUP_METADATA:
            try:
                self._apply_modern(record_offset, record_timestamp_ms, key_type, key, value)
            except RefusalError as refusal:
                self.refuse(record_offset, refusal.code, f"{refusal.detail} {LOAD_FAILS}", group_id)
        elif value is None:
            # The tombstone removes a group of any type, with or without members; the group's offsets stay.
            if self._groups.pop(group_id, None) is not None or not self._groups_from_first_commit:
                self._removed_at[group_id] = record_offset
        else:
            assert value_version is not None, "a value has a version"
            group, refusals = read_classic_group(value_version, value, self.semantics)
            self._warn_of_members(record_offset, group_id, refusals)
            # Dropped records rely on this: pipeline/read/superseded.py (a value replaces the classic group of the value before)
            self._groups[group_id] = group
            self._removed_at.pop(group_id, None)
            group.record_offset, group.record_timestamp_ms = record_offset, record_timestamp_ms

    def group(self, group_id: str) -> ReplayedGroup | None:
        """Return the group in its present state, or None if it does not exist."""
        return self._groups.get(group_id)

    def group_ids(self) -> Iterable[str]:
        """Ids of the groups that exist."""
        return self._groups.keys()

    @property
    def offsets(self) -> OffsetStore:
        """The committed and pending offsets in their present state."""
        return self._offsets

    def removed_at(self, group_id: str) -> int | None:
        """Return the record offset of the tombstone that removed the group while a warning may still name it, else None.

        Java: while the group does not exist. Scala: while no later group record follows, whether the group exists or not (R-1.28).
        """
        if self._groups_from_first_commit and group_id in self._groups:
            return None
        return self._removed_at.get(group_id)

    def apply_marker(self, producer_id: int, control_type: int) -> None:
        """End the open transaction of a producer (R-1.18). The effect of a control type other than COMMIT and ABORT depends on the
        semantics."""
        self._offsets.end_transaction(producer_id, control_type)

    def refuse(self, record_offset: int | None, code: str, detail: str, group_id: str | None = None) -> None:
        """Add a warning for a record that was skipped, or accepted with a doubt.

        record_offset, group_id: None: the warning is about no single record or group. code: a rule (R-1.8), or the reason of a decoder.
        """
        self._warnings.append(LoadWarning(record_offset, group_id, RULE_OF_REASON.get(code, code), detail))

    def finish(self) -> PartitionState:
        """Return the state after the last record. It is a view: read it before more records are applied."""
        groups = dict(self._groups)
        if not self._groups_from_first_commit:
            for group_id in (*self._offsets.committed, *(group_id for group_id, _, _ in self._offsets.pending)):
                groups.setdefault(group_id, ReplayedClassicGroup())
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
        """Apply a record of key type 3 or higher. Raises RefusalError."""
        group_id: str = key["group_id"]
        group_type = _MODERN_GROUP_TYPES[key_type]
        group = self._groups.get(group_id)
        if not isinstance(group, group_type):
            if group is None:
                if value is None:
                    return
            else:
                self._check_group_type(group_id, group, group_type)
            group = self._groups[group_id] = self._new_group(group_id, group_type)
        if group.apply(record_offset, key_type, key, value):
            del self._groups[group_id]
            self._removed_at[group_id] = record_offset
        group.record_offset, group.record_timestamp_ms = record_offset, record_timestamp_ms

    def _new_group(self, group_id: str, group_type: type[ReplayedModernGroup]) -> ReplayedModernGroup:
        """Return an empty group of this type."""
        return group_type(self.semantics)

    def _warn_of_members(self, record_offset: int, group_id: str, refusals: Iterable[Refusal]) -> None:
        """Add the warnings about members in the value of a classic group (R-2.1 to R-2.4)."""
        for code, detail in refusals:
            self.refuse(record_offset, code, detail, group_id)

    def _check_group_type(self, group_id: str, group: ReplayedGroup, group_type: type[ReplayedModernGroup]) -> None:
        """Raises RefusalError unless a group of this type may replace the group (R-3.1 to R-3.6): only a simple group can be replaced."""
        code: str | None = group_type.type_conflict
        if group.is_simple:
            code = group_type.simple_conflict
            if group_type is ReplayedStreamsGroup and not self.semantics.streams_group_may_replace_simple:
                code = group_type.type_conflict
        if code is not None:
            detail = f"Group {group_id!r} is a {group.group_type} group; a record of a {group_type.group_type} group is skipped."
            raise RefusalError(code, detail)

    def _refuse_type_or_version(self, record_offset: int, key_type: int, group_id: str, value_version: int | None) -> bool:
        """True where this broker does not load records of the key type and value version (R-1.6, R-1.9); adds the warning."""
        refusal = refusal_of_type_or_version(self.semantics, key_type, value_version)
        if refusal is None:
            return False
        self.refuse(record_offset, *refusal, group_id)
        return True

    def _as_scala_stores(self, value: StoredOffset, transactional: bool) -> StoredOffset:
        """Return the commit as the Scala coordinator stores it: without topic id, and without producer id outside of a transaction (D14,
        D22)."""
        if not transactional:
            value = value._replace(producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
        return value if self.semantics.keeps_topic_ids else value._replace(topic_id=None)

    def _learn_topic_names(self, value: Mapping[str, Any]) -> None:
        """Store the topic ids and names of a value of key type 4 or 15."""
        for topics in ("topics", "initializing_topics", "initialized_topics", "deleting_topics"):
            for topic in value.get(topics, ()):
                if topic["topic_name"] != _UNKNOWN_TOPIC_NAME:
                    self._topic_names[topic["topic_id"]] = topic["topic_name"]

    def _orphan_warnings(self) -> Iterator[LoadWarning]:
        """Yield a warning for each deleted group that still has offsets (R-1.26)."""
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

    def _unload_warnings(self, groups: Mapping[str, ReplayedGroup]) -> Iterator[LoadWarning]:
        """Yield a warning for each deleted group with only pending offsets after its tombstone (R-1.28, Scala)."""
        detail = "Deleted, and since then only pending offsets: the broker logs an error at the end of the load and serves the group."
        for group_id, record_offset in self._removed_at.items():
            if group_id in groups and group_id not in self._offsets.committed:
                yield LoadWarning(record_offset, group_id, "R-1.28", detail)

    def _missing_timeout_warnings(self) -> Iterator[LoadWarning]:
        """Yield a warning for each streams member whose rebalance timer a broker cannot start after the load (R-3.29)."""
        for group_id, group in self._groups.items():
            if isinstance(group, ReplayedStreamsGroup):
                for member_id, member in group.members_without_timeout():
                    detail = f"Member {member_id!r} has tasks to give back but no metadata, so no rebalance timeout. {LOAD_FAILS}"
                    yield LoadWarning(member.record_offset, group_id, "R-3.29", detail)

    def _missing_marker_warnings(self) -> Iterator[LoadWarning]:
        """Yield a warning for each pending offset whose marker is missing from the log (R-4.6)."""
        for (group_id, topic, partition), producer_id, staged in self._offsets.without_marker():
            detail = (
                f"The transaction of producer {producer_id} (epoch {staged.producer_epoch}) over {topic!r} partition {partition} has no "
                "marker in this log, although the producer went on with a higher epoch: the offset is kept pending."
            )
            yield LoadWarning(staged.record_offset, group_id, "R-4.6", detail)
