"""The answers of a broker about its groups, and the differences between them and a warehouse.

``connected`` is a running cluster, which answers through the Admin API of the package confluent-kafka. ``write_answers`` and
``read_answers`` keep the answers in a JSON file, so that a run can be compared with the answers of the time at which its log was copied.
``compare`` returns every difference. Nothing here needs Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.sources.live import brokers_of
from groupcoord_spark.verification.answers import Answers, read_answers, write_answers
from groupcoord_spark.verification.comparison import BrokerComparison, Difference, StateOfRun, compare, state_of

if TYPE_CHECKING:
    from groupcoord_spark.verification.broker import RunningCluster

NO_CLIENT: Final = (
    "Asking a cluster needs the package confluent-kafka, which is not installed. Where groupcoord_spark's pyproject.toml is, run:"
    " pip install --editable '.[verify]'."
)


def connected(uri: str, properties: Mapping[str, str], source: str) -> RunningCluster:
    """The cluster at ``kafka://HOST:PORT`` or ``admin://HOST:PORT``.

    properties: of Kafka's client, from the file ``source``. Raises UsageError for a bad address and bad properties, and GroupcoordError
    where the package is not installed or no broker answers.
    """
    from groupcoord_spark.verification.client_settings import client_settings

    servers, settings = brokers_of(uri), client_settings(properties, source)
    try:
        from groupcoord_spark.verification.broker import RunningCluster
    except ImportError as e:
        raise GroupcoordError(NO_CLIENT) from e
    return RunningCluster(uri, servers, settings)
