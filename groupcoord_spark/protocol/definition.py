"""The definition of what the bytes of a record mean: decodes and encodes one key or one value by the tables of ``messages/``.

A key begins with the record type, a value with its version; both are int16. A value is read by its current layout, and where that fails by
the layouts that single early releases wrote (``Message.dialect``). ``errors.py`` lists everything that can be wrong or strange. The faster
decoders of this package give the same results as the functions here, and tests compare them.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from . import errors, primitives
from .fields import (
    REQUIRED,
    Array,
    Blob,
    Field,
    FloatingPoint,
    Int8,
    Int16,
    Integer,
    Message,
    RecordType,
    Struct,
    Text,
    TruthValue,
    UuidBytes,
)
from .fields import Type as FieldType
from .messages import RECORD_TYPES, share_state, transaction_state
from .messages.markers import END_TRANSACTION_MARKER
from .messages.offsets import OFFSET_COMMIT_VALUE
from .record_types import KeyType

_LEGACY_OFFSET_COMMIT = RECORD_TYPES[KeyType.LEGACY_OFFSET_COMMIT]

UNKNOWN_TAGS = "_unknown_tags"
"""Name of the entry of a decoded struct with the tagged fields that its table does not know: ``{tag: bytes}``. Left out where empty."""


_REFUSED_BY_SOME = "Kafka 4.2.2 and releases since 4.4.0 refuse the record."


class DecodedKey(NamedTuple):
    """A decoded key. ``name`` is Kafka's name of the message ("OffsetCommitKey"); ``fields`` have the names of the tables."""

    key_type: int
    name: str
    fields: dict[str, Any]
    doubts: tuple[errors.Doubt, ...]


class DecodedValue(NamedTuple):
    """A decoded value. ``dialect`` is the release line that alone wrote this layout; None: it is the current layout."""

    version: int
    name: str
    fields: dict[str, Any]
    dialect: str | None
    doubts: tuple[errors.Doubt, ...]


def decode_key(key: bytes | None, *, dialect: str | None = None, record_types: Mapping[int, RecordType] = RECORD_TYPES) -> DecodedKey:
    """Decode the key of a record.

    Args:
        key: the bytes, or None for null.
        dialect: also decode the record types that only this release line knows (``"4.0"``: type 9). Current Kafka skips such records.
        record_types: the record types of a topic other than the offsets topic.

    Raises:
        NullKey, KeyTooShort, UnknownKeyType, LeakedControlRecord, KeyTruncated, KeyMalformed: the key cannot be decoded.
    """
    if key is None:
        raise errors.NullKey("The record has no key; every record of a group or an offset has one.")
    if len(key) < 2:
        raise errors.KeyTooShort(f"The key has {len(key)} of the 2 bytes that name its type.")
    key_type = int.from_bytes(key[:2], "big", signed=True)
    record_type = _record_type(key_type, dialect, record_types)
    if record_type is _LEGACY_OFFSET_COMMIT and key in (b"\0\0\0\0", b"\0\0\0\1"):
        marker = "COMMIT" if key[3] else "ABORT"
        raise errors.LeakedControlRecord(
            f"Key {key.hex(' ', 1)} is a transaction marker ({marker}), not an offset key: "
            "this export carries control records without their batches. Export segments instead."
        )
    message = record_type.key
    reader = FieldReader(key, message, 0)
    try:
        fields, at = reader.read_struct(message.fields, 2)
    except errors.Underflow as fault:
        raise errors.KeyTruncated(fault.sentence(message.name)) from fault
    except errors.FieldFault as fault:
        raise errors.KeyMalformed(fault.sentence(message.name)) from fault
    if at < len(key):
        left = f"{message.name}: {len(key) - at} bytes follow the key, from position {at}."
        reader.doubt("key_trailing_bytes", left + " To compaction this is another key.")
    if fields.get("partition", 0) < 0:
        reader.doubt("negative_partition", f"{message.name}: the partition is {fields['partition']}.")
    return DecodedKey(key_type, message.name, fields, tuple(reader.doubts))


