"""A run from the Admin API: the state that brokers describe, for clusters whose offsets topic nobody may read.

What only the log has is not made up: record offsets, versions, times of commits and of expiry are NULL, and the tables of the history, of
expiration and of open transactions have no rows. No Spark job runs.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from groupcoord_spark.errors import BadCopyError, UsageError
from groupcoord_spark.log.broker_dir.broker_files import OFFSETS_TOPIC
from groupcoord_spark.log.partition_count import KAFKAS_DEFAULT
from groupcoord_spark.pipeline.accepted import EARLIER, EMPTY
from groupcoord_spark.pipeline.beside_the_offsets import read_beside_the_offsets
from groupcoord_spark.pipeline.outcome import run_row
from groupcoord_spark.pipeline.plan.earlier_runs import last_setting
from groupcoord_spark.pipeline.plan.guards import CLUSTER_ID_SETTING, refusal_of_moment, refusal_of_origin
from groupcoord_spark.pipeline.progress import Progress
from groupcoord_spark.pipeline.run import DEFAULT_CLUSTER, RunRequest, Summary
from groupcoord_spark.protocol.partitioner import offsets_partition_for
from groupcoord_spark.sources.inputs import InputKind
from groupcoord_spark.sources.rows import LOG
from groupcoord_spark.verification import Answers, connected
from groupcoord_spark.warehouse import TABLES, RunStart, Warehouse, begin_run, commit_run, discarded_on_failure, write_part

LOG_NOT_READ: Final = (
    "The run is from the Admin API: only the log has record offsets, times of commits and of expiry, offsets in open transactions and the"
    " history. These columns are NULL, and these tables have no rows."
)


def run_over_admin_api(request: RunRequest, warehouse: Warehouse, properties: Mapping[str, str], progress: Progress) -> Summary:
    """Summary of a run whose tables have what the brokers answer now.

    Args:
        request: what the user asked for; its cluster may be empty: then it is the id of the cluster.
        properties: of Kafka's client. They are never shown.
    Raises:
        UsageError: the address or the properties are wrong, or several clusters are given.
        BadCopyError: the earlier runs are from a log or of another cluster, or all groups are gone and that is not accepted.
        GroupcoordError, WarehouseError: the brokers do not answer, or the warehouse cannot be used.
    """
    if len(request.inputs) > 1:
        raise UsageError(f"{len(request.inputs)} clusters are given, and one run asks one. Several brokers are admin://one:9092,two:9092.")
    progress.begin("ask the brokers")
    with connected(request.inputs[0], properties, "The command config") as cluster:
        answers = cluster.answers()
        # After the offsets: no commit of the run is newer than the sample.
        extents = cluster.log_extents()
    progress.end(rows=len(answers.offsets or ()))
    assert answers.asked_at_ms is not None  # the client always says it
    request = replace(
        request,
        cluster=request.cluster or cluster.cluster_id or DEFAULT_CLUSTER,
        as_of_ms=answers.asked_at_ms[1],
        with_history=False,
        log_ends={place: end for place, (_, end) in extents.items()},
        log_starts={place: start for place, (start, _) in extents.items()},
        log_ends_sampled_at_ms=answers.asked_at_ms[1],
    )
    start = begin_run(warehouse, request.cluster)
    _refuse_bad_run(request, answers, cluster.cluster_id, start)
    count = cluster.partitions.get(OFFSETS_TOPIC) or request.offsets_partitions or KAFKAS_DEFAULT
    rows = rows_of_answers(answers, count)
    rows["warnings"] = list(_warnings(request.inputs[0], answers, start.run_id))
    progress.begin("commit")
    tables = read_beside_the_offsets(request, InputKind.ADMIN, start.run_id).tables
    tables = {**tables, **{name: TABLES[name].from_rows(of_table) for name, of_table in rows.items()}}
    with discarded_on_failure(start):
        files = {name: write_part(start.location.uri, TABLES[name], table, request.cluster, start.run_id) for name, table in tables.items()}
    summary = _summary(request, rows, start.run_id)
    settings = {} if cluster.cluster_id is None else {CLUSTER_ID_SETTING: cluster.cluster_id}
    commit_run(start, run_row(request, summary, {}, settings), files)
    progress.end(rows=sum(file.records for of_table in files.values() for file in of_table))
    return summary


def _refuse_bad_run(request: RunRequest, answers: Answers, cluster_id: str | None, start: RunStart) -> None:
    """Raises BadCopyError for a cluster whose runs are of something else or later, and for one without groups that had some."""
    last_id = last_setting(start, CLUSTER_ID_SETTING)
    last_kind = start.finished[-1].input_kind if start.finished else None
    refusal = refusal_of_origin(request, InputKind.ADMIN, cluster_id, last_kind=last_kind, last_cluster_id=last_id)
    if refusal is not None:
        raise BadCopyError(refusal.sentence)
    last_ms = None if start.last_run is None else start.last_run.as_of_ms
    is_earlier = refusal_of_moment(request, last_ms, "An admin:// run is of the moment of its answers: set the clock of this machine")
    if is_earlier is not None and EARLIER not in request.accepted:
        raise BadCopyError(is_earlier.sentence)
    had_groups = start.last_run is not None and start.last_run.row["groups"][0].as_py()
    if had_groups and not answers.groups and EMPTY not in request.accepted:
        raise BadCopyError(
            f"{answers.source} describes no group, and the last run had {had_groups:,}: the client may not describe groups any more, or"
            " they are gone. Look at its rights, or go on with --accept empty."
        )


def rows_of_answers(answers: Answers, partition_count: int) -> dict[str, list[dict[str, Any]]]:
    """Table -> rows, of the tables of the state. partition_count: number of partitions of ``__consumer_offsets``."""
    topics: dict[str, set[str]] = defaultdict(set)
    numbers: dict[str, dict[str, int]] = {name: defaultdict(int) for name in ("offsets", "pending", "assigned")}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("groups", "members", "assignments", "committed_offsets")}
    for row in answers.offsets or ():
        topics[row["group"]].add(row["topic"])
        numbers["offsets"][row["group"]] += 1
        of_commit = {name: row[name] for name in ("topic", "partition", "leader_epoch", "metadata")}
        rows["committed_offsets"].append({"group_id": row["group"], "committed_offset": row["offset"], **of_commit})
    for row in answers.pending or ():
        numbers["pending"][row["group"]] += 1
    for group in answers.groups or ():
        group_id, members = group["group"], group["members"]
        for member in members:
            # a broker answers "" where there is none
            of_member = {name: None if member.get(part) == "" else member.get(part) for name, part in _MEMBER_COLUMNS.items()}
            rows["members"].append({"group_id": group_id, **of_member})
            for field, kind, task_type in _ASSIGNMENTS:
                for name, of_name in member.get(field) or ():
                    numbers["assigned"][group_id] += len(of_name) if field == "assignment" else 0
                    if group["type"] == "streams":
                        place = {"subtopology": name, "task_type": task_type}
                    else:
                        # The records of a classic group have no ids of topics.
                        place = {"topic": name, "topic_id": None if group["type"] == "classic" else answers.topic_ids.get(name)}
                    of_member = {"group_id": group_id, "member_id": member["member_id"], "kind": kind, **place}
                    rows["assignments"].extend({**of_member, "partition": number} for number in of_name)
        rows["groups"].append(
            {
                "group_id": group_id,
                "group_type": group["type"],
                "is_simple": not group["protocol_type"],
                "state": group["state"],
                "protocol_type": group["protocol_type"] or None,
                "protocol": group["protocol"] or None,
                "generation": group.get("generation"),
                "assignment_epoch": group.get("assignment_epoch"),
                "member_count": len(members),
                "subscribed_topics": _subscribed_topics(group),
                "topic_count": len(topics[group_id]),
                "offset_count": numbers["offsets"][group_id],
                "pending_offset_count": numbers["pending"][group_id],
                "assigned_partition_count": numbers["assigned"][group_id],
            }
        )
    for of_table in rows.values():
        for row in of_table:
            row["offsets_partition"] = offsets_partition_for(row["group_id"], partition_count)
    return rows


_MEMBER_COLUMNS: Final = {
    **{name: name for name in ("member_id", "instance_id", "client_id", "client_host", "rack_id", "subscribed_topics")},
    "member_epoch": "epoch",
    "subscribed_topic_regex": "subscribed_regex",
}
"""Column of the table ``members`` -> field of an answer."""
_ASSIGNMENTS: Final = (
    *(("assignment", "current", "active"), ("target_assignment", "target", "active")),
    *(("standby_tasks", "current", "standby"), ("warmup_tasks", "current", "warmup")),
)
"""(field of an answer, kind, and type of task in a streams group)."""


def _subscribed_topics(group: Mapping[str, Any]) -> list[str] | None:
    """Return the topics that the members subscribe to, or None if a member's are unknown."""
    of_members: list[Any] = [None if member.get("subscribed_regex") else member.get("subscribed_topics") for member in group["members"]]
    if group["protocol_type"] not in ("consumer", "share") or None in of_members:
        return None
    return sorted({topic for topics in of_members for topic in topics})


def _warnings(source: str, answers: Answers, run_id: str) -> Iterator[dict[str, Any]]:
    yield {"run_id": run_id, "source": source, "code": "log_not_read", "detail": LOG_NOT_READ}
    for group_id, why in answers.not_described.items():
        detail = f"No broker describes group {group_id!r} to this client: {why}."
        yield {"run_id": run_id, "source": source, "group_id": group_id, "code": "group_not_described", "detail": detail}


def _summary(request: RunRequest, rows: Mapping[str, list[dict[str, Any]]], run_id: str) -> Summary:
    return Summary(
        run_id=run_id,
        cluster=request.cluster,
        warehouse=request.warehouse,
        as_of_ms=request.as_of_ms,
        retention_ms=request.retention_ms,
        groups=len(rows["groups"]),
        committed_offsets=len(rows["committed_offsets"]),
        warnings=len(rows["warnings"]),
        semantics=request.semantics.name,
        broker_version=request.semantics.broker_version,
        input_kind=InputKind.ADMIN,
        lacks=(LOG,),
    )
