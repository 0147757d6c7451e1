"""Functions made of the tables: one for each message and version, as fast as Python reads bytes.

They read what brokers write. Whatever is unusual (a cut value, text that is not UTF-8, bytes left over, an older layout) they leave to
``scalar``, so the results, findings and refusals are the ones of ``scalar`` in every case. ``decode_key`` and ``decode_value`` are what
``groupcoord_spark.protocol`` exports; the JSON texts are for the history of group records, where every value is shown once.
"""

from __future__ import annotations

import json
import struct
from binascii import b2a_base64
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from json.encoder import encode_basestring
from typing import Any, Protocol

from . import primitives, scalar
from .errors import DecodeError
from .fields import Array, Blob, Field, Integer, Message, Struct, Text, Type, UuidBytes
from .messages import RECORD_TYPES
from .scalar import UNKNOWN_TAGS, DecodedKey, DecodedValue

Reader = Callable[[bytes, int], Any]


class _UnusualFormError(ValueError):
    """Raised when the bytes are not of the form that the generated functions read."""


_LONGEST_LOOKED_UP = 512
"""Bytes of a value, or a part of one, that may be met again: to look up a longer one takes as long as to read it."""

_NOT_READ = (_UnusualFormError, LookupError, struct.error, UnicodeDecodeError)
"""What a generated function raises where ``scalar`` has to be asked."""


def decode_key(key: bytes | None, *, dialect: str | None = None) -> DecodedKey:
    """What a record's key says: ``scalar.decode_key``, only faster."""
    if key is not None:
        try:
            key_type = key[0] << 8 | key[1]
            name, read = _KEY_READERS[key_type]
            fields = read(key, 2)
        except _NOT_READ:
            pass
        else:
            if key_type > 1 or fields["partition"] >= 0:
                return DecodedKey(key_type, name, fields, ())
    return scalar.decode_key(key, dialect=dialect)


def decode_value(key_type: int, value: bytes | None, *, dialect: str | None = None) -> DecodedValue | None:
    """What a record's value says, None for a tombstone: ``scalar.decode_value``, only faster."""
    return _decode_value(_VALUE_READERS, key_type, value, dialect)


def decode_shared_value(key_type: int, value: bytes | None) -> DecodedValue | None:
    """``decode_value`` for readers that change nothing: lists and elements that come again are the same objects again."""
    return _decode_value(_SHARED_VALUE_READERS, key_type, value, None)


def _decode_value(readers: _Readers, key_type: int, value: bytes | None, dialect: str | None) -> DecodedValue | None:
    if value is not None:
        try:
            version = value[0] << 8 | value[1]
            name, read = readers[key_type, version]
            fields = read(value, 2)
        except _NOT_READ:
            pass
        else:
            if key_type > 1 or fields["committed_offset"] >= 0:
                return DecodedValue(version, name, fields, None, ())
    return scalar.decode_value(key_type, value, dialect=dialect)


def key_json_texts(keys: Iterable[bytes | None]) -> list[str | None]:
    """Each key in Kafka's JSON, without spaces; None where it does not decode. A key that comes again is read once."""
    seen: dict[bytes | None, str | None] = {}
    texts = []
    for key in keys:
        if key not in seen:
            seen[key] = None if key is None else _key_json_text(key)
        texts.append(seen[key])
    return texts


def value_json_texts(key_types: Sequence[int], values: Sequence[bytes | None]) -> list[str | None]:
    """Each value in Kafka's JSON, without spaces, by the type of its key; None for a tombstone and where it does not decode.

    A short value that comes again is read once. Each text is ``value_json`` of the decoded value, by ``json.dumps`` without spaces and
    escapes.
    """
    seen: dict[tuple[int, bytes | None], str | None] = {}
    texts: list[str | None] = []
    for each in zip(key_types, values, strict=True):
        key_type, value = each
        if value is None:
            texts.append(None)
        elif len(value) > _LONGEST_LOOKED_UP:
            texts.append(_value_json_text(key_type, value))
        else:
            if each not in seen:
                seen[each] = _value_json_text(key_type, value)
            texts.append(seen[each])
    return texts


