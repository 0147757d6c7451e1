"""The steps of scripts about streams groups, and how their answers become lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from groupcoord_spark.simulator import AddPartitions, BrokerAction, ConfigureGroup, CreateTopic, DeleteTopic
from groupcoord_spark.simulator.messages.requests import (
    GroupToFetch,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    StreamsGroupDescribe,
    StreamsGroupHeartbeat,
    TxnOffsetCommit,
)
from tests.tools.conformance.streams_topologies import topology_named

KINDS = ("active", "standby", "warmup")


class StreamsSteps:
    """The steps of streams groups. ``ask`` and ``act`` are the ones of the backend."""

    group: str

    def ask(self, request: Any, client: Any, note: Callable[[Any], str]) -> str:
        raise NotImplementedError

    def act(self, action: BrokerAction) -> None:
        raise NotImplementedError

    def producer(self) -> tuple[int, int]:
        """Begin a producer with the group's id as its transactional id, which aborts its open transaction; return its id and epoch."""
        raise NotImplementedError

    def _streams(self, client: Any, *, topology: str | None = "", owns: str | None = "", process: str = "", **fields: Any) -> str:
        """Return a heartbeat of a streams group's member.

        topology: the name of one; "": ``plain`` with epoch 0, else none. owns: ``none``, tasks such as ``0_1 0_2``, or None: says nothing;
        "": with epoch 0 none, else what the last answer gave.
        """
        epoch = fields.get("member_epoch", client.generation)
        client.member_id = client.member_id or client.name
        joins = epoch == 0
        if topology == "":
            topology = "plain" if joins else None
        tasks: dict[str, Any] = dict.fromkeys(KINDS)
        if epoch >= 0 and owns is not None:
            tasks = {kind: {} if joins else client.tasks.get(kind, {}) for kind in KINDS} if owns == "" else _tasks(owns)
        first = {"rebalance_timeout_ms": 5_000, "process_id": process or f"process-{client.name}"} if joins else {}
        request = StreamsGroupHeartbeat(
            self.group,
            **{
                "member_id": client.member_id,
                "member_epoch": epoch,
                "client_id": client.name,
                **first,
                **{f"{kind}_tasks": of for kind, of in tasks.items()},
                **fields,
            },
            topology=None if topology is None else topology_named(topology, self.group),
            version=0,
        )

        def note(answer: Any) -> str:
            if answer.error == 0:
                client.generation = max(answer.member_epoch, 0)
                for kind in KINDS:
                    given = getattr(answer, f"{kind}_tasks")
                    client.tasks[kind] = client.tasks.get(kind, {}) if given is None else given
            status = ",".join(str(int(one.code)) for one in answer.status) or "-"
            given = " ".join(f"{kind} {_text(getattr(answer, f'{kind}_tasks'))}" for kind in KINDS)
            endpoints = "" if answer.partitions_by_user_endpoint is None else f" endpoints {_endpoints(answer.partitions_by_user_endpoint)}"
            return (
                f"{int(answer.error)} epoch {answer.member_epoch} status {status} {given}"
                f" endpoint epoch {answer.endpoint_information_epoch}{endpoints}"
            )

        return self.ask(request, client, note)

    def _describe(self, client: Any) -> str:
        """Return what StreamsGroupDescribe shows."""

        def note(answer: Any) -> str:
            (group,) = answer.groups
            members = sorted(
                f"{one.member_id} {one.member_epoch} rack {one.rack_id} client {one.client_id} topology {one.topology_epoch}"
                f" process {one.process_id} endpoint {one.user_endpoint} tags {sorted(one.client_tags.items())}"
                f" has {_of_member(one.assignment)} of {_of_member(one.target)}"
                for one in group.members
            )
            parts = [
                f"{one.subtopology_id} reads {sorted(one.source_topics)} {sorted(one.repartition_source_topics.items())}"
                f" writes {sorted(one.repartition_sink_topics)} keeps {sorted(one.state_changelog_topics.items())}"
                for one in group.subtopologies
            ]
            epochs = f"epoch {group.group_epoch} {group.assignment_epoch} topology {group.topology_epoch}"
            return "; ".join([f"{int(group.error)} {group.state} {epochs}", *parts, *members])

        return self.ask(StreamsGroupDescribe((self.group,), version=0), client, note)

    def _store(
        self, client: Any, *, topic: str = "t", partition: int = 0, older: int = 0, version: int = 9, member_id: str | None = None
    ) -> str:
        """Return a commit of a member of a streams group, with an epoch that is so much older."""
        offset = OffsetToCommit(topic.format(group=self.group), partition, 5)
        who = client.member_id if member_id is None else member_id
        request = OffsetCommit(self.group, (offset,), client.generation - older, who, version=version)
        return self.ask(request, client, lambda answer: " ".join(str(int(error)) for error in answer.errors.values()))

    def _stage(self, client: Any, *, topic: str = "t", older: int = 0, member_id: str | None = None) -> str:
        """Return a commit in a transaction. The transactional id belongs to the group."""
        producer_id, producer_epoch = self.producer()
        who = client.member_id if member_id is None else member_id
        generation = -1 if not who else client.generation - older
        offset = OffsetToCommit(topic, 0, 5)
        request = TxnOffsetCommit(self.group, producer_id, (offset,), producer_epoch, generation, who, version=5)
        return self.ask(request, client, lambda answer: " ".join(str(int(error)) for error in answer.errors.values()))

    def _fetch(self, client: Any, *, older: int = 0, member_id: str | None = "") -> str:
        """Return a fetch of all offsets, by the member or (member_id None) by an administrator."""
        who = client.member_id if member_id == "" else member_id
        epoch = -1 if who is None else client.generation - older
        request = OffsetFetch((GroupToFetch(self.group, None, who, epoch),), version=9)
        return self.ask(request, client, lambda answer: " ".join(str(int(one.error)) for one in answer.groups))

    # An administrator

    def _forget(self, client: Any, *, topic: str) -> str:
        """OffsetDelete of partition 0 of a topic."""
        request = OffsetDelete(self.group, {topic: (0,)}, version=0)
        return self.ask(
            request, client, lambda answer: f"{int(answer.error)} {' '.join(str(int(error)) for error in answer.errors.values())}".strip()
        )

    def _configure(self, client: Any, **settings: int) -> str:
        for name, value in settings.items():
            self.act(ConfigureGroup(self.group, name.replace("_", "."), value))
        return "done"

    def _create(self, client: Any, *, topic: str, partitions: int) -> str:
        self.act(CreateTopic(topic.format(group=self.group), partitions))
        return "done"

    def _grow(self, client: Any, *, topic: str, partitions: int) -> str:
        self.act(AddPartitions(topic.format(group=self.group), partitions))
        return "done"

    def _drop(self, client: Any, *, topic: str) -> str:
        self.act(DeleteTopic(topic.format(group=self.group)))
        return "done"


def _tasks(text: str) -> dict[str, dict[str, tuple[int, ...]]]:
    """Active tasks, and after a ``+`` the standby tasks: ``0_1 0_2 + 0_3``."""
    active, _, standby = text.partition("+")
    return {"active": _read(active), "standby": _read(standby), "warmup": {}}


def _read(text: str) -> dict[str, tuple[int, ...]]:
    tasks: dict[str, tuple[int, ...]] = {}
    for task in text.split() if text.strip() != "none" else ():
        name, number = task.split("_")
        tasks[name] = (*tasks.get(name, ()), int(number))
    return tasks


def _text(tasks: Mapping[str, Any] | None) -> str:
    if tasks is None:
        return "-"
    return " ".join(f"{name}_{','.join(map(str, sorted(numbers)))}" for name, numbers in sorted(tasks.items()) if numbers) or "none"


def _of_member(tasks: Any) -> str:
    return "/".join(_text(getattr(tasks, kind)) for kind in KINDS)


def _endpoints(endpoints: Any) -> str:
    return " ".join(sorted(f"{one.host}:{one.port} {_text(one.active)} + {_text(one.standby)}" for one in endpoints)) or "none"
