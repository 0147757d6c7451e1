"""The settings of kafka-python's connections from a properties file for Kafka's tools (--command-config)."""

import json
import re
import ssl
import urllib.parse
import urllib.request
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from kafka.net.sasl.oauth import AbstractTokenProvider

from groupcoord_spark.errors import UsageError

TOKEN_TIMEOUT_SECONDS: Final = 30

_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
_TLS_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_JAAS: Final = "sasl.jaas.config"
_OAUTH: Final = "sasl.oauthbearer."

_OTHER_NAMES: Final = {
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.ca.pem": "ssl.truststore.certificates",
    "ssl.certificate.pem": "ssl.keystore.certificate.chain",
    "ssl.key.pem": "ssl.keystore.key",
    f"{_OAUTH}client.credentials.client.id": f"{_OAUTH}client.id",
    f"{_OAUTH}client.credentials.client.secret": f"{_OAUTH}client.secret",
}
"""Names of librdkafka, and newer names of Kafka -> the name that is read here."""

_KNOWN_HANDLERS: Final = ("OAuthBearerLoginCallbackHandler", "IAMClientCallbackHandler")

_WITHOUT_EFFECT: Final = (
    *("sasl.login.refresh.", "sasl.login.retry.", "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.class"),
    *("sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.", "sasl.kerberos.ticket.renew.", f"{_OAUTH}method"),
    *("sasl.client.callback.handler.class", "security.providers", "ssl.provider", "ssl.secure.random.", "ssl.keymanager."),
    *("ssl.trustmanager.",),
)
"""Beginnings of the names of settings that decide how a Java client connects and that have no effect on the outcome here."""


class TokenOfServer(AbstractTokenProvider):  # type: ignore[misc]
    """Access tokens from a server's token endpoint, by the grant for client credentials."""

    def __init__(self, endpoint: str, client_id: str, secret: str, scope: str | None) -> None:
        self._endpoint = endpoint
        self._credentials = b64encode(f"{urllib.parse.quote(client_id)}:{urllib.parse.quote(secret)}".encode()).decode()
        self._form = {"grant_type": "client_credentials", **({"scope": scope} if scope else {})}

    def token(self) -> str:
        """Return a new access token. Raises OSError where the server does not answer, ValueError where it gives no token."""
        headers = {"Authorization": f"Basic {self._credentials}", "Accept": "application/json"}
        request = urllib.request.Request(self._endpoint, urllib.parse.urlencode(self._form).encode(), headers)
        with urllib.request.urlopen(request, timeout=TOKEN_TIMEOUT_SECONDS) as response:
            answer = json.load(response)
        if "access_token" not in answer:
            raise ValueError("the token endpoint gave no access_token")
        return str(answer["access_token"])


def client_settings(properties: Mapping[str, str], source: str) -> dict[str, Any]:
    """Return the settings of kafka-python for a properties file of Kafka's tools.

    Settings that do not decide how the client connects are left out: they concern producers, consumers or a Java client's own workings.

    Args:
        properties: The file's properties, with Kafka's names or librdkafka's.
        source: The file, for error messages.

    Raises:
        UsageError: A setting has no counterpart, or cannot be used. The sentence never contains its value.
    """
    given = {_OTHER_NAMES.get(name, name): value for name, value in properties.items()}
    if "ssl.ca.location" in given:
        given |= {"ssl.truststore.location": given.pop("ssl.ca.location"), "ssl.truststore.type": "PEM"}
    try:
        protocol = _chosen(given, "security.protocol", _PROTOCOLS, "PLAINTEXT")
        settings: dict[str, Any] = {"security_protocol": protocol}
        if "client.id" in given:
            settings["client_id"] = given["client.id"]
        # As in Kafka's own clients, settings of a protocol that is not in use have no effect.
        if protocol.startswith("SASL_"):
            settings |= _login(given)
        if protocol.endswith("SSL"):
            settings["ssl_context"] = _tls_context(given)
        used = tuple(f"{part.lower()}." for part in ("security", *protocol.split("_")))
        for name in sorted(given):
            if name.startswith(used) and not name.startswith(_WITHOUT_EFFECT):
                raise UsageError(f"{name} has no counterpart in kafka-python, the client that asks the brokers. Leave it out.")
    except UsageError as e:
        raise UsageError(f"{source}: {e}") from None
    return settings


def _chosen(given: dict[str, str], name: str, allowed: tuple[str, ...], default: str) -> str:
    value = given.pop(name, default).upper()
    if value not in allowed:
        raise UsageError(f"{name} is not one of {', '.join(allowed)}.")
    return value


