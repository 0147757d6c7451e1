"""Heartbeat: restarts the session timeout of a member (docs/reference/coordinator.md, chapter 7; Kafka: ``classicGroupHeartbeat``)."""

from groupcoord_spark.simulator.broker import Broker, coordinator_error
from groupcoord_spark.simulator.broker.rebalance import restart_session
from groupcoord_spark.simulator.groups import ClassicGroup, ConsumerGroup
from groupcoord_spark.simulator.groups.classic_checks import first_error
from groupcoord_spark.simulator.handlers.consumer.classic_members import heartbeat_to_consumer_group
from groupcoord_spark.simulator.messages import Call, Error
from groupcoord_spark.simulator.messages.answers import ErrorAnswer
from groupcoord_spark.simulator.messages.requests import Heartbeat


def heartbeat(broker: Broker, call: Call, request: Heartbeat) -> None:
    """Restart the member's session timeout, and answer whether the member has to join again."""
    broker.answer(call, ErrorAnswer(_heartbeat_error(broker, request)))


def _heartbeat_error(broker: Broker, request: Heartbeat) -> Error:
    error = coordinator_error(broker, request, request.group_id)
    if error is Error.COORDINATOR_LOAD_IN_PROGRESS:
        return Error.NONE  # the broker cannot check the member yet, and answers so that the member does not join again
    if error is not Error.NONE:
        return error
    group = broker.group(request.group_id or "")
    if isinstance(group, ConsumerGroup):
        return heartbeat_to_consumer_group(broker, request, group)
    if not isinstance(group, ClassicGroup):
        return Error.UNKNOWN_MEMBER_ID
    rule = broker.release.heartbeat_rules[group.state]
    error = first_error(rule.checks, group, request)
    if error is not Error.NONE:
        return error
    member = group.members.get(request.member_id)
    if rule.restarts_session and member is not None:
        restart_session(broker, group, member)
    return rule.answer
