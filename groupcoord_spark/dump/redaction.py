"""The redaction of a dump: client ids, hosts, member ids and metadata are replaced by names that reveal nothing."""

import hashlib
import secrets
from typing import Any, Final

from groupcoord_spark.protocol.json_programs import HiddenFields

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

KINDS_BY_NUMBER: Final = sorted(set(KINDS.values()))
"""The kinds of names: their index is the number of the kind."""

HIDDEN_TEXT: Final = ("client_tags", "value")
"""The hidden text that becomes null instead of a name: the names of its list and of its field."""

HIDDEN_FIELDS: Final = HiddenFields({field: KINDS_BY_NUMBER.index(kind) for field, kind in KINDS.items()}, HIDDEN_TEXT)

_MOST_CACHED_NAMES = 1 << 17


class Redaction:
    """One name for each text that is hidden, the same wherever the text comes again in one dump.

    Names are derived with a random key that is dropped at the end. Without a key, trying every address would recover a host. Rows of one
    dump can therefore be joined, rows of two dumps cannot. An empty text stays empty and null stays null.
    """

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._names: dict[tuple[str, str], str] = {}

    def name(self, kind: str, text: str) -> str:
        """Return the replacement for a text, for example ``host-5d0c2e81aa42``. ``kind`` is a value of ``KINDS``."""
        if not text:
            return text
        replacement = self._names.get((kind, text))
        if replacement is None:
            if len(self._names) >= _MOST_CACHED_NAMES:
                self._names.clear()
            digest = hashlib.blake2b(text.encode(), key=self._key, digest_size=6, person=kind.encode()).hexdigest()
            replacement = self._names[kind, text] = f"{kind}-{digest}"
        return replacement

    def hide(self, decoded: Any) -> Any:
        """Redact decoded fields.

        Bytes (subscriptions, assignments, whatever clients put into them: Connect its worker's address) become None, and so do the values
        of client tags. Groups, topics, racks and numbers stay.
        """
        match decoded:
            case dict():
                return {field: self._hide_field(field, value) for field, value in decoded.items()}
            case list():
                return [self.hide(element) for element in decoded]
            case bytes():
                return None
            case _:
                return decoded

    def _hide_field(self, field: str, value: Any) -> Any:
        if field == HIDDEN_TEXT[0]:
            return [{**tag, HIDDEN_TEXT[1]: None} for tag in value]
        if field in KINDS and isinstance(value, str):
            return self.name(KINDS[field], value)
        return self.hide(value)