def decode_value(
    key_type: int,
    value: bytes | None,
    *,
    dialect: str | None = None,
    record_types: Mapping[int, RecordType] = RECORD_TYPES,
    shared: "SharedElements | None" = None,
) -> DecodedValue | None:
    """Decode the value of a record; return None for a tombstone.

    A value of key type 0 with a version of 1 to 4 is read as one of key type 1, with the doubt ``legacy_value_version``.

    Args:
        key_type: the type of the record's key.
        value: the bytes, or None for a tombstone.
        dialect, record_types: as for ``decode_key``.
        shared: parts of earlier values; equal parts of this one are the same objects, which the caller must not change.

    Raises:
        UnknownKeyType: the key type is not known; for a tombstone too.
        ValueTooShort, UnknownValueVersion, ValueTruncated, ValueMalformed: the value cannot be decoded.
    """
    record_type = _record_type(key_type, dialect, record_types)
    if value is None:
        return None
    message = record_type.value
    if len(value) < 2:
        raise errors.ValueTooShort(f"{message.name}: the value has {len(value)} of the 2 bytes of its version; it is not a tombstone.")
    version = int.from_bytes(value[:2], "big", signed=True)
    doubts: tuple[errors.Doubt, ...] = ()
    if record_type is _LEGACY_OFFSET_COMMIT and 1 <= version <= OFFSET_COMMIT_VALUE.versions[1]:
        message = OFFSET_COMMIT_VALUE
        detail = f"Version {version} under key type 0: read as {message.name}. Brokers since 4.1 refuse it."
        doubts = (errors.Doubt("legacy_value_version", detail),)
    first, last = message.versions
    if not first <= version <= last:
        raise errors.UnknownValueVersion(f"{message.name}: version {version} is not known to this release ({first} to {last}).")
    try:
        decoded, end = _decode_by(message, version, value, shared)
    except errors.FieldFault as fault:
        for older_message in record_type.dialects:
            try:
                decoded, end = _decode_by(older_message, version, value)
            except errors.FieldFault:
                continue
            # a value of the current layout that was cut can look like one of an older layout with bytes left over
            if end == len(value):
                return decoded
        _refuse_value(message.name, version, fault)
    return decoded._replace(doubts=doubts + decoded.doubts) if doubts else decoded


def _record_type(key_type: int, dialect: str | None, record_types: Mapping[int, RecordType] = RECORD_TYPES) -> RecordType:
    record_type = record_types.get(key_type)
    if record_type is None or record_type.dialect not in (None, dialect):
        key_types = {number for number, of_number in record_types.items() if of_number.dialect is None}
        gaps = " and ".join(str(number) for number in range(max(key_types)) if number not in key_types)
        span = f"0 to {max(key_types)} without {gaps}" if gaps else ", ".join(map(str, sorted(key_types)))
        raise errors.UnknownKeyType(f"Key type {key_type} is not known to this release ({span}).")
    return record_type


def _decode_by(message: Message, version: int, value: bytes, shared: "SharedElements | None" = None) -> tuple[DecodedValue, int]:
    """Decode the fields after the two version bytes; return the value and the position after it."""
    reader = FieldReader(value, message, version, shared)
    fields, at = reader.read_struct(message.fields, 2)
    if at < len(value):
        reader.doubt("value_trailing_bytes", f"{message.name} v{version}: {len(value) - at} bytes follow the value, from position {at}.")
    if fields.get("committed_offset", 0) < 0:
        reader.doubt("negative_offset", f"{message.name} v{version}: the committed offset is {fields['committed_offset']}.")
    return DecodedValue(version, message.name, fields, message.dialect, tuple(reader.doubts)), at


def _refuse_value(name: str, version: int, fault: errors.FieldFault) -> NoReturn:
    sentence = fault.sentence(f"{name} v{version}")
    if isinstance(fault, errors.Underflow) and not isinstance(fault, errors.LengthBeyondEnd):
        raise errors.ValueTruncated(sentence) from fault
    raise errors.ValueMalformed(sentence) from fault


