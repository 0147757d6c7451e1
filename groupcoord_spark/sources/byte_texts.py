"""The text forms of keys and values: base64, hex, escapes, and bytes as characters.

Text does not show its own form: ``00010002`` is valid hex and valid base64. A column therefore has one form, that of its first rows:
the one in which most of them decode to keys and values of the offsets topic. A later row in another form is a fault of that row.
"""

import re
from binascii import a2b_base64
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from groupcoord_spark.protocol import DecodeError, decode_key, decode_value

FIRST_ROWS: Final = 1_000
"""Rows that decide the form of a column."""

LOST_BYTE: Final = "\N{REPLACEMENT CHARACTER}"
"""The character that decoders of text put in the place of bytes that are not UTF-8."""

_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9+/=]")
_URL_ALPHABET: Final = str.maketrans("-_", "+/")
_ESCAPE: Final = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{3}|.|$)", re.DOTALL)
_PYTHON_LITERAL: Final = re.compile(r"""b(['"])(.*)\1""", re.DOTALL)
_ONE_LETTER_ESCAPES: Final = {b"\\": b"\\", b"'": b"'", b'"': b'"', b"n": b"\n", b"r": b"\r", b"t": b"\t"}


def _from_base64(text: str) -> bytes:
    with suppress(ValueError):  # a fifth of the time, for text without line breaks
        return a2b_base64(text, strict_mode=True)
    digits = "".join(text.split()).translate(_URL_ALPHABET)
    if (other := _NOT_BASE64.search(digits)) is not None:
        raise ValueError(f"{other[0]!r} is not a base64 character")
    unpadded = digits.rstrip("=")
    if "=" in unpadded or len(unpadded) % 4 == 1 or (unpadded != digits and len(digits) % 4):
        raise ValueError("it was cut, or its padding is wrong")
    return a2b_base64(unpadded + "=" * (-len(unpadded) % 4))


def _from_hex(text: str) -> bytes:
    digits = text.strip()
    if digits[:2] in ("0x", "0X", "\\x"):
        digits = digits[2:]
    elif digits[:2] in ("x'", "X'"):
        digits = digits[2:].removesuffix("'")
    try:
        return bytes.fromhex(digits)
    except ValueError as error:
        raise ValueError("it has another character than hex digits, or an odd number of them") from error


def _from_escapes(text: str) -> bytes:
    if (control := next((character for character in text if character < " "), None)) is not None:
        raise ValueError(f"{control!r} is not escaped")
    literal = _PYTHON_LITERAL.fullmatch(text)

    def byte_of(match: re.Match[bytes]) -> bytes:
        code = match[1]
        if code in _ONE_LETTER_ESCAPES:
            return _ONE_LETTER_ESCAPES[code]
        number = int(code[1:], 16) if code[:1] == b"x" and len(code) == 3 else int(code, 8) if len(code) == 3 else 256
        if number > 255:
            raise ValueError(f"{match[0].decode('ascii')!r} does not stand for a byte")
        return bytes([number])

    return _ESCAPE.sub(byte_of, (text if literal is None else literal[2]).encode("ascii"))


@dataclass(frozen=True, slots=True)
class TextForm:
    """A way of writing bytes as text. ``decode`` raises a ValueError with the fault."""

    name: str
    decode: Callable[[str], bytes]


def _from_utf8(text: str) -> bytes:
    _check_first_character(text)
    return text.encode("utf-8", "surrogateescape")


def _from_latin1(text: str) -> bytes:
    _check_first_character(text)
    return text.encode("latin-1")


def _check_first_character(text: str) -> None:
    if not text.startswith("\0"):
        raise ValueError("it does not begin with a zero byte, as each key and value does: their types and versions are small numbers")


BASE64: Final = TextForm("base64", _from_base64)
HEX: Final = TextForm("hex", _from_hex)
ESCAPES: Final = TextForm("escapes", _from_escapes)
CHARACTERS: Final = TextForm("characters", _from_utf8)
LATIN1: Final = TextForm("Latin-1", _from_latin1)

TEXT_FORMS: Final = (BASE64, HEX, ESCAPES, CHARACTERS, LATIN1)
"""All forms; docs/how-to/other-inputs.md has them as a table. Where two forms fit equally well, the first one is taken."""


@dataclass(frozen=True, slots=True)
class TextForms:
    """The forms of the texts in the columns of keys and values.

    Attributes:
        names: the forms for the line about the plan; empty where the first rows have no text.
    """

    key: TextForm = BASE64
    value: TextForm = BASE64
    names: str = ""


NO_TEXT: Final = TextForms()
"""The forms where the first rows have no text."""


