"""The language of scenario files: every key is declared once, and a mistake is one sentence that names the place and the nearest word."""

from __future__ import annotations

from dataclasses import fields

import jsonschema
import pytest
import yaml

from groupcoord_spark.errors import UsageError
from groupcoord_spark.simulator import release_for
from groupcoord_spark.simulator.broker.settings import read_settings
from groupcoord_spark.simulator.clients.client_settings import ClientSettings
from groupcoord_spark.simulator.messages.errors import Error
from groupcoord_spark.simulator.messages.requests import JoinGroup, Request
from groupcoord_spark.simulator.scenario import TimelineRow, json_schema, play, read_scenario, shipped_scenarios
from groupcoord_spark.simulator.scenario.as_json import response_json
from groupcoord_spark.simulator.scenario.language import BROKER_SETTINGS, MEMBER_SETTINGS, VERBS
from groupcoord_spark.simulator.scenario.requests_by_hand import REQUESTS, Sender

SCENARIO = """
title: Requests by hand
group: g
topics: {t: 2}
client: {session.timeout.ms: 20s}
members: {a: {topics: [t], partition.assignment.strategy: [sticky, range]}}
broker: {version: "4.3", settings: {group.initial.rebalance.delay.ms: 0}}
start: 2026-01-01T00:00:00Z
steps:
  - {at: 0s, start: a}
  - {at: 10s, send: Heartbeat, as: a, with: {generation: 7}}
  - {at: 11s, send: OffsetCommit, with: {offsets: {t-0: 5}, metadata: note}}
  - {at: 12s, subscribe: a, topics: []}
  - {at: 13s, commit: a, mode: async, retry_after: 1s}
  - {at: 14s, freeze: a, for: 2s}
  - {at: 20s, crash: a}
  - {at: 21s, send: OffsetDelete, with: {partitions: {t: [0]}}}
  - {at: 22s, fail_appends: NOT_ENOUGH_REPLICAS}
  - {at: 23s, move_coordinator: now, for: 4s}
  - {at: 90s, send: OffsetFetch, with: {require_stable: true}}
until: 100s
"""


