"""One broker for all integration tests, and the groups at work on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.groups import Groups
from tests.integration.kafka import Broker, running_broker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    pytest.importorskip("confluent_kafka", reason="the package confluent-kafka is not installed")
    with running_broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="session")
def groups(broker: Broker) -> Iterator[Groups]:
    """Groups of every kind that a client makes; their consumers run until the tests have ended."""
    with Groups(broker.servers) as at_work:
        yield at_work
