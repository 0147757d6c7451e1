"""The kinds of values in a scenario file: how a value is read, how the reference describes it, and its JSON schema."""

import difflib
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from groupcoord_spark.assignors import TopicPartition
from groupcoord_spark.errors import UsageError
from groupcoord_spark.moments import read_duration
from groupcoord_spark.simulator.scenario.yaml_text import MOST_DIGITS, MistakeError, at_line, line_of

NAMES_AND_VALUES: Final = "names with values"


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of values.

    words: the kind in a few words, for the reference and for errors. schema: its JSON schema. read: turns a value from the YAML file into
    the value that the simulator uses, and raises ValueError for a value of another kind.
    """

    words: str
    schema: Mapping[str, Any]
    read: Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Key:
    """A key of a mapping in a scenario file.

    meaning: a sentence for the reference. default: the value without the key. without: the default in words, for the reference; "" without
    words.
    """

    name: str
    kind: ValueKind
    meaning: str = ""
    default: Any = None
    without: str = ""
    is_required: bool = False


class Named(Protocol):
    """A Key, or a Field of a request."""

    @property
    def name(self) -> str: ...
    @property
    def kind(self) -> ValueKind: ...
    @property
    def is_required(self) -> bool: ...


def values_in(keys: Iterable[Named], written: Any, where: str, advice: Callable[[str, Iterable[str]], str] | None = None) -> dict[str, Any]:
    """Return the values of the keys in the file. Raises UsageError for a key that is unknown, missing or has a value of the wrong type.

    advice: makes the sentence about a key that is not known, from it and the keys that are; None: ``nearest_word``.
    """
    by_name = {key.name: key for key in keys}
    mapping = mapping_of(written, where)
    for name in mapping:
        if name not in by_name:
            sentence = f"{where} has {name!r}, which means nothing there. {(advice or nearest_word)(name, by_name)}"
            raise MistakeError(sentence, line_of(mapping, name))
    for key in by_name.values():
        if key.is_required and key.name not in mapping:
            raise UsageError(f"{where} needs `{key.name}`: {key.kind.words}.")
    values = {}
    for name, value in mapping.items():
        with at_line(line_of(mapping, name)):
            values[name] = value_of(by_name[name].kind, value, f"`{name}` of {where}")
    return values


def object_schema(keys: Iterable[Named], **schemas: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema of a mapping with these keys, including the schemas of nested values."""
    keys = tuple(keys)
    properties = {key.name: dict(schemas.get(key.name, key.kind.schema)) for key in keys}
    for key in keys:
        if isinstance(key, Key) and key.meaning:
            properties[key.name]["description"] = key.meaning
    required = [key.name for key in keys if key.is_required]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def value_of(kind: ValueKind, value: Any, where: str) -> Any:
    """Convert a value for the simulator. Raises UsageError with the type expected at ``where``."""
    try:
        return kind.read(value)
    except MistakeError:
        raise
    except UsageError as e:
        raise UsageError(f"{where}: {e}") from e
    except ValueError as e:
        raise UsageError(f"{where} is {described(value)}, not {kind.words}.") from e


class _Short(reprlib.Repr):
    """Shows a few elements of each mapping and list, three levels deep: with YAML's aliases a small file can stand for billions."""

    repr_PlacedMapping = reprlib.Repr.repr_dict  # noqa: N815 - Repr finds a method by the name of the type
    repr_PlacedList = reprlib.Repr.repr_list  # noqa: N815

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxdict, self.maxlist, self.maxstring, self.maxother = 3, 4, 4, 80, 80


def described(value: Any) -> str:
    """Format a value for a sentence: ``empty``, or its text, shortened if it is long."""
    return "empty" if value is None else _Short().repr(value)


def nearest_word(word: str, vocabulary: Iterable[str]) -> str:
    """Return a sentence with the word of the vocabulary nearest to ``word``, or with the whole vocabulary if none is close."""
    words = sorted(vocabulary)
    by_lower_case = {candidate.lower(): candidate for candidate in words}
    near = difflib.get_close_matches(word.lower(), by_lower_case, 1, 0.6)
    return f"Did you mean {by_lower_case[near[0]]!r}?" if near else f"Known are {', '.join(words)}."