def refusal(change: tuple[str, str]) -> str:
    """Return the sentence when the changed scenario is refused."""
    assert change[0] in SCENARIO
    with pytest.raises(UsageError) as refused:
        play(read_scenario(SCENARIO.replace(change[0], change[1], 1), "mine.yaml"), release_for())
    return str(refused.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("group: g", "grouop: g"), "the file has 'grouop', which means nothing there. Did you mean 'group'?"),
        (("group: g", "group: {}"), "`group` of the file is {}, not a text."),
        (("group: g", "group: ["), "is not YAML"),
        (("group: g", "7: g"), "the file has the key 7, which YAML does not read as text. Put it in quotes."),
        (("{t: 2}", "{t: two}"), "`topics` of the file: topic 't' is 'two', not a number of partitions, 1 to 100000."),
        (("{t: 2}", "[t]"), "`topics` of the file is ['t'], not topics with their number of partitions, such as {orders: 4}."),
        (
            ("session.timeout.ms", "session.timeout"),
            "client has 'session.timeout', which means nothing there. Did you mean 'session.timeout",
        ),
        (("20s}", "20 seconds}"), "`session.timeout.ms` of client is '20 seconds', not a time such as 500ms, 30s or 5m, and not 0."),
        (("topics: [t],", "topic: [t],"), "member 'a' has 'topic', which means nothing there. Did you mean 'topics'?"),
        (
            ("[sticky, range]", "[stickky]"),
            "`partition.assignment.strategy` of member 'a': 'stickky' is not an assignor. Did you mean 'sticky'?",
        ),
        (
            ('version: "4.3"', 'release: "4.3"'),
            "broker has 'release', which means nothing there. Known are offsets_topic, settings, version.",
        ),
        (
            ("group.initial.rebalance", "initial.rebalance"),
            "settings of the broker has 'initial.rebalance.delay.ms', which means nothing there.",
        ),
        (("delay.ms: 0", "delay.ms: none"), "`group.initial.rebalance.delay.ms` of settings of the broker is 'none', not a whole number"),
        (("start: 2026-01-01T00:00:00Z", "start: tomorrow"), "`start` of the file is 'tomorrow', not a moment such as"),
        (("steps:", "step:"), "the file has 'step', which means nothing there. Did you mean 'steps'?"),
        (("start: a", "strat: a"), "step 1 has no verb. Did you mean 'start'?"),
        (("start: a", "start: b"), "`start` of step 1 (start): 'b' is not a name under `members`. Known are a."),
        (("start: a", "start: a, crash: a"), "step 1 has the verbs start and crash: make a step of each."),
        (("at: 0s, ", ""), "step 1 (start) needs `at`: a time such as 500ms, 30s or 5m."),
        (("at: 10s", "at: ten"), "`at` of step 2 (send) is 'ten', not a time such as 500ms, 30s or 5m."),
        (("as: a", "as: z"), "`as` of step 2 (send): 'z' is not a name under `members`. Known are a."),
        (
            ("generation: 7", "genration: 7"),
            "`with` of step 2 (send Heartbeat) has 'genration', which means nothing there. Did you mean 'gener",
        ),
        (("generation: 7", "states: 3"), "`with` of step 2 (send Heartbeat) has 'states', which means nothing there."),
        (("generation: 7", "generation: seven"), "`generation` of `with` of step 2 (send Heartbeat) is 'seven', not a whole number."),
        (("with: {generation: 7}", "wiht: {generation: 7}"), "step 2 (send) has 'wiht', which means nothing there. Did you mean 'with'?"),
        (("offsets: {t-0: 5}, ", ""), "`with` of step 3 (send OffsetCommit) needs `offsets`: offsets such as {orders-0: 42}."),
        (("t-0: 5", "t: 5"), "write for example {orders-0: 42}, not {t: 5}."),
        (("at: 12s", "at: 1s"), "step 4 is at 1s, before the one above it: put them in the order of their time."),
        (("topics: []}", "topic: []}"), "step 4 (subscribe) has 'topic', which means nothing there. Did you mean 'topics'?"),
        (("mode: async", "mode: asynch"), "`mode` of step 5 (commit): 'asynch' is not known. Did you mean 'async'?"),
        (("freeze: a, for: 2s", "freeze: a"), "step 6 (freeze) needs `for`: a time such as 500ms, 30s or 5m."),
        (("crash: a", "crash: a, for: 2s"), "step 7 (crash) has 'for', which means nothing there. It belongs to the verb `freeze`."),
        (("{t: [0]}", "{t: 0}"), "write for example {orders: [0, 1]}, not {t: 0}."),
        (
            ("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICA"),
            "(fail_appends): 'NOT_ENOUGH_REPLICA' is not known. Did you mean 'NOT_ENOUGH_REPLICAS'?",
        ),
        (("move_coordinator: now", "move_coordinator: b"), "(move_coordinator) is 'b', not empty, true or `now`."),
        (("send: OffsetFetch", "send: OffsetFetsh"), "`send` of step 11 (send): 'OffsetFetsh' is not known. Did you mean 'OffsetFetch'?"),
        (
            ("require_stable: true", "require_stable: 1"),
            "`require_stable` of `with` of step 11 (send OffsetFetch) is 1, not true or false.",
        ),
        (("until: 100s", "until: 9s"), "`until` is before the last step."),
        (
            ("fail_appends: NOT_ENOUGH_REPLICAS", "append: {take: 5s}"),
            "(append) has 'take', which means nothing there. Did you mean 'takes'",
        ),
        (("fail_appends: NOT_ENOUGH_REPLICAS", "append: {takes: long}"), "(append) is 'long', not a time such as 500ms, 30s or 5m."),
        (("fail_appends: NOT_ENOUGH_REPLICAS", "append: slow"), "(append) is 'slow', where names with values are expected."),
        (
            ("{topics: [t], partition", '{topics: [t], topics.pattern: "t.*", partition'),
            "member 'a' has both `topics` and `topics.pattern`: a consumer subscribes in one way.",
        ),
        (("{topics: [t], partition", '{topics.pattern: "(", partition'), "`topics.pattern` of member 'a' is '(', not a regular expression"),
        (("session.timeout.ms: 20s", "client.version: two"), "`client.version` of member 'a' is 'two', not a release"),
        (
            ("session.timeout.ms: 20s", 'client.version: "2.2", group.instance.id: i'),
            "member 'a': client 2.2 does not know group.instance.id: static members came with 2.3.",
        ),
        (("fail_appends: NOT_ENOUGH_REPLICAS", "create_topic: {t: 2}"), "step 9 (create_topic at 22s): topic 't' exists already then."),
        (("fail_appends: NOT_ENOUGH_REPLICAS", "add_partitions: {u: 2}"), "step 9 (add_partitions at 22s): topic 'u' does not exist then."),
        (("fail_appends: NOT_ENOUGH_REPLICAS", "add_partitions: {t: 1}"), "Topic 't' has 2 partitions already: a topic can only get more."),
    ],
)
def test_a_mistake_is_one_sentence_with_the_place_and_the_nearest_word(change: tuple[str, str], sentence: str) -> None:
    refused = refusal(change)
    assert sentence in refused and "\n" not in refused
    assert refused.startswith("Scenario mine.yaml, line ")


