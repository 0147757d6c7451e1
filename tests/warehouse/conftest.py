from collections.abc import Iterator
from unittest.mock import patch

import pytest

from groupcoord_spark.warehouse import TABLES
from tests.warehouse import nights

EVERY_TABLE = dict(TABLES)


@pytest.fixture(scope="module")
def few_tables() -> Iterator[None]:
    with nights.few_tables():
        yield


@pytest.fixture
def every_table(few_tables: None) -> Iterator[None]:
    """Warehouses have every table nonetheless."""
    with patch.dict(TABLES, EVERY_TABLE, clear=True):
        yield
