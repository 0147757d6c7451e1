"""The language of scenario files, declared once: every key, step and option with its kind, its default and its meaning.

The reader (``reading``), the reference page and the JSON schema all come from these declarations.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from groupcoord_spark.assignors import CLIENT_ASSIGNORS, SERVER_ASSIGNORS
from groupcoord_spark.simulator.broker.coordinator_checks import GROUP_OPERATIONS
from groupcoord_spark.simulator.broker.settings import MESSAGE_FORMAT, MIGRATION_POLICIES, MIGRATION_POLICY
from groupcoord_spark.simulator.clients.client_settings import CLASSIC_PROTOCOL, CONSUMER_PROTOCOL, ClientSettings
from groupcoord_spark.simulator.messages import Error
from groupcoord_spark.simulator.scenario.requests_by_hand import REQUESTS
from groupcoord_spark.simulator.scenario.streams_values import GROUP_SETTINGS, TOPOLOGY
from groupcoord_spark.simulator.scenario.values import (
    DURATION,
    FLAG,
    INT,
    INT_FROM_1,
    MOMENT,
    NOTHING,
    PARTITION_COUNT,
    PARTITION_COUNTS,
    POSITIONS,
    SETTING_MS,
    TEXT,
    TEXTS,
    WHOLE,
    Key,
    ValueKind,
    names_among,
    object_schema,
    one_of,
)

AFTER_LAST_STEP_MS: Final = 60_000
START_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
MOVE_MS: Final = 5_000
DAY_MS: Final = 86_400_000
LONGEST_MS: Final = 400 * DAY_MS
"""How long a scenario may go on. A member sends thousands of heartbeats a day, so that a slip of the pen would keep a machine busy."""


@dataclass(frozen=True, slots=True)
class Verb:
    """What happens in a step. kind: the kind of the verb's value; None: the name of a member, or a list of names."""

    name: str
    kind: ValueKind | None
    meaning: str
    options: tuple[Key, ...] = ()


MAPPING: Final = ValueKind("names with values", {"type": "object"}, lambda value: value)
"""A mapping with keys of its own, which ``reading`` reads."""
LIST_OF_STEPS: Final = ValueKind("a list of steps", {"type": "array"}, lambda value: value)


def _setting(name: str, kind: ValueKind, meaning: str) -> Key:
    default = getattr(ClientSettings(), name.replace(".", "_"))
    return Key(name, kind, meaning, default, "" if default is None else shown_setting(kind, default))


def shown_setting(kind: ValueKind, value: Any) -> str:
    """Format the value of a setting as users write it."""
    if kind is SETTING_MS:
        return f"{value / 1000:g} s"
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def _of_members(kind: str, members: str, size: str = "") -> tuple[Key, ...]:
    """Return the broker settings that consumer, share and streams groups have in common."""
    return (
        Key(f"group.{kind}.session.timeout.ms", INT_FROM_1, f"The session timeout of {members}."),
        Key(f"group.{kind}.heartbeat.interval.ms", INT_FROM_1, f"The time between two heartbeats of {members}."),
        Key(f"group.{kind}.max.size", INT_FROM_1, f"The largest number of members of a {kind} group{size}."),
        Key(
            f"group.{kind}.assignment.interval.ms",
            INT,
            f"The time between two target assignments of a {kind} group (since 4.3: 1000, before: 0).",
        ),
    )


