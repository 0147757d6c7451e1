"""Compares the simulator with recorded requests of real brokers: ``python -m tests.tools.conformance.traces FILE_OR_DIR...``

Prints one line for each trace, ``equal`` or the first difference, and exits 1 if a trace differs. Each request reaches the simulator at its
recorded time. Answers, states and records have to be equal to the broker's, and a late answer has to come in the same step.

A broker may be up to 250 ms late, and is never early. Topics and partitions are in the order of hash maps whose keys a trace does not show:
they are compared as sets, and so are the records of one commit (Scala) and of one deletion.
"""

import base64
import gzip
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.protocol import decode_key, decode_value, key_json, value_json
from groupcoord_spark.protocol.record_types import NO_TIMESTAMP, KeyType
from groupcoord_spark.simulator import Call, ClusterTopic, Simulator, TimelineEntry, WrittenRecord, read_settings, release_for
from groupcoord_spark.simulator.messages.answers import (
    Answer,
    DeleteGroupsAnswer,
    DescribedGroup,
    Descriptions,
    ErrorAnswer,
    FindCoordinatorAnswer,
    JoinGroupAnswer,
    LeaveGroupAnswer,
    ListGroupsAnswer,
    OffsetCommitAnswer,
    OffsetDeleteAnswer,
    OffsetFetchAnswer,
    SyncGroupAnswer,
)
from groupcoord_spark.simulator.messages.requests import (
    AddOffsetsToTxn,
    DeleteGroups,
    DescribeGroups,
    EndTxn,
    FindCoordinator,
    GroupToFetch,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Request,
    SyncGroup,
    TxnOffsetCommit,
)

LATEST_MS = 250
"""How late an event of a real broker may be."""

TOPICS = {"t": 6, "u": 3}
"""Topics of the recorded brokers and their partitions; any other name is unknown to them."""

# The transaction coordinator hands out producer ids: the requests that follow name them.
NOT_SIMULATED = frozenset({"InitProducerId"})

Json = dict[str, Any]


# Reading requests


def _protocols(listed: list[Json]) -> tuple[tuple[str, bytes], ...]:
    return tuple((one["name"], base64.b64decode(one["metadata"])) for one in listed)


def _offsets(topics: list[Json]) -> tuple[OffsetToCommit, ...]:
    return tuple(
        OffsetToCommit(
            topic["name"],
            one["partitionIndex"],
            one["committedOffset"],
            one.get("committedLeaderEpoch", -1),
            one["committedMetadata"],
            one.get("commitTimestamp", -1),
        )
        for topic in topics
        for one in topic["partitions"]
    )


def _wanted(topics: list[Json] | None) -> Mapping[str, tuple[int, ...]] | None:
    return None if topics is None else {topic["name"]: tuple(topic["partitionIndexes"]) for topic in topics}


def _leaving(body: Json) -> tuple[Leaving, ...]:
    if "members" not in body:
        return (Leaving(body["memberId"]),)
    return tuple(Leaving(one["memberId"], one["groupInstanceId"]) for one in body["members"])


def _fetching(body: Json) -> tuple[GroupToFetch, ...]:
    groups = body.get("groups", [body])
    return tuple(GroupToFetch(one["groupId"], _wanted(one["topics"])) for one in groups)


