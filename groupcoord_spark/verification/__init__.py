"""The answers of a broker about its groups, and the differences between them and a warehouse.

``connected`` returns a running cluster. ``write_answers`` and ``read_answers`` keep a cluster's answers in a JSON file, so that a run can
be compared with the answers at the time of its copy. ``compare`` returns every difference. Nothing here needs Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from groupcoord_spark.errors import GroupcoordError
from groupcoord_spark.sources.live import brokers_of
from groupcoord_spark.verification.answers import Answers, read_answers, write_answers
from groupcoord_spark.verification.comparison import BrokerComparison, Difference, StateOfRun, compare, state_of

if TYPE_CHECKING:
    from groupcoord_spark.verification.broker import RunningCluster

NO_CLIENT: Final = (
    "Asking a cluster needs the package kafka-python 3.0, which is not installed. Where groupcoord_spark's pyproject.toml is, run:"
    " pip install --editable '.[verify]'."
)


@contextmanager
def connected(uri: str, properties: Mapping[str, str], source: str) -> Iterator[RunningCluster]:
    """Connect to the cluster at ``kafka://HOST:PORT`` or ``admin://HOST:PORT`` until the block ends.

    properties: of Kafka's client, from the file ``source``. Raises UsageError for a bad address and bad properties, and GroupcoordError
    where the package is not installed or no broker answers.
    """
    servers = brokers_of(uri)
    try:
        from groupcoord_spark.verification.broker import RunningCluster
        from groupcoord_spark.verification.client_settings import client_settings
    except ImportError as e:
        raise GroupcoordError(NO_CLIENT) from e
    cluster = RunningCluster(uri, servers, client_settings(properties, source))
    try:
        yield cluster
    finally:
        cluster.close()
