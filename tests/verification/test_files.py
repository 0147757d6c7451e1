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
        ("{", "line 1: not JSON"),
        ("[]", "holds no answers of a broker"),
        ('{"something": 1}', "holds no answers of a broker"),
        ({"groups": {}}, "groups is not a list of objects"),
        ({"groups": [{"state": "Empty"}]}, "groups[0].group is not there; it is needed"),
        ({"groups": [{"group": "g", "generation": "3"}]}, "groups[0].generation is not a whole number"),
        ({"groups": [{"group": "g", "members": [{"member_id": "m", "assignment": ["orders"]}]}]}, "groups[0].members[0].assignment is not"),
        ({"offsets": [PLACE]}, "offsets[0].offset is not there"),
        ({"offsets": [{**PLACE, "offset": True}]}, "offsets[0].offset is not a whole number"),
        ({"pending": [{**PLACE, "partition": "0"}]}, "pending[0].partition is not a whole number"),
        ({"pending": [], "pending_topics": ["t"]}, "pending_topics is not"),
        ({"groups": [], "asked_at_ms": 5}, "asked_at_ms is not two whole numbers"),
        ({"groups": [], "topic_ids": {"t": 1}}, "topic_ids is not"),
        ({"groups": [], "protocol_types": "consumer"}, "protocol_types is not a list of texts"),
    ],
)
def test_file_that_is_no_answers_is_refused_by_the_place(content: Any, sentence: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
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