READERS: dict[str, Callable[[Json, int, str], Request]] = {
    "JoinGroup": lambda body, version, client: JoinGroup(
        body["groupId"],
        body["sessionTimeoutMs"],
        body.get("rebalanceTimeoutMs"),
        body["memberId"],
        body.get("groupInstanceId"),
        body["protocolType"],
        _protocols(body["protocols"]),
        client_id=client,
        version=version,
    ),
    "SyncGroup": lambda body, version, client: SyncGroup(
        body["groupId"],
        body["generationId"],
        body["memberId"],
        body.get("groupInstanceId"),
        body.get("protocolType"),
        body.get("protocolName"),
        tuple((one["memberId"], base64.b64decode(one["assignment"])) for one in body["assignments"]),
        version=version,
    ),
    "Heartbeat": lambda body, version, client: Heartbeat(
        body["groupId"], body["generationId"], body["memberId"], body.get("groupInstanceId")
    ),
    "LeaveGroup": lambda body, version, client: LeaveGroup(body["groupId"], _leaving(body), version=version),
    "OffsetCommit": lambda body, version, client: OffsetCommit(
        body["groupId"],
        _offsets(body["topics"]),
        body.get("generationIdOrMemberEpoch", -1),
        body.get("memberId", ""),
        body.get("groupInstanceId"),
        body.get("retentionTimeMs", -1),
        version=version,
    ),
    "TxnOffsetCommit": lambda body, version, client: TxnOffsetCommit(
        body["groupId"],
        body["producerId"],
        _offsets(body["topics"]),
        body["producerEpoch"],
        body.get("generationId", -1),
        body.get("memberId", ""),
        body.get("groupInstanceId"),
    ),
    "OffsetFetch": lambda body, version, client: OffsetFetch(_fetching(body), body.get("requireStable", False)),
    "AddOffsetsToTxn": lambda body, version, client: AddOffsetsToTxn(body["groupId"], body["producerId"], body["producerEpoch"]),
    "EndTxn": lambda body, version, client: EndTxn(body["producerId"], body["committed"], body["producerEpoch"]),
    "FindCoordinator": lambda body, version, client: FindCoordinator(
        tuple(body["coordinatorKeys"]) if "coordinatorKeys" in body else (body["key"],), version=version
    ),
    "DescribeGroups": lambda body, version, client: DescribeGroups(tuple(body["groups"]), version=version),
    "ListGroups": lambda body, version, client: ListGroups(tuple(body.get("statesFilter", ()))),
    "DeleteGroups": lambda body, version, client: DeleteGroups(tuple(body["groupsNames"])),
    "OffsetDelete": lambda body, version, client: OffsetDelete(
        body["groupId"],
        {topic["name"]: tuple(one["partitionIndex"] for one in topic["partitions"]) for topic in body["topics"]},
    ),
}


# Showing answers


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _by_topic(errors: Mapping[tuple[str, int], int]) -> list[Json]:
    topics: dict[str, list[Json]] = {}
    for (topic, partition), error in errors.items():
        topics.setdefault(topic, []).append({"partitionIndex": partition, "errorCode": int(error)})
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]


def _described(group: DescribedGroup) -> Json:
    return {
        "errorCode": int(group.error),
        "groupId": group.group_id,
        "groupState": group.state,
        "protocolType": group.protocol_type,
        "protocolData": group.protocol,
        "members": [
            {
                "memberId": member.member_id,
                "groupInstanceId": member.group_instance_id,
                "clientId": member.client_id,
                "clientHost": member.client_host,
                "memberMetadata": _text(member.metadata),
                "memberAssignment": _text(member.assignment),
            }
            for member in group.members
        ],
        "authorizedOperations": -2147483648,
    }


def _fetched(answer: OffsetFetchAnswer) -> Json:
    groups = [
        {
            "groupId": group.group_id,
            "topics": [
                {
                    "name": topic,
                    "partitions": [
                        {
                            "partitionIndex": partition,
                            "committedOffset": offset.committed_offset,
                            "committedLeaderEpoch": offset.leader_epoch,
                            "metadata": offset.metadata,
                            "errorCode": int(offset.error),
                        }
                        for partition, offset in partitions.items()
                    ],
                }
                for topic, partitions in group.topics.items()
            ],
            "errorCode": int(group.error),
        }
        for group in answer.groups
    ]
    return {"groups": groups, **groups[0]}


def show(answer: Answer, version: int) -> Json:
    """Return the answer in Kafka's JSON, with the fields of all versions."""
    match answer:
        case JoinGroupAnswer():
            return {
                "errorCode": int(answer.error),
                "generationId": answer.generation,
                "protocolType": answer.protocol_type,
                "protocolName": answer.protocol if version >= 7 or answer.protocol is not None else "",
                "leader": answer.leader,
                "skipAssignment": answer.skip_assignment,
                "memberId": answer.member_id,
                "members": [
                    {"memberId": one.member_id, "groupInstanceId": one.group_instance_id, "metadata": _text(one.metadata)}
                    for one in answer.members
                ],
            }
        case SyncGroupAnswer():
            return {
                "errorCode": int(answer.error),
                "protocolType": answer.protocol_type,
                "protocolName": answer.protocol,
                "assignment": _text(answer.assignment),
            }
        case ErrorAnswer():
            return {"errorCode": int(answer.error)}
        case LeaveGroupAnswer():
            return {
                "errorCode": int(answer.error),
                "members": [
                    {"memberId": one.member_id, "groupInstanceId": one.group_instance_id, "errorCode": int(one.error)}
                    for one in answer.members
                ],
            }
        case OffsetCommitAnswer():
            return {"topics": _by_topic(answer.errors)}
        case OffsetDeleteAnswer():
            return {"errorCode": int(answer.error), "topics": _by_topic(answer.errors)}
        case OffsetFetchAnswer():
            return _fetched(answer)
        case FindCoordinatorAnswer():
            coordinators = [{"key": one.key, "errorCode": int(one.error)} for one in answer.coordinators]
            return {"coordinators": coordinators, **coordinators[0]}
        case Descriptions():
            return {"groups": [_described(group) for group in answer.groups]}
        case ListGroupsAnswer():
            return {
                "errorCode": int(answer.error),
                "groups": [{"groupId": one.group_id, "protocolType": one.protocol_type, "groupState": one.state} for one in answer.groups],
            }
        case DeleteGroupsAnswer():
            return {"results": [{"groupId": group_id, "errorCode": int(error)} for group_id, error in answer.errors.items()]}