class FieldReader:
    """Reads the fields of one message of one version, and collects the doubts about them.

    shared: structs in lists that were read before, by where they may begin; see ``read_elements``. None: every struct is read.
    """

    __slots__ = ("buf", "doubts", "flexible", "message", "shared", "version")

    def __init__(self, buf: bytes, message: Message, version: int, shared: "SharedElements | None" = None) -> None:
        self.buf = buf
        self.message = message
        self.version = version
        self.flexible = message.is_flexible(version)
        self.doubts: list[errors.Doubt] = []
        self.shared = shared

    def doubt(self, code: str, detail: str) -> None:
        """Adds a doubt about the message."""
        self.doubts.append(errors.Doubt(code, detail))

    def read_struct(self, fields: Sequence[Field], at: int) -> tuple[dict[str, Any], int]:
        """Read one struct: return its fields by name, including tagged fields, and the position after it. Errors name the field."""
        layout = _layouts.get((id(fields), self.version)) or _layout_of(fields, self.version)
        out: dict[str, Any] = {}
        name = ""
        try:
            for name, kind, read in layout.untagged:
                out[name], at = read(self, kind, at, name)
        except errors.FieldFault as fault:
            fault.path.append(name)
            raise
        if self.flexible:
            at = self.read_tagged_section(layout.tagged, at, out)
        return out, at

    def read_field(self, field: Field, at: int) -> tuple[Any, int]:
        """Read one untagged field: return its value and the position after it. Errors name the field."""
        try:
            return self.read(field.type, at, field.name)
        except errors.FieldFault as fault:
            fault.path.append(field.name)
            raise

    def read(self, kind: FieldType, at: int, name: str) -> tuple[Any, int]:
        """Read a value of this type at ``at``; return it with the position after it. ``name`` is the field named in doubts."""
        return _READERS[type(kind)](self, kind, at, name)

    def _read_truth_value(self, _: TruthValue, at: int, __: str) -> tuple[bool, int]:
        number, next_at = primitives.read_integer(self.buf, at, Int8)
        return number != 0, next_at

    def _read_text(self, kind: Text, at: int, name: str) -> tuple[str | None, int]:
        raw, next_at = primitives.read_string(self.buf, at, primitives.COMPACT if self.flexible else 2)
        if raw is None:
            _refuse_null(kind, at)
            return None, next_at
        text, is_utf8 = primitives.java_text(raw)
        if not is_utf8:
            self.doubt("invalid_utf8", f"{self.message.name}: {name!r} is not UTF-8 ({raw.hex()}): replaced as Java does.")
        return text, next_at

    def _read_blob(self, kind: Blob, at: int, _: str) -> tuple[bytes | None, int]:
        raw, next_at = primitives.read_bytes(self.buf, at, primitives.COMPACT if self.flexible else 4)
        if raw is None:
            _refuse_null(kind, at)
        return raw, next_at

    def _read_array(self, kind: Array, at: int, name: str) -> tuple[list[Any] | None, int]:
        count, next_at = primitives.read_count(self.buf, at, primitives.COMPACT if self.flexible else 4)
        if count is None:
            _refuse_null(kind, at)
            return None, next_at
        if count > primitives.MOST_ELEMENTS:
            self.doubt(errors.BEYOND_LIMITS, f"{self.message.name}: {name!r} has {count} elements. {_REFUSED_BY_SOME}")
        return self.read_elements(kind.element, count, next_at, name)

    def _read_nested_struct(self, kind: Struct, at: int, _: str) -> tuple[dict[str, Any] | None, int]:
        if kind.nullable:
            mark, at = primitives.read_integer(self.buf, at, Int8)
            if mark < 0:
                return None, at
        return self.read_struct(kind.fields, at)

    def read_elements(self, kind: FieldType, count: int, at: int, name: str) -> tuple[list[Any], int]:
        """Read ``count`` values of this type at ``at``; return them with the position after them.

        Groups write all their members again in each generation, and most members have not changed: with ``shared`` a list of structs, or
        one struct, whose bytes were read before is the same object again.
        """
        if isinstance(kind, Integer) and count * kind.size <= len(self.buf) - at:
            return primitives.read_integers(self.buf, at, kind, count)
        # a struct without a text at its beginning takes no longer to read than to look up
        if self.shared is None or not (isinstance(kind, Struct) and isinstance(kind.fields[0].type, Text)) or not count:
            return self._read_each(kind, count, at, name)
        return self.shared.read(self, kind, count, at, name)

    def _read_each(self, kind: FieldType, count: int, at: int, name: str) -> tuple[list[Any], int]:
        elements: list[Any] = []
        try:
            for _ in range(count):
                element, at = self.read(kind, at, name)
                elements.append(element)
        except errors.FieldFault as fault:
            fault.path.append(f"[{len(elements)}]")
            raise
        return elements, at

    def read_tagged_section(self, fields: Mapping[int, Field], at: int, out: dict[str, Any]) -> int:
        """Read the tagged section at ``at`` into ``out``, with defaults for absent fields; return the position after it.

        Kafka's readers check neither the order of tags, nor whether a tag is there twice (the last one counts), nor the size of a tag
        that they know.
        """
        if not fields and self.buf.startswith(b"\0", at):
            return at + 1
        for field in fields.values():
            out[field.name] = field.absent_value()
        unknown: dict[int, bytes] = {}
        count, at = primitives.read_uvarint(self.buf, at)
        if not 0 <= count <= primitives.MOST_TAGS:
            self.doubt(
                errors.BEYOND_LIMITS, f"{self.message.name} v{self.version}: a section declares {count} tagged fields. {_REFUSED_BY_SOME}"
            )
        for _ in range(count):
            tag, at = primitives.read_uvarint(self.buf, at)
            size, at = primitives.read_uvarint(self.buf, at)
            if tag in fields:
                field = fields[tag]
                out[field.name], end = self.read_tagged_field(field, at)
                if end != at + size:
                    self.doubt(
                        "tagged_field_size_mismatch",
                        f"{self.message.name} v{self.version}: tag {tag} ({field.name!r}) declares {size} bytes and takes {end - at}.",
                    )
                at = end
            else:
                if not 0 <= size <= len(self.buf) - at:
                    raise errors.LengthBeyondEnd(
                        f"tag {tag & 0xFFFFFFFF} declares {size} bytes at position {at}, {len(self.buf) - at} remain"
                    )
                unknown[tag & 0xFFFFFFFF] = self.buf[at : at + size]
                at += size
        if unknown:
            out[UNKNOWN_TAGS] = unknown
        return at

    def read_tagged_field(self, field: Field, at: int) -> tuple[Any, int]:
        """Read a tagged field: return its value and the position after it."""
        if not (isinstance(field.type, Struct) and field.type.nullable):
            return self.read_field(field, at)
        try:
            # the presence mark of a struct is an unsigned varint inside a tagged field, and an int8 elsewhere
            mark, at = primitives.read_uvarint(self.buf, at)
            return (None, at) if mark <= 0 else self.read_struct(field.type.fields, at)
        except errors.FieldFault as fault:
            fault.path.append(field.name)
            raise