def test_the_ids_of_a_member_that_was_not_started_cannot_be_sent() -> None:
    assert refusal(("{at: 0s, start: a}", "{at: 11s, start: a}")).startswith("Scenario mine.yaml, line 11: step 2 is at 10s, before")
    steps = "steps:\n  - {at: 0s, send: Heartbeat, as: a}"
    with pytest.raises(UsageError, match="member 'a' has not been started by then, and has no ids to send"):
        play(read_scenario(SCENARIO.replace("steps:", steps), "mine.yaml"), release_for())


def test_metadata_of_a_commit_by_hand_is_stored() -> None:
    steps = "steps:\n  - {at: 0s, send: OffsetCommit, with: {offsets: {t-0: 5}, metadata: note}}"
    outcome = play(read_scenario(f"group: g\n{steps}", "mine.yaml"), release_for())
    assert [record.value["metadata"] for record in outcome.records if record.key_type == 1 and record.value] == ["note"]


def test_a_transaction_by_hand_hides_its_offset_until_its_end() -> None:
    outcome = play(
        read_scenario(
            """
            group: g
            steps:
              - {at: 0s, send: AddOffsetsToTxn, with: {producer_id: 5}}
              - {at: 1s, send: TxnOffsetCommit, with: {producer_id: 5, offsets: {t-0: 7}}}
              - {at: 2s, send: OffsetFetch, with: {partitions: {t: [0]}, require_stable: true}}
              - {at: 3s, send: EndTxn, with: {producer_id: 5, committed: true}}
              - {at: 4s, send: OffsetFetch, with: {partitions: {t: [0]}, require_stable: true}}
            """,
            "mine.yaml",
        ),
        release_for(),
    )
    answers = [row.answer for row in outcome.rows if row.what.startswith("OffsetFetch")]
    assert answers == ["NONE UNSTABLE_OFFSET_COMMIT", "NONE t-0=7"]


def test_the_version_of_a_request_by_hand_is_sent() -> None:
    answers = {}
    for version in (3, 4):
        steps = f"steps:\n  - {{at: 0s, send: JoinGroup, with: {{version: {version}}}}}"
        outcome = play(read_scenario(f"group: g\n{steps}\nuntil: 10s", "mine.yaml"), release_for())
        answers[version] = next(row.answer for row in outcome.rows if row.what.startswith("JoinGroup"))
    # Since version 4 a new member is first given its member id (KIP-394).
    assert answers == {3: "(waits)", 4: "MEMBER_ID_REQUIRED"}