def _login(given: dict[str, str]) -> dict[str, Any]:
    """Take the settings of SASL out of ``given``."""
    mechanism = _chosen(given, "sasl.mechanism", _MECHANISMS, "GSSAPI")
    module, options = _jaas_options(given.pop(_JAAS, ""))
    handler = given.pop("sasl.login.callback.handler.class", "")
    if handler and not handler.endswith(_KNOWN_HANDLERS):
        raise UsageError("sasl.login.callback.handler.class names a class of Java, which this client cannot use.")
    service = given.pop("sasl.kerberos.service.name", None) or options.get("serviceName", "kafka")
    username, password = given.pop("sasl.username", options.get("username")), given.pop("sasl.password", options.get("password"))
    endpoint, scope = given.pop(f"{_OAUTH}token.endpoint.url", None), given.pop(f"{_OAUTH}scope", options.get("scope"))
    client_id = given.pop(f"{_OAUTH}client.id", options.get("clientId"))
    secret = given.pop(f"{_OAUTH}client.secret", options.get("clientSecret"))
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "GSSAPI":
        if "keyTab" in options:
            raise UsageError(f"{_JAAS} names a keytab. Get a ticket (kinit -k -t KEYTAB PRINCIPAL) and leave {_JAAS} out.")
        return settings | {"sasl_kerberos_service_name": service}
    if mechanism == "AWS_MSK_IAM":
        if options:
            raise UsageError(f"{_JAAS} has options of a login module that only Java has. Set AWS_PROFILE or AWS_ROLE_ARN instead.")
        return settings
    if mechanism == "OAUTHBEARER":
        if endpoint is None or client_id is None or secret is None:
            raise UsageError(
                f"OAUTHBEARER needs {_OAUTH}token.endpoint.url, and clientId and clientSecret in {_JAAS}. This client has no other way"
                " to get a token."
            )
        return settings | {"sasl_oauth_token_provider": TokenOfServer(endpoint, client_id, secret, scope)}
    if username is None or password is None:
        known = f" of {module}" if module else ""
        raise UsageError(f"{_JAAS}{known} names no username and password, and {mechanism} needs both.")
    return settings | {"sasl_plain_username": username, "sasl_plain_password": password}


def _jaas_options(line: str) -> tuple[str, dict[str, str]]:
    """Return the class name of the login module and its options."""
    module = re.match(r"[\w.$]+", line.strip())
    options = re.findall(r'\b(\w+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|([^\s;]+))', line)
    values = {name: re.sub(r"\\(.)", r"\1", quoted) or plain for name, quoted, plain in options}
    return module[0].rpartition(".")[2] if module else "", values


def _tls_context(given: dict[str, str]) -> ssl.SSLContext:
    """Take the settings of TLS out of ``given``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    names = re.findall(r"[^,\s]+", f"{given.pop('ssl.enabled.protocols', '')},{given.pop('ssl.protocol', '')}")
    if not _TLS_VERSIONS.keys() >= set(names):
        raise UsageError(f"ssl.enabled.protocols and ssl.protocol may name {' and '.join(_TLS_VERSIONS)} only.")
    context.minimum_version = min((_TLS_VERSIONS[name] for name in names), default=ssl.TLSVersion.TLSv1_2)
    if given.pop("ssl.endpoint.identification.algorithm", "https").strip().lower() in ("", "none"):
        context.check_hostname = False
    if given.pop("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    truststore, keystore = _pem_location(given, "ssl.truststore"), _pem_location(given, "ssl.keystore")
    trusted = given.pop("ssl.truststore.certificates", None)
    chain, key = given.pop("ssl.keystore.certificate.chain", None), given.pop("ssl.keystore.key", None)
    certificate_file, key_file = given.pop("ssl.certificate.location", keystore), given.pop("ssl.key.location", None)
    given.pop("ssl.truststore.password", None)
    password = given.pop("ssl.key.password", given.pop("ssl.keystore.password", None))
    try:
        if truststore is None and trusted is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(truststore, cadata=trusted)
        with TemporaryDirectory() as directory:
            if chain is not None and key is not None:  # load_cert_chain reads files only
                certificate_file, key_file = f"{directory}/chain.pem", f"{directory}/key.pem"
                Path(certificate_file).write_text(chain)
                Path(key_file).write_text(key)
            if certificate_file is not None:
                context.load_cert_chain(certificate_file, key_file, password or "")
    except (OSError, ValueError) as e:  # an ssl.SSLError is an OSError
        reason = e.strerror if isinstance(e, OSError) and e.strerror else type(e).__name__
        raise UsageError(f"the certificates or the key of ssl.truststore and ssl.keystore cannot be read as PEM: {reason}.") from None
    return context


def _pem_location(given: dict[str, str], store: str) -> str | None:
    """Take the location of a store out of ``given``."""
    location, kind = given.pop(f"{store}.location", None), given.pop(f"{store}.type", "JKS").upper()
    if location is not None and kind != "PEM":
        raise UsageError(
            f"{store}.location is a {kind} keystore, which this client does not read. Export it as PEM (keytool -importkeystore"
            f" -deststoretype PKCS12, then openssl pkcs12), and set {store}.type=PEM."
        )
    return location