def _key_json_text(key: bytes) -> str | None:
    try:
        text: str = _KEY_JSON_READERS[key[0] << 8 | key[1]][1](key, 2)
        return text
    except _NOT_READ:
        try:
            return _compact_json(scalar.key_json(scalar.decode_key(key)))
        except DecodeError:
            return None


def _value_json_text(key_type: int, value: bytes) -> str | None:
    try:
        text: str = _VALUE_JSON_READERS[key_type, value[0] << 8 | value[1]][1](value, 2)
        return text
    except _NOT_READ:
        try:
            decoded = scalar.decode_value(key_type, value)
        except DecodeError:
            return None
        return None if decoded is None else _compact_json(scalar.value_json(decoded))


def _compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class _Rendering(Protocol):
    """How a generated function expresses what it read: each method gives a Python expression."""

    shows_unknown_tags: bool

    def text(self, raw: str) -> str: ...
    def blob(self, raw: str) -> str: ...
    def uuid(self, raw: str) -> str: ...
    def integers(self, numbers: str, letter: str, raw: str) -> str: ...
    def elements(self, parts: str) -> str: ...
    def again(self, seen: str) -> str: ...
    def all_again(self, seen: str) -> str: ...
    def null(self) -> str: ...
    def default(self, field: Field) -> str: ...
    def tagged(self, field: Field, name: str) -> str: ...
    def struct(self, fields: Sequence[tuple[Field, str]]) -> str: ...


class _AsValues:
    """Plain Python values, as ``scalar`` decodes them."""

    shows_unknown_tags = True

    def text(self, raw: str) -> str:
        return f"{raw}.decode()"

    def blob(self, raw: str) -> str:
        return raw

    def uuid(self, raw: str) -> str:
        return f"uuid_texts[{raw}]"

    def integers(self, numbers: str, letter: str, raw: str) -> str:
        return f"list({numbers})"

    def elements(self, parts: str) -> str:
        return parts

    def again(self, seen: str) -> str:
        return f"{seen}.copy()"  # whoever gets it may change it

    def all_again(self, seen: str) -> str:
        return f"[each.copy() for each in {seen}]"

    def null(self) -> str:
        return "None"

    def default(self, field: Field) -> str:
        return repr(field.default)

    def tagged(self, field: Field, name: str) -> str:
        return name

    def struct(self, fields: Sequence[tuple[Field, str]]) -> str:
        return "{" + ", ".join(f"{field.name!r}: {value}" for field, value in fields) + "}"


class _AsSharedValues(_AsValues):
    """The same, for readers that change nothing."""

    def again(self, seen: str) -> str:
        return seen

    def all_again(self, seen: str) -> str:
        return seen


class _AsJson:
    """Kafka's JSON text. Tagged fields that have their default are left out, so each of them brings its own comma and name."""

    shows_unknown_tags = False

    def text(self, raw: str) -> str:
        return f"text_json[{raw}]"

    def blob(self, raw: str) -> str:
        return f"blob_json[{raw}]"

    def uuid(self, raw: str) -> str:
        return f"uuid_json[{raw}]"

    def integers(self, numbers: str, letter: str, raw: str) -> str:
        return f"integers_json_{letter}[{raw}]"

    def elements(self, parts: str) -> str:
        return f"'[' + ','.join({parts}) + ']'"

    def again(self, seen: str) -> str:
        return seen

    def all_again(self, seen: str) -> str:
        return seen

    def null(self) -> str:
        return "'null'"

    def default(self, field: Field) -> str:
        return repr(field.default if isinstance(field.type, Integer) else _compact_json(scalar.field_json(field, field.default)))

    def tagged(self, field: Field, name: str) -> str:
        return f"'' if {name} == {self.default(field)} else ',\"{field.json}\":' + str({name})"

    def struct(self, fields: Sequence[tuple[Field, str]]) -> str:
        always = ",".join(f'"{field.json}":{{{value}}}' for field, value in fields if field.tag is None)
        tagged = "".join(f"{{{value}}}" for field, value in fields if field.tag is not None)
        return f"f'{{{{{always}{tagged}}}}}'"