@pytest.mark.parametrize("name", REQUESTS)
def test_every_request_can_be_made_with_its_required_fields_and_every_field_has_an_effect(name: str) -> None:
    examples = {
        "offsets": {("t", 0): 5},
        "partitions": {"t": (0,)},
        "assignments": {"m": {"t": (0,)}},
        "topics": ("t",),
        "protocols": ("sticky",),
        "states": ("Empty",),
        "types": ("classic",),
        "client_id": "client",
        "member_ids": ("x", "y"),
        "group_instance_ids": ("x", "y"),
        "group_ids": ("x", "y"),
        "committed": True,
        "require_stable": True,
    }
    form = REQUESTS[name]
    values = {field.name: examples.get(field.name, 5 if field.kind.schema.get("type") == "integer" else "x") for field in form.fields}
    required = {field.name: values[field.name] for field in form.fields if field.is_required}
    sender = Sender("g", None)
    for field in form.fields:
        if field.name in ("version", "names"):
            continue
        version = field.until if field.until is not None else 9
        assert isinstance(plain := form.request(sender, required, version), Request) and plain.version == version
        other = False if values[field.name] is True and field.is_required else values[field.name]
        given = {**required, field.name: {("u", 1): 6} if field.name == "offsets" else other}
        assert form.request(sender, given, version) != plain or given == required or field.name in ("producer_id", "partitions"), field.name
        if field.since > 1 and not field.is_required:
            with pytest.raises(UsageError, match=f"version {field.since - 1} has no {field.name}: the field is there (in|since) version"):
                form.request(sender, {**required, field.name: other, "version": field.since - 1}, 9)
            assert form.request(sender, {**required, field.name: other}, field.since - 1).version == field.since - 1


def test_settings_of_members_and_brokers_are_those_that_the_simulator_reads() -> None:
    assert {key.name.replace(".", "_") for key in MEMBER_SETTINGS} == {field.name for field in fields(ClientSettings)}
    for key in BROKER_SETTINGS:
        schema = key.kind.schema
        read_settings({key.name: schema["enum"][0] if "enum" in schema else 5 if schema["type"] == "integer" else "0.10.2"})
    with pytest.raises(UsageError) as refused:
        read_settings({"unknown": 5})
    assert all(key.name in str(refused.value) for key in BROKER_SETTINGS)


def test_the_schema_accepts_shipped_scenarios_and_refuses_what_the_reader_refuses() -> None:
    validator = jsonschema.Draft202012Validator(json_schema())
    validator.check_schema(json_schema())
    for text in (*shipped_scenarios().values(), SCENARIO):
        assert not list(validator.iter_errors(_as_json(text)))
    for change in (("grouop", "group"), ("start: a", "strat: a"), ("generation: 7", "foo: 1"), ("for: 2s", "for: soon")):
        text = SCENARIO.replace(change[0], change[1]) if change[0] in SCENARIO else SCENARIO.replace(change[1], change[0])
        assert list(validator.iter_errors(_as_json(text))), change


def test_a_client_talks_in_the_newest_versions_that_it_and_the_broker_know() -> None:
    steps = "topics: {t: 1}\nclient: {topics: [t]}\nsteps:\n  - {at: 0s, start: a}\nuntil: 10s"
    versions = {}
    for client, broker in (("2.0", "4.3"), ("4.3", "2.8"), ("4.3", "4.3")):
        text = f'group: g\nmembers: {{a: {{client.version: "{client}", partition.assignment.strategy: [range]}}}}\n{steps}'
        rows = play(read_scenario(text, "mine.yaml"), release_for(None, broker)).rows
        versions[client, broker] = {row.request.version for row in rows if isinstance(row.request, JoinGroup)}
    assert versions == {("2.0", "4.3"): {3}, ("4.3", "2.8"): {7}, ("4.3", "4.3"): {9}}


def test_a_client_without_a_version_in_common_with_the_broker_fails_at_its_start() -> None:
    text = 'group: g\nmembers: {a: {client.version: "0.10.2", topics: [t]}}\ntopics: {t: 1}\nsteps:\n  - {at: 0s, start: a}\nuntil: 10s'
    (_, failed) = play(read_scenario(text, "mine.yaml"), release_for(None, "4.0")).rows[:2]
    assert failed.what == "UnsupportedVersionException: JoinGroup, the client knows versions 0 to 1, the broker 2 to 9"


