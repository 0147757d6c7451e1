"""Files that users hand over: saved answers, and properties of a Kafka client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from groupcoord_spark.errors import UsageError
from groupcoord_spark.properties import read_properties
from groupcoord_spark.verification import read_answers

PLACE = {"group": "g", "topic": "t", "partition": 0}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{", "is not a file of a broker's answers: Input data was truncated"),
        ("[]", "is not a file of a broker's answers: Expected `object`, got `array`"),
        (b"\xff", "is not a file of a broker's answers: JSON is malformed"),
        (b'{"groups": [{"group": "\xff"}]}', "is not a file of a broker's answers: "),
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


def settings(tmp_path: Path, text: str) -> dict[str, Any]:
    client_settings = pytest.importorskip("groupcoord_spark.verification.client_settings", exc_type=ImportError).client_settings
    path = tmp_path / "client.properties"
    path.write_text(text)
    return dict(client_settings(read_properties(str(path), "The file"), "client.properties"))


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required username=ann password=secret-7;"
SASL = "security.protocol=SASL_PLAINTEXT\n"
TLS = "security.protocol=SSL\n"
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
WITH_PLAIN = f"{SASL}sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN}\n"
OF = "sasl.jaas.config=a.LoginModule required"
CREDENTIALS = {"sasl_plain_username": "ann", "sasl_plain_password": "secret-7"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {"security_protocol": "PLAINTEXT"}),
        ("client.id=me\nrequest.timeout.ms=1\nkey.deserializer=x\ngroup.id=g\n", {"security_protocol": "PLAINTEXT", "client_id": "me"}),
        # What the protocol does not use has no effect, as in Kafka's own clients.
        (f"sasl.jaas.config={PLAIN}\nssl.truststore.location=/etc/trust.jks\n", {"security_protocol": "PLAINTEXT"}),
        (f"{WITH_PLAIN}sasl.login.refresh.window.factor=0.8\n", {"sasl_mechanism": "PLAIN"} | CREDENTIALS),
        (
            f"{SASL}sasl.mechanisms=scram-sha-256\nsasl.username=ann\nsasl.password=secret-7\n",
            {"sasl_mechanism": "SCRAM-SHA-256"} | CREDENTIALS,
        ),
        (f"{SASL}sasl.kerberos.service.name=broker\n", {"sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "broker"}),
        (
            f"{SASL}sasl.mechanism=AWS_MSK_IAM\nsasl.jaas.config=software.amazon.msk.auth.iam.IAMLoginModule required;\n"
            "sasl.client.callback.handler.class=software.amazon.msk.auth.iam.IAMClientCallbackHandler\n",
            {"sasl_mechanism": "AWS_MSK_IAM"},
        ),
    ],
)
def test_settings_of_kafkas_tools_have_the_clients_names(text: str, expected: dict[str, Any], tmp_path: Path) -> None:
    protocol = {"security_protocol": "SASL_PLAINTEXT"} if text.startswith(SASL) else {}
    assert settings(tmp_path, text) == protocol | expected


def test_quoted_password_of_the_jaas_line_is_read_whole(tmp_path: Path) -> None:
    line = 'org.apache.kafka.common.security.scram.ScramLoginModule required \\\n  username="ann" password="it\'s = a; secret";'
    given = settings(tmp_path, f"# the cluster\n{SASL}sasl.mechanism = SCRAM-SHA-512\nsasl.jaas.config={line}\n")
    assert (given["sasl_plain_username"], given["sasl_plain_password"]) == ("ann", "it's = a; secret")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("security.protocol=secret-7\n", "security.protocol is not one of PLAINTEXT, SSL"),
        (f"{SASL}sasl.mechanism=secret-7\n", "sasl.mechanism is not one of PLAIN, SCRAM-SHA-256"),
        (f"{SASL}sasl.mechanism=PLAIN\n{OF} secret=secret-7;\n", "names no username and password"),
        (f"{SASL}sasl.jaas.config={KRB5} required keyTab=secret-7;\n", "kinit -k -t KEYTAB PRINCIPAL"),
        (f"{SASL}sasl.mechanism=AWS_MSK_IAM\n{OF} awsProfileName=secret-7;\n", "AWS_PROFILE"),
        (f"{SASL}sasl.mechanism=OAUTHBEARER\n{OF} clientSecret=secret-7;\n", "sasl.oauthbearer.token.endpoint.url"),
        (f"{WITH_PLAIN}sasl.login.callback.handler.class=secret-7\n", "names a class of Java"),
        (f"{WITH_PLAIN}sasl.new.setting=secret-7\n", "sasl.new.setting has no counterpart"),
        (f"{TLS}ssl.truststore.location=/etc/secret-7.jks\n", "ssl.truststore.type=PEM"),
        (f"{TLS}ssl.keystore.type=PKCS12\nssl.keystore.location=/etc/secret-7.p12\n", "openssl pkcs12"),
        (f"{TLS}ssl.ca.location=/secret-7.pem\n", "cannot be read as PEM: No such file or directory"),
        (f"{TLS}ssl.keystore.type=PEM\nssl.keystore.key=secret-7\nssl.keystore.certificate.chain=x\n", "cannot be read as PEM"),
        (f"{TLS}ssl.enabled.protocols=TLSv1.1,secret-7\n", "may name TLSv1.2 and TLSv1.3 only"),
        (f"{TLS}ssl.cipher.suites=secret-7\n", "ssl.cipher.suites has no counterpart"),
    ],
)
def test_what_the_client_cannot_use_is_named_without_its_value(text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        settings(tmp_path, text)
    assert str(raised.value).startswith("client.properties: ")
    assert sentence in str(raised.value)
    assert "secret-7" not in str(raised.value)
