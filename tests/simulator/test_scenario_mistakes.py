"""Scenario files with mistakes: each is refused by one sentence that names the file, the line, the mistake and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from groupcoord_spark.errors import GroupcoordError, UsageError
from groupcoord_spark.simulator import release_for
from groupcoord_spark.simulator.scenario import play, playing, read_scenario, scenario_text
from groupcoord_spark.simulator.scenario.values import described
from groupcoord_spark.simulator.scenario.yaml_text import read_yaml

GOOD = """title: A mistake
group: g
topics: {orders: 4}
members:
  a: {topics: [orders]}
steps:
  - {at: 0s, start: a}
  - {at: 20s, commit: a}
"""

CHANGES = {
    "a misspelt key": ("members:", "membres:", "line 4: the file has 'membres', which means nothing there. Did you mean 'members'?"),
    "a misspelt verb": ("commit: a", "comit: a", "line 8: step 2 has no verb. Did you mean 'commit'?"),
    "a member that is not there": ("commit: a", "commit: b", "line 8: `commit` of step 2 (commit): 'b' is not a name under `members`."),
    "a bad duration": ("at: 20s", "at: 20 sec", "line 8: `at` of step 2 (commit) is '20 sec', not a time such as 500ms, 30s or 5m."),
    "a negative time": ("at: 20s", "at: -5s", "line 8: `at` of step 2 (commit) is '-5s', not a time such as"),
    "a negative number": ("at: 20s", "at: -5", "line 8: `at` of step 2 (commit) is -5, not a time such as"),
    "a time beyond all calendars": ("at: 20s", "at: 99999999999999999999d", "line 8: `at` of step 2 (commit) is"),
    "steps out of order": ("at: 0s", "at: 30s", "line 8: step 2 is at 20s, before the one above it"),
    "a release read as a number": ("group: g", "broker: {version: 4.10}", "line 2: `version` of broker is '4.10', not a release of Kafka."),
    "a release that never was": ("group: g", 'broker: {version: "9.9"}', "line 2: `version` of broker is '9.9', not a release of Kafka."),
    "a client of no release": (
        "topics: [",
        "client.version: no-1, topics: [",
        "line 5: `client.version` of member 'a' is 'no-1', not a rel",
    ),
    "a key twice": ("topics: {", "group: h\ntopics: {", "line 3: 'group' is there already on line 2: keep one of them."),
    "a member twice": ("steps:", "  a: {}\nsteps:", "line 6: 'a' is there already on line 5: keep one of them."),
    "a tab": ("  a: {", "\ta: {", "line 5: a tab stands where YAML wants spaces. Indent with spaces."),
    "a list that is not closed": ("[orders]", "[orders", "line 5: this is not YAML: while parsing a flow sequence: expected ',' or ']'"),
    "steps that are no list": ("  - {at: 0s, start: a}\n  - {at: 20s, commit: a}", "  at: 0s", "line 6: `steps` is not a list of steps."),
    "a setting at the wrong place": (
        "group: g",
        "session.timeout.ms: 10s",
        "line 2: the file has 'session.timeout.ms', which means nothing there. It is a setting of members, and belongs under",
    ),
    "a setting of the broker at a member": (
        "topics: [",
        "group.max.size: 2, topics: [",
        "line 5: member 'a' has 'group.max.size', which means nothing there. It is a setting of the broker",
    ),
    "an option of another verb": (
        "commit: a",
        "commit: a, leave: false",
        "line 8: step 2 (commit) has 'leave', which means nothing there. It",
    ),
    "a field outside of with": ("commit: a", "send: Heartbeat, generation: 1", "line 8: step 2 (send) has 'generation', which means"),
    "a number for a list": ("[orders]", "7", "line 5: `topics` of member 'a' is 7, not a name, or a list of names."),
    "a word for a number": ("orders: 4", "orders: four", "line 3: `topics` of the file: topic 'orders' is 'four', not a number of partit"),
    "no partitions": ("orders: 4", "orders: 0", "line 3: `topics` of the file: topic 'orders' is 0, not a number of partitions, 1 to"),
    "too many partitions": ("orders: 4", "orders: 999999999", "topic 'orders' is 999999999, not a number of partitions, 1 to 100000."),
    "a misspelt topic": (
        "[orders]",
        "[oders]",
        "line 5: member 'a' subscribes to 'oders', which is not among `topics`. Did you mean 'orders'?",
    ),
    "a misspelt field": (
        "commit: a",
        "send: OffsetCommit, with: {offset: {orders-0: 3}}",
        "has 'offset', which means nothing there. Did you m",
    ),
    "a version of the future": (
        "commit: a",
        "send: Heartbeat, with: {version: 99}",
        "`version` of step 2 (send Heartbeat) is 99, and the newest",
    ),
    "a field of a later version": (
        "commit: a",
        "send: JoinGroup, with: {version: 1, group_instance_id: x}",
        "line 8: step 2 (send at 20s): JoinGroup version 1 has no group_instance_id: the field is there since version 5.",
    ),
    "a word for yes": (
        "topics: [",
        'enable.auto.commit: "yes", topics: [',
        "line 5: `enable.auto.commit` of member 'a' is 'yes', not true or f",
    ),
    "a tag": (
        "A mistake",
        "!!python/object/apply:os.system [ls]",
        "line 1: a tag (a word that begins with !) has no meaning in a scenario.",
    ),
    "two documents": ("group: g", "---\ngroup: g", "line 2: a second document begins here (---). A scenario is one document."),
    "a character of no text": ("A mistake", "A\0b", "line 1: the character '\\x00' may not stand in YAML. Remove it."),
    "a day of no month": ("group: g", "start: 2026-13-40", "line 2: '2026-13-40' cannot be read: month must be in 1..12. Put it in quotes"),
    "a scenario of a century": ("group: g", "until: 36500d", "line 2: the scenario goes on for 36500 days, and may for 400."),
    "a member without a name": (
        "  a: {",
        "  ~: {",
        "line 5: members has the key None, which YAML does not read as text. Put it in quotes.",
    ),
    "a start of a member that runs": (
        "commit: a",
        "start: a",
        "line 8: step 2 (start at 20s): member 'a' is running already. Let it `close`",
    ),
    "a step before the start": (
        "0s, start: a",
        "0s, fetch: a",
        "line 7: step 1 (fetch at 0s): member 'a' is not running then. A step before",
    ),
    "a negative offset": (
        "commit: a",
        "commit: a, offsets: {orders-0: -3}",
        "orders-0 is -3: a consumer refuses to commit a negative offset.",
    ),
    "a bad expression": (
        "topics: [orders]",
        'topics.pattern: "("',
        "line 5: `topics.pattern` of member 'a' is '(', not a regular expression",
    ),
    "an expression of Java that RE2 lacks": (
        "topics: [orders]",
        'topics.pattern: "(?!test).*"',
        "line 5: `topics.pattern` of member 'a' is '(?!test).*', not a regular expression that RE2 reads: invalid perl operator: (?!.",
    ),
    "topics with too many partitions in all": (
        "topics: {orders: 4}",
        "topics: {orders: 100000, payments: 1}",
        "line 3: the topics have 100,001 partitions, and those of a scenario may have 100,000 in all.",
    ),
    "a created topic with too many partitions": (
        "commit: a",
        "create_topic: {payments: 100000}",
        "line 8: step 2 (create_topic at 20s): the topics have 100,004 partitions, and those of a scenario may have 100,000 in all.",
    ),
    "a number of 5,000 hexadecimal digits": (
        "commit: a",
        f"commit: a, offsets: {{orders-0: 0x{'f' * 5000}}}",
        "line 8: the number 0xffffffffffffffffff... has 5,002 characters, and a number may have 100. Put it in quotes",
    ),
    "a number of 5,000 digits where a text is expected": (
        "group: g",
        f"group: {'9' * 5000}",
        "line 2: the number 99999999999999999999... has 5,000 characters",
    ),
    "a partition of 5,000 digits": (
        "commit: a",
        f"commit: a, offsets: {{? orders-{'9' * 5000} : 1}}",
        "greatest number of a partition is 2147483647.",
    ),
    "an empty step": ("  - {at: 20s, commit: a}", "  -", "line 8: step 2 is empty, where names with values are expected."),
    "a step with one verb twice": ("commit: a", "commit: a, commit: a", "line 8: 'commit' is there already on line 8"),
    "a slow heartbeat": (
        "topics: [",
        "heartbeat.interval.ms: 60s, topics: [",
        "line 5: member 'a': `heartbeat.interval.ms` is 60000 ms, and has to be less than `session.timeout.ms`, which is 45000 ms.",
    ),
    "a misspelt setting": (
        "group: g",
        "broker: {settings: {group.max.siz: 7}}",
        "line 2: settings of the broker has 'group.max.siz', which means nothing there. Did you mean 'group.max.size'?",
    ),
    "a duration for minutes": (
        "group: g",
        "broker: {settings: {offsets.retention.minutes: 7d}}",
        "line 2: `offsets.retention.minutes` of sett",
    ),
    "a time of nothing": (
        "topics: [",
        "heartbeat.interval.ms: 0, topics: [",
        "line 5: `heartbeat.interval.ms` of member 'a': 0 is not a time that this setting can have: write 1ms to 2147483647ms.",
    ),
    "no partitions of the offsets topic": (
        "group: g",
        "broker: {settings: {offsets.topic.num.partitions: 0}}",
        "line 2: `offsets.topic.num.partitions` of settings of the broker is 0, not a number of partitions, 1 to 100000.",
    ),
    "an offset beyond all numbers": (
        "commit: a",
        "commit: a, offsets: {orders-0: 99999999999999999999}",
        "line 8: `offsets` of step 2 (commit): orders-0: 99999999999999999999 is greater than any number in Kafka",
    ),
    "a commit of a misspelt topic": (
        "commit: a",
        "commit: a, offsets: {order-0: 1}",
        "line 8: step 2 (commit) names 'order', which is not among `topics`. Did you mean 'orders'?",
    ),
    "a request with a misspelt topic": (
        "commit: a",
        "send: OffsetFetch, with: {partitions: {orers: [0]}}",
        "line 8: step 2 (send) names 'orers', which is not among `topics`. Did you mean 'orders'?",
    ),
    "a deletion of a misspelt topic": ("commit: a", "delete_topic: oders", "line 8: step 2 (delete_topic) names 'oders', which is not"),
    "a release before all states": ("group: g", 'broker: {version: "0.8.2"}', "line 2: broker version '0.8.2' cannot be simulated"),
    "an error in small letters": (
        "commit: a",
        "fail_appends: not_enough_replicas",
        "line 8: `fail_appends` of step 2 (fail_appends): 'not_enough_replicas' is not known. Did you mean 'NOT_ENOUGH_REPLICAS'?",
    ),
    "a generation of more than 32 bits": (
        "commit: a",
        "send: Heartbeat, with: {generation: 99999999999}",
        "line 8: `generation` of `with` of step 2 (send Heartbeat): 99999999999 does not fit into the field, which has 32 bits",
    ),
    "a session of a century": (
        "commit: a",
        "send: JoinGroup, with: {session_timeout_ms: 36500d}",
        "line 8: `session_timeout_ms` of `with` of step 2 (send JoinGroup): 3153600000000 does not fit into the field",
    ),
    "a partition beyond all numbers": (
        "commit: a",
        "send: OffsetFetch, with: {partitions: {orders: [99999999999]}}",
        "line 8: `partitions` of `with` of step 2 (send OffsetFetch): a partition of orders is 99999999999, not a whole number, 0 to",
    ),
    "a mapping as a key": ("group: g", "{a: b}: g", "line 2: a mapping or a list is a key here: only a name can be one."),
    "nesting": ("group: g", "group: " + "[" * 50_000, "line 2: mappings and lists are nested deeper than 20: is this a scenario?"),
}

FILES = {
    "an empty file": (b"", ": the file is empty. A scenario has at least `members` and `steps`"),
    "a list": (b"- a\n- b\n", ": the file is ['a', 'b']. A scenario has at least"),
    "a word": (b"hello", ": the file is 'hello'. A scenario has at least"),
    "another encoding": (GOOD.replace("A mistake", "Müller").encode("latin-1"), ", line 1: the byte 0xfc is not UTF-8. Save the file in"),
    "UTF-16": (GOOD.encode("utf-16"), ", line 1: the byte 0xff is not UTF-8."),
    "ten million brackets": (b"[" * 10_000_000, " has 10,000,000 bytes, and a scenario may have 1,000,000. Is it the right file?"),
}


def refusal(path: Path) -> str:
    """Return the sentence when the file is refused."""
    with pytest.raises(GroupcoordError) as refused:
        play(read_scenario(scenario_text(str(path)), str(path)), release_for())
    return str(refused.value)


@pytest.mark.parametrize("name", CHANGES)
def test_a_mistake_is_named_with_its_line(name: str, tmp_path: Path) -> None:
    good, bad, sentence = CHANGES[name]
    assert good in GOOD
    path = tmp_path / "mine.yaml"
    path.write_text(GOOD.replace(good, bad, 1))
    refused = refusal(path)
    assert refused.startswith(f"Scenario {path}, line ") and sentence in refused
    assert "\n" not in refused and len(refused) < 700


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_scenario_is_refused(name: str, tmp_path: Path) -> None:
    data, sentence = FILES[name]
    path = tmp_path / "mine.yaml"
    path.write_bytes(data)
    assert refusal(path).startswith(f"Scenario {path}{sentence}")


ENDLESS = {
    "a heartbeat": ("topics: {t: 1}", "heartbeat.interval.ms: 1ms", "until: 400d"),
    "a check": ("broker: {settings: {offsets.retention.check.interval.ms: 1}}", "", "until: 400d"),
    "a group of many partitions": ("topics: {t: 20000}", "heartbeat.interval.ms: 1ms", "until: 400d"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_scenario_that_has_too_much_to_do_is_refused_while_it_plays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "MOST_WORK", 5_000)
    top, setting, until = ENDLESS[name]
    text = f"{top}\nclient: {{topics: [t], {setting}}}\nmembers: {{a: {{}}}}\nsteps: [{{at: 0s, start: a}}]\n{until}\n"
    with pytest.raises(UsageError, match=r"^Scenario s has more to do than .* 5,000 events, and has come to [0-9.]+ s of 34,560,000.0 s"):
        play(read_scenario(text, "s"), release_for())


def test_a_scenario_of_few_events_with_much_work_each_is_refused_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(playing, "MOST_CPU_S", 0.2)
    heartbeats = [f"{{at: {n}s, send: ShareGroupHeartbeat, with: {{member_id: m{n}, member_epoch: 0, topics: [t]}}}}" for n in range(100)]
    text = f"topics: {{t: 9000}}\nsteps: [{', '.join(heartbeats)}]\nuntil: 200s\n"
    with pytest.raises(UsageError, match=r"^Scenario s.* more to do than a processor does in 0.2 s, and has come to [0-9.]+ s of 200"):
        play(read_scenario(text, "s"), release_for())


def test_the_file_without_a_mistake_plays_also_with_a_byte_order_mark_and_with_yamls_merge_keys(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_bytes(GOOD.encode("utf-8-sig"))
    rows = play(read_scenario(scenario_text(str(path)), str(path)), release_for()).rows
    path.write_text(GOOD.replace("a: {topics: [orders]}", "a: {<<: &all {topics: [orders]}}"))
    assert [row.what for row in play(read_scenario(scenario_text(str(path)), str(path)), release_for()).rows] == [row.what for row in rows]


def test_a_value_of_billions_of_parts_is_shown_in_a_few_words() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 16)]
    length = len(described(read_yaml("\n".join(lines))["a15"]))
    assert length < 700
