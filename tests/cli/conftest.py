import pytest

from tests.cli import warehouse


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A warehouse with a group of each kind."""
    return warehouse.build(tmp_path_factory.mktemp("cli") / "warehouse")