_READERS: dict[type, Callable[[FieldReader, Any, int, str], tuple[Any, int]]] = {
    Integer: lambda reader, kind, at, _: primitives.read_integer(reader.buf, at, kind),
    TruthValue: FieldReader._read_truth_value,
    FloatingPoint: lambda reader, _, at, __: primitives.read_float(reader.buf, at),
    UuidBytes: lambda reader, _, at, __: primitives.read_uuid(reader.buf, at),
    Text: FieldReader._read_text,
    Blob: FieldReader._read_blob,
    Array: FieldReader._read_array,
    Struct: FieldReader._read_nested_struct,
}


class _Layout(NamedTuple):
    """The fields of a struct in one version: the untagged ones in their order, with how to read each, and the tagged ones by tag."""

    untagged: tuple[tuple[str, FieldType, Callable[[FieldReader, Any, int, str], tuple[Any, int]]], ...]
    tagged: dict[int, Field]
    of: Sequence[Field]


_layouts: dict[tuple[int, int], _Layout] = {}
"""By the identity of the fields, which the layout keeps alive, and the version."""


def _layout_of(fields: Sequence[Field], version: int) -> _Layout:
    present = [field for field in fields if field.is_in(version)]
    untagged = tuple((field.name, field.type, _READERS[type(field.type)]) for field in present if field.tag is None)
    tagged = {field.tag: field for field in present if field.tag is not None}
    layout = _layouts[id(fields), version] = _Layout(untagged, tagged, fields)
    return layout


