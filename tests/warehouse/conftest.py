from collections.abc import Iterator

import pytest

from tests.warehouse import nights


@pytest.fixture(scope="module")
def few_tables() -> Iterator[None]:
    with nights.few_tables():
        yield