# These fields do not come from the group coordinator.
NOT_COMPARED = frozenset({"throttleTimeMs", "nodeId", "host", "port", "errorMessage"})
# Lists in the order of a hash map, with the field to sort them by before the comparison.
SETS = {"topics": "name", "partitions": "partitionIndex", "results": "groupId"}


def difference(expected: Any, actual: Any, at: str = "") -> str | None:
    """Return a sentence about the first difference of two JSON values; None: no difference. Fields that only ``actual`` has are ignored."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name, value in expected.items():
            if name in NOT_COMPARED:
                continue
            path = f"{at}.{name}" if at else name
            if name not in actual:
                return f"{path} is missing"
            ours = actual[name]
            if name in SETS and isinstance(value, list):
                value, ours = (sorted(side, key=lambda one, by=SETS[name]: one[by]) for side in (value, ours))
            first_difference = difference(value, ours, path)
            if first_difference is not None:
                return first_difference
        return None
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return f"{at} has {len(actual)} entries, the broker's {len(expected)}"
        for number, (theirs, ours) in enumerate(zip(expected, actual, strict=True)):
            first_difference = difference(theirs, ours, f"{at}[{number}]")
            if first_difference is not None:
                return first_difference
        return None
    return None if expected == actual else f"{at} is {actual!r}, the broker's {expected!r}"


# Replaying


class _Names:
    """Replaces the placeholders of a trace by ids, and makes the member ids that the broker made."""

    def __init__(self, trace: Json) -> None:
        self._ids: dict[str, str] = trace["member_ids"]
        self.topic_ids = {f"<topic id {topic}>": _text(topic.encode() * 16)[:22] for topic in TOPICS}
        self._joins = [step for step in trace["steps"] if step["api"] == "JoinGroup" and step["response"] is not None]
        self._named = {self.real(step["response"]["memberId"]) for step in self._joins}
        self._given: set[str] = set()
        self._step: Json = {}

    def real(self, value: Any) -> Any:
        """Return the JSON value with every placeholder replaced."""
        if isinstance(value, str):
            return self._ids.get(value, self.topic_ids.get(value, value))
        if isinstance(value, list):
            return [self.real(one) for one in value]
        if isinstance(value, dict):
            return {name: self.real(one) for name, one in value.items()}
        return value

    def sending(self, step: Json) -> None:
        """Set the step for which new member ids are made from now on."""
        self._step = step

    def new_member_id(self, name: str) -> str:
        """Return the member id that the broker made: the one in its answer, else the next id of the member that is in no other answer."""
        response = self._step["response"]
        if response is not None and self._is_new(self.real(response["memberId"]), name):
            member_id: str = self.real(response["memberId"])
        else:
            label = self._step["member"]
            unnamed = (
                real
                for placeholder, real in self._ids.items()
                if placeholder.strip("<>").removeprefix("member ").partition("#")[0] == label
                and self._is_new(real, name)
                and real not in self._named
            )
            member_id = next(unnamed, f"{name}-{len(self._given):032x}")
        self._given.add(member_id)
        return member_id

    def _is_new(self, member_id: str, name: str) -> bool:
        return member_id.startswith(f"{name}-") and member_id not in self._given


class Replay:
    """One trace, sent to the simulator step by step. ``difference`` gives the first difference from the recording."""

    def __init__(self, trace: Json) -> None:
        self.trace = trace
        self.steps: list[Json] = [step for step in trace["steps"] if step["api"] not in NOT_SIMULATED]
        self._names = _Names(trace)
        topics = {topic: ClusterTopic(count, self._names.topic_ids[f"<topic id {topic}>"]) for topic, count in TOPICS.items()}
        settings = read_settings(trace["config"], topics)
        self._start_ms: int = trace["start_ms"]
        self._simulator = Simulator(
            release_for(None, trace["broker"]),
            settings,
            start_ms=self._start_ms,
            new_member_id=self._names.new_member_id,
            on_entry=self._note,
        )
        kept_ms = settings.offsets_retention_ms
        self._retentions_ms = {
            self._simulator.release.semantics.default_retention_ms if kept_ms is None else kept_ms,
            *(step["request"].get("retentionTimeMs", -1) for step in self.steps),
        }
        """How long offsets are kept: by the broker's settings, or as a request asks."""
        self._calls: list[Call] = []
        self._freed: dict[int, tuple[int, bool]] = {}
        """By call: index of the step that was the last one sent when it was answered, and whether a timer answered it."""
        self._records: list[WrittenRecord] = []
        self._states: list[list[Json]] = []
        """By step: what DescribeGroups would have shown from then on until the next step, each change once."""
        self._run()

    def _run(self) -> None:
        for step in self.steps:
            self._names.sending(step)
            request = READERS[step["api"]](self._names.real(step["request"]), step["version"], step["member"])
            self._simulator.advance_to(self._start_ms + step["at_ms"])
            self._states.append([])
            self._calls.append(self._simulator.send(request))
            # Events that are due at once happen before anybody can look.
            self._simulator.advance_to(self._simulator.broker.now_ms)
        times = [step["answered_at_ms"] for step in self.steps] + [record["at_ms"] for record in self.trace["records"]]
        self._simulator.advance_to(self._start_ms + max(self.steps[-1]["at_ms"], *(time for time in times if time is not None)))

    def _note(self, entry: TimelineEntry) -> None:
        for call in entry.answered:
            self._freed[call.number] = (len(self._states) - 1, entry.timer is not None)
        group_id, number = self.trace["group"], self._simulator.broker.partition_number(self.trace["group"])
        for record in entry.records:
            if record.offsets_partition == number and (record.key is None or record.key["group_id"] == group_id):
                self._records.append(record)
        if self._states:
            self._states[-1].append(_described(self._simulator.describe(group_id)))

    def difference(self) -> str | None:
        """Return the first step, else the first record, that differs; None: the broker did the same."""
        for index, step in enumerate(self.steps):
            first_difference = self._answer_difference(index, step) or self._state_difference(index, step)
            if first_difference is not None:
                return f"step {step['n']} ({step['api']} of {step['member']}): {first_difference}"
        return self._record_difference()

    def _answer_difference(self, index: int, step: Json) -> str | None:
        call = self._calls[index]
        if call.answer is None or call.answered_at_ms is None:
            return None if step["response"] is None else "never answered, by the broker it was"
        if step["response"] is None:
            return "answered, by the broker never"
        first_difference = difference(self._names.real(step["response"]), show(call.answer, step["version"]))
        if first_difference is not None:
            return first_difference
        freed, by_timer = self._freed[call.number]
        answered_ms = call.answered_at_ms - self._start_ms
        late_ms = step["answered_at_ms"] - answered_ms
        if not 0 <= late_ms <= LATEST_MS:
            return f"answered at {answered_ms} ms, by the broker at {step['answered_at_ms']} ms"
        after = self.steps[freed]["n"]
        if after == step["answered_after_step"]:
            return None
        # A timer's answer may be so late that the next step was sent meanwhile.
        sent_since = [one for one in self.steps[freed + 1 :] if one["n"] <= step["answered_after_step"]]
        if by_timer and sent_since and all(one["at_ms"] <= step["answered_at_ms"] for one in sent_since):
            return None
        return f"answered after step {after}, by the broker after step {step['answered_after_step']}"

    def _state_difference(self, index: int, step: Json) -> str | None:
        expected = self._names.real(step["group_after"])
        seen = self._states[index]
        differences = [difference(expected, state, "group") for state in seen]
        return None if None in differences else differences[-1]

    def _record_difference(self) -> str | None:
        expected = self._names.real(self.trace["records"])
        number = 0
        for batch in _batches(self._records):
            theirs = expected[number : number + len(batch)]
            ours = [_shown(record) for record in batch]
            if batch[0].key_type == KeyType.OFFSET_COMMIT and (self.trace["coordinator"] == "scala" or batch[0].value is None):
                theirs, ours = (sorted(side, key=lambda one: json.dumps(one["key"])) for side in (theirs, ours))
            for index, (broker, simulated) in enumerate(zip(theirs, ours, strict=False)):
                first_difference = self._one_record_difference(broker, simulated)
                if first_difference is not None:
                    return f"record {number + index + 1}: {first_difference}"
            number += len(batch)
        if number != len(expected):
            return f"{number} records written, by the broker {len(expected)}"
        return None

    def _one_record_difference(self, broker: Json, simulated: Json) -> str | None:
        simulated = dict(simulated)
        written_ms = simulated.pop("timestamp_ms") - self._start_ms
        if not 0 <= broker["at_ms"] - written_ms <= LATEST_MS:
            return f"written at {written_ms} ms, by the broker at {broker['at_ms']} ms"
        broker = {name: value for name, value in broker.items() if name != "at_ms"}
        for side in (broker, simulated):
            value = side["value"]
            side["value"] = value and {**value, "data": dict(value["data"])}
        if broker["value"] is not None and simulated["value"] is not None:
            self._count_expiry_from_commit(broker["value"]["data"], simulated["value"]["data"])
        for name in ("commitTimestamp", "currentStateTimestamp"):
            if broker["value"] is not None and simulated["value"] is not None and name in broker["value"]["data"]:
                late_ms = broker["value"]["data"].pop(name) - simulated["value"]["data"].pop(name)
                if not 0 <= late_ms <= LATEST_MS:
                    return f"{name} is {late_ms} ms before the broker's"
        return difference(broker, simulated)

    def _count_expiry_from_commit(self, broker: Json, simulated: Json) -> None:
        """Turn ``expireTimestamp`` of both values into the time after their own commit timestamps, where that time is a retention.

        A broker counts the retention from the clock that gives the commit timestamp. Where a request names the moment itself, the
        expiry stays as it is.
        """
        values = [value for value in (broker, simulated) if value.get("expireTimestamp", NO_TIMESTAMP) != NO_TIMESTAMP]
        if len(values) == 2 and simulated["expireTimestamp"] - simulated["commitTimestamp"] in self._retentions_ms:
            for value in values:
                value["expireTimestamp"] -= value["commitTimestamp"]


