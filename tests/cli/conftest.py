import pytest

from groupcoord_spark.answers.morning import mornings
from tests.cli import warehouse
from tests.warehouse.nights import AS_OF_MS, DAY_MS


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """Provide a warehouse with a group of each kind."""
    return warehouse.build(tmp_path_factory.mktemp("cli") / "warehouse")


@pytest.fixture(scope="module")
def news_are_gathered_once():
    """Commands that show the same run show the same news, and to gather them takes most of the CPU of such a command."""
    gathered = {}

    def gather(warehouse, runs, horizon_ms, snapshot=None):
        key = warehouse.location.uri, horizon_ms, *(run.run_id for run in runs)
        if key not in gathered:
            gathered[key] = mornings(warehouse, runs, horizon_ms, snapshot)
        return gathered[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("groupcoord_spark.answers.morning.mornings", gather)
        yield


@pytest.fixture(autouse=True)
def now(monkeypatch):
    """It is an hour after the newest run of ``place``, in epoch milliseconds: commands in this process do not say that it is old."""
    now_ms = AS_OF_MS + DAY_MS + 3_600_000
    monkeypatch.setattr("groupcoord_spark.cli.options.now_ms", lambda: now_ms)
    return now_ms
