"""The names of key types are the ones of the messages that Kafka declares."""

from __future__ import annotations

import re

from groupcoord_spark.protocol.messages import RECORD_TYPES
from groupcoord_spark.protocol.record_types import GROUP_KEY_TYPES, MODERN_KEY_TYPES, OFFSET_KEY_TYPES, KeyType


def test_every_declared_record_has_its_name() -> None:
    names = {number: record_type.key.name.removesuffix("Key") for number, record_type in RECORD_TYPES.items()}
    declared = {number: re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).upper() for number, name in names.items()}
    assert declared == {key_type.value: key_type.name for key_type in KeyType}


def test_every_type_is_of_one_family() -> None:
    assert set(KeyType) == OFFSET_KEY_TYPES | {KeyType.GROUP_METADATA} | MODERN_KEY_TYPES
    assert GROUP_KEY_TYPES - {KeyType.GROUP_METADATA} <= MODERN_KEY_TYPES