def _batches(records: list[WrittenRecord]) -> Iterator[list[WrittenRecord]]:
    batch: list[WrittenRecord] = []
    for record in records:
        if batch and record.batch != batch[0].batch:
            yield batch
            batch = []
        batch.append(record)
    if batch:
        yield batch


def _shown(record: WrittenRecord) -> Json:
    """Return a record as a trace has it, read back from the bytes the simulator would write."""
    key = value = None
    if record.key_type is not None:
        read = decode_key(record.key_bytes)
        key = {"type": read.key_type, "name": read.name, "data": key_json(read)}
        decoded = decode_value(record.key_type, record.value_bytes)
        value = None if decoded is None else {"version": decoded.version, "data": value_json(decoded)}
    return {
        "timestamp_ms": record.timestamp_ms,
        "producer_id": record.producer_id,
        "producer_epoch": record.producer_epoch,
        "transactional": record.is_transactional,
        "control": record.control,
        "key": key,
        "value": value,
    }


def read_trace(path: Path) -> dict[str, Any]:
    """Read a trace: JSON, compressed where the file ends in ``.gz``."""
    raw = path.read_bytes()
    trace: dict[str, Any] = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)
    return trace


def name_of(path: Path) -> str:
    """Return the name of a trace: its release and its scenario."""
    return f"{path.parent.name}/{path.name.removesuffix('.gz').removesuffix('.json')}"


def compare(path: Path) -> str | None:
    """Return the first difference between a trace and the simulator, in words; None where it has none."""
    try:
        return Replay(read_trace(path)).difference()
    except GroupcoordError as fault:
        return f"the simulator gave up: {fault}"


def main(arguments: list[str]) -> int:
    """Compare every trace under the paths given; 1 if one differs, 2 without any."""
    paths = [path for argument in map(Path, arguments) for path in (sorted(argument.rglob("*.json*")) if argument.is_dir() else [argument])]
    if not paths:
        print("No traces. Usage: python -m tests.tools.conformance.traces FILE_OR_DIR...", file=sys.stderr)
        return 2
    has_difference = False
    for path in paths:
        first_difference = compare(path)
        has_difference |= first_difference is not None
        print(f"{name_of(path)}: {first_difference or 'equal'}")
    return int(has_difference)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
