"""The short texts of requests, answers and records in a timeline."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from groupcoord_spark.protocol.consumer_protocol import decode_assignment
from groupcoord_spark.protocol.errors import DecodeError
from groupcoord_spark.protocol.record_types import KEY_TYPES_OF, KeyType
from groupcoord_spark.simulator.messages import Call, Error, WrittenRecord, answers, requests
from groupcoord_spark.simulator.messages.partition_lists import listed_text
from groupcoord_spark.wording import counted

Names = Mapping[str, str]
"""Member id -> name of the member in the scenario."""


def request_text(request: requests.Request, names: Names) -> str:
    """Kafka's name of a request, with its most important fields."""
    name = type(request).__name__
    match request:
        case requests.JoinGroup(member_id=member_id, group_instance_id=instance, protocols=protocols):
            sender = f"{'new member' if not member_id else 'member'}{f' {instance}' if instance else ''}"
            return f"{name} {sender}, {','.join(protocol for protocol, _ in protocols)}"
        case requests.SyncGroup(generation=generation, assignments=assignments):
            return f"{name} generation {generation}{f', assigns {len(assignments)}' if assignments else ''}"
        case requests.Heartbeat(generation=generation):
            return f"{name} generation {generation}"
        case requests.ConsumerGroupHeartbeat(member_epoch=epoch, topics=topics, topic_regex=regex, partitions=partitions):
            parts = [{0: "joins", -1: "leaves", -2: "leaves for a while"}.get(epoch, f"epoch {epoch}")]
            parts += [f"subscribes to {','.join(topics)}"] if topics else [f"subscribes to {regex}"] if regex else []
            parts += [f"owns {listed_text(partitions) or 'nothing'}"] if partitions is not None and epoch > 0 else []
            return f"{name} {', '.join(parts)}"
        case requests.ShareGroupHeartbeat(member_id=member_id, member_epoch=epoch, topics=topics):
            parts = [f"{member_id} {'joins' if epoch == 0 else 'leaves' if epoch < 0 else f'epoch {epoch}'}"]
            parts += [f"subscribes to {','.join(topics)}"] if topics else []
            return f"{name} {', '.join(parts)}"
        case requests.StreamsGroupHeartbeat():
            return f"{name} {_streams_heartbeat_text(request)}"
        case requests.LeaveGroup(members=members):
            return (
                f"{name} {', '.join(names.get(member.member_id, member.member_id or str(member.group_instance_id)) for member in members)}"
            )
        case requests.OffsetCommit(offsets=offsets, generation=generation):
            return f"{name} generation {generation}, {_offsets_text(offsets)}"
        case requests.TxnOffsetCommit(offsets=offsets, producer_id=producer_id):
            return f"{name} producer {producer_id}, {_offsets_text(offsets)}"
        case requests.AddOffsetsToTxn(producer_id=producer_id):
            return f"{name} producer {producer_id}"
        case (
            requests.EndTxn(producer_id=producer_id, committed=committed)
            | requests.WriteTxnMarkers(producer_id=producer_id, committed=committed)
        ):
            return f"{name} producer {producer_id}, {'COMMIT' if committed else 'ABORT'}"
        case requests.OffsetFetch(groups=groups, require_stable=require_stable):
            requested = [listed_text(group.partitions) for group in groups if group.partitions is not None]
            return f"{name} {';'.join(requested)}{' (stable)' if require_stable else ''}".rstrip()
        case requests.OffsetDelete(partitions=partitions):
            return f"{name} {listed_text(partitions)}"
        case _:
            return name


def answer_text(call: Call, names: Names) -> str:
    """Format the error of an answer with its most important fields; "" if the call has no answer."""
    match call.answer:
        case answers.JoinGroupAnswer(error=Error.NONE, generation=generation, protocol=protocol, leader=leader, members=members):
            leader_text = f"leads {len(members)}" if members else f"{names.get(leader, leader)} leads" if leader else "no leader"
            return f"NONE generation {generation}, {protocol}, {leader_text}"
        case answers.ConsumerGroupHeartbeatAnswer(error=Error.NONE, member_epoch=epoch, assignment=of_member):
            return f"NONE epoch {epoch}" + ("" if of_member is None else f", {listed_text(of_member) or 'nothing'}")
        case answers.StreamsGroupHeartbeatAnswer(error=Error.NONE):
            return _streams_answer_text(call.answer)
        case answers.SyncGroupAnswer(error=Error.NONE, assignment=assignment):
            return f"NONE {_assignment_text(assignment)}"
        case answers.OffsetCommitAnswer(errors=errors):
            return _errors_text(errors)
        case answers.OffsetFetchAnswer(groups=groups):
            offsets = [
                offset.error.name if offset.error is not Error.NONE else f"{topic}-{partition}={offset.committed_offset}"
                for group in groups
                for topic, partitions in group.topics.items()
                for partition, offset in partitions.items()
            ]
            failed = [group.error.name for group in groups if group.error is not Error.NONE]
            return " ".join(failed or ["NONE", *offsets])
        case answers.FindCoordinatorAnswer(coordinators=coordinators):
            return " ".join(
                f"NONE __consumer_offsets-{coordinator.offsets_partition}" if coordinator.error is Error.NONE else coordinator.error.name
                for coordinator in coordinators
            )
        case answers.LeaveGroupAnswer(error=Error.NONE, members=members) if len(members) > 1:
            return " ".join(member.error.name for member in members)
        case answers.Descriptions(groups=described):
            return " ".join(map(_description_text, described))
        case answers.ListGroupsAnswer(error=error, groups=listed):
            return f"{error.name} {' '.join(group.group_id for group in listed)}".rstrip()
        case None:
            return ""
        case other:
            errors_by_key: Mapping[Any, Error] | None = getattr(other, "errors", None)
            member_errors = [member.error.name for member in getattr(other, "members", ()) if member.error is not Error.NONE]
            error = getattr(other, "error", Error.NONE)
            if errors_by_key and error is Error.NONE:
                return _errors_text(errors_by_key)
            return member_errors[0] if member_errors else error.name