def text_forms_of(first_rows: Sequence[tuple[Any, Any]]) -> TextForms:
    """Return the forms of keys and values, from the first rows. Keys and values that are not text are left alone.

    Raises ValueError where most values have lost bytes: a decoder of UTF-8 replaced them.
    """
    keys = [(key, _is_key) for key, _ in first_rows if isinstance(key, str) and key.strip()]
    texts = [(key, value) for key, value in first_rows if isinstance(value, str) and value.strip()]
    if 2 * sum(LOST_BYTE in value for _, value in texts) > len(texts):
        raise ValueError("a decoder of UTF-8 has replaced bytes of the values (U+FFFD), and nobody can tell what they were")
    key_form = _best_form(keys)
    values = [(value, _is_value_of(_key_type(key, key_form or BASE64))) for key, value in texts]
    value_form = _best_form(values, key_form)
    key_form = _best_form(keys, value_form)
    names = dict.fromkeys(form.name for form in (key_form, value_form) if form is not None)
    return TextForms(key_form or BASE64, value_form or key_form or BASE64, " and ".join(names))


def _best_form(texts: Sequence[tuple[str, Callable[[bytes], bool]]], preferred: TextForm | None = None) -> TextForm | None:
    """Return the form that fits most texts, and of several the form that decodes most; None where no text fits.

    Args:
        texts: Each text with the test whether its bytes are right.
        preferred: The form of the other column, which is taken where it fits as well as another one.
    """

    def score(form: TextForm) -> tuple[int, int, bool]:
        right = decoded = 0
        for text, is_right in texts:
            with suppress(ValueError, DecodeError):
                raw = form.decode(text)
                decoded += 1
                right += is_right(raw)
        return right, decoded, form is preferred

    best = max(TEXT_FORMS, key=score)
    return best if score(best)[0] else None


def _key_type(key: Any, form: TextForm) -> int | None:
    try:
        return decode_key(form.decode(key) if isinstance(key, str) else key).key_type
    except (ValueError, DecodeError, TypeError):
        return None


def _is_value_of(key_type: int | None) -> Callable[[bytes], bool]:
    def is_right(value: bytes) -> bool:
        decoded = None if key_type is None else decode_value(key_type, value)
        return decoded is not None and not decoded.doubts

    return is_right


def shape_of_keys(keys: Iterable[bytes | None]) -> str:
    """Return what keys that cannot be decoded look like, with the way out, as two sentences."""
    key = next(filter(None, keys), None)
    if key is None:
        return "They have no bytes. Export the keys of __consumer_offsets too."
    begins = f"the first begins with {key[:24]!r}"
    try:
        text = key.decode("utf-8")
    except UnicodeDecodeError:
        text = None
    if layers := _layers_of(text):
        functions = [_SPARK_FUNCTIONS[form] for form in layers if form in _SPARK_FUNCTIONS]
        way_out = f"for example with Spark's {' and '.join(functions)}" if functions else "where they are exported"
        named = " of ".join(f"{form.name} text" for form in layers)
        return f"They are {named} ({begins}). Decode keys and values again, {way_out}."
    schema = int.from_bytes(key[1:5], "big")
    if key[0] == 0 and len(key) > 5 and schema:
        return (
            f"They begin like Avro, Protobuf or JSON Schema of a schema registry, with schema id {schema} ({begins}). Export the topic with"
            " org.apache.kafka.connect.converters.ByteArrayConverter for keys and values."
        )
    what = "bytes" if text is None or not text.isprintable() else "JSON text" if text[:1] in ("{", "[", '"') else "text"
    return f"They are {what} of another kind ({begins}). Give an export of __consumer_offsets, with keys and values as bytes."


_SPARK_FUNCTIONS: Final = {BASE64: "unbase64", HEX: "unhex"}
_MOST_LAYERS: Final = 3


def _layers_of(text: str | None) -> list[TextForm]:
    """Return the forms that decode a text, one after the other, to a key; empty where it does not."""
    for form in TEXT_FORMS[:3] if text is not None else ():
        layers, raw = [form], b""
        with suppress(ValueError):
            raw = form.decode(text or "")
            while len(layers) < _MOST_LAYERS and not _is_key(raw):
                raw = form.decode(raw.decode("ascii"))
                layers.append(form)
        if _is_key(raw):
            return layers
    return []


def _is_key(key: bytes | None) -> bool:
    return _key_type(key, BASE64) is not None


def has_key(keys: Iterable[bytes | None]) -> bool:
    """Return whether one of the keys is a key of the offsets topic. The rest of the keys is not decoded."""
    return any(map(_is_key, keys))
