"""Read a scenario from YAML. Keys must be declared in ``language``; anything else is rejected with the nearest known word."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from groupcoord_spark.assignors.group import stand_in_topic_id
from groupcoord_spark.coordinator.releases import release_named
from groupcoord_spark.errors import InputError, UsageError
from groupcoord_spark.simulator.broker.release import release_for
from groupcoord_spark.simulator.broker.settings import ClusterTopic, Settings, read_settings
from groupcoord_spark.simulator.clients.client_settings import (
    CLASSIC_PROTOCOL,
    CONSUMER_PROTOCOL,
    NEWEST_CLIENT,
    ClientSettings,
    defaults_of,
)
from groupcoord_spark.simulator.messages.re2j import InvalidExpressionError, parsed
from groupcoord_spark.simulator.messages.request_versions import newest_version
from groupcoord_spark.simulator.messages.requests import Topology
from groupcoord_spark.simulator.scenario import language
from groupcoord_spark.simulator.scenario.requests_by_hand import REQUESTS, RequestField
from groupcoord_spark.simulator.scenario.values import (
    MOST_PARTITIONS,
    Key,
    described,
    mapping_of,
    names_among,
    nearest_word,
    value_of,
    values_in,
)
from groupcoord_spark.simulator.scenario.yaml_text import LARGEST_BYTES, MistakeError, at_line, line_of, read_yaml


@dataclass(frozen=True, slots=True)
class ScenarioStep:
    """One step: each member in ``who``, or the broker if it is empty, performs ``verb``.

    value: of the verb, where it names no member. options: every option of the verb, those that the file lacks with their defaults.
    number: its place among the steps, from 1. line: its line in the file.
    """

    at_ms: int
    verb: str
    who: tuple[str, ...]
    value: Any
    options: Mapping[str, Any]
    number: int
    line: int | None


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario as its file has it. Times of steps and ``until_ms`` are milliseconds since its start, ``start_ms`` since the epoch.

    topology: what members of a streams group send when they join.
    broker_version: None if the file does not name one. source: the name of the file.
    """

    title: str
    group_id: str
    topics: Mapping[str, int]
    members: Mapping[str, ClientSettings]
    steps: tuple[ScenarioStep, ...]
    settings: Settings
    broker_version: str | None
    topology: Topology | None
    start_ms: int
    until_ms: int
    source: str

    def mistake(self, step: ScenarioStep, sentence: str) -> UsageError:
        """Return the error for a mistake in a step that shows only while the scenario runs."""
        return _refusal(self.source, step.line, f"step {step.number} ({step.verb} at {step.at_ms / 1000:g}s): {sentence}")


def shipped_scenarios() -> dict[str, str]:
    """Return the scenarios shipped with this release: name -> text."""
    folder = files("groupcoord_spark.simulator") / "scenarios"
    scenario_files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): file.read_text("utf-8") for file in scenario_files}


def scenario_text(name: str) -> str:
    """Return the text of a scenario file, or of the shipped scenario with that name.

    Raises InputError: there is no such file and no shipped scenario of that name, or the file cannot be read.
    """
    path = Path(name)
    if path.is_file():
        return _file_text(path, name)
    shipped = shipped_scenarios()
    if name.removesuffix(".yaml") in shipped:
        return shipped[name.removesuffix(".yaml")]
    raise InputError(f"Scenario {name!r} is neither a file nor one of those shipped. {nearest_word(name.removesuffix('.yaml'), shipped)}")


