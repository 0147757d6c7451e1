"""The end of a session that this package started."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from groupcoord_spark.spark import session


def test_nothing_is_said_to_java_once_it_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """py4j's thread that reports dropped objects to Java would print a traceback into the output of a script that has finished."""
    client = SimpleNamespace(is_connected=True)
    connected_at_kill: list[bool] = []
    directory = SimpleNamespace(end_processes=lambda: connected_at_kill.append(client.is_connected), remove=lambda: None)
    monkeypatch.setattr(session, "own_directory", lambda: directory)
    monkeypatch.setattr(session.atexit, "unregister", lambda function: None)
    for name, value in {"_active_spark_context": None, "_gateway": SimpleNamespace(_gateway_client=client), "_jvm": None}.items():
        monkeypatch.setattr(SparkContext, name, value)
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    session.end_session()
    assert connected_at_kill == [False]
