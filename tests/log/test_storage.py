"""Paths and URIs in the words that people type."""

from __future__ import annotations

import pytest

from groupcoord_spark.errors import InputError, WarehouseError
from groupcoord_spark.log.storage import usual_uri
from groupcoord_spark.warehouse.location import locate


@pytest.mark.parametrize(
    ("given", "usual"),
    [
        ("s3a://bucket/logs", "s3://bucket/logs"),
        ("S3N://bucket/logs?region=eu", "s3://bucket/logs?region=eu"),
        ("s3://bucket/logs", "s3://bucket/logs"),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
        ("/Volumes/main/default/logs", "/Volumes/main/default/logs"),
        ("logs", "logs"),
    ],
)
def test_schemes_of_hadoop_become_those_of_pyarrow(given: str, usual: str) -> None:
    assert usual_uri(given) == usual


@pytest.mark.parametrize(
    ("given", "sentence"),
    [("wasbs://c@a.blob.core.windows.net/x", "Write abfss://CONTAINER@ACCOUNT"), ("dbfs:/logs", "on Databricks alone")],
)
def test_schemes_that_cannot_be_read_are_refused_with_what_works(given: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        usual_uri(given)
    with pytest.raises(WarehouseError, match=sentence):
        locate(given)
