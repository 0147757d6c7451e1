"""The probable cause of a generation of a classic group, from its record and the record before.

No record of a classic group has a cause. The members that joined and left are certain. Whether a member left by itself or was expelled is
inferred from the times of the two records and the members' timeouts.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from groupcoord_spark.coordinator.groups.classic import CONSUMER, decoded_or_none
from groupcoord_spark.coordinator.groups.group import Value
from groupcoord_spark.coordinator.rebalances.causes import Confidence, Reason, coordinator_moved, group_of_size, move_sentence, names_of
from groupcoord_spark.coordinator.rebalances.generations import Generation, is_connect
from groupcoord_spark.coordinator.rebalances.group_records import NOT_KNOWN
from groupcoord_spark.coordinator.rebalances.moves import Moves
from groupcoord_spark.protocol import decode_assignment, decode_subscription
from groupcoord_spark.protocol.streams_user_data import RUNNING, decode_streams_assignment, decode_streams_subscription
from groupcoord_spark.wording import counted

STREAMS_ASSIGNOR: Final = "stream"
"""Name of the assignor of Kafka Streams in the classic protocol (StreamsPartitionAssignor)."""
_STREAMS_CLIENT: Final = re.compile(r"-StreamThread-\d+(-consumer)?$")


def cause_of_generation(old: Generation, new: Generation, moves: Moves, new_partitions: Sequence[str], *, was_converted: bool) -> Reason:
    """Return the first cause that the two records support, with its evidence.

    new_partitions: texts for partitions that no member ever had before. was_converted: before ``old`` the group was of another type.
    """
    old_id, new_id = old.value["generation"], new.value["generation"]
    if new_id <= old_id:
        return Reason(
            "coordinator_moved",
            "likely",
            f"The generation went from {old_id} to {new_id}, which no coordinator does:"
            " another one took over that lacked the last records.",
        )
    joined = [member for member_id, member in new.members.items() if member_id not in old.members]
    left = [member for member_id, member in old.members.items() if member_id not in new.members]
    if joined and left:
        return _cause_of_exchange(old, new, joined, left)
    if joined:
        return Reason("member_joined", "certain", f"{names_of(_ids(joined))} joined {group_of_size(len(old.members))}.")
    if left:
        return _cause_of_leaving(old, new, left)
    if not new.members:
        return Reason("member_gone", "likely", "Nobody was left when the join phase ended: the members that had joined left before.")
    return _cause_without_newcomers(old, new, moves, new_partitions, was_converted=was_converted)


def with_circumstances(reason: Reason, old: Generation, new: Generation) -> Reason:
    """Add evidence to the reason: a coordinator change, and missing generations, which lower the confidence."""
    if reason.cause != "coordinator_moved" and coordinator_moved(old.leader_epoch, new.leader_epoch):
        reason = reason._replace(evidence=f"{reason.evidence} {move_sentence(old.leader_epoch, new.leader_epoch)}")
    first, last = old.value["generation"] + 1, new.value["generation"] - 1
    if first > last:
        return reason
    which = f"Generation {first}" if first == last else f"Generations {first} to {last}"
    evidence = f"{reason.evidence} {which} left no record: no assignment was handed in, or the log was compacted."
    return reason._replace(confidence="likely" if reason.confidence == "certain" else reason.confidence, evidence=evidence)


def ranges_of(partitions: Iterable[tuple[str, int]]) -> list[str]:
    """Texts such as ``orders 3 to 5`` for partitions, by topic from the lowest to the highest."""
    first_and_last: dict[str, tuple[int, int]] = {}
    for topic, partition in partitions:
        first, last = first_and_last.get(topic, (partition, partition))
        first_and_last[topic] = min(first, partition), max(last, partition)
    return [
        f"{topic} {first}" if first == last else f"{topic} {first} to {last}" for topic, (first, last) in sorted(first_and_last.items())
    ]


def _cause_of_exchange(old: Generation, new: Generation, joined: Sequence[Value], left: Sequence[Value]) -> Reason:
    both = f"{names_of(_ids(joined))} joined and {names_of(_ids(left))} went in the same generation"
    instances = {member.get("group_instance_id") for member in joined} - {None}
    if all(member.get("group_instance_id") in instances for member in left):
        return Reason("member_restarted", "certain", f"{both}, with the same group.instance.id: static members came back under new ids.")
    clients = [_client(member) for member in joined]
    if len(joined) == len(left) and sorted(clients) == sorted(_client(member) for member in left):
        return Reason("member_restarted", "likely", f"{both}, of the same client ids and hosts.")
    return Reason(
        "member_joined", "possible", f"{both}; which of it came first is not recorded. {_left_or_expelled(old, new, left).evidence}"
    )


def _cause_of_leaving(old: Generation, new: Generation, left: Sequence[Value]) -> Reason:
    reason = _left_or_expelled(old, new, left)
    return reason._replace(evidence=f"{names_of(_ids(left))} went. {reason.evidence}")


def _left_or_expelled(old: Generation, new: Generation, left: Sequence[Value]) -> Reason:
    """Return whether members left or were expelled. The time since all timers restarted can rule out expulsion."""
    since_ms = new.join_ended_ms - old.join_ended_ms
    session_ms = min(int(member["session_timeout_ms"]) for member in left)
    limit_ms = min(session_ms, _least_rebalance_timeout_ms(old, new))
    if 0 <= since_ms < limit_ms:
        which = "session" if limit_ms == session_ms else "rebalance"
        return Reason(
            "member_left",
            "certain" if old.has_join_end and new.has_join_end else "likely",
            f"{_seconds(since_ms)} after its last join, before its {which} timeout of {_seconds(limit_ms)} could pass:"
            " it left, or the group was full.",
        )
    passed = f"{_seconds(since_ms)} passed since its last join, its session timeout is {_seconds(session_ms)}"
    if all(member.get("group_instance_id") is not None for member in left):
        return Reason("member_expelled", "likely", f"Static members do not leave when they close; {passed}.")
    if all(_STREAMS_CLIENT.search(member["client_id"]) for member in left):
        return Reason("member_expelled", "likely", f"Members of Kafka Streams do not leave when they close; {passed}.")
    # Where other members remain, one of them may have started the rebalance, and this member did not join in time.
    confidence: Confidence = "likely" if new.members else "certain"
    return Reason("member_gone", confidence, f"{passed}: whether it left or was expelled is not recorded.")


def _least_rebalance_timeout_ms(old: Generation, new: Generation) -> int:
    """Return the shortest possible length of the join phase: the members' longest rebalance timeout.

    A member may change its timeout when it joins again (3.x): then the shorter of its two timeouts counts.
    """
    timeouts = []
    for member_id, member in old.members.items():
        records_of_member = [record for record in (member, new.members.get(member_id)) if record is not None]
        timeouts.append(min(map(_rebalance_timeout_ms, records_of_member)))
    return max(timeouts)


def _cause_without_newcomers(
    old: Generation, new: Generation, moves: Moves, new_partitions: Sequence[str], *, was_converted: bool
) -> Reason:
    if old.value["protocol"] != new.value["protocol"] or old.value["protocol_type"] != new.value["protocol_type"]:
        return Reason(
            "subscription_changed",
            "certain",
            f"The same members joined with other protocols: {old.value['protocol']} became {new.value['protocol']}.",
        )
    changed = _members_with_other_topics(old, new)
    if changed:
        return Reason("subscription_changed", "certain", f"{names_of(changed)} joined again with another subscription.")
    if was_converted:
        return Reason(
            "group_converted", "likely", "The first generation of the classic group that the group became: its members join again."
        )
    if new_partitions:
        return Reason("partitions_changed", "likely", f"Nobody ever had before: {names_of(new_partitions)}.")
    scheduled = _scheduled_by_streams(old, new)
    if scheduled is not None:
        return scheduled
    if moves.assigned:
        return Reason(
            "follow_up",
            "likely",
            f"Taken from their owners in an earlier generation, and handed on now: {counted(moves.assigned, 'partition')}.",
        )
    if coordinator_moved(old.leader_epoch, new.leader_epoch):
        return Reason(
            "coordinator_moved",
            "likely",
            f"Same members, subscriptions and partitions. {move_sentence(old.leader_epoch, new.leader_epoch)}",
        )
    return Reason(
        "leader_rejoined",
        "likely",
        "Same members, subscriptions and partitions: a leader (in Connect any worker) that joins again leaves no other trace, nor does"
        " a member that changes protocols which are not in use.",
    )


def _scheduled_by_streams(old: Generation, new: Generation) -> Reason | None:
    """Return the rebalance that Kafka Streams scheduled in the previous generation (KIP-441), or None if none was due."""
    if old.value["protocol"] != STREAMS_ASSIGNOR:
        return None
    scheduled: list[tuple[int, str]] = []
    for member_id, member in old.members.items():
        assignment = decoded_or_none(decode_assignment, member["assignment"])
        of_streams = None if assignment is None or not assignment.user_data else decode_streams_assignment(assignment.user_data)
        if of_streams is not None and of_streams.next_rebalance_ms is not None:
            scheduled.append((of_streams.next_rebalance_ms, member_id))
    next_ms, member_id = min(scheduled, default=(new.join_ended_ms + 1, ""))
    if next_ms > new.join_ended_ms:
        return None
    if next_ms == 0:
        return Reason(
            "follow_up",
            "certain",
            f"The assignment of generation {old.value['generation']} told {member_id} to start a rebalance at once, to hand on tasks.",
        )
    late = _seconds(new.join_ended_ms - next_ms)
    return Reason(
        "probing",
        "certain",
        f"The assignment of generation {old.value['generation']} told {member_id} to start a rebalance, to see whether warm-up tasks have"
        f" caught up; the join phase ended {late} after that time.{_restored(old, new)}",
    )


def _restored(old: Generation, new: Generation) -> str:
    """Return a sentence on how far members have restored standby tasks, or '' if no member sent offset sums."""
    old_sums, new_sums = _offset_sums(old), _offset_sums(new)
    tasks = [
        f"{task} of {member_id} {new_sums[member_id, task]:,}"
        + (f" ({old_sums[member_id, task]:,} before)" if (member_id, task) in old_sums else "")
        for member_id, task in new_sums
    ]
    return f" Offsets restored for warm-up and standby tasks: {names_of(tasks)}." if tasks else ""


def _offset_sums(generation: Generation) -> dict[tuple[str, str], int]:
    """Return, by member id and task, the sum of restored changelog offsets."""
    sums: dict[tuple[str, str], int] = {}
    for member_id, member in generation.members.items():
        subscription = decoded_or_none(decode_subscription, member["subscription"])
        of_streams = None if subscription is None or not subscription.user_data else decode_streams_subscription(subscription.user_data)
        for task in () if of_streams is None else of_streams.tasks:
            if task.offset_sum is not None and task.offset_sum != RUNNING:
                sums[member_id, task.name] = task.offset_sum
    return sums


def _members_with_other_topics(old: Generation, new: Generation) -> list[str]:
    return [
        member_id
        for member_id, member in new.members.items()
        if (old_subscription := old.members[member_id]["subscription"]) != (new_subscription := member["subscription"])
        and _has_other_topics(old_subscription, new_subscription, new)
    ]


def _has_other_topics(old_subscription: bytes, new_subscription: bytes, new: Generation) -> bool:
    """Return whether two subscriptions name different topics."""
    if new.value["protocol_type"] != CONSUMER:
        # The subscription of a Connect worker changes with the tasks that it runs, so a difference means nothing.
        return not is_connect(new.value)
    # The owned partitions and the assignor's user data in a subscription change with each generation; only the topics count.
    old_topics, new_topics = _topics(old_subscription), _topics(new_subscription)
    return old_topics is not None and new_topics is not None and old_topics != new_topics


def _topics(subscription: bytes) -> frozenset[str] | None:
    decoded = decoded_or_none(decode_subscription, subscription)
    return None if decoded is None else frozenset(decoded.topics)


def _rebalance_timeout_ms(member: Value) -> int:
    timeout_ms = member.get("rebalance_timeout_ms", NOT_KNOWN)
    return int(member["session_timeout_ms"] if timeout_ms in (NOT_KNOWN, None) else timeout_ms)


def _client(member: Value) -> tuple[str, str]:
    return member["client_id"], member["client_host"]


def _ids(members: Iterable[Value]) -> list[str]:
    return [member["member_id"] for member in members]


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:g} s"