class SharedElements:
    """Lists of structs, and single structs of lists, that were read without a doubt, for readers that change nothing in them."""

    _MOST, _LONGEST, _BEGINNING = 4096, 16384, 48
    """Limits of the cache: entries, bytes of an entry, and leading bytes used as the lookup key."""

    def __init__(self) -> None:
        self._read: dict[tuple[int, int, int, bytes], tuple[bytes, list[Any]]] = {}

    def read(self, reader: FieldReader, kind: Struct, count: int, at: int, name: str) -> tuple[list[Any], int]:
        """``count`` structs at ``at``, and the position after them."""
        buf = reader.buf
        key = id(kind), reader.version, count, buf[at : at + self._BEGINNING]
        raw, elements = self._read.get(key, (None, []))
        if raw is not None and buf.startswith(raw, at):
            return elements, at + len(raw)
        doubts = len(reader.doubts)
        if count == 1:
            elements, end = reader._read_each(kind, 1, at, name)
        else:
            elements, end = [], at
            try:
                for _ in range(count):
                    of_one, end = self.read(reader, kind, 1, end, name)
                    elements += of_one
            except errors.FieldFault as fault:
                fault.path[-1] = f"[{len(elements)}]"
                raise
        if len(reader.doubts) == doubts and end - at <= self._LONGEST:
            if len(self._read) >= self._MOST:
                self._read.clear()
            self._read[key] = buf[at:end], elements
        return elements, end


def _refuse_null(kind: Text | Blob | Array, at: int) -> None:
    if not kind.nullable:
        raise errors.UnexpectedNull(f"is null at position {at} and may not be")


def encode_key(key_type: int, fields: Mapping[str, Any], *, dialect: str | None = None) -> bytes:
    """Encode a key with its leading type.

    Raises:
        UnknownKeyType: the key type is not known.
        EncodeError: a field is missing or does not fit its type.
    """
    message = _record_type(key_type, dialect).key
    return primitives.write_integer(key_type, Int16) + write_message(message, 0, fields)


def encode_value(key_type: int, version: int, fields: Mapping[str, Any], *, dialect: str | None = None) -> bytes:
    """Encode a value with its leading version. Fields of other versions are left out, as in Kafka.

    Args:
        dialect: write the layout of this early release line.

    Raises:
        UnknownKeyType, UnknownValueVersion: the key type or the version is not known.
        EncodeError: a field is missing, not known or does not fit its type.
    """
    record_type = _record_type(key_type, dialect)
    message = OFFSET_COMMIT_VALUE if key_type == KeyType.LEGACY_OFFSET_COMMIT and version > 0 else record_type.value
    message = next((older for older in record_type.dialects if older.dialect == dialect), message)
    first, last = message.versions
    if not first <= version <= last:
        raise errors.UnknownValueVersion(f"{message.name}: version {version} is not known to this release ({first} to {last}).")
    return primitives.write_integer(version, Int16) + write_message(message, version, fields)


def write_message(message: Message, version: int, fields: Mapping[str, Any]) -> bytes:
    """Encode one version of a message. Raises EncodeError if a field is missing, unknown or does not fit its type."""
    try:
        return _write_struct(message.fields, version, message.is_flexible(version), fields)
    except (ValueError, TypeError, AttributeError) as fault:
        raise errors.EncodeError(f"{message.name} v{version}: {fault}") from fault


def _write_struct(fields: Sequence[Field], version: int, flexible: bool, values: Mapping[str, Any]) -> bytes:
    unknown_names = values.keys() - {field.name for field in fields} - {UNKNOWN_TAGS}
    if unknown_names:
        raise ValueError(f"no field is called {', '.join(sorted(map(repr, unknown_names)))}")
    out = bytearray()
    tags: dict[int, bytes] = dict(values.get(UNKNOWN_TAGS, {}))
    for field in fields:
        if not field.is_in(version):
            continue
        if field.name not in values and field.default is REQUIRED:
            raise ValueError(f"the field {field.name!r} is missing")
        value = values[field.name] if field.name in values else field.absent_value()
        if field.tag is None:
            out += _write(field.type, version, flexible, value, field.name)
        elif value != field.default:
            tags[field.tag] = _write_in_tag(field, version, value)
    if flexible:
        out += primitives.write_uvarint(len(tags))
        for tag, data in sorted(tags.items()):
            out += primitives.write_uvarint(tag) + primitives.write_uvarint(len(data)) + data
    return bytes(out)


