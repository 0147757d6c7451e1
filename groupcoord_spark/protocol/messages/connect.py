"""What Connect workers put into ``subscription`` and ``assignment`` (protocol type ``connect``).

Source: kafka, connect/runtime/.../runtime/distributed/IncrementalCooperativeConnectProtocol.java.
"""

from ..fields import Array, Field, Int16, Int32, Int64, Message, NullableBytes, String, Struct

_SINCE = {0: "0.9, protocol default", 1: "2.3, KIP-415: protocol compatible", 2: "2.4, KIP-507: protocol sessioned, same layout as 1"}


def _connector_tasks(nullable: bool) -> Array:
    return Array(Struct((
        Field("connector", String, "The connector."),
        Field("tasks", Array(Int32), "Its tasks; -1: the connector itself."),
    )), nullable=nullable)


CONNECT_METADATA = Message(
    "ConnectProtocolMetadata", versions=(0, 2),
    since=_SINCE,
    fields=(
        Field("url", String, "Where the worker's REST interface is."),
        Field("config_offset", Int64, "How far it has read the configuration topic."),
        Field("allocation", NullableBytes, "The assignment it holds, with a version of its own; null: none.", versions="1+", default=None),
    ),
)

_ASSIGNMENT_FIELDS = (
    Field("error", Int16, "0 none, 1 the workers' configurations do not match."),
    Field("leader", String, "Member id of the leader."),
    Field("leader_url", String, "Where the leader's REST interface is."),
    Field("config_offset", Int64, "How far the leader had read the configuration topic."),
)

CONNECT_ASSIGNMENT = Message(
    "ConnectProtocolAssignment", versions=(0, 2),
    since=_SINCE,
    fields=(
        *_ASSIGNMENT_FIELDS,
        Field("assignment", _connector_tasks(nullable=False), "What the worker runs.", versions="0"),
        Field("assignment", _connector_tasks(nullable=True), "What the worker runs.", versions="1+", default=None),
        Field("revoked", _connector_tasks(nullable=True), "What it must stop.", versions="1+", default=None),
        Field("delay_ms", Int32, "How long lost tasks stay unassigned.", versions="1+", default=0, json="delay"),
    ),
)
