"""Encodes Kafka's own JSON of keys and values to their bytes, by the tables that also make the JSON.

What JSON does not have is lost: unknown tags, bytes after the end, texts that were not UTF-8.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from .definition import encode_key, encode_value
from .errors import EncodeError
from .fields import Array, Blob, Field, Message, Struct
from .fields import Type as FieldType
from .messages import RECORD_TYPES
from .record_types import KeyType


def encode_key_json(key_type: int, data: Mapping[str, Any]) -> bytes:
    """Encode a key from ``data`` in the form of ``key_json``.

    Raises:
        UnknownKeyType: the key type is not known.
        EncodeError: a field is missing, not known or does not fit its type.
    """
    message = RECORD_TYPES[key_type].key if key_type in RECORD_TYPES else None
    return encode_key(key_type, {} if message is None else _fields_of(message, data))


def encode_value_json(key_type: int, version: int, data: Mapping[str, Any]) -> bytes:
    """Encode a value from ``data`` in the form of ``value_json``: in the current layout, else in an older one with the same field names.

    Raises:
        UnknownKeyType, UnknownValueVersion: the key type or the version is not known.
        EncodeError: a field is missing, not known or does not fit its type.
    """
    record_type = RECORD_TYPES.get(key_type)
    if record_type is None:
        return encode_value(key_type, version, {})
    message = RECORD_TYPES[KeyType.OFFSET_COMMIT].value if key_type == KeyType.LEGACY_OFFSET_COMMIT and version > 0 else record_type.value
    try:
        return encode_value(key_type, version, _fields_of(message, data))
    except EncodeError:
        for older in record_type.dialects:
            try:
                return encode_value(key_type, version, _fields_of(older, data), dialect=older.dialect)
            except EncodeError:
                continue
        raise


def _fields_of(message: Message, data: Mapping[str, Any]) -> dict[str, Any]:
    try:
        return _struct_fields(message.fields, data)
    except (ValueError, TypeError, AttributeError) as fault:
        raise EncodeError(f"{message.name}: {fault}") from fault


def _struct_fields(fields: Sequence[Field], data: Mapping[str, Any]) -> dict[str, Any]:
    by_json = {field.json: field for field in fields}
    unknown_names = [name for name in data if name not in by_json]
    if unknown_names:
        raise ValueError(f"no field is called {', '.join(map(repr, unknown_names))}")
    return {by_json[name].name: _value_of(by_json[name].type, value) for name, value in data.items()}


def _value_of(kind: FieldType, value: Any) -> Any:
    if value is None:
        return None
    match kind:
        case Blob():
            return base64.b64decode(value, validate=True)
        case Array():
            return [_value_of(kind.element, element) for element in value]
        case Struct():
            return _struct_fields(kind.fields, value)
        case _:
            return value
