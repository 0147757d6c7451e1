"""Reads a scenario from YAML. Every key is one that ``language`` declares; anything else is refused with the nearest known word."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol

import yaml

from groupcoord_spark.assignors.group import stand_in_topic_id
from groupcoord_spark.errors import InputError, UsageError
from groupcoord_spark.simulator.client_settings import NEWEST_CLIENT, ClientSettings, defaults_of
from groupcoord_spark.simulator.scenario.language import (
    AFTER_LAST_STEP_MS,
    APPEND_KEYS,
    AT,
    BROKER_KEYS,
    BROKER_SETTINGS,
    FILE_KEYS,
    MEMBER_SETTINGS,
    VERBS,
    Key,
)
from groupcoord_spark.simulator.scenario.requests_by_hand import REQUESTS
from groupcoord_spark.simulator.scenario.values import Kind, mapping_of, names_among, nearest, value_of
from groupcoord_spark.simulator.settings import Settings, Topic, read_settings


@dataclass(frozen=True, slots=True)
class Step:
    """One step: each member in ``who``, or the broker if it is empty, performs ``verb``.

    value: of the verb, where it names no member. options: every option of the verb, those that the file lacks with their defaults.
    """

    at_ms: int
    verb: str
    who: tuple[str, ...]
    value: Any
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario as its file has it. Times of steps and ``until_ms`` are milliseconds since its start, ``start_ms`` since the epoch.

    broker_version: None if the file does not name one.
    """

    title: str
    group_id: str
    topics: Mapping[str, int]
    members: Mapping[str, ClientSettings]
    steps: tuple[Step, ...]
    settings: Settings
    broker_version: str | None
    start_ms: int
    until_ms: int


def shipped_scenarios() -> dict[str, str]:
    """The scenarios that come with this release: name -> text."""
    folder = files("groupcoord_spark.simulator") / "scenarios"
    scenario_files = sorted((file for file in folder.iterdir() if file.name.endswith(".yaml")), key=lambda file: file.name)
    return {file.name.removesuffix(".yaml"): file.read_text("utf-8") for file in scenario_files}


def scenario_text(name: str) -> str:
    """The text of a scenario file, or of the shipped scenario of that name.

    Raises InputError: there is no such file and no shipped scenario of that name, or the file cannot be read.
    """
    path = Path(name)
    if path.is_file():
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise InputError(f"Scenario {name} cannot be read: {e}.") from e
    shipped = shipped_scenarios()
    if name.removesuffix(".yaml") in shipped:
        return shipped[name.removesuffix(".yaml")]
    raise InputError(f"Scenario {name!r} is neither a file nor one of those shipped: {', '.join(shipped)}.")


def find_scenario(name: str) -> Scenario:
    """The scenario in a file, or the shipped scenario of that name.

    Raises:
        InputError: as ``scenario_text``.
        UsageError: the scenario has a mistake.
    """
    return read_scenario(scenario_text(name), name)


def read_scenario(text: str, source: str) -> Scenario:
    """The scenario in a YAML text. Raises UsageError, which names ``source`` and the mistake."""
    try:
        return _read(yaml.safe_load(text))
    except (yaml.YAMLError, RecursionError) as e:
        raise UsageError(f"Scenario {source} is not YAML: {' '.join(str(e).split())}") from e
    except UsageError as e:
        raise UsageError(f"Scenario {source}: {e}") from e


def _read(content: Any) -> Scenario:
    values = _values(FILE_KEYS, content, "the file")
    broker = _values(BROKER_KEYS, values["broker"], "broker")
    settings = _given(BROKER_SETTINGS, broker["settings"], "settings of the broker")
    common = _given(MEMBER_SETTINGS, values["client"], "client")
    members = {name: _member(name, common, {} if own is None else own) for name, own in mapping_of(values["members"], "members").items()}
    steps = _steps(values["steps"], tuple(members))
    last_ms = steps[-1].at_ms
    until_ms = last_ms + AFTER_LAST_STEP_MS if values["until"] is None else values["until"]
    if until_ms < last_ms:
        raise UsageError("until is before the last step.")
    topics = values["topics"]
    broker_settings = read_settings(settings, _topics(topics))
    return Scenario(
        title=values["title"],
        group_id=values["group"],
        topics=topics,
        members=members,
        steps=steps,
        settings=replace(broker_settings, offsets_topic_is_missing=broker["offsets_topic"] is not None),
        broker_version=broker["version"],
        start_ms=values["start"],
        until_ms=until_ms,
    )