def _write_in_tag(field: Field, version: int, value: Any) -> bytes:
    if not (isinstance(field.type, Struct) and field.type.nullable):
        return _write(field.type, version, True, value, field.name)
    return b"\0" if value is None else b"\1" + _write_struct(field.type.fields, version, True, value)


def _write(kind: FieldType, version: int, flexible: bool, value: Any, name: str) -> bytes:
    if value is None and not getattr(kind, "nullable", False):
        raise ValueError(f"{name!r} is null and may not be")
    match kind:
        case Integer():
            return primitives.write_integer(value, kind)
        case TruthValue():
            return primitives.write_integer(int(value), Int8)
        case FloatingPoint():
            return primitives.write_float(value)
        case UuidBytes():
            return primitives.uuid_bytes(value)
        case Text():
            raw = None if value is None else value.encode("utf-8")
            if raw is not None and len(raw) > primitives.LONGEST_COMPACT_TEXT:
                raise ValueError(f"{name!r} has {len(raw)} bytes, a text holds {primitives.LONGEST_COMPACT_TEXT}")
            return _write_sized(raw, flexible, 2)
        case Blob():
            return _write_sized(value, flexible, 4)
        case Array():
            count = None if value is None else len(value)
            head = primitives.write_length(count, primitives.COMPACT if flexible else 4)
            return head + b"".join(_write(kind.element, version, flexible, element, name) for element in value or ())
        case Struct():
            if value is None:
                return b"\xff"
            return (b"\1" if kind.nullable else b"") + _write_struct(kind.fields, version, flexible, value)


def _write_sized(raw: bytes | None, flexible: bool, size: int) -> bytes:
    length = None if raw is None else len(raw)
    head = primitives.write_length(length, primitives.COMPACT if flexible else size)
    return head + (raw or b"")


def key_json(decoded: DecodedKey) -> dict[str, Any]:
    """Return the fields of a key in the JSON of Kafka's own converters."""
    return _struct_json(_MESSAGES[decoded.name, None].fields, 0, decoded.fields)


def value_json(decoded: DecodedValue) -> dict[str, Any]:
    """Return the fields of a value in the JSON of Kafka's own converters.

    Bytes are base64. Tagged fields with their default are left out, and so are unknown tags.
    """
    return _struct_json(_MESSAGES[decoded.name, decoded.dialect].fields, decoded.version, decoded.fields)


_MESSAGES = {
    (message.name, dialect): message
    for record_types in (RECORD_TYPES, share_state.RECORD_TYPES, transaction_state.RECORD_TYPES)
    for record_type in record_types.values()
    for dialect, message in (
        (None, record_type.key),
        *((message.dialect, message) for message in (record_type.value, *record_type.dialects)),
    )
}


def message_json(message: Message, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a message in the JSON of Kafka's own converters, as ``value_json`` does."""
    return _struct_json(message.fields, version, fields)


def field_json(field: Field, value: Any) -> Any:
    """Return the value of one field in Kafka's JSON, in the newest version of the field."""
    return _json(field.type, field.last_version, value)


def _struct_json(fields: Sequence[Field], version: int, values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        field.json: _json(field.type, version, values[field.name])
        for field in fields
        if field.is_in(version) and (field.tag is None or values[field.name] != field.default)
    }


def _json(kind: FieldType, version: int, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case Blob():
            return base64.b64encode(value).decode("ascii")
        case Array():
            return [_json(kind.element, version, element) for element in value]
        case Struct():
            return _struct_json(kind.fields, version, value)
        case _:
            return value


def decode_end_transaction_marker(value: bytes | None) -> int:
    """Return the transaction coordinator's epoch from the value of an ABORT or COMMIT marker. Raises ControlRecordMalformed.

    Versions above 0 are read as version 0, and bytes after the epoch are ignored.
    """
    message = END_TRANSACTION_MARKER
    try:
        if value is None:
            raise errors.UnexpectedNull("is null and may not be")
        version, at = primitives.read_integer(value, 0, Int16)
        if version < 0:
            raise errors.ControlRecordMalformed(f"{message.name}: version {version} is negative.")
        fields, _ = FieldReader(value, message, 0).read_struct(message.fields, at)
    except errors.FieldFault as fault:
        raise errors.ControlRecordMalformed(fault.sentence(message.name)) from fault
    epoch: int = fields["coordinator_epoch"]
    return epoch
