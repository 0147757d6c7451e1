"""The redaction of a dump: client ids, hosts, member ids and metadata are replaced by names that reveal nothing."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from typing import Any, Final

from groupcoord_spark.protocol import RECORD_TYPES, DecodeError, decode_value, value_json, value_json_texts
from groupcoord_spark.protocol.fields import Array, Blob, Struct, Type

KINDS: Final = {
    "client_id": "client",
    "client_host": "host",
    "host": "host",
    "member_id": "member",
    "leader": "member",
    "group_instance_id": "instance",
    "instance_id": "instance",
    "metadata": "metadata",
}
"""The hidden text fields, and the kind of name each gets. Member ids begin with the client id, leaders are member ids."""

_MOST_CACHED_NAMES = 100_000


class Redaction:
    """One name for each text that is hidden, the same wherever the text comes again in one dump.

    Names are made with a key that is forgotten at the end: without one, a host would be found again by trying every address. So rows of
    one dump still join, and those of two do not. An empty text, which tells nothing, stays empty; null stays null.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._names: dict[tuple[str, str], str] = {}

    def name(self, field: str, text: str) -> str:
        """The name that replaces a text of a field of ``KINDS``, for example ``host-5d0c2e81aa42``."""
        if not text:
            return text
        kind = KINDS[field]
        known = self._names.get((kind, text))
        if known is None:
            if len(self._names) >= _MOST_CACHED_NAMES:
                self._names.clear()
            digest = hashlib.blake2b(text.encode(), key=self._key, digest_size=6, person=kind.encode()).hexdigest()
            known = self._names[kind, text] = f"{kind}-{digest}"
        return known

    def hide(self, decoded: Any) -> Any:
        """Decoded fields without what is hidden.

        Bytes (subscriptions, assignments, whatever clients put into them: Connect its worker's address) become None, and so do the values
        of client tags. Groups, topics, racks and numbers stay.
        """
        match decoded:
            case dict():
                return {field: self._hide_field(field, value) for field, value in decoded.items()}
            case list():
                return [self.hide(each) for each in decoded]
            case bytes():
                return None
            case _:
                return decoded

    def _hide_field(self, field: str, value: Any) -> Any:
        if field == "client_tags":
            return [{**tag, "value": None} for tag in value]
        if field in KINDS and isinstance(value, str):
            return self.name(field, value)
        return self.hide(value)

    def value_json_texts(self, key_types: Sequence[int], values: Sequence[bytes]) -> list[str | None]:
        """``protocol.value_json_texts`` of what may be shown. A value that comes again is read once."""
        harmless = [None if key_type in _HIDING else value for key_type, value in zip(key_types, values, strict=True)]
        texts = value_json_texts(key_types, harmless)
        seen: dict[tuple[int, bytes], str | None] = {}
        for row, key_type_and_value in enumerate(zip(key_types, values, strict=True)):
            if key_type_and_value[0] in _HIDING:
                if key_type_and_value not in seen:
                    seen[key_type_and_value] = self._value_json_text(*key_type_and_value)
                texts[row] = seen[key_type_and_value]
        return texts

    def _value_json_text(self, key_type: int, value: bytes) -> str | None:
        try:
            decoded = decode_value(key_type, value)
        except DecodeError:
            return None
        if decoded is None:
            return None
        shown = value_json(decoded._replace(fields=self.hide(decoded.fields)))
        return json.dumps(shown, separators=(",", ":"), ensure_ascii=False)


def _hides(kind: Type) -> bool:
    match kind:
        case Blob():
            return True
        case Array():
            return _hides(kind.element)
        case Struct():
            return any(field.name in KINDS or field.name == "client_tags" or _hides(field.type) for field in kind.fields)
        case _:
            return False


_HIDING: Final = {
    number for number, each in RECORD_TYPES.items() if any(_hides(Struct(message.fields)) for message in (each.value, *each.dialects))
}
"""The record types whose values have something to hide."""
