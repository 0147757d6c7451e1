"""The names of key types are those of the messages that Kafka declares."""

from __future__ import annotations

import re

from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.record_types import GROUP_KEY_TYPES, MODERN_KEY_TYPES, OFFSET_KEY_TYPES, KeyType


def test_every_declared_record_has_its_name() -> None:
    words = {number: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", each.key.name.removesuffix("Key")) for number, each in RECORD_TYPES.items()}
    assert {number: text.upper() for number, text in words.items()} == {each.value: each.name for each in KeyType}


def test_every_type_is_of_one_family() -> None:
    assert set(KeyType) == OFFSET_KEY_TYPES | {KeyType.GROUP_METADATA} | MODERN_KEY_TYPES
    assert GROUP_KEY_TYPES - {KeyType.GROUP_METADATA} <= MODERN_KEY_TYPES