def _remember(seen: dict[bytes, Any], raw: bytes, what: Any, *, most: int) -> None:
    """Keep what these bytes say; once there is as much as may be kept, all begins anew."""
    if len(seen) >= most:
        seen.clear()
    seen[raw] = what


class _UuidTexts(dict[bytes, str]):
    """The text form of ids that were seen: the same few topics come again and again."""

    def __missing__(self, raw: bytes) -> str:
        if len(raw) != 16:
            raise _UnusualFormError
        text = primitives.uuid_text(raw)
        _remember(self, raw, text, most=100_000)
        return text


class _SeenJson(dict[bytes, str]):
    """The JSON of bytes that were seen: members have the same few texts, subscriptions and partitions in record after record.

    What its buffer cuts short gets the JSON of what is there; that it reached beyond the end is seen at the end.
    """

    def __init__(self, make: Callable[[bytes], str]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, raw: bytes) -> str:
        made = self.make(raw)
        if len(raw) <= _LONGEST_LOOKED_UP:
            _remember(self, raw, made, most=50_000)
        return made


def _text_json(raw: bytes) -> str:
    return encode_basestring(raw.decode())


def _blob_json(raw: bytes) -> str:
    return f'"{b2a_base64(raw, newline=False).decode()}"'


def _uuid_json(raw: bytes) -> str:
    return f'"{_UUID_TEXTS[raw]}"'


def _integers_json(letter: str, raw: bytes) -> str:
    count = len(raw) // struct.calcsize(f">{letter}")
    return repr(list(struct.unpack(f">{count}{letter}", raw))).replace(" ", "")


def _rare_length(buf: bytes, at: int, longest: int) -> tuple[int, int]:
    """The number stored for a compact length (n + 1) in more than one byte, and the position after it; null is left to ``scalar``."""
    try:
        length, after = primitives.read_compact_length(buf, at)
    except DecodeError as fault:
        raise _UnusualFormError from fault
    if length is None or length > longest:
        raise _UnusualFormError
    return length + 1, after


def _many_integers(letter: str, count: int, buf: bytes, at: int) -> tuple[int, ...]:
    return struct.unpack_from(f">{count}{letter}", buf, at)


class _Seen(dict[bytes, tuple[int, bytes, Any]]):
    """Elements, or lists of them, by the text that they begin with: how many, their bytes, and what these say.

    Groups write all members again in each generation, most of them as they were.
    """

    def __init__(self, most: int, longest: int) -> None:
        super().__init__()
        self.most, self.longest = most, longest

    def keep(self, name: bytes, count: int, raw: bytes, what: Any) -> None:
        if len(raw) <= self.longest:
            _remember(self, name, (count, raw, what), most=self.most)


_NOTHING_SEEN = (-1, b"", None)
_MOST_ELEMENTS, _LONGEST_ELEMENT = 4096, 4096
_MOST_LISTS, _LONGEST_LIST = 1024, 16384
"""How many are kept, and bytes of each."""
_MANY_TEXTS = 3
"""An element of so many texts and blobs is found again sooner than it is read."""

_LETTERS = {("int8", True): "b", ("int16", True): "h", ("int32", True): "i", ("int64", True): "q", ("uint16", False): "H"}
_FEW = 64