def _topics(partitions: Mapping[str, int]) -> Mapping[str, Topic] | None:
    """The topics of the cluster with ids; None: every topic exists."""
    return {name: Topic(number, stand_in_topic_id(name)) for name, number in partitions.items()} if partitions else None


def _member(name: str, common: Mapping[str, Any], own: Any) -> ClientSettings:
    named = {"client.id": name, **common, **_given(MEMBER_SETTINGS, own, f"member {name!r}")}
    settings = {setting.replace(".", "_"): value for setting, value in named.items()}
    try:
        member = ClientSettings(**{**defaults_of(settings.get("client_version", NEWEST_CLIENT)), **settings})
    except UsageError as e:
        raise UsageError(f"`client.version` of member {name!r}: {e}") from e
    if unknown := member.unknown_to_client():
        raise UsageError(f"member {name!r}: {unknown}")
    if member.topics_pattern is not None:
        _check_pattern(name, member)
    return member


def _check_pattern(name: str, member: ClientSettings) -> None:
    if member.topics:
        raise UsageError(f"member {name!r} has both `topics` and `topics.pattern`: a consumer subscribes in one way.")
    try:
        re.compile(member.topics_pattern or "")
    except re.error as e:
        raise UsageError(f"`topics.pattern` of member {name!r} is {member.topics_pattern!r}, not a regular expression: {e}.") from e


def _steps(listed: Any, members: tuple[str, ...]) -> tuple[Step, ...]:
    if not isinstance(listed, list) or not listed:
        raise UsageError("steps are missing: a list such as [{at: 0s, start: a}].")
    steps: list[Step] = []
    for number, given in enumerate(listed, 1):
        step = _step(mapping_of(given, f"step {number}"), f"step {number}", members)
        if steps and step.at_ms < steps[-1].at_ms:
            raise UsageError(f"step {number} is at {given['at']}, before the one above it: put them in the order of their time.")
        steps.append(step)
    return tuple(steps)


def _step(given: Mapping[str, Any], where: str, members: tuple[str, ...]) -> Step:
    verbs = [key for key in given if key in VERBS]
    if not verbs:
        unknown = [key for key in given if key != AT.name]
        raise UsageError(f"{where} has no verb. {nearest(unknown[0] if unknown else '', VERBS)}")
    if len(verbs) > 1:
        raise UsageError(f"{where} has the verbs {' and '.join(verbs)}: make a step of each.")
    verb = VERBS[verbs[0]]
    where = f"{where} ({verb.name})"
    member_names = names_among(members, "name under `members`")
    value = Key(verb.name, verb.kind if verb.kind is not None else member_names, verb.meaning, is_required=True)
    values = _values((AT, value, *verb.options), given, where)
    at_ms, chosen = values.pop(AT.name), values.pop(verb.name)
    if verb.name == "append":
        chosen = _values(APPEND_KEYS, chosen, f"`append` of {where}")
    if verb.name == "send":
        form = REQUESTS[chosen]
        values["with"] = _given(form.fields, values["with"], f"`with` of {where.removesuffix(')')} {chosen})")
        if values["as"] is not None:
            (values["as"],) = value_of(member_names, values["as"], f"`as` of {where}")
    return Step(at_ms, verb.name, chosen if verb.kind is None else (), None if verb.kind is None else chosen, values)


class _Named(Protocol):
    """A Key, or a Field of a request."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def is_required(self) -> bool: ...


def _values(keys: Iterable[Key], given: Any, where: str) -> dict[str, Any]:
    """The value of every key, its default where the file does not have it."""
    keys = tuple(keys)
    return {**{key.name: key.default for key in keys}, **_given(keys, given, where)}


def _given(keys: Iterable[_Named], given: Any, where: str) -> dict[str, Any]:
    """The values of the keys that the file has. Raises UsageError for a key that is not known, is missing or has another kind of value."""
    by_name = {key.name: key for key in keys}
    mapping = mapping_of(given, where)
    for name in mapping:
        if name not in by_name:
            raise UsageError(f"{where} has {name!r}, which means nothing there. {nearest(name, by_name)}")
    for key in by_name.values():
        if key.is_required and key.name not in mapping:
            raise UsageError(f"{where} needs `{key.name}`: {key.kind.words}.")
    return {name: value_of(by_name[name].kind, value, f"`{name}` of {where}") for name, value in mapping.items()}