MEMBER_SETTINGS: Final = (
    _setting("client.version", TEXT, "The release of the client library, such as 2.8. The defaults of other settings depend on it."),
    _setting("topics", TEXTS, "The topics that the member subscribes to."),
    _setting("topics.pattern", TEXT, "A regular expression instead of `topics`: the member subscribes to the topics that it matches."),
    Key("client.id", TEXT, "The client id.", without="the member's name"),
    _setting("group.instance.id", TEXT, "The instance id of a static member."),
    _setting("client.rack", TEXT, "The rack of the client."),
    _setting(
        "group.protocol",
        one_of(CLASSIC_PROTOCOL, CONSUMER_PROTOCOL),
        "The protocol of the member. With `consumer` (since 4.0) the broker assigns the partitions, and its settings rule the sessions.",
    ),
    _setting("group.remote.assignor", one_of(*SERVER_ASSIGNORS), "The broker's assignor that a member of the new protocol asks for."),
    _setting(
        "partition.assignment.strategy", names_among(tuple(CLIENT_ASSIGNORS), "assignor"), "The assignors, in the order of preference."
    ),
    _setting("session.timeout.ms", SETTING_MS, "How long the broker waits for a heartbeat."),
    _setting("heartbeat.interval.ms", SETTING_MS, "The time between two heartbeats."),
    _setting("max.poll.interval.ms", SETTING_MS, "How long the application may not poll before the member leaves; the rebalance timeout."),
    _setting("retry.backoff.ms", SETTING_MS, "How long the client waits before it repeats a request."),
    _setting("default.api.timeout.ms", SETTING_MS, "How long commitSync repeats a commit."),
    _setting("metadata.max.age.ms", SETTING_MS, "The time after which the client asks again which topics and partitions there are."),
    _setting(
        "connections.max.idle.ms",
        SETTING_MS,
        "How long nothing may go over the connection to the coordinator before the client closes it. The client then looks for the"
        " coordinator again, and the answer to a JoinGroup that waits is lost.",
    ),
    _setting("enable.auto.commit", FLAG, "Whether poll() commits the positions at intervals, and close() and rebalances commit them."),
    _setting("auto.commit.interval.ms", SETTING_MS, "The time between two such commits of poll()."),
    _setting("internal.leave.group.on.close", FLAG, "Whether close() of a dynamic member sends LeaveGroup. Kafka Streams sets false."),
    _setting("interceptor.classes", TEXTS, "Names of interceptors, which hear of every commit that succeeds."),
)
assert len(MEMBER_SETTINGS) == len(fields(ClientSettings))

BROKER_SETTINGS: Final = (
    Key("group.min.session.timeout.ms", INT, "The shortest session timeout of a member."),
    Key("group.max.session.timeout.ms", INT, "The longest session timeout of a member."),
    Key("group.initial.rebalance.delay.ms", INT, "How long the first rebalance of an empty group waits for more members."),
    Key("group.max.size", INT_FROM_1, "The largest number of members."),
    Key("offset.metadata.max.bytes", INT, "The longest metadata of a commit."),
    Key("offsets.retention.minutes", INT_FROM_1, "How long offsets are kept."),
    Key("offsets.retention.check.interval.ms", INT_FROM_1, "The time between two checks of the retention."),
    Key(MESSAGE_FORMAT, TEXT, "The format of the log in brokers before 3.0. A format before 0.11 has no transactions."),
    *_of_members("consumer", "members of the new protocol"),
    Key("group.consumer.regex.refresh.interval.ms", INT_FROM_1, "The time after which regular expressions are resolved again."),
    Key(MIGRATION_POLICY, one_of(*MIGRATION_POLICIES), "Which groups with members may change their protocol.", without="bidirectional"),
    *_of_members("share", "members of share groups", " (default: 200)"),
    *_of_members("streams", "members of streams groups"),
    Key("group.streams.num.standby.replicas", INT, "How many standbys each task with state has (default: 0)."),
    Key("group.streams.initial.rebalance.delay.ms", INT, "How long an empty streams group waits for more members (default: 3000)."),
    Key("offsets.commit.timeout.ms", INT_FROM_1, "How long a request waits for the append of its records."),
    Key("offsets.topic.num.partitions", PARTITION_COUNT, "The number of partitions of `__consumer_offsets`."),
)

BROKER_KEYS: Final = (
    Key("version", TEXT, "The release, if the command line names none."),
    Key("settings", MAPPING, "Settings of the broker, by Kafka's names.", {}),
    Key(
        "offsets_topic",
        one_of("missing"),
        "`missing`: `__consumer_offsets` does not exist at the start. The first FindCoordinator has it created.",
        without="the topic exists",
    ),
)

