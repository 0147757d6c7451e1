"""The text forms of keys and values: each form that docs/how-to/other-inputs.md accepts or refuses."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from groupcoord_spark.protocol import encode_key, encode_value
from groupcoord_spark.sources.byte_texts import BASE64, HEX, has_key, shape_of_keys, text_forms_of

KEY = encode_key(1, {"group_id": "gr\u00fcppe", "topic": "t\\'", "partition": 0})
COMMIT = {"committed_offset": 200, "leader_epoch": -1, "metadata": '"\n' * 40, "commit_timestamp_ms": 1_795_000_000_000}
VALUE = encode_value(1, 3, COMMIT)
HEX_KEY_OF_BASE64 = "0001000131000131000000"  # valid base64 too, and even in length


def standard(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


def lines_of_76(raw: bytes, end: str) -> str:
    return end.join(standard(raw)[at : at + 76] for at in range(0, len(standard(raw)), 76))


def duckdb_blob(raw: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 and chr(byte) not in "\\'\"" else f"\\x{byte:02X}" for byte in raw)


def postgres_escape(raw: bytes) -> str:
    return "".join("\\\\" if byte == 92 else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in raw)


ACCEPTED: dict[str, tuple[Callable[[bytes], str], str]] = {
    "base64": (standard, "base64"),
    "base64 of Spark, with CR LF every 76 characters": (lambda raw: lines_of_76(raw, "\r\n"), "base64"),
    "base64 of MySQL and Postgres, with LF": (lambda raw: lines_of_76(raw, "\n"), "base64"),
    "base64 of Python's encodebytes, with a line break at the end": (lambda raw: base64.encodebytes(raw).decode(), "base64"),
    "base64 without padding": (lambda raw: standard(raw).rstrip("="), "base64"),
    "base64 with the alphabet for URLs": (lambda raw: base64.urlsafe_b64encode(raw).decode(), "base64"),
    "base64 for URLs without padding": (lambda raw: base64.urlsafe_b64encode(raw).decode().rstrip("="), "base64"),
    "base64 between blanks": (lambda raw: f" {standard(raw)}\t", "base64"),
    "hex": (bytes.hex, "hex"),
    "hex in upper case": (lambda raw: raw.hex().upper(), "hex"),
    "hex with 0x": (lambda raw: "0x" + raw.hex(), "hex"),
    "hex of Postgres": (lambda raw: "\\x" + raw.hex(), "hex"),
    "hex as a literal of SQL": (lambda raw: f"X'{raw.hex()}'", "hex"),
    "hex with blanks, as Trino prints it": (lambda raw: raw.hex(" ") + "\n", "hex"),
    "escapes of a BLOB of DuckDB": (duckdb_blob, "escapes"),
    "escapes of Python's repr": (repr, "escapes"),
    "octal escapes of Postgres": (postgres_escape, "escapes"),
    "the bytes themselves, as kcat -J prints them": (lambda raw: raw.decode("utf-8", "surrogateescape"), "characters"),
    "one character for each byte": (lambda raw: raw.decode("latin-1"), "Latin-1"),
}


@pytest.mark.parametrize("form", ACCEPTED)
def test_a_form_is_chosen_by_the_first_rows_and_gives_the_bytes(form: str) -> None:
    encode, name = ACCEPTED[form]
    forms = text_forms_of([(encode(KEY), encode(VALUE)), (encode(KEY), None), (None, encode(VALUE))])
    assert (forms.names, forms.key.decode(encode(KEY)), forms.value.decode(encode(VALUE))) == (name, KEY, VALUE)


@pytest.mark.parametrize(
    ("rows", "key", "value"),
    [
        ([("00010001", None), (KEY.hex(), VALUE.hex())], HEX, HEX),
        ([(standard(KEY), VALUE.hex())], BASE64, HEX),
        ([(KEY, VALUE.hex())], BASE64, HEX),
        ([(standard(KEY), None)], BASE64, BASE64),
        ([(KEY.hex(), None)], HEX, HEX),
        ([(standard(KEY), standard(VALUE)), (standard(KEY), VALUE.hex()), (standard(KEY), standard(VALUE))], BASE64, BASE64),
        ([(None, None), ({"type": 1}, [0, 1])], BASE64, BASE64),
        ([], BASE64, BASE64),
    ],
)
def test_each_column_has_its_own_form(rows: list[tuple[Any, Any]], key: Any, value: Any) -> None:
    assert (text_forms_of(rows).key, text_forms_of(rows).value) == (key, value)


def test_a_column_that_fits_two_forms_has_that_of_the_other_column() -> None:
    # A key of ASCII alone is the same in UTF-8 and in Latin-1: a later key with an umlaut would be encoded twice.
    key = encode_key(1, {"group_id": "g", "topic": "t", "partition": 0})
    forms = text_forms_of([(key.decode("latin-1"), VALUE.decode("latin-1"))])
    assert (forms.names, forms.key.decode(KEY.decode("latin-1"))) == ("Latin-1", KEY)
    key_alone = text_forms_of([(KEY.decode("latin-1"), encode_value(1, 3, {**COMMIT, "commit_timestamp_ms": 5}).decode("ascii", "ignore"))])
    assert key_alone.key.name == "Latin-1"


def test_text_that_is_hex_and_base64_is_what_decodes_to_keys() -> None:
    text = encode_key(2, {"group_id": "abcde"}).hex() + "6162"[:0]
    assert len(text) % 4 == 2
    padded = encode_key(2, {"group_id": "abcdef"}).hex()
    assert base64.b64decode(padded, validate=True)
    assert text_forms_of([(padded, None)]).key is HEX
    hex_digits = standard(b"\x00\x02" + b"\x00\x03abc")
    assert text_forms_of([(hex_digits, None)]).key is BASE64


@pytest.mark.parametrize(
    ("text", "form", "why"),
    [
        ("AAE*", BASE64, r"'\*' is not a base64 character"),
        ("AAE=AAE=", BASE64, "padding is wrong"),
        ("AAEAA", BASE64, "it was cut"),
        ("AAE==", BASE64, "padding is wrong"),
        ("000", HEX, "odd number"),
        ("0g", HEX, "another character than hex digits"),
    ],
)
def test_what_is_not_in_the_form_says_why(text: str, form: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        form.decode(text)


def test_values_whose_bytes_were_replaced_are_refused() -> None:
    text = VALUE.decode("utf-8", "replace")
    with pytest.raises(ValueError, match=r"replaced bytes of the values \(U\+FFFD\)"):
        text_forms_of([(KEY.decode("utf-8", "replace"), text)] * 3)


@pytest.mark.parametrize(
    ("key", "looks"),
    [
        (standard(KEY).encode(), r"base64 text \(.*unbase64\."),
        (standard(standard(KEY).encode()).encode(), r"base64 text of base64 text \(.*unbase64 and unbase64\."),
        (KEY.hex().encode(), r"hex text \(.*unhex\."),
        (b"\x00\x00\x00\x00\x07\x0c" + KEY, r"schema id 7 \(.*ByteArrayConverter"),
        (b'{"order": 7}', r"JSON text of another kind \("),
        (b"order-7", r"text of another kind \("),
        (b"\x00\x00\x00\x00\x00\x00\x00\x07", r"bytes of another kind \("),
        (b"\xff\x01", r"bytes of another kind \(.*Give an export of __consumer_offsets"),
        (None, "no bytes"),
    ],
)  # fmt: skip
def test_keys_of_no_known_type_are_described(key: bytes | None, looks: str) -> None:
    import re

    assert re.search(looks, shape_of_keys([None, key])), shape_of_keys([None, key])
    assert not has_key([None, key, b"\x00\x00\x00\x01"])
    assert has_key([key, KEY])
