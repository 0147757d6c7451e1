"""Random heartbeats and commits to the coordinator classes of a release and to the simulator.

``python -m tests.tools.conformance.heartbeats --release 4.4.0``.

The simulator answers first, so that a client can send the epoch that it was given. Compared are the error, the member epoch, and the
records that each request makes. No topic exists: what is assigned is the business of the assignors. Times do not pass.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from groupcoord_spark.coordinator.releases import release_named
from groupcoord_spark.protocol import decode_key, decode_value
from groupcoord_spark.simulator import ClusterTopic, Simulator, TimelineEntry, read_settings, release_for
from groupcoord_spark.simulator.messages.answers import OffsetCommitAnswer
from groupcoord_spark.simulator.messages.requests import (
    ConsumerGroupHeartbeat,
    OffsetToCommit,
    Request,
    ShareGroupHeartbeat,
    StreamsGroupHeartbeat,
    Subtopology,
    Topology,
    TxnOffsetCommit,
)
from tests.tools.conformance.released_jars import run_coordinator

SETTINGS = {
    "group.consumer.assignment.interval.ms": 0,
    "group.share.assignment.interval.ms": 0,
    "group.streams.assignment.interval.ms": 0,
    "group.streams.initial.rebalance.delay.ms": 0,
    "group.consumer.max.size": 3,
    "group.streams.max.size": 2,
}
STREAMS_TAGS = "group.streams.rack.aware.assignment.tags"
NOW_MS = 1_000_000
FIRST_WITH_STREAMS, FIRST_WITH_STATIC_STREAMS = (4, 2), (4, 4)
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
TOPOLOGY = Topology(0, (Subtopology("0", ("t",)),))


def settings_of(version: str) -> dict[str, int | str]:
    """Return the settings of the broker."""
    return {**SETTINGS, **({STREAMS_TAGS: "zone"} if release_named(version) >= FIRST_WITH_STATIC_STREAMS else {})}


class Outcome(NamedTuple):
    """What one request gets: its error, the member epoch, and the records as (key type, key, value)."""

    error: str
    epoch: int | None
    records: list[tuple[int, Mapping[str, Any], Mapping[str, Any] | None]]


class Script:
    """Random requests of some clients, and what the simulator makes of them."""

    def __init__(self, version: str, seed: int, length: int) -> None:
        self._random, self._release = random.Random(seed), release_named(version)
        self._streams_version = int(self._release >= FIRST_WITH_STATIC_STREAMS)
        self.requests: list[Request] = []
        self.outcomes: list[Outcome] = []
        self._epochs: dict[tuple[type, str], int] = {}
        self._entries: list[TimelineEntry] = []
        settings = read_settings(settings_of(version), {"c": ClusterTopic(1, TOPIC_ID)})
        simulator = Simulator(release_for("java", version), settings, start_ms=NOW_MS, on_entry=self._entries.append)
        for _ in range(length):
            request = self._next()
            answer: Any = simulator.send(request).answer
            records: Any = [(record.key_type, record.key, record.value) for record in self._entries[-1].records]
            if isinstance(answer, OffsetCommitAnswer):
                outcome = Outcome(answer.errors["c", 0].name, None, records)
            else:
                error = answer.error.name
                outcome = Outcome(error, answer.member_epoch if error == "NONE" else None, records)
                self._epochs[type(request), request.member_id] = outcome.epoch or 0
            self.requests.append(request)
            self.outcomes.append(outcome)

    def _next(self) -> Any:
        pick = self._random
        member_id = pick.choice("abcd")
        kinds: list[Any] = [self._consumer, self._consumer, self._commit]
        if self._release >= FIRST_WITH_STREAMS:
            kinds += [self._share, self._streams]
        return pick.choice(kinds)(pick, member_id)

    def _epoch(self, kind: type, member_id: str) -> int:
        epoch = max(self._epochs.get((kind, member_id), 0), 0)
        return self._random.choice([epoch, epoch, epoch, epoch, 0, epoch + 1, -1, -2])

    def _consumer(self, pick: random.Random, member_id: str) -> Request:
        epoch = self._epoch(ConsumerGroupHeartbeat, member_id)
        instance_id = pick.choice([None, None, "i", "j"])
        if epoch == -2:
            instance_id = instance_id or "i"
        joins = epoch == 0
        return ConsumerGroupHeartbeat(
            "consumers",
            member_id,
            epoch,
            group_instance_id=instance_id,
            rebalance_timeout_ms=1000 if joins else None,
            topics=tuple(pick.choice([["t"], ["t", "u"]])) if joins or pick.random() < 0.2 else None,
            server_assignor=pick.choice([None, None, "uniform", "range"]),
            partitions={} if joins or pick.random() < 0.5 else None,
            client_id="client",
            client_host="localhost/127.0.0.1",
            version=1,
        )

    def _share(self, pick: random.Random, member_id: str) -> Request:
        epoch = max(self._epoch(ShareGroupHeartbeat, member_id), -1)
        topics = tuple(pick.choice([["t"], ["t", "u"]])) if epoch == 0 or pick.random() < 0.2 else None
        return ShareGroupHeartbeat("shared", member_id, epoch, topics=topics, client_id="client", client_host="localhost/127.0.0.1")

    def _streams(self, pick: random.Random, member_id: str) -> Request:
        epoch, instance_id = self._epoch(StreamsGroupHeartbeat, member_id), pick.choice([None, "i", "j"])
        if self._release < FIRST_WITH_STATIC_STREAMS:
            epoch, instance_id = max(epoch, -1), None
        elif epoch == -2:
            instance_id = instance_id or "i"
        joins = epoch == 0
        return StreamsGroupHeartbeat(
            "streams",
            member_id,
            epoch,
            group_instance_id=instance_id,
            rebalance_timeout_ms=1000 if joins else None,
            topology=TOPOLOGY if joins else None,
            **({name: {} for name in ("active_tasks", "standby_tasks", "warmup_tasks")} if joins else {}),
            process_id=pick.choice(["p", "q"]) if joins else None,
            user_endpoint=pick.choice([None, ("h", 1)]) if joins else None,
            client_tags=pick.choice([{}, {"zone": "z"}]) if joins else None,
            client_id="client",
            client_host="localhost/127.0.0.1",
        )

    def _commit(self, pick: random.Random, member_id: str) -> Request:
        group_id, kind = pick.choice([("consumers", ConsumerGroupHeartbeat), ("none", ConsumerGroupHeartbeat)])
        epoch = max(self._epoch(kind, member_id), 0)
        version = pick.choice([5, 6] if self._release >= FIRST_WITH_STATIC_STREAMS else [4, 5])
        offset = OffsetToCommit("c", 0, 5)
        return TxnOffsetCommit(group_id, 7, (offset,), generation=epoch, member_id=member_id, version=version)

    def lines(self) -> Iterator[str]:
        """Yield the requests in the lines that ReplayRecords.java reads."""
        yield f"case {NOW_MS}"
        yield "load"
        for request in self.requests:
            method, version, fields = self._in_json(request)
            yield f"request {method} {version} {json.dumps(fields)}"

    def _in_json(self, request: Any) -> tuple[str, int, dict[str, Any]]:
        """(method of the coordinator, version, fields) of a request."""
        who = {"groupId": request.group_id, "memberId": request.member_id}
        if isinstance(request, TxnOffsetCommit):
            is_new = (request.version or 0) >= 6
            topic = {"topicId": TOPIC_ID} if is_new else {"name": "c", "topicId": TOPIC_ID}
            partition = {"partitionIndex": 0, "committedOffset": 5, "committedLeaderEpoch": -1, "committedMetadata": ""}
            epoch = "generationId" if self._release < FIRST_WITH_STATIC_STREAMS else "generationIdOrMemberEpoch"
            ids = {"transactionalId": "x", "producerId": 7, "producerEpoch": 0, epoch: request.generation, "groupInstanceId": None}
            return "commitTransactionalOffset", request.version or 0, {**who, **ids, "topics": [{**topic, "partitions": [partition]}]}
        who |= {"memberEpoch": request.member_epoch, "rackId": None}
        topics = None if isinstance(request, StreamsGroupHeartbeat) or request.topics is None else list(request.topics)
        if isinstance(request, ShareGroupHeartbeat):
            return "shareGroupHeartbeat", 1, {**who, "subscribedTopicNames": topics}
        who |= {"instanceId": request.group_instance_id, "rebalanceTimeoutMs": request.rebalance_timeout_ms or -1}
        if isinstance(request, ConsumerGroupHeartbeat):
            assignor = {"subscribedTopicNames": topics, "subscribedTopicRegex": None, "serverAssignor": request.server_assignor}
            return "consumerGroupHeartbeat", 1, {**who, **assignor, "topicPartitions": None if request.partitions is None else []}
        endpoint, tags = request.user_endpoint, request.client_tags
        lists = ("sourceTopicRegex", "stateChangelogTopics", "repartitionSinkTopics", "repartitionSourceTopics", "copartitionGroups")
        subtopology = {"subtopologyId": "0", "sourceTopics": ["t"], **{name: [] for name in lists}}
        return (
            "streamsGroupHeartbeat",
            self._streams_version,
            {
                **who,
                "endpointInformationEpoch": 0,
                "topology": None if request.topology is None else {"epoch": 0, "subtopologies": [subtopology]},
                **{name: None if request.active_tasks is None else [] for name in ("activeTasks", "standbyTasks", "warmupTasks")},
                "processId": request.process_id,
                "userEndpoint": None if endpoint is None else {"host": endpoint[0], "port": endpoint[1]},
                "clientTags": None if tags is None else [{"key": key, "value": value} for key, value in tags.items()],
                "taskOffsets": None,
                "taskEndOffsets": None,
                "shutdownApplication": False,
            },
        )


def released_outcomes(version: str, scripts: Sequence[Script]) -> list[list[Outcome]]:
    """Return what the coordinator of a release makes of the requests of each script."""
    lines = [line for script in scripts for line in script.lines()]
    outcomes: list[list[Outcome]] = []
    for line in run_coordinator(version, lines, *(f"{name}={value}" for name, value in settings_of(version).items())):
        word, first, *rest = [*line.split(" ", 2), ""]
        if word == "case":
            outcomes.append([])
        elif word == "answer":
            fields = json.loads(rest[0])
            outcomes[-1].append(Outcome(first, fields.get("memberEpoch"), []))
        elif word == "record":
            key = decode_key(bytes.fromhex(first))
            value = None if rest[0] == "-" else decode_value(key.key_type, bytes.fromhex(rest[0]))
            outcomes[-1][-1].records.append((int(key.key_type), key.fields, None if value is None else value.fields))
    return outcomes


def differences(version: str, seeds: Sequence[int], length: int) -> Iterator[str]:
    """Yield a line for the first difference in the answers to each script."""
    scripts = [Script(version, seed, length) for seed in seeds]
    for seed, script, released in zip(seeds, scripts, released_outcomes(version, scripts), strict=True):
        for number, (request, ours, theirs) in enumerate(zip(script.requests, script.outcomes, released, strict=True)):
            if _comparable(ours) != _comparable(theirs):
                yield f"seed {seed}, request {number} {request}:\n  ours   {ours}\n  theirs {theirs}"
                break


def _comparable(outcome: Outcome) -> tuple[Any, ...]:
    def shown(value: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return None if value is None else {name: field for name, field in value.items() if not isinstance(name, int) and field is not None}

    # The broker looks up the name of a topic before the coordinator gets a commit that names its id.
    keys = [{name: part for name, part in key.items() if name != "topic"} for _, key, _ in outcome.records]
    return outcome.error, outcome.epoch, [(record[0], key, shown(record[2])) for record, key in zip(outcome.records, keys, strict=True)]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--release", default="4.4.0")
    parser.add_argument("--scripts", type=int, default=100)
    parser.add_argument("--length", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    found = list(differences(options.release, range(options.seed, options.seed + options.scripts), options.length))
    print("\n".join(found))
    print(f"{options.release}: {options.scripts} scripts of {options.length} requests, {len(found)} differ.")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
