"""Files that users hand over: saved answers, and properties of a Kafka client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.errors import UsageError
from groupcoord_spark.properties import read_properties
from groupcoord_spark.verification import read_answers
from groupcoord_spark.verification.client_settings import client_settings

PLACE = {"group": "g", "topic": "t", "partition": 0}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is no file of a broker's answers: Input data was truncated"),
        ("[]", "is no file of a broker's answers: Expected `object`, got `array`"),
        (b"\xff", "is no file of a broker's answers: JSON is malformed"),
        (b'{"groups": [{"group": "\xff"}]}', "is no file of a broker's answers: "),
        ('{"something": 1}', "holds no answers of a broker"),
        ({"groups": {}}, "Expected `array | null`, got `object` - at `$.groups`"),
        ({"groups": [{"state": "Empty"}]}, "missing required field `group` - at `$.groups[0]`"),
        ({"groups": [{"group": "g", "generation": "3"}]}, "Expected `int | null`, got `str` - at `$.groups[0].generation`"),
        ({"groups": [{"group": "g", "members": [{"member_id": "m", "assignment": ["t"]}]}]}, "at `$.groups[0].members[0].assignment[0]`"),
        ({"offsets": [PLACE]}, "missing required field `offset` - at `$.offsets[0]`"),
        ({"offsets": [{**PLACE, "offset": True}]}, "Expected `int`, got `bool` - at `$.offsets[0].offset`"),
        ({"pending": [{**PLACE, "partition": "0"}]}, "at `$.pending[0].partition`"),
        ({"pending": [], "pending_topics": ["t"]}, "at `$.pending_topics`"),
        ({"groups": [], "asked_at_ms": 5}, "at `$.asked_at_ms`"),
        ({"groups": [], "topic_ids": {"t": 1}}, "at `$.topic_ids[...]`"),
        ({"groups": [], "protocol_types": "consumer"}, "at `$.protocol_types`"),
    ],
)
def test_file_that_is_no_answers_is_refused_by_the_place(content: Any, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    text = content if isinstance(content, bytes | str) else json.dumps(content)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError) as raised:
        read_answers(str(path))
    assert sentence in str(raised.value)
    assert str(path) in str(raised.value)


def settings(tmp_path: Path, text: str) -> dict[str, str]:
    path = tmp_path / "client.properties"
    path.write_text(text)
    return client_settings(read_properties(str(path), "The file"), str(path))


def test_user_and_password_come_out_of_the_jaas_line(tmp_path: Path) -> None:
    line = 'org.apache.kafka.common.security.scram.ScramLoginModule required \\\n  username="ann" password="it\'s = a; secret";'
    given = settings(tmp_path, f"# the cluster\nsecurity.protocol=SASL_SSL\nsasl.mechanism = SCRAM-SHA-512\nsasl.jaas.config={line}\n")
    assert given == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "ann",
        "sasl.password": "it's = a; secret",
    }


def test_truststore_of_pem_is_a_file_of_certificates(tmp_path: Path) -> None:
    given = settings(tmp_path, "ssl.truststore.type=PEM\nssl.truststore.location=/etc/ca.pem\nkey.deserializer=x\n")
    assert given == {"ssl.ca.location": "/etc/ca.pem"}


def test_truststore_of_java_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ssl\.ca\.location") as raised:
        settings(tmp_path, "ssl.truststore.location=/etc/trust.jks\nssl.truststore.password=hidden\n")
    assert "hidden" not in str(raised.value)


def test_login_without_a_password_is_refused_without_showing_the_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="names no username and password") as raised:
        settings(tmp_path, "sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required keyTab=/secret/tab;\n")
    assert "/secret/tab" not in str(raised.value)
