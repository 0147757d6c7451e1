"""Decodes one record with functions that are generated from the tables, one function for each message and version.

A generated function reads what brokers write. Everything rare (a cut value, text that is not UTF-8, bytes left over, an older layout) it
leaves to ``definition``, so results, doubts and errors are those of ``definition`` in every case. ``groupcoord_spark.protocol`` exports
``decode_key`` and ``decode_value`` of this file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from . import definition, primitives
from .definition import UNKNOWN_TAGS, DecodedKey, DecodedValue
from .errors import DecodeError
from .fields import Array, Blob, Field, Integer, Message, Struct, Text, Type, UuidBytes
from .messages import RECORD_TYPES
from .record_types import OFFSET_KEY_TYPES

Reader = Callable[[bytes, int], Any]


class _UnusualFormError(ValueError):
    """Raised when the bytes are not written in the form that the generated functions read."""


_NOT_GENERATED_FOR = (_UnusualFormError, LookupError, struct.error, UnicodeDecodeError)
"""The exceptions by which a generated function leaves a record to ``definition``."""


def decode_key(key: bytes | None, *, dialect: str | None = None) -> DecodedKey:
    """The decoded key of a record: ``definition.decode_key``, only faster."""
    if key is not None:
        try:
            key_type = key[0] << 8 | key[1]
            name, read = _KEY_READERS[key_type]
            fields = read(key, 2)
        except _NOT_GENERATED_FOR:
            pass
        else:
            if key_type not in OFFSET_KEY_TYPES or fields["partition"] >= 0:
                return DecodedKey(key_type, name, fields, ())
    return definition.decode_key(key, dialect=dialect)


def decode_value(key_type: int, value: bytes | None, *, dialect: str | None = None) -> DecodedValue | None:
    """The decoded value of a record, None for a tombstone: ``definition.decode_value``, only faster."""
    return _decode_value(_VALUE_READERS, key_type, value, dialect)


def decode_shared_value(key_type: int, value: bytes | None) -> DecodedValue | None:
    """``decode_value`` for callers that change nothing: equal lists and equal elements may be the same objects as in earlier results."""
    return _decode_value(_SHARED_VALUE_READERS, key_type, value, None)


def _decode_value(readers: _Readers, key_type: int, value: bytes | None, dialect: str | None) -> DecodedValue | None:
    if value is not None:
        try:
            version = value[0] << 8 | value[1]
            name, read = readers[key_type, version]
            fields = read(value, 2)
        except _NOT_GENERATED_FOR:
            pass
        else:
            if key_type not in OFFSET_KEY_TYPES or fields["committed_offset"] >= 0:
                return DecodedValue(version, name, fields, None, ())
    return definition.decode_value(key_type, value, dialect=dialect)


def _put_into_cache(cached: dict[bytes, Any], raw: bytes, decoded: Any, *, most: int) -> None:
    """Caches what was read from these bytes. A full cache is emptied first."""
    if len(cached) >= most:
        cached.clear()
    cached[raw] = decoded


class _UuidTextCache(dict[bytes, str]):
    """The text form of topic ids by their bytes: the same few topics are in record after record."""

    def __missing__(self, raw: bytes) -> str:
        if len(raw) != 16:
            raise _UnusualFormError
        text = primitives.uuid_text(raw)
        _put_into_cache(self, raw, text, most=100_000)
        return text


def _rare_length(buf: bytes, at: int, longest: int) -> tuple[int, int]:
    """The number stored for a compact length (n + 1) of more than one byte, and the position after it. Null is left to ``definition``."""
    try:
        length, after = primitives.read_compact_length(buf, at)
    except DecodeError as fault:
        raise _UnusualFormError from fault
    if length is None or length > longest:
        raise _UnusualFormError
    return length + 1, after


def _many_integers(letter: str, count: int, buf: bytes, at: int) -> tuple[int, ...]:
    return struct.unpack_from(f">{count}{letter}", buf, at)


class _ElementCache(dict[bytes, tuple[int, bytes, Any]]):
    """Elements of arrays, or whole arrays, by the text that their bytes begin with: how many elements, their bytes, and what was read.

    Groups write all their members again in each generation, and most members have not changed.
    """

    def __init__(self, most: int, longest: int) -> None:
        super().__init__()
        self.most, self.longest = most, longest

    def keep(self, name: bytes, count: int, raw: bytes, what: Any) -> None:
        if len(raw) <= self.longest:
            _put_into_cache(self, name, (count, raw, what), most=self.most)


_NOTHING_CACHED = (-1, b"", None)
_MOST_CACHED_ELEMENTS, _LONGEST_CACHED_ELEMENT = 4096, 4096
_MOST_CACHED_LISTS, _LONGEST_CACHED_LIST = 1024, 16384
"""The most entries of each cache, and the most bytes of an entry."""
_MANY_TEXTS = 3
"""An element with this many texts and blobs takes longer to read than to look up."""

_LETTERS = {("int8", True): "b", ("int16", True): "h", ("int32", True): "i", ("int64", True): "q", ("uint16", False): "H"}
_FEW = 64


class _Writer:
    """Writes the source of one function, which reads a message of one version from ``buf`` at ``at``.

    Fields of fixed size that follow each other are unpacked in one call, together with the length after them. Positions only grow, so one
    test at the end shows whether any text or list reached beyond the end of the bytes.

    copies_cached: cached elements are copied, because the caller may change them.
    """

    def __init__(self, flexible: bool, version: int, *, copies_cached: bool) -> None:
        self.copies_cached = copies_cached
        self.flexible = flexible
        self.version = version
        self.lines: list[str] = []
        self.depth = 1
        self.names = 0
        self.fixed: list[tuple[str, str]] = []
        self.namespace: dict[str, Any] = {
            "Unusual": _UnusualFormError,
            "many_integers": _many_integers,
            "nothing_cached": _NOTHING_CACHED,
            "rare_length": _rare_length,
            "uuid_texts": _UUID_TEXTS,
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
        """A name for a field of fixed size, which is read together with its neighbours."""
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

    def struct(self, fields: Sequence[Field]) -> str:
        """Writes the lines that read a struct. Returns its expression, which is valid until the next field is read."""
        read = [(field, self.value(field.type)) for field in fields if field.tag is None and field.is_in(self.version)]
        if not self.flexible:
            self.flush()
            return _dict_of(read)
        tagged = [(field, self.fresh("tagged")) for field in fields if field.tag is not None and field.is_in(self.version)]
        unknown = self.tagged_section(tagged)
        return f"with_tags({_dict_of(read + tagged)}, {unknown})"

    def tagged_section(self, tagged: Sequence[tuple[Field, str]]) -> str:
        count, tag, size, end, unknown = self.take("B", "count"), *map(self.fresh, ("tag", "size", "end", "unknown"))
        self.flush()
        self.namespace["with_tags"] = _with_tags
        for field, name in tagged:
            self.put(f"{name} = {field.default!r}")
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
        self.put(f"{unknown} = {unknown} or {{}}; {unknown}[{tag}] = buf[at:{end}]")
        self.put(f"at = {end}")
        self.depth -= 2
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
        self.put(f"if {null}: {result} = None")
        self.put("else:")
        self.depth += 1
        self.put(f"{result} = {self.struct(kind.fields)}")
        self.depth -= 1
        return result

    def value(self, kind: Type) -> str:
        match kind:
            case Integer():
                return self.take(_LETTERS[kind.name, kind.signed], "value")
            case UuidBytes():
                return f"uuid_texts[{self.take('16s', 'value')}]"
            case Text():
                return self.sized(kind.nullable, 2, primitives.LONGEST_COMPACT_TEXT, ".decode()")
            case Blob():
                return self.sized(kind.nullable, 4, 2**31 - 1, "")
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
            case _:
                raise TypeError(f"no message of the offsets topic has a {kind}")

    def length(self, nullable: bool, size: int, longest: int) -> tuple[str, str, str]:
        """Writes the lines that read a length. Returns its name, the condition for null, and what to subtract from it."""
        name = self.take("B" if self.flexible else {2: "h", 4: "i"}[size], "length")
        self.flush()
        if self.flexible:
            self.put(f"if {name} > 127: {name}, at = rare_length(buf, at - 1, {longest})")
        null = f"{name} == 0" if self.flexible else f"{name} < 0"
        if not nullable:
            self.put(f"if {null}: raise Unusual")
        return name, null, " - 1" if self.flexible else ""

    def sized(self, nullable: bool, size: int, longest: int, convert: str) -> str:
        name, null, less = self.length(nullable, size, longest)
        end, result = self.fresh("end"), self.fresh("value")
        read = f"{end} = at + {name}{less}; {result} = buf[at:{end}]{convert}; at = {end}"
        if nullable:
            self.put(f"if {null}: {result} = None")
            self.put(f"else: {read}")
        else:
            self.put(read)
        return result

    def array(self, kind: Array) -> str:
        name, null, less = self.length(kind.nullable, 4, primitives.MOST_ELEMENTS)
        if not self.flexible:
            self.put(f"if {name} > {primitives.MOST_ELEMENTS}: raise Unusual")
        result = self.fresh("value")
        if kind.nullable:
            self.put(f"if {null}: {result} = None")
            self.put("else:")
            self.depth += 1
        if isinstance(kind.element, Integer):
            self.integers(kind.element, name + less, result)
        elif isinstance(kind.element, Struct) and self.is_worth_caching(kind.element):
            self.cached_list(kind.element, name + less, result)
        else:
            parts = self.fresh("parts")
            self.put(f"{parts} = []")
            self.put(f"for _ in range({name}{less}):")
            self.depth += 1
            element = self.struct(kind.element.fields) if isinstance(kind.element, Struct) else self.value(kind.element)
            self.flush()
            self.put(f"{parts}.append({element})")
            self.depth -= 1
            self.put(f"{result} = {parts}")
        if kind.nullable:
            self.depth -= 1
        return result

    def is_worth_caching(self, kind: Struct) -> bool:
        """True where to look up takes less time than to read: the struct begins with a text, has several texts and blobs, and no list."""
        types = [field.type for field in kind.fields if field.is_in(self.version)]
        is_flat = all(isinstance(each, Integer | UuidBytes | Text | Blob) for each in types)
        return is_flat and isinstance(types[0], Text) and sum(isinstance(each, Text | Blob) for each in types) >= _MANY_TEXTS

    def cached_list(self, kind: Struct, number: str, result: str) -> None:
        """Writes the lines that read a list of structs: the whole list is looked up, and where it is not cached each of its elements."""
        count, parts = self.fresh("count"), self.fresh("parts")
        self.put(f"{count} = {number}")
        cached_element = "{}.copy()" if self.copies_cached else "{}"
        cached_list = "[element.copy() for element in {}]" if self.copies_cached else "{}"
        lists = _ElementCache(_MOST_CACHED_LISTS, _LONGEST_CACHED_LIST)
        keep = self.unless_cached(lists, count, lambda cached: f"{result} = {cached_list.format(cached)}")
        self.put(f"{parts} = []")
        self.put(f"for _ in range({count}):")
        self.depth += 1
        elements = _ElementCache(_MOST_CACHED_ELEMENTS, _LONGEST_CACHED_ELEMENT)
        keep_element = self.unless_cached(elements, "1", lambda cached: f"{parts}.append({cached_element.format(cached)})")
        element = self.fresh("element")
        self.put(f"{element} = {self.struct(kind.fields)}")
        self.flush()
        self.put(f"{parts}.append({element})")
        keep_element(cached_element.format(element))
        self.depth -= 1
        self.put(f"{result} = {parts}")
        keep(cached_list.format(result))

    def unless_cached(self, cache: _ElementCache, count: str, hit: Callable[[str], str]) -> Callable[[str], None]:
        """Writes the lines that look up ``count`` elements under the text that begins here; the caller then writes the lines for a miss.

        Args:
            cache: where to look.
            hit: gives the line for a hit, from the name of what is cached.

        Returns:
            The function to call at the end of the lines for a miss, with the expression to put into the cache.
        """
        self.flush()
        begin, name, many, raw, cached, into = map(self.fresh, ("begin", "name", "many", "raw", "cached", "cache"))
        self.namespace[into] = cache
        length = "buf[at]" if self.flexible else "2 + (buf[at] << 8 | buf[at + 1])"
        self.put(f"{begin} = at; {name} = buf[at:at + {length}] if {count} else b''")
        self.put(f"{many}, {raw}, {cached} = {into}.get({name}, nothing_cached)")
        self.put(f"if {many} == {count} and buf.startswith({raw}, at): {hit(cached)}; at += len({raw})")
        self.put("else:")
        self.depth += 1

        def keep(what: str) -> None:
            # elements that reach beyond the end of the bytes are not whole
            self.put(f"if {count} and at <= len(buf): {into}.keep({name}, {count}, buf[{begin}:at], {what})")
            self.depth -= 1

        return keep

    def integers(self, kind: Integer, count: str, result: str) -> None:
        letter, number = _LETTERS[kind.name, kind.signed], self.fresh("number")
        few = f"few_{letter}"
        self.namespace[few] = [struct.Struct(f">{n}{letter}").unpack_from for n in range(_FEW)]
        self.put(f"{number} = {count}")
        numbers = f"{few}[{number}](buf, at) if {number} < {_FEW} else many_integers({letter!r}, {number}, buf, at)"
        self.put(f"{result} = list({numbers}); at += {kind.size} * {number}")


def _dict_of(fields: Sequence[tuple[Field, str]]) -> str:
    """The expression of a dict with the fields, from the expressions of their values."""
    return "{" + ", ".join(f"{field.name!r}: {value}" for field, value in fields) + "}"


def _with_tags(fields: dict[str, Any], unknown: dict[int, bytes] | None) -> dict[str, Any]:
    if unknown:
        fields[UNKNOWN_TAGS] = unknown
    return fields


_UUID_TEXTS = _UuidTextCache()


class _Readers(dict[Any, tuple[str, Reader]]):
    """The generated functions, each made when it is first needed. KeyError for what no current table describes."""

    def __init__(self, message_of: Callable[[Any], tuple[Message, int]], *, copies_cached: bool = True) -> None:
        super().__init__()
        self.copies_cached = copies_cached
        self.message_of = message_of

    def __missing__(self, which: Any) -> tuple[str, Reader]:
        message, version = self.message_of(which)
        if not message.versions[0] <= version <= message.versions[1] or message.dialect is not None:
            raise KeyError(which)
        writer = _Writer(message.is_flexible(version), version, copies_cached=self.copies_cached)
        made = self[which] = message.name, writer.compile(message)
        return made


def _key_message(key_type: int) -> tuple[Message, int]:
    return RECORD_TYPES[key_type].key, 0


def _value_message(which: tuple[int, int]) -> tuple[Message, int]:
    key_type, version = which
    return RECORD_TYPES[key_type].value, version


_KEY_READERS = _Readers(_key_message)
_VALUE_READERS = _Readers(_value_message)
_SHARED_VALUE_READERS = _Readers(_value_message, copies_cached=False)