def test_a_version_that_the_release_does_not_know_is_refused() -> None:
    steps = "steps:\n  - {at: 0s, send: OffsetCommit, with: {version: 1, offsets: {t-0: 5}}}"
    answers = {
        release: play(read_scenario(f"group: g\n{steps}", "mine.yaml"), release_for(None, release)).rows[0].answer
        for release in ("2.8", "4.3")
    }
    assert answers == {"2.8": "NONE", "4.3": "UNSUPPORTED_VERSION"}


def test_interceptors_hear_of_commits_that_succeed() -> None:
    steps = "steps:\n  - {at: 0s, start: a}\n  - {at: 10s, commit: a, offsets: {t-0: 5}}\nuntil: 20s"
    text = f"group: g\ntopics: {{t: 1}}\nmembers: {{a: {{topics: [t], interceptor.classes: [Audit]}}}}\n{steps}"
    heard = [row.what for row in play(read_scenario(text, "mine.yaml"), release_for()).rows if row.kind == "application"]
    assert heard[-2:] == ["onCommit(t-0=5) of Audit", "commitSync(t-0=5): done"]


def rows_of(steps: str, broker: str = "4.3", head: str = "") -> list[TimelineRow]:
    """Return the rows of a scenario with these steps."""
    return list(play(read_scenario(f"group: g\n{head}\nsteps:\n{steps}", "mine.yaml"), release_for(None, broker)).rows)


def test_what_a_version_lacks_is_left_out_of_the_request_and_of_the_answer() -> None:
    head = "members: {a: {topics: [t], group.instance.id: i}}\ntopics: {t: 1}"
    steps = "  - {at: 0s, start: a}\n  - {at: 9s, send: DescribeGroups, with: {version: VERSION}}"
    members = []
    for version in (3, 4):
        (row,) = [row for row in rows_of(steps.replace("VERSION", str(version)), head=head) if row.what.startswith("DescribeGroups")]
        described = response_json(row.request, row.response)["groups"][0]["members"][0]
        members.append("group_instance_id" in described)
    assert members == [False, True]
    (old,) = [row for row in rows_of("  - {at: 0s, send: JoinGroup, with: {version: 0}}\n") if row.request][:1]
    assert old.request.rebalance_timeout_ms is None


def test_several_members_leave_in_one_request_from_version_3_on() -> None:
    head = "members: {a: {topics: [t]}, b: {topics: [t]}, c: {topics: [t]}}\ntopics: {t: 1}"
    steps = "  - {at: 0s, start: [a, b, c]}\n  - {at: 9s, send: LeaveGroup, with: {names: [a, b], member_ids: [zz]}}\n"
    (left,) = [row for row in rows_of(steps, head=head) if row.what.startswith("LeaveGroup")]
    assert [member.error.name for member in left.response.members] == ["UNKNOWN_MEMBER_ID", "NONE", "NONE"]
    with pytest.raises(UsageError, match="LeaveGroup version 2 has no names: the field is there since version 3"):
        rows_of(steps.replace("{names", "{version: 2, names"), head=head)


def test_offsets_in_zookeeper_are_not_simulated() -> None:
    with pytest.raises(UsageError, match="OffsetFetch version 0 is about offsets in ZooKeeper"):
        rows_of("  - {at: 0s, send: OffsetFetch, with: {version: 0}}", "2.8")