MEMBER_VERBS: Final = (
    Verb("start", None, "The member starts and joins the group."),
    Verb(
        "close",
        None,
        "The member closes its consumer.",
        (
            Key(
                "leave",
                FLAG,
                "Whether the client sends LeaveGroup, as the options of close() say since 4.1.",
                without="a dynamic member sends LeaveGroup, a static member does not",
            ),
        ),
    ),
    Verb("unsubscribe", None, "The member gives up its subscription and leaves the group. A later `subscribe` joins again."),
    Verb("crash", None, "The member is gone without a word."),
    Verb("freeze", None, "The whole process stands still, heartbeats too.", (Key("for", DURATION, "How long.", is_required=True),)),
    Verb(
        "busy",
        None,
        "The member works on its records and does not poll. Heartbeats go on, until `max.poll.interval.ms` has passed.",
        (Key("for", DURATION, "How long.", is_required=True),),
    ),
    Verb(
        "subscribe",
        None,
        "The member changes its subscription.",
        (Key("topics", TEXTS, "The topics, instead of those before.", is_required=True),),
    ),
    Verb(
        "process",
        None,
        "The member reads records of each of its partitions.",
        (Key("records", WHOLE, "How many of each partition.", 1, "1"),),
    ),
    Verb(
        "commit",
        None,
        "The member commits offsets.",
        (
            Key("mode", one_of("sync", "async"), "commitSync or commitAsync.", "sync", "sync"),
            Key("offsets", POSITIONS, "The offsets.", without="the positions of all its partitions"),
            Key("answer", one_of("lost"), "`lost`: the connection closes after the broker took the request."),
            Key(
                "retry_after",
                DURATION,
                "How long after an error that may pass the application commits the same offsets again.",
                without="it does not commit them again",
            ),
        ),
    ),
    Verb("fetch", None, "The member asks for its committed offsets."),
)

BROKER_VERBS: Final = (
    Verb(
        "send",
        one_of(*REQUESTS),
        "One request by hand: the value is the name of the request.",
        (
            Key("as", TEXT, "The member whose ids are sent; a step before must have started it.", without="a client outside of the group"),
            Key("with", MAPPING, "Fields of the request.", {}),
        ),
    ),
    Verb(
        "move_coordinator",
        NOTHING,
        "The coordinator loses its partition. After half of the time it starts to load the partition again, and at the end of the time it"
        " has loaded the partition.",
        (Key("for", DURATION, "The time from the loss to the end of the load.", MOVE_MS, f"{MOVE_MS / 1000:g} s"),),
    ),
    Verb(
        "append",
        MAPPING,
        "From now on appends to the log take time, or fail. An empty mapping ends both. Who waits for an append, and what a failed one"
        " takes back, depends on the release ([chapter 9.7](coordinator.md#97-appends-that-take-time-and-appends-that-fail)).",
    ),
    Verb(
        "fail_appends",
        one_of(*Error.__members__),
        "Writes to the log fail with the error that the value names, such as NOT_ENOUGH_REPLICAS. NONE ends the failure.",
    ),
    Verb("create_topic", PARTITION_COUNTS, "Topics are created, each with its number of partitions, such as {orders: 4}."),
    Verb(
        "add_partitions",
        PARTITION_COUNTS,
        "Topics get more partitions: the value names the new number. The client that made the assignment of a group notices it when it"
        " asks again for the topics (`metadata.max.age.ms`).",
    ),
    Verb(
        "deny_group",
        names_among(GROUP_OPERATIONS, "operation", f"operations ({', '.join(GROUP_OPERATIONS)})"),
        "The authorizer refuses these operations on groups to every client: GROUP_AUTHORIZATION_FAILED. READ is for members and commits,"
        " DESCRIBE for FindCoordinator, OffsetFetch and DescribeGroups, DELETE for deletions. An empty list ends the refusal.",
    ),
    Verb(
        "deny_topic",
        TEXTS,
        "The authorizer refuses these topics in commits, fetches and deletions of offsets, in topologies of streams applications and in"
        " StreamsGroupDescribe: TOPIC_AUTHORIZATION_FAILED. An empty list ends the refusal.",
    ),
    Verb(
        "configure_group",
        GROUP_SETTINGS,
        "An administrator gives the streams group settings of its own, which take the place of the broker's.",
    ),
    Verb("delete_topic", TEXT, "The topic is deleted, with the offsets that groups have committed for it."),
    Verb("clean_up", NOTHING, "The broker checks the retention of offsets now."),
)