def _file_text(path: Path, name: str) -> str:
    try:
        size = path.stat().st_size
        # YAML needs a byte order mark no more than the reader does. A size is looked at first, because the file may be anything.
        data = path.read_bytes() if size <= LARGEST_BYTES else b""
    except OSError as e:
        raise InputError(f"Scenario {name} cannot be read: {e.strerror}.") from e
    if size > LARGEST_BYTES:
        raise InputError(f"Scenario {name} has {size:,} bytes, and a scenario may have {LARGEST_BYTES:,}. Is it the right file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = data.count(b"\n", 0, e.start) + 1
        sentence = f"the byte 0x{data[e.start]:02x} is not UTF-8. Save the file in the encoding UTF-8."
        raise InputError(f"Scenario {name}, line {line}: {sentence}") from e


def read_scenario(text: str, source: str) -> Scenario:
    """Parse a scenario from YAML. Raises UsageError with ``source``, the line and the mistake."""
    try:
        return _read(read_yaml(text), source)
    except MistakeError as e:
        raise _refusal(source, e.line, str(e)) from e
    except UsageError as e:
        raise _refusal(source, None, str(e)) from e


def _refusal(source: str, line: int | None, sentence: str) -> UsageError:
    return UsageError(f"Scenario {source}{'' if line is None else f', line {line}'}: {sentence}")


def _read(content: Any, source: str) -> Scenario:
    if not isinstance(content, dict):
        what = "the file is empty" if content is None else f"the file is {described(content)}"
        raise UsageError(
            f"{what}. A scenario has at least `members` and `steps`: `groupcoord simulate a-member-joins --explain` shows one."
        )
    values = _values_with_defaults(language.FILE_KEYS, content, "the file")
    broker = _values_with_defaults(language.BROKER_KEYS, values["broker"], "broker")
    settings = _values_of(language.BROKER_SETTINGS, broker["settings"], "settings of the broker")
    common = _values_of(language.MEMBER_SETTINGS, values["client"], "client")
    members = {}
    with at_line(line_of(content, "members")):
        named = mapping_of(values["members"], "members")
    for name, own in named.items():
        with at_line(line_of(values["members"], name)):
            members[name] = _member(name, common, {} if own is None else own)
    with at_line(line_of(content, "steps")):
        steps = _steps(values["steps"], tuple(members))
    last_ms = steps[-1].at_ms
    until_ms = last_ms + language.AFTER_LAST_STEP_MS if values["until"] is None else values["until"]
    if until_ms < last_ms:
        raise MistakeError("`until` is before the last step.", line_of(content, "until"))
    if until_ms > language.LONGEST_MS:
        raise MistakeError(
            f"the scenario goes on for {until_ms // language.DAY_MS} days, and may for {language.LONGEST_MS // language.DAY_MS}.",
            line_of(content, "until"),
        )
    topics = values["topics"]
    if too_many := too_many_partitions(topics):
        raise MistakeError(too_many, line_of(content, "topics"))
    _check_topics(topics, members, steps, content)
    broker_settings = read_settings(settings, _topics(topics))
    return Scenario(
        title=values["title"],
        group_id=values["group"],
        topics=topics,
        members=members,
        steps=steps,
        settings=replace(broker_settings, offsets_topic_is_missing=broker["offsets_topic"] is not None),
        broker_version=_broker_version(broker["version"], values["broker"]),
        topology=values["topology"],
        start_ms=values["start"],
        until_ms=until_ms,
        source=source,
    )


def _broker_version(version: str | None, broker: Mapping[str, Any]) -> str | None:
    with at_line(line_of(broker, "version")):
        if version is not None:
            try:
                release_named(version)
            except UsageError as e:
                raise UsageError(f"`version` of broker is {version!r}, not a release of Kafka. Write for example 4.3 or 0.10.2.") from e
            release_for(None, version)
    return version


def too_many_partitions(topics: Mapping[str, int]) -> str | None:
    """Return the error sentence if topics have more partitions than a scenario allows, else None."""
    partitions = sum(topics.values())
    if partitions <= MOST_PARTITIONS:
        return None
    return f"the topics have {partitions:,} partitions, and those of a scenario may have {MOST_PARTITIONS:,} in all."


def _check_topics(topics: Mapping[str, int], members: Mapping[str, ClientSettings], steps: Iterable[ScenarioStep], content: Any) -> None:
    """Reject an unknown topic whose name is close to an existing topic's name, since it is probably a typo."""
    steps = tuple(steps)
    existing = {*topics, *(topic for step in steps if step.verb == "create_topic" for topic in step.value)}
    if not topics:
        return
    for name, member in members.items():
        for topic in member.topics:
            if advice := _near_topic(topic, existing):
                line = line_of(content.get("members"), name)
                raise MistakeError(f"member {name!r} subscribes to {topic!r}, which is not among `topics`. {advice}", line)
    for step in steps:
        for topic in _topics_of(step):
            if advice := _near_topic(topic, existing):
                raise MistakeError(f"step {step.number} ({step.verb}) names {topic!r}, which is not among `topics`. {advice}", step.line)


def _near_topic(topic: str, existing: Iterable[str]) -> str:
    """Return the hint for a topic that is close to an existing topic; "" if it exists or no topic is close."""
    existing = frozenset(existing)
    advice = "" if topic in existing else nearest_word(topic, existing)
    return advice if advice.startswith("Did") else ""


def _topics_of(step: ScenarioStep) -> Iterator[str]:
    """Return the topics that a step names."""
    fields = {**step.options, **(step.options.get("with") or {})}
    for name in ("topics", "partitions"):
        yield from fields.get(name) or ()
    for partition in fields.get("offsets") or ():
        yield partition.topic
    if step.verb == "delete_topic":
        yield step.value
    elif step.verb == "add_partitions":
        yield from step.value


def _topics(partitions: Mapping[str, int]) -> Mapping[str, ClusterTopic] | None:
    """Return the topics of the cluster with ids, or None if every topic exists."""
    return {name: ClusterTopic(number, stand_in_topic_id(name)) for name, number in partitions.items()} if partitions else None


def _member(name: str, common: Mapping[str, Any], own: Any) -> ClientSettings:
    named = {"client.id": name, **common, **_values_of(language.MEMBER_SETTINGS, own, f"member {name!r}")}
    settings = {setting.replace(".", "_"): value for setting, value in named.items()}
    try:
        member = ClientSettings(**{**defaults_of(settings.get("client_version", NEWEST_CLIENT)), **settings})
    except UsageError as e:
        version = settings.get("client_version")
        raise UsageError(
            f"`client.version` of member {name!r} is {version!r}, not a release of Kafka. Write for example 4.3 or 0.10.2."
        ) from e
    if member.group_protocol == CLASSIC_PROTOCOL and member.heartbeat_interval_ms >= member.session_timeout_ms:
        raise UsageError(
            f"member {name!r}: `heartbeat.interval.ms` is {member.heartbeat_interval_ms} ms, and has to be less than"
            f" `session.timeout.ms`, which is {member.session_timeout_ms} ms."
        )
    if unknown := member.unknown_to_client():
        raise UsageError(f"member {name!r}: {unknown}")
    if member.topics_pattern is not None:
        _check_pattern(name, member)
    return member


def _check_pattern(name: str, member: ClientSettings) -> None:
    if member.topics:
        raise UsageError(f"member {name!r} has both `topics` and `topics.pattern`: a consumer subscribes in one way.")
    if member.group_protocol == CONSUMER_PROTOCOL:
        return  # the broker parses the expression and rejects an invalid one
    try:
        parsed(member.topics_pattern or "")
    except InvalidExpressionError as e:
        raise UsageError(
            f"`topics.pattern` of member {name!r} is {member.topics_pattern!r}, not a regular expression that RE2 reads: {e}."
        ) from e


def _steps(listed: Any, members: tuple[str, ...]) -> tuple[ScenarioStep, ...]:
    if not isinstance(listed, list) or not listed:
        raise UsageError("`steps` is not a list of steps. Begin each step with a dash, for example `- {at: 0s, start: a}`.")
    steps: list[ScenarioStep] = []
    for number, written in enumerate(listed, 1):
        line = line_of(listed, number - 1)
        with at_line(line):
            step = _step(mapping_of(written, f"step {number}"), number, line, members)
            if steps and step.at_ms < steps[-1].at_ms:
                raise UsageError(f"step {number} is at {written['at']}, before the one above it: put them in the order of their time.")
        steps.append(step)
    return tuple(steps)


def _step(written: Mapping[str, Any], number: int, line: int | None, members: tuple[str, ...]) -> ScenarioStep:
    where = f"step {number}"
    verbs = [key for key in written if key in language.VERBS]
    if not verbs:
        unknown = [key for key in written if key != language.AT.name]
        raise UsageError(f"{where} has no verb. {nearest_word(unknown[0] if unknown else '', language.VERBS)}")
    if len(verbs) > 1:
        raise UsageError(f"{where} has the verbs {' and '.join(verbs)}: make a step of each.")
    verb = language.VERBS[verbs[0]]
    where = f"{where} ({verb.name})"
    member_names = names_among(members, "name under `members`")
    value = Key(verb.name, verb.kind if verb.kind is not None else member_names, verb.meaning, is_required=True)
    values = _values_with_defaults((language.AT, value, *verb.options), written, where)
    at_ms, chosen = values.pop(language.AT.name), values.pop(verb.name)
    if verb.name == "append":
        chosen = _values_with_defaults(language.APPEND_KEYS, chosen, f"`append` of {where}")
    if verb.name == "send":
        form = REQUESTS[chosen]
        values["with"] = _values_of(form.fields, values["with"], f"`with` of {where.removesuffix(')')} {chosen})")
        newest = newest_version(form.kind)
        if values["with"].get("version", 0) > newest:
            raise UsageError(
                f"`version` of {where.removesuffix(')')} {chosen}) is {values['with']['version']}, and the newest is {newest}."
            )
        if values["as"] is not None:
            (values["as"],) = value_of(member_names, values["as"], f"`as` of {where}")
    return ScenarioStep(at_ms, verb.name, chosen if verb.kind is None else (), None if verb.kind is None else chosen, values, number, line)


def _values_with_defaults(keys: Iterable[Key], written: Any, where: str) -> dict[str, Any]:
    """Return the value of every key, with defaults for keys that the file does not have."""
    keys = tuple(keys)
    return {**{key.name: key.default for key in keys}, **_values_of(keys, written, where)}


def _advice(name: str, vocabulary: Iterable[str]) -> str:
    """Return the nearest valid word here, the place where the word is valid, or all words that are valid here."""
    advice = nearest_word(name, vocabulary)
    return _HOME_OF_KEYS.get(name, advice) if advice.startswith("Known") else advice


_values_of: Final = partial(values_in, advice=_advice)

_HOMES: Final[tuple[tuple[Iterable[Key | RequestField | language.Verb], str], ...]] = (
    *((verb.options, f"It belongs to the verb `{verb.name}`.") for verb in reversed(tuple(language.VERBS.values()))),
    *((form.fields, "It is a field of a request, and belongs under `with`.") for form in REQUESTS.values()),
    (language.BROKER_SETTINGS, "It is a setting of the broker, and belongs under `settings` of `broker`."),
    (language.MEMBER_SETTINGS, "It is a setting of members, and belongs under `client` or under a name of `members`."),
    (language.BROKER_KEYS, "It belongs under `broker`."),
    (tuple(language.VERBS.values()), "It is a verb, and belongs into an element of `steps`."),
    (language.FILE_KEYS, "It belongs to the file itself, with no space before it."),
)
"""The keys of a place in the file, and the sentence that names the place. Of several places of a key the last one counts."""
_HOME_OF_KEYS: Final = {key.name: sentence for keys, sentence in _HOMES for key in keys}