@pytest.mark.parametrize(
    ("broker", "message_format", "answer"),
    [
        ("0.11", "0.10.2", "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
        ("2.8", "0.10.2", "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
        ("2.8", "2.8", "NONE"),
        ("3.9", "0.10.2", "NONE"),
    ],
)
def test_a_transactional_commit_needs_a_log_with_transactions(broker: str, message_format: str, answer: str) -> None:
    head = f'broker: {{settings: {{log.message.format.version: "{message_format}"}}}}'
    steps = """
  - {at: 0s, send: OffsetCommit, with: {offsets: {t-0: 5}}}
  - {at: 1s, send: TxnOffsetCommit, with: {producer_id: 5, offsets: {t-0: 7}}}"""
    assert [row.answer for row in rows_of(steps, broker, head) if row.request] == ["NONE", answer]


def test_the_offsets_topic_is_created_for_the_first_that_asks_for_its_coordinator() -> None:
    steps = "".join(
        f"  - {{at: {at}, send: {name}}}\n"
        for at, name in (("0s", "FindCoordinator"), ("1ms", "DescribeGroups"), ("1s", "FindCoordinator"))
    )
    rows = rows_of(steps, head="broker: {offsets_topic: missing}")
    assert [row.answer.split()[0] for row in rows if row.request] == ["COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "NONE"]
    assert [row.at_ms for row in rows if row.what == "creation of __consumer_offsets"] == [500]


REFUSED = {
    "READ": [
        "ConsumerGroupHeartbeat",
        "ShareGroupHeartbeat",
        "StreamsGroupHeartbeat",
        "JoinGroup",
        "SyncGroup",
        "Heartbeat",
        "LeaveGroup",
        "OffsetCommit",
        "TxnOffsetCommit",
        "AddOffsetsToTxn",
    ],
    "DESCRIBE": ["ConsumerGroupDescribe", "ShareGroupDescribe", "StreamsGroupDescribe", "FindCoordinator", "OffsetFetch", "DescribeGroups"],
    "DELETE": ["DeleteGroups", "OffsetDelete"],
}


@pytest.mark.parametrize("operation", REFUSED)
def test_what_the_authorizer_refuses_never_reaches_the_coordinator(operation: str) -> None:
    fields_of = {
        "offsets": "{t-0: 1}",
        "partitions": "{t: [0]}",
        "producer_id": "5",
        "committed": "true",
        "member_id": "a",
        "member_epoch": "0",
    }
    lines = [f"  - {{at: 0s, deny_group: {operation}}}"]
    for name, form in REQUESTS.items():
        required = ", ".join(f"{field.name}: {fields_of[field.name]}" for field in form.fields if field.is_required)
        lines.append(f"  - {{at: 1s, send: {name}, with: {{{required}}}}}")
    refused = [type(row.request).__name__ for row in rows_of("\n".join(lines)) if row.answer and "GROUP_AUTHORIZATION_FAILED" in row.answer]
    assert sorted(refused) == sorted(REFUSED[operation])


def test_a_refused_topic_is_refused_alone() -> None:
    steps = """
  - {at: 0s, send: OffsetCommit, with: {offsets: {t-0: 5, u-0: 5}}}
  - {at: 1s, deny_topic: t}
  - {at: 2s, send: OffsetCommit, with: {offsets: {t-0: 6, u-0: 6}}}
  - {at: 3s, send: OffsetFetch, with: {partitions: {t: [0], u: [0]}}}
  - {at: 4s, deny_topic: []}
  - {at: 5s, send: OffsetFetch}"""
    answers = [row.answer for row in rows_of(steps) if row.request]
    assert answers == ["NONE", "TOPIC_AUTHORIZATION_FAILED NONE", "NONE TOPIC_AUTHORIZATION_FAILED u-0=6", "NONE t-0=5 u-0=6"]


def test_a_late_marker_ends_the_transaction_in_one_partition() -> None:
    steps = """
  - {at: 0s, send: TxnOffsetCommit, with: {producer_id: 5, offsets: {t-0: 5}}}
  - {at: 1s, send: WriteTxnMarkers, with: {producer_id: 5, committed: true}}
  - {at: 2s, send: OffsetFetch}"""
    rows = rows_of(steps)
    assert [record.control for record in rows[1].records] == ["COMMIT"] and rows[2].answer == "NONE t-0=5"


def test_every_verb_has_a_meaning_and_plays() -> None:
    assert all(verb.meaning.endswith(".") for verb in VERBS.values())
    outcome = play(read_scenario(SCENARIO, "mine.yaml"), release_for())
    commits = [call for call in outcome.rows if call.what.startswith("OffsetCommit") and call.who == "admin"]
    assert [row.answer for row in commits] == [Error.UNKNOWN_MEMBER_ID.name]


def _as_json(text: str) -> object:
    """Return the scenario with its moments as texts, as a JSON file would have them."""
    content = yaml.safe_load(text)
    if "start" in content:
        content["start"] = "2026-01-01T00:00:00Z"
    return content
