# ruff: noqa: N818  (each class is named after the fault in the bytes, without "Error")
"""Everything that can be wrong with the bytes of a record, with a stable code and a sentence for each.

A ``DecodeError`` is the reason why a record cannot be decoded; the record goes to the table ``quarantined_records``. A ``Doubt`` describes
an oddity of a decoded record and goes to the table ``warnings``. Both tables contain the codes, so a code never changes.
"""

import re
from dataclasses import dataclass
from typing import ClassVar, Self


@dataclass(frozen=True, slots=True)
class Doubt:
    """One thing that is strange about a record that was accepted. ``code`` is stable, ``detail`` is a sentence for people."""

    code: str
    detail: str


BEYOND_LIMITS = "beyond_limits"
"""Code of the doubt about an array or a tagged section that only some releases read (docs/reference/replay-rules.md#r-1.10)."""


class DecodeError(ValueError):
    """Raised when a record cannot be decoded; the base of all such errors.

    ``code`` is stable: it is the name of the class with underscores, so no class is renamed. ``detail`` is a sentence for people.
    """

    code: ClassVar[str] = "not_decodable"

    def __init_subclass__(cls) -> None:
        if "code" not in vars(cls):
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def without_frames(self) -> Self:
        """Return a copy of the error without its traceback, which would keep every caller's variables in memory."""
        return type(self)(self.detail)


class EncodeError(ValueError):
    """Raised when a message cannot be written: a field is missing, not known or out of its type's range."""


class FieldFault(DecodeError):
    """Raised when one field cannot be read.

    ``path`` names the field, innermost name first: each caller that the error passes through adds the name of its own field.
    """

    code = "field_not_readable"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.path: list[str] = []

    def where(self) -> str:
        """Return the path of the field, for example ``members[2].client_id``, or "" if the error is outside of all fields."""
        return "".join(part if part.startswith("[") else "." + part for part in reversed(self.path)).lstrip(".")

    def sentence(self, message: str) -> str:
        """Return the error as a sentence that names the message and the field."""
        where = self.where()
        return f"{message}: {where!r} {self.detail}." if where else f"{message}: {self.detail}."


class Underflow(FieldFault):
    """Raised when the bytes end before a field, or inside a field of fixed size."""


class LengthBeyondEnd(Underflow):
    """Raised when a length or a count is larger than the number of bytes that remain."""


class UnexpectedNull(FieldFault):
    """Raised when a field is null that may not be null: its length is negative, or 0 in the compact form."""


class VarintTooLong(FieldFault):
    """Raised when an unsigned varint goes on after its fifth byte."""


class TextTooLong(FieldFault):
    """Raised when a compact string declares more than 32767 bytes, which Kafka's readers refuse."""


class NullKey(DecodeError):
    """Raised when a record has no key."""


class KeyTooShort(DecodeError):
    """Raised when a key has 0 or 1 bytes: its type takes 2."""


class UnknownKeyType(DecodeError):
    """Raised when the first two bytes of a key name no record type of this release."""


class LeakedControlRecord(DecodeError):
    """Raised when the key belongs to a transaction marker: an export wrote control records without their batches."""


class KeyTruncated(DecodeError):
    """Raised when a key ends before its last field does."""


class KeyMalformed(DecodeError):
    """Raised when a field of a key is null."""


class ValueTooShort(DecodeError):
    """Raised when a value has 0 or 1 bytes. Its version takes 2, so such a value is not a tombstone."""


class UnknownValueVersion(DecodeError):
    """Raised when a value's version is negative or above the highest one known for its type."""


class ValueTruncated(DecodeError):
    """Raised when a value ends inside a field of fixed size, before a field or before the tagged section."""


class ValueMalformed(DecodeError):
    """Raised when a value holds a null that may not be null, a length or count beyond its end, or a varint of more than 5 bytes."""


class ValueBeyondLimits(DecodeError):
    """Raised when a value can be decoded, but has more elements or tagged fields than the broker's release accepts."""


class SubscriptionUnknown(DecodeError):
    """Raised when a subscription ends inside a field of fixed size: the broker loads the group and does not know its topics."""


class SubscriptionMalformed(DecodeError):
    """Raised when a subscription has a fault that makes the broker's load fail (docs/reference/replay-rules.md#r-2.4)."""


class AssignmentMalformed(DecodeError):
    """Raised when the assignment of a classic group's member cannot be read. The broker itself never reads one."""


class ConnectMalformed(DecodeError):
    """Raised when the metadata or the assignment of a Connect worker cannot be read."""


class ControlRecordMalformed(DecodeError):
    """Raised when the key or the value of a control record is shorter than its fields or has a negative version."""
