from __future__ import annotations

from collections.abc import Iterator

import pytest

from groupcoord_spark.protocol import RECORD_TYPES
from groupcoord_spark.protocol.fields import REQUIRED, Array, Field, Int32, Message, String, Struct, Type, Uuid
from groupcoord_spark.protocol.messages.connect import CONNECT_ASSIGNMENT, CONNECT_METADATA
from groupcoord_spark.protocol.messages.embedded import CONSUMER_PROTOCOL_ASSIGNMENT, CONSUMER_PROTOCOL_SUBSCRIPTION

MESSAGES = [
    message for record_type in RECORD_TYPES.values() for message in (record_type.key, record_type.value, *record_type.dialects)
] + [CONNECT_ASSIGNMENT, CONNECT_METADATA, CONSUMER_PROTOCOL_ASSIGNMENT, CONSUMER_PROTOCOL_SUBSCRIPTION]  # fmt: skip


def every_field(fields: tuple[Field, ...]) -> Iterator[Field]:
    for field in fields:
        yield field
        yield from every_field(fields_in(field.type))


def fields_in(kind: Type) -> tuple[Field, ...]:
    if isinstance(kind, Array):
        return fields_in(kind.element)
    return kind.fields if isinstance(kind, Struct) else ()


def test_all_types_from_0_to_23_are_there_but_the_one_never_released() -> None:
    assert sorted(RECORD_TYPES) == [key_type for key_type in range(24) if key_type != 18]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: f"{message.name}-{message.dialect}")
class TestEveryTable:
    def test_each_field_has_its_sentence(self, message: Message) -> None:
        assert all(field.meaning.endswith(".") for field in every_field(message.fields))

    def test_each_version_says_when_it_came(self, message: Message) -> None:
        assert sorted(message.since) == list(range(message.versions[0], message.versions[1] + 1))

    def test_names_are_told_apart_in_every_version(self, message: Message) -> None:
        for version in message.since:
            fields = message.fields_of(version)
            assert len({field.name for field in fields}) == len(fields) == len({field.json for field in fields})

    def test_a_field_that_a_known_version_lacks_has_a_default(self, message: Message) -> None:
        for field in message.fields:
            always = all(any(f.name == field.name for f in message.fields_of(version)) for version in message.since)
            assert always or field.default is not REQUIRED


def test_a_tagged_field_without_a_default_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="'topic_id' needs a default"):
        Field("topic_id", Uuid, "The topic's id.", tag=0)


def test_versions_are_written_as_kafka_writes_them() -> None:
    assert [v for v in range(6) if Field("f", Int32, "F.", versions="3+").is_in(v)] == [3, 4, 5]
    assert [v for v in range(6) if Field("f", Int32, "F.", versions="1").is_in(v)] == [1]
    assert [v for v in range(6) if Field("f", Int32, "F.", versions="0-2").is_in(v)] == [0, 1, 2]


def test_an_absent_list_is_a_new_one_each_time() -> None:
    field = Field("f", Array(String), "F.", default=[])
    field.absent_value().append("x")
    assert field.absent_value() == []