def mapping_of(value: Any, where: str) -> Mapping[str, Any]:
    """Return the value if it is a mapping with string keys. Raises UsageError otherwise."""
    if not isinstance(value, dict):
        raise UsageError(f"{where} is {described(value)}, where {NAMES_AND_VALUES} are expected.")
    if not_text := [key for key in value if not isinstance(key, str)]:
        sentence = f"{where} has the key {not_text[0]!r}, which YAML does not read as text. Put it in quotes."
        raise MistakeError(sentence, line_of(value, not_text[0]))
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError
    return str(value)


def _whole(value: Any) -> int:
    if _integer(value) < 0:
        raise ValueError
    return int(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError
    if abs(value) > LARGEST_LONG:
        raise UsageError(f"{value} is greater than any number in Kafka: write at most {LARGEST_LONG}.")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _milliseconds(value: Any) -> int:
    if not isinstance(value, str):
        return _whole(value)
    try:
        return read_duration(value)
    except UsageError as e:
        raise ValueError from e


def _int32(value: Any) -> int:
    if not -LARGEST_INT - 1 <= _integer(value) <= LARGEST_INT:
        raise UsageError(f"{value} does not fit into the field, which has 32 bits: write at most {LARGEST_INT}.")
    return int(value)


def _setting_ms(value: Any) -> int:
    milliseconds = _milliseconds(value)
    if not 1 <= milliseconds <= LARGEST_INT:
        raise UsageError(f"{value} is not a time that this setting can have: write 1ms to {LARGEST_INT}ms.")
    return milliseconds


def _count_of(least: int, most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if not least <= _integer(value) <= most:
            raise ValueError
        return int(value)

    return read


def _moment(value: Any) -> int:
    # YAML knows moments; a moment without an offset is UTC, as everywhere.
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(_text(value))
    return int((moment if moment.tzinfo else datetime.fromisoformat(f"{moment.isoformat()}+00:00")).timestamp() * 1000)


def _texts(value: Any) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise ValueError
    return tuple(listed)


def _nothing(value: Any) -> None:
    if value not in (None, True, "now"):
        raise ValueError


def _offsets(value: Any) -> Mapping[TopicPartition, int]:
    offsets: dict[TopicPartition, int] = {}
    for name, offset in _names_and_values(value).items():
        topic, _, partition = name.rpartition("-")
        if not topic or not partition.isdecimal() or isinstance(offset, bool) or not isinstance(offset, int):
            raise UsageError(f"write for example {{orders-0: 42}}, not {{{name}: {offset}}}.")
        if len(partition) > MOST_DIGITS or int(partition) > LARGEST_INT:
            shown, number = name[:MOST_DIGITS], partition[:MOST_DIGITS]
            raise UsageError(f"{shown} names partition {number}, and the greatest number of a partition is {LARGEST_INT}.")
        value_of(INTEGER, offset, name)
        offsets[TopicPartition(topic, int(partition))] = offset
    return offsets


def _positions(value: Any) -> Mapping[TopicPartition, int]:
    offsets = _offsets(value)
    for (topic, partition), offset in offsets.items():
        if offset < 0:
            raise UsageError(f"{topic}-{partition} is {offset}: a consumer refuses to commit a negative offset.")
    return offsets


def _partitions(value: Any) -> Mapping[str, tuple[int, ...]]:
    partitions = {}
    for topic, numbers in _names_and_values(value).items():
        if not isinstance(numbers, list):
            raise UsageError(f"write for example {{orders: [0, 1]}}, not {{{topic}: {numbers!r}}}.")
        partitions[topic] = tuple(value_of(INT, number, f"a partition of {topic}") for number in numbers)
    return partitions


def _names_and_values(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise ValueError
    return value


def by_name(kind: ValueKind, what: str, words: str) -> ValueKind:
    """Return the kind of a mapping from names to values. ``what`` precedes the name in error sentences."""

    def read(value: Any) -> Mapping[str, Any]:
        return {name: value_of(kind, part, f"{what} {name!r}") for name, part in _names_and_values(value).items()}

    return ValueKind(words, {"type": "object", "additionalProperties": kind.schema}, read)


def one_of(*words: str) -> ValueKind:
    """Return the kind of a value that is one of these words."""

    def read(value: Any) -> str:
        if not isinstance(value, str):
            raise ValueError
        if value not in words:
            raise UsageError(f"{value!r} is not known. {nearest_word(value, words)}")
        return value

    return ValueKind(f"one of {', '.join(f'`{word}`' for word in words)}", {"enum": list(words)}, read)


def names_among(names: Sequence[str], what: str, words: str = "") -> ValueKind:
    """Return the kind of a value that is one of the names or a list of them.

    what: what a name stands for, in a few words. words: the kind itself in a few words; "": ``what``, or a list of them.
    """

    def read(value: Any) -> tuple[str, ...]:
        chosen = _texts(value)
        for name in chosen:
            if name not in names:
                advice = f". {nearest_word(name, names)}" if names else ": there is none."
                raise UsageError(f"{name!r} is not {'an' if what[0] in 'aeiou' else 'a'} {what}{advice}")
        return chosen

    article = "an" if what[0] in "aeiou" else "a"
    return ValueKind(words or f"{article} {what}, or a list of them", TEXTS.schema, read)


def _count_kind(words: str, least: int, most: int, read: Callable[[Any], int] | None = None) -> ValueKind:
    return ValueKind(words, {"type": "integer", "minimum": least, "maximum": most}, read or _count_of(least, most))


LARGEST_INT: Final = 2**31 - 1
LARGEST_LONG: Final = 2**63 - 1
MOST_PARTITIONS: Final = 100_000
PARTITION_COUNT: Final = _count_kind(f"a number of partitions, 1 to {MOST_PARTITIONS}", 1, MOST_PARTITIONS)
INT: Final = _count_kind(f"a whole number, 0 to {LARGEST_INT}", 0, LARGEST_INT)
INT_FROM_1: Final = _count_kind(f"a whole number, 1 to {LARGEST_INT}", 1, LARGEST_INT)
TEXT: Final = ValueKind("a text", {"type": ["string", "number"]}, _text)
WHOLE: Final = ValueKind("a whole number, 0 or more", {"type": "integer", "minimum": 0}, _whole)
INTEGER: Final = ValueKind("a whole number", {"type": "integer"}, _integer)
INT32: Final = _count_kind("a whole number", -LARGEST_INT - 1, LARGEST_INT, _int32)
FLAG: Final = ValueKind("true or false", {"type": "boolean"}, _flag)
DURATION: Final = ValueKind(
    "a time such as 500ms, 30s or 5m",
    {"anyOf": [{"type": "string", "pattern": r"^\s*\d+\s*(ms|s|m|h|d)\s*$"}, {"type": "integer", "minimum": 0}]},
    _milliseconds,
)
SETTING_MS: Final = ValueKind("a time such as 500ms, 30s or 5m, and not 0", DURATION.schema, _setting_ms)
DURATION_32: Final = ValueKind(DURATION.words, DURATION.schema, lambda value: _int32(_milliseconds(value)))
MOMENT: Final = ValueKind("a moment such as 2026-01-01T00:00:00Z", {"type": "string"}, _moment)
TEXTS: Final = ValueKind(
    "a name, or a list of names", {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}, _texts
)
NOTHING: Final = ValueKind("empty, true or `now`", {"enum": [None, True, "now"]}, _nothing)
PARTITION_COUNTS: Final = by_name(PARTITION_COUNT, "topic", "topics with their number of partitions, such as {orders: 4}")
OFFSETS: Final = ValueKind("offsets such as {orders-0: 42}", {"type": "object", "additionalProperties": {"type": "integer"}}, _offsets)
POSITIONS: Final = ValueKind(
    "offsets such as {orders-0: 42}", {"type": "object", "additionalProperties": {"type": "integer", "minimum": 0}}, _positions
)
PARTITIONS: Final = ValueKind(
    "partitions such as {orders: [0, 1]}",
    {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
    _partitions,
)
ASSIGNMENTS: Final = by_name(PARTITIONS, "the assignment of", "member ids with partitions, such as {a-1: {orders: [0, 1]}}")
