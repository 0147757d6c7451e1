"""Settings of a Kafka client from a properties file, as Kafka's own tools take with --command-config, in librdkafka's names."""

from __future__ import annotations

import re
from typing import Final

from groupcoord_spark.errors import UsageError
from groupcoord_spark.properties import read_properties

_OF_JAVA_ALONE: Final = ("key.", "value.", "interceptor.classes", "metric.reporters", "auto.include.jmx.reporter", "request.timeout.ms")
"""Beginnings of settings that concern Java's clients only, or producers and consumers."""

_JAAS: Final = "sasl.jaas.config"


def read_client_settings(path: str) -> dict[str, str]:
    """The settings in a properties file.

    ``sasl.jaas.config`` with user and password becomes ``sasl.username`` and ``sasl.password``, a truststore of type PEM
    ``ssl.ca.location``. Raises UsageError where a setting has no counterpart; its value is never part of the sentence.
    """
    given = read_properties(path, "The client's properties file")
    settings = {name: value for name, value in given.items() if not name.startswith(_OF_JAVA_ALONE)}
    jaas = settings.pop(_JAAS, None)
    if jaas is not None:
        settings |= _user_of(jaas, path)
    _rename_truststore(settings, path)
    return settings


def _user_of(jaas: str, path: str) -> dict[str, str]:
    options = {name: value.strip('"') for name, value in re.findall(r'\b(username|password)\s*=\s*("[^"]*"|[^\s;]+)', jaas)}
    if options.keys() != {"username", "password"}:
        raise UsageError(
            f"{path}: {_JAAS} names no username and password. Give sasl.mechanism and the settings of librdkafka for it instead,"
            " for example sasl.kerberos.principal or sasl.oauthbearer.config."
        )
    return {f"sasl.{name}": value for name, value in options.items()}


def _rename_truststore(settings: dict[str, str], path: str) -> None:
    kind = settings.pop("ssl.truststore.type", "JKS")
    settings.pop("ssl.truststore.password", None)
    location = settings.pop("ssl.truststore.location", None)
    certificates = settings.pop("ssl.truststore.certificates", None)
    if location is not None and kind.upper() != "PEM":
        raise UsageError(
            f"{path}: ssl.truststore.location is a {kind} keystore, which only Java reads. Export its certificates as PEM"
            " (keytool -exportcert -rfc) and name that file with ssl.ca.location."
        )
    if location is not None:
        settings["ssl.ca.location"] = location
    if certificates is not None:
        settings["ssl.ca.pem"] = certificates
