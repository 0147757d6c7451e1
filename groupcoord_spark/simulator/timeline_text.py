"""Requests, answers and records in a few words each, for people who read a timeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from groupcoord_spark.protocol.consumer_protocol import decode_assignment
from groupcoord_spark.protocol.errors import DecodeError
from groupcoord_spark.simulator.answers import (
    DescribeGroupsAnswer,
    FindCoordinatorAnswer,
    JoinGroupAnswer,
    ListGroupsAnswer,
    OffsetCommitAnswer,
    OffsetFetchAnswer,
    SyncGroupAnswer,
)
from groupcoord_spark.simulator.calls import Call
from groupcoord_spark.simulator.errors import Error
from groupcoord_spark.simulator.records import GROUP_METADATA, WrittenRecord
from groupcoord_spark.simulator.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    Request,
    SyncGroup,
)

Names = Mapping[str, str]
"""Member id -> the member's name in the scenario."""


def request_text(request: Request, names: Names) -> str:
    """A request by Kafka's name, with what tells it from others of its kind."""
    name = type(request).__name__
    match request:
        case JoinGroup(member_id=member_id, group_instance_id=instance, protocols=protocols):
            who = f"{'new member' if not member_id else 'member'}{f' {instance}' if instance else ''}"
            return f"{name} {who}, {','.join(protocol for protocol, _ in protocols)}"
        case SyncGroup(generation=generation, assignments=assignments):
            return f"{name} generation {generation}{f', assigns {len(assignments)}' if assignments else ''}"
        case Heartbeat(generation=generation):
            return f"{name} generation {generation}"
        case LeaveGroup(members=members):
            return f"{name} {', '.join(names.get(one.member_id, one.member_id or str(one.group_instance_id)) for one in members)}"
        case OffsetCommit(offsets=offsets, generation=generation):
            saved = " ".join(f"{one.topic}-{one.partition}={one.committed_offset}" for one in offsets)
            return f"{name} generation {generation}, {saved}"
        case OffsetFetch(groups=groups):
            wanted = [_numbers(one.partitions) for one in groups if one.partitions is not None]
            return f"{name} {';'.join(wanted)}".rstrip()
        case OffsetDelete(partitions=partitions):
            return f"{name} {_numbers(partitions)}"
        case _:
            return name


def answer_text(call: Call, names: Names) -> str:
    """An answer's error and what it brings."""
    match call.answer:
        case JoinGroupAnswer(error=Error.NONE, generation=generation, protocol=protocol, leader=leader, members=members):
            led = f"leads {len(members)}" if members else f"{names.get(leader, leader)} leads"
            return f"NONE generation {generation}, {protocol}, {led}"
        case SyncGroupAnswer(error=Error.NONE, assignment=assignment):
            return f"NONE {_assignment_text(assignment)}"
        case OffsetCommitAnswer(errors=errors):
            return _errors_text(errors)
        case OffsetFetchAnswer(groups=groups):
            told = [
                one.error.name if one.error is not Error.NONE else f"{topic}-{partition}={one.committed_offset}"
                for group in groups
                for topic, partitions in group.topics.items()
                for partition, one in partitions.items()
            ]
            failed = [group.error.name for group in groups if group.error is not Error.NONE]
            return " ".join(failed or ["NONE", *told])
        case FindCoordinatorAnswer(coordinators=found):
            return " ".join(f"{one.error.name} __consumer_offsets-{one.offsets_partition}" for one in found)
        case DescribeGroupsAnswer(groups=described):
            return " ".join(f"{one.error.name} {one.state}, {len(one.members)} members" for one in described)
        case ListGroupsAnswer(error=error, groups=listed):
            return f"{error.name} {' '.join(one.group_id for one in listed)}".rstrip()
        case None:
            return ""
        case other:
            several: Mapping[Any, Error] | None = getattr(other, "errors", None)
            of_members = [one.error.name for one in getattr(other, "members", ()) if one.error is not Error.NONE]
            error = getattr(other, "error", Error.NONE)
            if several and error is Error.NONE:
                return _errors_text(several)
            return of_members[0] if of_members else error.name


def record_text(record: WrittenRecord) -> str:
    """What a record says: ``offset orders-0=42``, ``group generation 3, range, 2 members``, their tombstones, or a marker."""
    if record.control is not None or record.key is None:
        return f"marker {record.control}"
    if record.key_type == GROUP_METADATA:
        if record.value is None:
            return "group tombstone"
        members = len(record.value["members"])
        protocol = record.value["protocol"]
        many = f"{members} member{'' if members == 1 else 's'}"
        return f"group generation {record.value['generation']}, {f'{protocol}, ' if protocol else ''}{many}"
    place = f"offset {record.key['topic']}-{record.key['partition']}"
    return f"{place} tombstone" if record.value is None else f"{place}={record.value['committed_offset']}"


def _errors_text(errors: Mapping[Any, Error]) -> str:
    return " ".join(dict.fromkeys(error.name for error in errors.values())) or Error.NONE.name


def _assignment_text(assignment: bytes) -> str:
    try:
        held = decode_assignment(assignment)
    except DecodeError:
        return f"{len(assignment)} bytes"
    return "nothing" if held is None or not held.partitions else _numbers(held.partitions)


def _numbers(partitions: Mapping[str, Iterable[int]] | None) -> str:
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in (partitions or {}).items())
