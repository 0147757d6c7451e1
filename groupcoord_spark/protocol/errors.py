# ruff: noqa: N818  (an underflow is called so: each class names what is wrong)
"""What can be wrong with the bytes of a record, each with a stable code and a sentence.

``DecodeError`` and its classes refuse a record; a ``Finding`` accompanies one that was accepted. Codes are what the tables
``quarantined_records`` and ``warnings`` show, and do not change.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Self


class Finding(NamedTuple):
    """A record was accepted, with a doubt: ``code`` is stable, ``detail`` is the sentence for a person."""

    code: str
    detail: str


class DecodeError(ValueError):
    """Raised when bytes are not what they should be: the base of every refusal. ``code`` is stable, ``detail`` is the sentence."""

    code: ClassVar[str] = "not_decodable"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail

    def without_frames(self) -> Self:
        """The same refusal, to be stored: as it was raised, it keeps the frames of every call that it came through."""
        return type(self)(self.detail)


class EncodeError(ValueError):
    """Raised when a message cannot be written: a field is missing, not known or out of its type's range."""


class FieldFault(DecodeError):
    """Raised when one field cannot be read. ``path`` grows from the field outwards while the fault travels up."""

    code = "field_not_readable"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.path: list[str] = []

    def where(self) -> str:
        """The field as a person names it: ``members[2].client_id``; empty when the fault lies outside of all fields."""
        return "".join(part if part.startswith("[") else "." + part for part in reversed(self.path)).lstrip(".")

    def sentence(self, message: str) -> str:
        """The fault with the message and the field it lies in."""
        where = self.where()
        return f"{message}: {where!r} {self.detail}." if where else f"{message}: {self.detail}."


class Underflow(FieldFault):
    """Raised when the bytes end where a field, or the rest of a fixed-size field, should be."""

    code = "underflow"


class LengthBeyondEnd(Underflow):
    """Raised when a length or count asks for more than there is."""

    code = "length_beyond_end"


class UnexpectedNull(FieldFault):
    """Raised when a field that must be there is null: any negative length, or 0 in the compact form."""

    code = "unexpected_null"


class VarintTooLong(FieldFault):
    """Raised when an unsigned varint goes on after its fifth byte."""

    code = "varint_too_long"


class TextTooLong(FieldFault):
    """Raised when a compact string declares more than 32767 bytes, which Kafka's readers refuse."""

    code = "text_too_long"


class NullKey(DecodeError):
    """Raised when a record has no key."""

    code = "null_key"


class KeyTooShort(DecodeError):
    """Raised when a key has 0 or 1 bytes, less than its type takes."""

    code = "key_too_short"


class UnknownKeyType(DecodeError):
    """Raised when the first two bytes of a key name no record type of this release."""

    code = "unknown_key_type"


class LeakedControlRecord(DecodeError):
    """Raised when a key is that of a transaction marker: control records that lost their batches in an export."""

    code = "leaked_control_record"


class KeyTruncated(DecodeError):
    """Raised when a key ends before its last field does."""

    code = "key_truncated"


class KeyMalformed(DecodeError):
    """Raised when a key's field is null."""

    code = "key_malformed"


class ValueTooShort(DecodeError):
    """Raised when a value has 0 or 1 bytes, less than its version takes. Such a value is no tombstone."""

    code = "value_too_short"


class UnknownValueVersion(DecodeError):
    """Raised when a value's version is negative or above the highest one known for its type."""

    code = "unknown_value_version"


class ValueTruncated(DecodeError):
    """Raised when a value ends inside a fixed-size field, or before a field or the tagged section."""

    code = "value_truncated"


class ValueMalformed(DecodeError):
    """Raised when a value holds a null that may not be, a length or count beyond its end, or a varint without end."""

    code = "value_malformed"


class SubscriptionUnknown(DecodeError):
    """Raised when a subscription ends inside a fixed-size field: the broker loads the group and does not know its topics."""

    code = "subscription_unknown"


class SubscriptionMalformed(DecodeError):
    """Raised when a subscription holds a fault that a broker's load does not survive (R-2.4)."""

    code = "subscription_malformed"


class AssignmentMalformed(DecodeError):
    """Raised when an assignment cannot be read. The broker never looks at it."""

    code = "assignment_malformed"


class ConnectMalformed(DecodeError):
    """Raised when the metadata or the assignment of a Connect worker cannot be read."""

    code = "connect_malformed"


class ControlRecordMalformed(DecodeError):
    """Raised when the key or the value of a control record is shorter than its fields or has a negative version."""

    code = "control_record_malformed"
