"""The settings of a Kafka client from a properties file for Kafka's tools (--command-config), with librdkafka's names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from groupcoord_spark.errors import UsageError

_ONLY_JAVA: Final = (
    *("key.", "value.", "interceptor.classes", "metric.reporters", "auto.include.jmx.reporter"),
    *("request.timeout.ms", "default.api.timeout.ms"),
)
"""Beginnings of the names of settings for Java clients only, or for producers and consumers only."""

_JAAS: Final = "sasl.jaas.config"


def client_settings(properties: Mapping[str, str], source: str) -> dict[str, str]:
    """The settings of a properties file for Kafka's tools, with librdkafka's names. source: the file, for error sentences.

    ``sasl.jaas.config`` with user name and password becomes ``sasl.username`` and ``sasl.password``. A truststore of type PEM becomes
    ``ssl.ca.location``.

    Raises:
        UsageError: librdkafka has no such setting. The sentence never contains the value.
    """
    settings = {name: value for name, value in properties.items() if not name.startswith(_ONLY_JAVA)}
    jaas = settings.pop(_JAAS, None)
    if jaas is not None:
        settings |= _username_and_password(jaas, source)
    _rename_truststore(settings, source)
    return settings


def _username_and_password(jaas: str, source: str) -> dict[str, str]:
    options = {name: value.strip('"') for name, value in re.findall(r'\b(username|password)\s*=\s*("[^"]*"|[^\s;]+)', jaas)}
    if options.keys() != {"username", "password"}:
        raise UsageError(
            f"{source}: {_JAAS} names no username and password. Give sasl.mechanism and the settings of librdkafka for it instead,"
            " for example sasl.kerberos.principal or sasl.oauthbearer.config."
        )
    return {f"sasl.{name}": value for name, value in options.items()}


def _rename_truststore(settings: dict[str, str], source: str) -> None:
    kind = settings.pop("ssl.truststore.type", "JKS")
    settings.pop("ssl.truststore.password", None)
    location = settings.pop("ssl.truststore.location", None)
    certificates = settings.pop("ssl.truststore.certificates", None)
    if location is not None and kind.upper() != "PEM":
        raise UsageError(
            f"{source}: ssl.truststore.location is a {kind} keystore, which only Java reads. Export its certificates as PEM"
            " (keytool -exportcert -rfc) and name that file with ssl.ca.location."
        )
    if location is not None:
        settings["ssl.ca.location"] = location
    if certificates is not None:
        settings["ssl.ca.pem"] = certificates
