import pytest

from tests.cli import warehouse
from tests.warehouse.nights import AS_OF_MS, DAY_MS


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A warehouse with a group of each kind."""
    return warehouse.build(tmp_path_factory.mktemp("cli") / "warehouse")


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """It is an hour after the newest night of ``place``, in epoch milliseconds: commands in this process do not say that it is old."""
    now_ms = AS_OF_MS + DAY_MS + 3_600_000
    monkeypatch.setattr("groupcoord_spark.cli.options.now_ms", lambda: now_ms)
    return now_ms