class _Writer:
    """Writes the source of one function: reads a message of one version from ``buf`` at ``at``, gives what the rendering makes of it.

    Fields of fixed size that follow each other are unpacked in one call, together with the length that follows them. Positions only
    grow, so one look at the end tells whether any text or list reached beyond it.
    """

    def __init__(self, rendering: _Rendering, flexible: bool, version: int) -> None:
        self.rendering = rendering
        self.flexible = flexible
        self.version = version
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.fixed: list[tuple[str, str]] = []
        self.namespace: dict[str, Any] = {
            "Unusual": _UnusualFormError,
            "blob_json": _BLOB_JSON,
            "many_integers": _many_integers,
            "nothing_seen": _NOTHING_SEEN,
            "rare_length": _rare_length,
            "text_json": _TEXT_JSON,
            "uuid_json": _UUID_JSON,
            "uuid_texts": _UUID_TEXTS,
            **{f"integers_json_{letter}": seen for letter, seen in _INTEGERS_JSON.items()},
        }

    def compile(self, message: Message) -> Reader:
        result = self.struct(message.fields)
        self.put("if at != len(buf): raise Unusual")
        self.put(f"return {result}")
        exec("def read(buf, at):\n" + "\n".join(self.lines), self.namespace)
        read: Reader = self.namespace["read"]
        return read

    def put(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def take(self, letter: str, prefix: str) -> str:
        """A name for a value of fixed size, read with the ones before and after it."""
        name = self.fresh(prefix)
        self.fixed.append((letter, name))
        return name

    def flush(self) -> None:
        if not self.fixed:
            return
        if [letter for letter, _ in self.fixed] == ["B"]:
            self.put(f"{self.fixed[0][1]} = buf[at]; at += 1")
        else:
            layout = struct.Struct(">" + "".join(letter for letter, _ in self.fixed))
            unpack = self.fresh("unpack")
            self.namespace[unpack] = layout.unpack_from
            self.put(f"{', '.join(name for _, name in self.fixed)}, = {unpack}(buf, at); at += {layout.size}")
        self.fixed.clear()

    def struct(self, fields: Sequence[Field], *, in_tag: bool = False) -> str:
        """Read a struct; the expression it gives holds until the next field is read."""
        read = [(field, self.value(field.type)) for field in fields if field.tag is None and field.is_in(self.version)]
        if not self.flexible:
            self.flush()
            return self.rendering.struct(read)
        tagged = [(field, self.fresh("tagged")) for field in fields if field.tag is not None and field.is_in(self.version)]
        unknown = self.tagged_section(tagged, in_tag)
        result = self.rendering.struct(read + tagged)
        return f"with_tags({result}, {unknown})" if self.rendering.shows_unknown_tags else result

    def tagged_section(self, tagged: Sequence[tuple[Field, str]], in_tag: bool) -> str:
        count, tag, size, end, unknown = self.take("B", "count"), *map(self.fresh, ("tag", "size", "end", "unknown"))
        self.flush()
        self.namespace["with_tags"] = _with_tags
        for field, name in tagged:
            self.put(f"{name} = {self.rendering.default(field)}")
        if self.rendering.shows_unknown_tags:
            self.put(f"{unknown} = None")
        self.put(f"if {count}:")
        self.depth += 1
        self.put(f"if {count} > 127: raise Unusual")
        self.put(f"for _ in range({count}):")
        self.depth += 1
        self.put(f"{tag} = buf[at]; {size} = buf[at + 1]; at += 2")
        self.put(f"if {tag} > 127: raise Unusual")
        self.put(f"if {size} > 127: {size}, at = rare_length(buf, at - 1, {2**31 - 1})")
        self.put(f"{end} = at + {size}")
        for field, name in tagged:
            self.put(f"if {tag} == {field.tag}:")
            self.depth += 1
            self.put(f"{name} = {self.in_tag(field.type)}")
            self.put(f"if at != {end}: raise Unusual")
            self.put("continue")
            self.depth -= 1
        if self.rendering.shows_unknown_tags:
            self.put(f"{unknown} = {unknown} or {{}}; {unknown}[{tag}] = buf[at:{end}]")
        elif in_tag:
            self.put("raise Unusual")
        self.put(f"at = {end}")
        self.depth -= 2
        for field, name in tagged:
            self.put(f"{name} = {self.rendering.tagged(field, name)}")
        return unknown

    def in_tag(self, kind: Type) -> str:
        if not (isinstance(kind, Struct) and kind.nullable):
            value = self.value(kind)
            self.flush()
            return value
        mark, result = self.take("B", "mark"), self.fresh("value")
        self.flush()
        return self.present(kind, result, f"{mark} > 127", f"{mark} == 0")

    def present(self, kind: Struct, result: str, unusual: str, null: str) -> str:
        self.put(f"if {unusual}: raise Unusual")
        self.put(f"if {null}: {result} = {self.rendering.null()}")
        self.put("else:")
        self.depth += 1
        self.put(f"{result} = {self.struct(kind.fields, in_tag=True)}")
        self.depth -= 1
        return result

    def value(self, kind: Type) -> str:
        match kind:
            case Integer():
                return self.take(_LETTERS[kind.name, kind.signed], "value")
            case UuidBytes():
                return self.rendering.uuid(self.take("16s", "value"))
            case Text():
                return self.sized(kind.nullable, 2, primitives.LONGEST_COMPACT_TEXT, self.rendering.text)
            case Blob():
                return self.sized(kind.nullable, 4, 2**31 - 1, self.rendering.blob)
            case Array():
                return self.array(kind)
            case Struct(nullable=False):
                result = self.fresh("value")
                self.put(f"{result} = {self.struct(kind.fields)}")
                return result
            case Struct():
                mark, result = self.take("b", "mark"), self.fresh("value")
                self.flush()
                return self.present(kind, result, "False", f"{mark} < 0")

    def length(self, nullable: bool, size: int, longest: int) -> tuple[str, str, str]:
        """Read a length; gives the name, the expression that is true for null, and what to subtract from it."""
        name = self.take("B" if self.flexible else {2: "h", 4: "i"}[size], "length")
        self.flush()
        if self.flexible:
            self.put(f"if {name} > 127: {name}, at = rare_length(buf, at - 1, {longest})")
        null = f"{name} == 0" if self.flexible else f"{name} < 0"
        if not nullable:
            self.put(f"if {null}: raise Unusual")
        return name, null, " - 1" if self.flexible else ""

    def sized(self, nullable: bool, size: int, longest: int, render: Callable[[str], str]) -> str:
        name, null, less = self.length(nullable, size, longest)
        end, result = self.fresh("end"), self.fresh("value")
        read = f"{end} = at + {name}{less}; {result} = {render(f'buf[at:{end}]')}; at = {end}"
        if nullable:
            self.put(f"if {null}: {result} = {self.rendering.null()}")
            self.put(f"else: {read}")
        else:
            self.put(read)
        return result

    def array(self, kind: Array) -> str:
        name, null, less = self.length(kind.nullable, 4, 2**31 - 1)
        result = self.fresh("value")
        if kind.nullable:
            self.put(f"if {null}: {result} = {self.rendering.null()}")
            self.put("else:")
            self.depth += 1
        if isinstance(kind.element, Integer):
            self.integers(kind.element, name + less, result)
        elif isinstance(kind.element, Struct) and self.is_worth_keeping(kind.element):
            self.kept_list(kind.element, name + less, result)
        else:
            parts = self.fresh("parts")
            self.put(f"{parts} = []")
            self.put(f"for _ in range({name}{less}):")
            self.depth += 1
            element = self.struct(kind.element.fields) if isinstance(kind.element, Struct) else self.value(kind.element)
            self.flush()
            self.put(f"{parts}.append({element})")
            self.depth -= 1
            self.put(f"{result} = {self.rendering.elements(parts)}")
        if kind.nullable:
            self.depth -= 1
        return result

    def is_worth_keeping(self, kind: Struct) -> bool:
        """Whether reading takes longer than finding it again: of several texts and blobs, the first of which names it, and no list."""
        types = [field.type for field in kind.fields if field.is_in(self.version)]
        is_flat = all(isinstance(each, Integer | UuidBytes | Text | Blob) for each in types)
        return is_flat and isinstance(types[0], Text) and sum(isinstance(each, Text | Blob) for each in types) >= _MANY_TEXTS

    def kept_list(self, kind: Struct, number: str, result: str) -> None:
        """Read a list of structs, or find it again as a whole, or else those of them that are here again."""
        count, parts = self.fresh("count"), self.fresh("parts")
        self.put(f"{count} = {number}")
        keep = self.unless_found(_Seen(_MOST_LISTS, _LONGEST_LIST), count, lambda seen: f"{result} = {self.rendering.all_again(seen)}")
        self.put(f"{parts} = []")
        self.put(f"for _ in range({count}):")
        self.depth += 1
        keep_element = self.unless_found(
            _Seen(_MOST_ELEMENTS, _LONGEST_ELEMENT), "1", lambda seen: f"{parts}.append({self.rendering.again(seen)})"
        )
        element = self.fresh("element")
        self.put(f"{element} = {self.struct(kind.fields)}")
        self.flush()
        self.put(f"{parts}.append({element})")
        keep_element(self.rendering.again(element))
        self.depth -= 1
        self.put(f"{result} = {self.rendering.elements(parts)}")
        keep(self.rendering.all_again(result))

    def unless_found(self, kept: _Seen, count: str, found: Callable[[str], str]) -> Callable[[str], None]:
        """Go on only where the ``count`` elements that were last kept under the text that begins here are not here again.

        found: the line for what they say. Gives what has to be called at the end, with what is to be kept of what was read.
        """
        self.flush()
        begin, name, many, raw, seen, into = map(self.fresh, ("begin", "name", "many", "raw", "seen", "kept"))
        self.namespace[into] = kept
        length = "buf[at]" if self.flexible else "2 + (buf[at] << 8 | buf[at + 1])"
        self.put(f"{begin} = at; {name} = buf[at:at + {length}] if {count} else b''")
        self.put(f"{many}, {raw}, {seen} = {into}.get({name}, nothing_seen)")
        self.put(f"if {many} == {count} and buf.startswith({raw}, at): {found(seen)}; at += len({raw})")
        self.put("else:")
        self.depth += 1

        def keep(what: str) -> None:
            # what reaches beyond the end is no whole one
            self.put(f"if {count} and at <= len(buf): {into}.keep({name}, {count}, buf[{begin}:at], {what})")
            self.depth -= 1

        return keep

    def integers(self, kind: Integer, count: str, result: str) -> None:
        letter, number = _LETTERS[kind.name, kind.signed], self.fresh("number")
        few = f"few_{letter}"
        self.namespace[few] = [struct.Struct(f">{n}{letter}").unpack_from for n in range(_FEW)]
        self.put(f"{number} = {count}")
        numbers = f"{few}[{number}](buf, at) if {number} < {_FEW} else many_integers({letter!r}, {number}, buf, at)"
        read = self.rendering.integers(numbers, letter, f"buf[at:at + {kind.size} * {number}]")
        self.put(f"{result} = {read}; at += {kind.size} * {number}")


def _with_tags(fields: dict[str, Any], unknown: dict[int, bytes] | None) -> dict[str, Any]:
    if unknown:
        fields[UNKNOWN_TAGS] = unknown
    return fields


_UUID_TEXTS = _UuidTexts()
_TEXT_JSON = _SeenJson(_text_json)
_BLOB_JSON = _SeenJson(_blob_json)
_UUID_JSON = _SeenJson(_uuid_json)
_INTEGERS_JSON = {letter: _SeenJson(partial(_integers_json, letter)) for letter in _LETTERS.values()}


class _Readers(dict[Any, tuple[str, Reader]]):
    """The generated functions, each made when it is first asked for; KeyError for what no table of today describes."""

    def __init__(self, rendering: _Rendering, message_of: Callable[[Any], tuple[Message, int]]) -> None:
        super().__init__()
        self.rendering = rendering
        self.message_of = message_of

    def __missing__(self, which: Any) -> tuple[str, Reader]:
        message, version = self.message_of(which)
        if not message.versions[0] <= version <= message.versions[1] or message.dialect is not None:
            raise KeyError(which)
        writer = _Writer(self.rendering, message.is_flexible(version), version)
        made = self[which] = message.name, writer.compile(message)
        return made


def _key_message(key_type: int) -> tuple[Message, int]:
    return RECORD_TYPES[key_type].key, 0


def _value_message(which: tuple[int, int]) -> tuple[Message, int]:
    key_type, version = which
    return RECORD_TYPES[key_type].value, version


_KEY_READERS = _Readers(_AsValues(), _key_message)
_VALUE_READERS = _Readers(_AsValues(), _value_message)
_SHARED_VALUE_READERS = _Readers(_AsSharedValues(), _value_message)
_KEY_JSON_READERS = _Readers(_AsJson(), _key_message)
_VALUE_JSON_READERS = _Readers(_AsJson(), _value_message)
