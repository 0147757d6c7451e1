from collections.abc import Iterator
from unittest.mock import patch

import pytest

from groupcoord_spark.warehouse import TABLES
from tests.warehouse.nights import FEW_TABLES

EVERY_TABLE = dict(TABLES)


@pytest.fixture(scope="module")
def few_tables() -> Iterator[None]:
    """Warehouses have ``FEW_TABLES`` and no more: what a run and a reader do takes as much CPU as there are tables."""
    with patch.dict(TABLES, {name: table for name, table in TABLES.items() if name in FEW_TABLES}, clear=True):
        yield


@pytest.fixture
def every_table(few_tables: None) -> Iterator[None]:
    """Warehouses have every table nonetheless."""
    with patch.dict(TABLES, EVERY_TABLE, clear=True):
        yield