VERBS: Final[Mapping[str, Verb]] = {verb.name: verb for verb in (*MEMBER_VERBS, *BROKER_VERBS)}

APPEND_KEYS: Final = (
    Key("takes", DURATION, "How long an append takes. A request waits for `offsets.commit.timeout.ms` at most.", 0, "no time"),
    Key(
        "fails",
        one_of(*Error.__members__),
        "The error of the append. After NOT_ENOUGH_REPLICAS_AFTER_APPEND and REQUEST_TIMED_OUT the record is in the log nevertheless.",
        Error.NONE.name,
        "the append succeeds",
    ),
)
"""The keys of the value of the verb ``append``."""

AT: Final = Key("at", DURATION, "When, since the start of the scenario.", is_required=True)

FILE_KEYS: Final = (
    Key("title", TEXT, "What the scenario is about.", ""),
    Key("group", TEXT, "The group id.", "group", "group"),
    Key("topics", PARTITION_COUNTS, "Topic -> number of partitions.", {}, "every topic exists"),
    Key(
        "topology",
        TOPOLOGY,
        "The topology of a streams application. `epoch` is 0 without it. Each of its `subtopologies` has `source_topics`,"
        " `source_topic_regex`, `repartition_sink_topics`, `repartition_source_topics`, `state_changelog_topics` (both as names, or with"
        " numbers of partitions) and `copartition_groups` (lists of its sources).",
        without="none: StreamsGroupHeartbeat has to name one to join",
    ),
    Key("client", MAPPING, "Settings of all members, by Kafka's names.", {}),
    Key("members", MAPPING, "Name -> settings of that member. A member's own setting overrides `client`.", {}),
    Key("broker", MAPPING, "The release and the settings of the broker.", {}),
    Key("start", MOMENT, "Start time of the scenario.", START_MS, "2026-01-01T00:00:00Z"),
    Key("steps", LIST_OF_STEPS, "What happens, in the order of time.", is_required=True),
    Key("until", DURATION, "How long the scenario goes on.", without="60 s after the last step"),
)


def json_schema() -> dict[str, Any]:
    """Return the JSON schema (draft 2020-12) of scenario files, for editors."""
    member = object_schema(MEMBER_SETTINGS)
    broker = object_schema(BROKER_KEYS, settings=object_schema(BROKER_SETTINGS))
    steps = {"type": "array", "minItems": 1, "items": {"oneOf": [_step_schema(verb) for verb in VERBS.values()]}}
    members = {"type": "object", "additionalProperties": {"anyOf": [member, {"type": "null"}]}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A scenario of groupcoord simulate",
        **object_schema(FILE_KEYS, client=member, members=members, broker=broker, steps=steps),
    }


def _step_schema(verb: Verb) -> dict[str, Any]:
    who = TEXTS.schema if verb.kind is None else verb.kind.schema
    value = Key(verb.name, ValueKind("", who, lambda value: value), verb.meaning, is_required=True)
    if verb.name == "append":
        return object_schema((AT, value), append=object_schema(APPEND_KEYS))
    if verb.name != "send":
        return object_schema((AT, value, *verb.options))
    of_request = [
        object_schema(
            (AT, Key("send", one_of(name), verb.meaning, is_required=True), *verb.options), **{"with": object_schema(form.fields)}
        )
        for name, form in REQUESTS.items()
    ]
    return {"oneOf": of_request}