_PARTS_OF_GROUPS: Final = {
    **{
        key_type: part
        for key_types in KEY_TYPES_OF.values()
        for key_type, part in zip(key_types[1:6], ("group", "member", "target", "target of", "assignment of"), strict=True)
    },
    KeyType.SHARE_GROUP_STATE_PARTITION_METADATA: "share state",
    KeyType.STREAMS_GROUP_TOPOLOGY: "topology",
    KeyType.CONSUMER_GROUP_PARTITION_METADATA: "topics",
    KeyType.CONSUMER_GROUP_REGULAR_EXPRESSION: "expression",
}


def _modern_record_text(record: WrittenRecord) -> str:
    """Format a record of a consumer, share or streams group with its epoch if it has one."""
    key, value = record.key or {}, record.value
    about = key.get("regular_expression", key.get("member_id"))
    text = " ".join(filter(None, (_PARTS_OF_GROUPS[KeyType(record.key_type or 0)], about)))
    if value is None:
        return f"{text} tombstone"
    if record.key_type == KeyType.SHARE_GROUP_STATE_PARTITION_METADATA:
        return " ".join([text, *(_share_state_text(value, phase) for phase in _SHARE_STATE_PHASES if value[f"{phase}_topics"])])
    epoch = next((value[name] for name in ("epoch", "assignment_epoch", "member_epoch") if name in value), None)
    return text if epoch is None else f"{text} epoch {epoch}"


_SHARE_STATE_PHASES: Final = ("initializing", "initialized", "deleting")


def _share_state_text(value: Mapping[str, Any], phase: str) -> str:
    topics = {topic["topic_name"]: topic.get("partitions", ()) for topic in value[f"{phase}_topics"]}
    return f"{phase} {listed_text(topics) if phase != 'deleting' else ','.join(topics)}"


def record_text(record: WrittenRecord) -> str:
    """Format a record: ``offset orders-0=42``, ``group generation 3, range, 2 members``, a tombstone, or ``marker COMMIT``."""
    if record.control is not None or record.key is None:
        return f"marker {record.control}"
    if record.key_type in _PARTS_OF_GROUPS:
        return _modern_record_text(record)
    if record.key_type == KeyType.GROUP_METADATA:
        if record.value is None:
            return "group tombstone"
        members = len(record.value["members"])
        protocol = record.value["protocol"]
        count = counted(members, "member")
        return f"group generation {record.value['generation']}, {f'{protocol}, ' if protocol else ''}{count}"
    name = f"offset {record.key['topic']}-{record.key['partition']}"
    return f"{name} tombstone" if record.value is None else f"{name}={record.value['committed_offset']}"


def _offsets_text(offsets: Iterable[requests.OffsetToCommit]) -> str:
    return " ".join(f"{offset.topic}-{offset.partition}={offset.committed_offset}" for offset in offsets)


def _errors_text(errors: Mapping[Any, Error]) -> str:
    return " ".join(dict.fromkeys(error.name for error in errors.values())) or Error.NONE.name


def _assignment_text(assignment: bytes) -> str:
    try:
        decoded = decode_assignment(assignment)
    except DecodeError:
        return f"{len(assignment)} bytes"
    return "nothing" if decoded is None or not decoded.partitions else listed_text(decoded.partitions)


def _streams_heartbeat_text(request: requests.StreamsGroupHeartbeat) -> str:
    """Format the most important fields of a heartbeat: ``a joins``, ``a epoch 3, has 0_0 0_1, standby 1_0``."""
    epoch = request.member_epoch
    parts = [f"{request.member_id} {'joins' if epoch == 0 else 'leaves' if epoch < 0 else f'epoch {epoch}'}"]
    if epoch > 0 and request.active_tasks is not None:
        parts += [f"has {_tasks_text(request.active_tasks) or 'nothing'}"]
        parts += [f"standby {_tasks_text(request.standby_tasks)}"] if request.standby_tasks else []
    parts += ["shutdown of the application"] if request.shutdown_application else []
    return ", ".join(parts)


def _streams_answer_text(answer: answers.StreamsGroupHeartbeatAnswer) -> str:
    """Format the most important fields of an answer: ``NONE epoch 3, 0_0 0_1, ASSIGNMENT_DELAYED``."""
    parts = [f"NONE epoch {answer.member_epoch}"]
    parts += [_tasks_text(answer.active_tasks) or "nothing"] if answer.active_tasks is not None else []
    parts += [f"standby {_tasks_text(answer.standby_tasks)}"] if answer.standby_tasks else []
    return ", ".join([*parts, *(status.code.name for status in answer.status)])


def _description_text(group: Any) -> str:
    """Format a described group."""
    if isinstance(group, answers.DescribedGroup):
        return f"{group.error.name} {group.state}, {counted(len(group.members), 'member')}"
    if group.error is not Error.NONE:
        return str(group.error.name)
    means = f"topology {group.topology_epoch}" if isinstance(group, answers.DescribedStreamsGroup) else group.assignor
    return f"NONE {group.state} epoch {group.group_epoch}, {means}, {counted(len(group.members), 'member')}"


def _tasks_text(tasks: requests.Tasks | None) -> str:
    return " ".join(f"{name}_{number}" for name, numbers in sorted((tasks or {}).items()) for number in numbers)
